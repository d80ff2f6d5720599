"""A nonconformity function of nonconformist, watched by a martingale.

`IcpClassifier.predict(x)` gives p-values against a calibration set that stands still. Those are right for prediction
sets, one at a time, and wrong for a martingale, which multiplies what it makes of all of them: they are not
independent, and there are more false alarms than promised (docs/invalid-recipes.md: from 7 % to 100 % at a nominal
5 %). The *scores* of a nonconformity function that was fitted beforehand are valid: `measures.Frozen` ranks each among
all scores of the stream so far.

    pip install exchangeable nonconformist
    python examples/nonconformist_scores.py
"""

from __future__ import annotations

import numpy as np
from nonconformist.nc import MarginErrFunc, NcFactory
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import exchangeable as ex
from exchangeable import alarms, measures

ALPHA, CHANGE = 0.01, 400


def main() -> None:
    """Watch two streams of flowers: one as it is, one in which a quarter of the labels are wrong after 400."""
    rng = np.random.default_rng(0)
    X, y = load_iris(return_X_y=True)
    nonconformity = NcFactory.create_nc(LogisticRegression(max_iter=1000), MarginErrFunc())
    nonconformity.fit(X[::2], y[::2])
    drawn = rng.integers(0, 75, 1000) * 2 + 1  # flowers that it has not seen, drawn with replacement, so there are ties
    flowers, labels = X[drawn], y[drawn]
    wrong = (np.arange(1000) >= CHANGE) & (rng.random(1000) < 0.25)
    for name, given in (("quiet", labels), (f"wrong labels after {CHANGE}", np.where(wrong, (labels + 1) % 3, labels))):
        monitor = ex.Monitor(measures.Frozen(nonconformity.score), alarm=alarms.Ville(ALPHA), seed=0)
        monitor.extend(flowers, given)
        if monitor.alarm_at is None:
            print(f"{name}: not rejected")
        else:
            print(f"{name}: REJECTED at example {monitor.alarm_at}; change after {monitor.changepoint} or later")
    print(monitor.guarantee)


if __name__ == "__main__":
    main()
