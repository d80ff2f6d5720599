"""Many streams of one table, tested on one machine: one row of results for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from exchangeable.data.errors import ColumnError
from exchangeable.protocols import Alarm, Bet, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.streams.fleet_run import Options, run
from exchangeable.streams.frame import to_frame
from exchangeable.streams.source import Wanted
from exchangeable.streams.summary import FleetTest
from exchangeable.streams.tester import Progress
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import format_value

__all__ = ["FleetTest", "Options", "Wanted", "run", "test_streams"]


def test_streams(
    data: Any,
    key: str,
    order: str | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    *,
    alpha: float = 0.05,
    measure: Measure | Precomputed | TableMonitor | None = None,
    bet: Bet | None = None,
    alarm: Alarm | None = None,
    on_alarm: str = "latch",
    seed: int | None = None,
    streams: int | None = None,
    presorted: bool = False,
    steps: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Test every stream of a table, and find those that have changed: one row for each, in the library of the data.

        key, n, log10_martingale, log10_max, p_value, alarm_at, changepoint, alarm_row, alarm_time, change_row,
        change_time, discovered, refused, seed

    The rows of one ``key`` are a stream, sorted by the column ``order`` (numbers, dates or times); without it they keep
    the order of the data. ``data`` is a frame of any library, a file as for ``read``, a folder of Parquet files, or an
    iterator of Arrow batches. The result is sorted by key; for files it is a Polars frame, for batches an Arrow table.

    **Numbers.** Stream k has the numbers of ``Monitor(measure, bet, alarm, seed=fleet.stream_seed(seed, k),
    on_alarm=on_alarm)``, bit for bit, whatever the number of threads and parts of the data and, with ``order``, the
    order of the rows. By default ``measure`` is `Value` for one feature, `NearestDistance` for several, and with a
    label `NearestNeighbour` for classes and `NearestResidual` for numbers; features are not scaled. Labels of numbers
    are classes if there are few different integers in all of the data; if it arrives in presorted batches, which are
    read once, ``measure`` must be given. ``features`` are by default all other columns. ``alarm_at`` counts the
    examples of the stream, ``alarm_row`` the rows of the data from 1, and ``change_row`` is the first row after the
    change point. ``p_value`` is one over the highest capital; one below the smallest float is rounded up to 5e-324.

    **Columns of several kinds**, categories and missing values: ``measure=TableMonitor(schema=...)``. Each stream then
    has the numbers of a `TableMonitor` with this schema and the seed of the stream; its evidence is the weighted
    maximum over the columns. The schema must not be learned from the rows that are tested.

    **Discovered** are the streams that e-BH finds at ``alpha``: on average, at most this fraction of them are false
    discoveries. That holds however the streams depend on one another, if the data ends at a time fixed in advance. It
    holds for all streams of the data together, or for ``streams`` of them, if there will be more (see `fleet.e_bh`).

    **Seeds.** ``seed=None`` draws a seed from the operating system; it is the last column. A key is text, an integer, a
    date or a time. A date gets the seed of the text ``2024-01-31``, a time that of ``key.isoformat()`` in UTC without
    the zone, whatever the unit of the column: ``2024-01-31T05:00:00``, with 6 digits of a second if they are not all 0,
    or 9 if needed. Rows of a stream with equal orders have no order, so the seed shuffles them.

    **Refused** rows are counted and not tested: those with a missing or infinite number, one beyond 1e150 if the
    measure uses distances, text in place of a number (in at most 10 % of the rows), a missing label or a missing order.
    A missing key is an error, since the row belongs to no stream. In a column of text, 007 is a number as an order; as
    a feature it is a code, and an error.

    **Memory.** Parquet files, lazy frames of Polars and batches are read in parts. Above a gigabyte they are divided by
    key into temporary files; frames in memory stay there. With ``presorted=True`` the data is sorted by key already,
    and nothing is stored. Other files, such as CSV, are read whole: pass ``polars.scan_csv(path)`` if one is too large.
    ``steps=True`` returns one row for each example instead, and is required with ``on_alarm="restart"``: the capital
    after a restart is not evidence that the stream has changed. ``threads`` is by default the number of cores.
    ``progress`` is called with a description, the rows done and all rows, or 0 while their number is not known.

    >>> import numpy as np, pyarrow as pa, exchangeable as ex
    >>> x = np.random.default_rng(0).normal(size=(3, 200))
    >>> x[1, 100:] += 2.0
    >>> table = pa.table({"device": np.repeat(["a", "b", "c"], 200), "reading": x.ravel()})
    >>> result = ex.test_streams(table, key="device", seed=1)
    >>> result.filter(result["discovered"])["device"].to_pylist()
    ['b']

    Reference: Wang and Ramdas (2022), *False discovery rate control with e-values*, section 4.
    """
    names = (features,) if isinstance(features, str) else None if features is None else _names(features)
    options = Options(alpha, measure, bet, alarm, on_alarm, seed, streams, presorted, steps, threads, progress)
    return to_frame(run(data, Wanted(key, order, names, label), options))


def _names(features: Any) -> tuple[str, ...]:
    if not isinstance(features, Iterable):
        raise ColumnError(f"features must be the name of a column, or a list of names, got {format_value(features)}")
    return tuple(features)


test_streams.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it
