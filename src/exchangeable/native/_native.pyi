from typing import overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Float32s = NDArray[np.float32]
Int32s = NDArray[np.int32]
Uint32s = NDArray[np.uint32]
Bools = NDArray[np.bool_]

VECTOR: int  # 1 if the kernels compiled for AVX2 are in use, else 0

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

@overload
def accumulate(state: Floats, terms: float, out: None) -> float: ...
@overload
def accumulate(state: Floats, terms: Floats, out: Floats) -> None: ...
@overload
def accumulate(state: Floats, terms: Floats | float, out: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ philox.c

def theta(seed: int, stream: int, position: int) -> float: ...
def thetas(seed: int, stream: int, start: int, out: Floats) -> None: ...

# ------------------------------------------------------------------ alarms.c

@overload
def cusum(state: Floats, log_values: float, out: None) -> float: ...
@overload
def cusum(state: Floats, log_values: Floats, out: Floats) -> None: ...
@overload
def cusum(state: Floats, log_values: Floats | float, out: Floats | None) -> float | None: ...
@overload
def shiryaev_roberts(state: Floats, log_values: float, out: None) -> float: ...
@overload
def shiryaev_roberts(state: Floats, log_values: Floats, out: Floats) -> None: ...
@overload
def shiryaev_roberts(state: Floats, log_values: Floats | float, out: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ track.c

TRACK_N: int
TRACK_START: int
TRACK_LOWEST: int
TRACK_ALARM: int
TRACK_CHANGE: int
TRACK_TEST: int
TRACK_INTEGERS: int
TRACK_LOW: int
TRACK_HIGH: int
TRACK_REALS: int

def track_step(integers: Integers, reals: Floats, restart: bool, log_value: float, raised: bool) -> int: ...
def track(
    integers: Integers,
    reals: Floats,
    restart: bool,
    lo: Integers,
    hi: Integers,
    log_values: Floats,
    raised: Bools,
    restarted: Bools,
    n: Integers,
    alarm: Bools,
    lowest: Integers,
    test: Integers,
) -> None: ...

# ------------------------------------------------------------------ history.c

HISTORY_BUCKETS: int
HISTORY_POINTS: int

def history(
    integers: Integers, points: Float32s, marks: Bools, start: int, restart: bool, log_values: Floats
) -> None: ...
def history_step(
    integers: Integers, points: Float32s, marks: Bools, start: int, restart: bool, log_values: Floats | float
) -> None: ...

# ------------------------------------------------------------------ mixture.c

MIXTURE_LEVELS: int
MIXTURE_TERMS: int

@overload
def power(epsilon: float, p: float, out: None) -> float: ...
@overload
def power(epsilon: float, p: Floats, out: Floats) -> None: ...
@overload
def power(epsilon: float, p: Floats | float, out: Floats | None) -> float | None: ...
@overload
def simple_mixture(state: Floats, p: float, out: None) -> float: ...
@overload
def simple_mixture(state: Floats, p: Floats, out: Floats) -> None: ...
@overload
def simple_mixture(state: Floats, p: Floats | float, out: Floats | None) -> float | None: ...
@overload
def gamma_mixture(state: Floats, shape: float, rate: float, p: float, out: None) -> float: ...
@overload
def gamma_mixture(state: Floats, shape: float, rate: float, p: Floats, out: Floats) -> None: ...
@overload
def gamma_mixture(state: Floats, shape: float, rate: float, p: Floats | float, out: Floats | None) -> float | None: ...
def simple_mixture_log_value(n: float, a: float, carry: float) -> float: ...
def mixture_coefficients(out: Floats) -> None: ...

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
def kernel_tails(sums: Floats, weights: Floats, p: float) -> tuple[float, float]: ...
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
def beta_fresh(weights: Floats, targets: Floats) -> None: ...
@overload
def beta(
    weights: Floats,
    targets: Floats,
    scalars: Floats,
    grid: Floats,
    switching: float,
    memory: float,
    p: float,
    gains: None,
) -> float: ...
@overload
def beta(
    weights: Floats,
    targets: Floats,
    scalars: Floats,
    grid: Floats,
    switching: float,
    memory: float,
    p: Floats,
    gains: Floats,
) -> None: ...
@overload
def beta(
    weights: Floats,
    targets: Floats,
    scalars: Floats,
    grid: Floats,
    switching: float,
    memory: float,
    p: Floats | float,
    gains: Floats | None,
) -> float | None: ...

CHAIN_STATE: int  # how many numbers the state of PowerChain holds
CHAIN_TABLES: int  # and its tables

def power_chain_tables(reach: float, tables: Floats) -> None: ...
def power_chain_fresh(state: Floats, tables: Floats) -> None: ...
@overload
def power_chain(
    state: Floats, tables: Floats, walk: float, share: float, memory: float, p: float, gains: None
) -> float: ...
@overload
def power_chain(
    state: Floats, tables: Floats, walk: float, share: float, memory: float, p: Floats, gains: Floats
) -> None: ...
@overload
def power_chain(
    state: Floats, tables: Floats, walk: float, share: float, memory: float, p: Floats | float, gains: Floats | None
) -> float | None: ...

# ------------------------------------------------------------------ histogram.c

@overload
def histogram(counts: Floats, p: float, out: None) -> float: ...
@overload
def histogram(counts: Floats, p: Floats, out: Floats) -> None: ...
@overload
def histogram(counts: Floats, p: Floats | float, out: Floats | None) -> float | None: ...
@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: float, gains: None) -> float: ...
@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: Floats, gains: Floats) -> None: ...
@overload
def tree(nodes: Floats, depth: int, smooth: bool, p: Floats | float, gains: Floats | None) -> float | None: ...
def tree_at(nodes: Floats, depth: int, smooth: bool, p: float) -> float: ...

# ------------------------------------------------------------------ blend.c

@overload
def blend(log_shares: Floats, gains: Floats, out: None) -> float: ...
@overload
def blend(log_shares: Floats, gains: Floats, out: Floats) -> None: ...
@overload
def blend(log_shares: Floats, gains: Floats, out: Floats | None) -> float | None: ...
@overload
def memory_share(
    shares: Floats, targets: Floats, n: Floats, prior: Floats, share: float, memory: float, gains: Floats, out: None
) -> float: ...
@overload
def memory_share(
    shares: Floats, targets: Floats, n: Floats, prior: Floats, share: float, memory: float, gains: Floats, out: Floats
) -> None: ...
@overload
def memory_share(
    shares: Floats,
    targets: Floats,
    n: Floats,
    prior: Floats,
    share: float,
    memory: float,
    gains: Floats,
    out: Floats | None,
) -> float | None: ...
@overload
def two_sided(p: float, out: None) -> float: ...
@overload
def two_sided(p: Floats, out: Floats) -> None: ...
@overload
def two_sided(p: Floats | float, out: Floats | None) -> float | None: ...
@overload
def cautious(state: Floats, window: Floats, threshold: float, gains: float, out: None) -> float: ...
@overload
def cautious(state: Floats, window: Floats, threshold: float, gains: Floats, out: Floats) -> None: ...
@overload
def cautious(
    state: Floats, window: Floats, threshold: float, gains: Floats | float, out: Floats | None
) -> float | None: ...

# ------------------------------------------------------------------ jumper.c

COMPOSITE_JUMPERS: int  # how many simple jumpers a composite jumper has

@overload
def sleepy_jumper(weights: Floats, waking: float, jumping: float, p: float, out: None) -> float: ...
@overload
def sleepy_jumper(weights: Floats, waking: float, jumping: float, p: Floats, out: Floats) -> None: ...
@overload
def sleepy_jumper(
    weights: Floats, waking: float, jumping: float, p: Floats | float, out: Floats | None
) -> float | None: ...
@overload
def simple_jumper(weights: Floats, rate: float, p: float, out: None) -> float: ...
@overload
def simple_jumper(weights: Floats, rate: float, p: Floats, out: Floats) -> None: ...
@overload
def simple_jumper(weights: Floats, rate: float, p: Floats | float, out: Floats | None) -> float | None: ...
@overload
def composite_jumper(state: Floats, p: float, out: None) -> float: ...
@overload
def composite_jumper(state: Floats, p: Floats, out: Floats) -> None: ...
@overload
def composite_jumper(state: Floats, p: Floats | float, out: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ sleeper.c

SLEEPER_GRID: int  # the largest grid

@overload
def sleeper_stayer(amounts: Floats, waking: float, grid: int, p: float, out: None) -> float: ...
@overload
def sleeper_stayer(amounts: Floats, waking: float, grid: int, p: Floats, out: Floats) -> None: ...
@overload
def sleeper_stayer(
    amounts: Floats, waking: float, grid: int, p: Floats | float, out: Floats | None
) -> float | None: ...
@overload
def sleeper_drifter(
    head: Floats, blocks: Floats, waking: float, every: int, grid: int, p: float, out: None
) -> float: ...
@overload
def sleeper_drifter(
    head: Floats, blocks: Floats, waking: float, every: int, grid: int, p: Floats, out: Floats
) -> None: ...
@overload
def sleeper_drifter(
    head: Floats, blocks: Floats, waking: float, every: int, grid: int, p: Floats | float, out: Floats | None
) -> float | None: ...
def sleeper_drifter_at(head: Floats, blocks: Floats, waking: float, every: int, grid: int, p: float) -> float: ...

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
PLUGIN_GRID_SIZE: int
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

# ------------------------------------------------------------------ season.c

SEASON_STATE: int  # how many numbers the state holds

def season_fresh(state: Floats) -> None: ...
@overload
def season(state: Floats, p: float, gains: None) -> float: ...
@overload
def season(state: Floats, p: Floats, gains: Floats) -> None: ...
@overload
def season(state: Floats, p: Floats | float, gains: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ regression.c

REGRESSION_STATE: int  # how many numbers the state holds without seasons
REGRESSION_SEASONAL_STATE: int  # and with them

@overload
def volatility(state: Floats, rate: float, p: float, gains: None) -> float: ...
@overload
def volatility(state: Floats, rate: float, p: Floats, gains: Floats) -> None: ...
@overload
def volatility(state: Floats, rate: float, p: Floats | float, gains: Floats | None) -> float | None: ...
def regression_fresh(state: Floats) -> None: ...
@overload
def regression(state: Floats, forgetting: float, noise_forgetting: float, p: float, gains: None) -> float: ...
@overload
def regression(state: Floats, forgetting: float, noise_forgetting: float, p: Floats, gains: Floats) -> None: ...
@overload
def regression(
    state: Floats, forgetting: float, noise_forgetting: float, p: Floats | float, gains: Floats | None
) -> float | None: ...
def regression_tails(state: Floats, p: float) -> tuple[float, float]: ...

# ------------------------------------------------------------------ fade.c

FADE_STATE: int  # how many numbers the state holds
FADE_TABLES: int  # how many numbers the tables hold

def fade_tables(tables: Floats) -> None: ...
def fade_fresh(state: Floats) -> None: ...
@overload
def fade(state: Floats, tables: Floats, p: float, gains: None) -> float: ...
@overload
def fade(state: Floats, tables: Floats, p: Floats, gains: Floats) -> None: ...
@overload
def fade(state: Floats, tables: Floats, p: Floats | float, gains: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ sentinel.c

SENTINEL_STATE: int  # how many numbers the state holds
SENTINEL_LAST: int  # which of them is the cell of the last p-value; -1 in a new state, in which all others are 0
SENTINEL_TABLES: int  # how many numbers the tables hold

def sentinel_tables(tables: Floats) -> None: ...
@overload
def sentinel(state: Floats, tables: Floats, p: float, gains: None) -> float: ...
@overload
def sentinel(state: Floats, tables: Floats, p: Floats, gains: Floats) -> None: ...
@overload
def sentinel(state: Floats, tables: Floats, p: Floats | float, gains: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ rate.c

RATE_STATE: int  # how many numbers the state of a cut holds
RATE_TABLES: int  # how many numbers the tables hold

def rate_tables(tables: Floats, directions: int) -> None: ...
def rate_fresh(states: Floats) -> None: ...
def rate(
    states: Floats,
    tables: Floats,
    integers: Integers,
    reals: Floats,
    found: Floats,
    restart: bool,
    by_statistic: bool,
    log_level: float,
    values: Integers,
    n: Integers,
    log_value: Floats,
    statistic: Floats,
    alarm: Bools,
    lowest: Integers,
    test: Integers,
) -> int: ...
def rate_step(
    states: Floats,
    tables: Floats,
    integers: Integers,
    reals: Floats,
    found: Floats,
    restart: bool,
    by_statistic: bool,
    log_level: float,
    value: int,
) -> tuple[float, float, int]: ...

# ------------------------------------------------------------------ risk.c

RISK_STATE: int  # how many numbers the state holds
RISK_TABLES: int  # how many numbers the tables hold
RISK_HISTORY: int  # how many numbers the history of the interval holds
RISK_BAND: int  # how many rows that history has at most
RISK_ROWS: int  # how many numbers come before them

def risk_tables(tables: Floats) -> None: ...
def risk(
    state: Floats,
    tables: Floats,
    band: Floats,
    integers: Integers,
    reals: Floats,
    restart: bool,
    by_statistic: bool,
    log_level: float,
    log_interval: float,
    limit: float,
    losses: Floats,
    n: Integers,
    log_value: Floats,
    statistic: Floats,
    alarm: Bools,
    lowest: Integers,
    test: Integers,
    mean: Floats,
    low: Floats,
    high: Floats,
) -> int: ...
def risk_step(
    state: Floats,
    tables: Floats,
    band: Floats,
    integers: Integers,
    reals: Floats,
    restart: bool,
    by_statistic: bool,
    log_level: float,
    log_interval: float,
    limit: float,
    loss: float,
) -> tuple[float, float, int]: ...
def risk_interval(state: Floats, tables: Floats, log_interval: float) -> tuple[float, float, float]: ...
def risk_bound(losses: Floats, tables: Floats, limit: float) -> float: ...

# ------------------------------------------------------------------ adaptive.c

ADAPTIVE_STATE: int  # how many numbers the state holds
ADAPTIVE_TABLES: int  # how many numbers the tables hold

def adaptive_tables(tables: Floats) -> None: ...
def adaptive_fresh(state: Floats, tables: Floats) -> None: ...
@overload
def adaptive(state: Floats, tables: Floats, p: float, gains: None) -> float: ...
@overload
def adaptive(state: Floats, tables: Floats, p: Floats, gains: Floats) -> None: ...
@overload
def adaptive(state: Floats, tables: Floats, p: Floats | float, gains: Floats | None) -> float | None: ...

# ------------------------------------------------------------------ lines.c

LINE_SEED: int
LINE_N: int
LINE_POOL: int
LINE_LOWEST: int
LINE_ALARM: int
LINE_CHANGE: int
LINE_INTEGERS: int
LINE_SUM: int
LINE_CARRY: int
LINE_LOW: int
LINE_WEIGHT: int
LINE_THRESHOLD: int
LINE_REALS: int

def lines_extend(
    tables: Floats,
    at: Integers,
    used: Bools,
    values: Floats,
    edges: Floats,
    counts: Integers,
    greater: Integers,
    equal: Integers,
    total: Integers,
    integers: Integers,
    reals: Floats,
    bets: Floats,
    alarms: Floats,
    evidence: Floats,
    on: Bools,
) -> None: ...
def lines_record(
    integers: Integers,
    reals: Floats,
    points: Float32s,
    marks: Bools,
    start: int,
    restart: bool,
    evidence: Floats,
    on: Bools,
    line_points: Float32s,
    line_marks: Bools,
    line_start: int,
    log_values: Floats,
    alarm: Bools,
    test: Integers,
) -> int: ...

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
def sample_distances(X: Floats, sample: Floats, out: Floats) -> None: ...
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
    initial: Floats,
    X: Floats,
    code: Int32s,
    low: Float32s,
    near: Floats,
    ceil: Float32s,
    within: bool,
    slot: Uint32s,
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
    order: Integers, slot: Uint32s, time: Uint32s, distance: Floats, initial: Floats, near: Floats, true: Bools
) -> None: ...
def sweep_scores(near: Floats, slot: Uint32s, distance: Floats, first: Floats, later: Floats) -> None: ...
def sweep_ranks(
    levels: int, first: Integers, later: Integers, slot: Uint32s, time: Uint32s, counts: Integers
) -> None: ...

# ------------------------------------------------------------------ keyed.c

KEYED_SEED: int
KEYED_FIRST: int
KEYED_LAST: int
KEYED_HORIZON: int
KEYED_FLAGS: int
KEYED_JOINED: int
KEYED_INTEGERS: int
KEYED_SUM: int
KEYED_CARRY: int
KEYED_REALS: int
KEYED_FLAG_PASSED: int
KEYED_FLAG_FORGOT: int
KEYED_FLAG_FULL: int
KEYED_SPANS: int

def keyed_rank_bins(
    counts: Integers,
    before: Integers,
    lo: Integers,
    hi: Integers,
    x: Floats,
    greater: Integers,
    equal: Integers,
    n: Integers,
) -> None: ...
def keyed_rank_scores(
    score: Floats,
    count: Integers,
    start: Integers,
    used: Integers,
    most: int,
    before: Integers,
    lo: Integers,
    hi: Integers,
    x: Floats,
    greater: Integers,
    equal: Integers,
    n: Integers,
) -> None: ...
def keyed_thetas(integers: Integers, lo: Integers, hi: Integers, out: Floats) -> None: ...
def whole_ranks(lo: Integers, hi: Integers, x: Floats, greater: Integers, equal: Integers) -> None: ...
def keyed_simple_jumper(rate: float, states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats) -> None: ...
def keyed_composite_jumper(states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats) -> None: ...
def keyed_sleepy_jumper(
    waking: float, jumping: float, states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats
) -> None: ...
def keyed_sleeper_stayer(
    waking: float, grid: int, states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats
) -> None: ...
def keyed_simple_mixture(states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats) -> None: ...
def keyed_gamma_mixture(
    shape: float, rate: float, states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats
) -> None: ...
def keyed_histogram(states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats) -> None: ...
def keyed_sentinel(tables: Floats, states: Floats, lo: Integers, hi: Integers, p: Floats, out: Floats) -> None: ...
def keyed_accumulate(reals: Floats, lo: Integers, hi: Integers, gains: Floats, out: Floats) -> None: ...
def keyed_cusum(states: Floats, lo: Integers, hi: Integers, log_values: Floats, out: Floats) -> None: ...
def keyed_shiryaev_roberts(states: Floats, lo: Integers, hi: Integers, log_values: Floats, out: Floats) -> None: ...

# ------------------------------------------------------------------ keyed_sequence.c

KEYED_STEP: int
KEYED_DUPLICATE: int
KEYED_LATE: int
KEYED_GAP: int
KEYED_CONFLICT: int
KEYED_BAD: int
KEYED_FULL: int
KEYED_NONE: int

def keyed_sequence(
    bounds: Integers,
    order: Integers,
    x: Floats,
    content: Integers,
    bad: Bools,
    new: Bools,
    contiguous: bool,
    numbers: Integers,
    spans: Integers,
    used: Integers,
    kind: NDArray[np.int8],
    count: Integers,
    missing: NDArray[np.uint64],
    unsure: Bools,
) -> None: ...
def keyed_unfold(
    bounds: Integers,
    order: Integers,
    kind: NDArray[np.int8],
    count: Integers,
    missing: NDArray[np.uint64],
    row: Integers,
    stream: Integers,
    event: Integers,
    kinds: NDArray[np.int8],
    orders: Integers,
    counts: Integers,
) -> int: ...

# ------------------------------------------------------------------ keyed_ragged.c

def keyed_take_rows(
    column: Integers, start: Integers, used: Integers, positions: Integers, to: Integers, out: Integers
) -> None: ...
