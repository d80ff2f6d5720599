"""Types of columns that are written as text.

A column has a type only if every cell that is not missing fits it, over the whole column: the type never depends on
the order of the rows. Otherwise it stays text, exactly as written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from exchangeable.data.times import parse_times
from exchangeable.validation import format_value

if TYPE_CHECKING:
    import polars as pl

# the words of pandas.read_csv
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
)
HEAD = 64  # cells that are tried first: most text is recognised by them
_ZEROS = r"^[+-]?0[0-9]"  # 007 is a code, not a number
_NOT_INTEGER = r"[.eEnN]"  # neither is inf or nan
_SPACES = "[ \u00a0\u202f]"  # also the spaces that do not break
_GROUPED = {  # thousands separators, by decimal mark
    ".": ((",", r"^[+-]?\d{1,3}(,\d{3})*(\.\d*)?$"), (_SPACES, rf"^[+-]?\d{{1,3}}({_SPACES}\d{{3}})*(\.\d*)?$")),
    ",": ((r"\.", r"^[+-]?\d{1,3}(\.\d{3})*(,\d*)?$"), (_SPACES, rf"^[+-]?\d{{1,3}}({_SPACES}\d{{3}})*(,\d*)?$")),
}
_DECIMAL_COMMA = r"^\s*[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?\s*$"


class TypedColumn(NamedTuple):
    """A column, and a note if its type is not obvious."""

    column: pl.Series
    note: str = ""


def parse_plain(column: pl.Series, decimal: str = ".") -> pl.Series:
    """Convert text to Int64, Float64 or Boolean if every cell that is not missing fits; otherwise return the text.

    Integers with leading zeros, and integers beyond 64 bits, stay text. Numbers are rounded correctly. O(n).

    >>> import polars as pl
    >>> parse_plain(pl.Series([" 1", None, "2.5"])).to_list(), parse_plain(pl.Series(["1", "x"])).to_list()
    ([1.0, None, 2.5], ['1', 'x'])
    """
    if column.len() > 2 * HEAD and _parse(column.drop_nulls().head(HEAD), decimal) is None:
        return _strip_missing(column)
    parsed = _parse(column, decimal)
    return _strip_missing(column) if parsed is None else parsed


def _parse(column: pl.Series, decimal: str) -> pl.Series | None:
    import polars as pl

    if decimal == ",":
        if column.str.contains(".", literal=True).any():
            return None  # a point separates thousands, at best
        column = column.str.replace_all(",", ".", literal=True)
    for text in (column, _blank_missing(column.str.strip_chars())):
        for kind in (pl.Int64, pl.Float64):
            parsed = text.cast(kind, strict=False)
            if parsed.null_count() == text.null_count():
                return parsed if _is_number(text, parsed) else None
    words = text.str.to_lowercase()
    return words == "true" if words.is_in(["true", "false"]).all() else None


def _is_number(text: pl.Series, parsed: pl.Series) -> bool:
    """Return whether text that can be parsed as numbers is not rather codes, or integers beyond 64 bits."""
    import polars as pl

    if text.str.contains(_ZEROS).any():
        return False
    return parsed.dtype == pl.Int64 or bool(text.str.contains(_NOT_INTEGER).any())


def _blank_missing(text: pl.Series) -> pl.Series:
    """Set the words for missing values to null, in text without spaces around it."""
    import polars as pl

    missing = text.is_in(MISSING)
    return text.to_frame().select(pl.when(~missing).then(pl.first())).to_series() if missing.any() else text


def _strip_missing(column: pl.Series) -> pl.Series:
    """Set the words for missing values to null, also with spaces around them; leave other text as it is."""
    import polars as pl

    missing = column.str.strip_chars().is_in(MISSING)
    return column.to_frame().select(pl.when(~missing).then(pl.first())).to_series() if missing.any() else column


def has_decimal_comma(column: pl.Series, ambiguous: bool) -> bool:
    """Return whether a text column holds numbers with a decimal comma; `ambiguous`: 1,234 counts as one."""
    values = column.drop_nulls()
    if not values.str.contains(",", literal=True).any():
        return False
    if values.str.contains(_DECIMAL_COMMA).all():
        return ambiguous or not values.str.contains(_GROUPED["."][0][1]).all()
    return bool(values.str.contains(_GROUPED[","][0][1]).all()) and bool(values.str.contains(".", literal=True).any())


def parse_other(column: pl.Series, decimal: str) -> TypedColumn:
    """Convert text to numbers if all of them fit with thousands separators, or to times; otherwise return the text."""
    import polars as pl

    if column.dtype != pl.String:
        return TypedColumn(column)
    values = column.drop_nulls().str.strip_chars()
    for separator, pattern in _GROUPED[decimal]:
        if len(values) and values.head(HEAD).str.contains(pattern).all() and values.str.contains(pattern).all():
            text = column.str.strip_chars().str.replace_all(separator, "")
            parsed = _parse(text, decimal)
            if parsed is not None and (values.str.contains(separator).any()):
                return TypedColumn(parsed, f"column {format_value(column.name)} has thousands separators")
    stripped = column.str.strip_chars()
    distinct = stripped.drop_nulls().unique().sort()
    times = parse_times(distinct.to_list()) if len(distinct) else None
    if times is None:
        return TypedColumn(column)
    found = stripped.replace_strict(distinct, pl.Series(times.values), default=None)
    note = f"column {format_value(column.name)}: {times.note}" if times.note else ""
    return TypedColumn(found.alias(column.name), note)
