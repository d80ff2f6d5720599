"""Streams of numbers with a known change: what every detector of bench_detection.py watches.

A labelled stream becomes numbers by a classifier fitted on a separate sample and then frozen: the score of an example
is 1 minus the probability that the classifier gives to the true label, or whether the classifier is wrong. Before the
change, examples are independent and have the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.research import datasets
from streams import autoregression

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Labelled = tuple[Floats, Integers]
Draw = Callable[[np.random.Generator, int, bool], Labelled]  # how many, and whether after the change
Change = Callable[[np.random.Generator, int, int], Floats]  # how many before and after

TRAINING = 1_000  # examples that the classifier of a synthetic stream is fitted on


def mean(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then N(0.5, 1)."""
    return np.append(rng.normal(size=before), rng.normal(0.5, size=after))


def scale(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then N(0, 1.5^2)."""
    return np.append(rng.normal(size=before), rng.normal(0.0, 1.5, size=after))


def gradual(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then a mean that climbs by 0.001 a step."""
    return rng.normal(np.append(np.zeros(before), 0.001 * np.arange(1, after + 1)))


def counts(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Poisson(3), then Poisson(3.75)."""
    return np.append(rng.poisson(3.0, before), rng.poisson(3.75, after)).astype(np.float64)


def outliers(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then one in ten is Cauchy with scale 5."""
    x = rng.normal(size=before + after)
    stray = (np.arange(before + after) >= before) & (rng.random(before + after) < 0.1)
    x[stray] = 5.0 * rng.standard_cauchy(int(stray.sum()))
    return x


def waiting(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Waiting times of mean 1, then of mean 0.75 (exponential)."""
    return np.append(rng.exponential(1.0, before), rng.exponential(0.75, after))


def narrow(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then N(0, 0.7^2)."""
    return np.append(rng.normal(size=before), rng.normal(0.0, 0.7, size=after))


def humps(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then half N(-0.8, 0.6^2), half N(0.8, 0.6^2): the same mean and deviation."""
    return np.append(rng.normal(size=before), rng.normal(rng.choice([-0.8, 0.8], after), 0.6))


def visit(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then N(-1, 1) for 100 steps, then as before."""
    return rng.normal(np.append(np.zeros(before), np.where(np.arange(after) < 100, -1.0, 0.0)))


def serial(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Independent N(0, 1), then an AR(1) series with the same marginal distribution and rho = 0.5."""
    return np.append(rng.normal(size=before), autoregression(rng, after, 0.5))


def flipped(rng: np.random.Generator, y: Integers, share: float) -> Integers:
    """Labels 0 and 1, that share of them flipped."""
    return np.where(rng.random(len(y)) < share, 1 - y, y)


def noisy_labels(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
    """Two normal classes in five dimensions; then one label in five is flipped."""
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) + 1.2 * y[:, None], flipped(rng, y, 0.2 if changed else 0.0)


def hyperplane(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
    """Ten uniform features, labels by the side of a plane, one in twenty wrong; then it is rotated by 45 degrees."""
    angle = np.deg2rad(45.0 if changed else 0.0)
    first, second = np.repeat([1.0, 0.0], 5), np.repeat([0.0, 1.0], 5)
    X = rng.random((n, 10))
    y = ((X - 0.5) @ (np.cos(angle) * first + np.sin(angle) * second) > 0.0).astype(np.int64)
    return X, flipped(rng, y, 0.05)


def sea(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
    """Three features in [0, 10], label 1 if the first two sum to at most 7, one in ten wrong; then at most 9.5."""
    X = 10.0 * rng.random((n, 3))
    return X, flipped(rng, (X[:, 0] + X[:, 1] <= (9.5 if changed else 7.0)).astype(np.int64), 0.1)


def stagger(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
    """Size, colour and shape; labels by "small and red", then in one example in four by "green or circular"."""
    features = rng.integers(0, 3, (n, 3))
    small_red = (features[:, 0] == 0) & (features[:, 1] == 0)
    green_circular = (features[:, 1] == 1) | (features[:, 2] == 1)
    new = changed & (rng.random(n) < 0.25)
    return np.eye(3)[features].reshape(n, 9), np.where(new, green_circular, small_red).astype(np.int64)


def resampled(data: datasets.Dataset, used: int, spoil: Callable[[np.random.Generator, Floats], Floats]) -> Draw:
    """Examples of a real table drawn with replacement, those after the first ``used``; then spoilt."""

    def draw(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
        rows = rng.integers(used, len(data.y), n)
        return spoil(rng, data.X[rows]) if changed else data.X[rows], data.y[rows]

    return draw


def fitted(X: Floats, y: Integers) -> Any:
    """A classifier as people use it: standardised features, logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000)).fit(X, y)


def scores(model: Any, X: Floats, y: Integers) -> Floats:
    """1 minus the probability of the true label."""
    column = np.searchsorted(model.classes_, y)
    return 1.0 - np.asarray(model.predict_proba(X))[np.arange(len(y)), column]


def errors(model: Any, X: Floats, y: Integers) -> Floats:
    """1 where the classifier errs, else 0."""
    return np.asarray(model.predict(X) != y, np.float64)


def watched(draw: Draw, model: Any, what: Callable[[Any, Floats, Integers], Floats] = scores) -> Change:
    """A labelled stream as the numbers that a frozen classifier makes of it."""

    def change(rng: np.random.Generator, before: int, after: int) -> Floats:
        parts = [what(model, *draw(rng, n, late)) for n, late in ((before, False), (after, True)) if n]
        return np.concatenate(parts)

    change.__doc__ = f"{draw.__doc__} Watched: {what.__doc__}"
    return change


def synthetic(draw: Draw, what: Callable[[Any, Floats, Integers], Floats] = scores) -> Change:
    """A synthetic labelled stream; the classifier is fitted on examples of its own."""
    return watched(draw, fitted(*draw(np.random.default_rng(1), TRAINING, False)), what)


def real(data: datasets.Dataset, used: int, spoil: Callable[[np.random.Generator, Floats], Floats]) -> Change:
    """A real table in random order: the classifier is fitted on the first ``used``, the rest is drawn from."""
    order = np.random.default_rng(2).permutation(len(data.y))
    data = datasets.Dataset(data.X[order], data.y[order])
    change = watched(resampled(data, used, spoil), fitted(data.X[:used], data.y[:used]))
    change.__doc__ = f"{spoil.__doc__} Watched: {scores.__doc__}"
    return change


def noise(rng: np.random.Generator, X: Floats) -> Floats:
    """scikit-learn's digits, scored by a classifier; then noise N(0, 2^2) on every pixel (16 grey levels)."""
    return X + rng.normal(0.0, 2.0, X.shape)


def blur(rng: np.random.Generator, X: Floats) -> Floats:
    """USPS digits, scored by a classifier; then every image is blurred."""
    return datasets.smooth(X)


def gain(rng: np.random.Generator, X: Floats) -> Floats:
    """Satellite pixels, scored by a classifier; then the sensor reads 10 % more."""
    return 1.1 * X


def defocus(rng: np.random.Generator, X: Floats) -> Floats:
    """Cells of scikit-learn's breast cancer data, scored by a classifier; then every measurement is 10 % larger."""
    return 1.1 * X


# ------------------------------------------------------------------ streams like those that tested Sentinel's prototype


def _repeated(probability: float, spoilt: float) -> Change:
    """Events (0 or 1) of one probability, then of another."""

    def change(rng: np.random.Generator, before: int, after: int) -> Floats:
        return np.append(rng.random(before) < probability, rng.random(after) < spoilt).astype(np.float64)

    change.__doc__ = f"Events: 1 with probability {probability:g}, else 0; then with probability {spoilt:g}."
    return change


def season(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then a mean of 0.8 sin(2 pi t/24)."""
    return rng.normal(np.append(np.zeros(before), 0.8 * np.sin(2.0 * np.pi * np.arange(after) / 24.0)))


def correlation(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Two columns N(0, 1), independent, then with correlation 0.4. Watched: the absolute difference."""
    x, y = rng.normal(size=(2, before + after))
    rho = np.append(np.zeros(before), np.full(after, 0.4))
    return np.asarray(np.abs(x - (rho * x + np.sqrt(1.0 - rho**2) * y)))


def slow_abrupt(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then a mean that climbs by 0.0005 a step and jumps by 0.4 after 200 steps."""
    t = np.arange(1, after + 1)
    return rng.normal(np.append(np.zeros(before), 0.0005 * t + 0.4 * (t > 200)))


def longer_waits(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Waiting times of mean 1, then of mean 1.4 (exponential)."""
    return np.append(rng.exponential(1.0, before), rng.exponential(1.4, after))


def stars(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Ratings of 1 to 5 stars with shares 5, 10, 20, 30, 35 %, then 10, 15, 20, 28, 27 %."""
    first = rng.choice(5, before, p=[0.05, 0.10, 0.20, 0.30, 0.35])
    return 1.0 + np.append(first, rng.choice(5, after, p=[0.10, 0.15, 0.20, 0.28, 0.27])).astype(np.float64)


def stuck(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then one in twenty is exactly 0."""
    x = rng.normal(size=before + after)
    x[before:][rng.random(after) < 0.05] = 0.0
    return x


def wandering(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then a mean that moves by N(0, 0.05^2) in each step."""
    return rng.normal(np.append(np.zeros(before), np.cumsum(rng.normal(0.0, 0.05, after))))


# ------------------------------------------------------------------ held out


def slow_requests(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Log-normal times with sigma 0.5; then one in twenty takes four times as long."""
    x = rng.lognormal(0.0, 0.5, before + after)
    x[before:] *= np.where(rng.random(after) < 0.05, 4.0, 1.0)
    return x


def capped(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then values above 1 read 1."""
    return np.append(rng.normal(size=before), np.minimum(rng.normal(size=after), 1.0))


def shares(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Half N(-2, 1), half N(2, 1); then 65 % and 35 %."""
    upper = rng.random(before + after) < np.append(np.full(before, 0.5), np.full(after, 0.35))
    return rng.normal(np.where(upper, 2.0, -2.0))


def heavy(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Student's t with 3 degrees of freedom, then moved up by 0.5."""
    return np.append(rng.standard_t(3.0, before), 0.5 + rng.standard_t(3.0, after))


def bursts(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Errors (0 or 1) with probability 0.1; then equally many, but half of the errors are followed by another."""
    x = (rng.random(before + after) < 0.1).astype(np.float64)
    for t in range(max(before, 1), before + after):
        x[t] = rng.random() < (0.5 if x[t - 1] else 0.5 / 9.0)
    return x


def repeats(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then three values in ten repeat the previous one."""
    x = rng.normal(size=before + after)
    for t in range(max(before, 1), before + after):
        x[t] = x[t - 1] if rng.random() < 0.3 else x[t]
    return x


def spreading(rng: np.random.Generator, before: int, after: int) -> Floats:
    """N(0, 1), then a deviation that grows by 0.001 a step."""
    return rng.normal(0.0, np.append(np.ones(before), 1.0 + 0.001 * np.arange(1, after + 1)))


def crowded(rng: np.random.Generator, before: int, after: int) -> Floats:
    """Poisson(4), then negative binomial counts of the same mean with variance 8."""
    return np.append(rng.poisson(4.0, before), rng.negative_binomial(4, 0.5, after)).astype(np.float64)


EARLIER: Mapping[str, Change] = {  # the finished prototype of Sentinel was tested on such streams; no longer held out
    "waiting times": waiting,
    "narrower": narrow,
    "two humps": humps,
    "a visit": visit,
    "serial": serial,
    "rare events": _repeated(0.01, 0.03),
    "events": _repeated(0.2, 0.35),
    "season sets in": season,
    "correlation": correlation,
    "slow, then abrupt": slow_abrupt,
    "longer waits": longer_waits,
    "stars": stars,
    "stuck at 0": stuck,
    "wandering mean": wandering,
}


@cache
def held_out() -> Mapping[str, Change]:
    """The streams that were written down before `Sentinel` and `RateMonitor` were made, and never used to choose."""
    from sklearn.datasets import load_breast_cancer

    cells = load_breast_cancer()
    return {
        "slow requests": slow_requests,
        "capped": capped,
        "shares of two modes": shares,
        "heavy tails": heavy,
        "errors in bursts": bursts,
        "fewer events": _repeated(0.3, 0.2),
        "repeated readings": repeats,
        "growing spread": spreading,
        "crowded counts": crowded,
        "breast cancer": real(datasets.Dataset(cells.data, cells.target), 200, defocus),
    }


@cache
def changes(folder: str | None) -> Mapping[str, Change]:
    """All streams, those held out at the end; USPS and Satellite if a folder with them is given."""
    known: dict[str, Change] = {
        "mean": mean,
        "scale": scale,
        "gradual drift": gradual,
        "counts": counts,
        "outliers": outliers,
        "label noise": synthetic(noisy_labels),
        "hyperplane": synthetic(hyperplane),
        "SEA": synthetic(sea),
        "SEA, errors only": synthetic(sea, errors),
        "STAGGER": synthetic(stagger),
        "digits": real(datasets.digits(), 600, noise),
    }
    if folder is not None:
        known["USPS"] = real(datasets.usps(folder, flavour="raw"), 2_000, blur)
        known["Satellite"] = real(datasets.satellite(folder), 2_000, gain)
    return {**known, **EARLIER, **held_out()}
