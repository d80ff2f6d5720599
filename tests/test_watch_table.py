"""`exchangeable watch --reference TABLE`: rows with named columns, compared with a table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import exchangeable as ex
from conftest import Run
from exchangeable.martingale import LN10
from exchangeable.table_monitor import TableMonitor
from exchangeable.watch import table

PROGRAM = [sys.executable, "-m", "exchangeable", "watch"]
ROWS, CHANGE = 120, 40
WITH = ("--reference", "train.csv", "--label", "y", "--seed", 3)


def frame(n: int, seed: int) -> pl.DataFrame:
    """A table with decimals, quoted text, integers, booleans, classes and missing values."""
    rng = np.random.default_rng(seed)
    missing = rng.random(n) < 0.1
    return pl.DataFrame(
        {
            "size": [None if gone else x for gone, x in zip(missing, rng.normal(size=n).tolist(), strict=True)],
            "colour": [["red", "deep, blue", 'say "hi"', None][k] for k in rng.integers(4, size=n).tolist()],
            "grade": [[1, 2, 3, None][k] for k in rng.integers(4, size=n).tolist()],
            "ok": rng.choice([True, False], n),
            "y": rng.choice(["good", "bad"], n),
        },
        schema_overrides={"grade": pl.Int64},
    )


@pytest.fixture
def rows(tmp_path: Path) -> pl.DataFrame:
    frame(400, 1).write_csv(tmp_path / "train.csv")
    late = pl.int_range(ROWS) >= CHANGE
    found = frame(ROWS, 2).with_columns(pl.when(late).then(pl.col("size") + 3.0).otherwise(pl.col("size")))
    found.write_csv(tmp_path / "rows.csv")
    found.write_csv(tmp_path / "rows.tsv", separator="\t")
    found.write_ndjson(tmp_path / "rows.jsonl")
    comma = found.with_columns(pl.col("size").cast(pl.String).str.replace(".", ",", literal=True))
    comma.write_csv(tmp_path / "semicolon.csv", separator=";", null_value="NA", include_bom=True)
    return found


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def record(monitor: TableMonitor, alarm: bool) -> dict[str, Any]:
    findings = monitor.explain()
    return {
        "n": monitor.n,
        "log10_evidence": max(finding.log10_evidence for finding in findings),
        "alarm": alarm,
        "alarm_at": monitor.alarm_at,
        "changepoint": monitor.changepoint,
        "rejected_by": monitor.rejected_by,
        "columns": {f.name: f.log10_evidence for f in findings if f.rejected or f.log10_evidence > 0.0},
    } | ({"stopped": monitor.stopped} if monitor.bins is None else {})


def expected(monitor: TableMonitor, rows: list[dict[str, Any]], every: int | None = None) -> list[dict[str, Any]]:
    """What must be written, from rows that the library reads one by one."""
    found: list[dict[str, Any]] = []
    for row in rows:
        was, step = monitor.alarm_at, monitor.update(row)
        if (step.alarm and was is None) or (every and step.n % every == 0):
            found.append(record(monitor, step.alarm))
            assert found[-1]["log10_evidence"] == step.log_value / LN10
    return found if every and ROWS % every == 0 else [*found, record(monitor, monitor.alarm_at is not None)]


# ------------------------------------------------------------------ the numbers of the library


@pytest.mark.parametrize(
    ("name", "words", "settings"),
    [
        ("rows.csv", [], {}),
        ("rows.tsv", ["--every", 50], {}),
        ("semicolon.csv", ["--every", 30, "--bins", 16], {"bins": 16}),
        ("rows.csv", ["--alpha", 0.3, "--categorical", "grade"], {"alpha": 0.3, "categorical": "grade"}),
        ("rows.jsonl", ["--period", 100, "--bins", 8], {"period": 100, "bins": 8}),
    ],
)
def test_the_numbers_are_those_of_the_library(
    run: Run, tmp_path: Path, rows: pl.DataFrame, name: str, words: list[Any], settings: dict[str, Any]
) -> None:
    done = run("watch", name, *WITH, *words)
    monitor = ex.TableMonitor("train.csv", label="y", seed=3, **settings)
    every = words[1] if words[:1] == ["--every"] else None
    assert records(done.out) == expected(monitor, ex.read("rows.csv").to_dicts(), every)
    assert (done.code, done.err) == (1, "")
    at_once = ex.TableMonitor("train.csv", label="y", seed=3, **settings)
    at_once.extend(ex.read(name))
    assert records(done.out)[-1] == record(at_once, True)


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_any_split_gives_the_same_lines(
    run: Run, monkeypatch: pytest.MonkeyPatch, rows: pl.DataFrame, on_alarm: str
) -> None:
    words = ("rows.csv", *WITH, "--on-alarm", on_alarm, "--every", 25, "--alpha", 0.2)
    found = []
    for most, replayed in [(512, 1024), (1, 1024), (7, 10), (30, 0)]:
        monkeypatch.setattr(table, "MOST", most)
        monkeypatch.setattr(table, "REPLAYED", replayed)
        found.append(run("watch", *words).out)
    assert len(set(found)) == 1
    alarm = next(line for line in records(found[0]) if line["alarm"])
    assert "size" in alarm["rejected_by"]  # those of the test that ended, also with a restart
    assert alarm["alarm_at"] == alarm["n"]
    if on_alarm == "restart":
        after = next(line for line in records(found[0]) if line["n"] > alarm["n"])
        assert (after["alarm"], after["alarm_at"]) == (False, alarm["n"])


def test_standard_input_and_what_is_written(tmp_path: Path, rows: pl.DataFrame) -> None:
    text, words = (tmp_path / "rows.csv").read_bytes(), [*map(str, WITH)]

    def piped(*more: str) -> tuple[int, list[int]]:
        done = subprocess.run(
            [*PROGRAM, "-", *words, *more], input=text, capture_output=True, cwd=tmp_path, check=False
        )
        assert done.stderr == b""
        return done.returncode, [json.loads(line)["n"] for line in done.stdout.splitlines()]

    code, (alarm, end) = piped()
    assert (code, end) == (1, ROWS)
    assert CHANGE < alarm < ROWS
    assert piped("--alarms-only", "--every", "10") == (1, [alarm])
    assert piped("--quiet") == (1, [])


# ------------------------------------------------------------------ labels that come later


def late_lines(rows: pl.DataFrame, wait: int) -> list[dict[str, Any]]:
    """Rows, each with an id and a time, and their labels ten rows later; each eleventh label never comes."""
    lines: list[dict[str, Any]] = []
    for i, row in enumerate(rows.to_dicts()):
        y = row.pop("y")
        lines.append({"id": f"r{i}", "time": float(i), **row})
        if i % 11:
            lines.append({"id": f"r{i}", "time": float(i + wait), "y": y})
    return sorted(lines, key=lambda line: line["time"])


def queue(monitor: TableMonitor) -> dict[str, int]:
    return {"waiting": len(monitor.waiting), "ignored_labels": monitor.ignored_labels}


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_late_labels(run: Run, tmp_path: Path, rows: pl.DataFrame, on_alarm: str) -> None:
    lines = late_lines(rows, 10)
    (tmp_path / "late").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = (*WITH, "--wait", 20, "--every", 20, "--on-alarm", on_alarm)
    done = run("watch", "late", *words)
    monitor = ex.TableMonitor("train.csv", label="y", seed=3, wait=20, on_alarm=on_alarm)
    for line in lines:
        key, time = line.pop("id"), line.pop("time")
        monitor.label(key, line["y"], time=time) if "y" in line else monitor.update(line, key, time)
    last = records(done.out)[-1]
    assert last == record(monitor, on_alarm == "latch") | queue(monitor)
    assert last["waiting"] > 0
    for stop in (40, 90, len(lines)):  # the same lines in three parts
        text = "".join((tmp_path / "late").read_text().splitlines(keepends=True)[:stop])
        (tmp_path / "part").write_text(text)
        resumed = run("watch", "part", *words, "--state", "s")
    assert records(resumed.out)[-1] == last


def test_a_label_may_raise_the_alarm_and_start_a_new_test(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = {"a": rng.normal(size=400), "y": rng.choice(["p", "q"], 400)}
    pl.DataFrame(x).write_csv(tmp_path / "train.csv")
    a = rng.normal(3.0 * (np.arange(300) >= 100)).tolist()
    lines = [[{"id": f"r{i}", "a": a[i]}, {"id": f"r{i}", "y": "p"}][: 2 if i < 60 else 1] for i in range(300)]
    items = [item for some in lines for item in some]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, items)))
    words = ("--reference", "train.csv", "--label", "y", "--wait", "forever", "--seed", 1)
    monitor = TableMonitor("train.csv", "y", wait="forever", seed=1, on_alarm="restart")
    alarms: list[Any] = []
    for item in items:
        test = monitor.test
        if "y" in item:
            monitor.label(item["id"], item["y"])
        else:
            monitor.update({"a": item["a"]}, item["id"])
        if monitor.test != test:
            alarms.append([monitor.n, monitor.alarm_at, monitor.changepoint, monitor.rejected_by])
    assert [by[0] for *_, by in alarms] == ["label y", "a"]
    done = run("watch", "rows.jsonl", *words, "--on-alarm", "restart")
    found = [record for record in records(done.out) if record["alarm"]]
    assert [[r["n"], r["alarm_at"], r["changepoint"], r["rejected_by"]] for r in found] == alarms
    assert done.code == 1


@pytest.mark.parametrize(
    ("line", "clue"),
    [
        ('{"size": 1}', "line 2 must have 'id', a string of 1 to 256 printable characters or an integer"),
        ('{"id": true, "size": 1}', "line 2 must have 'id'"),
        ('{"id": "b", "y": "good", "time": 2}', "line 2: id must be that of a waiting example, got 'b'"),
        ('{"id": "a", "y": null, "time": 2}', "line 2: y must be the label of row 'a', got None"),
        ('{"id": "a", "y": "good"}', "line 2: time must be"),
    ],
)
def test_labels_that_are_refused(run: Run, tmp_path: Path, rows: pl.DataFrame, line: str, clue: str) -> None:
    first = '{"id": "a", "time": 1, "size": 1, "colour": "red", "grade": 1, "ok": true}'
    (tmp_path / "late").write_text(f"{first}\n{line}\n")
    done = run("watch", "late", *WITH, "--wait", 20)
    assert (done.code, [found["n"] for found in records(done.out)]) == (3, [1])
    assert clue in done.err


def test_labels_that_come_again_are_counted(run: Run, tmp_path: Path, rows: pl.DataFrame) -> None:
    lines = [json.dumps(line) + "\n" for line in late_lines(rows, 10)]
    twice = [line for line in lines for _ in range(1 + ('"y"' in line))]
    found = []
    for name, content in (("once", lines), ("twice", twice)):
        (tmp_path / name).write_text("".join(content))
        done = run("watch", name, *WITH, "--wait", 20, "--state", f"{name}.state")
        found.append(records(done.out)[-1])
    assert found[0].pop("ignored_labels") == 0
    assert found[1].pop("ignored_labels") == len(twice) - len(lines)
    assert found[0] == found[1]


def test_delays_of_the_reference(run: Run, tmp_path: Path, rows: pl.DataFrame) -> None:
    train = ex.read("train.csv")
    train.with_columns(took=pl.int_range(train.height) % 40).write_csv("timed.csv")
    lines = late_lines(rows, 10)
    (tmp_path / "late").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("watch", "late", "--reference", "timed.csv", *WITH[2:], "--wait", 20, "--delay", "took")
    monitor = ex.TableMonitor("timed.csv", label="y", seed=3, wait=20, delay="took")
    for line in lines:
        key, time = line.pop("id"), line.pop("time")
        monitor.label(key, line["y"], time=time) if "y" in line else monitor.update(line, key, time)
    assert records(done.out)[-1] == record(monitor, monitor.alarm_at is not None) | queue(monitor)


def test_labels_come_late_in_json_only(run: Run, rows: pl.DataFrame) -> None:
    done = run("watch", "rows.csv", *WITH, "--wait", "forever")
    assert (done.code, done.out) == (2, "")
    assert "--wait needs JSONL: a late label is a line with an id and the label, which CSV cannot hold" in done.err


# ------------------------------------------------------------------ rows and options that are refused


@pytest.mark.parametrize(
    ("lines", "n", "clue"),
    [
        (["size,colour,grade,ok", "1,red,1,true", "x,red,1,true"], 1, "line 3: column 'size' must be a finite number"),
        (["size,colour,grade,ok", "1e200,red,1,true"], 0, "line 2: column 'size' must be a finite number"),
        (["Size,colour,grade,ok", "1,red,1,true"], 0, "must have the column 'size', got none; it has"),
        (["size,colour,grade,ok,ip", "1,red,1,true,2"], 0, "must have only columns of the reference"),
        (["size,size", "1,2"], 0, "line 1: two columns are named 'size'"),
        (["size:colour", "1:red"], 0, "line 1: the header must name columns of the reference ('size', 'colour', "),
        (["size,colour,grade,ok", "1,red,1"], 0, "line 2: the number of cells must be 4, as in the header, got 3"),
        (["size,colour,grade,ok", '1,"red,1,true'], 0, "line 2: a quotation mark must be closed"),
        (["size,colour,grade,ok", "1,red,1,\0"], 0, "line 2: column 'ok' must be true or false"),
        (["size,colour,grade,ok"], 0, "there must be at least one example, got none"),
        ([], 0, "there must be at least one example, got none"),
        (['{"size": 1, "colour": "red", "grade": 1}'], 0, "must have the column 'ok', got none"),
        (
            ['{"size": [1], "colour": "red", "grade": 1, "ok": true}'],
            0,
            "line 1: column 'size' must be a finite number",
        ),
        (['{"size": 1, "size": 2}'], 0, "line 1 must not repeat a key, got 'size'"),
        (['{"size": NaN}'], 0, "line 1 must be JSON, which has no NaN: write null for a missing value"),
        (['{"size": 1'], 0, "line 1 must be JSON: expecting ',' delimiter"),
        (["\udcff"], 0, "line 1 must be UTF-8 text; decompress or convert the input first"),
        (["[1, 2]"], 0, "line 1 must be an object with a value for each column, got [1, 2]"),
    ],
)
def test_rows_that_are_refused(
    run: Run, tmp_path: Path, rows: pl.DataFrame, lines: list[str], n: int, clue: str
) -> None:
    """Nothing of a wrong row is learnt, and everything before it is kept."""
    (tmp_path / "x").write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    done = run("watch", "x", *WITH)
    assert (done.code, [found["n"] for found in records(done.out)]) == (3, [n] * (n > 0))
    assert clue in done.err


def test_invalid_rows_as_missing(run: Run, tmp_path: Path, rows: pl.DataFrame) -> None:
    lines = ['{"size": "x", "colour": "new", "grade": 1, "ok": true}', '{"size": 1, "more": 2, "colour": null}']
    (tmp_path / "x").write_text("\n".join(lines))
    done = run("watch", "x", *WITH, "--invalid", "missing")
    assert (done.code, done.err) == (0, "")
    last = records(done.out)[-1]
    assert (last["n"], last["alarm"], last["rejected_by"]) == (2, False, [])
    assert last["invalid_cells"] == 4  # x, more, and two columns of the second row


@pytest.mark.parametrize(
    ("words", "code", "clue"),
    [
        (["--reference", "absent.csv"], 3, "absent.csv: the file cannot be read"),
        (["--reference", "rows.csv", "--label", "z"], 3, "rows.csv: label must be a column of the reference, got 'z'"),
        (["--reference", "-"], 2, "--reference must be a file, got -"),
        (["--reference", "small.csv"], 3, "small.csv: reference must have at least 30 rows, got 2"),
        (["--reference", "train.csv", "--alpha", 2], 2, "alpha must lie in (0, 1)"),
        (["--reference", "train.csv", "--alpha", 0.1, "--period", 9], 2, "--alpha and --period cannot be combined"),
        (["--reference", "train.csv", "--bet", "power"], 2, "--bet does not apply to a reference table, got power"),
        (["--reference", "train.csv", "--alarm", "ville"], 2, "--alarm does not apply to a reference table, got ville"),
        (["--reference", "train.csv", "--features", "size"], 2, "--features does not apply to a reference table"),
        (["--reference", "train.csv", "--wait", 5], 2, "--wait requires --label"),
        (
            ["--reference", "train.csv", "--label", "y", "--wait", "x"],
            2,
            "--wait must be a number of seconds or forever",
        ),
        (
            ["--reference", "train.csv", "--keep", "x"],
            2,
            "categorical and keep must name columns of the reference, got 'x'",
        ),
        (["--reference", "train.csv", "--id", "key"], 2, "--id requires --wait"),
        (["--reference", "train.csv", "--delay", "size"], 2, "--delay requires --wait"),
        (
            [*WITH, "--wait", "forever", "--delay", "z"],
            2,
            "delay must be a column of the reference besides the label, got 'z'",
        ),
        ([*WITH, "--wait", "forever", "--id", "size"], 2, "'size' is a column of the reference that is tested"),
        (["--invalid", "missing"], 2, "--invalid requires --reference TABLE, without --measure, --rate or --risk"),
        (
            ["--reference", "train.csv", "--measure", "frozen", "--wait", 5],
            2,
            "--wait requires --reference TABLE",
        ),
        (["--reference", "train.csv", "--measure", "value"], 2, "require --measure frozen"),
    ],
)
def test_options_that_are_refused(
    run: Run, tmp_path: Path, rows: pl.DataFrame, words: list[object], code: int, clue: str
) -> None:
    (tmp_path / "small.csv").write_text("a\n1\n2\n")
    done = run("watch", "rows.jsonl", *words)
    assert (done.code, done.out) == (code, "")
    assert clue in done.err


# ------------------------------------------------------------------ the state


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_a_file_that_grows_is_resumed(run: Run, tmp_path: Path, rows: pl.DataFrame, on_alarm: str) -> None:
    lines = (tmp_path / "rows.csv").read_text().splitlines(keepends=True)
    words = ("--reference", "train.csv", "--on-alarm", on_alarm, "--every", 10, "--state", "s")  # the seed is drawn
    parts: dict[int, dict[str, Any]] = {}
    for stop in (2, 30, 75, len(lines)):
        (tmp_path / "x.csv").write_text("".join(lines[:stop]))
        done = run("watch", "x.csv", *words)
        assert not done.err
        found = {line["n"]: line for line in records(done.out)}
        assert all(parts[n] == line for n, line in found.items() if n in parts)
        parts |= found
    whole = records(run("watch", "rows.csv", *words[:-1], "t").out)
    assert [parts[line["n"]] for line in whole] == whole
    assert done.code == (1 if on_alarm == "latch" else 0)
    refused = run("watch", "x.csv", *words, "--alpha", 0.5)
    assert (refused.code, "was created with --alpha 0.01, got 0.5" in refused.err) == (2, True)
    frame(50, 9).write_csv(tmp_path / "train.csv")
    assert "was created with --reference" in run("watch", "x.csv", *words).err


@pytest.mark.parametrize("wait", [None, 20])
def test_rows_with_numbers_may_be_sent_again(run: Run, tmp_path: Path, rows: pl.DataFrame, wait: int | None) -> None:
    plain = rows.to_dicts() if wait is None else late_lines(rows, 10)
    count, lines = 0, []
    for line in plain:
        count += "size" in line
        lines.append(line | ({"seq": count} if "size" in line else {}))
    words = (*WITH, "--every", 10, *(() if wait is None else ("--wait", wait)))

    def watch(parts: list[dict[str, Any]], *more: str) -> Any:
        (tmp_path / "part").write_text("".join(json.dumps(line) + "\n" for line in parts))
        with (tmp_path / "part").open("rb") as part:
            command = [*PROGRAM, *map(str, words), *more]
            return subprocess.run(command, stdin=part, capture_output=True, text=True, cwd=tmp_path, check=False)

    whole = records(watch(plain).stdout)
    found: list[dict[str, Any]] = []
    for part in (lines[:50], lines[30:70], lines[45:] + lines[20:40]):
        found += records(watch(part, "--state", "s").stdout)
    assert found[-1] | {"ignored_labels": 0} == whole[-1] | {"ignored_labels": 0}
    gap = watch(lines[:5] + lines[6:])
    missing = lines[5].get("seq")
    assert (gap.returncode, f"line 6: seq must be {missing}, got {(missing or 0) + 1}" in gap.stderr) == (3, True)
    for wrong, clue in [(0, "seq must be an integer from 1 to"), ("1", "got '1'"), (True, "got True")]:
        assert clue in watch([lines[0] | {"seq": wrong}]).stderr
    if wait is not None:
        label = next(line for line in lines if "y" in line)
        assert "a label must have none, got 7" in watch([*lines[:11], label | {"seq": 7}]).stderr


def test_a_column_may_be_called_seq(run: Run, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=(100, 2)).round(3)
    pl.DataFrame(values, schema=["a", "seq"]).write_csv(tmp_path / "train.csv")
    (tmp_path / "rows").write_text('{"a": 1, "seq": 0.5}\n' * 2)
    assert records(run("watch", "rows", "--reference", "train.csv").out)[-1]["n"] == 2


def test_killed_and_resumed(tmp_path: Path, rows: pl.DataFrame) -> None:
    words = [*PROGRAM, "rows.jsonl", *map(str, WITH), "--every", "1", "--state", "s", "--save-every", "0"]
    seen: dict[int, str] = {}
    for kill in (True, True, False):
        with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=tmp_path, text=True, bufsize=1) as process:
            assert process.stdout is not None
            for i, line in enumerate(process.stdout):
                assert seen.setdefault(json.loads(line)["n"], line) == line  # one that comes again is the same
                if kill and i == 3:
                    process.kill()
        assert process.returncode == (-9 if kill else 1)
    monitor = ex.TableMonitor(tmp_path / "train.csv", label="y", seed=3)
    whole = expected(monitor, ex.read(tmp_path / "rows.jsonl").to_dicts(), 1)
    assert [json.loads(seen[n]) for n in sorted(seen)] == whole
