"""Many streams: e-BH over a million of them, in every form, against the bare sort of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from exchangeable.fleet import e_bh
from workloads import Floats, best, table

STREAMS = (1_000, 100_000, 1_000_000)


def evidence(streams: int) -> tuple[list[str], Floats]:
    """Names, and log capitals of which one in a thousand stands high."""
    values = np.random.default_rng(0).normal(-5.0, 3.0, streams)
    values[:: max(1, streams // 1000)] += 40.0
    return [f"stream-{i:07d}" for i in range(streams)], values


def forms(streams: int) -> dict[str, Any]:
    names, values = evidence(streams)
    columns = {"stream": names, "log_value": values}
    return {
        "array": values,
        "Polars frame": pl.DataFrame(columns),
        "pandas frame": pd.DataFrame(columns),
        "Arrow table": pa.table(columns),
        "mapping": dict(zip(names, values.tolist(), strict=True)),
    }


def main() -> str:
    times: dict[str, list[str]] = {}
    for streams in STREAMS:
        fleets = forms(streams)
        sort = best(lambda values=fleets["array"]: np.sort(values), repeats=7)  # type: ignore[misc]
        for form, fleet in fleets.items():
            time = best(lambda fleet=fleet: e_bh(fleet, 0.05), repeats=7)  # type: ignore[misc]
            times.setdefault(form, []).append(f"{1e3 * time:.2f} ms ({time / sort:.1f} sorts)")
    columns = ["`e_bh` of", *(f"{streams:,} streams" for streams in STREAMS)]
    said = "In parentheses: how often NumPy could sort the same values in the time.\n\n"
    return "## Fleets\n\n" + said + table(columns, [[form, *cells] for form, cells in times.items()])


if __name__ == "__main__":
    print(main())
