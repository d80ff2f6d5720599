"""The Spark session of a command: its input, its progress bar and its errors."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError
from exchangeable.cli.spark.options import FileFormat, OrderType, parse_pairs
from exchangeable.monitor import BetWarning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from rich.progress import Progress, TaskID

    from exchangeable.monitor import Monitor


# With one of these, names may be those of another file system.
CONFIGURED = ("PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR")


def check_input(
    role: str, name: str, master: str | None, conf: list[str] | None = None, *, parquet: bool = False
) -> None:
    """Refuse a file or folder that is not on this machine, before Java starts. Other file systems are left to Spark."""
    path = _local_path(name, master)
    elsewhere = not name.startswith("file:") and (conf or any(variable in os.environ for variable in CONFIGURED))
    if path is None or elsewhere or re.search(r"[*?\[{]", name):
        return
    if not path.exists():
        raise CommandError(f"{role} must be an existing file or folder, got {name!r}", UNDECIDED)
    if parquet and path.is_dir() and next(path.rglob("*.parquet"), None) is None:
        raise CommandError(f"{role} must hold Parquet files, got {name!r} without any", UNDECIDED)


def check_output(output: str, master: str | None, role: str = "--output") -> None:
    """Refuse an output folder that exists, before Java starts. Other file systems are left to Spark."""
    path = _local_path(output, master)
    if path is not None and os.path.lexists(path):
        raise CommandError(f"{role} must not exist, got {output!r}: choose another folder, or remove it", USAGE)


def check_new_output(output: str, checkpoint: str, master: str | None) -> None:
    """Refuse an output folder that exists at the first start, with a new checkpoint: Spark would skip its rows."""
    folder = _local_path(checkpoint, master)
    if folder is not None and not (folder / "metadata").exists():
        check_output(output, master)


def _local_path(name: str, master: str | None) -> Path | None:
    """Return the path of a folder on this machine; None if it may be elsewhere."""
    if name.startswith("file:"):
        return Path(unquote(name.removeprefix("file:")))
    other = re.match(r"[a-z][a-z0-9+.-]+:", name, re.IGNORECASE)
    return Path(name) if other is None and (master or "local").startswith("local") else None


@contextmanager
def spark_session(master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """Start a session, and turn its errors into short messages. Spark's output goes to a log file."""
    settings = parse_pairs("--conf", conf)
    from exchangeable.spark import session

    was_active = _has_active_session()
    log = Path(tempfile.mkdtemp(prefix="exchangeable-")) / "spark.log"
    try:
        with _redirect_stderr(log):  # Java and its child processes inherit it
            spark = session(master, settings=settings)
    except (RuntimeError, ValueError) as error:
        shutil.rmtree(log.parent)
        raise CommandError(str(error), UNDECIDED if isinstance(error, RuntimeError) else USAGE) from error
    keep_log = False
    try:
        with _command_errors(log), warnings.catch_warnings():
            warnings.simplefilter("ignore", BetWarning)  # it was reported when the options were read
            yield spark
    except CommandError as error:
        keep_log = str(log) in str(error)
        raise
    finally:
        if not was_active:
            with suppress(Exception):
                spark.stop()
        if not keep_log:
            shutil.rmtree(log.parent)


def _has_active_session() -> bool:
    """Return whether a session is already active, for example in a notebook."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@contextmanager
def _redirect_stderr(log: Path) -> Iterator[None]:
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@contextmanager
def _command_errors(log: Path) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from exchangeable.spark import RefusedError, WorkerError, clear_errors

    try:
        with nullcontext() if "EXCHANGEABLE_TRACEBACK" in os.environ else clear_errors():
            yield
    except (RefusedError, WorkerError) as error:
        raise CommandError(str(error), UNDECIDED) from error
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    except (PySparkException, Py4JError) as error:
        if "EXCHANGEABLE_TRACEBACK" in os.environ:
            raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CommandError(f"Spark failed: {first} (log file: {log})", UNDECIDED) from error


def read_table(
    spark: SparkSession,
    path: str,
    file_format: FileFormat,
    order: str,
    order_as: OrderType,
    options: Mapping[str, str],
    *,
    lenient: bool = False,
) -> DataFrame:
    """Read the files of a command, and parse the order column if it is text."""
    from exchangeable.spark import sources

    kind = sources.kind_of(path) if file_format is FileFormat.auto else file_format.value
    frame = sources.table(spark, path, kind, lenient=lenient, options=options)
    return sources.parse_order(frame, order, order_as.value)


def monitor_arguments(monitor: Monitor) -> dict[str, Any]:
    """Return the parts of a monitor as arguments of `test_streams` or `monitor_streams`."""
    parts = {"measure": monitor.measure, "bet": monitor.martingale.bet, "alarm": monitor.alarm}
    return {**parts, "on_alarm": monitor.on_alarm}


@contextmanager
def progress_bar(spark: SparkSession) -> Iterator[None]:
    """Show a progress bar of Spark's tasks on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    done = Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("Spark", total=None)
        thread = Thread(target=_update_bar, args=(spark, bars, task, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _update_bar(spark: SparkSession, bars: Progress, task: TaskID, done: Event) -> None:
    """Query Spark's status tracker twice a second."""
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(0.5):
        with suppress(Exception):  # the session may be ending
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [info for info in infos if info is not None]
            if stages:
                total = sum(stage.numTasks for stage in stages)
                completed = sum(stage.numCompletedTasks for stage in stages)
                name = f"stage {max(stage.stageId for stage in stages)}"
                bars.update(task, description=name, total=total, completed=completed)
