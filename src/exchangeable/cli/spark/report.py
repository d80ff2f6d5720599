"""The report of a command on Spark: which streams have changed."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from exchangeable.analysis.formats import count_of, format_evidence
from exchangeable.cli.errors import RejectedError
from exchangeable.cli.options import Format
from exchangeable.cli.output import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LISTED = 20  # streams that are named


def print_report(
    rows: DataFrame,
    rate: float,
    evidence: str,
    format: Format,  # noqa: A002
    output: str,
    seed: int,
    fleet_size: int | None = None,
) -> None:
    """Print which streams have changed; if there are any, the exit code is 1."""
    record = _count_alarms(rows) if "test" in rows.columns else _find_changed(rows, rate, evidence, fleet_size)
    record |= {"n_refused": _count_refused(rows), "seed": seed}
    write(
        json.dumps(record, default=lambda name: bytes(name).hex())
        if format is Format.json
        else f"{output}: {_describe(record)}{_refused(record['n_refused'])}\nThe seed is {seed}."
    )
    if record["n_rejected"]:
        raise RejectedError


def _count_refused(rows: DataFrame) -> int:
    """Count the rows that were not tested, in an output with a row for each stream or for each event."""
    from pyspark.sql import functions as F

    events = (
        F.when(F.col("kind").isin("bad", "conflict"), F.col("count")) if "kind" in rows.columns else F.col("refused")
    )
    return int((rows.agg(F.sum(events)).first() or (0,))[0] or 0)


def _count_alarms(rows: DataFrame) -> dict[str, Any]:
    """Count the streams with an alarm. With restarts the capital is not an e-value, so e-BH cannot be used."""
    from pyspark.sql import functions as F

    from exchangeable.spark.sources import quote

    key = quote(rows.columns[0])
    each = rows.groupBy(key).agg(F.max(F.coalesce("alarm", F.lit(False))).alias("alarm"))
    streams, alarms = each.agg(F.count("*"), F.count(F.when(F.col("alarm"), 1))).first() or (0, 0)
    return {"n_streams": streams, "n_rejected": alarms, "rate": None}


def _find_changed(rows: DataFrame, rate: float, evidence: str, fleet_size: int | None) -> dict[str, Any]:
    """Find the streams that have changed, by e-BH, and name the strongest of them."""
    from pyspark.sql import functions as F

    from exchangeable.spark import fleet_report
    from exchangeable.spark.sources import quote

    report = fleet_report(rows, rate, evidence=evidence, streams=fleet_size)
    streams, found, threshold = report.agg(
        F.count("*"), F.count(F.when(F.col("found"), 1)), F.max("log10_threshold")
    ).first() or (0, 0, math.nan)
    first = report.where("found").orderBy(F.desc("log10_evidence"), quote(report.columns[0])).limit(LISTED)
    named = first.select(
        F.col(quote(report.columns[0])).alias("stream"), "n", "log10_martingale", "log10_evidence"
    ).collect()
    return {
        "n_streams": streams,
        "n_rejected": found,
        "rate": rate,
        "evidence": evidence,
        "fleet_size": fleet_size,
        "log10_threshold": threshold,
        "first": [row.asDict() for row in named],
    }


def _refused(count: int) -> str:
    return f"\n{count_of(count, 'row')} {'was' if count == 1 else 'were'} refused, and not tested." if count else ""


def _describe(record: dict[str, Any]) -> str:
    """Return the record as text. Names are escaped, so that they cannot send commands to a terminal."""
    streams, found = f"{record['n_streams']:,} streams", record["n_rejected"]
    if record["rate"] is None:
        return (
            f"{found:,} of {streams} had an alarm. With --on-alarm restart the guarantee holds for each stream "
            "separately; the false discovery rate among all of them is not controlled."
        )
    level = f"{100.0 * record['rate']:g} %"
    if not found:
        return f"NONE of {streams} is flagged as changed, at a false discovery rate of {level}."
    rows = [
        f"  {row['stream']!r}: evidence {format_evidence(row['log10_evidence'])} after {row['n']:,}"
        for row in record["first"]
    ]
    more = [f"  and {found - len(rows):,} more: `fleet_report` names them all"] * (found > len(rows))
    return "\n".join(
        [
            f"{found:,} of {streams} CHANGED, at a false discovery rate of {level}: evidence of at least "
            f"{format_evidence(record['log10_threshold'])} each.",
            *rows,
            *more,
        ]
    )
