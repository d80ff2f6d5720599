"""The result in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exchangeable.analysis.formats import count_of, format_evidence, percent
from exchangeable.martingale import LN10
from exchangeable.streams.summary import FleetTest
from exchangeable.table_monitor import TableMonitor

# Streams changed together if this share of them, and at least so many, changed in two adjacent parts.
TOGETHER, LEAST = 0.5, 3
PARTS = 20  # of the time between the first and the last row of the data, or of the rows of a stream


def headline(result: FleetTest) -> str:
    """Return the verdict: how many streams are discovered, at which rate of false discoveries."""
    count, total = len(result.discovered), len(result.columns["n"])
    rate = f"at a false discovery rate of {percent(result.alpha)}"
    if not count:
        return f"No change was found in any of {count_of(total, 'stream')}, {rate}"
    return f"{count:,} of {count_of(total, 'stream')} {'has' if count == 1 else 'have'} changed, {rate}"


def lead(result: FleetTest) -> list[str]:
    """Return sentences about the data: rows, refused rows, and the evidence that was needed."""
    refused = int(result.columns["refused"].sum())
    needed = format_evidence(result.log_threshold / LN10)
    if found := len(result.discovered):
        lines = [f"{'It' if found == 1 else 'Each of them'} has reached evidence of at least {needed}."]
    else:
        lines = [f"A single stream would need evidence of {needed}; several together need less each."]
    lines.append(f"{count_of(result.rows, 'row')} in {count_of(len(result.columns['n']), 'stream')} were read.")
    if refused:
        why = "a number, the label or the order is missing, or a number is infinite, out of range or text"
        lines.append(f"{count_of(refused, 'row')} {'was' if refused == 1 else 'were'} refused: {why}.")
    return lines


def method(result: FleetTest) -> list[str]:
    """Return how the streams were tested, and what is guaranteed."""
    monitor = result.monitor
    order = "in the order of the data" if result.wanted.order is None else f"sorted by {result.wanted.order}"
    more = ", the largest number that there will ever be" if result.fleet_size > len(result.columns["n"]) else ""
    return [
        f"Each stream is the rows of one {result.wanted.key}, {order}.",
        f"Tested: {', '.join(result.wanted.features or ())}.",
        f"{recipe(monitor)}, seed {result.seed}.",
        f"Discoveries by e-BH among {count_of(result.fleet_size, 'stream')}{more}. On average, at most "
        f"{percent(result.alpha)} of the discovered streams are false discoveries, however the streams depend on one "
        "another, if the data ends at a time fixed in advance and no stream is left out.",
        f"Each stream has an alarm of its own. {monitor.guarantee} Over many streams, some false alarms are expected; "
        "the discoveries account for that.",
        "Times of changes are estimates, without a guarantee.",
    ]


def recipe(monitor: Any) -> str:
    """Describe how each stream is tested."""
    if isinstance(monitor, TableMonitor):
        return f"Each stream has a TableMonitor of {len(monitor.schema.columns)} columns, alpha {monitor.alpha:g}"
    return f"Measure {monitor.measure!r}, bet {monitor.martingale.bet!r}, alarm {monitor.alarm!r}"


def together(shares: list[int], *, timed: bool) -> str:
    """Say whether many streams changed together; ``shares`` are the changes in each part of the time or the rows."""
    counts, total = np.array(shares), sum(shares)
    most = int((counts[:-1] + counts[1:]).max())  # in two adjacent parts, since a border may divide changes
    where = "within one tenth of the time of the data" if timed else "within one tenth of the rows of their streams"
    if most >= max(LEAST, math.ceil(TOGETHER * total)):
        return f"{most:,} of {total:,} changes lie {where}: look for a common cause first."
    return f"The {total:,} changes are spread out: at most {most:,} lie {where}."
