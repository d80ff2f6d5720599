"""`exchangeable spark ...` as a user meets it: in this process on a shared session, and once for real."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import exchangeable as ex
import sparks
from conftest import Done, Run
from exchangeable import bets, measures
from exchangeable.cli.spark.running import CONFIGURED
from exchangeable.fleet import stream_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS, N = ("a", "b", "007", "ü'\"; DROP"), 200


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


@pytest.fixture
def here(run: Run, tmp_path: Path) -> Run:
    """The program, with the names of files taken as those in the folder: Java stays where it was started."""
    names = {"readings.csv", "readings.jsonl", "readings", "bad.csv", "torn.jsonl", "nowhere.csv", "table.parquet"}
    names |= {"in", "out", "out2", "p", "kept", "taken"}

    def call(*words: object) -> Done:
        return run(*(tmp_path / str(word) if word in names else word for word in words))

    return call


def readings(key: str, n: int = N) -> list[float]:
    """Of which those of "b" change after half."""
    x = np.random.default_rng(KEYS.index(key)).normal(size=n)
    x[n // 2 :] += 5.0 * (key == "b")
    return [float(value) for value in x]


def rows(n: int = N) -> list[tuple[str, int, float]]:
    table = [(key, i + 1, x) for key in KEYS for i, x in enumerate(readings(key, n))]
    np.random.default_rng(7).shuffle(table)
    return [(str(key), int(seq), float(x)) for key, seq, x in table]


def write_csv(path: Path, table: list[tuple[Any, ...]]) -> Path:
    quoted = (",".join('"' + str(cell).replace('"', '""') + '"' for cell in row) for row in table)
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["device,seq,reading", *quoted]) + "\n", encoding="utf-8")
    return path


def write_jsonl(path: Path, table: list[tuple[Any, ...]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"device": key, "seq": seq, "reading": x}) for key, seq, x in table]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


WORDS = ("--key", "device", "--order", "seq", "--features", "reading")
QUOTED = ("--option", 'escape="')  # as in RFC 4180


def test_streams_of_a_csv_file(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    write_csv(tmp_path / "readings.csv", rows())
    done = here("spark", "test", "readings.csv", *WORDS, *QUOTED, "--output", "out", "--format", "json", "--seed", 7)
    assert done.code == 1
    record = json.loads(done.out)
    assert record["n_streams"] == len(KEYS)
    assert [found["stream"] for found in record["first"]] == ["b"]
    again = here("spark", "report", "out", "--format", "json")
    assert (again.code, json.loads(again.out)) == (1, record)
    strict = here("spark", "report", "out", "--rate", 1e-300, "--streams", 9, "--evidence", "adjusted")
    assert (strict.code, strict.out.splitlines()[1]) == (0, "The seed is 7.")
    for row in spark.read.parquet(str(tmp_path / "out")).collect():
        assert row["seed"] == record["seed"] == 7
        monitor = ex.Monitor(measures.Value(), seed=stream_seed(7, row["device"]))
        path = monitor.extend(readings(row["device"]))
        assert row["log10_martingale"] == path.log_value[-1] / math.log(10.0)
        assert (row["n"], row["alarm"], row["alarm_at"]) == (N, monitor.alarm_at is not None, monitor.alarm_at)


def test_words_and_no_rejection(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "readings.jsonl", [row for row in rows() if row[0] != "b"])
    options = ("--steps", "--bet", "simple-mixture", "--seed", 3)
    done = here("spark", "test", "readings.jsonl", *WORDS, "--output", "out", *options)
    words = "NONE of 3 streams is flagged as changed, at a false discovery rate of 5 %."
    assert (done.code, done.out) == (0, f"{tmp_path / 'out'}: {words}\nThe seed is 3.\n")
    assert spark.read.parquet(str(tmp_path / "out")).where("kind = 'step'").count() == 3 * N


def test_a_monitor_goes_on_from_its_checkpoint(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    table = sorted(rows(), key=lambda row: row[1])
    half = len(table) // 2
    places = ("--output", "out", "--checkpoint", "kept")
    command = ("spark", "monitor", "in", *WORDS, *QUOTED, *places, "--available-now", "--buckets", 4)
    write_csv(tmp_path / "in" / "1.csv", table[:half])
    assert here(*command, "--seed", 7).code == 0
    write_csv(tmp_path / "in" / "2.csv", table[half:] + table[:3])
    done = here(*command, "--format", "json")  # the seed was stored
    assert done.code == 1
    record = json.loads(done.out)
    assert [found["stream"] for found in record["first"]] == ["b"]
    assert record["seed"] == 7
    written = spark.read.parquet(str(tmp_path / "out"))
    for key in KEYS:
        steps = written.where("kind = 'step'").where(written["device"] == key).orderBy("n").collect()
        monitor = ex.Monitor(measures.Value(), bets.CompositeJumper(), seed=stream_seed(7, key))
        path = monitor.extend(readings(key))
        assert [step["p"] for step in steps] == path.p.tolist()
        assert [step["log10_martingale"] for step in steps] == (path.log_value / math.log(10.0)).tolist()
    repeated = written.where("kind = 'duplicate'").collect()
    assert sum(row["count"] for row in repeated) == 3
    write_csv(tmp_path / "in" / "3.csv", [(key, N + 1, 0.5) for key in KEYS])
    refused = here(*command[:-1], 5)
    assert refused.code == 3
    assert "4 buckets" in refused.err
    refused = here(*command, "--seed", 5)
    assert refused.code == 2
    assert "seed must be 7, with which checkpoint" in refused.err
    last = here(*command, "--streams", 9, "--format", "json")
    assert last.code == 1  # nothing was lost
    record = json.loads(last.out)
    assert (record["n_streams"], record["fleet_size"]) == (len(KEYS), 9)
    assert math.isclose(record["log10_threshold"], math.log10(9 / 0.05))
    again = here("spark", "report", "out", "--streams", 9, "--format", "json")  # adjusted, as it is a live fleet
    assert json.loads(again.out) == record


def test_a_torn_line_in_a_stream_of_json_is_reported(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    table = [(key, seq, x) for key, seq, x in rows(20) if key == "a"]
    with write_jsonl(tmp_path / "in" / "1.jsonl", table).open("a") as file:
        file.write('{"device": "a", "se\n')
    places = ("--output", "out", "--checkpoint", "kept")
    options = ("--available-now", "--buckets", 2, "--bad", "report", "--rate", 1e-9, "--format", "json")
    done = here("spark", "monitor", "in", *WORDS, *places, *options)
    assert done.code == 0
    written, seed = spark.read.parquet(str(tmp_path / "out")), json.loads(done.out)["seed"]  # drawn
    steps = [row["p"] for row in written.where("kind = 'step'").orderBy("n").collect()]
    assert steps == ex.PValues(measures.Value(), seed=stream_seed(seed, "a")).extend(readings("a", 20)).tolist()
    assert {row["seed"] for row in written.collect()} == {seed}
    assert [row["kind"] for row in written.where("kind != 'step'").collect()] == ["bad"]


def test_pvalues_of_a_table(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(60, 2)), generator.integers(0, 2, 60)
    table = [(i, float(a), float(b), int(c)) for i, ((a, b), c) in enumerate(zip(X, y, strict=True))]
    frame = spark.createDataFrame(table, "i int, a double, b double, c int")
    frame.write.parquet(str(tmp_path / "table.parquet"))
    words = ("--order", "i", "--features", "a,b", "--label", "c", "--output", "p", "--seed", 5)
    done = here("spark", "pvalues", "table.parquet", *words)
    assert (done.code, done.err) == (0, "exchangeable: note: the seed is 5\n")
    found = [row["p"] for row in spark.read.parquet(str(tmp_path / "p")).orderBy("i").collect()]
    assert found == ex.PValues(measures.NearestNeighbour(), seed=5).extend(X, y).tolist()


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("command", ["test", "pvalues"])
def test_an_existing_output_is_refused_before_java_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, prefix: str
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Java was started")

    monkeypatch.setattr(f"exchangeable.cli.spark.{command}.spark_session", started)
    words = "spark", command, "in.csv", "--order", "seq", "--features", "a"
    role = ("--key", "device") if command == "test" else ("--label", "c")
    output = f"{prefix}{tmp_path}"
    done = run(*words, *role, "--output", output, "--master", "local[1]" if not prefix else "spark://nowhere:7077")
    assert done.code == 2
    assert f"--output must not exist, got {output!r}: choose another folder, or remove it" in done.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("report", "nowhere"), 3, "path must be an existing file or folder, got 'nowhere'"),
        (("report", "{here}"), 3, "path must hold Parquet files, got"),
        (("reshard", "nowhere", "new", "--buckets", "2"), 3, "checkpoint must be an existing file or folder"),
        (("reshard", "{here}", "{here}", "--buckets", "2"), 2, "target must not exist, got"),
    ],
)
def test_missing_folders_are_refused_before_java_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, message: str
) -> None:
    for variable in CONFIGURED:
        monkeypatch.delenv(variable, raising=False)
    for module in ("finished", "reshard"):
        monkeypatch.setattr(f"exchangeable.cli.spark.{module}.spark_session", None)
    done = run("spark", *(word.format(here=tmp_path) for word in words))
    assert (done.code, message in done.err) == (code, True), done.err


def test_a_report_of_something_else(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    spark.createDataFrame([("a", 1)], "device string, n int").write.parquet(str(tmp_path / "out"))
    done = here("spark", "report", "out")
    assert done.code == 2
    assert "must be the output of `spark test` or `spark monitor`" in done.err
    assert "without the columns alarm, log10_martingale, seed" in done.err


@pytest.mark.parametrize("command", ["test", pytest.param("monitor", marks=pytest.mark.soak)])
def test_a_bet_follows_the_alarm_and_another_is_noted(
    spark: SparkSession, here: Run, tmp_path: Path, command: str
) -> None:
    """Once, as a note; executors and functions of the library keep quiet."""
    write_csv(tmp_path / "in" / "1.csv", [row for row in rows(40) if row[0] in ("a", "b")])
    options = [*QUOTED, "--alarm", "shiryaev-roberts", "--period", 20, "--seed", 3]
    options += ["--steps"] if command == "test" else ["--available-now", "--buckets", 2]
    where = ("--checkpoint", "kept") if command == "monitor" else ()
    assert here("spark", command, "in", *WORDS, *options, "--output", "out", *where).err == ""
    step = spark.read.parquet(str(tmp_path / "out")).where("device = 'b'").orderBy("n").collect()[-1]
    parts = measures.Value(), bets.Sentinel(), ex.alarms.ShiryaevRoberts(20)
    path = ex.Monitor(*parts, seed=stream_seed(3, "b")).extend(readings("b", 40))
    assert step["log10_martingale"] == path.log_value[-1] / math.log(10.0)
    where = ("--checkpoint", "taken") if command == "monitor" else ()
    done = here("spark", command, "in", *WORDS, *options, "--bet", "adaptive", "--output", "out2", *where)
    assert done.err.startswith("exchangeable: note: the bet Adaptive learns to stay idle on noise")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("readings.csv", "--output", "out", "--key", "nobody"), 2, "nobody"),
        (("readings.csv", "--output", "taken"), 2, "taken"),
        (("nowhere.csv", "--output", "out"), 3, "nowhere.csv"),
        (("readings.csv", "--output", "out", "--alpha", "2"), 2, "alpha must"),
        (("readings.csv", "--output", "out", "--conf", "nonsense"), 2, "--conf must be NAME=VALUE"),
        (("bad.csv", "--output", "out"), 3, "'a'"),
        (("torn.jsonl", "--output", "out"), 3, ""),
        (("readings", "--output", "out"), 2, "of one known kind"),
    ],
)
def test_failures_are_one_sentence(
    spark: SparkSession, here: Run, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    write_csv(tmp_path / "readings.csv", rows(3))
    write_csv(tmp_path / "bad.csv", [("a", 1, 0.5), ("a", 2, "half"), ("a", 3, 1.0)])
    (tmp_path / "torn.jsonl").write_text('{"device": "a", "seq": 1, "reading": 1.5}\n{"device": "a", "se\n')
    (tmp_path / "taken").mkdir()
    (tmp_path / "readings").mkdir()
    given = ("--key", "device") if "--key" not in words else ()
    done = here("spark", "test", *words, *given, "--order", "seq", "--features", "reading")
    assert done.code == code, done.err
    assert message in done.err
    sentence = [line for line in done.err.splitlines() if line.startswith("exchangeable: ")]
    assert len(sentence) == 1
    assert len(sentence[0]) < 500
    assert not (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.usefixtures("system_seeds")
def test_bad_rows_go_to_the_output_if_so_asked(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    write_csv(tmp_path / "bad.csv", [("a", 1, 0.5), ("a", 2, "half"), ("a", "x", 1.0), ("a", 4, "1.5")])
    words, seeds = ("--steps", "--bad", "report", "--format", "json"), set()
    for output in ("out", "out2"):
        done = here("spark", "test", "bad.csv", *WORDS, *words, "--output", output)
        assert done.code == 0
        found = spark.read.parquet(str(tmp_path / output)).collect()
        kinds = sorted(row["kind"] for row in found)
        assert kinds.count("step") == 2
        assert kinds.count("bad") == 2
        assert {row["seed"] for row in found} == {json.loads(done.out)["seed"]}
        assert json.loads(done.out)["n_refused"] == 2
        seeds.add(found[0]["seed"])
    short = here("spark", "test", "bad.csv", *WORDS, "--bad", "report", "--output", "p")
    assert "\n2 rows were refused, and not tested.\n" in short.out
    assert len(seeds) == 2  # each run draws its own


def test_a_line_with_too_many_fields_is_no_record(spark: SparkSession, here: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("device,seq,reading,note\nd1,1,0.5,ok\nd1,7,2,5,ok\n")  # a decimal comma
    done = here("spark", "test", "bad.csv", *WORDS, "--output", "out")
    assert done.code == 3
    reported = here("spark", "test", "bad.csv", *WORDS, "--output", "out2", "--steps", "--bad", "report")
    assert reported.code == 0
    kinds = sorted(row["kind"] for row in spark.read.parquet(str(tmp_path / "out2")).collect())
    assert kinds == ["bad", "step"]


def test_kafka_without_its_package_names_it(spark: SparkSession, here: Run) -> None:
    words = ("--input", "kafka", "--option", "subscribe=t", "--output", "out", "--checkpoint", "kept")
    done = here(
        "spark", "monitor", "127.0.0.1:9", *WORDS, *words, "--schema", "device string, seq long, reading double"
    )
    assert done.code == 2
    assert "spark-sql-kafka-0-10" in done.err
    assert here("spark", "monitor", "127.0.0.1:9", *WORDS, *words).code == 2  # without a schema


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    surroundings = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    (tmp_path / "x.csv").touch()
    command = [sys.executable, "-m", "exchangeable", "spark", "test", "x.csv", *WORDS, "--output", "out"]
    done = subprocess.run(command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "openjdk-17-jre-headless" in done.stderr
    assert done.stderr.count("\n") == 1
