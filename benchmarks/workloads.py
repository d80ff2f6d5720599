"""What is timed, and how: every figure is a ratio of two measurements made in the same run. And what is bet on."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from exchangeable import PValues, measures

Floats = NDArray[np.float64]


def labelled(n: int, d: int, *, labels: int = 10, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Exchangeable examples around one centre for each label, about as hard to tell apart as handwritten digits."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(labels, d))
    y = rng.integers(0, labels, n)
    X = rng.normal(scale=1.5, size=(n, d))
    for label in range(labels):  # one by one, to need no second table
        X[y == label] += centres[label]
    return X, y


def best(work: Callable[[], object], *, repeats: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Shortest time of several runs, by the wall unless told: the machine is shared and noise only ever adds."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---:|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def mark(kept: bool) -> str:
    """Yes or no, so that the eye finds a no."""
    return "yes" if kept else "**no**"


def processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def heading(title: str, command: str, libraries: Sequence[str]) -> str:
    """The first lines of a document made by a command: when, where and with what."""
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    python = platform.python_version()
    return (
        f"# {title}\n\nWritten by `{command}`, never by hand.\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {processor()}, Python {python}, {versions}.\n"
    )


class Stream(NamedTuple):
    """P-values, and the log likelihood ratio of the law that made them to the uniform one: what the best bet wins."""

    p: Floats
    log_ratio: float  # NaN where nobody knows it


Maker = Callable[[np.random.Generator, int], Stream]


def betas(rng: np.random.Generator, a: Floats, b: Floats) -> Stream:
    """Independent p-values, each with its own Beta(a, b); one that rounds to an end of (0, 1) is drawn again."""
    p = rng.beta(a, b)
    while (end := (p == 0.0) | (p == 1.0)).any():
        p[end] = rng.beta(a[end], b[end])
    return Stream(p, float(stats.beta.logpdf(p, a, b).sum()))


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
    the ranks know of them (exact in the limit of many; they differ by the noise of the ranks).
    """
    return Stream(PValues(measures.Value(), seed=seed).extend(x), float(np.log(now / pool).sum()))


def changed(rng: np.random.Generator, n: int, before: Any, after: Any) -> Stream:
    """A numeric stream whose law changes in the middle, by its ranks."""
    half = n // 2
    x = np.concatenate([before.rvs(half, random_state=rng), after.rvs(n - half, random_state=rng)]).astype(np.float64)
    density = "pdf" if hasattr(before.dist, "pdf") else "pmf"
    old, new = getattr(before, density)(x), getattr(after, density)(x)
    part = np.minimum(np.arange(1, n + 1), half) / np.arange(1, n + 1)
    now = np.where(np.arange(n) < half, old, new)
    return ranked(x, now, part * old + (1.0 - part) * new, int(rng.integers(2**32)))


def autoregression(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """A stationary normal AR(1) series: ``z_t = rho z_{t-1} + sqrt(1 - rho^2) e_t``."""
    noise = rng.standard_normal(n)
    noise[1:] *= math.sqrt(1.0 - rho**2)
    return np.asarray(signal.lfilter([1.0], [1.0, -rho], noise))


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
    return betas(rng, np.where(np.arange(n) < n // 2, 1.0, 0.6), np.ones(n))


def switching(rng: np.random.Generator, n: int) -> Stream:
    """Beta(0.6, 1) and Beta(1, 0.6) in turns of 250 steps."""
    odd = np.arange(n) // 250 % 2 == 1
    return betas(rng, np.where(odd, 1.0, 0.6), np.where(odd, 0.6, 1.0))


def normal_shift(rng: np.random.Generator, n: int) -> Stream:
    """Numbers by their ranks: N(0, 1), in the second half N(0.5, 1)."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.norm(0.5, 1.0))


def copula(rng: np.random.Generator, n: int) -> Stream:
    """Each p-value uniform, neighbours dependent: Phi of an AR(1) series with rho = 0.3."""
    rho = 0.3
    z = autoregression(rng, n, rho)
    given = stats.norm.logpdf(z[1:], rho * z[:-1], math.sqrt(1.0 - rho**2))
    return Stream(stats.norm.cdf(z), float((given - stats.norm.logpdf(z[1:])).sum()))


def sine(rng: np.random.Generator, n: int) -> Stream:
    """Beta(a, 1) with ln a a slow sine of height 0.5 and period 1,000."""
    return betas(rng, np.exp(0.5 * np.sin(2.0 * np.pi * np.arange(n) / 1000.0)), np.ones(n))


def bursts(rng: np.random.Generator, n: int) -> Stream:
    """Uniform, but every 500 steps there are 25 of Beta(0.2, 1)."""
    return betas(rng, np.where(np.arange(n) % 500 >= 475, 0.2, 1.0), np.ones(n))


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
    return betas(rng, np.where(np.arange(n) * 3 // n == 1, 0.6, 1.0), np.ones(n))


def variance(rng: np.random.Generator, n: int) -> Stream:
    """Numbers by their ranks: N(0, 1), in the second half N(0, 1.5^2)."""
    return changed(rng, n, stats.norm(0.0, 1.0), stats.norm(0.0, 1.5))


def counts(rng: np.random.Generator, n: int) -> Stream:
    """Heavy ties: Poisson(2) counts by their ranks, in the second half Poisson(2.5)."""
    return changed(rng, n, stats.poisson(2.0), stats.poisson(2.5))


def week(rng: np.random.Generator, n: int) -> Stream:
    """Numbers by their ranks: N(0, 1), every seventh N(1, 1)."""
    mean = np.where(np.arange(n) % 7 == 6, 1.0, 0.0)
    x = rng.normal(mean)
    part = np.cumsum(mean) / np.arange(1, n + 1)
    pool = (1.0 - part) * stats.norm.pdf(x) + part * stats.norm.pdf(x, 1.0)
    return ranked(x, stats.norm.pdf(x, mean), pool, int(rng.integers(2**32)))


def series(rng: np.random.Generator, n: int) -> Stream:
    """Numbers by their ranks: an AR(1) series with rho = 0.5."""
    x = autoregression(rng, n, 0.5)
    given = np.append(stats.norm.pdf(x[0]), stats.norm.pdf(x[1:], 0.5 * x[:-1], math.sqrt(0.75)))
    return ranked(x, given, stats.norm.pdf(x), int(rng.integers(2**32)))


STREAMS: Mapping[str, Maker] = {  # those of the published table that the bets were tuned on
    "uniform": uniform,
    "beta(.5, 1)": half_power,
    "bimodal": bimodal,
    "drift": drift,
    "abrupt": abrupt,
    "switching": switching,
    "N(0,1) to N(.5,1)": normal_shift,
    "AR copula": copula,
}
HELD_OUT: Mapping[str, Maker] = {  # never tuned on
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
}
