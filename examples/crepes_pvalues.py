"""P-values of crepes, and its scores: is the data that its classifier meets still exchangeable?

The martingale needs p-values that are independent and uniform on exchangeable data. Of those that crepes computes

- `predict_p(X, y, all_classes=False, online=True)` are: each example is ranked among the calibration set *and* all
  examples before it, and ties are broken at random. With `smoothing=False` they are not.
- `predict_p(X)`, against the calibration set alone, are not: that set stands still, all p-values share its accidents,
  and there are more false alarms than promised (docs/invalid-recipes.md: from 7 % to 100 % at a nominal 5 %).

One call takes the whole stream: crepes keeps nothing of it, and a seed that is given again draws the same random
numbers again. For a stream that comes in pieces take the *scores* into `measures.Frozen`, as at the end.

    pip install exchangeable crepes
    python examples/crepes_pvalues.py
"""

from __future__ import annotations

import numpy as np
from crepes import WrapClassifier
from crepes.extras import margin
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import exchangeable as ex
from exchangeable import alarms, measures

ALPHA, CHANGE = 0.01, 500


def main() -> None:
    """Watch two streams of handwritten digits: one as it is, one with noise on the images after 500."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))  # the digits are sorted by writer
    X, y = X[order], y[order]
    classifier = WrapClassifier(RandomForestClassifier(100, random_state=0))
    classifier.fit(X[:500], y[:500])
    classifier.calibrate(X[500:800], y[500:800], nc=margin)

    def strangeness(images: np.ndarray, digits: np.ndarray) -> np.ndarray:
        return margin(classifier.predict_proba(images), classifier.learner.classes_, np.asarray(digits))

    stream, labels = X[800:], y[800:]
    noise = rng.normal(0.0, 4.0, stream.shape) * (np.arange(len(stream)) >= CHANGE)[:, np.newaxis]
    for name, images in (("quiet", stream), (f"noise after {CHANGE}", stream + noise)):
        p = classifier.predict_p(images, labels, all_classes=False, online=True, seed=1)
        by_p = ex.Monitor(ex.Precomputed(), alarm=alarms.Ville(ALPHA))
        by_p.extend(p)
        say(f"{name}, online p-values", by_p)

        by_score = ex.Monitor(measures.Frozen(strangeness), alarm=alarms.Ville(ALPHA), seed=0)
        for lo in range(0, len(images), 100):  # in batches, as they arrive
            by_score.extend(images[lo : lo + 100], labels[lo : lo + 100])
        say(f"{name}, scores", by_score)
    print(by_p.guarantee)


def say(name: str, monitor: ex.Monitor) -> None:
    """Print the results."""
    if monitor.alarm_at is None:
        print(f"{name}: not rejected")
    else:
        print(f"{name}: REJECTED at example {monitor.alarm_at}; change after {monitor.changepoint} or later")


if __name__ == "__main__":
    main()
