"""The assertion for other projects' tests, alone and as pytest shows it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exchangeable as ex
from exchangeable import bets, measures
from exchangeable.testing import assert_exchangeable

RNG = np.random.default_rng(0)
QUIET = RNG.normal(size=(300, 2))
DRIFT = QUIET + 2.5 * (np.arange(300) >= 150)[:, np.newaxis]


def test_it_passes_on_shuffled_data_and_returns_the_result() -> None:
    result = assert_exchangeable(QUIET)
    assert isinstance(result, ex.analysis.Result)
    assert (result.rejected, result.n, result.measure) == (False, 300, "nearest-distance")
    assert not assert_exchangeable(RNG.permutation(DRIFT)).rejected


def test_it_fails_on_drift_with_the_verdicts_words() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_exchangeable(DRIFT)
    said = str(caught.value)
    assert said.startswith("REJECTED (1 %): the order of these rows matters.\nStrongest of ")
    *sentences, tested = said.split("\n")
    assert tested == "Tested: the data: 300 rows, 2 columns."
    assert str(ex.test(DRIFT)).split("\n")[1:] == sentences


def test_arguments_are_passed_on() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(QUIET, columns=["a", "b"]).assign(
        row=np.arange(300.0),
        colour=["red", "blue", "red"] * 100,
        kind=np.array(["u", "v"])[(QUIET[:, 0] > 0).astype(int)],
    )
    options: dict[str, Any] = {
        "measure": measures.NearestNeighbour(3),
        "bet": bets.Plugin(),
        "alpha": 0.05,
        "seed": 9,
        "categorical": ["colour"],
        "drop": ["row"],
        "scale": "deviation",
    }
    assert assert_exchangeable(frame, "kind", **options).to_json() == ex.test(frame, "kind", **options).to_json()
    with pytest.raises(AssertionError):
        assert_exchangeable(frame["row"])


def test_what_cannot_be_tested_is_no_failure() -> None:
    with pytest.raises(ValueError, match="alpha"):
        assert_exchangeable(QUIET, alpha=2.0)
    with pytest.raises(ValueError, match="values are missing in 'x0'"):
        assert_exchangeable(np.where(QUIET > 2.0, np.nan, QUIET), missing="error")
    with pytest.raises(TypeError, match="unexpected keyword argument 'aplha'"):
        assert_exchangeable(QUIET, aplha=0.05)  # type: ignore[call-arg]


def test_it_has_the_signature_of_the_test() -> None:
    assert inspect.signature(assert_exchangeable) == inspect.signature(ex.test)


SUITE = """
import numpy as np
from exchangeable.testing import assert_exchangeable

def test_quiet():
    assert_exchangeable(np.random.default_rng(0).normal(size=(100, 2)))

def test_drift():
    assert_exchangeable(np.arange(100.0))
"""


def test_as_pytest_shows_it(tmp_path: Path) -> None:
    (tmp_path / "test_data.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "E       AssertionError: REJECTED (1 %): the order of these rows matters." in done.stdout
    assert "FAILED test_data.py::test_drift - AssertionError: REJECTED (1 %)" in done.stdout
    assert ">       assert_exchangeable(np.arange(100.0))" in done.stdout
    assert "testing.py" not in done.stdout  # the place that is pointed at is the user's
