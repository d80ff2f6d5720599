"""Results in MLflow: read back from a store of files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exchangeable as ex
from exchangeable import bets
from exchangeable.adapters.mlflow import POINTS, log_result


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with a store of its own, which nothing leaves."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    module = pytest.importorskip("mlflow")
    before = module.get_tracking_uri()
    module.set_tracking_uri((tmp_path / "runs").as_uri())
    yield module
    while module.active_run() is not None:
        module.end_run()
    module.set_tracking_uri(before)


@pytest.fixture(scope="module")
def drifting() -> ex.analysis.Result:
    rng = np.random.default_rng(0)
    return ex.test(np.concatenate([rng.normal(size=1500), rng.normal(2.0, size=1500)]), alpha=0.05, seed=3)


@pytest.fixture(scope="module")
def quiet() -> ex.analysis.Result:
    return ex.test(np.random.default_rng(1).normal(size=(80, 2)))


def logged(mlflow: Any, result: ex.analysis.Result, **options: Any) -> Any:
    with mlflow.start_run() as run:
        log_result(result, **options)
    return mlflow.get_run(run.info.run_id)


def artifacts(mlflow: Any, run: Any, folder: str) -> dict[str, Path]:
    listed = mlflow.MlflowClient().list_artifacts(run.info.run_id, folder)
    return {
        one.path: Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=one.path))
        for one in listed
    }


def test_a_rejection(mlflow: Any, drifting: ex.analysis.Result) -> None:
    run = logged(mlflow, drifting)
    assert run.data.params == {
        "exchangeable/measure": "value",
        "exchangeable/bet": "adaptive",
        "exchangeable/alpha": "0.05",
        "exchangeable/seed": "3",
        "exchangeable/scale": drifting.scale,
        "exchangeable/n": "3000",
        "exchangeable/n_features": "1",
        "exchangeable/columns_tested": "0",
        "exchangeable/views_tested": "0",
    }
    assert run.data.metrics == {
        "exchangeable/rejected": 1.0,
        "exchangeable/log10_martingale": drifting.log10_martingale,
        "exchangeable/log10_max": drifting.log10_max,
        "exchangeable/log10_p_value": pytest.approx(-drifting.log10_max, rel=1e-9),  # one column: no others are tested
        "exchangeable/rejected_at": float(drifting.rejected_at or math.nan),
        "exchangeable/changepoint": float(drifting.changepoint or math.nan),
    }
    files = artifacts(mlflow, run, "exchangeable")
    assert set(files) == {
        f"exchangeable/{name}" for name in ("growth.png", "report.html", "result.json", "verdict.txt")
    }
    assert files["exchangeable/growth.png"].read_bytes().startswith(b"\x89PNG")
    assert "</html>" in files["exchangeable/report.html"].read_text(encoding="utf-8")
    assert json.loads(files["exchangeable/result.json"].read_text(encoding="utf-8")) == json.loads(drifting.to_json())
    assert files["exchangeable/verdict.txt"].read_text(encoding="utf-8") == f"{drifting}\n"


def test_no_rejection_and_little_else(mlflow: Any, quiet: ex.analysis.Result) -> None:
    run = logged(mlflow, quiet, prefix="train data", figure=False, report=False)
    assert run.data.metrics == {
        "train data/rejected": 0.0,
        "train data/log10_martingale": quiet.log10_martingale,
        "train data/log10_max": quiet.log10_max,
        "train data/log10_p_value": pytest.approx(math.log10(quiet.p_value)),
    }
    assert set(artifacts(mlflow, run, "train data")) == {"train data/verdict.txt"}


def test_a_rejection_by_one_column(mlflow: Any) -> None:
    """The metric of the verdict is at the level, whatever full rows say."""
    table = np.random.default_rng(2).normal(size=(400, 5))
    table[200:, 3] += 1.5
    result = ex.test(table, columns="each")
    assert result.rejected
    run = logged(mlflow, result, figure=False, report=False)
    assert run.data.params["exchangeable/columns_tested"] == "5"
    assert run.data.metrics["exchangeable/log10_p_value"] <= -2.0
    assert run.data.metrics["exchangeable/log10_p_value"] == pytest.approx(math.log10(result.p_value))


def test_two_results_in_one_run(mlflow: Any, quiet: ex.analysis.Result, drifting: ex.analysis.Result) -> None:
    with mlflow.start_run() as run:
        log_result(quiet, prefix="before", figure=False, report=False)
        log_result(drifting, prefix="after", figure=False, report=False)
    metrics = mlflow.get_run(run.info.run_id).data.metrics
    assert (metrics["before/rejected"], metrics["after/rejected"]) == (0.0, 1.0)


def test_the_path_thinned(mlflow: Any, drifting: ex.analysis.Result, quiet: ex.analysis.Result) -> None:
    for result, count in ((drifting, POINTS), (quiet, 80)):
        run = logged(mlflow, result, path=True, figure=False, report=False)
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "exchangeable/log10_path")
        assert len(history) == count
        steps = [point.step for point in history]
        assert (steps[0], steps[-1]) == (1, result.n)
        assert max(np.diff(steps)) <= math.ceil(result.n / count) + 1
        for point in history:
            assert point.value == result.path.log_value[point.step - 1] / math.log(10.0)


def test_what_is_infinite_is_left_out(mlflow: Any) -> None:
    class Ruinous(bets.Idle):
        def extend(self, p: Any) -> Any:
            return np.where(np.arange(len(p)) < 3, 0.0, -math.inf)

    run = logged(mlflow, ex.test(np.arange(9.0), bet=Ruinous()), path=True, figure=False, report=False)
    assert "exchangeable/log10_martingale" not in run.data.metrics
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "exchangeable/log10_path")
    assert [point.step for point in history] == [1, 2, 3]


def test_a_run_must_be_active(mlflow: Any, quiet: ex.analysis.Result, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a run of MLflow must be active"):
        log_result(quiet)
    assert mlflow.active_run() is None


def test_what_fails_logs_nothing(mlflow: Any, quiet: ex.analysis.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, path: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(ex.analysis.Result, "save_html", fails)
    with mlflow.start_run() as run, pytest.raises(OSError, match="disk full"):
        log_result(quiet)
    found = mlflow.get_run(run.info.run_id).data
    assert (found.params, found.metrics) == ({}, {})


def test_without_mlflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, quiet: ex.analysis.Result) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'exchangeable\[mlflow\]'"):
        log_result(quiet)
