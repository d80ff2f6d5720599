"""MLflow: log a result to the experiment tracker, next to the model."""

from __future__ import annotations

import math
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable._extras import needed
from exchangeable.martingale import LN10

if TYPE_CHECKING:
    from exchangeable.analysis import Result

POINTS = 1000  # of the path, at most: the limit of one request to MLflow


def log_result(
    result: Result, *, prefix: str = "exchangeable", figure: bool = True, report: bool = True, path: bool = False
) -> None:
    """Log a result of `exchangeable.test` or `compare` to the active run of MLflow.

    - the parameters of `parameters` and the metrics of `metrics`, each as ``prefix/name``;
    - artifacts in the folder ``prefix``: ``verdict.txt``; with ``figure`` the chart ``growth.png``; with ``report``
      ``result.json`` and ``report.html``, which explains what changed and may take as long as a few tests;
    - with ``path`` the log10 of the capital as the metric ``prefix/log10_path``, with the number of examples as its
      step, thinned evenly to at most 1000 points including the last.

    All files are written before anything is logged. Two results in one run need two prefixes, since parameters of
    MLflow cannot be changed.

    >>> import exchangeable as ex
    >>> result = ex.test([3.0, 1.0, 2.0, 5.0, 4.0])
    >>> import mlflow                               # doctest: +SKIP
    >>> with mlflow.start_run():                    # doctest: +SKIP
    ...     log_result(result)
    """
    mlflow = _mlflow()
    run = mlflow.active_run()
    if run is None:
        raise ValueError("a run of MLflow must be active (with mlflow.start_run(): ...), got none")
    with tempfile.TemporaryDirectory() as folder:
        _write(result, Path(folder), figure, report)
        mlflow.log_params({f"{prefix}/{name}": value for name, value in parameters(result).items()})
        mlflow.log_metrics({f"{prefix}/{name}": value for name, value in metrics(result).items()})
        if path:
            mlflow.MlflowClient().log_batch(run.info.run_id, metrics=_steps(mlflow, result, f"{prefix}/log10_path"))
        mlflow.log_artifacts(folder, prefix)


def parameters(result: Result) -> dict[str, Any]:
    """Return the parameters of the run: the data and the method.

    >>> import exchangeable as ex
    >>> parameters(ex.test([3.0, 1.0, 2.0, 5.0, 4.0], seed=0))  # doctest: +NORMALIZE_WHITESPACE
    {'measure': 'value', 'bet': 'adaptive', 'alpha': 0.01, 'seed': 0, 'scale': 'none', 'n': 5, 'n_features': 1,
     'columns_tested': 0, 'views_tested': 0}
    """
    names = ("measure", "bet", "alpha", "seed", "scale", "n", "n_features")
    return {
        **{name: getattr(result, name) for name in names},
        "columns_tested": len(result.column_tests),
        "views_tested": len(result.view_tests),
    }


def metrics(result: Result) -> dict[str, float]:
    """Return the metrics of the run: the outcome of the test.

    ``log10_p_value`` is that of the verdict, at most log10 of alpha for a rejection; ``log10_martingale`` and
    ``log10_max`` are those of full rows. Missing and infinite values are left out, since MLflow may change them.

    >>> import exchangeable as ex
    >>> list(metrics(ex.test([3.0, 1.0, 2.0, 5.0, 4.0])))
    ['rejected', 'log10_martingale', 'log10_max', 'log10_p_value']
    >>> metrics(ex.test([float(i) for i in range(50)], seed=0))["rejected_at"]
    10.0
    """
    names = ("rejected", "log10_martingale", "log10_max", "rejected_at", "changepoint")
    values = {name: getattr(result, name) for name in names}
    values["log10_p_value"] = float(Decimal(result.p_value).log10())
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def _write(result: Result, folder: Path, figure: bool, report: bool) -> None:
    (folder / "verdict.txt").write_text(f"{result}\n", encoding="utf-8")
    if figure:
        result.plot().figure.savefig(folder / "growth.png")  # type: ignore[union-attr]
    if report:
        (folder / "result.json").write_text(result.to_json(), encoding="utf-8")
        result.save_html(folder / "report.html")


def _steps(mlflow: Any, result: Result, name: str) -> list[Any]:
    """Return points of the path as metrics of MLflow; those at minus infinity (bankruptcy) are left out."""
    steps, log10 = result.path.n, result.path.log_value / LN10
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(POINTS, len(steps))).astype(np.int64))
    now = int(time.time() * 1000)
    return [
        mlflow.entities.Metric(name, float(log10[i]), now, int(steps[i])) for i in chosen if math.isfinite(log10[i])
    ]


def _mlflow() -> Any:
    with needed("mlflow", "the adapter of MLflow"):
        import mlflow
    return mlflow
