"""The examples run, and say what their documentation says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
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


# ------------------------------------------------------------------ the workflow

WORKFLOW = EXAMPLES / "github-action.yml"


def steps() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def table(path: Path, *, drifting: bool) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 2)) + 4.0 * y[:, np.newaxis]
    if drifting:
        y = np.where(np.arange(300) < 150, y, 1 - y)
    rows = [f"{a},{b},{'uv'[label]}" for (a, b), label in zip(X.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join(["a,b,y", *rows]) + "\n", encoding="utf-8")


def carried_out(step: dict[str, Any], folder: Path) -> tuple[int, str, str]:
    """Run the step as GitHub would: exit code, what was printed, and the outputs of the step."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "HOME": str(folder),
        **step["env"],
    }
    command = [bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, check=False)
    return done.returncode, done.stdout + done.stderr, (folder / "output").read_text(encoding="utf-8").strip()


def test_the_report_is_kept_whatever_the_verdict() -> None:
    *_, test, keep = steps()
    assert keep["if"] == "always()"
    assert keep["uses"].startswith("actions/upload-artifact@")
    for name in keep["with"]["path"].split():
        assert name in test["run"]


@pytest.mark.parametrize("kind", ["quiet", "drifting", "bad", "usage error"])
def test_the_workflow_tells_the_exit_codes_apart(kind: str, tmp_path: Path) -> None:
    *_, step, _ = steps()
    table(tmp_path / "data.csv", drifting=kind == "drifting")
    if kind == "bad":
        (tmp_path / "data.csv").write_text("a,y\n1.0,u\nnan,v\n", encoding="utf-8")
    if kind == "usage error":
        step["env"]["LABEL"] = "no such column"
    code, printed, output = carried_out(step, tmp_path)
    expected = {
        "quiet": (0, "verdict=not rejected", "NOT REJECTED at level 1 %"),
        "drifting": (1, "verdict=rejected", "::error title=exchangeable::The order of the rows of data.csv matters"),
        "bad": (3, "verdict=undecided", "::error title=exchangeable::Could not decide about data.csv"),
        "usage error": (2, "verdict=failed", "::error title=exchangeable::Usage error (exit code 2)"),
    }[kind]
    assert (code, output) == expected[:2], printed
    assert expected[2] in printed
    assert ("::error" in printed) == (kind != "quiet")
    if kind in ("quiet", "drifting"):
        assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "REJECTED at level 1 %" in (tmp_path / "summary.md").read_text(encoding="utf-8")
