"""Data in memory as a table ready for a measure: pandas, Polars, Arrow, NumPy, SciPy sparse.

Nothing is guessed or repaired: a value that cannot be used is a `ValueError` that names the row and the column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data import sparse
from exchangeable.data.labels import LabelKind, convert_labels, read_labels
from exchangeable.data.table import MAX_EXACT_INTEGER, Table, TableColumn
from exchangeable.data.values import (
    INEXACT,
    Column,
    is_inexact,
    read_categories,
    read_sequence,
    read_series,
    reject_value,
)
from exchangeable.protocols import Floats
from exchangeable.validation import LARGEST, check_numbers, format_value

ROW_INDEX = "Unnamed: "  # how pandas names an index that was saved with the data
LISTED = 10  # names in a message


class Examples(NamedTuple):
    """The columns of a set of examples, their labels, and the data that they came from."""

    features: list[Column]
    target: Column | None
    classes: bool  # whether the labels were declared to be classes
    library: str
    native: Any  # the features in the form in which the user passed them, for a model that scores them

    @property
    def index(self) -> Any:
        """The index of a pandas frame; None for other data."""
        return getattr(self.native, "index", None) if self.library == "pandas" else None

    @property
    def rows(self) -> int:
        """The number of examples."""
        return len(self.features[0].values)


class _Choice(NamedTuple):
    """The columns that the user named as categorical, and those to leave out."""

    categorical: frozenset[str]
    drop: frozenset[str]


def read_examples(
    data: Any,
    label: Any = None,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    name: str = "data",
    beside: Any = None,
) -> Examples:
    """Read data and labels; ``label`` names a column, or holds a label for each row.

    Columns of a sparse matrix without an entry are left out, unless ``beside``, the data with which it will be
    concatenated, has them.

    >>> [column.name for column in read_examples({"a": [1.0, 2.0], "b": ["u", "v"]}, "b").features]
    ['a']
    """
    choice = _Choice(_names("categorical", categorical), _names("drop", drop))
    unused = choice.drop | ({str(label)} if isinstance(label, (str, int)) else set())
    library, frame = "pyarrow", None
    if sparse.is_sparse(data):
        columns = _array_columns(*sparse.to_dense(data, beside, choice.categorical | unused), choice)
    else:
        columns, library, frame = _columns(data, choice)
    features, target = _split_label(columns, label)
    if not features:
        raise ValueError(f"{name} must have at least one feature column besides what is left out, got none")
    native = sparse.without(data, unused) if sparse.is_sparse(data) else _native(data, frame, features)
    declared = target is not None and target.name in choice.categorical
    examples = Examples(features, target, declared, library, native)
    if not examples.rows:
        raise ValueError(f"{name} must have at least one row, got none")
    if target is not None and len(target.values) != examples.rows:
        raise ValueError(f"label must hold one label for each row, got {len(target.values)} for {examples.rows} rows")
    return examples


def concatenate(first: Examples, second: Examples) -> Examples:
    """Concatenate two sets, column by column.

    >>> concatenate(read_examples([1.0, 2.0]), read_examples([3.0])).features[0].values
    array([1., 2., 3.])
    """
    other = {column.name: column for column in second.features}
    unmatched = {column.name for column in first.features} ^ set(other)
    if unmatched:
        raise ValueError(f"both sets must have the same columns, got {_listed(sorted(unmatched))} in one of them only")
    features = [_concatenate_columns(column, other[column.name]) for column in first.features]
    if first.target is None or second.target is None:
        if first.target is not second.target:
            raise ValueError("label must be given for both sets, or for neither")
        return first._replace(features=features)
    return first._replace(features=features, target=_concatenate_columns(first.target, second.target))


def _concatenate_columns(first: Column, second: Column) -> Column:
    if first.categorical != second.categorical:
        raise ValueError(
            f"column {format_value(first.name)} must hold numbers in both sets, or text or categories in both, got one "
            "of each"
        )
    if isinstance(first.values, list):
        return Column(first.name, [*first.values, *second.values])
    return Column(first.name, np.concatenate([first.values, second.values]))


def build_table(examples: Examples, *, labels: LabelKind | None = None, name: str = "the data") -> Table:
    """Build a table ready for a measure. O(n d).

    ``labels`` says what the labels are. By default, text, booleans and declared categories are classes, and so are
    integers with few different values (two, or at most 20 with five examples each on average).

    Numbers are features as they are. Categories become columns of 0 and 1, one for each, sorted by name: in order of
    appearance, distances would depend on the order of the rows in the last digit.

    >>> build_table(read_examples({"size": [1.0, 2.0], "coat": ["red", "grey"]})).features
    ['size', 'coat=grey', 'coat=red']
    """
    features, target, rows = examples.features, examples.target, examples.rows
    if rows < 2:
        raise ValueError(f"{name} must have at least two rows, got {rows}")
    y = None if target is None else convert_labels(target, labels, examples.classes)
    all_categories = [
        sorted(set(column.values), key=_category_order) if column.categorical else None for column in features
    ]
    widths = [1 if categories is None else len(categories) for categories in all_categories]
    X, names, columns, end = np.zeros((rows, sum(widths))), list[str](), list[TableColumn](), 0
    for column, categories, width in zip(features, all_categories, widths, strict=True):
        _fill(X[:, end : end + width], column, categories)
        names += [column.name] if categories is None else [f"{column.name}={category}" for category in categories]
        columns.append(TableColumn(column.name, end, end + width, categories is not None))
        end += width
    return Table(X, y, names, name, columns, None if target is None else target.name)


def _category_order(category: Any) -> tuple[str, str]:
    return type(category).__name__, str(category)


def _fill(X: Floats, column: Column, categories: list[Any] | None) -> None:
    if categories is None:
        X[:, 0] = column.values
    else:
        positions = {category: i for i, category in enumerate(categories)}
        X[np.arange(len(X)), [positions[category] for category in column.values]] = 1.0


# ------------------------------------------------------------------------------------------------------- kinds of data


def _columns(data: Any, choice: _Choice) -> tuple[list[Column], str, Any]:
    """Return the columns that are not left out, the name of their library, and the narwhals frame, if there is one."""
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = _transpose(data)
    if isinstance(data, Mapping):
        return _mapping_columns(data, choice), "pyarrow", None
    if isinstance(data, (np.ndarray, list, tuple)):
        return _array_columns(data, None, choice), "pyarrow", None
    if isinstance(data, (str, bytes)):
        raise ValueError(f"data must be a frame or an array, got the text {format_value(data)}; read a file first")
    frame = _narwhals_frame(data)
    if frame is None:
        return _array_columns(data, None, choice), "pyarrow", None
    _check_names(frame.columns, choice)
    columns = [
        read_series(name, frame.get_column(name), name in choice.categorical)
        for name in frame.columns
        if name not in choice.drop
    ]
    return columns, str(frame.implementation).lower(), frame


def _narwhals_frame(data: Any) -> Any:
    """Return data as a narwhals frame; None if it is neither a frame nor a series."""
    import narwhals as nw

    try:
        frame = nw.from_native(_with_text_names(data), pass_through=True, allow_series=True)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"data must be a frame that narwhals can read, got: {reason}") from error
    if isinstance(frame, nw.LazyFrame):
        raise ValueError("data must be in memory, got a lazy frame; collect() it first")
    if isinstance(frame, nw.Series):
        return frame.alias(frame.name if frame.name not in (None, "") else "value").to_frame()
    return frame if isinstance(frame, nw.DataFrame) else None


def _with_text_names(data: Any) -> Any:
    """Return a pandas frame or series with names that are text; in pandas they may be anything."""
    if hasattr(data, "set_axis") and hasattr(data, "columns"):
        names = [name if isinstance(name, str) else str(name) for name in data.columns]
        return data if names == list(data.columns) else data.set_axis(names, axis=1)
    if hasattr(data, "set_axis") and getattr(data, "name", None) is not None and not isinstance(data.name, str):
        return data.rename(str(data.name))
    return data


def _native(data: Any, frame: Any, features: Sequence[Column]) -> Any:
    """Return the features alone, in their original form: the columns of a frame, or else an array."""
    if frame is None:
        return np.column_stack([np.asarray(column.values) for column in features])
    names = {column.name for column in features}
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return data.iloc[:, [i for i, name in enumerate(frame.columns) if name in names]]
    return frame.select([name for name in frame.columns if name in names]).to_native()


def _transpose(rows: list[Any]) -> dict[Any, list[Any]]:
    """Turn rows that are dictionaries into columns."""
    if any(not isinstance(row, Mapping) or row.keys() != rows[0].keys() for row in rows):
        raise ValueError("data must hold the same columns in every row, got different ones")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _mapping_columns(data: Mapping[Any, Any], choice: _Choice) -> list[Column]:
    """Read the columns of a dictionary: series of any library, arrays, or lists of numbers and text."""
    import narwhals as nw

    names = [str(name) for name in data]
    _check_names(names, choice)
    columns = []
    for name, values in zip(names, data.values(), strict=True):
        if name not in choice.drop:
            series = nw.from_native(values, pass_through=True, allow_series=True)
            read = read_series if isinstance(series, nw.Series) else read_sequence
            columns.append(read(name, series, name in choice.categorical))
    lengths = {len(column.values): column.name for column in columns}
    if len(lengths) > 1:
        different = ", ".join(f"{length} in {format_value(name)}" for length, name in lengths.items())
        raise ValueError(f"data must hold columns of one length, got {different}")
    return columns


def _array_columns(data: Any, names: list[str] | None, choice: _Choice) -> list[Column]:
    """Read the columns x0, x1, ... of an array or of a list of rows; a list of numbers is one column."""
    allowed = "be a frame, or an array of numbers with rows of one length"
    if data is None:
        raise ValueError(f"data must {allowed}, got None")
    X = check_numbers("data", data, allowed)
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[1] == 0):
        raise ValueError(f"data must have one or two dimensions, and a column, got shape {X.shape}")
    X = X[:, np.newaxis] if X.ndim == 1 else X
    names = names or [f"x{i}" for i in range(X.shape[1])]
    _check_names(names, choice)
    _check_array(X, data, names)
    return [
        Column(name, read_categories(name, values.tolist()) if name in choice.categorical else values)
        for name, values in zip(names, X.T, strict=True)
        if name not in choice.drop
    ]


def _check_array(X: Floats, data: Any, names: list[str]) -> None:
    for row, column in np.argwhere(~(np.abs(X) <= LARGEST))[:1].tolist():
        reject_value(row, names[column], X[row, column])
    if np.asarray(data).dtype.kind not in "iuO":
        return
    values = np.asarray(data).reshape(X.shape)
    for row, column in np.argwhere(
        np.abs(X) > MAX_EXACT_INTEGER
    ).tolist():  # a float may be that large, an integer may not
        if is_inexact(values[row, column]):
            reject_value(row, names[column], values[row, column], INEXACT)


# ------------------------------------------------------------------------------------------------------- which columns


def _names(option: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{option} must be a list of columns, got {format_value(names)}")
    return frozenset(map(str, names))


def _check_names(names: list[str], choice: _Choice) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"data must have columns of different names, got {format_value(twice)} twice")
    _check_known("categorical", choice.categorical, names)
    _check_known("drop", choice.drop, names)
    if both := choice.categorical & choice.drop:
        raise ValueError(f"column {format_value(min(both))} is named by categorical and drop; choose one")
    for name in set(names) - choice.drop:
        if name.startswith(ROW_INDEX) and name.removeprefix(ROW_INDEX).isdecimal():
            raise ValueError(
                f"column {format_value(name)} has no name, like a saved row index; give it a name, or leave it out "
                f"with drop=[{name!r}]"
            )


def _check_known(option: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(f"{option} must name columns of data, got {format_value(name)}; they are {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:LISTED])) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _split_label(columns: list[Column], label: Any) -> tuple[list[Column], Column | None]:
    """Return the features and the label, which is one of the columns or a sequence."""
    if label is None:
        return columns, None
    if not isinstance(label, (str, int)):
        return columns, read_labels(label, {column.name for column in columns})
    _check_known("label", [str(label)], [column.name for column in columns])
    target = next(column for column in columns if column.name == str(label))
    return [column for column in columns if column is not target], target
