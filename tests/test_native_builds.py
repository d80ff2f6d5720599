"""The same bits from every compiler, with every optimisation, with and without AVX2."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exchangeable import native

TESTS = Path(__file__).parent
build = runpy.run_path(str(TESTS.parent / "scripts" / "build_native.py"))["build"]
COMPILERS = ["gcc", "clang"]
FUSED = ["-ffp-contract=fast", "-mfma"]


def digests(*words: object) -> dict[str, Any]:
    """What native_digests.py prints, in a process of its own."""
    command = [sys.executable, str(TESTS / "native_digests.py"), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def built(target: Path, compiler: str, flags: Sequence[str], avx2: bool) -> Path:
    """The library's path, if there is such a compiler, and such a processor."""
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    if avx2 and not native.VECTOR:
        pytest.skip("needs AVX2")
    library: Path = build(target, cc=[compiler], flags=flags, avx2=avx2)
    return library


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """Of the library that is installed."""
    return digests()


@pytest.mark.parametrize("avx2", [False, True], ids=["base", "avx2"])
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_build_gives_the_same_bits(
    compiler: str, level: str, avx2: bool, expected: dict[str, Any], tmp_path: Path
) -> None:
    found = digests(built(tmp_path, compiler, [level], avx2))
    assert found.pop("VECTOR") == avx2
    assert len(found) > 200
    wanted = {name: digest for name, digest in expected.items() if name != "VECTOR"}
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_build_with_other_bits_is_found(compiler: str, tmp_path: Path) -> None:
    """Products and sums that are fused into one operation round once."""
    if not native.VECTOR:
        pytest.skip("needs a processor that can fuse them")
    found, wanted = digests(built(tmp_path, compiler, FUSED, False), "elementary"), digests("", "elementary")
    assert len(wanted) > 5
    assert [name for name in wanted if found[name] != wanted[name]]
