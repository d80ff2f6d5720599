"""Digests of what the compiled loops compute: equal for every build of the library.

    python tests/native_digests.py [LIBRARY [PART ..]]

plays fixed streams through the elementary functions, every bet, alarm and measure of ``contracts.py``, keyed monitors
and tiles, with this library in the place of the installed one (unless it is empty), and prints a JSON object: for each
part (of those whose names begin with a PART, if there are any) a digest of all results and of the state at the end.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

Part = tuple[str, Callable[[], bytes]]
Floats = NDArray[np.float64]
CUTS = [0, 0, 1, 5, 64, 0, 300, 2]  # 0: one by one; k: a batch of k


def replace(library: str) -> None:
    """Let this library be the compiled part of the package; to be called before the package is imported."""
    name = "exchangeable.native._native"
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    assert "exchangeable" not in sys.modules
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


# ------------------------------------------------------------------ streams


def p_streams() -> dict[str, Floats]:
    """P-values: long enough that every bet has left its beginning, and every extreme."""
    rng = np.random.default_rng(0)
    extreme = np.array([1e-300, 5e-324, 2.0**-1022, 1.0, np.nextafter(1.0, 0.0), 0.5, 2.0**-53, 1e-17])
    streams = {
        "uniform": 1.0 - rng.random(6_000),
        "beta": rng.beta(0.5, 1.0, 1_500),
        "tiny": 10.0 ** -(300.0 * rng.random(700)),
        "ones": np.ones(700),
        "ties": np.ceil(8.0 * rng.random(1_500)) / 8.0,
        "extremes": rng.choice(extreme, 700),
        "a change": np.concatenate([1.0 - rng.random(1_000), rng.beta(0.2, 3.0, 500), rng.beta(3.0, 0.2, 500)]),
    }
    return {name: np.maximum(p, 5e-324) for name, p in streams.items()}


def tables() -> dict[str, tuple[Floats, list[int]]]:
    """Rows with labels: without ties, and with little else."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 1_400).tolist()
    coarse = rng.integers(0, 4, (900, 3)) / 2.0
    return {"normal": (rng.normal(size=(1_400, 5)), labels), "ties": (coarse, labels[:900])}


# ------------------------------------------------------------------ parts


def parts() -> Iterator[Part]:
    """A name, and what computes the bytes of all results."""
    yield from _elementary()
    yield from _bets()
    yield from _alarms()
    yield from _measures()
    yield from _history()
    yield from _keyed()
    yield from _table_monitors()
    yield from _tiles()


def _elementary() -> Iterator[Part]:
    from elementary_accuracy import FUNCTIONS, Function, sample

    def applied(function: Function, x: Floats) -> bytes:
        return _bits(function(x))

    edges = np.array([0.0, -0.0, 5e-324, 1.0, -1.0, 0.5, 28.0, -1000.0, 1000.0, 1e300, -1e300, np.inf, -np.inf, np.nan])
    for name, function in FUNCTIONS.items():
        x = np.concatenate([sample(name, 50_000), edges])
        yield f"elementary {name}", partial(applied, function, x)


def _bits(values: Floats) -> bytes:
    """With one NaN: which of them a computation gives is not said by IEEE 754."""
    return np.where(np.isnan(values), np.nan, values).tobytes()


def _bets() -> Iterator[Part]:
    import contracts
    from exchangeable import snapshot

    def played(case: contracts.BetCase, p: Floats) -> bytes:
        whole, pieces = case.make(), case.make()
        gains = whole.extend(p)
        again = contracts.bet_in_pieces(pieces, p[:600].tolist(), CUTS)
        return _bits(gains) + _bits(again) + snapshot.encode(whole) + snapshot.encode(pieces)

    for (name, case), (stream, p) in itertools.product(contracts.BETS.items(), p_streams().items()):
        yield f"bet {name}: {stream}", partial(played, case, p)


def _alarms() -> Iterator[Part]:
    import contracts
    from exchangeable import snapshot

    rng = np.random.default_rng(2)
    log_values = np.cumsum(rng.normal(size=2_000)) * np.repeat([0.01, 1.0, 40.0, 1.0], 500)

    def played(case: contracts.AlarmCase) -> bytes:
        alarm = case.make()
        return bytes(alarm.update(value) for value in log_values.tolist()) + snapshot.encode(alarm)

    for name, case in contracts.ALARMS.items():
        yield f"alarm {name}", partial(played, case)


def _measures() -> Iterator[Part]:
    import contracts
    from exchangeable import snapshot

    def ranked(case: contracts.MeasureCase, X: Floats, y: list[int]) -> bytes:
        measure = case.make()
        ranks = np.array(case.ranks(measure, X, y, [400, 0, 1, 30, 0, 300]))
        return ranks.tobytes() + snapshot.encode(measure)

    for (name, case), (table, (X, y)) in itertools.product(contracts.MEASURES.items(), tables().items()):
        yield f"measure {name}: {table}", partial(ranked, case, X, y)


def _history() -> Iterator[Part]:
    from exchangeable import Monitor, Precomputed, alarms, bets, snapshot

    def played(p: Floats, on_alarm: str) -> bytes:
        monitor = Monitor(Precomputed(), bets.SimpleJumper(), alarms.Ville(0.3), on_alarm=on_alarm)
        monitor.extend(p)
        return snapshot.encode(monitor)

    for name, p in p_streams().items():
        for on_alarm in ("latch", "restart"):
            yield f"history {name} {on_alarm}", partial(played, p, on_alarm)


def _keyed() -> Iterator[Part]:
    from exchangeable import Monitor, alarms, measures
    from exchangeable.catalogue import BETS
    from exchangeable.keyed import Monitors
    from exchangeable.protocols import Measure

    rng = np.random.default_rng(3)
    keys = rng.choice(["a", "b", "c", "d"], 1_200)
    x = np.round(rng.normal(np.repeat([0.0, 1.0], 600)), 1)
    order = np.empty(1_200, np.int64)
    for key in "abcd":
        order[keys == key] = np.arange((keys == key).sum())

    def played(bet: str, measure: Measure, x: Floats) -> bytes:
        recipe = Monitor(measure, BETS[bet](), alarms.ShiryaevRoberts(30.0), on_alarm="restart")
        monitors = Monitors(recipe, seed=4)
        rows = [monitors.extend(keys[at], order[at], x[at]) for at in np.split(np.arange(1_200), [1, 40, 500])]
        return b"".join(_bits(part.p) + _bits(part.log_value) for part in rows) + monitors.encode()

    for bet in (name for name in BETS if name != "sleeper-drifter"):  # its state grows
        yield f"keyed {bet}", partial(played, bet, measures.Value(), x)
    binned = measures.Frozen(bins=8, reference=np.linspace(-2.0, 2.0, 50))
    yield "keyed bins", partial(played, "simple-jumper", binned, binned.scores(x))


def _table_monitors() -> Iterator[Part]:
    from exchangeable import TableMonitor, snapshot

    rng = np.random.default_rng(5)
    table = {"a": rng.normal(size=900), "b": rng.integers(0, 5, 900), "c": rng.normal(np.repeat([0.0, 1.0], 450))}

    def played(**settings: Any) -> bytes:
        reference = {name: column[:300] for name, column in table.items()}
        monitor = TableMonitor(reference, bins=8, seed=6, **settings)
        paths = [
            monitor.extend({name: column[lo:hi] for name, column in table.items()})
            for lo, hi in itertools.pairwise([300, 301, 302, 350, 900])
        ]
        return b"".join(_bits(path.log_value) for path in paths) + snapshot.encode(monitor)

    yield "table monitor", partial(played, alpha=0.2, on_alarm="restart")
    yield "table monitor with a period", partial(played, period=1000.0)


def _tiles() -> Iterator[Part]:
    from test_tiles import tiled

    def ranked(X: Floats, y: list[int]) -> bytes:
        return b"".join(column.tobytes() for column in tiled(X, y, 256))

    for name, (X, y) in tables().items():
        yield f"tiles: {name}", partial(ranked, X, y)


def digests(chosen: list[str]) -> dict[str, str]:
    """The digest of each part, or of those whose names begin with one of these."""
    wanted = tuple(chosen) or ("",)
    return {name: sha256(part()).hexdigest() for name, part in parts() if name.startswith(wanted)}


if __name__ == "__main__":
    if sys.argv[1:2] not in ([], [""]):
        replace(sys.argv[1])
    warnings.simplefilter("ignore")
    print(json.dumps(digests(sys.argv[2:])))
