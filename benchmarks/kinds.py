"""Tables with a known kind of departure: what `bench_tables.py` lets `ex.test` name.

Each function draws a table of n rows, as in departures.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

import departures as d
from departures import Drawn, Floats, Rng

N = 1000


def _noise(rng: Rng, n: int, columns: int = 6) -> Floats:
    return rng.normal(size=(n, columns))


def _named(X: Floats) -> Drawn:
    return Drawn({f"x{j}": X[:, j] for j in range(X.shape[1])})


def early(rng: Rng, n: int) -> Drawn:
    """The mean of one column rises by 0.7 after a quarter."""
    X = _noise(rng, n)
    X[n // 4 :, 2] += 0.7
    return _named(X)


def exponential(rng: Rng, n: int) -> Drawn:
    """An exponential column, whose mean falls by a third after 60 %."""
    X = _noise(rng, n)
    X[:, 0] = rng.exponential(np.where(np.arange(n) < 0.6 * n, 1.5, 1.0))
    return _named(X)


def last_rows(rng: Rng, n: int) -> Drawn:
    """Two columns fall by 1.5 in the last 8 %."""
    X = _noise(rng, n)
    X[int(0.92 * n) :, :2] -= 1.5
    return _named(X)


def four_levels(rng: Rng, n: int) -> Drawn:
    """The mean of one column is 0, 1, -0.5 and 0.6 in four parts."""
    X = _noise(rng, n)
    X[:, 1] += np.array([0.0, 1.0, -0.5, 0.6])[np.arange(n) * 4 // n]
    return _named(X)


def there_and_back(rng: Rng, n: int) -> Drawn:
    """The deviation of one column doubles between 40 % and 70 % of the rows."""
    X = _noise(rng, n)
    X[int(0.4 * n) : int(0.7 * n), 1] *= 2.0
    return _named(X)


def shares_back(rng: Rng, n: int) -> Drawn:
    """A category has a share of 20 %, in the middle third of 55 %."""
    inside = (np.arange(n) >= n // 3) & (np.arange(n) < 2 * n // 3)
    kind = np.where(rng.random(n) < np.where(inside, 0.55, 0.2), "u", rng.choice(["v", "w"], n))
    return Drawn({**_named(_noise(rng, n, 3)).columns, "kind": kind})


def linear_drift(rng: Rng, n: int) -> Drawn:
    """The mean of one column rises linearly by 1.2."""
    X = _noise(rng, n)
    X[:, 3] += np.linspace(0.0, 1.2, n)
    return _named(X)


def ageing(rng: Rng, n: int) -> Drawn:
    """A gamma column whose scale rises by 60 %, slowly at first."""
    X = _noise(rng, n)
    X[:, 0] = rng.gamma(3.0, 1.0 + 0.6 * np.linspace(0.0, 1.0, n) ** 2)
    return _named(X)


def wandering(rng: Rng, n: int) -> Drawn:
    """The mean of one column is a random walk with steps of 0.06."""
    X = _noise(rng, n)
    X[:, 1] += np.cumsum(rng.normal(0.0, 0.06, n))
    return _named(X)


def growing_share(rng: Rng, n: int) -> Drawn:
    """The share of a category rises linearly from 20 % to 65 %."""
    kind = np.where(rng.random(n) < 0.2 + 0.45 * np.arange(n) / n, "u", "v")
    return Drawn({**_named(_noise(rng, n, 3)).columns, "kind": kind})


def week(rng: Rng, n: int) -> Drawn:
    """One column has another mean on each day of the week."""
    X = _noise(rng, n)
    X[:, 2] += 0.8 * np.array([0.0, 0.4, 0.8, 0.2, -0.5, -1.0, -0.6])[np.arange(n) % 7]
    return _named(X)


def day(rng: Rng, n: int) -> Drawn:
    """One column has a sine of period 24 and amplitude 0.8."""
    X = _noise(rng, n)
    X[:, 0] += 0.8 * np.sin(2.0 * np.pi * np.arange(n) / 24.0)
    return _named(X)


def roster(rng: Rng, n: int) -> Drawn:
    """Every fifth row has category u in 70 % of the cases, the others in 30 %."""
    kind = np.where(rng.random(n) < np.where(np.arange(n) % 5 == 0, 0.7, 0.3), "u", "v")
    return Drawn({**_named(_noise(rng, n, 3)).columns, "kind": kind})


def strong_memory(rng: Rng, n: int) -> Drawn:
    """One column is an AR(1) series with rho = 0.8."""
    X = _noise(rng, n)
    for t in range(1, n):
        X[t, 0] = 0.8 * X[t - 1, 0] + 0.6 * X[t, 0]
    return _named(X)


def all_remember(rng: Rng, n: int) -> Drawn:
    """Each of four columns is an AR(1) series with rho = 0.35."""
    X = _noise(rng, n, 4)
    for t in range(1, n):
        X[t] += 0.35 * X[t - 1]
    return _named(X)


def sticky(rng: Rng, n: int) -> Drawn:
    """Categories stay with probability 0.5, or are drawn again."""
    code = rng.integers(0, 3, n)
    for t in range(1, n):
        code[t] = code[t - 1] if rng.random() < 0.5 else code[t]
    return Drawn({**_named(_noise(rng, n, 3)).columns, "kind": np.array(["u", "v", "w"])[code]})


def volatile(rng: Rng, n: int) -> Drawn:
    """Stochastic volatility: the log of the deviation is an AR(1) series."""
    X, level = _noise(rng, n), 0.0
    for t in range(n):
        level = 0.95 * level + 0.3 * rng.normal()
        X[t, 1] *= np.exp(level)
    return _named(X)


def by_class(rng: Rng, n: int) -> Drawn:
    """Sorted by class; two columns tell the classes apart."""
    label = np.repeat(["a", "b", "c"], [n // 3, n // 3, n - 2 * (n // 3)])
    X = _noise(rng, n, 4)
    X[:, 0] += np.unique(label, return_inverse=True)[1]
    return Drawn(_named(X).columns, label)


def by_score(rng: Rng, n: int) -> Drawn:
    """Sorted by one column, up to a few rows out of place."""
    X = _noise(rng, n)
    X = X[np.argsort(X[:, 0])]
    moved = rng.choice(n, n // 50, replace=False)
    X[np.sort(moved)] = X[moved]
    return _named(X)


def appended(rng: Rng, n: int) -> Drawn:
    """The second tenth of the rows occurs again at the end."""
    X = _noise(rng, n)
    X[-(n // 10) :] = X[n // 10 : 2 * (n // 10)]
    return _named(X)


def spikes(rng: Rng, n: int) -> Drawn:
    """In the last third one value in 25 is 8 larger."""
    X = _noise(rng, n)
    odd = (np.arange(n) >= 2 * n // 3) & (rng.random(n) < 0.04)
    X[odd, 1] += 8.0
    return _named(X)


def burst(rng: Rng, n: int) -> Drawn:
    """Ten values in succession, at 60 %, are 12 larger."""
    X = _noise(rng, n)
    X[int(0.6 * n) : int(0.6 * n) + 10, 1] += 12.0
    return _named(X)


KINDS: Mapping[str, Mapping[str, Callable[[Rng, int], Drawn]]] = {
    "one change": {
        "mean": d.mean, "early change": early, "deviation": d.scale, "exponential": exponential,
        "correlation": d.correlation_of_two, "label noise": d.label_noise, "slope": d.slope,
        "all columns": d.means, "shares of categories": d.categories, "a curve": d.curve,
    },
    "last part": {"last tenth": d.last_tenth, "last rows": last_rows},
    "several changes": {
        "middle third": d.middle_third, "four levels": four_levels, "there and back": there_and_back,
        "shares and back": shares_back,
    },
    "drift": {"linear": linear_drift, "ageing": ageing, "random walk": wandering, "growing share": growing_share},
    "seasonal pattern": {"every seventh row": d.weekly_rows, "week": week, "day": day, "slow sine": d.slow_sine,
                         "alternation": d.alternation, "roster": roster},
    "serial dependence": {"AR(1)": d.autocorrelation, "strong memory": strong_memory, "all columns": all_remember,
                          "sticky categories": sticky, "volatility": volatile},
    "sorted rows": {"by class": by_class, "by score": by_score},
    "repeated rows": {"rows twice": d.copies, "repeated block": d.repeated_block, "appended": appended},
    "outliers": {"spikes": spikes, "burst": burst},
}  # fmt: skip
