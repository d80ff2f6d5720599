"""The command line as its users meet it: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import exchangeable as ex
from exchangeable import alarms, bets, cli, measures

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the paper's datasets are not on this machine")


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the program in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    def call(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["exchangeable", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        signal.signal(signal.SIGINT, before)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(int(exit_.value.code or 0), captured.out, captured.err)

    return call


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
    for command in ("demo", "test", "fetch", "reproduce"):
        done = run(command, "--help")
        assert done.code == 0
        assert command in done.out


def test_demo_says_both_verdicts_and_draws(run: Run, tmp_path: Path) -> None:
    done = run("demo")
    assert done.code == 0
    assert done.out.index("original order\nREJECTED") < done.out.index("shuffled\nNOT REJECTED")
    assert (tmp_path / "exchangeable-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "exchangeable-demo.png" in done.out
    assert "your data is i.i.d" not in done.out


@pytest.mark.parametrize("change", [True, False])
def test_verdict_is_the_library_s(run: Run, tmp_path: Path, change: bool) -> None:
    file = write_csv(tmp_path / "data.csv", change=change)
    done = run("test", file, "--label", "kind", "--format", "json", "--seed", 3, "--alpha", 0.05)
    X, y = examples(change=change)
    path = ex.Monitor(measures.NearestNeighbour(), bets.Plugin(), alarms.Ville(0.05), seed=3).extend(X, y)
    said = json.loads(done.out)
    assert list(said) == [
        "n", "n_features", "measure", "bet", "alpha", "threshold",
        "log10_martingale", "log10_max", "rejected", "rejected_at", "seed",
    ]  # fmt: skip
    assert (said["n"], said["n_features"], said["bet"], said["seed"]) == (400, 3, "plugin", 3)
    assert said["measure"] == "nearest-neighbour"
    assert said["threshold"] == 20.0
    assert said["log10_martingale"] == path.log_value[-1] / np.log(10.0)
    assert said["log10_max"] == max(0.0, path.log_value.max() / np.log(10.0))
    assert said["rejected"] is change is bool(path.alarm.any())
    assert said["rejected_at"] == (int(path.alarm.argmax()) + 1 if change else None)
    assert done.code == (1 if change else 0)
    assert done.err == ""


@pytest.mark.parametrize("bet", ["plugin", "simple-mixture", "power", "sleepy-jumper"])
def test_every_bet_has_a_name(run: Run, tmp_path: Path, bet: str) -> None:
    done = run("test", write_csv(tmp_path / "d.csv", change=True), "--label", "kind", "--bet", bet, "--format", "json")
    assert json.loads(done.out)["bet"] == bet
    assert done.code in (0, 1)


def test_every_format_gives_the_same_numbers(run: Run, tmp_path: Path) -> None:
    X, y = examples(change=True)
    write_csv(tmp_path / "d.csv", change=True)
    (tmp_path / "d.tsv").write_text((tmp_path / "d.csv").read_text().replace(",", "\t"))
    columns = {name: X[:, k] for k, name in enumerate("abc")} | {"kind": y}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "d.parquet")
    np.savez(tmp_path / "d.npz", X=X, y=np.array(y))
    L = ("--label", "kind")
    results = {
        run("test", tmp_path / f"d.{suffix}", *label, "--format", "json").out
        for suffix, label in {"csv": L, "tsv": L, "parquet": L, "npz": ()}.items()
    }
    assert len(results) == 1


def test_text_says_what_it_means_and_does_not(run: Run, tmp_path: Path) -> None:
    rejected = run("test", write_csv(tmp_path / "a.csv", change=True), "--label", "kind")
    kept = run("test", write_csv(tmp_path / "b.csv", change=False), "--label", "kind")
    for done in (rejected, kept):
        assert "Means:" in done.out
        assert "Does not mean:" in done.out
        assert "400 examples, 3 features, 2 classes" in done.out
    assert "REJECTED at level 1 %" in rejected.out
    assert "never confirm" in kept.out


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot(run: Run, tmp_path: Path, suffix: str) -> None:
    done = run("test", write_csv(tmp_path / "d.csv", change=True), "--label", "kind", "--plot", f"p.{suffix}")
    assert done.code == 1
    assert (tmp_path / f"p.{suffix}").stat().st_size > 1000
    assert not list(tmp_path.glob(".p.*"))


def test_categorical_columns_are_never_guessed(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal()},{['red', 'blue'][rng.integers(2)]},{['no', 'yes'][rng.integers(2)]}" for _ in range(60)]
    file = tmp_path / "d.csv"
    file.write_text("size,colour,bought\n" + "\n".join(rows) + "\n")
    refused = run("test", file, "--label", "bought")
    assert refused.code == 3
    assert "colour" in refused.err
    assert "--categorical colour" in refused.err
    encoded = run("test", file, "--label", "bought", "--categorical", "colour", "--format", "json")
    assert json.loads(encoded.out)["n_features"] == 3
    dropped = run("test", file, "--label", "bought", "--drop", "colour", "--format", "json")
    assert json.loads(dropped.out)["n_features"] == 1


BAD_FILES = {
    "empty": (b"", "empty"),
    "header only": (b"a,b,kind\n", "row"),
    "one class": (b"a,kind\n" + b"1,x\n" * 9, "class"),
    "text among numbers": (b"a,kind\n1,x\n2,y\nabc,x\n3,y\n", "data row 3"),
    "nan": (b"a,kind\n1,x\nnan,y\n3,x\n4,y\n", "data row 2"),
    "missing": (b"a,kind\n1,x\n,y\n3,x\n4,y\n", "data row 2"),
    "infinite": (b"a,kind\n1,x\ninf,y\n3,x\n4,y\n", "data row 2"),
    "ragged": (b"a,kind\n1,x\n2,y,z\n3,x\n4,y\n", "row"),
    "utf-16": ("a,kind\n1,x\n2,y\n".encode("utf-16"), "encoding"),
    "latin-1": ("a,kind\n1,é\n2,y\n1,é\n2,y\n".encode("latin-1"), "encoding"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_sentence(run: Run, tmp_path: Path, name: str) -> None:
    content, clue = BAD_FILES[name]
    (tmp_path / "bad.csv").write_bytes(content)
    done = run("test", "bad.csv", "--label", "kind")
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("exchangeable: ")
    assert done.err.count("\n") == 1
    assert "bad.csv" in done.err
    assert clue in done.err.lower()


@pytest.mark.parametrize(
    ("words", "code", "clue"),
    [
        (["test", "missing.csv", "--label", "kind"], 3, "missing.csv"),
        (["test", "d.csv", "--label", "kid"], 2, "kind"),
        (["test", "d.csv"], 2, "label"),
        (["test", "d.csv", "--label", "kind", "--alpha", "2"], 2, "alpha must lie in (0, 1), got 2"),
        (["test", "d.csv", "--label", "kind", "--alpha", "nan"], 2, "alpha"),
        (["test", "d.csv", "--label", "kind", "--seed", "-1"], 2, "seed"),
        (["test", "d.csv", "--label", "kind", "--bet", "power", "--epsilon", "0"], 2, "epsilon"),
        (["test", "d.csv", "--label", "kind", "--bet", "nonsense"], 2, "nonsense"),
        (["test", "d.csv", "--label", "kind", "--plot", "p.bmp"], 2, ".png"),
        (["test", "d.csv", "--label", "kind", "--plot", "no/where/p.png"], 3, "folder"),
        (["test", "d.csv", "--label", "kind", "--max-rows", "10"], 3, "--max-rows"),
        (["test", "d.docx", "--label", "kind"], 2, ".parquet"),
        (["fetch", "mnist"], 2, "mnist"),
        (["fetch", "usps", "--from", "nowhere"], 3, "nowhere"),
        (["fetch", "usps", "--mirror", "ftp://127.0.0.1/"], 2, "mirror"),
        (["reproduce", "usps", "--data", "nowhere"], 3, "nowhere"),
        (["reproduce", "usps", "--seeds", "0"], 2, "seeds"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_wrong_words(run: Run, tmp_path: Path, words: list[str], code: int, clue: str) -> None:
    write_csv(tmp_path / "d.csv", change=False, n=40)
    done = run(*words)
    assert (done.code, done.out) == (code, "")
    assert clue in done.err


def test_hostile_names_are_not_printed_raw(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "d\x1b[31m.csv"
    file.write_text("a\x1b]0;x\x07,kind\n1,x\nabc,y\n1,x\nabc,y\n")
    done = run("test", file, "--label", "kind")
    assert done.code == 3
    assert "\x1b" not in done.err
    assert "\x07" not in done.err


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


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    write_csv(tmp_path / "d.csv", change=True, n=60)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "exchangeable", "test", "d.csv", "--label", "kind"]
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b"exchangeable: the reader of the output went away\n"
    assert done.returncode == 3


def test_what_a_newcomer_gets_wrong(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    rows = [[*map(repr, map(float, row)), str(label)] for row, label in zip(X, labels, strict=True)]
    (tmp_path / "bare.csv").write_text("\n".join(",".join(row) for row in rows))
    (tmp_path / "semi.csv").write_text("a;b;c;kind\n" + "\n".join(";".join(row) for row in rows))
    (tmp_path / "named.csv").write_text("0,1,2,3\n" + "\n".join(",".join(row) for row in rows))
    (tmp_path / "price.csv").write_text("a,kind,price\n" + "\n".join(f"1.5,{r[3]},{r[0]}" for r in [*rows, *rows[:5]]))
    bare = run("test", "bare.csv", "--label", "4")
    assert (bare.code, "--no-header" in bare.err) == (2, True)
    assert run("test", "bare.csv", "--label", "4", "--no-header").code == 0
    assert "';'" in run("test", "semi.csv", "--label", "kind").err
    assert run("test", "named.csv", "--label", "3").code == 0
    price = run("test", "price.csv", "--label", "price")
    assert (price.code, "class labels are needed" in price.err) == (3, True)


def test_notes_on_what_is_seldom_meant(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{i},{rng.normal()},{rng.normal()},{1e4 * rng.normal()},{'xy'[i % 2]}" for i in range(60)]
    (tmp_path / "d.csv").write_text("id,a,b,income,kind\n" + "\n".join(lines))
    noted = run("test", "d.csv", "--label", "kind", "--format", "json")
    assert "note: column 'id' only ever rises" in noted.err
    assert "note: column 'income' spreads" in noted.err
    assert json.loads(noted.out)["n"] == 60
    assert run("test", "d.csv", "--label", "kind", "--drop", "id", "--drop", "income").err == ""


def test_few_examples_are_said_to_be_few(run: Run, tmp_path: Path) -> None:
    done = run("test", write_csv(tmp_path / "d.csv", change=False, n=12), "--label", "kind")
    assert (done.code, "So few examples" in done.out) == (0, True)
