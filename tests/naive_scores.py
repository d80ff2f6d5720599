"""The parts of `Adaptive` transcribed: slow, plain, importing nothing of ours.

A bet is a function that returns its laws, one for each step, chosen before p is seen, and one for the step after the
last; or its log densities, and the weights of the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

Floats = NDArray[np.float64]
Values = Sequence[float] | NDArray[Any]

# ------------------------------------------------------------------ scores and normal laws

CELL = -54.0 * math.log(2.0)  # the log of the p-values that round to 1: (1 - 2^-54, 1]


def score(p: float) -> float:
    """Phi^-1(1 - p)."""
    return -float(ndtri(p)) if p < 0.5 else float(ndtri(1.0 - p))


def cut(z: float, bound: float) -> float:
    return min(max(z, -bound), bound)


class Law(NamedTuple):
    """N(mean, variance) of the score, as a law of p."""

    mean: float = 0.0
    variance: float = 1.0

    def log_density(self, p: float) -> float:
        """At p = 1 the mean over what rounds to it."""
        if p == 1.0:
            return float(log_ndtr((ndtri(2.0**-54) - self.mean) / math.sqrt(self.variance))) - CELL
        z = score(p)
        return 0.5 * (z**2 - (z - self.mean) ** 2 / self.variance - math.log(self.variance))

    def below(self, p: float) -> float:
        """The mass below p, at least the smallest double."""
        return max(float(ndtr(-(score(p) - self.mean) / math.sqrt(self.variance))), 5e-324)

    def above(self, p: float) -> float:
        """The mass above p."""
        return float(ndtr((score(p) - self.mean) / math.sqrt(self.variance)))


def gains(laws: Sequence[Law], p: Values) -> list[float]:
    return [law.log_density(value) for law, value in zip(laws, p, strict=False)]


# ------------------------------------------------------------------ volatility, seasons, regression


def volatility(p: Values, rate: float = 0.1) -> list[Law]:
    """One law for each step, and one for the step after the last."""
    v, laws = 1.0, []
    for value in p:
        laws.append(Law(0.0, 0.1 + 0.9 * v))
        v += rate * (min(score(value) ** 2, 9.0) - v)
    return [*laws, Law(0.0, 0.1 + 0.9 * v)]


PERIODS = (*range(2, 32), 48, 52, 60, 96, 144, 168, 288, 336, 365)


def mean_of_phase(y: Sequence[float], period: int) -> float:
    """The mean of the past y at the phase of the next one."""
    same = [y[i] for i in range(len(y) % period, len(y), period)]
    return sum(same) / len(same) if same else 0.0


def lag(y: Sequence[float], period: int) -> float:
    return y[len(y) - period] if len(y) >= period else 0.0


class Choice(NamedTuple):
    """The best mean and the best lag after some steps (None if none is good), and which of them bets how."""

    periods: tuple[int | None, int | None] = (None, None)
    bets: int | None = None
    slope: float = 0.0
    variance: float = 1.0

    def feature(self, y: Sequence[float], kind: int) -> float:
        period = self.periods[kind]
        return 0.0 if period is None else (mean_of_phase, lag)[kind](y, period)

    def law(self, y: Sequence[float]) -> Law:
        return Law() if self.bets is None else Law(self.slope * self.feature(y, self.bets), self.variance)


def choose(y: Sequence[float]) -> Choice:
    """From all y so far, summed anew."""
    found: list[tuple[float, int, float, float]] = []
    for predict in (mean_of_phase, lag):
        scores = [(*_fit(y, period, predict), period) for period in PERIODS if len(y) > period]
        best = max(((s, period, b, v) for s, b, v, period in scores), default=(0.0, 0, 0.0, 1.0))
        found.append(best)
    periods = tuple(best[1] if best[0] > 2.0 else None for best in found)
    better = int(found[1][0] > found[0][0])
    value, _, slope, variance = found[better]
    if value <= 6.0:
        return Choice((periods[0], periods[1]))
    return Choice((periods[0], periods[1]), better, slope, variance)


def _fit(
    y: Sequence[float], period: int, predict: Callable[[Sequence[float], int], float]
) -> tuple[float, float, float]:
    """Score, slope and variance."""
    x = [predict(y[:i], period) for i in range(period, len(y))]
    seen, m = y[period:], len(y) - period
    xy = math.fsum(a * b for a, b in zip(x, seen, strict=True))
    xx, yy = 10.0 + math.fsum(a * a for a in x), 10.0 + math.fsum(b * b for b in seen)
    return -0.5 * m * math.log(1.0 - xy**2 / (xx * yy)), xy / xx, (yy - xy**2 / xx) / (m + 10.0)


def choices(p: Values) -> Iterator[tuple[list[float], Choice]]:
    """For each step, and the next: the y so far, and what was chosen last."""
    y: list[float] = []
    choice = Choice()
    for value in p:
        yield y, choice
        y = [*y, cut(score(value), 3.5)]
        if len(y) % 32 == 0:
            choice = choose(y)
    yield y, choice


def season(p: Values) -> list[Law]:
    """One law for each step, and one for the step after the last."""
    return [choice.law(y) for y, choice in choices(p)]


def regression(p: Values, forgetting: float, noise: float, seasons: bool) -> list[Law]:
    """One law for each step, and one for the step after the last."""
    size = 8 if seasons else 6
    P, b, s, m = 0.05 * np.eye(size), np.zeros(size), 5.0, 5.0
    averages, laws = np.zeros(3), []
    for n, (y, choice) in enumerate(choices(p) if seasons else _without_seasons(p)):
        lags = [lag(y, k) for k in (1, 2, 3)]
        x = np.array([*lags, *averages, *((choice.feature(y, 0), choice.feature(y, 1)) if seasons else ())])
        g = P @ x
        q = float(x @ g)
        laws.append(Law(float(x @ b), max(s / m, 1e-6) * (1.0 + q)))
        if n == len(p):
            break
        z = score(p[n])
        e, k = cut(z, 4.0) - laws[-1].mean, 1.0 / (forgetting + q)
        b = b + k * e * g
        P = (P - k * np.outer(g, g)) / forgetting
        P *= min(1.0, 0.1 / P.diagonal().max())
        s, m = noise * s + e * e / (1.0 + q), noise * m + 1.0
        averages = averages + np.array([0.1, 0.03, 0.01]) * (cut(z, 3.5) - averages)
    return laws


def _without_seasons(p: Values) -> Iterator[tuple[list[float], Choice]]:
    y: list[float] = []
    for value in p:
        yield y, Choice()
        y = [*y, cut(score(value), 3.5)]
    yield y, Choice()


def two_sided(p: float) -> float:
    """p = 1 stands for 1 - 2^-55."""
    return 2.0 * min(p, 1.0 - p) or 2.0**-54


def transforms(laws: Sequence[Law], p: Values) -> list[float]:
    """The mass below each p; p = 1 stands for 1 - 2^-55."""
    return [
        law.below(value) if value < 1.0 else 1.0 - float(ndtr((ndtri(2.0**-55) - law.mean) / math.sqrt(law.variance)))
        for law, value in zip(laws, p, strict=False)
    ]


# ------------------------------------------------------------------ shares


class Shares:
    """Shares with memory: moved capital goes to the mean of the prior and of the shares after steps 8, 16, ..."""

    def __init__(self, prior: Floats, share: float, memory: float) -> None:
        self.prior, self.share, self.memory = prior, share, memory
        self.now, self.past, self.n = prior, [prior], 0

    def moved(self, walked: Floats | None = None) -> Floats:
        """The shares of the next bet; ``walked`` instead of the present ones."""
        recalled = (1.0 - self.memory) * self.prior + self.memory * np.mean(self.past, axis=0)
        return np.asarray((1.0 - self.share) * (self.now if walked is None else walked) + self.share * recalled)

    def learn(self, shares: Floats) -> None:
        self.now, self.n = shares, self.n + 1
        if self.n % 8 == 0:
            self.past.append(shares)


def memory_share(log_densities: Floats, prior: Floats, share: float, memory: float) -> tuple[list[float], Floats]:
    """Log densities of the mixture, and the shares of the next bet."""
    shares, out = Shares(prior, share, memory), []
    for row in log_densities:
        with np.errstate(divide="ignore"):
            grown = np.log(shares.moved()) + row
        out.append(float(np.logaddexp.reduce(grown)))
        shares.learn(np.exp(grown - out[-1]))
    return out, shares.moved()


@cache
def chain_shapes() -> Floats:
    t = np.arange(29) / 14.0 - 1.0
    return np.exp(2.5 * t * np.abs(t))


def chain_log_densities(p: float) -> Floats:
    """Of Beta(a, 1), then of Beta(1, a)."""
    a = chain_shapes()
    high = -54.0 * math.log(2.0) * (a - 1.0) if p == 1.0 else np.log(a) + (a - 1.0) * math.log1p(-p)
    return np.concatenate([np.log(a) + (a - 1.0) * math.log(p), high])


def power_chain(p: Values, walk: float, share: float, memory: float) -> tuple[list[float], Floats]:
    """Log densities, and the shares of the next bet."""
    line = (1.0 - walk) * np.eye(29) + 0.5 * walk * (np.eye(29, k=1) + np.eye(29, k=-1))
    line[0, 0] += 0.5 * walk
    line[-1, -1] += 0.5 * walk
    step = np.kron(np.eye(2), line)
    shares, out = Shares(np.full(58, 1.0 / 58.0), share, memory), []
    for value in p:
        grown = np.log(shares.moved(step @ shares.now)) + chain_log_densities(value)
        out.append(float(np.logaddexp.reduce(grown)))
        shares.learn(np.exp(grown - out[-1]))
    return out, shares.moved(step @ shares.now)


def chain_mass_outside(shares: Floats, low: float, from_one: float) -> float:
    """The mass of a bet with these shares in (0, low] and in [1 - from_one, 1]."""
    a = chain_shapes()
    masses = np.concatenate(
        [low**a - np.expm1(a * math.log1p(-from_one)), from_one**a - np.expm1(a * math.log1p(-low))]
    )
    return float(shares @ masses)


# ------------------------------------------------------------------ fade

LEVELS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)


class Change(NamedTuple):
    """What N(0, 1) becomes: N(mean, scale^2), or only a part of it."""

    part: float
    mean: float
    scale: float

    def above(self, z: Floats) -> Floats:
        return np.asarray(self.part * ndtr((self.mean - z) / self.scale) + (1.0 - self.part) * ndtr(-z))


def changes() -> tuple[list[Change], Floats]:
    """All of them, and their prior."""
    shifts = [0.12 * 1.27**j for j in range(14)]
    found = [Change(1.0, sign * m, 1.0) for m in shifts for sign in (1.0, -1.0)]
    found += [Change(1.0, 0.0, math.exp(sign * s)) for s in (0.1, 0.2, 0.35, 0.5, 0.7, 1.0) for sign in (1.0, -1.0)]
    outliers = ((0.0, 3.0), (0.0, 7.0), (4.0, 1.5), (-4.0, 1.5))
    found += [Change(part, mean, scale) for mean, scale in outliers for part in (0.015, 0.06)]
    prior = np.array([abs(c.mean) ** -0.5 if c.part == 1.0 and c.mean else 0.6 for c in found])
    return found, prior / prior.sum()


@cache
def fade_edges() -> Floats:
    """Of the cells of the lower half: 2^-30, and four an octave up to 1/2."""
    return np.array([0.0, *(2.0**-30 * (1.0 + j / 4.0) * 2.0**k for k in range(29) for j in range(4)), 0.5])


@cache
def fade_densities() -> Floats:
    """By level, law and cell: the mass of the law in the cell over its width, by halving an interval of scores."""
    edges, (laws, _) = fade_edges(), changes()
    widths = np.diff(edges)
    table = np.empty((6, len(laws), 2 * len(widths)))
    for i, w in enumerate(LEVELS):
        for j, law in enumerate(laws):
            mirrored = Change(law.part, -law.mean, law.scale)
            low, high = (np.diff(_masses(side, w, edges)) / widths for side in (law, mirrored))
            table[i, j] = np.concatenate([low, high[::-1]])
    return table


def _masses(law: Change, w: float, edges: Floats) -> Floats:
    """The mass of the law above the score at which the pool has the mass of each edge above it."""
    low, high = np.full(len(edges), -50.0), np.full(len(edges), 50.0)
    for _ in range(200):
        middle = 0.5 * (low + high)
        more = w * ndtr(-middle) + (1.0 - w) * law.above(middle) > edges
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.where(edges == 0.0, 0.0, law.above(0.5 * (low + high)))


def fade(p: Values) -> tuple[list[float], Floats]:
    """Log densities, and the next density by cells."""
    table, (_, prior) = fade_densities(), changes()
    idle, shares, out = 1.0, np.zeros((6, len(prior))), []
    for n in range(1, len(p) + 2):
        if n % 8 == 0:
            for level in reversed(range(5)):
                part = min(8.0 / (n * math.log(LEVELS[level] / LEVELS[level + 1])), 0.5)
                shares[level + 1] += part * shares[level]
                shares[level] *= 1.0 - part
        h = min(0.3 / n, 0.5)
        begins = h * idle * prior
        idle, shares = (1.0 - h) * idle + h * (1.0 - idle), (1.0 - h) * shares
        shares[0] += begins
        if n > len(p):
            break
        shares = shares * table[:, :, fade_cell(p[n - 1])]
        total = idle + shares.sum()
        out.append(math.log(total))
        idle, shares = idle / total, shares / total
    return out, idle + np.einsum("ij,ijk->k", shares, table)


def fade_cell(p: float) -> int:
    edges = fade_edges()
    if p < 0.5:
        return int(np.searchsorted(edges, p, side="right")) - 1
    rest = min(int(np.searchsorted(edges, 1.0 - p, side="right")) - 1, len(edges) - 2)
    return 2 * (len(edges) - 1) - 1 - rest


def fade_mass_above(densities: Floats, from_one: float) -> float:
    """The mass in [1 - from_one, 1] of a density by cells, for from_one below 1/2."""
    edges = np.minimum(fade_edges(), from_one)
    return float(np.diff(edges) @ densities[::-1][: len(edges) - 1])
