"""How long reading and testing files take, at several sizes; writes FILES.md.

``python benchmarks/bench_files.py`` takes a few minutes. Times are compared within one run: with pandas, with Polars
without the search for dialect and types, and with the bare import of Polars.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

import exchangeable as ex
from workloads import best, heading, table

DOCUMENT = Path(__file__).with_name("FILES.md")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
HEAD = """
The file has six columns of numbers, one of categories, one of dates and one of integers with missing values. `ex.read`
finds delimiter, header, encoding and types from the whole file; pandas parses the dates on request; *Polars, as told*
is `polars.read_csv` with the types given. `ex.test(path)` reads the file, and tests full rows (at most 50,000 of them)
and each column. Wall times on two cores, the best of three runs; one run of `ex.test` for the largest file.
"""


def write(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    frame: dict[str, Any] = {f"x{i}": rng.normal(size=n) for i in range(6)}
    frame["kind"] = rng.choice(["red", "green", "blue"], n)
    frame["day"] = pl.Series(rng.integers(0, 9000, n)).cast(pl.Date).cast(pl.String)
    frame["count"] = pl.Series(rng.poisson(20.0, n)).set(pl.Series(rng.random(n) < 0.1), None)
    pl.DataFrame(frame).write_csv(path)


def as_told(path: Path) -> pl.DataFrame:
    schema = {**{f"x{i}": pl.Float64 for i in range(6)}, "kind": pl.String, "day": pl.Date, "count": pl.Int64}
    return pl.read_csv(path, schema=schema, try_parse_dates=True)


def row(path: Path, n: int) -> list[str]:
    write(path, n)
    size = path.stat().st_size / 1e6
    ours = best(lambda: ex.read(path))
    pandas = best(lambda: pd.read_csv(path, parse_dates=["day"]))
    told = best(lambda: as_told(path))
    tested = best(lambda: ex.test(path), repeats=1 if n == SIZES[-1] else 3)
    times = [f"{seconds:.3g}" for seconds in (ours, pandas, told, tested)]
    return [f"{n:,}", f"{size:,.3g}", *times, f"{pandas / ours:.2g} x", f"{1e6 * tested / n:.3g}"]


def start_up(folder: Path) -> list[list[str]]:
    """Return the times of processes: the command, and the import of Polars."""
    write(folder / "small.csv", 500)
    commands = {
        "`python -c 'import polars'`": ["-c", "import polars"],
        "`exchangeable test small.csv`, 500 rows": ["-m", "exchangeable", "test", str(folder / "small.csv")],
    }
    times = {
        name: best(lambda words=words: subprocess.run([sys.executable, *words], capture_output=True, check=False))  # type: ignore[misc]
        for name, words in commands.items()
    }
    least = min(times.values())
    return [[name, f"{seconds:.2f}", f"{seconds / least:.1f}"] for name, seconds in times.items()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        columns = ["rows", "MB", "`ex.read`, s", "pandas, s", "Polars, as told, s", "`ex.test(path)`, s"]
        sizes = table(
            [*columns, "pandas / `ex.read`", "`ex.test`, us per row"], [row(folder / "t.csv", n) for n in SIZES]
        )
        started = table(["process", "seconds", "ratio"], start_up(folder))
    peak = f"Peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB."
    libraries = ["exchangeable", "numpy", "pandas", "polars"]
    head = heading("Files", "python benchmarks/bench_files.py", libraries)
    DOCUMENT.write_text("\n".join([head, HEAD.strip(), "", sizes, "", started, "", peak, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
