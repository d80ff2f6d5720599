"""Compile the kernels in ``src/exchangeable/native``: ``python scripts/build_native.py``; each build does so too.

All it takes is a C compiler: ``$CC``, or ``cc``, ``gcc`` or ``clang``; if there is none, the package ``ziglang``
provides one. The library uses Python's stable ABI, with declarations of our own, so it needs neither Python's headers
nor a separate build for each Python version.

The code for macOS and Windows is untested: it was cross-compiled with ziglang on Linux, but has never been run.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
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
ZIG = [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-g0"]  # zig's default: -mcpu=native, debug info


def compiler() -> list[str] | None:
    """The command that runs a C compiler; None if there is no compiler."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"], posix=sys.platform != "win32")
    # on Windows only ziglang and clang: what MinGW's gcc links may depend on libraries of MinGW
    for name in ("clang",) if sys.platform == "win32" else ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return ZIG if importlib.util.find_spec("ziglang") else None


def platform_tag() -> str:
    """The platform as it appears in the names of wheels, such as linux_x86_64, macosx_11_0_arm64 or win_amd64."""
    return "_".join(_platform()).replace(".", "_").replace("-", "_")


def _platform() -> list[str]:
    """System, version (macOS only) and machine of this interpreter; a universal Python takes the machine it runs on."""
    *system, machine = sysconfig.get_platform().split("-")
    return [*system, platform.machine() if machine == "universal2" else machine]


def build(
    target: Path,
    *,
    cc: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    avx2: bool | None = None,
    machine: str | None = None,
) -> Path:
    """Compile into the folder ``target`` and return the library's path; extra ``flags`` come last, so they prevail.

    With ``avx2`` the kernels are compiled a second time, for processors that have AVX2; one set is chosen at import.
    """
    command = list(cc) if cc else compiler()
    if command is None:
        raise SystemExit("exchangeable needs a C compiler: install gcc or clang, or pip install ziglang")
    with_avx2 = (machine or _platform()[-1]).lower() in X86 if avx2 is None else avx2
    target.mkdir(parents=True, exist_ok=True)
    common = [*command, *_macos()]
    compiling = [*common, *FLAGS, *WARNINGS, *([] if sys.platform == "win32" else ["-fPIC"]), *flags]
    with tempfile.TemporaryDirectory() as folder:
        objects = [_compiled(compiling, "kernels.c", Path(folder, "base.o"), "-DBUILD=base")]
        chosen = []
        if with_avx2:
            objects.append(_compiled(compiling, "kernels.c", Path(folder, "avx2.o"), "-DBUILD=avx2", "-mavx2"))
            chosen = ["-DWITH_AVX2"]
        objects.append(_compiled(compiling, "binding.c", Path(folder, "binding.o"), *chosen))
        fresh = Path(folder, LIBRARY)
        _run([*common, *flags, "-shared", "-o", str(fresh), *map(str, objects), *_linking()], fresh.parent)
        place = target / f".{LIBRARY}.new"  # a process that has loaded the old one keeps it
        shutil.copyfile(fresh, place)
        os.replace(place, target / LIBRARY)
    return target / LIBRARY


def _compiled(compiling: Sequence[str], source: str, target: Path, *flags: str) -> Path:
    _run([*compiling, *flags, "-c", str(SOURCES / source), "-o", str(target)], target.parent)
    return target


def _macos() -> list[str]:
    """On macOS: the machine and the oldest system version in the wheel's name."""
    if sys.platform != "darwin":
        return []
    _, version, machine = _platform()
    return [f"-mmacosx-version-min={version}", *(["-arch", machine] if machine != platform.machine() else [])]


def _linking() -> list[str]:
    if sys.platform == "darwin":
        return ["-undefined", "dynamic_lookup"]
    if sys.platform == "win32":
        return [f"-L{Path(sys.base_prefix, 'libs')}", "-lpython3"]
    return ["-lm"]


def _run(command: Sequence[str], folder: Path) -> None:
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), **os.environ}  # zig needs it if there is no home folder
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise SystemExit(f"the C compiler {command[0]} cannot be run: {error.strerror}") from error
    if done.returncode:
        raise SystemExit(f"the C compiler failed: {shlex.join(command)}\n{done.stderr}")
    if done.stderr.strip():
        print(done.stderr, file=sys.stderr)


if __name__ == "__main__":
    print(build(SOURCES))
