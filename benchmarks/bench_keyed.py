"""Many live streams in one process: what a call, a look and a save cost, by the number of keys; writes KEYED.md."""

from __future__ import annotations

import copy
import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from exchangeable import Monitor, Monitors, bets, measures
from exchangeable.fleet import stream_seed
from exchangeable.keyed.recipe import validate
from workloads import best, heading, table

KEYS = (2_000, 20_000, 200_000)
EVENTS, PAST = 100, 5  # of a small call; of each key before it
BYTES = {
    "CompositeJumper": bets.CompositeJumper,
    "Sentinel": bets.Sentinel,
    "Adaptive": bets.Adaptive,
}
TEXT = f"""
`Monitors` with `Value`, `CompositeJumper` and `Ville`; keys such as "device-000017", each with {PAST} events before.
Times are the shortest of several; the machine is shared.

## A call with {EVENTS} events, milliseconds

*Columns copied*: the same call after a copy of all columns, which is what a call would cost that does not change them
in place. *Monitors in a dict*: {EVENTS} calls of `update` on single monitors, without sequence numbers.

CALLS
## All keys at once, milliseconds

*One event each*: a call with one event of every key. *Changes*: `encode(since)` after a call with {EVENTS} events.

ALL
## Memory, bytes for each of 1,000 keys without their pools

*Stored* is the length of `encode()`; *in memory* includes the key, and the index by which a call with few keys finds
them.

MEMORY
"""


def names(keys: int) -> Any:
    return np.array([f"device-{i:06d}" for i in range(keys)])


def started(keys: int, bet: Callable[[], Any] = bets.CompositeJumper, past: int = PAST) -> Monitors:
    monitors, rng = Monitors(Monitor(measures.Value(), bet()), seed=1), np.random.default_rng(0)
    for call in range(past):
        monitors.extend(names(keys), np.full(keys, call), rng.normal(size=keys))
    return monitors


class Calls:
    """Small calls, each with the next event of some keys."""

    def __init__(self, monitors: Monitors) -> None:
        self.monitors, self.rng = monitors, np.random.default_rng(1)
        self.all, self.order = names(len(monitors)), itertools.count(PAST)

    def __call__(self) -> None:
        at = self.rng.integers(0, len(self.all), EVENTS)
        self.monitors.extend(self.all[at], np.full(EVENTS, next(self.order)), self.rng.normal(size=EVENTS))

    def copied(self) -> None:
        copy.copy(self.monitors)
        self()


def single(rng: np.random.Generator) -> Callable[[], None]:
    """The same number of events on single monitors."""
    recipe = validate(Monitor(measures.Value(), bets.CompositeJumper()))
    monitors = {}
    for key in names(EVENTS).tolist():
        monitors[key] = Monitor(measures.Value(), copy.deepcopy(recipe.martingale.bet), seed=stream_seed(1, key))
        monitors[key].extend(rng.normal(size=PAST))

    def run() -> None:
        for monitor, x in zip(monitors.values(), rng.normal(size=EVENTS).tolist(), strict=True):
            monitor.update(x)

    return run


def milliseconds(work: Callable[[], object], repeats: int = 15) -> str:
    return f"{1e3 * best(work, repeats=repeats):.2f}"


def measured(keys: int) -> tuple[list[str], list[str]]:
    """One row of both tables."""
    monitors = started(keys)
    calls = Calls(monitors)
    for _ in range(3):
        calls()  # the index of the keys, and room
    small = [milliseconds(calls, 50), milliseconds(calls.copied), milliseconds(single(calls.rng))]
    version = monitors.version
    calls()
    order = itertools.count(10**6)
    everything = [
        milliseconds(lambda: monitors.extend(calls.all, np.full(keys, next(order)), calls.rng.normal(size=keys)), 5),
        milliseconds(monitors.standings, 5),
        milliseconds(monitors.encode, 5),
    ]
    version = monitors.version
    calls()
    return [f"{keys:,}", *small], [f"{keys:,}", *everything, milliseconds(lambda: monitors.encode(version))]


def memory(name: str, keys: int = 1_000) -> list[str]:
    """Bytes of one key, stored and in memory."""
    monitors = started(keys, BYTES[name], past=0)
    monitors.extend(["warm"], [0], [0.5], [True])  # imports
    tracemalloc.start()
    monitors = started(keys, BYTES[name], past=0)
    refused = np.ones(keys, np.bool_)
    for part in np.array_split(np.arange(keys), 10):
        monitors.extend(names(keys)[part], np.zeros(len(part), np.int64), np.zeros(len(part)), refused[part])
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return [f"`{name}()`", f"{len(monitors.encode()) / keys:,.0f}", f"{held / keys:,.0f}"]


def main() -> str:
    rows = [measured(keys) for keys in KEYS]
    made = {
        "CALLS": table(["keys", "in place", "columns copied", "monitors in a dict"], [row[0] for row in rows]),
        "ALL": table(["keys", "one event each", "standings", "encode", "changes"], [row[1] for row in rows]),
        "MEMORY": table(["bet", "stored", "in memory"], [memory(name) for name in BYTES]).rstrip("\n"),
    }
    text = TEXT
    for word, part in made.items():
        text = text.replace(word, part)
    return "\n".join([heading("Many live streams", "make keyed", ["numpy", "pyarrow"]), text.lstrip("\n")])


if __name__ == "__main__":
    Path(__file__).with_name("KEYED.md").write_text(main(), encoding="utf-8")
