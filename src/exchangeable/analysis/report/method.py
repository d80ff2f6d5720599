"""The method of a result: its parts, and the command or the call that reproduces it."""

from __future__ import annotations

import inspect
import platform
import shlex
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable import bets
from exchangeable.analysis.report.names import MAX_NAME, clip, isolate
from exchangeable.analysis.text import describe_measure
from exchangeable.measures import Conditional

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result
    from exchangeable.analysis.settings import Settings
    from exchangeable.data.schema import Preparation

IN_MEMORY = ("the data", "reference and current")  # names of tables whose file is not known
MAX_CALL = 1000  # characters
LISTS = ("features", "drop", "keep", "categorical")


def method_facts(result: Result) -> list[tuple[str, str]]:
    """Return the rows of the table of the method: names and descriptions."""
    verdict, table = result.verdict, result.table
    measure = clip(verdict.measure) + (f", {verdict.neighbours} neighbours" if (verdict.neighbours or 1) > 1 else "")
    bet = clip(verdict.bet) + ("" if verdict.epsilon is None else f", epsilon {verdict.epsilon:g}")
    columns = f"{len(table.columns):,} columns" if len(table.columns) != 1 else "one column"
    bet_on = f", with bets on {len(result.path.n):,} of them" if result.split is not None else ""
    used = "" if result.sample.rows is None else f"; full rows: {len(result.sample.rows):,} of them"
    scales = {"deviation": "each numeric column divided by its standard deviation over the entire table"}
    return [
        ("measure", f"{measure}. {describe_measure(verdict.measure)}".rstrip(". ") + "."),
        ("bet", bet),
        ("alarm", _describe_alarm(result)),
        ("columns", "each also tested separately" if result.column_tests else "not tested separately"),
        ("views", f"{len(result.view_tests):,}" if result.view_tests else "not tested"),
        ("scaling", scales.get(verdict.scale, clip(verdict.scale))),
        ("seed", f"{verdict.seed}"),
        ("rows", f"{result.n:,}{bet_on}{used}"),
        *_describe_times(result),
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


def _describe_times(result: Result) -> list[tuple[str, str]]:
    timeline, name = result.timeline, result.table.time_name
    if timeline.times is None or name is None:
        return []
    return [("times", f"{isolate(name)}, {timeline.format(1)} to {timeline.format(result.n)}")]


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
    name = result.table.name
    if result.how is None or result.settings is None or not (name.isprintable() and len(name) <= MAX_NAME):
        return None
    chosen = {**_changed(result.how), **_changed(result.settings)}
    text = _call(result, chosen) if name in IN_MEMORY else _command(result, chosen)
    return text if text is None or (text.isprintable() and len(text) <= MAX_CALL) else None


def _changed(options: Preparation | Settings) -> dict[str, Any]:
    """Return the options that differ from their defaults."""
    defaults = options._field_defaults
    values = options._asdict().items()
    return {name: value for name, value in values if value is not defaults[name] and not _equal(value, defaults[name])}


def _equal(value: Any, default: Any) -> bool:
    value = tuple(value) if isinstance(value, list) else value
    return isinstance(value, (str, int, float, tuple)) and bool(value == default)


def _call(result: Result, chosen: dict[str, Any]) -> str:
    shown = {"measure": result.parts.measure, "bet": result.parts.column_bet, "alarm": result.monitor.alarm}
    arguments = ["data"] if result.split is None else ["reference", "current"]
    for name, value in chosen.items():
        if name in shown:
            text = f"{name}s.{_constructor(shown[name])}"
        elif name == "label" and not isinstance(value, str):
            text = "label"  # a sequence
        else:
            text = repr([*value] if name in LISTS and not isinstance(value, str) else value)
        arguments.append(f"{name}={text}")
    return f"exchangeable.{'test' if result.split is None else 'compare'}({', '.join(arguments)})"


def _command(result: Result, chosen: dict[str, Any]) -> str | None:
    """Return the command; None if the command line cannot express an option."""
    verdict = result.verdict
    if not isinstance(chosen.get("label", ""), str):
        return None  # a sequence
    replaced: dict[str, dict[str, Any]] = {
        "measure": {"measure": verdict.measure, "neighbours": verdict.neighbours if verdict.neighbours != 1 else None},
        "bet": {"bet": verdict.bet, "epsilon": verdict.epsilon},
        "alarm": {"alarm": verdict.alarm, "alpha": verdict.alpha, "period": verdict.period},
    }
    words: list[str] = []
    for name, value in chosen.items():
        for option, setting in replaced.get(name, {name: value}).items():
            if isinstance(setting, (list, tuple)) and not all(
                isinstance(one, str) and "," not in one for one in setting
            ):
                return None
            text = ",".join(setting) if isinstance(setting, (list, tuple)) else str(setting)
            words += [] if setting is None else [f"--{option.replace('_', '-')}", text]
    return shlex.join(["exchangeable", "test", result.table.name, *words])


def _constructor(part: Any) -> str:
    """Return the call that builds a measure or a bet; dots stand for settings that are not recorded."""
    name = type(part).__name__
    if isinstance(part, Conditional):
        return f"{name}(measures.{_constructor(part.measure)})"
    parameters = list(inspect.signature(type(part)).parameters)
    for parameter in ("k", "alpha", "period"):
        if parameters == [parameter]:
            return f"{name}({getattr(part, parameter)!r})"
    return f"{name}({part.epsilon!r})" if isinstance(part, bets.Power) else f"{name}({'...' if parameters else ''})"
