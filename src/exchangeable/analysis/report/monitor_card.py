"""The card of a monitor for notebooks: the verdict so far, key figures, a chart of the evidence, and the method."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, NamedTuple

from exchangeable import plots
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report import charts
from exchangeable.analysis.report.names import clip
from exchangeable.analysis.report.svg import to_svg
from exchangeable.evidence import EvidenceMonitor
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.tracker import Tracker

MAX_PART = 300  # characters of the description of a measure, bet or alarm
SIZE = (8.4, 3.1)  # of the chart, in inches


class MonitorText(NamedTuple):
    """The state of a monitor in sentences; ``str`` puts one part on each line."""

    monitor: Tracker
    headline: str
    details: list[str]

    def __str__(self) -> str:
        parts = [f"{name}: {value}" for name, value in method(self.monitor)]
        return "\n".join([self.headline, *self.details, self.monitor.guarantee, *parts])


def describe_monitor(monitor: Tracker) -> MonitorText:
    """Describe the state of a monitor.

    >>> describe_monitor(Monitor()).headline
    'NO ALARM so far: no examples yet.'
    """
    matters = monitor.claim
    if monitor.last is None:
        headline = "NO ALARM so far: no examples yet."
    elif monitor.alarm_at is None:
        headline = f"NO ALARM so far: no convincing evidence that {matters}."
    elif monitor.test < 3:  # the first one, or one restart
        headline = f"ALARM at example {monitor.alarm_at:,}: {matters}, unless this is a false alarm."
    else:
        several = f"{monitor.test - 1:,} ALARMS, the latest at example {monitor.alarm_at:,}"
        headline = f"{several}: {matters}, unless these are false alarms."
    return MonitorText(
        monitor, headline, [*_describe_alarm(monitor), *monitor.findings(), *_describe_bankruptcy(monitor)]
    )


def _describe_alarm(monitor: Tracker) -> list[str]:
    if monitor.alarm_at is None:
        return []
    where = f"after {_examples(monitor.changepoint)}" if monitor.changepoint else "at the very start"
    since = f"The test restarts after each alarm; {_examples(monitor.n - monitor.alarm_at)} came after the latest one."
    return [monitor.describe_change(where)] + [since] * (monitor.on_alarm == "restart")


def _describe_bankruptcy(monitor: Tracker) -> list[str]:
    lost = monitor.log_value == -math.inf
    return ["The capital is 0 and stays 0: this bet cannot gain evidence any more."] * lost


def _examples(count: int) -> str:
    return f"{count:,} example{'s' * (count != 1)}"


def view(text: MonitorText) -> dict[str, Any]:
    """Return what the template shows."""
    try:
        chart, missing = evidence_chart(text.monitor), ""
    except ImportError as error:
        chart, missing = "", str(error)
    return {
        "text": text,
        "monitor": text.monitor,
        "key_figures": key_figures(text.monitor),
        "legend": _legend(text.monitor),
        "evidence_chart": chart,
        "missing": missing,
        "method": method(text.monitor),
    }


def key_figures(monitor: Tracker) -> list[tuple[str, str]]:
    """Return the most important figures, each with its title."""
    since = " of this test" if monitor.test > 1 else ""
    figures = [
        ("examples seen", f"{monitor.n:,}"),
        ("evidence now", format_evidence((0.0 if monitor.last is None else monitor.last.log_value) / LN10)),
        (f"highest evidence{since}", format_evidence(monitor.log_max / LN10)),
    ]
    period = getattr(getattr(monitor, "alarm", monitor), "period", None)
    if monitor.capital_level is not None:
        figures.append(("alarm level", f"{monitor.capital_level:,.6g}"))
    elif isinstance(period, float):
        figures.append(("mean examples to a false alarm, at least", f"{period:,.6g}"))
    if monitor.on_alarm == "latch":
        p = monitor.anytime_p
        figures.append(
            ("anytime p-value", format_evidence(float(p.log10()) if isinstance(p, Decimal) else math.log10(p)))
        )
    return figures


def method(monitor: Tracker) -> list[tuple[str, str]]:
    """Return the parts of the monitor, by name."""
    after = "the test restarts" if monitor.on_alarm == "restart" else "the alarm stays on"
    if not isinstance(monitor, Monitor):
        return [*((name, clip(text, MAX_PART)) for name, text in monitor.parts()), ("after an alarm", after)]
    parts = {"measure": monitor.measure, "bet": monitor.martingale.bet, "alarm": monitor.alarm}
    facts = [(name, clip(_describe_part(part), MAX_PART)) for name, part in parts.items()]
    return [*facts, ("after an alarm", after), ("seed", f"{monitor.seed}")]


def _describe_part(part: object) -> str:
    """Return the repr of a part, or the name of its class if it has no repr of its own."""
    return type(part).__name__ if type(part).__repr__ is object.__repr__ else repr(part)


def _legend(monitor: Tracker) -> list[tuple[str, str]]:
    """Return the entries of the legend: the class of the symbol, and the text."""
    entries = [("line0", "capital")]
    if monitor.capital_level is not None:
        entries.append(("level", f"alarm level {monitor.capital_level:,.6g}"))
    if monitor.alarm_at is not None:
        entries.append(("dot", "alarm" if monitor.test < 3 else "alarms"))
        latest = "latest " * (monitor.test > 2)
        change = (
            "estimated change" if isinstance(monitor, EvidenceMonitor) else f"lowest capital before the {latest}alarm"
        )
        entries.append(("change", change))
    return entries


def evidence_chart(monitor: Tracker) -> str:
    """Draw ``monitor.plot()`` in the style of the report."""
    with charts.report_style():
        ax = monitor.plot(plots.axes(*SIZE))
        charts.simplify(ax, counts=True)
        ax.set(title="", ylabel="")
        for text in ax.texts:
            text.set_fontsize(12.0)
        for line in ax.get_lines():
            line.set_clip_on(line.get_marker() != "o")  # an alarm at the edge is a full dot
        ax.yaxis.set_major_formatter(lambda value, _: charts.format_power(value, ax.get_ylim()[1]))
        return to_svg(ax, f"Evidence after each of {monitor.n:,} examples, on a log scale")
