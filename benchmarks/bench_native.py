"""Before and after: the version whose kernels numba compiled against this one, in turns, in one run.

    python benchmarks/bench_native.py --before PYTHON

writes NATIVE.md beside this file. PYTHON is the interpreter of an environment that has the version before, and river.
Without it, the times of this version are printed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exchangeable import native
from native_cases import CASES, Times
from workloads import heading, table

HERE = Path(__file__).parent
COMMAND_LINE = "command line"
BASE = ("adaptive", "plugin", "others")  # measured without AVX2 too
NOTE = """
Processor times unless it says otherwise, the least of several runs in each of {repeats} processes, which took turns
with those of the other version. "us" of `extend` are microseconds a step of a fresh bet or measure. Where nothing is
cached, numba has an empty folder for its cache. `Adaptive` is another portfolio than before, and finds more
(POWER.md). Before: {before}.
"""


class Side(NamedTuple):
    """A version: its interpreter, a folder to work in, and perhaps other kernels than the installed ones."""

    python: str
    folder: Path
    library: Path | None = None

    def run(self, *words: str, cache: Path) -> str:
        """What a program prints; numba keeps what it compiles in ``cache``."""
        env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        if "nearest_one_core" in words:
            env["OPENBLAS_NUM_THREADS"] = "1"
        if self.python != sys.executable:
            env.pop("PYTHONPATH", None)
        done = subprocess.run(
            [self.python, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{self.python} {' '.join(words)} failed:\n{done.stderr}")
        return done.stdout

    def measured(self, name: str) -> Times:
        """The times of one case, by what was measured."""
        if self.library is not None and name not in BASE:
            return {}
        with tempfile.TemporaryDirectory() as empty:
            if name == COMMAND_LINE:
                return self.command_line(Path(empty))
            cache = Path(empty) if name == "first" else self.folder
            words = [name] if self.library is None else [name, str(self.library)]
            times: Times = json.loads(self.run(str(HERE / "native_cases.py"), *words, cache=cache))
        return times

    def command_line(self, cache: Path) -> Times:
        """Seconds from start to end, the first time and then warm."""
        rows = np.random.default_rng(0).normal(size=(500, 4)).round(6).tolist()
        lines = [f"{a},{b},{c},{'ab'[y > 0.0]}" for a, b, c, y in rows]
        (self.folder / "small.csv").write_text("\n".join(["a,b,c,y", *lines]), encoding="utf-8")
        times = {}
        for label in ("nothing cached", "warm"):
            start, before = time.perf_counter(), os.times()
            self.run("-m", "exchangeable", "test", "small.csv", "--label", "y", "--seed", "1", cache=cache)
            wall, after = time.perf_counter() - start, os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            times[f"`exchangeable test small.csv --label y`, 500 x 3, {label}, s"] = wall
            times[f"`exchangeable test small.csv --label y`, 500 x 3, {label}, CPU s"] = cpu
        return times


def measure(sides: dict[str, Side], repeats: int) -> dict[str, Times]:
    """The least times of each side; they take turns, so that all meet the same noise."""
    found: dict[str, Times] = {name: {} for name in sides}
    for case in (COMMAND_LINE, *CASES):
        for _ in range(repeats):
            for name, side in sides.items():
                for label, value in side.measured(case).items():
                    found[name][label] = min(value, found[name].get(label, math.inf))
    return found


def figure(value: float) -> str:
    return f"{value:.3g}" if value < 100.0 else f"{value:,.0f}"


def compared(found: dict[str, Times]) -> str:
    """A row for each measurement, followed by that without AVX2."""
    rows = []
    for label in found["after"]:
        for name, suffix in (("after", ""), ("base", ", without AVX2")):
            if label not in found.get(name, {}):
                continue
            ours = found[name][label]
            rows.append([label + suffix, figure(ours)])
            if "before" in found:
                before = found["before"][label]
                rows[-1] = [label + suffix, figure(before), figure(ours), f"{figure(before / ours)} x"]
    return table(["", "before", "after", "before / after"] if "before" in found else ["", "after"], rows)


def introduction(before: Side, repeats: int) -> str:
    code = "from importlib.metadata import version as v; print('numba', v('numba') + ', numpy', v('numpy'))"
    note = NOTE.format(repeats=repeats, before=before.run("-c", code, cache=before.folder).strip())
    return heading("Kernels compiled ahead of time", "bench_native.py --before PYTHON", ("numpy",)) + note + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the kernels, before and after they were compiled ahead.")
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of an environment with the version before")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder, name) for name in ("after", "base", "before")}
        for place in places.values():
            place.mkdir()
        sides = {"after": Side(sys.executable, places["after"])}
        if native.VECTOR:
            build = runpy.run_path(str(HERE.parent / "scripts" / "build_native.py"))["build"]
            sides["base"] = Side(sys.executable, places["base"], build(places["base"], avx2=False))
        if given.before:
            sides["before"] = Side(given.before, places["before"])
        text = compared(measure(sides, given.repeats))
        if given.before:
            text = introduction(sides["before"], given.repeats) + text
            (HERE / "NATIVE.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
