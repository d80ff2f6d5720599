"""Any score that was fixed before the stream started: numbers, a function, a fitted model."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from exchangeable.measures.pools import Pool, Scored
from exchangeable.measures.rounding import BITS, round_outputs, significant_bits
from exchangeable.protocols import Floats, Ranks
from exchangeable.validation import (
    check_column,
    check_integer,
    check_interval,
    check_labels,
    check_number,
    check_stored,
    format_value,
)

MAX_BINS = 2**20
MAX_SCALE = 1e300
COMPARED_ROWS = 8  # rows that are scored both together and one by one
MIN_UNITS = 4  # if all outputs are below this many rounding units, rounding leaves almost nothing of them
EXPECTED = (
    "score must be None, a function score(X, y), or a fitted model:"
    " a classifier with predict_proba, a regressor or an outlier detector"
)


class Frozen(Scored):
    """A score that no example of the stream can change, ranked among *all* scores so far.

    The score is

    - None: the examples are already scores, one number each;
    - a function ``score(X, y)`` that returns one number for each row;
    - a fitted classifier: ``1 - probability of the true label``; a fitted regressor: ``|y - prediction|``, or
      ``y - prediction`` if ``residual="signed"``; a fitted outlier detector: ``-score_samples``. Any object with the
      methods of scikit-learn will do.

    The larger the score, the stranger the example. The model or function must not have been fitted on the stream. The
    pool of scores grows with the stream, which keeps p-values independent; a fixed calibration set does not. If a score
    raises an error or is not a finite number, a ValueError is raised and nothing changes.

    The model gets what is passed to ``extend``; from ``update`` it gets a table of one row. Most models round one row
    and many rows differently, so equal rows could get scores that differ in the last bits. What a model or
    function returns is therefore rounded, before it is subtracted from 1 or from a label, to a multiple of

        2**(e - 32),  e the smallest integer with |output| < 2**e and scale <= 2**e  (regressors: and |y| <= 2**e)

    This keeps 32 significant bits, and below ``scale``, where terms may have cancelled, multiples of 2**-32 * scale.
    For float32 arrays 12 bits are kept (2**(e - 12)), for float16 6. Labels are not rounded, nor are scores that are
    given as numbers. ``scale`` is the magnitude of the terms that the model adds up. The default 1 suits probabilities,
    log-likelihoods, and terms up to about 1,000. Give a larger one if larger terms may cancel, and a smaller one if
    outputs are as small as 1e-9.

    Limits: if an output lies within its rounding error of a rounding boundary, it can still be rounded differently in
    different batches. That happens to about one distinct output in a million (float32: in 2,500), and to more if terms
    are far larger than the scale. A function that computes in float32 should return float32. The same example must
    always have the same types, since models compute differently with float32 features than with float64. So, for a
    frame with both float32 and other columns, pass ``update`` a table of one row, ``frame.iloc[[i]]``.

    Ranks are exact by default: O(log n) time per step, 0.4 microseconds in a batch of a million; memory
    O(distinct scores). With ``bins`` the score is the number of its bin, between quantiles of the scores of
    ``reference`` (X, or the tuple (X, y): examples that are not part of the stream). Each edge lies
    halfway between two neighbouring distinct reference scores. This is just another score, and exactly as valid:
    O(log bins) time per step, **constant memory**.

    >>> measure = Frozen(lambda X, y: np.abs(X[:, 0]))
    >>> measure.extend(np.array([[1.0], [-3.0], [2.0]]))
    Ranks(greater=array([0, 0, 1]), equal=array([1, 1, 1]), n=array([1, 2, 3]))
    >>> Frozen(bins=4, reference=[0.1, 0.2, 0.3, 0.4]).extend([0.12, 0.33, 0.14]).equal
    array([1, 1, 2])

    Reference: Vovk, Gammerman, Shafer (2005), section 4.1; Vovk (2021), Testing randomness online.
    """

    def __init__(
        self,
        score: Any = None,
        *,
        reference: Any = None,
        bins: int | None = None,
        residual: str = "absolute",
        scale: float = 1.0,
    ) -> None:
        if residual not in ("absolute", "signed"):
            raise ValueError(f"residual must be 'absolute' or 'signed', got {residual!r}")
        self.score = score
        self.residual = residual
        self.scale: float = check_interval("scale", scale, 0.0, MAX_SCALE, f"(0, {MAX_SCALE:g}]")
        self.bins: int | None = None if bins is None else check_integer("bins", bins, 2, MAX_BINS)
        kind = _kind(score)
        self.score_kind: str = f"{residual} residual" if kind == "regressor" else kind
        self._compared: list[bool] = []  # not empty once batches have been compared with single rows; copies share it
        self.edges: Floats | None = self._edges(reference)
        super().__init__(None if self.edges is None else len(self.edges) + 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Frozen:
        """Copy the pool; the score is fixed, so copies share it."""
        twin = copy.copy(self)
        twin._pool = copy.deepcopy(self._pool, memo)
        return twin

    def scores(self, X: Any, y: Any = None) -> Floats:
        """Return the scores of many examples, or the numbers of their bins; nothing is added."""
        scores = self._scores(X, y)
        return scores if self.edges is None else self.edges.searchsorted(scores).astype(np.float64)

    def one_score(self, x: Any, y: Any = None) -> float:
        """Return the score of one example, or the number of its bin; it is not added."""
        if self.score_kind == "numbers":
            score = check_number("x", x)
        else:
            score = float(self._scores(_one_row(x), None if y is None else _one_label(y))[0])
        return score if self.edges is None else float(self.edges.searchsorted(score))

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Add many examples: the same ranks as one by one."""
        scores = self.scores(X, y)
        if not self._compared and self.score_kind != "numbers" and len(scores) > 1:
            self._compare(X, y, min(len(scores), COMPARED_ROWS))  # before anything changes: warnings may be errors
            self._compared.append(True)
        return self._pool.add(scores)

    def _compare(self, X: Any, y: Any, rows: int) -> None:
        """Warn if the first rows get different scores one by one and together, even after rounding."""
        try:
            together = self._scores(_slice(X, 0, rows), _slice(y, 0, rows))
            alone = [self._scores(_slice(X, i, i + 1), _slice(y, i, i + 1))[0] for i in range(rows)]
        except (TypeError, ValueError):  # X cannot be sliced, or not scored row by row
            return
        differ = np.abs(together - alone).max()
        if differ > 0.0:
            larger = 2.0 ** np.ceil(np.log2(differ)) * 2.0 ** (BITS + 10)
            warnings.warn(
                f"score gives single rows and batches different outputs, by up to {differ:.2g}, which would look like "
                f"a change: standardise the features of the model, or set scale={larger:.3g}",
                stacklevel=3,
            )

    def _get_state(self) -> dict[str, Any]:
        scores, counts = self._pool.contents()
        kind = None if self.score is None else self.score_kind
        fixed = {"score": kind, "residual": self.residual, "scale": self.scale, "bins": self.bins, "edges": self.edges}
        return {**fixed, "scores": scores, "counts": counts}

    @classmethod
    def _from_state(
        cls, *, score: Any, residual: Any, scale: Any, bins: Any, edges: Any, scores: Any, counts: Any
    ) -> Frozen:
        measure = cls(score, residual=residual, scale=scale)
        measure.bins = None if bins is None else check_integer("bins", bins, 2, MAX_BINS)
        if measure.bins is not None:
            check_stored("edges", edges, np.float64, None)
            if not 1 <= len(edges) < measure.bins or not (edges[:-1] < edges[1:]).all():
                raise ValueError(f"edges must be 1 to {measure.bins - 1} increasing numbers")
        elif edges is not None:
            raise ValueError(f"edges must be None without bins, got {format_value(edges)}")
        measure.edges = edges
        measure._pool = Pool.from_contents(scores, counts, max_distinct=None if edges is None else len(edges) + 1)
        return measure

    def _edges(self, reference: Any) -> Floats | None:
        """Return the edges: halfway from each quantile k/bins of the reference scores to the next distinct score.

        Bin b holds the scores in (edge b-1, edge b]. The largest reference score has no next one, so a quantile
        there uses the edge below it.
        """
        if self.bins is None and reference is None:
            return None
        if self.bins is None:
            raise ValueError("bins must be given together with reference, got None")
        if reference is None:
            raise ValueError("reference must be given together with bins, got None")
        pair = isinstance(reference, tuple) and len(reference) == 2 and self.score_kind != "numbers"
        try:
            scores = self._scores(*reference) if pair else self._scores(reference, None)
        except ValueError as error:
            raise ValueError(f"reference must be X or (X, y) that can be scored, got: {error}") from error
        distinct = np.unique(scores)
        if len(distinct) < 2:
            raise ValueError(f"reference must have at least 2 distinct scores, got {len(distinct)}")
        # the quantiles of np.quantile(method="inverted_cdf"), which takes seconds for many bins
        ranks = np.ceil(len(scores) * (np.arange(1, self.bins) / self.bins) - 1.0)
        quantiles = np.sort(scores)[ranks.clip(min=0.0).astype(np.int64)]
        below = np.unique(distinct.searchsorted(quantiles).clip(max=len(distinct) - 2))
        return _midpoints(distinct[below], distinct[below + 1])

    def _scores(self, X: Any, y: Any) -> Floats:
        if self.score_kind == "numbers":
            return check_column("X", X)
        rows = _length(X)
        if rows == 0 and (y is None or np.size(y) == 0):
            return np.empty(0)
        return SCORES[self.score_kind](self.score, X, y, rows, self.scale)


def _slice(table: Any, start: int, stop: int) -> Any:
    """Return some rows of a table, or some labels."""
    if table is None:
        return None
    return table.iloc[start:stop] if hasattr(table, "iloc") else table[start:stop]


def _midpoints(low: Floats, high: Floats) -> Floats:
    """Return the midpoints, or the lower numbers if no other float lies between."""
    middle = low / 2.0 + high / 2.0
    return np.where((low < middle) & (middle < high), middle, low)


# ------------------------------------------------------------------ the scores of a function, and of models


def _function(score: Any, X: Any, y: Any, rows: int, scale: float) -> Floats:
    return _output(_call(score, X, y), rows, scale)


def _detector(score: Any, X: Any, y: Any, rows: int, scale: float) -> Floats:
    return -_output(_call(score.score_samples, X), rows, scale)


def _classifier(score: Any, X: Any, y: Any, rows: int, scale: float) -> Floats:
    """Return 1 - the probability of the true label."""
    columns = {label: i for i, label in enumerate(np.asarray(score.classes_).tolist())}
    labels = check_labels(y, rows)
    chosen = [_column_of(label, columns, i) for i, label in enumerate(labels)]
    table = np.asarray(_call(score.predict_proba, X))
    if table.shape != (rows, len(columns)) or table.dtype.kind != "f":
        raise ValueError(f"score must return a probability for each example and class, got shape {table.shape}")
    probabilities = table[np.arange(rows), chosen]
    _check_returned(probabilities, rows)
    return 1.0 - round_outputs(probabilities, scale)


def _signed(score: Any, X: Any, y: Any, rows: int, scale: float) -> Floats:
    """Return the label minus the prediction."""
    labels = check_column("y", y)
    if len(labels) != rows:
        raise ValueError(f"y must hold one number for each row of X, got {len(labels)} for {rows} rows")
    predicted = _output(_call(score.predict, X), rows, scale, labels)
    with np.errstate(over="ignore"):  # infinite scores are rejected
        return _check_returned(labels - predicted, rows)


def _absolute(score: Any, X: Any, y: Any, rows: int, scale: float) -> Floats:
    return np.abs(_signed(score, X, y, rows, scale))


SCORES: dict[str, Callable[[Any, Any, Any, int, float], Floats]] = {
    "function": _function,
    "classifier": _classifier,
    "detector": _detector,
    "absolute residual": _absolute,
    "signed residual": _signed,
}


def _call(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"score must return one finite number for each example, but raised {reason}") from error


def _output(returned: Any, rows: int, scale: float, labels: Floats | float = 0.0) -> Floats:
    """Check and round what a score returned; if a label is larger than ``scale``, it is used instead."""
    values = _check_returned(returned, rows)
    outputs = values if isinstance(returned, (list, tuple)) else np.asarray(returned)
    unit, largest = scale * 2.0 ** -significant_bits(outputs.dtype), np.max(np.maximum(np.abs(values), np.abs(labels)))
    if rows > 1 and 0.0 < largest < MIN_UNITS * unit:
        small = f"score returns numbers that are rounded to 0 or to a few multiples of {unit:.2g}"
        warnings.warn(f"{small}: use a scale below {scale:g} if their differences matter", stacklevel=2)
    return round_outputs(outputs, np.maximum(np.abs(labels), scale))


def _check_returned(scores: Any, rows: int) -> Floats:
    column = check_column("score", scores, "return")
    if len(column) != rows:
        raise ValueError(f"score must return one number for each example, got {len(column)} for {rows} examples")
    return column


def _column_of(label: Any, columns: dict[Any, int], position: int) -> int:
    try:
        return columns[label]
    except (KeyError, TypeError):
        raise ValueError(
            f"y must hold labels that the classifier has learnt, got {format_value(label)} at position {position}"
        ) from None


# ------------------------------------------------------------------ arguments


def _kind(score: Any) -> str:
    """Return the kind of a score, judging by its methods."""
    if score is None:
        return "numbers"
    _check_fitted(score)
    if not isinstance(score, type):
        if hasattr(score, "predict_proba") and hasattr(score, "classes_"):
            if isinstance(score.classes_, list) and any(np.ndim(classes) for classes in score.classes_):
                raise ValueError(
                    f"score must have one label for each example, got the multi-output {format_value(score)}"
                )
            return "classifier"
        if hasattr(score, "score_samples"):
            return "detector"
        if _is_regressor(score):
            return "regressor"
        if callable(score) and not hasattr(score, "predict"):
            return "function"
    raise ValueError(f"{EXPECTED}, got {format_value(score)}")


def _check_fitted(score: Any) -> None:
    if not _is_estimator(score):
        return
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(score)
    except NotFittedError:
        raise ValueError(
            f"score must be fitted before the stream starts, got the unfitted {format_value(score)}"
        ) from None


def _is_estimator(score: Any) -> bool:
    """Return whether a score is a scikit-learn estimator, without importing scikit-learn."""
    base = sys.modules.get("sklearn.base")
    return isinstance(score, getattr(base, "BaseEstimator", ()))  # the module may be half imported by another thread


def _is_regressor(score: Any) -> bool:
    """Return whether a score predicts numbers: it is neither a classifier without probabilities nor a clustering."""
    if _is_estimator(score):
        from sklearn.base import is_regressor

        return bool(is_regressor(score))
    return hasattr(score, "predict") and not hasattr(score, "predict_proba") and not hasattr(score, "classes_")


def _length(X: Any) -> int:
    """Return the number of rows of a table."""
    try:
        return int(X.shape[0]) if hasattr(X, "shape") else len(X)
    except (IndexError, TypeError):
        raise ValueError(f"X must hold one row for each example, got {format_value(X)}") from None


def _one_row(x: Any) -> Any:
    """Convert one example to a table of one row: a row of a frame keeps its names, and a mixed row its types."""
    if isinstance(x, dict):
        return [x]
    if hasattr(x, "columns") and getattr(x, "shape", ())[:1] == (1,):
        return x
    if hasattr(x, "to_frame") and hasattr(x, "iloc"):
        return x.to_frame().T.infer_objects()
    try:
        row = np.asarray(x)
        mixed = row.dtype.kind in "US" and not isinstance(x, (str, bytes, np.ndarray))
        row = np.asarray(x, object) if mixed else row
    except ValueError:
        row = np.asarray(None)
    if row.dtype.kind == "O" and row.ndim == 0:
        raise ValueError(f"x must be one example, a row of features, got {format_value(x)}")
    return row[np.newaxis]


def _one_label(y: Any) -> Any:
    """Convert one label to an array of one label; a tuple stays one label."""
    labels = np.empty(1, object)
    labels[0] = y
    return labels if np.ndim(y) else np.asarray([y])
