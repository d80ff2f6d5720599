"""Data of any kind as Arrow tables: frames, files, folders of Parquet files, batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from exchangeable._extras import needed
from exchangeable.data.delimited import check_distinct
from exchangeable.data.errors import UNNAMED, ColumnError, DataError, check_known, naming
from exchangeable.data.opening import COMPRESSED, FORMATS, damaged, source_name
from exchangeable.validation import format_value

BATCH = 2**18  # rows that are read at a time


class Wanted(NamedTuple):
    """The columns that a call names. ``features`` None stands for all others."""

    key: str
    order: str | None
    features: tuple[str, ...] | None
    label: str | None

    def check(self) -> Wanted:
        """Check that there is a key, and that no column has two uses."""
        if self.key is None:
            raise ColumnError("key must name the column that holds the stream of each row, got None")
        names = [name for name in (self.key, self.order, self.label, *(self.features or ())) if name is not None]
        for name in names:
            if not isinstance(name, str):
                raise ColumnError(f"key, order, features and label must be names of columns, got {format_value(name)}")
            if names.count(name) > 1:
                raise ColumnError(f"column {format_value(name)} must have one use only, got it twice")
        return self

    def choose(self, names: Sequence[str], also: Set[str] = frozenset()) -> Wanted:
        """Check that the columns exist, and find the features; ``also`` are columns that were not read."""
        check_distinct(names)
        for option, name in (("key", self.key), ("order", self.order), ("label", self.label)):
            check_known(option, [] if name is None else [name], names, also)
        others = tuple(name for name in names if name not in (self.key, self.order, self.label))
        features = others if self.features is None else self.features
        check_known("features", features, names, also)
        if not features:
            raise ColumnError("features must name at least one column, got none besides key, order and label")
        return self._replace(features=features)

    @property
    def names(self) -> list[str]:
        """All columns, once the features are known."""
        return [name for name in (self.key, self.order, self.label, *(self.features or ())) if name is not None]


class Part(NamedTuple):
    """A table of some rows, and its name for messages."""

    table: Any
    name: str = UNNAMED


class Source(NamedTuple):
    """Tables with the wanted columns, in the order of the rows, and the library of the result."""

    wanted: Wanted
    read: Callable[[Sequence[str]], Iterator[Part]]  # these columns
    library: str
    rows: int | None = None  # how many there are, if that is known
    in_memory: bool = False  # one table, which is in memory already
    again: bool = True  # whether the data can be read more than once


def open_source(data: Any, wanted: Wanted) -> Source:
    """Open data for reading; the columns are checked here."""
    with needed("arrow", "many streams at once"):
        import pyarrow as pa

    if isinstance(data, (str, os.PathLike)):
        return _path(data, wanted)
    if hasattr(data, "read") and not isinstance(data, pa.RecordBatchReader):
        return _contents(data, wanted)
    if hasattr(data, "frame") and hasattr(data, "unused"):  # contents of a file
        return _frame(data.frame, wanted, data.unused)
    if isinstance(data, Mapping):
        with _one_type():
            data = pa.table(dict(data))
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, (pa.RecordBatchReader, Iterator)) or (isinstance(data, (list, tuple)) and data):
        return _batches(iter(data), wanted, "pyarrow")
    return _frame(data, wanted)


# ------------------------------------------------------------------ frames and batches


def _frame(data: Any, wanted: Wanted, unused: Set[str] = frozenset()) -> Source:
    import narwhals as nw

    if type(data).__module__.startswith("pandas"):
        check_distinct([str(name) for name in getattr(data, "columns", ())])
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        return _lazy(frame, wanted)
    if not isinstance(frame, nw.DataFrame):
        allowed = "a frame, a file, a folder of Parquet files or an iterator of Arrow batches"
        raise DataError(f"data must be {allowed}, got {format_value(data)}")
    chosen = wanted.choose([str(name) for name in frame.columns], unused)
    with _one_type():
        table: Any = frame.select(chosen.names).to_arrow()
    library = str(frame.implementation).lower()
    return Source(chosen, lambda names: iter([Part(table.select(names))]), library, table.num_rows, in_memory=True)


@contextmanager
def _one_type() -> Iterator[None]:
    """Turn the errors of Arrow into one sentence."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, TypeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"data must have columns of one length and one type each, got: {reason}") from error


def _lazy(frame: Any, wanted: Wanted) -> Source:
    """Read a lazy frame of Polars in batches, and any other one whole."""
    import narwhals as nw

    native = frame.to_native()
    if frame.implementation != nw.Implementation.POLARS or not hasattr(native, "collect_batches"):
        return _frame(frame.collect().to_native(), wanted)
    chosen = wanted.choose(native.collect_schema().names())

    def read(names: Sequence[str]) -> Iterator[Part]:
        batches = native.select(list(names)).collect_batches(chunk_size=BATCH, maintain_order=True)
        return (Part(batch.to_arrow()) for batch in batches)

    return Source(chosen, read, "polars")


def _batches(batches: Iterator[Any], wanted: Wanted, library: str) -> Source:
    first = next(batches, None)
    if first is None:
        raise DataError("data must hold at least one batch, got none")
    chosen = wanted.choose(_as_table(first).column_names)

    def read(names: Sequence[str]) -> Iterator[Part]:
        yield Part(_as_table(first).select(names))
        for i, batch in enumerate(batches, 2):
            with naming(f"batch {i:,}"):
                table = _as_table(batch)
                chosen.choose(table.column_names)
            yield Part(table.select(names), f"batch {i:,}")

    return Source(chosen, read, library, again=False)


def _as_table(batch: Any) -> Any:
    import pyarrow as pa

    if not isinstance(batch, (pa.RecordBatch, pa.Table)):
        raise DataError(f"data must be an iterator of Arrow batches, got one of {format_value(batch)}")
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


# ------------------------------------------------------------------ files


def _path(path: str | os.PathLike[str], wanted: Wanted) -> Source:
    if not os.fspath(path):
        raise DataError("data must name a file or a folder, got ''")
    if Path(path).is_dir():
        files = _parquet_files(Path(path))
        _check_partitions(Path(path), files, wanted)
        return _parquet(files, wanted)
    if Path(path).suffix.lower() == ".parquet" and Path(path).is_file():
        return _parquet([Path(path)], wanted)
    return _contents(path, wanted)


def _contents(file: Any, wanted: Wanted) -> Source:
    from exchangeable.data.files import read_file

    contents = read_file(file, columns=None if wanted.features is None else wanted.names)
    return _frame(contents.frame, wanted, contents.unused)


def _parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, without those that Spark and others hide by their names."""
    found = [path for path in sorted(folder.glob("**/*")) if path.is_file()]
    shown = [path for path in found if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    files = [path for path in shown if path.suffix.lower() == ".parquet"]
    others = [path for path in shown if path.suffix.lower() in {*FORMATS, *COMPRESSED} - {".parquet"}]
    if not files or others:
        rule = f"{format_value(str(folder))} must hold Parquet files (.parquet) and no other data"
        raise DataError(f"{rule}, got {format_value(others[0].name) if others else 'none'}")
    return files


def _check_partitions(folder: Path, files: list[Path], wanted: Wanted) -> None:
    """Refuse a column that is written as names of folders, such as k=a, since the files do not hold it."""
    parts = [part for path in files for part in path.relative_to(folder).parts[:-1]]
    for part in sorted(part for part in parts if part.partition("=")[0] in wanted.names):
        rule = f"column {format_value(part.partition('=')[0])} must be in the files, got it in the name of a folder"
        advice = "polars.scan_parquet(folder, hive_partitioning=True) reads such folders"
        raise DataError(f"{rule}, {format_value(part)}: {advice}")


def _parquet(files: list[Path], wanted: Wanted) -> Source:
    with needed("arrow", "Parquet files"):
        from pyarrow import parquet

    rows, chosen = 0, wanted
    for path in files:
        with _reading(path):
            data = parquet.read_metadata(path)
            columns = data.schema.to_arrow_schema().names
        with naming(source_name(path)):
            chosen = chosen.choose(columns)
        rows += data.num_rows

    def read(names: Sequence[str]) -> Iterator[Part]:
        for path in files:
            for table in _parquet_tables(path, names):
                yield Part(table, source_name(path))

    return Source(chosen, read, "polars", rows)


def _parquet_tables(path: Path, names: Sequence[str]) -> Iterator[Any]:
    from pyarrow import parquet

    with _reading(path):
        file = parquet.ParquetFile(path)
    with file:
        batches = file.iter_batches(BATCH, columns=list(names))
        while True:
            with _reading(path):
                batch = next(batches, None)
                if batch is None:
                    return
                table = _as_table(batch)
            yield table


def _reading(path: Path) -> Any:
    reason = "it is truncated, damaged or in another format"
    return damaged(f"{source_name(path)}: the file cannot be read as Parquet: {reason}")
