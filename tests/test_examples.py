"""The examples run, and say what their documentation says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISE = "On exchangeable data the chance that this alarm is ever raised is at most 0.01."
NEEDS = {
    "crepes_pvalues": "crepes",
    "mapie_scores": "mapie",
    "nonconformist_scores": "nonconformist",
    "online_cp_pvalues": "online_cp",
}
CHANGES = {"crepes_pvalues": 500, "mapie_scores": 600, "nonconformist_scores": 400, "online_cp_pvalues": 200}
STRICT = ("UserWarning", "RuntimeWarning", "FutureWarning")  # those of other kinds are the peers' own


def test_every_script_is_here() -> None:
    assert {script.stem for script in EXAMPLES.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_a_script_finds_the_change_and_nothing_else(name: str, tmp_path: Path) -> None:
    for library in (NEEDS[name], "sklearn"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    strict = [f"-Werror::{kind}" for kind in STRICT]
    done = subprocess.run(
        [sys.executable, *strict, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, promise = done.stdout.splitlines()
    assert promise == PROMISE
    assert len(lines) >= 2
    for line in lines:
        if line.startswith("quiet"):
            assert ": not rejected" in line
        else:
            found = re.search(r"after (\d+).*: REJECTED at example (\d+); change after (\d+) or later", line)
            assert found is not None, line
            change, alarm, began = map(int, found.groups())
            assert change == CHANGES[name] < alarm
            assert abs(began - change) < 50
    assert list(tmp_path.iterdir()) == []
