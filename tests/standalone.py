"""A standalone cluster of Spark on 127.0.0.1, a master and workers that are processes of their own, to be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds, on a machine that may be slow
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.cores.max": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


class Standalone:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master = self._begin("master", "master.Master")
        self.url = self._told("master", r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            work = ["-c", "1", "-m", "1g", "-d", str(folder / f"work-{number}"), self.url]
            self.workers.append(self._begin(f"worker-{number}", "worker.Worker", *work))
        for number in range(2):
            self._told(f"worker-{number}", "Successfully registered with (master)")

    def executors(self) -> list[int]:
        """The processes that run tasks, the oldest first."""
        parents = {worker.pid for worker in self.workers}
        return sorted(pid for pid in _children(parents) if "CoarseGrainedExecutorBackend" in _command(pid))

    def stop(self) -> None:
        """All of it, whatever was killed already."""
        executors = self.executors()
        for process in (*self.workers, self.master):
            process.kill()
            process.wait()
        for pid in executors:  # they notice by themselves, but later
            if "CoarseGrainedExecutorBackend" in _command(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _begin(self, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        environment = {**os.environ, **own, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *place, *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _told(self, name: str, pattern: str) -> str:
        log = self.folder / f"{name}.log"
        until(lambda: re.search(pattern, log.read_text()) is not None, lambda: log.read_text())
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[1]


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    cluster = Standalone(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


def until(true: Callable[[], bool], describe: Callable[[], Any] = lambda: "") -> None:
    """Wait."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"patience: {describe()}"
        time.sleep(0.02)


def _children(parents: set[int]) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                status = (folder / "stat").read_text()
                if int(status.rpartition(")")[2].split()[1]) in parents:
                    yield int(folder.name)


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
