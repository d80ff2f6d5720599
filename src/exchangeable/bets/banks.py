"""Banks: several bets of one family that share their sums and are played by one loop, a column each.

A bank only describes; what it learns is a state, a tuple of arrays, that it makes fresh and plays on. Columns hold
densities, not their logarithms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from exchangeable import kernels
from exchangeable.bets.learner import Learner, State, check_shares, check_within
from exchangeable.protocols import Floats


class Bank(ABC):
    """Several bets at once: ``columns`` of densities, one row a step."""

    columns: int
    fixed: tuple[Any, ...]  # arrays that never change

    @abstractmethod
    def fresh(self) -> State:
        """The state before the first p-value."""

    @abstractmethod
    def play(self, state: State, p: Floats, densities: Floats) -> None:
        """Bet on each p, put the densities into a row of ``densities``, then let the state learn p."""

    @staticmethod
    @abstractmethod
    def check(state: State) -> None:
        """Admit a state from a snapshot."""


class Kernels(Bank):
    """The bets `Kernel` of every order with every forgetting. O(sum of the orders x forgettings)."""

    def __init__(self, orders: Sequence[int], forgetting: Sequence[float]) -> None:
        self.columns: int = len(orders) * len(forgetting)
        self.fixed: tuple[Any, ...] = kernels.jackson.weights(orders), np.array(orders, np.int64), np.array(forgetting)

    def fresh(self) -> State:
        """No sums."""
        weights, _, forgetting = self.fixed
        return (np.zeros((weights.shape[1], len(forgetting))),)

    def play(self, state: State, p: Floats, densities: Floats) -> None:
        """Columns: the forgettings of the first order, of the second, ..."""
        kernels.jackson.kernel(*state, *self.fixed, p, densities)

    @staticmethod
    def check(state: State) -> None:
        """No sum of cosines exceeds the sum of as many ones."""
        (sums,) = state
        _check_sums(sums, sums[0])


class Markovs(Bank):
    """The bets `Markov` of every order with every forgetting. O(sum of the squared orders x forgettings)."""

    def __init__(self, orders: Sequence[int], forgetting: Sequence[float]) -> None:
        self.columns: int = len(orders) * len(forgetting)
        self.fixed: tuple[Any, ...] = kernels.jackson.weights(orders), np.array(orders, np.int64), np.array(forgetting)

    def fresh(self) -> State:
        """No last p-value, no sums."""
        weights, _, forgetting = self.fixed
        size = weights.shape[1]
        return np.zeros(size), np.zeros((len(forgetting), size, size))

    def play(self, state: State, p: Floats, densities: Floats) -> None:
        """Columns: the orders of the first forgetting, of the second, ..."""
        kernels.jackson.markov(*state, *self.fixed, p, densities)

    @staticmethod
    def check(state: State) -> None:
        """The last p-value's are cosines, and no sum of products of cosines exceeds the sum of as many ones."""
        last, sums = state
        check_within("cosines", last, -1.001, 1.001)
        _check_sums(sums.transpose(1, 2, 0), sums[:, 0, 0])


class Betas(Bank):
    """The bets `Beta` of every switching rate on one grid. O(size^2 x rates)."""

    def __init__(self, rates: Sequence[float], size: int, reach: float) -> None:
        from scipy.special import beta  # heavy, so only when needed

        self.columns: int = len(rates)
        steps = np.linspace(-1.0, 1.0, size)
        shapes = np.exp(reach * steps * np.abs(steps))
        self.fixed: tuple[Any, ...] = np.array(rates), shapes, 1.0 / beta(shapes[:, np.newaxis], shapes[np.newaxis, :])

    def fresh(self) -> State:
        """Even shares."""
        rates, _, norm = self.fixed
        return np.full((len(rates), *norm.shape), 1.0 / norm.size), np.ones(len(rates))

    def play(self, state: State, p: Floats, densities: Floats) -> None:
        """A column a rate."""
        kernels.beta.beta(*state, *self.fixed, p, densities)

    @staticmethod
    def check(state: State) -> None:
        """Shares sum to their totals."""
        shares, totals = state
        check_within("totals", totals, 1e-200, 1e200)
        for share, total in zip(shares, totals, strict=True):
            check_shares("shares", share / total)


def _check_sums(sums: Floats, mass: Floats) -> None:
    check_within("sums", mass, 0.0, 2.0**53)
    if not (np.abs(sums) <= 1.001 * mass).all():
        raise ValueError("sums must be of cosines, got larger ones")


class FromBank(Learner):
    """A bet that is a bank of one column."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._state = bank.fresh()

    def _play(self, state: State, p: Floats, gains: Floats) -> None:
        densities = np.empty((len(p), 1))
        self._bank.play(state, p, densities)
        np.log(densities[:, 0], out=gains)

    def _check_state(self) -> None:
        self._bank.check(self._state)
