"""The functions and commands that users call, run on exchangeable data; `Risk` on losses with a mean up to its limit.

Each function returns the smallest level at which it raises an alarm, or whether it raises one at each of the levels.
For ``SCENARIOS`` the promise is that at every level the share of runs with an alarm is at most the level. For
``TEMPTING`` there is no such promise. No seed is drawn from the operating system here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import exchangeable as ex
import gamblers
import late
from exchangeable import bets, measures
from exchangeable.protocols import Bet, Floats, Integers, Measure
from exchangeable.rate import MISSED
from false_alarms import LEVELS, Outcome, Scenario

Generator = np.random.Generator


def any_seed(rng: Generator) -> int:
    return int(rng.integers(2**53))


def one_of(rng: Generator, options: Sequence[str | None]) -> str | None:
    return options[int(rng.integers(len(options)))]


def lowest(log_value: Floats) -> float:
    """Return the smallest level at which a martingale with this path is rejected."""
    return math.exp(-max(0.0, float(log_value.max())))


# ------------------------------------------------------------------ exchangeable tables


def mixed(rng: Generator, n: int) -> pd.DataFrame:
    """Return a table with floats, integers, categories and booleans, and labels that depend on them."""
    kind = rng.choice(3, n, p=(0.6, 0.3, 0.1))
    size = rng.normal(size=n) + kind
    return pd.DataFrame(
        {
            "size": size,
            "cost": 1000.0 * rng.standard_t(2.0, n),
            "count": rng.poisson(1.5, n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "flag": rng.random(n) < 0.1,
            "target": size + rng.normal(size=n),
            "kind": np.array(["a", "b", "c"])[kind],
        }
    )


def tied(rng: Generator, n: int) -> pd.DataFrame:
    """Return a table with few distinct values, a constant column, a duplicated column, and mostly repeated rows."""
    chosen = rng.integers(0, 2, n)
    frame = pd.DataFrame({"x": chosen, "stars": rng.integers(1, 4, n), "rare": rng.random(n) < 0.05, "still": 7.5})
    return frame.assign(again=frame["stars"], kind=np.where(rng.random(n) < 0.3, "a", "b"))


def untidy(rng: Generator, n: int) -> pd.DataFrame:
    """Return a table with missing values, dates, few different weeks, words for booleans, identifiers and free text."""
    frame = mixed(rng, n)
    frame["size"] = frame["size"].where(rng.random(n) < np.where(frame["size"] > 0.5, 0.6, 0.95))  # large ones are lost
    frame["colour"] = frame["colour"].where(rng.random(n) < 0.8)
    frame["kind"] = frame["kind"].where(rng.random(n) < 0.9)
    frame["shop"] = pd.Series(rng.choice(list("abcdefghijklmnopqrst"), n)).where(frame["count"] > 0)  # or text
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    words = rng.choice(["yes", "no"], n)
    return frame.assign(
        day=days.strftime("%Y-%m-%d"),
        week=rng.integers(1, 5, n),
        words=words,
        row=rng.permutation(n),
        text=rng.random(n),
    ).astype({"text": str})


@cache
def real() -> list[pd.DataFrame]:
    """Return tables from scikit-learn, with their labels in the column "target"."""
    from sklearn import datasets

    names = ("iris", "wine", "diabetes", "breast_cancer")
    frames = [getattr(datasets, f"load_{name}")(as_frame=True).frame for name in names]
    return [frame if name == "diabetes" else frame.astype({"target": str}) for name, frame in zip(names, frames)]  # noqa: B905


def rows_of(rng: Generator, frame: pd.DataFrame, n: int, *, repeated: bool = False) -> pd.DataFrame:
    """Draw rows at random, in random order; with replacement if ``repeated``."""
    return frame.iloc[rng.choice(len(frame), n, replace=repeated)]


# ------------------------------------------------------------------ one table


def table_mixed(label: str | None, rng: Generator) -> Outcome:
    return ex.test(mixed(rng, int(rng.integers(30, 80))), label).p_value


def table_tied(make: Callable[[], Bet], rng: Generator) -> Outcome:
    return ex.test(tied(rng, 60), one_of(rng, [None, "kind"]), bet=make()).p_value


def table_short(rng: Generator) -> Outcome:
    """Test a short table. Labels that are all equal or all different are refused, whatever the order of the rows."""
    frame, label = mixed(rng, int(rng.integers(3, 31))), one_of(rng, [None, "kind", "target", "count"])
    try:
        return ex.test(frame, label).p_value
    except ValueError as refusal:
        if not str(refusal).startswith("label"):
            raise
        return 1.0


def table_untidy(options: dict[str, Any], rng: Generator) -> Outcome:
    label = one_of(rng, [None, "kind", "target"])
    return ex.test(untidy(rng, int(rng.integers(40, 80))), label, **options).p_value


def table_ordered(rng: Generator) -> Outcome:
    """Test a table that is sorted by its values, in the order of a column with few different, random values."""
    return ex.test(untidy(rng, 60).sort_values("cost"), order="week").p_value


def table_column(rng: Generator) -> Outcome:
    return ex.test((rng.random(100) < 0.2).astype(float)).p_value


def table_real(rng: Generator, *, repeated: bool = False) -> Outcome:
    frame = real()[rng.integers(4)]
    return ex.test(rows_of(rng, frame, int(rng.integers(30, 60)), repeated=repeated), "target").p_value


# ------------------------------------------------------------------ two sets


def split(rng: Generator, frame: pd.DataFrame, share: float = 0.3, by: str | None = None) -> list[pd.DataFrame]:
    """Split at random into a larger and a smaller set; with ``by``, both have the same share of each class."""
    parts = [frame] if by is None else [part for _, part in frame.groupby(by)]
    orders = [(part, rng.permutation(len(part)), round(share * len(part))) for part in parts]
    larger = pd.concat([part.iloc[order[m:]] for part, order, m in orders])
    return [larger, pd.concat([part.iloc[order[:m]] for part, order, m in orders])]


def check_sorted(seeded: bool, rng: Generator) -> Outcome:
    """Compare two sets that are sorted after the split."""
    column = rng.choice(["size", "colour", "kind"])
    larger, smaller = (part.sort_values(column) for part in split(rng, mixed(rng, 90)))
    return ex.compare(larger, smaller, "kind", seed=any_seed(rng) if seeded else None).p_value


def check_untidy(missing: str, rng: Generator) -> Outcome:
    larger, smaller = split(rng, untidy(rng, 90))
    return ex.compare(larger, smaller, one_of(rng, [None, "kind"]), missing=missing).p_value


def check_tied(make: Callable[[], Bet], rng: Generator) -> Outcome:
    larger, smaller = (part.sort_values("stars") for part in split(rng, tied(rng, 80), 0.5))
    return ex.compare(larger, smaller, one_of(rng, [None, "kind"]), bet=make()).p_value


def check_real(rng: Generator) -> Outcome:
    larger, smaller = split(rng, rows_of(rng, real()[rng.integers(4)], 80))
    return ex.compare(larger, smaller, "target").p_value


def check_stratified(make: Callable[[], Measure | None], rng: Generator) -> Outcome:
    """Compare two sets of a stratified split, after which only ranks within classes are valid."""
    larger, smaller = split(rng, mixed(rng, 90)[["size", "kind"]], 0.5, by="kind")
    return ex.compare(larger, smaller, "kind", measure=make()).p_value


def no_measure() -> None:
    """Return None, for the default measure."""


def within_classes() -> Measure:
    return measures.Conditional(measures.NearestNeighbour())


# ------------------------------------------------------------------ labels and concept


def shift(part: str, drifting: bool, rng: Generator) -> Outcome:
    """Test for a shift. With ``drifting`` labels, the examples are still exchangeable given their labels."""
    n = 100
    y = (rng.random(n) < (np.linspace(0.0, 1.0, n) if drifting else 0.3)).astype(int)
    X = np.column_stack([rng.normal(size=n) + y, rng.integers(0, 2, n)])
    return lowest(getattr(ex.shift_test(X, y, seed=any_seed(rng)), part).log_value)


# ------------------------------------------------------------------ monitors and adapters


def monitor_one_by_one(rng: Generator) -> Outcome:
    """Monitor repeated rows with labels, one at a time."""
    monitor = ex.Monitor(seed=any_seed(rng))
    for x, y in zip(rng.integers(0, 3, (100, 2)).tolist(), rng.integers(0, 2, 100).tolist(), strict=True):
        monitor.update(x, y)
    return monitor.anytime_p


def river_detector(by_period: bool, rng: Generator) -> Outcome:
    """Return whether drift is detected within 100 numbers; with a period, the chance is at most 100 / period."""
    from exchangeable.adapters.river import ExchangeabilityDetector

    numbers, seed = rng.poisson(2.0, 100).astype(float).tolist(), any_seed(rng)

    def drifts(level: float) -> bool:
        period, alpha = (len(numbers) / level, None) if by_period else (None, level)
        detector = ExchangeabilityDetector(alpha, period, seed=seed)
        return any(_updated(detector, x).drift_detected for x in numbers)

    return {level: drifts(level) for level in LEVELS}


def _updated(detector: Any, x: float) -> Any:
    detector.update(x)
    return detector


def river_labelled(rng: Generator) -> Outcome:
    """Monitor dicts of numbers and text with classes as labels, up to the first drift."""
    from exchangeable.adapters.river import LabelledDetector

    frame = mixed(rng, 60)
    examples: list[dict[str, Any]] = frame[["size", "colour", "flag"]].to_dict("records")
    detector, highest = LabelledDetector(alpha=LEVELS[0], seed=any_seed(rng)), 0.0
    for x, y in zip(examples, frame["kind"].tolist(), strict=True):
        detector.learn_one(x, y)
        highest = max(highest, detector.log10_martingale)
        if detector.drift_detected:
            break
    return float(10.0**-highest)


def batches(rng: Generator, n: int, most: int) -> Iterator[slice]:
    """Yield consecutive slices of 1 to ``most`` examples, chosen without looking at the data."""
    start = 0
    while start < n:
        size = int(rng.integers(1, most + 1))
        yield slice(start, start + size)
        start += size


def sklearn_batches(rng: Generator) -> Outcome:
    from exchangeable.adapters.sklearn import ExchangeabilityTest

    frame, estimator = mixed(rng, 100), ExchangeabilityTest(seed=any_seed(rng))
    for part in batches(rng, 100, 20):
        estimator.partial_fit(frame[["size", "count"]].to_numpy(float)[part], frame["kind"].to_numpy()[part])
    return estimator.anytime_p_


# ------------------------------------------------------------------ fitted models

WIDTH = 24


def summed(X: Floats, y: Any) -> Floats:
    """Return a linear score that is summed in a different order for one row than for many, as in matrix products."""
    terms = X * np.linspace(0.1, 0.7, X.shape[1])
    return np.asarray(np.cumsum(terms if len(X) > 1 else terms[:, ::-1], axis=1)[:, -1])


@cache
def model(name: str) -> Any:
    """Return a model that is fitted once, on data that is not part of any stream."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression, Ridge

    if name == "function":
        return summed
    X = np.random.default_rng(1).normal(size=(300, WIDTH))
    made: Any = {"logistic": LogisticRegression(), "ridge": Ridge(), "PCA": PCA(5)}[name]
    return made.fit(X, X[:, 0] + X[:, 1] > 0.0 if name == "logistic" else X[:, 0] + X[:, 1])


def frozen(name: str, rng: Generator) -> Outcome:
    """Monitor four distinct rows, drawn repeatedly: 200 in a batch, 150 one by one, 50 in small batches."""
    chosen = rng.integers(0, 4, 400)
    X, y = rng.normal(size=(4, WIDTH))[chosen], (chosen % 2 == 0) * (1.0 if name == "ridge" else True)
    monitor = ex.Monitor(measures.Frozen(model(name)), seed=any_seed(rng))
    monitor.extend(X[:200], y[:200])
    for row, label in zip(X[200:350], y[200:350], strict=True):
        monitor.update(row, label)
    for part in batches(rng, 50, 5):
        monitor.extend(X[350:][part], y[350:][part])
    return monitor.anytime_p


# ------------------------------------------------------------------ late labels

SLOW, FAST = 300, 700  # examples: 200 an hour, then 3,000 an hour


def late_labels(wait: Any, rng: Generator) -> Outcome:
    x, y, events = late.fraud(rng, SLOW, FAST)
    monitor = ex.Monitor(measures.Value(), seed=any_seed(rng))
    late.played(ex.LateLabels(monitor, wait=wait), x[:, 0], y, events)
    return monitor.anytime_p


def late_labels_server(clock: str, rng: Generator) -> Outcome:
    """Monitor late labels with the server's engine, with up to 20 events per request."""
    import late_server

    x, y, events = late.fraud(rng, 200, 300)
    labels = {"wait": 3700.0, "clock": clock}
    stream = {"measure": {"kind": "nearest-neighbour", "cap": 1000}, "labels": labels, "seed": any_seed(rng)}
    with TemporaryDirectory() as folder:
        place = late_server.Place(Path(folder) / "streams.db", stream)
        try:
            state = place.play(x, y, events, most=20)["state"]
        finally:
            place.end()
    return float(10.0 ** -state["log10_max"])


def late_counted(rng: Generator) -> Outcome:
    """Monitor late labels with a wait that is counted in observations, not in hours."""
    x, y, events = late.fraud(rng, SLOW, FAST)
    monitor = ex.Monitor(measures.Value(), seed=any_seed(rng))
    return late.counted(monitor, x[:, 0], y, events, wait=300).anytime_p


# ------------------------------------------------------------------ many streams


def fleet_growing(rule: str, rng: Generator) -> Outcome:
    return {level: gamblers.found_while_growing(rule, level, rng) for level in LEVELS}


def fleet_deleting(rule: str, peaks: bool, rng: Generator) -> Outcome:
    return {level: gamblers.found_after_deletion(rule, level, rng, peaks=peaks) for level in LEVELS}


# ------------------------------------------------------------------ tempting


def growing_table(looks: Sequence[int], make: Callable[[], Bet], rng: Generator) -> Outcome:
    """Test a growing table repeatedly, and count any rejection."""
    frame = tied(rng, max(looks)).drop(columns="kind")
    return min(float(ex.test(frame[:n], bet=make()).p_value) for n in looks)


def best_of_seeds(rng: Generator) -> Outcome:
    frame = tied(rng, 60)
    return min(float(ex.test(frame, seed=any_seed(rng)).p_value) for _ in range(5))


RATES = (0.003, 0.05, 0.3, 0.5, 0.98)
DEPENDENCE = ("independent", "autocorrelated", "adversarial")


def rate_evidence(values: Sequence[int], rng: Generator) -> float:
    """Return the smallest alpha at which a rate monitor raises an alarm on independent values."""
    monitor = ex.RateMonitor(alpha=0.01, values=values)
    return lowest(monitor.extend(independent(rng, values)).log_value)


def rate_statistic(values: Sequence[int], length: int, rng: Generator) -> float:
    """The same with a period: a level c has a probability of at most 1/32 + n/c within n values."""
    path = ex.RateMonitor(values=values).extend(independent(rng, values, length))
    return MISSED + len(path.n) * math.exp(-path.statistic.max())


def independent(rng: Generator, values: Sequence[int], length: int = 400) -> Integers:
    """Return independent values with a rate that is drawn from a few."""
    rate = float(rng.choice(RATES))
    shares = [1.0 - rate, *[rate / (len(values) - 1)] * (len(values) - 1)]
    return rng.choice(values, length, p=shares)


def risk_losses(kind: str, rng: Generator, limit: float, length: int) -> Floats:
    """Return losses whose mean, given the past, is at most the limit."""
    if kind == "independent":
        return np.asarray(rng.random(length) < limit, np.float64)
    x = np.zeros(length)
    mean, streak = limit, 0
    for t in range(length):
        if kind == "autocorrelated":  # the mean moves slowly below the limit
            mean = min(max(mean + 0.1 * limit * rng.normal(), 0.2 * limit), limit)
            x[t] = rng.random() < mean
        else:  # adversarial: sizes depend on the past, as a gambler's who loses
            size = 1.0 if streak > 3 else max(limit, 0.5)
            x[t] = size * (rng.random() < limit / size)
        streak = 0 if x[t] else streak + 1
    return x


def risk_evidence(kind: str, rng: Generator) -> float:
    """Return the smallest alpha at which a risk monitor raises an alarm on losses with a mean up to the limit."""
    limit = float(rng.choice(RATES))
    return lowest(ex.Risk(limit).extend(risk_losses(kind, rng, limit, 400)).log_value)


def risk_statistic(kind: str, length: int, rng: Generator) -> float:
    """The same with a period: a level c has a probability of at most n/c within n losses."""
    limit = float(rng.choice(RATES))
    path = ex.Risk(limit, period=2.0).extend(risk_losses(kind, rng, limit, length))
    return length * math.exp(-path.statistic.max())


def risk_adversary(by_period: bool, rng: Generator) -> Outcome:
    """Return whether an adversary who sees the bets raises an alarm with losses whose mean is the limit."""
    limit, waits, plays = float(rng.choice(RATES)), 200 if by_period else 10_000, 200

    def alarms(level: float) -> bool:
        risk = ex.Risk(limit, alpha=level, period=(waits + plays) / level if by_period else None)
        risk.extend(np.full(waits, limit))  # nothing is gained or lost, and what is kept for later starts is bet
        return plays_against(risk, rng, plays)

    return {level: alarms(level) for level in LEVELS}


def plays_against(risk: ex.Risk, rng: Generator, length: int) -> bool:
    """Play for an alarm; return whether it is raised. Losses are 0 or as large as it takes, with the limit as mean.

    Both statistics are linear in the next loss, so the adversary finds the smallest loss that raises the alarm, which
    has the largest probability, limit/loss. If no loss does, the largest one is played for.
    """
    by_period, now = risk.period is not None, float(risk.n if risk.period is not None else 1.0)
    for _ in range(length):
        top = math.exp(copy.deepcopy(risk).update(1.0)[2 if by_period else 1])
        fair = now + by_period  # after a loss that is equal to the limit
        size = min(1.0, risk.limit + (risk.threshold * (1.0 + 1e-9) - fair) * (1.0 - risk.limit) / (top - fair))
        step = risk.update(size if rng.random() < risk.limit / size else 0.0)
        if step.alarm:
            return True
        now = math.exp(step.statistic if by_period else step.log_value)
    return False


def risk_reference(by_period: bool, rng: Generator) -> Outcome:
    """The limit is set by a reference with the same mean, and a tolerance of 0."""
    mean, length = float(rng.choice(RATES[:-1])), 400
    reference, x = (risk_losses("independent", rng, mean, n) for n in (300, length))

    def alarms(level: float) -> bool:
        alpha, period = (level / 2.0, 2.0 * length / level) if by_period else (level, None)
        return bool(ex.Risk.against(reference, 0.0, alpha=alpha, period=period).extend(x).alarm.any())

    return {level: alarms(level) for level in LEVELS}


def changing_means(kind: str, rng: Generator, length: int = 1_000) -> Floats:
    """Return the conditional means of losses."""
    if kind == "falling":
        return np.where(np.arange(length) < length // 2, 0.3, 0.1)
    return 0.2 + 0.15 * np.sin(np.cumsum(rng.normal(size=length)) / 20.0)


def risk_interval(kind: str, rng: Generator) -> Outcome:
    """Return whether the interval ever misses the mean of the conditional means so far."""
    means = changing_means(kind, rng)
    x, truth = rng.random(len(means)) < means, np.cumsum(means) / np.arange(1, len(means) + 1)
    paths = {level: ex.Risk(0.5, alpha=level).extend(x) for level in LEVELS}
    return {level: bool(((truth < path.low) | (truth > path.high)).any()) for level, path in paths.items()}


def betting_interval(kind: str, rng: Generator) -> Outcome:
    """The same for an interval by betting that is valid for a constant mean, at every tenth loss.

    It contains each mean m against which the capital (prod(1 + y (x - m)) + prod(1 - y (x - m)))/2 is below 1/alpha,
    with y as in Waudby-Smith and Ramdas (2024), which depends on past losses.
    """
    means = changing_means(kind, rng)
    x, n = (rng.random(len(means)) < means).astype(np.float64), np.arange(1, len(means) + 1)
    mean = (np.cumsum(x) + 0.5) / (n + 1)
    variance = np.append(0.25, ((np.cumsum((x - mean) ** 2) + 0.25) / (n + 1))[:-1])
    truth, missed = np.cumsum(means) / n, {}
    for level in LEVELS:
        y = np.sqrt(2.0 * math.log(2.0 / level) / (variance * n * np.log1p(n)))
        capitals = [_hedged(x[:k] - truth[k - 1], y[:k], truth[k - 1]) for k in range(10, len(x) + 1, 10)]
        missed[level] = max(capitals) >= -math.log(level)
    return missed


def _hedged(z: Floats, y: Floats, mean: float) -> float:
    """Return the log capital of bets in both directions, each with half of the stake."""
    up, down = np.minimum(y, 0.5 / mean), np.minimum(y, 0.5 / (1.0 - mean))
    return float(np.logaddexp(np.log1p(up * z).sum(), np.log1p(-down * z).sum())) - math.log(2.0)


def watched_rows(make: Callable[[Generator, int], pd.DataFrame], label: str | None, rng: Generator) -> Any:
    """Return a reference of 30 to 150 rows, and 100 rows of the same kind that follow; some have no label."""
    n = int(rng.choice((30, 60, 150)))
    frame = make(rng, n + 100)
    if label is not None:
        frame[label] = frame[label].where(rng.random(len(frame)) < 0.9)
    return frame[:n], frame[n:]


def watched_table(
    make: Callable[[Generator, int], pd.DataFrame], label: str | None, settings: dict[str, Any], rng: Generator
) -> Outcome:
    """Watch rows with a reference, in batches; return the smallest alpha at which there is an alarm."""
    reference, rows = watched_rows(make, label, rng)
    try:
        monitor = (_OneForBoth if "both" in settings else ex.TableMonitor)(
            reference, label, seed=any_seed(rng), invalid="missing", bins=settings.get("bins")
        )
    except ValueError as refusal:  # such as labels that are all equal in the third that fixes the constants
        if "label" not in str(refusal):
            raise
        return 1.0
    return min(lowest(monitor.extend(rows[part]).log_value) for part in batches(rng, len(rows), 40))


def watched_period(bins: int | None, rng: Generator) -> Outcome:
    """With a period, an alarm within n rows has a probability of at most n/(2 period)."""
    reference, rows = watched_rows(mixed, "target", rng)
    seed, n = any_seed(rng), len(rows)
    monitors = {
        level: ex.TableMonitor(reference, "target", period=n / (2.0 * level), bins=bins, seed=seed) for level in LEVELS
    }
    return {level: bool(monitor.extend(rows).alarm.any()) for level, monitor in monitors.items()}


def watched_labels(settings: dict[str, Any], rng: Generator) -> Outcome:
    """Watch rows whose labels come late, or not at all, by their class; traffic rises by half on the way.

    Without ``wait`` the late ones are missing. A label that is not late takes 1.5 seconds, one that is takes 400.
    ``ignored``: rows that are left out do not end the comparison with the reference.
    """
    given = dict(settings)
    ignored = given.pop("ignored", False)
    frame = mixed(rng, 400).drop(columns=["target", "cost"])
    frame["delay"] = np.where((frame["kind"] != "a") & (rng.random(400) < 0.7), 400.0, 1.5)
    reference, rows = frame[:200], frame[200:]
    monitor = ex.TableMonitor(
        reference if "delay" in given else reference.drop(columns="delay"), "kind", seed=any_seed(rng), bins=8, **given
    )
    if ignored:
        monitor._labelled.complete = False
    if "wait" not in given:
        labels = rows["kind"].where(rows["delay"] < 100.0)
        return lowest(monitor.extend(rows.drop(columns="delay").assign(kind=labels)).log_value)
    return lowest(np.array(list(_late_values(monitor, rows))))


def watched_given_label(rng: Generator) -> Outcome:
    """Watch rows while the shares of the classes change; return the level at which rows of a class look different."""

    def rows(n: int, share: float) -> pd.DataFrame:
        y = rng.random(n) < share
        return pd.DataFrame({"size": rng.normal(size=n) + y, "y": np.where(y, "a", "b")})

    monitor = ex.TableMonitor(rows(120, 0.5), "y", seed=any_seed(rng), bins=8)
    monitor.extend(rows(100, 0.2))
    monitor.extend(rows(100, 0.9))
    given = monitor._labelled.given
    assert given is not None
    return min(1.0, 2.0 * math.exp(-given.monitor.log_max))  # half of alpha is for later runs


def _late_values(monitor: ex.TableMonitor, rows: pd.DataFrame) -> Iterator[float]:
    """Yield the log evidence after each row and each label."""
    times = np.cumsum(np.where(np.arange(len(rows)) < len(rows) // 2, 1.0, 0.5))
    events = [(time, i, False) for i, time in enumerate(times)]
    events += [(time + late, i, True) for i, (time, late) in enumerate(zip(times, rows["delay"], strict=True))]
    inputs = rows.drop(columns=["kind", "delay"]).to_dict("records")
    labels = rows["kind"].tolist()
    for time, i, is_label in sorted(events):
        if is_label:
            monitor.label(i, labels[i], time=time)
        else:
            monitor.update(inputs[i], id=i, time=time)
        yield monitor.log_value


ONE_FOR_BOTH = "`ex.TableMonitor(bins=8)`, the same rows for constants and pools"
LATE_BY_CLASS = "labels late or missing by class, rising traffic"


def wide(rng: Generator, n: int) -> pd.DataFrame:
    """Return a table with many columns of numbers that depend on each other."""
    X = rng.normal(size=(n, 20))
    X[:, 10:] += X[:, :10]
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(20)])


class _OneForBoth(ex.TableMonitor):
    """The same rows of the reference fix the constants and fill the pools."""

    def _learn(self, reference: Any, *more: Any) -> Any:
        fixed, _ = super()._learn(pd.concat([reference] * 3), *more)
        return fixed, fixed


LATE, DELETED = "late by class, rising traffic", "quiet gamblers deleted"
LOOKS = tuple(range(50, 401, 50))
P = partial
WATCHED = [
    ("mixed", mixed, None),
    ("mixed", mixed, "target"),
    ("mixed", mixed, "kind"),
    ("ties, a constant column", tied, None),
    ("untidy", untidy, "kind"),
]
SCENARIOS: list[Scenario] = [
    Scenario("`ex.test`", "mixed, class label", P(table_mixed, "kind")),
    Scenario("`ex.test`", "mixed, real-valued label", P(table_mixed, "target")),
    Scenario("`ex.test`", "mixed, no label", P(table_mixed, None)),
    Scenario("`ex.test`", "ties, constant and equal columns", P(table_tied, bets.Adaptive)),
    Scenario("`ex.test(bet=Kernel())`", "ties, constant and equal columns", P(table_tied, bets.Kernel)),
    Scenario("`ex.test`", "untidy", P(table_untidy, {})),
    Scenario('`ex.test(missing="drop")`', "untidy", P(table_untidy, {"missing": "drop"})),
    Scenario("`ex.test(order=)`", "untidy, few different times", table_ordered),
    Scenario("`ex.test(max_rows=25)`", "untidy", P(table_untidy, {"max_rows": 25})),
    Scenario("`ex.test`", "one column of 0 and 1", table_column),
    Scenario("`ex.test`", "3 to 30 rows, mixed", table_short),
    Scenario("`ex.test`", "real tables, shuffled", table_real),
    Scenario("`ex.test`", "real tables, rows repeated", P(table_real, repeated=True)),
    Scenario("`ex.test`", "a table that has grown, tested once", P(growing_table, LOOKS[-1:], bets.Adaptive)),
    Scenario("`ex.compare`", "mixed, both sets sorted", P(check_sorted, False)),
    Scenario("`ex.compare(seed=)`", "mixed, both sets sorted", P(check_sorted, True)),
    Scenario("`ex.compare`", "ties, both sets sorted", P(check_tied, bets.Adaptive)),
    Scenario("`ex.compare(bet=Kernel())`", "ties, both sets sorted", P(check_tied, bets.Kernel)),
    Scenario("`ex.compare`", "real tables", check_real),
    Scenario("`ex.compare`", "untidy", P(check_untidy, "indicator")),
    Scenario('`ex.compare(missing="drop")`', "untidy", P(check_untidy, "drop")),
    Scenario("`ex.compare(measure=Conditional(...))`", "stratified split", P(check_stratified, within_classes)),
    Scenario("`ex.shift_test`, label", "two classes", P(shift, "label", False)),
    Scenario("`ex.shift_test`, concept", "two classes", P(shift, "concept", False)),
    Scenario("`ex.shift_test`, concept", "classes that drift", P(shift, "concept", True)),
    Scenario("`Monitor.update`", "ties, classes, one by one", monitor_one_by_one),
    Scenario("`RateMonitor(alpha=)`", "events", P(rate_evidence, (0, 1))),
    Scenario("`RateMonitor(alpha=)`", "stars", P(rate_evidence, (1, 2, 3, 4, 5))),
    Scenario("`RateMonitor(period=)`", "events", P(rate_statistic, (0, 1), 400)),
    Scenario("`RateMonitor(period=)`", "events, 20,000 of them", P(rate_statistic, (0, 1), 20_000)),
    Scenario("`RateMonitor(period=)`", "stars", P(rate_statistic, (1, 2, 3, 4, 5), 400)),
    Scenario("river `ExchangeabilityDetector(alpha=)`", "counts", P(river_detector, False)),
    Scenario("river `ExchangeabilityDetector(period=)`", "counts", P(river_detector, True)),
    Scenario("river `LabelledDetector`", "dicts, classes", river_labelled),
    Scenario("scikit-learn `ExchangeabilityTest`", "random batches", sklearn_batches),
    *(
        Scenario(f"`measures.Frozen`, {name}", "repeated rows, mixed batches", P(frozen, name), 1000)
        for name in ("logistic", "ridge", "PCA", "function")
    ),
    Scenario("`ex.LateLabels(wait=3700)`", LATE, P(late_labels, 3700.0), 1000),
    Scenario('`ex.LateLabels(wait="forever")`', LATE, P(late_labels, "forever"), 1000),
    Scenario("`exchangeable serve`, its own clock", LATE, P(late_labels_server, "server"), 400),
    Scenario("`exchangeable serve`, the clients' clock", LATE, P(late_labels_server, "client"), 400),
    Scenario("`fleet.e_bh(streams=100)`", "100 gamblers join", P(fleet_growing, "fixed"), 10_000),
    Scenario("`fleet.e_bh(joined=)`", "100 gamblers join", P(fleet_growing, "joined"), 10_000),
    Scenario("`fleet.e_bh(streams=1000)`", DELETED, P(fleet_deleting, "fixed", False), 10_000),
    Scenario("`fleet.e_bh(joined=)`", DELETED, P(fleet_deleting, "joined", False), 10_000),
    Scenario("`fleet.e_bh(joined=)`, adjusted", DELETED, P(fleet_deleting, "joined", True), 10_000),
]
TEMPTING: list[Scenario] = [
    Scenario("`ex.test` after every 50 rows", "a table that grows to 400", P(growing_table, LOOKS, bets.Adaptive), 500),
    Scenario("`ex.test`, the best of 5 seeds", "ties", best_of_seeds, 1000),
    Scenario("`ex.compare`", "stratified split", P(check_stratified, no_measure)),
    Scenario("late labels, the oldest of 300 left out", LATE, late_counted, 500),
    Scenario("`fleet.e_bh`, K so far", "100 gamblers join", P(fleet_growing, "so far"), 10_000),
    Scenario("`fleet.e_bh`, K of those left", DELETED, P(fleet_deleting, "so far", False), 10_000),
    Scenario("`fleet.e_bh`, K of those left, adjusted", DELETED, P(fleet_deleting, "so far", True), 10_000),
]
LIVE: list[Scenario] = [
    *(Scenario("`Risk(alpha=)`", f"{kind} losses at the limit", P(risk_evidence, kind)) for kind in DEPENDENCE),
    *(Scenario("`Risk(period=)`", f"{kind} losses at the limit", P(risk_statistic, kind, 400)) for kind in DEPENDENCE),
    Scenario("`Risk(alpha=)`", "an adversary who sees the bets", P(risk_adversary, False), 600),
    Scenario("`Risk(period=)`", "an adversary who sees the bets", P(risk_adversary, True), 600),
    Scenario("`Risk(period=)`", "20,000 losses at the limit", P(risk_statistic, "independent", 20_000)),
    Scenario("`Risk.against(alpha=)`", "events", P(risk_reference, False)),
    Scenario("`Risk.against(period=)`", "events", P(risk_reference, True)),
    *(Scenario("`Risk.interval`", f"{kind} means", P(risk_interval, kind)) for kind in ("falling", "wandering")),
    *(
        Scenario(f"`ex.TableMonitor({given})`", f"{name}{f', label {label}' if label else ''}", play, 600)
        for given, settings in (("", {}), ("bins=8", {"bins": 8}))
        for name, make, label in WATCHED
        for play in (P(watched_table, make, label, settings),)
    ),
    *(
        Scenario(f"`ex.TableMonitor({', '.join(f'{name}={value!r}' for name, value in given.items())})`", *words)
        for given in (
            {},
            {"wait": 100.0},
            {"wait": 100.0, "delay": "delay"},
            {"wait": "forever", "most": 30},
        )
        for words in ((LATE_BY_CLASS, P(watched_labels, given), 600),)
    ),
    Scenario("`ex.TableMonitor.explain().given_label`", "shares of the classes change", watched_given_label, 600),
    Scenario("`ex.TableMonitor(period=)`", "mixed, label target", P(watched_period, None), 600),
    Scenario("`ex.TableMonitor(period=, bins=8)`", "mixed, label target", P(watched_period, 8), 600),
]
LIVE_TEMPTING: list[Scenario] = [
    Scenario(ONE_FOR_BOTH, "a wide table", P(watched_table, wide, None, {"bins": 8, "both": True}), 100),
    Scenario(
        "the labels that came, compared with all of the reference",
        LATE_BY_CLASS,
        P(watched_labels, {"ignored": True}),
        100,
    ),
    Scenario("an interval by betting, for a constant mean", "falling means", P(betting_interval, "falling"), 500),
]
