"""P-values of online-cp, a library of conformal prediction in the online mode, tested as they arrive.

Its predictors learn every example before the next one comes, and rank the newest among all so far, with ties broken at
random. These are the p-values of Algorithm 1 of Fedorova et al. (2012): independent and uniform on exchangeable data,
so `ex.Martingale` or `ex.Monitor(ex.Precomputed())` may take them as they are.

    pip install exchangeable online-cp scikit-learn
    python examples/online_cp_pvalues.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import online_cp
from sklearn.datasets import load_iris

import exchangeable as ex
from exchangeable import alarms

ALPHA, CHANGE = 0.01, 200


def p_values(X: np.ndarray, y: np.ndarray) -> Iterator[float]:
    """Compute the p-value of each true label, then learn the example."""
    predictor = online_cp.ConformalNearestNeighboursClassifier(k=1, label_space=np.unique(y), rnd_state=1)
    for x, label in zip(X, y, strict=True):
        p, update = predictor.compute_p_value(x, label, return_update=True)
        yield p
        predictor.learn_one(x, label, update)


def main() -> None:
    """Watch two streams of flowers: one as it is, one in which a quarter of the labels are wrong after 200."""
    rng = np.random.default_rng(0)
    X, y = load_iris(return_X_y=True)
    drawn = rng.integers(0, len(y), 400)
    flowers, labels = X[drawn] + rng.normal(0.0, 0.1, (400, 4)), y[drawn]
    wrong = (np.arange(400) >= CHANGE) & (rng.random(400) < 0.25)
    for name, given in (("quiet", labels), (f"wrong labels after {CHANGE}", np.where(wrong, (labels + 1) % 3, labels))):
        monitor = ex.Monitor(ex.Precomputed(), alarm=alarms.Ville(ALPHA))
        for p in p_values(flowers, given):
            monitor.update(p)
        if monitor.alarm_at is None:
            print(f"{name}: not rejected")
        else:
            print(f"{name}: REJECTED at example {monitor.alarm_at}; change after {monitor.changepoint} or later")
    print(monitor.guarantee)


if __name__ == "__main__":
    main()
