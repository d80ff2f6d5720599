"""Convert objects to a JSON tree and a list of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.snapshot.archive import DTYPES
from exchangeable.snapshot.objects import class_name, saved_fields
from exchangeable.validation import format_value

SCALARS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
MAX_DEPTH = 100  # objects within objects
MAX_SHARED = 2  # objects that one array may belong to


class Writer:
    """Turns an object into a tree for JSON, and collects the arrays."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._known: dict[int, list[int]] = {}  # by id(array): its number, and how many objects it belongs to

    def node(self, value: Any, where: str, depth: int = 0) -> Any:
        """Return the tree of a value; messages start with ``where``."""
        if depth > MAX_DEPTH:
            raise ValueError(f"{where} must be nested at most {MAX_DEPTH} levels deep to be saved")
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind in (int, float):
            return _number(value)
        if kind is bytes:
            return {"bytes": value.hex()}
        if kind in (list, tuple):
            parts = [self.node(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(value)]
            return parts if kind is list else {"tuple": parts}
        if kind is dict:
            return {"dict": [self.node(list(pair), where, depth + 1) for pair in value.items()]}
        if kind is np.ndarray and value.dtype.name in DTYPES:
            return {"array": self._array_number(value)}
        if isinstance(value, np.generic):
            return {"numpy": _scalar(value, where)}
        if class_name(kind) is not None:
            fields = sorted(saved_fields(value).items())  # the bytes must not depend on the order of assignment
            return {
                "class": class_name(kind),
                "with": {name: self.node(part, f"{where}.{name}", depth + 1) for name, part in fields},
            }
        expected = f"{where} must be plain data or a class of exchangeable to be saved"
        raise ValueError(f"{expected}, got {format_value(value)}")

    def _array_number(self, array: NDArray[Any]) -> int:
        """Return the number of an array; an array that two objects share is stored once."""
        known = self._known.get(id(array))
        if known is None or known[1] == MAX_SHARED:
            known = self._known[id(array)] = [len(self.arrays), 0]
            self.arrays.append(array)  # this keeps it alive, so that no other array gets its id
        known[1] += 1
        return known[0]


def _number(value: float) -> Any:
    if type(value) is int:
        return value if abs(value) < 2**64 else {"int": hex(value)}  # other JSON readers lose digits of larger ones
    return value if math.isfinite(value) else {"float": repr(value)}


def _scalar(value: np.generic, where: str) -> list[Any]:
    if isinstance(value, np.str_):
        return ["str", str(value)]
    if isinstance(value, np.bytes_):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, np.bool_):
        return ["bool", bool(value)]
    if value.dtype.name not in SCALARS:
        raise ValueError(f"{where} must be a number, a string or a boolean to be saved, got {format_value(value)}")
    return [value.dtype.name, _number(value.item())]
