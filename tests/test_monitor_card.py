"""The card of a monitor in a notebook: well formed, escaped, small, and true to the monitor."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

import exchangeable
from chromium import Open, browser, tab
from exchangeable import (
    LateLabels,
    Monitor,
    Precomputed,
    RateMonitor,
    Risk,
    TableMonitor,
    alarms,
    bets,
    measures,
    snapshot,
)
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report.monitor_card import key_figures
from test_monitor_history import Doubling, changed
from test_page import CONTRAST
from test_report import CARD, NASTY, check

__all__ = ["browser", "tab"]  # fixtures
T = TypeVar("T", Monitor, RateMonitor)


def fed(monitor: T, p: Any) -> T:
    monitor.extend(p)
    return monitor


def rates(monitor: RateMonitor) -> RateMonitor:
    rng = np.random.default_rng(3)
    return fed(monitor, np.append(rng.random(1_000) < 0.02, rng.random(300) < 0.2))


def many() -> Monitor:
    monitor = Monitor(Precomputed(), Doubling(), alarms.Ville(0.1), on_alarm="restart")
    return fed(monitor, np.full(100_000, 0.3))


CASES: dict[str, tuple[Callable[[], Monitor | RateMonitor], str]] = {
    "empty": (Monitor, "NO ALARM so far: no examples yet."),
    "one example": (
        lambda: fed(Monitor(Precomputed(), bets.Idle()), [0.5]),
        "NO ALARM so far: no convincing evidence that the order of the examples matters.",
    ),
    "quiet": (
        lambda: fed(Monitor(measures.Value(), seed=1), np.random.default_rng(1).normal(size=3_000)),
        "NO ALARM so far:",
    ),
    "alarm": (lambda: changed(2_000), "ALARM at example 1,0"),
    "at once": (lambda: fed(Monitor(Precomputed(), bets.Power(0.01)), [1e-9]), "ALARM at example 1:"),
    "one restart": (lambda: changed(300, on_alarm="restart"), "ALARM at example 1"),
    "restarts": (many, "25,000 ALARMS, the latest at example 100,000:"),
    "cusum": (lambda: changed(400, alarm=alarms.Cusum(100)), "ALARM at example 2"),
    "roberts": (lambda: changed(400, alarm=alarms.ShiryaevRoberts(100), on_alarm="restart"), "ALARM"),
    "rate": (lambda: rates(RateMonitor(1_000)), "ALARM at example 1,0"),
    "rate with alpha": (lambda: rates(RateMonitor(alpha=0.05, on_alarm="restart")), "ALARM at example 1,0"),
    "ratings": (
        lambda: fed(RateMonitor(values=[1, 2, "<3>"]), [1, 2, 2, "<3>"] * 200),
        "NO ALARM so far: no convincing evidence that the rate has changed.",
    ),
    "lost": (lambda: fed(Monitor(Precomputed(), Doubling()), [0.3, 0.9, 0.3]), "NO ALARM so far:"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_card_of_every_kind_of_monitor(case: str) -> None:
    make, headline = CASES[case]
    monitor = make()
    text = monitor._repr_html_()
    page = check(text, CARD)
    assert headline in page.text
    assert monitor.guarantee in page.text
    assert ('class="verdict rejected"' in text) == (monitor.alarm_at is not None)
    assert (", without a guarantee)" in page.text) == (monitor.alarm_at is not None)
    assert ("alarm level" in page.text) == (monitor.capital_level is not None)
    assert ("mean examples to a false alarm, at least" in page.text) == (monitor.capital_level is None)
    assert ("anytime p-value" in page.text) == (monitor.on_alarm == "latch")
    assert ("The capital is 0" in page.text) == (case == "lost")
    assert text.count("<svg") == 1
    assert monitor._repr_html_() == text
    parts = [monitor] if isinstance(monitor, RateMonitor) else [monitor.measure, monitor.martingale.bet, monitor.alarm]
    for part in parts:
        assert type(part).__name__ in page.text


def test_the_card_of_a_rate_says_how_it_changed() -> None:
    page = check(rates(RateMonitor(1_000))._repr_html_(), CARD)
    assert "The rate changed from 2 % to 17.8 %, after 1,000 examples (estimates, without a guarantee)." in page.text


def rows(n: int, level: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {"size": rng.normal(level, 1.0, n), "y": rng.integers(0, 2, n)}


def table(**settings: Any) -> TableMonitor:
    return TableMonitor(rows(200), "y", seed=1, bins=16, **settings)


def take_late(monitor: Any, data: dict[str, Any]) -> None:
    """Send rows whose labels come later, in another order; half of them never come."""
    first = monitor.n
    for i, size in enumerate(data["size"].tolist(), first):
        monitor.update({"size": size}, id=i)
    for i in reversed(range(first, first + len(data["y"]) // 2)):
        monitor.label(i, data["y"][i - first])


def take_queue(queue: Any, values: Any) -> None:
    for i, value in enumerate(values, queue.monitor.n):
        queue.observe(i, value)
        queue.label(i, "a")


def take_values(monitor: Any, values: Any) -> None:
    monitor.extend(values)


Take = Callable[[Any, Any], None]
QUIET, CHANGED = np.linspace(-1.0, 1.0, 41)[np.random.default_rng(0).permutation(41)], np.full(60, 9.0)
EVENTS = [0, 0, 0, 0, 1] * 30, [1] * 90
EVERY: dict[str, tuple[Callable[[], Any], Take, tuple[Any, Any]]] = {  # some data, and then a change
    "Monitor": (lambda: Monitor(measures.Value(), seed=1), take_values, (QUIET, CHANGED)),
    "Monitor, restart": (
        lambda: Monitor(measures.Value(), alarm=alarms.ShiryaevRoberts(30), seed=1, on_alarm="restart"),
        take_values,
        (QUIET, CHANGED),
    ),
    "LateLabels": (lambda: LateLabels(Monitor(measures.Value(), seed=1)), take_queue, (QUIET, CHANGED)),
    "RateMonitor": (lambda: RateMonitor(100), take_values, EVENTS),
    "RateMonitor, restart": (lambda: RateMonitor(alpha=0.1, on_alarm="restart"), take_values, EVENTS),
    "Risk": (lambda: Risk(0.3), take_values, EVENTS),
    "Risk, period": (lambda: Risk(0.3, period=100, on_alarm="restart"), take_values, EVENTS),
    "Risk, against": (lambda: Risk.against([0, 0, 0, 1] * 100), take_values, EVENTS),
    "TableMonitor": (table, take_values, (rows(40), rows(90, 6.0))),
    "TableMonitor, period": (
        lambda: table(period=50, on_alarm="restart"),
        take_values,
        (rows(20), rows(90, 6.0)),
    ),
    "TableMonitor, late labels": (lambda: table(wait="forever"), take_late, (rows(40), rows(90, 6.0))),
    "TableMonitor, schema": (
        lambda: TableMonitor(schema={"size": "number"}, label=None, seed=1),
        take_values,
        ({"size": QUIET}, {"size": CHANGED}),
    ),
}


def test_every_public_monitor_is_in_the_next_test() -> None:
    public = {name for name in exchangeable.__all__ if hasattr(getattr(exchangeable, name), "guarantee")}
    assert {name.split(",")[0] for name in EVERY} == public - {"Path", "Result", "Shift"}  # what they return


@pytest.mark.parametrize("case", EVERY)
def test_every_monitor_shows_itself_at_all_times(case: str) -> None:
    """Empty, with data, after an alarm; and after each of these saved and loaded."""
    make, take, parts = EVERY[case]
    thing, shown = make(), set()
    for part in (None, *parts):
        if part is not None:
            take(thing, part)
        monitor = getattr(thing, "monitor", thing)
        card = monitor._repr_html_()
        page = check(card, CARD)
        assert card.count("<svg") == 1
        assert monitor.guarantee in page.text
        assert (monitor.alarm_at is None) == ("NO ALARM so far" in page.text)
        assert monitor.plot().get_title() != ""
        loaded = snapshot.decode(snapshot.encode(thing))
        assert (repr(loaded), getattr(loaded, "monitor", loaded)._repr_html_()) == (repr(thing), card)
        assert not re.search(" at 0x", repr(thing))
        shown.add(page.text)
    assert len(shown) == 3
    assert monitor.alarm_at is not None


def test_the_card_of_a_risk_says_how_it_rose() -> None:
    monitor = Risk(0.1)
    monitor.extend([0] * 300 + [0, 1] * 40)
    page = check(monitor._repr_html_(), CARD)
    assert "ALARM at example 328: the risk has exceeded the limit, unless this is a false alarm." in page.text
    assert (
        "The risk rose after 301 examples. The mean loss was 0.519 from there to the alarm, and 0 before" in page.text
    )
    assert "The mean of 380 losses is 0.105; their mean risk lies between" in page.text


def test_the_figures_are_those_of_the_monitor() -> None:
    monitor = changed(2_000)
    assert monitor.last is not None
    assert dict(key_figures(monitor)) == {
        "examples seen": "2,000",
        "evidence now": format_evidence(monitor.last.log_value / math.log(10.0)),
        "highest evidence": format_evidence(monitor.log_max / math.log(10.0)),
        "alarm level": "100",
        "anytime p-value": format_evidence(-monitor.log_max / math.log(10.0)),
    }
    page = check(monitor._repr_html_(), CARD)
    assert f"The evidence was lowest after {monitor.changepoint:,} examples" in page.text
    assert f"ALARM at example {monitor.alarm_at:,}" in page.text


def test_a_loaded_monitor_has_the_same_card() -> None:
    monitor = changed(1_000, on_alarm="restart")
    assert snapshot.decode(snapshot.encode(monitor))._repr_html_() == monitor._repr_html_()


class Odd(measures.Value):
    """A measure with a name that nobody should have."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __repr__(self) -> str:
        return self.name


class OddBet(Doubling):
    """A bet with such a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class OddAlarm:
    """An alarm of a user, with such a guarantee."""

    def __init__(self, guarantee: str) -> None:
        self.guarantee, self.period = guarantee, guarantee

    def update(self, log_value: float) -> bool:
        return log_value > 3.0


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("jinja", [True, False])
def test_hostile_names_are_escaped(name: str, jinja: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not jinja:
        monkeypatch.setitem(sys.modules, "jinja2", None)
        monkeypatch.delitem(sys.modules, "exchangeable.analysis.report.environment", raising=False)
    monitor = Monitor(Odd(name), OddBet(name), OddAlarm(name), seed=0)
    text = monitor._repr_html_()
    page = check(text, CARD)
    assert "OddAlarm" in page.text
    assert ("<pre>" in text) == (not jinja)
    assert "NO ALARM so far: no examples yet." in page.text


def test_without_matplotlib_a_card_has_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = changed(400)._repr_html_()
    page = check(text, CARD)
    assert "<svg" not in text
    assert "ALARM at example 2" in page.text
    assert "exchangeable[plots]" in page.text


def test_without_jinja_a_card_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "exchangeable.analysis.report.environment", raising=False)
    monitor = changed(400)
    page = check(monitor._repr_html_(), CARD)
    assert page.text.startswith("ALARM at example 2")
    assert monitor.guarantee in page.text
    assert "exchangeable[report]" in page.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_card_is_readable_and_fits_a_telephone(tab: Open, scheme: str) -> None:
    page = tab(color_scheme=scheme, viewport={"width": 380, "height": 700}).page
    cards = [changed(600)._repr_html_(), many()._repr_html_()]
    page.set_content(f'<!DOCTYPE html><body style="margin: 0">{"".join(cards)}</body>')
    texts = page.evaluate(CONTRAST)
    assert len(texts) > 30
    assert [one for one in texts if one["ratio"] < 4.5] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
