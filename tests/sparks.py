"""Spark sessions for the tests: one for each process, because a start takes seconds.

    @pytest.fixture
    def spark() -> SparkSession:
        return sparks.local()

Only one session can run in a process: asking for another master stops the previous one. So each test asks for the
fixture, and few tests use another master.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = {
    "spark.default.parallelism": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # the optimising compiler would take longer than the tests
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",  # not worth it for tiny frames
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}
_kept: dict[str, Any] = {}


@cache
def missing() -> str | None:
    """Return why Spark cannot run here, or None."""
    try:
        from exchangeable.spark.sessions import check_java

        check_java()
    except (ImportError, RuntimeError) as error:
        return str(error)
    return None


def shared(master: str, **more: str) -> SparkSession:
    """Return the session of this process with this master; skip the test if Spark cannot run."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    if _kept.get("master") != master:
        end()
        _kept.update(spark=_start(master, more), master=master)
    spark: SparkSession = _kept["spark"]
    return spark


def _start(master: str, more: dict[str, str]) -> SparkSession:
    from exchangeable.spark import session

    elsewhere = {"spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "spark-warehouse")}
    settings = {**FEW, **elsewhere, **more}
    spark = session(master, name="tests of exchangeable", settings=settings)
    spark.sparkContext.setLogLevel("OFF")  # the tests check what fails
    return spark


@atexit.register
def end() -> None:
    """Stop the session, if there is one."""
    if "spark" in _kept:
        _kept["spark"].stop()
        _kept.clear()


def local() -> SparkSession:
    """Return a session with two threads of one process."""
    return shared("local[2]")


def cluster() -> SparkSession:
    """Return a session with two executors in separate processes."""
    return shared("local-cluster[2,1,1024]", **{"spark.executor.memory": "1g"})
