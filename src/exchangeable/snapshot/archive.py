"""The archive: a ZIP file that is written in one way only, so that every bit of it can be checked."""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.validation import format_value

FORMAT, VERSION = "exchangeable snapshot", 3
OLDEST = 3  # versions 1 and 2, of exchangeable 0.1, hold states that the compiled kernels cannot continue
HEAD = {"arrays", "format", "package", "state", "version"}
DTYPES = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "int32": "<i4", "bool": "|b1"}
DIMENSIONS = 8  # the most of an array
LOCAL, CENTRAL, END = "<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"  # the records of a ZIP file
NPY = 128  # bytes of the header of an array

Arrays = list[NDArray[Any]]


def pack(state: Any, arrays: Arrays) -> bytes:
    """What JSON can say of a state, and its arrays, as an archive."""
    package = sys.modules["exchangeable"].__version__
    listed = [[array.dtype.name, list(array.shape)] for array in arrays]
    head = {"format": FORMAT, "version": VERSION, "package": package, "arrays": listed, "state": state}
    members = {"state.json": json.dumps(head, separators=(",", ":"), allow_nan=False).encode()}
    for name, descr in DTYPES.items():
        same = [array for array in arrays if array.dtype.name == name]
        if same:
            parts = (np.ascontiguousarray(array, descr).tobytes() for array in same)
            members[f"{name}.npy"] = b"".join([_npy_header(descr, sum(array.size for array in same)), *parts])
    return zipped(members)


def unpack(data: memoryview) -> tuple[Any, Arrays]:
    """The state and the arrays, each a copy of its own. What is not such an archive is refused."""
    members = _unzipped(data)
    if "state.json" not in members or not {f"{name}.npy" for name in DTYPES} >= set(_columns(members)):
        raise ValueError(f"data must hold state.json and arrays, got {format_value(list(members))}")
    head = _head(bytes(members["state.json"]))
    columns = {name.removesuffix(".npy"): _column(name, members[name]) for name in _columns(members)}
    return head["state"], _arrays(head["arrays"], columns)


def listed(content: Any, where: str, length: int | None = None) -> list[Any]:
    """Admit a list, of this length if one is given.

    >>> listed([1], "arrays[0]", 2)
    Traceback (most recent call last):
    ...
    ValueError: arrays[0] must be a list of 2, got [1]
    """
    if not isinstance(content, list) or length not in (None, len(content)):
        many = "" if length is None else f" of {length}"
        raise ValueError(f"{where} must be a list{many}, got {format_value(content)}")
    return content


# ------------------------------------------------------------------ ZIP


def zipped(members: Mapping[str, bytes]) -> bytes:
    """A ZIP archive of uncompressed members, by the clock of 1980: the same members give the same bytes."""
    parts: list[bytes] = []
    directory: list[bytes] = []
    at = 0
    for name, body in members.items():
        local, central = _entries(name.encode(), body, at)
        parts += [local, body]
        directory.append(central)
        at += len(local) + len(body)
    return b"".join([*parts, *directory, _end(directory, at)])


def _unzipped(data: memoryview) -> dict[str, memoryview]:
    """The members of an archive that is, byte for byte, what ``zipped`` makes of them."""
    members: dict[str, memoryview] = {}
    directory: list[bytes] = []
    at = 0
    while bytes(data[at : at + 4]) == b"PK\3\4" and at + 30 <= len(data):
        *_, size, length, _ = struct.unpack_from(LOCAL, data, at)
        begin = at + 30 + length
        name, body = bytes(data[at + 30 : begin]), data[begin : begin + size]
        local, central = _entries(name, body, at)
        if data[at:begin] != local or len(body) != size or not name.isascii() or name.decode() in members:
            break
        members[name.decode()] = body
        directory.append(central)
        at = begin + size
    if not members or data[at:] != b"".join([*directory, _end(directory, at)]):
        law = "data must be a snapshot of exchangeable, whole and unchanged"
        raise ValueError(f"{law}, got {len(data)} bytes that differ from byte {at} on")
    return members


def _entries(name: bytes, body: bytes | memoryview, at: int) -> tuple[bytes, bytes]:
    """What stands before a member that begins at this byte, and what the directory says of it."""
    common = (20, 0, 0, 0, 33, zlib.crc32(body), len(body), len(body), len(name), 0)
    try:
        local = struct.pack(LOCAL, b"PK\3\4", *common) + name
        central = struct.pack(CENTRAL, b"PK\1\2", 3 << 8 | 20, *common, 0, 0, 0, 0o644 << 16, at) + name
    except struct.error:
        raise ValueError(f"a state must be smaller than 4 GiB to be saved, got {at + len(body)} bytes") from None
    return local, central


def _end(directory: Sequence[bytes], at: int) -> bytes:
    size = sum(map(len, directory))
    return struct.pack(END, b"PK\5\6", 0, 0, len(directory), len(directory), size, at, 0)


# ------------------------------------------------------------------ JSON


def _head(text: bytes) -> dict[str, Any]:
    """Admit a state of this format and version."""
    try:
        head = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"state.json must be JSON as snapshots have it, got what is none: {error}") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"state.json must be of the format {FORMAT!r}, got {format_value(head)}")
    version = head.get("version")
    if type(version) is not int or not OLDEST <= version <= VERSION:
        raise ValueError(unreadable(version, head.get("package"), OLDEST, VERSION))
    if head.keys() != HEAD:
        raise ValueError(f"state.json must have {', '.join(sorted(HEAD))}, got {format_value(sorted(head))}")
    return head


def unreadable(version: Any, package: Any, oldest: int, newest: int) -> str:
    """A sentence about a state of another format version, and what to do with it.

    >>> print(unreadable(4, "0.3.0", 3, 3))
    version must be 3 for this exchangeable to read it, got 4, written by exchangeable '0.3.0': use that one
    """
    wanted = f"{oldest}" if oldest == newest else f"from {oldest} to {newest}"
    got = f"{format_value(version)}, written by exchangeable {format_value(package)}"
    cure = "begin with a new state, or use that one" if type(version) is int and version < oldest else "use that one"
    return f"version must be {wanted} for this exchangeable to read it, got {got}: {cure}"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"names must come once, got {format_value([name for name, _ in pairs])}")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, got {name}")


# ------------------------------------------------------------------ arrays


def _npy_header(descr: str, count: int) -> bytes:
    """Of a one-dimensional array, as `numpy.save` writes it."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}"
    return struct.pack("<6sBBH", b"\x93NUMPY", 1, 0, NPY - 10) + text.ljust(NPY - 11).encode() + b"\n"


def _columns(members: Mapping[str, memoryview]) -> list[str]:
    return [name for name in members if name != "state.json"]


def _column(name: str, body: memoryview) -> NDArray[Any]:
    """All arrays of a dtype, end to end."""
    dtype = np.dtype(DTYPES[name.removesuffix(".npy")])
    count, rest = divmod(max(len(body) - NPY, 0), dtype.itemsize)
    if rest or body[:NPY] != _npy_header(dtype.str, count):
        raise ValueError(f"{name} must be a one-dimensional array of {dtype}, got another header")
    column: NDArray[Any] = np.frombuffer(body, dtype, count, NPY)
    if dtype.kind == "b" and (column.view(np.uint8) > 1).any():
        raise ValueError(f"{name} must hold zeros and ones, got others")
    return column


def _arrays(entries: Any, columns: Mapping[str, NDArray[Any]]) -> Arrays:
    """The arrays of the list; together they are all that the columns hold."""
    used, arrays = dict.fromkeys(columns, 0), []
    for i, entry in enumerate(listed(entries, "arrays")):
        name, shape = listed(entry, f"arrays[{i}]", 2)
        if not isinstance(shape, list) or len(shape) > DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"arrays[{i}] must have a shape of integers, got {format_value(shape)}")
        if not isinstance(name, str) or name not in columns or math.prod(shape) > len(columns[name]) - used[name]:
            raise ValueError(f"arrays[{i}] must lie in the archive, got {format_value(entry)}")
        if max(shape, default=0) > sys.maxsize:  # beside a length of nought
            raise ValueError(f"arrays[{i}] must have a shape that fits in memory, got {format_value(shape)}")
        part = columns[name][used[name] : used[name] + math.prod(shape)]
        arrays.append(part.astype(name).reshape(shape))
        used[name] += part.size
    if any(used[name] != len(column) for name, column in columns.items()):
        raise ValueError("arrays must list all that the archive holds, got less")
    return arrays
