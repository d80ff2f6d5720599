"""Tests of a table in one call: `test` (does the order matter?) and `compare` (can two sets be pooled?)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.alarms import Ville
from exchangeable.analysis.columns import (
    COLUMN_SHARE,
    MAX_AUTO_COLUMNS,
    ColumnTest,
    all_equal,
    run_column_tests,
    select_columns,
)
from exchangeable.analysis.result import Parts, Result, Split
from exchangeable.bets import Adaptive, Idle
from exchangeable.data.canonical import column_order, table_seed
from exchangeable.data.frames import Examples, build_table, concatenate, read_examples
from exchangeable.data.labels import LabelKind
from exchangeable.data.scaling import scaled
from exchangeable.data.table import Table
from exchangeable.martingale import Martingale
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Floats, Measure, is_measure
from exchangeable.pvalues import Precomputed, PValues, thetas
from exchangeable.validation import format_value

SHUFFLE_STREAM = 2**32 - 1  # the stream of random numbers that shuffles the two sets


def test(
    data: Any,
    label: Any = None,
    *,
    measure: Measure | None = None,
    bet: Bet | None = None,
    alpha: float = 0.01,
    seed: int | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale: str = "auto",
    columns: str = "auto",
    max_rows: int = 100_000,
) -> Result:
    """Test whether the order of these examples matters: a test of exchangeability in one call.

    On exchangeable data, whatever their distribution, the probability of a rejection is at most ``alpha``. This holds
    for one table tested once. Scales and categories are those of the entire table, so each test of a growing table is
    a new test, and the probability that *any* of them rejects is larger: for a stream use `Monitor`.

    - ``data``: a pandas, Polars or Arrow frame or series, a NumPy array (columns x0, x1, ...), a SciPy sparse matrix, a
      mapping of columns, or a list of rows. The test is about their order: do not shuffle or sort them first.
    - ``label``: the name of a column, or one label for each row; by default there are no labels. Text, booleans and
      integers with few different values are classes; other numbers are real-valued. ``categorical=["y"]`` turns a
      column of numbers into classes.
    - Columns of text and categories, and those named in ``categorical``, are one-hot encoded; those in ``drop`` are
      left out.
    - ``scale``: "deviation" divides each numeric column by its standard deviation over the entire table, "none" leaves
      them as they are, and "auto" scales if one column would dominate the distances. Scaling does not affect the
      guarantee, since it does not depend on the order.
    - ``measure``: by default `NearestNeighbour` for classes, `NearestResidual` for real-valued labels,
      `NearestDistance` without labels, and `Value` for a single column of numbers. ``bet``: by default `Adaptive`. Both
      are copied. The measure must be fresh; a bet may have learnt before, but never from these examples.
    - ``seed``: the seed for random tie-breaking. By default it is a hash of the rows, in order, so the same table gives
      the same result, whatever the order of its columns. Do not try several seeds.
    - ``columns``: "each" also tests every column, and the label, separately, so that a change in one of many columns is
      not missed. Half of ``alpha`` is then used for full rows, and half is shared by the columns; the guarantee still
      holds. Constant columns are not tested. "none" tests full rows only; "auto" is "each" for up to 64 columns if no
      measure is given.

    Time and memory are those of the measure: O(n^2 d) and O(n d) for nearest neighbours, for which more than
    ``max_rows`` rows are rejected; and n bets for each column.

    >>> result = test({"size": [1.0, 2.0, 1.5, 1.2] * 20, "colour": ["red", "blue"] * 40})
    >>> result.rejected, result.rejected_by, result.measure
    (True, ['size', 'colour'], 'nearest-distance')

    Reference: Fedorova et al. (2012).
    """
    examples = read_examples(data, label, categorical=categorical, drop=drop)
    table = build_table(examples, labels=_label_kind(measure))
    X, scaling = scaled(table, scale)
    fresh, measured = _prepare_measure(table, X, measure, [examples], max_rows)
    seed = table_seed(table) if seed is None else seed
    parts = Parts(fresh, _prepare_bet(bet, measured, table.y))
    monitor = Monitor(*copy.deepcopy(parts), Ville(alpha), seed=seed)
    path = monitor.extend(measured, table.y)
    tests = _test_columns(table, columns, measure, parts, seed)
    frames = {"library": examples.library, "index": examples.index}
    return Result(table, X, measured, path, monitor, parts, column_tests=tests, scale=scaling, **frames)


def compare(
    train: Any,
    test: Any,
    label: Any = None,
    *,
    measure: Measure | None = None,
    bet: Bet | None = None,
    alpha: float = 0.01,
    seed: int | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scale: str = "auto",
    columns: str = "auto",
    max_rows: int = 100_000,
) -> Result:
    """Test whether two sets are a random split of one, so that they can be pooled.

    Both sets are shuffled, so their own order does not matter. The larger one fills the pool of the measure, without
    bets; then the examples of the smaller one follow, with bets. If the split was random, the entire sequence is
    exchangeable, and the probability of a rejection is at most ``alpha``.

    A stratified split is not random: the shares of the classes agree better than by chance, which a bet could detect,
    so the guarantee does not cover it (no excess of rejections was found with the default bet). Within each class it is
    random, so the guarantee does hold for ``measure=Conditional(NearestNeighbour())``, which ranks an example among
    those of its own class only.

    The arguments are those of `exchangeable.test`; ``label`` is a column of both sets, or a pair of sequences. A
    category may occur in one of the sets only. In the result, ``path`` and ``frame()`` describe the smaller set, in the
    order of the bets. Time and memory are those of the measure.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(300, 2)), rng.normal(size=(100, 2))
    >>> compare(a, b).rejected, compare(a, b + [0.0, 3.0]).rejected
    (False, True)
    """
    labels = _label_pair(label)
    options: dict[str, Any] = {"categorical": categorical, "drop": drop}
    sets = {
        "train": read_examples(train, labels[0], name="train", beside=test, **options),
        "test": read_examples(test, labels[1], name="test", beside=train, **options),
    }
    names = sorted(sets, key=lambda name: -sets[name].rows)  # stable: train first if both are equally long
    first, second = (sets[name] for name in names)
    start = first.rows
    pooled = build_table(concatenate(first, second), labels=_label_kind(measure), name="train and test")
    X, scaling = scaled(pooled, scale)
    fresh, measured = _prepare_measure(pooled, X, measure, [first, second], max_rows)
    seed = table_seed(pooled) if seed is None else seed
    order = _shuffle(start, second.rows, seed)
    table, X, measured = _reorder(pooled, order), X[order], measured[order]
    parts = Parts(fresh, _prepare_bet(bet, measured, table.y))
    used = copy.deepcopy(parts)
    p = PValues(used.measure, seed=seed).extend(measured, table.y)[start:]
    path = Monitor(Precomputed(), used.bet, Ville(alpha), start=start).extend(p)
    monitor = Monitor(used.measure, used.bet, Ville(alpha), seed=seed, start=start)
    return Result(
        table,
        X,
        measured,
        path,
        monitor,
        parts,
        column_tests=_test_columns(table, columns, measure, parts, seed, start),
        scale=scaling,
        start=start,
        split=Split(names[0], names[1], order[start:] - start),
        library=second.library,
    )


def _label_pair(label: Any) -> tuple[Any, Any]:
    """Return the label of each of two sets: a pair of sequences, or the same column of both."""
    if isinstance(label, (tuple, list)) and len(label) == 2:
        return label[0], label[1]
    if not (label is None or isinstance(label, (str, int))):
        raise ValueError(f"label must name a column of both sets, or be a pair of sequences, got {format_value(label)}")
    return label, label


def _shuffle(first: int, second: int, seed: int) -> NDArray[np.int64]:
    """Return a random order within each of two sets, from a stream of random numbers that no theta comes from."""
    keys = thetas(seed, 0, first + second, SHUFFLE_STREAM)
    return np.concatenate([np.argsort(keys[:first], kind="stable"), first + np.argsort(keys[first:], kind="stable")])


def _reorder(table: Table, order: NDArray[np.int64]) -> Table:
    y: Any = table.y
    y = [y[i] for i in order.tolist()] if isinstance(y, list) else None if y is None else y[order]
    return table._replace(X=table.X[order], y=y)


def _test_columns(
    table: Table, which: str, measure: Measure | None, parts: Parts, seed: int, start: int = 0
) -> list[ColumnTest]:
    """Test the columns one by one, with half of the weight, if ``which`` selects that."""
    if which not in ("auto", "each", "none"):
        raise ValueError(f"columns must be 'auto', 'each' or 'none', got {which!r}")
    columns = select_columns(table)
    if not columns or which == "none":
        return []
    single = isinstance(parts.measure, Value)  # the measure already ranks the only column
    if which == "auto" and (measure is not None or single or len(columns) > MAX_AUTO_COLUMNS):
        return []
    return run_column_tests(columns, parts.bet, share=COLUMN_SHARE, seed=seed, start=start)


def _label_kind(measure: Measure | None) -> LabelKind | None:
    """Return the kind of labels that the measure needs, if any."""
    if isinstance(measure, NearestResidual):
        return "numbers"
    return "classes" if isinstance(measure, (NearestNeighbour, Conditional)) else None


def _prepare_measure(
    table: Table, X: Floats, measure: Measure | None, sets: Sequence[Examples], max_rows: int
) -> tuple[Measure, Floats]:
    """Return a fresh measure that fits the table, and its input.

    If the measure has a score function or a fitted model, that scores the features once, in the form in which the user
    passed them; the scores are then ranked.
    """
    order = column_order(table)
    if measure is None:
        measure = _default_measure(table, order)
        X = X[:, order] if isinstance(measure, Value) else X
    else:
        measure = copy.deepcopy(measure)
    _check_measure(measure, table)
    inner = measure.measure if isinstance(measure, Conditional) else measure
    if isinstance(inner, Frozen) and inner.score is not None:
        return (Conditional(Frozen()) if isinstance(measure, Conditional) else Frozen()), _scores(inner, table.y, sets)
    if not isinstance(inner, (Value, Frozen)):
        _check_length(len(X), max_rows)
        return measure, X[:, order]
    if X.shape[1] != 1:
        raise ValueError(f"measure {type(inner).__name__} must be given one column of numbers, got {X.shape[1]}")
    return measure, X[:, 0]


def _check_measure(measure: Measure, table: Table) -> None:
    if not is_measure(measure):
        raise ValueError(f"measure must be a measure such as measures.NearestDistance(), got {format_value(measure)}")
    if getattr(measure, "n", 0):
        raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")  # type: ignore[attr-defined]
    if isinstance(measure, (NearestNeighbour, NearestResidual, Conditional)) and table.y is None:
        raise ValueError(f"label must be given for the measure {type(measure).__name__}, got None")


def _check_length(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        raise ValueError(
            f"data must have at most max_rows={max_rows:,} rows, got {rows:,}: the time of nearest neighbours grows "
            "with the square of the rows; raise max_rows, or test one column or a score (measures.Frozen)"
        )


def _scores(measure: Frozen, y: Any, sets: Sequence[Examples]) -> Floats:
    ends = np.cumsum([0, *(examples.rows for examples in sets)]).tolist()
    labels = [None if y is None else y[start:stop] for start, stop in pairwise(ends)]
    return np.concatenate([measure.scores(examples.native, part) for examples, part in zip(sets, labels, strict=True)])


def _prepare_bet(bet: Bet | None, measured: Floats, y: list[object] | Floats | None) -> Bet:
    """Return a copy of the bet; `Idle` if all examples are equal, since there is nothing to test."""
    checked = Martingale(Adaptive() if bet is None else bet).bet  # rejects anything that is not a bet
    return Idle() if all_equal(measured, y) else copy.deepcopy(checked)


def _default_measure(table: Table, order: NDArray[np.intp]) -> Measure:
    """Choose a measure by the kind of labels; without labels, a single numeric column that varies gets `Value`."""
    if table.y is None:
        numeric = {column.start for column in table.columns if not column.categorical}
        return Value() if len(order) == 1 and int(order[0]) in numeric else NearestDistance()
    return NearestNeighbour() if isinstance(table.y, list) else NearestResidual()


test.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it
