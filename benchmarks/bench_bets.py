"""The bets: marginal cost a step, memory, and the kernel plug-ins of other libraries on the same p-values."""

from __future__ import annotations

import tracemalloc
import warnings
from itertools import pairwise
from typing import Any

import numpy as np

from exchangeable import Martingale, RateMonitor, bets
from exchangeable.protocols import Bet
from workloads import Floats, best, table

STEPS = (10_000, 100_000, 1_000_000, 10_000_000)


def marginal(make: type[Bet] | type[RateMonitor], p: Any) -> list[float]:
    """Microseconds a step between consecutive numbers of steps."""
    bet = make()
    bet.extend(p[: STEPS[0]])
    costs = []
    for lo, hi in pairwise(STEPS):
        costs.append(1e6 * best(lambda lo=lo, hi=hi: bet.extend(p[lo:hi]), repeats=1) / (hi - lo))  # type: ignore[misc]
    return costs


def growth() -> str:
    p = np.random.default_rng(0).random(STEPS[-1])
    rows = []
    for make in (bets.Plugin, bets.SimpleMixture, bets.Sentinel, bets.SleepyJumper):
        if make is bets.SleepyJumper:
            rows.append([make.__name__, *(f"{cost:.2f}" for cost in marginal(make, p[:1_000_000])[:2]), ""])
        else:
            rows.append([make.__name__, *(f"{cost:.2f}" for cost in marginal(make, p))])
    rows.append(["RateMonitor", *(f"{cost:.2f}" for cost in marginal(RateMonitor, p < 0.02))])
    columns = ["microseconds a step", "n = 1e4 to 1e5", "1e5 to 1e6", "1e6 to 1e7"]
    return "### Marginal cost of `extend`\n\n" + table(columns, rows) + "\n" + memory(p)


def memory(p: Floats) -> str:
    """What a plug-in bet holds after 10,000 and after a million steps."""
    tracemalloc.start()
    bet = bets.Plugin()
    held = []
    for lo, hi in ((0, 10_000), (10_000, 1_000_000)):
        bet.extend(p[lo:hi])
        held.append(tracemalloc.get_traced_memory()[0] / 2**20)
    tracemalloc.stop()
    return f"A `Plugin` holds {held[0]:.2f} MB after 10,000 steps and {held[1]:.2f} MB after a million.\n"


def online_cp(p: Floats) -> float:
    from online_cp.martingale import PluginMartingale

    martingale = PluginMartingale()

    def work() -> None:
        for value in p.tolist():
            martingale.update(value)

    return best(work, repeats=1)


def mapie(p: Floats) -> float:
    from mapie.exchangeability_testing import OnlineMartingaleTest

    martingale = OnlineMartingaleTest(test_method="plugin_martingale")

    def work() -> None:
        for i, value in enumerate(p.tolist()):
            if i > 1:
                martingale.update_plugin_martingale(value)
            martingale.pvalue_history.append(value)

    return best(work, repeats=1)


def peers() -> str:
    rows = []
    for n in (1_000, 2_000, 5_000, 20_000):
        p = np.random.default_rng(1).random(n)
        ours = best(lambda p=p: Martingale(bets.Plugin()).extend(p), repeats=9)  # type: ignore[misc]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = [online_cp(p), mapie(p) if n <= 5_000 else None]  # MAPIE would take hours
        rows.append([f"{n:,}", f"{1e3 * ours:.1f}"])
        rows[-1] += [cell for t in theirs for cell in (("", "") if t is None else (f"{t:.1f}", f"{t / ours:,.0f} x"))]
    columns = ["n", "ours, ms", "online-cp, s", "we are faster", "MAPIE, s", "we are faster"]
    return "### The kernel plug-in against other libraries, same p-values\n\n" + table(columns, rows)


def main() -> str:
    return "## Bets\n\n" + "\n".join([growth(), peers()])


if __name__ == "__main__":
    print(main())
