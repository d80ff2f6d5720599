"""Streams of numbers with a known change: what every detector of bench_detection.py watches.

A labelled stream becomes numbers by a classifier fitted on a separate sample and then frozen: the score of an example
is 1 minus the probability that it gives to the true label, or whether it errs. Before the change examples are
independent and of one law.
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
    """Independent N(0, 1), then an AR(1) series of the same law with rho = 0.5."""
    return np.append(rng.normal(size=before), autoregression(rng, after, 0.5))


def flipped(rng: np.random.Generator, y: Integers, share: float) -> Integers:
    """Labels 0 and 1, that share of them turned round."""
    return np.where(rng.random(len(y)) < share, 1 - y, y)


def noisy_labels(rng: np.random.Generator, n: int, changed: bool) -> Labelled:
    """Two normal classes in five dimensions; then one label in five is turned round."""
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
    """Size, colour and shape; from "small and red" to "green or circular" in one example of four."""
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
    """Digits of scikit-learn by a classifier; then normal noise of 2 (of 16 grey levels) on every pixel."""
    return X + rng.normal(0.0, 2.0, X.shape)


def blur(rng: np.random.Generator, X: Floats) -> Floats:
    """USPS digits by a classifier; then every image is blurred."""
    return datasets.smooth(X)


def gain(rng: np.random.Generator, X: Floats) -> Floats:
    """Satellite pixels by a classifier; then the sensor reads 10 % more."""
    return 1.1 * X


HELD_OUT: Mapping[str, Change] = {  # never looked at when bets and alarms were chosen
    "waiting times": waiting,
    "narrower": narrow,
    "two humps": humps,
    "a visit": visit,
    "serial": serial,
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
    return {**known, **HELD_OUT}
