"""Infer the types of columns that were read as text.

A column has a type only if every cell that is not missing fits it, over the whole column: the type never depends on
the order of the rows. Otherwise it stays text, exactly as written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from exchangeable.data.times import parse_times
from exchangeable.validation import format_value

if TYPE_CHECKING:
    import polars as pl

# what pandas.read_csv reads as missing
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
_UNIT = re.compile("^[$€£¥]|[$€£¥%]$")  # of numbers, if all of them have it
HEAD = 64  # cells that are parsed first: they are enough to recognise most text
_ZEROS = r"^[+-]?0[0-9]"  # 007 is a code, not a number
_NOT_INTEGER = r"[.eEnN]"  # also in inf and nan
_SPACES = "[ \u00a0\u202f]"  # including non-breaking spaces
_GROUPED = {  # thousands separators, by decimal mark
    ".": ((",", r"^[+-]?\d{1,3}(,\d{3})*(\.\d*)?$"), (_SPACES, rf"^[+-]?\d{{1,3}}({_SPACES}\d{{3}})*(\.\d*)?$")),
    ",": ((r"\.", r"^[+-]?\d{1,3}(\.\d{3})*(,\d*)?$"), (_SPACES, rf"^[+-]?\d{{1,3}}({_SPACES}\d{{3}})*(,\d*)?$")),
}
_DECIMAL_COMMA = r"^\s*[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?\s*$"


class TypedColumn(NamedTuple):
    """A column, and a note if its type is not obvious."""

    column: pl.Series
    note: str = ""


def parse_plain(frame: pl.DataFrame, decimal: str = ".") -> pl.DataFrame:
    """Convert each column of text to Int64, Float64 or Boolean if every cell that is not missing fits.

    Integers with leading zeros, and integers beyond 64 bits, stay text. Numbers are rounded correctly. O(size), with
    expressions for all columns together, since a call for each one would be slow for thousands of columns.

    >>> import polars as pl
    >>> parse_plain(pl.DataFrame({"x": [" 1", None, "2.5"], "s": ["1", "x", "NA"]})).to_dict(as_series=False)
    {'x': [1.0, None, 2.5], 's': ['1', 'x', None]}
    """
    found = _parse_numbers(_with_point(frame, decimal))
    rest = frame.drop(list(found))
    for part in (rest.head(HEAD), rest):  # the first cells are enough to recognise most text
        stripped = _strip(part.select(rest.columns))
        typed = {**_parse_numbers(_with_point(stripped, decimal)), **_parse_booleans(stripped)}
        rest = rest.select(list(typed))
    found.update(typed)
    texts = frame.drop(list(found))
    found.update({column.name: column for column in texts.with_columns(_strip_missing(texts)).get_columns()})
    return frame.with_columns(list(found.values()))


def _with_point(frame: pl.DataFrame, decimal: str) -> pl.DataFrame:
    """Replace decimal commas by points. Columns with points are left out: there they could only separate thousands."""
    import polars as pl

    if decimal == "." or not frame.width:
        return frame
    points = frame.select(pl.all().str.contains(".", literal=True).any()).row(0)
    names = [name for name, point in zip(frame.columns, points, strict=True) if not point]
    return frame.select(pl.col(names).str.replace_all(",", ".", literal=True))


def _parse_numbers(text: pl.DataFrame) -> dict[str, pl.Series]:
    """Return the columns that are numbers."""
    import polars as pl

    integers = _parse_as(text, pl.Int64())
    floats = _parse_as(text.drop(list(integers)), pl.Float64())
    fractions = pl.DataFrame(list(floats.values())).select((pl.all() != pl.all().floor()).any()).rows()
    whole = [name for name, fraction in zip(floats, fractions[0] if fractions else (), strict=True) if not fraction]
    beyond = _none(text.select(whole), _NOT_INTEGER)  # only integers, beyond 64 bits
    found = {name: column for name, column in {**integers, **floats}.items() if name not in beyond}
    usual = _none(text.select(list(found)), _ZEROS)
    return {name: column for name, column in found.items() if name in usual}


def _parse_as(text: pl.DataFrame, kind: pl.DataType) -> dict[str, pl.Series]:
    import polars as pl

    parsed = text.select(pl.all().cast(kind, strict=False))
    counts = zip(text.get_columns(), parsed.get_columns(), strict=True)
    return {column.name: column for cells, column in counts if cells.null_count() == column.null_count()}


def _parse_booleans(text: pl.DataFrame) -> dict[str, pl.Series]:
    import polars as pl

    words = text.select(pl.all().str.to_lowercase())
    valid = words.select(pl.all().is_in(["true", "false"]).all()).row(0) if words.width else ()
    return {word.name: word == "true" for word, fits in zip(words.get_columns(), valid, strict=True) if fits}


def _none(text: pl.DataFrame, pattern: str) -> set[str]:
    """Return the names of the columns in which no cell contains the pattern."""
    import polars as pl

    found = text.select(pl.all().str.contains(pattern).any()).row(0) if text.width else ()
    return {name for name, any_ in zip(text.columns, found, strict=True) if not any_}


def _strip(text: pl.DataFrame) -> pl.DataFrame:
    """Remove whitespace around the cells, and set words for missing values to null."""
    import polars as pl

    stripped = text.select(pl.all().str.strip_chars())
    return stripped.with_columns(_strip_missing(stripped))


def _strip_missing(text: pl.DataFrame) -> list[pl.Expr]:
    """Return expressions that set words for missing values to null, also with whitespace around them."""
    import polars as pl

    missing = pl.all().str.strip_chars().is_in(MISSING)
    found = text.select(missing.any()).row(0) if text.width else ()
    names = [name for name, any_ in zip(text.columns, found, strict=True) if any_]
    return [pl.when(~pl.col(name).str.strip_chars().is_in(MISSING)).then(pl.col(name)).alias(name) for name in names]


def has_decimal_comma(column: pl.Series, ambiguous: bool) -> bool:
    """Return whether a text column holds numbers with a decimal comma; with `ambiguous`, 1,234 counts as one."""
    values = column.drop_nulls()
    if not values.str.contains(",", literal=True).any():
        return False
    if values.str.contains(_DECIMAL_COMMA).all():
        return ambiguous or not values.str.contains(_GROUPED["."][0][1]).all()
    return any(
        bool(values.str.contains(pattern).all()) and bool(values.str.contains(separator).any())
        for separator, pattern in _GROUPED[","]
    )


def _has_unit(values: pl.Series, unit: str) -> bool:
    """Return whether every value starts or ends with a currency sign or a percent sign, the same for all."""
    return bool((values.str.starts_with(unit) | values.str.ends_with(unit)).all())


def parse_other(column: pl.Series, decimal: str) -> TypedColumn:
    """Convert text to numbers if all cells fit with a unit or thousands separators, or to times; or return the text."""
    import polars as pl

    if column.dtype != pl.String:
        return TypedColumn(column)
    values = column.drop_nulls().str.strip_chars()
    if len(values) and (unit := _UNIT.search(values[0])) and _has_unit(values, unit[0]):
        bare = column.str.strip_chars().str.replace(unit[0], "", literal=True)
        numbers = parse_other(parse_plain(bare.to_frame(), decimal).to_series(), decimal).column
        if numbers.dtype.is_numeric():
            return TypedColumn(numbers, f"column {format_value(column.name)} holds numbers with {unit[0]}")
    for separator, pattern in _GROUPED[decimal]:
        if len(values) and values.head(HEAD).str.contains(pattern).all() and values.str.contains(pattern).all():
            text = column.str.strip_chars().str.replace_all(separator, "").to_frame()
            parsed = _parse_numbers(_with_point(text, decimal))
            if parsed and values.str.contains(separator).any():
                return TypedColumn(parsed[column.name], f"column {format_value(column.name)} has thousands separators")
    stripped = column.str.strip_chars()
    distinct = stripped.drop_nulls().unique().sort()
    times = parse_times(distinct.to_list()) if len(distinct) else None
    if times is None:
        return TypedColumn(column)
    found = stripped.replace_strict(distinct, pl.Series(times.values), default=None)
    note = f"column {format_value(column.name)}: {times.note}" if times.note else ""
    return TypedColumn(found.alias(column.name), note)
