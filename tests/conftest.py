"""What several test files use."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from exchangeable import cli


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
