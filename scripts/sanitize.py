"""Run the tests of the compiled loops with AddressSanitizer and UndefinedBehaviorSanitizer: ``make sanitize``.

    python scripts/sanitize.py [ARGUMENT ..]

A copy of the package, with the library built for the sanitizers, goes to build/sanitize. PYTHONPATH puts it before the
installed package, also in processes that the tests start. Then the tests below and forged snapshots are run; with
arguments, only pytest with these. The first read or write outside an array, or the first undefined operation, ends the
process with a report. Needs gcc with its sanitizers, on Linux.
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

PLACE = ROOT / "build" / "sanitize"
FLAGS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FILES = [
    *("test_elementary.py", "test_native.py", "test_native_bets.py", "test_contracts.py", "test_bets.py"),
    *("test_more_bets.py", "test_alarms.py", "test_nearest.py", "test_neighbours.py", "test_frozen.py"),
    *("test_tiles.py", "test_pvalues.py", "test_keyed.py", "test_snapshot.py"),
]
LONG = [  # left out: they test numbers rather than memory, or are repeated below
    *("integrates", "mpmath", "fifty_digits", "direct_sums", "paper", "on_watchful", "never_loses"),
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


def main(words: list[str]) -> None:
    """Build the library, check that the sanitizers find an error, and run the tests."""
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(ROOT / "src", PLACE, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    build(PLACE / "exchangeable" / "native", cc=["gcc"], flags=FLAGS)
    environment = sanitized()
    check_probe(environment)
    begin = time.perf_counter()
    tests = [*(f"tests/{name}" for name in FILES), "-k", f"not ({' or '.join(LONG)})"]
    options = ["-q", "-n", "2", "--capture=sys", "-p", "no:cacheprovider", "--hypothesis-profile", "soak"]
    run(["-m", "pytest", *options, *(words or tests)], environment)
    if not words:
        run(["tests/fuzz_snapshot.py", SHARE], environment)
    print(f"the sanitizers found nothing in {time.perf_counter() - begin:.0f} s")


def sanitized() -> dict[str, str]:
    """The environment for a Python that was itself built without sanitizers. Its own leaks at exit do not matter."""
    loaded = [_found(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(loaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(PLACE),
    }


def _found(library: str) -> str:
    command = ["gcc", f"-print-file-name={library}"]
    return str(Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()).resolve())


def check_probe(environment: Mapping[str, str]) -> None:
    """Check that a read beyond the end of an array is reported, and one within it is not."""
    source, library = PLACE / "probe.c", PLACE / "probe.so"
    source.write_text("int get(const int *x, int i) { return x[i]; }\n")
    subprocess.run(["gcc", *FLAGS, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    for at, wanted in ("399", "0\n"), ("400", "heap-buffer-overflow"):
        command = [sys.executable, "-c", PROBE, str(PLACE), str(library), at]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if wanted not in done.stdout + done.stderr:
            raise SystemExit(f"the sanitizers do not work here:\n{done.stdout}{done.stderr}")


def run(words: list[str], environment: Mapping[str, str]) -> None:
    """Run Python with these arguments; exit with its exit code if that is not zero."""
    done = subprocess.run([sys.executable, *words], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stderr[-20_000:], file=sys.stderr)
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
