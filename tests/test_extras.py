"""The core alone, and what is said where an optional package is absent, too old, too new or broken."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement as Parsed
from packaging.version import Version

from absent import MODULES, loaded, only, run, without
from exchangeable import _extras
from exchangeable._extras import Requirement, check, needed, requirements

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED: dict[str, list[str]] = PROJECT["optional-dependencies"]
EXTRAS = [extra for extra in DECLARED if extra not in ("check", "docs", "test")]
CLI = "from exchangeable import cli\ncli.main()"


# ------------------------------------------------------------------ the core alone

CORE = """
import copy, math, tempfile, pathlib
import numpy as np
import exchangeable as ex
from exchangeable import alarms, bets, fleet, measures
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
X[30:] += 3.0
y = ["a", "b"] * 30
for data in (X, X.tolist(), X[:, 0].tolist(), {"u": X[:, 0], "v": ["p", "q"] * 30}, [{"u": x} for x in X[:, 0]]):
    result = ex.test(data, seed=0)
    assert 0.0 <= result.p_value <= 1.0 and repr(result) and str(result) and result.to_json()
    assert str(result.explain())
    for card in (result, result.explain()):
        assert card._repr_html_().startswith("<pre>")
assert ex.test(X, y, seed=0).n == 60
assert ex.compare(X[:30], X[30:], seed=0).rejected in (True, False)
assert ex.shift_test(X, y, seed=0)
monitor = ex.Monitor(seed=0)
monitor.extend(X, y)
with tempfile.TemporaryDirectory() as folder:
    place = pathlib.Path(folder, "m.state")
    ex.save(monitor, place)
    assert ex.load(place).update(X[0], "a") == monitor.update(X[0], "a")
assert ex.Monitor(measures.Value(), alarm=alarms.Cusum(100.0), seed=0).extend(X[:, 0]).n.size == 60
assert fleet.e_bh({"a": 9.0, "b": 0.0}, 0.05).rejected is not None
from exchangeable import catalogue, watch
from exchangeable.research import binomial, certificate, datasets, paper
assert datasets.decreasing_noise(5).X.shape == (5, 10)
assert binomial.interval(3, 50)
mixed = {"u": [1.5, None, 2.5] * 9, "v": ["p", "q", None] * 9, "day": ["2024-01-01", "2024-01-02", "2024-01-03"] * 9}
assert ex.test(mixed, "v", seed=0).n == 18
try:
    ex.read("t.csv")
except ImportError as error:
    assert "for reading files: pip install 'exchangeable[files]'" in str(error)
"""
FRAME = """
import numpy as np, exchangeable as ex
from exchangeable import fleet
rng = np.random.default_rng(0)
data = {"u": rng.normal(size=40), "v": ["p", "q"] * 20, "b": [True, False] * 20, "i": list(range(40))}
"""
PANDAS = """
import pandas as pd
frame = pd.DataFrame(data)
frame["c"] = frame["v"].astype("category")
result = ex.test(frame, "v", seed=0)
assert str(result.explain()) and repr(result)
assert list(result.frame().columns)[0] == "n" and len(result.frame()) == 40
assert ex.test(frame["u"], seed=0).n == 40
streams = pd.DataFrame({"stream": ["a", "b"], "log_value": [9.0, 0.0]})
assert fleet.e_bh(streams, 0.05).rejected.tolist() == [True, False]
"""
POLARS = """
import polars as pl
frame = pl.DataFrame(data).with_columns(c=pl.col("v").cast(pl.Categorical), n=pl.col("i").cast(pl.UInt8))
result = ex.test(frame, "v", seed=0)
assert str(result.explain()) and repr(result)
assert result.frame().columns[0] == "n" and len(result.frame()) == 40
assert ex.test(frame["u"], seed=0).n == 40
streams = pl.DataFrame({"stream": ["a", "b"], "log_value": [9.0, 0.0]})
assert fleet.e_bh(streams, 0.05).rejected.tolist() == [True, False]
try:
    ex.test(pl.DataFrame({"u": [1.0, None, 2.0]}))
except ValueError as error:
    assert "is missing" in str(error)
"""
PANDAS_NEEDS = ("pandas", "dateutil", "pytz", "six", "tzdata")
POLARS_NEEDS = ("polars", "_polars_runtime_32", "polars_runtime_32")
RIVER_NEEDS = ("river", "sklearn", "scipy", "joblib", "threadpoolctl", *PANDAS_NEEDS)


def test_the_core_needs_nothing_more() -> None:
    done = run(only() + CORE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("needs", "program"), [(PANDAS_NEEDS, PANDAS), (POLARS_NEEDS, POLARS)], ids=["pandas", "polars"]
)
def test_frames_need_their_own_library_alone(needs: tuple[str, ...], program: str) -> None:
    pytest.importorskip(needs[0])
    done = run(only(*needs) + FRAME + program)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_river_adapter_needs_river_alone() -> None:
    pytest.importorskip("river")
    program = """
from exchangeable.adapters.river import ExchangeabilityDetector
detector = ExchangeabilityDetector(seed=0)
for x in range(20):
    detector.update(float(x))
assert not detector.clone().drift_detected
"""
    done = run(only(*RIVER_NEEDS) + program)
    assert (done.returncode, done.stderr) == (0, "")


HEAVY = ("matplotlib", "pandas", "platformdirs", "polars", "pyarrow", "rich", "sklearn", "typer")


def test_a_first_test_imports_little() -> None:
    program = "import exchangeable as ex, numpy as np\nex.test(np.random.default_rng(0).normal(size=(50, 3)))"
    assert loaded(program, [*HEAVY, "narwhals"]) == []


def test_a_first_test_of_a_file_imports_little(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("u\n" + "\n".join(map(str, range(50))) + "\n")
    program = f"""
import sys
sys.argv = ["exchangeable", "test", {str(tmp_path / "t.csv")!r}, "--measure", "value"]
try:
    from exchangeable import cli
    cli.main()
except SystemExit:
    pass
"""
    names = [
        *set(HEAVY) - {"polars", "typer", "rich"},
        "rich.progress",
        "fastexcel",
        "backports",
        "exchangeable.cli.serve",
        "exchangeable.spark",
    ]
    assert loaded(program, names) == []


# ------------------------------------------------------------------ what is said


def test_absent() -> None:
    done = run(without("matplotlib") + "import exchangeable as ex\nex.plots.axes()")
    said = "ImportError: matplotlib is not installed; for plots: pip install 'exchangeable[plots]'"
    assert done.stderr.splitlines()[-1] == said


def test_several_absent() -> None:
    done = run(without("typer", "rich", "platformdirs", "polars") + CLI)
    said = "exchangeable: platformdirs, polars, rich and typer are not installed; for the command line: "
    assert (done.returncode, done.stdout, done.stderr) == (3, "", said + "pip install 'exchangeable[cli]'\n")


@pytest.mark.parametrize("words", [[], ["--help"], ["--version"], ["test", "x.csv"], ["serve"]])
def test_without_the_command_line_s_extra_every_command_says_so(words: list[str]) -> None:
    done = run(without("typer") + CLI, *words)
    said = "exchangeable: typer is not installed; for the command line: pip install 'exchangeable[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", said)


def test_the_core_alone_has_a_command_line_that_says_what_it_lacks() -> None:
    done = run(only() + CLI)  # the metadata are all there, so it can only tell what fails
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("exchangeable: typer cannot be used (No module named 'typer'")
    assert done.stderr.count("\n") == 1


def test_too_old_where_the_import_fails() -> None:
    program = without("prometheus-client", versions={"uvicorn": "0.29.0"}) + CLI
    done = run(program.replace("if name in ('prometheus-client',)", "if name in ()"), "serve")
    assert done.returncode == 3
    assert re.fullmatch(
        r"exchangeable: uvicorn is too old: needs uvicorn>=[\d.]+, found 0\.29\.0; for the server: "
        r"pip install 'exchangeable\[service\]'\n",
        done.stderr,
    )


@pytest.mark.parametrize("words", [["--version"], ["test", "x.csv"], ["serve"]])
def test_too_old_where_the_import_succeeds(words: list[str]) -> None:
    """Typer 0.12 beside a new Click answers every command with the version, and exits with 0."""
    done = run(without(versions={"typer": "0.12.5"}) + CLI, *words)
    said = r"exchangeable: typer is too old: needs typer>=[\d.]+, found 0\.12\.5; for the command line: pip .*\n"
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(said, done.stderr)


@pytest.mark.parametrize(("name", "found"), [("starlette", "0.38.6"), ("pydantic", "2.9.2"), ("fastapi", "0.115.0")])
def test_a_server_does_not_start_with_what_is_too_old(name: str, found: str) -> None:
    pytest.importorskip(name)
    done = run(without(versions={name: found}) + CLI, "serve")
    assert done.returncode == 3
    assert done.stderr.startswith(f"exchangeable: {name} is too old: needs {name}>=")
    assert f", found {found}; for the server: pip install 'exchangeable[service]'\n" in done.stderr


def test_too_new() -> None:
    pytest.importorskip("pyspark")
    done = run(without(versions={"pandas": "3.0.1"}) + "import exchangeable.spark\nexchangeable.spark.session")
    assert re.fullmatch(
        r"ImportError: pandas is too new: needs pandas>=[\d.]+,<3, found 3\.0\.1; for Spark: pip install .*",
        done.stderr.splitlines()[-1],
    )


def test_installed_but_broken() -> None:
    with pytest.raises(ImportError) as caught, needed("plots", "plots"):
        raise ImportError("no such symbol\nin libfreetype", name="matplotlib.ft2font")
    said = "matplotlib cannot be used (no such symbol in libfreetype); for plots: pip install 'exchangeable[plots]'"
    assert str(caught.value) == said
    assert isinstance(caught.value.__cause__, ImportError)


@pytest.mark.parametrize(
    "error", [ImportError("cannot import name", name="exchangeable.plots"), ValueError("something else")]
)
def test_what_no_package_explains_passes(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, needed("plots", "plots"):
        raise error
    assert caught.value is error


def test_a_package_explains_any_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.0.0")
    with pytest.raises(ImportError, match=r"^matplotlib is too old: needs matplotlib>=[\d.]+, found 3\.0\.0; for "):
        check("plots", "plots")
    with pytest.raises(ImportError, match=r"^matplotlib is too old"), needed("plots", "plots"):
        raise AttributeError("module 'matplotlib' has no attribute 'x'")


def test_without_metadata_the_extra_is_named_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", fail)
    assert requirements("plots") == []
    check("plots", "plots")
    said = r"^matplotlib cannot be used \(gone\); for plots: pip install"
    with pytest.raises(ImportError, match=said), needed("plots", "plots"):
        raise ImportError("gone", name="matplotlib")


SLACK = "from exchangeable.service.alerts import *\nAppriseTarget('a', 'slack://a')"
SAID = {
    "alerts": (
        "apprise",
        SLACK,
        "alerts by e-mail, Slack or Teams",
    ),
    "arrow": ("pyarrow", "from exchangeable.keyed import keys\nkeys.validate(['a'])", "many streams at once"),
    "cli": ("msgspec", "from exchangeable.watch import Reader\nReader().read([b'{\"x\": 1}'], 1)", "lines of JSON"),
    "client": ("httpx2", "import exchangeable.client", "the client"),
    "files": ("polars", "import exchangeable as ex\nex.read('t.csv')", "reading files"),
    "mlflow": ("mlflow-skinny", "from exchangeable.adapters import mlflow\nmlflow._mlflow()", "the adapter of MLflow"),
    "report": ("matplotlib", "import exchangeable as ex\nex.test([1.0, 2.0]).save_html('x.html')", "the report"),
    "river": ("river", "import exchangeable.adapters.river", "the adapters of River"),
    "sklearn": ("scikit-learn", "import exchangeable as ex\nex.research.datasets.digits()", "the digits"),
    "spark": ("pyspark", "import exchangeable.spark\nexchangeable.spark.session", "Spark"),
}


@pytest.mark.parametrize("extra", SAID)
def test_every_extra_is_named(extra: str, tmp_path: Path) -> None:
    package, program, purpose = SAID[extra]
    pytest.importorskip(MODULES.get(package, package))
    done = run(f"{without(package)}\n{program}", folder=tmp_path)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert f"{package} is not installed" in said
    assert f"; for {purpose}" in said
    assert said.endswith(f": pip install 'exchangeable[{extra}]'")


def test_compressed_files_may_need_a_package(tmp_path: Path) -> None:
    (tmp_path / "t.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    done = run(without("backports-zstd") + CLI, "test", "t.csv.zst", folder=tmp_path)
    said = "exchangeable: backports-zstd is not installed; for .zst files: pip install 'exchangeable[files]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", said)


def test_the_cache_folder_needs_platformdirs_only_where_none_is_named(tmp_path: Path) -> None:
    program = without("platformdirs") + "from exchangeable.research import datasets\n"
    done = run(f"{program}datasets.usps()")
    assert "ImportError: platformdirs is not installed; for the user's cache folder" in done.stderr
    done = run(f"{program}datasets.usps({str(tmp_path)!r})")
    assert f"DatasetError: zip.train.gz is missing in {tmp_path}: run `exchangeable fetch usps --to " in done.stderr


# ------------------------------------------------------------------ the metadata


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_bounds_are_those_that_are_declared(extra: str) -> None:
    """As ``packaging`` reads them; only ``>=`` and ``<`` are understood, so there must be no others."""
    lines = [Parsed(line) for line in importlib.metadata.requires("exchangeable") or ()]
    declared = [line for line in lines if line.marker and line.marker.evaluate({"extra": extra})]
    assert sorted(map(str, requirements(extra))) == sorted(map(str, map(_ours, declared)))
    for line in declared:
        assert line.name != "exchangeable", "extras of extras must be written out"
        assert {bound.operator for bound in line.specifier} <= {">=", "<"}
        assert ">=" in {bound.operator for bound in line.specifier}, f"{line.name} has no least version"


def _ours(line: Parsed) -> Requirement:
    bounds = {bound.operator: bound.version for bound in line.specifier}
    return Requirement(line.name, bounds.get(">="), bounds.get("<"))


def test_the_metadata_are_those_of_this_folder() -> None:
    for extra in EXTRAS:
        own = [Parsed(line) for line in DECLARED[extra] if not line.startswith("exchangeable[")]
        installed = {requirement.name: str(requirement) for requirement in requirements(extra)}
        for line in own:
            assert installed[line.name] == str(_ours(line)), "install this folder again: pip install -e ."


VERSIONS = ["0.9", "0.12.5", "0.16", "0.16.0", "0.16.1", "1", "1.0", "1.0.0.post1", "2.0rc1", "2.10.0", "2.9", "10.0"]


@pytest.mark.parametrize("one", VERSIONS)
def test_versions_are_compared_as_packaging_compares_releases(one: str) -> None:
    for other in VERSIONS:
        expected = Version(Version(one).base_version) < Version(Version(other).base_version)
        assert _extras._before(one, other) is expected


def test_this_environment_has_no_faults() -> None:
    for extra in {*EXTRAS} - {"all", "spark"}:  # it may be one without Spark
        assert _extras._wrong_versions(extra) == []
