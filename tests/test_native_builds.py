"""The same bits from every compiler, with every optimisation, with and without AVX2."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from exchangeable import native

TESTS = Path(__file__).parent
build = runpy.run_path(str(TESTS.parent / "scripts" / "build_native.py"))["build"]
AVX2 = ["-mavx2"]


def digests(*words: object) -> dict[str, str]:
    """What native_digests.py prints, in a process of its own."""
    command = [sys.executable, str(TESTS / "native_digests.py"), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def built(target: Path, compiler: str, *flags: str) -> Path:
    """The library's path, if there is such a compiler, and such a processor."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    if AVX2[0] in flags and not native.VECTOR:
        pytest.skip("needs AVX2")
    library: Path = build(target, cc=[compiler], flags=flags, avx2=False)
    return library


@pytest.fixture(scope="session")
def expected() -> dict[str, str]:
    """Of the library that is installed."""
    return digests()


BUILDS = list(product(["gcc", "clang"], ["-O0", "-O2", "-O3"], [[], AVX2]))
FIRST = [("gcc", "-O0", []), ("clang", "-O3", AVX2)]  # the others are for make soak


@pytest.mark.parametrize(
    ("compiler", "level", "vectors"),
    [
        pytest.param(*each, id=" ".join([*each[:2], *each[2]]), marks=() if each in FIRST else pytest.mark.soak)
        for each in BUILDS
    ],
)
def test_every_build_gives_the_same_bits(
    compiler: str, level: str, vectors: list[str], expected: dict[str, str], tmp_path: Path
) -> None:
    found = digests(built(tmp_path, compiler, level, *vectors))
    assert len(found) > 200
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


def test_a_build_with_other_bits_is_found(tmp_path: Path) -> None:
    """Products and sums that are fused into one operation round once. Processors with AVX2 can do that."""
    compiler = "gcc" if shutil.which("gcc") else "clang"
    found = digests(built(tmp_path, compiler, "-O2", "-ffp-contract=fast", *AVX2, "-mfma"), "elementary")
    wanted = digests("", "elementary")
    assert len(wanted) > 5
    assert [name for name in wanted if found[name] != wanted[name]]
