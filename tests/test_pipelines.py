"""The recipes for pipelines: only a batch that looks like the training data passes.

`make test` runs those that need no other package; `make pipelines` runs them all.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pages

pytest.importorskip("polars")  # it reads the files

PIPELINES = pages.ROOT / "examples" / "pipelines"
PAGE = pages.ROOT / "docs" / "pipelines.md"
KINDS = ("steady", "shifted", "narrow", "empty")  # narrow: it lacks a column
REJECTED = "REJECTED (1 %)"
REASONS = {"shifted": r"(?<!NOT )REJECTED \(1 %\)", "narrow": "lacks 'plan'", "empty": "at least 1 row, got 0"}
TELEMETRY = {"DO_NOT_TRACK": "1", "GX_ANALYTICS_ENABLED": "false", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}


def write_tables(folder: Path, kind: str) -> None:
    """Write train.csv and batch.csv: customers, and whether they stayed."""
    rng = np.random.default_rng(0)

    def table(rows: int, shift: float = 0.0) -> str:
        y = rng.integers(0, 2, rows)
        age = rng.normal(40.0, 9.0, rows) + 12.0 * y + shift
        plan = rng.choice(["a", "b"], rows)
        lines = [f"{a:.1f},{b},{('left', 'stayed')[c]}" for a, b, c in zip(age, plan, y, strict=True)]
        return "\n".join(["age,plan,y", *lines]) + "\n"

    folder.mkdir(exist_ok=True)
    (folder / "train.csv").write_text(table(400), encoding="utf-8")
    batch = table(0) if kind == "empty" else table(150, 15.0 if kind == "shifted" else 0.0)
    if kind == "narrow":
        batch = re.sub(r"^([^,]*),[^,]*,", r"\1,", batch, flags=re.MULTILINE)
    (folder / "batch.csv").write_text(batch, encoding="utf-8")


def run_in(folder: Path, *command: str, **variables: str) -> tuple[int, str]:
    """Run a command of this environment in a folder, also its home; return the exit code and what was printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {"PATH": path, "HOME": str(folder), "NO_COLOR": "1", **TELEMETRY, **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, timeout=300,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


def reasons(printed: str) -> list[str]:
    """Return why the batch must not be pooled."""
    return [kind for kind, reason in REASONS.items() if re.search(reason, printed)]


def skip_without(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make pipelines")


def shown(language: str) -> list[str]:
    return [block.code for block in pages.blocks(PAGE.read_text(encoding="utf-8")) if block.language == language]


# ------------------------------------------------------------------ the page shows the files


@pytest.mark.parametrize("suffix", [".py", ".sql"])
def test_the_page_shows_every_recipe(suffix: str) -> None:
    files = {
        str(file.relative_to(PIPELINES)): file.read_text(encoding="utf-8") for file in PIPELINES.rglob(f"*{suffix}")
    }
    blocks = shown({".py": "python", ".sql": "sql"}[suffix])
    assert files
    assert [name for name, text in files.items() if text not in blocks] == []


def test_the_page_links_to_every_file() -> None:
    links = set(re.findall(r"\]\(\.\./examples/pipelines/([^)]+)\)", PAGE.read_text(encoding="utf-8")))
    assert links == {str(file.relative_to(PIPELINES)) for file in PIPELINES.rglob("*.*") if file.suffix != ".pyc"}


# ------------------------------------------------------------------ Airflow, Prefect, Great Expectations, pytest


class Recipe(NamedTuple):
    package: str
    commands: Sequence[str]
    pools: bool  # whether it writes the pooled table
    variables: dict[str, str]


RECIPES = {
    "airflow": Recipe("airflow", ["airflow db migrate", "airflow dags test pool_batch"], True,
                      {"AIRFLOW__CORE__DAGS_FOLDER": ".", "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}),
    "prefect": Recipe("prefect", ["python prefect_flow.py"], True, {}),
    "great expectations": Recipe("great_expectations", ["python gx_expectation.py"], False, {}),
    "pytest": Recipe("pytest", ["python -m pytest -p no:cacheprovider test_batch.py"], False, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_pools_only_a_batch_that_may_be_pooled(name: str, kind: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    skip_without(recipe.package)
    write_tables(tmp_path, kind)
    for file in PIPELINES.glob("*.py"):
        shutil.copy(file, tmp_path)
    for command in recipe.commands[:-1]:
        code, printed = run_in(tmp_path, *command.split(), **recipe.variables)
        assert code == 0, printed
    code, printed = run_in(tmp_path, *recipe.commands[-1].split(), **recipe.variables)
    assert (code == 0) == (kind == "steady"), printed
    assert reasons(printed) == [kind] * (kind != "steady"), printed
    assert (tmp_path / "pooled.csv").exists() == (recipe.pools and kind == "steady")


# ------------------------------------------------------------------ dbt


@pytest.mark.parametrize("kind", KINDS)
def test_dbt_skips_what_follows_a_rejected_batch(kind: str, tmp_path: Path) -> None:
    skip_without("dbt")
    project = tmp_path / "dbt"
    shutil.copytree(PIPELINES / "dbt", project)
    write_tables(project / "seeds", kind)
    if kind == "empty":  # dbt seeds no empty file
        (project / "seeds" / "batch.csv").unlink()
        (project / "models" / "batch.sql").write_text("select * from {{ ref('train') }} limit 0")
    code, printed = run_in(project, "dbt", "build")
    assert (code == 0) == (kind == "steady"), printed
    assert ("OK created sql view model main.pooled" in printed) == (kind == "steady"), printed
    assert ("SKIP relation main.pooled" in printed) == (kind != "steady"), printed
    assert ("FAIL 1 batch_can_be_pooled" in printed) == (kind in ("shifted", "narrow")), printed
    assert reasons(printed) == ["empty"] * (kind == "empty"), printed


@pytest.mark.parametrize("kind", KINDS)
def test_dbt_after_a_comparison_of_exported_tables(kind: str, tmp_path: Path) -> None:
    skip_without("dbt")
    project = tmp_path / "dbt"
    shutil.copytree(PIPELINES / "dbt", project)
    write_tables(project / "seeds", "steady")
    code, printed = run_in(project, "dbt", "seed")
    assert code == 0, printed
    write_tables(project, kind)  # as if exported
    (script,) = shown("sh")
    code, printed = run_in(project, "bash", "-c", script)
    assert code == {"steady": 0, "shifted": 1, "narrow": 3, "empty": 3}[kind], printed
    assert ("OK created sql view model main.pooled" in printed) == (kind == "steady"), printed


@pytest.mark.parametrize("kind", KINDS[:3])
def test_the_model_of_dbt_returns_the_verdict(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write_tables(tmp_path, kind)

    class Relation(NamedTuple):
        name: str

        def df(self) -> Any:
            return pandas.read_csv(tmp_path / f"{self.name}.csv")

    class Dbt:
        ref = Relation

        def config(self, **options: str) -> None:
            assert options == {"materialized": "table"}

    model = runpy.run_path(str(PIPELINES / "dbt" / "models" / "batch_check.py"))["model"]
    (row,) = model(Dbt(), None).to_dict("records")
    assert row["poolable"] == (kind == "steady")
    assert reasons(row["verdict"]) == [kind] * (kind != "steady")


# ------------------------------------------------------------------ GitHub


def steps() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load((PIPELINES / "github-action.yml").read_text(encoding="utf-8"))["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def run_step(step: dict[str, Any], folder: Path) -> tuple[int, str, str]:
    """Run the step as GitHub would; return the exit code, what was printed, and the outputs of the step."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    variables = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "GITHUB_OUTPUT": str(folder / "output")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    code, printed = run_in(folder, *command, **variables, **step["env"])
    return code, printed, (folder / "output").read_text(encoding="utf-8").strip()


def test_the_report_is_kept_whatever_the_verdict() -> None:
    *_, compare, keep = steps()
    assert keep["if"] == "always()"
    assert keep["uses"].startswith("actions/upload-artifact@")
    for name in keep["with"]["path"].split():
        assert name in compare["run"]


@pytest.mark.parametrize("kind", [*KINDS, "usage error"])
def test_the_workflow_distinguishes_the_exit_codes(kind: str, tmp_path: Path) -> None:
    *_, step, _ = steps()
    write_tables(tmp_path, kind)
    if kind == "usage error":
        step["env"]["LABEL"] = "no such column"
    code, printed, output = run_step(step, tmp_path)
    expected = {
        "steady": (0, "verdict=not rejected", f"NOT {REJECTED}"),
        "shifted": (1, "verdict=rejected", "::error title=exchangeable::batch.csv differs from train.csv"),
        "narrow": (3, "verdict=undecided", "::error title=exchangeable::Could not decide about batch.csv"),
        "empty": (3, "verdict=undecided", "::error title=exchangeable::Could not decide about batch.csv"),
        "usage error": (2, "verdict=failed", "::error title=exchangeable::Usage error (exit code 2)"),
    }[kind]
    assert (code, output) == expected[:2], printed
    assert expected[2] in printed
    assert ("::error" in printed) == (kind != "steady")
    assert (tmp_path / "report.html").exists() == (kind in KINDS[:3])
    if kind in KINDS[:3]:
        assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
        assert REJECTED in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS[:2])
def test_the_workflow_can_test_one_table(kind: str, tmp_path: Path) -> None:
    """The comment in the workflow says that the command `test` has the same options and exit codes."""
    *_, step, _ = steps()
    write_tables(tmp_path, kind)
    (tmp_path / "train.csv").write_text(
        (tmp_path / "train.csv").read_text() + "".join((tmp_path / "batch.csv").read_text().splitlines(True)[1:])
    )
    step["run"] = step["run"].replace('compare "$REFERENCE" "$CURRENT"', 'test "$REFERENCE"')
    code, printed, output = run_step(step, tmp_path)
    assert (code, output) == ((0, "verdict=not rejected") if kind == "steady" else (1, "verdict=rejected")), printed
