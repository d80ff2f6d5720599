"""One call: does the order of this table matter? Can these two tables be pooled?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.alarms import Ville
from exchangeable.analysis.columns import HALF, MANY, Line, all_equal, lines_of
from exchangeable.analysis.columns import columns as every_column
from exchangeable.analysis.result import Parts, Result, Split
from exchangeable.bets import Adaptive, Idle
from exchangeable.data.canonical import column_order, table_seed
from exchangeable.data.files import Table
from exchangeable.data.frames import Gathered, Labels, assemble, gather, join
from exchangeable.data.scaling import scaled
from exchangeable.martingale import Martingale
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Floats, Measure, is_measure
from exchangeable.pvalues import Precomputed, PValues, thetas
from exchangeable.validation import format_value

SHUFFLES = 2**32 - 1  # the stream of random numbers that shuffles the two sets


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
    """Does the order of these examples matter? A test of exchangeability in one call.

    On exchangeable data, whatever their distribution, the chance of a rejection is at most ``alpha``. This holds for
    one table tested once. Scales and categories are those of the whole table, so testing a growing table again and
    again is a new test each time, and the chance that *any* of them rejects is larger: for a stream use `Monitor`.

    - ``data``: a pandas, Polars or Arrow frame or series, a NumPy array (columns x0, x1, ...), a SciPy sparse matrix, a
      mapping of columns, a list of rows. Their order is what is tested: do not shuffle or sort first.
    - ``label``: the name of a column, or one label for each row; none if left out. Text, booleans and few whole
      numbers are classes; other numbers are real-valued. ``categorical=["y"]`` makes classes of a column of numbers.
    - Columns of text and categories, and those named in ``categorical``, are one-hot encoded; those in ``drop`` are
      left out.
    - ``scale``: "deviation" divides each numeric column by its standard deviation over the whole table, "none" leaves
      them, and "auto" does so where one would outweigh the rest. No scaling touches the promise: it is blind to order.
    - ``measure``: by default `NearestNeighbour` for classes, `NearestResidual` for real-valued labels,
      `NearestDistance` without labels, `Value` for one column of numbers alone. ``bet``: `Adaptive`. Neither is
      changed. The measure must be fresh; a bet may have learnt before, but never from these examples.
    - ``seed``: for the random tie-breaking. By default it is a hash of the rows, in order, so the same table gives the
      same answer, whatever the order of its columns. Do not try several seeds.
    - ``columns``: "each" looks at every column, and the label, by itself too, so that a change in one of many is not
      lost among whole examples. Constant columns are not tested. Half of ``alpha`` is then for whole examples and half
      is shared by the columns, and the promise still holds. "none" looks at whole examples only; "auto" is "each" for
      up to 64 columns if no measure is given.

    Time and memory are those of the measure: O(n^2 d) and O(n d) for nearest neighbours, for which data of more than
    ``max_rows`` is refused; and n bets for each column.

    >>> result = test({"size": [1.0, 2.0, 1.5, 1.2] * 20, "colour": ["red", "blue"] * 40})
    >>> result.rejected, result.rejected_by, result.measure
    (True, ['size', 'colour'], 'nearest-distance')

    Reference: Fedorova et al. (2012).
    """
    gathered = gather(data, label, categorical=categorical, drop=drop)
    table = assemble(gathered, labels=_labels(measure))
    X, done = scaled(table, scale)
    ranking, given = _ranking(table, X, measure, [gathered], max_rows)
    seed = table_seed(table) if seed is None else seed
    parts = Parts(ranking, _bet(bet, given, table.y))
    monitor = Monitor(*copy.deepcopy(parts), Ville(alpha), seed=seed)
    path = monitor.extend(given, table.y)
    found = _lines(table, columns, measure, parts, seed)
    frames = {"library": gathered.library, "index": gathered.index}
    return Result(table, X, given, path, monitor, parts, columns=found, scale=done, **frames)


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
    """Can these two sets be pooled? A test of whether they are a random split of one.

    Both are shuffled, so that their own order plays no part. The larger fills the pool of the measure, without bets;
    then the examples of the smaller come one by one and are bet on. If the division was random, the whole sequence is
    exchangeable, and the chance of a rejection is at most ``alpha``.

    A stratified split is not a random one: the shares of the classes agree better than by chance, which a bet could
    notice, so it is not covered by the promise (no excess of rejections was found with the default bet). Within each
    class it is random, so the promise does hold for ``measure=Conditional(NearestNeighbour())``, which ranks an example
    among those of its own class only.

    Arguments are those of `exchangeable.test`; ``label`` is a column of both, or a pair of sequences. Categories that
    only one of the two has are categories. In the result ``path`` and ``frame()`` tell of the smaller set, in the order
    of the bets. Time and memory are the measure's.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.normal(size=(300, 2)), rng.normal(size=(100, 2))
    >>> compare(a, b).rejected, compare(a, b + [0.0, 3.0]).rejected
    (False, True)
    """
    pair = label if isinstance(label, (tuple, list)) and len(label) == 2 else None
    if pair is None and not (label is None or isinstance(label, (str, int))):
        raise ValueError(f"label must name a column of both sets, or be a pair of sequences, got {format_value(label)}")
    labels = (label, label) if pair is None else pair
    options: dict[str, Any] = {"categorical": categorical, "drop": drop}
    sets = [
        gather(train, labels[0], name="train", beside=test, **options),
        gather(test, labels[1], name="test", beside=train, **options),
    ]
    names = ("train", "test") if sets[0].rows >= sets[1].rows else ("test", "train")
    first, second = sorted(sets, key=lambda one: -one.rows)  # stable
    plain = assemble(join(first, second), labels=_labels(measure), name="train and test")
    X, done = scaled(plain, scale)
    ranking, given = _ranking(plain, X, measure, [first, second], max_rows)
    seed = table_seed(plain) if seed is None else seed
    order = _shuffled(first.rows, second.rows, seed)
    table, X, given = _reordered(plain, order), X[order], given[order]
    parts = Parts(ranking, _bet(bet, given, table.y))
    split = Split(*names, order[first.rows :] - first.rows)
    own = copy.deepcopy(parts)
    p = PValues(own.measure, seed=seed).extend(given, table.y)[first.rows :]
    path = Monitor(Precomputed(), own.bet, Ville(alpha), start=first.rows).extend(p)
    monitor = Monitor(own.measure, own.bet, Ville(alpha), seed=seed, start=first.rows)
    found = _lines(table, columns, measure, parts, seed, first.rows)
    options = {"scale": done, "start": first.rows, "split": split, "library": second.library}
    return Result(table, X, given, path, monitor, parts, columns=found, **options)


def _shuffled(first: int, second: int, seed: int) -> NDArray[np.int64]:
    """A random order within each of two sets: by the seed, from a stream that no theta comes from."""
    keys = thetas(seed, 0, first + second, SHUFFLES)
    return np.concatenate([np.argsort(keys[:first], kind="stable"), first + np.argsort(keys[first:], kind="stable")])


def _reordered(table: Table, order: NDArray[np.int64]) -> Table:
    y: Any = table.y
    y = [y[i] for i in order.tolist()] if isinstance(y, list) else None if y is None else y[order]
    return table._replace(X=table.X[order], y=y)


def _lines(table: Table, asked: str, measure: Measure | None, parts: Parts, seed: int, start: int = 0) -> list[Line]:
    """The martingales of the columns, if they are tested one by one, with half of the weight."""
    if asked not in ("auto", "each", "none"):
        raise ValueError(f"columns must be 'auto', 'each' or 'none', got {asked!r}")
    found = every_column(table)
    alone = isinstance(parts.measure, Value)  # the one column that varies is ranked as it is
    if not found or asked == "none" or (asked == "auto" and (measure is not None or alone or len(found) > MANY)):
        return []
    return lines_of(found, parts.bet, share=HALF, seed=seed, start=start)


def _labels(measure: Measure | None) -> Labels | None:
    """What the measure takes the labels for, if it is known."""
    if isinstance(measure, NearestResidual):
        return "numbers"
    return "classes" if isinstance(measure, (NearestNeighbour, Conditional)) else None


def _ranking(
    table: Table, X: Floats, measure: Measure | None, sets: Sequence[Gathered], max_rows: int
) -> tuple[Measure, Floats]:
    """A fresh measure that fits the table, and what it is to be given.

    A fitted model or a function scores the features as the user has them, once; its scores are then ranked.
    """
    order = column_order(table)
    if measure is None:
        measure = _default(table, order)
        X = X[:, order] if isinstance(measure, Value) else X
    else:
        measure = copy.deepcopy(measure)
    if not is_measure(measure):
        raise ValueError(f"measure must be a measure such as measures.NearestDistance(), got {format_value(measure)}")
    if getattr(measure, "n", 0):
        raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")  # type: ignore[attr-defined]
    if isinstance(measure, (NearestNeighbour, NearestResidual, Conditional)) and table.y is None:
        raise ValueError(f"label must be given for the measure {type(measure).__name__}, got None")
    inner = measure.measure if isinstance(measure, Conditional) else measure
    if isinstance(inner, Frozen) and inner.score is not None:
        scores = _scores(inner, table.y, sets)
        return (Conditional(Frozen()) if isinstance(measure, Conditional) else Frozen()), scores
    if not isinstance(inner, (Value, Frozen)):
        _check_length(len(X), max_rows)
        return measure, X[:, order]
    if X.shape[1] != 1:
        raise ValueError(f"measure {type(inner).__name__} must be given one column of numbers, got {X.shape[1]}")
    return measure, X[:, 0]


def _check_length(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        law = "the time of nearest neighbours grows with the square; raise max_rows, or test one column or a score"
        raise ValueError(f"data must have at most max_rows={max_rows:,} rows, got {rows:,}: {law} (measures.Frozen)")


def _scores(measure: Frozen, y: Any, sets: Sequence[Gathered]) -> Floats:
    ends = np.cumsum([0, *(one.rows for one in sets)]).tolist()
    labels = [None if y is None else y[start:stop] for start, stop in pairwise(ends)]
    return np.concatenate([measure.scores(one.native, own) for one, own in zip(sets, labels, strict=True)])


def _bet(bet: Bet | None, given: Floats, y: list[object] | Floats | None) -> Bet:
    """A copy of the bet, or `Idle` if all examples are equal, since there is nothing to test."""
    own = Martingale(Adaptive() if bet is None else bet).bet  # which rejects what is not a bet
    return Idle() if all_equal(given, y) else copy.deepcopy(own)


def _default(table: Table, order: NDArray[np.intp]) -> Measure:
    """By the kind of labels; without labels, one column of numbers that varies is ranked as it is."""
    if table.y is None:
        numeric = {group.start for group in table.groups if not group.categorical}
        return Value() if len(order) == 1 and int(order[0]) in numeric else NearestDistance()
    return NearestNeighbour() if isinstance(table.y, list) else NearestResidual()


test.__test__ = False  # type: ignore[attr-defined]  # pytest must not take it for one of its own
