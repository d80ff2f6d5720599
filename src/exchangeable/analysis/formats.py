"""Format names, amounts and lists for sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

MAX_NAME = 60  # characters of a column name


def format_evidence(log10: float) -> str:
    """Format an amount of evidence, given its log10: 0, 0.013, 56, 1,240, 10^17.3."""
    if log10 == -math.inf:
        return "0"
    if -4.0 < log10 < 4.0:
        return f"{10.0**log10:.2g}" if log10 < 1.99 else f"{10.0**log10:,.0f}"
    return f"10^{log10:.1f}" if abs(log10) < 1e9 else f"10^{log10:.4g}"


def format_name(name: str, limit: int = MAX_NAME) -> str:
    """Format a user's name for a sentence: control characters are escaped, and at most 60 characters are shown."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return text if len(text) <= limit else text[: limit - 3] + "..."


def dump_json(record: dict[str, Any]) -> str:
    """Encode a record as JSON. Numbers that are not finite become null.

    >>> dump_json({"log10_martingale": -math.inf, "alarms": [3]})
    '{"log10_martingale": null, "alarms": [3]}'
    """
    return json.dumps(_finite(record), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def percent(share: float) -> str:
    """Format a share as percent.

    >>> percent(0.05)
    '5 %'
    """
    return f"{100.0 * share:g} %"


def count_of(count: float, noun: str) -> str:
    """Return "1 row", "7.3 rows" or "1,200 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def list_words(words: Sequence[str]) -> str:
    """Join words: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def more(items: Sequence[object], limit: int) -> str:
    """Return the end of a list of which only ``limit`` items are shown; empty if all of them are."""
    return f" and {len(items) - limit:,} more" if len(items) > limit else ""
