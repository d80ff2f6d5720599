"""Detection: the delay after a change at equal rates of false alarms, and false alarms with default settings.

Written by `make detection` (about two hours on two cores; DATA=folder with the paper's datasets adds two streams): the
setting with short quiet times into DETECTION.md, together with late changes and hazards, and the one with long quiet
times into DETECTION_LONG.md. The streams are those of changes.py. Finished parts are kept in the folder given by
--cache, so an interrupted run resumes where it stopped; a document is written only when all its parts are there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

import conformal_detectors
import detection_long
import own_detectors
import peers
import river_binary
import river_paths
from changes import changes, held_out
from detection_runs import AFTER, FAMILIES, LONG, RATE, SHORT, Bench, Runs, Setting, kind
from detection_store import Store
from detection_text import AllResults, Reader, hazard_section, late_section, setting_section, summary
from detection_verdicts import Result, result
from detectors import BINARY, UNIT
from workloads import heading

SETTINGS = {setting.label: setting for setting in (SHORT, LONG)}
DOCUMENTS = {SHORT.label: "DETECTION.md", LONG.label: "DETECTION_LONG.md"}
MOST = {"moderate": Runs(200, 200, 60), "small": Runs(40, 20, 6)}  # runs of a trial, at most


INTRODUCTION = f"""
Every tool has one knob, which is set on runs without a change so that {100 * RATE:.0f} % of them have an alarm within
the first 1,000 steps (setting a, in DETECTION.md) or 10,000 steps (setting b, in DETECTION_LONG.md). The change then
comes at a random time, the same for all tools, and the run goes on for {AFTER:,} steps. Every tool sees the same
numbers; the martingales, ours and those of other libraries, see the same exact p-values of `measures.Value`. A run
with an alarm before the change is left out; a run without an alarm counts as {AFTER:,}.

*Our choice* depends only on the kind of data, never on the result: `RateMonitor` for zeros and ones and for ratings,
otherwise `Sentinel`. *Difference*: how much longer ours takes than the best of the others, which is the one with the
smallest mean delay on that stream; 95 % interval of the mean over the runs in which neither raised an alarm before
the change (bootstrap). *First*: the interval is below 0; *level*: it contains 0; *close*: it is above 0, and ours
takes at most a tenth longer; *behind*: the rest. With more runs intervals become shorter, and *level* rarer. Streams
held out were written down before `Sentinel` and `RateMonitor` were made, and never used to choose anything; the
others were looked at.

*limit*: a Shiryaev-Roberts statistic that knows the distributions before and after the change, at the same rate of
false alarms; *limit by ranks*: one that knows both distributions but sees only the ranks of the numbers, as
`Sentinel` does, while `RateMonitor` sees the values (`limits.py`; empty where the distribution after the change is
not constant). Where new values tie with each other (*stuck at 0*), ranks hold more than this second limit uses.

The other tools: river's detectors for numbers (ADWIN, KSWIN, PageHinkley), for numbers in [0, 1] (HDDM_A, HDDM_W; by
default they watch for larger numbers only, so two-sided versions are included as well), and for 0 and 1 (DDM, EDDM,
FHDDM). CUSUM, GeometricMovingAverage, RDDM, ECDD-WT and STEPD of frouros, which requires Python < 3.13, numpy < 2.2
and scipy < 1.15, so it cannot be installed next to the others. Its detectors are computed from their definitions,
which have been compared with frouros 0.9, alarm by alarm, in an environment of its own (`frouros_paths.check`). Its
BOCD is left out: it keeps n^2 numbers, and its decision has no threshold. Generalised likelihood ratios (`glr.py`)
for the mean of normal numbers, for their mean and variance, and for 0 and 1, with unknown parameters before and
after, each in two versions: with changes of any age, and only with changes that are at least 20 steps old. The
martingales of MAPIE, crepes, online-cp and nonconform, and the Shiryaev-Roberts and CUSUM statistics of nonconform's
SimpleJumper (online-cp has both statistics too); their kernel plug-ins are left out, as hundreds of runs would take
hours. Left out of setting (b) because they are slow: nonconform's own martingales. One-sided tools, which watch only
for larger numbers, need less evidence when the numbers become larger, and find nothing when they become smaller.
"""


class Amount(NamedTuple):
    """How many long runs there are: with a late change, and without a change."""

    late: int
    hazard: int


AMOUNTS = {"full": Amount(60, 400), "moderate": Amount(20, 100), "small": Amount(4, 20)}


def fewer(setting: Setting, most: Runs) -> Setting:
    """The same setting with at most so many runs."""
    runs = {name: Runs(*map(min, lot, most)) for name, lot in setting.runs.items()}
    return setting._replace(runs=runs)


def check(folder: str | None, names: Sequence[str]) -> None:
    """Raise an error unless the statistics of other tools raise alarms when these tools do, on each stream."""
    for name in names:
        x = changes(folder)[name](np.random.default_rng(3), 500, 300)
        river_paths.check(x)
        own_detectors.check(x)
        if kind(folder, name) == BINARY:
            river_binary.check(x)
        elif kind(folder, name) == UNIT:
            river_binary.check_hddm(x)
    if peers.version("crepes"):
        conformal_detectors.check(1.0 - np.random.default_rng(4).random(700))


def measured(bench: Bench, setting: Setting, names: Sequence[str]) -> AllResults:
    """Every tool on every stream."""
    results: dict[str, dict[str, Result]] = {name: {} for name in names}
    for name in names:
        print(f"setting ({setting.label}), {name}", file=sys.stderr, flush=True)
        for family in FAMILIES:
            if family in setting.runs:
                found = bench.found(setting, family, name)
                results[name] |= {tool: result(one, name, setting.before) for tool, one in found.items()}
    return results


def introduction() -> str:
    """What is measured, and which tools are there; each paragraph on one line."""
    return "\n\n".join(" ".join(part.split()) for part in INTRODUCTION.split("\n\n")) + "\n"


def definitions(folder: str | None) -> str:
    """What the streams are."""
    lines = [f"- {name}: {' '.join((change.__doc__ or '').split())}" for name, change in changes(folder).items()]
    return "## The streams\n\n" + "\n".join(lines) + "\n"


def warm(folder: str | None) -> None:
    """Fit the classifiers, once in each process."""
    changes(folder)


def document(bench: Bench, given: argparse.Namespace, setting: Setting, names: Sequence[str]) -> str:
    """The document of one setting; late changes and hazards, at default settings, stand in that of the short one."""
    is_short = setting.label == SHORT.label
    reader = Reader(given.data, measured(bench, setting, names), is_steady_known=is_short)
    parts = [introduction(), summary({setting.label: reader}), *setting_section(setting, reader)]
    if is_short and not given.skip_long:
        amount = AMOUNTS[given.runs]
        parts.append(late_section(detection_long.late(bench, amount.late), amount.late))
        parts.append(hazard_section(detection_long.hazards(bench, amount.hazard), amount.hazard))
    libraries = ("numpy", "scipy", "river", *(name for name in peers.LIBRARIES if peers.version(name)))
    title = f"Detection, {setting.before:,} quiet steps"
    return "\n".join([heading(title, "make detection", libraries), *parts, definitions(given.data)])


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description="Delay of detection at one rate of false alarms")
    parser.add_argument("--data", help="folder with the paper's datasets: adds USPS and Satellite")
    parser.add_argument("--cache", type=Path, help="folder that keeps finished parts; an interrupted run goes on")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    trial = parser.add_argument_group("trials", "with any of these the text is printed and nothing is written")
    trial.add_argument("--only", nargs="*", default=[], help="these streams only")
    trial.add_argument("--without-held-out", action="store_true", help="not the streams that are held out")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    trial.add_argument("--runs", default="full", choices=list(AMOUNTS))
    trial.add_argument("--skip-long", action="store_true", help="no late changes, no hazards")
    return parser


def main() -> None:
    """Run what is asked for."""
    given = options().parse_args()
    names = [name for name in changes(given.data) if not given.only or name in given.only]
    names = [name for name in names if not given.without_held_out or name not in held_out()]
    settings = {label: SETTINGS[label] for label in given.settings}
    if given.runs != "full":
        settings = {label: fewer(setting, MOST[given.runs]) for label, setting in settings.items()}
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # of the processes to come: one each
        os.environ.setdefault(threads, "1")
    check(given.data, names)
    whole = len(names) == len(changes(given.data)) and given.runs == "full" and not given.skip_long
    modules = {module for family in FAMILIES.values() for module in family.modules} | set(detection_long.MODULES)
    with get_context("spawn").Pool(given.processes, warm, (given.data,)) as pool:
        bench = Bench(pool, given.data, Store(given.cache, modules))
        for label, setting in settings.items():
            text = document(bench, given, setting, names)
            if whole:
                Path(__file__).with_name(DOCUMENTS[label]).write_text(text, encoding="utf-8")
            print(text)


if __name__ == "__main__":
    main()
