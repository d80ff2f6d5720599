"""The scikit-learn adapter: the estimator under scikit-learn's own checks, and fitted models as measures."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import contracts
import naive
from exchangeable import Monitor, Precomputed, TableMonitor, alarms, bets, measures
from exchangeable.analysis import test as one_call

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from exchangeable.adapters.sklearn import ExchangeabilityTest, frozen

RNG = np.random.default_rng(1)
N = 400
CLASSES = RNG.integers(0, 3, N)
X = RNG.normal(size=(N, 3)) + CLASSES[:, np.newaxis]
NUMBERS = X @ [1.0, -2.0, 0.5] + RNG.normal(size=N)
WORDS = np.array(["a", "b", "c"])[CLASSES]
SHIFTED = X + 3.0 * (np.arange(N) >= 250)[:, np.newaxis]  # from sample 250 on
RESULTS = (
    "rejected_",
    "rejected_at_",
    "changepoint_",
    "log10_martingale_",
    "log10_max_",
    "e_value_",
    "anytime_p_",
    "n_samples_seen_",
    "n_features_in_",
)


def results(test: ExchangeabilityTest) -> dict[str, Any]:
    """Everything that a fit leaves, to compare bit for bit."""
    columns = {"p": test.p_values_.tobytes(), "path": test.log10_path_.tobytes()}
    return {name: getattr(test, name) for name in RESULTS} | columns


def expected(monitor: Monitor, *given: Any) -> tuple[bytes, bytes, float]:
    path = monitor.extend(*given)
    return path.p.tobytes(), (path.log_value / math.log(10.0)).tobytes(), monitor.log_max


def found(test: ExchangeabilityTest) -> tuple[bytes, bytes, float]:
    return test.p_values_.tobytes(), test.log10_path_.tobytes(), test.monitor_.log_max


# ------------------------------------------------------------------ the estimator


@parametrize_with_checks(  # type: ignore[untyped-decorator,unused-ignore]
    [ExchangeabilityTest(), ExchangeabilityTest(measures.NearestDistance(3), bets.Plugin(), alpha=0.5, seed=7)]
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


LABELS: dict[str, tuple[Any, Any, type[Any]]] = {
    "none": (X, None, measures.NearestDistance),
    "one column": (X[:, :1], None, measures.Value),
    "classes": (X, CLASSES, measures.NearestNeighbour),
    "words": (X, WORDS, measures.NearestNeighbour),
    "numbers": (X, NUMBERS, measures.NearestResidual),
    "one column and classes": (X[:, :1], WORDS, measures.NearestNeighbour),
}


@pytest.mark.parametrize("kind", LABELS)
def test_it_is_the_monitor_by_the_kind_of_labels(kind: str) -> None:
    rows, y, measure = LABELS[kind]
    test = ExchangeabilityTest(seed=5, alpha=0.05).fit(rows, y)
    given = rows[:, 0] if measure is measures.Value else rows
    assert isinstance(test.monitor_, Monitor)
    assert type(test.monitor_.measure) is measure
    assert found(test) == expected(Monitor(measure(), bets.Adaptive(), alarms.Ville(0.05), seed=5), given, y)


@pytest.mark.parametrize("kind", LABELS)
def test_it_equals_the_one_call_without_columns_and_scaling(kind: str) -> None:
    rows, y, _ = LABELS[kind]
    found, result = ExchangeabilityTest(seed=3).fit(rows, y), one_call(rows, y, columns="none", scale="none", seed=3)
    assert contracts.same_bits(found.p_values_, result.path.p)
    for name in ("rejected", "rejected_at", "changepoint", "log10_martingale", "log10_max", "e_value"):
        assert getattr(found, f"{name}_") == getattr(result, name)
    assert found.anytime_p_ == result.p_value


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("cuts", [[1, 2, 3, 390], [200], list(range(380, 400))])
def test_batches_give_the_numbers_of_one_fit(kind: str, cuts: list[int]) -> None:
    rows, y, _ = LABELS[kind]
    test = ExchangeabilityTest()
    for part, labels in zip(np.split(rows, cuts), np.split(rows[:, 0] if y is None else y, cuts), strict=True):
        test.partial_fit(part, None if y is None else labels)
    assert results(test) == results(ExchangeabilityTest().fit(rows, y))


def test_what_a_drift_leaves() -> None:
    test: Any = ExchangeabilityTest().fit(SHIFTED)
    assert test.rejected_ is True
    assert test.rejected_at_ > 250
    assert test.changepoint_ == Monitor(measures.NearestDistance()).extend(SHIFTED).changepoint()
    assert test.changepoint_ < test.rejected_at_
    assert test.p_values_.shape == test.log10_path_.shape == (N,)
    assert test.log10_path_[test.rejected_at_ - 1] >= 2.0 > test.log10_path_[: test.rejected_at_ - 1].max()
    assert test.log10_martingale_ == pytest.approx(test.log10_path_[-1])
    assert test.log10_max_ == pytest.approx(test.log10_path_.max())
    assert test.e_value_ == pytest.approx(10.0**test.log10_martingale_)
    assert test.anytime_p_ == pytest.approx(10.0**-test.log10_max_)
    quiet = ExchangeabilityTest().fit(X)
    assert (quiet.rejected_, quiet.rejected_at_, quiet.changepoint_) == (False, None, None)
    assert quiet.anytime_p_ == pytest.approx(10.0**-quiet.log10_max_)
    assert quiet.anytime_p_ <= 1.0


def test_a_fit_is_a_fresh_start() -> None:
    test = ExchangeabilityTest().fit(SHIFTED, WORDS)
    assert results(test.fit(X[:, :2])) == results(ExchangeabilityTest().fit(X[:, :2]))


def test_amounts_beyond_floating_point() -> None:
    rows = np.concatenate([np.zeros(10), np.ones(4000)])[:, np.newaxis] * np.arange(4010)[:, np.newaxis]
    test = ExchangeabilityTest(bet=bets.SimpleMixture()).fit(rows)
    assert test.log10_martingale_ > 400
    assert isinstance(test.e_value_, Decimal)
    assert isinstance(test.anytime_p_, Decimal)
    assert float(test.e_value_.log10()) == pytest.approx(test.log10_martingale_, rel=1e-12)
    assert float(test.anytime_p_.log10()) == pytest.approx(-test.log10_max_, rel=1e-12)


def test_bankruptcy_is_a_value() -> None:
    test = ExchangeabilityTest(Precomputed(), bets.Histogram(2)).fit([[1.0]])
    assert test.n_samples_seen_ == 1
    ruined = ExchangeabilityTest(Precomputed(), bets.Power(3.0)).fit(np.full((2000, 1), 1e-5))
    assert isinstance(ruined.e_value_, Decimal)
    assert (ruined.anytime_p_, ruined.log10_max_) == (1.0, 0.0)
    assert 0 < ruined.e_value_ < Decimal("1e-4000")


def test_the_parameters_stay_as_they_were() -> None:
    measure, bet = measures.NearestDistance(2), bets.Plugin()
    before = contracts.state(measure), contracts.state(bet)
    test = ExchangeabilityTest(measure, bet)
    first = results(test.fit(X))
    assert results(test.fit(X)) == first
    assert (contracts.state(measure), contracts.state(bet)) == before
    assert test.measure is measure
    assert test.bet is bet
    assert results(clone(test).fit(X)) == first


def test_copies_go_on_alone() -> None:
    test = ExchangeabilityTest().fit(X[:200])
    whole = results(ExchangeabilityTest().fit(X))
    for twin in (copy.deepcopy(test), pickle.loads(pickle.dumps(test))):
        assert results(twin.partial_fit(X[200:])) == whole
    assert test.n_samples_seen_ == 200


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "too wide": (X[:, :2], CLASSES, "2 features"),
    "nan": (np.where(X > 2, math.nan, X), CLASSES, "NaN"),
    "huge": (X * 1e160, CLASSES, "magnitude at most 1e\\+150"),
    "no labels": (X, None, "y must hold classes like the samples before, got no labels"),
    "real numbers": (X, NUMBERS, "y must hold classes like the samples before, got real numbers: set the measure"),
    "short": (X, CLASSES[:-1], "inconsistent numbers of samples"),
    "two labels": (X, np.column_stack([CLASSES, CLASSES]), "1d array"),
    "objects": (X, np.array([object()] * N), "Unknown label type: y must hold one class or one real number"),
    "empty": (X[:0], CLASSES[:0], "0 sample"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_batch_changes_nothing(case: str) -> None:
    rows, y, message = REFUSED[case]
    test = ExchangeabilityTest().fit(X[:100], CLASSES[:100])
    before = results(test)
    with pytest.raises(ValueError, match=message):
        test.partial_fit(rows, y)
    assert results(test) == before
    assert results(test.partial_fit(X[100:], CLASSES[100:])) == results(ExchangeabilityTest().fit(X, CLASSES))


def test_a_refused_fit_changes_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    test = ExchangeabilityTest()
    for call in (test.fit, test.partial_fit):
        with pytest.raises(ValueError, match="magnitude"):
            call(pandas.DataFrame(X * 1e160, columns=["a", "b", "c"]))
        assert vars(test) == {"measure": None, "bet": None, "alpha": 0.01, "seed": None, "reference": None}
    test.fit(X)
    before = results(test)
    with pytest.raises(ValueError, match="magnitude"):
        test.fit(pandas.DataFrame(X[:, :2] * 1e160, columns=["a", "b"]))
    assert results(test) == before
    assert not hasattr(test, "feature_names_in_")


def test_integers_may_follow_real_numbers() -> None:
    y = np.round(NUMBERS, 1)
    y[200:] = np.round(y[200:])
    test = ExchangeabilityTest().partial_fit(X[:200], y[:200]).partial_fit(X[200:], y[200:])
    assert results(test) == results(ExchangeabilityTest().fit(X, y))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 2}, "alpha must"),
        ({"seed": -1}, "seed must"),
        ({"seed": "one"}, "seed must"),
        ({"measure": "nearest"}, "measure must"),
        ({"bet": bets.Plugin}, "bet must"),
        ({"measure": measures.Value()}, "X must have one feature if the measure is Value, got 3"),
    ],
)
def test_parameters_are_judged_by_fit(parameters: dict[str, Any], message: str) -> None:
    test = ExchangeabilityTest(**parameters)
    with pytest.raises(ValueError, match=message):
        test.fit(X)


def test_sparse_tables_are_refused() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match="dense"):
        ExchangeabilityTest().fit(sparse.csr_array(X))


def test_precomputed_p_values() -> None:
    p = 1.0 - RNG.random(50)
    assert ExchangeabilityTest(Precomputed()).fit(p[:, np.newaxis]).p_values_.tolist() == p.tolist()


def test_names_of_columns() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = pandas.DataFrame(X, columns=["u", "v", "w"])
    test = ExchangeabilityTest().fit(frame, pandas.Series(WORDS, dtype="category"))
    assert test.feature_names_in_.tolist() == ["u", "v", "w"]
    assert results(test) == results(ExchangeabilityTest().fit(X, WORDS))
    other = ExchangeabilityTest().fit(polars.DataFrame(X, schema=["u", "v", "w"]), polars.Series(WORDS))
    assert results(other) == results(test)
    with pytest.raises(ValueError, match="feature names"):
        test.partial_fit(frame[["v", "u", "w"]], WORDS)


def test_at_the_end_of_a_pipeline() -> None:
    """Scaling by the entire table does not depend on the order, so it is valid."""
    units = X * [1.0, 1e-3, 1e3]
    pipeline = make_pipeline(StandardScaler(), ExchangeabilityTest()).fit(units, WORDS)
    assert results(pipeline[-1]) == results(ExchangeabilityTest().fit(StandardScaler().fit_transform(units), WORDS))
    assert "ExchangeabilityTest" in pipeline._repr_html_()


def test_false_alarms_are_rare() -> None:
    """On exchangeable data with ties, at a level that shows: 200 runs."""
    rng, test, alarmed = np.random.default_rng(3), ExchangeabilityTest(bet=bets.SimpleJumper(), alpha=0.2), 0
    for run in range(200):
        alarmed += test.set_params(seed=run).fit(rng.integers(0, 4, (60, 2))).rejected_
    assert binomtest(alarmed, 200, 0.2, alternative="greater").pvalue > 1e-4


def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import exchangeable.adapters.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'exchangeable[sklearn]'" in done.stderr


def test_columns_of_numbers_before_a_fit() -> None:
    test = ExchangeabilityTest()
    for name in ("p_values_", "log10_path_"):
        with pytest.raises(NotFittedError, match=r"^This ExchangeabilityTest instance is not fitted yet"):
            getattr(test, name)
        assert not hasattr(test, name)
        assert len(getattr(clone(test).fit(X[:20]), name)) == 20


# ------------------------------------------------------------------ fitted models


def ranks(measure: measures.Frozen, *given: Any) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in measure.extend(*given)), strict=True))


def split_model(model: Any, y: Any = CLASSES) -> Any:
    return model.fit(X[:150], y[:150])


NEW = slice(150, N)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        LinearRegression(),
        IsolationForest(n_estimators=10, random_state=0),
    ],
    ids=["classifier", "pipeline", "regressor", "detector"],
)
def test_models_that_frozen_knows(model: Any) -> None:
    y = NUMBERS if isinstance(model, LinearRegression) else CLASSES
    split_model(model, y)
    assert ranks(frozen(model), X[NEW], y[NEW]) == ranks(measures.Frozen(model), X[NEW], y[NEW])
    bins = frozen(model, X[:150], y[:150])
    assert bins.bins == 1024
    by_hand = measures.Frozen(model, reference=(X[:150], y[:150]), bins=1024)
    assert ranks(bins, X[NEW], y[NEW]) == ranks(by_hand, X[NEW], y[NEW])
    assert frozen(model, X[:150], y[:150], bins=16).bins == 16


def test_a_signed_residual() -> None:
    model = split_model(LinearRegression(), NUMBERS)
    assert ranks(frozen(model, residual="signed"), X[NEW], NUMBERS[NEW]) == naive.ranks_of(
        NUMBERS[NEW] - model.predict(X[NEW])
    )


@pytest.mark.parametrize(
    "model", [RidgeClassifier(), LinearSVC(dual="auto", random_state=0), SVC()], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("count", [2, 3])
def test_margins(model: Any, count: int) -> None:
    rows = count > CLASSES
    table, y = X[rows], WORDS[rows]
    model = clone(model).fit(table[:100], y[:100])
    decisions = model.decision_function(table[100:])
    decisions = decisions if count > 2 else np.column_stack([-decisions, decisions])
    scores = []
    for decision, label in zip(decisions.tolist(), y[100:].tolist(), strict=True):
        own = model.classes_.tolist().index(label)
        scores.append(max(value for i, value in enumerate(decision) if i != own) - decision[own])
    assert ranks(frozen(model), table[100:], y[100:]) == naive.ranks_of(scores)
    wrong = model.predict(table[100:]) != y[100:]
    assert (np.array(scores)[wrong] > 0).all()
    assert (np.array(scores)[~wrong] <= 0).all()


def test_one_against_one_has_no_margins() -> None:
    rows = RNG.normal(size=(80, 2))
    model = SVC(decision_function_shape="ovo").fit(rows, np.arange(80) % 4)
    measure = frozen(model)
    said = contracts.refused(partial(measure.extend, rows, np.arange(80) % 4), measure)
    assert "one column for each class (decision_function_shape='ovr'), got 6 for 4 classes" in said


@pytest.mark.parametrize("model", [LogisticRegression(), RidgeClassifier()], ids=["probability", "margin"])
def test_labels_that_the_classifier_does_not_know(model: Any) -> None:
    model = split_model(model, WORDS)
    y = WORDS[NEW].astype(object)
    y[[20, 30]] = "new"
    refusing = frozen(model)
    said = contracts.refused(partial(refusing.extend, X[NEW], y), refusing)
    assert "y must hold labels that the classifier has learnt, got 'new' at position 20" in said
    measure = frozen(model, unknown="strangest")
    counted = ranks(measure, X[NEW], y)
    assert counted[20] == (0, 1, 21)
    assert counted[30] == (0, 2, 31)
    assert measure.update(X[0], "newer still") == (0, 3, 251)
    others = [i for i in range(250) if i not in (20, 30)]
    known = frozen(model).scores(X[NEW][others], WORDS[NEW][others])
    assert contracts.same_bits(measure.scores(X[NEW], y)[others], known)
    for bad in (None, math.nan, ["a"]):
        assert "y must hold" in contracts.refused(partial(measure.update, X[0], bad), measure)
    binned = frozen(model, X[:150], WORDS[:150], bins=8, unknown="strangest")
    assert binned.one_score(X[0], "new") == 7.0


def test_a_new_class_in_the_stream_raises_the_alarm() -> None:
    known = CLASSES < 2
    model = LogisticRegression().fit(X[known][:100], WORDS[known][:100])
    rows = np.concatenate([X[known][100:], X[CLASSES == 2]])
    y = np.concatenate([WORDS[known][100:], WORDS[CLASSES == 2]])
    test: Any = ExchangeabilityTest(frozen(model, unknown="strangest")).fit(rows, y)
    assert test.rejected_
    assert test.rejected_at_ > known.sum() - 100


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((LogisticRegression(), {}), "fitted"),
        ((RidgeClassifier(), {}), "fitted"),
        ((split_model(LinearRegression(), NUMBERS), {"unknown": "strangest"}), "unknown must be 'error' if"),
        ((split_model(IsolationForest(n_estimators=5)), {"unknown": "strangest"}), "unknown must be 'error' if"),
        ((split_model(LogisticRegression()), {"unknown": "ignore"}), "unknown must be 'error' or 'strangest'"),
        ((split_model(LogisticRegression()), {"bins": 8}), "reference must be given together with bins"),
        ((split_model(LinearRegression(), NUMBERS), {"residual": "both"}), "residual must be"),
    ],
)
def test_what_frozen_refuses(given: tuple[Any, dict[str, Any]], message: str) -> None:
    model, options = given
    with pytest.raises(ValueError, match=message):
        frozen(model, **options)


def test_a_model_that_knows_its_training_data_by_heart() -> None:
    """All its scores are 0 there, and no quantiles lie between them: refused; held-out samples serve."""
    model = split_model(KNeighborsClassifier(1))
    with pytest.raises(ValueError, match="reference must have at least 2 distinct scores, got 1"):
        frozen(model, X[:150], CLASSES[:150])
    assert ranks(frozen(model, X[150:250], CLASSES[150:250]), X[250:], CLASSES[250:])


def test_bins_from_the_training_data_are_valid() -> None:
    """Lawful if coarse: p-values of an exchangeable stream stay uniform, whatever the bins."""
    rng, runs = np.random.default_rng(5), 200
    forest = split_model(RandomForestClassifier(5, random_state=0))
    measure, alarmed = frozen(forest, X[:150], CLASSES[:150]), 0
    scores = measures.Frozen(forest).scores(X[NEW], CLASSES[NEW])
    edges = measure.edges
    assert edges is not None
    for run in range(runs):
        monitor = Monitor(measures.Value(), bets.SimpleJumper(), alarms.Ville(0.2), seed=run)
        alarmed += bool(monitor.extend(np.searchsorted(edges, rng.permutation(scores)).astype(float)).alarm.any())
    assert binomtest(alarmed, runs, 0.2, alternative="greater").pvalue > 1e-4


def test_models_fitted_on_frames_get_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["u", "v", "w"]).assign(colour=np.array(["red", "blue"])[CLASSES % 2])
    encoder = make_column_transformer((OneHotEncoder(), ["colour"]), remainder="passthrough")
    model = make_pipeline(encoder, StandardScaler(), LogisticRegression()).fit(frame[:150], WORDS[:150])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure = frozen(model, frame[:150], WORDS[:150])
        test = ExchangeabilityTest(measure).fit(frame[150:300], WORDS[150:300])
        test.partial_fit(frame[300:], WORDS[300:])
        step = test.monitor_.update(frame.iloc[0], WORDS[0])
    assert test.feature_names_in_.tolist() == ["u", "v", "w", "colour"]
    assert step.n == 251
    assert contracts.same_bits(test.p_values_, Monitor(copy.deepcopy(measure)).extend(frame[150:], WORDS[150:]).p)
    with pytest.raises(ValueError, match="feature names"):
        test.partial_fit(frame[["u", "v", "w"]][150:], WORDS[150:])


def test_a_score_of_texts() -> None:
    """What is no table of numbers passes as it is."""
    measure = measures.Frozen(lambda texts, y: np.array([float(len(text)) for text in texts]))
    test = ExchangeabilityTest(measure).fit(["a", "bbb", "cc"]).partial_fit(["dddd"])
    assert test.n_samples_seen_ == 4


def test_within_the_own_label() -> None:
    model = split_model(LogisticRegression())
    test = ExchangeabilityTest(measures.Conditional(frozen(model))).fit(X[NEW], CLASSES[NEW])
    monitor = Monitor(measures.Conditional(measures.Frozen(model)))
    assert found(test) == expected(monitor, X[NEW], CLASSES[NEW])


def test_it_can_be_pickled_with_its_model() -> None:
    for model in (LogisticRegression(), RidgeClassifier()):
        test = ExchangeabilityTest(frozen(split_model(model), unknown="strangest")).fit(X[150:250], CLASSES[150:250])
        twin = pickle.loads(pickle.dumps(test))
        assert results(twin.partial_fit(X[250:], CLASSES[250:])) == results(test.partial_fit(X[250:], CLASSES[250:]))


# ------------------------------------------------------------------ a reference


@pytest.mark.parametrize("labels", [None, CLASSES])
def test_with_a_reference_it_is_the_table_monitor(labels: Any) -> None:
    rows = {"x0": X[:, 0], "x1": X[:, 1], "x2": X[:, 2]} | ({} if labels is None else {"y": labels.tolist()})
    monitor = TableMonitor({k: v[:200] for k, v in rows.items()}, None if labels is None else "y", seed=4)
    path = monitor.extend({name: column[200:] for name, column in rows.items()})
    reference, y = (
        (X[:200] if labels is None else (X[:200], CLASSES[:200])),
        labels if labels is None else CLASSES[200:],
    )
    test = ExchangeabilityTest(reference=reference, seed=4)
    assert clone(test).fit(X[200:], y).log10_path_.tobytes() == (path.log_value / math.log(10.0)).tobytes()
    test.fit(SHIFTED[200:220], None if y is None else y[:20]).fit(X[200:270], None if y is None else y[:70])
    test = pickle.loads(pickle.dumps(test)).partial_fit(X[270:], None if y is None else y[70:])
    assert test.log10_path_.tobytes() == (path.log_value / math.log(10.0)).tobytes()
    assert (test.n_samples_seen_, test.rejected_, test.anytime_p_) == (200, False, monitor.anytime_p)
    test.fit(SHIFTED[250:], None if y is None else y[50:])
    assert test.rejected_
    assert "x0" in test.rejected_by_
    assert test.changepoint_ < 20
    with pytest.raises(AttributeError, match="p_values_ is not defined with a reference"):
        test.p_values_  # noqa: B018
    before = test.n_samples_seen_, test.log10_martingale_
    with pytest.raises(ValueError, match="y must be given if and only if the reference is a pair"):
        test.partial_fit(X, CLASSES if y is None else None)
    assert (test.n_samples_seen_, test.log10_martingale_) == before


def test_a_frame_with_text_and_a_reference() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": X[:, 0], "word": WORDS})
    test = ExchangeabilityTest(reference=frame[:200], seed=1).fit(frame[200:].assign(word="d"))
    assert test.rejected_by_[0] == "word"
    with pytest.raises(ValueError, match="feature names should match"):
        test.partial_fit(frame.rename(columns={"size": "Size"}))
    with pytest.raises(ValueError, match="measure must be None if there is a reference"):
        ExchangeabilityTest(measures.NearestDistance(), reference=frame).fit(frame)
    with pytest.raises(ValueError, match=r"reference must be a table X or a pair \(X, y\), got a tuple of 3"):
        ExchangeabilityTest(reference=(frame, frame["word"], 1)).fit(frame)
