"""A stream of numbers, each its own score."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from exchangeable.measures.pools import Pool, Scored
from exchangeable.protocols import Floats
from exchangeable.validation import check_column, check_number


class Value(Scored):
    """The number itself is the score; for a stream of numbers: a reading, an error, a waiting time.

        p_n = (#{i <= n: x_i > x_n} + theta_n #{i <= n: x_i = x_n}) / n

    so p is small for large numbers; bets notice small ones as well. Numbers are finite; labels play no part and may be
    left out. One number costs O(log n), 0.4 microseconds in a batch of a million; memory O(distinct numbers).

    >>> measure = Value()
    >>> measure.extend([1.5, 0.5, 1.5])
    Ranks(greater=array([0, 1, 0]), equal=array([1, 1, 2]), n=array([1, 2, 3]))
    >>> measure.update(1.0)
    Rank(greater=2, equal=1, n=4)

    Reference: Fedorova et al. (2012), Algorithm 1.
    """

    def __init__(self) -> None:
        super().__init__()

    def scores(self, X: ArrayLike, y: Any = None) -> Floats:
        """The numbers themselves."""
        return check_column("X", X)

    def one_score(self, x: float, y: Any = None) -> float:
        """The number itself."""
        return check_number("x", x)

    def _saved(self) -> dict[str, Any]:
        """For a snapshot: the numbers so far."""
        scores, counts = self._pool.contents()
        return {"scores": scores, "counts": counts}

    @classmethod
    def _restored(cls, *, scores: Any, counts: Any) -> Value:
        """From a snapshot."""
        measure = cls()
        measure._pool = Pool.holding(scores, counts)
        return measure
