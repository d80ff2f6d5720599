"""The benchmark of detectors inside models: its streams, what it counts, and that a run can be repeated."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("river")

import bench_models
import model_runs
from model_runs import Run
from model_streams import STREAMS


def run_of(signals: list[int], length: int = 10_000) -> Run:
    return Run(accuracy=0.5, length=length, seconds=1.0, signals=signals, falls=0, capital=[])


@pytest.mark.parametrize("name", STREAMS)
def test_streams_can_be_repeated(name: str) -> None:
    first, again = (STREAMS[name].draw(3) for _ in range(2))
    assert first == again
    assert len(first) >= 1000
    assert all(0 < change < len(first) for change in STREAMS[name].changes or ())


def test_an_abrupt_change_is_where_it_is_said_to_be() -> None:
    """Before it, every label is that of the first concept; after it, some are not."""
    stream = STREAMS["STAGGER"]
    wrong = [i for i, (x, y) in enumerate(stream.draw(1)) if y != int(x["size"] == 0 and x["color"] == 0)]
    assert stream.changes is not None
    assert stream.changes[0] <= wrong[0] < stream.changes[0] + 20


@pytest.mark.parametrize(
    ("stream", "signals", "expected"),
    [
        ("SEA", [], ([], 3, 0)),
        ("SEA", [100, 2499], ([], 3, 2)),
        ("SEA", [2500, 2600, 5010, 9999], ([0, 10, 2499], 0, 1)),
        ("SEA, gradual", [1999, 2000, 2900, 3100], ([0], 2, 2)),
        ("SEA, no change", [5, 6], ([], 0, 2)),
    ],
)
def test_delays_and_false_alarms(stream: str, signals: list[int], expected: tuple[Any, ...]) -> None:
    assert bench_models.split(run_of(signals), stream) == expected


def test_falls_are_counted() -> None:
    """500 errors, 200 hits, 200 errors: one fall, one rise."""
    errors = [True] * 500 + [False] * 200 + [True] * 200
    assert model_runs.falls(errors, [550]) == 1
    assert model_runs.falls(errors, [550, 800]) == 1
    assert model_runs.falls(errors, [450]) == 0
    assert model_runs.falls(errors, [0, 1]) == 0


def test_an_interval() -> None:
    mean, half = bench_models.interval(np.arange(1.0, 6.0))
    assert mean == 3.0
    assert half == pytest.approx(1.963, abs=1e-3)


@pytest.mark.parametrize("model", model_runs.MODELS)
def test_runs_can_be_repeated(model: str) -> None:
    examples = [*itertools.islice(STREAMS["STAGGER"].draw(2), 2400, 2700)]
    for name in ("ADWIN", "10,000, up"):
        first, again = (model_runs.play(model, name, examples, (100,), 2) for _ in range(2))
        assert (first.accuracy, first.signals) == (again.accuracy, again.signals)
        assert first.accuracy > 0.3


def test_rises_only() -> None:
    detector, found = model_runs.RisingADWIN(), []
    for i, value in enumerate([1] * 1000 + [0] * 1000 + [1] * 1000):
        detector.update(value)
        found += [i] if detector.drift_detected else []
    assert len(found) == 1
    assert 2000 <= found[0] < 2100
