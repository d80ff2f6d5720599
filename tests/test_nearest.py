"""NearestNeighbour against the paper transcribed: every rank, bit for bit, wherever floating point is treacherous."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

import naive
from contracts import settled
from exchangeable import native
from exchangeable.measures import NearestNeighbour
from exchangeable.measures.neighbour_store import BLOCK

Floats = NDArray[np.float64]
WIDTHS = [1, 2, 7, 8, 9, 64, 127, 128, 129, 130, 256, 300, 784]


def ranked(X: Any, y: Any, sizes: Sequence[int] = ()) -> list[tuple[int, int, int]]:
    """Ranks in batches of the given sizes (the last takes the rest); a batch of one is an update."""
    measure, counts, start = NearestNeighbour(), [], 0
    for total in [*np.cumsum(sizes, dtype=int).tolist(), len(y)]:
        stop = min(total, len(y))
        if stop - start == 1:
            counts.append(tuple(measure.update(X[start], y[start])))
        elif stop > start:
            counts += list(
                zip(*(column.tolist() for column in measure.extend(X[start:stop], y[start:stop])), strict=True)
            )
        start = stop
    assert measure.n == len(y)
    return [(int(g), int(e), int(n)) for g, e, n in counts]


def check(X: ArrayLike, y: Iterable[Any]) -> None:
    """All at once, in batches, and one by one."""
    rows, labels = np.asarray(X, dtype=np.float64), list(y)
    expected = naive.ranks(rows, labels)
    assert ranked(rows, labels) == expected
    assert ranked(rows, labels, [1, 1, 5, 1, 17]) == expected
    assert ranked(rows, labels, [1] * len(labels)) == expected


def gaussian(seed: int, n: int, d: int, labels: int = 3) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, labels, n)
    return rng.normal(size=(n, d)) + 0.5 * y[:, None], y


# ------------------------------------------------------------------ the judge


@settled(60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9), min_size=2, max_size=2), st.sampled_from("ab")), min_size=1, max_size=9
    )
)
def test_the_judges_agree_with_plain_loops_in_fractions(examples: list[tuple[list[int], str]]) -> None:
    X, y = [x for x, _ in examples], [label for _, label in examples]
    expected = []
    for n in range(1, len(y) + 1):
        alpha = [plain_ratio(X[:n], y[:n], i) for i in range(n)]
        rounded = [float(a) for a in alpha]
        assert rounded == naive.scores(naive.squares(X[:n]), y[:n])
        expected.append((sum(a > alpha[-1] for a in alpha), sum(a == alpha[-1] for a in alpha), n))
    assert naive.ranks(X, y) == naive.exact_ranks(X, y) == expected


def plain_ratio(X: list[list[int]], y: list[str], i: int) -> Fraction | float:
    squared = [sum((a - b) ** 2 for a, b in zip(X[i], x, strict=True)) for x in X]
    same = min((squared[j] for j in range(len(y)) if j != i and y[j] == y[i]), default=None)
    other = min((squared[j] for j in range(len(y)) if y[j] != y[i]), default=None)
    if same == other and same in (0, None):
        return 1.0
    if other is None:
        return 0.0
    return math.inf if same is None or other == 0 else Fraction(same, other)


# ------------------------------------------------------------------ distances, scores and bounds


def ratio(same: float, other: float) -> float:
    """The score of an example with these nearest squared distances."""
    alpha = np.empty(1)
    native.nearest_scores(np.array([same, other]), alpha)
    return float(alpha[0])


def ceiling(squared: float, scale: float, low: np.float32) -> np.float32:
    """What the filter knows of a row with this nearest squared distance."""
    ceil = np.empty((1, 1), np.float32)
    native.nearest_refresh(1, scale, np.array([low]), np.array([[[squared]]]), ceil, False)
    return np.float32(ceil[0, 0])


@pytest.mark.parametrize("d", [*WIDTHS, 3, 15, 16, 17, 255, 257, 511, 512, 513, 1000, 1024, 2047])
def test_squared_distance_is_numpys(d: int) -> None:
    rng = np.random.default_rng(d)
    for scale in (1.0, 1e-3, 1e60):
        X = rng.normal(size=(20, d)) * scale * 10.0 ** rng.integers(-6, 7, d)
        for a, b in pairwise(X):
            got = native.squared_distance(a, b)
            assert got == ((a - b) ** 2).sum()
            assert got == ((X - b) ** 2).sum(axis=1)[np.flatnonzero((a == X).all(axis=1))[0]]


def test_ratio_conventions() -> None:
    inf = math.inf
    cases = [(0.0, 0.0, 1.0), (inf, inf, 1.0), (4.0, inf, 0.0), (0.0, inf, 0.0), (inf, 4.0, inf), (inf, 0.0, inf)]
    for same, other, expected in [*cases, (4.0, 0.0, inf), (0.0, 4.0, 0.0), (4.0, 16.0, 0.25), (3.0, 3.0, 1.0)]:
        assert ratio(same, other) == expected
        assert naive.ratio(same, other) == expected


SQUARES = st.floats(5e-324, 1e303, allow_subnormal=True) | st.builds(  # everything that a squared distance can be
    math.ldexp, st.integers(1, 9).map(float), st.integers(-1074, 1004)
)


@settled(500)
@given(SQUARES, SQUARES, SQUARES, st.floats(0.5, 2.0) | st.floats(1.0 - 1e-14, 1.0 + 1e-14))
def test_scores_are_ordered_as_the_exact_ratios(same: float, other: float, another: float, factor: float) -> None:
    exact = Fraction(same) / Fraction(other)
    pairs = [(same, another), (another, other), (another, same)]
    pairs += [(same * factor, other), (same, other * factor)] if same < 1e302 and other < 1e302 else []
    score = ratio(same, other)
    assert 0.0 < score < math.inf
    for top, bottom in pairs:
        if top == 0.0 or bottom == 0.0:  # half of the least float64
            continue
        theirs, their_exact = ratio(top, bottom), Fraction(top) / Fraction(bottom)
        if their_exact == exact:
            assert theirs == score
        elif abs(their_exact / exact - 1) > Fraction(1, 2**49):
            assert (theirs > score) == (their_exact > exact)
            assert theirs != score
        else:
            assert theirs == score or (theirs > score) == (their_exact > exact)


@settled(200)
@given(st.integers(1, 2**26 - 1), st.integers(1, 2**26 - 1), st.integers(1, 2**26), st.integers(-1, 1))
def test_scores_of_integers_are_equal_exactly_if_the_ratios_are(same: int, other: int, k: int, step: int) -> None:
    assert ratio(float(same * k), float(other * k)) == ratio(float(same), float(other))
    close = (Fraction(same, other) + Fraction(step, 2**52)).limit_denominator(2**26 - 1)
    if 0 < close.numerator < 2**26:
        score = ratio(float(close.numerator), float(close.denominator))
        assert (score == ratio(float(same), float(other))) == (close == Fraction(same, other))


@pytest.mark.parametrize("edge", [2.0**512, 2.0**-512])
def test_scores_increase_over_the_edge_of_what_float64_can_divide(edge: float) -> None:
    near = [math.nextafter(edge, 0.0), edge, math.nextafter(edge, math.inf)]
    tops = [0.5 * edge, 0.999 * edge, *near, 1.001 * edge, 2.0 * edge]
    scores = [ratio(top, 1.0) for top in tops]
    assert scores == sorted(scores)
    assert scores[3] == edge
    assert len(set(scores)) >= 6


# ------------------------------------------------------------------ ranks


@pytest.mark.parametrize("d", WIDTHS)
def test_gaussian(d: int) -> None:
    check(*gaussian(d, 70, d))


@pytest.mark.parametrize("d", WIDTHS)
def test_grids_with_ties_and_duplicates(d: int) -> None:
    rng = np.random.default_rng(d)
    check(rng.integers(0, 3, (70, d)), rng.integers(0, 3, 70))
    some = rng.integers(0, 5, (9, d))
    check(some[rng.integers(0, 9, 70)], rng.integers(0, 2, 70))


@pytest.mark.parametrize("d", WIDTHS)
def test_tenths_where_the_order_of_summation_matters(d: int) -> None:
    rng = np.random.default_rng(d)
    base = rng.choice([0.1, 0.2, 0.3, 0.7, 1e-9], d)
    X = np.array([rng.permutation(base) for _ in range(60)])  # distances that are equal but for rounding
    check(X, rng.integers(0, 2, 60))


@pytest.mark.parametrize("d", [2, 10, 130])
def test_one_hot(d: int) -> None:
    rng = np.random.default_rng(d)
    check(np.eye(d)[rng.integers(0, d, 80)], rng.integers(0, 3, 80))


def test_a_longer_stream_of_integers() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 12, (600, 3)), rng.integers(0, 4, 600)
    expected = naive.ranks(X, y)
    assert ranked(X, y) == expected
    assert ranked(X, y, [1] * 300) == expected


def test_a_longer_stream_of_pixels() -> None:
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(5, 40))
    y = rng.integers(0, 5, 600)
    X = np.clip(np.round(centres[y] + 0.4 * rng.normal(size=(600, 40)), 1), -1, 1)
    expected = naive.ranks(X, y)
    assert ranked(X, y) == expected
    assert ranked(X, y, [100, 1, 1, 300]) == expected


@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_at_the_edges_of_blocks(n: int) -> None:
    X, y = gaussian(n, n + 3, 4)
    X = np.round(X, 1)
    expected = naive.ranks(X, y)
    assert ranked(X, y, [n]) == expected
    assert ranked(X, y, [n - 1, 1, 1]) == expected
    assert ranked(X, y, [7, BLOCK]) == expected


def exact_ties(seed: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Integer features, many equal ratios of squared distances that are not squares."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 30, (n, 3)), rng.integers(0, 3, n)


@pytest.mark.parametrize("seed", range(3))
def test_no_exact_tie_of_integer_features_is_missed(seed: int) -> None:
    X, y = exact_ties(seed, 600)
    expected = naive.exact_ranks(X, y)
    assert sum(equal > 1 for _, equal, _ in expected) > 250
    assert ranked(X, y) == expected
    assert ranked(X, y, [1] * 300) == expected
    assert ranked(X * 2.0**-30, y, [100, 1, 1]) == expected


# ------------------------------------------------------------------ magnitudes


@pytest.mark.parametrize("offset", [1e8, -1e12, 1e16, 1e100])
def test_huge_offsets(offset: float) -> None:
    X, y = gaussian(4, 80, 5)
    check(X + offset, y)
    check(X * 1e-6 + offset, y)


@pytest.mark.parametrize("scale", [1e-30, 1e-100, 1e-150, 1e30, 1e100, 1e149])
def test_scales(scale: float) -> None:
    for d in (1, 6, 130):
        X, y = gaussian(5, 60, d)
        check(X * scale, y)
        check(np.round(X) * scale, y)


@pytest.mark.parametrize("scale", [1e-154, 1e-155, 1e-158, 1e-160, 1e-161, 1e-162, 1e-170, 1e-250, 1e-310, 5e-324])
def test_scales_where_squares_underflow(scale: float) -> None:
    # regression: the square of the scale overflowed (OverflowError, after the state had changed)
    for d in (1, 6, 130):
        X, y = gaussian(5, 60, d)
        check(X * scale, y)
        check(np.round(X) * scale, y)


@pytest.mark.parametrize("first", [1.0, 1e-30, 1e-140, 1e-150, 1e-153, 1.5e-154])
@pytest.mark.parametrize("d", [1, 60])
def test_squares_that_underflow_near_the_first_example(d: int, first: float) -> None:
    # regression: the scaled float32 copies see what a float64 square rounds away, and the filter trusted them
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, d)) * 10.0 ** rng.uniform(-163, -160, (60, 1))
    X[0] = 0.0
    X[1] = first
    check(X, rng.integers(0, 2, 60))


def test_the_largest_lawful_numbers() -> None:
    rng = np.random.default_rng(7)
    check(rng.choice([-1e150, 1e150, 0.0, 5e149], (60, 3)), rng.integers(0, 2, 60))
    check(rng.choice([-1e150, 1e150, 1.0, 1e-30], (60, 3)), rng.integers(0, 2, 60))


def test_mixed_magnitudes_in_columns() -> None:
    rng = np.random.default_rng(8)
    for d in (3, 20):
        X = rng.normal(size=(80, d)) * 10.0 ** rng.integers(-12, 13, d)
        check(X, rng.integers(0, 3, 80))
        check(rng.normal(size=(80, d)) * 10.0 ** rng.integers(-12, 13, (80, d)), rng.integers(0, 3, 80))


@pytest.mark.parametrize("outlier", [1e5, 1e18, 1e19, 1e25, 1e37, 1e38, 1e39, 1e140, -1e140, 1e150])
@pytest.mark.parametrize("position", [0, 1, 2, 30])
def test_outliers_among_small_rows(outlier: float, position: int) -> None:
    X, y = gaussian(9, 60, 4)
    X[position] = outlier
    X[40:44] += outlier
    X[45:50, 1] = outlier
    check(X, y)


@pytest.mark.parametrize(("small", "large"), [(1e-30, 1e140), (1e-100, 1e100), (1e-150, 1e149), (5e-324, 1.0)])
def test_a_first_distance_much_smaller_than_the_others(small: float, large: float) -> None:
    # regression: scaled coordinates overflow, which is lawful (low = -inf) but warned
    X, y = gaussian(10, 40, 3)
    X[3:] *= large
    X[:2] = 0.0
    X[1, 0] = small
    X[20:25] *= small / large
    check(X, y)


# ------------------------------------------------------------------ duplicates at the start


@pytest.mark.parametrize("clones", [2, 3, 5, 20, BLOCK + 2])
@pytest.mark.parametrize("labels", ["a", "ab", "abc"])
def test_first_rows_all_identical(clones: int, labels: str) -> None:
    rng = np.random.default_rng(clones)
    X = np.full((clones + 30, 2), 0.7)
    X[clones:] += rng.integers(0, 3, (30, 2))
    y = [labels[i] for i in rng.integers(0, len(labels), len(X))]
    expected = naive.ranks(X, y)
    assert ranked(X, y) == expected
    assert ranked(X, y, [clones]) == expected  # the second call is the first to see a distance
    assert ranked(X, y, [1] * (clones + 3)) == expected


def test_identical_rows_then_another_label_one_by_one() -> None:
    # regression: while no two examples differ the scale is 0, and a ceiling of inf * 0 = nan lost every later fall
    X, y = [[0.0], [0.0], [0.0], [1.0]], ["a", "a", "b", "b"]
    assert ranked(X, y, [1, 1, 1]) == naive.ranks(X, y) == [(0, 1, 1), (0, 2, 2), (0, 1, 3), (1, 3, 4)]


def test_all_rows_identical() -> None:
    for labels in ("aaaa", "abab", "abcd", "aabb"):
        check(np.full((4, 3), 5.0), labels)
        check(np.full((12, 3), 5.0), labels * 3)


# ------------------------------------------------------------------ kinds of input


def test_any_kind_of_array() -> None:
    rng = np.random.default_rng(11)
    whole = rng.integers(0, 2, (60, 6))
    y = rng.integers(0, 2, 60)
    expected = naive.ranks(whole, y)
    wide = np.zeros((120, 12), dtype=np.float64)
    wide[::2, ::2] = whole
    forms: list[Any] = [
        whole.astype(kind) for kind in (np.float64, np.float32, np.float16, np.int8, np.uint8, np.uint64)
    ]
    forms += [whole.astype(bool), whole.astype(object), whole.tolist(), [tuple(row) for row in whole.tolist()]]
    forms += [
        np.asfortranarray(whole),
        wide[::2, ::2],
        whole[::-1][::-1],
        whole.astype(">f8"),
        list(whole.astype(float)),
    ]
    for form in forms:
        assert ranked(form, y) == expected
        assert ranked(form, y, [1, 1, 1, 20]) == expected


def test_unsigned_differences_do_not_wrap() -> None:
    X = np.array([[0], [255], [254], [1]], dtype=np.uint8)
    assert ranked(X, list("abab")) == naive.ranks(X, "abab")


def test_single_precision_is_taken_at_its_word() -> None:
    X = np.array([[0.1], [0.2], [0.3], [0.4], [0.55]], dtype=np.float32)
    assert ranked(X, list("aabab")) == naive.ranks(X.astype(np.float64), "aabab")


def test_the_measure_keeps_its_own_copy() -> None:
    X, y = gaussian(12, 20, 3)
    measure, mine = NearestNeighbour(), X.copy()
    measure.extend(mine, y)
    mine[:] = 0.0
    more, labels = gaussian(13, 20, 3)
    got = list(zip(*(column.tolist() for column in measure.extend(more, labels)), strict=True))
    assert got == naive.ranks(np.vstack([X, more]), [*y, *labels])[20:]


# ------------------------------------------------------------------ labels


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", "a", "cat"],
        [3, 1, 3, -7],
        [(1, 2), (1, 3), (1, 2), ()],
        ["1", 1, 1.5, (1,)],
        [1, np.int64(1), 1.0, 2],
        [True, 1, False, 0],
        [np.str_("a"), "a", "b", np.str_("b")],
        [frozenset([1]), frozenset([2]), frozenset(), frozenset([1])],
        [2**70, 2**70 + 1, 2**70, 0],
        [1.0, 2.0, 0.0, -0.0],
    ],
    ids=str,
)
def test_labels_are_told_apart_by_equality(labels: list[Any]) -> None:
    X, _ = gaussian(14, 60, 2)
    check(X, (labels * 15))


def test_arrays_of_labels() -> None:
    X, y = gaussian(15, 60, 2)
    expected = naive.ranks(X, y)
    for form in (
        y.astype(np.int32),
        y.astype(float),
        y.astype(str),
        y.astype(object),
        y.tolist(),
        tuple(y),
        iter(y.tolist()),
    ):
        assert NearestNeighbour().extend(X, form).equal.tolist() == [e for _, e, _ in expected]
    measure = NearestNeighbour()  # numbers of NumPy and of Python are one label
    got = [tuple(measure.update(x, label)) for x, label in zip(X, y, strict=True)]
    assert got == expected
    measure = NearestNeighbour()
    counts = [
        tuple(measure.update(x, int(label) if i % 2 else label)) for i, (x, label) in enumerate(zip(X, y, strict=True))
    ]
    assert counts == expected


def test_one_label_only() -> None:
    X, _ = gaussian(16, 80, 2)
    check(X, ["a"] * 80)


def test_all_labels_distinct() -> None:
    X, _ = gaussian(17, 80, 2)
    check(X, range(80))
    check(np.round(X), range(80))


def test_labels_first_seen_late() -> None:
    X, y = gaussian(18, 320, 2)
    labels = np.where(np.arange(320) < 300, 0, y)
    expected = naive.ranks(X, labels)
    assert ranked(X, labels) == expected
    assert ranked(X, labels, [299, 1, 1, 1, 1]) == expected


def test_a_thousand_labels() -> None:
    X, _ = gaussian(19, 300, 2)
    check(X, np.random.default_rng(19).integers(0, 1000, 300))


# ------------------------------------------------------------------ the filter


def adversarial(kind: str, rng: np.random.Generator, n: int, d: int) -> Floats:
    X: Floats = rng.normal(size=(n, d))
    if kind == "near pairs":
        X[1::2] = X[::2] * (1.0 + 2.0**-24 * rng.integers(-2, 3, (n // 2, 1)))
    elif kind == "half ulps of float32":
        X = np.round(X, 1) + 2.0**-25 * rng.integers(-1, 2, (n, d))
    elif kind == "all one sign":
        X = np.abs(X) + 1000.0
        X[0] = 0.0
    elif kind == "alternating":
        X *= np.where(np.arange(d) % 2, 1e6, -1e6)
    elif kind == "tiny about the first":
        X *= 10.0 ** rng.uniform(-40, 0, (n, 1))
        X[0] = 0.0
    elif kind == "towards overflow":
        X *= 10.0 ** rng.uniform(0, 60, (n, 1))
    return X


@pytest.mark.parametrize("d", [1, 3, 50, 400])
@pytest.mark.parametrize(
    "kind",
    [
        "plain",
        "near pairs",
        "half ulps of float32",
        "all one sign",
        "alternating",
        "tiny about the first",
        "towards overflow",
    ],
)
def test_the_filter_loses_nothing(kind: str, d: int) -> None:
    rng = np.random.default_rng(d)
    n = 60
    X = adversarial(kind, rng, n, d)
    measure = NearestNeighbour()
    measure.extend(X, rng.integers(0, 2, n))
    low, F, scale = measure._store.low[:n], measure._store.F[:n], measure._store.scale
    G = F @ F.T  # in float32, as the measure takes it
    squared = naive.squares(X)
    for i in range(n):
        for j in range(i):
            direct = squared[i, j]
            # the bound itself, in exact arithmetic for such numbers of digits
            assert float(low[i]) + float(low[j]) - 2.0 * float(G[i, j]) <= scale**2 * direct
            # and the float32 test that is made of it: whatever is farther than this distance must be a hit
            farther = math.nextafter(direct, math.inf)
            value = np.float32(low[i] - np.float32(2.0) * G[i, j])
            assert value < ceiling(farther, scale, low[j])
            assert value < np.float32(ceiling(farther, scale, np.float32(0.0)) - low[j])


def test_the_filter_is_worth_having() -> None:
    X, y = gaussian(20, 2000, 16)
    measure = NearestNeighbour()
    measure.extend(X, y)
    low, F = measure._store.low[:2000].astype(float), measure._store.F[:2000].astype(float)
    bound = low[:, None] + low[None, :] - 2.0 * F @ F.T
    direct = measure._store.scale**2 * naive.squares(X[:2000])
    apart = ~np.eye(2000, dtype=bool)
    assert (bound[apart] > 0.99 * direct[apart]).mean() > 0.999


def test_rows_that_float32_cannot_hold_are_never_filtered() -> None:
    X, y = gaussian(21, 30, 3)
    X[10] = 1e140
    measure = NearestNeighbour()
    measure.extend(X, y)
    assert measure._store.low[10] == -math.inf
    assert np.isfinite(measure._store.low[:10]).all()
    assert np.isfinite(measure._store.F[:30]).all()


# ------------------------------------------------------------------ memory


def test_no_table_of_all_distances_is_kept() -> None:
    X, y = gaussian(22, 3000, 4)
    NearestNeighbour().extend(X[:600], y[:600])  # everything compiled
    tracemalloc.start()
    measure = NearestNeighbour()
    measure.extend(X, y)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3000 * 3000 * 4 / 4  # a float32 table would be 36 MB; one block of it is 3 MB
    assert kept < 1_000_000
