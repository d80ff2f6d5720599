"""The reference of a stream of rows: parsing, storing and reading it."""

from __future__ import annotations

import io
import sqlite3
from typing import Any

import msgspec

from exchangeable._extras import needed
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Limits

NDJSON, PARQUET, CSV = "application/x-ndjson", "application/vnd.apache.parquet", "text/csv"
PART_BYTES = 64 << 20  # bytes in one row of the table
Cell = str | int | float | bool | None
_ROWS = msgspec.json.Decoder(dict[str, Cell])


def parse_reference(body: bytes, media: str, limits: Limits) -> Any:
    """Return the rows of a reference: a list of mappings, or a frame from Parquet or CSV.

    >>> parse_reference(b'{"a": 1}\\n{"a": 2}', NDJSON, Limits())
    [{'a': 1}, {'a': 2}]
    """
    readers = {PARQUET: _read_parquet, CSV: _read_csv}
    return readers.get(media, _read_ndjson)(body, limits)


def _read_ndjson(body: bytes, limits: Limits) -> list[dict[str, Cell]]:
    if body.count(b"\n") > 2 * limits.reference:
        raise _too_large("rows", limits.reference, body.count(b"\n"))
    rows: list[dict[str, Cell]] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = _ROWS.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            rule = "must be a JSON object of numbers, strings, booleans and nulls"
            raise Problem(422, "bad-reference", f"line {number} of the reference {rule}: {error}") from None
        _check_row(row, number, limits)
        rows.append(row)
    _check_size(len(rows), max(map(len, rows), default=0), limits)
    return rows


def _check_row(row: dict[str, Cell], number: int, limits: Limits) -> None:
    longest = max((len(text) for text in (*row, *row.values()) if isinstance(text, str)), default=0)
    if longest > limits.string:
        rule = f"strings must have at most {limits.string} characters in line {number} of the reference"
        raise Problem(422, "bad-reference", f"{rule}, got {longest}")


def _check_size(rows: int, columns: int, limits: Limits) -> None:
    if columns > limits.width:
        raise _too_large("columns", limits.width, columns)
    if rows > limits.reference:
        raise _too_large("rows", limits.reference, rows)
    if rows * columns > limits.reference_cells:
        raise _too_large("cells", limits.reference_cells, rows * columns)


def _too_large(what: str, most: int, got: int) -> Problem:
    return Problem(413, "too-large", f"a reference must have at most {most} {what}, got {got}")


def _read_parquet(body: bytes, limits: Limits) -> Any:
    """Read a Parquet file; its size and its types are checked before its values are read."""
    with needed("files", "a reference in Parquet"):
        import polars as pl

    try:
        schema = pl.read_parquet_schema(io.BytesIO(body))
        rows = pl.scan_parquet(io.BytesIO(body)).select(pl.len()).collect().item()
        _check_size(rows, len(schema), limits)
        for name, dtype in schema.items():
            if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
                message = (
                    f"columns of the reference must hold numbers, text, booleans or times, got {dtype} in {name!r:.80}"
                )
                raise Problem(422, "bad-reference", message)
        frame = pl.read_parquet(io.BytesIO(body))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Problem(422, "bad-reference", f"the reference must be a Parquet file: {str(error)[:200]}") from None
    return _with_short_texts(frame, limits)


def _read_csv(body: bytes, limits: Limits) -> Any:
    """Read CSV as `exchangeable.read` does, which detects its separator and its decimal point."""
    if body.count(b"\n") > 2 * limits.reference:
        raise _too_large("rows", limits.reference, body.count(b"\n"))

    def choose(names: list[str]) -> list[str]:
        _check_size(0, len(names), limits)  # before the columns are read
        return names

    with needed("files", "a reference in CSV"):
        from exchangeable.data.delimited import Options, read_delimited
        from exchangeable.data.opening import OpenFile

        file = OpenFile(io.BytesIO(body), ".csv", "delimited", len(body))
        frame, _ = read_delimited(file, choose, Options(header=True), lambda done: None)
    _check_size(frame.height, frame.width, limits)
    return _with_short_texts(frame, limits)


def _with_short_texts(frame: Any, limits: Limits) -> Any:
    """Return a frame, or raise if a text in it is too long."""
    import polars as pl

    texts = frame.select(pl.col(pl.String).str.len_chars().max())
    longest = max((value for row in texts.rows() for value in row if value is not None), default=0)
    if longest > limits.string:
        message = f"strings of the reference must have at most {limits.string} characters, got {longest}"
        raise Problem(422, "bad-reference", message)
    return frame


# ------------------------------------------------------------------ the table ``reference``


def read_reference(connection: sqlite3.Connection, stream: int) -> tuple[str, bytes] | None:
    """Return the media type and the body of the reference of a stream; None if it has none."""
    rows = connection.execute("SELECT media, data FROM reference WHERE stream = ? ORDER BY part", (stream,)).fetchall()
    return (rows[0][0], b"".join(data for _, data in rows)) if rows else None


def store_reference(connection: sqlite3.Connection, stream: int, media: str, body: bytes) -> None:
    """Store the reference of a stream."""
    connection.executemany(
        "INSERT INTO main.reference (stream, part, media, data) VALUES (?, ?, ?, ?)",
        [
            (stream, part, media, body[start : start + PART_BYTES])
            for part, start in enumerate(range(0, len(body), PART_BYTES))
        ],
    )
