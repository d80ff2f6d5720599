"""Spark sessions with suitable settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from exchangeable.validation import format_value

JAVA = 17
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOOPBACK = "127.0.0.1"
ONE_THREAD = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

MASTER_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "5",  # the default of 100 fills the disk
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **{f"spark.executorEnv.{name}": "1" for name in ONE_THREAD},  # tasks already use all cores
}


def session(
    master: str | None = None, *, name: str = "exchangeable", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session with settings that suit this package; ``settings`` override them.

    ``master`` says where it runs: "local[4]", "spark://host:7077", "yarn". By default ``spark-submit`` or an
    installation of Spark decides, else it is this machine with all cores. A local session listens on 127.0.0.1 only.
    Workers run this Python, unless ``PYSPARK_PYTHON`` names another. An active session is returned unchanged; then
    ``master`` and ``settings`` must be left out or equal those of the session.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        _check_settings(active, master, settings or {})
        return active
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = master if master is not None or any(name in os.environ for name in MASTER_VARIABLES) else "local[*]"
    builder = SparkSession.builder.appName(name)
    if where is not None:
        builder = builder.master(where)
    for setting, value in {**SETTINGS, **_local(where), **(settings or {})}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def _local(master: str | None) -> dict[str, str]:
    """Return the settings of a local master: it listens on loopback only and uses every core."""
    if master is None or not master.startswith("local"):
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    }


def _check_settings(active: SparkSession, master: str | None, settings: Mapping[str, str]) -> None:
    current = active.conf.get("spark.master", None)
    if master not in (None, current):
        raise ValueError(f"master must be that of the active session, {current!r}, got {format_value(master)}")
    for setting, value in settings.items():
        actual = active.conf.get(setting, None)
        if actual != value:
            expected = f"settings must be those of the active session: {setting}={format_value(actual)}"
            raise ValueError(f"{expected}, got {format_value(value)}")


def check_java() -> None:
    """Check that there is a suitable Java; Spark's own error message only mentions a gateway."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit
        return
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    wanted = f"Spark needs Java {JAVA} or newer: install Debian's openjdk-17-jre-headless, or set JAVA_HOME"
    if program is None:
        raise RuntimeError(f"{wanted} (not found: {Path(home, 'bin', 'java') if home else 'java'})")
    result = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', result.stderr + result.stdout)
    if version is not None and int(version[1]) < JAVA:
        raise RuntimeError(f"{wanted} (got version {version[1]} of {program})")
