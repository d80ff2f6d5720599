"""Compile the kernels in ``src/exchangeable/native``: ``python scripts/build_native.py``, or by itself at each build.

A C compiler is enough: ``$CC``, or ``cc``, ``gcc`` or ``clang``; where there is none, the package ``ziglang`` brings
one. The library uses Python's stable ABI, declared by ourselves, so neither Python's headers nor a build for each Python
version is needed.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "exchangeable" / "native"
LIBRARY = "_native.pyd" if sys.platform == "win32" else "_native.abi3.so"
# The same bits everywhere: no contraction into fused multiply-adds, no reordering of sums. What is switched off (errno,
# traps) changes no result.
FLAGS = ["-std=c17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]
X86 = {"x86_64", "amd64"}


def compiler() -> list[str] | None:
    """The command of a C compiler; None if there is none."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def build(
    target: Path,
    *,
    cc: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    avx2: bool | None = None,
    machine: str | None = None,
) -> Path:
    """Compile into the folder ``target``, with further ``flags``; the library's path.

    With ``avx2`` the kernels are compiled a second time, for processors that have it, and chosen when they are loaded.
    """
    command = list(cc) if cc else compiler()
    if command is None:
        raise SystemExit("exchangeable needs a C compiler: install gcc or clang, or pip install ziglang")
    with_avx2 = (machine or platform.machine()).lower() in X86 if avx2 is None else avx2
    target.mkdir(parents=True, exist_ok=True)
    common = [*command, *FLAGS, *WARNINGS, *([] if sys.platform == "win32" else ["-fPIC"]), *flags]
    with tempfile.TemporaryDirectory() as folder:
        objects = [_compiled(common, "kernels.c", Path(folder, "base.o"), "-DBUILD=base")]
        chosen = []
        if with_avx2:
            objects.append(_compiled(common, "kernels.c", Path(folder, "avx2.o"), "-DBUILD=avx2", "-mavx2"))
            chosen = ["-DWITH_AVX2"]
        objects.append(_compiled(common, "binding.c", Path(folder, "binding.o"), *chosen))
        fresh = Path(folder, LIBRARY)
        _run([*command, *flags, "-shared", "-o", str(fresh), *map(str, objects), *_linking()])
        place = target / f".{LIBRARY}.new"  # a process that has the old one loaded keeps it
        shutil.copyfile(fresh, place)
        os.replace(place, target / LIBRARY)
    return target / LIBRARY


def _compiled(common: Sequence[str], source: str, target: Path, *flags: str) -> Path:
    _run([*common, *flags, "-c", str(SOURCES / source), "-o", str(target)])
    return target


def _linking() -> list[str]:
    if sys.platform == "darwin":
        return ["-undefined", "dynamic_lookup"]
    if sys.platform == "win32":
        return [f"-L{Path(sys.base_prefix, 'libs')}", "-lpython3"]
    return ["-lm"]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the C compiler failed: {shlex.join(command)}\n{done.stderr}")
    if done.stderr.strip():
        print(done.stderr, file=sys.stderr)


if __name__ == "__main__":
    print(build(SOURCES))
