"""Alarms: when is the capital large enough to speak up?"""

from __future__ import annotations

import math

import numpy as np

from exchangeable.protocols import in_interval

SMALLEST = 1e-300  # so that 1/alpha is a number


class Ville:
    """Sounds whenever the capital stands at 1/alpha or more.

    The promise: on exchangeable data the probability that it *ever* sounds, however long one watches, is at most
    alpha (Ville's inequality: P(S_n >= c for some n) <= 1/c for a nonnegative martingale with S_0 = 1).
    O(1) time and memory; it has no state.

    >>> alarm = Ville(0.01)
    >>> alarm.threshold, alarm.update(4.6), alarm.update(4.7)
    (100.0, False, True)

    Reference: Ville (1939); Fedorova et al. (2012), section 3.
    """

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = in_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
        if self.alpha < SMALLEST:
            raise ValueError(f"alpha must be at least {SMALLEST:g}, got {alpha}")

    @property
    def threshold(self) -> float:
        """The capital that sounds the alarm, 1/alpha."""
        return 1.0 / self.alpha

    @property
    def log_threshold(self) -> float:
        """Its logarithm."""
        return -math.log(self.alpha)

    def update(self, log_value: float) -> bool:
        """Whether S_n >= 1/alpha."""
        if not isinstance(log_value, (float, int, np.floating, np.integer)) or math.isnan(log_value):
            raise ValueError(f"log_value must be a number, got {log_value!r}")
        return bool(log_value >= self.log_threshold)
