"""Promises at the edges: the seed, the default bet, one table and one test."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import exchangeable as ex
from conftest import Run
from exchangeable import alarms, bets, catalogue, measures, shift
from exchangeable.data.canonical import column_stream, table_seed
from exchangeable.data.schema import Preparation, prepare
from exchangeable.monitor import BetWarning, default_bet

# ------------------------------------------------------------------ the bet follows the alarm


def test_the_default_bet_follows_the_alarm() -> None:
    expected = {"ville": bets.Adaptive}
    for name, make in catalogue.ALARMS.items():
        kind = expected.get(name, bets.Sentinel)
        assert isinstance(default_bet(make()), kind)
        assert isinstance(ex.Monitor(measures.Value(), alarm=make()).martingale.bet, kind)
        assert isinstance(catalogue.BETS[catalogue.default_bet(name)](), kind)


def first_alarms(bet: bets.Adaptive | None, period: int, runs: int) -> list[int]:
    """When the alarm sounds on noise; three periods if it does not within them."""
    found = []
    for run in range(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BetWarning)
            monitor = ex.Monitor(measures.Value(), bet and bets.Adaptive(), alarms.ShiryaevRoberts(period), seed=run)
        monitor.extend(np.random.default_rng([run, 7]).normal(size=3 * period))
        found.append(monitor.alarm_at or 3 * period)
    return found


def test_the_default_of_shiryaev_roberts_is_no_clock() -> None:
    """On noise its first alarms are spread as those of a memoryless detector are; with `Adaptive` they are not."""
    period, runs = 400, 60
    clock, default = first_alarms(bets.Adaptive(), period, runs), first_alarms(None, period, runs)
    near = [sum(abs(at - 1.1 * period) < 0.3 * period for at in lot) / runs for lot in (clock, default)]
    assert near[0] > 0.8
    assert near[1] < 0.4
    assert np.mean(default) >= period  # the promise


def test_adaptive_with_shiryaev_roberts_warns_and_is_used() -> None:
    with pytest.warns(BetWarning, match="is raised after about 2,000 examples even if nothing changes; use Sentinel"):
        monitor = ex.Monitor(measures.Value(), bets.Adaptive(), alarms.ShiryaevRoberts(2000))
    assert isinstance(monitor.martingale.bet, bets.Adaptive)
    ex.Monitor(measures.Value(), bets.Adaptive(), alarms.Cusum(2000))  # no warning, which would be an error here


# ------------------------------------------------------------------ the seed


@pytest.mark.usefixtures("system_seeds")
def test_seeds_that_are_left_out_are_drawn_kept_and_shown() -> None:
    one, other = ex.Monitor(measures.Value()), ex.Monitor(measures.Value())
    assert one.seed != other.seed
    assert one.seed < 2**53
    assert f"seed={one.seed}" in repr(one)
    x = [1.0, 2.0, 2.0, 0.5]
    again = ex.Monitor(measures.Value(), seed=one.seed)
    assert np.array_equal(one.extend(x).p, again.extend(x).p)
    assert ex.PValues(measures.Value()).seed != ex.PValues(measures.Value()).seed
    assert shift.shift_test(np.eye(4), "abab").seed != shift.shift_test(np.eye(4), "abab").seed


def mixed(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({f"c{i}": rng.integers(0, 3, n) * 0.7 for i in range(9)})
    frame["kind"] = rng.choice(["u", "v", "w"], n)
    frame["flag"] = rng.random(n) < 0.3
    return frame


@pytest.mark.parametrize("label", [None, "kind", "c4"])
def test_the_order_of_columns_changes_nothing(label: str | None) -> None:
    frame = mixed()
    for columns in (frame.columns[::-1], np.random.default_rng(0).permutation(frame.columns)):
        one, other = ex.test(frame, label), ex.test(frame[list(columns)], label)
        assert one.seed == other.seed
        assert np.array_equal(one.path.log_value, other.path.log_value)
        assert {line.name: line.log_value.tobytes() for line in one.column_tests} == {
            line.name: line.log_value.tobytes() for line in other.column_tests
        }
        assert (one.rejected, one.p_value) == (other.rejected, other.p_value)


def test_the_seed_of_a_table() -> None:
    frame = mixed()

    def seed(data: object) -> int:
        return table_seed(prepare(data, Preparation("kind")).table)

    assert seed(frame) == seed(frame.copy()) == seed(frame.assign(c0=frame["c0"] * -1.0 * -1.0 + 0.0))
    assert seed(frame.assign(zero=0.0)) == seed(frame.assign(zero=-0.0)) == seed(frame)  # a constant is no data
    signed = frame.assign(c0=np.where(frame["c0"] == 0.0, -0.0, frame["c0"]))
    assert seed(signed) == seed(frame)
    other = [seed(frame.sample(frac=1.0, random_state=i)) for i in range(50)]
    assert len({*other, seed(frame)}) == 51  # the rows in order, not the bag
    assert seed(frame.assign(c0=frame["c0"] + np.eye(len(frame))[0])) != seed(frame)
    assert all(0 <= one < 2**53 for one in other)


def test_streams_of_columns_hang_on_their_names() -> None:
    streams = {column_stream(name, backwards=back) for name in ("a", "b", "é", "") for back in (False, True)}
    assert len(streams) == 8
    assert all(16 <= stream < 2**32 - 16 for stream in streams)
    assert column_stream("a") == column_stream("a") != column_stream("a", backwards=True)


def test_what_is_constant_is_never_tested() -> None:
    frame = pd.DataFrame({"still": [2.5] * 100, "x": np.arange(100) % 2})
    for seed in [None, *range(100)]:  # before, seeds among these rejected for everybody
        result = ex.test(frame, seed=seed, columns="each", bet=bets.SimpleMixture(), measure=measures.NearestDistance())
        assert "still" not in [test.name for test in result.tests]
    assert any("'still' is constant" in note for note in ex.test(frame).notes)
    frame = mixed().assign(still=1.0, same="x")
    result = ex.test(frame)
    assert {line.name for line in result.column_tests} == set(frame) - {"still", "same"}
    assert sum(line.weight for line in result.tests) == pytest.approx(1.0)
    assert result.explain(features=["still", "c0"]).features[-1].log10_evidence == pytest.approx(math.log10(0.5))
    assert result.explain().features


def test_a_constant_column_changes_nothing() -> None:
    x = np.random.default_rng(0).normal(size=200) + np.linspace(0, 2, 200)
    alone = ex.test({"x": x})
    for more in ({"c": np.ones(200)}, {"c": ["a"] * 200}, {"b": [0.0] * 200, "c": [True] * 200}):
        result = ex.test({**more, "x": x})
        assert (result.measure, result.p_value) == (alone.measure, alone.p_value)
        assert ex.compare(x[:100], x[100:]).p_value == pytest.approx(
            ex.compare(*({"x0": half, "c": [1.0] * 100} for half in (x[:100], x[100:]))).p_value
        )
    assert ex.test({"x": x, "y": [1.5] * 200}, "y").rejected_by == ["x"]  # a constant label leaves the column
    frame = mixed()
    assert ex.test(frame, "kind").p_value == ex.test(frame.assign(a=1.0, z="same"), "kind").p_value


def test_constant_columns_do_not_count_as_many(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"v{i}": rng.normal(size=120) for i in range(56)} | {f"c{i}": 1.0 for i in range(10)})
    frame["v0"] += 3.0 * (np.arange(120) > 60)
    frame["y"] = rng.choice(["u", "w"], 120)
    frame.to_parquet(tmp_path / "d.parquet")
    said = json.loads(run("test", "d.parquet", "--label", "y", "--format", "json").out)
    result = ex.test(frame, "y")
    assert said["columns_tested"] == len(result.column_tests) == 57
    assert (said["seed"], said["rejected"], said["p_value"]) == (result.seed, True, result.p_value)


def test_labels_hash_by_their_text() -> None:
    frame = mixed().assign(y=np.arange(120) % 3)
    seeds = [table_seed(prepare(frame.astype({"y": kind}), Preparation("y")).table) for kind in (int, str, float)]
    assert seeds[0] == seeds[1] == seeds[2]


def test_a_score_that_depends_on_the_batch_warns() -> None:
    """As some models do where large terms cancel, beyond what rounding with the default scale can mend."""
    X = np.random.default_rng(0).normal(size=(64, 1))
    with pytest.warns(UserWarning, match=r"single rows and batches different outputs.* set scale=") as caught:
        measures.Frozen(lambda X, y: X[:, 0] + 1e-7 * len(X)).extend(X)
    scale = float(str(caught[0].message).rpartition("=")[2])
    measures.Frozen(lambda X, y: X[:, 0] + 1e-7 * len(X), scale=scale).extend(X)  # no warning any more
    measures.Frozen(lambda X, y: X[:, 0] + 1e-15 * len(X)).extend(X)


def test_a_warning_that_is_an_error_changes_nothing() -> None:
    """Warnings are errors here: the batch is refused, and the monitor stays as it was."""
    X = np.random.default_rng(0).normal(size=(64, 1))
    monitor = ex.Monitor(measures.Frozen(lambda X, y: X[:, 0] + 1e-7 * len(X)), seed=1)
    with pytest.raises(UserWarning, match="single rows and batches different outputs"):
        monitor.extend(X)
    assert (monitor.n, monitor.measure.n) == (0, 0)  # type: ignore[union-attr]
    assert monitor.update(X[0]).n == 1


def p_values_at(seeds: str, steps: int, runs: int) -> np.ndarray:
    """The p-values of rare binary data at one position, with the seed of the table or with everybody's 0."""
    found = []
    for run in range(runs):
        x = (np.random.default_rng([run, 5]).random(steps) < 0.1).astype(float)
        x[0], x[1] = 0.0, 1.0  # never constant
        x = np.random.default_rng([run, 6]).permutation(x)
        found.append(ex.test(x, seed=None if seeds == "table" else 0, bet=bets.Idle()).path.p[steps - 1])
    return np.array(found)


def test_p_values_are_uniform_over_tables_and_were_not_with_one_seed() -> None:
    assert stats.kstest(p_values_at("table", 20, 1000), "uniform").pvalue > 1e-3
    assert stats.kstest(p_values_at("zero", 20, 1000), "uniform").pvalue < 1e-6


# ------------------------------------------------------------------ one table, one test


def test_a_monitor_has_an_anytime_p_and_a_table_a_p_value() -> None:
    x = np.random.default_rng(0).normal(size=300) + (np.arange(300) > 150)
    monitor = ex.Monitor(measures.Value(), seed=4)
    assert monitor.anytime_p == 1.0
    path = monitor.extend(x)
    assert monitor.anytime_p == math.exp(-path.log_value.max())
    assert ex.test(x, seed=4).p_value == monitor.anytime_p
    with pytest.raises(ValueError, match="anytime_p is not defined for a monitor that restarts"):
        _ = ex.Monitor(measures.Value(), on_alarm="restart").anytime_p


@pytest.mark.parametrize("words", ["guarantee", "print", "explain"])
def test_nothing_says_ever_of_a_table(words: str) -> None:
    result = ex.test(mixed().assign(c0=np.arange(120.0)), "kind")
    text = {"guarantee": result.guarantee, "print": str(result), "explain": str(result.explain())}[words]
    assert " ever " not in text.replace("only ever", "")


def test_dir_has_all_public_names() -> None:
    assert dir(ex) == sorted(ex.__all__)
    assert {"test", "compare", "save", "load"} <= set(dir(ex))
