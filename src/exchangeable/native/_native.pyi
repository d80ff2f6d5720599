from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

VECTOR: int  # whether the kernels compiled for AVX2 are in use

# ------------------------------------------------------------------ elementary.c

@overload
def exp(x: float, out: None) -> float: ...
@overload
def exp(x: Floats, out: Floats) -> None: ...
@overload
def log(x: float, out: None) -> float: ...
@overload
def log(x: Floats, out: Floats) -> None: ...
@overload
def log1p(x: float, out: None) -> float: ...
@overload
def log1p(x: Floats, out: Floats) -> None: ...
@overload
def sinpi(x: float, out: None) -> float: ...
@overload
def sinpi(x: Floats, out: Floats) -> None: ...
@overload
def cospi(x: float, out: None) -> float: ...
@overload
def cospi(x: Floats, out: Floats) -> None: ...
@overload
def lgamma(x: float, out: None) -> float: ...
@overload
def lgamma(x: Floats, out: Floats) -> None: ...
@overload
def erfc(x: float, out: None) -> float: ...
@overload
def erfc(x: Floats, out: Floats) -> None: ...
@overload
def erfcx(x: float, out: None) -> float: ...
@overload
def erfcx(x: Floats, out: Floats) -> None: ...
@overload
def inverse_fifth_root(x: float, out: None) -> float: ...
@overload
def inverse_fifth_root(x: Floats, out: Floats) -> None: ...

# ------------------------------------------------------------------ summation.c

def accumulate(state: Floats, terms: Floats | float, out: Floats | None) -> Any: ...

# ------------------------------------------------------------------ philox.c

# ------------------------------------------------------------------ alarms.c

# ------------------------------------------------------------------ mixture.c

# ------------------------------------------------------------------ jackson.c

# ------------------------------------------------------------------ beta.c

# ------------------------------------------------------------------ histogram.c

# ------------------------------------------------------------------ blend.c

# ------------------------------------------------------------------ jumper.c

# ------------------------------------------------------------------ watchful.c

# ------------------------------------------------------------------ plugin.c

# ------------------------------------------------------------------ adaptive.c

# ------------------------------------------------------------------ pools.c

# ------------------------------------------------------------------ nearest.c

# ------------------------------------------------------------------ neighbours.c

# ------------------------------------------------------------------ sweep.c

# ------------------------------------------------------------------ keyed.c
