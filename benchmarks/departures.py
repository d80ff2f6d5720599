"""Tables whose rows are not exchangeable, and two that are: what `bench_tables.py` tests.

Each function draws a table of n rows: columns by name, and the label or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rng = np.random.Generator


class Drawn(NamedTuple):
    """A table: columns by name, in the order of the rows, and the label of each row."""

    columns: dict[str, NDArray[Any]]
    label: NDArray[Any] | None = None


class Departure(NamedTuple):
    """How to draw a table, and its number of rows."""

    draw: Callable[[Rng, int], Drawn]
    n: int
    quiet: bool = False  # whether its rows are exchangeable


def _named(X: Floats, label: NDArray[Any] | None = None) -> Drawn:
    return Drawn({f"x{j}": X[:, j] for j in range(X.shape[1])}, label)


def _late(n: int, part: float = 0.5) -> NDArray[np.bool_]:
    return np.arange(n) >= n * part


def nothing(rng: Rng, n: int) -> Drawn:
    """20 independent normal columns: nothing to find."""
    return _named(rng.normal(size=(n, 20)))


def nothing_mixed(rng: Rng, n: int) -> Drawn:
    """Five columns with ties, categories and classes that depend on them: nothing to find."""
    X = rng.normal(size=(n, 3)).round(1)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": rng.integers(0, 3, n).astype(float), "d": rng.choice(list("uvw"), n)}
    return Drawn(columns, np.where(X[:, 0] + rng.normal(size=n) > 0.0, "yes", "no"))


def correlation_of_two(rng: Rng, n: int) -> Drawn:
    """Two columns; their correlation changes from 0 to 0.8."""
    X = rng.normal(size=(n, 2))
    X[_late(n), 1] = 0.8 * X[_late(n), 0] + 0.6 * X[_late(n), 1]
    return _named(X)


def correlation(rng: Rng, n: int) -> Drawn:
    """20 columns; the correlation of two of them changes from 0 to 0.8."""
    X = rng.normal(size=(n, 20))
    X[_late(n), 1] = 0.8 * X[_late(n), 0] + 0.6 * X[_late(n), 1]
    return _named(X)


def curve(rng: Rng, n: int) -> Drawn:
    """Five columns; in the second half one of them is the square of another, scaled to mean 0 and deviation 1."""
    X = rng.normal(size=(n, 5))
    X[_late(n), 1] = (X[_late(n), 0] ** 2 - 1.0) / np.sqrt(2.0)
    return _named(X)


def label_noise(rng: Rng, n: int) -> Drawn:
    """Two classes, one deviation apart in 20 columns; 2 % of the labels are wrong, in the second half 20 %."""
    truth = rng.integers(0, 2, n)
    wrong = rng.random(n) < np.where(_late(n), 0.2, 0.02)
    return _named(rng.normal(size=(n, 20)) + truth[:, np.newaxis], np.array(["a", "b"])[truth ^ wrong])


def slope(rng: Rng, n: int) -> Drawn:
    """The label is x0 plus noise; in the second half 0.3 x0 plus noise."""
    X = rng.normal(size=(n, 20))
    return _named(X, np.where(_late(n), 0.3, 1.0) * X[:, 0] + 0.5 * rng.normal(size=n))


def noisier_label(rng: Rng, n: int) -> Drawn:
    """The label is the sum of three of ten columns plus noise, whose deviation doubles."""
    X = rng.normal(size=(n, 10))
    return _named(X, X[:, :3].sum(axis=1) + np.where(_late(n), 1.0, 0.5) * rng.normal(size=n))


def swapped_concept(rng: Rng, n: int) -> Drawn:
    """Two classes, told apart by x0; in the second half by x1."""
    X = rng.normal(size=(n, 5))
    score = np.where(_late(n), X[:, 1], X[:, 0])
    return _named(X, np.where(score + 0.3 * rng.normal(size=n) > 0.0, "yes", "no"))


def class_shares(rng: Rng, n: int) -> Drawn:
    """Two classes; the share of one changes from 50 % to 65 %."""
    label = rng.random(n) < np.where(_late(n), 0.65, 0.5)
    return _named(rng.normal(size=(n, 5)) + label[:, np.newaxis], np.where(label, "yes", "no"))


def weekly_rows(rng: Rng, n: int) -> Drawn:
    """20 columns; every seventh row + 1."""
    X = rng.normal(size=(n, 20))
    X[::7] += 1.0
    return _named(X)


def weekly_column(rng: Rng, n: int) -> Drawn:
    """20 columns; every seventh value of one + 1.5."""
    X = rng.normal(size=(n, 20))
    X[::7, 0] += 1.5
    return _named(X)


def hours(rng: Rng, n: int) -> Drawn:
    """10 columns; one has a sine of period 24 and amplitude 1."""
    X = rng.normal(size=(n, 10))
    X[:, 0] += np.sin(2.0 * np.pi * np.arange(n) / 24.0)
    return _named(X)


def slow_sine(rng: Rng, n: int) -> Drawn:
    """20 columns; one has a sine of period 50 and amplitude 1."""
    X = rng.normal(size=(n, 20))
    X[:, 0] += np.sin(2.0 * np.pi * np.arange(n) / 50.0)
    return _named(X)


def alternation(rng: Rng, n: int) -> Drawn:
    """10 columns; every second value of one + 0.7."""
    X = rng.normal(size=(n, 10))
    X[::2, 0] += 0.7
    return _named(X)


def mean(rng: Rng, n: int) -> Drawn:
    """20 columns; the mean of one rises by 0.6."""
    X = rng.normal(size=(n, 20))
    X[_late(n), 0] += 0.6
    return _named(X)


def means(rng: Rng, n: int) -> Drawn:
    """20 columns; the mean of each rises by 0.3."""
    X = rng.normal(size=(n, 20))
    X[_late(n)] += 0.3
    return _named(X)


def scale(rng: Rng, n: int) -> Drawn:
    """20 columns; the deviation of one rises from 1 to 1.6."""
    X = rng.normal(size=(n, 20))
    X[_late(n), 0] *= 1.6
    return _named(X)


def last_tenth(rng: Rng, n: int) -> Drawn:
    """10 columns; the mean of one is 1 larger in the last tenth."""
    X = rng.normal(size=(n, 10))
    X[_late(n, 0.9), 0] += 1.0
    return _named(X)


def middle_third(rng: Rng, n: int) -> Drawn:
    """10 columns; the mean of one is 0.8 larger in the middle third."""
    X = rng.normal(size=(n, 10))
    X[_late(n, 1 / 3) & ~_late(n, 2 / 3), 0] += 0.8
    return _named(X)


def drift(rng: Rng, n: int) -> Drawn:
    """10 columns; the mean of one rises linearly by 1."""
    X = rng.normal(size=(n, 10))
    X[:, 0] += np.linspace(0.0, 1.0, n)
    return _named(X)


def walk(rng: Rng, n: int) -> Drawn:
    """10 columns; the mean of one is a random walk with steps of 0.05."""
    X = rng.normal(size=(n, 10))
    X[:, 0] += np.cumsum(rng.normal(0.0, 0.05, n))
    return _named(X)


def autocorrelation(rng: Rng, n: int) -> Drawn:
    """10 columns; one is an AR(1) series with rho = 0.3."""
    X = rng.normal(size=(n, 10))
    for t in range(1, n):
        X[t, 0] += 0.3 * X[t - 1, 0]
    return _named(X)


def batches(rng: Rng, n: int) -> Drawn:
    """10 columns; one has an offset N(0, 0.5^2) for every 50 rows."""
    X = rng.normal(size=(n, 10))
    X[:, 0] += np.repeat(rng.normal(0.0, 0.5, n // 50 + 1), 50)[:n]
    return _named(X)


def clusters(rng: Rng, n: int) -> Drawn:
    """10 columns; the deviation of one doubles for every third block of 50 rows."""
    X = rng.normal(size=(n, 10))
    X[np.arange(n) // 50 % 3 == 2, 0] *= 2.0
    return _named(X)


def outliers(rng: Rng, n: int) -> Drawn:
    """10 columns; in the second half 5 % of the values of one are N(0, 5^2)."""
    X = rng.normal(size=(n, 10))
    odd = _late(n) & (rng.random(n) < 0.05)
    X[odd, 0] = rng.normal(0.0, 5.0, int(odd.sum()))
    return _named(X)


def copies(rng: Rng, n: int) -> Drawn:
    """10 columns; each row occurs twice in succession."""
    return _named(np.repeat(rng.normal(size=(n // 2 + 1, 10)), 2, axis=0)[:n])


def repeated_block(rng: Rng, n: int) -> Drawn:
    """10 columns; the last fifth repeats the first fifth."""
    X = rng.normal(size=(n, 10))
    X[-(n // 5) :] = X[: n // 5]
    return _named(X)


def categories(rng: Rng, n: int) -> Drawn:
    """Four columns; the shares of three categories change from 1/3 each to 0.5, 0.3 and 0.2."""
    which = np.where(_late(n), rng.choice(3, n, p=[0.5, 0.3, 0.2]), rng.choice(3, n))
    return Drawn({**_named(rng.normal(size=(n, 3))).columns, "kind": np.array(["u", "v", "w"])[which]})


def new_category(rng: Rng, n: int) -> Drawn:
    """Four columns; in the last third one value in ten is of a new category."""
    kind = rng.choice(list("uvw"), n).astype("U3")
    kind[_late(n, 2 / 3) & (rng.random(n) < 0.1)] = "new"
    return Drawn({**_named(rng.normal(size=(n, 3))).columns, "kind": kind})


def missing(rng: Rng, n: int) -> Drawn:
    """Five columns; the share of missing values of one rises from 2 % to 10 %."""
    X = rng.normal(size=(n, 5))
    X[rng.random(n) < np.where(_late(n), 0.1, 0.02), 0] = np.nan
    return _named(X)


DEPARTURES: Mapping[str, Departure] = {
    "nothing": Departure(nothing, 600, quiet=True),
    "nothing, mixed table": Departure(nothing_mixed, 600, quiet=True),
    "correlation of two columns": Departure(correlation_of_two, 600),
    "correlation, 2 of 20 columns": Departure(correlation, 600),
    "label noise": Departure(label_noise, 600),
    "every seventh row": Departure(weekly_rows, 600),
    "sine of period 50": Departure(slow_sine, 600),
    "slope of a regression": Departure(slope, 600),
    "every seventh value": Departure(weekly_column, 1000),
    "sine of period 24": Departure(hours, 600),
    "alternation": Departure(alternation, 600),
    "mean of one column": Departure(mean, 600),
    "means of all columns": Departure(means, 300),
    "deviation of one column": Departure(scale, 1000),
    "last tenth": Departure(last_tenth, 1000),
    "middle third": Departure(middle_third, 600),
    "drift": Departure(drift, 600),
    "random walk": Departure(walk, 1000),
    "autocorrelation": Departure(autocorrelation, 600),
    "batches of 50": Departure(batches, 1000),
    "clusters of volatility": Departure(clusters, 1000),
    "outliers": Departure(outliers, 2000),
    "rows twice": Departure(copies, 300),
    "repeated block": Departure(repeated_block, 300),
    "shares of categories": Departure(categories, 1000),
    "new category": Departure(new_category, 600),
    "missing values": Departure(missing, 1000),
    "shares of classes": Departure(class_shares, 1000),
    "swapped concept": Departure(swapped_concept, 600),
    "noisier label": Departure(noisier_label, 600),
    "a curve": Departure(curve, 600),
}
