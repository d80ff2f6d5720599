"""A session of Spark for one command."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError
from exchangeable.cli.spark.options import pairs
from exchangeable.monitor import BetWarning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress, TaskID

    from exchangeable.monitor import Monitor


@contextmanager
def cluster(master: str | None, conf: list[str] | None) -> Iterator[SparkSession]:
    """A session of Spark, and its failures as one sentence each; what Spark itself has to say goes to a file."""
    settings = pairs("--conf", conf)
    from exchangeable.spark import session

    shared = _active()
    log = Path(tempfile.mkdtemp(prefix="exchangeable-")) / "spark.log"
    try:
        with _aside(log):  # Java, and all that it starts, inherits this
            spark = session(master, settings=settings)
    except (RuntimeError, ValueError) as error:
        shutil.rmtree(log.parent)
        raise CommandError(str(error), UNDECIDED if isinstance(error, RuntimeError) else USAGE) from error
    named = False
    try:
        with _explained(log), warnings.catch_warnings():
            warnings.simplefilter("ignore", BetWarning)  # it was reported when the options were read
            yield spark
    except CommandError as error:
        named = str(log) in str(error)
        raise
    finally:
        if not shared:
            with suppress(Exception):
                spark.stop()
        if not named:
            shutil.rmtree(log.parent)


@contextmanager
def _aside(log: Path) -> Iterator[None]:
    """Send what is written to stderr to a file."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def stages(spark: SparkSession) -> Iterator[None]:
    """A progress bar of Spark's tasks on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    over = Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        thread = Thread(target=_follow, args=(spark, bars, bars.add_task("Spark", total=None), over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _follow(spark: SparkSession, bars: Progress, bar: TaskID, over: Event) -> None:
    """Twice a second, ask Spark's own tracker."""
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(0.5):
        with suppress(Exception):  # of a session that ends
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [info for info in infos if info is not None]
            if known:
                total, done = sum(info.numTasks for info in known), sum(info.numCompletedTasks for info in known)
                name = f"stage {max(info.stageId for info in known)}"
                bars.update(bar, description=name, total=total, completed=done)


def _active() -> bool:
    """Whether there is a session already: a notebook's, say."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


@contextmanager
def _explained(log: Path) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from exchangeable.spark import RefusedError, refusal

    try:
        yield
    except RefusedError as error:
        raise CommandError(str(error), UNDECIDED) from error
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    except (PySparkException, Py4JError) as error:
        if "EXCHANGEABLE_TRACEBACK" in os.environ:
            raise
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        said = refusal(error) or f"Spark could not do it: {first} (its log: {log})"
        raise CommandError(said, UNDECIDED) from error


def parts(recipe: Monitor) -> dict[str, Any]:
    """What a monitor is made of, as the functions on Spark take it."""
    made = {"measure": recipe.measure, "bet": recipe.martingale.bet, "alarm": recipe.alarm}
    return {**made, "on_alarm": recipe.on_alarm}
