"""`exchangeable test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import exchangeable as ex
from exchangeable.cli.errors import USAGE, CommandError, RejectedError
from exchangeable.cli.monitor_options import MEASURE_INPUTS, MonitorOptions
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    DEFAULT_MEASURE,
    TABLE_PANEL,
    Alarm,
    Alpha,
    Bet,
    Categorical,
    Columns,
    ColumnsOption,
    Drop,
    Encoding,
    Epsilon,
    File,
    Format,
    FormatOption,
    Label,
    Neighbours,
    NoHeader,
    OnAlarm,
    OnAlarmOption,
    OptionalMeasure,
    Period,
    Plot,
    Report,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import (
    check_plot,
    check_report,
    extend_with_progress,
    print_notes,
    progress_bars,
    save_plot,
    save_report,
    write,
)

if TYPE_CHECKING:
    from exchangeable.analysis.columns import ColumnTest
    from exchangeable.analysis.result import Result
    from exchangeable.data.table import Table

MaxRows = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Reject longer tables. Default 100,000; with the measure value 10,000,000.",
        rich_help_panel=TABLE_PANEL,
    ),
]


def test(
    file: File,
    label: Label = None,
    categorical: Categorical = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    max_rows: MaxRows = None,
    measure: OptionalMeasure = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    columns: ColumnsOption = Columns.auto,
    scale: Scale = ScaleName.auto,
    seed: Seed = None,
    plot: Plot = None,
    report: Report = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Test whether the order of a table's rows matters."""
    from exchangeable.data import files

    check_plot(plot)
    check_report(report)
    name = measure or DEFAULT_MEASURE
    options = MonitorOptions(name, neighbours, bet, epsilon, alarm, alpha, period, on_alarm, seed)
    options.build()  # rejects invalid options before the file is read
    columns = _resolve_columns(columns, options, measure_chosen=measure is not None)
    needs = MEASURE_INPUTS[name]
    if needs.width == 1 and categorical:
        raise CommandError(
            f"--categorical cannot be combined with --measure {name}: it needs a column of numbers", USAGE
        )
    table = files.read_table(
        file, label=label, labels=needs.labels, width=needs.width, categorical=categorical or (), drop=drop or (),
        header=not no_header, encoding=encoding, max_rows=max_rows or needs.max_rows,
    )  # fmt: skip
    result = _run(table, options, columns, scale)
    if plot is not None:
        save_plot(result.plot(), plot)
    if report is not None:
        save_report(result, report)
    write(result.to_json() if format is Format.json else _text(result, table))
    if result.rejected:
        raise RejectedError


def _resolve_columns(columns: Columns, options: MonitorOptions, *, measure_chosen: bool) -> Columns:
    """Test columns on their own if asked to, or if no measure is chosen and the alarm is ville with latch."""
    supported = (options.alarm, options.on_alarm) == ("ville", "latch")
    if columns is Columns.each and not supported:
        raise CommandError("--columns each requires --alarm ville and --on-alarm latch", USAGE)
    return Columns.none if columns is Columns.auto and (measure_chosen or not supported) else columns


def _run(table: Table, options: MonitorOptions, columns: Columns, scale: ScaleName) -> Result:
    from exchangeable.analysis.columns import all_equal
    from exchangeable.analysis.result import Parts, Result
    from exchangeable.analysis.text import data_notes
    from exchangeable.data.canonical import column_order, table_seed
    from exchangeable.data.scaling import scaled

    X, used_scale = scaled(table, scale.value)
    ranked = X[:, 0] if MEASURE_INPUTS[options.measure].width == 1 else X[:, column_order(table)]
    if options.seed is None:
        options = options._replace(seed=table_seed(table))
    if all_equal(ranked, table.y):
        options = options._replace(bet="idle", epsilon=None)
    monitor = options.build(warn=False)
    tests = _test_columns(columns, table, monitor)
    print_notes(data_notes(table, used_scale, columns_tested=bool(tests) or columns is Columns.none))
    parts = Parts.of(monitor)
    path = extend_with_progress(monitor, ranked, table.y, table.name)
    return Result(table, X, ranked, path, monitor, parts, column_tests=tests, scale=used_scale)


def _test_columns(columns: Columns, table: Table, monitor: ex.Monitor) -> list[ColumnTest]:
    """Compute the martingale of each column, if columns are tested on their own."""
    from exchangeable.analysis.columns import COLUMN_SHARE, MAX_AUTO_COLUMNS, run_column_tests, select_columns

    if columns is Columns.none:
        return []
    tested = select_columns(table)
    if columns is Columns.auto and len(tested) > MAX_AUTO_COLUMNS:
        return []
    with progress_bars() as progress:
        return run_column_tests(
            tested, monitor.martingale.bet, share=COLUMN_SHARE, seed=monitor.seed, progress=progress
        )


def _text(result: Result, table: Table) -> str:
    from exchangeable.analysis.text import describe_table, describe_verdict

    return f"{describe_table(table)}\n{describe_verdict(result.verdict, result.tests)}"
