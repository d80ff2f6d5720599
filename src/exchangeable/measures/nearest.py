"""The paper's nonconformity measure: the distance to the nearest example of the same label, relative to others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.measures.neighbour_store import NeighbourStore, Products
from exchangeable.measures.neighbours import Labels, Neighbours
from exchangeable.protocols import Integers, Rank, Ranks
from exchangeable.validation import check_labels, encode_labels


class NearestNeighbour(Neighbours):
    """Nearest-neighbour ratio, equation (1) of the paper; the default for labelled examples.

    With the Euclidean distance, and all scores recomputed whenever an example arrives,

        alpha_i = min{|x_i - x_j| : y_j = y_i, j != i} / min{|x_i - x_j| : y_j != y_i} ,

    and for k > 1 the mean of the k smallest distances (of all, if there are fewer) replaces each minimum, which is less
    sensitive to single odd neighbours. An empty minimum is infinite, ``0/0 = inf/inf = 1``, ``x/inf = 0``,
    ``inf/x = x/0 = inf``. A large score means a strange example: one that lies nearer to another class than to its own.

    Squared distances are computed directly in float64, ``((x_i - x_j) ** 2).sum()``, bit for bit as NumPy sums them; a
    single-precision matrix product only decides which of them need computing (see ``native/nearest.c``).

    For k = 1, examples are ranked by alpha^2, the ratio of two squared distances. Rounded once, it keeps exact ties: if
    the features are integers and squared distances are below 2^53, equal ratios have equal scores, and below 2^26
    different ratios have different scores. For k > 1 the score is a ratio of sums of square roots, where rounding may
    separate an exact tie.

    One example costs O(n d), n examples O(n^2 d) at the speed of a matrix product. It is slower if nearest distances
    are below 1e-3 of the typical distance between examples, which float32 cannot resolve. Memory O(n (d + k)).

    Labels are hashable and equal to themselves; features are finite numbers of magnitude at most 1e150.

    >>> measure = NearestNeighbour()
    >>> measure.extend([[0.0], [1.0], [5.0], [5.5]], ["a", "a", "b", "a"])
    Ranks(greater=array([0, 0, 0, 1]), equal=array([1, 2, 1, 1]), n=array([1, 2, 3, 4]))
    >>> measure.update([5.1], "b")
    Rank(greater=2, equal=1, n=5)

    Reference: Fedorova et al. (2012), section 4.1, equation (1).
    """

    _sides = 2

    def __init__(self, k: int = 1) -> None:
        super().__init__(k)

    def update(self, x: ArrayLike, y: Hashable = None) -> Rank:
        """Add one example and return its rank: O(n d).

        >>> NearestNeighbour().update([0.5, 1.0], "cat")
        Rank(greater=0, equal=1, n=1)
        """
        return self._update(x, y, within=False)

    def extend(self, X: ArrayLike, y: Iterable[Any] | None = None) -> Ranks:
        """Add many examples: the same ranks as one by one, at the speed of a matrix product."""
        return self._extend(X, y, within=False)

    def update_within(self, x: ArrayLike, y: Hashable = None) -> Rank:
        """Add one example and rank its score among the ``n`` scores of its own label: O(n d).

        Scores still depend on all examples. Calls of this method and of ``update`` may be mixed.
        """
        return self._update(x, y, within=True)

    def extend_within(self, X: ArrayLike, y: Iterable[Any] | None = None) -> Ranks:
        """Add many examples, each ranked among those of its own label: the label-conditional (Mondrian) rank.

        >>> NearestNeighbour().extend_within([[0.0], [1.0], [5.0], [5.5]], ["a", "a", "b", "a"])
        Ranks(greater=array([0, 0, 0, 0]), equal=array([1, 2, 1, 1]), n=array([1, 2, 1, 3]))
        """
        return self._extend(X, y, within=True)

    def _label(self, y: Hashable) -> Labels:
        return encode_labels([y], self._store.codes)

    def _labels(self, y: Iterable[Any] | None, count: int) -> Labels:
        return encode_labels(check_labels(y, count), self._store.codes)

    def _join(
        self, store: NeighbourStore, start: int, products: Products, within: bool, counts: Integers, at: int
    ) -> None:
        if self.k > 1:
            super()._join(store, start, products, within, counts, at)
        else:
            examples = (store.X, store.label, store.low, store.alpha, store.near, store.ceil)
            native.nearest_extend(start, products, store.scale, *examples, within, counts, at)
