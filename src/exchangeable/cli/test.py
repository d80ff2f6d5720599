"""The command `exchangeable test`: test a table."""

from __future__ import annotations

import warnings

import exchangeable as ex
from exchangeable.cli.errors import RejectedError, usage_errors
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    MAX_ROWS,
    Alarm,
    Alpha,
    Bet,
    Columns,
    ColumnsOption,
    Epsilon,
    File,
    MaxRows,
    Neighbours,
    OnAlarm,
    OnAlarmOption,
    OptionalMeasure,
    Order,
    Period,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import progress_bars
from exchangeable.cli.table_options import ColumnOptions, FileOptions, ResultOptions, option_groups
from exchangeable.monitor import BetWarning


@option_groups
def test(
    file: File,
    *,
    table: ColumnOptions,
    order: Order = None,
    reading: FileOptions,
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
    max_rows: MaxRows = MAX_ROWS,
    seed: Seed = None,
    output: ResultOptions,
) -> None:
    """Test whether the order of a table's rows matters.

    The result is that of `exchangeable.test(FILE)` in Python, with the same defaults. Options for several columns take
    lists such as A,B and can be repeated. Put a name that contains a comma in quotes, as in CSV: --drop 'a,"b,c"'.
    """
    output.check()
    options = MonitorOptions(measure, neighbours, bet, epsilon, alarm, alpha, period, on_alarm, seed)
    arguments = options.arguments() | {"columns": columns.value, "scale": scale.value, "max_rows": max_rows}
    chosen = table.arguments() | {"order": order}
    with warnings.catch_warnings(), usage_errors(), progress_bars() as progress:
        warnings.simplefilter("ignore", BetWarning)  # it was reported above
        contents = reading.read(file, chosen, progress)
        result = ex.test(contents, **chosen, **arguments, on_alarm=on_alarm.value, progress=progress)
        result.locate_change(progress=progress)
    output.write(result)
    if result.rejected:
        raise RejectedError
