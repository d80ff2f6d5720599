"""How well each kind of departure describes a series: approximate Bayes factors against "no pattern".

A series has one or more channels, each with mean 0 and variance 1. For numbers these are the normal scores of their
ranks, and of the distances of these from 0, which show changes of the spread; for categories the standardised
indicators. A model with k coefficients that leaves the residual sum of squares R of n values in a channel gains

    g = (n / 2) log(n / R) - (k / 2) log n          (for categories (n - R) / 2 instead, since their variance is known)

and a channel may also stay as it is, so that its evidence is log((1 + e^g) / 2). The evidence of a model is the sum
over channels, averaged over its hyperparameters: the position of a change, the period, the order. These are
descriptions of a table that was rejected already. They have no guarantee and take no part in the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats

SHORTEST = 5  # rows of a segment
BLOCKS = 500  # possible change points when several are looked for
ROUNDS = 2
WIDTH = 2.0  # log of the number of positions at which a change fits about equally well
LONG_PERIODS = (48, 52, 60, 90, 96, 120, 144, 168, 288, 336, 365)
SHORT_PERIODS = 31
BESIDE = 3  # rows before and after that count as beside a row
LONGEST = 200_000  # values from which seasons and serial dependence are read
FINER = 4  # frequencies between two multiples of 1 / n
CYCLES = 3  # that a seasonal pattern needs
ORDERS = (1, 2, 3)  # of trends and of autoregressions
WALK_BLOCKS = 250
FIRST_GUESS = 1.0  # the log of the prior odds of one change to each other kind
RARER = 0.05  # the prior probability that a drift is a random walk, or that dependence is one of the spread
WALKS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # typical distances of a random walk of the level after n rows


class Series(NamedTuple):
    """What is looked at: channels of mean 0 and variance 1, and whether they are indicators of categories."""

    channels: Floats  # (channels, n)
    discrete: bool = False

    @property
    def n(self) -> int:
        """The number of values."""
        return len(self.channels[0])


class Pattern(NamedTuple):
    """How well one kind of departure describes a series."""

    kind: str
    evidence: float  # in nats
    changes: list[int] = []  # noqa: RUF012
    period: float | None = None
    share: float = 0.0  # of the variance that a seasonal pattern explains


def patterns(series: Series) -> list[Pattern]:
    """Return the kinds of departure, the one with the most evidence first. O(n log n)."""
    if series.n < 4 * SHORTEST:
        return []
    part = _first_part(series)
    found = [_one_change(series), _several_changes(series), _drift(series), _season(part), _serial(part)]
    found[0] = found[0]._replace(evidence=found[0].evidence + FIRST_GUESS)
    return sorted(found, key=lambda pattern: -pattern.evidence)


def _first_part(series: Series) -> Series:
    """Return the first values of a long series, with mean 0 again: a level that changes later is no pattern."""
    part = series.channels[:, :LONGEST]
    return series if series.n <= LONGEST else series._replace(channels=part - part.mean(axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------------------- evidence


def _evidence(series: Series, explained: Floats, coefficients: float) -> Floats:
    """Return the evidence of models, given the sum of squares (channels, models) that each explains."""
    n, penalty = series.n, 0.5 * coefficients * math.log(series.n)
    if series.discrete:  # one decision for all categories
        gain = 0.5 * explained.sum(axis=0) - (len(explained) - 1) * penalty
        return np.asarray(np.logaddexp(0.0, gain) - math.log(2.0))
    gain = -0.5 * n * np.log(np.maximum(1.0 - explained / n, 1e-12)) - penalty
    return np.asarray((np.logaddexp(0.0, gain) - math.log(2.0)).sum(axis=0))


def _mean(evidence: Floats) -> float:
    """Return the log of the mean of the likelihood ratios."""
    return float(np.logaddexp.reduce(evidence) - math.log(len(evidence)))


# -------------------------------------------------------------------------------------------------------------- changes


def _between(sums: Floats, lengths: Floats, n: int) -> Floats:
    """Return the sum of squares that a change explains, given the sums (channels, positions) before it."""
    return np.asarray(sums**2 * n / (lengths * (n - lengths)))


def change_evidence(series: Series) -> Floats:
    """Return the evidence of one change, after SHORTEST, SHORTEST + 1, ... rows."""
    lengths = np.arange(SHORTEST, series.n - SHORTEST + 1, dtype=np.float64)
    sums = np.cumsum(series.channels, axis=1)[:, SHORTEST - 1 : series.n - SHORTEST]
    return _evidence(series, _between(sums, lengths, series.n), 1)


def best_change(series: Series) -> int:
    """Return the number of rows before the change that describes the series best."""
    return SHORTEST + int(change_evidence(series).argmax()) if series.n >= 2 * SHORTEST else series.n // 2


def _one_change(series: Series) -> Pattern:
    evidence = change_evidence(series)
    return Pattern("one change", _mean(evidence), [SHORTEST + int(evidence.argmax())])


def _several_changes(series: Series) -> Pattern:
    """Find the best segments by dynamic programming over possible change points, at least two changes."""
    n, c = series.n, len(series.channels)
    edges = np.unique(np.linspace(0, n, min(BLOCKS, n // SHORTEST) + 1).astype(np.intp))
    sums = np.concatenate([np.zeros((c, 1)), np.cumsum(series.channels, axis=1)], axis=1)[:, edges]
    variance, cuts = np.ones((c, 1)), [0, n]
    for _ in range(1 if series.discrete else ROUNDS):
        price = 0.5 * (c - series.discrete) * math.log(n) + math.log(n) - WIDTH
        cuts = _segments(sums / np.sqrt(variance), edges, price)
        explained = _explained(series, cuts)
        variance = np.maximum(1.0 - explained / n, 1e-6)
    changes = cuts[1:-1]
    if len(changes) < 2:
        return Pattern("several changes", 0.0)
    evidence = _evidence(series, explained, len(changes))[0] - len(changes) * (math.log(n) - WIDTH)
    return Pattern("several changes", float(evidence), changes)


def _segments(sums: Floats, edges: NDArray[np.intp], price: float) -> list[int]:
    """Return the edges that maximise the explained sum of squares / 2, less a price for each change."""
    best, last = np.zeros(len(edges)), np.zeros(len(edges), np.intp)
    for j in range(1, len(edges)):
        means = (sums[:, j : j + 1] - sums[:, :j]) ** 2 / (edges[j] - edges[:j])
        value = best[:j] + 0.5 * means.sum(axis=0) - price * (np.arange(j) > 0)
        last[j] = int(value.argmax())
        best[j] = value[last[j]]
    cuts = [len(edges) - 1]
    while cuts[-1] > 0:
        cuts.append(int(last[cuts[-1]]))
    return [int(edges[k]) for k in reversed(cuts)]


def _explained(series: Series, cuts: Sequence[int]) -> Floats:
    """Return the sum of squares (channels, 1) that the means of segments explain."""
    sums = np.add.reduceat(series.channels, cuts[:-1], axis=1)
    return np.asarray((sums**2 / np.diff(cuts)).sum(axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------ trends and dependence


def _drift(series: Series) -> Pattern:
    """A trend, or a level that wanders slowly, so that the mean of many rows predicts the next one."""
    time = np.linspace(-1.0, 1.0, series.n)
    basis, _ = np.linalg.qr(np.vander(time, max(ORDERS) + 1, increasing=True))
    squares = (series.channels @ basis[:, 1:]) ** 2
    found = [_evidence(series, squares[:, :k].sum(axis=1, keepdims=True), k)[0] for k in ORDERS]
    level, *spread = _wandering(series)
    also = [min(one, level) for one in spread if min(one, level) > 0.0]  # a level that wanders also shows in the spread
    return Pattern("drift", _either(_mean(np.array(found)), level + sum(also)))


def _either(evidence: float, rarer: float) -> float:
    """Return the evidence of one or the other."""
    return float(np.logaddexp(evidence + math.log(1.0 - RARER), rarer + math.log(RARER)))


def _wandering(series: Series) -> list[float]:
    """Return the evidence of a random walk of the level in each channel, by Kalman's filter on the means of blocks."""
    n, edges = series.n, np.unique(np.linspace(0, series.n, min(WALK_BLOCKS, series.n // 2) + 1).astype(np.intp))
    size = np.diff(edges).astype(np.float64)
    means = np.add.reduceat(series.channels, edges[:-1], axis=1) / size
    steps = np.array([0.0, *WALKS])[:, np.newaxis] ** 2 / n  # the variance of the level gained in a row
    level, variance = np.zeros((len(steps), len(means))), np.ones((len(steps), 1))
    squares, logs = np.zeros_like(level), np.zeros_like(variance)
    for j, rows in enumerate(size.tolist()):
        spread = variance + 1.0 / rows
        error = means[:, j] - level
        squares, logs = squares + error**2 / spread, logs + np.log(spread * rows)
        level, variance = level + error * variance / spread, variance / (spread * rows) + steps * rows
    within = n - (means**2 * size).sum(axis=1)
    if series.discrete:
        gain = (-0.5 * (squares.sum(axis=1) + (len(means) - 1) * logs[:, 0]))[:, np.newaxis]
    else:
        gain = -0.5 * (n * np.log((squares + within) / n) + logs)
    return [_mean(channel) for channel in (gain - gain[0])[1:].T]


def _serial(series: Series) -> Pattern:
    """An autoregression on the values just before."""
    x = series.channels
    found = [_regression(series, [(x[:, max(ORDERS) - k : -k], max(ORDERS)) for k in range(1, p + 1)]) for p in ORDERS]
    evidence = _mean(np.array(found))
    return Pattern("serial dependence", evidence if series.discrete else _either(evidence, _wandering(series)[1]))


def _regression(series: Series, features: Sequence[tuple[Floats, int]]) -> float:
    """Return the evidence of a regression of each channel on features that start after some values."""
    skipped = features[0][1]
    explained = []
    for c, values in enumerate(series.channels):
        F, y = np.stack([feature[c] for feature, _ in features]), values[skipped:]
        gram, product = F @ F.T, F @ y
        explained.append(float(product @ np.linalg.solve(gram + 1e-9 * np.eye(len(gram)), product)))
    return float(_evidence(series, np.array(explained)[:, np.newaxis], len(features))[0])


def serial_neighbours(nearest: NDArray[np.intp]) -> Pattern:
    """Return the evidence that the nearest row of a row is too often one of those beside it."""
    n = len(nearest)
    beside, expected = float((np.abs(nearest - np.arange(n)) <= BESIDE).mean()), 2.0 * BESIDE / n
    if beside <= expected:
        return Pattern("serial dependence", 0.0)
    others = (1.0 - beside) * math.log((1.0 - beside) / (1.0 - expected)) if beside < 1.0 else 0.0
    return Pattern("serial dependence", n * (beside * math.log(beside / expected) + others) - 0.5 * math.log(n))


# -------------------------------------------------------------------------------------------------------------- seasons


def _season(series: Series) -> Pattern:
    """A pattern that returns: a wave, a mean for each phase, or one phase that differs from the others."""
    found = [_wave(series), *(_phases(series, m) for m in _periods(series.n))]
    kinds = np.array([1.0, *[1.0 / (len(found) - 1)] * (len(found) - 1)]) / 2.0
    evidence = np.array([one.evidence for one in found]) + np.log(kinds)
    return found[int(evidence.argmax())]._replace(evidence=float(np.logaddexp.reduce(evidence)))


def _periods(n: int) -> Iterator[int]:
    return (m for m in (*range(2, SHORT_PERIODS + 1), *LONG_PERIODS) if CYCLES * m <= n)


def _wave(series: Series) -> Pattern:
    """Return the evidence of a sine, with or without its second harmonic, averaged over frequencies."""
    n = series.n
    spectrum = 2.0 * np.abs(np.fft.rfft(series.channels, FINER * n, axis=1)) ** 2 / n
    spectrum[:, -1] /= 2.0  # up and down: a single coefficient
    total = (series.channels**2).sum(axis=1, keepdims=True)  # frequencies between multiples of 1 / n are not orthogonal
    one, harmonic = spectrum[:, FINER * CYCLES :], spectrum[:, 2 * FINER * CYCLES :: 2]
    two = one.copy()  # with the second harmonic, if there is one below the highest frequency
    two[:, : len(harmonic[0])] += harmonic
    one, two = np.minimum(one, total), np.minimum(two, total)
    alone, both = _evidence(series, one, 2), _evidence(series, two, 4)
    evidence = np.logaddexp(alone, both) - math.log(2.0)
    best = int(evidence.argmax())
    explained = one[:, best] if alone[best] >= both[best] else two[:, best]
    period = _period(n, CYCLES + best / FINER)
    return Pattern("seasonal pattern", _mean(evidence), [], period, _share(series, explained))


def _period(n: int, cycles: float) -> float:
    """Return the period of a sine with about so many cycles: an integer if one fits, else with one decimal."""
    low, high = n / (cycles + 0.5 / FINER), n / (cycles - 0.5 / FINER)
    return round(n / cycles) if low <= round(n / cycles) <= high else round(n / cycles, 1)


def _share(series: Series, explained: Floats) -> float:
    """Return the share of the variance of a channel that is explained, in the channel where it is largest."""
    total = (series.channels**2).sum(axis=1)
    return float((explained / np.where(total > 0.0, total, np.inf)).max())


def _phases(series: Series, period: int) -> Pattern:
    """Return the evidence of a mean for each phase, or for a single phase."""
    n, phases = series.n, np.arange(series.n) % period
    lengths: Floats = np.bincount(phases).astype(np.float64)
    sums: Floats = np.array([np.bincount(phases, channel) for channel in series.channels], np.float64)
    explained = (sums**2 / lengths).sum(axis=1, keepdims=True)
    every, single = _evidence(series, explained, period - 1)[0], _mean(_evidence(series, _between(sums, lengths, n), 1))
    evidence = float(np.logaddexp(every, single) - math.log(2.0))
    return Pattern("seasonal pattern", evidence, [], period, _share(series, explained[:, 0]))
