"""Scores fixed in advance: cost of a step in the exact pool and in bins, and the memory of a hundred million steps."""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from exchangeable.measures import Conditional, Frozen, Value
from exchangeable.protocols import Measure
from workloads import Floats, best, table

BINS = 1024
SIZES = (10_000, 100_000, 1_000_000, 4_000_000)

LONG = """
import json, re, resource, time
from pathlib import Path
import numpy as np
from exchangeable import PValues
from exchangeable.measures import Frozen

def peak():  # of this process alone: getrusage begins with the peak of the one that started it
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

rng = np.random.default_rng(0)
PValues(Frozen(bins=2, reference=[0.0, 1.0])).extend([0.5])
loaded, seconds, found = peak(), 0.0, []
pvalues = PValues(Frozen(bins=1024, reference=rng.normal(size=10_000)))
for million in range(1, 101):
    for _ in range(10):
        scores = rng.normal(size=100_000)
        start = time.process_time()
        pvalues.extend(scores)
        seconds += time.process_time() - start
    if million in (1, 10, 100):
        found.append([million, seconds, peak(), peak() - loaded])
print(json.dumps(found))
"""


REST = "The rest is Python, NumPy and the compiled code.\n"


def shortest(work: Callable[[], object], repeats: int = 5) -> float:
    """By processor time: all of this runs on one core, and others must not make it look slow."""
    return best(work, repeats=repeats, clock=time.process_time)


def exact() -> Measure:
    return Frozen()


def bins() -> Measure:
    return Frozen(bins=BINS, reference=np.random.default_rng(1).normal(size=10_000))


def microseconds(make: Callable[[], Measure], scores: Floats) -> float:
    """A step of the whole stream, from the first."""
    fresh = iter([make() for _ in range(5)])
    return 1e6 * shortest(lambda: next(fresh).extend(scores)) / len(scores)


def marginal(make: Callable[[], Measure], scores: Floats, more: Floats) -> float:
    """A further step after the scores."""
    measure = make()
    measure.extend(scores)
    parts = iter(np.split(more, 5))
    return 1e6 * shortest(lambda: measure.extend(next(parts))) / (len(more) // 5)


def insort(scores: Floats) -> float:
    """A step of ranks from a sorted list of Python, which moves half of it at each step."""

    def work() -> None:
        seen: list[float] = []
        for score in scores.tolist():
            bisect.insort(seen, score)
            len(seen) - bisect.bisect_right(seen, score)
            bisect.bisect_left(seen, score)

    return 1e6 * shortest(work, repeats=1) / len(scores)


def batches() -> str:
    rng = np.random.default_rng(0)
    rows = []
    for n in SIZES:
        scores, more = rng.normal(size=n), rng.normal(size=30_000)
        pool, binned = microseconds(exact, scores), microseconds(bins, scores)
        sort = 1e6 * shortest(lambda scores=scores: np.sort(scores, kind="stable")) / n  # type: ignore[misc]
        slow = insort(scores) if n <= 100_000 else None
        row = [f"{n:,}", f"{pool:.2f}", f"{marginal(exact, scores, more):.2f}", f"{binned:.2f}"]
        row += [f"{marginal(bins, scores, more):.2f}", f"{pool / sort:.1f}"]
        rows.append([*row, "" if slow is None else f"{slow / pool:.0f} x"])
    columns = ["n", "exact, us a step", "the next step, us", f"{BINS} bins, us a step", "the next step, us"]
    columns += ["exact / one sort of all n", "faster than a sorted list"]
    return "### Ranks of n precomputed scores, one `extend`\n\n" + table(columns, rows)


def live() -> str:
    rows = []
    for n in (10_000, 100_000, 1_000_000):
        scores = np.random.default_rng(2).normal(size=n + 5000)
        row = [f"{n:,}"]
        for make in (exact, bins, lambda: Conditional(Value())):
            measure = make()
            labels = ["a"] * n
            measure.extend(scores[:n], labels)
            later = scores[n:].tolist()

            def work(measure: Measure = measure, later: list[float] = later) -> None:
                for score in later:
                    measure.update(score, "a")

            row.append(f"{1e6 * shortest(work) / len(later):.1f}")
        rows.append(row)
    return "### One live update, us\n\n" + table(["n", "exact", f"{BINS} bins", "`Conditional(Value())`"], rows)


def long() -> str:
    done = subprocess.run([sys.executable, "-c", LONG], check=True, capture_output=True, text=True)
    rows = [
        [f"{million},000,000", f"{seconds / million:.2f}", f"{peak:.0f}", f"{more:.1f}"]
        for million, seconds, peak, more in json.loads(done.stdout)
    ]
    columns = ["steps", "us a step", "peak memory of the process, MB", "of it for the stream and its p-values, MB"]
    return f"### P-values of a long stream, {BINS} bins, fed 100,000 at a time\n\n" + table(columns, rows) + "\n" + REST


def main() -> str:
    for make in (exact, bins):
        make().extend(np.arange(100.0))  # compile
    return "## Scores fixed in advance\n\nTimes are processor times.\n\n" + "\n".join([batches(), live(), long()])


if __name__ == "__main__":
    print(main())
