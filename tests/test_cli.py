"""The command line as its users meet it: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import exchangeable as ex
from conftest import Run
from exchangeable import alarms, bets, catalogue, measures
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.text import LISTED_ALARMS, SHIFTS, describe_measure
from exchangeable.analysis.text import describe_verdict as verdict_words
from exchangeable.analysis.verdict import Verdict
from exchangeable.cli.monitor_options import MonitorOptions

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the paper's datasets are not on this machine")


def examples(n: int = 400, *, change: bool) -> tuple[np.ndarray, list[str]]:
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + y[:, None]
    if change:
        X[n // 2 :] = rng.normal(size=(n - n // 2, 3)) * 0.01 + 5 * (1 - y[n // 2 :, None])
    return X, [f"class {c}" for c in y]


def write_csv(path: Path, *, change: bool, n: int = 400) -> Path:
    X, y = examples(n, change=change)
    lines = ["a,b,c,kind"] + [",".join([*map(repr, map(float, row)), label]) for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_help_and_version(run: Run) -> None:
    assert run("--help").code == 0
    assert run("--version").out == f"exchangeable {ex.__version__}\n"
    for command in ("demo", "test", "compare", "shift", "fetch", "reproduce"):
        done = run(command, "--help")
        assert done.code == 0
        assert command in done.out


def test_the_help_page_names_everything(run: Run) -> None:
    said = run("test", "--help").out
    for name in (*catalogue.MEASURES, *catalogue.BETS, *catalogue.ALARMS):
        assert name in said


HEAVY = ("scipy", "polars", "pyarrow", "matplotlib", "sklearn", "pandas")


@pytest.mark.parametrize("words", [["--help"], ["test", "--help"], ["--version"]])
def test_help_is_light(words: list[str]) -> None:
    code = (
        "import sys\nfrom exchangeable import cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "exchangeable" in done.stdout


def test_demo_prints_both_verdicts_and_plots(run: Run, tmp_path: Path) -> None:
    done = run("demo")
    assert done.code == 0
    assert done.out.index("original order\nREJECTED") < done.out.index("shuffled\nNOT REJECTED")
    assert (tmp_path / "exchangeable-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "exchangeable-demo.png" in done.out
    assert "your data is i.i.d" not in done.out


@pytest.mark.quick
@pytest.mark.parametrize("change", [True, False])
def test_verdict_is_the_library_s(run: Run, tmp_path: Path, change: bool) -> None:
    file = write_csv(tmp_path / "data.csv", change=change)
    words = ("test", file, "--label", "kind", "--format", "json", "--seed", 3, "--alpha", 0.05)
    done = run(*words, "--columns", "none")
    X, y = examples(change=change)
    monitor = ex.Monitor(measures.NearestNeighbour(), bets.Adaptive(), alarms.Ville(0.05), seed=3)
    path = monitor.extend(X, y)
    said = json.loads(done.out)
    assert (said["file"], said["n"], said["n_features"], said["seed"]) == ("data.csv", 400, 3, 3)
    assert (said["measure"], said["neighbours"]) == ("nearest-neighbour", 1)
    assert (said["bet"], said["epsilon"]) == ("adaptive", None)
    assert (said["alarm"], said["alpha"], said["threshold"], said["period"]) == ("ville", 0.05, 20.0, None)
    promise = "On exchangeable data the probability that one test of this table rejects is at most 0.05"
    assert said["on_alarm"] == "latch"
    assert said["guarantee"].startswith(promise)
    assert (said["changepoint"] is None) is not change
    assert abs((said["changepoint"] or 200) - 200) <= 2
    assert (said["alarms"], said["changepoints"]) == (
        ([path.n[path.alarm][0]], [said["changepoint"]]) if change else ([], [])
    )
    assert said["log10_martingale"] == path.log_value[-1] / math.log(10.0)
    assert said["log10_max"] == max(0.0, path.log_value.max() / math.log(10.0))
    assert said["rejected"] is change is bool(path.alarm.any())
    assert said["rejected_at"] == (int(path.alarm.argmax()) + 1 if change else None)
    assert done.code == (1 if change else 0)
    assert done.err == ""
    frame = {name: X[:, k] for k, name in enumerate("abc")} | {"kind": y}
    whole = json.loads(ex.test(frame, "kind", alpha=0.05, seed=3).to_json())
    assert json.loads(run(*words).out) == whole | {"file": "data.csv"}
    assert whole["columns_tested"] == 4


def verdict(run: Run, *words: object) -> dict[str, Any]:
    """The record that is printed, which is strict JSON and agrees with the exit code; the default seed is 0 here."""
    seed = () if "--seed" in words else ("--seed", 0)
    done = run(*words, *seed, "--format", "json")
    assert "exchangeable: note" in done.err or done.err == ""
    said = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert done.code == (1 if said["rejected"] else 0)
    assert isinstance(said, dict)
    return said


def test_the_defaults_are_the_library_s() -> None:
    ours, theirs = MonitorOptions().build(), ex.Monitor()
    assert type(ours.measure) is type(theirs.measure)
    assert type(ours.martingale.bet) is type(theirs.martingale.bet)
    assert isinstance(ours.alarm, alarms.Ville)
    assert ours.guarantee == theirs.guarantee
    assert (ours.seed, ours.on_alarm) == (theirs.seed, theirs.on_alarm)


@pytest.mark.parametrize("bet", catalogue.BETS)
def test_every_bet_has_a_name(run: Run, tmp_path: Path, bet: str) -> None:
    said = verdict(run, "test", write_csv(tmp_path / "d.csv", change=True), "--label", "kind", "--bet", bet)
    path = ex.Monitor(bet=catalogue.BETS[bet]()).extend(*examples(change=True))
    assert (said["bet"], said["epsilon"]) == (bet, 0.92 if bet == "power" else None)
    assert said["log10_martingale"] == path.log_value[-1] / math.log(10.0)


def test_epsilon(run: Run, tmp_path: Path) -> None:
    words = ("test", write_csv(tmp_path / "d.csv", change=True), "--label", "kind", "--bet", "power", "--epsilon", 0.5)
    said = verdict(run, *words)
    path = ex.Monitor(bet=bets.Power(0.5)).extend(*examples(change=True))
    assert (said["epsilon"], said["log10_martingale"]) == (0.5, path.log_value[-1] / math.log(10.0))


# ------------------------------------------------------------------ measures


def write_numbers(path: Path, n: int = 200) -> Path:
    """Columns x and z, a class, and a number that turns from 2 x to -2 x in the middle."""
    rng = np.random.default_rng(6)
    x, z, kind = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, n)
    y = np.where(np.arange(n) < n // 2, 2.0, -2.0) * x + 0.1 * rng.normal(size=n)
    rows = zip(x.tolist(), z.tolist(), y.tolist(), kind.tolist(), strict=True)
    path.write_text("x,z,y,kind\n" + "".join(f"{a!r},{b!r},{c!r},{'uv'[k]}\n" for a, b, c, k in rows))
    return path


TAKEN: dict[str, tuple[list[str], list[str], str | None]] = {  # options, features, labels
    "nearest-neighbour": (["--label", "kind"], ["x", "z", "y"], "kind"),
    "nearest-distance": (["--drop", "kind"], ["x", "z", "y"], None),
    "nearest-residual": (["--label", "y", "--drop", "kind"], ["x", "z"], "y"),
    "value": (["--label", "kind", "--drop", "x", "--drop", "z"], ["y"], None),
    "conditional-nearest-neighbour": (["--label", "kind"], ["x", "z", "y"], "kind"),
    "conditional-nearest-distance": (["--label", "kind"], ["x", "z", "y"], "kind"),
}


def columns_of(path: Path) -> dict[str, Any]:
    head, *rows = [line.split(",") for line in path.read_text().splitlines()]
    columns = dict(zip(head, zip(*rows, strict=True), strict=True))
    return {name: list(column) if name == "kind" else np.array(column, float) for name, column in columns.items()}


def test_every_measure_has_an_explanation() -> None:
    assert set(catalogue.MEASURES) == set(TAKEN)
    assert all(describe_measure(measure) for measure in catalogue.MEASURES)
    assert len({describe_measure(measure) for measure in catalogue.MEASURES}) == len(catalogue.MEASURES)


@pytest.mark.parametrize("measure", catalogue.MEASURES)
def test_every_measure_has_a_name(run: Run, tmp_path: Path, measure: str) -> None:
    file = write_numbers(tmp_path / "d.csv")
    options, features, label = TAKEN[measure]
    said = verdict(run, "test", file, "--measure", measure, *options)
    columns = columns_of(file)
    X = columns[features[0]] if measure == "value" else np.column_stack([columns[name] for name in features])
    path = ex.Monitor(catalogue.MEASURES[measure]()).extend(X, None if label is None else columns[label])
    assert said["log10_martingale"] == path.log_value[-1] / math.log(10.0)
    assert (said["measure"], said["n_features"]) == (measure, len(features))
    assert said["neighbours"] == (1 if measure.startswith("nearest-") else None)
    text = run("test", file, "--measure", measure, *options, "--alpha", "1e-200")
    assert describe_measure(measure) in text.out
    assert ("2 classes" in text.out) is ("kind" in options[:2] and options[0] == "--label")
    assert f"{len(features)} column{'s' if len(features) > 1 else ''}" in text.out.splitlines()[0]


def test_neighbours(run: Run, tmp_path: Path) -> None:
    file = write_numbers(tmp_path / "d.csv")
    columns = columns_of(file)
    X = np.column_stack([columns["x"], columns["z"]])
    words = ("test", file, "--label", "y", "--drop", "kind", "--measure", "nearest-residual", "--neighbours", 3)
    said = verdict(run, *words)
    path = ex.Monitor(measures.NearestResidual(3)).extend(X, columns["y"])
    assert (said["neighbours"], said["log10_martingale"]) == (3, path.log_value[-1] / math.log(10.0))


def test_a_label_is_left_out_of_the_features_where_none_is_used(run: Run, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "d.csv", change=False)
    named = verdict(run, "test", file, "--measure", "nearest-distance", "--label", "kind")
    dropped = verdict(run, "test", file, "--measure", "nearest-distance", "--drop", "kind")
    assert named["log10_martingale"] == dropped["log10_martingale"]
    assert (named["label"], dropped["label"]) == ("kind", None)
    assert named["n_features"] == dropped["n_features"] == 3


def test_long_tables_are_thinned(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(2_000, 2))
    np.savez(tmp_path / "d.npz", X=X)
    said = verdict(run, "test", "d.npz", "--max-rows", 100)
    assert said == json.loads(ex.test(str(tmp_path / "d.npz"), seed=0, max_rows=100).to_json())
    assert said["n"] == 2_000
    assert any("100" in note for note in said["notes"])


# ------------------------------------------------------------------ alarms


@pytest.mark.parametrize("alarm", catalogue.ALARMS)
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_every_alarm_has_a_name(run: Run, tmp_path: Path, alarm: str, on_alarm: str) -> None:
    file = write_csv(tmp_path / "d.csv", change=True)
    options = ("--alarm", alarm, "--on-alarm", on_alarm, "--columns", "none")
    said = verdict(run, "test", file, "--label", "kind", *options)
    monitor = ex.Monitor(alarm=catalogue.ALARMS[alarm](), on_alarm=on_alarm)
    path = monitor.extend(*examples(change=True))
    first = slice(1) if on_alarm == "latch" else slice(None)
    assert said["alarms"] == path.n[path.alarm][first].tolist()
    if on_alarm == "restart":
        assert said["changepoints"] == path.lowest[path.alarm].tolist()
    else:
        assert [abs(change - 200) <= 2 for change in said["changepoints"]] == [True]
    assert said["changepoint"] == said["changepoints"][0]
    assert said["rejected"] is bool(path.alarm.any())
    once = "On exchangeable data the probability that one test of this table rejects is at most 0.01"
    promise = once if (alarm, on_alarm) == ("ville", "latch") else monitor.guarantee
    assert (said["alarm"], said["on_alarm"]) == (alarm, on_alarm)
    assert said["guarantee"].startswith(promise)
    for amount in ("p_value", "e_value"):  # each start is another chance
        assert (said[amount] is None) is (on_alarm == "restart")
    known = (0.01, 100.0, None) if alarm == "ville" else (None, None, 10_000.0)
    assert (said["alpha"], said["threshold"], said["period"]) == known


def test_period(run: Run, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "d.csv", change=True)
    said = verdict(run, "test", file, "--label", "kind", "--alarm", "cusum", "--period", 50)
    path = ex.Monitor(alarm=alarms.Cusum(50)).extend(*examples(change=True))
    assert (said["period"], said["rejected_at"]) == (50.0, path.n[path.alarm][0])


def waves(path: Path) -> Path:
    """A column that jumps up and down, so that alarms follow one another."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=900) + np.repeat([0.0, 6.0, 0.0], 300)
    path.write_text("x\n" + "\n".join(map(repr, x.tolist())) + "\n")
    return path


def test_several_alarms_after_restarts(run: Run, tmp_path: Path) -> None:
    words = ("test", waves(tmp_path / "d.csv"), "--measure", "value", "--on-alarm", "restart", "--seed", 0)
    said = verdict(run, *words)
    assert np.abs(np.array(said["alarms"]) - [300, 600]).max() < 30
    assert said["changepoints"] < said["alarms"]
    text = run(*words)
    first, second = said["alarms"]
    assert f"The alarm was raised 2 times in 900 rows, at rows {first}, {second}." in text.out
    assert "the evidence was lowest after rows {}, {}: the changes".format(*said["changepoints"]) in text.out
    assert "(since the last restart)" in text.out
    assert said["guarantee"] in text.out
    assert "expected number of false alarms" in said["guarantee"]


def test_where_the_change_began(run: Run, tmp_path: Path) -> None:
    words = ("test", waves(tmp_path / "d.csv"), "--measure", "value", "--seed", 0)
    said = verdict(run, *words)
    began = said["changepoint"]
    assert abs(began - 300) <= 2
    assert np.abs(np.subtract(said["changepoints"], (300, 600))).max() <= 2
    assert said["departure"]["kind"] == "several changes"
    assert "The evidence was lowest at the very start: the change" in str(
        verdict_words(Verdict(**{name: said[name] for name in Verdict._fields} | {"changepoint": 0}))
    )
    assert f"Kind: 2 changes, after about {began} and {said['changepoints'][1]} rows." in run(*words).out
    (tmp_path / "r.csv").write_text("x\n" + "\n".join(map(str, range(60))) + "\n")
    rising = run("test", "r.csv", "--measure", "value")
    assert rising.code == 1  # the only column is tested, sorted or not


def test_many_alarms_are_cut_in_words(run: Run, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=900) + np.arange(900) // 30 % 2 * 9.0
    np.savez(tmp_path / "d.npz", X=x)
    words = ("test", "d.npz", "--measure", "value", "--alarm", "shiryaev-roberts", "--period", 5, "--seed", 0)
    restarted = (*words, "--on-alarm", "restart")
    sounded = verdict(run, *restarted)["alarms"]
    assert len(sounded) > LISTED_ALARMS
    assert f" and {len(sounded) - LISTED_ALARMS:,} more" in run(*restarted).out


@pytest.mark.parametrize("alarm", ["cusum", "shiryaev-roberts"])
@pytest.mark.parametrize("change", [True, False])
def test_other_alarms_claim_no_level(run: Run, tmp_path: Path, alarm: str, change: bool) -> None:
    file = write_csv(tmp_path / "d.csv", change=change)
    words = ("test", file, "--label", "kind", "--alarm", alarm, "--period", 500)
    done, said = run(*words), verdict(run, *words)
    assert said["rejected"] is change
    assert f"ALARM of {alarm}" in done.out
    assert "REJECTED" not in done.out
    assert "level" not in done.out
    assert "alarm level" not in done.out
    assert said["guarantee"] in done.out
    assert ("For 400 rows that is 80 %." in done.out) is change
    assert ("Kind: one change, after about " in done.out) is change


def test_a_vacuous_promise_is_reported(run: Run, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "d.csv", change=True)
    done = run("test", file, "--label", "kind", "--alarm", "cusum", "--period", 100)
    assert "For 400 rows this bound exceeds 100 %" in done.out


@pytest.mark.parametrize(
    ("log10", "said"),
    [
        (-9.0, "10^-9.0"),
        (-1.9, "0.013"),
        (0.0, "1"),
        (1.75, "56"),
        (2.0, "100"),
        (2.34, "219"),
        (3.1, "1,259"),
        (17.3, "10^17.3"),
    ],
)
def test_capital_in_words(log10: float, said: str) -> None:
    assert format_evidence(log10) == said


def test_every_format_gives_the_same_numbers(run: Run, tmp_path: Path) -> None:
    X, y = examples(change=True)
    write_csv(tmp_path / "d.csv", change=True)
    (tmp_path / "d.tsv").write_text((tmp_path / "d.csv").read_text().replace(",", "\t"))
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=y)
    frame.to_parquet(tmp_path / "d.parquet")
    frame.to_json(tmp_path / "d.jsonl", orient="records", lines=True, double_precision=15)
    results = []
    for suffix in ("csv", "tsv", "parquet"):
        said = verdict(run, "test", tmp_path / f"d.{suffix}", "--label", "kind")
        assert said.pop("file") == f"d.{suffix}"
        results.append(said)
    assert results.count(results[0]) == 3
    assert verdict(run, "test", "d.jsonl", "--label", "kind")["rejected"] is True


def test_text_explains_what_the_verdict_means(run: Run, tmp_path: Path) -> None:
    rejected = run("test", write_csv(tmp_path / "a.csv", change=True), "--label", "kind")
    kept = run("test", write_csv(tmp_path / "b.csv", change=False), "--label", "kind")
    for done in (rejected, kept):
        assert "400 rows, 3 columns, label kind (2 classes)" in done.out
    titles = [line.split(":")[0] for line in rejected.out.splitlines()[1:]]
    assert titles == ["REJECTED (1 %)", "Strongest of 11 tests", "Kind", "Size", "What to do", "Guarantee"]
    assert "Means:" in kept.out
    assert "Does not mean:" in kept.out
    assert "never confirm" in kept.out


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(run: Run, tmp_path: Path, suffix: str) -> None:
    done = run("test", write_csv(tmp_path / "d.csv", change=True), "--label", "kind", "--plot", f"p.{suffix}")
    assert done.code == 1
    assert (tmp_path / f"p.{suffix}").stat().st_size > 1000
    assert not list(tmp_path.glob(".p.*"))


@pytest.mark.parametrize("alarm", ["ville", "cusum"])
def test_what_is_drawn(run: Run, tmp_path: Path, alarm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}
    growth = ex.plots.growth

    def spy(paths: Any, **options: Any) -> Any:
        drawn.update(options, paths=list(paths))
        return growth(paths, **options)

    monkeypatch.setattr(ex.plots, "growth", spy)
    file = write_csv(tmp_path / "d.csv", change=True)
    words = ("test", file, "--label", "kind", "--alarm", alarm, "--columns", "none")
    changepoints = verdict(run, *words, "--plot", "p.png")["changepoints"]
    assert len(changepoints) == 1
    assert drawn["changepoints"] == changepoints
    assert drawn["thresholds"] == ((100.0,) if alarm == "ville" else ())
    assert drawn["paths"] == ["adaptive" if alarm == "ville" else "sentinel"]


def test_changepoints_are_upright_lines() -> None:
    ax = ex.plots.growth({"a": [0.0, 1.0, 2.0]}, thresholds=(), changepoints=(1, 2))
    upright = [line for line in ax.get_lines() if len(set(np.asarray(line.get_xdata()).tolist())) == 1]
    assert [np.asarray(line.get_xdata())[0] for line in upright] == [1, 2]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "estimated change point"]
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("words", "code", "clue"),
    [
        (["test", "missing.csv", "--label", "kind"], 3, "missing.csv"),
        (["test", "d.csv", "--label", "kid"], 2, "kind"),
        (["test", "d.csv", "--measure", "nearest-neighbour"], 2, "label must be given for the measure"),
        (["test", "d.csv", "--measure", "nearest-residual"], 2, "label must be given for the measure"),
        (["test", "d.csv", "--label", "kind", "--measure", "nearest-residual"], 3, "label 'kind' must hold numbers"),
        (["test", "d.csv", "--label", "kid", "--measure", "nearest-distance"], 2, "did you mean 'kind'?"),
        (["test", "d.csv", "--measure", "conditional-nearest-distance"], 2, "label must be given for the measure"),
        (["test", "d.csv", "--measure", "value"], 2, "one column of numbers, got 5 features of 'a', 'b', 'c', 'kind'"),
        (["test", "d.csv", "--measure", "value", "--label", "kind"], 2, "must be given one column of numbers"),
        (["test", "d.csv", "--label", "kind", "--neighbours", "2"], 2, "got the default measure"),
        (["test", "d.csv", "--measure", "value", "--neighbours", "2"], 2, "--neighbours applies only to the measures"),
        (["test", "d.csv", "--label", "kind", "--neighbours", "0"], 2, "neighbours"),
        (
            ["test", "d.csv", "--label", "kind", "--measure", "nearest-neighbour", "--neighbours", "1000000000000"],
            2,
            "k must be an integer",
        ),
        (["test", "d.csv", "--label", "kind", "--measure", "nonsense"], 2, "nonsense"),
        (["test", "d.csv", "--label", "kind", "--alarm", "nonsense"], 2, "nonsense"),
        (["test", "d.csv", "--label", "kind", "--on-alarm", "nonsense"], 2, "nonsense"),
        (["test", "d.csv", "--label", "kind", "--period", "99"], 2, "got --period with ville"),
        (["test", "d.csv", "--label", "kind", "--alarm", "cusum", "--alpha", "0.1"], 2, "got --alpha with cusum"),
        (["test", "d.csv", "--label", "kind", "--alarm", "cusum", "--period", "1"], 2, "period must lie in (1, 1e300]"),
        (["test", "d.csv", "--label", "kind", "--alarm", "cusum", "--period", "nan"], 2, "period must lie in"),
        (["shift", "d.csv"], 2, "label must be given: the name of the column of classes"),
        (["shift", "d.csv", "--label", "kid"], 2, "kind"),
        (["shift", "d.csv", "--label", "a", "--drop", "kind"], 3, "label 'a' must hold classes"),
        (["shift", "d.csv", "--label", "kind", "--alpha", "0"], 2, "alpha must lie in (0, 1), got 0"),
        (["shift", "d.csv", "--label", "kind", "--seed", "-1"], 2, "seed"),
        (["shift", "d.csv", "--label", "kind", "--plot", "p.bmp"], 2, ".png"),
        (["shift", "d.csv", "--label", "kind", "--max-rows", "1"], 2, "max-rows"),
        (["shift", "missing.csv", "--label", "kind"], 3, "missing.csv"),
        (["test", "d.csv", "--label", "kind", "--epsilon", "0.5"], 2, "epsilon"),
        (["test", "d.csv", "--label", "kind", "--alpha", "2"], 2, "alpha must lie in (0, 1), got 2"),
        (["test", "d.csv", "--label", "kind", "--alpha", "nan"], 2, "alpha"),
        (["test", "d.csv", "--label", "kind", "--seed", "-1"], 2, "seed"),
        (["test", "d.csv", "--label", "kind", "--bet", "power", "--epsilon", "0"], 2, "epsilon"),
        (["test", "d.csv", "--label", "kind", "--bet", "nonsense"], 2, "nonsense"),
        (["test", "d.csv", "--label", "kind", "--plot", "p.bmp"], 2, ".png"),
        (["test", "d.csv", "--label", "kind", "--plot", "no/where/p.png"], 3, "folder"),
        (["test", "d.csv", "--label", "kind", "--max-rows", "1"], 2, "max-rows"),
        (["test", "d.csv", "--missing", "no"], 2, "missing"),
        (["test", "d.csv", "--scale", "no"], 2, "scale"),
        (["test", "d.csv", "--columns", "each", "--alarm", "cusum"], 2, "columns must be"),
        (["compare", "d.csv"], 2, "CURRENT"),
        (["compare", "d.csv", "d.csv", "--alpha", "1"], 2, "alpha must lie in (0, 1), got 1"),
        (["compare", "d.csv", "missing.csv"], 3, "missing.csv"),
        (["compare", "d.csv", "d.csv", "--order", "a"], 2, "--order"),
        (["fetch", "mnist"], 2, "mnist"),
        (["fetch", "usps", "--from", "nowhere"], 3, "nowhere"),
        (["fetch", "usps", "--mirror", "ftp://127.0.0.1/"], 2, "mirror"),
        (["reproduce", "usps", "--data", "nowhere"], 3, "nowhere"),
        (["reproduce", "usps", "--seeds", "0"], 2, "seeds"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_usage_errors_and_invalid_input(run: Run, tmp_path: Path, words: list[str], code: int, clue: str) -> None:
    write_csv(tmp_path / "d.csv", change=False, n=40)
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert clue in done.err


def test_hostile_names_are_not_printed_raw(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "d\x1b[31m.csv"
    file.write_text("a\x1b]0;x\x07,b,kind\n" + "".join(f"{i},{i % 3},{'xy'[i % 2]}\n" for i in range(40)))
    for words, code in (([], 0), (["--label", "kid"], 2), (["--invalid", "error", "--measure", "value"], 2)):
        done = run("test", file, *words)
        assert done.code == code
        assert not {"\x1b", "\x07"} & set(done.out + done.err)
    assert "a\\x1b]0;x\\x07" in run("test", file, "--label", "kid").err


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = run("demo")
    assert done.code == 3
    assert "exchangeable[plots]" in done.err


@needs_data
def test_fetch_from_a_folder(run: Run, tmp_path: Path) -> None:
    done = run("fetch", "satellite", "--from", SHARED, "--to", tmp_path / "kept")
    assert done.code == 0
    assert [Path(line).name for line in done.out.split()] == ["sat.trn", "sat.tst"]
    assert (tmp_path / "kept" / "sat.trn").read_bytes() == (SHARED / "sat.trn").read_bytes()


@needs_data
def test_reproduce_prints_the_rows(run: Run, tmp_path: Path) -> None:
    done = run("reproduce", "satellite", "--data", SHARED, "--seeds", 2, "--format", "json")
    rows = json.loads(done.out)
    assert done.code == 0
    assert set(rows[0]) == {
        "dataset", "order", "n", "martingale", "published_log10", "median_log10", "min_log10", "max_log10", "seeds",
    }  # fmt: skip
    assert [(row["order"], row["n"], row["martingale"]) for row in rows] == [
        (order, n, martingale)
        for order, n in [("original", 1000), ("original", 6435), ("shuffled", 6435)]
        for martingale in ("simple mixture", "plug-in")
    ]
    text = run("reproduce", "satellite", "--data", SHARED, "--seeds", 2)
    assert "published values lie inside" in text.out


def test_interrupted_is_not_rejected(tmp_path: Path) -> None:
    """Ctrl-C in the middle of long work must not end with exit code 1."""
    X = np.random.default_rng(0).normal(size=(30_000, 40))
    np.savez(tmp_path / "big.npz", X=X, y=np.arange(len(X)) % 7)
    code = (
        "import sys; from exchangeable import cli; sys.argv[1:] = ['test', 'big.npz']; print(1, flush=True); cli.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode in (130, -signal.SIGINT)
    assert process.returncode != 1
    if process.returncode == 130:
        assert err.decode() == "exchangeable: interrupted\n"


def test_a_library_that_catches_every_exception_does_not_catch_ctrl_c(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(Path("d.csv"), change=True, n=60)

    def to_numpy(series: Any, **options: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except Exception:  # noqa: BLE001
            raise ValueError("not that") from None

    monkeypatch.setattr("narwhals.Series.to_numpy", to_numpy)
    assert run("test", "d.csv", "--label", "kind") == (130, "", "exchangeable: interrupted\n")


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    write_csv(tmp_path / "d.csv", change=True, n=60)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "exchangeable", "test", "d.csv", "--label", "kind"]
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b"exchangeable: the output cannot be written: the pipe is closed\n"
    assert done.returncode == 3


def test_notes_on_likely_mistakes(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{i},{rng.normal()},{rng.normal()},{1e4 * rng.normal()},{'xy'[i % 2]}" for i in range(60)]
    (tmp_path / "d.csv").write_text("id,a,b,income,kind\n" + "\n".join(lines))
    noted = run("test", "d.csv", "--label", "kind", "--format", "json")
    assert "note: column 'id' is sorted" in noted.err
    assert "note: column 'income' varies" in noted.err
    assert "were divided by their standard deviation" in noted.err
    assert (json.loads(noted.out)["n"], json.loads(noted.out)["scale"]) == (60, "deviation")
    plain = run("test", "d.csv", "--label", "kind", "--format", "json", "--scale", "none")
    assert "note: column 'income' varies" in plain.err
    assert "dominates all distances" in plain.err
    assert json.loads(plain.out)["scale"] == "none"
    assert run("test", "d.csv", "--label", "kind", "--drop", "id,income").err == ""


def test_columns_are_tested_on_their_own(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    X[150:, 2] += 1.5
    (tmp_path / "d.csv").write_text("a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in X.tolist()))
    words = ("test", "d.csv", "--measure", "nearest-distance", "--seed", 2)
    said, result = verdict(run, *words, "--columns", "each"), ex.test(pd.DataFrame(X, columns=list("abc")), seed=2)
    assert (said["rejected"], said["rejected_at"]) == (True, result.rejected_at)
    assert said["changepoint"] == result.changepoint
    assert said["log10_martingale"] == result.log10_martingale
    assert "tests: column c, evidence 10^" in run(*words, "--columns", "each").out
    assert verdict(run, *words)["log10_martingale"] == result.log10_martingale


def test_a_small_sample_is_reported(run: Run, tmp_path: Path) -> None:
    done = run("test", write_csv(tmp_path / "d.csv", change=False, n=12), "--label", "kind")
    assert (done.code, "With so few rows" in done.out) == (0, True)


# ------------------------------------------------------------------ shift


def shifting(path: Path, kind: str, n: int = 400) -> tuple[np.ndarray, list[str]]:
    """Two classes; in the middle their proportions change, or their meaning, or both, or neither."""
    rng = np.random.default_rng(3)
    late = np.arange(n) >= n // 2
    y = rng.random(n) < np.where(late & (kind in ("label shift", "both")), 0.9, 0.4)
    turned = y ^ (late & (kind in ("concept shift", "both")))
    X, labels = rng.normal(size=(n, 2)) + 4.0 * turned[:, np.newaxis], ["vu"[value] for value in y.tolist()]
    lines = [f"{a!r},{b!r},{c}" for (a, b), c in zip(X.tolist(), labels, strict=True)]
    path.write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    return X, labels


@pytest.mark.parametrize("kind", ["label shift", "concept shift", "both", "neither found"])
def test_shift(run: Run, tmp_path: Path, kind: str) -> None:
    X, y = shifting(tmp_path / "d.csv", kind)
    said = verdict(run, "shift", "d.csv", "--label", "kind", "--alpha", 0.02, "--seed", 1)
    found = ex.shift_test(X, y, alpha=0.02, seed=1)
    assert list(said) == [
        "file", "n", "n_features", "n_classes", "scale", "alpha", "threshold", "verdict", "rejected", "label",
        "concept", "seed", "guarantee", "notes",
    ]  # fmt: skip
    assert (said["file"], said["n"], said["n_features"], said["n_classes"]) == ("d.csv", 400, 2, 2)
    assert (said["alpha"], said["threshold"], said["seed"], said["verdict"]) == (0.02, 50.0, 1, kind)
    assert (said["guarantee"], found.verdict) == (found.guarantee, kind)
    for name, evidence in (("label", found.label), ("concept", found.concept)):
        assert said[name] == {
            "log10_martingale": evidence.log_value[-1] / math.log(10.0),
            "log10_max": max(0.0, (evidence.log_value / math.log(10.0)).max()),
            "rejected": evidence.rejected,
            "rejected_at": evidence.alarm_at,
        }


@pytest.mark.parametrize("kind", ["label shift", "concept shift", "both", "neither found"])
def test_shift_in_words(run: Run, tmp_path: Path, kind: str) -> None:
    X, y = shifting(tmp_path / "d.csv", kind)
    done = run("shift", "d.csv", "--label", "kind", "--plot", "p.png", "--seed", 0)
    found = ex.shift_test(X, y, seed=0)
    head = {"both": "LABEL SHIFT AND CONCEPT SHIFT: "}.get(kind, f"{kind.upper()}: ")
    assert done.code == (0 if kind == "neither found" else 1)
    assert done.out.splitlines()[0] == "d.csv: 400 rows, 2 columns, label kind (2 classes)"
    assert done.out.splitlines()[1].startswith(head)
    assert done.out.count("never reached 100") == 2 - found.label.rejected - found.concept.rejected
    for evidence in (found.label, found.concept):
        assert evidence.alarm_at is None or f"reached 100 at row {evidence.alarm_at}" in done.out
    assert found.guarantee in done.out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert set(SHIFTS) == {"label shift", "concept shift", "both", "neither found"}


def test_shift_of_an_npz_and_of_other_columns(run: Run, tmp_path: Path) -> None:
    X, y = shifting(tmp_path / "d.csv", "label shift")
    np.savez(tmp_path / "d.npz", X=X, y=np.array(y))
    archive = verdict(run, "shift", "d.npz", "--label", "y")
    table = verdict(run, "shift", "d.csv", "--label", "kind")
    assert archive.pop("file") != table.pop("file")
    assert archive == table
    assert verdict(run, "shift", "d.csv", "--label", "kind", "--drop", "a")["n_features"] == 1
    assert "note: column" not in run("shift", "d.csv", "--label", "kind").err
