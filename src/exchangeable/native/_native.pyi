from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Float32s = NDArray[np.float32]
Int32s = NDArray[np.int32]
Uint32s = NDArray[np.uint32]
Bools = NDArray[np.bool_]

VECTOR: int  # whether the kernels compiled for AVX2 are in use

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

POOL_WIDTH: int
POOL_ROOT: int
POOL_NODES: int
POOL_HEIGHT: int
POOL_DISTINCT: int
POOL_TOTAL: int

def pool_nodes(distinct: int) -> int: ...
def pool_add(
    x: float, most: int, head: Integers, size: Int32s, score: Floats, count: Integers, child: Int32s
) -> tuple[int, int, int]: ...
def pool_extend(
    x: Floats,
    head: Integers,
    size: Int32s,
    score: Floats,
    count: Integers,
    child: Int32s,
    greater: Integers,
    equal: Integers,
) -> None: ...

# ------------------------------------------------------------------ nearest.c

def squared_distance(a: Floats, b: Floats) -> float: ...
def nearest_scores(near: Floats, alpha: Floats) -> None: ...
def nearest_copy(X: Floats, centre: Floats, scale: float, F: Float32s, low: Float32s) -> None: ...
def nearest_refresh(n: int, scale: float, low: Float32s, near: Floats, ceil: Float32s, tied: bool) -> None: ...
def nearest_extend(
    start: int,
    G: Float32s,
    scale: float,
    X: Floats,
    code: Int32s,
    low: Float32s,
    alpha: Floats,
    near: Floats,
    ceil: Float32s,
    within: bool,
    counts: Integers,
    at: int,
) -> int: ...
def nearest_tile(
    start: int,
    G: Float32s,
    scale: float,
    rows_X: Floats,
    rows_code: Int32s,
    rows_low: Float32s,
    born: Floats,
    X: Floats,
    code: Int32s,
    low: Float32s,
    near: Floats,
    ceil: Float32s,
    within: bool,
    place: Uint32s,
    time: Uint32s,
    distance: Floats,
) -> tuple[int, int]: ...

# ------------------------------------------------------------------ neighbours.c

def neighbours_extend(
    start: int,
    G: Float32s,
    scale: float,
    X: Floats,
    code: Int32s,
    low: Float32s,
    label: Floats,
    alpha: Floats,
    near: Floats,
    tags: Floats,
    ceil: Float32s,
    within: bool,
    counts: Integers,
    at: int,
) -> int: ...

# ------------------------------------------------------------------ sweep.c

def sweep_gather(
    order: Integers, place: Uint32s, time: Uint32s, distance: Floats, born: Floats, near: Floats, true: Bools
) -> None: ...
def sweep_scores(near: Floats, place: Uint32s, distance: Floats, first: Floats, later: Floats) -> None: ...
def sweep_ranks(
    levels: int, first: Integers, later: Integers, place: Uint32s, time: Uint32s, counts: Integers
) -> None: ...

# ------------------------------------------------------------------ keyed.c
