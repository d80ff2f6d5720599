"""Scores fixed in advance: pools, Value, Frozen, and label-conditional ranks."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

import contracts
import naive
from contracts import CUTS, settled
from exchangeable import Martingale, Monitor, PValues, native, thetas
from exchangeable.bets import Plugin
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, Value
from exchangeable.measures.pools import Pool, Scored
from exchangeable.protocols import Measure, Ranks

Counts = list[tuple[int, int, int]]


def counts(ranks: Ranks) -> Counts:
    return list(zip(*(column.tolist() for column in ranks), strict=True))


def in_pieces(measure: Measure, X: Any, y: Any, cuts: list[int]) -> Counts:
    """Ranks by update, or by batches."""
    return contracts.ranked_in_pieces(measure, X, y, cuts)


def quick_ranks(scores: np.ndarray[Any, Any]) -> Counts:
    """Like naive.ranks_of, by insertion into a sorted list: for longer streams."""
    seen: list[float] = []
    found = []
    for score in scores.tolist():
        insort(seen, score)
        low, high = bisect_left(seen, score), bisect_right(seen, score)
        found.append((len(seen) - high, high - low, len(seen)))
    return found


# ------------------------------------------------------------------ the pool

SCORES = st.one_of(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, 5e-324, 1e308, -1e308, 0.1, 0.30000000000000004]), max_size=60),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60),
)


@settled(200)
@given(scores=SCORES, cuts=CUTS)
def test_ranks_are_their_definition(scores: list[float], cuts: list[int]) -> None:
    expected = naive.ranks_of(scores)
    assert counts(Value().extend(scores)) == expected
    assert in_pieces(Value(), scores, None, cuts) == expected


SHAPES: dict[str, Callable[[int], np.ndarray[Any, Any]]] = {
    "random": lambda n: np.random.default_rng(1).normal(size=n),
    "increasing": lambda n: np.arange(float(n)),
    "decreasing": lambda n: -np.arange(float(n)),
    "inwards": lambda n: np.arange(float(n)) * (-1.0) ** np.arange(n),
    "outwards": lambda n: (n - np.arange(float(n))) * (-1.0) ** np.arange(n),
    "many ties": lambda n: np.round(np.random.default_rng(2).normal(size=n), 1),
    "some ties": lambda n: np.round(np.random.default_rng(3).normal(size=n), 3),
    "one value": lambda n: np.full(n, -7.0),
    "exactly a node": lambda n: np.arange(n) % float(native.POOL_WIDTH),
    "blocks": lambda n: np.repeat(np.random.default_rng(4).permutation(n // 50), 50).astype(float),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cuts", [[6000], [0], [1, 0, 2000, 63, 64, 65]])
def test_ranks_in_long_streams(shape: str, cuts: list[int]) -> None:
    scores = SHAPES[shape](6000)
    measure = Value()
    assert in_pieces(measure, scores, None, cuts) == quick_ranks(scores)
    check_tree(measure._pool)
    assert measure.n == 6000


def test_ranks_in_a_tree_of_many_levels() -> None:
    scores = np.round(np.random.default_rng(5).normal(size=200_000), 5)
    measure = Value()
    greater, equal, _ = measure.extend(scores)
    assert measure._pool._state[0][native.POOL_HEIGHT] == 3
    check_tree(measure._pool)
    for i in [*range(64, 200_000, 997), 199_999]:
        assert greater[i] == (scores[: i + 1] > scores[i]).sum()
        assert equal[i] == (scores[: i + 1] == scores[i]).sum()


def check_tree(pool: Pool) -> None:
    """The invariants of native/pools.c: order, counts, bounds, halves, depth."""
    head, size, score, count, child = pool._state
    seen: list[tuple[float, int]] = []
    nodes = 0

    def visit(node: int, level: int, low: float, high: float) -> int:
        nonlocal nodes
        nodes += 1
        width = int(size[node])
        assert width <= native.POOL_WIDTH
        assert node == head[native.POOL_ROOT] or width >= native.POOL_WIDTH // 2
        if level == 0:
            entries = score[node, :width]
            assert (np.diff(entries) > 0.0).all()
            assert ((entries > low) & (entries <= high)).all()
            seen.extend(zip(entries.tolist(), count[node, :width].tolist(), strict=True))
        else:
            bounds = [low, *score[node, : width - 1].tolist(), high]
            below = [visit(int(child[node, i]), level - 1, bounds[i], bounds[i + 1]) for i in range(width)]
            assert below == count[node, :width].tolist()
        return int(count[node, :width].sum())

    total = visit(int(head[native.POOL_ROOT]), int(head[native.POOL_HEIGHT]), -math.inf, math.inf)
    assert total == pool.n == sum(times for _, times in seen)
    assert len(seen) == pool.distinct
    assert nodes == head[native.POOL_NODES] <= len(size)


@settled(30)
@given(seed=st.integers(0, 10**6), levels=st.integers(1, 4000), sizes=st.lists(st.integers(0, 900), max_size=12))
def test_a_pool_keeps_its_invariants(seed: int, levels: int, sizes: list[int]) -> None:
    rng, pool = np.random.default_rng(seed), Pool()
    for size in sizes:
        pool.add(rng.integers(0, levels, size).astype(float))
        check_tree(pool)


def test_room_is_enough_for_the_worst() -> None:
    # nodes as empty as they can be: increasing scores leave every node but the last ones half full
    for n in (63, 64, 65, 1000, 2048, 2049, 70_000, 200_000):
        pool = Pool()
        pool.add(np.arange(float(n)))
        assert pool._state[0][native.POOL_NODES] <= len(pool._state[1]) == native.pool_nodes(n)


def test_memory_is_that_of_distinct_scores() -> None:
    measure = Value()
    for _ in range(50):
        measure.extend(np.arange(10_000.0) % 50)
    assert measure._pool.distinct == 50
    assert sum(array.nbytes for array in measure._pool._state) < 2e6  # one batch might have been all distinct
    binned = Frozen(bins=64, reference=np.arange(1000.0))
    for i in range(50):
        binned.extend(np.random.default_rng(i).random(10_000) * 1000.0)
    assert binned.n == 500_000
    assert sum(array.nbytes for array in binned._pool._state) < 64 * 1024


# ------------------------------------------------------------------ numbers


def test_value_takes_numbers_of_any_kind() -> None:
    expected = counts(Value().extend([1.0, 0.0, 1.0, 3.0]))
    for form in (
        [1, 0, 1, 3],
        (1, 0, 1, 3),
        np.array([1, 0, 1, 3], np.int8),
        np.array([1, 0, 1, 3], np.uint64),
        np.array([1, 0, 1, 3], np.float16),
        np.array([1, 0, 1, 3], np.longdouble),
        np.array([1, 0, 1, 3], object),
        [Decimal(1), Fraction(0), np.float32(1), True + 2],
        np.repeat([1.0, 0.0, 1.0, 3.0], 2)[::2],
    ):
        assert counts(Value().extend(form)) == expected
    assert counts(Value().extend([True, False, True])) == counts(Value().extend([1.0, 0.0, 1.0]))
    one = Value()
    singles: list[Any] = [np.float32(1), False, np.array(1), Decimal(3)]
    assert [tuple(one.update(x)) for x in singles] == expected
    assert counts(Value().extend(np.array([True, False]))) == [(0, 1, 1), (1, 1, 2)]


@pytest.mark.parametrize("bad", [np.longdouble("1e400"), np.datetime64("2012-06-26"), np.timedelta64(1, "s"), b"1"])
def test_value_refuses_what_is_no_finite_number(bad: Any) -> None:
    measure = Value()
    assert contracts.refused(lambda: measure.update(bad), measure).startswith("x must be one finite number, got")
    assert contracts.refused(lambda: measure.extend(np.array([bad])), measure).startswith("X must be a one-dimensional")


def test_value_refuses_masked_numbers() -> None:
    measure = Value()
    assert contracts.refused(lambda: measure.update(np.ma.masked), measure).startswith("x must be one finite number")
    assert counts(measure.extend(np.ma.array([1.0, 2.0]))) == [(0, 1, 1), (0, 1, 2)]


def test_messages_say_what_is_wrong() -> None:
    law = "X must be a one-dimensional array of finite numbers, got "
    for X, what in (
        ([1.0, math.nan], "nan at position 1"),
        ([[1.0], [2.0]], "2 dimensions"),
        (["a"], "['a']"),
        (3.0, "3.0"),
    ):
        with pytest.raises(ValueError, match="^" + law.replace(".", r"\.")) as caught:
            Value().extend(X)
        assert str(caught.value) == law + what


def test_value_finds_a_change_and_not_its_absence() -> None:
    rng = np.random.default_rng(0)
    assert not Monitor(Value(), Plugin(), seed=1).extend(rng.normal(size=2000)).alarm.any()
    up, down = np.repeat([0.0, 1.0], 500), np.repeat([0.0, -1.0], 500)
    for drift in (up, down):
        path = Monitor(Value(), Plugin(), seed=1).extend(rng.normal(size=1000) + drift)
        assert path.alarm[-1]
        assert not path.alarm[:500].any()


# ------------------------------------------------------------------ Frozen: scores and functions


def test_frozen_numbers_are_values() -> None:
    scores = np.random.default_rng(1).normal(size=500)
    assert counts(Frozen().extend(scores)) == counts(Value().extend(scores))
    assert isinstance(Frozen(), Scored)


def test_a_function_sees_what_was_given() -> None:
    seen: list[tuple[Any, Any]] = []

    def score(X: Any, y: Any) -> Any:
        seen.append((X, y))
        return np.zeros(len(X))

    measure = Frozen(score)
    X, y = [[1.0, 2.0], [3.0, 4.0]], ("a", "b")
    measure.extend(X, y)
    assert seen[0][0] is X
    assert seen[0][1] is y
    assert [len(rows) for rows, _ in seen[1:]] == [2, 1, 1]  # once more, together and alone
    del seen[1:]
    measure.extend(X)
    assert seen[1][1] is None
    measure.update([1.0, 2.0], "a")
    assert seen[2][0].tolist() == [[1.0, 2.0]]
    assert seen[2][1].tolist() == ["a"]
    measure.update([1.0, "red"], ("a", 1))
    assert seen[3][0].tolist() == [[1.0, "red"]]
    assert seen[3][1].shape == (1,)
    assert seen[3][1][0] == ("a", 1)
    measure.update(np.ones((4, 5)))
    assert seen[4][0].shape == (1, 4, 5)
    assert seen[4][1] is None
    measure.update(2.0)
    assert seen[5][0].tolist() == [2.0]


def test_a_function_scores_by_labels_too() -> None:
    rng = np.random.default_rng(2)
    X, y = np.round(rng.normal(size=(200, 2)), 1), rng.integers(0, 2, 200)
    measure = Frozen(lambda X, y: (X[:, 0] * (2 * y - 1)).tolist())
    expected = naive.ranks_of(X[:, 0] * (2 * y - 1))
    assert in_pieces(measure, X, y, [0, 7, 0, 0, 30]) == expected


def _raising(X: Any, y: Any) -> Any:
    raise KeyError("no\nsuch column")


BAD_SCORES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "nan": (lambda X, y: np.full(len(X), math.nan), "got nan at position 0"),
    "inf": (lambda X, y: [1.0] * (len(X) - 1) + [math.inf], "got inf at position"),
    "text": (lambda X, y: ["a"] * len(X), "got ['a'"),
    "digits": (lambda X, y: ["1"] * len(X), "got ['1'"),
    "None": (lambda X, y: None, "got None"),
    "complex": (lambda X, y: np.full(len(X), 1j), "got array([0.+1.j"),
    "too many": (lambda X, y: np.ones(len(X) + 1), "score must return one number for each example, got"),
    "none at all": (lambda X, y: [], "score must return one number for each example, got 0 for"),
    "a column": (lambda X, y: np.ones((len(X), 1)), "got 2 dimensions"),
    "a number": (lambda X, y: 1.0, "got 1.0"),
    "ragged": (lambda X, y: [[1.0]] * (len(X) - 1) + [[1.0, 2.0], 3.0], "got [["),
    "raises": (_raising, "but raised KeyError: 'no\\nsuch column'"),
    "takes no labels": (lambda X: np.ones(len(X)), "but raised TypeError"),  # type: ignore[misc, dict-item]
}


class Fickle:
    """A score that goes wrong on demand."""

    def __init__(self) -> None:
        self.wrong: Callable[[Any, Any], Any] | None = None

    def __call__(self, X: Any, y: Any) -> Any:
        return np.asarray(X)[:, 0] if self.wrong is None else self.wrong(X, y)


@pytest.mark.parametrize("bad", BAD_SCORES)
def test_a_bad_score_is_refused_and_the_monitor_goes_on(bad: str) -> None:
    wrong, message = BAD_SCORES[bad]
    score = Fickle()
    monitor, untroubled = Monitor(Frozen(score), Plugin(), seed=3), Monitor(Value(), Plugin(), seed=3)
    numbers = np.random.default_rng(4).normal(size=40)
    for lo in range(0, 40, 10):
        part = numbers[lo : lo + 10, np.newaxis]
        score.wrong = None
        assert contracts.same_bits(monitor.extend(part).log_value, untroubled.extend(part[:, 0]).log_value)
        assert monitor.update(part[0]) == untroubled.update(part[0, 0])
        score.wrong = wrong
        for call in (partial(monitor.extend, part), partial(monitor.update, part[0])):
            said = contracts.refused(call, monitor.pvalues, monitor.martingale)
            assert said.startswith("score must return")
            assert message in said
            assert "\n" not in said
    assert monitor.n == untroubled.n == 44


def test_the_cause_of_a_failed_score_is_kept() -> None:
    with pytest.raises(ValueError, match="raised KeyError") as caught:
        Frozen(_raising).extend(np.ones((3, 1)))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_interrupt_is_no_score() -> None:
    def interrupted(X: Any, y: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Frozen(interrupted).extend(np.ones((3, 1)))


@pytest.mark.parametrize(
    "bad", [5.0, None, (x for x in "ab"), np.array(3.0)], ids=["number", "None", "iterator", "0-d"]
)
def test_a_table_has_rows(bad: Any) -> None:
    measure = Frozen(lambda X, y: np.ones(1))
    assert contracts.refused(lambda: measure.extend(bad), measure).startswith("X must hold one row for each example")


@pytest.mark.parametrize("bad", [None, [[1.0], [1.0, 2.0]], object()], ids=["None", "ragged", "object"])
def test_an_example_is_a_row(bad: Any) -> None:
    measure = Frozen(lambda X, y: np.ones(1))
    assert contracts.refused(lambda: measure.update(bad), measure).startswith("x must be one example")


# ------------------------------------------------------------------ Frozen: models

sklearn = pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def examples() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 2)) + y[:, np.newaxis]
    return X, np.array(["a", "b", "c"])[y], X[:, 0] - 2.0 * X[:, 1] + rng.normal(size=300)


def test_a_classifier(examples: tuple[Any, Any, Any]) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    X, y, _ = examples
    grid = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [2, 3]}, cv=3)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    for model in (LogisticRegression(), pipeline, grid):
        model.fit(X[:100], y[:100])
        chosen = [model.classes_.tolist().index(label) for label in y[100:]]
        given = model.predict_proba(X[100:])[np.arange(200), chosen]
        expected = np.array([1.0 - naive.rounded(p) for p in given])
        assert contracts.same_bits(Frozen(model).scores(X[100:], y[100:]), expected)
        assert counts(Frozen(model).extend(X[100:], y[100:].tolist())) == naive.ranks_of(expected)
        assert in_pieces(Frozen(model), X[100:], y[100:], [0, 3]) == naive.ranks_of(expected)


def test_a_classifier_needs_labels_that_it_knows(examples: tuple[Any, Any, Any]) -> None:
    from sklearn.linear_model import LogisticRegression

    X, y, _ = examples
    measure = Frozen(LogisticRegression().fit(X, y))
    for labels, message in (
        (["a", "z"], "y must hold labels that the classifier has learnt, got 'z' at position 1"),
        (["a", None], "y must hold labels that the classifier has learnt, got None at position 1"),
        (["a", ["b"]], "y must hold labels that the classifier has learnt, got ['b'] at position 1"),
        (["a"], "y must hold one label for each row of X, got 1 labels for 2 rows"),
        (None, "y must hold one label for each row of X, got None"),
    ):
        assert contracts.refused(partial(measure.extend, X[:2], labels), measure) == message
    assert contracts.refused(lambda: measure.update(X[0], "z"), measure).endswith("got 'z' at position 0")
    assert contracts.refused(lambda: measure.update(X[0]), measure).startswith("y must")
    assert contracts.refused(lambda: measure.extend(X[:2, :1], y[:2]), measure).startswith("score must return")


def test_a_regressor(examples: tuple[Any, Any, Any]) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor

    X, _, y = examples
    for model in (LinearRegression(), KNeighborsRegressor(3)):
        model.fit(X[:100], y[:100])
        residuals = y[100:] - model.predict(X[100:])
        assert counts(Frozen(model).extend(X[100:], y[100:])) == naive.ranks_of(np.abs(residuals))
        assert counts(Frozen(model, residual="signed").extend(X[100:], y[100:])) == naive.ranks_of(residuals)
    assert Frozen(model).update(X[0], y[0]) == (0, 1, 1)
    measure = Frozen(LinearRegression().fit(X, y))
    for labels in (None, ["a"] * 300, y[:-1], [*y[:-1], math.nan], np.full(300, 1e309)):
        assert contracts.refused(partial(measure.extend, X, labels), measure).startswith("y must")
    both = LinearRegression().fit(X, np.column_stack([y, y]))
    assert "got 2 dimensions" in contracts.refused(lambda: Frozen(both).extend(X, y))


def test_an_outlier_detector(examples: tuple[Any, Any, Any]) -> None:
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import GaussianMixture
    from sklearn.neighbors import KernelDensity, LocalOutlierFactor

    X, _, _ = examples
    forest = IsolationForest(n_estimators=10, random_state=0)
    mixture = GaussianMixture(2, random_state=0)  # it has predict_proba, of components: not a classifier
    for model in (forest, mixture, KernelDensity(), LocalOutlierFactor(novelty=True)):
        model.fit(X[:100])
        assert counts(Frozen(model).extend(X[100:])) == naive.ranks_of(-model.score_samples(X[100:]))
    far = Frozen(forest)
    far.extend(X[100:])
    assert far.update([50.0, -50.0]).greater <= 3


def test_unfitted_models_are_refused() -> None:
    from sklearn.ensemble import IsolationForest
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline

    for model in (LogisticRegression(), LinearRegression(), IsolationForest(), make_pipeline(LogisticRegression())):
        with pytest.raises(ValueError, match=r"^score must be fitted before the stream starts, got the unfitted"):
            Frozen(model)


def test_other_models_are_refused(examples: tuple[Any, Any, Any]) -> None:
    from sklearn.cluster import KMeans
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    X, y, _ = examples
    fitted = [KMeans(2, n_init=1).fit(X), RidgeClassifier().fit(X, y), StandardScaler().fit(X)]
    for model in [*fitted, LogisticRegression, 3, "score", [1.0], Value(), Oblivious()]:
        with pytest.raises(ValueError, match=r"^score must be None, a function"):
            Frozen(model)


class Oblivious:
    """A classifier of another library, without probabilities."""

    classes_ = (0, 1)

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


class Half:
    """A classifier of another library, always in two minds."""

    classes_ = (0, 1)

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 2), 0.5)


class Zero:
    """A regressor of another library."""

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


def test_models_of_other_libraries() -> None:
    X = np.zeros((3, 1))
    assert Frozen(Half()).scores(X, [0, 1, 1]).tolist() == [0.5, 0.5, 0.5]
    assert Frozen(Zero()).scores(X, [-1.0, 2.0, 0.0]).tolist() == [1.0, 2.0, 0.0]
    assert Frozen(Zero(), residual="signed").scores(X, [-1.0, 2.0, 0.0]).tolist() == [-1.0, 2.0, 0.0]
    strange = Half()
    strange.predict_proba = lambda X: np.full((len(X), 3), 0.5)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"^score must return a probability for each example and class, got shape"):
        Frozen(strange).scores(X, [0, 1, 1])
    overflow = Zero()
    overflow.predict = lambda X: np.full(len(X), -1.7e308)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"^score must return .* got inf at position 1"):
        Frozen(overflow).scores(X, [0.0, 1.7e308, 0.0])


def test_no_examples_need_no_score() -> None:
    measure = Frozen(Half())
    assert counts(measure.extend(np.empty((0, 2)), [])) == []
    assert contracts.refused(lambda: measure.extend(np.empty((0, 2)), [1]), measure).startswith("y must hold")


def test_scikit_learn_is_not_imported() -> None:
    code = """
import sys
import numpy as np
from exchangeable.measures import Frozen
class Model:
    def predict(self, X): return np.zeros(len(X))
Frozen(lambda X, y: X[:, 0]).extend(np.ones((3, 1)))
Frozen(Model()).extend(np.ones((3, 1)), [1, 2, 3])
assert "sklearn" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------ Frozen: bins


@pytest.mark.parametrize("bins", [2, 3, 16, 1024])
@pytest.mark.parametrize("size", [2, 40, 5000])
def test_bins_are_just_another_score(bins: int, size: int) -> None:
    rng = np.random.default_rng(8)
    reference, scores = rng.normal(size=size), 1.5 * rng.normal(size=3000)
    measure = Frozen(reference=reference, bins=bins)
    ascending = np.sort(reference)
    below = {min(math.ceil(k * size / bins) - 1, size - 2) for k in range(1, bins)}
    edges = sorted(float(ascending[i] + ascending[i + 1]) / 2.0 for i in below)
    assert measure.edges is not None
    assert measure.edges.tolist() == pytest.approx(edges, rel=1e-14, abs=1e-300)
    edges = measure.edges.tolist()
    numbers = [sum(edge < score for edge in edges) for score in scores]
    assert counts(measure.extend(scores)) == quick_ranks(np.array(numbers))
    assert measure._pool.distinct <= bins
    pieces = Frozen(reference=reference, bins=bins)
    assert in_pieces(pieces, scores[:500], None, [0, 11, 0, 2]) == quick_ranks(np.array(numbers[:500]))


def test_bins_of_scores_of_examples() -> None:
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(300, 2)), rng.normal(size=300)

    def score(X: Any, y: Any) -> Any:
        return np.abs(y - X[:, 0])

    binned = Frozen(score, reference=(X[:200], y[:200]), bins=8)
    of_scores = Frozen(reference=score(X[:200], y[:200]), bins=8)
    assert counts(binned.extend(X[200:], y[200:])) == counts(of_scores.extend(score(X[200:], y[200:])))
    alone = Frozen(lambda X, y: X[:, 0], reference=X[:200], bins=8)
    assert counts(alone.extend(X[200:])) == counts(Frozen(reference=X[:200, 0], bins=8).extend(X[200:, 0]))
    pair = Frozen(reference=(0.0, 1.0), bins=8)  # two scores, not X and y
    assert pair.edges is not None
    assert pair.edges.tolist() == [0.5]


@settled(200)
@given(
    reference=st.lists(
        st.one_of(
            st.sampled_from([0.0, 5e-324, 1e-323, 1.5e-323, 1.0, math.nextafter(1.0, 2.0), 1.7e308, -1.7e308]),
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=2,
        max_size=30,
    ).filter(lambda scores: len(set(scores)) > 1),
    bins=st.integers(2, 40),
)
def test_no_reference_score_is_on_the_wrong_side_of_an_edge(reference: list[float], bins: int) -> None:
    measure = Frozen(reference=reference, bins=bins)
    assert measure.edges is not None
    edges, distinct = measure.edges.tolist(), sorted(set(reference))
    assert 1 <= len(edges) <= min(bins, len(distinct)) - 1
    assert edges == sorted(set(edges))
    for edge in edges:  # each between two neighbours, and on the lower one only where no number lies between
        above = min(score for score in distinct if score > edge)
        low = max(score for score in distinct if score <= edge)
        assert low < edge < above or (edge == low and math.nextafter(low, math.inf) == above)


def test_edges_for_few_distinct_scores() -> None:
    for reference, bins, edges in (
        ([0.0, 1.0, 1.0, 1.0, 1.0], 2, [0.5]),  # the median is the largest score
        ([0.0] * 99 + [1.0], 4, [0.5]),
        ([1.0, 2.0, 4.0, 8.0], 4, [1.5, 3.0, 6.0]),
        ([1.0, 2.0, 4.0, 8.0], 100, [1.5, 3.0, 6.0]),
    ):
        found = Frozen(reference=reference, bins=bins).edges
        assert found is not None
        assert found.tolist() == edges


def test_bins_and_reference_belong_together() -> None:
    for arguments, message in (
        ({"bins": 8}, "reference must be given together with bins, got None"),
        ({"reference": [1.0, 2.0]}, "bins must be given together with reference, got None"),
        ({"bins": 8, "reference": [1.0, 1.0]}, "reference must have at least 2 distinct scores, got 1"),
        ({"bins": 8, "reference": []}, "reference must have at least 2 distinct scores, got 0"),
        ({"bins": 1, "reference": [1.0, 2.0]}, "bins must be an integer from 2 to 1048576, got 1"),
        ({"bins": 8.0, "reference": [1.0, 2.0]}, "bins must be an integer from 2 to 1048576, got 8.0"),
        ({"bins": [0.5], "reference": [1.0, 2.0]}, "bins must be an integer from 2 to 1048576, got [0.5]"),
        ({"residual": "relative"}, "residual must be 'absolute' or 'signed', got 'relative'"),
    ):
        with pytest.raises(ValueError, match="must") as caught:
            Frozen(**arguments)
        assert str(caught.value) == message
    with pytest.raises(ValueError, match=r"^reference must be X or \(X, y\) that can be scored, got: X must be"):
        Frozen(bins=8, reference=[1.0, math.nan])
    with pytest.raises(
        ValueError, match=r"^reference must be X or \(X, y\) that can be scored, got: score must return"
    ):
        Frozen(_raising, bins=8, reference=np.ones((3, 1)))


def test_arguments_are_stored_under_their_names() -> None:
    score = Fickle()
    measure = Frozen(score, bins=4, reference=np.arange(8.0)[:, np.newaxis], residual="signed")
    assert measure.score is score
    assert (measure.bins, measure.residual) == (4, "signed")
    measure = Frozen()
    assert (measure.score, measure.bins, measure.residual, measure.edges) == (None, None, "absolute", None)


# ------------------------------------------------------------------ validity


def p_values(make: Callable[[], Measure], runs: int, n: int) -> np.ndarray[Any, Any]:
    """Exchangeable but not independent, with ties: every run has its own centre and scale."""
    table = np.empty((runs, n))
    for run in range(runs):
        rng = np.random.default_rng([run, 31])
        x = np.round(rng.normal() + math.exp(rng.normal()) * rng.standard_t(2, n), 1)
        y = (rng.random(n) < rng.random()).astype(int)
        table[run] = PValues(make(), seed=run).extend(x, y)
    return table


@pytest.mark.parametrize(
    "make",
    [Value, lambda: Frozen(bins=8, reference=np.linspace(-1.0, 1.0, 50)), lambda: Conditional(Value())],
    ids=["exact", "bins", "conditional"],
)
def test_p_values_are_uniform_and_alarms_rare(make: Callable[[], Measure]) -> None:
    table = p_values(make, 600, 60)
    for n in (1, 2, 3, 5, 20, 60):
        assert kstest(table[:, n - 1], "uniform").pvalue > 1e-4
    for i, j in ((1, 2), (2, 3), (5, 20), (59, 60)):
        assert abs(np.corrcoef(table[:, i - 1], table[:, j - 1])[0, 1]) * math.sqrt(600) < 4.0
    alarms = sum(Martingale(Plugin()).extend(row).max() >= math.log(10.0) for row in table)
    assert binomtest(int(alarms), 600, 0.1, alternative="greater").pvalue > 1e-4


def test_a_pool_that_stands_still_would_be_caught() -> None:
    # what Frozen does not do: rank among 40 scores only
    alarms = 0
    for run in range(300):
        scores, theta = np.random.default_rng([run, 32]).random(340), thetas(run, 0, 300)
        greater = (scores[:40] > scores[40:, np.newaxis]).sum(axis=1)
        alarms += Martingale(Plugin()).extend((greater + theta) / 41.0).max() >= math.log(10.0)
    assert binomtest(int(alarms), 300, 0.1, alternative="greater").pvalue < 1e-10


# ------------------------------------------------------------------ Conditional

LABELLED = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 2.0, 0.5]), st.sampled_from(["a", "b", 1, (2, "c")])), max_size=40
)


@settled(150)
@given(examples=LABELLED, cuts=CUTS)
def test_ranks_within_labels_are_their_definition(examples: list[tuple[float, Any]], cuts: list[int]) -> None:
    x, y = [x for x, _ in examples], [y for _, y in examples]
    expected = naive.ranks_of(x, y)
    assert in_pieces(Conditional(Value()), x, y, cuts) == expected
    assert counts(Conditional(Frozen()).extend(x, y)) == expected
    copies: Measure = Conditional(Plain())
    assert in_pieces(copies, x, y, cuts) == expected


class Plain:
    """A measure of somebody else: the value itself, without n, scores or ranks within labels."""

    def __init__(self) -> None:
        self._value = Value()

    def update(self, x: Any, y: Any = None) -> Any:
        return self._value.update(x)

    def extend(self, X: Any, y: Any = None) -> Ranks:
        return self._value.extend(X)


def test_nearest_neighbours_within_labels() -> None:
    rng = np.random.default_rng(10)
    X, y = rng.integers(0, 20, (120, 3)), rng.integers(0, 3, 120)  # with exact ties
    table = naive.squares(X)
    expected = [
        naive.ranked(naive._scores(table[:n, :n], y[:n]), y[:n].tolist()) for n in range(1, 121)
    ]  # of all examples the scores, of the own label the rank
    assert counts(Conditional(NearestNeighbour()).extend(X, y)) == expected
    assert in_pieces(Conditional(NearestNeighbour()), X, y, [0, 9]) == expected


def test_other_measures_are_copied_for_each_label() -> None:
    rng = np.random.default_rng(11)
    X, y = rng.normal(size=(90, 2)), rng.choice(["a", "b", "c"], 90)
    got = counts(Conditional(NearestDistance()).extend(X, y))
    for label in "abc":
        own = counts(NearestDistance().extend(X[y == label]))
        assert [rank for rank, of in zip(got, y, strict=True) if of == label] == own


def test_a_model_is_asked_once_for_all_labels() -> None:
    calls = []

    def score(X: Any, y: Any) -> Any:
        calls.append((X, y))
        return X[:, 0]

    rng = np.random.default_rng(12)
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 5, 50)
    measure = Conditional(Frozen(score))
    assert counts(measure.extend(X, y)) == naive.ranks_of(X[:, 0], y.tolist())
    assert len(calls) == 1
    assert calls[0][0] is X
    assert calls[0][1] is y
    assert measure.extend(X, iter(y.tolist())).n.sum() > 50  # an iterator is read once, and passed on as a list
    assert calls[1][1] == y.tolist()


def test_bad_rows_of_one_label_change_no_label() -> None:
    # the third label is the bad one; the first two must not have learnt anything
    X, y = [[1.0], [2.0], [math.nan], [3.0]], ["a", "b", "c", "a"]
    for rows, labels in ((X, y), (X[::-1], y[::-1]), (X[1:3], y[1:3])):
        measure = Conditional(NearestDistance())
        measure.extend([[0.0], [1.0], [5.0]], ["a", "b", "a"])
        said = contracts.refused(partial(measure.extend, rows, labels), measure)
        assert said.startswith("X must")
        assert said.endswith("among the rows with label 'c'")
        assert measure.update([4.0], "c") == (0, 1, 1)
        assert measure.n == 4


def test_a_new_label_has_the_width_of_the_others() -> None:
    measure = Conditional(NearestDistance())
    measure.extend([[0.0, 1.0], [1.0, 1.0]], ["a", "b"])
    message = "X must have 2 features like the examples before, got 3"
    assert contracts.refused(lambda: measure.extend([[1.0, 2.0, 3.0]], ["c"]), measure) == message
    assert contracts.refused(lambda: measure.update([1.0], "c"), measure).startswith("x must have 2 features like the")


@pytest.mark.parametrize("make", [Value, Plain, NearestNeighbour])
def test_copies_of_a_conditional_measure_learn_apart(make: Callable[[], Measure]) -> None:
    rng = np.random.default_rng(13)
    x: Any = rng.normal(size=40) if make is not NearestNeighbour else rng.normal(size=(40, 2))
    y = rng.integers(0, 3, 40)
    measure = Conditional(make())
    measure.extend(x[:20], y[:20])
    twin = copy.deepcopy(measure)
    expected = counts(twin.extend(x[20:], y[20:]))
    assert in_pieces(measure, x[20:], y[20:], [0]) == expected


def test_a_conditional_measure_begins_afresh() -> None:
    used = Value()
    used.update(1.0)
    with pytest.raises(ValueError, match=r"^measure must be fresh, got one that has seen 1 examples"):
        Conditional(used)
    for bad in (None, 3, "value", Value, Plugin()):
        with pytest.raises(ValueError, match=r"^measure must be a measure"):
            Conditional(bad)  # type: ignore[arg-type]
    for measure in (Value(), NearestNeighbour(), NearestDistance(), Frozen()):
        assert Conditional(measure).measure is measure


def test_many_labels() -> None:
    rng = np.random.default_rng(14)
    x, y = rng.normal(size=1500), rng.integers(0, 350, 1500)
    assert counts(Conditional(Value()).extend(x, y)) == naive.ranks_of(x, y.tolist())
    assert (Conditional(Value()).extend(x, np.arange(1500)).n == 1).all()


# ------------------------------------------------------------------ rows of frames, and copies


def test_one_row_of_a_frame_keeps_its_names() -> None:
    # regression: the row lost its names, so that models fitted on frames could not be asked for one example
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 3.0, 2.0, 5.0], "b": ["x", "y", "x", "y"]})

    def score(X: Any, y: Any) -> Any:
        return X["a"] + (X["b"] == "y")

    expected = Frozen(score).extend(frame)
    rows, tables = Frozen(score), Frozen(score)
    for i in range(4):
        rank = tuple(int(column[i]) for column in expected)
        assert rows.update(frame.iloc[i]) == tables.update(frame.iloc[[i]]) == rank
    records = Frozen(lambda X, y: [row["a"] for row in X])
    assert records.extend([{"a": 1.0}, {"a": 2.0}]).n.tolist() == [1, 2]
    assert records.update({"a": 1.5}) == (1, 1, 3)


def test_a_model_with_several_outputs_is_refused() -> None:
    class Several:
        classes_ = [np.array([0, 1]), np.array([0, 1])]  # noqa: RUF012

        def predict_proba(self, X: Any) -> Any:
            return X

    with pytest.raises(ValueError, match=r"^score must have one label for each example"):
        Frozen(Several())


def test_copies_share_the_score_and_not_the_pool() -> None:
    # regression: a restart copied the model, and failed where it could not be copied
    class Remote:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is only one of me")

        def __call__(self, X: Any, y: Any) -> Any:
            return np.asarray(X)[:, 0]

    measure = Frozen(Remote())
    twin = copy.deepcopy(measure)
    twin.extend([[1.0], [2.0]])
    assert (measure.n, twin.n) == (0, 2)
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(size=(200, 1)), rng.normal(size=(200, 1)) + 5.0])
    assert Monitor(Frozen(Remote()), on_alarm="restart").extend(X).alarm.any()


@pytest.mark.parametrize("seed", range(30))
def test_edges_are_halfway_from_quantiles_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=int(rng.integers(5, 300))).round(int(rng.integers(1, 4)))
    bins = int(rng.integers(2, 600))
    distinct = np.unique(scores)
    quantiles = np.quantile(scores, np.arange(1, bins) / bins, method="inverted_cdf")
    below = np.unique(distinct.searchsorted(quantiles).clip(max=len(distinct) - 2))
    edges = Frozen(reference=scores, bins=bins).edges
    assert edges is not None
    np.testing.assert_allclose(edges, (distinct[below] + distinct[below + 1]) / 2, rtol=1e-15)
    assert len(edges) == len(below)
