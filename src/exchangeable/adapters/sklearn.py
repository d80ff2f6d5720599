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

from exchangeable._extras import needed
from exchangeable.alarms import Ville
from exchangeable.martingale import LN10, amount
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.rounding import round_outputs
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Floats, Measure, Path
from exchangeable.pvalues import Precomputed
from exchangeable.validation import check_labels, encode_labels, format_value

with needed("sklearn", "the adapter of scikit-learn"):
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import type_of_target
    from sklearn.utils.validation import check_is_fitted

BINS = 1024
KINDS = {"binary": "classes", "multiclass": "classes", "continuous": "real numbers"}


class ExchangeabilityTest(BaseEstimator):  # type: ignore[misc]
    """Does the order of the samples matter? The test of `Monitor` as an estimator.

    ``fit`` tests the samples in the order given; ``partial_fit`` goes on with those that came next, and gives the same
    numbers bit for bit: those of `exchangeable.test` with the same measure, ``columns="none"`` and ``scale="none"``
    (columns and scales need the whole table). On exchangeable data the chance of ever rejecting is at most ``alpha``,
    however often one looks.

    Without a ``measure`` the first labels choose one: none -> `NearestDistance` (one feature: `Value`), classes ->
    `NearestNeighbour`, real numbers -> `NearestResidual`; numbers that are all whole are classes, so give
    ``measure=NearestResidual()`` for counts. Distances take the features as they are: scale them by constants, or by
    the whole table, never by the samples so far. ``measure=frozen(model)`` watches a fitted model, which gets X as it
    was given, names and text included. ``bet`` is `Adaptive` if left out. Measure and bet are copied, never changed.
    ``seed`` (scikit-learn's random_state) is for the random tie-breaking. An integer makes a run repeatable; None draws
    a seed from the operating system at each fit (``monitor_.seed``).

    After a fit: ``rejected_``; ``rejected_at_`` and ``changepoint_`` (numbers of samples, or None: ``X[changepoint_:]``
    came after the change); ``log10_martingale_``, ``log10_max_``, and the same as ``e_value_`` (capital at the end) and
    ``anytime_p_`` (1 / highest capital), floats, or `Decimal` where float64 cannot hold them; ``p_values_`` and
    ``log10_path_``, one number a sample; ``monitor_``, ``n_samples_seen_``, ``n_features_in_``, and
    ``feature_names_in_`` where X has names of columns. A batch that is refused changes nothing.

    Time and memory are the measure's, and 16 bytes a sample.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> test = ExchangeabilityTest(seed=0).fit(X, y)
    >>> test.rejected_, test.rejected_at_, round(test.log10_martingale_, 1)
    (True, 522, 12.6)
    >>> test.partial_fit(X[:100], y[:100]).n_samples_seen_
    1897

    Reference: Fedorova et al. (2012), sections 2 and 3.
    """

    def __init__(
        self,
        measure: Measure | Precomputed | None = None,
        bet: Bet | None = None,
        alpha: float = 0.01,
        seed: int | None = None,
    ) -> None:
        self.measure = measure
        self.bet = bet
        self.alpha = alpha
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> Self:
        """Test these samples, and forget those of before."""
        return self._take(X, y, afresh=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on with the samples that came next."""
        return self._take(X, y, afresh=not hasattr(self, "monitor_"))

    @property
    def p_values_(self) -> Floats:
        """The p-value of each sample."""
        check_is_fitted(self, "monitor_")
        return np.array(self._p)

    @property
    def log10_path_(self) -> Floats:
        """The log10 of the capital after each sample."""
        check_is_fitted(self, "monitor_")
        return np.array(self._log_values) / LN10

    def _take(self, X: Any, y: Any, *, afresh: bool) -> Self:
        before = dict(self.__dict__)
        try:
            path = self._tested(X, y, afresh)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        self._note(path)
        return self

    def _tested(self, X: Any, y: Any, afresh: bool) -> Path:
        X = _checked(self, X, afresh, as_given=_wants(self.measure if afresh else self.monitor_.measure) == "anything")
        labels = None if y is None else column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        if afresh:
            self._begin(labels)
        else:
            self._check_kind(labels)
        if _wants(self.monitor_.measure) == "column":
            X = _column(X, self.monitor_.measure)
        return self.monitor_.extend(X, labels)

    def _begin(self, labels: NDArray[Any] | None) -> None:
        measure, bet = copy.deepcopy((self.measure, self.bet))
        self._kind = None if measure is not None else _kind(labels)
        if self._kind is not None:
            measure = _by_labels(self._kind, self.n_features_in_)
        self.monitor_: Monitor = Monitor(measure, bet, Ville(self.alpha), seed=self.seed)
        self._p, self._log_values = array("d"), array("d")

    def _check_kind(self, labels: NDArray[Any] | None) -> None:
        """Refuse labels of which the whole table would have been given another measure."""
        if self._kind is None:
            return
        kind = _kind(labels)
        if kind != self._kind and (self._kind, kind) != ("real numbers", "classes"):  # real numbers may be whole
            law = f"y must hold {self._kind} like the samples before"
            raise ValueError(f"{law}, got {kind}: give the estimator a measure if it should have others")

    def _note(self, path: Path) -> None:
        monitor = self.monitor_
        self._p.frombytes(path.p.tobytes())
        self._log_values.frombytes(path.log_value.tobytes())
        self.n_samples_seen_: int = len(self._p)
        self.rejected_: bool = monitor.alarm_at is not None
        self.rejected_at_: int | None = monitor.alarm_at
        self.changepoint_: int | None = monitor.changepoint
        self.log10_martingale_: float = monitor.martingale.log_value / LN10
        self.log10_max_: float = monitor.log_max / LN10
        self.e_value_: float | Decimal = amount(monitor.martingale.log_value)
        self.anytime_p_: float | Decimal = monitor.anytime_p


def frozen(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    bins: int | None = None,
    residual: str = "absolute",
    unknown: str = "refuse",
    scale: float = 1.0,
) -> Frozen:
    """A fitted model as a measure: how badly does it do on the newest sample, among all so far?

    The model is a pipeline or an estimator that the stream cannot change: an outlier detector or a regressor, scored as
    `Frozen` does; a classifier with probabilities, ``1 - probability of the label``; or one with a decision function
    only, by its margin, ``highest decision for another class - decision for the label``.

    With ``X`` (and ``y``), samples that are no part of the stream, scores are put into ``bins`` (1024) between the
    quantiles of theirs: constant memory, still exactly valid. Held-out samples serve best. The training data is lawful
    too, since the bins only have to be fixed before the stream begins; but a model knows it too well, and what is
    strange in the stream then falls into few bins.

    A label that the classifier has never seen is refused, or with ``unknown="strangest"`` has the largest score: 1,
    as for probability 0, or the largest number where the score is a margin. A fixed score is as lawful as any other.

    Probabilities, decisions and predictions are rounded as in `Frozen`, before anything is subtracted from them, so
    equal samples have equal scores in batches of any size. ``scale`` means the same as in `Frozen`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import RidgeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> measure = frozen(RidgeClassifier().fit(X[::2], y[::2]), unknown="strangest")
    >>> measure.extend(X[1:6:2], y[1:6:2]).greater, measure.update(X[7], 3).greater
    (array([0, 1, 2]), 0)

    Reference: Vovk, Gammerman, Shafer (2005), section 4.1.
    """
    if unknown not in ("refuse", "strangest"):
        raise ValueError(f"unknown must be 'refuse' or 'strangest', got {unknown!r}")
    if bins is None and X is not None:
        bins = BINS
    reference = X if y is None else (X, y)
    return Frozen(_score(model, unknown, scale), reference=reference, bins=bins, residual=residual, scale=scale)


# ------------------------------------------------------------------ the scores of classifiers


def _score(model: Any, unknown: str, scale: float) -> Any:
    """What `Frozen` is given: the model itself where that says all."""
    classifies = hasattr(model, "classes_") and not hasattr(model, "score_samples")
    if classifies and not hasattr(model, "predict_proba") and hasattr(model, "decision_function"):
        return partial(_margins, model, unknown, scale)
    if unknown == "refuse":
        return model
    if not classifies or not hasattr(model, "predict_proba"):
        raise ValueError(f"unknown must be 'refuse' where the model is no fitted classifier, got {format_value(model)}")
    return partial(_surprises, model, unknown, scale)


def _surprises(model: Any, unknown: str, scale: float, X: Any, y: Any) -> Floats:
    """1 - the probability of the label."""
    table = round_outputs(np.asarray(model.predict_proba(X)), scale)
    known, own = _places(model, unknown, y, len(table))
    scores = np.ones(len(table))
    scores[known] -= table[known, own[known]]
    return scores


def _margins(model: Any, unknown: str, scale: float, X: Any, y: Any) -> Floats:
    """By how much another class has the better decision than the label."""
    table = round_outputs(np.asarray(model.decision_function(X)), scale)
    table = np.column_stack([-table, table]) if table.ndim == 1 else table
    if table.shape[1] != len(model.classes_):
        law = "decision_function must return one column for each class (decision_function_shape='ovr')"
        raise ValueError(f"{law}, got {table.shape[1]} for {len(model.classes_)} classes")
    known, own = _places(model, unknown, y, len(table))
    scores = np.full(len(table), sys.float_info.max)
    decisions = table[known, own[known]]
    table[known, own[known]] = -math.inf
    scores[known] = table[known].max(axis=1) - decisions
    return scores


def _places(model: Any, unknown: str, y: Any, rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which labels the classifier knows, and for all of them the column of their class (-1 if it has none)."""
    labels = check_labels(y, rows)
    encode_labels(labels, {})  # refuses what is no label
    columns: dict[Hashable, int] = {label: i for i, label in enumerate(np.asarray(model.classes_).tolist())}
    own = np.array([columns.get(label, -1) for label in labels], np.intp)
    if unknown == "refuse" and (own < 0).any():
        at = int((own < 0).argmax())
        law = "y must hold labels that the classifier has learnt"
        raise ValueError(f"{law}, got {format_value(labels[at])} at position {at}")
    return np.flatnonzero(own >= 0), own


# ------------------------------------------------------------------ at the door of the estimator


def _wants(measure: Any) -> str:
    """What the measure is to be given: a "table" of numbers, a "column" of them, or "anything"."""
    inner = measure.measure if isinstance(measure, Conditional) else measure
    if isinstance(inner, Frozen) and inner.score is not None:
        return "anything"
    return "column" if isinstance(inner, (Value, Frozen, Precomputed)) else "table"


def _by_labels(kind: str, width: int) -> Measure:
    if kind == "no labels":
        return Value() if width == 1 else NearestDistance()
    return NearestNeighbour() if kind == "classes" else NearestResidual()


def _checked(estimator: Any, X: Any, reset: bool, *, as_given: bool) -> Any:
    """The samples under scikit-learn's laws: names and number of features, and unless they pass as given, numbers."""
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


def _kind(labels: NDArray[Any] | None) -> str:
    """What the labels are."""
    if labels is None:
        return "no labels"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # which is no fault here
        target = type_of_target(labels, input_name="y")
    if target not in KINDS:
        law = "y must hold one class or one real number for each sample"
        raise ValueError(f"Unknown label type: {law}, got {format_value(labels)}")  # the first words are scikit-learn's
    return KINDS[target]


def _column(X: Any, measure: Any) -> Floats:
    if X.shape[1] != 1:
        raise ValueError(f"X must have one feature where the measure is {type(measure).__name__}, got {X.shape[1]}")
    return np.ascontiguousarray(X[:, 0])
