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

# ------------------------------------------------------------------ beta.c

# ------------------------------------------------------------------ histogram.c

# ------------------------------------------------------------------ blend.c

# ------------------------------------------------------------------ jumper.c

# ------------------------------------------------------------------ watchful.c

# ------------------------------------------------------------------ plugin.c

PLUGIN_N: int
PLUGIN_SUM: int
PLUGIN_SUM_CARRY: int
PLUGIN_SQUARES: int
PLUGIN_SQUARES_CARRY: int
PLUGIN_WIDTH: int
PLUGIN_MASS: int
PLUGIN_ACTIVE: int
PLUGIN_HEAD: int
PLUGIN_COUNT: int
PLUGIN_INTERVAL: int
PLUGIN_NODES: int
PLUGIN_WAVES: int
PLUGIN_LANES: int
PLUGIN_CELLS: int
PLUGIN_MOMENTS: int
PLUGIN_FINE: int
PLUGIN_PLACES: int
PLUGIN_STRIDE: int
PLUGIN_STRIDES: int

@overload
def plugin_extend(
    head: Floats,
    nodes: Floats,
    waves: Floats,
    cells: Floats,
    cursors: Floats,
    grid: Floats,
    blocks: Floats,
    p: float,
    out: None,
) -> float: ...
@overload
def plugin_extend(
    head: Floats,
    nodes: Floats,
    waves: Floats,
    cells: Floats,
    cursors: Floats,
    grid: Floats,
    blocks: Floats,
    p: Floats,
    out: Floats,
) -> None: ...
@overload
def plugin_extend(
    head: Floats,
    nodes: Floats,
    waves: Floats,
    cells: Floats,
    cursors: Floats,
    grid: Floats,
    blocks: Floats,
    p: Floats | float,
    out: Floats | None,
) -> float | None: ...
def plugin_log_density(
    head: Floats,
    nodes: Floats,
    waves: Floats,
    cells: Floats,
    cursors: Floats,
    grid: Floats,
    blocks: Floats,
    p: float,
) -> float: ...
def plugin_more_waves(
    head: Floats, nodes: Floats, waves: Floats, cells: Floats, cursors: Floats, grid: Floats, blocks: Floats
) -> None: ...
def plugin_tables(points: Floats, barycentric: Floats) -> None: ...

# ------------------------------------------------------------------ adaptive.c

# ------------------------------------------------------------------ pools.c

# ------------------------------------------------------------------ nearest.c

# ------------------------------------------------------------------ neighbours.c

# ------------------------------------------------------------------ sweep.c

# ------------------------------------------------------------------ keyed.c
