"""Open a file, decompress it and find its format.

Compressed files and standard input are copied to a temporary file first. Every reader then gets a seekable file, and
the size is limited before anything is parsed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from exchangeable._extras import needed
from exchangeable.data.errors import ColumnError, DataError, list_names
from exchangeable.validation import format_value, printable

BLOCK = 1 << 20
IN_MEMORY = 1 << 26  # larger copies are kept on disk
# Tables compress 3 to 30 times. Data that grows more than RATIO times, and to more than LARGE bytes, is rejected.
RATIO, LARGE = 100, 1 << 30

FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".data", ".dat"), "delimited"),
    ".parquet": "parquet",
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "arrow"),
    **dict.fromkeys((".jsonl", ".ndjson"), "json lines"),
    ".json": "json",
    ".npz": "npz",
    ".npy": "npy",
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "excel"),
}
COMPRESSED = (".gz", ".zip", ".zst", ".bz2", ".xz")
_STARTS = {  # the first bytes of each format
    "gzip": rb"\x1f\x8b\x08",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "xz": rb"\xfd7zXZ\0",
    "zip": rb"PK\x03\x04|PK\x05\x06",
    "parquet": rb"PAR1",
    "arrow": rb"ARROW1|\xff{4}..\0\0",
    "npy": rb"\x93NUMPY",
    "excel": rb"\xd0\xcf\x11\xe0",
    "json": rb"(?:\xef\xbb\xbf)?\s*[\[{]",
}


class OpenFile(NamedTuple):
    """A decompressed file: its seekable content, its suffix, format and size in bytes, and notes."""

    content: IO[bytes]
    suffix: str  # such as ".csv"; empty if it is not one of `FORMATS`
    format: str
    size: int
    notes: tuple[str, ...] = ()


def source_name(source: Any) -> str:
    """Return the name of a file for messages.

    >>> source_name("data/pets.csv"), source_name("-")
    ('pets.csv', 'standard input')
    """
    if hasattr(source, "read"):
        source = getattr(source, "name", None)
        return printable(Path(source).name) if isinstance(source, str) and source else "the file"
    if not isinstance(source, (str, bytes, os.PathLike)):
        allowed = "a path, '-' for standard input, or an open file"
        raise TypeError(f"the source must be {allowed}, got {format_value(source)}")
    path = os.fsdecode(source)
    return "standard input" if path == "-" else printable(Path(path).name or path)


@contextmanager
def open_source(source: Any) -> Iterator[OpenFile]:
    """Open a path, ``-`` for standard input, or a file object (binary or text), and decompress it."""
    with ExitStack() as stack:
        content, path = _open(source, stack)
        stored, notes = content.seek(0, os.SEEK_END), []
        for _ in range(3):  # for example a compressed file in a ZIP archive
            kind = _kind(content)
            if kind == "zip" and (FORMATS.get(path.suffix.lower()) in ("excel", "npz") or _zip_format(content)):
                break
            if kind not in ("gzip", "zstd", "bzip2", "xz", "zip"):
                break
            with damaged(f"the {kind} data is truncated, damaged or encrypted"):
                content, path, note = _decompress(content, stored, kind, path, stack)
            notes += note
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        if size == 0:
            raise DataError("the file is empty")
        path = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
        suffix = path.suffix.lower() if path.suffix.lower() in FORMATS else ""
        kind = FORMATS.get(suffix)
        if kind in (None, "delimited"):  # the content of other formats is unmistakable, whatever the suffix
            kind = found if (found := _find_format(content)) != "json" or kind is None else kind
        yield OpenFile(content, suffix, kind, size, tuple(notes))


def copy_limited(source: IO[bytes], compressed: int, stack: ExitStack) -> IO[bytes]:
    """Copy to a temporary file; raise DataError beyond LARGE bytes and RATIO times the compressed size."""
    copy = stack.enter_context(_temporary())
    limit, size = max(LARGE, RATIO * compressed), 0
    while block := source.read(BLOCK):
        size += len(block)
        if size > limit:
            raise DataError(
                f"the decompressed data is larger than {LARGE >> 20:,} MiB and more than {RATIO} times as large as the "
                "file; if you trust the file, decompress it first"
            )
        copy.write(block)
    return copy


@contextmanager
def damaged(message: str) -> Iterator[None]:
    """Turn any error that a library raises for damaged data into a DataError.

    Libraries raise many types of errors, and the panics of Polars are not subclasses of Exception.
    """
    try:
        yield
    except BaseException as error:
        ours = type(error).__module__.startswith("exchangeable")
        of_system = isinstance(error, (ImportError, MemoryError, KeyboardInterrupt, SystemExit))
        if ours or of_system or getattr(error, "errno", None) is not None:  # errno: an I/O error
            raise
        raise DataError(message) from None


def _temporary() -> IO[bytes]:
    return cast(IO[bytes], tempfile.SpooledTemporaryFile(IN_MEMORY))


def _open(source: Any, stack: ExitStack) -> tuple[IO[bytes], Path]:
    """Open the source as a seekable binary file; return the file and its path."""
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        return _copy(source, stack), Path(name if isinstance(name, str) else "")
    path = Path(os.fsdecode(source))
    if str(path) == "-":
        if sys.stdin is None:
            raise DataError("it is closed; give the name of a file")
        return _copy(sys.stdin.buffer, stack), Path()
    _check_path(os.fsdecode(source))
    return stack.enter_context(path.open("rb")), path


def _check_path(path: str) -> None:
    if "\0" in path:
        raise ColumnError("the path contains a NUL character")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        raise ColumnError("only local files can be read; download the file first")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise DataError(
            "the path must be a regular file, got a directory, a device or a pipe; use - for standard input"
        )


def _copy(source: Any, stack: ExitStack) -> IO[bytes]:
    """Copy the rest of an open file, which may be a pipe or a text file."""
    copy = stack.enter_context(_temporary())
    while block := source.read(BLOCK):
        copy.write(block.encode("utf-8", "surrogatepass") if isinstance(block, str) else block)
    return copy


def _kind(content: IO[bytes]) -> str | None:
    content.seek(0)
    start = content.read(64)
    content.seek(0)
    return next((kind for kind, pattern in _STARTS.items() if re.match(pattern, start, re.DOTALL)), None)


def _find_format(content: IO[bytes]) -> str:
    """Return the format of a file with an unknown suffix."""
    kind = _kind(content)
    return "delimited" if kind is None else (_zip_format(content) or "zip") if kind == "zip" else kind


def _zip_format(content: IO[bytes]) -> str | None:
    """Return "excel" or "npz" if a ZIP archive is one, otherwise None."""
    with damaged("the zip data is truncated or damaged"):
        names = zipfile.ZipFile(content).namelist()
    if "[Content_Types].xml" in names or "content.xml" in names:
        return "excel"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def _decompress(
    content: IO[bytes], stored: int, kind: str, path: Path, stack: ExitStack
) -> tuple[IO[bytes], Path, list[str]]:
    """Return the decompressed content, the path without the suffix of the compression, and notes.

    `stored` is the size of the file itself: archives in archives must not multiply what is allowed.
    """
    content.seek(0)
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    if kind != "zip":
        return copy_limited(_decompressor(kind, content), stored, stack), inner, []
    archive = stack.enter_context(zipfile.ZipFile(content))
    member, notes = _choose_member(archive.namelist())
    named = Path(member).suffix.lower() in (*FORMATS, *COMPRESSED)
    with archive.open(member) as file:
        return copy_limited(file, stored, stack), Path(member) if named else inner, notes


def _decompressor(kind: str, content: IO[bytes]) -> IO[bytes]:
    if kind == "zstd":
        with needed("files", ".zst files"):
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
        return cast(IO[bytes], zstd.ZstdFile(content))
    opened: Any = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}[kind]
    return cast(IO[bytes], opened(content, "rb"))


def _choose_member(names: list[str]) -> tuple[str, list[str]]:
    """Return the one data file of a ZIP archive, and a note if there are other files."""
    files = [name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/")]
    tables = [name for name in files if Path(name).suffix.lower() in (*FORMATS, *COMPRESSED)]
    chosen = tables if len(files) > 1 else files
    if len(chosen) != 1:
        listed = f" ({list_names(chosen or files)})" if files else ""
        raise DataError(f"a ZIP archive must hold one table, got {len(chosen)}{listed}; extract the file to be read")
    return chosen[0], [f"read {format_value(chosen[0])}, one of {len(files)} files in the archive"] * (len(files) > 1)
