"""Tests of a table in one call: `test` (does the order matter?) and `compare` (can two sets be pooled?)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from exchangeable.analysis.columns import (
    ALPHA_SHARES,
    FULL_ROWS,
    MAX_AUTO_COLUMNS,
    Progress,
    SharedTests,
    all_equal,
    run_column_tests,
    select_columns,
    share_weights,
)
from exchangeable.analysis.result import Result
from exchangeable.analysis.sample import (
    Sample,
    Split,
    choose_rows,
    choose_rows_of_two,
    expand_path,
    extend_in_parts,
    row_limit,
)
from exchangeable.analysis.settings import DEFAULT_ALPHA, MAX_ROWS, Parts, Settings
from exchangeable.analysis.shares import run_share_tests, share_columns
from exchangeable.analysis.views import NEIGHBOURS, run_neighbours_test, view_columns
from exchangeable.bets import Idle
from exchangeable.data.canonical import table_seed
from exchangeable.data.design import design_matrix, resolve_scale
from exchangeable.data.errors import list_names
from exchangeable.data.labels import LabelKind
from exchangeable.data.pair import PreparedPair, prepare_pair
from exchangeable.data.schema import Preparation, Prepared, prepare
from exchangeable.data.table import Table, constant, take_labels
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import Monitor, default_bet
from exchangeable.protocols import Alarm, Bet, Floats, Measure, Path
from exchangeable.pvalues import Precomputed, PValues, thetas

SHUFFLE_STREAM = 2**32 - 1  # the stream of random numbers that shuffles the two sets
BY_LABEL = (NearestNeighbour, NearestResidual)  # measures that compare a label with those of neighbours
Names = str | Sequence[str]
T = TypeVar("T")


def test(
    data: Any,
    label: Any = None,
    *,
    order: str | None = None,
    features: Names | None = None,
    drop: Names = (),
    keep: Names = (),
    categorical: Names = (),
    missing: str = "indicator",
    invalid: str = "error",
    measure: Measure | None = None,
    bet: Bet | None = None,
    alarm: Alarm | None = None,
    on_alarm: str = "latch",
    alpha: float = DEFAULT_ALPHA,
    seed: int | None = None,
    scale: str = "auto",
    columns: str = "auto",
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Result:
    """Test whether the order of these rows matters: a test of exchangeability in one call.

    On exchangeable data, whatever their distribution, the probability of a rejection is at most ``alpha`` (and 6e-7 for
    each column that is checked for being sorted). This holds for one table tested once. Scales, medians and categories
    are those of the entire table, so each test of a growing table is a new test, and the probability that *any* of them
    rejects is larger: for a stream use `Monitor`.

    - ``data``: the path of a file, a pandas, Polars or Arrow frame or series, a NumPy array (columns x0, x1, ...), a
      SciPy sparse matrix, a mapping of columns, or a list of rows. The test is about their order: do not shuffle them.
    - ``label``: the name of a column, or one label for each row; by default there are no labels. Text, booleans and
      integers with few different values are classes; other numbers are real-valued. ``categorical="y"`` turns a column
      of numbers into classes.
    - ``order``: sort the rows by this column first, such as a date; rows with equal values are put into random order.
    - ``features`` names the columns to test, ``drop`` those to leave out. Columns of text and categories, and those in
      ``categorical``, are one-hot encoded. Dates, row numbers, identifiers and sorted columns are set aside, with a
      note; ``keep`` insists on testing a column.
    - ``missing``: "indicator" fills numbers with the median and adds a column "is missing", "drop" leaves the rows out,
      and "error" rejects the data. ``invalid="missing"`` treats infinite and unparsable cells as missing.
    - ``scale``: "deviation" divides each numeric column by its standard deviation over the entire table, "none" leaves
      them as they are, and "auto" scales if one column would dominate the distances.
    - ``measure``: by default `NearestNeighbour` for classes, `NearestResidual` for real-valued labels,
      `NearestDistance` without labels, and `Value` for a single column of numbers. ``bet``: by default `Adaptive`,
      or what suits the alarm. Both are copied. The measure must be fresh; a bet may have learnt before, but never from
      these rows.
    - ``alarm``: by default `Ville` at ``alpha``. ``on_alarm="restart"`` tests for further changes after an alarm.
    - ``seed``: the seed for random choices. By default it is a hash of the rows, in order, so the same table gives the
      same result, whatever the order of its columns. Do not try several seeds.
    - ``columns``: "each" also tests every column, and the label, separately, so that a change in one of many columns is
      not missed, and views of the table: principal components, which show how columns relate to each other; with
      labels the residuals of a ridge regression and 15 neighbours instead of one; and the shares of categories, classes
      and columns with two values, once after the last row. The columns share 35 % of ``alpha``, components, residuals,
      neighbours and shares of categories have 10 % each, and full rows have the remainder; the guarantee still holds.
      "none" tests full rows only; "auto" is "each" for up to 64 columns if no measure is given. Columns and views are
      tested only with the alarm `Ville` that latches.
    - ``max_rows``: nearest neighbours use at most this many rows, chosen at random by the seed. Columns use all rows.
    - ``progress`` is called with (task, done, total).

    Time and memory are those of the measure: O(m^2 d) and O(m d) for nearest neighbours of m rows; and O(n log n) for
    each column.

    >>> result = test({"size": [1.0, 2.0, 1.5, 1.2] * 20, "colour": ["red", "blue"] * 40})
    >>> result.rejected, result.rejected_at, result.measure
    (True, 15, 'nearest-distance')

    Reference: Fedorova et al. (2012).
    """
    how = Preparation(label, order, features, drop, keep, categorical, missing, invalid)
    settings = Settings(measure, bet, alarm, on_alarm, alpha, seed, scale, columns, max_rows)
    settings.check()
    return _test(prepare(data, how, labels=_label_kind(measure), seed=seed), how, settings, progress)


def compare(
    reference: Any,
    current: Any,
    label: Any = None,
    *,
    features: Names | None = None,
    drop: Names = (),
    keep: Names = (),
    categorical: Names = (),
    missing: str = "indicator",
    invalid: str = "error",
    measure: Measure | None = None,
    bet: Bet | None = None,
    alpha: float = DEFAULT_ALPHA,
    seed: int | None = None,
    scale: str = "auto",
    columns: str = "auto",
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Result:
    """Test whether two sets are a random split of one, so that they can be pooled.

    Both sets are shuffled, so their own order does not matter. The larger one fills the pool of the measure, without
    bets; then the rows of the smaller one follow, with bets. If the split was random, the entire sequence is
    exchangeable, and the probability of a rejection is at most ``alpha``.

    A stratified split is not random: the shares of the classes agree better than by chance, which a bet could detect,
    so the guarantee does not cover it (no excess of rejections was found with the default bet). Within each class it is
    random, so the guarantee does hold for ``measure=Conditional(NearestNeighbour())``, which ranks a row among
    those of its own class only.

    The arguments are those of `exchangeable.test`; ``label`` is a column of both sets, or a pair of sequences. Columns
    that only one of the sets has, columns of different kinds, and new or vanished categories are listed in
    ``schema_differences``; the test is about the columns that both have. If both sets together have more than
    ``max_rows`` rows, the smaller one keeps up to half of that number for nearest neighbours, and the larger one gets
    the remainder. In the result, ``path`` and ``frame()`` describe the smaller set, in the order of the bets. Time and
    memory are those of the measure.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(300, 2)), rng.normal(size=(100, 2))
    >>> compare(a, b).rejected, compare(a, b + [0.0, 3.0]).rejected
    (False, True)
    """
    how = Preparation(label, None, features, drop, keep, categorical, missing, invalid)
    settings = Settings(measure, bet, None, "latch", alpha, seed, scale, columns, max_rows)
    settings.check()
    return _compare(prepare_pair(reference, current, how, labels=_label_kind(measure)), how, settings, progress)


def _test(prepared: Prepared, how: Preparation, settings: Settings, progress: Progress | None) -> Result:
    table = prepared.table
    seed = table_seed(table) if settings.seed is None else settings.seed
    scale = resolve_scale(table, settings.scale)
    measure, values = choose_measure(prepared, settings.measure)
    if values is None:
        rows = choose_rows(table.n, row_limit(table, settings.max_rows), seed)
        sample = _sample_rows(table, scale, rows)
    else:
        sample = Sample(values, table.y)
    parts = _fresh_parts(measure, settings, sample)
    monitor = Monitor(*copy.deepcopy(parts[:2]), settings.used_alarm, seed=seed, on_alarm=settings.on_alarm)
    path = Path.join(extend_in_parts(monitor.extend, sample, FULL_ROWS, progress))
    if sample.rows is not None:
        path = expand_path(path, sample.rows, 0, table.n, latch=settings.on_alarm == "latch")
    shared = _shared_tests(table, sample, settings, parts, seed, progress=progress)
    return Result(
        table, sample, path, monitor, parts, shared=shared, scale=scale, how=how, settings=settings,
        library=prepared.library, index=prepared.index,
    )  # fmt: skip


def _compare(pair: PreparedPair, how: Preparation, settings: Settings, progress: Progress | None) -> Result:
    prepared, n_reference, pooled = pair.prepared, pair.start, pair.prepared.table
    seed = _pair_seed(pooled, n_reference) if settings.seed is None else settings.seed
    scale = resolve_scale(pooled, settings.scale)
    measure, values = choose_measure(prepared, settings.measure, n_reference)
    order, start = _shuffle(n_reference, pooled.n, seed)
    table = pooled.take(order)
    if values is None:
        rows = choose_rows_of_two(start, table.n, row_limit(table, settings.max_rows))
        sample = _sample_rows(table, scale, rows)
    else:
        sample = Sample(values[order], table.y)
    parts = _fresh_parts(measure, settings, sample)
    used = copy.deepcopy(parts)
    skipped = start if sample.rows is None else int((sample.rows < start).sum())
    p = np.concatenate(extend_in_parts(PValues(used.measure, seed=seed).extend, sample, FULL_ROWS, progress))[skipped:]
    path = Monitor(Precomputed(), used.bet, settings.used_alarm, start=skipped).extend(p)
    if sample.rows is not None:
        path = expand_path(path, sample.rows, start, table.n)
    shared = _shared_tests(table, sample, settings, parts, seed, start, progress)
    monitor = Monitor(used.measure, used.bet, settings.used_alarm, seed=seed, start=start)
    names = ("reference", "current") if start == n_reference else ("current", "reference")
    split = Split(*names, np.asarray(table.rows)[start:])  # row numbers of each set
    return Result(
        table, sample, path, monitor, parts, shared=shared, scale=scale, how=how, settings=settings, start=start,
        split=split, differences=pair.differences,
        same_columns=pair.same_columns, library=prepared.library,
    )  # fmt: skip


def _pair_seed(pooled: Table, n_reference: int) -> int:
    """Return the default seed of two sets: the larger one comes first, so sets of different sizes may swap."""
    if 2 * n_reference >= pooled.n:
        return table_seed(pooled)
    return table_seed(pooled.take(np.roll(np.arange(pooled.n), -n_reference)))


def _shuffle(n_reference: int, n: int, seed: int) -> tuple[NDArray[np.intp], int]:
    """Return a random order within each set, the larger set first, and its size.

    The random numbers come from a stream that no theta comes from.
    """
    sets = [np.arange(n_reference), np.arange(n_reference, n)]
    sets.sort(key=lambda rows: -len(rows))  # stable: the reference first if both are equally long
    start, keys = len(sets[0]), thetas(seed, 0, n, SHUFFLE_STREAM)
    orders = np.argsort(keys[:start], kind="stable"), np.argsort(keys[start:], kind="stable")
    return np.concatenate([rows[order] for rows, order in zip(sets, orders, strict=True)]), start


def _sample_rows(table: Table, scale: str, rows: NDArray[np.intp] | None) -> Sample:
    """Return the features of all rows, or of these, for nearest neighbours."""
    y = table.y if rows is None else take_labels(table.y, rows)
    return Sample(design_matrix(table, scale, rows), y, rows)


def _shared_tests(
    table: Table,
    sample: Sample,
    settings: Settings,
    parts: Parts,
    seed: int,
    start: int = 0,
    progress: Progress | None = None,
) -> SharedTests:
    """Test columns and views, and allot the weights."""
    columns = select_columns(table)
    total = len(columns) + table.sorted_aside  # shares are allotted before columns are set aside: see `columns`
    if not columns or not _tests_columns(settings, total):
        return SharedTests()
    if settings.columns == "auto" and isinstance(parts.measure, Value):  # full rows are the only column
        share = ALPHA_SHARES["columns"]
        return SharedTests(1.0 - share + share / total)
    run = partial(run_column_tests, bet=parts.column_bet, seed=seed, start=start, progress=progress)
    column_tests = run(share_weights(columns, total))
    views, shares = share_weights(view_columns(table)), share_weights(share_columns(columns))
    view_tests = run(views, task="each view") + run_share_tests(shares, start)
    if parts.neighbours is not None:
        view_tests.append(run_neighbours_test(parts, sample, table.n, seed=seed, start=start, progress=progress))
    spent = ALPHA_SHARES["columns"] + sum(test.weight for test in view_tests)
    return SharedTests(1.0 - spent, column_tests, view_tests, [*views, *shares])


def _tests_columns(settings: Settings, total: int) -> bool:
    if settings.columns == "auto":
        return settings.weighted and settings.measure is None and total <= MAX_AUTO_COLUMNS
    return settings.columns == "each"


def _label_kind(measure: Measure | None) -> LabelKind | None:
    """Return the kind of labels that the measure needs, if any."""
    if isinstance(measure, NearestResidual):
        return "numbers"
    return "classes" if isinstance(measure, (NearestNeighbour, Conditional)) else None


def choose_measure(
    prepared: Prepared, measure: Measure | None, start: int | None = None
) -> tuple[Measure, Floats | None]:
    """Return a fresh measure that fits the table, and the numbers that it ranks; None if it needs the features.

    If the measure has a score function or a fitted model, that scores the features once, in the form in which the user
    passed them; the scores are then ranked.
    """
    table = prepared.table
    measure = _default_measure(table) if measure is None else copy.deepcopy(measure)
    if isinstance(measure, (NearestNeighbour, NearestResidual, Conditional)) and table.y is None:
        raise ValueError(f"label must be given for the measure {type(measure).__name__}, got None")
    inner = measure.measure if isinstance(measure, Conditional) else measure
    if isinstance(inner, Frozen) and inner.score is not None:
        scores = _scores(inner, prepared, [slice(start), slice(start, None)] if start else [slice(None)])
        return (Conditional(Frozen()) if isinstance(measure, Conditional) else Frozen()), scores
    if not isinstance(inner, (Value, Frozen)):
        return measure, None
    varying = [column for column in table.columns if not constant(column.values)] or table.columns
    if len(varying) != 1 or varying[0].categorical:
        width, names = len(table.features), list_names([column.name for column in varying])
        raise ValueError(
            f"measure {type(inner).__name__} must be given one column of numbers, got {width} features of {names}"
        )
    return measure, varying[0].values


def _scores(measure: Frozen, prepared: Prepared, sets: Sequence[slice]) -> Floats:
    """Return the scores of the features of each set, in the form in which the user passed them."""
    y = prepared.table.y
    labels = [None if y is None else y[rows] for rows in sets]
    return np.concatenate(
        [measure.scores(native(), part) for native, part in zip(prepared.natives, labels, strict=True)]
    )


def _default_measure(table: Table) -> Measure:
    """Choose a measure by the kind of labels; without labels, a single numeric column that varies gets `Value`."""
    if table.y is None:
        varying = [column for column in table.columns if not constant(column.values)]
        return Value() if len(varying) == 1 and not varying[0].categorical else NearestDistance()
    return NearestNeighbour() if isinstance(table.y, list) else NearestResidual()


def _fresh_parts(measure: Measure, settings: Settings, sample: Sample) -> Parts:
    """Return the parts before the first row; nothing is bet if all rows are equal, since there is nothing to test."""
    bet = copy.deepcopy(default_bet(settings.used_alarm) if settings.bet is None else settings.bet)
    more = None
    if settings.measure is None and isinstance(measure, BY_LABEL) and not all_equal(np.zeros(1), sample.y):
        more = type(measure)(NEIGHBOURS)
    return Parts(measure, Idle() if all_equal(sample.measured, sample.y) else bet, bet, more)


test.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it
