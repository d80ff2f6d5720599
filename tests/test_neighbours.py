"""The k-nearest-neighbour measures against their definitions: every rank, and the last scores bit for bit."""

from __future__ import annotations

import copy
import math
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import contracts
import naive
from contracts import settled
from exchangeable import measures, native
from exchangeable.measures.neighbour_store import BLOCK, NeighbourStore
from exchangeable.measures.neighbours import Neighbours
from exchangeable.protocols import Ranks
from test_nearest import adversarial, gaussian

Floats = NDArray[np.float64]


class Family(NamedTuple):
    """A measure, its definition, and (for labelled ones) whether ranks are taken within the label."""

    make: Callable[[int], Neighbours]
    scores: Callable[[Floats, Sequence[Any], int], Floats]
    k: int
    within: bool = False

    def extend(self, measure: Any, X: Any, y: Any) -> Ranks:
        ranks: Ranks = (measure.extend_within if self.within else measure.extend)(X, y)
        return ranks

    def update(self, measure: Any, x: Any, y: Any) -> tuple[int, int, int]:
        rank: tuple[int, int, int] = (measure.update_within if self.within else measure.update)(x, y)
        return rank


NEAREST, DISTANCE, RESIDUAL = measures.NearestNeighbour, measures.NearestDistance, measures.NearestResidual
FAMILIES = {
    "NearestNeighbour(1) within": Family(NEAREST, naive.neighbour_ratios, 1, within=True),
    "NearestNeighbour(2)": Family(NEAREST, naive.neighbour_ratios, 2),
    "NearestNeighbour(5)": Family(NEAREST, naive.neighbour_ratios, 5),
    "NearestNeighbour(3) within": Family(NEAREST, naive.neighbour_ratios, 3, within=True),
    "NearestDistance(1)": Family(DISTANCE, naive.neighbour_distances, 1),
    "NearestDistance(4)": Family(DISTANCE, naive.neighbour_distances, 4),
    "NearestResidual(1)": Family(RESIDUAL, naive.neighbour_residuals, 1),
    "NearestResidual(3)": Family(RESIDUAL, naive.neighbour_residuals, 3),
}
each = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def ranked(family: Family, X: Any, y: Any, sizes: Sequence[int] = ()) -> tuple[list[tuple[int, int, int]], Floats]:
    """Ranks in batches of the given sizes (the last takes the rest; a batch of one is an update), and the scores."""
    measure, counts, start = family.make(family.k), [], 0
    for total in [*np.cumsum(sizes, dtype=int).tolist(), len(y)]:
        stop = min(total, len(y))
        if stop - start == 1:
            counts.append(tuple(family.update(measure, X[start], y[start])))
        elif stop > start:
            columns = family.extend(measure, X[start:stop], y[start:stop])
            counts += list(zip(*(column.tolist() for column in columns), strict=True))
        start = stop
    assert measure.n == len(y)
    return [(int(g), int(e), int(n)) for g, e, n in counts], measure._store.alpha[: measure.n]


def judged(family: Family, X: Any, y: Sequence[Any], steps: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """The ranks after the given numbers of examples, all scores made again."""
    squared = naive.squares(X)
    return {
        n: naive.ranked(family.scores(squared[:n, :n], y[:n], family.k), y[:n] if family.within else None)
        for n in steps
    }


def check(family: Family, X: Any, y: Any, *partitions: Sequence[int], steps: Sequence[int] = ()) -> None:
    """All at once, in batches, and one by one: ranks at some steps, and the last scores."""
    rows = np.asarray(X, dtype=np.float64)
    labels = [float(label) for label in y] if family.make is RESIDUAL else list(y)
    n = len(labels)
    expected = judged(family, rows, labels, steps or sorted({*range(1, min(n, 13)), *range(13, n, 7), n}))
    last = family.scores(naive.squares(rows), labels, family.k)
    whole, _ = ranked(family, rows, labels)
    for sizes in partitions or ([], [1, 1, 5, 1, 17], [1] * n):
        counts, alpha = ranked(family, rows, labels, sizes)
        assert counts == whole
        assert {step: counts[step - 1] for step in expected} == expected
        assert places(alpha) == places(last)
        if family.k > 1 or family.make is not NEAREST:  # whose scores are on another scale, where they are far from 1
            assert contracts.same_bits(alpha + 0.0, last + 0.0)  # (0.0 and -0.0 are one score)


def places(alpha: NDArray[Any]) -> list[int]:
    """Of each score among all distinct ones."""
    where: list[int] = np.unique(alpha, return_inverse=True)[1].tolist()
    return where


# ------------------------------------------------------------------ the judges


@settled(60)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=2, max_size=2), st.integers(0, 2)), min_size=1, max_size=9),
    st.integers(1, 4),
)
def test_the_judges_agree_with_plain_loops(examples: list[tuple[list[int], int]], k: int) -> None:
    X, y = [x for x, _ in examples], [label for _, label in examples]
    n, squared = len(y), naive.squares(X)
    apart = [[math.dist(X[i], X[j]) for j in range(n)] for i in range(n)]

    def mean(values: list[float]) -> float:
        least = sorted(values)[:k]
        return math.fsum(least) / len(least) if least else math.inf

    for i in range(n):
        same = mean([apart[i][j] for j in range(n) if j != i and y[j] == y[i]])
        other = mean([apart[i][j] for j in range(n) if y[j] != y[i]])
        expected = float(naive.ratio(same, other)) ** (2 if k == 1 else 1)
        assert naive.neighbour_ratios(squared, y, k)[i] == pytest.approx(expected, rel=1e-14)
        alone = mean([apart[i][j] for j in range(n) if j != i])
        assert naive.neighbour_distances(squared, y, k)[i] == pytest.approx(alone, rel=1e-14)
    if k == 1:
        assert naive.neighbour_ratios(squared, y, k).tolist() == naive.scores(squared, y)


def test_the_judge_of_residuals_by_hand() -> None:
    squared = naive.squares([[0.0], [1.0], [2.0], [2.0]])
    assert naive.neighbour_residuals(squared, [10.0, 5.0, 1.0, 2.0], 1).tolist() == [5.0, 4.0, -1.0, 1.0]
    assert naive.neighbour_residuals(squared, [10.0, 5.0, 1.0, 2.0], 2).tolist() == [7.0, 3.5, -2.5, -1.0]
    assert naive.neighbour_residuals(squared, [10.0, 5.0, 1.0, 2.0], 9)[0] == 10.0 - 8.0 / 3.0
    assert naive.neighbour_residuals(naive.squares([[3.0]]), [7.0], 1).tolist() == [0.0]


def test_ranks_within_by_hand() -> None:
    alpha = np.array([1.0, 3.0, 2.0, 2.0, 2.0])
    assert naive.ranked(alpha) == (1, 3, 5)
    assert naive.ranked(alpha, list("abbaa")) == (0, 2, 3)


# ------------------------------------------------------------------ lists of neighbours


@settled(200)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([-1.0, 0.0, 3.0])), max_size=12),
    st.integers(1, 5),
)
def test_a_list_of_neighbours_is_sorted(entries: list[tuple[float, float]], k: int) -> None:
    distance, residual = DISTANCE(k), RESIDUAL(k)
    distance.update([0.0])
    residual.update([0.0], 7.0)
    for m, (x, label) in enumerate(entries):
        distance.update([x])
        residual.update([x], label)
        least = sorted((x * x, label) for x, label in entries[: m + 1])[:k]
        tags, missing = [label for _, label in least], [math.inf] * (k - len(least))
        for measure in (distance, residual):
            assert measure._store.near[0, 0].tolist() == [squared for squared, _ in least] + missing
        assert residual._store.tags[0, 0, : len(least)].tolist() == tags
        assert distance._store.alpha[0] == sum(math.sqrt(squared) for squared, _ in least) / len(least)
        assert residual._store.alpha[0] == 7.0 - sum(tags) / len(tags)


def computed(monkeypatch: pytest.MonkeyPatch, measure: Neighbours, X: Any, y: Any) -> int:
    """How many distances the measure computes directly."""
    counts = []
    for name in ("nearest_extend", "neighbours_extend"):
        extend = getattr(native, name)
        monkeypatch.setattr(native, name, lambda *given, extend=extend: counts.append(extend(*given)))
    measure.extend(X, y)
    monkeypatch.undo()
    return sum(counts)


@pytest.mark.parametrize("measure", [NEAREST(1), NEAREST(3), DISTANCE(1), DISTANCE(3), RESIDUAL(1), RESIDUAL(3)])
def test_few_distances_are_computed(measure: Neighbours, monkeypatch: pytest.MonkeyPatch) -> None:
    n, k = 1000, measure.k
    X, y = gaussian(27, n, 16)
    most = 5 * k * n  # the k nearest of each, when it comes and whenever they change, on two sides
    assert n <= computed(monkeypatch, copy.deepcopy(measure), X, y) < most
    assert computed(monkeypatch, copy.deepcopy(measure), X * 1e-9 + 1.0, y) < most
    # rows that float32 cannot hold: their own distances are computed, and no others
    X[10:40:10] = [[1e140], [2e140], [3e140]]
    assert 2.9 * n <= computed(monkeypatch, copy.deepcopy(measure), X, y) < most + 3 * n


# ------------------------------------------------------------------ ranks and scores


@each
@pytest.mark.parametrize("d", [1, 2, 9, 128, 300])
def test_gaussian(family: Family, d: int) -> None:
    check(family, *gaussian(d, 50, d))


@each
@pytest.mark.parametrize("d", [1, 3, 130])
def test_grids_with_ties_and_duplicates(family: Family, d: int) -> None:
    rng = np.random.default_rng(d)
    check(family, rng.integers(0, 3, (50, d)), rng.integers(0, 3, 50))
    some = rng.integers(0, 5, (9, d))
    check(family, some[rng.integers(0, 9, 50)], rng.integers(0, 4, 50))


@each
@settled(30)
@given(examples=contracts.grid_examples(max_size=20))
def test_small_bags(family: Family, examples: list[tuple[list[float], str]]) -> None:
    check(family, [x for x, _ in examples], [ord(label) for _, label in examples], [], [1] * len(examples))


@each
@pytest.mark.parametrize("d", [2, 130])
def test_tenths_where_the_order_of_summation_matters(family: Family, d: int) -> None:
    rng = np.random.default_rng(d)
    base = rng.choice([0.1, 0.2, 0.3, 0.7, 1e-9], d)
    X = np.array([rng.permutation(base) for _ in range(50)])
    check(family, X, rng.integers(0, 3, 50))


@each
def test_longer_streams(family: Family) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 5, 400)
    digits = np.round(rng.normal(size=(5, 40))[y] + 0.4 * rng.normal(size=(400, 40)), 1)
    for X in (rng.integers(0, 9, (400, 3)), digits):
        check(family, X, y, [], [100, 1, 1, 200], steps=[32, 33, 64, 65, 128, 129, 150, 257, 321, 399, 400])


@each
@pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_at_the_edges_of_blocks(family: Family, n: int) -> None:
    X, y = gaussian(n, n + 3, 4)
    check(family, np.round(X, 1), y, [n], [n - 1, 1, 1], [7, BLOCK], steps=[n - 1, n, n + 1, n + 2, n + 3])


@each
@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-161, 1e-154, 1e-100, 1e149])
def test_scales(family: Family, scale: float) -> None:
    for d in (1, 6):
        X, y = gaussian(5, 40, d)
        check(family, X * scale, y)
        check(family, np.round(X) * scale, y)


@each
@pytest.mark.parametrize("offset", [-1e12, 1e16, 1e100])
def test_huge_offsets(family: Family, offset: float) -> None:
    X, y = gaussian(4, 50, 5)
    check(family, X + offset, y)
    check(family, X * 1e-6 + offset, y)


@each
def test_the_largest_lawful_numbers(family: Family) -> None:
    rng = np.random.default_rng(7)
    check(family, rng.choice([-1e150, 1e150, 0.0, 5e149], (50, 3)), rng.integers(0, 2, 50))
    check(family, rng.choice([-1e150, 1e150, 1.0, 1e-30], (50, 3)), rng.integers(0, 2, 50))


@each
@pytest.mark.parametrize("outlier", [1e5, 1e18, 1e25, 1e38, 1e140])
@pytest.mark.parametrize("position", [0, 1, 30])
def test_outliers_among_small_rows(family: Family, outlier: float, position: int) -> None:
    X, y = gaussian(9, 60, 4)
    X[position] = outlier
    X[40:44] += outlier
    X[45:50, 1] = outlier
    check(family, X, y)


@each
@pytest.mark.parametrize("kind", ["near pairs", "half ulps of float32", "all one sign", "tiny about the first"])
def test_where_float32_is_at_a_loss(family: Family, kind: str) -> None:
    rng = np.random.default_rng(3)
    for d in (1, 50):
        check(family, adversarial(kind, rng, 60, d), rng.integers(0, 3, 60))


@each
@pytest.mark.parametrize("clones", [2, 5, 20, BLOCK + 2])
def test_first_rows_all_identical(family: Family, clones: int) -> None:
    rng = np.random.default_rng(clones)
    X = np.full((clones + 30, 2), 0.7)
    X[clones:] += rng.integers(0, 3, (30, 2))
    y = rng.integers(0, 3, len(X))
    check(family, X, y, [], [clones], [1] * (clones + 3), steps=[1, 2, clones, clones + 1, clones + 9, clones + 30])


@each
def test_all_rows_identical(family: Family) -> None:
    rng = np.random.default_rng(12)
    check(family, np.full((30, 3), 5.0), rng.permutation(30))
    check(family, np.full((30, 3), 5.0), rng.integers(0, 3, 30))
    check(family, np.full((30, 3), 5.0), np.zeros(30, int))


@each
def test_one_label_only(family: Family) -> None:
    check(family, gaussian(16, 60, 2)[0], [1] * 60)


@each
def test_all_labels_distinct(family: Family) -> None:
    X, _ = gaussian(17, 60, 2)
    check(family, np.round(X), range(60))


@each
def test_labels_first_seen_late(family: Family) -> None:
    X, y = gaussian(18, 320, 2)
    labels = np.where(np.arange(320) < 300, 0, y)
    check(family, X, labels, [], [299, 1, 1, 1, 1], steps=[299, 300, 301, 302, 303, 304, 310, 320])


@pytest.mark.parametrize("k", [1, 2, 40, 1000])
@pytest.mark.parametrize("name", ["NearestNeighbour(2)", "NearestDistance(1)", "NearestResidual(1)"])
def test_more_neighbours_than_examples(name: str, k: int) -> None:
    check(FAMILIES[name]._replace(k=k), *gaussian(23, 30, 2))


@pytest.mark.parametrize("k", [1, 4])
def test_one_rank_among_all_and_another_within(k: int) -> None:
    X, y = gaussian(24, 120, 2)
    measure, squared = NEAREST(k), naive.squares(X)
    for i in range(120):
        within = bool(i % 3)
        got = (measure.update_within if within else measure.update)(X[i], y[i])
        alpha = naive.neighbour_ratios(squared[: i + 1, : i + 1], y[: i + 1].tolist(), k)
        assert tuple(got) == naive.ranked(alpha, y[: i + 1].tolist() if within else None)


def test_one_neighbour_is_the_measure_of_the_paper() -> None:
    X, y = gaussian(25, 400, 3)
    X = np.round(X, 1)
    measure = NEAREST(1)
    measure.extend(X, y)
    counts = np.empty((3, 400), np.int64)
    rows = NeighbourStore(400, 3, sides=2, k=1, tagged=False)  # the lists of k, made to hold one
    rows.X[:], rows.label[:] = X, y
    rows.prepare(0, 400)
    for lo, G in rows.products(0, 400, np.empty((BLOCK, 400), np.float32)):
        given = (rows.X, rows.label, rows.low, np.empty(0), rows.alpha, rows.near, rows.tags, rows.ceil)
        native.neighbours_extend(lo, G, rows.scale, *given, False, counts, lo)
    assert contracts.same_bits(measure._store.near, rows.near)
    assert np.allclose(measure._store.alpha, rows.alpha**2, rtol=1e-14)  # a ratio of squares, and one of distances


# ------------------------------------------------------------------ real labels


def test_labels_of_every_size() -> None:
    rng = np.random.default_rng(26)
    X = rng.integers(0, 4, (60, 2))
    for labels in (
        rng.choice([-1e150, 1e150, 0.0, 1e-300, 5e-324], 60),
        rng.normal(size=60) * 10.0 ** rng.integers(-30, 30, 60),
        rng.choice([0.0, -0.0], 60),
        rng.choice([0.1, 0.2, 0.3, 1e16], 60),
    ):
        for name in ("NearestResidual(1)", "NearestResidual(3)"):
            check(FAMILIES[name], X, labels)


def test_any_kind_of_number_is_a_label() -> None:
    rng = np.random.default_rng(27)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    expected = [column.tolist() for column in RESIDUAL(2).extend(X, y.astype(float))]
    forms = [y.astype(kind) for kind in (np.int8, np.uint64, np.float32, np.float16, bool, object)]
    for form in [*forms, y.tolist(), tuple(y.tolist()), np.repeat(y, 2)[::2]]:
        assert [column.tolist() for column in RESIDUAL(2).extend(X, form)] == expected
        measure = RESIDUAL(2)
        singly = [measure.update(x, label) for x, label in zip(X, form, strict=True)]
        assert [list(column) for column in zip(*singly, strict=True)] == expected
    assert RESIDUAL().update([1.0], np.array(2.5)).n == 1


def test_a_label_far_from_its_neighbours_is_strange_on_its_own_side() -> None:
    rng = np.random.default_rng(28)
    X = rng.uniform(size=(200, 1))
    y = X[:, 0] + 0.01 * rng.normal(size=200)
    high, low = RESIDUAL(3), RESIDUAL(3)
    high.extend(X, y)
    low.extend(X, y)
    assert high.update([0.5], 1.0) == (0, 1, 201)
    assert low.update([0.5], 0.0) == (200, 1, 201)


# ------------------------------------------------------------------ the order of arrival


@each
@settled(25)
@given(data=st.data(), examples=contracts.grid_examples(min_size=3, labels="abcd"))
def test_scores_do_not_depend_on_the_order_of_arrival(
    family: Family, data: st.DataObject, examples: list[tuple[list[float], str]]
) -> None:
    order = data.draw(st.permutations(range(len(examples))))
    X, y = np.array([x for x, _ in examples]), np.array([ord(label) / 10 for _, label in examples])
    first, second = family.make(family.k), family.make(family.k)
    first.extend(X, y)
    second.extend(X[order], y[order])
    n = len(y)
    assert contracts.same_bits(first._store.alpha[:n][order] + 0.0, second._store.alpha[:n] + 0.0)


# ------------------------------------------------------------------ interrupts, memory, constructors


@each
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_an_interrupted_batch_has_not_happened(family: Family, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gaussian(29, 2 * BLOCK + 200, 3)
    X = np.round(X, 1)
    measure, untroubled = family.make(family.k), family.make(family.k)
    for each_measure in (measure, untroubled):
        family.extend(each_measure, X[:60], y[:60])
        family.extend(each_measure, X[60:130], y[60:130])  # there is room for more now, or not, in turn
        if calls:
            family.extend(each_measure, X[130:140], y[130:140])
    start, kind, play, left = measure.n, type(measure), type(measure)._join, [calls]

    def interrupted(self: Any, *arguments: Any) -> None:
        play(self, *arguments)
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1

    with monkeypatch.context() as patch:
        patch.setattr(kind, "_join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            family.extend(measure, X[start:] + 0.05, y[start:])
        left[0] = 0
        with pytest.raises(KeyboardInterrupt):
            family.update(measure, X[0], y[0])
        left[0] = 0
        with pytest.raises(KeyboardInterrupt):  # while mending
            family.update(measure, X[1], y[1])
    assert measure.n == start
    twin = copy.deepcopy(measure)
    expected = [column.tolist() for column in family.extend(untroubled, X[start:], y[start:])]
    assert [column.tolist() for column in family.extend(measure, X[start:], y[start:])] == expected
    assert [column.tolist() for column in family.extend(twin, X[start:], y[start:])] == expected
    assert not measure._store.inconsistent


@each
def test_the_first_batch_interrupted(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gaussian(30, 40, 3)
    measure = family.make(family.k)
    with monkeypatch.context() as patch:
        patch.setattr(NeighbourStore, "prepare", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            family.extend(measure, X, y)
    expected = family.extend(family.make(family.k), X[:, :2], y)
    assert family.extend(measure, X[:, :2], y).greater.tolist() == expected.greater.tolist()  # of any width


@each
def test_too_little_memory_is_said_and_changes_nothing(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = gaussian(31, 60, 3)
    measure, untroubled = family.make(family.k), family.make(family.k)
    family.extend(measure, X[:20], y[:20])
    family.extend(untroubled, X[:20], y[:20])

    def exhausted(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(NeighbourStore, "with_room", exhausted)
        said = contracts.refused(lambda: family.extend(measure, X[20:], y[20:] + 5), measure)
    assert said == "X must fit in memory, got 60 examples of 3 features"
    expected = [column.tolist() for column in family.extend(untroubled, X[20:], y[20:])]
    assert [column.tolist() for column in family.extend(measure, X[20:], y[20:])] == expected


@each
def test_no_table_of_all_distances_is_kept(family: Family) -> None:
    X, y = gaussian(22, 1500, 4)
    family.extend(family.make(family.k), X[:600], y[:600])  # everything compiled
    tracemalloc.start()
    measure = family.make(family.k)
    family.extend(measure, X, y)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1500 * 1500 * 4 / 3  # one block of a float32 table is 1.5 MB of 9 MB
    assert kept < 1_000_000


@each
@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, math.nan, "3", None, True, [3], 1001])
def test_k_is_a_whole_number(family: Family, k: Any) -> None:
    with pytest.raises(ValueError, match=r"^k must be an integer from 1 to 1000, got "):
        family.make(k)


def test_k_is_stored_under_its_name() -> None:
    seven: Any = np.int64(7)
    assert [make(seven).k for make in (NEAREST, DISTANCE, RESIDUAL)] == [7, 7, 7]
    assert [make().k for make in (NEAREST, DISTANCE, RESIDUAL)] == [1, 1, 1]
