"""From what JSON said back to the things; the laws at the door."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.measures import Frozen
from exchangeable.snapshot.archive import check_list
from exchangeable.snapshot.objects import built, classes
from exchangeable.snapshot.writing import DEEPEST, SCALARS, SHARED
from exchangeable.validation import format_value


class Reader:
    """Turns a tree from JSON back into a thing, given the arrays and the score, if one was brought along."""

    def __init__(self, arrays: list[NDArray[Any]], score: Any) -> None:
        self._arrays = arrays
        self._met = [0] * len(arrays)
        self._score = score
        self._scored = False
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
        """The thing that a tree stands for; ``where`` it stands is for messages."""
        if depth > DEEPEST:
            raise ValueError(f"{where} must not lie deeper than {DEEPEST} things within things")
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
        raise ValueError(f"{where} must be of a form that snapshots have, got {format_value(node)}")

    def finish(self) -> None:
        """Admit an end at which everything has been used."""
        if not all(self._met):
            raise ValueError(f"arrays must all belong to the state, got number {self._met.index(0)} that does not")
        if self._score is not None and not self._scored:
            raise ValueError(f"score must be left out for a state that needs none, got {format_value(self._score)}")

    def _array(self, content: Any, where: str, depth: int) -> NDArray[Any]:
        if type(content) is not int or not 0 <= content < len(self._arrays):
            raise ValueError(f"{where} must be one of {len(self._arrays)} arrays, got {format_value(content)}")
        self._met[content] += 1
        if self._met[content] > SHARED:  # or else a small file could become large
            raise ValueError(f"{where} must not share its array with more than {SHARED - 1} other, got {content}")
        return self._arrays[content]

    def _tuple(self, content: Any, where: str, depth: int) -> tuple[Any, ...]:
        return tuple(self.node(check_list(content, where), where, depth))

    def _dict(self, content: Any, where: str, depth: int) -> dict[Any, Any]:
        pairs = [check_list(self.node(pair, where, depth + 1), where, 2) for pair in check_list(content, where)]
        try:
            found = dict(pairs)
        except TypeError:
            raise ValueError(f"{where} must have hashable keys, got {format_value(pairs)}") from None
        if len(found) != len(pairs):
            raise ValueError(f"{where} must have every key once, got {format_value(pairs)}")
        return found

    def _object(self, name: Any, content: dict[str, Any], where: str, depth: int) -> Any:
        kind = classes().get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"{where} must be of a class that snapshots know, got {format_value(name)}")
        held = {key: self.node(value, f"{where}.{key}", depth + 1) for key, value in content.items()}
        if kind is Frozen and held.get("score") is not None:
            return self._frozen(held, where)
        return built(kind, held, where)

    def _frozen(self, held: dict[str, Any], where: str) -> Frozen:
        """With the score that was brought along."""
        kind = held["score"]
        if self._score is None:
            raise ValueError(
                f"score must be given, since {where} was saved without its score, of kind {format_value(kind)}"
            )
        self._scored = True
        measure: Frozen = built(Frozen, {**held, "score": self._score}, where)
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
        raise ValueError(f"{where} must be a scalar of NumPy's, its name and its value, got {format_value(content)}")
    scalar: np.generic = np.dtype(name).type(value)
    return scalar


def _fits(name: str, value: Any) -> bool:
    """Whether it is a number that this dtype holds exactly."""
    if not name.startswith("float"):
        return type(value) is int and int(np.iinfo(name).min) <= value <= int(np.iinfo(name).max)
    with np.errstate(over="ignore"):
        return type(value) is float and (math.isnan(value) or float(np.dtype(name).type(value)) == value)
