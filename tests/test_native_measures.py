"""The compiled loops of the measures refuse arrays that do not fit together, instead of reading beyond their ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from exchangeable import native
from exchangeable.measures import Value

N, D, K = 12, 3, 2
INTS, UINTS, FLOATS = np.zeros(N, np.int32), np.zeros(N, np.uint32), np.zeros(N)


def pool() -> list[Any]:
    measure = Value()
    measure.extend(np.arange(40.0))
    return list(measure._pool._state)


def singles(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


CALLS: dict[str, Callable[[], list[Any]]] = {
    "pool_add": lambda: [0.5, 100, *pool()],
    "pool_extend": lambda: [FLOATS, *pool(), np.zeros(N, np.int64), np.zeros(N, np.int64)],
    "squared_distance": lambda: [FLOATS, FLOATS],
    "nearest_scores": lambda: [np.ones((2, N, 1)), np.empty(N)],
    "nearest_copy": lambda: [np.zeros((N, D)), np.zeros(D), 1.0, singles(N, D), singles(N)],
    "nearest_refresh": lambda: [N, 1.0, singles(N), np.ones((2, N, 1)), singles(2, N), False],
    "nearest_extend": lambda: [
        *(N - 4, singles(4, N), 1.0, np.zeros((N, D)), INTS, singles(N)),
        *(np.empty(N), np.ones((2, N, 1)), singles(2, N), False, np.empty((3, 4), np.int64), 0),
    ],
    "nearest_tile": lambda: [
        *(N - 4, singles(4, N), 1.0, np.zeros((N, D)), INTS, singles(N), np.ones((N, 2))),
        *(np.zeros((N, D)), INTS, singles(N), np.ones((2, N)), singles(2, N), False),
        *(np.zeros(N, np.uint32), np.zeros(N, np.uint32), np.zeros(N)),
    ],
    "neighbours_extend": lambda: [
        *(N - 4, singles(4, N), 1.0, np.zeros((N, D)), INTS, singles(N), FLOATS),
        *(np.empty(N), np.ones((1, N, K)), np.ones((1, N, K)), singles(1, N), False, np.empty((3, 4), np.int64), 0),
    ],
    "sweep_gather": lambda: [
        *(np.arange(N), UINTS, UINTS, FLOATS, np.ones(2 * N), np.ones(2 * N), np.empty(N, np.bool_)),
    ],
    "sweep_scores": lambda: [np.ones(2 * N), UINTS, FLOATS, np.empty(N), np.empty(N)],
    "sweep_ranks": lambda: [
        *(N, np.ones(N, np.int64), np.ones(N, np.int64), UINTS, UINTS, np.empty((3, N), np.int64)),
    ],
}
FEWER_IS_FINE = {
    ("nearest_extend", 1, 0),  # rows that arrive
    ("nearest_tile", 1, 0),
    ("neighbours_extend", 1, 0),
    ("nearest_extend", 3, 1),  # features
    ("neighbours_extend", 3, 1),
    ("neighbours_extend", 4, 0),  # codes, where there is one side
    ("neighbours_extend", 9, 0),  # tags: none at all
}


def cases() -> list[tuple[str, int, int]]:
    """The name of a function, the place of an array among its arguments, and one of its axes."""
    every = [
        (name, at, axis)
        for name, make in CALLS.items()
        for at, value in enumerate(make())
        if isinstance(value, np.ndarray)
        for axis in range(value.ndim)
    ]
    return [case for case in every if case not in FEWER_IS_FINE]


@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_fit_are_taken(name: str) -> None:
    getattr(native, name)(*CALLS[name]())


@pytest.mark.parametrize(("name", "at", "axis"), cases())
def test_arrays_that_are_too_short_are_refused(name: str, at: int, axis: int) -> None:
    given = CALLS[name]()
    given[at] = np.ascontiguousarray(np.delete(given[at], -1, axis))
    with pytest.raises(ValueError, match=name):
        getattr(native, name)(*given)


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("nearest_extend", 0, -1),
        ("nearest_extend", 0, N - 3),
        ("nearest_extend", 0, 2**63 - 1),
        ("nearest_extend", 11, 1),
        ("nearest_extend", 11, 2**63 - 1),
        ("nearest_tile", 0, N - 3),
        ("neighbours_extend", 0, N - 3),
        ("neighbours_extend", 13, -1),
        ("nearest_refresh", 0, N + 1),
        ("sweep_ranks", 0, 0),
        ("sweep_ranks", 0, 2**63 - 1),
        ("sweep_ranks", 1, np.full(N, N + 1)),
        ("sweep_ranks", 2, np.zeros(N, np.int64)),
        ("sweep_ranks", 3, np.full(N, 2 * N, np.uint32)),
        ("sweep_gather", 0, np.arange(1, N + 1)),
        ("sweep_gather", 1, np.full(N, 2 * N, np.uint32)),
        ("sweep_scores", 1, np.full(N, 2 * N, np.uint32)),
        ("pool_add", 2, np.array([5, 1, 0, 40, 40])),
        ("pool_add", 2, np.array([0, 9, 0, 40, 40])),
        ("pool_add", 3, np.array([65], np.int32)),
        ("pool_add", 3, np.array([-1], np.int32)),
    ],
)
def test_numbers_that_point_beyond_an_array_are_refused(name: str, at: int, value: Any) -> None:
    given = CALLS[name]()
    given[at] = value
    with pytest.raises(ValueError, match=name):
        getattr(native, name)(*given)


def test_children_that_are_no_nodes_are_refused() -> None:
    measure = Value()
    measure.extend(np.arange(100.0))
    state = measure._pool._state
    for child in (-1, len(state[1]), 2**31 - 1):
        state[4][state[0][native.POOL_ROOT]] = child
        with pytest.raises(ValueError, match="damaged"):
            native.pool_add(0.5, 1000, *state)


def test_a_pool_without_room_is_left_as_it_is() -> None:
    full: list[Any] = [np.array([0, 1, 0, 64, 64]), np.array([64], np.int32), np.arange(64.0)]
    full += [np.ones(64, np.int64), np.zeros(64, np.int32)]
    before = [array.copy() for array in full]
    assert native.pool_add(0.5, 1000, *full) == (0, 0, 0)
    with pytest.raises(ValueError, match="no room"):
        native.pool_extend(*[np.array([0.5]), *full, np.zeros(1, np.int64), np.zeros(1, np.int64)])
    assert all((now == then).all() for now, then in zip(full, before, strict=True))
