"""What several test files use."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from exchangeable import cli, pvalues

for profile, percent in {"test": 25, "soak": 100}.items():  # of the examples, in contracts.settled
    settings.register_profile(profile, max_examples=percent, deadline=None, derandomize=True, database=None)
settings.load_profile("test")


WITHOUT_SPARK = ("test_spark_state.py", "test_spark_batch.py")
KILLING = ("test_spark_faults.py", "test_a_worker_that_dies", "test_an_executor_that_is_killed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give ``--dist loadgroup`` groups by the names of tests: those of xdist's marks have no effect in pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return ByGroup(config, log)


def group(nodeid: str) -> str:
    """Return what must run in one process: tests that share a session of Spark, those that kill processes, any other.

    The largest group comes first, so that another process runs all the rest meanwhile.
    """
    if "test_spark_" not in nodeid or any(name in nodeid for name in WITHOUT_SPARK):
        return nodeid
    return "spark-faults" if any(name in nodeid for name in KILLING) else "spark"


@pytest.fixture(scope="session", autouse=True)
def _seed_that_is_drawn() -> Iterator[None]:
    """What draws a seed from the system gets 0 in this process, so that every test gives the same numbers each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pvalues, "secrets", SimpleNamespace(randbits=lambda bits: 0))
        yield


@pytest.fixture
def system_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are drawn from the system after all."""
    monkeypatch.setattr(pvalues, "secrets", secrets)


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the program in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    def call(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["exchangeable", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        signal.signal(signal.SIGINT, before)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(int(exit_.value.code or 0), captured.out, captured.err)

    return call
