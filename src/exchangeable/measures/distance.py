"""Nearest-neighbour measures without classes: the distance to the neighbours, and the difference from their labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from exchangeable.measures.neighbours import Labels, Neighbours
from exchangeable.validation import LARGEST, check_finite, check_numbers, format_value


class NearestDistance(Neighbours):
    """Mean distance to the k nearest other examples: for examples without labels.

        alpha_i = mean of the k smallest |x_i - x_j|, j != i   (of all, if there are fewer; infinite if i is alone)

    A large score means a strange example, far from all others. All scores are recomputed whenever an example arrives,
    from direct float64 distances. Time, memory and valid features are those of `NearestNeighbour`. Labels are not used
    and may be left out.

    >>> NearestDistance().extend([[0.0], [1.0], [1.5], [9.0], [1.2]])
    Ranks(greater=array([0, 0, 1, 0, 3]), equal=array([1, 2, 2, 1, 2]), n=array([1, 2, 3, 4, 5]))

    Reference: Laxhammar and Falkman (2010), conformal anomaly detection by distances to nearest neighbours.
    """

    def __init__(self, k: int = 1) -> None:
        super().__init__(k)

    def _label(self, y: Any) -> Labels:
        return np.zeros(1, np.int32), {}

    def _labels(self, y: Any, count: int) -> Labels:
        return np.zeros(count, np.int32), {}


class NearestResidual(Neighbours):
    """The label minus the mean label of the k nearest other examples: for labels that are real numbers (regression).

        alpha_i = y_i - (1/m) sum of the labels of the m = min(k, n - 1) nearest, j != i   (0 if i is alone)

    Neighbours are ordered by (squared distance, label), so that ties between distances are resolved in one way. The
    residual keeps its sign: if labels become higher than those of their neighbours, p-values become small, and if they
    become lower, large. A bet sees both. A shift smaller than the noise would hardly change absolute residuals.

    All scores are recomputed whenever an example arrives, from direct float64 distances. Time, memory and valid
    features are those of `NearestNeighbour`; labels too are finite numbers of magnitude at most 1e150.

    >>> NearestResidual().extend([[0.0], [1.0], [1.5], [9.0]], [0.0, 1.0, 3.0, 2.5])
    Ranks(greater=array([0, 0, 0, 1]), equal=array([1, 1, 1, 1]), n=array([1, 2, 3, 4]))

    Reference: Papadopoulos, Vovk and Gammerman (2011), nearest-neighbour regression; here the residual keeps its sign.
    """

    _tagged = True

    def __init__(self, k: int = 1) -> None:
        super().__init__(k)

    def _label(self, y: Any) -> Labels:
        expected = f"be a finite number of magnitude at most {LARGEST:g}"
        label = check_numbers("y", y, expected)
        if label.ndim or not abs(label) <= LARGEST:
            raise ValueError(f"y must {expected}, got {format_value(y)}")
        return label.reshape(1), {}

    def _labels(self, y: ArrayLike | None, count: int) -> Labels:
        expected = "hold one number for each row of X"
        labels = check_numbers("y", () if y is None else y, expected)
        if y is None or labels.ndim != 1:
            raise ValueError(f"y must {expected}, got {format_value(y)}")
        if len(labels) != count:
            raise ValueError(f"y must {expected}, got {len(labels)} numbers for {count} rows")
        check_finite("y", labels)
        return labels, {}
