"""Bets on the next normal score from the past ones: regression, volatility and seasons.

The normal score of p is z = Phi^-1(1 - p), and a bet N(m, v) on z is the density N(z; m, v) / N(z; 0, 1) of p. At p = 1
it is the mean over the p-values that round to 1. Scores are clipped where they are features.
"""

from __future__ import annotations

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats
from exchangeable.validation import check_interval, check_p, format_value


class Volatility(Learner):
    """Bets on the spread of the next score: N(0, 0.1 + 0.9 v), with v an exponential moving average of z^2.

        v <- v + rate (min(z^2, 9) - v) ,   v = 1 at the start

    z = Phi^-1(1 - p) is the normal score of p. For runs of p-values near 0 and 1, or of p-values near 1/2. O(1) time
    and memory.

    >>> Volatility().extend([0.01, 0.99, 0.01, 0.99]).round(3)
    array([0.   , 0.602, 0.883, 1.037])

    Reference: RiskMetrics (1996) for the recursion.
    """

    def __init__(self, rate: float = 0.1) -> None:
        self.rate: float = check_interval("rate", rate, 0.0, 1.0, "(0, 1]")
        self._state = (np.ones(1),)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.volatility(state[0], self.rate, p, gains)


class Season(Learner):
    """Finds a period after which p-values resemble earlier ones, and bets on it.

    The periods are 2 to 31, 48, 52, 60, 96, 144, 168, 288, 336 and 365. Each has two predictors x of y, the normal
    score z = Phi^-1(1 - p) clipped to [-3.5, 3.5]: the mean of the past y at the same phase, and the y one period ago.
    Over the m steps from the second cycle on,

        xy = sum x y ,   xx = 10 + sum x^2 ,   yy = 10 + sum y^2 ,   fit = -(m/2) ln(1 - xy^2/(xx yy)) .

    After every 32 steps the predictor with the best fit is chosen. If its fit exceeds 6, the bet on z is N(b x, v) with
    b = xy/xx and v = (yy - xy^2/xx)/(m + 10), both fixed until the next choice; otherwise the density is 1. O(1) time,
    constant memory (22 kB).

    >>> Season().extend([0.2, 0.8, 0.8, 0.8] * 25)[[0, 31, 32, 64, 96]].round(3)
    array([0.   , 0.   , 0.676, 0.981, 1.169])

    Reference: the predictors are those of a seasonal naive forecast and of a seasonal mean.
    """

    def __init__(self) -> None:
        state = np.empty(native.SEASON_STATE)
        native.season_fresh(state)
        self._state = (state,)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.season(state[0], p, gains)


class Regression(Learner):
    """Bets on the next score by recursive least squares on the past ones: finds trends, waves and serial dependence.

    z = Phi^-1(1 - p) is the normal score of p, and y is z clipped to [-3.5, 3.5]. The features x are y_{n-1}, y_{n-2},
    y_{n-3}, exponential moving averages of y with rates 0.1, 0.03 and 0.01 and, with ``seasons``, the seasonal mean and
    the seasonal lag that fit best in `Season` (0 while the fit is below 2). With lam = forgetting, mu = noise, g = P x,
    q = x'g, e = z - x'b (z clipped to [-4, 4]) and k = 1/(lam + q), the bet on z is N(x'b, (s/m)(1 + q)), and then

        b <- b + k e g ,   P <- (P - k g g')/lam ,   s <- mu s + e^2/(1 + q) ,   m <- mu m + 1 .

    b are the coefficients, 0 at the start. P, 0.05 I at the start, is their covariance relative to the noise; it is
    scaled down if a diagonal entry exceeds 0.1. s/m is the variance of the noise; both are 5 at the start, and s/m is
    at least 1e-6. O(1) time, constant memory (1 kB, or 22 kB with seasons).

    >>> Regression().extend([0.1, 0.9, 0.1, 0.9, 0.1, 0.9]).round(3)
    array([0.   , 0.046, 0.152, 0.278, 0.413, 0.51 ])

    Reference: Plackett (1950) for recursive least squares.
    """

    def __init__(self, forgetting: float = 0.998, *, noise: float = 0.998, seasons: bool = True) -> None:
        self.forgetting: float = check_interval("forgetting", forgetting, 0.5, 1.0, "(0.5, 1]")
        self.noise: float = check_interval("noise", noise, 0.5, 1.0, "(0.5, 1]")
        if not isinstance(seasons, bool):
            raise ValueError(f"seasons must be True or False, got {format_value(seasons)}")
        self.seasons = seasons
        state = np.empty(native.REGRESSION_SEASONAL_STATE if seasons else native.REGRESSION_STATE)
        native.regression_fresh(state)
        self._state = (state,)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.regression(state[0], self.forgetting, self.noise, p, gains)

    def tails(self, p: float) -> tuple[float, float]:
        """Return the mass of the next bet below p, and above it."""
        return native.regression_tails(self._state[0], check_p(p))
