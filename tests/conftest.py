"""What several test files use."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from hypothesis import settings

from exchangeable import cli, pvalues

settings.register_profile("test", max_examples=25)  # contracts.settled reads these as percent of the examples
settings.register_profile("soak", max_examples=100)
settings.load_profile("test")


GROUPS = ("spark", "spark-faults")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests that share a session of Spark in one process, those that kill processes in another.

    They take longest and come first, so that another process runs all the rest meanwhile.
    """
    for item in items:
        name = Path(item.fspath).stem
        if name.startswith("test_spark_") and name not in ("test_spark_state", "test_spark_batch"):
            group = "spark-faults" if name == "test_spark_faults" else "spark"
            if item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    return GROUPS.index(marker.args[0]) if marker is not None else len(GROUPS)


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
