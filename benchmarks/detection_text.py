"""DETECTION.md, from the results of bench_detection.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import own_detectors
from changes import held_out
from detection_long import HAZARD_STEPS, LATE_TIMES
from detection_runs import AFTER, JITTER, RATE, Setting, kind
from detection_verdicts import (
    LIMITS,
    STEADY,
    WORDS,
    Result,
    Results,
    counted,
    exact,
    first_or_level,
    geometric_mean,
    is_steady,
    others,
    share,
    verdict,
)
from workloads import table

AllResults = Mapping[str, Results]  # by stream
CHOICE = "our choice"


def number(value: float) -> str:
    """Rounded, or a dash where there is none: a tool with an alarm before the change in every run has no delay."""
    return "-" if math.isnan(value) else f"{value:.0f}"


def percent(count: int, runs: int) -> str:
    """A rate with its exact interval, in per cent."""
    low, high = exact(count, runs)
    return f"{100.0 * count / runs:.1f} ({100.0 * low:.1f}-{100.0 * high:.1f})"


def marked(name: str) -> str:
    """The name of a stream, with a mark if it was held out."""
    return f"{name} (held out)" if name in held_out() else name


def groups(results: AllResults) -> dict[str, list[str]]:
    """The streams, those held out apart; no empty group."""
    known = [name for name in results if name not in held_out()]
    rest = [name for name in results if name in held_out()]
    return {group: names for group, names in (("known", known), ("held out", rest)) if names}


class Reader:
    """The results of one setting, and our choice on each stream, by the kind of its data."""

    def __init__(self, folder: str | None, results: AllResults, *, is_steady_known: bool = False) -> None:
        self.results, self.is_steady_known = results, is_steady_known
        self.choices = {name: own_detectors.choice(kind(folder, name)) for name in results}

    def words(self, names: Iterable[str], other: str | None = None, *, steady: bool = False) -> list[str]:
        """The verdicts on our choice, on those of these streams that the other tool can watch."""
        seen = [name for name in names if other is None or other in others(self.results[name])]
        return [verdict(self.results[name], self.choices[name], other, steady=steady).word for name in seen]

    def others(self) -> list[str]:
        """All other tools."""
        return list(dict.fromkeys(tool for results in self.results.values() for tool in others(results)))

    def headline(self) -> str:
        """A row for each stream: our choice, the best of the others, and the limits."""
        rows = []
        for name, results in self.results.items():
            ours = self.choices[name]
            found = verdict(results, ours)
            word = f"**{found.word}**" if found.word == "behind" else found.word
            limits = [number(results[limit].mean) if limit in results else "" for limit in LIMITS]
            best = f"{found.other}: {results[found.other].mean:.0f}"
            rows.append(
                [
                    marked(name),
                    ours,
                    number(results[ours].mean),
                    best,
                    f"{found.low:+.0f} to {found.high:+.0f}",
                    word,
                    *limits,
                ]
            )
        return table(["stream", CHOICE, "delay", "best of the others", "difference", "verdict", *LIMITS], rows)

    def counts(self) -> str:
        """How often ours is first or level against the best of the others in each row, and how much longer it takes."""
        lines = []
        for group, names in groups(self.results).items():
            words = self.words(names)
            ratios = [verdict(self.results[name], self.choices[name]).ratio for name in names]
            said = ", ".join(f"{word} {count}" for word, count in zip(WORDS, counted(words), strict=True))
            lines.append(
                f"- Streams {group}: first or level on {first_or_level(words)}; {said}. "
                f"Its delay is {geometric_mean(ratios):.2f} times that of the best (geometric mean)."
            )
            if self.is_steady_known:
                rows = [name for name in names if is_steady(self.results[name][self.choices[name]])]
                steady = first_or_level(self.words(rows, steady=True))
                lines[-1] += (
                    " Against only those tools whose rate of false alarms does not grow with time (below), on the rows "
                    f"where that of ours does not: {steady}."
                )
        return "Our choice against the best of the others in each row:\n\n" + "\n".join(lines) + "\n"

    def one_by_one(self) -> str:
        """The same against each of the others alone."""
        rows = []
        for other in self.others():
            row = [other]
            for names in groups(self.results).values():
                words = self.words(names, other)
                row += [*map(str, counted(words)), first_or_level(words)]
            rows.append(row)
        columns = [f"{group}: {word}" for group in groups(self.results) for word in (*WORDS, "first or level")]
        return "Our choice against each of the others alone, on the streams that it can watch:\n\n" + table(
            ["", *columns], rows
        )

    def by_kind(self, cell: Callable[[Result], str]) -> str:
        """A row a stream, a column a tool: first our choice and the tools for all numbers, then the others."""
        usual = set.intersection(*(set(results) for results in self.results.values()))
        every = list(dict.fromkeys(tool for results in self.results.values() for tool in results))
        every = [tool for tool in every if tool not in LIMITS]
        general = [tool for tool in every if tool in usual]
        special = [tool for tool in every if tool not in usual]
        some = {name: results for name, results in self.results.items() if set(special) & set(results)}
        chosen = {name: {CHOICE: row[self.choices[name]], **row} for name, row in self.results.items()}
        return matrix(chosen, [CHOICE, *general], cell) + ("\n" + matrix(some, special, cell) if some else "")


def summary(readers: Mapping[str, Reader]) -> str:
    """The shares of rows on which ours is first or level, for each setting and group of streams."""
    rows = []
    for setting, reader in readers.items():
        for group, names in groups(reader.results).items():
            alone = {other: reader.words(names, other) for other in reader.others()}
            everywhere = [other for other, words in alone.items() if len(words) == len(names)]
            strongest = min(everywhere, key=lambda other: share(alone[other]))
            against = f"{first_or_level(alone[strongest])}: {strongest}"
            rows.append([f"({setting})", group, first_or_level(reader.words(names)), against])
    columns = ["setting", "streams", "against the best of the others in each row", "against the strongest single tool"]
    return (
        "## Rows on which our choice is first or level\n\n"
        "The strongest single tool: of those that can watch every stream, the one against which our share is smallest. "
        "*Known* are the streams that were looked at when `Sentinel` and `RateMonitor` were made.\n\n"
        + table(columns, rows)
    )


def matrix(results: AllResults, tools: Sequence[str], cell: Callable[[Result], str]) -> str:
    """A row a stream, a column a tool; empty where a tool cannot watch a stream."""
    rows = [
        [marked(name), *(cell(row[tool]) if tool in row else "" for tool in tools)] for name, row in results.items()
    ]
    return table(["stream", *tools], rows)


def defaults(results: AllResults) -> str:
    """The default settings of the tools."""
    every = {tool: row[tool].setting for row in results.values() for tool in row if row[tool].false_default is not None}
    return "; ".join(f"{tool} {setting}" for tool, setting in every.items())


def as_it_comes(result: Result) -> str:
    """The rate of false alarms, and the delay, at the default."""
    if result.false_default is None:
        return ""
    at_default = result._replace(delay=result.delay_default)
    return f"{100 * result.false_default / result.runs:.1f}; {number(at_default.mean)}"


def setting_section(setting: Setting, reader: Reader) -> list[str]:
    """All tables of one setting."""
    rate = f"{100 * RATE:.0f} % false alarms within {setting.before:,} steps"
    tables = [
        f"## Setting ({setting.label}): {rate}\n\n"
        f"The change comes after {setting.before:,} to {setting.before + JITTER - 1:,} steps. {numbers(setting)}\n",
        reader.counts(),
        reader.headline(),
        reader.one_by_one(),
        f"### Mean delay of every tool ({setting.label})\n\nA run without an alarm counts as {AFTER:,}.\n",
        reader.by_kind(lambda result: number(result.mean)),
        f"### Share detected ({setting.label}), %\n",
        reader.by_kind(lambda result: number(100 * result.detected)),
        f"### False alarms at the calibrated thresholds ({setting.label}), %\n\n"
        "On fresh runs, with the exact 95 % interval. Tools that see ranks are measured once for all streams. A "
        "parameter with few possible values, or a statistic that is infinite in some runs, cannot be set to 5 %.\n",
        reader.by_kind(lambda result: percent(result.false, result.runs)),
    ]
    if setting.label == "a":
        tables += [
            f"### False alarms in the next {AFTER:,} steps at the calibrated thresholds ({setting.label}), %\n\n"
            f"Of the fresh runs that are quiet for {setting.before:,} steps, those that have an alarm in the "
            f"{AFTER:,} steps that follow, without a change. A tool with far more than {100 * RATE:.0f} % here has a "
            "rate that grows with time: its statistic is near its threshold when the change comes, which shortens its "
            f'delay. Tools above {100 * STEADY * RATE:.0f} % are left out of the count of "only those tools whose rate '
            'of false alarms does not grow with time".\n',
            reader.by_kind(lambda result: number(100.0 * result.later)),
            f"### Median delay ({setting.label})\n",
            reader.by_kind(lambda result: number(result.median)),
            f"### Default settings\n\nFalse alarms within {setting.before:,} steps, %, and the mean delay, at the "
            f"defaults: {defaults(reader.results)}.\n",
            reader.by_kind(as_it_comes),
        ]
    return tables


def numbers(setting: Setting) -> str:
    """How many runs there are."""
    counts = "; ".join(
        f"{name} {lot.calibration:,}, {lot.fresh:,} and {lot.changed:,}" for name, lot in setting.runs.items()
    )
    few = min(lot.calibration for lot in setting.runs.values())
    low, high = exact(round(RATE * few), few)
    return (
        f"Numbers of runs for calibration, for the rate of false alarms, and with a change: {counts}. Fewer runs mean "
        "wider intervals, and so more rows that are *level*: counts of rows in settings with different numbers of runs "
        f"cannot be compared. A threshold that is set on {few} runs may stand for a rate of {100 * low:.1f} to "
        f"{100 * high:.1f} % instead of {100 * RATE:.0f} %, so a limit can lie a little above that of a tool that "
        "knows less."
    )


def late_section(rows: list[list[str]], runs: int) -> str:
    """The table of late changes."""
    return (
        "## Late changes, with default settings\n\n"
        f"The mean delay of a change after so many quiet steps, {runs} runs each. In brackets the percentage of runs "
        "that are left out because of an alarm before the change; a dash if fewer than five are left. Our default "
        "period of 10,000 lets few runs last 100,000 steps; the same with a period of 1,000,000 shows how the delay "
        "depends on the length of the quiet time.\n\n"
        + table(["stream", "tool", *(f"after {before:,}" for before in LATE_TIMES)], rows)
    )


def hazard_section(rows: list[list[str]], runs: int) -> str:
    """The table of false alarms by the thousand steps."""
    return (
        "## Runs with a false alarm in each block of 1,000 steps, % of those still quiet\n\n"
        f"At the defaults, on {runs} runs of independent N(0, 1): of the runs that are still quiet at the "
        "beginning of each thousand steps, the share that raise an alarm in it (- if fewer than a twentieth are left). "
        "A detector for endless monitoring should have a flat row.\n\n"
        + table(["tool", *(str(i + 1) for i in range(HAZARD_STEPS // 1_000))], rows)
    )
