"""Drift detectors inside models of river: accuracy, drifts, delays and time; writes MODELS.md.

``make models`` takes about forty minutes on two cores. The streams are those of model_streams.py, models
and detectors those of model_runs.py. Each example is predicted and then learnt.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from detection_store import digest
from model_runs import DETECTORS, MODELS, RETRAINED, TREES, WINDOW, Run, play
from model_streams import STREAMS
from workloads import best, heading, table

DOCUMENT = Path(__file__).with_name("MODELS.md")
SEEDS, FIRST_SEED = 5, 10  # the seeds before were used to develop ``direction``
Floats = NDArray[np.float64]
Key = tuple[str, str]  # a stream and a model
Runs = Mapping[Key, Mapping[str, Sequence[Run]]]  # for each detector, a run for each seed

EVERYWHERE = ["none", "ADWIN", "DDM", "PageHinkley", "alpha", "10,000", "10,000, up", "rate, up"]
RISES = ["ADWIN, rises", "rate"]
PERIODS = ["1,000", "10,000", "100,000"]
BACKGROUND = ["DDM, background", "10,000, background", "10,000, up, background"]
BETS = ["alpha, up", "Sentinel, Ville", "Adaptive, Ville, 0.1", "Adaptive, ShiryaevRoberts", "10,000, up"]
CHANGING = [name for name, stream in STREAMS.items() if stream.changes]
ABRUPT = [name for name in CHANGING if not STREAMS[name].width]
FEWER = [*ABRUPT, "RBF", "Hyperplane", "Agrawal, no change", "Phishing", "ImageSegments"]
TREE = "Hoeffding tree"
LABELS = {
    "alpha": "`alpha=0.01`",
    "alpha, up": '`alpha=0.01, direction="up"`',
    "Sentinel, Ville": "Sentinel, `Ville(0.01)`",
    "Adaptive, Ville, 0.1": "Adaptive, `Ville(0.1)`",
    "Adaptive, ShiryaevRoberts": "Adaptive, `ShiryaevRoberts(10_000)`",
    "ADWIN, rises": "ADWIN, rises only",
    "rate": "`rate=True`",
    "rate, up": '`rate=True, direction="up"`',
}


def label(name: str) -> str:
    """Return how a detector is written in the document: numbers are periods."""
    if name[0].isdigit():
        length, *words = name.split(", ")
        number = f"{int(length.replace(',', '')):_}"
        mode = ', direction="up"' if "up" in words else ""
        return f"`period={number}{mode}`" + (", background" if "background" in words else "")
    return LABELS.get(name, name)


# ------------------------------------------------------------------ runs


def detectors(stream: str, model: str) -> list[str]:
    """Return the detectors that play on a stream inside a model."""
    names = list(EVERYWHERE)
    if model in RETRAINED:
        names += RISES
    if model == TREE:
        names += BETS if stream in ABRUPT else []
        names += [*PERIODS, *(f"{period}, up" for period in PERIODS), *BACKGROUND]
    return list(dict.fromkeys(names))


def streams(model: str) -> list[str]:
    """Return the streams of a model: all for the Hoeffding tree, fewer for the others, which are slower."""
    return [name for name in STREAMS if model == TREE or name in FEWER]


def one(job: tuple[str, str, int]) -> dict[str, Run]:
    """Play one stream to one model with each detector."""
    name, model, seed = job
    stream = STREAMS[name]
    examples = stream.draw(seed)
    return {
        detector: play(model, detector, examples, stream.changes or (), seed) for detector in detectors(name, model)
    }


def kept_runs() -> Path:
    """Return the file of finished runs; it has another name whenever the code that they depend on has changed."""
    modules = ("model_runs", "model_streams", "river adapter", "exchangeable", "river", "numpy")
    text = "".join(map(digest, modules))
    return Path("out") / f"models-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"


def measure(seeds: int, processes: int, keep: Path) -> Runs:
    """Play everything that is not in the file ``keep`` yet: a line of JSON for each stream, model and seed."""
    keys = [(name, model) for model in MODELS for name in streams(model)]
    jobs = [(*key, FIRST_SEED + seed) for key in keys for seed in range(seeds)]
    kept = [json.loads(line) for line in keep.read_text().splitlines()] if keep.exists() else []
    found = {tuple(job): {name: Run(**run) for name, run in runs.items()} for job, runs in kept}
    todo = [job for job in jobs if job not in found]
    with get_context("spawn").Pool(processes) as pool, keep.open("a") as file:
        for job, runs in zip(todo, pool.imap(one, todo), strict=True):
            found[job] = runs
            print(json.dumps([job, {name: asdict(run) for name, run in runs.items()}]), file=file, flush=True)
            print(*job, {name: round(100 * run.accuracy, 1) for name, run in runs.items()}, flush=True)
    return {
        key: {name: [found[*key, FIRST_SEED + seed][name] for seed in range(seeds)] for name in found[*key, FIRST_SEED]}
        for key in keys
    }


# ------------------------------------------------------------------ arithmetic


def interval(values: Floats) -> tuple[float, float]:
    """Return the mean and half of the 95 % interval by Student's t; values that are all equal have none."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(stats.t.ppf(0.975, max(1, len(values) - 1)) * error)


def accuracies(runs: Runs, stream: str, model: str, detector: str) -> Floats:
    return np.array([100.0 * run.accuracy for run in runs[stream, model][detector]])


def gains(runs: Runs, stream: str, model: str, detector: str, other: str = "ADWIN") -> Floats:
    """Return the differences of accuracy, seed by seed, in points."""
    return accuracies(runs, stream, model, detector) - accuracies(runs, stream, model, other)


def overall(runs: Runs, model: str, detector: str, names: Sequence[str], other: str = "ADWIN") -> Floats:
    """Return the mean difference over streams, for each seed."""
    mean: Floats = np.array([gains(runs, name, model, detector, other) for name in names]).mean(axis=0)
    return mean


def split(run: Run, stream: str) -> tuple[list[int], int, int]:
    """Return the delays of the changes that were found, how many were not, and the number of false alarms.

    A change is found by the first signal between it and the next one. Further signals are false alarms, except for
    those within a gradual change.
    """
    changes, width = STREAMS[stream].changes or (), STREAMS[stream].width
    delays, missed, right = [], 0, 0
    for change, end in pairwise([*changes, run.length]):
        inside = [signal for signal in run.signals if change <= signal < end]
        delays += [inside[0] - change] if inside else []
        missed += not inside
        right += max(bool(inside), sum(signal < change + width for signal in inside))
    return delays, missed, len(run.signals) - right


def verdict(values: Floats) -> str:
    mean, half = interval(values)
    return "level" if abs(mean) <= half or abs(mean) < 0.005 else ("ahead" if mean > 0 else "behind")


def shown(values: Floats, sign: str = "") -> str:
    mean, half = interval(values)
    return f"{mean:{sign}.2f} ± {half:.2f}"


# ------------------------------------------------------------------ the document


def summary(runs: Runs) -> str:
    """Each detector against ADWIN, over all streams."""
    rows = []
    for detector in [*EVERYWHERE, *RISES]:
        cells = []
        for model in MODELS:
            names = [name for name in streams(model) if detector in runs[name, model]]
            if not names or detector == "ADWIN":
                cells.append("")
                continue
            verdicts = [verdict(gains(runs, name, model, detector)) for name in names]
            counts = ", ".join(str(verdicts.count(word)) for word in ("ahead", "level", "behind"))
            cells.append(f"{shown(overall(runs, model, detector, names), '+')} ({counts})")
        rows.append([label(detector), *cells])
    rows = [row for row in rows if row[0] != "ADWIN"]
    return table(["detector", *MODELS], rows)


def by_stream(runs: Runs, model: str, names: Sequence[str], cell: Callable[[str, str], str]) -> str:
    columns = [name for name in names if any(name in runs[stream, model] for stream in streams(model))]
    rows = [[stream, *(cell(stream, name) for name in columns)] for stream in streams(model)]
    return table(["stream", *map(label, columns)], rows)


def of_model(runs: Runs, model: str) -> list[str]:
    names = [*EVERYWHERE, *RISES]
    return [
        f"## {model[0].upper()}{model[1:]}\n",
        "Accuracy in percent:\n",
        by_stream(runs, model, names, lambda stream, name: shown(accuracies(runs, stream, model, name))),
        "Difference from ADWIN in percentage points:\n",
        by_stream(
            runs,
            model,
            [name for name in names if name != "ADWIN"],
            lambda stream, name: shown(gains(runs, stream, model, name), "+"),
        ),
        "Drifts signalled, mean of the seeds"
        + (", and in brackets those at which the error rate had fallen:\n" if model in RETRAINED else ":\n"),
        by_stream(runs, model, names[1:], lambda stream, name: signalled(runs[stream, model][name], model)),
    ]


def signalled(runs: Sequence[Run], model: str) -> str:
    drifts = f"{np.mean([len(run.signals) for run in runs]):.1f}"
    return drifts + (f" ({np.mean([run.falls for run in runs]):.1f})" if model in RETRAINED else "")


def delays(runs: Runs, model: str) -> str:
    """Delays, changes that were missed, and false alarms, for each stream with known changes."""
    names = [*EVERYWHERE[1:], *RISES]
    rows = []
    for stream in [name for name in streams(model) if STREAMS[name].changes is not None]:
        rows.append([stream, *(delay(runs[stream, model][name], stream) for name in names)])
    return table(["stream", *map(label, names)], rows)


def delay(runs: Sequence[Run], stream: str) -> str:
    parts = [split(run, stream) for run in runs]
    false = f"{np.mean([false for _, _, false in parts]):.1f}"
    if not STREAMS[stream].changes:
        return f"/ {false}"
    found = [value for values, _, _ in parts for value in values]
    missed = np.mean([missed for _, missed, _ in parts]) / len(STREAMS[stream].changes or ())
    return f"{f'{np.mean(found):.0f}' if found else '-'} / {100 * missed:.0f} / {false}"


def total(runs: Runs, model: str, detector: str, what: Callable[[Run], float]) -> float:
    return float(sum(what(run) for stream in streams(model) for run in runs[stream, model][detector]))


def of_falls(runs: Runs) -> list[str]:
    """How many drifts are improvements, and what ignoring them does."""
    pairs = [("ADWIN", "ADWIN, rises"), ("10,000", "10,000, up"), ("rate", "rate, up")]
    rows = []
    for model in RETRAINED:
        for all_of_them, rises in pairs:
            drifts = total(runs, model, all_of_them, lambda run: len(run.signals))
            fell = total(runs, model, all_of_them, lambda run: run.falls)
            gain = overall(runs, model, rises, streams(model), other=all_of_them)
            rows.append([model, label(all_of_them), f"{drifts / len(gain):.0f}", f"{100 * fell / max(1.0, drifts):.0f}",
                         shown(gain, "+")])  # fmt: skip
    return [
        "## Drifts that are improvements\n",
        "The error rate of a model that learns falls, and a two-sided detector rightly reports it; but the model is "
        "then replaced by an untrained one, learns again, and causes the next report. All streams together: the number "
        f"of drifts per seed; the share of them at which the error rate of the last {WINDOW} examples (or of the "
        "second half of the examples since the previous drift, if these are fewer) was lower than before that; and "
        "what is gained by reporting only rises, in percentage points of accuracy. DDM reports only rises. `ADWIN, "
        "rises only` is not in river: it is eight lines in `benchmarks/model_runs.py`.\n",
        table(["model", "detector", "drifts", "falls, %", "gain from reporting only rises"], rows),
    ]


def of_bets(runs: Runs) -> list[str]:
    """Why alpha is late: bet and alarm exchanged one at a time."""
    shown_as = {"alpha, up": "Adaptive, `Ville(0.01)`", "10,000, up": "Sentinel, `ShiryaevRoberts(10_000)`"}
    rows = []
    for name in BETS:
        played = [(stream, run) for stream in ABRUPT for run in runs[stream, TREE][name]]
        parts = [split(run, stream) for stream, run in played]
        found = [value for values, _, _ in parts for value in values]
        missed = sum(missed for _, missed, _ in parts)
        capital = np.mean([value for _, run in played for value in run.capital])
        rows.append([shown_as.get(name, label(name)), f"{np.mean(found):.0f}", f"{np.median(found):.0f}",
                     f"{100 * missed / (missed + len(found)):.0f}", f"{np.mean([false for _, _, false in parts]):.1f}",
                     f"{capital:.1f}", shown(overall(runs, TREE, name, ABRUPT), "+")])  # fmt: skip
    return [
        "## Bets and alarms\n",
        f"The {TREE}, rises only, on the {len(ABRUPT)} streams with abrupt changes: delay, changes that were missed, "
        "false alarms per stream, the mean of log10 of the capital before the change, and the difference from ADWIN in "
        "percentage points of accuracy.\n",
        table(
            ["bet, alarm", "mean delay", "median delay", "missed, %", "false alarms", "log10 capital", "points"], rows
        ),
    ]


def of_periods(runs: Runs) -> list[str]:
    """The accuracy for each period."""
    model, rows = TREE, []
    for period in PERIODS:
        cells = []
        for name in (period, f"{period}, up"):
            values = [gains(runs, stream, model, name).mean() for stream in streams(model)]
            worst = int(np.argmin(values))
            cells += [shown(overall(runs, model, name, streams(model)), "+"), f"{np.median(values):+.2f}",
                      f"{values[worst]:+.2f} ({streams(model)[worst]})"]  # fmt: skip
        rows.append([period, *cells])
    both, up = "both directions", "rises only"
    columns = ["period", *(f"{mode}: {what}" for mode in (both, up) for what in ("mean", "median", "lowest"))]
    return [
        "## The period\n",
        f"The {model}, retrained: difference from ADWIN in percentage points, {len(streams(model))} streams.\n",
        table(columns, rows),
    ]


def of_background(runs: Runs) -> list[str]:
    model, rows = TREE, []
    for name in BACKGROUND:
        plain = name.removesuffix(", background")
        values = [gains(runs, stream, model, name, plain).mean() for stream in streams(model)]
        low, high = int(np.argmin(values)), int(np.argmax(values))
        extremes = [f"{values[i]:+.2f} ({streams(model)[i]})" for i in (low, high)]
        others = [overall(runs, model, name, streams(model), other) for other in ("ADWIN", plain)]
        rows.append([label(plain), *(shown(other, "+") for other in others), *extremes])
    return [
        "## A model in the background\n",
        "With `train_in_background=True` a second model learns from the examples with a warning, and takes over after "
        f"a drift. ADWIN and PageHinkley have no warnings. The {model}: percentage points of accuracy.\n",
        table(["detector", "vs. ADWIN", "vs. the same without background", "lowest", "highest"], rows),
    ]


def alone(name: str) -> float:
    """Time the detector alone, on errors of a rate of 20 %."""
    errors = (np.random.default_rng(0).random(20_000) < 0.2).astype(int).tolist()

    def work() -> None:
        detector = DETECTORS[name].drift(0)
        for error in errors:
            detector.update(error)

    return best(work)


def of_time(runs: Runs) -> list[str]:
    adwin, rows = alone("ADWIN"), []
    for name in EVERYWHERE:
        cells = []
        for model in MODELS:
            played = [runs[stream, model] for stream in streams(model) if name in runs[stream, model]]
            ratios = [a.seconds / b.seconds for one in played for a, b in zip(one[name], one["ADWIN"], strict=True)]
            cells.append(f"{np.exp(np.mean(np.log(ratios))):.2f}" if ratios else "")
        rows.append([label(name), *cells, "" if name == "none" else f"{alone(name) / adwin:.1f}"])
    return [
        "## Time\n",
        "Time for an example (prediction and learning) relative to the same model with ADWIN, geometric mean over "
        "streams and seeds; and the detector alone, on 20,000 errors. A model that is often replaced stays small and "
        "fast.\n",
        table(["detector", *MODELS, "detector alone"], rows),
    ]


def findings(runs: Runs) -> list[str]:
    """Where the new default is behind ADWIN, and by how much."""
    lines = []
    for name in ("10,000", "10,000, up", "rate, up"):
        behind = []
        for model in MODELS:
            for stream in streams(model):
                values = gains(runs, stream, model, name)
                if verdict(values) == "behind":
                    article = "" if model == "naive Bayes" else "the "
                    behind.append((float(values.mean()), f"{stream} with {article}{model} ({values.mean():+.2f})"))
        cells = sum(len(streams(model)) for model in MODELS)
        text = ", ".join(text for _, text in sorted(behind)) or "none"
        lines.append(f"- {label(name)} is behind ADWIN in {len(behind)} of {cells} pairs of stream and model: {text}.")
    return ["\n".join(lines) + "\n"]


def main(runs: Runs, seeds: int) -> str:
    definitions = [f"- {name}: {stream.definition}" for name, stream in STREAMS.items()]
    parts = [
        heading("Drift detectors inside models", "make models", ("river", "numpy", "exchangeable")),
        f"Every example of a stream is predicted and then learnt; {seeds} seeds. Intervals are 95 % intervals by "
        "Student's t over the seeds. The data that river ships are the same for every seed: there, intervals show "
        "only the random tie-breaking and the randomness of the model. Elec2, Insects and other data that river "
        "downloads are not used.\n",
        "*Naive Bayes* and *Hoeffding tree* are `DriftRetrainingClassifier` around `GaussianNB` and "
        "`HoeffdingTreeClassifier`, without a background model, which ADWIN does not support; *adaptive tree* is "
        f"`HoeffdingAdaptiveTreeClassifier`, *adaptive forest* `ARFClassifier` with {TREES} trees. River's detectors "
        "have their defaults; in the forest ADWIN has that of `ARFClassifier`, a delta of 0.001. `period=` and "
        "`alpha=` are `ExchangeabilityDetector`; `period=10_000` is its default, and `alpha=0.01` was the default in "
        "earlier versions; `rate=True` also has a period of 10,000. In the forest, the detector for warnings is ADWIN "
        "with delta 0.01, DDM with threshold 2, PageHinkley with threshold 25, and ours with alpha 0.1 or a tenth of "
        "the period.\n",
        "## Summary\n",
        "Difference from ADWIN in percentage points of accuracy, mean over the streams; in brackets the number of "
        "streams on which the detector is ahead of ADWIN, level with it (the interval contains 0, or the difference is "
        "below 0.005) and behind.\n",
        summary(runs),
        *findings(runs),
        *of_falls(runs),
        *of_bets(runs),
        *of_periods(runs),
        *of_background(runs),
        *of_time(runs),
        "## Delays and false alarms\n",
        "Mean delay of the changes that were found / changes that were missed, in percent / false alarms per stream. A "
        "change is found by the first drift between it and the next change; further drifts count as false alarms, "
        "except for those within a gradual change. Streams without a change show only false alarms.\n",
        *(f"### {model[0].upper()}{model[1:]}\n\n{delays(runs, model)}" for model in RETRAINED),
        *(part for model in MODELS for part in of_model(runs, model)),
        "## The streams\n",
        "10,000 examples each, except for LED and the data that river ships. Abrupt changes after 2,500, 5,000 and "
        "7,500 examples; gradual ones are river's `ConceptDriftStream` with a width of 1,000 at the same places.\n",
        "\n".join(definitions) + "\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Drift detectors inside models.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--keep", type=Path, default=kept_runs(), help="an interrupted run resumes from this file")
    options = parser.parse_args()
    options.keep.parent.mkdir(parents=True, exist_ok=True)
    text = main(measure(options.seeds, options.processes, options.keep), options.seeds)
    DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
