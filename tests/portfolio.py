"""`Adaptive` as the plain composition that its docstring describes, and what its integral is computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import naive
import naive_scores
from exchangeable import bets
from exchangeable.protocols import Bet
from naive_scores import Law

Floats = NDArray[np.float64]
FORGETTING = (1.0, 0.999, 0.995, 0.99, 0.97, 0.94, 0.88, 0.75)
CHAINS = ((0.002, 1e-4, 0.0), (0.0, 0.01, 0.95), (0.0, 0.03, 0.9))
COLUMNS = 21
PIT, GAMMA, CHAIN, BETA, FADE, PLAIN, SPREAD, REST = 5, 8, slice(10, 13), 13, 14, slice(15, 18), 18, slice(19, 21)
RATES, CAPITAL = (1e-7, 1e-3, 1e-2), (0.40, 0.175, 0.175, 0.25)


def kernels(share: float, memory: float) -> bets.MemoryShare:
    weights = [part / 6.0 for _ in range(6) for part in (0.4, 0.2, *[0.4 / 6.0] * 6)]
    bank = [bets.Kernel(order, forgetting) for order in (2, 4, 8, 16, 32, 64) for forgetting in FORGETTING]
    return bets.MemoryShare(bank, share, memory, weights)


def fast() -> bets.MemoryShare:
    return kernels(1e-2, 0.8)


def groups() -> list[tuple[float, list[Bet]]]:
    serial: list[Bet] = [bets.Markov(8), bets.Markov(16, 0.97), bets.Regression(seasons=False)]
    plain = bets.Regression(1.0, noise=1.0, seasons=False)
    spread = bets.Copula(bets.Regression(), bets.TwoSided(bets.Regression()))
    return [
        (0.9, [kernels(1e-5, 0.0)]),
        (0.6, [kernels(1e-3, 0.8)]),
        (0.25, [fast()]),
        (0.3, [bets.Copula(fast(), bet) for bet in serial]),
        (0.15, [bets.Markov(16), bets.Markov(16, 0.99)]),
        (0.3, [bets.GammaMixture(), bets.Tree(10)]),
        (0.6, [bets.PowerChain(walk, share=share, memory=memory) for walk, share, memory in CHAINS]),
        (0.2, [bets.Beta(0.01, memory=0.95, size=8)]),
        (0.3, [bets.Fade()]),
        (0.5, [plain, bets.Regression(), bets.Regression(noise=0.95), spread]),
        (0.05, [bets.Volatility()]),
        (0.15, [bets.Season()]),
    ]


def prior() -> Floats:
    total = sum(weight for weight, _ in groups())
    return np.array([weight / (total * len(parts)) for weight, parts in groups() for _ in parts])


def by_definition() -> bets.Blend:
    """`Adaptive`, of single bets."""
    parts = [bet for _, group in groups() for bet in group]
    mixtures: list[Bet] = [bets.MemoryShare(parts, rate, 0.9, prior().tolist()) for rate in RATES]
    return bets.Blend([*mixtures, bets.Idle()], CAPITAL)


class Replay(NamedTuple):
    """What the columns have learnt from a history: enough to integrate the next bet."""

    shares: Floats  # of the columns in the next bet
    marginal: bets.MemoryShare
    pit: Law  # of the regression on the integral of the marginal
    laws: list[Law]  # of the plain, the seasonal and the quick regression, of volatility and season
    spread: Law  # of the regression on 2 min(u, 1 - u)
    chains: list[Floats]
    beta: Floats
    fade: Floats  # densities of the cells
    a: float  # -sum ln p
    n: int

    def point(self, p: float) -> Floats:
        """The densities of the columns that are steep at the ends, others being 0."""
        out = np.zeros(COLUMNS)
        seasonal = self.laws[1]
        u = self.marginal.tails(p)[0]
        out[PIT] = math.exp(self.marginal.log_density(p) + self.pit.log_density(u))
        out[GAMMA] = math.exp(
            naive.gamma_mixture(self.n + 1, self.a - math.log(p)) - naive.gamma_mixture(self.n, self.a)
        )
        out[CHAIN] = [np.exp(naive_scores.chain_log_densities(p)) @ shares for shares in self.chains]
        out[BETA] = np.exp(naive.beta_log_density(p, *naive.beta_grid(8, 2.5))) @ self.beta
        out[FADE] = self.fade[naive_scores.fade_cell(p)]
        out[PLAIN] = [math.exp(law.log_density(p)) for law in self.laws[:3]]
        both = naive_scores.two_sided(seasonal.below(p))
        out[SPREAD] = math.exp(seasonal.log_density(p) + self.spread.log_density(both))
        out[REST] = [math.exp(law.log_density(p)) for law in self.laws[3:]]
        return out

    def outside(self, low: float, from_one: float) -> Floats:
        """The masses of the same columns in (0, low] and in [1 - from_one, 1]."""
        out, high, seasonal = np.zeros(COLUMNS), 1.0 - from_one, self.laws[1]
        out[PIT] = self.pit.below(self.marginal.tails(low)[0]) + self.pit.above(self.marginal.tails(high)[0])
        out[GAMMA] = math.exp(
            naive.gamma_mixture(self.n, self.a - math.log(low)) + math.log(low) - naive.gamma_mixture(self.n, self.a)
        )
        out[GAMMA] += from_one * self.point(high)[GAMMA]
        out[CHAIN] = [naive_scores.chain_mass_outside(shares, low, from_one) for shares in self.chains]
        out[BETA] = naive.beta_weights_outside(self.beta, low, from_one, 8, 2.5)
        out[FADE] = naive_scores.fade_mass_above(self.fade, from_one)
        out[PLAIN] = [law.below(low) + law.above(high) for law in self.laws[:3]]
        ends = naive_scores.two_sided(seasonal.below(low)), naive_scores.two_sided(seasonal.below(high))
        out[SPREAD] = 0.5 * (self.spread.below(ends[0]) + self.spread.below(ends[1]))
        out[REST] = [law.below(low) + law.above(high) for law in self.laws[3:]]
        return out


def replay(history: Sequence[float]) -> Replay:
    """Let all columns learn; only the shares come from our bets, and the marginal."""
    p = list(history)
    marginal, us = fast(), []
    for value in p:
        us.append(marginal.tails(value)[0])
        marginal.update(value)
    regressions = [
        naive_scores.regression(p, *how) for how in ((1.0, 1.0, False), (0.998, 0.998, True), (0.998, 0.95, True))
    ]
    spreads = [naive_scores.two_sided(u) for u in naive_scores.transforms(regressions[1], p)]
    laws = [*regressions, naive_scores.volatility(p), naive_scores.season(p)]
    return Replay(
        _next_shares(p, us, spreads),
        marginal,
        naive_scores.regression(us, 0.998, 0.998, False)[-1],
        [law[-1] for law in laws],
        naive_scores.regression(spreads, 0.998, 0.998, True)[-1],
        [naive_scores.power_chain(p, *how)[1] for how in CHAINS],
        naive.beta(p, 0.01, 8, 2.5, 0.95)[1],
        naive_scores.fade(p)[1],
        float(naive.minus_log_sum(p)),
        len(p),
    )


def _next_shares(p: Sequence[float], us: Sequence[float], spreads: Sequence[float]) -> Floats:
    columns = []
    for bet in (bet for _, group in groups() for bet in group):
        if isinstance(bet, bets.Copula):
            seasonal = isinstance(bet.marginal, bets.Regression)
            inner = bet.serial.bet if isinstance(bet.serial, bets.TwoSided) else bet.serial
            columns.append(bet.marginal.extend(p) + inner.extend(spreads if seasonal else us))
        else:
            columns.append(bet.extend(p))
    table = np.column_stack(columns) if len(p) else np.empty((0, COLUMNS))
    mixed = [naive_scores.memory_share(table, prior(), rate, 0.9) for rate in RATES]
    logs = np.log(CAPITAL) + np.array([*(sum(gains) for gains, _ in mixed), 0.0])
    parts = np.exp(logs - np.logaddexp.reduce(logs))
    return np.asarray(sum(part * shares for part, (_, shares) in zip(parts[:3], mixed, strict=True)))
