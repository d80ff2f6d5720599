"""The rules for sequence numbers of one stream, against a model that remembers everything."""

from __future__ import annotations

import numpy as np
import pytest

from exchangeable.keyed import KINDS
from exchangeable.keyed.sequence import CONFLICT, GAP, InTurn, classify_in_turn, describe


def model(numbers: list[int], contents: list[int], expected: int) -> tuple[list[int], set[int], tuple[int, int] | None]:
    """Return the steps, the numbers used before the call, and the kind and position of the first fault."""
    used: dict[int, int] = {}
    steps: list[int] = []
    for i, (number, content) in enumerate(zip(numbers, contents, strict=True)):
        if number > expected + len(steps):
            return steps, {k for k in used if k < expected}, (GAP, i)
        if used.setdefault(number, content) != content:
            return steps, {k for k in used if k < expected}, (CONFLICT, i)
        if number == expected + len(steps):
            steps.append(i)
    return steps, {k for k in used if k < expected}, None


@pytest.mark.parametrize("seed", range(50))
def test_events_in_turn_are_classified_as_by_the_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = int(rng.integers(1, 5))
    numbers = [max(1, expected + i // 2 - int(rng.integers(0, 3))) for i in range(20)]
    contents = [number * 10 + int(rng.random() < 0.02) for number in numbers]
    found = classify_in_turn(numbers, expected, lambda i, k: contents[i] == contents[k])
    steps, known, fault = model(numbers, contents, expected)
    assert found.steps == steps
    assert set(found.known) == known
    assert (found.fault and (found.fault.kind, found.fault.position)) == fault


def test_events_without_numbers_continue_the_stream() -> None:
    assert classify_in_turn([None, 3, None, 3, 5], 2) == InTurn([0, 1, 2, 4], {}, None)


def test_a_gap_names_the_expected_number() -> None:
    found = classify_in_turn([4, 6, 5], 4)
    assert found.steps == [0]
    assert found.fault == (GAP, 1, 6, 5)


def test_without_a_comparison_all_repeats_are_duplicates() -> None:
    assert classify_in_turn([1, 2, 2, 1], 2) == InTurn([1], {1: 0}, None)


def test_every_kind_but_a_step_has_a_sentence() -> None:
    sentences = [describe(kind, 7, 2, show=lambda order: f"<{order}>") for kind in KINDS]
    assert sentences[0] is None
    assert all(sentence is not None and "<7>" in sentence for sentence in sentences[1:])
    assert describe("gap", 7, 2, show=lambda order: f"<{order}>") == "orders <7> to <8> are missing"
    assert describe("late", 7, unsure=True) != describe("late", 7)
