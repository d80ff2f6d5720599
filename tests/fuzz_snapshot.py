"""Forged snapshots: every leaf of every state is changed, with correct checksums. Loading must never crash.

    python tests/fuzz_snapshot.py SHARE [NAME ..]

tries this share of all changes (1: all), of the named cases if there are names, and prints how they ended: refused
when loaded, refused later, or continued. Anything else, above all a crash or a wait of a minute, is a failure. Under
``make sanitize``, reading beyond an array is a failure too.
"""

from __future__ import annotations

import faulthandler
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import contracts
from exchangeable import (
    LateLabels,
    Monitor,
    Precomputed,
    RateMonitor,
    Risk,
    TableMonitor,
    alarms,
    bets,
    measures,
    snapshot,
)
from exchangeable.snapshot import archive

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 5, (40, 2)) / 2.0, RNG.integers(0, 3, 40)
P = np.concatenate([1.0 - RNG.random(60) ** 2, [1.0, 1e-300, 5e-324, 0.5, 0.5]])
LOGS = np.cumsum(RNG.normal(size=30))
NUMBERS: list[Any] = [
    0.0,
    -0.0,
    0.5,
    -1.0,
    3.0,
    17.0,
    1e18,
    -1e18,
    1e308,
    -1e308,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
]
LEAVES: list[Any] = [
    *(None, True, False, -1, 0, 1, 7, 10**6, 2**31, 2**53, 2**63, -(2**63), 0.0, 0.5, -0.5, 1e300, "", "x", "smooth"),
    *([], [1, 2], {}, {"tuple": []}, {"tuple": [0.5]}, {"dict": []}, {"int": hex(10**40)}, {"bytes": "00"}),
    *({"float": "inf"}, {"float": "-inf"}, {"float": "nan"}, {"numpy": ["int64", 3]}, {"array": 0}, {"array": 10**9}),
    {"class": "bets.Idle", "with": {}},
    {"class": "bets.Tree", "with": {"depth": 24, "prior": "rough", "_state": {"tuple": []}}},
]


class Case:
    """An object in mid-stream, and a function that continues with it."""

    def __init__(self, thing: Any, continue_with: Callable[[Any], object], score: Any = None) -> None:
        self.kind, self.data, self.continue_with, self.score = type(thing), snapshot.encode(thing), continue_with, score


def _bet(bet: Any) -> Case:
    bet.extend(P)
    return Case(bet, lambda twin: (twin.log_density(0.3), twin.extend(P), twin.update(0.2), twin.extend(P[::-1])))


def _alarm(alarm: Any) -> Case:
    alarm.extend(LOGS)
    return Case(alarm, lambda twin: (twin.extend(LOGS), twin.update(0.5), twin.guarantee))


def _stream(case: contracts.MeasureCase, thing: Any, score: Any = None) -> Case:
    x, y = case.takes(X, Y.tolist())
    thing.extend(x, y)

    def continue_with(twin: Any) -> None:
        twin.update(x[0], None if y is None else y[0])
        twin.extend(x, y)
        for i in range(5):
            twin.update(x[i], None if y is None else y[i])

    return Case(thing, continue_with, score)


def cases() -> dict[str, Callable[[], Case]]:
    """Return everything under contract, and some monitors."""
    found: dict[str, Callable[[], Case]] = {}
    for name, bet in contracts.BETS.items():
        found[f"bet {name}"] = lambda bet=bet: _bet(bet.make())  # type: ignore[misc]
    for name, alarm in contracts.ALARMS.items():
        found[f"alarm {name}"] = lambda alarm=alarm: _alarm(alarm.make())  # type: ignore[misc]
    for name, case in contracts.MEASURES.items():
        measure = case.make()
        score = getattr(measure, "score", None)
        found[f"measure {name}"] = lambda case=case, m=measure, s=score: _stream(case, m, s)  # type: ignore[misc]
    value, nearest = contracts.MEASURES["Value"], contracts.MEASURES["NearestNeighbour"]
    binned = measures.Frozen(bins=8, reference=[0.0, 0.5, 1.0, 2.0])
    fast = {"alarm": alarms.Cusum(2), "on_alarm": "restart"}
    found["monitor"] = lambda: _stream(value, Monitor(measures.Value(), bets.Idle()))
    found["monitor restarts"] = lambda: _stream(value, Monitor(binned, bets.Kernel(4), **fast))  # type: ignore[arg-type]
    found["monitor nearest"] = lambda: _stream(nearest, Monitor(bet=bets.SimpleJumper(), alarm=alarms.Cusum(3)))
    found["late labels"] = lambda: _late(LateLabels(Monitor(measures.Value(), bets.Idle()), wait=10, most=8))
    found["monitor given"] = lambda: _given(Monitor(Precomputed(), bets.Power(0.5)))
    found["rate"] = lambda: _rate(RateMonitor(50))
    found["rate restarts"] = lambda: _rate(RateMonitor(values=[0, 1, 2], alpha=0.2, on_alarm="restart"))
    found["risk"] = lambda: _risk(Risk(0.2))
    found["risk restarts"] = lambda: _risk(Risk(0.5, period=30, bounds=(-1.0, 2.0), on_alarm="restart"))
    found["table with bins"] = lambda: _table(bins=4, period=200.0, columns="each")
    found["table with classes"] = lambda: _table(label="b", bins=4, categorical="b")
    found["table restarts"] = lambda: _table(label="a", alpha=0.3, on_alarm="restart", wait="forever")
    return found


def _table(**settings: Any) -> Case:
    rng = np.random.default_rng(7)
    columns = {"a": rng.normal(size=60), "b": rng.integers(0, 3, 60)}
    monitor = TableMonitor({name: x[:40] for name, x in columns.items()}, seed=1, **settings)
    ids = None if monitor.wait is None else [*range(20)]
    monitor.extend({name: x[40:] for name, x in columns.items()}, ids)

    def continue_with(twin: TableMonitor) -> None:
        twin.update({"a": 0.5, "b": 1}, None if ids is None else "one")
        twin.extend({name: x[:20] for name, x in columns.items()}, None if ids is None else [f"{i}" for i in ids])
        if twin.waiting:
            twin.label(twin.waiting[0], 0.25)
        assert len(f"{twin.explain()} {twin.alarm_explanation} {twin.left_out} {twin.curves} {twin.guarantee}") > 50

    return Case(monitor, continue_with)


def _risk(risk: Risk) -> Case:
    x = [0.0, 0.0, 1.0, 0.5, 0.0, 0.0] * 10
    risk.extend(x + [1.0] * 300)

    def continue_with(twin: Risk) -> None:
        twin.update(1)
        twin.extend(x)
        assert len(f"{twin.interval} {twin.mean} {twin.band} {twin.guarantee}") > 50

    return Case(risk, continue_with)


def _rate(monitor: RateMonitor) -> Case:
    x = [0, 0, 1, 0, 0, 0] * 10
    monitor.extend(x + [1] * 20)

    def continue_with(twin: RateMonitor) -> None:
        twin.update(1)
        twin.extend(x)
        assert len(f"{twin.change} {twin.shares} {twin.guarantee}") > 50

    return Case(monitor, continue_with)


def _late(queue: LateLabels) -> Case:
    for i in range(8):
        queue.observe(i, float(i), "a" if i == 7 else None, time=4 * i)
    queue.label(1, "b", time=30)

    def continue_with(twin: LateLabels) -> None:
        twin.observe("more", 0.5, time=30)
        twin.label("more", "c", time=31)
        while twin.waiting:
            twin.never(twin.waiting[0])
        assert len(twin.guarantee) > 50

    return Case(queue, continue_with)


def _given(monitor: Monitor) -> Case:
    monitor.extend(P)
    return Case(monitor, lambda twin: (twin.extend(P), twin.update(0.5)))


# ------------------------------------------------------------------ the changes


def changes(data: bytes, share: float, random: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield forged snapshots, and what was forged."""
    state, arrays = archive.unpack(data)
    for path, put in _places(state):
        for leaf in LEAVES:
            if random.random() < share:
                yield f"{path} = {leaf!r}", archive.pack(*_only_used(put(leaf), arrays))
    for i, array in enumerate(arrays):
        for what, other in _others(array, share, random):
            if random.random() < (share if "[" in what else 10.0 * share):
                yield f"array {i} {what}", archive.pack(state, [*arrays[:i], other, *arrays[i + 1 :]])


def _places(tree: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield every node of a tree, and a function that returns the tree with another node there, or without it."""
    yield path, lambda leaf: leaf
    items: list[Any] = list(tree.items()) if isinstance(tree, dict) else []
    items = list(enumerate(tree)) if isinstance(tree, list) else items
    for key, part in items:
        for below, put in _places(part, f"{path}/{key}"):
            yield below, lambda leaf, key=key, put=put: _with(tree, key, put(leaf))  # type: ignore[misc]
        yield f"{path}/{key} left out", lambda leaf, key=key: _without(tree, key)  # type: ignore[misc]
    if isinstance(tree, dict):
        yield f"{path} and another", lambda leaf: {**tree, "another": leaf}
    if isinstance(tree, list):
        yield f"{path} and another", lambda leaf: [*tree, leaf]


def _with(tree: Any, key: Any, part: Any) -> Any:
    if isinstance(tree, dict):
        return {**tree, key: part}
    return [*tree[:key], part, *tree[key + 1 :]]


def _without(tree: Any, key: Any) -> Any:
    if isinstance(tree, dict):
        return {name: part for name, part in tree.items() if name != key}
    return [*tree[:key], *tree[key + 1 :]]


def _only_used(tree: Any, arrays: list[Any]) -> tuple[Any, list[Any]]:
    """Drop the arrays that the tree no longer uses, so that it is not refused for these alone."""
    used: list[int] = []
    known = [str(i) for i in range(len(arrays))]

    def renumbered(part: Any) -> Any:
        if isinstance(part, dict) and part.keys() == {"array"} and str(part["array"]) in known:
            if part["array"] not in used:
                used.append(part["array"])
            return {"array": used.index(part["array"])}
        if isinstance(part, dict):
            return {name: renumbered(inner) for name, inner in part.items()}
        return [renumbered(inner) for inner in part] if isinstance(part, list) else part

    changed = renumbered(tree)
    return changed, [arrays[i] for i in used]


def _others(array: Any, share: float, random: random.Random) -> Iterator[tuple[str, Any]]:
    flat = array.ravel()
    yield "flat", flat if array.ndim > 1 else array.reshape(1, -1)
    yield "without dimensions", np.zeros((), array.dtype)
    yield "empty", array[:0]
    yield "empty but long", np.empty((10**9, 0), array.dtype)
    for axis in range(array.ndim):
        yield f"shorter {axis}", np.delete(array, -1, axis) if array.shape[axis] else array
        yield f"longer {axis}", np.concatenate([array, array], axis)
    for dtype in (np.float64, np.float32, np.int64, np.int32, np.bool_):
        with np.errstate(invalid="ignore"):
            yield f"of {np.dtype(dtype)}", array.astype(dtype)
    most = max(1, int(30 * share)) if flat.size > 64 else flat.size
    for value in NUMBERS:
        with np.errstate(all="ignore"):
            scalar = np.array(value).astype(array.dtype)
        yield f"all {value}", np.full_like(array, scalar)
        for at in random.sample(range(flat.size), min(most, flat.size)):
            other = flat.copy()
            other[at] = scalar
            yield f"[{at}] = {value}", other.reshape(array.shape)
    for at in random.sample(range(flat.size), min(most, flat.size)):
        for add in (1, -1):
            other = flat.copy()
            other[at] += np.array(add, array.dtype)
            yield f"[{at}] more by {add}", other.reshape(array.shape)
    if flat.size > 1:
        yield "reversed", flat[::-1].reshape(array.shape)


# ------------------------------------------------------------------ trying them


def outcome(case: Case, data: bytes) -> str:
    """Load a snapshot, continue with it, and return how that ended."""
    try:
        twin = snapshot.decode(data, score=case.score)
    except ValueError as error:
        if not str(error) or "\n" in str(error):
            raise AssertionError("an error must be one line") from error
        return "refused"
    if type(twin) is not case.kind:
        return "another thing"
    try:
        case.continue_with(twin)
        snapshot.encode(twin)
    except ValueError:
        return "refused later"
    return "continued"


def main() -> None:
    """Try all of them; the last line on stderr names the last one."""
    share, chosen = float(sys.argv[1]), sys.argv[2:]
    warnings.simplefilter("ignore")
    faulthandler.enable(2)
    failures = 0
    for name, make in cases().items():
        if chosen and name not in chosen:
            continue
        case, ends, generator = make(), Counter[str](), random.Random(name)
        if outcome(case, case.data) != "continued":
            raise AssertionError(f"{name} does not continue")
        for what, data in changes(case.data, share, generator):
            faulthandler.dump_traceback_later(60, exit=True, file=2)
            try:
                ends[outcome(case, data)] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is
                failures += 1
                print(f"FAILED {name}: {what}: {type(error).__name__}: {error}", flush=True)
            print(f"{name}: {what}"[:200], file=sys.stderr, flush=True)
        print(f"{name}: {dict(sorted(ends.items()))}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
