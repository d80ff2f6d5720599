"""The measure for a stream of numbers."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from exchangeable.measures.pools import Pool, Scored
from exchangeable.protocols import Floats
from exchangeable.validation import check_column, check_number


class Value(Scored):
    """The number itself is the score: for a stream of numbers, such as readings, errors or waiting times.

        p_n = (#{i <= n: x_i > x_n} + theta_n #{i <= n: x_i = x_n}) / n

    so p is small for large numbers; bets notice small ones as well. Numbers must be finite. Labels are not used and may
    be left out. One number costs O(log n), 0.4 microseconds in a batch of a million; memory O(distinct numbers).

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
        """Check the numbers and return them: they are the scores."""
        return check_column("X", X)

    def one_score(self, x: float, y: Any = None) -> float:
        """Check the number and return it: it is the score."""
        return check_number("x", x)

    def _get_state(self) -> dict[str, Any]:
        scores, counts = self._pool.contents()
        return {"scores": scores, "counts": counts}

    @classmethod
    def _from_state(cls, *, scores: Any, counts: Any) -> Value:
        measure = cls()
        measure._pool = Pool.from_contents(scores, counts)
        return measure
