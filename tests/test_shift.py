"""Label shift and concept shift told apart, and the tie-breaking streams that this needs."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest, kstest

import contracts
import exchangeable as ex
import naive
from exchangeable import Martingale, PValues, Shift, thetas
from exchangeable.alarms import Ville
from exchangeable.analysis.sample import choose_rows
from exchangeable.bets import Adaptive, Plugin, SimpleMixture
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, Value
from exchangeable.protocols import Measure, Ranks
from exchangeable.pvalues import from_ranks
from exchangeable.shift import shift_test

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def stream(seed: int, n: int, *, label: bool = False, concept: bool = False) -> tuple[Floats, Labels]:
    """Two classes; in the second half one becomes the more frequent, or they exchange their places, or both."""
    rng = np.random.default_rng([seed, 5])
    late = np.arange(n) >= n // 2
    y = (rng.random(n) < np.where(late & label, 0.8, 0.3)).astype(np.int64)
    X = rng.normal(size=(n, 2))
    X[:, 0] += 4.0 * np.where(late & concept, 1 - y, y)
    return X, y


# ------------------------------------------------------------------ the test


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("label", "concept", "verdict"),
    [
        (False, False, "neither found"),
        (True, False, "label shift"),
        (False, True, "concept shift"),
        (True, True, "both"),
    ],
)
def test_the_two_shifts_are_told_apart(seed: int, label: bool, concept: bool, verdict: str) -> None:
    shift = shift_test(*stream(seed, 600, label=label, concept=concept), seed=seed)
    assert shift.verdict == verdict
    for evidence, shifted in ((shift.label, label), (shift.concept, concept)):
        assert evidence.rejected == shifted
        if shifted:  # far beyond log 100 = 4.6, and only after the change
            assert evidence.log_value[-1] > 30.0
            assert evidence.alarm_at is not None
            assert 300 < evidence.alarm_at < 480
        else:
            assert evidence.log_value.max() < 3.5
            assert evidence.alarm_at is None


def test_the_parts_are_what_they_say() -> None:
    X, y = stream(1, 150, label=True)
    shift = shift_test(X, y, bet=Plugin(), alpha=0.2, seed=9)
    assert contracts.same_bits(shift.label.p, naive.p_values(naive.ranks_of(y), thetas(9, 0, 150, 1)))
    table = naive.squares(X)
    within = [naive.ranked(naive._scores(table[:n, :n], y[:n]), y[:n].tolist()) for n in range(1, 151)]
    assert contracts.same_bits(shift.concept.p, naive.p_values(within, thetas(9, 0, 150)))
    for evidence in (shift.label, shift.concept):
        assert contracts.same_bits(evidence.log_value, Martingale(Plugin()).extend(evidence.p))
        sounds = naive.ville(evidence.log_value.tolist(), 0.2)
        assert evidence.alarm_at == (sounds.index(True) + 1 if any(sounds) else None)
    assert shift.label.rejected
    assert shift.alpha == 0.2


def test_the_defaults() -> None:
    X, y = stream(2, 100)
    given = shift_test(X, y, measure=Conditional(NearestNeighbour()), bet=Adaptive(), alpha=0.01, seed=0)
    default = shift_test(X, y)
    for one, other in zip(default[:2], given[:2], strict=True):
        assert contracts.state(one) == contracts.state(other)
    assert default.alpha == given.alpha == 0.01


def test_any_measure_is_made_conditional() -> None:
    X, y = stream(3, 120, concept=True)
    for make in (NearestNeighbour, NearestDistance, lambda: Frozen(lambda X, y: X[:, 0])):
        measure: Measure = make()
        found = shift_test(X, y, measure=measure, seed=4)
        assert contracts.same_bits(found.concept.p, PValues(Conditional(make()), seed=4).extend(X, y))
        assert getattr(measure, "n") == 0  # noqa: B009 - and what was given was not used up
        again = shift_test(X, y, measure=Conditional(measure), seed=4)
        assert contracts.same_bits(again.concept.p, found.concept.p)
    numbers = shift_test(X[:, 0], y, measure=Value(), seed=4)
    assert contracts.same_bits(numbers.concept.p, found.concept.p)


def test_a_bet_is_copied_for_each() -> None:
    X, y = stream(4, 100)
    bet = Plugin()
    before = contracts.state(bet)
    shift_test(X, y, bet=bet)
    assert contracts.state(bet) == before


def test_labels_are_ordered_by_value_or_by_the_alphabet() -> None:
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 4, 200)
    X = rng.normal(size=(200, 1))
    expected = shift_test(X, codes).label.p
    for names in ([-10, 2, 10, 100.5], ["10", "2", "a", "b"], [-math.inf, False, 1, 1e300]):
        named = [names[code] for code in codes]
        assert contracts.same_bits(shift_test(X, named).label.p, expected)
    order = ["b", "a", "2", "10"]  # not the alphabet's
    assert not contracts.same_bits(shift_test(X, [order[code] for code in codes]).label.p, expected)


def test_the_order_of_labels_is_not_that_of_their_appearance() -> None:
    # numbered by first appearance, the rank of the last label would depend on the order of the earlier ones
    y = ["c", "a", "b", "a", "b"]
    X = np.zeros((5, 1))
    orders = ([0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 1, 0])
    last = {shift_test(X, [*(y[i] for i in order), "b"]).label.p[-1] for order in orders}
    assert len(last) == 1


def test_nothing_to_test() -> None:
    shift = shift_test(np.empty((0, 2)), [])
    assert shift.verdict == "neither found"
    assert len(shift.label.p) == len(shift.concept.p) == 0


def test_verdict_and_guarantee_in_words() -> None:
    shift = shift_test(*stream(0, 50), alpha=0.05)
    assert shift.guarantee == (
        "If the labels are exchangeable, the chance that label shift is reported is at most 0.05; if the examples"
        " given their labels are exchangeable, whatever the labels do, the chance that concept shift is reported"
        " is at most 0.05."
    )
    alarmed = shift.label._replace(alarm_at=7)
    assert Shift(alarmed, shift.concept, 0.05, 0).verdict == "label shift"
    assert Shift(shift.concept, alarmed, 0.05, 0).verdict == "concept shift"
    assert Shift(alarmed, alarmed, 0.05, 0).verdict == "both"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": None}, "y must hold one label for each row of X"),
        ({"y": 3}, "y must hold one label for each row of X"),
        ({"y": ["a", "b"]}, "y must hold one label for each row of X"),
        ({"y": ["a", 1, "b"]}, "y must hold labels that are all numbers or all text, got 1 at position 1"),
        ({"y": [1, 2, "b"]}, "y must hold labels that are all numbers or all text, got 'b' at position 2"),
        ({"y": [1, None, 2]}, "y must hold labels that are all numbers or all text, got None at position 1"),
        ({"y": [1, (2,), 2]}, "y must hold labels that are all numbers or all text"),
        ({"y": [[1], [2], [3]]}, "y must hold labels that are all numbers or all text"),
        ({"y": [1j, 2, 2]}, "y must hold labels that are all numbers or all text"),
        ({"y": [0.0, math.nan, 1.0]}, "y must hold labels equal to themselves, got nan at position 1"),
        ({"X": [[1.0], [math.nan], [2.0]]}, "X must"),
        ({"X": None}, "X must"),
        ({"alpha": 0.0}, "alpha must"),
        ({"alpha": 1}, "alpha must"),
        ({"seed": -1}, "seed must"),
        ({"bet": "plugin"}, "bet must"),
        ({"measure": "value"}, "measure must"),
        ({"measure": Plugin()}, "measure must"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        shift_test(**{"X": [[0.0], [1.0], [2.0]], "y": ["a", "b", "a"], **arguments})
    assert str(caught.value).startswith(message)


def test_a_used_measure_is_refused() -> None:
    used, conditional = Value(), Conditional(Value())
    used.update(1.0)
    conditional.update(1.0, "a")
    for measure in (used, conditional):
        with pytest.raises(ValueError, match=r"^measure must be fresh"):
            shift_test([1.0], ["a"], measure=measure)


# ------------------------------------------------------------------ tables


def test_arrays_and_frames_give_the_same_numbers() -> None:
    X, y = stream(5, 300, label=True)
    plain = shift_test(X, y, seed=3)
    names = np.array(["low", "high"])[y]
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=names)
    for found in (ex.shift_test(X, y, seed=3), ex.shift_test(frame, "kind", seed=3, categorical="kind")):
        assert isinstance(found, Shift)
        assert contracts.same_bits(found.concept.p, plain.concept.p)
        assert found.verdict == "label shift"
    assert contracts.same_bits(ex.shift_test(X, y, seed=3).label.p, plain.label.p)
    assert ex.shift_test(frame, "kind").seed == ex.shift_test(frame[["kind", "b", "a"]], "kind").seed


def test_a_file_and_its_frame(tmp_path: Path) -> None:
    X, y = stream(6, 200, concept=True)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=y, day=pd.date_range("2024-01-01", periods=200))
    frame.to_csv(tmp_path / "d.csv", index=False)
    found = ex.shift_test(tmp_path / "d.csv", "kind")
    assert found.to_dict() == ex.shift_test(frame, "kind").to_dict() | {"file": "d.csv"}
    assert found.verdict == "concept shift"
    at = found.concept.alarm_at
    assert at is not None
    assert f"reached 100 at row {at} ({pd.Timestamp('2024-01-01') + pd.Timedelta(days=at - 1):%-d %B %Y})" in str(found)
    shuffled = frame.sample(frac=1.0, random_state=0)
    assert ex.shift_test(shuffled, "kind", order="day", seed=1).concept.alarm_at == ex.shift_test(
        frame, "kind", seed=1
    ).concept.alarm_at  # fmt: skip


def test_a_model_scores_the_features_as_they_were_given() -> None:
    X, y = stream(3, 120, concept=True)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=y)
    found = ex.shift_test(frame, "kind", measure=Frozen(lambda X, y: X["a"].to_numpy()), seed=4)
    assert contracts.same_bits(found.concept.p, shift_test(X[:, 0], y, measure=Value(), seed=4).concept.p)


def test_sorted_columns_are_set_aside_if_they_are_sorted_within_a_class() -> None:
    """Labels that drift can sort a column with few values in each class; that must not decide what is tested."""
    y = np.repeat(np.arange(12), 20)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"kind": y, "stage": 10.0 * y, "year": np.arange(240), "x": rng.normal(size=240)})
    found = ex.shift_test(frame, "kind", categorical="kind")
    assert [column.name for column in found.table.columns] == ["stage", "x"]
    assert found.table.treatments["year"] == "set aside: sorted"
    assert found.guarantee.endswith(
        "at most 0.01, plus at most 6e-7 for each column that was checked for being sorted."
    )
    assert [column.name for column in ex.test(frame, "kind", categorical="kind").table.columns] == ["x"]
    assert ex.shift_test(rng.normal(size=(60, 1)), y[:60]).guarantee.endswith("is at most 0.01.")


def test_long_tables_are_thinned() -> None:
    X, y = stream(7, 400, label=True)
    found = ex.shift_test(X, y, max_rows=300, alpha=0.3)
    assert len(found.concept.p) == len(found.label.p) == 300
    assert found.table.n == len(found.concept.log_value) == len(found.label.log_value) == 400
    assert any("300 of 400 rows" in note for note in found.notes)
    # rows are those of the table
    rows = choose_rows(400, 300, found.seed)
    assert rows is not None
    plain = shift_test(X[rows], np.asarray(y)[rows], alpha=0.3, seed=found.seed)
    assert contracts.same_bits(found.label.log_value[rows], plain.label.log_value)
    assert plain.label.alarm_at is not None
    assert found.label.alarm_at == rows[plain.label.alarm_at - 1] + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"label": None}, "label must be given: the name of the column of classes"),
        ({"label": "kid"}, "label must name a column of the data, got 'kid'; did you mean 'kind'?"),
        ({"label": "a", "drop": "kind"}, "label 'a' must hold classes"),
        ({"alpha": 0.0}, "alpha must"),
        ({"max_rows": 1}, "max_rows must"),
        ({"scale": "no"}, "scale must"),
        ({"measure": "value"}, "measure must"),
        ({"drop": ["a", "b"]}, "the data must have a column to test"),
    ],
)
def test_tables_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    X, y = stream(8, 60)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=y)
    with pytest.raises(ValueError, match="must") as caught:
        ex.shift_test(frame, **{"label": "kind", **arguments})
    assert str(caught.value).startswith(message)


# ------------------------------------------------------------------ the promise

RUNS, LENGTH, ALPHA = 500, 60, 0.1


def null(run: int) -> tuple[Floats, Labels]:
    """Exchangeable, not independent, with ties."""
    rng = np.random.default_rng([run, 41])
    y = (rng.random(LENGTH) < rng.random()).astype(np.int64)
    return np.round(rng.normal(size=(LENGTH, 2)) + rng.normal(size=2) * y[:, np.newaxis], 1), y


def labels_drift(run: int) -> tuple[Floats, Labels]:
    """The labels are anything but exchangeable; given them, the examples are."""
    rng = np.random.default_rng([run, 42])
    y = np.sort((rng.random(LENGTH) < 0.5).astype(np.int64))
    centre: Floats = 2.0 * y[:, np.newaxis].astype(np.float64)
    return np.round(rng.normal(size=(LENGTH, 2)) + centre, 1), y


def examples_drift(run: int) -> tuple[Floats, Labels]:
    """The labels are exchangeable; the examples are anything but."""
    rng = np.random.default_rng([run, 43])
    y = (rng.random(LENGTH) < 0.5).astype(np.int64)
    return rng.normal(size=(LENGTH, 2)) + np.linspace(0.0, 12.0, LENGTH)[:, np.newaxis], y


def false_alarms(results: list[Shift], which: str) -> int:
    return sum(getattr(result, which).rejected for result in results)


def results(data: Callable[[int], tuple[Floats, Labels]]) -> list[Shift]:
    return [shift_test(*data(run), bet=SimpleMixture(), alpha=ALPHA, seed=run) for run in range(RUNS)]


def check_rare(count: int) -> None:
    assert binomtest(count, RUNS, ALPHA, alternative="greater").pvalue > 1e-4


def test_false_alarms_of_both() -> None:
    found = results(null)
    check_rare(false_alarms(found, "label"))
    check_rare(false_alarms(found, "concept"))
    assert min(false_alarms(found, "label"), false_alarms(found, "concept")) > 5  # there is something to count
    columns = [
        np.array([getattr(result, which).p[n - 1] for result in found])
        for n in (1, 2, 3, 20, 60)
        for which in ("label", "concept")
    ]
    for i, one in enumerate(columns):  # uniform, and independent of one another
        assert kstest(one, "uniform").pvalue > 1e-4
        for other in columns[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) * math.sqrt(RUNS) < 4.0


def test_concept_shift_is_not_reported_for_labels_that_drift() -> None:
    found = results(labels_drift)
    check_rare(false_alarms(found, "concept"))
    assert false_alarms(found, "label") > 0.9 * RUNS


def test_label_shift_is_not_reported_for_examples_that_drift() -> None:
    check_rare(false_alarms(results(examples_drift), "label"))


def test_unconditional_ranks_would_be_caught() -> None:
    # ranked among all labels, a change of frequencies looks like a change of concept
    count = 0
    for run in range(RUNS):
        p = PValues(Value(), seed=run).extend(labels_drift(run)[0][:, 0])
        count += bool(Ville(ALPHA).extend(Martingale(SimpleMixture()).extend(p)).any())
    assert binomtest(count, RUNS, ALPHA, alternative="greater").pvalue < 1e-10


# ------------------------------------------------------------------ streams of thetas


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_stream_zero_is_the_seed(seed: int) -> None:
    assert contracts.same_bits(thetas(seed, 3, 50, 0), thetas(seed, 3, 50))
    assert contracts.same_bits(thetas(seed, 3, 50, stream=0), thetas(seed, 3, 50))


def test_streams_are_numpys_keys() -> None:
    for seed, stream_ in ((0, 1), (5, 2), (2**64 - 1, 2**32 - 1)):
        key = seed + stream_ * 2**64
        expected = 1.0 - np.random.Generator(np.random.Philox(key=key)).random(1000)
        assert contracts.same_bits(thetas(seed, 0, 1000, stream_), expected)
        assert contracts.same_bits(thetas(seed, 400, 410, stream_), expected[400:410])
    assert thetas(0, 0, 2, 1).tolist() == PINNED_STREAM


PINNED_STREAM = [0.18664593902064364, 0.2486685748916635]


def test_streams_and_seeds_differ() -> None:
    assert len({tuple(thetas(seed, 0, 2, number)) for seed in range(30) for number in range(30)}) == 900
    one, two = thetas(3, 0, 100_000, 0), thetas(3, 0, 100_000, 1)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.015
    assert kstest(two, "uniform").pvalue > 1e-3
    first = np.concatenate([thetas(0, 0, 1, number) for number in range(3000)])
    assert kstest(first, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("bad", [-1, 2**32, 1.0, True, None, "a"])
def test_a_stream_is_an_integer(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^stream must be an integer from 0 to 4294967295, got"):
        thetas(0, 0, 1, bad)
    with pytest.raises(ValueError, match=r"^stream must"):
        PValues(Value(), stream=bad)


def test_p_values_take_their_stream() -> None:
    x = np.round(np.random.default_rng(1).normal(size=1500), 1)
    ranks = naive.ranks_of(x)
    expected = naive.p_values(ranks, thetas(8, 0, 1500, 5))
    assert contracts.same_bits(PValues(Value(), seed=8, stream=5).extend(x), expected)
    singly = PValues(Value(), seed=8, stream=5)
    assert contracts.same_bits([singly.update(value) for value in x], expected)
    assert (singly.seed, singly.stream) == (8, 5)
    columns = Ranks(*(np.array(column) for column in zip(*ranks, strict=True)))
    assert contracts.same_bits(from_ranks(columns, seed=8, stream=5), expected)
    twin = copy.deepcopy(singly)
    assert twin.update(0.0) == singly.update(0.0)


def test_labels_that_cannot_be_compared_are_named_beside_a_sorted_column() -> None:
    with pytest.raises(ValueError, match="label 'y' must hold classes or numbers"):
        ex.shift_test({"y": [[1]] * 20, "x": [*range(20)]}, "y")
