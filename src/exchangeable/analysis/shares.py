"""Shares of categories: an e-value for the number of rows of each category before and after a change.

A bet on ranks must learn how the shares have changed before it gains from it, so it uses only a part of the rows. This
test looks once, at the end, and uses all of them. Let K of the n rows be of one category, and k of these be among the
first tau rows. Given the bag of rows, all orders of exchangeable rows are equally likely, so k is hypergeometric, with
probabilities H(j) = C(K, j) C(n - K, tau - j) / C(n, tau). For fixed tau and odds ratio psi, the likelihood ratio of
Fisher's noncentral hypergeometric distribution

    E(tau, psi) = psi^k / sum_j H(j) psi^j

has mean 1 given the bag. So has its average over all categories, over tau in eighths of n with the weights 1, 2, 3, 4,
3, 2, 1 (of 16), and over psi = exp(+-min(c / s, 20)) with c = 4, 8, 16 and the weights 0.7, 0.2, 0.1, one half for each
sign: averages of e-values are e-values, whatever their dependence. Here s is the standard deviation of k, which depends
on the bag only. With z = (k - mean) / s, log E is about c z - c^2 / 2, which is largest for c = z. After all weights, a
rejection needs a z of about 4 or more for any n, so smaller c are of no use. Two sets have one tau, the size of the
first set.

Given the bag, the capital that is 1 up to the last row and E there is a martingale, so it can share alpha with the
other martingales of a table (see `columns`): by Markov's inequality P(w E >= 1 / alpha) <= w alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exchangeable.analysis.columns import ColumnTest, TestedColumn, ranked
from exchangeable.data.table import TableColumn
from exchangeable.protocols import Floats, Integers

PREFIX = "shares of "  # of the name of a test
MAX_CATEGORIES = 64
EIGHTHS: Integers = np.arange(1, 8)
EIGHTH_WEIGHTS: Floats = np.minimum(EIGHTHS, 8 - EIGHTHS) / 16.0
EFFECTS: Floats = np.array([-16.0, -8.0, -4.0, 4.0, 8.0, 16.0])  # log odds ratios, in 1 / deviations
EFFECT_WEIGHTS: Floats = np.array([0.05, 0.1, 0.35, 0.35, 0.1, 0.05])
MAX_LOG_ODDS = 20.0  # of an odds ratio, so that it and its square are floats
STIRLING = 16  # from here on the series has an error below 1e-15
FACTORIALS: Floats = np.array([math.log(math.factorial(k)) for k in range(STIRLING)])


def share_columns(columns: Sequence[TestedColumn]) -> list[TestedColumn]:
    """Return the columns whose shares are tested: categories, classes, and numbers with two different values."""
    found = (one.column for one in columns if 2 <= _distinct(one.column) <= MAX_CATEGORIES)
    return [TestedColumn("shares", column._replace(name=f"{PREFIX}{column.name}")) for column in found]


def tested_column(test: ColumnTest) -> str:
    """Return the name of a test, and of a test of shares that of its column."""
    return test.name.removeprefix(PREFIX) if test.kind == "shares" else test.name


def strongest_ranked(tests: Sequence[ColumnTest]) -> ColumnTest:
    """Return the strongest test, or that of the column if it is a test of shares, which has no ranks and p-values."""
    strongest = ranked(tests)[0]
    if strongest.kind != "shares":
        return strongest
    return next(test for test in tests if test.is_column and test.name == tested_column(strongest))


def without_repeats(tests: Sequence[ColumnTest]) -> list[ColumnTest]:
    """Leave out tests of shares if that of the column is among the tests too: both show the same change."""
    columns = {test.name for test in tests if test.is_column}
    return [test for test in tests if test.kind != "shares" or tested_column(test) not in columns]


def _distinct(column: TableColumn) -> int:
    """Return the number of categories that occur; of a column of numbers 2 if it has two values, and otherwise 0."""
    values = column.values
    if column.categories is not None:
        return int(np.count_nonzero(np.bincount(values.astype(np.intp))))
    low, high = values.min(), values.max()
    return 2 if low < high and bool(((values == low) | (values == high)).all()) else 0


def run_share_tests(columns: Sequence[TestedColumn], start: int = 0) -> list[ColumnTest]:
    """Test the shares of each column; of two sets the first has ``start`` rows. O(n) for each column.

    The capital is 1 up to the last row: nothing is tested before it.
    """
    tests = []
    for kind, column, weight in columns:
        codes = column.values == column.values.max() if column.categories is None else column.values
        log_value = np.zeros(len(codes) - start)
        log_value[-1] = log_e_value(codes.astype(np.intp), start)
        tests.append(ColumnTest(column.name, kind, weight, log_value))
    return tests


def log_e_value(codes: NDArray[np.intp], start: int = 0) -> float:
    """Return the log of the e-value: evidence that the shares of codes change.

    With ``start``, that they differ before and after the first ``start`` rows.

    >>> [round(log_e_value(np.array(codes)), 2) for codes in ([0, 1] * 20, [0] * 20 + [1] * 20)]
    [-6.54, 21.55]
    """
    n, totals = len(codes), np.bincount(codes)
    tau, weights = (np.array([start]), np.ones(1)) if start else (n * EIGHTHS // 8, EIGHTH_WEIGHTS)
    parts = [np.bincount(part, minlength=len(totals)) for part in np.split(codes, tau)[:-1]]
    counts = np.cumsum(parts, axis=0)
    present = np.flatnonzero(totals)
    categories = present[-1:] if len(present) == 2 else present  # two categories have the same evidence
    log_weights = np.log(np.multiply.outer(weights, EFFECT_WEIGHTS))
    logs = [log_ratios(n, int(totals[one]), tau, counts[:, one]) + log_weights for one in categories]
    return _log_sum(np.array(logs)) - math.log(len(logs))


def _log_sum(logs: Floats) -> float:
    highest = logs.max()
    return float(highest + np.log(np.exp(logs - highest).sum()))


# ------------------------------------------------------------------------------------- Fisher's noncentral distribution


def log_ratios(n: int, ones: int, tau: Integers, k: Integers) -> Floats:
    """Return log E for each tau, with k of the ones among the first tau rows, and for each effect.

    The sum over j is H(m) psi^m S, where m is the mode of H(j) psi^j and S the sum of all terms relative to that one.
    """
    K, first = float(ones), tau[:, np.newaxis].astype(np.float64)
    deviation = np.sqrt(K * (n - K) * (first / n) * (1.0 - first / n) / max(1, n - 1))
    log_psi = EFFECTS / np.maximum(deviation, np.abs(EFFECTS) / MAX_LOG_ODDS)
    psi = np.exp(log_psi)
    mode = _mode(n, K, first, psi)
    log_sum = _log_probability(n, K, first, mode) + np.log(_sum(n, K, first, psi, mode))
    return (k[:, np.newaxis] - mode) * log_psi - log_sum


def _mode(n: int, K: float, tau: Floats, psi: Floats) -> Floats:
    """Return the j with the largest H(j) psi^j: the last one with H(j) psi >= H(j - 1), by a quadratic equation.

    Rounding may lead to a neighbour, which is as good.
    """
    b, c = n - K - tau + (K + tau + 2.0) * psi, (K + 1.0) * (tau + 1.0) * psi
    root = 2.0 * c / (b + np.sqrt(np.maximum(0.0, b * b + 4.0 * (1.0 - psi) * c)))
    return np.clip(np.floor(root), np.maximum(0.0, K + tau - n), np.minimum(K, tau))


def _sum(n: int, K: float, tau: Floats, psi: Floats, mode: Floats) -> Floats:
    """Return the sum of H(j) psi^j over j, relative to its largest term, at the mode.

    Terms more than 5 sqrt(L) + 2 from the mode are left out, where L = min(K, n - K, tau, n - tau) + 1. The log of the
    ratio of a term to the one before falls with j by at least 1/(K-j) + 1/(j+1) + 1/(tau-j) + 1/(n-K-tau+j+1), and
    since 1/x + 1/y >= 4/(x+y), this is at least 4/L. So the term at distance t is at most exp(-2 t (t - 1) / L) times
    the largest, and those left out sum to less than exp(-50) (2 + sqrt(L) / 10): less than rounding for any n. Beyond
    the last possible j, one way or the other, a ratio is 0, and so is their product from there on.
    """
    smallest = np.minimum(np.minimum(tau, n - tau).max(), min(K, n - K))
    t = np.arange(int(5.0 * math.sqrt(smallest + 1.0)) + 2)
    tau, psi, mode = tau[..., np.newaxis], psi[..., np.newaxis], mode[..., np.newaxis]
    j = mode + t
    above = np.cumprod(psi * ((K - j) * (tau - j)) / ((j + 1.0) * (n - K - tau + j + 1.0)), axis=-1)
    j = mode - t
    below = np.cumprod(j * (n - K - tau + j) / ((K - j + 1.0) * (tau - j + 1.0) * psi), axis=-1)
    return np.asarray(1.0 + above.sum(axis=-1) + below.sum(axis=-1))


def _log_probability(n: int, K: float, tau: Floats, j: Floats) -> Floats:
    """Return log H(j): with log x! = x log x - x + r(x), most of it cancels, and no large numbers are subtracted.

    The four cells of the table of counts are e + d or e - d, where e is what an even spread would give.
    """
    d = (j * n - K * tau) / n
    rest, late = n - K, n - tau
    log_h = _remainder(np.array([K, rest])).sum() + _remainder(tau) + _remainder(late) - _remainder(np.array(float(n)))
    for x, e, difference in (
        (j, K * tau / n, d),
        (K - j, K * late / n, -d),
        (tau - j, rest * tau / n, -d),
        (rest - tau + j, rest * late / n, d),
    ):
        log_h = log_h - _remainder(x) - x * np.log1p(difference / np.where(x > 0.0, e, np.inf))
    return np.asarray(log_h)


def _remainder(x: Floats) -> Floats:
    """Return log x! - (x log x - x), by Stirling's series for large x."""
    small, y = np.minimum(x, STIRLING - 1.0), np.maximum(x, float(STIRLING))
    exact = FACTORIALS[small.astype(np.intp)] - small * np.log(np.maximum(small, 1.0)) + small
    z = 1.0 / (y * y)
    series = (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))) / y
    return np.where(x < STIRLING, exact, 0.5 * np.log(2.0 * math.pi * y) + series)
