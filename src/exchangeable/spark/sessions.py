"""A session of Spark with the settings that matter here."""

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

ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_REMOTE")  # say where

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.minBatchesToRetain": "5",  # 100 fill the disk
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    **{f"spark.executorEnv.{name}": "1" for name in ONE_THREAD},  # the tasks share the cores already
}


def session(
    master: str | None = None, *, name: str = "exchangeable", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A new session, with settings that suit `monitor_streams` and its sisters; ``settings`` are yours and go first.

    ``master`` is where it runs: "local[4]", "spark://host:7077", "yarn"; left out, what ``spark-submit`` or an
    installation of Spark says, else this machine with all cores. On this machine it listens on 127.0.0.1 only. Workers
    run this Python, unless ``PYSPARK_PYTHON`` names another. A session that runs already is returned as it is, never
    changed: then ``master`` and ``settings`` must be left out, or say what it has.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        _check_same(running, master, settings or {})
        return running
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    where = master if master is not None or any(name in os.environ for name in ELSEWHERE) else "local[*]"
    builder = SparkSession.builder.appName(name)
    if where is not None:
        builder = builder.master(where)
    for setting, value in {**SETTINGS, **_local(where), **(settings or {})}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def _local(master: str | None) -> dict[str, str]:
    """Settings of a master that lives in this process: nothing is heard from outside, and every core has work."""
    if master is None or not master.startswith("local"):
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return {
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    }


def _check_same(running: SparkSession, master: str | None, settings: Mapping[str, str]) -> None:
    own = running.conf.get("spark.master", None)
    if master not in (None, own):
        raise ValueError(f"master must be that of the session that runs already, {own!r}, got {format_value(master)}")
    for setting, value in settings.items():
        has = running.conf.get(setting, None)
        if has != value:
            law = f"settings must be those of the session that runs already: {setting}={format_value(has)}"
            raise ValueError(f"{law}, got {format_value(value)}")


def check_java() -> None:
    """Spark is a program of Java; without one its own error speaks of a gateway."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit
        return
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    wanted = f"Spark needs Java {JAVA} or newer: install Debian's openjdk-17-jre-headless, or set JAVA_HOME"
    if program is None:
        raise RuntimeError(f"{wanted} (there is no {Path(home, 'bin', 'java') if home else 'java'})")
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    version = re.search(r'version "(\d+)', told.stderr + told.stdout)
    if version is not None and int(version[1]) < JAVA:
        raise RuntimeError(f"{wanted} (got version {version[1]} of {program})")
