"""The benchmarks' streams, detectors and arithmetic: what the tables rest on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import bench_detection
import bench_power
import changes
import detectors
import streams
from streams import HELD_OUT, STREAMS

ALL = {**STREAMS, **HELD_OUT}
AFTER, BEFORE = bench_detection.AFTER, bench_detection.BEFORE


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------ streams of p-values


@pytest.mark.parametrize("name", ALL)
def test_streams_are_p_values_and_reproducible(name: str) -> None:
    first, again, other = (ALL[name](rng(seed), 700) for seed in (1, 1, 2))
    assert first.p.shape == (700,)
    assert (first.p > 0.0).all()
    assert (first.p <= 1.0).all()
    assert math.isfinite(first.log_ratio)
    assert (first.p == again.p).all()
    assert first.log_ratio == again.log_ratio
    assert (first.p != other.p).any()


def test_held_out_streams_are_others() -> None:
    assert not set(STREAMS) & set(HELD_OUT)
    assert not set(STREAMS.values()) & set(HELD_OUT.values())


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        ("uniform", 0.0),
        ("beta(.5, 1)", math.log(0.5) + 1.0),
        ("abrupt", 0.5 * (math.log(0.6) + 0.4 / 0.6)),
        ("switching", math.log(0.6) + 0.4 / 0.6),
        ("AR copula", -0.5 * math.log(1.0 - 0.3**2)),
        ("alternation", math.log(0.8) + 0.2 / 0.8),
    ],
)
def test_the_truth_wins_its_relative_entropy(name: str, gain: float) -> None:
    n = 20_000
    assert ALL[name](rng(3), n).log_ratio / n == pytest.approx(gain, abs=0.02)


def test_who_does_not_know_the_times_wins_a_little_less() -> None:
    for name in ("abrupt", "switching", "bursts", "N(0,1) to N(.5,1)", "counts", "random regimes"):
        drawn = ALL[name](rng(3), 3_000)
        assert 0.6 * drawn.log_ratio < drawn.untimed < 1.02 * drawn.log_ratio, name
    assert math.isnan(ALL["drift"](rng(3), 100).untimed)


def test_a_hidden_chain_is_the_sum_over_all_paths() -> None:
    densities, change = rng(4).random((4, 3)), streams.leaving([0.1, 0.2, 0.3])
    np.testing.assert_allclose(change.sum(axis=1), 1.0)
    paths = itertools.product(range(3), repeat=4)
    likelihoods = [
        math.prod([1 / 3, *(change[i, j] for i, j in itertools.pairwise(path))])
        * math.prod(densities[t, law] for t, law in enumerate(path))
        for path in paths
    ]
    assert streams.hidden(densities, change) == pytest.approx(math.log(sum(likelihoods)))


def test_one_change_is_the_mean_over_its_times() -> None:
    densities, weights = rng(5).random((2, 4)) + 0.5, np.array([0.0, 1.0])
    likelihoods = [
        math.prod(
            densities[0, t] + tau / (t + 1) * (densities[1, t] - densities[0, t]) if t >= tau else 1.0 for t in range(4)
        )
        for tau in range(4)
    ]
    assert streams.one_change(densities, weights) == pytest.approx(math.log(np.mean(likelihoods)))


def test_a_diluted_law_is_a_density() -> None:
    p, x = (np.arange(100_000) + 0.5) / 100_000, np.linspace(-8.0, 8.0, 20_001)
    old, new = (stats.norm.pdf(x, mean) * 0.0008 for mean in (0.0, 0.5))
    for part in (0.0, 0.3, 1.0):
        assert streams.diluted(p, old, new, part).mean() == pytest.approx(1.0, abs=1e-3)
    assert (streams.diluted(p, old, new, 0.0) == 1.0).all()
    at = stats.norm.isf(p)
    ideal = stats.norm.pdf(at, 0.5) / stats.norm.pdf(at)
    np.testing.assert_allclose(streams.diluted(p, old, new, 1.0), ideal, rtol=2e-3)


@pytest.mark.parametrize("name", ["AR copula", "uniform"])
def test_each_p_value_of_these_is_uniform(name: str) -> None:
    assert stats.kstest(ALL[name](rng(4), 5_000).p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", ["N(0,1) to N(.5,1)", "variance", "counts", "abrupt"])
def test_the_first_half_is_uniform_and_the_second_is_not(name: str) -> None:
    p = ALL[name](rng(5), 6_000).p
    assert stats.kstest(p[:3_000], "uniform").pvalue > 1e-3
    assert stats.kstest(p[3_000:], "uniform").pvalue < 1e-3


def test_autoregression_is_its_recursion() -> None:
    z = streams.autoregression(rng(6), 50, 0.7)
    noise = rng(6).standard_normal(50)
    slow = [noise[0]]
    for e in noise[1:]:
        slow.append(0.7 * slow[-1] + math.sqrt(1.0 - 0.7**2) * e)
    assert z == pytest.approx(slow)


# ------------------------------------------------------------------ the verdicts on power


def row(own: float, single: float, first: float, stream: str = "sine", truth: float = 100.0) -> bench_power.Row:
    values = dict.fromkeys(bench_power.SINGLE, single) | {bench_power.FIRST: first, "Adaptive": own}
    return bench_power.Row(stream, values, truth)


def test_ahead_of_all() -> None:
    assert row(101.0, 100.0, 99.0).is_ahead
    assert not row(101.0, 102.0, 99.0).is_ahead
    assert not row(101.0, 99.0, 101.5).is_ahead


@pytest.mark.parametrize(
    ("drawn", "kept"),
    [
        (row(50.0, 60.0, 50.4), [True]),
        (row(50.0, 40.0, 50.6), [False]),
        (row(90.1, 40.0, 80.0, "drift"), [True, True]),
        (row(89.9, 40.0, 80.0, "drift"), [True, False]),
        (row(86.9, 40.0, 80.0, "switching"), [True, False]),
        (row(-0.5, 0.0, 0.0, "uniform", 0.0), [True]),
        (row(-0.7, 0.0, 0.0, "uniform", 0.0), [False]),
        (row(-0.2, 0.0, 0.0, "Satellite, shuffled", math.nan), [False]),
    ],
)
def test_targets_can_be_missed(drawn: bench_power.Row, kept: list[bool]) -> None:
    assert [is_kept for _, is_kept in drawn.targets()] == kept


# ------------------------------------------------------------------ streams with a change


@pytest.mark.parametrize("name", ["mean", "scale", "gradual", "counts", "outliers", "waiting", "narrow"])
def test_numeric_changes(name: str) -> None:
    x = getattr(changes, name)(rng(7), 2_000, 2_000)
    assert x.shape == (4_000,)
    assert np.isfinite(x).all()
    assert stats.ks_2samp(x[:1_000], x[1_000:2_000]).pvalue > 1e-3
    assert stats.ks_2samp(np.abs(x[:2_000]), np.abs(x[2_000:])).pvalue < 1e-3


def test_two_humps_keep_mean_and_deviation() -> None:
    x = changes.humps(rng(20), 0, 100_000)
    assert x.mean() == pytest.approx(0.0, abs=0.02)
    assert x.std() == pytest.approx(1.0, abs=0.01)


def test_a_visit_ends_and_a_series_begins() -> None:
    x = np.array([changes.visit(rng(21, seed), 50, 200) for seed in range(400)]).mean(axis=0)
    assert np.abs(x[:50]).max() < 0.25
    assert x[50:150] == pytest.approx(-1.0, abs=0.25)
    assert np.abs(x[150:]).max() < 0.25
    series = changes.serial(rng(22), 20_000, 20_000)
    before, after = (np.corrcoef(part[:-1], part[1:])[0, 1] for part in (series[:20_000], series[20_000:]))
    assert (before, after) == pytest.approx((0.0, 0.5), abs=0.04)


@pytest.mark.parametrize("name", ["noisy_labels", "hyperplane", "sea", "stagger"])
def test_labelled_changes(name: str) -> None:
    draw = getattr(changes, name)
    change = changes.synthetic(draw, changes.errors)
    x = change(rng(8), 3_000, 3_000)
    assert set(np.unique(x)) == {0.0, 1.0}
    assert x[3_000:].mean() > x[:3_000].mean() + 0.05
    scored = changes.synthetic(draw)(rng(8), 300, 0)
    assert ((scored >= 0.0) & (scored <= 1.0)).all()
    assert ((scored > 0.5) == change(rng(8), 300, 0)).all()  # the classifier errs where the true label is unlikely


# ------------------------------------------------------------------ detectors


def test_distances_are_scipys_with_ties() -> None:
    first, second = rng(9).integers(0, 12, (40, 30)).astype(float), rng(10).integers(2, 14, (40, 30)).astype(float)
    wanted = [30 * stats.ks_2samp(a, b).statistic for a, b in zip(first, second, strict=True)]
    assert detectors.distances(first, second) == pytest.approx(wanted)


def test_page_hinkley_is_its_recursion() -> None:
    x = changes.mean(rng(11), 100, 100)
    up = down = mean = 0.0
    lowest, highest, slow = math.inf, -1.0, []
    for i, value in enumerate(x.tolist()):
        mean += (value - mean) / (i + 1)
        up, down = 0.9999 * up + value - mean - 0.005, 0.9999 * down + value - mean + 0.005
        lowest, highest = min(lowest, up), max(highest, down)
        slow.append(max(up - lowest, highest - down) if i >= 29 else -math.inf)
    assert detectors.page_hinkley(x) == pytest.approx(slow)


def test_kswin_waits_for_its_window_and_finds_a_change() -> None:
    path = detectors.kswin_path(np.append(rng(12).normal(size=300), rng(13).normal(3.0, size=100)), 0)
    assert (path[:99] == -math.inf).all()
    assert detectors.crossing(path, 15.0) in range(310, 335)


def test_statistics_of_the_alarms_are_their_definitions() -> None:
    log_value = np.cumsum(rng(14).normal(size=60))
    capital = np.exp(np.append(0.0, log_value))
    ratios = [capital[n] / capital[:n] for n in range(1, 61)]
    assert detectors.cusum(log_value) == pytest.approx([math.log(ratio.max()) for ratio in ratios])
    assert detectors.shiryaev_roberts(log_value) == pytest.approx([math.log(ratio.sum()) for ratio in ratios])


def test_crossing_counts_a_tie_and_not_nan() -> None:
    assert detectors.crossing(np.array([math.nan, 0.0, 1.0, 2.0]), 1.0) == 2
    assert detectors.crossing(np.array([math.nan, 0.0]), 1.0) == 2


def test_rivers_own_detectors_sound_when_ours_do() -> None:
    pytest.importorskip("river")
    for seed in range(3):
        detectors.check(changes.mean(rng(15, seed), 400, 200))
        detectors.check(changes.counts(rng(16, seed), 400, 200))


# ------------------------------------------------------------------ calibration, intervals, verdicts


def test_calibration_meets_the_rate() -> None:
    peaks = rng(17).normal(size=1_000)
    assert (peaks >= bench_detection.calibrated(peaks)).mean() == pytest.approx(0.05)
    coarse = np.repeat([1.0, 2.0, 3.0], [900, 92, 8])
    assert bench_detection.calibrated(coarse) == 3.0  # 0.8 % is nearer to 5 % than 10 %
    assert bench_detection.calibrated(np.full(10, math.inf)) == math.inf  # what sounds always cannot be calibrated


@pytest.mark.parametrize(("count", "runs"), [(0, 50), (3, 50), (50, 1_000), (20, 20)])
def test_exact_interval(count: int, runs: int) -> None:
    wanted = stats.binomtest(count, runs).proportion_ci(0.95, method="exact")
    assert bench_detection.exact(count, runs) == pytest.approx((wanted.low, wanted.high))


def test_delays() -> None:
    first = [BEFORE - 1, BEFORE, BEFORE + 9, BEFORE + AFTER - 1, BEFORE + AFTER]
    found = [bench_detection.delay(at, BEFORE) for at in first]
    assert found == pytest.approx([math.nan, 1, 10, AFTER, AFTER], nan_ok=True)


def test_changes_come_at_random_times() -> None:
    times = np.array([bench_detection.change_time("mean", run) for run in range(2_000)])
    assert (times.min(), times.max()) == (BEFORE, BEFORE + bench_detection.JITTER - 1)
    assert stats.chisquare(np.bincount(times - BEFORE)).pvalue > 1e-3


def test_the_hazard_of_a_clock_and_of_a_fair_coin() -> None:
    runs, steps = bench_detection.LONG_RUNS, bench_detection.LONG
    clock = bench_detection.hazard(np.full(runs, 10_500))
    assert clock == ["0"] * 10 + ["100"] + ["-"] * 9
    coin = np.random.default_rng(0).geometric(1e-4, runs).clip(max=steps)
    flat = [float(share) for share in bench_detection.hazard(coin)]
    assert max(flat) < 20.0


def result(delay: list[float]) -> bench_detection.Result:
    values = np.array(delay)
    return bench_detection.Result(1.0, 5, 5, 100, values, values)


@pytest.mark.parametrize(("shift", "word"), [(-30.0, "first"), (0.0, "level"), (30.0, "**behind**")])
def test_verdicts(shift: float, word: str) -> None:
    base = rng(18).uniform(50.0, 150.0, 200)
    noise = rng(19).normal(0.0, 20.0, 200)
    ours = result([*(base + shift + noise - noise.mean())[:199], math.nan])
    name = next(iter(detectors.OURS))
    results = {name: ours, "quick": result(base.tolist()), "slow": result((base + 100.0).tolist())}
    found = bench_detection.verdict(results, name)
    assert (found.other, found.word) == ("quick", word)
    assert found.low <= found.difference <= found.high
