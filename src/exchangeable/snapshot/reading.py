"""Build objects from a JSON tree and a list of arrays, with all checks of the tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.measures import Frozen
from exchangeable.snapshot.archive import check_list
from exchangeable.snapshot.objects import build, find_class
from exchangeable.snapshot.writing import MAX_DEPTH, MAX_SHARED, SCALARS
from exchangeable.validation import format_value


class Reader:
    """Turns a tree from JSON back into an object, with its arrays and, if one is given, its score."""

    def __init__(self, arrays: list[NDArray[Any]], score: Any) -> None:
        self._arrays = arrays
        self._uses = [0] * len(arrays)
        self._score = score
        self._score_used = False
        self._forms: dict[str, Callable[[Any, str, int], Any]] = {
            "array": self._array,
            "bytes": _bytes,
            "dict": self._dict,
            "float": _float,
            "int": _int,
            "numpy": _numpy,
            "tuple": self._tuple,
        }

    def node(self, node: Any, where: str, depth: int = 0) -> Any:
        """Return the object of a tree; messages start with ``where``."""
        if depth > MAX_DEPTH:
            raise ValueError(f"{where} must be nested at most {MAX_DEPTH} levels deep")
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        if isinstance(node, list):
            return [self.node(part, f"{where}[{i}]", depth + 1) for i, part in enumerate(node)]
        if len(node) == 1:
            ((form, content),) = node.items()
            if form in self._forms:
                return self._forms[form](content, where, depth)
        if node.keys() == {"class", "with"} and isinstance(node["with"], dict):
            return self._object(node["class"], node["with"], where, depth)
        raise ValueError(f"{where} must have one of the forms of a snapshot, got {format_value(node)}")

    def finish(self) -> None:
        """Check that all arrays, and the score if one was given, have been used."""
        if not all(self._uses):
            raise ValueError(f"arrays must all be used by the state, got array {self._uses.index(0)}, which is not")
        if self._score is not None and not self._score_used:
            raise ValueError(f"score must be None for a state that needs no score, got {format_value(self._score)}")

    def _array(self, content: Any, where: str, depth: int) -> NDArray[Any]:
        if type(content) is not int or not 0 <= content < len(self._arrays):
            raise ValueError(
                f"{where} must be the number of one of {len(self._arrays)} arrays, got {format_value(content)}"
            )
        self._uses[content] += 1
        if self._uses[content] > MAX_SHARED:  # otherwise a small file could become large in memory
            raise ValueError(f"{where} must not share its array with more than {MAX_SHARED - 1} other, got {content}")
        return self._arrays[content]

    def _tuple(self, content: Any, where: str, depth: int) -> tuple[Any, ...]:
        return tuple(self.node(check_list(content, where), where, depth))

    def _dict(self, content: Any, where: str, depth: int) -> dict[Any, Any]:
        pairs = [check_list(self.node(pair, where, depth + 1), where, 2) for pair in check_list(content, where)]
        try:
            members = dict(pairs)
        except TypeError:
            raise ValueError(f"{where} must have hashable keys, got {format_value(pairs)}") from None
        if len(members) != len(pairs):
            raise ValueError(f"{where} must have distinct keys, got {format_value(pairs)}")
        return members

    def _object(self, name: Any, content: dict[str, Any], where: str, depth: int) -> Any:
        kind = find_class(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"{where} must be of a class that can be saved, got {format_value(name)}")
        fields = {key: self.node(value, f"{where}.{key}", depth + 1) for key, value in content.items()}
        if kind is Frozen and fields.get("score") is not None:
            return self._frozen(fields, where)
        return build(kind, fields, where)

    def _frozen(self, fields: dict[str, Any], where: str) -> Frozen:
        """Build a `Frozen` with the given score, which must be of the kind that was saved."""
        kind = fields["score"]
        if self._score is None:
            raise ValueError(
                f"score must be given, since {where} was saved without its score, of kind {format_value(kind)}"
            )
        self._score_used = True
        measure: Frozen = build(Frozen, {**fields, "score": self._score}, where)
        if measure.score_kind != kind:
            raise ValueError(
                f"score must be of kind {format_value(kind)}, as for {where}, got one of kind {measure.score_kind!r}"
            )
        return measure


def _bytes(content: Any, where: str, depth: int = 0) -> bytes:
    try:
        return bytes.fromhex(content)
    except (TypeError, ValueError):
        raise ValueError(f"{where} must be bytes in hexadecimal digits, got {format_value(content)}") from None


def _float(content: Any, where: str, depth: int = 0) -> float:
    if content not in ("inf", "-inf", "nan"):
        raise ValueError(f"{where} must be inf, -inf or nan, got {format_value(content)}")
    return float(content)


def _int(content: Any, where: str, depth: int = 0) -> int:
    try:
        return int(content, 16)
    except (TypeError, ValueError):
        raise ValueError(f"{where} must be an integer in hexadecimal digits, got {format_value(content)}") from None


def _numpy(content: Any, where: str, depth: int = 0) -> np.generic:
    name, value = check_list(content, where, 2)
    if name == "str" and isinstance(value, str):
        return np.str_(value)
    if name == "bytes":
        return np.bytes_(_bytes(value, where))
    if name == "bool" and isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, dict) and value.keys() == {"float"}:
        value = _float(value["float"], where)
    if name not in SCALARS or not _fits(name, value):
        raise ValueError(f"{where} must be a NumPy scalar, as its dtype and value, got {format_value(content)}")
    scalar: np.generic = np.dtype(name).type(value)
    return scalar


def _fits(name: str, value: Any) -> bool:
    """Return whether a value is a number that this dtype represents exactly."""
    if not name.startswith("float"):
        return type(value) is int and int(np.iinfo(name).min) <= value <= int(np.iinfo(name).max)
    with np.errstate(over="ignore"):
        return type(value) is float and (math.isnan(value) or float(np.dtype(name).type(value)) == value)
