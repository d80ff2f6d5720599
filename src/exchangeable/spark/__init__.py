"""Past one machine: many streams, and one huge table, on Apache Spark, with the numbers of one machine, bit for bit.

Needs PySpark, ``pip install 'exchangeable[spark]'``, and Java 17 or newer. Executors need the package installed too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exchangeable.fleet import stream_seed
    from exchangeable.spark.columns import RefusedError, refusal
    from exchangeable.spark.evidence import fleet_report
    from exchangeable.spark.live import monitor_streams
    from exchangeable.spark.sessions import session
    from exchangeable.spark.streams import test_streams
    from exchangeable.spark.table import pvalues

__all__ = [
    "RefusedError",
    "fleet_report",
    "monitor_streams",
    "pvalues",
    "refusal",
    "session",
    "stream_seed",
    "test_streams",
]

_PLACES = {
    "RefusedError": "spark.columns",
    "fleet_report": "spark.evidence",
    "monitor_streams": "spark.live",
    "pvalues": "spark.table",
    "refusal": "spark.columns",
    "session": "spark.sessions",
    "stream_seed": "fleet",
    "test_streams": "spark.streams",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _PLACES[name].startswith("spark."):
        _check()
    found = globals()[name] = getattr(import_module(f"exchangeable.{_PLACES[name]}"), name)
    return found


def _check() -> None:
    """Whether PySpark is there, and what its Python workers and state stores need."""
    try:
        import_module("google.protobuf")
        from pyspark.sql import GroupedData
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        require_minimum_pandas_version()
        require_minimum_pyarrow_version()
        if not hasattr(GroupedData, "transformWithState"):  # of version 4.1
            raise ImportError("pyspark must be of version 4.2 or newer")
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise ImportError(f"exchangeable.spark needs pyspark: pip install 'exchangeable[spark]' ({reason})") from error
