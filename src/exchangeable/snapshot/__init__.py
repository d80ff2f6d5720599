"""States as plain data: save a monitor, a measure, a bet or an alarm, and go on later, elsewhere, bit for bit.

A snapshot is a ZIP archive in which nothing is compressed, so that ``unzip`` and ``numpy.load`` open it:

    state.json     {"format": "exchangeable snapshot", "version": 4, "package": .., "arrays": [["float64", [2, 3]], ..],
                    "state": ..}
    float64.npy    the arrays of this dtype in the order of the list, end to end (also float32, int64, int32, bool)

In ``state`` a number, text, true, false, null or list is itself; all else is an object that says what it is:

    {"array": 4}                                     the array number 4 of the list
    {"class": "bets.Power", "with": {"epsilon": 0.5}}
    {"tuple": [..]}  {"dict": [[key, value], ..]}  {"float": "-inf"}  {"int": "0x1f.."}  {"bytes": "00ff"}
    {"numpy": ["int64", 3]}

Equal states are equal bytes. A file is not trusted: there is no pickle and no code in it. Classes come from a table and
are built by their constructors; what they have learnt must have the dtypes and shapes, and obey the laws, that the
compiled loops rely on. Whether the numbers are those of any stream is not checked: whoever can write the file chooses
the capital.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from exchangeable.snapshot import archive
from exchangeable.snapshot.objects import PARTS, names
from exchangeable.snapshot.reading import Reader
from exchangeable.snapshot.writing import Writer
from exchangeable.validation import format_value

__all__ = ["decode", "encode", "load", "save"]


def encode(obj: Any) -> bytes:
    """The state of a monitor, martingale, measure, bet or alarm as bytes; equal states give equal bytes.

    Of `measures.Frozen` the score, a function or a model, is left out: bring it along when decoding. O(size of the
    state): half a millisecond and 90 kB for a monitor of 1,000 numbers with the adaptive bet.

    >>> from exchangeable import Martingale, bets
    >>> martingale = Martingale(bets.Power(0.5))
    >>> _ = martingale.extend([0.25, 0.01])
    >>> twin = decode(encode(martingale))
    >>> twin.update(0.04) == martingale.update(0.04)
    True
    """
    if names().get(type(obj), PARTS).startswith(PARTS):
        raise ValueError(f"obj must be a monitor, or a part of one, of exchangeable's own, got {format_value(obj)}")
    writer = Writer()
    state = writer.node(obj, "state")
    return archive.pack(state, writer.arrays)


def decode(data: bytes, *, score: Any = None) -> Any:
    """What was encoded; it continues bit for bit like the original. Anything else is refused with a ValueError.

    ``score`` is the function or model of a `measures.Frozen`, which is never saved. O(size of the state): a millisecond
    for the monitor of ``encode``.

    >>> decode(b"PK")
    Traceback (most recent call last):
    ...
    ValueError: data must be a complete, unchanged snapshot of exchangeable, got 2 bytes, damaged or of another format
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ValueError(f"data must be bytes, got {format_value(data)}")
    state, arrays = archive.unpack(bytes(data))
    reader = Reader(arrays, score)
    thing = reader.node(state, "state")
    if names().get(type(thing), PARTS).startswith(PARTS):
        raise ValueError(f"state must be that of a monitor, or of a part of one, got {format_value(thing)}")
    reader.finish()
    return thing


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write ``encode(obj)`` to a file: whole or not at all, and on the disk when it returns.

    >>> import tempfile
    >>> from exchangeable import Monitor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Monitor(seed=7), folder + "/monitor.zip")
    ...     load(folder + "/monitor.zip").seed
    7
    """
    data, target = encode(obj), Path(path)
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
    try:
        with fresh.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # so that the name too is on the disk
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load(path: str | os.PathLike[str], *, score: Any = None) -> Any:
    """What was saved in a file, as ``decode`` gives it; for an example see ``save``."""
    data = Path(path).read_bytes()
    try:
        return decode(data, score=score)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error
