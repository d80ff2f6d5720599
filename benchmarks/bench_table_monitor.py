"""TableMonitor: time per row and size of the state, for several numbers of columns, against a loop of Monitors.

Run as ``python bench_table_monitor.py`` or ``make table-monitor`` (two minutes on one core); it writes
TABLE_MONITOR.md.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import exchangeable as ex
from exchangeable import alarms, bets, measures, snapshot
from workloads import best, heading, table

processor_time = partial(best, clock=time.process_time)  # the machine is shared

COLUMNS, BINS, REFERENCE, EARLIER = (5, 10, 20, 50, 100), 256, 15_000, 1_000
CATEGORIES = 5  # one column in so many holds categories
LABELS: list[tuple[str, dict[str, Any], bool]] = [
    ("with its row", {}, True),
    ("with its row, though it may come later", {"wait": "forever"}, True),
    ("later: rows wait", {"wait": "forever"}, False),
]
Columns = dict[str, Any]


def rows_of(rng: np.random.Generator, columns: int, n: int) -> Columns:
    """Return numbers that depend on each other, and categories."""
    common = rng.normal(size=n)
    return {
        f"x{j}": rng.choice(list("abcde"), n).tolist() if j % CATEGORIES == 4 else rng.normal(size=n) + common
        for j in range(columns)
    }


def one_by_one(columns: Columns) -> list[dict[str, Any]]:
    lists = [list(cells) if isinstance(cells, list) else cells.tolist() for cells in columns.values()]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*lists, strict=True)]


def times(columns: int, period: float | None, rows: int) -> list[float]:
    """Return microseconds per row in ``extend``, in ``update``, the state in MB, and the number of lines."""
    rng = np.random.default_rng(columns)
    monitor = ex.TableMonitor(rows_of(rng, columns, REFERENCE), bins=BINS, period=period, seed=1)
    monitor.extend(rows_of(rng, columns, EARLIER))
    batch = rows_of(rng, columns, rows)
    single = one_by_one(rows_of(rng, columns, rows // 10))
    extend = processor_time(lambda: monitor.extend(batch)) / rows
    update = processor_time(lambda: [monitor.update(row) for row in single]) / len(single)
    lines = len(monitor.explain())
    return [1e6 * extend, 1e6 * update, len(snapshot.encode(monitor)) / 1e6, float(lines)]


def loop_times(lines: int, period: float | None, rows: int) -> list[float]:
    """Return microseconds per row for that many monitors of numbers, in ``extend`` and in ``update``."""
    rng = np.random.default_rng(lines)
    alarm = alarms.Ville() if period is None else alarms.ShiryaevRoberts(period)
    reference = rng.normal(size=REFERENCE)
    monitors = [ex.Monitor(measures.Frozen(bins=BINS, reference=reference), alarm=alarm, seed=k) for k in range(lines)]
    for monitor in monitors:
        monitor.extend(rng.normal(size=EARLIER))
    x = rng.normal(size=(lines, rows))
    single = x[:, : rows // 10].T.tolist()
    extend = processor_time(lambda: [monitor.extend(cells) for monitor, cells in zip(monitors, x, strict=True)]) / rows
    update = processor_time(lambda: [[m.update(cell) for m, cell in zip(monitors, row, strict=True)] for row in single])
    return [1e6 * extend, 1e6 * update / len(single)]


def bet_times(lines: int, period: float | None, rows: int) -> list[float]:
    """Return microseconds per row for the bets alone, on p-values that are ready, many at once and one by one."""
    p = 1.0 - np.random.default_rng(lines).random((lines, rows))
    played = [bets.Adaptive() if period is None else bets.Sentinel() for _ in range(lines)]
    for bet, values in zip(played, p, strict=True):
        bet.extend(values[:EARLIER])
    single = p[:, : rows // 10].T.tolist()
    extend = processor_time(lambda: [bet.extend(values) for bet, values in zip(played, p, strict=True)]) / rows
    update = processor_time(lambda: [[bet.update(x) for bet, x in zip(played, row, strict=True)] for row in single])
    return [1e6 * extend, 1e6 * update / len(single)]


def measured(period: float | None, rows: int) -> str:
    """Return the table of one kind of alarm."""
    found = []
    for columns in COLUMNS:
        extend, update, size, lines = times(columns, period, rows)
        others = [part(int(lines), period, rows) for part in (loop_times, bet_times)]
        cells = [
            [f"{time:,.0f}", *(f"{time / other[k]:.2f}" for other in others)] for k, time in enumerate((extend, update))
        ]
        found.append([f"{columns}", f"{lines:.0f}", *cells[0], *cells[1], f"{size:.1f}"])
    ratios = ["times the loop", "times the bets"]
    names = ["columns", "lines", "`extend`, us a row", *ratios, "`update`, us a row", *ratios, "state, MB"]
    return table(names, found)


def label_times(settings: dict[str, Any], rows: int, *, given: bool) -> list[float]:
    """Return microseconds per row of 50 columns in ``extend`` and in ``update``, and the state in MB.

    Labels are ``given`` with the rows, or the rows wait for them.
    """
    rng = np.random.default_rng(1)
    classes = {"y": rng.choice(["good", "bad"], REFERENCE).tolist()}
    monitor = ex.TableMonitor(rows_of(rng, 50, REFERENCE) | classes, "y", bins=BINS, seed=1, most=10**6, **settings)
    ids = iter(range(10**6))

    def batch(n: int) -> tuple[Any, ...]:
        labels = {"y": rng.choice(["good", "bad"], n).tolist()} if given else {}
        data = rows_of(rng, 50, n) | labels
        return (data, [next(ids) for _ in range(n)]) if "wait" in settings else (data,)

    monitor.extend(*batch(EARLIER))
    size = len(snapshot.encode(monitor)) / 1e6
    batches = iter([batch(rows) for _ in range(3)])
    single = iter([zip(one_by_one(data), *more, strict=True) for data, *more in (batch(rows // 10) for _ in range(3))])
    extend = processor_time(lambda: monitor.extend(*next(batches))) / rows
    update = processor_time(lambda: [monitor.update(*row) for row in next(single)]) / (rows // 10)
    return [1e6 * extend, 1e6 * update, size]


def measured_labels(rows: int) -> str:
    """Return the table of labels that come with their rows, or later."""
    found = []
    for name, settings, given in LABELS:
        extend, update, size = label_times(settings, rows, given=given)
        found.append([name, f"{extend:,.0f}", f"{update:,.0f}", f"{size:.1f}"])
    return table(["label", "`extend`, us a row", "`update`, us a row", "state after 1,000 rows, MB"], found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("TABLE_MONITOR.md"))
    arguments = parser.parse_args()
    text = heading("Live tables: time per row", "make table-monitor", ["numpy"]) + "\n"
    text += (
        f"`TableMonitor(reference, bins={BINS})` with {REFERENCE:,} rows of reference; one column in {CATEGORIES} "
        "holds categories. A line is one martingale: for each column, four components and full rows. *The loop* is as "
        f"many `Monitor(Frozen(bins={BINS}, reference=...))` as there are lines, each with its own numbers ready in an "
        "array: it reads no rows, and knows no full rows, components or categories. *The bets* are those of all lines "
        "alone, on p-values ready in an array. Times are those of the processor, the best of three runs, summed over "
        "the threads among which a large batch is divided; compare ratios, since microseconds depend on the machine "
        "and on what else it does.\n\n"
        f"## With alpha: the bet `Adaptive`\n\n{measured(None, arguments.rows)}\n"
        f"## With a period: the bet `Sentinel`\n\n{measured(1e5, arguments.rows)}\n"
        f"## With a label of two classes, 50 columns, and alpha\n\n{measured_labels(arguments.rows)}"
    )
    arguments.out.write_text(text)
