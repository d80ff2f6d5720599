"""The container of a snapshot: a ZIP archive of uncompressed members, most of them arrays in NumPy's format.

Equal members give equal bytes, and only those bytes are read back: a damaged, extended or recompressed archive is
rejected before anything in it is used.
"""

from __future__ import annotations

import io
import json
import math
import struct
import sys
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from exchangeable.validation import format_value

FORMAT, VERSION = "exchangeable snapshot", 6
OLDEST = 6  # earlier states have arrays of other sizes, or no history
HEAD = {"arrays", "format", "package", "state", "version"}
DTYPES = {"float64": "<f8", "float32": "<f4", "int64": "<i8", "int32": "<i4", "bool": "|b1"}
MEMBERS = {"state.json", *(f"{name}.npy" for name in DTYPES)}
MAX_DIMENSIONS, MAX_HEADER = 8, 200  # dimensions of an array, characters of the header of a column
MAX_MEMBERS = 64  # of an archive; each costs a thousand bytes of memory, however short it is
MODE = 0o644 << 16  # the permissions of a member when it is extracted
DAMAGE = (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, struct.error)

Arrays = list[NDArray[Any]]


def pack(state: Any, arrays: Arrays) -> bytes:
    """Write a state, as a tree for JSON, and its arrays as an archive."""
    package = sys.modules["exchangeable"].__version__
    listed = [[array.dtype.name, list(array.shape)] for array in arrays]
    head = {"format": FORMAT, "version": VERSION, "package": package, "arrays": listed, "state": state}
    members = {"state.json": json.dumps(head, separators=(",", ":"), allow_nan=False).encode()}
    for name, descr in DTYPES.items():
        parts = [np.asarray(array, descr).ravel() for array in arrays if array.dtype.name == name]
        if parts:
            members[f"{name}.npy"] = write_array(np.concatenate(parts))
    return write_members(members)


def unpack(data: bytes) -> tuple[Any, Arrays]:
    """Read the state and the arrays, each a copy, or raise a ValueError for anything that is not such an archive."""
    members = read_members(data)
    if "state.json" not in members or not members.keys() <= MEMBERS:
        raise ValueError(f"data must hold state.json and arrays, got {format_value(list(members))}")
    head = _head(members.pop("state.json"))
    columns = {}
    for name, body in members.items():
        dtype = name.removesuffix(".npy")
        columns[dtype] = read_array(name, body, DTYPES[dtype])
    return head["state"], _arrays(head["arrays"], columns)


# ------------------------------------------------------------------ ZIP


def write_members(members: Mapping[str, bytes]) -> bytes:
    """Return a ZIP archive of these members, uncompressed and dated 1980, so that equal members give equal bytes.

    >>> read_members(write_members({"a.txt": b"text"}))
    {'a.txt': b'text'}
    """
    stream = io.BytesIO()
    stream.seek(sum(len(body) + 1_000 for body in members.values()))
    stream.write(b"\0")  # reserves enough room at once, since growing by parts would be slow
    stream.seek(0)
    with zipfile.ZipFile(stream, "w") as archive:
        for name, body in members.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, MODE  # the same on every platform
            archive.writestr(info, body)
    stream.truncate()
    return stream.getvalue()


def read_members(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive that equals, byte for byte, what ``write_members`` writes for them.

    No more than the size of the data is ever allocated for the members, whatever the archive declares.
    """
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            stored = all(info.compress_type == zipfile.ZIP_STORED for info in infos)
            if stored and len(infos) <= MAX_MEMBERS and sum(info.file_size for info in infos) <= len(data):
                members = {info.filename: archive.read(info) for info in infos}
        unchanged = bool(members) and write_members(members) == data
    except DAMAGE:
        unchanged = False
    if not unchanged:
        expected = "data must be a complete, unchanged snapshot of exchangeable"
        raise ValueError(f"{expected}, got {len(data)} bytes, damaged or of another format")
    return members


# ------------------------------------------------------------------ JSON


def _head(text: bytes) -> dict[str, Any]:
    """Parse state.json and check its format and version."""
    try:
        head = json.loads(text, object_pairs_hook=_unique, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"state.json must be valid JSON, got text that is not: {error}") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"state.json must be of the format {FORMAT!r}, got {format_value(head)}")
    version = head.get("version")
    if type(version) is not int or not OLDEST <= version <= VERSION:
        raise ValueError(version_message(version, head.get("package"), OLDEST, VERSION))
    if head.keys() != HEAD:
        raise ValueError(f"state.json must have {', '.join(sorted(HEAD))}, got {format_value(sorted(head))}")
    return head


def version_message(version: Any, package: Any, oldest: int, newest: int) -> str:
    """Return the message for a state of another format version, with what to do about it.

    >>> print(version_message(5, "0.3.0", 4, 4))
    version must be 4 for this release to read it, got 5, written by exchangeable '0.3.0': use that release
    """
    wanted = f"{oldest}" if oldest == newest else f"from {oldest} to {newest}"
    got = f"{format_value(version)}, written by exchangeable {format_value(package)}"
    advice = (
        "start with a new state, or use that release"
        if type(version) is int and version < oldest
        else "use that release"
    )
    return f"version must be {wanted} for this release to read it, got {got}: {advice}"


def check_list(content: Any, where: str, length: int | None = None) -> list[Any]:
    """Check that a node is a list, of this length if one is given.

    >>> check_list([1], "arrays[0]", 2)
    Traceback (most recent call last):
    ...
    ValueError: arrays[0] must be a list of 2, got [1]
    """
    if not isinstance(content, list) or length not in (None, len(content)):
        size = "" if length is None else f" of {length}"
        raise ValueError(f"{where} must be a list{size}, got {format_value(content)}")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"names must not repeat, got {format_value([name for name, _ in pairs])}")
    return members


def _reject_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, got {name}")


# ------------------------------------------------------------------ arrays


def write_array(array: NDArray[Any]) -> bytes:
    """Return a contiguous array of numbers as the content of a ``.npy`` file."""
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, npy.header_data_from_array_1_0(array))
    return stream.getvalue() + array.tobytes()


def read_array(name: str, body: bytes, *dtypes: str) -> NDArray[Any]:
    """Return the one-dimensional array in a ``.npy`` file, of one of these dtypes, as a read-only view of its bytes."""
    stream = io.BytesIO(body)
    try:
        major, _ = npy.read_magic(stream)
        shape, _, dtype = npy.read_array_header_1_0(stream, MAX_HEADER)
        valid = major == 1 and len(body) - stream.tell() == math.prod(shape) * dtype.itemsize
    except Exception:  # noqa: BLE001 - NumPy parses the header as Python source, which can fail in many ways
        valid = False
    if not valid or dtype.str not in dtypes or len(shape) != 1:
        raise ValueError(f"{name} must be a one-dimensional array of {' or '.join(dtypes)}, got another header")
    array: NDArray[Any] = np.frombuffer(body, dtype, offset=stream.tell())
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise ValueError(f"{name} must hold zeros and ones, got other bytes")
    return array


def _arrays(entries: Any, columns: Mapping[str, NDArray[Any]]) -> Arrays:
    """Split the columns into the listed arrays, which together must use all of the columns."""
    used, arrays = dict.fromkeys(columns, 0), []
    for i, entry in enumerate(check_list(entries, "arrays")):
        name, shape = check_list(entry, f"arrays[{i}]", 2)
        if not _is_shape(shape):
            raise ValueError(f"arrays[{i}] must have a shape of integers, got {format_value(shape)}")
        if not isinstance(name, str) or name not in columns or math.prod(shape) > len(columns[name]) - used[name]:
            raise ValueError(f"arrays[{i}] must lie in the archive, got {format_value(entry)}")
        part = columns[name][used[name] : used[name] + math.prod(shape)]
        arrays.append(part.astype(name).reshape(shape))
        used[name] += part.size
    if any(used[name] != len(column) for name, column in columns.items()):
        raise ValueError("arrays must list everything in the archive, got less")
    return arrays


def _is_shape(shape: Any) -> bool:
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        return False
    return math.prod(n or 1 for n in shape) <= sys.maxsize
