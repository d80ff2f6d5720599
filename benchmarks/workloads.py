"""What is timed, and how: every figure is a ratio of two measurements made in the same run."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

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


def best(work: Callable[[], object], *, repeats: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Shortest time of several runs, by the wall unless told: the machine is shared and noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---:|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def mark(kept: bool) -> str:
    """Yes or no, so that the eye finds a no."""
    return "yes" if kept else "**no**"


def processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def heading(title: str, command: str, libraries: Sequence[str]) -> str:
    """The first lines of a document made by a command: when, where and with what."""
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    python = platform.python_version()
    return (
        f"# {title}\n\nWritten by `{command}`, never by hand.\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {processor()}, Python {python}, {versions}.\n"
    )
