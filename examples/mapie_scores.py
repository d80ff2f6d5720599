"""Are MAPIE's prediction intervals still valid? Its conformity scores, monitored as they arrive.

MAPIE's intervals hold as long as new examples are exchangeable with those it was conformalized on. Its conformity score
is fixed once the model is fitted, so `measures.Frozen` can rank the score of each new example among *all* scores of the
stream so far. That pool grows, and the alarm keeps its promise. P-values against the conformalization set, which
is fixed, would not work: they are not independent, and there are more false alarms than promised
(docs/invalid-recipes.md: from 7 % to 100 % at a nominal 5 %).

    pip install exchangeable MAPIE
    python examples/mapie_scores.py
"""

from __future__ import annotations

import numpy as np
from mapie.conformity_scores import GammaConformityScore
from mapie.regression import SplitConformalRegressor
from sklearn.ensemble import RandomForestRegressor

import exchangeable as ex
from exchangeable import alarms, measures

ALPHA = 0.01


def houses(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Size, age and rooms of n houses, and their prices."""
    X = np.column_stack([rng.uniform(40, 200, n), rng.uniform(0, 80, n), rng.integers(1, 7, n)])
    return X, (2.0 * X[:, 0] + 15.0 * X[:, 2] - X[:, 1] + 100.0) * rng.lognormal(0.0, 0.08, n)


def main() -> None:
    """Watch two streams: one as the model knows it, one in which prices rise by a tenth after 600 houses."""
    rng = np.random.default_rng(0)
    score = GammaConformityScore()  # |price - prediction| / prediction
    model = RandomForestRegressor(50, random_state=0)
    intervals = SplitConformalRegressor(model, confidence_level=0.9, conformity_score=score, prefit=False)
    intervals.fit(*houses(500, rng)).conformalize(*houses(500, rng))

    def strangeness(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return score.get_conformity_scores(np.asarray(y), intervals.predict(X))

    X, y = houses(1200, rng)
    rising = np.where(np.arange(1200) < 600, y, 1.1 * y)
    for name, prices in (("quiet", y), ("rising after 600", rising)):
        monitor = ex.Monitor(measures.Frozen(strangeness), alarm=alarms.Ville(ALPHA), seed=0)
        monitor.extend(X, prices)
        low, high = intervals.predict_interval(X)[1][:, :, 0].T
        covered = f"{np.mean((low <= prices) & (prices <= high)):.0%} covered"
        said = "not rejected"
        if monitor.alarm_at is not None:
            said = f"REJECTED at example {monitor.alarm_at}; change after {monitor.changepoint} or later"
        print(f"{name}: {said}; {covered}")
    print(monitor.guarantee)


if __name__ == "__main__":
    main()
