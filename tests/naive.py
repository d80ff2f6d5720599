"""The paper transcribed: slow, plain, importing nothing of ours. The judge of everything fast.

Fedorova, Gammerman, Nouretdinov, Vovk (2012), sections 2 to 4; the sleepy jumper of Vovk et al. (2003), as far
as its numbers tell; the sleepers as in Vovk et al. (2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, ndtr

Floats = NDArray[np.float64]
Counts = list[tuple[int, int, int]]

# ------------------------------------------------------------------ outputs of models


def rounded(value: float, scale: float = 1.0, bits: int = 32) -> float:
    """To a multiple of 2^(e - bits), e the least with |value| < 2^e and scale <= 2^e; a half to the even multiple."""
    exponent = max(math.frexp(value)[1] if value else -1100, math.frexp(scale)[1] - 1)
    if Fraction(scale) > Fraction(2) ** exponent:
        exponent += 1
    unit = Fraction(2) ** (exponent - bits)
    nearest = round(Fraction(value) / unit) * unit
    return value if abs(nearest) >= 2**1024 else float(nearest)


# ------------------------------------------------------------------ examples to p-values (Algorithm 1, equation (1))


def squares(X: ArrayLike) -> Floats:
    """Direct float64 squared distances, row by row."""
    rows = np.ascontiguousarray(X, dtype=np.float64)
    return np.array([((rows - x) ** 2).sum(axis=1) for x in rows]).reshape(len(rows), len(rows))


def ratio(same: float, other: float) -> Any:
    """0/0 and inf/inf are 1; x/inf is 0; x/0 and inf/x are inf. Others are rounded once, to 53 bits, of any size."""
    if same == other and same in (0.0, math.inf):
        return 1.0
    if other == 0.0 or same == math.inf:
        return math.inf
    return 0.0 if other == math.inf else mpmath.fdiv(same, other, prec=53)


def scores(table: Floats, labels: Sequence[Any]) -> list[Any]:
    """The square of alpha_i for a whole bag, from the squared distances of all its pairs."""
    n = len(table)
    alike = np.array([[labels[i] == labels[j] for j in range(n)] for i in range(n)], bool).reshape(n, n)
    itself = np.eye(n, dtype=bool)
    same = np.where(alike & ~itself, table, math.inf).min(axis=1)
    other = np.where(~alike, table, math.inf).min(axis=1)
    return [ratio(s, o) for s, o in zip(same.tolist(), other.tolist(), strict=True)]


def ranks(X: ArrayLike, y: Iterable[Any]) -> Counts:
    """(greater, equal, n) of the newest score in each bag z_1..z_n, all scores recomputed."""
    table, labels = squares(X), list(y)
    first = [labels.index(label) for label in labels]  # equal labels, equal numbers
    counts = []
    for n in range(1, len(labels) + 1):
        alpha = _scores(table[:n, :n], np.array(first[:n]))
        counts.append((int((alpha > alpha[-1]).sum()), int((alpha == alpha[-1]).sum()), n))
    return counts


def _scores(table: Floats, number: NDArray[Any]) -> NDArray[Any]:
    """``scores`` without Python loops, for longer streams (test_nearest.py compares the two)."""
    alike = number[:, None] == number[None, :]
    other = np.where(alike, math.inf, table).min(axis=1)
    np.fill_diagonal(alike, False)
    same = np.where(alike, table, math.inf).min(axis=1)
    with np.errstate(all="ignore"):
        quotient = same / other
    finite = (same > 0.0) & (same < math.inf) & (other > 0.0) & (other < math.inf)
    if (finite & ((quotient < 2.0**-1022) | (quotient == math.inf))).any():  # too small or too large for float64
        return np.array([ratio(s, o) for s, o in zip(same.tolist(), other.tolist(), strict=True)], object)
    return np.where(np.isnan(quotient), 1.0, quotient)


def exact_ranks(X: ArrayLike, y: ArrayLike) -> Counts:
    """``ranks`` of features that are integers, in integers: a/b > c/d where a d > c b, and 1/0 is infinite."""
    rows, labels, none = np.asarray(X).astype(np.int64), np.asarray(y), 2**31  # as a squared distance: there is none
    near, counts = np.full((2, len(rows)), none), []  # of the same label, of others
    for i, x in enumerate(rows):
        squared, alike = ((rows[:i] - x) ** 2).sum(axis=1), labels[:i] == labels[i]
        for side, met in enumerate((alike, ~alike)):
            near[side, :i][met] = np.minimum(near[side, :i], squared)[met]
            near[side, i] = squared[met].min(initial=none)
        same, other = near[:, : i + 1]
        cases = [(same == other) & ((same == 0) | (same == none)), other == none, (same == none) | (other == 0)]
        top, bottom = np.select(cases, [1, 0, 1], same), np.select(cases, [1, 1, 0], other)
        theirs, ours = top * bottom[i], top[i] * bottom
        counts.append((int((theirs > ours).sum()), int((theirs == ours).sum()), i + 1))
    return counts


def p_values(counts: Counts, theta: ArrayLike) -> list[float]:
    """(#greater + theta #equal) / n."""
    column = np.asarray(theta, dtype=np.float64).tolist()
    return [(g + t * e) / n for (g, e, n), t in zip(counts, column, strict=True)]


# ------------------------------------------------------------------ p-values to capital: power bets


def power(p: Iterable[float], epsilon: float) -> list[float]:
    """Log f(p) of the power bet (equation (5))."""
    return [math.log(epsilon * value ** (epsilon - 1.0)) for value in p]


def minus_log_sum(p: Iterable[float]) -> Any:
    """a = -sum ln p in high precision."""
    return -mpmath.fsum(mpmath.log(mpmath.mpf(value)) for value in p)


def mixture(n: int, a: Any, digits: int = 50) -> Any:
    """Log S_n of the simple mixture, ``ln int_0^1 eps^n e^(a (1 - eps)) d eps``, by series or by quadrature."""
    with mpmath.workdps(digits):
        a = mpmath.mpf(a)
        if n <= 400 and a <= 2000:
            return mpmath.log(mpmath.hyp1f1(1, n + 2, a) / (n + 1))
        return mixture_by_quadrature(n, a)


def mixture_by_quadrature(n: int, a: Any) -> Any:
    """The same, integrating ``exp(g(eps) - g(peak))`` over pieces about the peak; the rest is below 1e-60."""
    a = mpmath.mpf(a)
    peak = mpmath.mpf(1) if a <= n else mpmath.mpf(n) / a
    if n == 0 and a > 0:
        return mpmath.log((mpmath.exp(a) - 1) / a)

    def g(eps: Any) -> Any:
        return (n * mpmath.log(eps) if n else 0) + a * (1 - eps)

    width = peak / mpmath.sqrt(n) if a > n else min(1 / mpmath.sqrt(n), 1 / (n - a) if a < n else mpmath.inf)
    steps = [-150, -80, -40, -20, -14, -9, -6, -3, 0, 3, 6, 9, 14, 20, 40, 80]
    edges = sorted({min(max(peak + k * width, mpmath.mpf(0)), mpmath.mpf(1)) for k in steps})
    top = g(peak)
    return top + mpmath.log(mpmath.quad(lambda eps: mpmath.exp(g(eps) - top) if eps else mpmath.mpf(0), edges))


# ------------------------------------------------------------------ p-values to capital: the sleepy jumper


def gamma_mixture(n: int, a: Any, shape: float = 1.0, rate: float = 1.0) -> Any:
    """Log of int eps^n e^(a (1 - eps)) pi(eps) d eps, pi the Gamma(shape, rate) density; 50 digits."""
    with mpmath.workdps(50):
        a, b, c = mpmath.mpf(a), mpmath.mpf(shape), mpmath.mpf(rate)
        return a + b * mpmath.log(c) + mpmath.loggamma(n + b) - mpmath.loggamma(b) - (n + b) * mpmath.log(a + c)


def jumper(p: Iterable[float], waking: float = 0.01, jumping: float = 0.001, grid: int = 100) -> list[float]:
    """Log f_i(p_i), from capital kept in plain numbers (of mpmath, which do not overflow)."""
    capital = jumper_start(grid)
    totals = [sum(a + w for a, w in capital)]
    for value in p:
        capital = jumper_step(capital, waking, jumping, value)
        totals.append(sum(a + w for a, w in capital))
    return log_ratios(totals)


def jumper_start(grid: int) -> list[tuple[Any, Any]]:
    """(a, w), asleep and awake, for each eps: all is asleep."""
    return [(mpmath.mpf(1) / grid, mpmath.mpf(0))] * grid


def jumper_step(capital: list[tuple[Any, Any]], waking: float, jumping: float, p: float) -> list[tuple[Any, Any]]:
    """``w = (1-J) w + J W/G``; ``a' = (1-R) a + R w``; ``w' = [(1-R) w + R a] eps p^(eps-1)``."""
    R, J, G, log_p = mpmath.mpf(waking), mpmath.mpf(jumping), len(capital), mpmath.log(mpmath.mpf(p))
    awake, moved = sum(w for _, w in capital), []
    for j, (asleep, stayed) in enumerate(capital, 1):
        eps, w = mpmath.mpf(j) / G, (1 - J) * stayed + J * awake / G
        bet = eps * mpmath.exp((eps - 1) * log_p)
        moved.append(((1 - R) * asleep + R * w, ((1 - R) * w + R * asleep) * bet))
    return moved


def jumper_mass_below(history: Iterable[float], p: float, waking: float, jumping: float, grid: int) -> float:
    """Integral of the next bet over (0, p]: each ``eps u^(eps-1)`` gives ``p^eps``, the sleepers p."""
    capital = jumper_start(grid)
    for value in history:
        capital = jumper_step(capital, waking, jumping, value)
    resting = jumper_step(capital, waking, jumping, 1.0)  # at p = 1 the factor is eps
    masses = [a * p + w * grid / j * mpmath.mpf(p) ** (mpmath.mpf(j) / grid) for j, (a, w) in enumerate(resting, 1)]
    return float(sum(masses) / sum(a + w for a, w in capital))


# ------------------------------------------------------------------ p-values to capital: the sleepers


def step_bet(a: Any, b: Any, p: Any) -> Any:
    """``b/a`` if p <= a, else ``(1-b)/(1-a)``."""
    return b / a if p <= a else (1 - b) / (1 - a)


def pairs(grid: int) -> list[tuple[Any, Any]]:
    """All (a, b) of the grid 1/G, .., (G-1)/G."""
    numbers = [mpmath.mpf(j) / grid for j in range(1, grid)]
    return [(a, b) for a in numbers for b in numbers]


def sleeper_stayer(p: Iterable[float], waking: float = 0.001, grid: int = 10) -> list[float]:
    """Log f_i(p_i): before each step, R of the sleeping capital is spread over the pairs, which then bet for ever."""
    R, bets = mpmath.mpf(waking), pairs(grid)
    asleep, capital, totals = mpmath.mpf(1), [mpmath.mpf(0)] * len(bets), [mpmath.mpf(1)]
    for value in p:
        woken = R * asleep / len(bets)
        capital = [(w + woken) * step_bet(a, b, value) for w, (a, b) in zip(capital, bets, strict=True)]
        asleep *= 1 - R
        totals.append(asleep + sum(capital))
    return log_ratios(totals)


def sleeper_drifter(p: Iterable[float], waking: float = 0.1, every: int = 100, grid: int = 10) -> list[float]:
    """Log f_i(p_i): after s = M, 2M, .. steps, R of what sleeps is spread over pairs; it bets at a s/i + b (1-s/i)."""
    R, bets = mpmath.mpf(waking), pairs(grid)
    asleep, totals = mpmath.mpf(1), [mpmath.mpf(1)]
    woken: list[tuple[int, list[Any]]] = []
    for i, value in enumerate(p, 1):
        for s, capital in woken:
            for k, (a, b) in enumerate(bets):
                capital[k] *= step_bet((a * s + b * (i - s)) / i, b, value)
        totals.append(asleep + sum(w for _, capital in woken for w in capital))
        if i % every == 0:
            woken.append((i, [R * asleep / len(bets)] * len(bets)))
            asleep *= 1 - R
    return log_ratios(totals)


def log_ratios(totals: Sequence[Any]) -> list[float]:
    """Log of each total over the one before."""
    return [float(mpmath.log(after / before)) for before, after in pairwise(totals)]


def drifter_edges(steps: int, every: int, grid: int) -> list[float]:
    """Where the next bet may jump."""
    i, numbers = steps + 1, [j / grid for j in range(1, grid)]
    return [(a * s + b * (i - s)) / i for s in range(every, i, every) for a in numbers for b in numbers]


# ------------------------------------------------------------------ p-values to capital: the plug-in bet (section 3.3)


def extended(p: ArrayLike) -> Floats:
    """{-p_i, p_i, 2 - p_i}."""
    values = np.asarray(p, dtype=np.float64)
    return np.concatenate([-values, values, 2.0 - values])


def nrd0(x: Floats) -> float:
    """R's bw.nrd0: ``0.9 min(sd, IQR/1.34) n^(-1/5)``."""
    low, high = np.percentile(x, [25, 75])
    return float(0.9 * min(x.std(ddof=1), (high - low) / 1.34) * len(x) ** -0.2)


def plugin_log_density(history: ArrayLike, p: float) -> float:
    """Log of the kernel estimate of the extended history at p, cut to [0, 1] and normalised; 0 without history."""
    x = extended(history)
    if not len(x):
        return 0.0
    h = nrd0(x)
    exponents = -0.5 * ((p - x) / h) ** 2
    largest = exponents.max()
    heights = math.log(np.exp(exponents - largest).sum()) + largest - math.log(h * math.sqrt(2.0 * math.pi))
    mass = (ndtr((1.0 - x) / h) - ndtr((0.0 - x) / h)).sum()
    return float(heights - math.log(mass))


def plugin(p: ArrayLike) -> list[float]:
    """Log f_i(p_i), each estimate made again; the sample is kept sorted for its quartiles, and the mass is telescoped.

    (The mass of the three copies of p_i in [0, 1] is ``Phi((1 + p_i)/h) - Phi((p_i - 2)/h)``: the rest cancels.)
    """
    values = np.asarray(p, dtype=np.float64)
    x, gains = np.empty(0), []
    for i, value in enumerate(values.tolist()):
        if not i:
            gains.append(0.0)
        else:
            h = 0.9 * min(float(x.std(ddof=1)), (quantile(x, 0.75) - quantile(x, 0.25)) / 1.34) * len(x) ** -0.2
            exponents = -0.5 * ((value - x) / h) ** 2
            largest = exponents.max()
            mass = (ndtr((1.0 + values[:i]) / h) - ndtr((values[:i] - 2.0) / h)).sum()
            gains.append(
                math.log(np.exp(exponents - largest).sum() / (mass * h * math.sqrt(2.0 * math.pi))) + float(largest)
            )
        more = np.array([-value, value, 2.0 - value])
        x = np.insert(x, np.searchsorted(x, more), more)
    return gains


def quantile(ascending: Floats, q: float) -> float:
    """R's type 7: linear between order statistics."""
    place = q * (len(ascending) - 1)
    k = math.floor(place)
    return float(ascending[k] + (place - k) * (ascending[min(k + 1, len(ascending) - 1)] - ascending[k]))


def equal_log_density(n: int, c: float, p: float) -> float:
    """The estimate at p after n >= 3 p-values equal to c: three Gaussians, in logs."""
    h = equal_bandwidth(n, c)
    exponents = [-0.5 * (d / h) ** 2 for d in (p - c, p + c, p - 2.0 + c)]
    largest = max(exponents)
    heights = math.log(math.fsum(math.exp(e - largest) for e in exponents)) + largest
    return heights - math.log(h * math.sqrt(2.0 * math.pi)) - math.log(ndtr((1.0 + c) / h) - ndtr((c - 2.0) / h))


def equal_bandwidth(n: int, c: float) -> float:
    """The quartiles are -c and 2 - c, the sd that of {-c, c, 2 - c}, each n times."""
    centre = (2.0 - c) / 3.0
    squares = n * math.fsum((value - centre) ** 2 for value in (-c, c, 2.0 - c))
    return float(0.9 * min(math.sqrt(squares / (3 * n - 1)), 2.0 / 1.34) * (3 * n) ** -0.2)


# ------------------------------------------------------------------ capital to alarm


def ville(log_values: Iterable[float], alpha: float) -> list[bool]:
    """Where the capital stands at 1/alpha or more."""
    return [value >= math.log(1.0 / alpha) for value in log_values]


def simple_jumper(p: Iterable[float], rate: float = 0.01) -> list[float]:
    """Log f_i(p_i): C_e <- (1 - J) C_e + (J/3) C, then C_e <- C_e f_e(p)."""
    capital = {-1: mpmath.mpf(1) / 3, 0: mpmath.mpf(1) / 3, 1: mpmath.mpf(1) / 3}
    gains = []
    for value in p:
        before = sum(capital.values())
        moved = {e: (1 - mpmath.mpf(rate)) * c + mpmath.mpf(rate) / 3 * before for e, c in capital.items()}
        capital = {e: c * (1 + e * (mpmath.mpf(value) - mpmath.mpf(1) / 2)) for e, c in moved.items()}
        gains.append(float(mpmath.log(sum(capital.values()) / before)))
    return gains


def jackson_kernel(x: Any, y: Any, order: int) -> Any:
    """K_J(x, y) = 1 + 2 sum_{k<K} g_k cos(k pi x) cos(k pi y)."""
    turn = np.pi / (order + 1)
    total = np.ones(np.broadcast(x, y).shape)
    for k in range(1, order):
        g = ((order - k + 1) * np.cos(k * turn) + np.sin(k * turn) / np.tan(turn)) / (order + 1)
        total = total + 2.0 * g * np.cos(k * np.pi * np.asarray(x)) * np.cos(k * np.pi * np.asarray(y))
    return total


def kernel(p: Sequence[float], order: int, forgetting: float) -> list[float]:
    """Log of (1 + sum lam^(n-i) K_J(p, p_i)) / (1 + sum lam^(n-i)), summed directly."""
    past = np.asarray(p)
    gains = []
    for n, value in enumerate(p):
        weight = forgetting ** (n - 1 - np.arange(n, dtype=float))
        gains.append(math.log((1.0 + (weight * jackson_kernel(value, past[:n], order)).sum()) / (1.0 + weight.sum())))
    return gains


def markov(p: Sequence[float], order: int, forgetting: float) -> list[float]:
    """The same for p_n given p_{n-1}, over the pairs so far."""
    past = np.asarray(p)
    gains = [0.0]
    for n in range(1, len(past)):
        weight = forgetting ** (n - 2 - np.arange(n - 1, dtype=float))
        near = weight * jackson_kernel(past[n - 1], past[: n - 1], order)
        gains.append(math.log((1.0 + (near * jackson_kernel(past[n], past[1:n], order)).sum()) / (1.0 + near.sum())))
    return gains[: len(past)]


def tree(p: Sequence[float], depth: int, smooth: bool = False) -> float:
    """Log W of [0, 1], computed from scratch by the recursion on intervals."""

    def weight(inside: list[float], low: float, width: float, d: int) -> Any:
        if d == depth or not inside:
            return mpmath.mpf(1)
        middle = low + width / 2
        a = mpmath.mpf((d + 1) ** 2 if smooth else 0.5)
        split, counts = mpmath.mpf(1), [0, 0]
        for value in inside:
            side = int(value >= middle)
            split *= 2 * (counts[side] + a) / (sum(counts) + 2 * a)
            counts[side] += 1
        below = weight([v for v in inside if v < middle], low, width / 2, d + 1)
        above = weight([v for v in inside if v >= middle], middle, width / 2, d + 1)
        return (1 + split * below * above) / 2

    return float(mpmath.log(weight(list(p), 0.0, 1.0, 0)))


def beta_log_density(p: float, a: Any, b: Any) -> Any:
    """Of Beta(a, b); p = 1 stands for (1 - 2^-54, 1], over which the mean is taken."""
    if p == 1.0:
        return -54.0 * math.log(2.0) * (b - 1.0) - np.log(b) - betaln(a, b)
    return (a - 1.0) * math.log(p) + (b - 1.0) * math.log1p(-p) - betaln(a, b)


def beta_grid(size: int, reach: float) -> tuple[Floats, Floats]:
    """All pairs (a, b)."""
    shapes = [math.exp(reach * t * abs(t)) for t in (-1.0 + 2.0 * i / (size - 1) for i in range(size))]
    a, b = zip(*((a, b) for a in shapes for b in shapes), strict=True)
    return np.array(a), np.array(b)


def beta(
    p: Iterable[float], switching: float, size: int, reach: float, memory: float = 0.0
) -> tuple[list[float], Floats]:
    """Log densities of the Beta bank with switching, and the weights with which it bets next."""
    a, b = beta_grid(size, reach)
    weights = prior = np.full(len(a), 1.0 / len(a))
    gains: list[float] = []
    past = [prior]  # and the shares after steps 8, 16, ...
    for value in p:
        logs = np.log(weights) + beta_log_density(value, a, b)
        gains.append(float(logs.max() + math.log(np.exp(logs - logs.max()).sum())))
        shares = np.exp(logs - gains[-1])
        if len(gains) % 8 == 0:
            past.append(shares)
        weights = (1.0 - switching) * shares + switching * ((1.0 - memory) * prior + memory * np.mean(past, axis=0))
    return gains, weights


def beta_mass_outside(
    history: Iterable[float],
    low: float,
    from_one: float,
    switching: float,
    size: int,
    reach: float,
    memory: float = 0.0,
) -> float:
    """The mass of the next bet in (0, low] and in [1 - from_one, 1]."""
    return beta_weights_outside(beta(history, switching, size, reach, memory)[1], low, from_one, size, reach)


def beta_weights_outside(weights: Floats, low: float, from_one: float, size: int, reach: float) -> float:
    """The same of a bet with these weights."""
    a, b = beta_grid(size, reach)
    return float(weights @ (betainc(a, b, low) + betainc(b, a, from_one)))


# ------------------------------------------------------------------ many streams


def e_bh(log_values: Sequence[float], alpha: float) -> int:
    """How many are found: the greatest k for which at least k values reach K/(alpha k), in 50 digits."""
    K = len(log_values)
    with mpmath.workdps(50):
        levels = [mpmath.log(mpmath.mpf(K) / (mpmath.mpf(alpha) * k)) for k in range(1, K + 1)]
        return max((k for k, t in enumerate(levels, 1) if sum(mpmath.mpf(v) >= t for v in log_values) >= k), default=0)


def weighted_e_bh(log_values: Sequence[float], joined: Sequence[int], alpha: float) -> set[int]:
    """Which are found: the k largest gamma_j e_j, k the greatest with at least k of them at 1/(alpha k) or above."""
    with mpmath.workdps(50):
        weighted = [mpmath.mpf(v) - mpmath.log(j * (j + 1)) for v, j in zip(log_values, joined, strict=True)]
        levels = [-mpmath.log(mpmath.mpf(alpha) * k) for k in range(1, len(weighted) + 1)]
        reached = [[i for i, w in enumerate(weighted) if w >= t] for t in levels]
        return max((set(found) for k, found in enumerate(reached, 1) if len(found) >= k), key=len, default=set())


# ------------------------------------------------------------------ the k nearest neighbours


def least_means(table: Floats, k: int) -> Floats:
    """Mean of the k least finite entries of each row, added from the least on; infinite where there is none."""
    total, count = np.zeros(len(table)), np.zeros(len(table))
    for column in np.sort(table, axis=1)[:, :k].T:
        total += np.where(column < math.inf, column, 0.0)
        count += column < math.inf
    return np.where(count > 0, total / np.maximum(count, 1), math.inf)


def neighbour_ratios(squared: Floats, y: Sequence[Any], k: int) -> NDArray[Any]:
    """Mean distance to the k nearest of the own label over the same of other labels; squared, for one neighbour."""
    first = np.array([list(y).index(label) for label in y])  # equal labels, equal numbers
    if k == 1:
        return _scores(squared, first)
    alike, table = first[:, None] == first[None, :], np.sqrt(squared)
    same = least_means(np.where(alike & ~np.eye(len(y), dtype=bool), table, math.inf), k)
    other = least_means(np.where(alike, math.inf, table), k)
    return np.array([float(ratio(s, o)) for s, o in zip(same.tolist(), other.tolist(), strict=True)])


def neighbour_distances(squared: Floats, y: Sequence[Any], k: int) -> Floats:
    """Mean distance to the k nearest others."""
    return least_means(np.where(np.eye(len(squared), dtype=bool), math.inf, np.sqrt(squared)), k)


def neighbour_residuals(squared: Floats, y: Sequence[float], k: int) -> Floats:
    """Label less the mean label of the k nearest others, ordered by (squared distance, label); alone 0."""
    residuals = []
    for i, row in enumerate(squared.tolist()):
        nearest = sorted((row[j], float(y[j])) for j in range(len(y)) if j != i)[:k]
        total = 0.0
        for _, label in nearest:
            total += label
        residuals.append(float(y[i]) - total / len(nearest) if nearest else 0.0)
    return np.array(residuals)


def ranked(alpha: Floats, y: Sequence[Any] | None = None) -> tuple[int, int, int]:
    """(greater, equal, n) of the last score: among all, or (labels given) among those of its own label."""
    among = alpha if y is None else alpha[[label == y[-1] for label in y]]
    return int((among > alpha[-1]).sum()), int((among == alpha[-1]).sum()), len(among)


def increments(log_values: Sequence[float]) -> list[float]:
    """From S_0 = 1 on."""
    return [b - a for a, b in zip([0.0, *log_values], log_values, strict=False)]


def cusum(log_values: Sequence[float]) -> list[float]:
    """log max_{i<n} S_n/S_i."""
    past = [0.0, *log_values]
    return [max(past[n] - past[i] for i in range(n)) for n in range(1, len(past))]


def shiryaev_roberts(log_values: Sequence[float]) -> list[float]:
    """log sum_{i<n} S_n/S_i."""
    past = [mpmath.mpf(value) for value in (0.0, *log_values)]
    return [
        float(mpmath.log(mpmath.fsum(mpmath.exp(past[n] - past[i]) for i in range(n)))) for n in range(1, len(past))
    ]


# ------------------------------------------------------------------ scores fixed in advance


def ranks_of(scores: ArrayLike, y: Sequence[Any] | None = None) -> Counts:
    """Each score among all so far, or (labels given) among those of its own label."""
    alpha = np.asarray(scores, dtype=np.float64)
    return [ranked(alpha[:n], None if y is None else y[:n]) for n in range(1, len(alpha) + 1)]
