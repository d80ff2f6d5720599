"""Tables cut into blocks of whole streams, so that data larger than memory can be tested."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Integers

IN_MEMORY = 2**30  # bytes; unsorted data beyond is divided by its keys, what is not in memory into files
PARTS = 32  # into this many
DIVISIONS = 3  # how often a part that is still too large is divided again
BLOCK = 2**20  # rows of sorted data that are tested together, at least
BATCH = 2**18  # rows that are divided at a time

Done = Callable[[int], None]


class Block(NamedTuple):
    """A table of whole streams, and the position of its rows in the data: of the first one, or of each."""

    table: Any
    first_row: Integers | int


def sorted_blocks(tables: Iterator[Any], key: str) -> Iterator[Block]:
    """Yield blocks of tables that are sorted by key; the last stream of a block waits for the next one. O(rows)."""
    import pyarrow as pa

    waiting: list[Any] = []
    first = rows = stop = (
        0  # the position of the first row that waits, their number, and where their last stream starts
    )
    for table in tables:
        if not len(table):
            continue
        last = _last_start(table[key])
        if last or not rows or table[key][0] != waiting[-1][key][-1]:
            stop = rows + last
        waiting.append(table)
        rows += len(table)
        if rows >= BLOCK and stop:
            whole = pa.concat_tables(waiting)
            yield Block(whole.slice(0, stop), first)
            waiting, first, rows, stop = [whole.slice(stop)], first + stop, rows - stop, 0
    if waiting:
        yield Block(pa.concat_tables(waiting), first)


def _last_start(column: Any) -> int:
    """Return where the last stream of a column starts."""
    from pyarrow import compute

    others = np.flatnonzero(compute.not_equal(column, column[len(column) - 1]).to_numpy())
    return int(others[-1]) + 1 if others.size else 0


def unsorted_blocks(tables: Iterator[Any], key: str, *, in_memory: bool, done: Done) -> Iterator[Block]:
    """Yield one block with all rows; beyond a gigabyte several, divided by a hash of the key.

    Data that is in memory stays there; other data is divided into temporary files, and ``done`` is called with the
    number of rows that have been written.
    """
    import pyarrow as pa

    waiting: list[Any] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size > IN_MEMORY and not in_memory:
            with tempfile.TemporaryDirectory(prefix="exchangeable-") as folder:
                yield from _divide(Path(folder), chain(waiting, _emptied(waiting), tables), key, done)
            return
    if not waiting:
        return
    whole = pa.concat_tables(waiting)
    if size <= IN_MEMORY:
        yield Block(whole, 0)
        return
    part = _parts(whole[key], 0)
    for i in range(PARTS):
        at = np.flatnonzero(part == i)
        if at.size:
            yield Block(whole.take(pa.array(at)), at)


def _emptied(tables: list[Any]) -> Iterator[Any]:
    """Forget tables that have been read."""
    tables.clear()
    yield from ()


def _divide(folder: Path, tables: Iterator[Any], key: str, done: Done) -> Iterator[Block]:
    """Write the rows to files, together with their positions, and yield the contents of each file."""
    first = np.cumsum([0])

    def numbered() -> Iterator[tuple[Any, Integers]]:
        for table in _batches(tables):
            yield table, np.arange(first[0], first[0] + len(table))
            first[0] += len(table)
            done(int(first[0]))

    yield from _divided(folder, numbered(), key, 0)


def _divided(folder: Path, tables: Iterator[tuple[Any, Integers]], key: str, depth: int) -> Iterator[Block]:
    paths = _write(folder, tables, key, depth)
    for path in paths:
        if path.stat().st_size > IN_MEMORY and depth + 1 < DIVISIONS and len(paths) > 1:
            inner = folder / f"{path.stem}-"
            inner.mkdir()
            yield from _divided(inner, _read(path), key, depth + 1)
        else:
            table, rows = _whole(path)
            yield Block(table, rows)
        path.unlink()


def _write(folder: Path, tables: Iterator[tuple[Any, Integers]], key: str, depth: int) -> list[Path]:
    """Divide tables into files; return those that have been written."""
    import pyarrow as pa

    written: dict[Path, Any] = {}
    with ExitStack() as stack:
        for table, rows in tables:
            for i, part in _division(table, rows, key, depth):
                path = folder / f"{i}.arrow"
                if path not in written:
                    written[path] = stack.enter_context(pa.ipc.new_file(path, part.schema))
                written[path].write_table(part)
    return list(written)


def _division(table: Any, rows: Integers, key: str, depth: int) -> Iterator[tuple[int, Any]]:
    """Divide a table by a hash of its keys; the positions of the rows become its last column."""
    import pyarrow as pa

    chosen = _parts(table[key], depth)
    name = max(table.column_names, key=len) + "_"  # which no column has
    ordered = table.append_column(name, pa.array(rows)).take(pa.array(np.argsort(chosen, kind="stable")))
    stops = np.cumsum(np.bincount(chosen, minlength=PARTS)).tolist()
    for i, (start, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True)):
        if start < stop:
            yield i, ordered.slice(start, stop - start)


def _parts(column: Any, depth: int) -> NDArray[np.int8]:
    """Return the part of each row: a hash of its key, the same for equal keys in all tables."""
    coded = column.combine_chunks().dictionary_encode()
    hashes = [zlib.crc32(str(name).encode()) for name in coded.dictionary.to_pylist()]
    parts = [value // PARTS**depth % PARTS for value in hashes]
    return np.asarray(np.array(parts, np.int8)[coded.indices.to_numpy()])


def _batches(tables: Iterator[Any]) -> Iterator[Any]:
    """Join small tables, since each is written in many parts."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += len(table)
        if rows >= BATCH:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _whole(path: Path) -> tuple[Any, Integers]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        return _undo(pa.ipc.open_file(file).read_all())


def _read(path: Path) -> Iterator[tuple[Any, Integers]]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for i in range(reader.num_record_batches):
            yield _undo(pa.Table.from_batches([reader.get_batch(i)]))


def _undo(table: Any) -> tuple[Any, Integers]:
    """Return the columns, and the positions of the rows, which are the last one."""
    *names, last = table.column_names
    return table.select(names), table[last].to_numpy()
