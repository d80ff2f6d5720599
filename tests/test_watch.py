"""Watching lines: what is an example, what is answered when, and what a state file promises."""

from __future__ import annotations

import json
import math
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchangeable as ex
from conftest import Run
from exchangeable import alarms, bets, catalogue, measures
from exchangeable.pvalues import Precomputed
from exchangeable.risk import RiskPath
from exchangeable.watch import LineError, Reader, UsageError

PROGRAM = [sys.executable, "-m", "exchangeable", "watch"]


def stream(n: int = 400, change: int | None = None) -> list[float]:
    x = np.random.default_rng(3).normal(size=n)
    if change is not None:
        x[change:] += 4.0
    return x.tolist()  # type: ignore[no-any-return]


def write(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def piped(text: str | bytes, *words: object, cwd: Path | None = None) -> tuple[int, str, str]:
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run([*PROGRAM, *map(str, words)], input=data, capture_output=True, cwd=cwd, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def expected(path: ex.Path, monitor: ex.Monitor) -> list[dict[str, Any]]:
    """What must be written for a path of the library."""
    found = []
    for n, p, log_value, alarm, lowest in zip(path.n, path.p, path.log_value, path.alarm, path.lowest, strict=True):
        log10 = None if log_value == -math.inf else log_value / math.log(10.0)
        step: dict[str, Any] = {"n": n, "p": p, "log10_martingale": log10, "alarm": bool(alarm)}
        if alarm:
            step |= {"alarm_at": n if monitor.on_alarm == "restart" else monitor.alarm_at, "changepoint": lowest}
        found.append(step)
    return found


# ------------------------------------------------------------------ lines


@pytest.mark.parametrize(
    ("lines", "found", "x"),
    [
        ([b"1", b"2.5"], "jsonl", [1.0, 2.5]),
        ([b"", b"  ", b" +1e3 ", b".5"], "jsonl", [1000.0, 0.5]),
        ([b"[1]", b"2", b'{"x": 3}', b'{"x": [4]}'], "jsonl", [1.0, 2.0, 3.0, 4.0]),
        ([b"\xef\xbb\xbf1\r", b"2\r"], "jsonl", [1.0, 2.0]),
        ([b"reading", b"1", b"2"], "csv", [1.0, 2.0]),
        ([b"name,reading", b"a,1", b"b,2"], "csv", [1.0, 2.0]),
        ([b'"a, b",reading\r', b'"x ""y""",1\r'], "csv", [1.0]),
        ([b"name\treading", b"a, b\t1"], "tsv", [1.0]),
        ([b"\treading", b"a\t1"], "tsv", [1.0]),
    ],
)
def test_the_format_is_found(lines: list[bytes], found: str, x: list[float]) -> None:
    reader = Reader()
    batch = reader.read(lines, 1)
    assert (reader.format, batch.x, batch.fault) == (found, x, None)


def test_what_an_object_carries() -> None:
    lines = [b'{"seq": 1, "x": [1, 2], "y": "cat", "id": "a", "time": "noon"}', b'{"x": [3, 4], "y": 7}', b"[5, 6]"]
    batch = Reader(rows=True, labels="classes").read(lines, 11)
    assert list(batch) == [
        [11, 12, 13],
        [[1, 2], [3, 4], [5, 6]],
        ["cat", 7, None],
        ["a", None, None],
        [1, None, None],
        None,
    ]


@pytest.mark.parametrize(
    ("line", "clue"),
    [
        (b"abc", "line 3 must be JSON: invalid character (byte 0)"),
        (b"1 2", "JSON"),
        (b"1,2", "JSON"),
        (b"NaN", "numbers must be finite"),
        (b'{"x": Infinity}', "numbers must be finite"),
        (
            b'{"x": 1' + b"0" * 400 + b"}",
            "x must be a finite number, true, false, or a list of finite numbers: number out of range",
        ),
        (b"[1, 2]", "one number for this measure, got a list of 2"),
        (b"[]", "line 3 must be a number, a list of numbers, or an object with x"),
        (b'["1"]', "must be a number, a list of numbers, or an object with x"),
        (b'"true"', "must be a number, a list of numbers, or an object with x"),
        (b"null", "must be a number, a list of numbers, or an object with x"),
        (b'{"x": [[1]]}', "x must be a finite number, true, false, or a list of finite numbers: expected `float`"),
        (b'{"y": 1}', "object missing required field `x`"),
        (b'{"x": 1, "z": 2}', "unknown field 'z'"),
        (b'{"x": 1, " - at `$.z": 2}', "unknown field ' - at `$.z'"),
        (b'{"x": 1, "\\u001b[31m\\n": 2}', r"unknown field '\x1b[31m\n'"),
        (b'{"x": 1, "y": [1]}', "y must be a string or a finite number"),
        (b'{"x": 1, "y": "' + b"a" * 257 + b'"}', "at most 256 characters"),
        (b'{"x": 1, "y": 9007199254740992}', "y must be a string or a finite number"),
        (b'{"x": 1, "time": []}', "time must be a string or a finite number"),
        (b'{"x": 1, "x": 2}', "line 3 must not repeat a key, got 'x'"),
        (b'{"x": 1, "\\u0078": 2}', "must not repeat a key, got 'x'"),
        (b'{"x": 1, "id": 5}', "id must be a string"),
        (b'{"x": 1, "id": ""}', "id must be a string"),
        (b'{"x": 1, "seq": 0}', "seq must be an integer from 1"),
        (b'{"x": 1, "seq": true}', "seq must be an integer"),
        (b'{"x": 1, "seq": 1.0}', "seq must be an integer"),
        (b"\xff", "UTF-8"),
        (b"[" * 100_000, "expected `float`, got `array`"),
    ],
)
def test_lines_that_are_no_examples(line: bytes, clue: str) -> None:
    batch = Reader().read([b"1", b"2", line, b"4"], 1)
    assert batch.x == [1.0, 2.0]
    assert isinstance(batch.fault, LineError)
    assert batch.fault.line == 3
    assert clue in str(batch.fault)


@pytest.mark.parametrize(
    ("lines", "clue"),
    [
        ([b"a,b", b"1,2", b"1"], "line 3: the number of cells must be 2, as in the header, got 1"),
        ([b"a,b", b"1,2", b"1,"], "column 'b' must hold a number, got ''"),
        ([b"a,b", b"1,2", b"1,1_0"], "column 'b' must hold a number, got '1_0'"),
        ([b"a,b", b"1,2", b"1,inf"], "column 'b' must hold a number, got 'inf'"),
        ([b"a,b", b"1,2", b'1,"2'], "a quotation mark must be closed in its line"),
    ],
)
def test_rows_that_are_no_examples(lines: list[bytes], clue: str) -> None:
    batch = Reader(rows=True).read(lines, 1)
    assert batch.x == [[1.0, 2.0]]
    assert clue in str(batch.fault)


@pytest.mark.parametrize(
    ("options", "lines", "clue"),
    [
        ({"features": ["a"]}, [b"1"], "--features and --label name columns of CSV"),
        ({"label": "a"}, [b"1"], "--features and --label name columns of CSV"),
        ({}, [b"a;b", b"1;2"], "';'"),
        ({}, [b"1,2", b"3,4"], "--no-header"),
        ({}, [b"a,a", b"3,4"], "different names"),
        ({}, [b"a,b", b"3,4"], "needs exactly one column"),
        ({}, [b"a,b", b"c,d"], "no column but the label holds a number"),
        ({"features": ["c"]}, [b"a,b", b"3,4"], "no column 'c'"),
        ({"features": ["a"], "label": "a"}, [b"a,b", b"3,4"], "once"),
        ({"labels": "classes"}, [b"a,b", b"3,4"], "needs labels"),
    ],
)
def test_options_that_do_not_fit_the_input(options: dict[str, Any], lines: list[bytes], clue: str) -> None:
    with pytest.raises(UsageError, match=clue):
        Reader(**options).read(lines, 1)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.just(""), max_size=20))
def test_many_numbers_are_read_as_each_alone(texts: list[str]) -> None:
    reader = Reader("jsonl")
    reader.read([b"0"], 1)
    lines = [text.encode() for text in texts]
    batch = reader.read(lines, 5)
    assert (list(batch.line), batch.x) == (
        [5 + i for i, text in enumerate(texts) if text],
        [float(text) for text in texts if text],
    )


# ------------------------------------------------------------------ the same numbers as the library's


@pytest.mark.quick
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_numbers(run: Run, tmp_path: Path, on_alarm: str) -> None:
    x = stream(change=200)
    monitor = ex.Monitor(measures.Value(), bets.SimpleJumper(), alarms.Ville(0.05), seed=5, on_alarm=on_alarm)
    path = monitor.extend(x)
    options = ("--bet", "simple-jumper", "--alpha", 0.05, "--seed", 5, "--on-alarm", on_alarm)
    done = run("watch", write(tmp_path / "x", x), *options)
    assert records(done.out) == expected(path, monitor)
    assert (done.code, done.err) == (1, "")
    sounds = [record for record in records(done.out) if record["alarm"] and record["alarm_at"] == record["n"]]
    assert records(run("watch", "x", *options, "--alarms-only").out) == sounds
    some = run("watch", "x", *options, "--every", 7)
    assert records(some.out) == [one for one in records(done.out) if one["n"] % 7 == 0 or one in sounds]
    assert run("watch", "x", *options, "--quiet") == (1, "", "")


@pytest.mark.parametrize("measure", sorted(catalogue.MEASURES))
def test_every_measure_from_json_and_from_csv(run: Run, tmp_path: Path, measure: str) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)).tolist(), rng.integers(0, 2, 60).tolist()
    one = measure == "value"
    words = y if measure == "nearest-residual" else [f"class {label}" for label in y]
    monitor = ex.Monitor(catalogue.MEASURES[measure](), bets.SimpleMixture(), seed=2)
    path = monitor.extend([row[0] for row in X] if one else X, words)
    write(tmp_path / "j", [json.dumps({"x": x[0] if one else x, "y": word}) for x, word in zip(X, words, strict=True)])
    write(tmp_path / "c", ["a,kind,b", *(f"{a!r},{word},{b!r}" for (a, b), word in zip(X, words, strict=True))])
    options = ("--measure", measure, "--bet", "simple-mixture", "--seed", 2)
    from_json = run("watch", "j", *options)
    assert records(from_json.out) == expected(path, monitor)
    from_csv = run("watch", "c", *options, "--label", "kind", "--features", "a" if one else "a,b")
    assert (from_csv.out, from_csv.err) == (from_json.out, "")


def test_p_values_and_bankruptcy(run: Run, tmp_path: Path) -> None:
    p = [0.5, 0.03, 1.0, 0.25]
    monitor = ex.Monitor(Precomputed(), bets.Power(0.5))
    done = run("watch", write(tmp_path / "p", p), "--measure", "p-values", "--bet", "power", "--epsilon", 0.5)
    assert records(done.out) == expected(monitor.extend(p), monitor)
    bad = run("watch", write(tmp_path / "bad", [*p, 0]), "--measure", "p-values")
    assert (bad.code, len(records(bad.out))) == (3, 4)
    assert bad.err == "exchangeable: line 5: p must be a number in (0, 1], got 0.0\n"
    ruin = ex.Monitor(Precomputed(), bets.Histogram())
    values = [0.99] * 400 + [0.001] * 3
    path = ruin.extend(values)
    done = run("watch", write(tmp_path / "ruin", values), "--measure", "p-values", "--bet", "histogram")
    assert records(done.out) == expected(path, ruin)


def test_frozen(run: Run, tmp_path: Path) -> None:
    x, reference = stream(), np.random.default_rng(9).normal(size=500).tolist()
    monitor = ex.Monitor(measures.Frozen(reference=reference, bins=64))
    path = monitor.extend(x)
    write(tmp_path / "r", reference)
    done = run("watch", write(tmp_path / "x", x), "--measure", "frozen", "--reference", "r", "--bins", 64)
    assert records(done.out) == expected(path, monitor)


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize(("values", "words"), [((0, 1), []), ((1, 2, 4), ["--values", "1,2,4", "--direction", "up"])])
def test_a_rate(run: Run, tmp_path: Path, on_alarm: str, values: tuple[int, ...], words: list[str]) -> None:
    draw = np.random.default_rng(6)
    x = np.append(draw.choice(values[:-1], 300), draw.choice(values, 300)).tolist() * 2
    monitor = ex.RateMonitor(50, values=values, direction="up" if words else "both", on_alarm=on_alarm)
    path = monitor.extend(x)
    done = run("watch", write(tmp_path / "x", x), "--rate", "--period", 50, "--on-alarm", on_alarm, *words)
    lines = records(done.out)
    assert (done.code, done.err) == (1, "")
    assert [line["n"] for line in lines] == path.n.tolist()
    assert [line["log10_martingale"] for line in lines] == (path.log_value / math.log(10.0)).tolist()
    assert [line["alarm"] for line in lines] == path.alarm.tolist()
    statistic = [-math.inf if line["log10_statistic"] is None else line["log10_statistic"] for line in lines]
    assert statistic == (path.statistic / math.log(10.0)).tolist()
    assert not any("p" in line for line in lines)
    new = [line for line in lines if "rate_before" in line]
    assert [(line["value"], line["rate_before"], line["rate_after"]) for line in new] == path.changes
    assert [line["n"] == line["alarm_at"] for line in new] == [True] * len(new)
    single = records(run("watch", write(tmp_path / "y", x[:7]), "--rate", "--alpha", 0.2, *words).out)
    few = ex.RateMonitor(alpha=0.2, values=values, direction=monitor.direction).extend(x[:7])
    assert [line["log10_martingale"] for line in single] == (few.log_value / math.log(10.0)).tolist()
    assert not any("log10_statistic" in line for line in single)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["--alarm", "ville"], ["--alpha", 0.01]),
        (["--alarm", "ville", "--alpha", 0.2], ["--alpha", 0.2]),
        (["--alarm", "shiryaev-roberts"], []),
        (["--alarm", "shiryaev-roberts", "--period", 50], ["--period", 50]),
    ],
)
def test_the_alarm_of_a_rate(run: Run, tmp_path: Path, words: list[Any], same: list[Any]) -> None:
    draw = np.random.default_rng(6)
    file = write(tmp_path / "x", np.append(draw.random(300) < 0.1, draw.random(300) < 0.5).astype(int).tolist())
    given, other = (run("watch", file, "--rate", *extra) for extra in (words, same))
    assert given == other
    assert given.code == 1


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, []),
        ({"alpha": 0.2, "bounds": (-1.5, 2.0)}, ["--alpha", 0.2, "--bounds", "-1.5,2"]),
        ({"period": 50.0}, ["--period", 50]),
        ({"period": 50.0, "alpha": 0.2}, ["--period", 50, "--alpha", 0.2]),
        ({"period": 10_000.0}, ["--alarm", "shiryaev-roberts"]),
    ],
)
def test_a_risk(run: Run, tmp_path: Path, on_alarm: str, arguments: dict[str, Any], words: list[Any]) -> None:
    draw = np.random.default_rng(6)
    x = np.append(draw.beta(1, 9, 300), draw.beta(2, 3, 300)).tolist() * 2
    monitor = ex.Risk(0.15, on_alarm=on_alarm, **arguments)
    path = monitor.extend(x)
    done = run("watch", write(tmp_path / "x", x), "--risk", 0.15, "--on-alarm", on_alarm, *words)
    assert (done.code, done.err, records(done.out)) == (1, "", expected_risk(path, monitor))
    few = ex.Risk(0.15, on_alarm=on_alarm, **arguments)
    done = run("watch", write(tmp_path / "y", x[:7]), "--risk", 0.15, "--on-alarm", on_alarm, *words)
    assert records(done.out) == expected_risk(few.extend(x[:7]), few)


def expected_risk(path: RiskPath, monitor: ex.Risk) -> list[dict[str, Any]]:
    """What must be written for a path of the library."""
    found = []
    for n, log_value, statistic, alarm, lowest, _, *risk in zip(*path[:9], strict=True):
        step: dict[str, Any] = {"n": n, "log10_martingale": log_value / math.log(10.0)}
        if monitor.period is not None:
            step["log10_statistic"] = None if statistic == -math.inf else statistic / math.log(10.0)
        step |= {**dict(zip(("mean", "low", "high"), risk, strict=True)), "alarm": bool(alarm)}
        if alarm:
            step |= {"alarm_at": n if monitor.on_alarm == "restart" else monitor.alarm_at, "changepoint": lowest}
        found.append(step)
    return found


def test_losses_of_a_table(run: Run, tmp_path: Path) -> None:
    x = [0.5, 0.25, 1.0]
    whole = run("watch", write(tmp_path / "x", x), "--risk", 0.1)
    lines = write(tmp_path / "lines", [json.dumps({"x": value}) for value in x])
    table = write(tmp_path / "table.csv", ["name,other,loss", *(f"a,7,{value}" for value in x)])
    assert run("watch", lines, "--risk", 0.1).out == whole.out
    assert run("watch", table, "--features", "loss", "--risk", 0.1).out == whole.out


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{x}"], []),
        (['{{"x": {x}}}'], []),
        (["{x}"], ["--no-header", "--input", "csv"]),
        (["failed,name", "{x},abc"], []),
        (["name\tfailed", "abc\t {X} "], []),
    ],
)
def test_true_and_false_are_events(run: Run, tmp_path: Path, lines: list[str], words: list[str]) -> None:
    *header, pattern = lines
    y = [False, True, False, False, True] * 4
    texts = [pattern.format(x=str(value).lower(), X=str(value)) for value in y]
    write(tmp_path / "x", [*header, *texts])
    write(tmp_path / "y", [*map(int, y)])
    for kind in (["--rate"], ["--risk", 0.5]):
        done, numbers = run("watch", "x", *kind, *words), run("watch", "y", *kind)
        assert (done.code, done.out) == (numbers.code, numbers.out)
        assert len(records(done.out)) == len(y)


@pytest.mark.parametrize("line", ["true", '{"x": false}'])
def test_without_rate_true_is_no_number(run: Run, tmp_path: Path, line: str) -> None:
    done = run("watch", write(tmp_path / "x", [line]))
    assert (done.code, done.out) == (3, "")
    assert "x must be a number, got true or false, which only --rate and --risk accept" in done.err


def test_without_rate_text_is_no_number(run: Run, tmp_path: Path) -> None:
    done = run("watch", write(tmp_path / "x", ["failed", "true"]))
    assert (done.code, "no column but the label holds a number" in done.err) == (2, True)


@pytest.mark.parametrize("lines", [[], [""], ["", ""], ["failed"], ["0 1 1 0"]])
def test_no_example_is_no_verdict(run: Run, tmp_path: Path, lines: list[str]) -> None:
    for words in (["--rate"], []):
        done = run("watch", write(tmp_path / "x", lines), *words)
        assert (done.code, done.out) == (3, "")
        assert "there must be at least one example, got none" in done.err


def test_what_is_not_finite_is_named(run: Run, tmp_path: Path) -> None:
    done = run("watch", write(tmp_path / "x", ["0", "1", "nan"]), "--rate", "--quiet")
    assert done.code == 3
    assert "line 3 must be JSON" in done.err
    assert "numbers must be finite" in done.err


def test_ids_are_repeated(run: Run, tmp_path: Path) -> None:
    out = run("watch", write(tmp_path / "x", ['{"x": 1, "id": "a\\u0007\\""}', '{"x": 2}'])).out
    assert [record.get("id") for record in records(out)] == ['a\x07"', None]
    assert "\x07" not in out


# ------------------------------------------------------------------ wrong words


@pytest.mark.parametrize(
    ("words", "code", "clue"),
    [
        (["missing"], 3, "missing"),
        (["x", "--measure", "frozen"], 2, "--reference FILE"),
        (["x", "--reference", "x"], 3, "x: reference must have at least 30 rows, got 3"),
        (["x", "--reference", "x", "--measure", "value"], 2, "require --measure frozen"),
        (["x", "--bins", 8], 2, "require --measure frozen"),
        (["x", "--measure", "frozen", "--reference", "bad"], 3, "bad: line 2"),
        (["x", "--measure", "frozen", "--reference", "one"], 2, "2 distinct scores"),
        (["x", "--measure", "p-values", "--neighbours", 2], 2, "--neighbours"),
        (["x", "--neighbours", 2], 2, "--neighbours"),
        (["x", "--alpha", 2], 2, "alpha must lie in (0, 1)"),
        (["x", "--alarm", "cusum", "--alpha", 0.1], 2, "--alpha requires"),
        (["x", "--every", 0], 2, "every"),
        (["x", "--input", "xml"], 2, "xml"),
        (["x", "--state", "no/where"], 3, "no/where"),
        (["x", "--state", "x"], 3, "must be a file written by exchangeable watch"),
        (["bad"], 3, "line 2 must be JSON"),
        (["x", "--input", "csv"], 2, "--no-header"),
        (["x", "--rate"], 3, "line 2: x must be one of [0, 1], got 2.0"),
        (
            ["x", "--rate", "--measure", "nearest-distance"],
            2,
            "--measure does not apply to --rate, got nearest-distance",
        ),
        (["x", "--rate", "--bet", "adaptive"], 2, "--bet does not apply to --rate, got adaptive"),
        (["x", "--rate", "--seed", 1], 2, "--seed does not apply to --rate, got 1"),
        (["x", "--rate", "--reference", "x"], 2, "--reference does not apply to --rate, got x"),
        (["x", "--rate", "--alarm", "cusum"], 2, "--alarm must be ville or shiryaev-roberts with --rate, got cusum"),
        (["x", "--rate", "--alarm", "ville", "--period", 9], 2, "--alpha requires --alarm ville, and --period"),
        (["x", "--rate", "--alpha", 0.1, "--period", 10], 2, "--rate needs --alpha or --period, got both"),
        (["x", "--rate", "--values", "1,two"], 2, "--values must be numbers separated by commas, got 'two'"),
        (["x", "--rate", "--values", "1"], 2, "values must be 2 to 64 different numbers"),
        (["x", "--direction", "up"], 2, "--values and --direction require --rate"),
        (["x", "--risk", 0.1], 3, "line 2: x must be a loss from 0 to 1, got 2"),
        (["x", "--risk", 0.1, "--rate"], 2, "--rate and --risk cannot be combined"),
        (["x", "--risk", 0.1, "--measure", "frozen"], 2, "--measure does not apply to --risk, got frozen"),
        (["x", "--risk", 0.1, "--bet", "adaptive"], 2, "--bet does not apply to --risk, got adaptive"),
        (["x", "--risk", 0.1, "--seed", 1], 2, "--seed does not apply to --risk, got 1"),
        (["x", "--risk", 0.1, "--reference", "x"], 2, "--reference does not apply to --risk, got x"),
        (["x", "--risk", 0.1, "--label", "y"], 2, "--label does not apply to --risk, got y"),
        (["x", "--risk", 0.1, "--alarm", "cusum"], 2, "--alarm must be ville or shiryaev-roberts with --risk"),
        (["x", "--risk", 0.1, "--alarm", "ville", "--period", 9], 2, "--alpha requires --alarm ville, and --period"),
        (["x", "--risk", 0.1, "--direction", "up"], 2, "--values and --direction require --rate"),
        (["x", "--risk", 1], 2, "limit must lie between the bounds of the loss, 0 and 1, got 1.0"),
        (["x", "--risk", 0.1, "--bounds", "0"], 2, "bounds must be the smallest and the largest possible loss"),
        (["x", "--risk", 0.1, "--bounds", "0,one"], 2, "--bounds must be numbers separated by commas, got 'one'"),
        (["x", "--bounds", "0,1"], 2, "--bounds requires --risk"),
    ],
)
def test_wrong_words(run: Run, tmp_path: Path, words: list[object], code: int, clue: str) -> None:
    write(tmp_path / "x", [1, 2, 3])
    write(tmp_path / "one", [1])
    write(tmp_path / "bad", [1, "two"])
    done = run("watch", *words)
    assert done.code == code
    assert clue in done.err


def test_a_line_that_is_no_example_ends_it(run: Run, tmp_path: Path) -> None:
    x = stream(50)
    done = run("watch", write(tmp_path / "x", [*x[:30], "thirty-one", *x[30:]]), "--state", "s")
    assert (done.code, len(records(done.out))) == (3, 30)
    assert done.err.startswith("exchangeable: line 31 must be JSON")
    again = run("watch", "x", "--state", "s")
    assert (again.code, again.out, again.err) == (3, "", done.err)
    write(tmp_path / "x", x)
    rest = run("watch", "x", "--state", "s")
    assert done.out + rest.out == run("watch", "x").out


def test_numbered_lines(run: Run, tmp_path: Path) -> None:
    x = stream(20)
    lines = [json.dumps({"x": value, "seq": i}) for i, value in enumerate(x, 1)]
    whole = run("watch", write(tmp_path / "whole", lines), "--seed", 0)
    again = [*lines[:8], *lines[3:8], lines[0], *lines[2:]]
    assert run("watch", write(tmp_path / "again", again)).out == whole.out
    gap = run("watch", write(tmp_path / "gap", [*lines[:8], *lines[9:]]), "--seed", 0)
    assert (gap.code, gap.out) == (3, "".join(whole.out.splitlines(keepends=True)[:8]))
    assert gap.err == "exchangeable: line 9: seq must be 9, got 10: the numbers between them are missing\n"


# ------------------------------------------------------------------ live


class Live:
    """The program in another process, spoken to and heard."""

    def __init__(self, words: Sequence[object], cwd: Path) -> None:
        command = [*PROGRAM, *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=cwd, bufsize=0, **pipes)  # type: ignore[call-overload]
        self.lines: list[bytes] = []
        self._rest = b""

    def say(self, text: str) -> None:
        self.process.stdin.write(text.encode())

    def listen(self, seconds: float) -> bool:
        """Take what there is; is there more to come?"""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return True
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += lines
        return bool(data)

    def hear(self, lines: int = 1) -> list[dict[str, Any]]:
        """The next lines, or fail after a minute."""
        end = time.monotonic() + 60.0
        while len(self.lines) < lines:
            assert time.monotonic() < end, "no answer"
            assert self.listen(1.0), self.process.communicate()[1]
        heard, self.lines = self.lines[:lines], self.lines[lines:]
        return list(map(json.loads, heard))

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        """What else it says, after the end of its input."""
        self.process.stdin.close()
        while self.listen(60.0):
            pass
        err = self.process.stderr.read().decode()
        return self.process.wait(60), self.hear(len(self.lines)), err


@contextmanager
def live(*words: object, cwd: Path) -> Iterator[Live]:
    talk = Live(words, cwd)
    try:
        yield talk
    finally:
        talk.process.kill()
        talk.process.wait()
        for pipe in (talk.process.stdin, talk.process.stdout, talk.process.stderr):
            pipe.close()


def saved_seed(path: Path) -> int:
    """The seed that was drawn and kept."""
    seed = saved(path)["configuration"]["seed"]
    assert isinstance(seed, int)
    return seed


def saved(path: Path) -> dict[str, Any]:
    """The first line of a state."""
    return dict(json.loads(path.read_bytes().partition(b"\n")[0]))


def test_a_line_is_answered_at_once(tmp_path: Path) -> None:
    x = stream(12)
    monitor = ex.Monitor(measures.Value(), seed=0)
    steps = expected(monitor.extend(x), monitor)
    with live("--seed", 0, cwd=tmp_path) as process:
        for i, value in enumerate(x[:3]):
            process.say(f"{value!r}\n")
            assert process.hear() == steps[i : i + 1]
        process.say(f"{x[3]!r}\n{x[4]!r}\n{str(x[5])[:3]}")
        assert process.hear(2) == steps[3:5]
        process.say(f"{str(x[5])[3:]}\n" + "".join(f"{value!r}\n" for value in x[6:11]) + repr(x[11]))
        assert process.end() == (0, steps[5:], "")


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_signals_save_the_state(tmp_path: Path, number: signal.Signals, code: int, message: str) -> None:
    x = stream(30)
    with live("--state", "s", "--save-every", 1000, cwd=tmp_path) as process:
        process.say("".join(f"{value!r}\n" for value in x[:20]) + "0.12")
        first = process.hear(20)
        process.process.send_signal(number)
        assert process.process.wait(60) == code
        assert process.end() == (code, [], f"exchangeable: {message}\n")
    _, out, _ = piped("".join(f"{value!r}\n" for value in x[20:]), "--state", "s", cwd=tmp_path)
    monitor = ex.Monitor(measures.Value(), seed=saved_seed(tmp_path / "s"))
    assert first + records(out) == expected(monitor.extend(x), monitor)


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    write(tmp_path / "x", stream(5000))
    command = f"{sys.executable} -m exchangeable watch x --state s | head -2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert [line[:7] for line in done.stdout.splitlines()] == ['{"n": 1', '{"n": 2', "141"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stalls_cannot_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbuffered: str) -> None:
    """The first signal waits for what is to be written, the second does not."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with live("--state", "s", "--save-every", 1000, cwd=tmp_path) as process:
        process.say("0.5\n")
        process.hear()
        os.set_blocking(process.process.stdin.fileno(), False)
        refused = 0
        while refused < 20:  # for a second: so it no longer reads, but waits for its reader
            try:
                os.write(process.process.stdin.fileno(), b"0.5\n" * 1000)
                refused = 0
            except BlockingIOError:
                refused += 1
                time.sleep(0.05)
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(0.5)
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(30) == 143
        assert saved(tmp_path / "s")["n"] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk(tmp_path: Path) -> None:
    write(tmp_path / "x", stream(20))
    command = f"{sys.executable} -m exchangeable watch x --state s > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "No space left" in done.stderr
    assert saved(tmp_path / "s")["n"] == 0


def test_standard_input_that_is_closed(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m exchangeable watch --seed 0 <&-"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, b"exchangeable: standard input is closed\n")


def test_memory_is_constant(tmp_path: Path) -> None:
    """Of a measure and a bet that need no more."""
    code = (
        "import resource, sys\nfrom exchangeable import cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    used = []
    for lines in (20_000, 400_000):
        (tmp_path / "p").write_text("0.5\n0.25\n" * (lines // 2))
        words = ["watch", "p", "--measure", "p-values", "--bet", "power", "--alarms-only"]
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, check=True)
        used.append(int(done.stderr))
    assert used[1] < used[0] + 8_000  # kB


# ------------------------------------------------------------------ the state


CHOICES = [
    ("--bet", "simple-jumper", "--alpha", 0.2),
    ("--bet", "simple-jumper", "--alpha", 0.2, "--on-alarm", "restart"),
    ("--alarm", "cusum", "--period", 50, "--on-alarm", "restart", "--bet", "composite-jumper"),
    (),
    ("--rate", "--period", 50),
    ("--rate", "--alpha", 0.2, "--on-alarm", "restart"),
    ("--risk", 0.3, "--period", 50),
    ("--risk", 0.3, "--alpha", 0.2, "--on-alarm", "restart"),
]


@pytest.mark.parametrize("options", CHOICES)
def test_resumed_as_unbroken(run: Run, tmp_path: Path, options: tuple[object, ...]) -> None:
    """A file that grows, watched in bits."""
    x, rng = stream(300, change=120), random.Random(1)
    if "--rate" in options or "--risk" in options:
        x = [float(value > 1.0) for value in x]
    whole = run("watch", write(tmp_path / "whole", x), *options)
    parts, codes = "", []
    for stop in [*sorted(rng.sample(range(1, 300), 8)), 300, 300]:
        write(tmp_path / "x", x[:stop])
        done = run("watch", "x", "--state", "s", *options)
        parts += done.out
        codes.append(done.code)
    assert parts == whole.out
    assert max(codes) == whole.code == 1
    assert codes[-1] == (0 if "restart" in options else whole.code)  # with nothing new, only what latched is an alarm


def test_resumed_rows_with_columns_as_they_were(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = [f"{a!r},{'uv'[i % 2]},{b!r}" for i, (a, b) in enumerate(rng.normal(size=(40, 2)).tolist())]
    options = ("--measure", "nearest-neighbour", "--label", "kind")
    whole = run("watch", write(tmp_path / "whole.csv", ["a,kind,b", *rows]), *options)
    first = run("watch", write(tmp_path / "x.csv", ["a,kind,b", *rows[:25]]), *options, "--state", "s")
    assert "note: the features are 'a', 'b'" in first.err
    second = run("watch", write(tmp_path / "x.csv", ["a,kind,b", *rows[:25], *rows[25:30]]), *options, "--state", "s")
    other = [",".join([b, kind, a, "7"]) for a, kind, b in (row.split(",") for row in rows[30:])]
    third = run("watch", write(tmp_path / "y.csv", ["b,kind,a,c", *other]), *options, "--state", "s")
    assert first.out + second.out + third.out == whole.out
    missing = run("watch", write(tmp_path / "z.csv", ["a,kind", "1,u"]), *options, "--state", "s")
    assert (missing.code, "no column 'b'" in missing.err) == (2, True)


def test_files_that_are_not_what_they_were(run: Run, tmp_path: Path) -> None:
    x = stream(20)
    (tmp_path / "x").write_text("\n".join(map(repr, x[:10])))  # the last line has no end yet
    assert run("watch", "x", "--state", "s").code == 0
    (tmp_path / "x").write_text("\n".join(map(repr, x[:10])) + "5\n")
    longer = run("watch", "x", "--state", "s")
    (tmp_path / "x").write_text("\n".join(map(repr, [0.5, *x[1:]])) + "\n")
    changed = run("watch", "x", "--state", "s")
    (tmp_path / "x").write_text("1\n")
    shorter = run("watch", "x", "--state", "s")
    for done in (longer, changed, shorter):
        assert (done.code, done.out) == (2, "")
        assert "must still start with" in done.err
    (tmp_path / "x").write_text("\n".join(map(repr, x[:10])) + "\n" + "\n".join(map(repr, x[10:])) + "\n")
    assert records(run("watch", "x", "--state", "s").out)[0]["n"] == 11


@pytest.mark.parametrize(
    "options",
    [
        ("--alpha", 0.05),
        ("--seed", 1),
        ("--bet", "idle"),
        ("--alarm", "cusum"),
        ("--on-alarm", "restart"),
        ("--measure", "p-values"),
    ],
)
def test_other_options_are_refused(run: Run, tmp_path: Path, options: tuple[object, ...]) -> None:
    write(tmp_path / "x", [0.25, 0.5])
    assert run("watch", "x", "--state", "s").code == 0
    before = (tmp_path / "s").read_bytes()
    done = run("watch", "x", "--state", "s", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"s was created with {options[0]} " in done.err
    assert (tmp_path / "s").read_bytes() == before
    assert run("watch", "x", "--state", "s", "--alpha", 0.01, "--seed", 0).code == 0  # the defaults, spelt out


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--risk", 0.2), "--risk"),
        (("--risk", 0.1, "--bounds", "0,2"), "--bounds"),
        (("--risk", 0.1, "--alpha", 0.2), "--alpha"),
        (("--risk", 0.1, "--period", 50), "--period"),
        (("--rate",), "--rate"),
        ((), "--risk"),
    ],
)
def test_other_options_of_a_risk_are_refused(run: Run, tmp_path: Path, options: tuple[object, ...], name: str) -> None:
    write(tmp_path / "x", [0.25, 0.5])
    assert run("watch", "x", "--state", "s", "--risk", 0.1).code == 0
    done = run("watch", "x", "--state", "s", *options)
    assert (done.code, done.out) == (2, "")
    assert f"s was created with {name} " in done.err
    assert run("watch", "x", "--state", "s", "--risk", 0.1, "--alpha", 0.01, "--bounds", "0,1").code == 0


def test_what_is_left_out_is_that_of_the_state(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "x", [0.25, 0.5])
    assert run("watch", "x", "--state", "s", "--bet", "power", "--epsilon", 0.5, "--seed", 4).code == 0
    assert run("watch", "x", "--state", "s").code == 0
    assert saved(tmp_path / "s")["configuration"]["bet"] == "power"
    assert saved_seed(tmp_path / "s") == 4


def test_another_table_of_scores_is_refused(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "x", [0.25, 0.5])
    write(tmp_path / "r", [1, 2, 3])
    options = ("x", "--state", "s", "--measure", "frozen", "--reference", "r")
    assert run("watch", *options).code == 0
    assert run("watch", *options, "--bins", 1024).code == 0
    assert "--bins" in run("watch", *options, "--bins", 8).err
    write(tmp_path / "r", [1, 2, 4])
    assert "--reference" in run("watch", *options).err


@pytest.mark.parametrize("keep", [0, 20, 500, -1])
def test_a_damaged_state_is_refused(run: Run, tmp_path: Path, keep: int) -> None:
    write(tmp_path / "x", stream(20))
    assert run("watch", "x", "--state", "s").code == 0
    (tmp_path / "s").write_bytes((tmp_path / "s").read_bytes()[:keep])
    done = run("watch", "x", "--state", "s")
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1)
    assert " s" in done.err


@pytest.mark.parametrize(
    ("version", "cure"),
    [
        (1, "it was written by an earlier release; start with another --state"),
        (99, "it was written by a newer release"),
    ],
)
def test_a_state_of_another_version_is_refused(run: Run, tmp_path: Path, version: int, cure: str) -> None:
    write(tmp_path / "x", stream(20))
    assert run("watch", "x", "--state", "s").code == 0
    head, _, body = (tmp_path / "s").read_bytes().partition(b"\n")
    changed = json.dumps({**json.loads(head), "version": version}).encode() + b"\n" + body
    (tmp_path / "s").write_bytes(changed)
    done = run("watch", "x", "--state", "s")
    assert (done.code, done.out) == (3, "")
    assert done.err.endswith(f"s must be of version 5, got {version}: {cure}\n")
    assert (tmp_path / "s").read_bytes() == changed


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with live("--state", "s", cwd=tmp_path) as process:
        process.say("1\n")
        process.hear()
        code, out, err = piped("2\n", "--state", "s", cwd=tmp_path)
        assert (code, out) == (3, "")
        assert "one process at a time" in err
        process.say("2\n")
        assert process.hear()[0]["n"] == 2


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Numbered lines are sent again from the start each time: nothing is lost, and nothing counted twice."""
    x, rng = stream(3000, change=1500), random.Random(2)
    lines = "".join(json.dumps({"seq": i, "x": value}) + "\n" for i, value in enumerate(x, 1)).encode()
    seen: dict[int, bytes] = {}
    for kill in range(1, 7):
        with live("--state", "s", "--save-every", 0, "--bet", "simple-jumper", cwd=tmp_path) as process:
            pipe = process.process.stdin.fileno()
            os.set_blocking(pipe, False)
            sent, stop = 0, kill * len(lines) // 6
            while sent < stop:
                with suppress(BlockingIOError):
                    sent += os.write(pipe, lines[sent : min(stop, sent + rng.randrange(1, 4000))])
                process.listen(0.001)
            if kill < 6:
                while len(process.lines) < rng.randrange(1, 100):
                    process.listen(0.01)
                process.process.kill()
            else:
                process.process.stdin.close()
            while process.listen(60.0):
                pass
            for line in process.lines:  # one that comes again is the same
                assert seen.setdefault(json.loads(line)["n"], line) == line
            assert process.process.wait(60) == (1 if kill == 6 else -9)
    monitor = ex.Monitor(measures.Value(), bets.SimpleJumper(), seed=saved_seed(tmp_path / "s"))
    steps = expected(monitor.extend(x), monitor)
    assert [json.loads(seen[n]) for n in sorted(seen)] == steps
