"""The HTML report and the cards for notebooks: whole, escaped, small, the same each time, and true to the result."""

from __future__ import annotations

import datetime as dt
import math
import re
import shlex
import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

import exchangeable as ex
from chromium import HOSTILE, Open, browser, tab
from conftest import Run
from exchangeable import alarms, bets, measures, plots
from exchangeable import protocols as pr
from exchangeable.analysis import column_plots, figures, report
from exchangeable.analysis.advice import advise, describe_departure
from exchangeable.analysis.change import Change
from exchangeable.analysis.columns import ColumnTest, SharedTests
from exchangeable.analysis.effects import Effect
from exchangeable.analysis.explain import Explanation, ExtremeRow, FeatureEvidence
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report import charts, svg, view
from exchangeable.analysis.report.method import reproduction
from exchangeable.analysis.result import Result
from exchangeable.analysis.sample import Sample
from exchangeable.analysis.settings import Parts, Settings
from exchangeable.analysis.text import describe_verdict
from exchangeable.data.schema import Preparation
from exchangeable.data.table import Table, TableColumn
from exchangeable.shift import Evidence, Shift
from test_page import CONTRAST

__all__ = ["browser", "tab"]  # fixtures
LARGEST, CARD = 300_000, 60_000  # bytes
VOID = {"meta", "br", "hr", "img", "link", "input"}
LN10 = math.log(10.0)
NASTY = [
    HOSTILE,
    "\"quotes' & <b>bold</b> &amp; --> ]]>",
    "right\u202eto\u202cleft\u2066 \u200f\ufeff",
    "control\x00\x07\x1b[31m\n\r\t\x85\u2028Means: all is well",
    "lone \udc80 surrogate",
    "x" * 10_000,
    "אבגד",
    "$\\frac{a}{b}$ \\o/ {style} %s {0}",
]


class Page(HTMLParser):
    """A page whose own tags must be well formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.titles: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"{tag} closes itself outside a picture"
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)
        if self.open and self.open[-1] == "h2":
            self.titles.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def check(text: str, largest: int = LARGEST) -> Page:
    """What holds of every page and card."""
    assert len(text.encode()) < largest
    page = Page(text)
    assert {tag for tag, _ in page.seen} & {"script", "img", "link", "iframe", "object", "a", "base", "form"} == set()
    for tag, attributes in page.seen:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    assert "@import" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    ids = [name for picture in pictures for name in re.findall(r' id="([^"]*)"', picture)]
    assert len(ids) == len(set(ids))
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"]
        assert not [node for node in root.iter() if node.tag in {"style", "script", "metadata", "image"}]
        referred = re.findall(r"(?:url\(|href=\")#([\w-]+)", picture)
        assert referred
        assert set(referred) <= set(re.findall(r' id="([^"]*)"', picture))
        assert not re.search(r"(?<!,)#[0-9a-f]{3,8}\b(?![\w-])", picture), "a colour that does not follow the page"
        assert not re.search(r"nan|inf\b|Infinity", picture)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
    return page


# ------------------------------------------------------------------------------------------------------------ the cases


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def moved() -> Any:
    X = rng().normal(size=(400, 3))
    X[240:, 1] += 1.5
    return X


@cache
def rejected() -> Result:
    """Classes, two columns of numbers and one of categories; something changes."""
    draw = rng()
    y = draw.choice(["cat", "dog"], 400, p=[0.6, 0.4])
    size = draw.normal(size=400) + 2.0 * (y == "dog") + 2.0 * (np.arange(400) > 250)
    coat = np.where(draw.random(400) < 0.5 + 0.3 * (np.arange(400) > 250), "grey", "red")
    data = {"size": size, "coat": coat.tolist(), "age": draw.normal(size=400), "kind": y.tolist()}
    return ex.test(data, "kind")


@cache
def quiet() -> Result:
    return ex.test(rng().normal(size=(300, 4)))


@cache
def column() -> Result:
    return ex.test(moved()[:, 1])


@cache
def real() -> Result:
    X = moved()
    return ex.test(X, X[:, 0] + X[:, 1] * (np.arange(400) > 200), scale="deviation")


@cache
def split() -> Result:
    X = moved()
    return ex.compare(X[:240], X[240:], (["a", "b"] * 120, ["a", "b"] * 80))


@cache
def wide() -> Result:
    X = rng().normal(size=(150, 30))
    X[70:, 4] += 3.0
    return ex.test(X, bet=bets.SimpleMixture())


def result_of(path: pr.Path, monitor: ex.Monitor, bet: pr.Bet | None = None, name: str = "the data") -> Result:
    """Return a result with this path."""
    x = rng().normal(size=len(path.n))
    bet = bet or bets.SimpleMixture()
    return Result(Table([TableColumn("x0", x)], name=name), Sample(x), path, monitor, Parts(measures.Value(), bet, bet))


def a_path(log_value: Any, alarm: pr.Alarm | None = None) -> pr.Path:
    values = np.asarray(log_value, np.float64)
    sounds = (alarms.Ville() if alarm is None else alarm).extend(values) if np.isfinite(values).all() else values > 4.7  # type: ignore[attr-defined]
    n = np.arange(1, len(values) + 1)
    return pr.Path(
        n, 1.0 - rng().random(len(values)), values, np.maximum.accumulate(sounds), 0 * n, 0 * n + 1, "A promise."
    )


@cache
def bankrupt() -> Result:
    values = np.concatenate([np.linspace(0.0, 5.0, 60), np.full(60, -math.inf)])
    return result_of(a_path(values), ex.Monitor(measures.Value(), bets.Idle()))


@cache
def enormous() -> Result:
    values = np.linspace(0.0, 1300.0 * LN10, 200)
    return result_of(a_path(values), ex.Monitor(measures.Value(), bets.Idle()))


@cache
def cusum() -> Result:
    monitor = ex.Monitor(measures.Value(), bets.SimpleMixture(), alarms.Cusum(1000))
    X = moved()[:, 1]
    return result_of(monitor.extend(X), monitor)


@cache
def restarts() -> Result:
    X = np.concatenate([rng().normal(3.0 * (i % 2), 1.0, 120) for i in range(4)])
    parts = measures.Value(), bets.SimpleMixture(), alarms.Ville(0.05)
    monitor = ex.Monitor(*parts, on_alarm="restart")
    return result_of(monitor.extend(X), monitor)


@pytest.mark.parametrize("name", ["p_value", "e_value"])
def test_with_restarts_there_is_no_single_amount(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is not defined for a test with restarts"):
        getattr(restarts(), name)
    assert "p-value of this test" not in written("restarts")


@cache
def dated() -> Result:
    """A table with times, a sorted column and missing values."""
    X = moved()
    time = np.datetime64("2024-01-01T06:00") + np.arange(400) * np.timedelta64(6, "h")
    hole = np.where(rng().random(400) < 0.1, np.nan, X[:, 2])
    return ex.test({"when": time, "a": X[:, 0], "b": X[:, 1], "hole": hole, "year": np.arange(400) // 9})


def restarted_last() -> Result:
    """The very last example raises the alarm, so that the bet has learnt nothing since."""
    found = restarts()
    at = found.verdict.alarms[0]
    monitor = ex.Monitor(measures.Value(), bets.SimpleMixture(), alarms.Ville(0.05), on_alarm="restart")
    return result_of(
        monitor.extend(np.concatenate([rng().normal(0.0, 1.0, 120), rng().normal(3.0, 1.0, 360)])[:at]), monitor
    )


CASES: dict[str, Callable[[], Result]] = {
    "rejected": rejected,
    "quiet": quiet,
    "column": column,
    "real": real,
    "split": split,
    "wide": wide,
    "two": lambda: ex.test([[1.0, 2.0], [3.0, 4.0]]),
    "bankrupt": bankrupt,
    "enormous": enormous,
    "cusum": cusum,
    "restarts": restarts,
    "restarted last": restarted_last,
    "constant": lambda: ex.test([[1.0, 2.0]] * 50, ["u", "v"] * 25),
    "dated": dated,
    "long": lambda: ex.test(moved(), max_rows=100),
    "long split": lambda: ex.compare(moved()[:240], moved()[240:], max_rows=100),
}


@cache
def written(case: str) -> str:
    found = CASES[case]()
    return report.document(found, found.explain())


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_result_makes_a_page_and_a_card(case: str) -> None:
    found = CASES[case]()
    page = check(written(case))
    assert found.rejected == ("rejected" in _classes(page))
    check(report.result_card(found), CARD)
    check(report.explanation_card(found.explain()), CARD)


def _classes(page: Page) -> set[str]:
    return {name for _, attributes in page.seen for name in (attributes.get("class") or "").split()}


def test_a_page_has_its_head() -> None:
    page = check(written("rejected"))
    assert written("rejected").startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in page.seen
    metas = [attributes for tag, attributes in page.seen if tag == "meta"]
    assert {"charset": "utf-8"} in metas
    assert {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    } in metas
    assert any(one.get("name") == "viewport" for one in metas)
    assert sum(tag == "h1" for tag, _ in page.seen) == 1
    assert sum(tag == "title" for tag, _ in page.seen) == 1


def test_the_parts_come_in_order() -> None:
    assert check(written("rejected")).titles == [
        "The data",
        "Evidence over time",
        "Columns by evidence",
        "Strangest and most typical rows",
        "Label shift or concept shift?",
        "P-values of column size",
        "Method",
        "How columns were read",
        "Guarantee and interpretation",
        "How to cite",
    ]
    assert "Label shift or concept shift?" not in check(written("column")).titles
    assert "Notes" in check(report.document(rising(), rising().explain())).titles


def rising() -> Result:
    return ex.test(np.column_stack([np.arange(60.0), rng().normal(size=60)]))


# ------------------------------------------------------------------------------------------------------- numbers, words


def superscripts(text: str) -> str:
    """Amounts as the page shows them."""
    return re.sub(r"10\^-?", lambda power: power[0].replace("^", "").replace("-", "−"), text)


@pytest.mark.parametrize("case", ["rejected", "quiet", "column", "real", "split", "cusum", "restarts", "enormous"])
def test_the_words_of_the_verdict_are_all_there(case: str) -> None:
    found, text = CASES[case](), check(written(case)).text
    told = describe_verdict(found.verdict, found.tests, found.sets, found.timeline, finding=found.finding)
    for line in [*str(told).split("\n"), told.means[1:], told.does_not_mean[1:]]:
        line = re.sub(r"^(Means|Does not mean|Guarantee|Kind|Size|What to do): .", "", line).replace(" -> ", " → ")
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", line.removesuffix(".")):
            assert superscripts(sentence) in text


@pytest.mark.parametrize("case", ["rejected", "quiet", "column", "split", "enormous"])
def test_the_figures_are_those_of_the_result(case: str) -> None:
    found, text = CASES[case](), written(case)
    key = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    key = {name: re.sub(r"<sup>(.*?)</sup>", r"^\1", value).replace("−", "-") for name, value in key.items()}
    assert found.verdict.threshold is not None
    assert float(key["alarm level"].replace(",", "")) == pytest.approx(found.verdict.threshold)
    assert key["significance level"] == "1 %"
    assert key["features"] == f"{found.n_features:,}"
    peak = max(float(line.log_value.max()) / LN10 + math.log10(line.weight) for line in found.tests)
    assert key["peak evidence, weighted" if found.column_tests else "peak evidence"] == format_evidence(max(0.0, peak))
    assert key["p-value of this test"] == format_evidence(-max(0.0, peak))
    if found.split is None:
        assert key["rows"] == f"{found.n:,}"
    else:
        assert (key["rows, reference"], key["rows, current"]) == ("240", "160")
    if not found.column_tests:
        assert key["peak evidence"] == format_evidence(found.log10_max)
        assert key["final evidence"] == format_evidence(found.log10_martingale)


def test_a_change_is_described_with_its_interval() -> None:
    found = column()
    change = found.explain().change
    assert change is not None
    assert change.low is not None
    text = check(written("column")).text
    assert f"after one of rows {change.low:,} to {change.high:,}" in text
    assert f"alarm at row {found.rejected_at:,}" in text
    assert f"estimated change, after {found.changepoint:,} rows" in text
    assert f"before the change: rows 1 to {found.changepoint:,}" in text


def test_features_are_listed_by_evidence() -> None:
    found = rejected().explain()
    rows = re.findall(r"<tr[^>]*><td class=\"num muted\">(\d+)</td>(.*?)</tr>", written("rejected"))
    shown_rows = sorted([*found.features, *found.views], key=lambda feature: -feature.log10_evidence)
    assert [int(i) for i, _ in rows] == [*range(1, len(shown_rows) + 1)]
    assert any(feature.flagged for feature in found.features)
    assert not all(feature.flagged for feature in found.features)
    for feature, (_, row) in zip(shown_rows, rows, strict=True):
        shown = re.sub(r"<sup>(.*?)</sup>", r"^\1", row)
        assert f"<bdi>{feature.name}</bdi>" in row
        assert f'<td class="num">{format_evidence(feature.log10_evidence)}</td>' in shown
        assert (f"at row {feature.rejected_at}" in row) == feature.flagged
        assert feature.difference.replace("->", "→") in re.sub(r"</?bdi>", "", row)
    widths = [float(width) for width in re.findall(r'<b style="width:([\d.]+)%"', written("rejected"))]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == 100.0


def test_at_most_fifty_features_are_listed() -> None:
    many = [FeatureEvidence(f"c{i}", "numbers", 1.0, False, None, None) for i in range(1000)]
    text = report.explanation_card(Explanation(None, None, many, [], None, [], [], 0.01, 10))
    page = check(text, CARD)
    assert "and 950 more." in page.text
    assert text.count("<tr>") == 50 + 2  # two heads


def test_extreme_examples_are_listed_with_their_labels() -> None:
    found = rejected()
    smallest = found.explain().smallest_p[0]
    assert smallest.p == found.path.p.min()
    y: Any = found.table.y
    row = f'<td class="num">{smallest.n:,}</td><td class="num">{smallest.p:.4g}</td><td><bdi>{y[smallest.n - 1]}</bdi>'
    assert row in written("rejected")
    two = split()
    first = two.explain().smallest_p[0]
    assert two.split is not None
    assert f'<td class="num">{int(two.split.rows[first.n - 241])}</td>' in written("split")


def test_extreme_rows_are_listed_with_their_values() -> None:
    found, explanation = dated(), dated().explain()
    table = written("dated").split("Strangest and most typical rows</h2>")[1].split("</table>")[0]
    names = re.findall(r'<th scope="col" class="value"><bdi>(.*?)</bdi>', table)
    assert names == [one.name for one in explanation.features if one.name != "hole is missing"]
    rows = [re.findall(r'<td class="value"><bdi>(.*?)</bdi>', row) for row in table.split("<tr>")[2:]]
    chosen = [*explanation.smallest_p, *explanation.largest_p]
    columns = {column.name: column for column in found.table.columns}
    absent = columns["hole is missing"].values == 1.0
    expected = [
        [
            "missing" if name == "hole" and absent[row.n - 1] else f"{columns[name].values[row.n - 1]:.6g}"
            for name in names
        ]
        for row in chosen
    ]
    assert rows == expected
    assert any("missing" in row for row in rows)
    first = rejected().explain().smallest_p[0].n
    coats = next(column for column in rejected().table.columns if column.name == "coat")
    assert coats.categories is not None
    assert f'<td class="value"><bdi>{coats.categories[int(coats.values[first - 1])]}</bdi>' in written("rejected")


def summary_of(case: str) -> dict[str, str]:
    start = written(case).split('<dl class="summary">')[1].split("</dl>")[0]
    return {title: re.sub("<.*?>", "", text) for title, text in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", start)}


def test_the_first_screen_says_what_happened_where_how_large_and_what_to_do() -> None:
    found = rejected()
    said = summary_of("rejected")
    assert list(said) == ["What happened", "Where", "How large", "What to do"]
    assert found.departure is not None
    happened = describe_departure(found.departure, found.explain().change, found.timeline)
    assert said["What happened"].lower() == happened.lower()
    assert said["What to do"].lower().startswith(advise(found.departure, found.timeline).lower())
    assert said["Where"] == ", ".join(found.explain().changed)
    for feature in found.explain().features:
        assert (feature.difference.replace("->", "→") in said["How large"]) or not feature.flagged
    page = written("rejected")
    assert page.index('<dl class="summary">') < page.index("<svg") < page.index("Evidence over time")


def test_the_first_screen_of_two_sets_and_of_no_rejection() -> None:
    assert list(summary_of("split")) == ["Where", "How large", "What to do"]
    assert "should not be pooled" in summary_of("split")["What to do"]
    assert list(summary_of("quiet")) == ["What it means", "What it does not mean", "What to do"]
    quiet_page = written("quiet")
    picture = quiet_page.split("<h2>The data</h2>")[1].split("</section>")[0]
    assert picture.count("<svg") == 1
    assert f"<h3><bdi>{quiet().explain().features[0].name}</bdi></h3>" in picture
    assert "No column is flagged." in picture
    assert "estimated change" not in picture


def test_full_rows_without_a_column_are_named() -> None:
    draw = rng()
    X = draw.normal(size=(400, 2))
    X[200:, 1] = X[200:, 0] + 0.1 * X[200:, 1]
    found = ex.test(X, measure=measures.NearestDistance())
    assert found.rejected
    said = dict(view.summary(found))
    assert said["Where"] == "in full rows, but in no single column"


def test_a_point_is_drawn_for_each_row_and_the_marks_stand_where_they_belong() -> None:
    found = column()
    picture = written("column").split("<h2>The data</h2>")[1].split("</section>")[0]
    dots = next(path for path in re.findall(r'd="([^"]*)"', picture) if path.count("h0") > 1)
    places = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", dots)]
    assert len(places) == found.n
    assert "<use" not in picture.split("stroke-linecap: round")[1][:100]
    line = next(path for path in re.findall(r'<path d="(M [\d. ]+ V [\d.]+)"[^>]*dasharray', picture))
    at = float(line.split()[1])
    before = figures.mark(found).changes[0]
    assert places[before - 1][0] - 0.1 <= at <= places[before][0] + 0.1
    values = found.table.columns[0].values
    assert int(np.argmin([y for _, y in places])) == int(values.argmax())


def test_title_author_and_date_are_in_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "today", lambda: dt.date(2024, 2, 29))
    quiet().save_html(tmp_path / "a.html", title=f"Plant 3 {HOSTILE}", author="אבגד & sons")
    text = (tmp_path / "a.html").read_text("utf-8")
    page = check(text)
    head = text.split('<header class="top">')[1].split("</header>")[0]
    assert "Plant 3 &lt;img" in head
    assert "אבגד &amp; sons, 29 February 2024" in head
    assert "the data: 300 rows, 4 columns" in head
    assert page.text.startswith("Plant 3 <img")  # the title of the window
    quiet().save_html(tmp_path / "b.html")
    plain = (tmp_path / "b.html").read_text("utf-8")
    assert "Test of exchangeability" in plain.split("</header>")[0]
    wrong: Any
    for name, wrong in (("title", ""), ("title", "x" * 201), ("author", 7), ("author", " \n")):
        with pytest.raises(ValueError, match=f"{name} must be a text of 1 to 200 characters, got "):
            quiet().save_html(tmp_path / "c.html", **{name: wrong})
    assert not (tmp_path / "c.html").exists()


def test_a_lost_capital_is_described_and_drawn() -> None:
    text = check(written("bankrupt")).text
    assert "The capital was lost at row 61 and is 0 from there on." in text
    assert "<dt>final evidence</dt><dd>0</dd>" in written("bankrupt")


def test_an_alarm_without_a_level_draws_none() -> None:
    text = check(written("cusum")).text
    assert "no level is drawn" in text
    assert "alarm level" not in text
    assert "alpha" not in check(report.result_card(cusum()), CARD).text
    assert "After each alarm the test starts again with a capital of 1." in check(written("restarts")).text


def test_the_reproduction_gives_the_same_result() -> None:
    X = moved()
    given = {
        "data": X,
        "exchangeable": ex,
        "bets": bets,
        "measures": measures,
        "reference": X[:240],
        "current": X[240:],
    }
    found = [
        ex.test(X, measure=measures.NearestDistance(3), bet=bets.Power(0.9), alpha=0.02, seed=5, scale="deviation"),
        ex.test(X),
        ex.compare(X[:240], X[240:], bet=bets.SimpleMixture(), columns="none"),
    ]
    for one in found:
        called = reproduction(one)
        assert called is not None
        assert called in report.document(one, one.explain()).replace("&#39;", "'")
        again = eval(called, given)  # our own text
        assert again.verdict == one.verdict
        np.testing.assert_array_equal(again.path.log_value, one.path.log_value)
    unknown = reproduction(ex.test(X, bet=bets.Kernel(4)))
    assert unknown is not None
    assert "bets.Kernel(...)" in unknown


def test_the_reproduction_has_what_is_not_the_default(tmp_path: Path) -> None:
    place = tmp_path / "my data.csv"
    np.savetxt(place, moved(), delimiter=",", header="a,b,c", comments="")
    asked: list[tuple[dict[str, Any], str | None]] = [
        ({}, ""),
        ({"drop": "b", "columns": "none", "max_rows": 90}, " --drop b --columns none --max-rows 90"),
        ({"features": ["a", "b"], "order": "c", "missing": "drop"}, " --order c --features a,b --missing drop"),
        ({"measure": measures.NearestDistance(3), "bet": bets.Power(0.5)},
         " --measure nearest-distance --neighbours 3 --bet power --epsilon 0.5"),
        ({"alarm": alarms.Cusum(500), "on_alarm": "restart"}, " --alarm cusum --period 500.0 --on-alarm restart"),
        ({"label": ["u", "v"] * 200}, None),
    ]  # fmt: skip
    for options, expected in asked:
        command = None if expected is None else f"exchangeable test 'my data.csv'{expected}"
        assert reproduction(ex.test(place, **options)) == command
    called = reproduction(ex.test(moved(), ["u", "v"] * 200, alarm=alarms.Ville(0.05), keep=["x1"]))
    assert called == "exchangeable.test(data, label=label, keep=['x1'], alarm=alarms.Ville(0.05))"


def test_times_and_columns_of_a_table_are_shown() -> None:
    found, page = dated(), check(written("dated"))
    assert found.rejected_at is not None
    when = found.timeline.format(found.rejected_at)
    assert f"alarm at row {found.rejected_at:,} ({when})" in page.text
    assert "when, 1 January 2024, 06:00 to 10 April 2024, 00:00" in page.text
    read = written("dated").split("How columns were read")[1].split("</table>")[0]
    assert re.findall(r"<bdi>(.*?)</bdi></th><td>(.*?)</td>", read) == [
        ("when", "time"),
        ("a", "numbers"),
        ("b", "numbers"),
        ("hole", "numbers"),
        ("year", "set aside: sorted"),
        ("hole is missing", "added: whether a value is missing"),
    ]
    chart = charts.evidence_chart(found)
    assert re.findall(r">(Feb|Mar|Apr)<", chart) == ["Feb", "Mar", "Apr"]
    assert "How columns were read" not in check(written("quiet")).titles


def test_differences_of_two_tables_are_shown_first() -> None:
    X = dict(zip("abc", moved().T, strict=True))
    late = {name: column[240:] for name, column in X.items() if name != "c"}
    found = ex.compare({name: column[:240] for name, column in X.items()}, late)
    for text in (report.document(found, found.explain()), report.result_card(found)):
        shown = Page(text).text
        assert shown.index("Columns: current lacks 'c', which reference has.") < shown.index("Strongest of")


# ------------------------------------------------------------------------------------------------------- hostile, huge


def hostile() -> tuple[Result, Explanation]:
    """A hundred thousand rows, a thousand features, and names that nobody should have."""
    n = 100_000
    names = [f"{NASTY[i % len(NASTY)]}{i}" for i in range(1000)]
    log_value = np.cumsum(rng().normal(0.001, 1.0, n))
    x = np.arange(float(n))
    table = Table(
        [TableColumn(name, x) for name in names],
        [f"{NASTY[i % len(NASTY)]}" for i in range(n)],
        NASTY[0] + NASTY[2] + NASTY[5],
        NASTY[1],
        times=np.datetime64("2024-01-01") + np.arange(n).astype("timedelta64[m]"),
        time_name=NASTY[2],
        rows=np.arange(n) + 7,
        notes=tuple(f"column {name} is odd" for name in names[:40]),
        treatments={name: f"set aside: {name}" for name in names},
    )
    tests = [ColumnTest(name, "numbers", 0.0005, log_value[::-1] * (0.1 + i % 7)) for i, name in enumerate(names[:50])]
    monitor = ex.Monitor(measures.Value(), bets.SimpleMixture())
    parts = Parts(measures.Value(), bets.SimpleMixture(), bets.SimpleMixture())
    asked: dict[str, Any] = {"how": Preparation(NASTY[1], drop=NASTY), "settings": Settings()}
    asked |= {"shared": SharedTests(0.5, tests), "differences": [f"current lacks {name}" for name in names]}
    found = Result(table, Sample(x), a_path(log_value), monitor, parts, **asked)
    features = [
        FeatureEvidence(
            name, "categories", 900.0 - i / 2, True, i + 1, i, Effect(0.01, 0.02, 0.1, category=name, new=(name,))
        )
        for i, name in enumerate(names)
    ]
    shift = Shift(Evidence(found.path.p, log_value, 5), Evidence(found.path.p, log_value[::-1], None), 0.01, 0)
    odd = [ExtremeRow(i + 1, 1e-9) for i in range(5)]
    return found, Explanation(
        Change(50, 40, 60_000, 0.95), None, features, [], shift, odd, odd, 0.01, n, timeline=found.timeline
    )


def test_hostile_names_and_huge_tables_are_escaped_and_cut() -> None:
    found, explanation = hostile()
    text = report.document(found, explanation)
    page = check(text)
    shown = page.text
    assert '<img src=x onerror="window.hacked=1"><script' in shown  # as text
    assert "right\\u202eto\\u202cleft\\u2066" in shown
    assert "control\\x00\\x07\\x1b[31m\\n\\r\\t\\x85\\u2028Means: all is well" in shown
    assert "lone \\udc80 surrogate" in shown
    assert re.search("<bdi>אבגד\\d+</bdi> <span", text)  # its direction does not touch what is around it
    assert re.search("share of <bdi>אבגד\\d+</bdi> 1 % → 2 % \\(very small\\); new: <bdi>אבגד\\d+</bdi>", text)
    assert "x" * 301 not in text
    assert page.titles.count("Notes") == 1
    assert f"And {len(found.notes) - view.MAX_NOTES} more." in shown
    assert len(found.notes) >= 30
    assert re.findall(r"<dt>Means</dt>", text) == ["<dt>Means</dt>"]
    assert reproduction(found) is None
    check(report.result_card(found), CARD)
    check(report.explanation_card(explanation), 3 * CARD)


def test_hostile_classes_come_from_a_table(tmp_path: Path) -> None:
    names = [name for name in NASTY if "\udc80" not in name]
    X = {name: rng().normal(size=60) for name in names}
    X[names[2]] += 5.0 * (np.arange(60) > 20)
    found = ex.test(
        {**X, "coat": [names[i % 5] for i in range(60)], HOSTILE * 2: [names[i % 2] for i in range(60)]}, HOSTILE * 2
    )
    found.save_html(tmp_path / "report.html")
    check((tmp_path / "report.html").read_text("utf-8"))
    check(found._repr_html_(), CARD)
    check(found.explain()._repr_html_(), CARD)


def test_many_long_columns_with_times_and_missing_values_stay_small() -> None:
    draw, n = rng(), column_plots.MAX_POINTS
    X = draw.normal(size=(n, 60)) + 2.0 * (np.arange(n) > n // 2)[:, np.newaxis]
    X[draw.random(X.shape) < 0.1] = np.nan
    data: dict[str, Any] = {f"{'x' * 80}{i}": X[:, i] for i in range(60)}
    data["when"] = np.datetime64("2024-01-01") + np.arange(n)
    found = ex.test(data)
    page = check(report.document(found, found.explain()))
    assert len(found.explain().changed) > 6
    assert "missing: " in page.text
    check(found._repr_html_(), CARD)


def test_thousands_of_alarms_stay_small() -> None:
    n = 60_000
    values = np.tile(np.linspace(0.0, 5.0, 10), n // 10)
    path = a_path(values)._replace(alarm=values == 5.0, lowest=np.arange(n) // 10 * 10)
    found = result_of(path, ex.Monitor(measures.Value(), bets.SimpleMixture(), on_alarm="restart"))
    assert len(found.verdict.alarms) == 6000
    text = check(report.document(found, quiet().explain())).text
    assert "6,000 alarms, the first at row 10" in text
    assert f"lowest evidence before each alarm, the first {charts.MAX_CHANGEPOINTS}" in text
    check(report.result_card(found), CARD)


@pytest.mark.parametrize("seed", range(10))
def test_thinning_keeps_every_extreme(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n, columns = int(draw.integers(2, 5000)), int(draw.integers(1, 300))
    x = np.sort(draw.integers(0, 4 * n, n)).astype(np.float64)
    x[-1] += 1.0
    y = np.cumsum(draw.normal(size=n))
    y[draw.random(n) < 0.01] = -math.inf
    kept_x, kept_y = plots.thin(x, y, columns)
    assert (np.diff(kept_x) >= 0).all()
    assert set(zip(kept_x, kept_y, strict=True)) <= set(zip(x, y, strict=True))
    assert (kept_x[0], kept_y[0], kept_x[-1], kept_y[-1]) == (x[0], y[0], x[-1], y[-1])
    assert len(kept_y) <= max(2 * columns + 2, 2)
    edges = x[0] + (x[-1] - x[0]) * np.arange(columns + 1) / columns
    for i, (low, high) in enumerate(pairwise(edges.tolist())):
        last = i == columns - 1
        inside, kept = ((v >= low) & ((v < high) | last) for v in (x, kept_x))
        if inside.any() and not np.isin(x[inside], edges).any():  # a rounding may move what lies on an edge
            assert (y[inside].min(), y[inside].max()) == (kept_y[kept].min(), kept_y[kept].max())


def test_a_spike_of_one_example_in_a_long_path_is_drawn() -> None:
    values = np.zeros(90_000)
    values[54_321] = 300.0 * LN10
    found = result_of(a_path(values), ex.Monitor(measures.Value(), bets.Idle()))
    drawn = charts.evidence_chart(found)
    line = next(path for path in re.findall(r'd="([^"]*)"', drawn) if len(path) > 5000)
    heights = [float(number) for number in re.findall(r"(?:[ML] [\d.]+|V) ([\d.]+)", line)]
    assert 500 < len(re.findall("[MLHV]", line)) < 3000
    assert max(heights) - min(heights) > 140.0


# ------------------------------------------------------------------------------------------------- the same, and calmly


def test_a_result_gives_the_same_bytes_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "today", lambda: dt.date(2024, 2, 29))
    found = wide()
    found.save_html(tmp_path / "a.html")
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30.0, "svg.fonttype": "path", "text.usetex": True}):
        found.save_html(tmp_path / "b.HTM")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.HTM").read_bytes()
    assert report.result_card(found) == report.result_card(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.HTM"]


def test_a_report_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(mpl.rcParams)
    report.result_card(quiet())
    assert dict(mpl.rcParams) == before


def test_other_names_are_refused(tmp_path: Path) -> None:
    for name in ("report.pdf", "report", ".html", "report.html.gz"):
        with pytest.raises(ValueError, match=r"path must end in \.html or \.htm, got '"):
            quiet().save_html(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        quiet().save_html(tmp_path / "none" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "report.html"
    place.write_text("the old one")

    def fail(*_: object) -> str:
        raise RuntimeError("no")

    monkeypatch.setattr(report, "document", fail)
    with pytest.raises(RuntimeError):
        quiet().save_html(str(place))
    assert place.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [place]


def test_without_matplotlib_a_card_has_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = report.result_card(rejected())
    page = check(text, CARD)
    assert "<svg" not in text
    assert "exchangeable[plots]" in page.text
    assert "REJECTED (1 %)" in page.text
    check(report.explanation_card(rejected().explain()), CARD)
    with pytest.raises(ImportError, match=r"exchangeable\[plots\]"):
        rejected().save_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_without_jinja_a_card_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "exchangeable.analysis.report.environment", raising=False)
    found, explanation = hostile()
    for card in (found._repr_html_(), explanation._repr_html_()):
        page = check(card, CARD)
        assert "<pre>" in card
        assert "exchangeable[report]" in page.text
    assert "REJECTED (1 %)" in check(rejected()._repr_html_(), CARD).text
    with pytest.raises(ImportError, match=r"exchangeable\[report\]"):
        rejected().save_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_the_style_of_a_card_does_not_leak() -> None:
    for text in (report.result_card(quiet()), report.explanation_card(quiet().explain())):
        style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        assert len(style) == 1
        rules = re.sub(r"/\*.*?\*/", "", style[0], flags=re.DOTALL)
        selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", rules) for one in rule.split(",")]
        assert len(selectors) > 50
        for selector in selectors:
            assert selector.startswith("@media") or re.search(r"(^| )\.xch\b", selector), selector
        assert "<html" not in text
        assert "<body" not in text


def test_the_style_sheet_is_in_the_package_and_knows_every_colour() -> None:
    style = files("exchangeable.analysis.report").joinpath("report.css").read_text("utf-8")
    for variable in set(svg.PALETTE.values()) | set(re.findall(r"var\((--[\w-]+)", style)):
        assert style.count(f"{variable}:") == 3, variable  # light, and dark by two ways
    used = set(re.findall(r"(?<!&)#[0-9a-f]{6}", charts.evidence_chart(rejected(), rejected().explain().change)))
    assert used <= set(svg.PALETTE)
    assert "#888888" in svg.PALETTE
    assert plots.COLOURS[0] in svg.PALETTE


# --------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def table(tmp_path: Path) -> Path:
    place = tmp_path / "moved table.csv"
    np.savetxt(place, moved(), delimiter=",", header="a,b,c", comments="")
    return place


def test_the_command_line_writes_a_report(run: Run, table: Path, tmp_path: Path) -> None:
    options = ("--measure", "nearest-distance", "--columns", "each", "--bet", "simple-mixture", "--seed", 3)
    plain = run("test", table, *options)
    done = run("test", table, *options, "--report", "out.html")
    assert (done.code, done.out) == (plain.code, plain.out)
    assert done.code == 1
    text = (tmp_path / "out.html").read_text("utf-8")
    page = check(text)
    assert "moved table.csv: 400 rows, 3 columns" in page.text
    command = re.findall(r"<pre>(exchangeable test .*?)</pre>", text)[0].replace("&#39;", "'")
    assert run(*shlex.split(command)[1:]).out == plain.out


def test_the_command_line_writes_a_report_of_what_is_not_rejected(run: Run, table: Path, tmp_path: Path) -> None:
    done = run("test", table, "--drop", "b", "--measure", "nearest-distance", "--report", "out.htm")
    assert done.code == 0
    assert "NOT REJECTED" in check((tmp_path / "out.htm").read_text("utf-8")).text


def test_the_command_line_writes_title_and_author(run: Run, table: Path, tmp_path: Path) -> None:
    options = ("test", table, "--title", "Spring", "--author", "A. Inspector")
    assert run(*options, "--report", "out.html").code == 1
    head = (tmp_path / "out.html").read_text("utf-8").split("</header>")[0]
    assert "<strong>Spring</strong>" in head
    assert "A. Inspector, " in head
    for words, message in (
        (options, "--title is for a report, so it needs --report"),
        (("test", table, "--author", "", "--report", "b.html"), "author must be a text of 1 to 200 characters, got ''"),
    ):
        done = run(*words)
        assert (done.code, done.out, done.err) == (2, "", f"exchangeable: {message}\n")


def test_the_command_line_refuses_what_cannot_be_written(run: Run, table: Path, tmp_path: Path) -> None:
    options = ("test", table, "--measure", "nearest-distance", "--report")
    wrong = run(*options, "out.pdf")
    assert (wrong.code, wrong.out) == (2, "")
    assert ".html or .htm" in wrong.err
    lost = run(*options, "none/out.html")
    assert (lost.code, lost.out) == (3, "")
    assert "folder" in lost.err
    assert list(tmp_path.iterdir()) == [table]


# --------------------------------------------------------------------------------------------------------- in a browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_dark(tab: Open, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "report.html").write_text(written("rejected"), "utf-8")
    opened = tab(color_scheme=scheme)
    opened.page.goto((tmp_path / "report.html").as_uri())
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) > 384) == (scheme == "light")
    texts = opened.page.evaluate(CONTRAST)
    assert len(texts) > 100
    assert [one for one in texts if one["ratio"] < 4.5] == []
    asked, opened.asked = opened.asked, []
    assert asked == [(tmp_path / "report.html").as_uri()]
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("theme", "dark", "scheme"),
    [
        ('data-jp-theme-light="false"', True, "light"),
        ('data-jp-theme-light="true"', False, "dark"),
        ('class="vscode-dark"', True, "light"),
        ("", False, "dark"),  # a page that does not follow: the card brings its own ground
    ],
)
def test_a_card_is_readable_in_light_and_dark_notebooks(tab: Open, theme: str, dark: bool, scheme: str) -> None:
    page = tab(color_scheme=scheme).page
    colours = "background: #111; color: #eee" if dark else "background: #fff; color: #111"
    cards = report.result_card(rejected()) + report.explanation_card(rejected().explain())
    page.set_content(f'<!DOCTYPE html><body {theme} style="{colours}"><p>the notebook</p>{cards}</body>')
    texts = page.evaluate(CONTRAST)
    assert len(texts) > 50
    assert [one for one in texts if one["ratio"] < 4.5] == []
    ground = page.evaluate("getComputedStyle(document.querySelector('.xch')).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 384) == (dark or not theme)


def test_nothing_is_wider_than_a_telephone_or_dark_on_paper(tab: Open, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(written("wide"), "utf-8")
    opened = tab(color_scheme="dark", viewport={"width": 360, "height": 700})
    opened.page.goto((tmp_path / "report.html").as_uri())
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert opened.page.evaluate("[...document.querySelectorAll('svg')].every(one => one.clientWidth <= innerWidth)")
    opened.page.emulate_media(media="print", color_scheme="dark")
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert [one for one in opened.page.evaluate(CONTRAST) if one["ratio"] < 4.5] == []
    opened.asked = []
