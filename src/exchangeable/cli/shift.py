"""`exchangeable shift`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import exchangeable as ex
from exchangeable.analysis.text import SHIFTS, format_evidence
from exchangeable.cli.errors import RejectedError
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    TABLE_PANEL,
    TEST_PANEL,
    Categorical,
    Drop,
    Encoding,
    File,
    Format,
    FormatOption,
    Label,
    NoHeader,
    Plot,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import check_plot, print_notes, save_plot, write
from exchangeable.martingale import LN10

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.shift import Evidence

MaxRows = Annotated[
    int, typer.Option(min=2, help="Reject longer tables: the cost is quadratic.", rich_help_panel=TABLE_PANEL)
]
ShiftAlpha = Annotated[
    float,
    typer.Option(
        help="Largest acceptable probability of a false report, for each kind of shift.", rich_help_panel=TEST_PANEL
    ),
]


def shift(
    file: File,
    label: Label = None,
    categorical: Categorical = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    max_rows: MaxRows = 100_000,
    alpha: ShiftAlpha = 0.01,
    scale: Scale = ScaleName.auto,
    seed: Seed = None,
    plot: Plot = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Test whether the proportions of the classes change (label shift) or the classes themselves (concept shift)."""
    from exchangeable.analysis.text import describe_table
    from exchangeable.data import files

    check_plot(plot)
    MonitorOptions(alpha=alpha, seed=seed).build()  # rejects invalid options before the file is read
    table = files.read_table(
        file, label=label, categorical=categorical or (), drop=drop or (), header=not no_header, encoding=encoding,
        max_rows=max_rows,
    )  # fmt: skip
    result, used_scale = _run(table, scale, alpha, seed)
    if plot is not None:
        _plot(result, table, plot)
    record = _record(result, table, used_scale)
    write(json.dumps(record) if format is Format.json else f"{describe_table(table)}\n{_text(result)}")
    if record["rejected"]:
        raise RejectedError


def _run(table: Table, scale: ScaleName, alpha: float, seed: int | None) -> tuple[ex.Shift, str]:
    from exchangeable.analysis.text import data_notes
    from exchangeable.data.canonical import column_order, table_seed
    from exchangeable.data.scaling import scaled

    X, used_scale = scaled(table, scale.value)
    print_notes(data_notes(table, used_scale))
    seed = table_seed(table) if seed is None else seed
    return ex.shift_test(X[:, column_order(table)], table.y or (), alpha=alpha, seed=seed), used_scale


def _plot(result: ex.Shift, table: Table, path: Path) -> None:
    from exchangeable.analysis.text import figure_title

    paths = {"labels": result.label.log_value, "examples given their labels": result.concept.log_value}
    save_plot(ex.plots.growth(paths, thresholds=(1.0 / result.alpha,), title=figure_title(table.name)), path)


def _record(result: ex.Shift, table: Table, scale: str) -> dict[str, Any]:
    return {
        "file": table.name,
        "n": len(table.X),
        "n_features": table.X.shape[1],
        "n_classes": len(set(table.y or ())),
        "scale": scale,
        "alpha": result.alpha,
        "threshold": 1.0 / result.alpha,
        "verdict": result.verdict,
        "rejected": result.label.rejected or result.concept.rejected,
        "label": _evidence_record(result.label),
        "concept": _evidence_record(result.concept),
        "seed": result.seed,
        "guarantee": result.guarantee,
    }


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    log10 = evidence.log_value / LN10
    return {
        "log10_martingale": float(log10[-1]),
        "log10_max": max(0.0, float(log10.max())),  # S_0 = 1
        "rejected": evidence.rejected,
        "rejected_at": evidence.alarm_at,
    }


def _text(result: ex.Shift) -> str:
    lines = [SHIFTS[result.verdict]]
    for name, evidence in (("of label shift", result.label), ("of concept shift", result.concept)):
        record, level = _evidence_record(evidence), f"{1.0 / result.alpha:g}"
        reached = f"reached {level} at example {evidence.alarm_at:,}" if evidence.rejected else f"never reached {level}"
        lines.append(
            f"Evidence {name}: peak {format_evidence(record['log10_max'])}, "
            f"at the end {format_evidence(record['log10_martingale'])}; {reached}."
        )
    return "\n".join(
        [
            *lines,
            f"Guarantee: {result.guarantee}",
            "Does not mean: that there is no shift if none was found. A test can only ever refute exchangeability.",
        ]
    )
