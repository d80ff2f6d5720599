"""River's detectors for the errors of a classifier: DDM, EDDM, FHDDM, HDDM_A and HDDM_W.

They watch for more errors only, unless said. The statistics of the first three do not depend on the threshold. The cut
points of the HDDM do, so these are computed for all levels of a grid at once, and for all runs. ``check`` compares each
with river's own, alarm by alarm. HDDM is defined for numbers in [0, 1], the others for 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from detectors import BINARY, Bools, Detector, Floats, Integers, Path, Scan, crossing, from_step
from river_paths import agree, first_drift

WARM = 30  # steps, or errors, before the first alarm of DDM and EDDM


def latest(is_new: Bools, values: Floats) -> Floats:
    """At each step the value at the last step at which there was a new one."""
    last = np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))
    return np.asarray(values[last])


def ddm(x: Floats, seed: int = 0, *, warm: int = WARM + 1) -> Floats:
    """``(p + s - p_min)/s_min`` from the 31st step on; p is the share of errors, s its deviation, both at min p + s.

    If there was no error at first, s_min is 0, and the first error is an alarm at every level.
    """
    n = np.arange(1, len(x) + 1)
    p = np.cumsum(x) / n
    s = np.sqrt(p * (1.0 - p) / n)
    both = np.where(n >= warm, p + s, np.inf)
    lowest = both <= np.minimum.accumulate(both)
    return from_step(warm, (p + s - latest(lowest, p)) / latest(lowest, s))


def eddm(x: Floats, seed: int = 0) -> Floats:
    """The largest so far of mean + 2 deviations of the distance between errors, over the present: > 1/beta."""
    statistic = np.full(len(x), -np.inf)
    at = np.flatnonzero(x == 1.0) + 1
    if len(at) <= WARM:
        return statistic
    distance, k = np.diff(at, prepend=0).astype(np.float64), np.arange(1, len(at) + 1)
    mean = np.cumsum(distance) / k
    variance = np.maximum(np.cumsum(distance**2) - k * mean**2, 0.0) / np.maximum(k - 1, 1)
    spread = mean + 2.0 * np.sqrt(variance)
    counted = np.where(at > WARM, spread, -np.inf)
    highest = np.maximum.accumulate(counted)
    judged = (k > WARM) & (at > WARM) & (counted <= np.append(-np.inf, highest[:-1]))
    statistic[at - 1] = np.where(judged, highest / spread, -np.inf)
    return statistic


def fhddm(x: Floats, seed: int = 0) -> Floats:
    """``-ln delta`` of Hoeffding's bound for how far the share of correct answers in 100 has come down from its best.

    It is fed 1 where the classifier is right, as in its paper; fed with errors it would watch for fewer of them.
    """
    window = 100
    share = np.convolve(1.0 - x, np.ones(window), "valid") / window
    statistic = np.full(len(x), -np.inf)
    fallen = np.maximum(np.maximum.accumulate(share), 0.0) - share
    statistic[window - 1 :] = 2.0 * window * fallen**2
    return statistic


def hddm_a(X: Floats, levels: Floats) -> Integers:
    """The first alarm of HDDM_A for more errors, at each level ``-ln(drift_confidence)``.

    The cut n0 is where mean + sqrt(level/(2 n)) was least. It sounds if the mean has risen since by at least
    ``sqrt((1/n0 - 1/n)/2 (ln 2 + level))``.
    """
    runs, steps = X.shape
    means = np.cumsum(X, axis=1) / np.arange(1, steps + 1)
    margin, bound = np.sqrt(0.5 * levels), 0.5 * (math.log(2.0) + levels)
    first = np.full((runs, len(levels)), steps)
    cut, cut_mean = np.ones(first.shape), np.repeat(means[:, :1], len(levels), axis=1)
    for n in range(1, steps + 1):
        mean = means[:, n - 1 : n]
        lower = cut_mean + margin / np.sqrt(cut) >= mean + margin / math.sqrt(n)
        cut[lower] = n
        np.copyto(cut_mean, mean, where=lower)
        rise = mean - cut_mean
        sounds = ~lower & (rise >= 0.0) & (rise * rise >= (1.0 / cut - 1.0 / n) * bound)
        first[sounds & (first == steps)] = n - 1
    return first


FADING = 0.05  # river's default lambda of HDDM_W


def hddm_w(X: Floats, levels: Floats) -> Integers:
    """The first alarm of HDDM_W for more errors, at each level ``-ln(drift_confidence)``.

    The cut is where z + sqrt(b level/2) was least, with z the exponentially weighted mean of all and b the sum of its
    squared weights. It sounds if the weighted mean since the cut exceeds that of the cut by sqrt((b0 + b1) level/2).
    """
    runs, steps = X.shape
    shape = runs, len(levels)
    first, half = np.full(shape, steps), 0.5 * levels
    lowest, old, old_b = np.full(shape, np.inf), np.zeros(shape), np.ones(shape)
    new, new_b, begun = np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=bool)
    z, b = X[:, :1].copy(), 1.0
    for n in range(steps):
        x = X[:, n : n + 1]
        z, b = z + FADING * (x - z), FADING**2 + (1.0 - FADING) ** 2 * b
        bound = z + np.sqrt(b * half)
        lower = bound < lowest
        new = np.where(begun, new + FADING * (x - new), x)
        new_b = FADING**2 + (1.0 - FADING) ** 2 * new_b
        np.copyto(lowest, bound, where=lower)
        np.copyto(old, np.broadcast_to(z, shape), where=lower)
        old_b[lower], new_b[lower], begun = b, 1.0, ~lower
        rise = new - old
        sounds = begun & (rise > 0.0) & (rise * rise > (old_b + new_b) * half)
        first[sounds & (first == steps)] = n
    return first


def two_sided(alarms: Callable[[Floats, Floats], Integers]) -> Callable[[Floats, Floats], Integers]:
    """For more and for fewer errors: both are symmetric."""
    return lambda X, levels: np.minimum(alarms(X, levels), alarms(-X, levels))


def check_hddm(x: Floats) -> None:
    """Raise an error unless HDDM_A and HDDM_W sound when river's own do, at several levels."""
    from river.drift import binary

    values, levels = x.tolist(), np.array([0.05, 0.7, 2.0, 6.9, 15.0])
    for name, ours in (("HDDM_A", hddm_a), ("HDDM_W", hddm_w)):
        make = getattr(binary, name, None) or getattr(binary, name.replace("_", ""))
        for both in (False, True):
            found = (two_sided(ours) if both else ours)(x[np.newaxis], levels)[0]
            for first, level in zip(found.tolist(), levels.tolist(), strict=True):
                theirs = make(drift_confidence=math.exp(-level), two_sided_test=both)
                agree(f"{name} at {level}", first, first_drift(theirs, values))


def check(x: Floats) -> None:
    """Raise an error unless these sound when river's own detectors do, on 0 and 1."""
    from river.drift import binary

    values = x.astype(int).tolist()
    with np.errstate(divide="ignore", invalid="ignore"):
        for level in (2.0, 3.0, 5.0):
            ours = crossing(ddm(x), math.nextafter(level, math.inf))
            agree("DDM", ours, first_drift(binary.DDM(drift_threshold=level), values))
    for beta in (0.95, 0.9, 0.8):
        ours = crossing(eddm(x), math.nextafter(1.0 / beta, math.inf))
        agree("EDDM", ours, first_drift(binary.EDDM(beta=beta), values))
    right = [1 - value for value in values]
    for level in (0.5, 2.0, 13.8):
        theirs = first_drift(binary.FHDDM(confidence_level=math.exp(-level)), right)
        agree("FHDDM", crossing(fhddm(x), math.nextafter(level, math.inf)), theirs)
    check_hddm(x)


RARE = -math.log(0.001)
HDDM: list[Detector] = [
    Scan("river HDDM_A", RARE, "drift_confidence = 0.001", hddm_a),
    Scan("river HDDM_A, two-sided", RARE, "drift_confidence = 0.001", two_sided(hddm_a)),
    Scan("river HDDM_W", RARE, "drift_confidence = 0.001", hddm_w),
    Scan("river HDDM_W, two-sided", RARE, "drift_confidence = 0.001", two_sided(hddm_w)),
]
TOOLS: list[Detector] = [
    Path("river DDM", 3.0, "drift_threshold = 3", ddm, BINARY),
    Path("river EDDM", 1.0 / 0.9, "beta = 0.9", eddm, BINARY),
    Path("river FHDDM", -math.log(1e-6), "confidence_level = 0.000001", fhddm, BINARY),
]
