"""Assertions for test suites: is this data still exchangeable?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from exchangeable.analysis import test
from exchangeable.analysis.text import describe_table

if TYPE_CHECKING:
    from exchangeable.analysis import Result

P = ParamSpec("P")
R = TypeVar("R")


def _with_arguments_of(model: Callable[P, R]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Return a decorator that gives a function the signature of another one."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        function.__signature__ = inspect.signature(model)  # type: ignore[attr-defined]
        return function

    return decorate


@_with_arguments_of(test)
def assert_exchangeable(*args: Any, **kwargs: Any) -> Result:
    """Raise AssertionError, with the verdict as its message, if the order of these rows matters; else return it.

    The arguments are those of `exchangeable.test`. The same data gives the same outcome each time. At most a share of
    ``alpha`` of exchangeable data sets fails. Passing is not a proof: a test can refute exchangeability, but never
    confirm it. Data that cannot be tested raises ValueError, not AssertionError.

    >>> assert_exchangeable([3.0, 1.0, 2.0, 5.0, 4.0]).n
    5
    >>> assert_exchangeable([float(i) for i in range(50)])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: REJECTED (1 %): the order of these rows matters...
    """
    __tracebackhide__ = True  # pytest then points at the line of the caller
    result = test(*args, **kwargs)
    if result.rejected:
        raise AssertionError(_message(result))
    return result


def _message(result: Result) -> str:
    """Return the text of the result, the verdict first, since test summaries show only the first line."""
    table = describe_table(result.table)
    return str(result).removeprefix(f"{table}\n") + f"\nTested: {table}."
