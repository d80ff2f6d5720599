"""Nearest-neighbour p-values against the bare matrix product, and against row-by-row NumPy."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

from exchangeable import PValues, measures
from exchangeable.measures.neighbour_store import BLOCK
from workloads import Floats, best, labelled, table

MNIST = """
import json, resource, sys, time
import numpy as np
sys.path.insert(0, "benchmarks")
from bench_nearest import product
from workloads import best, labelled
from exchangeable import PValues, measures
PValues(measures.NearestNeighbour()).extend(*labelled(600, 8))
X, y = labelled(60_000, 784)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
before = peak()
ours = best(lambda: PValues(measures.NearestNeighbour()).extend(X, y), repeats=2)
more = peak() - before
F = X.astype(np.float32)
print(json.dumps([ours, best(lambda: product(F), repeats=2), X.nbytes / 2**20, more]))
"""


def product(F: NDArray[np.float32]) -> None:
    """The inner products of every row with all earlier ones, in single precision, and nothing else."""
    buffer = np.empty((BLOCK, len(F)), np.float32)
    for lo in range(0, len(F), BLOCK):
        hi = min(lo + BLOCK, len(F))
        np.matmul(F[lo:hi], F[:hi].T, out=buffer[: hi - lo, :hi])


def row_by_row(X: Floats, y: NDArray[np.int64]) -> Floats:
    """Algorithm 1 in plain NumPy: one row of distances for each new example, all scores compared (theta left out)."""
    n = len(X)
    same, other, p = np.full(n, np.inf), np.full(n, np.inf), np.empty(n)
    for i in range(n):
        distance = np.sqrt(((X[:i] - X[i]) ** 2).sum(axis=1))
        alike = y[:i] == y[i]
        same[:i] = np.where(alike, np.minimum(same[:i], distance), same[:i])
        other[:i] = np.where(alike, other[:i], np.minimum(other[:i], distance))
        same[i] = distance[alike].min(initial=np.inf)
        other[i] = distance[~alike].min(initial=np.inf)
        with np.errstate(invalid="ignore", divide="ignore"):
            alpha = same[: i + 1] / other[: i + 1]
        p[i] = (alpha >= alpha[i]).mean()
    return p


def whole_table() -> str:
    rows = []
    for n in (2_000, 5_000, 9_298, 20_000):
        X, y = labelled(n, 256)
        F = X.astype(np.float32)
        ours = best(lambda X=X, y=y: PValues(measures.NearestNeighbour()).extend(X, y))  # type: ignore[misc]
        bare = best(lambda F=F: product(F))  # type: ignore[misc]
        slow = best(lambda X=X, y=y: row_by_row(X, y), repeats=1) if n < 10_000 else None  # type: ignore[misc]
        rows.append([f"{n:,}", f"{ours:.2f}", f"{bare:.2f}", f"{ours / bare:.1f}"])
        rows[-1] += ["", ""] if slow is None else [f"{slow:.1f}", f"{slow / ours:.0f} x"]
    columns = ["n", "ours, s", "bare product, s", "ours / product", "row-by-row NumPy, s", "we are faster"]
    return "### All p-values of a table of n x 256, ten labels\n\n" + table(columns, rows)


def mnist_size() -> str:
    done = subprocess.run([sys.executable, "-c", MNIST], check=True, capture_output=True, text=True)
    ours, bare, data, more = json.loads(done.stdout)
    row = ["60,000 x 784", f"{ours:.0f}", f"{bare:.0f}", f"{ours / bare:.1f}", f"{data:.0f}", f"{more:.0f}"]
    columns = ["table", "ours, s", "bare product, s", "ours / product", "data, MB", "peak memory besides, MB"]
    kept = "The measure keeps the examples as float64 and as float32 (1.5 times the data), and 1 kB for each.\n"
    return "### The size of MNIST\n\n" + table(columns, [row]) + "\n" + kept


def live() -> str:
    rows = []
    for n in (2_000, 5_000, 10_000, 20_000):
        X, y = labelled(n + 300, 256)
        measure = measures.NearestNeighbour()
        measure.extend(X[:n], y[:n])
        F, f = X[:n].astype(np.float32), X[n].astype(np.float32)
        bare, ours = [], []
        for i in range(n, n + 300):  # in turns, so that both meet the same noise
            start = time.perf_counter()
            F @ f
            middle = time.perf_counter()
            measure.update(X[i], y[i])
            ours.append(time.perf_counter() - middle)
            bare.append(middle - start)
        a, b = float(np.median(ours)), float(np.median(bare))
        rows.append([f"{n:,}", f"{1e6 * a:.0f}", f"{1e6 * b:.0f}", f"{a / b:.1f}"])
    columns = ["n", "one update, us", "float32 matrix-vector product n x 256, us", "ratio"]
    return "### One live update of NearestNeighbour, d = 256\n\n" + table(columns, rows)


def main() -> str:
    PValues(measures.NearestNeighbour()).extend(*labelled(600, 8))  # compile
    return "## Nearest neighbours\n\n" + "\n".join([whole_table(), mnist_size(), live()])


if __name__ == "__main__":
    print(main())
