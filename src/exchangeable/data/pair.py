"""Two tables that are compared: the columns that both have, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.errors import DataError, check_known, list_names, naming
from exchangeable.data.frames import Frame, open_frame
from exchangeable.data.labels import LabelKind
from exchangeable.data.roles import assign_roles
from exchangeable.data.schema import (
    Preparation,
    Prepared,
    Reading,
    build_table,
    label_name,
    leave_out,
    read_columns,
    select_native,
    tested_names,
)
from exchangeable.data.table import Table
from exchangeable.data.values import Column, read_text
from exchangeable.validation import format_value

SETS = ("reference", "current")
_OPTIONS = ("drop", "keep", "categorical")


class PreparedPair(NamedTuple):
    """Two sets as one table, and how their columns differ."""

    prepared: Prepared
    start: int  # rows of the first set
    differences: list[str]
    same_columns: bool


def prepare_pair(reference: Any, current: Any, how: Preparation, *, labels: LabelKind | None = None) -> PreparedPair:
    """Prepare two sets as one table, the rows of the reference first.

    What a column holds is decided by both sets together. Columns that one of the sets lacks, or that are numbers in
    one and text in the other, are left out and reported.
    """
    how = how.checked()
    pair = how.label if isinstance(how.label, (tuple, list)) and len(how.label) == 2 else (how.label, how.label)
    frames = [
        open_frame(reference, name=SETS[0], beside=current, selection=how.selection()),
        open_frame(current, name=SETS[1], beside=reference, selection=how.selection()),
    ]
    if frames[0].name == frames[1].name:  # files of the same name in two folders
        frames = [frame._replace(name=f"{frame.name} ({which})") for frame, which in zip(frames, SETS, strict=True)]
    shared, differences = _shared_columns(frames, how)
    raw = _read_together(frames, [_read_set(*each, how, shared) for each in zip(frames, pair, strict=True)])
    tested, readings = tested_names(_join(*(one.features for one in raw))[1], how), []
    for frame, one in zip(frames, raw, strict=True):
        with naming(frame.name):
            readings.append(leave_out(one, how, least=1, tested=tested))
    first, second = readings
    kinds, joined = _join(first.features, second.features)
    differences += kinds
    same = not differences
    target = _join_labels(first.label, second.label)
    notes = [f"{frame.name}: {note}" for frame, part in zip(frames, readings, strict=True) for note in part.notes]
    reading = Reading(joined, target, None, np.concatenate([first.rows, second.rows]), notes)
    roles = assign_roles(joined, _within(how.keep, frames[0]), ordered=False)
    table = build_table(reading, roles, how, labels, "reference and current")
    differences += _category_differences(table, len(first.rows))
    natives = [partial(select_native, frame, how, part.rows) for frame, part in zip(frames, readings, strict=True)]
    return PreparedPair(Prepared(table, frames[1].library, natives), len(first.rows), differences, same)


def _read_set(frame: Frame, label: Any, how: Preparation, shared: Sequence[str]) -> Reading:
    """Read the shared columns of one set. It may lack columns that the options name, if the other set has them."""
    drop, keep, categorical = (_within(names, frame) for names in (how.drop, how.keep, how.categorical))
    part = how._replace(label=label, drop=drop, keep=keep, categorical=categorical)
    with naming(frame.name):
        return read_columns(frame, part, shared)


def _within(names: Sequence[str], frame: Frame) -> tuple[str, ...]:
    return tuple(name for name in names if name in frame.names or name in frame.unused)


def _shared_columns(frames: Sequence[Frame], how: Preparation) -> tuple[list[str], list[str]]:
    """Return the columns that both sets have, and sentences about the others."""
    first, second = frames
    known = [*first.names, *(name for name in second.names if name not in first.names)]
    label = label_name(how)
    for option in (*_OPTIONS, "features"):
        check_known(option, getattr(how, option) or (), known, also=first.unused | second.unused)
    differences = []
    for lacking, other in ((second, first), (first, second)):
        names = [name for name in other.names if name not in lacking.names and name not in how.drop]
        names = [name for name in names if how.features is None or name in how.features]
        if label in names:
            with naming(lacking.name):
                check_known("label", [str(label)], lacking.names)
        if names:
            differences.append(f"{lacking.name} lacks {list_names(names)}, which {other.name} has")
    shared = [name for name in first.names if name in second.names]
    if not shared:
        raise DataError("the two sets must have at least one column in common, got none")
    return shared, differences


def _read_together(frames: Sequence[Frame], readings: Sequence[Reading]) -> list[Reading]:
    """Read columns of text once more, those of both sets as one.

    What text holds (numbers, times, categories) then depends on the rows of both sets, not on how they are divided.
    """
    first, second = readings
    pairs = [_read_pair(frames, *pair) for pair in zip(first.features, second.features, strict=True)]
    return [one._replace(features=[pair[i] for pair in pairs]) for i, one in enumerate(readings)]


def _read_pair(frames: Sequence[Frame], first: Column, second: Column) -> tuple[Column, Column]:
    numbers = all(column.kind == "numbers" and not column.invalid for column in (first, second))
    if numbers or not (first.written and second.written):
        return first, second
    before, after = (frame.read(first.name, True).values for frame in frames)
    return read_text(first.name, [*before, *after]).split(len(before))


def _join(first: Sequence[Column], second: Sequence[Column]) -> tuple[list[str], list[Column]]:
    """Concatenate columns of the same kind, and describe those whose kind changed."""
    other, differences, joined = {column.name: column for column in second}, list[str](), list[Column]()
    for column in first:
        pair = _same_kind(column, other[column.name])
        if pair is None:
            kinds = f"{_kind_text(column)} in one set and {_kind_text(other[column.name])} in the other"
            differences.append(f"column {format_value(column.name)} holds {kinds}")
        elif pair[0].kind == "other":
            joined.append(pair[0])
        else:
            joined.append(_concatenate(*pair))
    return differences, joined


def _same_kind(first: Column, second: Column) -> tuple[Column, Column] | None:
    """Return both columns as the same kind; None if that is not possible. A column without values fits any kind."""
    if first.kind == second.kind:
        return first, second
    for a, b, swap in ((first, second, False), (second, first, True)):
        if a.kind == "empty" and b.kind != "other":
            filled = _empty_like(a, b)
            return (b, filled) if swap else (filled, b)
        if (a.kind, b.kind) == ("booleans", "numbers"):
            numbers = a._replace(kind="numbers")
            return (b, numbers) if swap else (numbers, b)
    return None


def _empty_like(column: Column, other: Column) -> Column:
    if isinstance(other.values, list):
        return column._replace(kind=other.kind)
    return column._replace(kind=other.kind, values=np.full(len(column.values), np.nan).astype(other.values.dtype))


def _concatenate(first: Column, second: Column) -> Column:
    if isinstance(first.values, list):
        return first._replace(values=[*first.values, *second.values])
    return first._replace(values=np.concatenate([first.values, second.values]))


def _kind_text(column: Column) -> str:
    return {"other": "nested values", "empty": "no values"}.get(column.kind, column.kind)


def _join_labels(first: Column | None, second: Column | None) -> Column | None:
    if first is None or second is None:
        if first is not second:
            raise DataError("label must be given for both sets, or for neither")
        return None
    pair = _same_kind(first, second)
    if pair is None:
        raise DataError(
            f"label {format_value(first.name)} must hold the same kind of values in both sets, got {_kind_text(first)} "
            f"and {_kind_text(second)}"
        )
    return _concatenate(*pair)


def _category_differences(table: Table, start: int) -> list[str]:
    """Describe categories that occur in one of the sets only."""
    differences = []
    for column in table.columns:
        if column.categories is None or table.treatments.get(column.name, "").startswith("added"):
            continue
        before, after = (set(values.tolist()) for values in (column.values[:start], column.values[start:]))
        for where, codes in (("current", after - before), ("reference", before - after)):
            if codes:
                names = list_names([column.categories[int(code)] for code in sorted(codes)])
                verb = "occurs" if len(codes) == 1 else "occur"
                differences.append(f"column {format_value(column.name)}: {names} {verb} in {where} only")
    return differences
