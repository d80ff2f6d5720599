"""Run the tests of the compiled loops with AddressSanitizer and UndefinedBehaviorSanitizer: ``make sanitize``.

    python scripts/sanitize.py [ARGUMENT ..]

A copy of the package, with the library built for the sanitizers, is written to build/sanitize. PYTHONPATH puts it
before the installed package, also in processes that the tests start. Then the tests below and forged snapshots are run;
with arguments, only pytest is run, with these arguments. The first read or write outside an array, or the first
undefined operation, ends the process with a report. Needs gcc with its sanitizers, on Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from build_native import ROOT, build

FOLDER = ROOT / "build" / "sanitize"
FLAGS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FILES = [
    *("test_elementary.py", "test_native.py", "test_native_bets.py", "test_contracts.py", "test_bets.py"),
    *("test_more_bets.py", "test_alarms.py", "test_nearest.py", "test_neighbours.py", "test_frozen.py"),
    *("test_tiles.py", "test_pvalues.py", "test_keyed.py", "test_snapshot.py", "test_monitor_history.py"),
    "test_table_lines.py",
]
SKIPPED = [  # left out: they test numbers rather than memory, or are repeated below
    *("integrates", "mpmath", "fifty_digits", "direct_sums", "paper", "on_sentinel", "never_loses"),
    *("compiles", "segment_keeps", "alarms_rare", "forged_snapshots_never", "exact_ratios", "order_of", "million"),
    *("worth_having", "is_pure", "learns_apart", "martingale_extends", "monitor_extends", "stands_still"),
]
SHARE = "0.01"  # of all forged snapshots that are tried
PROBE = """
import ctypes, sys, numpy
from exchangeable import native
assert native.__file__.startswith(sys.argv[1]), native.__file__
print(ctypes.CDLL(sys.argv[2]).get(numpy.ctypeslib.as_ctypes(numpy.zeros(400, numpy.int32)), int(sys.argv[3])))
"""


def main(arguments: list[str]) -> None:
    """Build the library, check that the sanitizers find an error, and run the tests."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(ROOT / "src", FOLDER, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    build(FOLDER / "exchangeable" / "native", cc=["gcc"], flags=FLAGS)
    environment = sanitized()
    check_probe(environment)
    start = time.perf_counter()
    tests = [*(f"tests/{name}" for name in FILES), "-k", f"not ({' or '.join(SKIPPED)})"]
    options = ["-q", "-n", "2", "--capture=sys", "-p", "no:cacheprovider", "--hypothesis-profile", "soak"]
    run(["-m", "pytest", *options, *(arguments or tests)], environment)
    if not arguments:
        run(["tests/fuzz_snapshot.py", SHARE], environment)
    print(f"the sanitizers found nothing in {time.perf_counter() - start:.0f} s")


def sanitized() -> dict[str, str]:
    """Return the environment for a Python that was itself built without sanitizers. Its leaks at exit do not matter."""
    loaded = [_library_path(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(loaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(FOLDER),
    }


def _library_path(library: str) -> str:
    command = ["gcc", f"-print-file-name={library}"]
    return str(Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()).resolve())


def check_probe(environment: Mapping[str, str]) -> None:
    """Check that a read beyond the end of an array is reported, and one within it is not."""
    source, library = FOLDER / "probe.c", FOLDER / "probe.so"
    source.write_text("int get(const int *x, int i) { return x[i]; }\n")
    subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    for index, expected in ("399", "0\n"), ("400", "heap-buffer-overflow"):
        command = [sys.executable, "-c", PROBE, str(FOLDER), str(library), index]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if expected not in result.stdout + result.stderr:
            raise SystemExit(f"the sanitizers do not work here:\n{result.stdout}{result.stderr}")


def run(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Run Python with these arguments; exit with its exit code if that is not zero."""
    result = subprocess.run([sys.executable, *arguments], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        print(result.stderr[-20_000:], file=sys.stderr)
        raise SystemExit(result.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
