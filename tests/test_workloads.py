"""The benchmarks' streams, detectors and arithmetic: what the tables rest on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import bench_detection
import bench_power
import changes
import conformal_detectors
import detection_long
import detection_runs
import detection_text
import detection_verdicts
import detectors
import frouros_paths
import glr
import limits
import own_detectors
import river_binary
import river_paths
import sleepy_jumpers
import streams
from detection_runs import AFTER, Runs
from detection_store import Arrays, Store
from detectors import BINARY, NUMBERS, UNIT, Floats, Integers
from exchangeable import bets
from streams import HELD_OUT, STREAMS

ALL = {**STREAMS, **HELD_OUT}
BEFORE = detection_runs.SHORT.before


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------ rules of the Sleepy Jumper


def test_the_first_rule_is_that_of_the_bet() -> None:
    p = 1.0 - rng(1).random((2, 300)) ** 2
    finals, highest = sleepy_jumpers.play(p, [(0.01, 0.001), (0.3, 0.1)], sleepy_jumpers.Rule(), True)
    for k, (waking, jumping) in enumerate([(0.01, 0.001), (0.3, 0.1)]):
        for seed in range(2):
            path = bets.SleepyJumper(waking=waking, jumping=jumping).extend(p[seed]).cumsum() / math.log(10.0)
            assert finals[k, seed] == pytest.approx(path[-1], abs=1e-12)
            assert highest[k, seed] == pytest.approx(max(path.max(), 0.0), abs=1e-12)


@pytest.mark.parametrize("name", sleepy_jumpers.RULES)
@pytest.mark.parametrize("keeps", [False, True])
def test_every_rule_gives_a_martingale(name: str, keeps: bool) -> None:
    """The mean of the capital over an even grid of p-values, after two steps, is 1 but for the grid."""
    rule = sleepy_jumpers.RULES[name]
    grid = (np.arange(200) + 0.5) / 200
    p = np.array(list(itertools.product([0.2, 0.9], grid)))
    finals, _ = sleepy_jumpers.play(p, [(0.3, 0.2)], rule, keeps)
    first, _ = sleepy_jumpers.play(p[:, :1], [(0.3, 0.2)], rule, keeps)
    ratio = (10.0 ** (finals - first)).reshape(2, 200).mean(axis=1)
    assert np.allclose(ratio, 1.0, atol=0.06)  # the grid misses a part of the poles at 0


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


def events(seed: int, before: float, after: float) -> Floats:
    chance = np.append(np.full(1_000, before), np.full(500, after))
    return (rng(31, seed).random(1_500) < chance).astype(np.float64)


def test_distances_are_scipys_with_ties() -> None:
    first, second = rng(9).integers(0, 12, (40, 30)).astype(float), rng(10).integers(2, 14, (40, 30)).astype(float)
    wanted = [30 * stats.ks_2samp(a, b).statistic for a, b in zip(first, second, strict=True)]
    assert river_paths.distances(first, second) == pytest.approx(wanted)


def test_page_hinkley_is_its_recursion() -> None:
    x = changes.mean(rng(11), 100, 100)
    up = down = mean = 0.0
    lowest, highest, slow = math.inf, -1.0, []
    for i, value in enumerate(x.tolist()):
        mean += (value - mean) / (i + 1)
        up, down = 0.9999 * up + value - mean - 0.005, 0.9999 * down + value - mean + 0.005
        lowest, highest = min(lowest, up), max(highest, down)
        slow.append(max(up - lowest, highest - down) if i >= 29 else -math.inf)
    assert river_paths.page_hinkley(x) == pytest.approx(slow)


def test_kswin_waits_for_its_window_and_finds_a_change() -> None:
    path = river_paths.kswin_path(np.append(rng(12).normal(size=300), rng(13).normal(3.0, size=100)), 0)
    assert (path[:99] == -math.inf).all()
    assert detectors.crossing(path, 15.0) in range(310, 335)


def test_statistics_of_the_alarms_are_their_definitions() -> None:
    log_value = np.cumsum(rng(14).normal(size=60))
    capital = np.exp(np.append(0.0, log_value))
    ratios = [capital[n] / capital[:n] for n in range(1, 61)]
    assert own_detectors.cusum(log_value) == pytest.approx([math.log(ratio.max()) for ratio in ratios])
    assert own_detectors.shiryaev_roberts(log_value) == pytest.approx([math.log(ratio.sum()) for ratio in ratios])


def test_crossing_counts_a_tie_and_not_nan() -> None:
    assert detectors.crossing(np.array([math.nan, 0.0, 1.0, 2.0]), 1.0) == 2
    assert detectors.crossing(np.array([math.nan, 0.0]), 1.0) == 2
    assert detectors.crossing(np.array([0.0, math.inf]), math.inf) == 2  # no alarm at an infinite level


@pytest.mark.parametrize("change", [changes.mean, changes.counts, changes.outliers])
def test_rivers_own_detectors_sound_when_ours_do(change: changes.Change) -> None:
    pytest.importorskip("river")
    for seed in range(2):
        river_paths.check(change(rng(15, seed), 500, 200))
    own_detectors.check(change(rng(15), 400, 200))


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.3), (0.01, 0.04), (0.3, 0.1), (0.0, 0.5)])
def test_rivers_own_detectors_of_errors_sound_when_ours_do(before: float, after: float) -> None:
    pytest.importorskip("river")
    river_binary.check(events(0, before, after))


def test_rivers_hddm_sounds_when_ours_does_on_numbers_in_the_unit_interval() -> None:
    pytest.importorskip("river")
    river_binary.check_hddm(np.append(rng(32).beta(1, 5, 800), rng(33).beta(1, 3, 400)))


def test_a_difference_from_river_is_an_error() -> None:
    river_paths.agree("ADWIN", 5, 5)
    with pytest.raises(AssertionError, match="sounds at 6, ours at 5"):
        river_paths.agree("ADWIN", 5, 6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # frouros divides by zero
def test_frouros_own_detectors_sound_when_ours_do() -> None:
    pytest.importorskip("frouros")
    for seed in range(2):
        for before, after in ((0.1, 0.3), (0.01, 0.04), (0.3, 0.1)):
            frouros_paths.check(events(seed, before, after))


def test_the_paths_of_frouros_are_their_recursions() -> None:
    x = events(3, 0.1, 0.3)
    total = weighted = mean = average = 0.0
    slow = []
    for n, value in enumerate(x.tolist(), start=1):
        mean += (value - mean) / n
        total = max(0.0, total + value - mean - 0.005)
        average = 0.99 * average + 0.01 * (value - mean)
        weighted = 0.2 * value + 0.8 * weighted
        deviation = math.sqrt(0.2 / 1.8 * (1.0 - 0.8 ** (2 * n)) * mean * (1.0 - mean))
        slow.append((total, average, (weighted - mean) / deviation if deviation else math.nan))
    sums, averages, charts = np.array(slow)[29:].T
    assert frouros_paths.cusum(x)[29:] == pytest.approx(sums)
    assert frouros_paths.moving_average(x)[29:] == pytest.approx(averages)
    limit = frouros_paths.control_limit(np.cumsum(x) / np.arange(1, len(x) + 1))
    with np.errstate(invalid="ignore"):  # before the first error
        assert (frouros_paths.ecdd(x) * limit)[29:] == pytest.approx(charts, nan_ok=True)


def test_the_capital_of_sleeper_drifter_is_that_of_crepes() -> None:
    pytest.importorskip("crepes")
    for p in (1.0 - rng(34).random(512), 1.0 - rng(35).random(400) ** 2):
        conformal_detectors.check(p)


def likelihood_of_mean(x: Floats, k: int) -> float:
    within = ((x[:k] - x[:k].mean()) ** 2).sum() + ((x[k:] - x[k:].mean()) ** 2).sum()
    return float(0.5 * len(x) * math.log(((x - x.mean()) ** 2).sum() / within))


def likelihood_of_both(x: Floats, k: int) -> float:
    def weighted(part: Floats) -> float:
        return len(part) * math.log((((part - part.mean()) ** 2).sum() / x.var() + 1.0) / (len(part) + 1))

    return -0.5 * (weighted(x[:k]) + weighted(x[k:]))


def likelihood_of_rate(x: Floats, k: int) -> float:
    def logarithm(part: Floats) -> float:
        return float(stats.bernoulli.logpmf(part, part.mean()).sum())

    return logarithm(x[:k]) + logarithm(x[k:]) - logarithm(x)


@pytest.mark.parametrize("youngest", [1, glr.OLDER])
@pytest.mark.parametrize(
    ("path", "gain", "x"),
    [
        (glr.normal_mean, likelihood_of_mean, changes.mean(rng(36), 130, 20) + 7.0),
        (glr.normal, likelihood_of_both, changes.scale(rng(37), 130, 20) - 3.0),
        (glr.bernoulli, likelihood_of_rate, events(5, 0.2, 0.6)[920:1_060]),
    ],
)
def test_likelihood_ratios_are_maxima_over_all_candidates(
    path: Callable[..., Floats], gain: Callable[[Floats, int], float], x: Floats, youngest: int
) -> None:
    found = path(x, youngest=youngest)
    assert (found[: glr.BEFORE + youngest - 1] == -math.inf).all()
    for n in range(glr.BEFORE + youngest, len(x) + 1):
        candidates = [n - a for a in glr.AGES.tolist() if a >= youngest and n - a >= glr.BEFORE]
        assert found[n - 1] == pytest.approx(max(gain(x[:n], k) for k in candidates), abs=1e-9)


def test_likelihood_ratios_have_few_candidates() -> None:
    assert len(glr.AGES) <= 200
    assert (glr.AGES[:10] == np.arange(1, 11)).all()
    assert glr.normal_mean(np.zeros(300)).max() <= 0.0  # no variance, no change


def test_detectors_watch_the_kind_of_data_that_they_need() -> None:
    ddm, adwin = river_binary.TOOLS[0], river_paths.TOOLS[0]
    assert [ddm.applies(kind) for kind in (NUMBERS, UNIT, BINARY)] == [False, False, True]
    assert [adwin.applies(kind) for kind in (NUMBERS, UNIT, BINARY)] == [True, True, True]
    kinds = [detection_runs.kind(None, name) for name in ("counts", "label noise", "events")]
    assert kinds == [NUMBERS, UNIT, BINARY]


# ------------------------------------------------------------------ limits


def test_the_limit_knows_the_ratio_of_the_laws() -> None:
    known = limits.ratio(limits.drawn(changes.mean, False), limits.drawn(changes.mean, True))
    x = rng(40).normal(size=(300, 1_000))
    assert np.abs(known(x) - (0.5 * x - 0.125)).mean() < 0.05
    exact, cells = limits.shiryaev_roberts(0.5 * x - 0.125), limits.shiryaev_roberts(known(x))
    assert np.quantile(exact.max(axis=1), 0.95) == pytest.approx(np.quantile(cells.max(axis=1), 0.95), abs=0.3)
    x[:, 600:] += 0.5
    exact, cells = limits.shiryaev_roberts(0.5 * x - 0.125), limits.shiryaev_roberts(known(x))
    delays = [np.mean([detectors.crossing(path, 9.5) for path in paths]) for paths in (exact, cells)]
    assert delays[0] == pytest.approx(delays[1], abs=3.0)


def test_shiryaev_roberts_of_the_limit_is_its_recursion() -> None:
    log_ratio = rng(41).normal(size=(2, 40))
    wanted = [own_detectors.shiryaev_roberts(np.cumsum(row)) for row in log_ratio]
    assert limits.shiryaev_roberts(log_ratio) == pytest.approx(np.array(wanted))
    assert np.isfinite(limits.shiryaev_roberts(np.full((1, 500), 3.0))).all()


def test_a_common_value_without_mass_before_the_change_is_a_cell() -> None:
    old, new = limits.drawn(changes.stuck, False), limits.drawn(changes.stuck, True)
    known = limits.ratio(old, new)
    assert known(np.array([0.0]))[0] > 5.0
    assert np.abs(known(np.array([-0.2, 0.2]))).max() < 0.3
    assert (limits.atoms(new) == [0.0]).all()


@pytest.mark.parametrize("change", [changes.mean, changes.counts])
def test_diluted_densities_integrate_to_one(change: changes.Change) -> None:
    law = limits.cells(limits.drawn(change, False), limits.drawn(change, True))
    p = (np.arange(200_000) + 0.5) / 200_000
    for part in (0.0, 0.1, 0.7, 1.0):
        assert law.densities(p, part).mean() == pytest.approx(1.0, abs=2e-3)
    assert law.densities(p, 1.0) == pytest.approx(1.0)  # who has seen the new law only sees no change


def test_p_values_after_a_change_have_the_diluted_density() -> None:
    law = limits.cells(limits.drawn(changes.mean, False), limits.drawn(changes.mean, True))
    rows = [changes.mean(rng(42, seed), 300, 100) for seed in range(3_000)]
    last = np.array([(np.sum(x > x[-1]) + seed % 7 / 7.0) / len(x) for seed, x in enumerate(rows)])
    shares = np.histogram(last, np.linspace(0.0, 1.0, 11))[0] / len(last)
    p = (np.arange(10_000) + 0.5) / 10_000
    assert shares == pytest.approx(law.densities(p, 0.25).reshape(10, -1).mean(axis=1) / 10.0, abs=0.03)


def test_the_limit_by_ranks_is_a_sum_over_all_starts() -> None:
    law = limits.cells(limits.drawn(changes.scale, False), limits.drawn(changes.scale, True))
    P = 1.0 - rng(43).random((2, 60))
    found = limits.by_ranks_path(law, P)
    for row, run in enumerate(P):
        values = [[law.densities(run[n - 1 : n], part)[0] for part in limits.NEW_PARTS] for n in range(1, 61)]
        for n in (1, 17, 60):
            chains = [
                math.prod(values[m - 1][limits.levels(m)[start // limits.BLOCK]] for m in range(start + 1, n + 1))
                for start in range(n)
            ]
            assert found[row, n - 1] == pytest.approx(math.log(sum(chains)))


def test_levels_of_the_pool() -> None:
    levels = limits.levels(8_000)
    parts = limits.NEW_PARTS[levels]
    wanted = (8_000 - np.arange(4, 8_000, 8)) / 8_000
    assert parts[:-8] == pytest.approx(wanted[:-8], rel=0.1)
    assert (np.diff(levels) <= 0).all()


# ------------------------------------------------------------------ calibration, runs, intervals, verdicts


def path(statistic: Callable[[Floats, int], Floats]) -> detectors.Path:
    return detectors.Path("path", None, "", statistic)


def test_calibration_meets_the_rate() -> None:
    tool, peaks = path(lambda x, seed: x), rng(17).normal(size=1_000)
    level = tool.calibrated(tool.quiet(peaks[:, np.newaxis], range(1_000)), 0.05)
    assert (peaks >= level).mean() == pytest.approx(0.05)
    assert tool.sounded(peaks, level).mean() == pytest.approx(0.05)
    coarse = np.repeat([1.0, 2.0, 3.0], [900, 92, 8])
    assert tool.calibrated(coarse, 0.05) == 3.0  # 0.8 % is nearer to 5 % than 10 %
    assert tool.calibrated(np.full(10, math.inf), 0.05) == math.inf  # what sounds always cannot be calibrated
    assert tool.firsts(np.ones((2, 5)), [0, 1], [1.0, math.inf]).tolist() == [[0, 5], [0, 5]]


def test_calibration_on_a_grid_meets_the_rate() -> None:
    def alarms(X: Floats, levels: Floats) -> Integers:
        return np.where(X.max(axis=1)[:, np.newaxis] >= levels, 0, X.shape[1])

    tool = detectors.Scan("scan", 5.0, "", alarms)
    X = rng(18).exponential(size=(4_000, 1))
    bounds = tool.bracket(tool.quiet(X, range(4_000)), 0.05)
    assert bounds is not None
    assert (bounds[0] <= X).mean() >= 0.05 > (bounds[1] <= X).mean()
    finer = tool.between(bounds)
    assert tool.between(None) is tool
    level = finer.calibrated(finer.quiet(X, range(4_000)), 0.05)
    assert bounds[0] <= level <= bounds[1]
    assert (level <= X).mean() == pytest.approx(0.05, rel=0.03)
    assert finer.sounded(finer.quiet(X, range(4_000)), level).mean() == pytest.approx((level <= X).mean())
    assert not tool.sounded(tool.quiet(X, range(4_000)), math.inf).any()
    assert tool.bracket(np.ones((10, 32), dtype=bool), 0.05) is None  # nothing to search between
    assert tool.firsts(X[:2], [0, 1], [0.0, math.inf])[:, 1].tolist() == [1, 1]


@pytest.mark.parametrize(("count", "runs"), [(0, 50), (3, 50), (50, 1_000), (20, 20)])
def test_exact_interval(count: int, runs: int) -> None:
    wanted = stats.binomtest(count, runs).proportion_ci(0.95, method="exact")
    assert detection_verdicts.exact(count, runs) == pytest.approx((wanted.low, wanted.high))


def test_delays() -> None:
    first = [BEFORE - 1, BEFORE, BEFORE + 9, BEFORE + AFTER - 1, BEFORE + AFTER, BEFORE + AFTER + 50]
    found = [detection_verdicts.delay(at, BEFORE) for at in first]
    assert found == pytest.approx([math.nan, 1, 10, AFTER, AFTER, AFTER], nan_ok=True)


def test_changes_come_at_random_times() -> None:
    times = np.array([detection_runs.change_time("mean", run, BEFORE) for run in range(2_000)])
    assert (times.min(), times.max()) == (BEFORE, BEFORE + detection_runs.JITTER - 1)
    assert stats.chisquare(np.bincount(times - BEFORE)).pvalue > 1e-3


def test_streams_with_the_same_numbers_before_the_change_share_them() -> None:
    assert {detection_runs.law(None, name) for name in ("mean", "scale", "serial", "stuck at 0")} == {"mean"}
    assert detection_runs.law(None, "longer waits") == "waiting times"
    assert detection_runs.law(None, "counts") == "counts"


TINY = detection_runs.Setting("t", 200, {"ours": Runs(30, 10, 4), "river": Runs(30, 10, 4), "limit": Runs(8, 4, 2)}, 7)


def test_runs_do_not_depend_on_batches_and_are_found_again(tmp_path: Path) -> None:
    with ThreadPool(1) as pool:
        first = detection_runs.Bench(pool, None, Store(tmp_path))
        for family in TINY.runs:
            found = first.found(TINY, family, "label noise")
            kept = len(list(tmp_path.iterdir()))
            again = first.found(TINY, family, "label noise")
            assert len(list(tmp_path.iterdir())) == kept
            other = detection_runs.Bench(pool, None, Store(None)).found(TINY._replace(batch=3), family, "label noise")
            for tool in found:
                for one in (again, other):
                    assert (one[tool].firsts == found[tool].firsts).all(), tool
                    assert (one[tool].fresh == found[tool].fresh).all(), tool
                    assert one[tool].level == found[tool].level, tool
    assert "river HDDM_A" not in found
    assert "limit" in found


def test_a_store_forgets_what_has_changed(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Arrays:
        made.append(1)
        return {"a tool, with a comma": np.array([1.0, math.inf])}

    store = Store(tmp_path)
    for key, modules in ((("x", 1), ("glr",)), (("x", 1), ("glr",)), (("x", 2), ("glr",)), (("x", 1), ("limits",))):
        assert store.get(key, modules, make)["a tool, with a comma"].tolist() == [1.0, math.inf]
    assert len(made) == 3


def test_the_hazard_of_a_clock_and_of_a_fair_coin() -> None:
    clock = detection_long.hazard(np.full(400, 10_500))
    assert clock == ["0"] * 10 + ["100"] + ["-"] * 9
    coin = np.random.default_rng(0).geometric(1e-4, 400).clip(max=detection_long.HAZARD_STEPS)
    flat = [float(share) for share in detection_long.hazard(coin)]
    assert max(flat) < 20.0


def test_a_late_change_is_timed_on_the_runs_that_last() -> None:
    times = [detection_runs.change_time("mean", run, 1_000) for run in range(8)]
    first = np.array([5, *(time + 9 for time in times[1:])])
    assert detection_long.late_cell(first, "mean", 1_000) == "10 (12)"
    assert detection_long.late_cell(first[:3], "mean", 1_000) == "- (33)"


def test_long_runs_have_the_change_at_its_time() -> None:
    job = detection_long.Long(None, "rare events", 1_000, True, range(20))
    x = detection_long.numbers(job)
    assert x.shape == (20, 1_000 + detection_runs.JITTER + AFTER)
    assert (x[:, :1_000].mean(), x[:, 1_128:].mean()) == pytest.approx((0.01, 0.03), abs=0.006)
    quiet = detection_long.numbers(job._replace(is_changed=False))
    assert quiet.shape == (20, 1_000)


def result(delay: Floats, later: float = 0.05) -> detection_verdicts.Result:
    return detection_verdicts.Result(1.0, 5, 5, 100, later, delay, delay)


def compared(shift: float) -> detection_verdicts.Results:
    base, noise = rng(18).uniform(150.0, 250.0, 200), rng(19).normal(0.0, 20.0, 200)
    ours = base + shift + noise - noise.mean()
    ours[-1] = math.nan
    return {
        own_detectors.DEFAULT: result(ours),
        "quick": result(base, later=0.3),
        "slow": result(base + 100.0),
        "fewer runs": result(base[:40] + 50.0),
        "never": result(np.full(200, math.nan)),
        "limit": result(base - 90.0),
    }


@pytest.mark.parametrize(("shift", "word"), [(-30.0, "first"), (0.0, "level"), (10.0, "close"), (30.0, "behind")])
def test_verdicts(shift: float, word: str) -> None:
    results = compared(shift)
    found = detection_verdicts.verdict(results, own_detectors.DEFAULT)
    assert (found.other, found.word) == ("quick", word)
    assert found.low <= shift + 1.0
    assert found.high >= shift - 1.0
    assert detection_verdicts.verdict(results, own_detectors.DEFAULT, "slow").word == "first"
    assert detection_verdicts.verdict(results, own_detectors.DEFAULT, steady=True).other == "fewer runs"
    assert detection_verdicts.others(results) == ["quick", "slow", "fewer runs"]


def test_shares_of_first_or_level() -> None:
    words = ["first", "level", "close", "behind", "first"]
    assert detection_verdicts.counted(words) == [2, 1, 1, 1]
    assert detection_verdicts.first_or_level(words) == "3 of 5 (60 %)"
    assert detection_verdicts.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_the_document_tells_known_streams_from_those_held_out() -> None:
    results = {"mean": compared(-30.0), "scale": compared(30.0), "capped": compared(0.0)}
    reader = detection_text.Reader(None, results)
    text = reader.counts()
    assert "Streams known: first or level on 1 of 2 (50 %)" in text
    assert "Streams held out: first or level on 1 of 1 (100 %)" in text
    assert "| capped (held out) |" in reader.headline()
    assert "| (a) | known | 1 of 2 (50 %) | 1 of 2 (50 %): quick |" in detection_text.summary({"a": reader})
    assert "| quick | 1 | 0 | 0 | 1 | 1 of 2 (50 %) | 0 | 1 | 0 | 0 | 1 of 1 (100 %) |" in reader.one_by_one()


def test_false_alarms_before_and_after_the_time_of_the_change() -> None:
    firsts = np.array([[100, 5_000], [1_500, 5_000], [1_999, 999], [2_000, 5_000]])
    found = detection_runs.Found(own_detectors.RANKS[0], 1.0, firsts, firsts[:0])
    counted = detection_verdicts.result(found._replace(firsts=firsts), "mean", 1_000)
    assert (counted.false, counted.false_default, counted.runs, counted.later) == (1, 1, 4, 2 / 3)


def test_our_choice_depends_on_the_kind_of_data() -> None:
    choices = {name: own_detectors.choice(detection_runs.kind(None, name)) for name in ("rare events", "stars", "mean")}
    assert choices == {"rare events": "RateMonitor", "stars": "RateMonitor, stars", "mean": own_detectors.DEFAULT}


def test_detectors_of_one_side_are_run_on_both() -> None:
    x = rng(21).normal(size=300)
    up, both = frouros_paths.cusum(x), frouros_paths.both_sides(frouros_paths.cusum)
    assert (both(x, 0) >= up).all()
    assert both(-x, 0) == pytest.approx(both(x, 0))


def test_a_trial_has_fewer_runs() -> None:
    small = bench_detection.fewer(detection_runs.SHORT, bench_detection.MOST["small"])
    assert set(small.runs) == set(detection_runs.SHORT.runs)
    assert all(lot <= bench_detection.MOST["small"] for lot in small.runs.values())


def test_each_setting_of_detection_has_a_document() -> None:
    assert bench_detection.DOCUMENTS.keys() == bench_detection.SETTINGS.keys()
    for label, file in bench_detection.DOCUMENTS.items():
        assert f"steps (setting {label}, in {file})" in bench_detection.introduction()
