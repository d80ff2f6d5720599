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

def jackson_weights(order: int, weights: Floats) -> None: ...
@overload
def kernel(sums: Floats, weights: Floats, forgetting: float, p: float, gains: None) -> float: ...
@overload
def kernel(sums: Floats, weights: Floats, forgetting: float, p: Floats, gains: Floats) -> None: ...
@overload
def kernel(
    sums: Floats, weights: Floats, forgetting: float, p: Floats | float, gains: Floats | None
) -> float | None: ...
@overload
def markov(last: Floats, sums: Floats, weights: Floats, forgetting: float, p: float, gains: None) -> float: ...
@overload
def markov(last: Floats, sums: Floats, weights: Floats, forgetting: float, p: Floats, gains: Floats) -> None: ...
@overload
def markov(
    last: Floats, sums: Floats, weights: Floats, forgetting: float, p: Floats | float, gains: Floats | None
) -> float | None: ...

# ------------------------------------------------------------------ beta.c

def beta_grid(size: int, reach: float, grid: Floats) -> None: ...
@overload
def beta(weights: Floats, total: Floats, grid: Floats, switching: float, p: float, gains: None) -> float: ...
@overload
def beta(weights: Floats, total: Floats, grid: Floats, switching: float, p: Floats, gains: Floats) -> None: ...
@overload
def beta(
    weights: Floats, total: Floats, grid: Floats, switching: float, p: Floats | float, gains: Floats | None
) -> float | None: ...

# ------------------------------------------------------------------ histogram.c

@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: float, gains: None) -> float: ...
@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: Floats, gains: Floats) -> None: ...
@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: Floats | float, gains: Floats | None) -> float | None: ...
def tree_at(nodes: Floats, depth: int, smooth: bool, p: float) -> float: ...
def tree_log_odds(nodes: Floats, depth: int, smooth: bool, logs: Floats) -> int: ...

# ------------------------------------------------------------------ blend.c

# ------------------------------------------------------------------ jumper.c

# ------------------------------------------------------------------ watchful.c

# ------------------------------------------------------------------ plugin.c

# ------------------------------------------------------------------ adaptive.c

ADAPTIVE_STATE: int  # how many numbers its state holds
ADAPTIVE_TABLES: int  # and its tables

def adaptive_tables(tables: Floats) -> None: ...
def adaptive_fresh(state: Floats) -> None: ...
@overload
def adaptive(state: Floats, tables: Floats, p: float, gains: None) -> float: ...
@overload
def adaptive(state: Floats, tables: Floats, p: Floats, gains: Floats) -> None: ...
@overload
def adaptive(state: Floats, tables: Floats, p: Floats | float, gains: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ pools.c

# ------------------------------------------------------------------ nearest.c

# ------------------------------------------------------------------ neighbours.c

# ------------------------------------------------------------------ sweep.c

# ------------------------------------------------------------------ keyed.c
