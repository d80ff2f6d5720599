"""Assertions for test suites: is this data still exchangeable?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from exchangeable.analysis import test
from exchangeable.analysis.text import describe_table

if TYPE_CHECKING:
    from exchangeable.analysis import Result
    from exchangeable.protocols import Bet, Measure


def assert_exchangeable(
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
    """Raise AssertionError, with the verdict as its message, if the order of these examples matters; else return it.

    The arguments are those of `exchangeable.test`. The same data gives the same outcome each time. At most a share of
    ``alpha`` of exchangeable data sets fails. Passing is not a proof: a test can refute exchangeability, but never
    confirm it. Data that cannot be tested raises ValueError, not AssertionError.

    >>> assert_exchangeable([3.0, 1.0, 2.0, 5.0, 4.0]).n
    5
    >>> assert_exchangeable([float(i) for i in range(50)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: REJECTED at level 1 %: the order of these examples matters...
    """
    __tracebackhide__ = True  # pytest then points at the line of the caller
    result = test(
        data,
        label,
        measure=measure,
        bet=bet,
        alpha=alpha,
        seed=seed,
        categorical=categorical,
        drop=drop,
        scale=scale,
        columns=columns,
        max_rows=max_rows,
    )
    if result.rejected:
        raise AssertionError(_message(result))
    return result


def _message(result: Result) -> str:
    """Return the text of the result, the verdict first, since test summaries show only the first line."""
    table = describe_table(result.table)
    return str(result).removeprefix(f"{table}\n") + f"\nTested: {table}."
