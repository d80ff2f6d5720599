"""What bench_native.py measures: ``python native_cases.py CASE`` prints times as JSON, whatever version is installed.

Times are processor times, the least of several; ratios of nearest neighbours to a product are medians.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Times = dict[str, float]


def least(work: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def uniform(n: int) -> Floats:
    return 1.0 - np.random.default_rng(0).random(n)


# ------------------------------------------------------------------ first results


def first() -> Times:
    import exchangeable as ex

    ex.test(np.random.default_rng(0).normal(size=(500, 3)), seed=1)
    return {"a fresh process with one `ex.test` of 500 x 3, CPU s": time.process_time()}


# ------------------------------------------------------------------ bets


def a_step(make: Callable[[], Any], p: Floats) -> float:
    """Microseconds a step of a fresh bet."""
    make().extend(p[:2000])  # compile
    return 1e6 * least(lambda: make().extend(p), 2 + 300_000 // len(p)) / len(p)


def adaptive() -> Times:
    from exchangeable import bets

    return {f"`Adaptive.extend`, n = {n:,}, us": a_step(bets.Adaptive, uniform(n)) for n in (1_000, 10_000, 100_000)}


def plugin() -> Times:
    from exchangeable import bets

    p = uniform(1_000_000)
    u_shaped = np.where(p < 0.5, p**4, 1.0 - (1.0 - p) ** 4)
    times = {f"`Plugin.extend`, n = {n:,}, us": a_step(bets.Plugin, p[:n]) for n in (10_000, 100_000, 1_000_000)}
    return {**times, "`Plugin.extend`, n = 100,000, U-shaped p-values, us": a_step(bets.Plugin, u_shaped[:100_000])}


def others() -> Times:
    from exchangeable import bets

    kinds = (
        *(bets.SimpleJumper, bets.CompositeJumper, bets.SleepyJumper, bets.SimpleMixture, bets.GammaMixture),
        *(bets.Tree, bets.Histogram, bets.Kernel, bets.Markov, bets.Beta),
    )
    p = uniform(100_000)
    watching = vars(bets).get("Sentinel") or vars(bets)["Watchful"]  # of the version before
    times = {f"`{kind.__name__}.extend`, n = {len(p):,}, us": a_step(kind, p) for kind in kinds}
    return {**times, f"`Sentinel.extend` (before: `Watchful`), n = {len(p):,}, us": a_step(watching, p)}


# ------------------------------------------------------------------ measures


def ranks() -> Times:
    from exchangeable import measures

    x = np.random.default_rng(0).normal(size=1_000_000)
    return {f"`Value.extend`, n = {n:,}, us": a_step(measures.Value, x[:n]) for n in (10_000, 100_000, 1_000_000)}


def product(F: NDArray[np.float32]) -> None:
    """The inner products of every row with all earlier ones, in single precision, and nothing else."""
    buffer = np.empty((256, len(F)), np.float32)
    for lo in range(0, len(F), 256):
        hi = min(lo + 256, len(F))
        np.matmul(F[lo:hi], F[:hi].T, out=buffer[: hi - lo, :hi])


def in_products(clock: Callable[[], float], label: str) -> Times:
    """Times in units of the product; both take turns, so that they meet the same noise."""
    from exchangeable import measures

    rng, times = np.random.default_rng(0), {}
    y = rng.integers(0, 10, 9_298)
    X = rng.normal(scale=1.5, size=(len(y), 256)) + rng.normal(size=(10, 256))[y]
    F = X.astype(np.float32)
    measures.NearestNeighbour().extend(X[:600], y[:600])  # compile
    for n in (1_000, 3_000, 9_298):
        ratios = []
        for _ in range(3 + 18_000 // n):
            ours = least(partial(measures.NearestNeighbour().extend, X[:n], y[:n]), 1, clock)
            ratios.append(ours / least(partial(product, F[:n]), 1, clock))
        times[f"`NearestNeighbour.extend`, {n:,} x 256, in float32 products, {label}"] = float(np.median(ratios))
    return times


def nearest() -> Times:
    return in_products(time.perf_counter, "wall times")


def nearest_one_core() -> Times:
    """To be called with ``OPENBLAS_NUM_THREADS=1``."""
    return in_products(time.process_time, "one core")


# ------------------------------------------------------------------ one by one


def live(update: Callable[[float], object], before: int) -> float:
    """Microseconds of one call, after so many."""
    x = np.random.default_rng(0).normal(size=before + 500).tolist()
    for value in x[:before]:
        update(value)

    def some() -> None:
        for value in x[before:]:
            update(value)

    return 1e6 * least(some, 7) / (len(x) - before)


def monitor() -> Times:
    from exchangeable import Monitor, alarms, measures

    times = {}
    for name, alarm in (("", alarms.Ville()), (" with `ShiryaevRoberts`", alarms.ShiryaevRoberts(1e9))):
        for n in (1_000, 10_000):
            one = Monitor(measures.Value(), alarm=alarm, seed=1)
            times[f"`Monitor(Value()).update`{name}, after {n:,}, us"] = live(one.update, n)
    return times


def river() -> Times:
    from exchangeable.adapters.river import ExchangeabilityDetector as Detector

    times = {}
    makers = {"alpha=1e-9": partial(Detector, alpha=1e-9, seed=1), "period=1e9": partial(Detector, period=1e9, seed=1)}
    for name, make in makers.items():
        detector = make()
        times[f"River, `{name}`: update after 1,000, us"] = live(detector.update, 1_000)
        times[f"River, `{name}`: clone, ms"] = 1e3 * least(detector.clone, 50)
        times[f"River, `{name}`: memory after 100 numbers, KiB"] = memory(make)
    return times


def memory(make: Callable[[], Any], many: int = 20) -> float:
    """KiB of each of many detectors."""
    tracemalloc.start()
    detectors = [make() for _ in range(many)]
    for detector in detectors:
        for value in uniform(100).tolist():
            detector.update(value)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / many / 2**10


CASES: dict[str, Callable[[], Times]] = {
    case.__name__: case for case in (first, monitor, river, adaptive, plugin, others, ranks, nearest, nearest_one_core)
}


def use(library: str) -> None:
    """Take the kernels from another library than the installed one."""
    name = "exchangeable.native._native"
    spec = importlib.util.spec_from_file_location(name, library)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        use(sys.argv[2])
    print(json.dumps(CASES[sys.argv[1]]()))
