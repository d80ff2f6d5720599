"""The Jinja environment of the report: autoescaping, and filters for names, sentences and amounts."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report.names import ISOLATE_END, ISOLATE_START, MAX_SENTENCE, clip, isolate, spell_out

PAGE_ONLY = "/* ---- the page"  # the comment in the style sheet after which nothing is for notebooks
ISOLATED = re.compile(f"{ISOLATE_START}([^{ISOLATE_END}]*){ISOLATE_END}")
POWER = re.compile(r"\b10\^(-?)(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def render(template: str, view: dict[str, Any]) -> str:
    """Render a template of this package."""
    return _environment().get_template(template).render(view)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("exchangeable.analysis.report"),
        autoescape=True,
        finalize=_spell_out,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = files("exchangeable.analysis.report").joinpath("report.css").read_text("utf-8")
    environment.globals.update(style=Markup(style), card_style=Markup(style.split(PAGE_ONLY)[0]))  # noqa: S704
    environment.filters.update(
        clip=clip,
        count="{:,}".format,
        evidence=lambda log10: sentence(format_evidence(log10)),
        name=lambda name: sentence(isolate(name)),
        sentence=sentence,
    )
    return environment


def _spell_out(value: Any) -> Any:
    """Escape characters that are not printable in every text that a template inserts, except in markup."""
    return spell_out(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def sentence(text: str) -> Markup:
    """Turn a sentence into markup: powers of ten as superscripts, and marked names as isolated elements.

    >>> sentence("<b> 10^17.3"), sentence("\u2068a & b\u2069 10^-3")
    (Markup('&lt;b&gt; 10<sup>17.3</sup>'), Markup('<bdi>a &amp; b</bdi> 10<sup>−3</sup>'))
    """
    parts = ISOLATED.split(text)  # names are at the odd positions
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if i % 2 else _superscripts(part) for i, part in enumerate(parts)
    )


def _superscripts(text: str) -> Markup:
    escaped = str(escape(clip(text, 10 * MAX_SENTENCE)))
    powers = POWER.sub(lambda power: f"10<sup>{'−' * bool(power[1])}{power[2]}</sup>", escaped)
    return Markup(powers)  # noqa: S704  # escaped above
