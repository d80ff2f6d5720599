"""Streams of p-values with a known departure from uniformity: what the bets are compared on.

``STREAMS`` are those that bets were designed and chosen on. ``HELD_OUT`` were written down before any bet of the second
version of `Adaptive` had been run on them, and no choice was based on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, signal, stats

from exchangeable import PValues, measures

Floats = NDArray[np.float64]


class Stream(NamedTuple):
    """P-values, and what two ideal bets would win on them, as log likelihood ratios to the uniform law.

    ``log_ratio`` is the gain of the bet that knows the law of each p-value. ``untimed`` is the gain of the one that
    knows the laws and how often they change, but not when. NaN where we cannot compute it.
    """

    p: Floats
    log_ratio: float
    untimed: float = math.nan


Maker = Callable[[np.random.Generator, int], Stream]

# ------------------------------------------------------------------ ideal bets


def hidden(densities: Floats, change: Floats, start: Floats | None = None) -> float:
    """Log likelihood ratio of a hidden Markov chain: rows of ``densities`` are steps, and ``change[i, j]`` is the
    probability of going from law i to law j. ``start`` holds the probabilities of the first law, uniform by default.
    """
    shares, total = np.full(densities.shape[1], 1.0 / densities.shape[1]) if start is None else start, 0.0
    for row in densities:
        shares = shares * row
        total += math.log(shares.sum())
        shares = (shares / shares.sum()) @ change
    return total


def leaving(rates: ArrayLike) -> Floats:
    """A chain that leaves law i with probability rates[i], for one of the others drawn uniformly."""
    each = np.asarray(rates, dtype=np.float64)
    change = np.tile(each[:, np.newaxis] / (len(each) - 1), len(each))
    np.fill_diagonal(change, 1.0 - each)
    return np.asarray(change)


def one_change(densities: Floats, weights: Floats) -> float:
    """Log likelihood ratio of one change after tau steps, for tau drawn uniformly from 0 to n - 1.

    ``densities[k, t]`` is that of p-value number t, counted from 0, if the part ``weights[k]`` of the pool is from
    before the change; between these weights we interpolate.
    """
    n = densities.shape[1]
    logs = np.zeros(n)
    for t in range(n):
        logs[: t + 1] += np.log(np.interp(np.arange(t + 1.0) / (t + 1.0), weights, densities[:, t]))
    return float(np.logaddexp.reduce(logs) - math.log(n))


def diluted(p: Floats, old: Floats, new: Floats, part: float) -> Floats:
    """The density of p-values of the law ``new`` in a pool of which ``part`` is of the law ``old``.

    ``old`` and ``new`` are the masses of the laws at increasing points. A point gets the p-values from the pool's mass
    above it to that mass plus its own.
    """
    pool = (part * old + (1.0 - part) * new)[::-1]
    at = np.minimum(np.searchsorted(np.cumsum(pool), p), len(pool) - 1)
    return np.asarray(new[::-1][at] / pool[at])


# ------------------------------------------------------------------ how p-values are drawn


def betas(rng: np.random.Generator, a: Floats, b: Floats) -> Stream:
    """Independent p-values, each with its own Beta(a, b); one that rounds to an end of (0, 1) is drawn again."""
    p = rng.beta(a, b)
    while (end := (p == 0.0) | (p == 1.0)).any():
        p[end] = rng.beta(a[end], b[end])
    return Stream(p, float(stats.beta.logpdf(p, a, b).sum()))


def regimes(rng: np.random.Generator, laws: Sequence[tuple[float, float]], which: Any, rates: ArrayLike) -> Stream:
    """Independent p-values from Beta laws (a, b), of which ``which`` names one at each step."""
    a, b = (np.array(shape) for shape in zip(*laws, strict=True))
    drawn = betas(rng, a[which], b[which])
    return drawn._replace(untimed=hidden(stats.beta.pdf(drawn.p[:, np.newaxis], a, b), leaving(rates)))


def mixed(rng: np.random.Generator, n: int, parts: Sequence[tuple[float, Any]]) -> Stream:
    """Independent p-values from a mixture of distributions, given as (weight, distribution)."""
    weights, laws = zip(*parts, strict=True)
    which = rng.choice(len(laws), size=n, p=weights)
    p = np.stack([law.rvs(n, random_state=rng) for law in laws])[which, np.arange(n)]
    density = sum(weight * law.pdf(p) for weight, law in parts)
    return Stream(p, float(np.log(density).sum()))


def ranked(x: Floats, now: Floats, pool: Floats, seed: int) -> Stream:
    """The p-values of a numeric stream by its ranks; a p-value that stands for x has density now(x)/pool(x).

    ``now`` is the density of each x under its own law, ``pool`` under the mixture of the laws so far, which is what
    the ranks estimate (exact in the limit of a long stream).
    """
    return Stream(PValues(measures.Value(), seed=seed).extend(x), float(np.log(now / pool).sum()))


def changed(rng: np.random.Generator, n: int, before: Any, after: Any) -> Stream:
    """A numeric stream whose law changes in the middle, by its ranks."""
    half = n // 2
    x = np.concatenate([before.rvs(half, random_state=rng), after.rvs(n - half, random_state=rng)]).astype(np.float64)
    old, new = _density(before)(x), _density(after)(x)
    part = np.minimum(np.arange(1, n + 1), half) / np.arange(1, n + 1)
    now = np.where(np.arange(n) < half, old, new)
    drawn = ranked(x, now, part * old + (1.0 - part) * new, int(rng.integers(2**32)))
    points = np.unique(x) if _is_discrete(before) else np.linspace(x.min() - 4.0, x.max() + 4.0, 200_001)
    masses = [_density(law)(points) for law in (before, after)]
    was, is_now = (mass / mass.sum() for mass in masses)
    weights = np.linspace(0.0, 1.0, 101)
    densities = np.array([diluted(drawn.p, was, is_now, weight) for weight in weights.tolist()])
    return drawn._replace(untimed=one_change(densities, weights))


def _density(law: Any) -> Callable[[Floats], Floats]:
    """The probability function of a discrete law, else the density."""
    found: Callable[[Floats], Floats] = law.pmf if _is_discrete(law) else law.pdf
    return found


def _is_discrete(law: Any) -> bool:
    return isinstance(getattr(law, "dist", None), stats.rv_discrete)


def normals(rng: np.random.Generator, mean: Floats, scale: Floats | float = 1.0) -> Stream:
    """Independent normal numbers, each with its own mean and deviation, by their ranks."""
    x, scales = rng.normal(mean, scale), np.broadcast_to(scale, mean.shape)
    pool = _pool(x, mean, scales)
    return ranked(x, np.asarray(stats.norm.pdf(x, mean, scales)), pool, int(rng.integers(2**32)))


def _pool(x: Floats, mean: Floats, scale: Floats) -> Floats:
    """The density of each x under the mixture of the normal laws so far, its own included."""
    height = 1.0 / (math.sqrt(2.0 * math.pi) * scale)
    return np.array(
        [np.mean(height[:t] * np.exp(-0.5 * ((x[t - 1] - mean[:t]) / scale[:t]) ** 2)) for t in range(1, len(x) + 1)]
    )


def autoregression(rng: np.random.Generator, n: int, rho: float, lag: int = 1) -> Floats:
    """A stationary normal series: ``z_t = rho z_{t-lag} + sqrt(1 - rho^2) e_t``."""
    noise = rng.standard_normal(n)
    noise[lag:] *= math.sqrt(1.0 - rho**2)
    return np.asarray(signal.lfilter([1.0], [1.0, *[0.0] * (lag - 1), -rho], noise))


def dependent(z: Floats, rho: float, lag: int) -> Stream:
    """Phi of an autoregression: each p-value is uniform, those ``lag`` apart are dependent."""
    given = stats.norm.logpdf(z[lag:], rho * z[:-lag], math.sqrt(1.0 - rho**2))
    return Stream(stats.norm.cdf(z), float((given - stats.norm.logpdf(z[lag:])).sum()))


# ------------------------------------------------------------------ the streams


def uniform(rng: np.random.Generator, n: int) -> Stream:
    """Nothing to find."""
    return Stream(1.0 - rng.random(n), 0.0)


def half_power(rng: np.random.Generator, n: int) -> Stream:
    """Small p-values all the way: Beta(0.5, 1)."""
    return betas(rng, np.full(n, 0.5), np.ones(n))


def bimodal(rng: np.random.Generator, n: int) -> Stream:
    """Two humps that leave the mean near 1/2: half Beta(2, 5), half Beta(20, 6)."""
    return mixed(rng, n, [(0.5, stats.beta(2.0, 5.0)), (0.5, stats.beta(20.0, 6.0))])


def drift(rng: np.random.Generator, n: int) -> Stream:
    """Beta(a, 1) with a going geometrically from 0.6 to 1/0.6: over all time nearly uniform."""
    return betas(rng, 0.6 ** np.linspace(1.0, -1.0, n), np.ones(n))


def abrupt(rng: np.random.Generator, n: int) -> Stream:
    """Uniform in the first half, Beta(0.6, 1) in the second."""
    drawn = betas(rng, np.where(np.arange(n) < n // 2, 1.0, 0.6), np.ones(n))
    after = stats.beta.pdf(drawn.p, 0.6, 1.0)
    return drawn._replace(untimed=one_change(after[np.newaxis], np.zeros(1)))


def switching(rng: np.random.Generator, n: int) -> Stream:
    """Beta(0.6, 1) and Beta(1, 0.6) in turns of 250 steps."""
    return regimes(rng, [(0.6, 1.0), (1.0, 0.6)], np.arange(n) // 250 % 2, [1 / 250] * 2)


def normal_shift(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), in the second half N(0.5, 1)."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.norm(0.5, 1.0))


def copula(rng: np.random.Generator, n: int) -> Stream:
    """Each p-value uniform, neighbours dependent: Phi of an AR(1) series with rho = 0.3."""
    return dependent(autoregression(rng, n, 0.3), 0.3, 1)


def sine(rng: np.random.Generator, n: int) -> Stream:
    """Beta(a, 1) with ln a a slow sine of amplitude 0.5 and period 1,000."""
    return betas(rng, np.exp(0.5 * np.sin(2.0 * np.pi * np.arange(n) / 1000.0)), np.ones(n))


def bursts(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but every 500 steps there are 25 of Beta(0.2, 1)."""
    return regimes(rng, [(1.0, 1.0), (0.2, 1.0)], (np.arange(n) % 500 >= 475).astype(int), [1 / 475, 1 / 25])


def triangle(rng: np.random.Generator, n: int) -> Stream:
    """Half uniform, half triangular with its top at 0.7."""
    return mixed(rng, n, [(0.5, stats.uniform()), (0.5, stats.triang(0.7))])


def spike(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but 4 % fall into [0.40, 0.41]."""
    return mixed(rng, n, [(0.96, stats.uniform()), (0.04, stats.uniform(0.40, 0.01))])


def faint(rng: np.random.Generator, n: int) -> Stream:
    """Almost nothing: Beta(1, 0.93)."""
    return betas(rng, np.ones(n), np.full(n, 0.93))


def alternation(rng: np.random.Generator, n: int) -> Stream:
    """Beta(0.8, 1) at even steps, Beta(1, 0.8) at odd ones."""
    odd = np.arange(n) % 2 == 1
    return betas(rng, np.where(odd, 1.0, 0.8), np.where(odd, 0.8, 1.0))


def middle(rng: np.random.Generator, n: int) -> Stream:
    """Beta(0.6, 1) in the middle third, uniform before and after."""
    return regimes(rng, [(1.0, 1.0), (0.6, 1.0)], (np.arange(n) * 3 // n == 1).astype(int), [3 / n] * 2)


def variance(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), in the second half N(0, 1.5^2)."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.norm(0.0, 1.5))


def counts(rng: np.random.Generator, n: int) -> Stream:
    """Heavy ties: Poisson(2) counts by their ranks, in the second half Poisson(2.5)."""
    return changed(rng, n, stats.poisson(2.0), stats.poisson(2.5))


def week(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), every seventh N(1, 1)."""
    return normals(rng, np.where(np.arange(n) % 7 == 6, 1.0, 0.0))


def series(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of an AR(1) series with rho = 0.5."""
    x = autoregression(rng, n, 0.5)
    given = np.append(stats.norm.pdf(x[0]), stats.norm.pdf(x[1:], 0.5 * x[:-1], math.sqrt(0.75)))
    return ranked(x, given, np.asarray(stats.norm.pdf(x)), int(rng.integers(2**32)))


def season_7(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(m, 1), m of a week being 0, .32, .64, .16, -.4, -.8, -.48."""
    return normals(rng, np.array([0.0, 0.32, 0.64, 0.16, -0.4, -0.8, -0.48])[np.arange(n) % 7])


def season_24(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(m, 1), m a sine of amplitude 0.8 and period 24."""
    return normals(rng, 0.8 * np.sin(2.0 * np.pi * np.arange(n) / 24.0))


def seasonal_series(rng: np.random.Generator, n: int) -> Stream:
    """Each p-value uniform, those 24 apart dependent: Phi of ``z_t = 0.4 z_{t-24} + noise``."""
    return dependent(autoregression(rng, n, 0.4, 24), 0.4, 24)


def lag_2(rng: np.random.Generator, n: int) -> Stream:
    """Each p-value uniform, those two apart dependent: Phi of ``z_t = 0.35 z_{t-2} + noise``."""
    return dependent(autoregression(rng, n, 0.35, 2), 0.35, 2)


def volatility(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of exp(a/2) N(0, 1), a an AR(1) series with rho = 0.98."""
    rho = 0.98
    scale = np.exp(0.5 * autoregression(rng, n, rho))
    x = scale * rng.standard_normal(n)
    now = np.asarray(stats.norm.pdf(x, 0.0, scale))
    drawn = ranked(x, now, _pool(x, np.zeros(n), scale), int(rng.integers(2**32)))
    grid = np.linspace(-4.5, 4.5, 181)
    change = stats.norm.pdf(grid, rho * grid[:, np.newaxis], math.sqrt(1.0 - rho**2))
    whole = stats.norm.pdf(grid) / stats.norm.pdf(grid).sum()
    points = np.sinh(np.linspace(-6.0, 6.0, 20_001))  # fine around 0, and out to 200
    above = stats.norm.sf(points[:, np.newaxis], 0.0, np.exp(0.5 * grid)) @ whole
    seen = np.interp(drawn.p, above[::-1], points[::-1])  # what p stands for in a long pool
    heights = stats.norm.pdf(seen[:, np.newaxis], 0.0, np.exp(0.5 * grid))
    densities = heights / (heights @ whole)[:, np.newaxis]
    return drawn._replace(untimed=hidden(densities, change / change.sum(axis=1, keepdims=True), whole))


def returns(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but the last 300 of every 1,000 steps are Beta(0.6, 1)."""
    return regimes(rng, [(1.0, 1.0), (0.6, 1.0)], (np.arange(n) % 1000 >= 700).astype(int), [1 / 700, 1 / 300])


def there_and_back(rng: np.random.Generator, n: int) -> Stream:
    """Beta(a, 1) with ln a going linearly from 0 to -0.6 and back."""
    return betas(rng, np.exp(-0.6 * (1.0 - np.abs(2.0 * np.arange(n) / n - 1.0))), np.ones(n))


def weak_shift(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), in the second half N(0.2, 1)."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.norm(0.2, 1.0))


def rare_bursts(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but after waits of mean 400 there are 10 to 30 of Beta(0.15, 1)."""
    which, t = np.zeros(n, int), 0
    while (t := t + int(rng.geometric(1 / 400))) < n:
        end = t + int(rng.integers(10, 31))
        which[t:end] = 1
        t = end
    return regimes(rng, [(1.0, 1.0), (0.15, 1.0)], which, [1 / 400, 1 / 20])


def shifted_series(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of an AR(1) series with rho = 0.4, in the second half shifted by 0.5."""
    rho, half = 0.4, n // 2
    z, mean = autoregression(rng, n, rho), np.where(np.arange(n) < half, 0.0, 0.5)
    x = z + mean
    given = np.append(stats.norm.pdf(z[0]), stats.norm.pdf(z[1:], rho * z[:-1], math.sqrt(1.0 - rho**2)))
    return ranked(x, given, _pool(x, mean, np.ones(n)), int(rng.integers(2**32)))


def random_regimes(rng: np.random.Generator, n: int) -> Stream:
    """Beta(0.6, 1), uniform and Beta(3, 3) in random order, each staying for 300 steps on average."""
    which: list[int] = []
    law = int(rng.integers(3))
    while len(which) < n:
        which += [law] * int(rng.geometric(1 / 300))
        law = (law + int(rng.integers(1, 3))) % 3
    return regimes(rng, [(0.6, 1.0), (1.0, 1.0), (3.0, 3.0)], np.array(which[:n]), [1 / 300] * 3)


STREAMS: Mapping[str, Maker] = {
    "uniform": uniform,
    "beta(.5, 1)": half_power,
    "bimodal": bimodal,
    "drift": drift,
    "abrupt": abrupt,
    "switching": switching,
    "N(0,1) to N(.5,1)": normal_shift,
    "AR copula": copula,
    "sine": sine,
    "bursts": bursts,
    "triangle": triangle,
    "spike": spike,
    "faint": faint,
    "alternation": alternation,
    "middle third": middle,
    "variance": variance,
    "counts": counts,
    "day of the week": week,
    "AR series": series,
    "season 7": season_7,
    "season 24": season_24,
    "seasonal AR": seasonal_series,
    "lag 2": lag_2,
    "volatility": volatility,
    "regime returns": returns,
    "drift and back": there_and_back,
    "weak shift": weak_shift,
    "rare bursts": rare_bursts,
    "shift + AR": shifted_series,
    "random regimes": random_regimes,
}

# ------------------------------------------------------------------ held out


class Contaminated:
    """N(0, 1), but a part of it is N(0, 5^2)."""

    def __init__(self, part: float) -> None:
        self.part = part

    def rvs(self, n: int, random_state: np.random.Generator) -> Floats:
        scale = np.where(random_state.random(n) < self.part, 5.0, 1.0)
        return scale * random_state.standard_normal(n)

    def pdf(self, x: Floats) -> Floats:
        return np.asarray((1.0 - self.part) * stats.norm.pdf(x) + self.part * stats.norm.pdf(x, 0.0, 5.0))


def heavier_tails(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), in the second half Student's t with 3 degrees of freedom, of variance 1."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.t(3, scale=1.0 / math.sqrt(3.0)))


def moving_average(rng: np.random.Generator, n: int) -> Stream:
    """Each p-value uniform: Phi of ``z_t = e_t + 0.6 e_{t-1} + 0.3 e_{t-2}``, of variance 1."""
    weights = np.array([1.0, 0.6, 0.3]) / math.sqrt(1.0 + 0.36 + 0.09)
    z = np.convolve(rng.standard_normal(n + 2), weights, "valid")
    covariance = np.zeros((3, n))
    for lag in range(3):
        covariance[lag, : n - lag] = weights[: 3 - lag] @ weights[lag:]
    factor = linalg.cholesky_banded(covariance, lower=True)
    quadratic = z @ linalg.cho_solve_banded((factor, True), z)
    return Stream(stats.norm.cdf(z), float(0.5 * (z @ z - quadratic) - np.log(factor[0]).sum()))


def growing_season(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(m, 1), m a sine of period 30 whose amplitude grows linearly from 0 to 1.2."""
    t = np.arange(n)
    return normals(rng, 1.2 * t / n * np.sin(2.0 * np.pi * t / 30.0))


def garch(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, v) with ``v_t = 0.05 + 0.1 x_{t-1}^2 + 0.85 v_{t-1}``."""
    noise, v, x = rng.standard_normal(n), np.ones(n), np.zeros(n)
    for t in range(n):
        if t:
            v[t] = 0.05 + 0.1 * x[t - 1] ** 2 + 0.85 * v[t - 1]
        x[t] = math.sqrt(v[t]) * noise[t]
    scale = np.sqrt(v)
    now = np.asarray(stats.norm.pdf(x, 0.0, scale))
    return ranked(x, now, _pool(x, np.zeros(n), scale), int(rng.integers(2**32)))


def outliers(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), in the second half one in 50 is N(0, 5^2)."""
    return changed(rng, n, Contaminated(0.0), Contaminated(0.02))


def noisy_nights(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(0, 1), but the last 8 of every 24 are N(0, 1.5^2)."""
    return normals(rng, np.zeros(n), np.where(np.arange(n) % 24 >= 16, 1.5, 1.0))


def sticky_coin(rng: np.random.Generator, n: int) -> Stream:
    """Numbers 0 and 1 by their ranks, so half of all are ties: each repeats the one before with probability 0.6."""
    x = (np.cumsum(rng.random(n) < 0.4) % 2).astype(np.float64)
    now = np.append(0.5, np.where(x[1:] == x[:-1], 0.6, 0.4))
    return ranked(x, now, np.full(n, 0.5), int(rng.integers(2**32)))


def local_level(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(m, 1), m a random walk with steps N(0, 0.03^2)."""
    return normals(rng, np.cumsum(0.03 * rng.standard_normal(n)))


def batches(rng: np.random.Generator, n: int) -> Stream:
    """Rank p-values of N(m, 1), m drawn from N(0, 0.5^2) for every 40 of them."""
    mean = np.repeat(0.5 * rng.standard_normal(-(-n // 40)), 40)[:n]
    return normals(rng, mean)


def timetable(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but the last 20 of every 120 steps are Beta(0.5, 1)."""
    return regimes(rng, [(1.0, 1.0), (0.5, 1.0)], (np.arange(n) % 120 >= 100).astype(int), [1 / 100, 1 / 20])


HELD_OUT: Mapping[str, Maker] = {
    "heavier tails": heavier_tails,
    "moving average": moving_average,
    "growing season": growing_season,
    "GARCH": garch,
    "outliers": outliers,
    "noisy nights": noisy_nights,
    "sticky coin": sticky_coin,
    "local level": local_level,
    "batches": batches,
    "timetable": timetable,
}
