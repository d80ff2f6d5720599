from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

VECTOR: int  # whether the kernels compiled for AVX2 are in use

# ------------------------------------------------------------------ summation.c

def accumulate(state: Floats, terms: Floats | float, out: Floats | None) -> Any: ...

# ------------------------------------------------------------------ philox.c

# ------------------------------------------------------------------ alarms.c

# ------------------------------------------------------------------ mixture.c

# ------------------------------------------------------------------ jackson.c

def kernel(sums: Floats, weights: Floats, orders: Integers, forgetting: Floats, p: Floats, densities: Floats) -> None: ...
def markov(
    last: Floats, sums: Floats, weights: Floats, orders: Integers, forgetting: Floats, p: Floats, densities: Floats
) -> None: ...

# ------------------------------------------------------------------ beta.c

def beta(
    shares: Floats, totals: Floats, rates: Floats, shapes: Floats, norm: Floats, p: Floats, densities: Floats
) -> None: ...

# ------------------------------------------------------------------ histogram.c

def tree(
    counts: Floats, log_own: Floats, log_mixed: Floats, depth: int, smooth: bool, p: Floats, gains: Floats
) -> None: ...
def tree_step(
    counts: Floats, log_own: Floats, log_mixed: Floats, depth: int, smooth: bool, p: float, learn: bool
) -> float: ...

# ------------------------------------------------------------------ blend.c

# ------------------------------------------------------------------ jumper.c

# ------------------------------------------------------------------ watchful.c

# ------------------------------------------------------------------ plugin.c

# ------------------------------------------------------------------ adaptive.c

PORTFOLIO_EVERY: int

def adaptive(*arguments: Any) -> None: ...

# ------------------------------------------------------------------ pools.c

# ------------------------------------------------------------------ nearest.c

# ------------------------------------------------------------------ neighbours.c

# ------------------------------------------------------------------ sweep.c

# ------------------------------------------------------------------ keyed.c
