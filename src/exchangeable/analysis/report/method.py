"""The method of a result: its parts, and the command or the call that reproduces it."""

from __future__ import annotations

import inspect
import platform
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable import bets
from exchangeable.analysis.report.names import MAX_NAME, clip, isolate
from exchangeable.analysis.text import describe_measure
from exchangeable.measures import Conditional

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

IN_MEMORY = ("the data", "train and test")  # names of tables that did not come from a file
MAX_CATEGORICAL = 20  # columns


def method_facts(result: Result) -> list[tuple[str, str]]:
    """Return the rows of the table of the method: names and descriptions."""
    verdict, table = result.verdict, result.table
    measure = clip(verdict.measure) + (f", {verdict.neighbours} neighbours" if (verdict.neighbours or 1) > 1 else "")
    bet = clip(verdict.bet) + ("" if verdict.epsilon is None else f", epsilon {verdict.epsilon:g}")
    columns = f"{len(table.columns):,} columns" if len(table.columns) != 1 else "one column"
    bet_on = f", {len(result.path.n):,} of them bet on" if result.split is not None else ""
    scales = {"deviation": "each numeric column divided by its standard deviation over the entire table"}
    return [
        ("measure", f"{measure}. {describe_measure(verdict.measure)}".rstrip(". ") + "."),
        ("bet", bet),
        ("alarm", _describe_alarm(result)),
        ("columns", "each tested separately as well" if result.column_tests else "not tested separately"),
        ("scaling", scales.get(verdict.scale, clip(verdict.scale))),
        ("seed", f"{verdict.seed}"),
        ("examples", f"{result.n:,}{bet_on}"),
        ("features", f"{result.n_features:,}, of {columns}"),
        ("labels", _describe_labels(result)),
        (
            "software",
            f"exchangeable {package_version()}, Python {platform.python_version()}, NumPy {np.__version__}",
        ),
    ]


def _describe_alarm(result: Result) -> str:
    verdict = result.verdict
    alpha = "" if verdict.alpha is None else f", alpha {verdict.alpha:g}"
    period = "" if verdict.period is None else f", period {verdict.period:g}"
    after = "the test restarts after an alarm" if verdict.on_alarm == "restart" else "an alarm stays on"
    return f"{clip(verdict.alarm)}{alpha}{period}; {after}"


def _describe_labels(result: Result) -> str:
    y, label = result.table.y, result.table.label
    if y is None:
        return "none"
    kind = f"{len(set(y)):,} classes" if isinstance(y, list) else "real-valued"
    return kind if label is None else f"{kind} ({isolate(label)})"


def package_version() -> str:
    """Return the version of this package."""
    return str(sys.modules["exchangeable"].__version__)


def reproduction(result: Result) -> str | None:
    """Return the command or the call that gives the same result, as far as it is known; None if names are unusual."""
    table = result.table
    categorical = [column.name for column in table.columns if column.categorical]
    names = [table.name, *([] if table.label is None else [table.label]), *categorical]
    if len(categorical) > MAX_CATEGORICAL or not all(name.isprintable() and len(name) <= MAX_NAME for name in names):
        return None
    return _call(result, categorical) if table.name in IN_MEMORY else _command(result, categorical)


def _call(result: Result, categorical: Sequence[str]) -> str:
    verdict, label = result.verdict, result.table.label
    arguments = [
        *(["data"] if result.split is None else ["train", "test"]),
        *([] if label is None else [f"label={label!r}"]),
        *([f"categorical={categorical!r}"] if categorical else []),
        f"measure=measures.{_constructor(result.parts.measure)}",
        f"bet=bets.{_constructor(result.parts.bet)}",
        f"alpha={verdict.alpha!r}",
        f"seed={verdict.seed}",
        f"scale={verdict.scale!r}",
        f"columns={_columns_option(result)!r}",
    ]
    return f"exchangeable.{'test' if result.split is None else 'compare'}({', '.join(arguments)})"


def _command(result: Result, categorical: Sequence[str]) -> str:
    verdict = result.verdict
    options: list[tuple[str, Any]] = [
        ("label", result.table.label),
        *(("categorical", name) for name in categorical),
        ("measure", verdict.measure),
        ("neighbours", verdict.neighbours),
        ("bet", verdict.bet),
        ("epsilon", verdict.epsilon),
        ("alarm", verdict.alarm),
        ("alpha", verdict.alpha),
        ("period", verdict.period),
        ("on-alarm", verdict.on_alarm),
        ("scale", verdict.scale),
        ("columns", _columns_option(result)),
        ("seed", verdict.seed),
    ]
    words = [word for name, value in options if value is not None for word in (f"--{name}", str(value))]
    return shlex.join(["exchangeable", "test", result.table.name, *words])


def _columns_option(result: Result) -> str:
    return "each" if result.column_tests else "none"


def _constructor(part: Any) -> str:
    """Return the call that builds a measure or a bet; dots stand for settings that are not recorded."""
    name = type(part).__name__
    if isinstance(part, Conditional):
        return f"{name}(measures.{_constructor(part.measure)})"
    parameters = list(inspect.signature(type(part)).parameters)
    if parameters == ["k"]:
        return f"{name}({part.k})"
    return f"{name}({part.epsilon!r})" if isinstance(part, bets.Power) else f"{name}({'...' if parameters else ''})"
