"""From ranks to p-values: the formula of Algorithm 1 and the random tie-breaking."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

import numpy as np

from exchangeable import native
from exchangeable.protocols import Floats, Measure, Ranks, is_measure
from exchangeable.validation import check_integer, check_p, check_p_array

MAX_POSITION = 2**62  # the largest position
SEED_BITS = 53  # bits of a drawn seed, so that every JSON parser reads it exactly

Number = TypeVar("Number", float, Floats)


def draw_seed() -> int:
    """Draw a random seed from the operating system, for calls without a seed.

    The guarantees hold on average over the seed, so there is no fixed default.

    >>> 0 <= draw_seed() < 2**53
    True
    """
    return secrets.randbits(SEED_BITS)


def thetas(seed: int, start: int, stop: int, stream: int = 0) -> Floats:
    """Return the tie-breaking numbers of positions ``start .. stop - 1`` (from 0), uniform in (0, 1].

    ``theta = 1 - floor(w / 2^11) / 2^53`` with w the 64-bit words of the counter-based generator Philox keyed by
    ``seed + stream 2^64``. They depend only on seed, stream and position, so that no restart, retry or batch size ever
    draws one twice. Two streams of one seed are practically independent: use two if you need two sequences of p-values.
    O(stop - start).

    >>> bool((thetas(7, 0, 100)[40:60] == thetas(7, 40, 60)).all())
    True
    """
    if not 0 <= start <= stop < 2**63:
        raise ValueError(f"start and stop must satisfy 0 <= start <= stop < 2**63, got {start} and {stop}")
    out = np.empty(stop - start)
    native.thetas(check_integer("seed", seed, 0, 2**64 - 1), check_integer("stream", stream, 0, 2**32 - 1), start, out)
    return out


def smoothed(greater: Number, theta: Number, equal: Number, n: Number) -> Number:
    """Return the p-value of Algorithm 1: ``(greater + theta * equal) / n``.

    >>> smoothed(3.0, 0.5, 1.0, 10.0)
    0.35
    """
    return (greater + theta * equal) / n


def from_ranks(ranks: Ranks, *, seed: int, stream: int = 0, start: int = 0) -> Floats:
    """Return the p-values of ranks, the first of which has position ``start`` (from 0).

    >>> from_ranks(Ranks(np.array([0]), np.array([1]), np.array([1])), seed=0) == thetas(0, 0, 1)
    array([ True])
    """
    theta = thetas(seed, start, start + len(ranks.n), stream)
    return smoothed(*(np.asarray(column, np.float64) for column in (ranks.greater, theta, ranks.equal, ranks.n)))


class PValues:
    """Algorithm 1 of the paper: turns examples into p-values that are independent and uniform on exchangeable data.

    The measure ranks each example among all so far; ``theta`` breaks ties. Theta depends only on the seed, its stream
    and the position; ``seed=None`` draws a seed from the operating system, and an integer makes a run repeatable.
    ``start`` is the number of positions that were used before. Time and memory are those of the measure.

    >>> from exchangeable.measures import NearestNeighbour
    >>> PValues(NearestNeighbour(), seed=1).extend([[0.0], [1.0], [2.0]], ["a", "a", "b"]).round(3)
    array([0.696, 0.151, 0.281])

    Reference: Fedorova et al. (2012), Algorithm 1.
    """

    def __init__(self, measure: Measure, *, seed: int | None = None, stream: int = 0, start: int = 0) -> None:
        if not _can_rank(measure):
            raise ValueError(f"measure must be a measure (with update and extend of examples), got {measure!r}")
        self.measure = measure
        self.seed: int = draw_seed() if seed is None else check_integer("seed", seed, 0, 2**64 - 1)
        self.stream: int = check_integer("stream", stream, 0, 2**32 - 1)
        self.n: int = check_integer("start", start, 0, MAX_POSITION)

    def __repr__(self) -> str:
        return f"PValues({self.measure!r}, seed={self.seed})"

    def update(self, x: Any, y: Any = None) -> float:
        """Consume one example and return its p-value."""
        rank = self.measure.update(x, y)
        theta = native.theta(self.seed, self.stream, self.n)
        self.n += 1
        return smoothed(float(rank.greater), theta, float(rank.equal), float(rank.n))

    def extend(self, X: Any, y: Any = None) -> Floats:
        """Consume many examples and return their p-values: the same numbers as one by one."""
        p = from_ranks(self.measure.extend(X, y), seed=self.seed, stream=self.stream, start=self.n)
        self.n += len(p)
        return p


class Precomputed:
    """P-values that were computed elsewhere, used instead of examples: nothing is ranked, and no ties are broken.

    They must be independent and uniform on exchangeable data, as those of ``PValues`` are. P-values from a fixed
    calibration set are not, and invalidate every guarantee. Labels are ignored. O(1).

    >>> from exchangeable import Monitor
    >>> Monitor(Precomputed()).extend([0.5, 0.25]).p
    array([0.5 , 0.25])
    """

    seed = 0  # nothing is random

    def __init__(self, *, start: int = 0) -> None:
        self.n: int = check_integer("start", start, 0, MAX_POSITION)

    def __repr__(self) -> str:
        return "Precomputed()"

    def update(self, x: Any, y: Any = None) -> float:
        """Consume one p-value and return it."""
        p = check_p(x)
        self.n += 1
        return p

    def extend(self, X: Any, y: Any = None) -> Floats:
        """Consume many p-values and return them."""
        p = check_p_array(X)
        self.n += len(p)
        return p


def _can_rank(thing: object) -> bool:
    return is_measure(thing) and not isinstance(thing, Precomputed)
