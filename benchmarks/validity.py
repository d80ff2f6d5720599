"""False alarms of everything that we ship, on exchangeable data, and of the peers: writes VALIDITY.md beside this file.

``python benchmarks/validity.py [--runs N] [--seed N] [--out FILE]``; ends with exit code 1 if a promise is broken.
``--only entry-points`` or ``--only live`` runs only these, and replaces their section of the document.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

import false_alarms
import peers
from entry_points import LIVE, LIVE_TEMPTING, SCENARIOS, TEMPTING
from exchangeable import PValues, alarms, catalogue, measures
from exchangeable.protocols import Alarm, Floats, Measure
from exchangeable.research import binomial, certificate
from exchangeable.research.certificate import Certificate, Survey, certify_all
from exchangeable.research.simulated import DATA, simulate
from false_alarms import AGAIN, AGAIN_CONFIDENCE
from workloads import heading, table

ALPHA, STEPS, RUNS = 0.1, 200, 2000  # at 10 % half the runs show an excess that at 5 % take 4,000, and more runs alarm
PERIOD, LONG, LONG_RUNS = 100.0, 2000, 300  # of the mean time to a false alarm: examples, steps, runs
PEER_STEPS = 300  # of peers that fit a model on a part of them
BUDGET = 15.0  # seconds of one core for a peer on one kind of data
PIECE = 20  # runs of one piece of a peer's work
WORKERS = min(os.cpu_count() or 1, 8)


# ------------------------------------------------------------------ what we ship, besides the names of the catalogue


def five_neighbours() -> Measure:
    return measures.NearestNeighbour(5)


def frozen_bins() -> Measure:
    return measures.Frozen(bins=16, reference=np.linspace(-3.0, 6.0, 200))


def conditional_value() -> Measure:
    return measures.Conditional(measures.Value())


def short_cusum() -> Alarm:
    return alarms.Cusum(PERIOD)


def short_shiryaev_roberts() -> Alarm:
    return alarms.ShiryaevRoberts(PERIOD)


MEASURES: list[certificate.Factory] = [*catalogue.MEASURES, five_neighbours, frozen_bins, conditional_value]
BETS: list[certificate.Factory] = [*catalogue.BETS]
ALARMS: list[certificate.Factory] = [*catalogue.ALARMS]


# ------------------------------------------------------------------ ours


class Ours(NamedTuple):
    cells: list[Certificate]
    again: list[Certificate]  # those that looked broken, run afresh
    long: list[Certificate]  # for the mean time


def ours(runs: int, seed: int, progress: certificate.Progress) -> Ours:
    surveys = [Survey(MEASURES, BETS, ALARMS, data, runs, STEPS, ALPHA, seed) for data in DATA]
    cells = certify_all(surveys, processes=WORKERS, progress=progress)
    made = {certificate.display_name(one): one for one in (*MEASURES, *BETS, *ALARMS)}
    doubtful = [
        Survey([made[c.measure]], [made[c.bet]], [made[c.alarm]], c.data, AGAIN * runs, STEPS, ALPHA, seed + 1)
        for c in cells
        if c.verdict == "BROKEN"
    ]
    short: list[certificate.Factory] = [short_cusum, short_shiryaev_roberts]
    watched = Survey(["value"], BETS, short, "ties", max(2, runs * LONG_RUNS // RUNS), LONG, ALPHA, seed)
    return Ours(
        cells,
        certify_all(doubtful, processes=WORKERS, progress=progress) if doubtful else [],
        certify_all([watched], processes=WORKERS, progress=progress),
    )


def broken(found: Ours) -> list[Certificate]:
    """The cells that were found broken twice, and the mean times that are too short."""
    twice = [c for c in found.again if binomial.interval(c.false_alarms, c.runs, AGAIN_CONFIDENCE)[0] > c.promise]
    return twice + [c for c in found.long if too_short(c)]


def too_short(c: Certificate) -> bool:
    """Whether the mean time lies below the promise by more than four standard errors."""
    return c.mean_time + 4.0 * c.mean_time_error < PERIOD


# ------------------------------------------------------------------ the peers


class Counted(NamedTuple):
    """A peer on one kind of data."""

    peer: peers.Peer
    data: str
    runs: int
    steps: int
    alarms: int
    odd: int  # runs with a NaN or an infinity
    failed: int  # runs that ended with an exception


Task = tuple[int, str, int, int, int]  # which peer, kind of data, first run, one after the last, seed


def everyone() -> list[peers.Peer]:
    return [*peers.PATHS, *peers.STREAMS]


def kinds(peer: peers.Peer) -> tuple[str, ...]:
    """One kind of data without ties and one with; peers that bet on p-values get exact ones.

    Not the labelled kind: models of other libraries refuse a class that was not in their training part.
    """
    if isinstance(peer, peers.OnPValues):
        return ("ties",)
    return ("continuous", "categorical") if peer.takes == "labelled" else ("continuous", "ties")


def steps(peer: peers.Peer) -> int:
    return STEPS if isinstance(peer, peers.OnPValues) else PEER_STEPS


def peer_path(peer: peers.Peer, data: str, run: int, seed: int) -> Floats:
    """The log capital of one run."""
    drawn, theta = simulate(data, steps(peer), seed=seed, run=run)
    if isinstance(peer, peers.OnPValues):
        return peers.quietly(peer.path, PValues(measures.Value(), seed=theta).extend(drawn.numbers))
    codes = np.unique(drawn.labels, return_inverse=True)[1].astype(np.int64)
    X = drawn.numbers[:, np.newaxis] if peer.takes == "scores" else drawn.rows
    return peers.quietly(peer.stream, X, codes, theta % 2**31)


def peer_piece(task: Task) -> tuple[int, str, int, int, int]:
    which, data, start, stop, seed = task
    peer = everyone()[which]
    alarmed = odd = failed = 0
    for run in range(start, stop):
        try:
            path = peer_path(peer, data, run, seed)
        except Exception:  # noqa: BLE001
            failed += 1
            continue
        alarmed += peers.sounds(peer, path, ALPHA)
        odd += not np.isfinite(path).all()
    return which, data, alarmed, odd, failed


def peer_runs(peer: peers.Peer, runs: int) -> int:
    """As many runs as the budget of time allows, at least 100."""
    return max(min(100, runs), min(runs, int(runs / RUNS * BUDGET / (peer.cost * steps(peer)))))


def count_peers(runs: int, seed: int, progress: certificate.Progress) -> list[Counted]:
    """Every installed peer; one that looks broken is run again on fresh data, and the second count is what counts."""
    here = [(i, data) for i, peer in enumerate(everyone()) if peers.version(peer.library) for data in kinds(peer)]
    first = _counted(here, runs, seed, progress)
    doubtful = [pair for pair, one in first.items() if judged(one).verdict == "BROKEN"]
    return list((first | _counted(doubtful, runs, seed + 1, progress)).values())


def _counted(
    pairs: Sequence[tuple[int, str]], runs: int, seed: int, progress: certificate.Progress
) -> dict[tuple[int, str], Counted]:
    number = {i: peer_runs(everyone()[i], runs) for i, _ in pairs}
    tasks = [(i, data, lo, min(lo + PIECE, number[i]), seed) for i, data in pairs for lo in range(0, number[i], PIECE)]
    sums = {pair: np.zeros(3, np.int64) for pair in pairs}
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for done, future in enumerate(as_completed([pool.submit(peer_piece, task) for task in tasks]), start=1):
            i, data, *counts = future.result()
            sums[i, data] += counts
            progress("peers", done, len(tasks))
    return {
        (i, data): Counted(everyone()[i], data, number[i], steps(everyone()[i]), *total.tolist())
        for (i, data), total in sums.items()
    }


def judged(c: Counted) -> Certificate:
    """By the runs that came to an end."""
    ended = max(1, c.runs - c.failed)
    return Certificate("", c.peer.name, "", c.data, ended, c.steps, ALPHA, c.alarms, 0.0, 0.0)


# ------------------------------------------------------------------ the entry points


class Entries(NamedTuple):
    found: false_alarms.Found
    tempting: list[false_alarms.Counted]  # not promised


def entries(kind: str, runs: int, seed: int, progress: certificate.Progress) -> Entries:
    scenarios, tempting = (SCENARIOS, TEMPTING) if kind == "entry-points" else (LIVE, LIVE_TEMPTING)
    share = runs / RUNS
    found = false_alarms.judge(scenarios, seed, share=share, processes=WORKERS, progress=progress)
    return Entries(found, false_alarms.count(tempting, seed, share, WORKERS, progress))


SECTIONS = {"entry-points": false_alarms.ENTRY_POINTS, "live": false_alarms.LIVE_MONITORS}


def sections(entered: dict[str, Entries]) -> list[str]:
    return [false_alarms.section(SECTIONS[kind], *one) for kind, one in entered.items()]


# ------------------------------------------------------------------ the document


def percent(value: float) -> str:
    return f"{100.0 * value:.2f}"


def span(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"


def headline(found: Ours) -> str:
    cells = found.cells
    again = [", ".join(c[:4]) for c in broken(found)]
    worst = max(cells, key=lambda c: c.rate / c.promise)
    power = min(c.power for c in cells)
    mistaken = 0.5 * (1.0 - binomial.CONFIDENCE) * 0.5 * (1.0 - AGAIN_CONFIDENCE)
    verdict = "Every promise was kept." if power >= certificate.POWER else "Too few runs to certify anything."
    if again:
        verdict = f"**{len(again)} PROMISES WERE BROKEN.** " + "; ".join(again) + "."
    return (
        f"{verdict} {len(cells):,} combinations of {len(MEASURES)} measures, {len(BETS)} bets, {len(ALARMS)} alarms and"
        f" {len(DATA)} kinds of exchangeable data, {cells[0].runs:,} simulated sequences each: "
        f"{sum(c.false_alarms for c in cells):,} false alarms in {sum(c.runs for c in cells):,} runs. Promised:"
        f" at most {percent(ALPHA)} % of the runs. The largest rate measured is {percent(worst.rate)} % (99 % interval"
        f" {span(*worst.interval)}; {worst.measure}, {worst.bet}, {worst.alarm}, {worst.data}).\n\n"
        f"A rate of {binomial.EXCESS} times the promise would have been noticed in each combination with probability"
        f" {power:.3f} (exact binomial power). A combination is suspected if its exact 99 % interval (Clopper-Pearson)"
        f" lies above the promise, and found broken if {AGAIN} times the runs on fresh data give a"
        f" {100.0 * AGAIN_CONFIDENCE:g} % interval above it too: a promise just kept fails both with probability below"
        f" {mistaken:.1g}, so that even if all were just kept, a false verdict anywhere in the table has probability"
        f" below {mistaken * len(cells):.2g}. Suspected this time: {len(found.again)}.\n"
    )


def by_kind(cells: Sequence[Certificate]) -> str:
    rows = []
    for data in DATA:
        own = [c for c in cells if c.data == data]
        worst = max(own, key=lambda c: c.rate)
        total = sum(c.false_alarms for c in own) / sum(c.runs for c in own)
        rows.append(
            [data, f"{own[0].steps}", f"{len(own)}", percent(total), percent(worst.rate), span(*worst.interval)]
        )
        rows[-1].append(f"{worst.measure}, {worst.bet}, {worst.alarm}".replace("_", "-"))
    columns = ["data", "steps", "combinations", "mean rate, %", "worst, %", "99 % interval", "of"]
    kinds_ = "\n".join(f"- *{name}*: {first_line(make)}" for name, make in DATA.items())
    return f"## By kind of data\n\n{kinds_}\n\n" + table(columns, rows)


def first_line(function: object) -> str:
    return (function.__doc__ or "").split("\n")[0]


def by_alarm(cells: Sequence[Certificate]) -> Iterator[str]:
    yield (
        "## Measure x bet x alarm: the worst kind of data\n\nFalse alarms in % of the runs; promised: at most"
        f" {percent(ALPHA)}. Finite runs use up only a part of what Ville's inequality allows for ever, and Cusum's"
        " bound is generous by nature: rates below the promise are expected. Cautious and idle bets"
        " hardly bet.\n"
    )
    names = [certificate.display_name(made) for made in MEASURES]
    for alarm in map(certificate.display_name, ALARMS):
        rows = []
        for bet in map(certificate.display_name, BETS):
            own = [c for c in cells if c.alarm == alarm and c.bet == bet]
            rows.append([bet, *(percent(max(c.rate for c in own if c.measure == measure)) for measure in names)])
        setting = f"Ville({ALPHA})" if alarm == "ville" else f"period = steps / {ALPHA}"
        silent = {cell for row in rows for cell in row[1:]} == {percent(0.0)}
        text = "No alarm in any run.\n" if silent else table(["bet", *(name.replace("_", "-") for name in names)], rows)
        yield f"### {alarm} ({setting})\n\n{text}"


def mean_time(long: Sequence[Certificate]) -> str:
    rows = []
    for bet in map(certificate.display_name, BETS):
        row = [bet]
        for c in (c for c in long if c.bet == bet):
            text = f"{c.mean_time:,.0f} +- {2.576 * c.mean_time_error:,.0f}"
            row.append(text + " **BROKEN**" * too_short(c))
        rows.append(row)
    return (
        f"## Mean time to a false alarm\n\nPromised: at least {PERIOD:g} examples. Measured over {long[0].runs:,} runs"
        f" of at most {LONG:,} examples (ties, ranked by value; a run without an alarm counts {LONG:,}, so this is less"
        " than the true mean), with 99 % error; broken if four standard errors below the promise.\n\n"
        + table(["bet", f"Cusum({PERIOD:g})", f"ShiryaevRoberts({PERIOD:g})"], rows)
    )


def side_by_side(counted: Iterable[Counted], cells: Sequence[Certificate]) -> str:
    rows = [_our_row(cells, measure, bet, data) for measure, bet, data in OUR_ROWS]
    rows += [_peer_row(one) for one in counted]
    missing = [f"{name}: not installed here." for name in peers.LIBRARIES if peers.version(name) is None]
    columns = ["library", "from", "data", "runs", "steps", "rate, %", "99 % interval", "verdict"]
    return (
        "## Side by side with other libraries\n\n"
        f"The same data, the same promise ({peers.VILLE}, alpha = {ALPHA}, which all of them state), each library used"
        " as its documentation tells (`benchmarks/peers.py`). Those that bet on p-values are given exact ones. Slow"
        " ones get fewer runs; *undecided* means: no excess seen, but too few runs to exclude"
        f" {binomial.EXCESS} times the promise, or to see it with probability {certificate.POWER}. *Not finite*:"
        " runs in which the reported capital was NaN or infinite (or 0, whose log is). A peer that fits a model does so"
        " on the first part of the steps and bets on the rest. MAPIE judges from its 100th p-value on, by capital"
        " *above* 1/alpha. A peer that looked broken was run again on fresh data, and the second count is shown.\n\n"
        + table([*columns, "not finite", "failed"], rows)
        + "".join(f"\n{line}" for line in missing)
        + ("\n" if missing else "")
    )


OUR_ROWS = (
    ("value", "simple-jumper", "ties"),
    ("value", "plugin", "ties"),
    ("value", "adaptive", "ties"),
    ("value", "adaptive", "continuous"),
    ("nearest-neighbour", "adaptive", "continuous"),
    ("nearest-neighbour", "adaptive", "categorical"),
)


def _our_row(cells: Sequence[Certificate], measure: str, bet: str, data: str) -> list[str]:
    c = next(c for c in cells if (c.measure, c.bet, c.alarm, c.data) == (measure, bet, "ville", data))
    name = f"**exchangeable**, {measure}, {bet}"
    return [
        name,
        "examples",
        data,
        f"{c.runs:,}",
        f"{c.steps}",
        percent(c.rate),
        span(*c.interval),
        c.verdict,
        "0",
        "0",
    ]


def _peer_row(c: Counted) -> list[str]:
    own = judged(c)
    takes = "p-values" if isinstance(c.peer, peers.OnPValues) else c.peer.takes
    figures = [f"{c.runs:,}", f"{c.steps}", percent(own.rate), span(*own.interval), own.verdict]
    return [f"{c.peer.name} ({peers.version(c.peer.library)})", takes, c.data, *figures, f"{c.odd}", f"{c.failed}"]


def document(found: Ours, entered: dict[str, Entries], counted: Sequence[Counted], seconds: float) -> str:
    libraries = ["exchangeable", "numpy", *(name for name in peers.LIBRARIES if peers.version(name))]
    return "\n".join(
        [
            heading("Certificate of validity", "make validity", libraries) + f"It took {seconds / 60.0:.1f} minutes.\n",
            headline(found),
            *sections(entered),
            by_kind(found.cells),
            *by_alarm(found.cells),
            mean_time(found.long),
            side_by_side(counted, found.cells),
            "## How to run it\n\n`make validity` for all of this; `python benchmarks/validity.py --only entry-points`"
            " (or `live`) for a section; `exchangeable certify --measure value --bet plugin --alarm ville` for one"
            " combination of the catalogue; `exchangeable.research.certificate.certify` for your own"
            " measure, bet or alarm. One seed gives the same counts on any number of processes.\n",
        ]
    )


def replace_section(text: str, section: str) -> str:
    """Return the document with a new version of one of its sections."""
    heading = section.split("\n")[0]
    if heading not in text:  # a new one comes before that of the kinds of data
        return text.replace("## By kind of data", f"{section}\n## By kind of data", 1)
    start = text.index(heading)
    return text[:start] + section + text[text.index("\n## ", start) :]


def show(what: str, done: int, total: int) -> None:
    """A line on stderr that moves where that is a terminal, else one line for each tenth."""
    if sys.stderr.isatty():
        print(
            f"\r{what}: {done:,} of {total:,} ({100 * done // total} %) ", end="\n" * (done == total), file=sys.stderr
        )
    elif 10 * done // total != 10 * (done - 1) // total:
        print(f"{what}: {100 * done // total} %", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=first_line(sys.modules[__name__]))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("VALIDITY.md"))
    parser.add_argument("--only", choices=list(SECTIONS))
    chosen = parser.parse_args(words)
    start = time.perf_counter()
    kinds = [chosen.only] if chosen.only else list(SECTIONS)
    entered = {kind: entries(kind, chosen.runs, chosen.seed, show) for kind in kinds}
    broken_entries = any(one.found.broken for one in entered.values())
    if chosen.only:
        text = replace_section(chosen.out.read_text(encoding="utf-8"), *sections(entered))
        chosen.out.write_text(text, encoding="utf-8")
        sys.exit(broken_entries)
    found = ours(chosen.runs, chosen.seed, show)
    counted = count_peers(chosen.runs, chosen.seed, show)
    text = document(found, entered, counted, time.perf_counter() - start)
    chosen.out.write_text(text, encoding="utf-8")
    print(text)
    sys.exit(bool(broken(found) or broken_entries))


if __name__ == "__main__":
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # of the processes to come, which use all cores already
    main()
