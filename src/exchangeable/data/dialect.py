"""Detect the delimiter, quotation mark and header of a delimited text file from the start of its text."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from exchangeable.data.errors import DataError
from exchangeable.data.text_columns import MISSING

ROWS = 200  # rows from which the dialect is detected
ONE_COLUMN = "\x1f"  # the delimiter of a file with one column: a character that text does not contain
DELIMITERS = {",": "','", "\t": "tab", ";": "';'", "|": "'|'"}
_PREFERRED = {".tsv": "\t", ".tab": "\t"}
_STATED = re.compile(r'"?sep=([,;|\t])"?[,;|\t]*\n(?=.*\n)')  # a first line for Excel, which names the delimiter
_DECIMAL_LINE = re.compile(r"\s*[+-]?[0-9]*,?[0-9]+\s*")  # one number, perhaps with a decimal comma
_VALUE = re.compile(  # a value rather than a name: a number in any notation, a date or a boolean
    r"[+-]?([0-9]+([., \u00a0\u202f][0-9]+)*[.,]?|[.,][0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?|true|false"
    r"|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([t ].*)?",
    re.IGNORECASE,
)


class Dialect(NamedTuple):
    """The format of a delimited file."""

    names: list[str]
    delimiter: str
    quote: str = '"'
    header: bool = True
    blanks: bool = False  # whether spaces before a field are skipped
    above: int = 0  # lines above the table, which are skipped


def find_dialect(sample: str, suffix: str, delimiter: str | None = None, header: bool | None = None) -> Dialect:
    """Detect the dialect of a sample of complete rows; `delimiter` and `header` are not detected if they are given.

    >>> find_dialect("a;b\\n1,5;2\\n", ".csv")
    Dialect(names=['a', 'b'], delimiter=';', quote='"', header=True, blanks=False, above=0)
    """
    quote = "'" if '"' not in sample and _single_quoted(sample) else '"'
    stated = _STATED.match(sample)
    delimiter = delimiter or (stated[1] if stated else _find_delimiter(sample, suffix, quote))
    blanks = delimiter == " " or f"{delimiter} {quote}" in sample
    rows = sample_rows(sample, delimiter, quote, blanks)
    if not rows:
        raise DataError("the file is empty")
    above = 1 if stated else _lines_above(rows) if header is None else 0
    first, below = rows[above], rows[above + 1 :]
    header = _has_header(first, below) if header is None else header
    names = [name.strip() for name in _complete_names(first, below)] if header else _numbered(len(first))
    return Dialect(names, delimiter, quote, header, blanks, above)


def _numbered(width: int) -> list[str]:
    return [str(i + 1) for i in range(width)]


def csv_line(line: str, delimiter: str) -> str:
    """Return a line for `csv.reader`. If the delimiter is a space, spaces around the line are removed."""
    line = line.replace("\r", " ")  # which `csv.reader` takes for the end of a line
    return (line.replace("\t", " ").strip() if delimiter == " " else line) + "\n"


def sample_rows(sample: str, delimiter: str, quote: str, blanks: bool) -> list[list[str]]:
    """Return the first rows, without blank lines, up to the first one that cannot be parsed."""
    lines = (csv_line(line, delimiter) for line in sample.split("\n"))
    rows = csv.reader(lines, delimiter=delimiter, quotechar=quote, skipinitialspace=blanks)
    found: list[list[str]] = []
    try:
        for row in islice(rows, ROWS):
            if len(row) > 1 or (row and row[0].strip()):
                found.append(row)
    except csv.Error:  # for example a very long field
        pass
    return found


def _single_quoted(sample: str) -> bool:
    """Return whether single quotation marks enclose whole fields, and do not occur within words."""
    if re.match(r"\s*'[^'\n]*'( +'[^'\n]*')+ *(\n|$)", sample):  # a header with blanks between the names
        return True
    edge = f"[{''.join(DELIMITERS)}\n]"
    return bool(re.search(f"(?:^|{edge})'[^'\n]*'(?={edge}|$)", sample)) and not re.search(r"\w'\w", sample)


def _find_delimiter(sample: str, suffix: str, quote: str) -> str:
    """Return the delimiter with which most rows have the same number of fields.

    Ties are resolved by the header, then by the share of fields that are values, then by the suffix of the file.
    """
    if _is_decimal_column(sample):
        return ONE_COLUMN
    preferred = _PREFERRED.get(suffix, ",")
    scores = {}
    for delimiter in DELIMITERS:
        rows = sample_rows(sample, delimiter, quote, f"{delimiter} {quote}" in sample)
        width, share = _usual_width(rows)
        if width > 1 and share >= 0.5:
            scores[delimiter] = (share, len(rows[0]) == width, _values(rows), delimiter == preferred)
    if scores:
        return max(scores, key=lambda delimiter: scores[delimiter])
    rows = sample_rows(sample, " ", quote, True)
    width, share = _usual_width(rows)
    if width > 1 and share == 1 and _values(rows) >= 0.5:
        return " "
    first = sample.lstrip("\n").split("\n", 1)[0]
    split = [len(row) > 1 for row in sample_rows(sample, preferred, quote, False)]  # rows of different lengths
    used = preferred in first or 2 * sum(split) > len(split)
    return preferred if used and suffix in ("", ".csv", *_PREFERRED) else ONE_COLUMN


def _is_decimal_column(sample: str) -> bool:
    """Return whether a name without a comma is above numbers with decimal commas: 0,5 is then not two fields."""
    lines = [*islice((line for line in sample.split("\n") if line.strip()), ROWS)]
    name, lines = "".join(lines[:1]), lines[1:]
    return "," not in name and any("," in line for line in lines) and all(map(_DECIMAL_LINE.fullmatch, lines))


def _usual_width(rows: list[list[str]]) -> tuple[int, float]:
    """Return the most frequent number of fields of the rows below the first one, and its share."""
    counts = Counter(map(len, rows[1:] or rows))
    width, count = counts.most_common(1)[0] if counts else (0, 0)
    return width, count / max(1, counts.total())


def _values(rows: list[list[str]]) -> float:
    cells = [cell for row in rows[1:] or rows for cell in row]
    return sum(map(_is_value, cells)) / max(1, len(cells))


def _is_value(cell: str) -> bool:
    return _VALUE.fullmatch(cell.strip()) is not None


def _has_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row holds names. A first row of distinct texts is always a header."""
    if _names_above_values(first, below) or _has_index(first, below):
        return True
    if any(map(_is_value, first)):
        return _is_numbered(first, below)
    names = [name for name in first if name.strip()]
    return len(set(names)) == len(names)


def _names_above_values(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a column holds a name in the first row, and only values below."""
    for i, name in enumerate(first):
        cells = [row[i] for row in below if i < len(row) and row[i].strip() not in MISSING]
        if cells and name.strip() not in MISSING and not _is_value(name) and all(map(_is_value, cells)):
            return True
    return False


def _has_index(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether only the first name is empty, and every cell below it is filled: a saved index."""
    return len(first) > 1 and not first[0].strip() and all(first[1:]) and bool(below) and all(row[0] for row in below)


def _is_numbered(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether the values in the first row are 0, 1, 2, ... as pandas numbers columns, or years."""
    numbers = [int(cell) for cell in first if re.fullmatch(r" *[0-9]{1,9} *", cell)]
    if len(numbers) < 2 or len(numbers) < sum(map(_is_value, first)):
        return False
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] in (0, 1):
        return len(numbers) > 2 or any("." in cell for row in below for cell in row)
    cells = [row[i] for row in below for i, name in enumerate(first[: len(row)]) if _is_value(name)]
    return numbers == sorted({*numbers}) and _is_year(first) and not all(_is_year([cell]) for cell in cells)


def _is_year(cells: Sequence[str]) -> bool:
    """Return whether all values among the cells are years."""
    return all(re.fullmatch(r" *(1[89]|2[01])[0-9]{2} *", cell) for cell in cells if _is_value(cell))


def _lines_above(rows: Sequence[list[str]]) -> int:
    """Return the number of lines above the table: they have a different number of fields from all rows below."""
    width = Counter(map(len, rows)).most_common(1)[0][0]
    above = next(i for i, row in enumerate(rows) if len(row) == width)
    regular = width > 1 and len(rows) > above + 1 and all(len(row) == width for row in rows[above:])
    return above if regular and not (above == 1 and len(_complete_names(rows[0], rows[1:])) == width) else 0


def _complete_names(first: list[str], below: Sequence[Sequence[str]]) -> list[str]:
    """Return one name for each field of the rows, also if the header has one field more or less than all rows below.

    That is the case if only the header, or only the rows below, end with a delimiter; or if R wrote the table, which
    leaves out the name of the row names.
    """
    if below and not first[-1].strip() and all(len(row) == len(first) - 1 for row in below):
        return first[:-1]
    if not below or any(len(row) != len(first) + 1 for row in below):
        return first
    if not any(row[-1].strip() for row in below):
        return [*first, ""]
    by_r = len(first) > 1 < len(below) and not _names_above_values(below[0], below[1:])
    return ["", *first] if by_r else first
