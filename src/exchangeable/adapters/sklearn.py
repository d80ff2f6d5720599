"""scikit-learn: the test as an estimator, and fitted models as measures."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from array import array
from collections.abc import Hashable
from decimal import Decimal
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable import snapshot
from exchangeable._extras import needed
from exchangeable.alarms import Ville
from exchangeable.martingale import LN10, amount
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.rounding import round_outputs
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Floats, Measure, Path
from exchangeable.pvalues import Precomputed
from exchangeable.table_monitor import TableMonitor, TablePath
from exchangeable.table_monitor.cells import open_cells
from exchangeable.validation import check_labels, encode_labels, format_value

with needed("sklearn", "the adapter of scikit-learn"):
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import check_is_fitted

BINS = 1024
KINDS = {"binary": "classes", "multiclass": "classes", "continuous": "real numbers"}


class ExchangeabilityTest(BaseEstimator):  # type: ignore[misc]
    """Test whether the order of the samples matters: `Monitor` as an estimator.

    ``fit`` tests the samples in their order; ``partial_fit`` continues with the next samples, and gives the same
    numbers bit for bit. They are those of `exchangeable.test` with the same measure, ``columns="none"`` and
    ``scale="none"`` (columns and scales need the entire table). On exchangeable data the probability of ever rejecting
    is at most ``alpha``, however often the result is read.

    Without a ``measure`` the first labels determine it: none -> `NearestDistance` (one feature: `Value`), classes ->
    `NearestNeighbour`, real numbers -> `NearestResidual`. Integers are classes, so use ``measure=NearestResidual()``
    for counts. Features are not scaled: scale them by constants, or by the entire table, never by the samples so far.
    ``measure=frozen(model)`` monitors a fitted model, which receives X unchanged, names and text included. ``bet`` is
    `Adaptive` by default. Measure and bet are copied. ``seed`` (scikit-learn's random_state) is the seed for random
    tie-breaking: an integer makes a run reproducible; None draws a seed from the operating system at each fit
    (``monitor_.seed``).

    ``reference=X`` or ``reference=(X, y)``, such as the training data, compares the samples with these: it is
    `exchangeable.TableMonitor`, which also tests each column on its own, scales them by constants from the reference,
    and reads text and missing values. There is no measure, no bet and no ``p_values_`` then, and ``rejected_by_`` names
    the columns and views that have rejected. ``fit`` starts with the reference again; labels are needed if it has them.

    Attributes after a fit: ``rejected_``; ``rejected_at_`` and ``changepoint_`` (numbers of samples, or None:
    ``X[changepoint_:]`` came after the change); ``log10_martingale_`` and ``log10_max_``; ``e_value_`` (the final
    capital) and ``anytime_p_`` (1 / the highest capital), floats, or `Decimal` where float64 cannot hold them;
    ``p_values_`` and ``log10_path_``, one number for each sample; ``monitor_``, ``n_samples_seen_``,
    ``n_features_in_``, and ``feature_names_in_`` if X has column names. A batch that is rejected changes nothing.

    Time and memory are those of the measure, and 16 bytes for each sample.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> test = ExchangeabilityTest(seed=0).fit(X, y)
    >>> test.rejected_, test.rejected_at_, round(test.log10_martingale_, 1)
    (True, 531, 13.3)
    >>> test.partial_fit(X[:100], y[:100]).n_samples_seen_
    1897

    Reference: Fedorova et al. (2012), sections 2 and 3.
    """

    monitor_: Monitor | TableMonitor

    def __init__(
        self,
        measure: Measure | Precomputed | None = None,
        bet: Bet | None = None,
        alpha: float = 0.01,
        seed: int | None = None,
        reference: Any = None,
    ) -> None:
        self.measure = measure
        self.bet = bet
        self.alpha = alpha
        self.seed = seed
        self.reference = reference

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles; a monitor with a reference is saved as ``ex.save`` does."""
        state: dict[str, Any] = super().__getstate__()
        monitor = state.get("monitor_")
        return {**state, "monitor_": snapshot.encode(monitor)} if isinstance(monitor, TableMonitor) else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        super().__setstate__(state)
        if isinstance(state.get("monitor_"), bytes):
            self.monitor_ = snapshot.decode(state["monitor_"])

    def fit(self, X: Any, y: Any = None) -> Self:
        """Test these samples, and discard earlier ones."""
        return self._update(X, y, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue with the next samples."""
        return self._update(X, y, reset=not hasattr(self, "monitor_"))

    @property
    def p_values_(self) -> Floats:
        """The p-value of each sample; with a reference there is none."""
        check_is_fitted(self, "monitor_")
        if isinstance(self.monitor_, TableMonitor):
            raise AttributeError("p_values_ is not defined with a reference, where each column has its own p-values")
        return np.array(self._p)

    @property
    def log10_path_(self) -> Floats:
        """The log10 of the capital after each sample."""
        check_is_fitted(self, "monitor_")
        return np.array(self._log_values) / LN10

    def _update(self, X: Any, y: Any, *, reset: bool) -> Self:
        """Test samples; restore the estimator if this fails."""
        before = dict(self.__dict__)
        try:
            path = self._extend(X, y, reset)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self._store(path)
        return self

    def _extend(self, X: Any, y: Any, reset: bool) -> Path | TablePath:
        monitor = None if reset else self.monitor_
        if isinstance(monitor, TableMonitor) or (monitor is None and self.reference is not None):
            return self._extend_table(X, y, monitor)
        input_kind = _input_kind(self.measure if monitor is None else monitor.measure)
        X = _validate(self, X, reset, as_given=input_kind == "anything")
        labels = None if y is None else column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        if monitor is None:
            monitor = self._start(labels)
        else:
            self._check_kind(labels)
        if _input_kind(monitor.measure) == "column":
            X = _column(X, monitor.measure)
        return monitor.extend(X, labels)

    def _extend_table(self, X: Any, y: Any, monitor: TableMonitor | None) -> TablePath:
        """Compare samples with the reference; without a monitor, start with the reference."""
        X = _validate(self, X, monitor is None, as_given=True)
        cells, label = _table(X, y)
        if monitor is None:
            monitor = self._start_table()
        if (label is None) != (monitor.schema.label is None):
            given = "no y" if label is None else "y"
            raise ValueError(f"y must be given if and only if the reference is a pair (X, y), got {given}")
        return monitor.extend(cells)

    def _start_table(self) -> TableMonitor:
        for name, given in (("measure", self.measure), ("bet", self.bet)):
            if given is not None:
                raise ValueError(f"{name} must be None if there is a reference, got {given!r:.80}")
        pair = self.reference if isinstance(self.reference, tuple) else (self.reference, None)
        if len(pair) != 2:
            raise ValueError(f"reference must be a table X or a pair (X, y), got a tuple of {len(pair)}")
        cells, label = _table(*pair)
        self.monitor_ = monitor = TableMonitor(cells, label, alpha=self.alpha, seed=self.seed)
        self._p, self._log_values = array("d"), array("d")
        return monitor

    def _start(self, labels: NDArray[Any] | None) -> Monitor:
        measure, bet = copy.deepcopy((self.measure, self.bet))
        self._kind = None if measure is not None else _label_kind(labels)
        if self._kind is not None:
            measure = _default_measure(self._kind, self.n_features_in_)
        self.monitor_ = monitor = Monitor(measure, bet, Ville(self.alpha), seed=self.seed)
        self._p, self._log_values = array("d"), array("d")
        return monitor

    def _check_kind(self, labels: NDArray[Any] | None) -> None:
        """Reject labels of another kind, which would have led to another measure for the entire table."""
        if self._kind is None:
            return
        kind = _label_kind(labels)
        if kind != self._kind and (self._kind, kind) != ("real numbers", "classes"):  # real numbers may be integers
            raise ValueError(
                f"y must hold {self._kind} like the samples before, got {kind}: set the measure of the estimator to "
                "allow others"
            )

    def _store(self, path: Path | TablePath) -> None:
        monitor = self.monitor_
        if isinstance(path, Path):
            self._p.frombytes(path.p.tobytes())
        self._log_values.frombytes(path.log_value.tobytes())
        self.n_samples_seen_: int = monitor.n
        self.rejected_: bool = monitor.alarm_at is not None
        self.rejected_at_: int | None = monitor.alarm_at
        self.changepoint_: int | None = monitor.changepoint
        self.log10_martingale_: float = monitor.log_value / LN10
        self.log10_max_: float = monitor.log_max / LN10
        self.e_value_: float | Decimal = amount(monitor.log_value)
        self.anytime_p_: float | Decimal = monitor.anytime_p
        if isinstance(monitor, TableMonitor):
            self.rejected_by_: list[str] = monitor.rejected_by


def frozen(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    bins: int | None = None,
    residual: str = "absolute",
    unknown: str = "error",
    scale: float = 1.0,
) -> Frozen:
    """Turn a fitted model into a measure: the rank of its error on the newest sample among all so far.

    The model is a pipeline or an estimator that the stream does not change. Outlier detectors and regressors are scored
    as in `Frozen`; a classifier with probabilities by ``1 - probability of the label``; a classifier with a decision
    function only by its margin, ``highest decision for another class - decision for the label``.

    With ``X`` (and ``y``), samples that are not part of the stream, scores are binned into ``bins`` (1024) between the
    quantiles of the scores of these samples: constant memory, and still exactly valid. Held-out samples are best. The
    training data is valid too, since the bins only have to be fixed before the stream starts; but a model fits it too
    well, and strange samples of the stream then fall into few bins.

    A label that the classifier has never seen is rejected; with ``unknown="strangest"`` it has the largest score: 1,
    as for probability 0, or the largest number if the score is a margin. Such a fixed score is valid too.

    Probabilities, decisions and predictions are rounded as in `Frozen`, before anything is subtracted from them, so
    equal samples have equal scores in batches of any size. ``scale`` is that of `Frozen`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> measure = frozen(RidgeClassifier().fit(X[::2], y[::2]), unknown="strangest")
    >>> measure.extend(X[1:6:2], y[1:6:2]).greater, measure.update(X[7], 3).greater
    (array([0, 1, 2]), 0)

    Reference: Vovk, Gammerman, Shafer (2005), section 4.1.
    """
    if unknown not in ("error", "strangest"):
        raise ValueError(f"unknown must be 'error' or 'strangest', got {unknown!r}")
    if bins is None and X is not None:
        bins = BINS
    reference = X if y is None else (X, y)
    return Frozen(_score(model, unknown, scale), reference=reference, bins=bins, residual=residual, scale=scale)


# ------------------------------------------------------------------ the scores of classifiers


def _score(model: Any, unknown: str, scale: float) -> Any:
    """Return the score for `Frozen`: the model itself, or a function if a model is scored differently."""
    classifies = hasattr(model, "classes_") and not hasattr(model, "score_samples")
    if classifies and not hasattr(model, "predict_proba") and hasattr(model, "decision_function"):
        return partial(_margin_scores, model, unknown, scale)
    if unknown == "error":
        return model
    if not classifies or not hasattr(model, "predict_proba"):
        raise ValueError(f"unknown must be 'error' if the model is not a fitted classifier, got {format_value(model)}")
    return partial(_probability_scores, model, unknown, scale)


def _probability_scores(model: Any, unknown: str, scale: float, X: Any, y: Any) -> Floats:
    """Return 1 - the probability of the label."""
    table = round_outputs(np.asarray(model.predict_proba(X)), scale)
    known, column = _class_columns(model, unknown, y, len(table))
    scores = np.ones(len(table))
    scores[known] -= table[known, column[known]]
    return scores


def _margin_scores(model: Any, unknown: str, scale: float, X: Any, y: Any) -> Floats:
    """Return by how much the best decision for another class exceeds that for the label."""
    table = round_outputs(np.asarray(model.decision_function(X)), scale)
    table = np.column_stack([-table, table]) if table.ndim == 1 else table
    if table.shape[1] != len(model.classes_):
        raise ValueError(
            "decision_function must return one column for each class (decision_function_shape='ovr'), got "
            f"{table.shape[1]} for {len(model.classes_)} classes"
        )
    known, column = _class_columns(model, unknown, y, len(table))
    scores = np.full(len(table), sys.float_info.max)
    decisions = table[known, column[known]]
    table[known, column[known]] = -math.inf
    scores[known] = table[known].max(axis=1) - decisions
    return scores


def _class_columns(model: Any, unknown: str, y: Any, rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions of labels that the classifier knows, and the column of each label (-1 if unknown)."""
    labels = check_labels(y, rows)
    encode_labels(labels, {})  # rejects invalid labels
    columns: dict[Hashable, int] = {label: i for i, label in enumerate(np.asarray(model.classes_).tolist())}
    column = np.array([columns.get(label, -1) for label in labels], np.intp)
    if unknown == "error" and (column < 0).any():
        at = int((column < 0).argmax())
        raise ValueError(
            f"y must hold labels that the classifier has learnt, got {format_value(labels[at])} at position {at}"
        )
    return np.flatnonzero(column >= 0), column


# ------------------------------------------------------------------ validation of samples and labels


def _input_kind(measure: Any) -> str:
    """Return the input of a measure: a "table" of numbers, a "column" of them, or "anything"."""
    inner = measure.measure if isinstance(measure, Conditional) else measure
    if isinstance(inner, Frozen) and inner.score is not None:
        return "anything"
    return "column" if isinstance(inner, (Value, Frozen, Precomputed)) else "table"


def _default_measure(kind: str, width: int) -> Measure:
    if kind == "no labels":
        return Value() if width == 1 else NearestDistance()
    return NearestNeighbour() if kind == "classes" else NearestResidual()


def _validate(estimator: Any, X: Any, reset: bool, *, as_given: bool) -> Any:
    """Validate samples as scikit-learn does: names and number of features, and numbers unless passed as given."""
    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6
        if not as_given:
            return estimator._validate_data(X, reset=reset, dtype=np.float64)
        estimator._check_feature_names(X, reset=reset)
        estimator._check_n_features(X, reset=reset)
        return X
    checks = {"skip_check_array": True} if as_given else {"dtype": np.float64}
    return validate_data(estimator, X, reset=reset, **checks)


def _table(X: Any, y: Any) -> tuple[dict[str, Any], str | None]:
    """Return samples as columns of cells, and the name of the column of labels, if there are labels."""
    cells = dict(open_cells(X).columns)
    if y is None:
        return cells, None
    check_consistent_length(X, y)
    name = "y"
    while name in cells:
        name += "_"
    return {**cells, name: column_or_1d(y, warn=True).tolist()}, name


def _label_kind(labels: NDArray[Any] | None) -> str:
    """Return the kind of labels: "no labels", "classes" or "real numbers"."""
    if labels is None:
        return "no labels"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # many classes are fine here
        target = type_of_target(labels, input_name="y")
    if target not in KINDS:
        raise ValueError(  # the first words are those of scikit-learn
            f"Unknown label type: y must hold one class or one real number for each sample, got {format_value(labels)}"
        )
    return KINDS[target]


def _column(X: Any, measure: Any) -> Floats:
    if X.shape[1] != 1:
        raise ValueError(f"X must have one feature if the measure is {type(measure).__name__}, got {X.shape[1]}")
    return np.ascontiguousarray(X[:, 0])
