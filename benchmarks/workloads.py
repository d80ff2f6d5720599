"""What is timed, and how: every figure is a ratio of two measurements made in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def labelled(n: int, d: int, *, labels: int = 10, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Exchangeable examples around one centre for each label, about as hard to tell apart as handwritten digits."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(labels, d))
    y = rng.integers(0, labels, n)
    X = rng.normal(scale=1.5, size=(n, d))
    for label in range(labels):  # one by one, to need no second table
        X[y == label] += centres[label]
    return X, y


def best(work: Callable[[], object], *, repeats: int = 3) -> float:
    """Shortest wall time of several runs: the machine is shared and noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---:|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
