"""The constants of a table monitor: what is fixed by a part of the reference before the first bet.

Columns and their kinds, categories, scales, principal directions, a ridge regression of the label, and edges of bins.
The rows that they are computed from never stand in a pool (docs/promises.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.analysis.views import ENDS, MAX_FEATURES, NEGLIGIBLE, ONE_COLUMN, PENALTY, component_name, rounded
from exchangeable.data.errors import ColumnError, DataError, list_names
from exchangeable.data.frames import open_frame
from exchangeable.data.labels import convert_labels
from exchangeable.data.roles import assign_roles
from exchangeable.data.schema import Preparation, read_columns
from exchangeable.data.values import Column, is_missing
from exchangeable.protocols import Floats
from exchangeable.table_monitor.cells import (
    ABSENT,
    TYPES,
    Cells,
    InvalidCellError,
    cell_type,
    cell_types,
    check_type,
    not_finite,
    to_category,
    to_number,
)
from exchangeable.validation import LARGEST, check_stored, format_value

LOWEST = -1.7e308  # the score of a missing number: below all others
NEW, MISSING = "(new)", "(missing)"
MAX_ONE_HOT = 16  # categories of a column that are features of their own; the others share one
NUMBER, CONSTANT = -1.0, -2.0  # features that are not places of categories
FAR = 1e100  # features are cut off at this many deviations
SMALLEST = 1e-200  # deviations below it count as 0
JUMP = 8.0  # how far a value that differs from those of a constant column is from them, in deviations
FEW = 16  # rows
MAX_SAMPLE = 256  # rows that others are compared with, if full rows have a fixed score
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LARGEST_SINGLE = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ColumnConstants:
    """What is known of a column: of numbers, or of categories, the most frequent first."""

    name: str
    categories: tuple[str, ...] | None = None  # None for numbers
    mean: float = 0.0
    deviation: float = 1.0
    summary: tuple[float, ...] = ()  # quantiles of the numbers, or shares of the categories, in the reference
    missing: float = 0.0  # the share of missing values in the reference
    constant: bool = False  # all values are equal, so its only feature is whether a value differs
    narrow: bool = False  # its numbers have 32 bits or few digits, and are rounded to 32 bits
    types: tuple[str, ...] = ()  # of cells in the reference; any if empty

    @property
    def kind(self) -> str:
        """Either "number" or "category"."""
        return "number" if self.categories is None else "category"

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each category."""
        return {name: k for k, name in enumerate(self.categories or ())}

    @property
    def constant_score(self) -> float:
        """The score of the only value of a constant column."""
        return self.mean if self.categories is None else 0.0

    @cached_property
    def _integers(self) -> bool:
        """Whether the categories are integers."""
        names = self.categories or ("",)
        return self.types == ("number",) and all(name.removeprefix("-").isdigit() for name in names)

    def scores(self, cells: Any, inferred: bool = False) -> tuple[Floats, list[tuple[int, str]]]:
        """Return the score of each cell, and the positions of invalid cells with what is wrong; these are missing.

        The score of a number is the number itself, rounded to 32 bits in a narrow column: 0.1 may have 32 bits in the
        reference and 64 in a row. The score of a category is its place by frequency; all categories that the reference
        does not have share one place. A cell of a type that the reference does not have is invalid, unless types were
        ``inferred`` from text.
        """
        numbers = isinstance(cells, np.ndarray)
        if numbers and self.categories is None and self.types != ("boolean",):
            return self._number_scores(cells.astype(np.float64))
        score, wrong = self._loose if inferred else self.reader, []
        scores = np.empty(len(cells))
        for i, cell in enumerate(cells.tolist() if numbers else cells):
            try:
                scores[i] = score(cell)
            except InvalidCellError as error:
                scores[i] = self.missing_score
                wrong.append((i, str(error)))
        return scores, wrong

    @property
    def reader(self) -> Callable[[Any], float]:
        """The function that returns the score of a cell, or raises InvalidCellError."""
        return self._number if self.categories is None else self._place

    @property
    def _loose(self) -> Callable[[Any], float]:
        """The same for cells whose types were inferred from text."""
        return self._any_number if self.categories is None else self._any_place

    def _number_scores(self, numbers: Floats) -> tuple[Floats, list[tuple[int, str]]]:
        large, missing = np.flatnonzero(np.abs(numbers) > LARGEST).tolist(), np.isnan(numbers)
        wrong = [(i, not_finite(float(numbers[i]))) for i in large]
        numbers = round_to_single(numbers) if self.narrow else numbers
        numbers[missing] = numbers[large] = LOWEST
        return numbers, wrong

    def _check(self, cell: Any) -> None:
        """Raise an error if the reference has no cells of this type."""
        if self._integers and isinstance(cell, str):
            raise InvalidCellError(f"must be an integer, got {format_value(cell)}")
        if self._allowed and not is_missing(cell):
            check_type(cell, self._allowed)

    def _number(self, cell: Any) -> float:
        if type(cell) is not float or self.types == ("boolean",):
            self._check(cell)
        return self._any_number(cell)

    def _any_number(self, cell: Any) -> float:
        number = to_number(cell)
        if number != number:
            return LOWEST
        return float(np.float32(number)) if self.narrow and abs(number) <= LARGEST_SINGLE else number

    @cached_property
    def _allowed(self) -> tuple[str, ...]:
        """The types of cells that are valid; any if empty. Text that holds numbers may become numbers."""
        return (*self.types, "number") if self.types == ("text",) and self.categories is None else self.types

    def _place(self, cell: Any) -> float:
        if type(cell) is not str or "text" not in self.types:
            self._check(cell)
        return self._any_place(cell)

    def _any_place(self, cell: Any) -> float:
        if self.types == ("boolean",) and cell_type(cell) == "number" and cell in (0, 1):
            cell = bool(cell)
        text, new = to_category(cell), len(self.places)
        if self._integers and text is not None and text not in self.places and not text.removeprefix("-").isdigit():
            raise InvalidCellError(f"must be an integer, got {format_value(cell)}")
        return float(new + 1 if text is None else self.places.get(text, new))

    @property
    def missing_score(self) -> float:
        """The score of a missing value."""
        return LOWEST if self.categories is None else len(self.categories) + 1.0

    @property
    def features(self) -> list[str]:
        """The names of its features: the column itself, or one for each frequent category."""
        if self.categories is None or self.constant:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories[:MAX_ONE_HOT]]

    def describe(self, score: float) -> str:
        """Return the value that a score stands for."""
        if self.categories is None:
            return MISSING if score == LOWEST else f"{score:g}"
        return (*self.categories, NEW, MISSING)[int(score)]


class Component(NamedTuple):
    """A direction in the space of features, and its name."""

    name: str
    loadings: Floats


@dataclass(frozen=True, eq=False)
class Constants:
    """All that is fixed before the first bet."""

    columns: tuple[ColumnConstants, ...]
    label: ColumnConstants | None = None
    offsets: Floats = field(default_factory=lambda: np.empty(0))  # of features
    factors: Floats = field(default_factory=lambda: np.empty(0))  # of features: one over their deviations
    scales: Floats = field(default_factory=lambda: np.empty(0))  # of features, in distances
    components: tuple[Component, ...] = ()
    coefficients: Floats = field(default_factory=lambda: np.empty((0, 0)))  # of the ridge regression: feature, class
    shares: Floats = field(default_factory=lambda: np.empty(0))  # of the classes
    sample: Floats = field(default_factory=lambda: np.empty((0, 0)))  # scaled features of rows to compare others with
    aside: tuple[tuple[str, str], ...] = ()  # columns that are not tested, and why
    notes: tuple[str, ...] = ()
    summaries: tuple[tuple[str, tuple[float, ...]], ...] = ()  # quantiles of what views are about, by name

    @property
    def has_features(self) -> bool:
        """Whether rows can be compared with each other: there are at most 256 features."""
        return len(self.offsets) > 0

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of columns that a row must have."""
        return frozenset(column.name for column in self.columns)

    @cached_property
    def readers(self) -> list[tuple[str, Callable[[Any], float]]]:
        """The name of each column, and the function that returns the score of a cell."""
        return [(column.name, column.reader) for column in self.columns]

    @cached_property
    def allowed(self) -> frozenset[str]:
        """The names of columns that a row may have."""
        label = () if self.label is None else (self.label.name,)
        return frozenset([*(column.name for column in self.columns), *(name for name, _ in self.aside), *label])

    def features(self, scores: Floats) -> Floats:
        """Return the features of rows, centred; ``scores`` has a column for each column of the table.

        A missing number is the mean, and so is each feature of a category that is missing. The feature of a column
        that is constant in the reference is 1 where a value differs.
        """
        if not self.has_features:
            return np.empty((len(scores), 0))
        source, code, missing = self._layout
        raw = scores[:, source]
        features = np.where(code < 0.0, raw, raw == code) - self.offsets
        features[raw == missing] = 0.0
        same = code == CONSTANT
        features[:, same] = raw[:, same] != self.offsets[same]
        return np.clip(features, -self._reach, self._reach, out=features)

    @cached_property
    def _reach(self) -> Floats:
        """The largest magnitude of each feature, so that no distance or sum overflows."""
        return FAR / np.maximum(self.scales, 1.0) if len(self.scales) else np.full(len(self.offsets), FAR)

    @cached_property
    def _layout(self) -> tuple[NDArray[np.intp], Floats, Floats]:
        """For each feature: its column, the place of its category (NUMBER or CONSTANT), and the score if missing."""
        parts = [(j, k, column) for j, column in enumerate(self.columns) for k in range(len(column.features))]
        codes = [CONSTANT if c.constant else NUMBER if c.categories is None else float(k) for _, k, c in parts]
        missing = np.array([column.missing_score for _, _, column in parts])
        return np.array([j for j, _, _ in parts]), np.array(codes), missing

    def project(self, features: Floats, component: Component) -> Floats:
        """Return the component of each row, by the same operations for one row and for many."""
        return _combine(features, self.factors * component.loadings)

    def residuals(self, features: Floats, y: Floats) -> Floats:
        """Return the residuals of labels: of numbers, in deviations; of classes, 1 minus the share of their class."""
        label = self.label
        if label is None or label.categories is None:
            mean, deviation = (0.0, 1.0) if label is None else (label.mean, label.deviation)
            standardised = np.clip((y - mean) / max(deviation, SMALLEST), -FAR, FAR)
            return standardised - _combine(features, self.factors * self.coefficients[:, 0])
        known = np.minimum(y, len(label.categories)).astype(np.intp)  # a new class has no share
        shares, table = self._classes
        residuals = 1.0 - shares[known]
        if len(features) < FEW:  # the same differences in one call
            terms = np.concatenate([residuals[:, np.newaxis], features * table[:, known].T], axis=1)
            return np.asarray(np.subtract.accumulate(terms, axis=1)[:, -1])
        for j in range(features.shape[1]):
            residuals -= features[:, j] * table[j, known]
        return np.asarray(residuals)

    @cached_property
    def _classes(self) -> tuple[Floats, Floats]:
        """The share of each class and its coefficients for the features; the last is a new class."""
        table = self.coefficients * self.factors[:, np.newaxis]
        return np.append(self.shares, 0.0), np.append(table, np.zeros((len(self.factors), 1)), axis=1)

    def distances(self, features: Floats) -> Floats:
        """Return the distance of each row to the nearest one of the sample."""
        out = np.empty(len(features))
        native.sample_distances(np.ascontiguousarray(features * self.scales), self.sample, out)
        return out


def _combine(features: Floats, coefficients: Floats) -> Floats:
    """Return the weighted sum of each row, added in order, so that it does not depend on the other rows."""
    if len(features) < FEW:  # the same sums in one call
        return np.asarray(np.add.accumulate(features * coefficients, axis=1)[:, -1])
    total = np.zeros(len(features))
    for j in np.flatnonzero(coefficients).tolist():
        total += features[:, j] * coefficients[j]
    return total


# ------------------------------------------------------------------------------------------------ from a reference


def learn_constants(
    cells: Cells,
    label: str | None,
    categorical: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Constants:
    """Return the constants that these rows, a part of the reference, fix."""
    types = {name: cell_types(column) for name, column in cells.columns.items()}
    how = Preparation(label, None, None, (), keep, categorical, "indicator", "missing").checked()
    reading = read_columns(open_frame(cells.native()), how)
    roles = assign_roles(reading.features, how.keep, ordered=False)
    for column in roles.tested:
        if column.kind not in ("numbers", "booleans", "text"):
            raise ColumnError(f"keep must name columns of numbers or text, got {format_value(column.name)}")
    tested = [_column_constants(column, column.name in how.keep) for column in roles.tested]
    columns = tuple(replace(column, types=types.get(column.name, ())) for column in tested)
    if all(column.constant for column in columns):
        raise DataError("reference must have a column that varies, got none besides the label, times and identifiers")
    target = None if reading.label is None else _label_constants(reading.label)
    target = None if target is None else replace(target, types=types.get(target.name, ()))
    aside = (*roles.aside.items(), *((column.name, "times") for column in roles.times))
    return _with_features(Constants(columns, target, aside=aside, notes=tuple(roles.notes())), cells)


def _column_constants(column: Column, kept: bool = False) -> ColumnConstants:
    missing = column.missing
    share = float(missing.mean())
    if column.kind == "text":
        counts = Counter(value for value in column.values if value is not None)
        names = tuple(sorted(counts, key=lambda name: (-counts[name], name)))
        shares = tuple(counts[name] / len(missing) for name in names)
        return ColumnConstants(column.name, names, 0.0, 1.0, shares, share, len(names) == 1 and not share and not kept)
    ordered = np.sort(np.asarray(column.values, np.float64)[~missing])
    narrow = is_narrow(ordered)
    ordered = round_to_single(ordered) if narrow else ordered
    constant = bool(ordered[0] == ordered[-1])
    largest = float(np.abs(ordered).max()) or 1.0
    deviation = 0.0 if constant else float((ordered / largest).std() * largest)
    mean = float(ordered[0]) if constant else float((ordered / largest).mean() * largest)
    quantiles = tuple(float(q) for q in np.quantile(ordered, QUANTILES, method="inverted_cdf"))
    untested = constant and not share and not kept
    return ColumnConstants(column.name, None, mean, deviation or 1.0, quantiles, share, untested, narrow)


def is_narrow(numbers: Floats) -> bool:
    """Return whether all numbers have 32 bits, or are decimals with as few digits as 32-bit numbers hold.

    >>> is_narrow(np.array([0.1, 2.0, 1e30])), is_narrow(np.array([0.1234567891]))
    (True, False)
    """
    if len(numbers) and np.abs(numbers).max() > LARGEST_SINGLE:
        return False
    distinct = np.unique(numbers)
    single = distinct.astype(np.float32)
    other = single != distinct
    return bool((single[other].astype(str).astype(np.float64) == distinct[other]).all())


def round_to_single(numbers: Floats) -> Floats:
    """Round numbers to 32 bits; those beyond the range are left as they are.

    >>> round_to_single(np.array([0.1, 1e300])).tolist()
    [0.10000000149011612, 1e+300]
    """
    small = np.abs(numbers) <= LARGEST_SINGLE
    return np.where(small, np.where(small, numbers, 0.0).astype(np.float32).astype(np.float64), numbers)


def _label_constants(column: Column) -> ColumnConstants:
    present = column.take(np.flatnonzero(~column.missing))
    if isinstance(convert_labels(present, None), list):
        return _column_constants(column if column.kind == "text" else column.as_text())
    return _column_constants(column)


def _with_features(constants: Constants, cells: Cells) -> Constants:
    """Add scales, principal directions and the regression of the label, if there are not too many features.

    A number and a constant column have one feature, a column of categories one for each of the most frequent.
    """
    names = [feature for column in constants.columns for feature in column.features]
    if len(names) > MAX_FEATURES:
        note = f"the columns have {len(names):,} features, more than {MAX_FEATURES}: each is tested, full rows are not"
        return replace(constants, notes=(*constants.notes, note))
    scores, _ = table_scores(constants, cells, invalid="missing")
    sizes = [len(column.features) for column in constants.columns]
    origin = np.repeat(np.arange(len(sizes)), sizes)
    places = np.array([column.categories is not None and not column.constant for column in constants.columns])[origin]
    constant = np.array([column.constant for column in constants.columns])[origin]
    centres = [column.constant_score if column.constant else column.mean for column in constants.columns]
    offsets = np.where(places, 0.0, np.array(centres)[origin])
    constants = replace(constants, offsets=offsets, factors=np.ones(len(names)))
    offsets = np.where(places, constants.features(scores).mean(axis=0), offsets)
    constants = replace(constants, offsets=offsets)
    centred = constants.features(scores)
    deviations = centred.std(axis=0)
    factors = np.divide(1.0, deviations, out=np.zeros(len(names)), where=deviations > SMALLEST)
    scales = np.where(constant, JUMP, np.where(places, 1.0, factors))
    constants = replace(constants, factors=factors, scales=scales)
    constants = replace(constants, sample=np.ascontiguousarray((centred * scales)[: min(MAX_SAMPLE, cells.n // 2)]))
    Z = centred * factors
    gram = Z.T @ Z
    return _with_regression(replace(constants, components=_components(gram / len(Z), names, origin)), cells, Z, gram)


def _components(covariance: Floats, names: Sequence[str], origin: NDArray[np.intp]) -> tuple[Component, ...]:
    """Return the first and the last directions that combine several columns."""
    variances, directions = np.linalg.eigh(covariance)
    chosen = [
        k
        for k in np.flatnonzero(variances > NEGLIGIBLE)[::-1].tolist()
        if np.bincount(origin, directions[:, k] ** 2).max() < ONE_COLUMN
    ]
    chosen = [*chosen[:ENDS], *chosen[max(ENDS, len(chosen) - ENDS) :]]
    return tuple(Component(*component_name(names, origin, directions[:, k], len(names) - k)) for k in chosen)


def _with_regression(constants: Constants, cells: Cells, Z: Floats, gram: Floats) -> Constants:
    label = constants.label
    if label is None:
        return constants
    y, _ = label.scores(cells.columns[label.name])
    known = np.isfinite(y) & (y != label.missing_score)
    y, Z = np.where(known, y, label.mean), np.where(known[:, np.newaxis], Z, 0.0)
    penalised = Z.T @ Z + PENALTY * np.eye(len(gram))
    if label.categories is None:
        target = ((y - label.mean) / max(label.deviation, SMALLEST))[:, np.newaxis]
        return replace(constants, coefficients=rounded(np.linalg.solve(penalised, Z.T @ target)))
    shares = np.array(label.summary)
    target = (y[:, np.newaxis] == np.arange(len(shares))) - shares
    return replace(constants, coefficients=rounded(np.linalg.solve(penalised, Z.T @ target)), shares=shares)


def given_constants(schema: Mapping[str, Any], label: str | None) -> Constants:
    """Return constants from a mapping of columns to "number" or to a list of categories. There are no features.

    >>> [column.kind for column in given_constants({"size": "number", "colour": ["red", "blue"]}, None).columns]
    ['number', 'category']
    """
    if not isinstance(schema, Mapping) or not schema:
        raise ValueError(f"schema must be a mapping from columns to 'number' or categories, got {format_value(schema)}")
    columns = {}
    for name, kind in schema.items():
        categories = None if kind == "number" else kind
        if isinstance(categories, (str, bytes)) or not isinstance(categories, (Sequence, type(None))):
            raise ValueError(
                f"schema of column {format_value(name)} must be 'number' or a list of categories, "
                f"got {format_value(kind)}"
            )
        if categories is not None and not len(categories):
            raise ValueError(f"schema of column {format_value(name)} must list at least one category, got none")
        try:
            found = [to_category(one) or MISSING for one in categories or ()]
        except InvalidCellError as error:
            raise ValueError(f"a category of column {format_value(name)} in the schema {error}") from None
        names = None if categories is None else tuple(dict.fromkeys(found))
        summary = (np.nan,) * 5 if names is None else (0.0,) * len(names)
        types = ("number", "boolean") if categories is None else cell_types(categories)
        columns[str(name)] = ColumnConstants(str(name), names, summary=summary, types=types)
    if label is not None and label not in columns:
        raise ColumnError(f"label must be a column of the schema, got {format_value(label)}")
    target = None if label is None else columns.pop(label)
    return Constants(tuple(columns.values()), target)


def dump_constants(constants: Constants) -> dict[str, Any]:
    """Return constants as plain data."""
    plain: dict[str, Any] = {part.name: getattr(constants, part.name) for part in fields(constants)}
    plain["columns"] = [astuple(column) for column in constants.columns]
    plain["label"] = None if constants.label is None else astuple(constants.label)
    plain["components"] = [tuple(component) for component in constants.components]
    return plain


def load_constants(plain: Any) -> Constants:
    """Check constants from a snapshot."""
    given = dict(plain)
    columns = tuple(_load_column(column) for column in given.pop("columns"))
    label = given.pop("label")
    label = None if label is None else _load_column(label)
    components = tuple(Component(str(name), loadings) for name, loadings in given.pop("components"))
    constants = Constants(columns, label, components=components, **given)
    _check_arrays(constants)
    texts = [text for pair in constants.aside for text in pair] + list(constants.notes)
    texts += [name for name, _ in constants.summaries]
    if not all(len(q) == len(QUANTILES) and all(type(x) is float for x in q) for _, q in constants.summaries):
        raise ValueError("summaries of the schema must be quantiles, got others")
    names = [column.name for column in columns]
    if not columns or len(set(names)) < len(names) or not all(type(text) is str for text in texts):
        raise ValueError("schema must name its columns, each once")
    return constants


def _check_arrays(constants: Constants) -> None:
    """Check the arrays of loaded constants: they must fit the columns, and hold finite numbers."""
    n = sum(len(column.features) for column in constants.columns) if len(constants.offsets) else 0
    label, classes = constants.label, 0
    if label is not None and n:
        classes = 1 if label.categories is None else len(label.categories)
    shapes: dict[str, tuple[int | None, ...]] = {"offsets": (n,), "factors": (n,), "scales": (n,)}
    shapes["coefficients"] = (n, classes) if n and label is not None else (None, None)
    shapes["shares"] = (classes if label is not None and label.categories is not None else 0,)
    shapes["sample"] = (None, n)
    arrays = [(name, getattr(constants, name), shape) for name, shape in shapes.items()]
    arrays += [(f"component {component.name}", component.loadings, (n,)) for component in constants.components]
    for name, array, shape in arrays:
        check_stored(name, array, np.float64, *shape)
        if not np.isfinite(array).all():
            raise ValueError(f"{name} of the schema must be finite numbers, got others")
    if n and not len(constants.sample):
        raise ValueError("sample of the schema must have a row, got none")


def _load_column(column: Any) -> ColumnConstants:
    loaded = ColumnConstants(*column)
    texts = (loaded.name, *(loaded.categories or ()))
    numbers = (loaded.mean, loaded.deviation, loaded.missing, *loaded.summary)
    if not all(type(text) is str for text in texts) or not all(type(number) is float for number in numbers):
        raise ValueError(f"a column of the schema must have a name and numbers, got {format_value(column)}")
    sizes = len(QUANTILES) if loaded.categories is None else len(loaded.categories)
    flags = type(loaded.constant) is type(loaded.narrow) is bool and set(loaded.types) <= TYPES.keys()
    if len(loaded.summary) != sizes or not loaded.deviation > 0.0 or not flags:
        raise ValueError(f"a column of the schema must have a summary and a deviation, got {format_value(column)}")
    return loaded


def check_places(column: ColumnConstants, scores: Floats) -> None:
    """Raise an error unless loaded scores of a column of categories are places of them."""
    if column.categories is None:
        return
    if not ((scores >= 0) & (scores <= column.missing_score) & (scores == np.floor(scores))).all():
        raise ValueError(f"recent values of {format_value(column.name)} must be places of categories")


# ------------------------------------------------------------------------------------------------ rows that arrive


def split_delays(cells: Cells, delay: str, label: str | None, wait: float) -> tuple[Cells, NDArray[np.bool_]]:
    """Take the column of the delays of labels from a reference; return also which labels came within the wait.

    A missing delay is that of a label that never came.
    """
    if delay not in cells.columns or delay == label:
        raise ColumnError(f"delay must be a column of the reference besides the label, got {format_value(delay)}")
    delays, wrong = ColumnConstants(delay).scores(cells.columns[delay])
    negative = np.flatnonzero((delays < 0.0) & (delays != LOWEST))
    if wrong or len(negative):
        at, rule = wrong[0] if wrong else (int(negative[0]), f"must not be negative, got {delays[negative[0]]:g}")
        raise DataError(f"delay {format_value(delay)} {rule} in row {at + 1:,} of the reference")
    others = {name: column for name, column in cells.columns.items() if name != delay}
    return cells._replace(columns=others), (delays != LOWEST) & (delays <= wait)


def table_scores(constants: Constants, cells: Cells, *, invalid: str, first: int = 1) -> tuple[Floats, int]:
    """Return the scores of rows, a column for each column of the table, and how many cells were invalid.

    With ``invalid="error"`` an invalid cell, a column that is missing and one that is unknown are errors; with
    "missing" they are counted and treated as missing. ``first`` is the number of the first row, for messages.
    """
    if invalid == "error":
        _check_names(constants, cells, first)
    scores, count = np.empty((cells.n, len(constants.columns))), _count_unknown(constants, cells)
    for j, column in enumerate(constants.columns):
        if column.name not in cells.columns:
            scores[:, j], count = column.missing_score, count + cells.n
            continue
        scores[:, j], wrong = column.scores(cells.columns[column.name], cells.inferred)
        if wrong and invalid == "error":
            row, rule = wrong[0]
            raise DataError(f"column {format_value(column.name)} {rule} in row {first + row:,}")
        count += len(wrong)
    return scores, count


def invalid_notes(constants: Constants, cells: Cells) -> list[str]:
    """Return a note about each column of the reference with invalid cells, which count as missing."""
    notes = []
    for column in (*constants.columns, *(() if constants.label is None else (constants.label,))):
        _, wrong = column.scores(cells.columns[column.name], cells.inferred)
        if wrong:
            row, rule = wrong[0]
            notes.append(
                f"{len(wrong):,} cell{'s' * (len(wrong) > 1)} of column {format_value(column.name)} in the reference "
                f"count{'s' * (len(wrong) == 1)} as missing: in row {row + 1:,} it {rule}"
            )
    return notes


def row_scores(constants: Constants, row: Mapping[str, Any]) -> tuple[list[float], float] | None:
    """Return the scores of a row and that of its label, NaN if it has none; None if a cell or a column is not valid.

    They are those of ``table_scores``, which finds out what is wrong.
    """
    if not constants.required <= row.keys() <= constants.allowed:
        return None
    label = constants.label
    try:
        scores = [score(row[name]) for name, score in constants.readers]
        if label is None or label.name not in row:
            return scores, math.nan
        y = label.reader(row[label.name])
    except InvalidCellError:
        return None
    return scores, math.nan if y == label.missing_score else y


def _check_names(constants: Constants, cells: Cells, first: int) -> None:
    """Raise an error for the first row that does not have the columns of the reference."""
    for i in range(cells.n if cells.ragged else min(cells.n, 1)):
        names = set(cells.has(i))
        absent = [column.name for column in constants.columns if column.name not in names]
        unknown = sorted(names - constants.allowed)
        if absent:
            known = f"; it has the unknown column{'s' * (len(unknown) > 1)} {list_names(unknown)}" if unknown else ""
            several = "s" * (len(absent) > 1)
            raise ColumnError(f"row {first + i:,} must have the column{several} {list_names(absent)}, got none{known}")
        if unknown:
            raise ColumnError(f"row {first + i:,} must have only columns of the reference, got {list_names(unknown)}")


def _count_unknown(constants: Constants, cells: Cells) -> int:
    """Count the cells of columns that the reference does not have."""
    unknown = [column for name, column in cells.columns.items() if name not in constants.allowed]
    return sum(cells.n - sum(cell is ABSENT for cell in column) if cells.ragged else cells.n for column in unknown)
