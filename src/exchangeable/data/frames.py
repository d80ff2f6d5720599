"""What a user holds in memory, as a table ready for a measure: pandas, Polars, Arrow, NumPy, SciPy sparse.

Nothing is guessed and nothing is repaired: a missing value, or one that float64 cannot hold, is a `ValueError` that
names the row (the first is 0) and the column.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.files import MAX_CATEGORIES, WHOLE, Group, Table
from exchangeable.protocols import Floats
from exchangeable.validation import LARGEST, check_numbers, format_value

CELLS = 2**28  # of a sparse matrix that are held as numbers: 2 GiB
CLASSES, SMALL = 20, 5  # integers are classes if there are at most so many, in so many examples each on average
BEYOND = "is beyond 2**53, where float64 loses digits; rescale the column"
ROW_INDEX = "Unnamed: "  # what pandas calls an index saved with the data

Labels = Literal["classes", "numbers"]
REAL: Any = (bool, int, float, np.bool_, np.integer, np.floating)


class Column(NamedTuple):
    """A column with its name: numbers, or categories as a list of scalars."""

    name: str
    values: Floats | list[Any]

    @property
    def categorical(self) -> bool:
        """Whether it holds categories."""
        return isinstance(self.values, list)


class Gathered(NamedTuple):
    """The columns of one set of examples, its labels, and what its frames are made of."""

    features: list[Column]
    target: Column | None
    classes: bool  # whether the labels were declared to be classes
    library: str
    native: Any  # the features as they were given, for a model that wants them so

    @property
    def index(self) -> Any:
        """Of a pandas frame."""
        return getattr(self.native, "index", None) if self.library == "pandas" else None

    @property
    def rows(self) -> int:
        """How many examples there are."""
        return len(self.features[0].values)


def gather(
    data: Any,
    label: Any = None,
    *,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    name: str = "data",
    beside: Any = None,
) -> Gathered:
    """Admit data and labels, or say in one sentence why not; ``label`` names a column, or holds a label for each row.

    Columns of a sparse matrix that have no entry are left out, unless the data ``beside`` it, with which it will be
    joined, has them.

    >>> [column.name for column in gather({"a": [1.0, 2.0], "b": ["u", "v"]}, "b").features]
    ['a']
    """
    encoded, left_out = _names("categorical", categorical), _names("drop", drop)
    gone = left_out | ({str(label)} if isinstance(label, (str, int)) else set())
    if _is_sparse(data):
        columns, library, frame = _array(*_dense(data, beside, encoded | gone), encoded, left_out), "pyarrow", None
    else:
        columns, library, frame = _columns(data, encoded, left_out)
    features, target = _labelled(columns, label)
    if not features:
        raise ValueError(f"{name} must have at least one feature column besides what is left out, got none")
    native = _without(data, gone) if _is_sparse(data) else _native(data, frame, features)
    declared = target is not None and target.name in encoded
    gathered = Gathered(features, target, declared, library, native)
    if not gathered.rows:
        raise ValueError(f"{name} must have at least one row, got none")
    if target is not None and len(target.values) != gathered.rows:
        raise ValueError(f"label must hold one label for each row, got {len(target.values)} for {gathered.rows} rows")
    return gathered


def join(first: Gathered, second: Gathered) -> Gathered:
    """One set behind the other, column by column.

    >>> join(gather([1.0, 2.0]), gather([3.0])).features[0].values
    array([1., 2., 3.])
    """
    other = {column.name: column for column in second.features}
    odd = {column.name for column in first.features} ^ set(other)
    if odd:
        raise ValueError(f"both sets must have the same columns, got {_listed(sorted(odd))} in one of them only")
    features = [_joined(column, other[column.name]) for column in first.features]
    if first.target is None or second.target is None:
        if first.target is not second.target:
            raise ValueError("label must be given for both sets, or for neither")
        return first._replace(features=features)
    return first._replace(features=features, target=_joined(first.target, second.target))


def _joined(first: Column, second: Column) -> Column:
    if first.categorical != second.categorical:
        law = "must hold numbers in both sets, or text or categories in both"
        raise ValueError(f"column {format_value(first.name)} {law}, got one of each")
    if isinstance(first.values, list):
        return Column(first.name, [*first.values, *second.values])
    return Column(first.name, np.concatenate([first.values, second.values]))


def assemble(gathered: Gathered, *, labels: Labels | None = None, name: str = "the data") -> Table:
    """A table ready for a measure. O(n d).

    ``labels`` says what the labels are; if it does not, text, booleans and what was declared are classes, and so are
    integers of which there are few (two, or at most 20, each five times on average).

    Numbers are features as they are; categories become columns of 0 and 1, one for each, in the order of their names:
    not that of their appearance, on which distances would depend in the last digit.

    >>> assemble(gather({"size": [1.0, 2.0], "coat": ["red", "grey"]})).features
    ['size', 'coat=grey', 'coat=red']
    """
    features, target, rows = gathered.features, gathered.target, gathered.rows
    if rows < 2:
        raise ValueError(f"{name} must have at least two rows, got {rows}")
    y = None if target is None else _target(target, labels, gathered.classes)
    codes = [sorted(set(column.values), key=_by_name) if column.categorical else None for column in features]
    widths = [1 if own is None else len(own) for own in codes]
    X, names, groups, end = np.zeros((rows, sum(widths))), list[str](), list[Group](), 0
    for column, own, width in zip(features, codes, widths, strict=True):
        _write(X[:, end : end + width], column, own)
        names += [column.name] if own is None else [f"{column.name}={category}" for category in own]
        groups.append(Group(column.name, end, end + width, own is not None))
        end += width
    return Table(X, y, names, name, groups, None if target is None else target.name)


def _by_name(category: Any) -> tuple[str, str]:
    return type(category).__name__, str(category)


def _write(X: Floats, column: Column, categories: list[Any] | None) -> None:
    if categories is None:
        X[:, 0] = column.values
    else:
        place = {category: i for i, category in enumerate(categories)}
        X[np.arange(len(X)), [place[category] for category in column.values]] = 1.0


# ------------------------------------------------------------------------------------------------------- kinds of data


def _columns(data: Any, categorical: frozenset[str], drop: frozenset[str]) -> tuple[list[Column], str, Any]:
    """The columns that are not left out, the name of the library that they came in, and the frame, if it is one."""
    if isinstance(data, Mapping):
        return _mapped(data, categorical, drop), "pyarrow", None
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        return _mapped(_transposed(data), categorical, drop), "pyarrow", None
    if isinstance(data, (np.ndarray, list, tuple)):
        return _array(data, None, categorical, drop), "pyarrow", None
    if isinstance(data, (str, bytes)):
        raise ValueError(f"data must be a frame or an array, got the text {format_value(data)}; read a file first")
    import narwhals as nw

    try:
        frame = nw.from_native(_with_names(data), pass_through=True, allow_series=True)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"data must be a frame that narwhals can read, got: {reason}") from error
    if isinstance(frame, nw.LazyFrame):
        raise ValueError("data must be in memory, got a lazy frame; collect() it first")
    if isinstance(frame, nw.Series):
        frame = frame.alias(frame.name if frame.name not in (None, "") else "value").to_frame()
    if not isinstance(frame, nw.DataFrame):
        return _array(data, None, categorical, drop), "pyarrow", None
    _check_names(frame.columns, categorical, drop)
    kept = [(name, frame.get_column(name)) for name in frame.columns if name not in drop]
    columns = [_series(name, series, name in categorical) for name, series in kept]
    return columns, str(frame.implementation).lower(), frame


def _with_names(data: Any) -> Any:
    """A pandas frame or series whose names are texts: elsewhere they are, and here they may be anything."""
    if hasattr(data, "set_axis") and hasattr(data, "columns"):
        names = [name if isinstance(name, str) else str(name) for name in data.columns]
        return data if names == list(data.columns) else data.set_axis(names, axis=1)
    if hasattr(data, "set_axis") and getattr(data, "name", None) is not None and not isinstance(data.name, str):
        return data.rename(str(data.name))
    return data


def _native(data: Any, frame: Any, features: Sequence[Column]) -> Any:
    """The features alone, as they were given: of a frame these columns, or else an array."""
    if frame is None:
        return np.column_stack([np.asarray(column.values) for column in features])
    names = {column.name for column in features}
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return data.iloc[:, [i for i, name in enumerate(frame.columns) if name in names]]
    return frame.select([name for name in frame.columns if name in names]).to_native()


def _transposed(rows: list[Any]) -> dict[Any, list[Any]]:
    """Rows that are dictionaries, as columns."""
    if any(not isinstance(row, Mapping) or row.keys() != rows[0].keys() for row in rows):
        raise ValueError("data must hold the same columns in every row, got rows of others")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _mapped(data: Mapping[Any, Any], categorical: frozenset[str], drop: frozenset[str]) -> list[Column]:
    """The columns of a dictionary: series of any library, arrays, or lists of Python's numbers and text."""
    import narwhals as nw

    names = [str(name) for name in data]
    _check_names(names, categorical, drop)
    columns = []
    for name, values in zip(names, data.values(), strict=True):
        if name not in drop:
            series = nw.from_native(values, pass_through=True, allow_series=True)
            make = _series if isinstance(series, nw.Series) else _sequence
            columns.append(make(name, series, name in categorical))
    lengths = {len(column.values): column.name for column in columns}
    if len(lengths) > 1:
        found = ", ".join(f"{length} in {format_value(name)}" for length, name in lengths.items())
        raise ValueError(f"data must hold columns of one length, got {found}")
    return columns


def _sequence(name: str, values: Any, categorical: bool) -> Column:
    """A column of an array, or of any other ordered collection."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf" and not categorical:
        return _floats(name, values)
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set)):
        raise ValueError(f"column {format_value(name)} must hold one value for each row, got {format_value(values)}")
    method = next((method for method in ("tolist", "to_pylist") if hasattr(values, method)), None)
    listed = list(values) if method is None else getattr(values, method)()
    if categorical or any(isinstance(value, str) for value in listed):
        return Column(name, _categories(name, listed) if categorical else _mixed(name, listed))
    if set(map(type, listed)) == {float}:
        return _floats(name, np.array(listed))
    for row, value in enumerate(listed):
        if _missing(value):
            _refuse(row, name, value)
        if _beyond(value):
            _refuse(row, name, value, BEYOND)
        if not isinstance(value, (*REAL, Decimal)):
            law = f"only numbers, booleans and text are allowed: convert it, or leave it out with drop=[{name!r}]"
            raise ValueError(f"row {row}, column {format_value(name)}: {law}, got {format_value(value)}")
    return _floats(name, np.array([float(value) for value in listed]))


def _is_sparse(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "scipy" and hasattr(data, "tocsc")


def _dense(data: Any, beside: Any, named: Set[str]) -> tuple[NDArray[Any], list[str]]:
    """The columns that are used or named, and their names; the others could change distances only by rounding."""
    if data.ndim != 2 or data.dtype.kind not in "biuf" or 0 in data.shape:
        raise ValueError(f"data must be a matrix of real numbers, got {data.dtype} of shape {data.shape}")
    matrix, width = data.tocsc(), data.shape[1]
    used = np.union1d(_used(matrix), _places(named, width))
    if beside is not None:
        used = np.union1d(used, _used(beside) if _is_sparse(beside) and beside.ndim == 2 else np.arange(width))
        used = used[used < width]  # the other may be wider, and is then rejected
    used = used if len(used) else np.zeros(1, np.intp)
    if matrix.shape[0] * len(used) > CELLS:
        law = f"a sparse matrix must fill at most {CELLS:,} cells when it is written out"
        raise ValueError(f"{law}, got {matrix.shape[0]:,} x {len(used):,}; reduce its columns first")
    return matrix[:, used].toarray(), [f"x{i}" for i in used.tolist()]


def _used(data: Any) -> NDArray[np.intp]:
    """Which columns of a sparse matrix have an entry."""
    return np.flatnonzero(np.diff(data.tocsc().indptr))


def _places(names: Set[str], width: int) -> NDArray[np.intp]:
    """The positions of these names among the columns x0, x1, ..."""
    places = [int(name[1:]) for name in names if name[:1] == "x" and name[1:].isdecimal()]
    return np.array([place for place in places if place < width], np.intp)


def _without(data: Any, names: Set[str]) -> Any:
    """A sparse matrix as it was given, or without these columns."""
    return data.tocsr()[:, np.setdiff1d(np.arange(data.shape[1]), _places(names, data.shape[1]))] if names else data


def _array(data: Any, names: list[str] | None, categorical: frozenset[str], drop: frozenset[str]) -> list[Column]:
    """Columns x0, x1, ... of an array or of a list of rows; one of a list of numbers."""
    law = "be a frame, or an array of numbers with rows of one length"
    if data is None:
        raise ValueError(f"data must {law}, got None")
    X = check_numbers("data", data, law)
    if X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[1] == 0):
        raise ValueError(f"data must have one or two dimensions, and a column, got shape {X.shape}")
    X = X[:, np.newaxis] if X.ndim == 1 else X
    names = names or [f"x{i}" for i in range(X.shape[1])]
    _check_names(names, categorical, drop)
    bad = np.argwhere(~(np.abs(X) <= LARGEST))
    if len(bad):
        row, column = bad[0].tolist()
        _refuse(row, names[column], X[row, column])
    large = np.argwhere(np.abs(X) > WHOLE)  # of which a float may be, and an integer may not
    for row, column in large.tolist() if np.asarray(data).dtype.kind in "iuO" else ():
        given = np.asarray(data).reshape(X.shape)[row, column]
        if _beyond(given):
            _refuse(row, names[column], given, BEYOND)
    kept = [(name, values) for name, values in zip(names, X.T, strict=True) if name not in drop]
    return [
        Column(name, _categories(name, values.tolist()) if name in categorical else values) for name, values in kept
    ]


def _series(name: str, series: Any, categorical: bool) -> Column:
    """A column of a frame, by its type: numbers, or categories."""
    import narwhals as nw

    kind = series.dtype
    if categorical or kind in (nw.String, nw.Categorical, nw.Enum):
        return Column(name, _categories(name, series.to_list()))
    if kind == nw.Object:
        return Column(name, _mixed(name, series.to_list()))
    if not (kind.is_numeric() or kind == nw.Boolean):
        law = f"only numbers, booleans and text are allowed: convert it, or leave it out with drop=[{name!r}]"
        raise ValueError(f"column {format_value(name)} is of type {kind}; {law}")
    try:
        missing, values = series.is_null().to_numpy(), series.to_numpy()
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"column {format_value(name)} of type {kind} must be readable as numbers, got: {reason}"
        ) from error
    if missing.any():
        _refuse(int(missing.argmax()), name, None)
    if values.dtype.kind == "O":  # decimals
        values = np.array([float(value) for value in values])
    return _floats(name, values)


def _floats(name: str, values: NDArray[Any]) -> Column:
    """Numbers, if float64 holds each of them."""
    if values.dtype.kind in "iu" and ((values > WHOLE) | (values < -WHOLE)).any():
        row = int(((values > WHOLE) | (values < -WHOLE)).argmax())
        _refuse(row, name, values[row], BEYOND)
    floats = np.ascontiguousarray(values, dtype=np.float64)
    bad = ~(np.abs(floats) <= LARGEST)
    if bad.any():
        _refuse(int(bad.argmax()), name, values[int(bad.argmax())])
    return Column(name, floats)


def _mixed(name: str, values: list[Any]) -> list[Any]:
    """Python objects: text throughout is categorical, whatever else is refused."""
    for row, value in enumerate(values):
        if not isinstance(value, (str, bool, np.bool_)):
            if _missing(value):
                _refuse(row, name, value)
            law = f"Python objects must be text; name the column in categorical=[{name!r}], or make it numbers"
            raise ValueError(f"row {row}, column {format_value(name)}: {law}, got {format_value(value)}")
    return _categories(name, values)


def _categories(name: str, values: list[Any]) -> list[Any]:
    for row, value in enumerate(values):
        if _missing(value):
            _refuse(row, name, value)
        if not isinstance(value, Hashable):
            raise ValueError(
                f"row {row}, column {format_value(name)}: a category must be one value, got {format_value(value)}"
            )
    values = _canonical(values)
    if len(set(values)) > MAX_CATEGORIES:
        law = f"must hold at most {MAX_CATEGORIES} categories; leave it out with drop=[{name!r}]"
        raise ValueError(f"column {format_value(name)} {law}, got {len(set(values)):,}")
    return values


def _beyond(value: Any) -> bool:
    """Whether it is an integer that float64 may not hold."""
    return isinstance(value, (int, np.integer)) and not -WHOLE <= int(value) <= WHOLE


def _canonical(values: list[Any]) -> list[Any]:
    """Values that are equal in one form, so that no order of the rows decides under which name they go."""
    if all(isinstance(value, str) for value in values) or all(isinstance(value, (bool, np.bool_)) for value in values):
        return values
    return [_whole(float(value)) if isinstance(value, REAL) and -WHOLE <= value <= WHOLE else value for value in values]


def _missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither equal nor unequal to itself
        return True


def _refuse(row: int, name: str, value: Any, fault: str | None = None) -> None:
    if fault is None and _missing(value):
        fault = "is missing; leave out such rows, drop the column, or fill in a constant"
    elif fault is None and abs(float(value)) == math.inf:
        fault = "is not finite; every number must be"
    elif fault is None:
        fault = f"is beyond {LARGEST:g}, where squared distances overflow; rescale the column"
    value = value.item() if isinstance(value, np.generic) else value
    raise ValueError(f"row {row}, column {format_value(name)}: {format_value(value)} {fault}")


# ------------------------------------------------------------------------------------------------------- which columns


def _names(option: str, names: Any) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{option} must be a list of columns, got {format_value(names)}")
    return frozenset(map(str, names))


def _check_names(names: list[str], categorical: frozenset[str], drop: frozenset[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"data must have columns of different names, got {format_value(twice)} twice")
    _check_known("categorical", categorical, names)
    _check_known("drop", drop, names)
    if categorical & drop:
        raise ValueError(f"column {format_value(min(categorical & drop))} is named by categorical and drop; choose one")
    for name in set(names) - drop:
        if name.startswith(ROW_INDEX) and name.removeprefix(ROW_INDEX).isdecimal():
            law = f"give it a name, or leave it out with drop=[{name!r}]"
            raise ValueError(f"column {format_value(name)} has no name of its own, as a saved row index has; {law}")


def _check_known(option: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(f"{option} must name columns of data, got {format_value(name)}; they are {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _labelled(columns: list[Column], label: Any) -> tuple[list[Column], Column | None]:
    """The columns without the label, and the label, which names one of them or is brought along."""
    if label is None:
        return columns, None
    if isinstance(label, (str, int)):
        _check_known("label", [str(label)], [column.name for column in columns])
        target = next(column for column in columns if column.name == str(label))
        return [column for column in columns if column is not target], target
    values = _listed_labels(label)
    name = getattr(label, "name", None)
    name = "label" if name is None or str(name) in {column.name for column in columns} else name
    for row, value in enumerate(values):
        if _missing(value):
            _refuse(row, "label", value)
        if np.ndim(value) or not isinstance(value, Hashable):
            raise ValueError(f"label must hold one label for each row, got {format_value(value)} at row {row}")
    return columns, Column(str(name) or "label", _plain(values))


def _listed_labels(label: Any) -> list[Any]:
    """Labels that were brought along, in any ordered collection of one dimension."""
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(label, method):
            label = getattr(label, method)()
            break
    if not isinstance(label, Iterable) or isinstance(label, (Mapping, Set, bytes)) or hasattr(label, "columns"):
        raise ValueError(f"label must name a column, or hold one label for each row, got {format_value(label)}")
    return list(label)


def _plain(values: list[Any]) -> Floats | list[Any]:
    """Numbers as an array, unless they are booleans, text or something else."""
    real = all(isinstance(value, (int, float, np.integer, np.floating)) for value in values)
    truth = any(isinstance(value, (bool, np.bool_)) for value in values)
    if not real or truth or not values or any(_beyond(value) for value in values):
        return _canonical(values)
    array = np.array(values, np.float64)
    if not (np.abs(array) <= LARGEST).all():
        row = int((~(np.abs(array) <= LARGEST)).argmax())
        _refuse(row, "label", values[row])
    return array


# -------------------------------------------------------------------------------------------------- labels and features


def _target(column: Column, labels: Labels | None, declared: bool) -> list[object] | Floats:
    """The labels: a list of classes, or an array of numbers."""
    values = column.values
    kind = labels or ("classes" if declared or not _looks_real(values) else "numbers")
    if kind == "numbers":
        if isinstance(values, list):
            raise ValueError(f"label {format_value(column.name)} must hold numbers, got {format_value(values[0])}")
        return values
    classes = values if isinstance(values, list) else [_whole(value) for value in values.tolist()]
    if len(set(classes)) == 1:
        law = "must hold at least two classes, since they are compared; leave it out to look at the features alone"
        raise ValueError(f"label {format_value(column.name)} {law}, got only {format_value(classes[0])}")
    if len(set(classes)) == len(classes) and labels is None:
        law = "must hold classes, some of them more than once"
        raise ValueError(
            f"label {format_value(column.name)} {law}, got {len(classes)} different ones in {len(classes)} rows"
        )
    return classes


def _whole(value: float) -> object:
    """As an integer where it is one, so that there is one zero."""
    return int(value) if value.is_integer() else value


def _looks_real(values: Floats | list[Any]) -> bool:
    if isinstance(values, list):
        return False
    kinds = len(np.unique(values))
    return bool((values != np.floor(values)).any()) or kinds > CLASSES or (kinds > 2 and SMALL * kinds > len(values))
