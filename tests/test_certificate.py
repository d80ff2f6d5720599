"""The certificate: exact arithmetic, sound verdicts (an invalid recipe is found), the same numbers on any machine."""

from __future__ import annotations

import itertools
import json
import math
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from exchangeable import Monitor, alarms, bets, catalogue, cli, measures
from exchangeable.protocols import Floats, Ranks
from exchangeable.research import binomial, certificate, simulated
from exchangeable.research.certificate import Certificate, Survey, certify, certify_all
from exchangeable.research.simulated import SimulatedExamples

# ------------------------------------------------------------------ the arithmetic


@pytest.mark.parametrize(("count", "runs"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 50), (200, 4000), (4000, 4001)])
@pytest.mark.parametrize("confidence", [0.5, 0.99, 0.9999])
def test_the_interval_is_clopper_and_pearsons(count: int, runs: int, confidence: float) -> None:
    exact = stats.binomtest(count, runs).proportion_ci(confidence, "exact")
    assert binomial.interval(count, runs, confidence) == pytest.approx((exact.low, exact.high), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("runs", [1, 2, 40, 300])
@pytest.mark.parametrize("promise", [0.01, 0.05, 0.3, 0.9, 1.0])
def test_power_is_the_chance_of_the_verdict(runs: int, promise: float) -> None:
    broken = [count for count in range(runs + 1) if _with(runs, count, promise).verdict == "BROKEN"]
    expected = math.fsum(stats.binom.pmf(count, runs, min(1.0, 1.3 * promise)) for count in broken)
    assert _with(runs, 0, promise).power == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_promise_kept_is_seldom_called_broken() -> None:
    for promise in (0.01, 0.05, 0.5):
        assert binomial.power(promise, 4000, excess=1.0) <= 0.005


def _with(runs: int, count: int, promise: float) -> Certificate:
    return Certificate("measure", "bet", "alarm", "ties", runs, 100, promise, count, 50.0, 1.0)


def test_verdicts() -> None:
    assert _with(4000, 150, 0.05).verdict == "kept"
    assert _with(4000, 215, 0.05).verdict == "kept"  # above, but well within chance
    assert _with(4000, 260, 0.05).verdict == "BROKEN"
    assert _with(100, 4, 0.05).verdict == "undecided"
    assert _with(100, 0, 0.05).verdict == "kept"  # 6.5 % would hardly give none
    assert _with(100, 60, 0.05).verdict == "BROKEN"  # few runs are enough for that


# ------------------------------------------------------------------ the data


@pytest.mark.parametrize("data", simulated.DATA)
def test_examples_depend_on_seed_and_run(data: str) -> None:
    first, theta = simulated.simulate(data, 8, seed=3, run=5)
    again, same = simulated.simulate(data, 8, seed=3, run=5)
    assert _same(first, again)
    assert theta == same
    for seed, run in ((3, 6), (4, 5)):
        other, different = simulated.simulate(data, 8, seed=seed, run=run)
        assert not _same(first, other)
        assert theta != different
    assert [len(column) for column in first] == [8] * 4


def _same(first: SimulatedExamples, second: SimulatedExamples) -> bool:
    return [np.asarray(column).tolist() for column in first] == [np.asarray(column).tolist() for column in second]


@pytest.mark.parametrize("data", simulated.DATA)
def test_examples_are_exchangeable(data: str) -> None:
    """The first number is the larger as often as the last one: exact binomial test, ties left out."""
    drawn = [simulated.simulate(data, 8, seed=0, run=run)[0].numbers for run in range(2000)]
    rises, falls = (sum(bool(sign * (x[-1] - x[0]) > 0) for x in drawn) for sign in (1, -1))
    assert stats.binomtest(rises, rises + falls).pvalue > 1e-4


def test_the_kinds_are_what_they_are_called() -> None:
    drawn = {data: simulated.simulate(data, 200, seed=0, run=0)[0] for data in simulated.DATA}
    assert len(set(drawn["continuous"].numbers.tolist())) == 200
    assert len(set(drawn["ties"].numbers.tolist())) < 20
    assert len(set(drawn["labelled"].labels)) >= 4
    assert (drawn["categorical"].rows.sum(axis=1) == 1.0).all()
    assert certify(data="tiny", bet="simple-jumper", runs=2).steps == simulated.TINY


@pytest.mark.parametrize("name", catalogue.MEASURES)
def test_every_measure_of_the_catalogue_has_a_form(name: str) -> None:
    assert simulated.accepted_form(catalogue.MEASURES[name]) in simulated.FORMS


def test_a_measure_that_accepts_nothing_is_rejected() -> None:
    class Nothing:
        def extend(self, X: Any, y: Any = None) -> Ranks:
            raise ValueError("X must be something else")

    with pytest.raises(ValueError, match=r"^measure must accept"):
        simulated.accepted_form(Nothing)  # type: ignore[arg-type]


# ------------------------------------------------------------------ promises


@pytest.mark.parametrize("name", catalogue.ALARMS)
@pytest.mark.parametrize("steps", [8, 250])
def test_every_alarm_of_the_catalogue_can_be_set_to_a_level(name: str, steps: int) -> None:
    assert certificate.promised_rate(certificate.named_alarm(name, 0.05, steps), steps) == pytest.approx(0.05)


def test_promises_are_those_of_the_alarms() -> None:
    assert certificate.promised_rate(alarms.Ville(0.2), 10**6) == 0.2
    assert certificate.promised_rate(alarms.Cusum(1000), 100) == 0.1
    assert certificate.promised_rate(alarms.ShiryaevRoberts(50), 100) == 1.0
    with pytest.raises(ValueError, match=r"^alarm must promise"):
        certificate.promised_rate(object(), 10)  # type: ignore[arg-type]


# ------------------------------------------------------------------ counting


def test_a_count_is_that_of_the_definition() -> None:
    """One example after the other, through the objects' updates."""
    got = certify(measures.NearestNeighbour, bets.SimpleMixture, lambda: alarms.Ville(0.3), runs=60, steps=30, seed=2)
    times = []
    for run in range(60):
        drawn, theta = simulated.simulate("continuous", 30, seed=2, run=run)
        monitor = Monitor(measures.NearestNeighbour(), bets.SimpleMixture(), alarms.Ville(0.3), seed=theta)
        sounds = [
            monitor.update(x, y).log_value >= -math.log(0.3) for x, y in zip(drawn.rows, drawn.labels, strict=True)
        ]
        times.append(sounds.index(True) + 1 if any(sounds) else None)
    assert got.false_alarms == sum(time is not None for time in times)
    assert 0 < got.false_alarms < 60
    until = [30 if time is None else time for time in times]
    assert got.mean_time == pytest.approx(np.mean(until))
    assert got.mean_time_error == pytest.approx(np.std(until) / math.sqrt(60))
    assert (got.promise, got.steps, got.runs, got.data) == (0.3, 30, 60, "continuous")


def test_the_same_numbers_on_any_number_of_processes() -> None:
    surveys = [
        Survey(["nearest-neighbour"], ["simple-mixture", "simple-jumper"], ["ville", "cusum"], data, 60, 20, 0.3, 5)
        for data in ("ties", "tiny")
    ]
    seen: list[tuple[str, int, int]] = []
    alone = certify_all(surveys, progress=lambda *state: seen.append(state))
    assert certify_all(surveys, processes=2) == alone
    assert seen == [("runs", done, 6) for done in range(1, 7)]
    assert any(certificate.false_alarms for certificate in alone)
    assert [(c.bet, c.alarm) for c in alone[:3]] == [
        ("simple-mixture", "ville"), ("simple-mixture", "cusum"), ("simple-jumper", "ville"),
    ]  # fmt: skip


def test_a_table_holds_the_same_numbers_as_its_cells() -> None:
    names = ["simple-mixture", "simple-jumper"]
    table = certify_all([Survey(["nearest-neighbour"], names, ["shiryaev-roberts"], "ties", 40, 20, 0.3, 1)])
    for name, cell in zip(names, table, strict=True):
        assert (
            certify("nearest-neighbour", name, "shiryaev-roberts", data="ties", runs=40, steps=20, alpha=0.3, seed=1)
            == cell
        )


# ------------------------------------------------------------------ what must be found


SEEDS = itertools.count()


class Calibrated:
    """The tempting recipe: rank each number among one frozen calibration set (and itself)."""

    def __init__(self) -> None:
        self.calibration = np.sort(np.random.default_rng(next(SEEDS)).standard_t(2.0, 50))

    def extend(self, X: Any, y: Any = None) -> Ranks:
        if np.ndim(X) != 1:
            raise ValueError("X must be one-dimensional")
        greater = len(self.calibration) - np.searchsorted(self.calibration, X, "right")
        return Ranks(greater, np.ones(len(X), np.int64), np.full(len(X), len(self.calibration) + 1))

    def update(self, x: Any, y: Any = None) -> Any:
        raise NotImplementedError


class Generous(bets.SimpleJumper):
    """A bet with integral 1.1."""

    def extend(self, p: Any) -> Floats:
        return super().extend(p) + math.log(1.1)


class Careless(measures.NearestNeighbour):
    """Ties all won, theta left out."""

    def extend(self, X: Any, y: Any = None) -> Ranks:
        greater, equal, n = super().extend(X, y)
        return Ranks(greater, np.ones_like(equal), n)


@pytest.mark.parametrize(
    ("measure", "bet", "data"),
    [
        (Calibrated, bets.SimpleJumper, "continuous"),
        (measures.NearestNeighbour, Generous, "continuous"),
        (Careless, bets.SimpleJumper, "ties"),
    ],
    ids=["frozen calibration set", "integral 1.1", "ties without theta"],
)
@pytest.mark.parametrize("alarm", ["ville", "shiryaev-roberts"])
def test_an_invalid_recipe_is_found(measure: Callable[[], Any], bet: Callable[[], Any], data: str, alarm: str) -> None:
    got = certify(measure, bet, alarm, data=data, runs=150, steps=250)
    assert got.verdict == "BROKEN"
    assert got.interval[0] > 0.05


@pytest.mark.parametrize("alarm", ["ville", "cusum"])
def test_the_valid_recipe_is_not(alarm: str) -> None:
    got = certify(measures.NearestNeighbour, bets.SimpleJumper, alarm, data="ties", runs=150, steps=250)
    assert got.verdict != "BROKEN"
    assert got.interval[0] <= 0.05


# ------------------------------------------------------------------ the door


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("measure", "nothing"), ("bet", "nothing"), ("alarm", "nothing"), ("data", "nothing"),
        ("runs", 0), ("runs", 1.5), ("steps", 0), ("alpha", 0.0), ("alpha", 1.0), ("alpha", math.nan),
        ("seed", -1), ("seed", "a"), ("processes", 0), ("processes", True),
    ],
)  # fmt: skip
def test_what_cannot_be_certified_is_refused(argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} must"):
        certify(**{"runs": 1, "steps": 1, argument: value})


def test_lambdas_stay_in_their_process() -> None:
    with pytest.raises(ValueError, match=r"^processes must be 1 unless"):
        certify(lambda: measures.NearestNeighbour(), runs=1, processes=2)


# ------------------------------------------------------------------ the command


def _command(*words: object, monkeypatch: pytest.MonkeyPatch) -> int:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["exchangeable", "certify", "--processes", "1", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGINT, before)
    return int(ended.value.code or 0)


def test_the_command_prints_one_line_for_each_kind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--measure", "value", "--bet", "simple-jumper", "--alpha", 0.5, "--runs", 400, "--steps", 20)
    assert _command(*options, monkeypatch=monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "value, simple-jumper, ville: 400 runs on each kind of exchangeable data"
    assert [line.split()[0] for line in lines[1:-1]] == list(simulated.DATA)
    assert all(line.endswith("promised 50: kept") for line in lines[1:-1])


def test_the_command_gives_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--measure", "value", "--bet", "simple-mixture", "--alarm", "cusum", "--data", "ties")
    code = _command(*options, "--runs", 40, "--steps", 20, "--format", "json", monkeypatch=monkeypatch)
    captured = capsys.readouterr()
    (record,) = json.loads(captured.out)
    expected = certify("value", "simple-mixture", "cusum", data="ties", runs=40, steps=20)
    assert record == expected.to_dict()
    assert record["verdict"] == "undecided"
    assert code == 3
    assert captured.err == "exchangeable: 40 runs are too few to detect 1.3 times the promised rate; increase --runs\n"


def test_the_command_tells_of_a_broken_promise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "BETS", {"generous": Generous})
    assert _command("--bet", "generous", "--runs", 20, "--steps", 60, monkeypatch=monkeypatch) == 1
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--measure", "--bet", "--alarm", "--data"])
def test_the_command_refuses_an_unknown_name(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _command(option, "nothing", monkeypatch=monkeypatch) == 2
    assert f"{option[2:]} must be one of" in capsys.readouterr().err
