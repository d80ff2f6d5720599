"""Spark sessions: a missing part is reported in one sentence, and an active session is left unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import absent
import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

import exchangeable.spark
from exchangeable.spark import session
from exchangeable.spark.sessions import ROCKSDB, check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WANTED = "Spark needs Java 17 or newer: install Debian's openjdk-17-jre-headless, or set JAVA_HOME"


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


def java(folder: Path, version: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)


def test_without_java_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(RuntimeError) as error:
        check_java()
    assert str(error.value) == f"{WANTED} (not found: java)"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    with pytest.raises(RuntimeError) as error:
        check_java()
    assert str(error.value) == f"{WANTED} (not found: {tmp_path}/jre/bin/java)"


@pytest.mark.parametrize(
    ("version", "valid"), [("1.8.0_402", False), ("11.0.22", False), ("17.0.1", True), ("21", True)]
)
def test_java_must_be_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, valid: bool) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if valid:
        check_java()
        return
    with pytest.raises(RuntimeError) as error:
        check_java()
    assert str(error.value) == f"{WANTED} (got version {version.split('.')[0]} of {tmp_path}/bin/java)"


@pytest.mark.parametrize("missing", ["pyspark", "protobuf", "pyarrow"])
def test_without_pyspark_the_sentence_says_what_to_install(missing: str) -> None:
    program = f"{absent.without(missing)}\nimport exchangeable.spark as s\ns.stream_seed\ns.test_streams"
    done = absent.run(program)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == f"ImportError: {missing} is not installed; for Spark: pip install 'exchangeable[spark]'"


def test_a_cluster_s_own_pyspark_may_be_too_old() -> None:
    done = absent.run("""
import pyspark.sql
pyspark.sql.GroupedData = object
import exchangeable.spark as s
s.session
""")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: pyspark cannot be used (its version has no transformWithState); for Spark: ")


def test_the_names_are_all_there() -> None:
    for name in exchangeable.spark.__all__:
        assert callable(getattr(exchangeable.spark, name))
    assert sorted(exchangeable.spark.__all__) == exchangeable.spark.__all__
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        exchangeable.spark.other  # noqa: B018


def test_importing_it_imports_no_pyspark() -> None:
    program = "import sys, exchangeable.spark; assert 'pyspark' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_settings_that_matter(spark: SparkSession) -> None:
    conf: Any = spark.conf
    assert conf.get("spark.sql.streaming.stateStore.providerClass") == ROCKSDB
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.driver.bindAddress") == conf.get("spark.driver.host") == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"]

    def environment(batches: Any) -> Any:
        import os
        import sys

        import pyarrow as pa

        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        list(batches)
        yield pa.RecordBatch.from_pylist([{"v": " ".join([sys.executable, *(os.environ[name] for name in names)])}])

    rows = spark.range(1).coalesce(1).mapInArrow(environment, "v string").collect()
    assert rows[0].v.split() == [sys.executable, "1", "1", "1"]


def test_a_session_that_runs_is_left_as_it_is(spark: SparkSession) -> None:
    assert session() is spark
    assert session("local[2]", settings={"spark.sql.session.timeZone": "UTC"}) is spark
    with pytest.raises(ValueError, match=r"^master must be that of the active session, 'local\[2\]', got 'yarn'$"):
        session("yarn")
    with pytest.raises(ValueError, match=r"^settings must be those .*: spark.ui.enabled='false', got 'true'$"):
        session(settings={"spark.ui.enabled": "true"})
    assert spark.conf.get("spark.ui.enabled") == "false"
