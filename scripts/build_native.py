"""Compile the kernels in ``src/exchangeable/native``: ``python scripts/build_native.py``. Every build does this too.

It needs only a C compiler: ``$CC``, or ``cc``, ``gcc`` or ``clang``; if there is none, the package ``ziglang``
provides one. The library uses Python's stable ABI, which the sources declare themselves, so it needs neither
Python's headers nor a separate build for each Python version.

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
    """Return the command that runs a C compiler, or None if there is none."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"], posix=sys.platform != "win32")
    # on Windows only ziglang and clang, since a library linked by MinGW's gcc may depend on MinGW
    for name in ("clang",) if sys.platform == "win32" else ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return ZIG if importlib.util.find_spec("ziglang") else None


def platform_tag() -> str:
    """Return the platform as in the names of wheels, such as linux_x86_64, macosx_11_0_arm64 or win_amd64."""
    return "_".join(_platform()).replace(".", "_").replace("-", "_")


def _platform() -> list[str]:
    """Return the system, version (macOS only) and machine; a universal Python reports the machine it runs on."""
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
    """Compile into the folder ``target`` and return the path of the library. Extra ``flags`` come last and win.

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
        objects = [_compile(compiling, "kernels.c", Path(folder, "base.o"), "-DBUILD=base")]
        chosen = []
        if with_avx2:
            objects.append(_compile(compiling, "kernels.c", Path(folder, "avx2.o"), "-DBUILD=avx2", "-mavx2"))
            chosen = ["-DWITH_AVX2"]
        objects.append(_compile(compiling, "binding.c", Path(folder, "binding.o"), *chosen))
        fresh = Path(folder, LIBRARY)
        _run([*common, *flags, "-shared", "-o", str(fresh), *map(str, objects), *_linking()], fresh.parent)
        temporary = target / f".{LIBRARY}.new"  # a process that has loaded the old one keeps it
        shutil.copyfile(fresh, temporary)
        os.replace(temporary, target / LIBRARY)
    return target / LIBRARY


def _compile(compiling: Sequence[str], source: str, target: Path, *flags: str) -> Path:
    _run([*compiling, *flags, "-c", str(SOURCES / source), "-o", str(target)], target.parent)
    return target


def _macos() -> list[str]:
    """Return the flags for macOS: the machine and the oldest system version, as in the wheel's name."""
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
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise SystemExit(f"the C compiler {command[0]} cannot be run: {error.strerror}") from error
    if result.returncode:
        raise SystemExit(f"the C compiler failed: {shlex.join(command)}\n{result.stderr}")
    if result.stderr.strip():
        print(result.stderr, file=sys.stderr)


if __name__ == "__main__":
    print(build(SOURCES))
