"""What every bet, measure and alarm must satisfy, written once and for all of them.

Each contract is a function that raises AssertionError when it is broken; test_contracts.py applies every contract to
every implementation, and a new implementation joins by one line in ``BETS``, ``MEASURES`` or ``ALARMS``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import mpmath
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import naive
from exchangeable import alarms, bets, measures
from exchangeable.protocols import Alarm, Bet, Measure

Floats = NDArray[np.float64]

TINY = 5e-324  # the smallest p that a double can hold
FLOOR = math.exp(-700.0)  # integrals are numerical above it, where doubles have all their digits, and exact below


def settled(examples: int) -> settings:
    """Hypothesis, but the same examples on every run and every machine."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# ------------------------------------------------------------------ the implementations


class BetCase(NamedTuple):
    make: Callable[[], Bet]
    beyond: Callable[[Sequence[float]], float]  # mass of the next bet in (0, FLOOR]


def _mixture_beyond(history: Sequence[float]) -> float:
    """int eps^n e^(a (1 - eps)) FLOOR^eps d eps / S_n."""
    n, a = len(history), naive.minus_log_sum(history)
    return float(mpmath.exp(naive.mixture(n, a + 700, 20) - 700 - naive.mixture(n, a, 20)))


def _jumper(waking: float, jumping: float, grid: int) -> BetCase:
    return BetCase(
        lambda: bets.SleepyJumper(waking=waking, jumping=jumping, grid=grid),
        lambda history: naive.jumper_mass_below(history, FLOOR, waking, jumping, grid),
    )


def _power(epsilon: float) -> BetCase:
    return BetCase(lambda: bets.Power(epsilon), lambda history: FLOOR**epsilon)


def _gamma_beyond(history: Sequence[float]) -> float:
    """int eps^n e^(a (1 - eps)) FLOOR^eps pi(eps) d eps / S_n, for pi the exponential density."""
    n, a = len(history), naive.minus_log_sum(history)
    return float(mpmath.exp(naive.gamma_mixture(n, a + 700) - 700 - naive.gamma_mixture(n, a)))


def _bounded(make: Callable[[], Bet]) -> BetCase:
    return BetCase(make, lambda history: 0.0)


BETS: dict[str, BetCase] = {
    "Idle": _bounded(bets.Idle),
    "SimpleJumper": _bounded(bets.SimpleJumper),
    "CompositeJumper": _bounded(bets.CompositeJumper),
    "GammaMixture": BetCase(bets.GammaMixture, _gamma_beyond),
    "Histogram": _bounded(lambda: bets.Histogram(8)),
    "Tree": _bounded(lambda: bets.Tree(4)),
    "Tree(smooth)": _bounded(lambda: bets.Tree(3, prior="smooth")),
    "Kernel": _bounded(lambda: bets.Kernel(8, 0.9)),
    "Kernel(forgets nothing)": _bounded(lambda: bets.Kernel(32)),
    "Markov": _bounded(lambda: bets.Markov(6, 0.95)),
    "Blend": _bounded(lambda: bets.Blend([bets.Kernel(4), bets.Histogram(4), bets.Idle()], [0.5, 0.25, 0.25])),
    "Switching": _bounded(lambda: bets.Switching([bets.Kernel(4), bets.SimpleJumper()], 0.1)),
    "Cautious": _bounded(lambda: bets.Cautious(bets.Kernel(4), factor=1.5, window=6)),
    "Power(0.01)": _power(0.01),
    "Power(0.5)": _power(0.5),
    "Power(1)": _power(1.0),
    "Power(3)": _power(3.0),
    "SimpleMixture": BetCase(bets.SimpleMixture, _mixture_beyond),
    "SleepyJumper": _jumper(0.01, 0.001, 100),
    "SleepyJumper(wide awake)": _jumper(1.0, 1.0, 7),
    "SleepyJumper(never jumps)": _jumper(0.25, 0.0, 12),
    "SleepyJumper(one rung)": _jumper(0.5, 0.5, 1),
    "Plugin": BetCase(bets.Plugin, lambda history: 0.0),  # a bounded density
}
MEASURES: dict[str, Callable[[], Measure]] = {"NearestNeighbour": measures.NearestNeighbour}
ALARMS: dict[str, Callable[[], Alarm]] = {
    "Ville": alarms.Ville,
    "Ville(0.5)": lambda: alarms.Ville(0.5),
    "Ville(1e-300)": lambda: alarms.Ville(1e-300),
}

# ------------------------------------------------------------------ what they are tried on

P_VALUES = st.one_of(
    st.sampled_from([1.0, 0.5, 0.25, 1e-3, 1e-300, TINY, math.nextafter(1.0, 0.0)]),
    st.floats(min_value=0.0, max_value=1.0, exclude_min=True),
    st.floats(min_value=0.0, max_value=700.0).map(lambda t: math.exp(-t)),
)


def _repeated(values: list[float], times: int) -> list[float]:
    return values * times


HISTORIES = st.one_of(
    st.lists(P_VALUES, max_size=40),
    st.builds(_repeated, st.lists(P_VALUES, min_size=1, max_size=3), st.integers(1, 40)),
)
CUTS = st.lists(st.integers(0, 6), min_size=1, max_size=40)  # 0: one by one; k: a batch of k

BAD_P: list[Any] = [
    0.0,
    -0.0,
    -0.1,
    1.0000001,
    math.nextafter(1.0, 2.0),
    math.nan,
    math.inf,
    -math.inf,
    None,
    "a",
    "",
    "0.5",
    b"0.5",
    0.5 + 0.5j,
    [0.5],
    [[0.5]],
    np.array([0.5, 0.5]),
    {},
    Ellipsis,
]
BAD_P_COLUMNS: list[Any] = [
    [0.0],
    [0.5, 0.25, -0.1, 0.75],
    [0.5, math.nan, 0.5],
    [0.5, 0.5, 1.0000001],
    [math.inf],
    [-math.inf, 0.5],
    [None],
    None,
    "a",
    ["a", "b"],
    ["0.5"],
    np.array(["0.5"], object),
    np.ma.array([0.5, 0.5], mask=[False, True]),
    [0.5 + 0.5j],
    [[0.5, 0.5]],
    np.full((2, 2), 0.5),
    np.full((2, 0), 0.5),
    [[0.5], [0.5, 0.25]],
    {},
    Ellipsis,
]
# They convert to a float by dropping something, or overflow on the way, or are a scalar that passes for a column.
SLY_P: list[Any] = [np.complex128(0.5 + 0.5j), 10**400]
SLY_P_COLUMNS: list[Any] = [np.array([0.5 + 0.5j]), [0.5, 10**400], 0.5]


def grid_examples(
    max_size: int = 14, min_size: int = 1, labels: str = "aabc"
) -> st.SearchStrategy[list[tuple[list[float], str]]]:
    """Examples on a coarse grid: ties and duplicates are the rule, at the start too; sometimes one label only."""
    coordinate = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 0.1, 0.2, 0.30000000000000004, -1.0])

    def examples(width: int, letters: str, clones: int) -> st.SearchStrategy[list[tuple[list[float], str]]]:
        row = st.lists(coordinate, min_size=width, max_size=width)
        rest = st.lists(st.tuples(row, st.sampled_from(letters)), min_size=min_size, max_size=max_size)
        first = st.lists(st.tuples(st.just([0.0] * width), st.sampled_from(letters)), max_size=clones)
        return st.tuples(first, rest).map(lambda pair: pair[0] + pair[1])

    shapes = st.tuples(st.integers(1, 3), st.sampled_from([labels, labels[:1]]), st.sampled_from([0, 5]))
    return shapes.flatmap(lambda shape: examples(*shape))


# ------------------------------------------------------------------ state


def state(thing: Any) -> Any:
    """Everything an object holds, as nested plain data that can be compared with ``==``."""
    if isinstance(thing, np.ndarray):
        return ("array", str(thing.dtype), thing.shape, thing.tobytes())
    if isinstance(thing, dict):
        return {key: state(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [state(value) for value in thing]
    if hasattr(thing, "__dict__"):
        return (type(thing).__name__, {name: state(value) for name, value in vars(thing).items()})
    return repr(thing) if isinstance(thing, float) else thing  # repr tells -0.0 from 0.0, and nan is equal to nan


def same_bits(left: Any, right: Any) -> bool:
    """Equal to the last bit, as columns of doubles."""
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def refused(call: Callable[[], object], *things: Any) -> str:
    """The call raises ValueError and leaves the things as they were; its message."""
    before = [state(thing) for thing in things]
    try:
        call()
    except ValueError as error:
        assert [state(thing) for thing in things] == before, "a refused call changed the state"
        return str(error)
    raise AssertionError("nothing was raised")


# ------------------------------------------------------------------ bets

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_JUMPS = [-math.log(j / 16.0) for j in range(1, 17)]  # where the histograms and trees of BETS may jump
_EDGES = sorted(
    {*_JUMPS, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0, 48.0, 96.0, 192.0, 384.0, 700.0}
)


def integral(log_density: Callable[[float], float], beyond: float) -> float:
    """Of the density over (0, 1], in t = -log p: ``int_0^700 f(e^-t) e^-t dt`` by Gauss-Legendre; the rest is given."""
    total = [beyond]
    for low, high in pairwise(_EDGES):
        for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
            t = 0.5 * (low + high) + 0.5 * (high - low) * node
            total.append(0.5 * (high - low) * weight * math.exp(log_density(math.exp(-t)) - t))
    return math.fsum(total)


def check_integrates_to_one(bet: Bet, beyond: float, tolerance: float = 1e-7) -> None:
    whole = integral(bet.log_density, beyond)
    assert abs(whole - 1.0) < tolerance, f"the bet integrates to {whole!r}"


def check_log_density_is_pure(bet: Bet, probes: Iterable[float]) -> None:
    before = state(bet)
    for p in probes:
        first = bet.log_density(p)
        assert isinstance(first, float)
        assert bet.log_density(p) == first
    assert state(bet) == before


def check_log_density_is_the_bet_placed(bet: Bet, p: float) -> None:
    said = bet.log_density(p)
    assert same_bits(bet.extend([p]), [said])


def check_copies_learn_apart(bet: Bet, p: Sequence[float]) -> None:
    before, twin = state(bet), copy.deepcopy(bet)
    learnt = twin.extend(p)
    assert state(bet) == before, "a copy taught its original"
    assert same_bits(bet.extend(p), learnt), "a copy does not continue like its original"
    assert state(bet) == state(twin)


def check_bet_refuses(bet: Bet, p: Any) -> None:
    assert refused(lambda: bet.log_density(p), bet).startswith("p must")
    assert refused(lambda: bet.update(p), bet).startswith("p must")


def check_bet_refuses_column(bet: Bet, p: Any) -> None:
    assert refused(lambda: bet.extend(p), bet).startswith("p must")


# ------------------------------------------------------------------ batches


def in_pieces(length: int, cuts: Sequence[int]) -> list[tuple[int, int, bool]]:
    """(start, stop, one by one?) until ``length`` is used up, the cuts taken round and round."""
    pieces, start, k = [], 0, 0
    if not any(cuts):
        cuts = [*cuts, 0]
    while start < length:
        size = cuts[k % len(cuts)]
        stop = min(start + max(size, 1), length)
        pieces.append((start, stop, size == 0))
        start, k = stop, k + 1
    return pieces


def bet_in_pieces(bet: Bet, p: Sequence[float], cuts: Sequence[int]) -> Floats:
    """Log f_i(p_i) by log_density then update, or by batches."""
    gains: list[float] = []
    for start, stop, single in in_pieces(len(p), cuts):
        if single:
            gains.append(bet.log_density(p[start]))
            bet.update(p[start])
        else:
            gains.extend(bet.extend(p[start:stop]).tolist())
    return np.array(gains)


def ranked_in_pieces(
    measure: Measure, X: Sequence[Sequence[float]], y: Sequence[Hashable], cuts: Sequence[int]
) -> list[tuple[int, int, int]]:
    counts: list[tuple[int, int, int]] = []
    for start, stop, single in in_pieces(len(y), cuts):
        if single:
            rank = measure.update(X[start], y[start])
            counts.append((rank.greater, rank.equal, rank.n))
        else:
            counts.extend(zip(*(c.tolist() for c in measure.extend(X[start:stop], y[start:stop])), strict=True))
    return counts


# ------------------------------------------------------------------ measures


def check_order_does_not_matter(
    make: Callable[[], Measure],
    examples: Sequence[tuple[Sequence[float], Hashable]],
    order: Sequence[int],
    singly: bool,
) -> None:
    """The validity condition: the newest example's rank depends on the bag of the earlier ones only."""
    shuffled = [examples[i] for i in order] + [examples[-1]]
    assert _last_rank(make(), examples, False) == _last_rank(make(), shuffled, singly)


def _last_rank(measure: Measure, examples: Sequence[tuple[Sequence[float], Hashable]], singly: bool) -> tuple[int, ...]:
    X, y = [list(x) for x, _ in examples], [label for _, label in examples]
    return ranked_in_pieces(measure, X, y, [0] if singly else [len(y)])[-1]


# ------------------------------------------------------------------ alarms


def check_alarm_is_its_definition(alarm: Alarm, log_values: Sequence[float], expected: Sequence[bool]) -> None:
    got = [alarm.update(value) for value in log_values]
    assert all(isinstance(sound, bool) for sound in got)
    assert got == list(expected)
