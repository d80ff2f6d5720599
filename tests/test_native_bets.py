"""The kernels of bets, alarms and keyed streams: a single step is a step of a path, and wrong shapes are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from exchangeable import native, snapshot
from exchangeable.bets import (
    Adaptive,
    Beta,
    Blend,
    Cautious,
    CompositeJumper,
    Copula,
    Fade,
    GammaMixture,
    Histogram,
    Idle,
    Kernel,
    Markov,
    MemoryShare,
    Power,
    PowerChain,
    Regression,
    Season,
    Sentinel,
    SimpleJumper,
    SimpleMixture,
    SleeperDrifter,
    SleeperStayer,
    SleepyJumper,
    Switching,
    Tree,
    TwoSided,
    Volatility,
)
from exchangeable.bets.learner import step
from exchangeable.martingale import Martingale
from exchangeable.protocols import Floats

BETS: dict[str, Callable[[], Any]] = {
    "adaptive": Adaptive,
    "beta": lambda: Beta(0.1, size=4),
    "blend": lambda: Blend([SimpleMixture(), Histogram(), Idle()], [0.5, 0.5, 0.0]),
    "cautious": lambda: Cautious(SimpleMixture(), factor=2.0, window=5),
    "composite-jumper": CompositeJumper,
    "copula": lambda: Copula(Kernel(5), Regression()),
    "fade": Fade,
    "gamma-mixture": lambda: GammaMixture(2.0, 0.5),
    "histogram": lambda: Histogram(7),
    "idle": Idle,
    "kernel": lambda: Kernel(12, 0.9),
    "markov": lambda: Markov(5, 0.9),
    "memory-share": lambda: MemoryShare([Power(0.5), Kernel(4), Idle()], 0.1, 0.5, [0.5, 0.25, 0.25]),
    "power": lambda: Power(0.3),
    "power-chain": lambda: PowerChain(0.1, share=0.01, memory=0.5),
    "regression": Regression,
    "season": Season,
    "simple-jumper": SimpleJumper,
    "simple-mixture": SimpleMixture,
    "sleeper-drifter": lambda: SleeperDrifter(every=7, grid=5),
    "sleeper-stayer": lambda: SleeperStayer(waking=0.1, grid=5),
    "sleepy-jumper": lambda: SleepyJumper(grid=9),
    "switching": lambda: Switching([Power(0.5), SimpleJumper()], 0.1),
    "two-sided": lambda: TwoSided(Markov(5)),
    "volatility": Volatility,
    "tree": lambda: Tree(5),
    "tree-smooth": lambda: Tree(5, prior="smooth"),
    "sentinel": Sentinel,
}
P = np.concatenate([1.0 - np.random.default_rng(0).random(60), [1e-300, 5e-324, 1.0, 1.0 - 2.0**-53]])


@pytest.mark.parametrize("name", BETS)
def test_single_steps_are_those_of_a_path(name: str) -> None:
    whole, one, martingale = BETS[name](), BETS[name](), Martingale(BETS[name]())
    gains = whole.extend(P)
    assert [step(one, p) for p in P.tolist()] == gains.tolist()
    assert [martingale.update(p) for p in P.tolist()] == Martingale(BETS[name]()).extend(P).tolist()
    assert one.extend(P).tolist() == whole.extend(P).tolist()  # both have learnt the same


class Doubled(Power):
    """Another's bet: only ``extend`` is its own."""

    def extend(self, p: Any) -> Floats:
        return 2.0 * super().extend(p)


class Listed:
    """Another's bet, without any of our classes, whose gains are a list."""

    def log_density(self, p: float) -> float:
        return 0.5

    def update(self, p: float) -> None:
        pass

    def extend(self, p: Any) -> Any:
        return [0.5] * len(p)


@pytest.mark.parametrize(("make", "gain"), [(lambda: Doubled(0.5), 2.0 * math.log(0.5)), (Listed, 0.5)])
def test_bets_of_others_are_played_by_extend(make: Callable[[], Any], gain: float) -> None:
    assert step(make(), 1.0) == gain
    assert Martingale(make()).update(1.0) == Martingale(make()).extend([1.0])[0] == gain
    for mixed in (lambda: Blend([make(), Idle()]), lambda: Switching([make(), Idle()]), lambda: Cautious(make())):
        one = mixed()
        assert [step(one, 1.0) for _ in range(3)] == mixed().extend(np.ones(3)).tolist()
    assert step(Blend([make()]), 1.0) == gain


def floats(*shape: int) -> Floats:
    return np.full(shape, 0.5)


def integers(*shape: int) -> Any:
    return np.zeros(shape, np.int64)


def truths(*shape: int) -> Any:
    return np.zeros(shape, np.bool_)


RING = np.array([0.0, 0.0, 3.0])
COLUMNS: tuple[Any, ...] = integers(2), integers(2), integers(2)
RANGES = np.array([0, 1]), np.array([1, 2])
SEQUENCE: tuple[Any, ...] = (
    np.array([0, 1, 2]),
    *(integers(2), floats(2), integers(2), truths(2)),
    *(truths(2), True, integers(2, native.KEYED_INTEGERS), integers(2, 16, 2), integers(2)),
    *(np.zeros(2, np.int8), integers(2), np.zeros(2, np.uint64), truths(2)),
)
UNFOLD: tuple[Any, ...] = (
    np.array([0, 1, 2]),
    *(integers(2), np.zeros(2, np.int8), integers(2), np.zeros(2, np.uint64), integers(2)),
    *(integers(7), integers(7), np.zeros(7, np.int8), integers(7), integers(7)),
)
TRACK: tuple[Any, ...] = (
    *(integers(2, native.KEYED_INTEGERS), floats(2, 4), True, *RANGES, floats(2), truths(2)),
    *(truths(2), integers(2), truths(2), integers(2), integers(2)),
)
RECORD = np.array([3, 0, 0, 2, 1, 1])  # three examples, with an alarm at the second
HISTORY = np.zeros((native.HISTORY_BUCKETS, native.HISTORY_POINTS), np.float32), truths(native.HISTORY_BUCKETS)


# of each kernel a call that it takes
def lines(bins: int) -> tuple[Any, ...]:
    """Two lines and three rows, with pools of so many bins, or with ranks."""
    pools = floats(2, max(bins - 1, 0)), integers(2, bins)
    ranks = [np.ones((2, 3), np.int64) for _ in range(3)]
    state = integers(2, native.LINE_INTEGERS), floats(2, native.LINE_REALS), floats(2, native.SENTINEL_STATE)
    rows = integers(3), np.ones((2, 3), np.bool_), floats(2, 3)
    results = floats(2, 3), np.zeros((2, 3), np.bool_)
    return (floats(native.SENTINEL_TABLES), *rows, *pools, *ranks, *state, floats(2, 2), *results)


def recorded() -> tuple[Any, ...]:
    """The same two lines and three rows, to be recorded."""
    history = np.zeros((256, 3), np.float32), np.zeros(256, np.bool_)
    of_lines = np.zeros((2, 256, 3), np.float32), np.zeros((2, 256), np.bool_)
    columns = floats(3), np.zeros(3, np.bool_), integers(3)
    shown = floats(2, 3), np.zeros((2, 3), np.bool_)
    return (integers(6), floats(2), *history, 0, False, *shown, *of_lines, 0, *columns)


CALLS: dict[str, tuple[Any, ...]] = {
    "adaptive": (floats(native.ADAPTIVE_STATE), floats(native.ADAPTIVE_TABLES), floats(3), floats(3)),
    "adaptive_fresh": (floats(native.ADAPTIVE_STATE), floats(native.ADAPTIVE_TABLES)),
    "adaptive_tables": (floats(native.ADAPTIVE_TABLES),),
    "accumulate": (floats(2), floats(3), floats(3)),
    "beta": (floats(3, 8), floats(3, 8), floats(2), floats(4, 8), 0.1, 0.5, floats(3), floats(3)),
    "beta_grid": (3, 1.0, floats(4, 8)),
    "blend": (floats(2), floats(3, 2), floats(3)),
    "cautious": (np.array([0.0, 0.0, 0.0, 1.0]), floats(2, 4), 1.0, floats(3), floats(3)),
    "composite_jumper": (floats(20), floats(3), floats(3)),
    "cusum": (floats(2), floats(3), floats(3)),
    "fade": (floats(native.FADE_STATE), floats(native.FADE_TABLES), floats(3), floats(3)),
    "fade_fresh": (floats(native.FADE_STATE),),
    "fade_tables": (floats(native.FADE_TABLES),),
    "gamma_mixture": (floats(3), 1.0, 1.0, floats(3), floats(3)),
    "histogram": (floats(2), floats(3), floats(3)),
    "history": (RECORD, *HISTORY, 0, True, floats(3)),
    "history_step": (RECORD, *HISTORY, 0, True, 0.5),
    "jackson_weights": (9, floats(16)),
    "kernel_tails": (floats(16), floats(16), 0.3),
    "kernel": (floats(16), floats(16), 0.9, floats(3), floats(3)),
    "keyed_accumulate": (floats(2, 4), *RANGES, floats(2), floats(2)),
    "keyed_composite_jumper": (floats(2, 20), *RANGES, floats(2), floats(2)),
    "keyed_cusum": (floats(2, 2), *RANGES, floats(2), floats(2)),
    "keyed_gamma_mixture": (1.0, 1.0, floats(2, 3), *RANGES, floats(2), floats(2)),
    "keyed_histogram": (floats(2, 5), *RANGES, floats(2), floats(2)),
    "keyed_take_rows": (
        integers(5),
        np.array([0, 2]),
        np.array([2, 3]),
        np.array([1, 0]),
        np.array([0, 3]),
        integers(5),
    ),
    "keyed_rank_bins": (integers(2, 3), integers(2), *RANGES, floats(2), *COLUMNS),
    "keyed_rank_scores": (
        *(floats(4), integers(4), np.array([0, 2]), integers(2), 9, integers(2), *RANGES),
        *(floats(2), *COLUMNS),
    ),
    "keyed_sequence": SEQUENCE,
    "keyed_shiryaev_roberts": (floats(2, 2), *RANGES, floats(2), floats(2)),
    "keyed_sentinel": (
        floats(native.SENTINEL_TABLES),
        floats(2, native.SENTINEL_STATE),
        *RANGES,
        floats(2),
        floats(2),
    ),
    "keyed_simple_jumper": (0.1, floats(2, 3), *RANGES, floats(2), floats(2)),
    "keyed_simple_mixture": (floats(2, 4), *RANGES, floats(2), floats(2)),
    "keyed_sleeper_stayer": (0.1, 3, floats(2, 8), *RANGES, floats(2), floats(2)),
    "keyed_sleepy_jumper": (0.1, 0.1, floats(2, 6), *RANGES, floats(2), floats(2)),
    "keyed_thetas": (integers(2, native.KEYED_INTEGERS), *RANGES, floats(2)),
    "keyed_unfold": UNFOLD,
    "lines_extend": lines(4),
    "lines_record": recorded(),
    "markov": (floats(16), floats(9, 16), floats(16), 0.9, floats(3), floats(3)),
    "mixture_coefficients": (np.empty((native.MIXTURE_LEVELS, native.MIXTURE_TERMS)),),
    "memory_share": (floats(2), floats(2), floats(1), floats(2), 0.1, 0.5, floats(3, 2), floats(3)),
    "power": (0.5, floats(3), floats(3)),
    "power_chain": (floats(native.CHAIN_STATE), floats(native.CHAIN_TABLES), 0.1, 0.1, 0.5, floats(3), floats(3)),
    "power_chain_fresh": (floats(native.CHAIN_STATE), floats(native.CHAIN_TABLES)),
    "power_chain_tables": (2.5, floats(native.CHAIN_TABLES)),
    "regression": (floats(native.REGRESSION_STATE), 0.9, 0.9, floats(3), floats(3)),
    "regression_fresh": (floats(native.REGRESSION_STATE),),
    "regression_tails": (floats(native.REGRESSION_STATE), 0.5),
    "season": (floats(native.SEASON_STATE), floats(3), floats(3)),
    "season_fresh": (floats(native.SEASON_STATE),),
    "sentinel": (floats(native.SENTINEL_STATE), floats(native.SENTINEL_TABLES), floats(3), floats(3)),
    "sentinel_tables": (floats(native.SENTINEL_TABLES),),
    "shiryaev_roberts": (floats(2), floats(3), floats(3)),
    "simple_jumper": (floats(3), 0.1, floats(3), floats(3)),
    "simple_mixture": (floats(4), floats(3), floats(3)),
    "sleeper_drifter": (np.array([4.0, 1.0, 0.0, 1.0, 0.0]), floats(3, 2, 4), 0.1, 2, 3, floats(3), floats(3)),
    "sleeper_drifter_at": (np.array([4.0, 1.0, 0.0, 1.0, 0.0]), floats(2, 2, 4), 0.1, 2, 3, 0.5),
    "sleeper_stayer": (floats(2, 4), 0.1, 3, floats(3), floats(3)),
    "sleepy_jumper": (floats(6), 0.1, 0.1, floats(3), floats(3)),
    "track": TRACK,
    "track_step": (integers(6), floats(2), True, 0.5, False),
    "tree": (floats(8, 3), 3, False, floats(3), floats(3)),
    "tree_at": (floats(8, 3), 3, True, 0.5),
    "two_sided": (floats(3), floats(3)),
    "volatility": (floats(1), 0.1, floats(3), floats(3)),
}
# arguments without a partner: of these a longer one, or a shorter one, may fit too
FREE = {
    ("cautious", 1),
    ("histogram", 0),
    ("history", 5),
    ("keyed_histogram", 0),
    ("keyed_take_rows", 0),
    ("keyed_take_rows", 5),
    ("keyed_rank_bins", 0),
    ("keyed_thetas", 3),
    ("keyed_unfold", 0),
    ("lines_extend", 12),
    ("track", 0),
    ("track", 1),
}


def copied(arguments: tuple[Any, ...]) -> list[Any]:
    return [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fits(name: str) -> None:
    getattr(native, name)(*copied(CALLS[name]))


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, k) for name, call in CALLS.items() for k, value in enumerate(call) if isinstance(value, np.ndarray)],
)
def test_a_shape_that_does_not_fit_is_refused(name: str, place: int) -> None:
    """Every array in turn is one longer, one shorter, and empty, along its last axis."""
    refused = 0
    for change in (1, -1, -CALLS[name][place].shape[-1]):
        arguments = copied(CALLS[name])
        array = arguments[place]
        arguments[place] = np.zeros((*array.shape[:-1], array.shape[-1] + change), array.dtype)
        try:
            getattr(native, name)(*arguments)
        except ValueError:
            refused += 1
    assert refused == 3 or (refused and (name, place) in FREE)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (8, np.zeros((2, 3), np.int64), "ranks must be among at least one value"),
        (6, np.ones((2, 4), np.int64), "as long as there are rows"),
        (4, floats(2, 1), "bins must have edges"),
    ],
)
def test_ranks_of_lines_are_checked(place: int, value: Any, message: str) -> None:
    native.lines_extend(*lines(0))
    arguments = [*lines(0)]
    arguments[place] = value
    with pytest.raises(ValueError, match=message):
        native.lines_extend(*arguments)


FORGED: list[tuple[str, int, Any, str]] = [
    ("beta_grid", 0, 1, "size must be from 2 to 200"),
    ("beta_grid", 0, 201, "size must be from 2 to 200"),
    ("beta", 0, floats(24), "weights must have 2 to 200 rows"),
    ("jackson_weights", 0, 0, "order must be from 1"),
    ("jackson_weights", 0, 2**62, "order must be from 1"),
    ("jackson_weights", 0, 17, "weights must have the length"),
    ("kernel", 0, floats(1032), "sums must have 8 to 1024"),
    ("markov", 1, floats(17, 16), "last must have the length"),
    ("markov", 1, floats(8, 16), "last must have the length"),
    ("markov", 1, floats(144), "last must have the length"),
    ("sleeper_stayer", 2, 1, "grid must be from 2 to 1000"),
    ("sleeper_stayer", 2, 1001, "grid must be from 2 to 1000"),
    ("sleeper_stayer", 2, 4, "amounts must have 2 rows"),
    ("keyed_sleeper_stayer", 1, 2**62, "a state has the wrong size"),
    ("keyed_sleeper_stayer", 1, 4, "a state has the wrong size"),
    ("sleeper_drifter", 0, np.array([2.0**54, 1.0, 0.0, 1.0, 0.0]), "the number of steps must be"),
    ("sleeper_drifter", 0, np.array([-1.0, 1.0, 0.0, 1.0, 0.0]), "the number of steps must be"),
    ("sleeper_drifter", 0, np.array([math.nan, 1.0, 0.0, 1.0, 0.0]), "the number of steps must be"),
    ("sleeper_drifter", 0, np.array([5.0, 1.0, 0.0, 1.0, 0.0]), "for each wake-up"),
    ("sleeper_drifter", 0, np.array([2.0**53, 1.0, 0.0, 1.0, 0.0]), "for each wake-up"),
    ("sleeper_drifter", 3, 0, "every must be from 1"),
    ("sleeper_drifter", 3, -1, "every must be from 1"),
    ("sleeper_drifter", 3, 1, "for each wake-up"),
    ("sleeper_drifter", 4, 1, "grid must be from 2 to 1000"),
    ("sleeper_drifter_at", 0, np.array([6.0, 1.0, 0.0, 1.0, 0.0]), "for each wake-up"),
    ("sleeper_drifter_at", 4, -1, "grid must be from 2 to 1000"),
    ("sleepy_jumper", 0, floats(5), "weights must hold 2 numbers for each epsilon"),
    ("keyed_sleepy_jumper", 2, floats(2, 5), "a state has the wrong size"),
    ("tree", 1, 0, "depth must be from 1"),
    ("tree", 1, -1, "depth must be from 1"),
    ("tree", 1, 4, "nodes must have"),
    ("tree_at", 1, 25, "depth must be from 1"),
    ("tree_at", 1, 64, "depth must be from 1"),
    ("cautious", 0, np.array([0.0, 0.0, 1.0, 1.0]), "part of the ring"),
    ("cautious", 0, np.array([0.0, 0.0, -1.0, 1.0]), "part of the ring"),
    ("cautious", 0, np.array([0.0, 0.0, 0.0, 5.0]), "part of the ring"),
    ("cautious", 0, np.array([0.0, 0.0, 1e300, 1.1e300]), "part of the ring"),
    ("cautious", 0, np.array([0.0, 0.0, 0.0, math.nan]), "part of the ring"),
    ("keyed_sequence", 0, np.array([0, 2, 1]), "bounds must not decrease"),
    ("keyed_sequence", 0, np.array([0, 1, 3]), "bounds must lie within"),
    ("keyed_sequence", 0, np.array([-1, 1, 2]), "bounds must lie within"),
    ("keyed_sequence", 9, np.array([0, 17]), "used must be"),
    ("keyed_sequence", 9, np.array([-1, 0]), "used must be"),
    ("keyed_unfold", 0, np.array([0, 5, 2]), "bounds must not decrease"),
    ("keyed_rank_bins", 4, np.array([0.0, 3.0]), "numbers of bins"),
    ("keyed_rank_bins", 4, np.array([0.0, -1.0]), "numbers of bins"),
    ("keyed_rank_bins", 4, np.array([0.0, math.nan]), "numbers of bins"),
    ("keyed_rank_bins", 2, np.array([-1, 1]), "lo and hi"),
    ("keyed_rank_bins", 3, np.array([1, 3]), "lo and hi"),
    ("keyed_rank_scores", 2, np.array([0, 4]), "room for its events"),
    ("keyed_rank_scores", 2, np.array([-1, 2]), "room for its events"),
    ("keyed_rank_scores", 3, np.array([0, 2]), "room for its events"),
    ("keyed_rank_scores", 3, np.array([-1, 0]), "room for its events"),
    ("keyed_rank_scores", 3, np.array([2**63 - 1, 0]), "room for its events"),
    ("keyed_thetas", 1, np.array([0, 3]), "lo and hi"),
    ("track", 4, np.array([1, 2**62]), "lo and hi"),
    ("lines_extend", 3, np.full((2, 3), np.nan), "values must be finite"),
    ("lines_extend", 12, floats(2, 1), "the state of an alarm has the wrong size"),
    ("lines_extend", 0, floats(native.ADAPTIVE_TABLES), "tables must be those of the bets"),
    ("lines_extend", 5, integers(2, 0), "bins must have edges"),
    ("lines_extend", 11, np.full((2, native.SENTINEL_STATE), np.nan), "a capital is not a number"),
    ("lines_record", 0, np.array([2**61 + 1, 0, 0, -1, -1, 1]), "start must be before"),
    ("lines_record", 0, np.array([-1, 0, 0, -1, -1, 1]), "start must be before"),
    ("lines_record", 4, 1, "start must be before"),
    ("lines_record", 10, -1, "start must be before"),
    ("history", 0, np.array([2, 0, 0, 2, 1, 1]), "start must be before"),
    ("history", 0, np.array([2**62 + 1, 0, 0, 2, 1, 1]), "start must be before"),
    ("history", 0, np.array([-(2**63), 0, 0, 2, 1, 1]), "start must be before"),
    ("history", 3, 1, "start must be before"),
    ("history", 3, -1, "start must be before"),
    ("history", 3, 2**63 - 1, "start must be before"),
    ("history_step", 3, 3, "start must be before"),
    ("keyed_simple_jumper", 2, np.array([2, 2]), "lo and hi"),
    ("keyed_take_rows", 1, np.array([0, 2**63 - 1]), "within the column"),
    ("keyed_take_rows", 2, np.array([2, -3]), "within the column"),
    ("keyed_take_rows", 3, np.array([1, 2]), "positions must be"),
    ("keyed_take_rows", 3, np.array([1, -1]), "positions must be"),
    ("keyed_take_rows", 4, np.array([0, 4]), "out must have room"),
]


@pytest.mark.parametrize(("name", "place", "value", "law"), FORGED)
def test_a_number_that_leads_outside_is_refused(name: str, place: int, value: Any, law: str) -> None:
    arguments = copied(CALLS[name])
    arguments[place] = value
    with pytest.raises(ValueError, match=law):
        getattr(native, name)(*arguments)


def test_rows_that_find_no_room_are_refused() -> None:
    arguments = copied(UNFOLD)
    arguments[4] = np.full(2, 2**64 - 2, np.uint64)  # two gaps of two rows each, and two events
    assert native.keyed_unfold(*copied(tuple(arguments))) == 6
    arguments[6:] = [array[:5].copy() for array in arguments[6:]]
    with pytest.raises(ValueError, match="room for all rows"):
        native.keyed_unfold(*arguments)


@pytest.mark.parametrize("p", [-1.0, -1e300, 1e300, math.inf, -math.inf, math.nan, 0.0])
def test_no_p_leads_outside_of_a_tree(p: float) -> None:
    nodes = np.tile([0.0, 1.0, 0.0], (10, 1))
    native.tree(nodes[1:9], 3, False, p, None)
    assert nodes[[0, 9]].tolist() == [[0.0, 1.0, 0.0]] * 2
    assert nodes[1, 0] == 1.0


@pytest.mark.parametrize("p", [-1.0, -1e300, 1e300, math.inf, -math.inf, math.nan, 0.0])
def test_no_p_leads_outside_of_a_histogram(p: float) -> None:
    counts = np.zeros(4)
    native.histogram(counts[1:3].copy(), p, None)
    inner = counts[1:3]
    native.histogram(inner, p, None)
    assert counts[0] == counts[3] == 0.0
    assert counts.sum() == 1.0


@pytest.mark.parametrize("p", [-1.0, -1e300, 1e300, math.inf, -math.inf, math.nan, 0.0])
def test_no_p_leads_outside_of_the_cells_of_fade(p: float) -> None:
    state, tables = np.empty(native.FADE_STATE), np.empty(native.FADE_TABLES)
    native.fade_fresh(state)
    native.fade_tables(tables)
    assert not math.isnan(native.fade(state, tables, p, None))


@pytest.mark.parametrize("value", [-1.0, 1e300, math.inf, -math.inf, 2.0**53, 3.5])
def test_a_forged_season_leads_nowhere(value: float) -> None:
    """Indices of a state are brought into range; make sanitize runs this."""
    for bet in (Season(), Regression(), Adaptive()):
        state = bet._state[0]
        state[:] = value
        bet.extend(P)


# ------------------------------------------------------------------ what a reviewer found


class WithOwnStep:
    """A bet of somebody else's, in which ``_step`` means something else."""

    def _step(self, p: float) -> float:
        return 7.0

    def log_density(self, p: float) -> float:
        return Power(0.5).log_density(p)

    def update(self, p: float) -> None:
        pass

    def extend(self, p: ArrayLike) -> Floats:
        return Power(0.5).extend(p)


def test_a_private_method_of_another_bet_is_left_alone() -> None:
    single, many = Martingale(WithOwnStep()), Martingale(WithOwnStep())
    assert [single.update(p) for p in (0.2, 0.7)] == many.extend([0.2, 0.7]).tolist()


def test_a_forged_carry_does_no_harm() -> None:
    """With it Kummer's series would hardly ever end, if its terms were not limited."""
    bet = SimpleMixture()
    bet._state = (np.array([2.0**53 - 1.0, 0.0, 2.0**53 - 1e-3, 0.0]),)
    assert len(snapshot.decode(snapshot.encode(bet)).extend(np.full(100, 0.5))) == 100
