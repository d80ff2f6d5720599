"""The command `exchangeable streams`: test many streams of one table."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.analysis.formats import dump_json, format_evidence
from exchangeable.cli.errors import USAGE, CommandError, RejectedError, usage_errors
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    NAME,
    RESULT_PANEL,
    TEST_PANEL,
    Alarm,
    Author,
    Bet,
    Epsilon,
    Features,
    Label,
    MeasureName,
    Neighbours,
    OnAlarm,
    OnAlarmOption,
    Period,
    Report,
    Seed,
    Title,
)
from exchangeable.cli.output import check_report, progress_bars, write
from exchangeable.cli.table_options import FileOptions, option_groups, split_names
from exchangeable.data.files import read_file
from exchangeable.data.opening import source_name
from exchangeable.martingale import LN10
from exchangeable.monitor import BetWarning
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.streams import FleetTest

LISTED = 20  # streams in the table


class TableFormat(StrEnum):
    """The format of the result on stdout."""

    text = "text"
    json = "json"
    csv = "csv"


Source = Annotated[
    str, typer.Argument(metavar="FILE", help="File as for exchangeable test, or a folder of Parquet files.")
]
Key = Annotated[str, typer.Option(metavar=NAME, help="Column that names the stream of each row.")]
OrderOption = Annotated[
    str | None,
    typer.Option(
        metavar=NAME,
        help="Sort the rows of each stream by this column of numbers or times; those with equal values are put into "
        "random order. Default: the order of the file.",
    ),
]
Rate = Annotated[
    float, typer.Option("--alpha", metavar="X", help="Largest acceptable false discovery rate among all streams.")
]
AlarmAlpha = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Alarm ville: largest acceptable probability of a false alarm in one stream; default 0.01.",
        rich_help_panel=TEST_PANEL,
    ),
]
Measure = Annotated[
    MeasureName | None,
    typer.Option(
        metavar="NAME",
        help="Measure that scores how strange an example is. Default: value for one feature, nearest-distance for "
        "several, and with a label nearest-neighbour or nearest-residual.",
        rich_help_panel=TEST_PANEL,
    ),
]
Number = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The largest number of streams that there will ever be. Default: the number of streams in the file.",
        rich_help_panel=TEST_PANEL,
    ),
]
Presorted = Annotated[
    bool,
    typer.Option(
        "--presorted",
        help="The rows are sorted by key: Parquet is then read with little memory, without temporary files.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads. Default: one per core.")]
Steps = Annotated[
    bool,
    typer.Option(
        "--steps",
        help="With --format csv: write one row for each row of the data, instead of one for each stream.",
        rich_help_panel=RESULT_PANEL,
    ),
]
FormatOption = Annotated[TableFormat, typer.Option(help="Output format.", rich_help_panel=RESULT_PANEL)]


@option_groups
def streams(
    file: Source,
    key: Key,
    *,
    order: OrderOption = None,
    features: Features = None,
    label: Label = None,
    alpha: Rate = 0.05,
    presorted: Presorted = False,
    threads: Threads = None,
    reading: FileOptions,
    measure: Measure = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alarm_alpha: AlarmAlpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    streams: Number = None,
    seed: Seed = None,
    steps: Steps = False,
    report: Report = None,
    title: Title = None,
    author: Author = None,
    format: FormatOption = TableFormat.text,  # noqa: A002
) -> None:
    """Test many streams of one table, and find those that have changed (e-BH).

    The numbers are those of `exchangeable.test_streams(FILE, key, order)` in Python. The exit code is 0 if no stream is
    discovered, and 1 if some are; with --on-alarm restart, 1 if there is an alarm.
    """
    from exchangeable.streams import Options, Wanted, run
    from exchangeable.streams.summary import RESTARTED

    check_report(report, title=title, author=author)
    if report is not None and on_alarm is OnAlarm.restart:
        raise CommandError(f"--report needs --on-alarm latch: {RESTARTED}", USAGE)
    if steps and format is not TableFormat.csv:
        raise CommandError("--steps writes a row for each row of the data, so it needs --format csv", USAGE)
    chosen = MonitorOptions(measure, neighbours, bet, epsilon, alarm, alarm_alpha, period, on_alarm, seed)
    monitor = chosen.build()
    names = None if features is None else tuple(split_names(features))
    wanted = Wanted(key, order, names, label)
    own = chosen.arguments()["measure"]
    options = Options(
        *(alpha, own, monitor.martingale.bet, monitor.alarm, on_alarm.value, seed, streams, presorted, steps, threads)
    )
    with warnings.catch_warnings(), usage_errors(), progress_bars() as progress:
        warnings.simplefilter("ignore", BetWarning)  # it was reported above
        result = run(_open(file, wanted, reading, progress), wanted, options._replace(progress=progress))
    _write(result, format)
    if report is not None:
        from exchangeable.streams.report import save_report

        save_report(result, report, name=source_name(file), title=title, author=author)
    if result.changed:
        raise RejectedError


def _open(file: str, wanted: Any, reading: FileOptions, progress: Any) -> Any:
    """Return a folder or a Parquet file, which are read in batches, or the contents of another file."""
    if Path(file).is_dir() or (Path(file).suffix.lower() == ".parquet" and reading == FileOptions()):
        return file
    delimiter = "\t" if reading.delimiter in ("tab", r"\t") else reading.delimiter
    how = reading._replace(delimiter=delimiter)._asdict()
    return read_file(file, columns=None if wanted.features is None else wanted.names, **how, progress=progress)


def _write(result: FleetTest, format: TableFormat) -> None:  # noqa: A002
    if format is TableFormat.text:
        _write_table(result)
    elif format is TableFormat.json:
        write(dump_json(_record(result)))
    else:
        import io

        import pyarrow as pa
        from pyarrow import csv

        buffer = io.BytesIO()
        csv.write_csv(pa.table(result.columns if result.steps is None else result.steps), buffer)
        write(buffer.getvalue().decode().removesuffix("\n"))


def _record(result: FleetTest) -> dict[str, Any]:
    import pyarrow as pa

    rows = pa.table(result.columns).take(pa.array(result.discovered)).to_pylist()
    plain = [{n: v if isinstance(v, (int, float, str, type(None))) else str(v) for n, v in r.items()} for r in rows]
    return {
        "n_streams": len(result.columns["n"]),
        "fleet_size": result.fleet_size,
        "n_rows": result.rows,
        "n_refused": int(result.columns["refused"].sum()),
        "n_discovered": len(rows),
        "alpha": result.alpha,
        "seed": result.seed,
        "log10_threshold": result.log_threshold / LN10,
        "discovered": plain,
    }


def _write_table(result: FleetTest) -> None:
    """Write the verdict and a table of the discovered streams; names cannot send control characters."""
    from exchangeable.streams import text

    write("\n".join([f"{text.headline(result)}.", *text.lead(result), f"The seed is {result.seed}."]))
    rows = result.discovered[:LISTED].tolist()
    if not rows:
        return
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (result.wanted.key, "rows", "evidence", "alarm at", "change near", "refused"):
        table.add_column(Text(printable(name)), justify="left" if name == result.wanted.key else "right")
    for t in rows:
        table.add_row(*map(Text, _cells(result, t)))
    buffer = io.StringIO()
    Console(file=buffer, width=120, no_color=True).print(table)
    write("\n" + "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()))
    if len(result.discovered) > LISTED:
        write(f"and {len(result.discovered) - LISTED:,} more; --format csv lists all streams")


def _cells(result: FleetTest, t: int) -> list[str]:
    columns = result.columns
    alarm, change = (
        columns.get(f"{name}_time", columns[other])[t].as_py()
        for name, other in (("alarm", "alarm_at"), ("change", "changepoint"))
    )
    return [
        printable(columns[result.wanted.key][t].as_py()),
        f"{columns['n'][t]:,}",
        format_evidence(columns["log10_martingale"][t]),
        *("-" if value is None else printable(value) for value in (alarm, change)),
        f"{columns['refused'][t]:,}",
    ]
