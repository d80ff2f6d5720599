"""Classical baselines: generalised likelihood ratios (GLR) of "two laws, one before and one after" against "one law".

After each step the maximum over the time of the change, both laws estimated from the data. The candidates are at most
200 ages of the change, up to 20,000 on a geometric grid, with at least 100 numbers before it; a step costs O(200).
Each also comes with changes of at least 20 steps only, as is common: single large numbers then mean less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.special import xlogy

from detectors import BINARY, NUMBERS, Floats, Integers, Path

BEFORE = 100  # numbers that stand before every change: with fewer, a few equal ones look like a law without variance
OLDER = 20  # the least age of a change, where very young ones are not tried
AGES = np.unique(np.geomspace(1, 20_000, 200).round().astype(np.int64))  # of the change: 1, 2, 3, ..., then geometric


def splits(total: Floats, youngest: int) -> Iterator[tuple[int, int, Floats, Floats]]:
    """For each age a the first step n that has a candidate of this age, and the sums over the a last, and before.

    ``total`` are the sums of the first 0, 1, 2, ... numbers.
    """
    for a in AGES[(youngest <= AGES) & (len(total) - BEFORE > AGES)].tolist():
        n = a + BEFORE
        old = total[BEFORE : len(total) - a]
        yield a, n, total[n:] - old, old


def best(length: int, gains: Callable[[], Iterator[tuple[int, Floats]]]) -> Floats:
    """The largest gain after each step; ``gains`` gives those from the n-th step on, one array for each age."""
    found = np.full(length, -np.inf)
    for n, gain in gains():
        np.maximum(found[n - 1 :], gain, out=found[n - 1 :])
    return found


def centred_sums(x: Floats) -> tuple[Floats, Floats]:
    """Sums and sums of squares of the first 0, 1, 2, ... numbers, moved so that little is lost by rounding."""
    y = x - np.median(x[:BEFORE])
    return np.append(0.0, np.cumsum(y)), np.append(0.0, np.cumsum(y * y))


def normal_mean(x: Floats, seed: int = 0, *, youngest: int = 1) -> Floats:
    """``-n/2 ln(1 - B/T)``: T the sum of squares about the mean, B its part between the two means; one variance."""
    total, squares = centred_sums(x)
    n = np.arange(1, len(x) + 1)

    def gains() -> Iterator[tuple[int, Floats]]:
        for a, first, new, old in splits(total, youngest):
            k = n[first - 1 :] - a
            yield first, (new / a - old / k) ** 2 * (a * k / (a + k))

    spread = squares[1:] - total[1:] ** 2 / n
    part = best(len(x), gains) / np.maximum(spread, 1e-300)
    return np.where(part >= 0.0, -0.5 * n * np.log1p(-np.clip(part, 0.0, 1.0 - 1e-12)), -np.inf)


def normal(x: Floats, seed: int = 0, *, youngest: int = 1) -> Floats:
    """``n/2 ln v - k/2 ln v_old - a/2 ln v_new``: two normal laws, each with its own mean and variance.

    The variance of a part of m numbers is (sum of squares + v)/(m + 1), as if one more showed the variance v of all.
    """
    (total, squares), n = centred_sums(x), np.arange(1, len(x) + 1)
    v = np.maximum(squares[1:] - total[1:] ** 2 / n, 1e-300) / n

    def gains() -> Iterator[tuple[int, Floats]]:
        both = zip(splits(total, youngest), splits(squares, youngest), strict=True)
        for (a, first, new, old), (_, _, new_squares, old_squares) in both:
            k, one = n[first - 1 :] - a, v[first - 1 :]
            v_new = (np.maximum(new_squares - new * new / a, 0.0) / one + 1.0) / (a + 1)
            v_old = (np.maximum(old_squares - old * old / k, 0.0) / one + 1.0) / (k + 1)
            yield first, -0.5 * (k * np.log(v_old) + a * np.log(v_new))

    return best(len(x), gains)


def bernoulli(x: Floats, seed: int = 0, *, youngest: int = 1) -> Floats:
    """For 0 and 1: the log-likelihood with one probability before and one after, less that with one for all."""
    total, n = np.append(0.0, np.cumsum(x)), np.arange(1, len(x) + 1)

    def likelihood(ones: Floats, of: Integers | int) -> Floats:
        return np.asarray(xlogy(ones, ones / of) + xlogy(of - ones, 1.0 - ones / of))

    def gains() -> Iterator[tuple[int, Floats]]:
        for a, first, new, old in splits(total, youngest):
            yield first, likelihood(new, a) + likelihood(old, n[first - 1 :] - a)

    return np.asarray(best(len(x), gains) - likelihood(total[1:], n))


def tools(name: str, statistic: Callable[..., Floats], needs: str = NUMBERS) -> list[Path]:
    """For changes of every age, and for those that are not too young."""
    older = partial(statistic, youngest=OLDER)
    return [
        Path(f"GLR, {name}", None, "none", statistic, needs),
        Path(f"GLR, {name}, age >= {OLDER}", None, "none", older, needs),
    ]


TOOLS = [
    *tools("normal mean", normal_mean),
    *tools("normal mean and variance", normal),
    *tools("Bernoulli", bernoulli, BINARY),
]
