"""Many streams, or one huge table, on Apache Spark, with the same numbers as on one machine, bit for bit.

Needs PySpark, ``pip install 'exchangeable[spark]'``, and Java 17 or newer. Executors need the package installed too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exchangeable._extras import check, needed

if TYPE_CHECKING:
    from exchangeable.fleet import stream_seed
    from exchangeable.spark.columns import RefusedError, refusal
    from exchangeable.spark.errors import WorkerError, clear_errors
    from exchangeable.spark.fleet import fleet_report
    from exchangeable.spark.resharding import Resharded, reshard
    from exchangeable.spark.sessions import session
    from exchangeable.spark.streaming import monitor_streams
    from exchangeable.spark.streams import test_streams
    from exchangeable.spark.table import pvalues

__all__ = [
    "RefusedError",
    "Resharded",
    "WorkerError",
    "clear_errors",
    "fleet_report",
    "monitor_streams",
    "pvalues",
    "refusal",
    "reshard",
    "session",
    "stream_seed",
    "test_streams",
]

_MODULES = {
    "RefusedError": "spark.columns",
    "Resharded": "spark.resharding",
    "WorkerError": "spark.errors",
    "clear_errors": "spark.errors",
    "fleet_report": "spark.fleet",
    "monitor_streams": "spark.streaming",
    "pvalues": "spark.table",
    "refusal": "spark.columns",
    "reshard": "spark.resharding",
    "session": "spark.sessions",
    "stream_seed": "fleet",
    "test_streams": "spark.streams",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name].startswith("spark."):
        _check_installed()
    value = globals()[name] = getattr(import_module(f"exchangeable.{_MODULES[name]}"), name)
    return value


def _check_installed() -> None:
    """Check that PySpark is installed, and the packages that its Python workers and state stores need."""
    check("spark", "Spark")
    with needed("spark", "Spark"):
        for module in ("google.protobuf", "pandas", "pyarrow"):
            import_module(module)
        from pyspark.sql import GroupedData

        if not hasattr(GroupedData, "transformWithState"):  # an installation of Spark without package metadata
            raise ImportError("its version has no transformWithState", name="pyspark")
