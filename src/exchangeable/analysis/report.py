"""The report of a test: one file of HTML that needs no other; and its cards in a notebook.

Nothing in it is a script, and nothing comes from elsewhere. What the user named is escaped, cut, and shown as it is
written: control characters and marks that turn the direction of text are spelt out.
"""

from __future__ import annotations

import errno
import html
import inspect
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable import bets, plots
from exchangeable._extras import needed
from exchangeable.analysis import explain as explaining
from exchangeable.analysis import figures
from exchangeable.analysis.columns import WHOLE, joint
from exchangeable.analysis.method import asks
from exchangeable.analysis.notes import described
from exchangeable.analysis.verdict import FEW, SHIFTS, capital, words
from exchangeable.martingale import LN10
from exchangeable.measures import Conditional
from exchangeable.protocols import Floats
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Change, Explanation, FeatureEvidence, Odd
    from exchangeable.analysis.result import Result

SUFFIXES = (".html", ".htm")
ROWS = 50  # features in a table
SHOWN = 20  # p-values that make a picture
NOTES = 20  # notes that are shown
NAME, SENTENCE = 60, 400  # characters of a name, and of a sentence that holds one
OWN = 4000  # of sentences of our own, whose names are cut already
PAGE = "/* ---- the page"  # where the part of the style sheet begins that is not for notebooks
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
UNNAMED = ("the data", "train and test")  # tables that came from memory
BOTH = ("before", "after")  # the parts of a table
PAPER = (
    "V. Fedorova, A. Gammerman, I. Nouretdinov, V. Vovk (2012). Plug-in martingales for testing exchangeability "
    "on-line. Proceedings of the 29th International Conference on Machine Learning (ICML), Edinburgh. arXiv:1204.3251."
)
BIBTEX = """@inproceedings{{fedorova2012plugin,
  author    = {{Fedorova, Valentina and Gammerman, Alex and Nouretdinov, Ilia and Vovk, Vladimir}},
  title     = {{Plug-in martingales for testing exchangeability on-line}},
  booktitle = {{Proceedings of the 29th International Conference on Machine Learning}},
  year      = {{2012}},
  note      = {{arXiv:1204.3251}}
}}
@software{{exchangeable,
  author    = {{{{The exchangeable developers}}}},
  title     = {{exchangeable: conformal test martingales}},
  version   = {{{version}}}
}}"""


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the report beside its name first, so that a failure leaves no half of it."""
    place = Path(path)
    if place.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {format_value(str(path))}")
    with needed("report", "the report"):  # before the work
        plots.axes()
    part = place.with_name(f".{place.name}.part")
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(place.parent))
    part.touch()  # and is there a place to write to?
    try:
        part.write_bytes(document(result, result.explain()).encode())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def document(result: Result, explanation: Explanation) -> str:
    """The report as text. O(n), and under 300 KB whatever the data."""
    parts = [
        _verdict(result),
        _growth(result, explanation.change),
        _changed(explanation, result),
        _labels(explanation),
        _pvalues(result),
        _betting(result),
        _strange(result, explanation),
        _method(result),
        _promise(result),
        _notes(result),
        _cite(),
    ]
    name = _text(result.table.name)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{name}: a test of exchangeability</title>\n<style>\n{_style()}</style>\n</head>\n"
        f'<body class="xch page">\n<header class="top"><strong>Test of exchangeability</strong> '
        f'<span class="muted">{_described(result)}</span></header>\n<main>\n'
        + "\n".join(part for part in parts if part)
        + f'\n</main>\n<footer class="foot small">Written by exchangeable {_version()}. '
        "The figures are those of the test; only the pictures are thinned to what a screen can show.</footer>\n"
        "</body>\n</html>\n"
    )


def _described(result: Result) -> str:
    """The table in one line, its names cut."""
    table = result.table
    label = None if table.label is None else _plain(table.label)
    return _text(described(table._replace(name=_plain(table.name), label=label)), OWN)


def card(result: Result) -> str:
    """For a notebook: the verdict, key figures and the capital; small, and without a style that leaks."""
    said = _said(result)
    try:
        picture = _legend(result, None) + f"<figure>{figures.capital(result, size=(8.4, 3.1), columns=400)}</figure>"
    except ImportError as error:
        picture = f'<p class="small">No picture: {_text(str(error), SENTENCE)}</p>'
    return _boxed(
        f'<div class="verdict{" rejected" * result.rejected}"><div class="say">{_marked(said.headline)}</div>'
        f'{_lead(said)}</div>{_key(result)}{picture}<p class="small">{_power(_text(result.guarantee, SENTENCE))}</p>'
    )


def explained(explanation: Explanation) -> str:
    """For a notebook: when, the features ranked, labels, and odd examples."""
    parts = [*_when(explanation), _features(explanation)]
    if explanation.shift is not None:
        parts.append(f"<p>{_text(SHIFTS[explanation.shift.verdict], SENTENCE)}</p>")
    parts.append(f'<div class="wide">{_odd(explanation, None)}</div>')
    return _boxed("".join(f'<div class="part">{part}</div>' for part in parts))


def _boxed(content: str) -> str:
    return f'<div class="xch card"><style>\n{_style().split(PAGE)[0]}</style>{content}</div>'


# ----------------------------------------------------------------------------------------------------- text and numbers


def _text(text: str, most: int = NAME) -> str:
    """Text of others for the page: what is not printable is spelt out, what is too long is cut in the middle.

    >>> _text("<b>\\u202e"), _text("x" * 99, 9)
    ('&lt;b&gt;\\\\u202e', 'xxxxxx…xx')
    """
    return html.escape(_plain(text, most))


def _plain(text: str, most: int = NAME) -> str:
    """The same before it is escaped."""
    head = text if len(text) <= most else text[: most - most // 4 - 1] + "…" + text[len(text) - most // 4 :]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in head)


def _name(name: str) -> str:
    """A name, kept apart from the direction of what is around it."""
    return f"<bdi>{_text(name)}</bdi>"


def _power(text: str) -> str:
    """10^17.3 as people write it."""
    return re.sub(r"\b10\^(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", r"10<sup>\1</sup>", text).replace("<sup>-", "<sup>−")


def _amount(log10: float) -> str:
    return "0" if log10 == -math.inf else _power(capital(log10))


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


@cache
def _style() -> str:
    return files("exchangeable.analysis").joinpath("report.css").read_text("utf-8")


def _version() -> str:
    return str(sys.modules["exchangeable"].__version__)


def _section(title: str, *content: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n" + "\n".join(part for part in content if part) + "\n</section>"


def _table(head: Sequence[str], rows: Iterable[str], kind: str = "") -> str:
    """A table; the numbers among the columns are those whose title ends in '#'."""
    titles = "".join(
        f'<th scope="col" class="num">{title[:-1]}</th>' if title.endswith("#") else f'<th scope="col">{title}</th>'
        for title in head
    )
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>\n' + "\n".join(rows) + "\n</tbody></table>"


# ---------------------------------------------------------------------------------------------------------- the verdict


class Said(NamedTuple):
    """The words of the verdict, taken apart."""

    headline: str
    lead: list[str]
    meaning: list[tuple[str, str]]  # Means, Does not mean, Promised
    names: dict[str, str]  # as HTML, and what the sentences have in their place

    def html(self, sentence: str) -> str:
        """A sentence for the page."""
        text = _power(_text(sentence, OWN).replace("10^-inf", "0"))
        return re.sub(r"@\d+@", lambda place: self.names.get(place[0], place[0]), text)


def _said(result: Result) -> Said:
    lines = [line._replace(name=f"@{i}@") for i, line in enumerate(result.lines)]  # no name can break a sentence
    names = {own.name: _name(line.name) for own, line in zip(lines, result.lines, strict=True)}
    first, *others = words(result.verdict, lines, result.sets).split("\n")
    headline, dot, rest = first.partition(". ")
    lead, meaning = [rest] if rest else [], []
    for line in others:
        title, _, sentence = line.partition(": ")
        if title in ("Means", "Does not mean", "Promised"):
            meaning.append((title, sentence))
        else:
            lead.append(line)
    return Said(headline + dot.strip(), lead, meaning, names)


def _marked(headline: str) -> str:
    mark, colon, rest = headline.partition(":")
    return f'<span class="mark">{_text(mark + colon, SENTENCE)}</span>{_text(rest, SENTENCE)}'


def _lead(said: Said) -> str:
    return "".join(f'<p class="lead">{said.html(line)}</p>' for line in said.lead)


def _verdict(result: Result) -> str:
    said = _said(result)
    kind = "verdict rejected" if result.rejected else "verdict"
    return f'<div class="{kind}"><h1>{_marked(said.headline)}</h1>{_lead(said)}</div>\n{_key(result)}'


def _key(result: Result) -> str:
    """The figures that matter most."""
    verdict = result.verdict
    restarted = verdict.on_alarm == "restart" and bool(verdict.alarms)
    together = joint(result.lines) / LN10
    peak = max(0.0, float(together.max()))
    key = [
        ("weighted evidence at its peak" if result.columns else "evidence at its peak", _amount(peak)),
        ("at the end" + ", since the last restart" * restarted, _amount(float(together[-1]))),
    ]
    if verdict.threshold is not None:
        key.append(("the alarm is at", f"{verdict.threshold:,.6g}"))
    if verdict.alpha is not None:
        key.append(("level alpha", _percent(verdict.alpha)))
    if verdict.period is not None:
        key.append(("examples to a false alarm, on average, at least", f"{verdict.period:,.6g}"))
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        key.append(("p-value of this test", _amount(-peak)))
    if result.split is not None:
        names = _text(result.split.first), _text(result.split.second)
        key += [(f"examples, {names[0]}", f"{result.start:,}"), (f"examples, {names[1]}", f"{len(result.path.n):,}")]
    else:
        key.append(("examples", f"{result.n:,}"))
    key.append(("features", f"{result.n_features:,}"))
    return (
        '<dl class="key">' + "".join(f"<div><dt>{title}</dt><dd>{figure}</dd></div>" for title, figure in key) + "</dl>"
    )


# ----------------------------------------------------------------------------------------------------------- the growth


def _growth(result: Result, change: Change | None) -> str:
    notes = []
    if result.columns:
        whole, column = (_percent(line.weight) for line in result.lines[:2])
        notes.append(
            f"Several martingales share one level: {whole} of the weight is that of whole examples, {column} that of "
            f"each of the {len(result.columns):,} columns and labels. Drawn is the capital times its weight."
        )
    bankrupt = np.isneginf(result.path.log_value)
    if bankrupt.any():
        notes.append(
            f"The capital was lost at example {int(result.path.n[bankrupt.argmax()]):,}: from there on it is 0."
        )
    if result.verdict.threshold is None:
        notes.append("This alarm watches how the capital grows, and not its height: no level is drawn.")
    if result.verdict.on_alarm == "restart" and result.verdict.alarms:
        notes.append("After each alarm the test begins again with a capital of 1.")
    return _section(
        "Evidence over time",
        "<p>What a gambler has made of 1 who bets, example by example, against a random order. On exchangeable data "
        "the capital is not expected to grow; the scale is logarithmic.</p>",
        _legend(result, change),
        f'<figure class="chart">{figures.capital(result, change)}</figure>',
        f'<p class="small">{" ".join(notes)}</p>' if notes else "",
    )


def _legend(result: Result, change: Change | None) -> str:
    verdict = result.verdict
    entries = [
        (f"line{i}", _name(line.name) if result.columns else f"capital, by the bet {_text(result.bet)}")
        for i, line in enumerate(result.drawn().values())
    ]
    if verdict.threshold is not None:
        entries.append(("level", f"the alarm, at {verdict.threshold:,.6g}"))
    if verdict.alarms:
        first = f"example {verdict.alarms[0]:,}"
        several = f"{len(verdict.alarms):,} alarms, the first at {first}"
        entries.append(("dot", f"alarm at {first}" if len(verdict.alarms) == 1 else several))
    if len(verdict.changepoints) > figures.MARKED:
        entries.append(("change", f"lowest before each alarm, the first {figures.MARKED}"))
    elif len(verdict.changepoints) > 1:
        entries.append(("change", "lowest before each alarm"))
    elif verdict.changepoints:
        what = "the rise began" if result.columns else "lowest before the alarm,"
        entries.append(("change", f"{what} after {verdict.changepoints[0]:,} examples"))
    if change is not None and change.low is not None and change.high is not None:
        where = (
            f"one change, {_percent(change.confidence)} confidence: after {change.low:,} to {change.high:,} examples"
        )
        entries.append(("band", where))
    items = "".join(f'<li><i class="{kind}"></i>{said}</li>' for kind, said in entries)
    return f'<ul class="legend">{items}</ul>'


# --------------------------------------------------------------------------------------------------------- what changed


def _changed(explanation: Explanation, result: Result) -> str:
    title = "What changed" if explanation.changed or explanation.change is not None else "Each column by itself"
    if result.sets is not None:
        title = "What differs" if explanation.changed else title
    through = '<p class="small">The columns are looked at by tests of their own, which do not begin again.</p>'
    restarted = result.verdict.on_alarm == "restart"
    features = _features(explanation, result.sets or BOTH)
    return _section(title, *_when(explanation), features, through if restarted else "")


def _when(explanation: Explanation) -> list[str]:
    """When, and whether columns are named, in words of the explanation that hold no names."""
    said = [*explaining.when(explanation), *explaining.what(explanation)[:1]]
    return [f"<p>{_power(_text(_after(line), OWN))}</p>" for line in said if not line.startswith("Promised: ")]


def _after(line: str) -> str:
    """The sentence without its title, as a sentence."""
    sentence = line.partition(": ")[2]
    return sentence[:1].upper() + sentence[1:]


def _features(explanation: Explanation, sets: tuple[str, str] = BOTH) -> str:
    found, level = explanation.features, math.log10(explanation.level)
    widest = max([level, *(feature.log10_max for feature in found)])
    rows = [_row(i, feature, level, widest) for i, feature in enumerate(found[:ROWS], 1)]
    apart = " → ".join(map(_text, sets))
    head = ("#", "column", "evidence, peak#", "log scale; dashed: enough to be named", "named", apart)
    more = f'<p class="small">and {len(found) - ROWS:,} more.</p>' if len(found) > ROWS else ""
    return (
        f'<div class="wide">{_table(head, rows, "features")}</div>{more}'
        f'<p class="small">{_text(explanation.guarantee, SENTENCE)}</p>'
    )


def _row(i: int, feature: FeatureEvidence, level: float, widest: float) -> str:
    where = f"at example {feature.rejected_at:,}" if feature.rejected_at is not None else "yes"
    named = f'<span class="yes">{where}</span>' if feature.named else '<span class="muted">no</span>'
    kind = "" if feature.kind in ("numbers", feature.name) else f' <span class="small">{_text(feature.kind)}</span>'
    bar = f'<span class="bar"><b style="width:{_width(feature.log10_max, widest)}"></b>{_tick(level, widest)}</span>'
    return (
        f'<tr{" class=named" * feature.named}><td class="num muted">{i}</td>'
        f'<th scope="row">{_name(feature.name)}{kind}</th><td class="num">{_amount(feature.log10_max)}</td>'
        f'<td class="bars">{bar}</td><td class="nowrap">{named}</td><td>{_difference(feature.difference)}</td></tr>'
    )


def _difference(said: str) -> str:
    """Before and after; a name in it, of a category, is kept apart, or its direction might turn the numbers around."""
    share = re.fullmatch(r"share of (.*): (\S+ %) -> (\S+ %)", said, re.DOTALL)
    if share is None:
        return _text(said, SENTENCE).replace(" -&gt; ", " → ")
    name, before, after = share.groups()
    return f"share of {_name(name)}: {_text(before)} → {_text(after)}"


def _width(log10: float, widest: float) -> str:
    return f"{100.0 * min(1.0, log10 / widest) if widest > 0.0 else 0.0:.1f}%"


def _tick(level: float, widest: float) -> str:
    return f'<i style="left:{_width(level, widest)}"></i>'


def _labels(explanation: Explanation) -> str:
    shift = explanation.shift
    if shift is None:
        return ""
    both = {"label shift": shift.label, "concept shift": shift.concept}
    pictures = figures.curves({name: one.log_value for name, one in both.items()}, 1.0 / shift.alpha)
    titles = {"label shift": "Of the labels alone", "concept shift": "Of the examples within their class"}
    drawn = []
    for (name, one), picture in zip(both.items(), pictures, strict=True):
        peak = max(0.0, float(one.log_value.max())) / LN10
        alarm = f"alarm at example {one.alarm_at:,}" if one.alarm_at is not None else "no alarm"
        caption = f"Peak {_amount(peak)}; {alarm}."
        drawn.append(f"<figure><h3>{titles[name]}</h3>{picture}<figcaption>{caption}</figcaption></figure>")
    return _section(
        "Label shift or concept shift?",
        f"<p>{_text(SHIFTS[shift.verdict], SENTENCE)}</p>",
        f'<div class="pair">{"".join(drawn)}</div>',
        f'<p class="small">{_text(shift.guarantee, SENTENCE)}</p>',
    )


# ------------------------------------------------------------------------------------------------- p-values and the bet


def periods(result: Result) -> dict[str, Floats]:
    """The p-values of the loudest line before and after the change, or in thirds; all of them where they are few."""
    path, verdict, p = result.path, result.verdict, result.loudest.p
    if result.split is not None or len(path.n) < FEW:
        return {f"examples {int(path.n[0]):,} to {int(path.n[-1]):,}": p}
    if not verdict.changepoints or not SHOWN <= verdict.changepoints[0] <= len(path.n) - SHOWN:
        cuts = [0, *(round(len(path.n) * i / 3) for i in (1, 2)), len(path.n)]
    else:
        restart = verdict.alarms[:1] if verdict.on_alarm == "restart" else []
        cuts = sorted({0, verdict.changepoints[0], *restart, len(path.n)})
    return {f"examples {a + 1:,} to {b:,}": p[a:b] for a, b in pairwise(cuts)}


def _pvalues(result: Result) -> str:
    parts = periods(result)
    restarted = result.verdict.on_alarm == "restart" and bool(result.verdict.alarms)
    titles = list(parts)
    if len(parts) == 2:
        titles = [f"Before the change: {titles[0]}", f"After it: {titles[1]}"]
    elif restarted and len(parts[titles[0]]) == result.changepoint:
        said = ("Before the change", "Up to the alarm", "Begun again")
        titles = [f"{when}: {title}" for when, title in zip(said, titles, strict=False)]
    drawn = [
        f"<figure><h3>{_upper(title)}</h3>{picture}</figure>"
        for title, picture in zip(titles, figures.histograms(parts), strict=True)
    ]
    return _section(
        f"P-values{_of_loudest(result)}",
        f"<p>Where each example stood among those so far: {_meaning(result)}. On "
        "exchangeable data they are independent and uniform, so every bar would come close to the dashed line.</p>",
        f'<div class="pair">{"".join(drawn)}</div>',
    )


def _meaning(result: Result) -> str:
    """Of small and large p-values."""
    line = result.loudest
    if line.kind == "categories" or (line.kind == "label" and isinstance(result.table.y, list)):
        return "near 0 if its category comes late in the alphabet, near 1 if early"
    if line.kind in ("numbers", "label") or result.measure == "value":
        return "near 0 if larger than most, near 1 if smaller"
    if result.measure == "nearest-residual":
        return "near 0 if its label was higher than its neighbours', near 1 if lower"
    return "near 0 if stranger than most, near 1 if more typical"


def _of_loudest(result: Result) -> str:
    """Which of several martingales the pictures are about."""
    if not result.columns:
        return ""
    line = result.loudest
    return f" of {WHOLE}" if line is result.lines[0] else f" of column {_text(line.name)}"


def _betting(result: Result) -> str:
    learnt = len(figures.since(result))
    return _section(
        f"The bet as it stands at the end{_of_loudest(result).replace(' of ', ': ', 1)}",
        "<p>Where the curve is above 1, the bet on the next example wins; the area under it is 1, so what is put on "
        f"some p-values is taken from others. It has learnt from {learnt:,} p-values.</p>",
        f'<ul class="legend"><li><i></i>betting function, {_text(result.bet)}</li>'
        '<li><i class="block"></i>p-values, density</li><li><i class="level"></i>no bet</li></ul>',
        f'<figure class="chart">{figures.betting(result)}</figure>',
    )


# -------------------------------------------------------------------------------------------------------- odd examples


def _strange(result: Result, explanation: Explanation) -> str:
    return _section(
        "The strangest examples",
        f'<div class="wide">{_odd(explanation, result)}</div>',
        f'<p class="small">Among {explanation.n:,} examples the smallest p-value is about {1.0 / explanation.n:.1g} '
        "even if nothing happens.</p>",
    )


def _odd(explanation: Explanation, result: Result | None) -> str:
    head = ["", "example#", "p-value#"]
    if result is not None and result.split is not None:
        head.append(f"row of {_text(result.split.second)}, from 0#")
    if result is not None and result.table.y is not None:
        head.append("label")
    rows = []
    for title, some in (("strangest", explanation.small), ("most typical", explanation.large)):
        rows += [_example(title if i == 0 else "", odd, result) for i, odd in enumerate(some)]
    return _table(head, rows, "odd")


def _example(title: str, odd: Odd, result: Result | None) -> str:
    cells = [f'<td class="num">{odd.n:,}</td>', f'<td class="num">{odd.p:{".4g" if odd.p < 0.5 else ".6g"}}</td>']
    if result is not None and result.split is not None:
        cells.append(f'<td class="num">{int(result.split.rows[odd.n - result.start - 1]):,}</td>')
    if result is not None and result.table.y is not None:
        label = result.table.y[odd.n - 1]
        cells.append(f"<td>{_name(f'{label:.6g}' if isinstance(label, float) else str(label))}</td>")
    return f'<tr><td class="muted">{title}</td>{"".join(cells)}</tr>'


# ------------------------------------------------------------------------------------------------------------- the rest


def _method(result: Result) -> str:
    verdict, table = result.verdict, result.table
    neighbours = f", {verdict.neighbours} neighbours" if (verdict.neighbours or 1) > 1 else ""
    epsilon = f", epsilon {verdict.epsilon:g}" if verdict.epsilon is not None else ""
    level = "" if verdict.alpha is None else f", alpha {verdict.alpha:g}"
    period = "" if verdict.period is None else f", period {verdict.period:g}"
    after = "begins again" if verdict.on_alarm == "restart" else "stays on"
    scales = {"deviation": "each numeric column divided by its deviation over the whole table", "none": "none"}
    y: Any = table.y
    classes = isinstance(y, list)
    labels = "none" if y is None else f"{len(set(y)):,} classes" if classes else "real-valued"
    named = f" ({_name(table.label)})" if y is not None and table.label is not None else ""
    columns = f"{len(table.groups):,} columns" if len(table.groups) != 1 else "one column"
    bet_on = f", {len(result.path.n):,} of them bet on" if result.split is not None else ""
    facts = [
        (
            "measure",
            f"{_text(verdict.measure)}{neighbours}. {_text(asks(verdict.measure), SENTENCE)}".rstrip(". ") + ".",
        ),
        ("bet", f"{_text(verdict.bet)}{epsilon}"),
        ("alarm", f"{_text(verdict.alarm)}{level}{period}; once it has sounded it {after}"),
        ("columns", "each has a say in the verdict" if result.columns else "have no say in the verdict by themselves"),
        ("scaling", _text(scales.get(verdict.scale, verdict.scale))),
        ("seed", f"{verdict.seed}"),
        ("examples", f"{result.n:,}{bet_on}"),
        ("features", f"{result.n_features:,}, of {columns}"),
        ("labels", labels + named),
        ("software", f"exchangeable {_version()}, Python {platform.python_version()}, NumPy {np.__version__}"),
    ]
    rows = "".join(f'<tr><th scope="row">{name}</th><td>{said}</td></tr>' for name, said in facts)
    repeated = repeats(result)
    return _section(
        "Method",
        f'<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div>',
        f"<pre>{html.escape(repeated)}</pre>" if repeated else "",
        '<p class="small">The same data, seed and method give the same numbers. Columns that were left out, and '
        "options that say how a file is read, are not recorded here; dots stand for settings that are not recorded.</p>"
        if repeated
        else "",
    )


def repeats(result: Result) -> str | None:
    """The command or the call that gives the same result, as far as it is known; None where names cannot be written."""
    verdict, table = result.verdict, result.table
    categorical = [group.name for group in table.groups if group.categorical]
    names = [table.name, *([] if table.label is None else [table.label]), *categorical]
    if len(categorical) > 20 or not all(name.isprintable() and len(name) <= NAME for name in names):
        return None
    if table.name not in UNNAMED:
        return _command(result, categorical)
    given = ["train", "test"] if result.split is not None else ["data"]
    label = [] if table.label is None else [f"label={table.label!r}"]
    encoded = [f"categorical={categorical!r}"] if categorical else []
    parts = [f"measure=measures.{_made(result.parts.measure)}", f"bet=bets.{_made(result.parts.bet)}"]
    numbers = [
        f"alpha={verdict.alpha!r}",
        f"seed={verdict.seed}",
        f"scale={verdict.scale!r}",
        f"columns={_columns(result)!r}",
    ]
    called = ", ".join([*given, *label, *encoded, *parts, *numbers])
    return f"exchangeable.{'test' if result.split is None else 'compare'}({called})"


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
        ("columns", _columns(result)),
        ("seed", verdict.seed),
    ]
    given = [part for name, value in options if value is not None for part in (f"--{name}", str(value))]
    return shlex.join(["exchangeable", "test", result.table.name, *given])


def _columns(result: Result) -> str:
    return "each" if result.columns else "none"


def _made(part: Any) -> str:
    """How a measure or a bet is made; dots stand for settings that are not known."""
    name = type(part).__name__
    if isinstance(part, Conditional):
        return f"{name}(measures.{_made(part.measure)})"
    taken = list(inspect.signature(type(part)).parameters)
    if taken == ["k"]:
        return f"{name}({part.k})"
    return f"{name}({part.epsilon!r})" if isinstance(part, bets.Power) else f"{name}({'...' if taken else ''})"


def _promise(result: Result) -> str:
    said = _said(result)
    meaning = {"Promised": result.guarantee, **dict(said.meaning)}
    listed = "".join(f"<dt>{title}</dt><dd>{said.html(_upper(line))}</dd>" for title, line in meaning.items())
    return _section("What is promised, and what it means", f'<dl class="means">{listed}</dl>')


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _notes(result: Result) -> str:
    if not result.notes:
        return ""
    items = "".join(f"<li>{_text(_upper(note), SENTENCE)}.</li>" for note in result.notes[:NOTES])
    more = f"<li>And {len(result.notes) - NOTES:,} more.</li>" if len(result.notes) > NOTES else ""
    return _section("Notes", f"<ul>{items}{more}</ul>")


def _cite() -> str:
    return _section(
        "How to cite",
        f"<p>{_text(PAPER, SENTENCE)}</p>",
        f"<p>The exchangeable developers. exchangeable: conformal test martingales, version {_version()}.</p>",
        f"<pre>{html.escape(BIBTEX.format(version=_version()))}</pre>",
    )
