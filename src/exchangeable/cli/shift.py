"""`exchangeable shift`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

import exchangeable as ex
from exchangeable.analysis.text import SHIFTS, format_evidence
from exchangeable.cli.choice import Choice
from exchangeable.cli.failures import RejectedError
from exchangeable.cli.notes import note
from exchangeable.cli.options import (
    HOW,
    TABLE,
    Categorical,
    Drop,
    Encoding,
    File,
    Format,
    Label,
    NoHeader,
    Plot,
    Printed,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import check_picture, draw, write
from exchangeable.martingale import LN10

if TYPE_CHECKING:
    from exchangeable.data.table import Table
    from exchangeable.shift import Evidence


def shift(
    file: File,
    label: Label = None,
    categorical: Categorical = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    max_rows: Annotated[
        int, typer.Option(min=2, help="Refuse longer tables: time grows with the square.", rich_help_panel=TABLE)
    ] = 100_000,
    alpha: Annotated[
        float,
        typer.Option(help="Largest acceptable chance of a false report, for either shift.", rich_help_panel=HOW),
    ] = 0.01,
    scale: Scale = ScaleName.auto,
    seed: Seed = None,
    plot: Plot = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Tell apart whether the classes come in other proportions (label shift) or look different (concept shift)."""
    from exchangeable.analysis.text import data_notes, describe_table, figure_title
    from exchangeable.data import files as tables
    from exchangeable.data.canonical import column_order, table_seed
    from exchangeable.data.scaling import scaled

    check_picture(plot)
    Choice(alpha=alpha, seed=seed).monitor()  # rejects invalid options before the work
    table = tables.read_table(
        file,
        label=label,
        categorical=categorical or (),
        drop=drop or (),
        header=not no_header,
        encoding=encoding,
        max_rows=max_rows,
    )
    X, done = scaled(table, scale.value)
    note(data_notes(table, done))
    own = table_seed(table) if seed is None else seed
    found = ex.shift_test(X[:, column_order(table)], table.y or (), alpha=alpha, seed=own)
    if plot is not None:
        paths = {"labels": found.label.log_value, "examples given their labels": found.concept.log_value}
        draw(ex.plots.growth(paths, thresholds=(1.0 / alpha,), title=figure_title(table.name)), plot)
    record = _shift_record(found, table, done)
    write(json.dumps(record) if format is Format.json else f"{describe_table(table)}\n{_shift_words(found)}")
    if record["rejected"]:
        raise RejectedError


def _shift_record(found: ex.Shift, table: Table, scale: str) -> dict[str, Any]:
    """What `exchangeable shift --format json` prints."""
    return {
        "file": table.name,
        "n": len(table.X),
        "n_features": table.X.shape[1],
        "n_classes": len(set(table.y or ())),
        "scale": scale,
        "alpha": found.alpha,
        "threshold": 1.0 / found.alpha,
        "verdict": found.verdict,
        "rejected": found.label.rejected or found.concept.rejected,
        "label": _evidence_record(found.label),
        "concept": _evidence_record(found.concept),
        "seed": found.seed,
        "guarantee": found.guarantee,
    }


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    log10 = evidence.log_value / LN10
    return {
        "log10_martingale": float(log10[-1]),
        "log10_max": max(0.0, float(log10.max())),  # S_0 = 1
        "rejected": evidence.rejected,
        "rejected_at": evidence.alarm_at,
    }


def _shift_words(found: ex.Shift) -> str:
    """The verdict and its figures."""
    lines = [SHIFTS[found.verdict]]
    for name, evidence in (("of label shift", found.label), ("of concept shift", found.concept)):
        record, level = _evidence_record(evidence), f"{1.0 / found.alpha:g}"
        reached = f"reached {level} at example {evidence.alarm_at:,}" if evidence.rejected else f"never reached {level}"
        lines.append(
            f"Evidence {name}: peak {format_evidence(record['log10_max'])}, "
            f"at the end {format_evidence(record['log10_martingale'])}; {reached}."
        )
    return "\n".join(
        [
            *lines,
            f"Guarantee: {found.guarantee}",
            "Does not mean: that what was not found is not there. A test can only ever refute exchangeability.",
        ]
    )
