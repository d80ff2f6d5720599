"""What a release needs: one version, files that other programs parse, and a build that compiles the kernels."""

from __future__ import annotations

import re
import runpy
import sys
import sysconfig
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import exchangeable

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GITHUB = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [path for path in GITHUB if path.parent.name == "workflows"]
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# ------------------------------------------------------------------ version, and what is said about the package


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    place = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    (found,) = re.findall(r'^__version__ = "([\d.]+)"', place.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == exchangeable.__version__
    assert read(ROOT / "CITATION.cff")["version"] == found
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0] == found


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation["license"] == PROJECT["project"]["license"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Fedorova", "Gammerman", "Nouretdinov", "Vovk"]
    assert paper["year"] == 2012


def test_addresses_agree() -> None:
    home = PROJECT["project"]["urls"]["Homepage"]
    assert all(address.startswith(home) for address in PROJECT["project"]["urls"].values())
    assert read(ROOT / "CITATION.cff")["repository-code"] == home
    for name in ("SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"):
        assert f"{home}/security/advisories/new" in (ROOT / name).read_text(encoding="utf-8")


def test_the_tested_pythons_are_those_that_the_package_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert read(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    assert PROJECT["tool"]["cibuildwheel"]["build"] == f"cp{named[0].replace('.', '')}-*"


# ------------------------------------------------------------------ GitHub


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_githubs_own_actions_and_targets_that_exist(path: Path) -> None:
    workflow = read(path)
    assert workflow.keys() >= {"name", True, "permissions", "jobs"}  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job.keys() >= {"runs-on", "timeout-minutes", "steps"}
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v1"))
            assert set(re.findall(r"\bmake (\w+)", step.get("run", ""))) <= TARGETS


def test_there_is_a_wheel_for_each_platform() -> None:
    jobs = read(ROOT / ".github/workflows/wheels.yml")["jobs"]
    platforms = [each["platform"] for each in jobs["wheel"]["strategy"]["matrix"]["include"]]
    assert platforms == ["linux-x86_64", "linux-aarch64", "macos-x86_64", "macos-arm64", "windows-amd64"]


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_forms_for_issues_have_what_github_requires(name: str) -> None:
    form = read(ROOT / f".github/ISSUE_TEMPLATE/{name}.yml")
    assert form.keys() >= {"name", "description", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


# ------------------------------------------------------------------ the build


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "build_native.py"))


@pytest.fixture
def hook() -> dict[str, Any]:
    pytest.importorskip("hatchling")
    return runpy.run_path(str(ROOT / "hatch_build.py"))


@pytest.mark.parametrize(
    ("platform", "tag"),
    [
        ("linux-x86_64", "linux_x86_64"),
        ("linux-aarch64", "linux_aarch64"),
        ("macosx-11.0-arm64", "macosx_11_0_arm64"),
        ("macosx-10.13-universal2", "macosx_10_13_riscv64"),
        ("win-amd64", "win_amd64"),
        ("win32", "win32"),
    ],
)
def test_platforms_are_named_as_in_wheels(
    platform: str, tag: str, script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_platform", lambda: platform)
    monkeypatch.setattr(script["platform"], "machine", lambda: "riscv64")
    assert script["platform_tag"]() == tag


def test_a_compiler_that_does_not_exist_is_one_sentence(
    script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(SystemExit, match=r"^the C compiler no-such-compiler cannot be run: No such file or directory$"):
        script["build"](tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_the_build_asks_for_one(
    script: dict[str, Any], hook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert script["compiler"]() is None
    dependencies = hook["BuildHook"].dependencies
    target = SimpleNamespace(target_name="wheel", _script=lambda name: script)
    assert dependencies(target) == ["ziglang"]
    target.target_name = "sdist"
    assert dependencies(target) == []
    with pytest.raises(SystemExit, match="needs a C compiler: install gcc or clang, or pip install ziglang"):
        script["build"](tmp_path)


def test_interpreters_without_the_stable_abi_are_refused(hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hook["check_interpreter"]()
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    with pytest.raises(SystemExit, match="got a free-threaded build"):
        hook["check_interpreter"]()
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    with pytest.raises(SystemExit, match=r"needs CPython.* got pypy"):
        hook["check_interpreter"]()
