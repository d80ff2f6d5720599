"""Tables on the command line: it gives the results of the library, for every file and every pair of files."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import exchangeable as ex
from conftest import Done, Run
from exchangeable.cli.table_options import split_names
from exchangeable.data.errors import ColumnError
from real_tables import installed

pytest.importorskip("polars")

LARGEST = 200_000  # bytes; the tests have to be quick
MAX_ROWS = 400
FILES = [path for paths in installed().values() for path in paths if path.stat().st_size <= LARGEST]


def outcome(file: Path, **arguments: Any) -> ex.Result | ValueError:
    try:
        return ex.test(str(file), **arguments, max_rows=MAX_ROWS)
    except ValueError as error:
        return error


def check_parity(run: Run, file: Path, **arguments: Any) -> None:
    """Check that the command and the library give the same numbers and the same notes, or the same error."""
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    done = run("test", file, "--max-rows", MAX_ROWS, "--format", "json", *words)
    result = outcome(file, **arguments)
    if isinstance(result, ValueError):
        assert (done.code, done.out) == (2 if isinstance(result, ColumnError) else 3, "")
        assert done.err.endswith(f"exchangeable: {result}\n")
        return
    said = json.loads(done.out)
    assert said == json.loads(result.to_json())
    assert done.code == (1 if result.rejected else 0)
    assert done.err == "".join(f"exchangeable: note: {note}\n" for note in result.notes)
    frame = json.loads(ex.test(ex.read(file), **arguments, max_rows=MAX_ROWS).to_json())
    for other in (said, frame):
        del other["file"], other["notes"]  # a frame has neither a name nor the notes of its file
    assert said == frame


def test_there_are_bundled_tables() -> None:
    assert len(FILES) >= 12


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_every_bundled_table(run: Run, file: Path) -> None:
    check_parity(run, file)


@settings(max_examples=8, deadline=None, derandomize=True, database=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(data=st.data())
def test_generated_tables(run: Run, tmp_path: Path, data: st.DataObject) -> None:
    """Numbers, integers, categories, dates, missing values, a label: in any combination."""
    seed, n = data.draw(st.integers(0, 10**6)), data.draw(st.integers(2, 40))
    rng = np.random.default_rng(seed)
    kinds: dict[str, Callable[[], Any]] = {
        "number": lambda: rng.normal(size=n),
        "count": lambda: rng.integers(0, 5, n),
        "word": lambda: rng.choice(["a", "b", "c, d", 'e"f'], n),
        "flag": lambda: rng.random(n) < 0.5,
        "day": lambda: np.datetime64("2024-01-01") + rng.integers(0, 90, n),
        "row": lambda: np.arange(n),
        "gap": lambda: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "same": lambda: np.ones(n),
    }
    chosen = data.draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=5, unique=True))
    pd.DataFrame({name: kinds[name]() for name in chosen}).to_csv(tmp_path / "d.csv", index=False)
    label = data.draw(st.sampled_from([None, *chosen]))
    missing = data.draw(st.sampled_from(["indicator", "drop", "error"]))
    check_parity(run, tmp_path / "d.csv", **({} if label is None else {"label": label}), missing=missing)


# ------------------------------------------------------------------ columns by name


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a,b", "c"], ["a", "b", "c"]),
        (["a, b"], ["a", "b"]),
        (['"a,b",c'], ["a,b", "c"]),
        (['5" pipe'], ['5" pipe']),
        (['"say ""hi"""'], ['say "hi"']),
        (['"two\nlines",b'], ["two\nlines", "b"]),
        ([""], [""]),
    ],
)
def test_lists_of_columns(words: list[str], names: list[str]) -> None:
    assert split_names(words) == names


def table(n: int = 60, *, change: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "x,y"])
    frame["kind"] = rng.choice(["u", "v"], n)
    frame["when"] = pd.date_range("2024-01-01", periods=n)[rng.permutation(n)]
    frame.loc[n // 2 :, "a"] += 9.0 * change
    return frame


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table().to_csv(tmp_path / "d.csv", index=False)
    return tmp_path / "d.csv"


def record(done: Done) -> dict[str, Any]:
    assert done.code in (0, 1), done.err
    said: dict[str, Any] = json.loads(done.out)
    return said


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["--drop", "a,b"], {"drop": ["a", "b"]}),
        (["--drop", "a", "--drop", '"x,y"'], {"drop": ["a", "x,y"]}),
        (["--features", 'a,"x,y"', "--label", "kind"], {"features": ["a", "x,y"], "label": "kind"}),
        (["--features", "a", "--order", "when"], {"features": "a", "order": "when"}),
        (["--order", "when", "--label", "a", "--categorical", "kind"], {"order": "when", "label": "a"}),
        (["--columns", "each", "--measure", "nearest-distance"], {"columns": "each", "measure": "nearest-distance"}),
        (["--scale", "deviation", "--alpha", "0.2", "--seed", "5"], {"scale": "deviation", "alpha": 0.2, "seed": 5}),
        (["--max-rows", "20"], {"max_rows": 20}),
        (["--on-alarm", "restart", "--alarm", "cusum"], {"on_alarm": "restart", "alarm": ex.alarms.Cusum()}),
    ],
)
def test_options_are_arguments(run: Run, file: Path, words: list[str], arguments: dict[str, Any]) -> None:
    if "measure" in arguments:
        arguments = arguments | {"measure": ex.catalogue.MEASURES[arguments["measure"]]()}
    said = record(run("test", file, *words, "--format", "json"))
    assert said == json.loads(ex.test(str(file), **arguments).to_json())


@pytest.mark.parametrize(
    ("words", "clue"),
    [
        (["--label", "kid"], "did you mean 'kind'?"),
        (["--order", "wen"], "did you mean 'when'?"),
        (["--drop", "a,kinds"], "did you mean 'kind'?"),
        (["--keep", "whem"], "did you mean 'when'?"),
        (["--categorical", "knd"], "did you mean 'kind'?"),
        (["--features", "a,xy"], "did you mean 'x,y'?"),
        (["--drop", "kind", "--label", "kind"], "'kind'"),
        (["--label", "missing"], "the columns are 'a', 'b', 'x,y', 'kind', 'when'"),
    ],
)
def test_unknown_columns(run: Run, file: Path, words: list[str], clue: str) -> None:
    done = run("test", file, *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert clue in done.err
    assert words[0].removeprefix("--") in done.err


# ------------------------------------------------------------------ standard input


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False))

    return give


def test_standard_input(run: Run, file: Path, stdin: Any) -> None:
    stdin(file.read_bytes())
    piped, read = record(run("test", "-", "--format", "json")), record(run("test", file, "--format", "json"))
    assert piped.pop("file") != read.pop("file")
    assert piped == read


def test_standard_input_is_one_table(run: Run, file: Path, stdin: Any) -> None:
    both = run("compare", "-", "-")
    assert (both.code, both.err) == (2, "exchangeable: only one of the two tables can be standard input\n")
    stdin(batch().to_csv(index=False).encode())
    assert run("compare", *pair(file.parent, batch())[:1], "-").code == 0
    stdin(b"")
    assert (run("test", "-").code, run("shift", "-", "--label", "kind").code) == (3, 3)


# ------------------------------------------------------------------ two tables


def pair(tmp_path: Path, current: pd.DataFrame, n: int = 400) -> tuple[Path, Path]:
    table(n).to_csv(tmp_path / "old.csv", index=False)
    current.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "old.csv", tmp_path / "new.csv"


def batch(n: int = 200) -> pd.DataFrame:
    return table(400 + n)[400:]


def test_compare_gives_the_result_of_the_library(run: Run, tmp_path: Path) -> None:
    options: list[tuple[list[str], dict[str, Any]]] = [([], {}), (["--label", "kind"], {"label": "kind"})]
    for current, code in ((batch(), 0), (batch().assign(b=lambda frame: frame["b"] + 3.0), 1)):
        files = pair(tmp_path, current)
        for words, arguments in options:
            done = run("compare", *files, *words, "--format", "json")
            assert json.loads(done.out) == json.loads(ex.compare(*map(str, files), **arguments).to_json())
            assert done.code == code
    text = run("compare", *files, "--report", "r.html", "--plot", "p.png")
    assert text.out.startswith("reference and current")
    assert "REJECTED (1 %)" in text.out
    assert (tmp_path / "r.html").exists()
    assert (tmp_path / "p.png").exists()


@pytest.mark.parametrize(
    ("current", "clue"),
    [
        (batch().drop(columns="b"), "lacks 'b'"),
        (batch().assign(c=1.0), "lacks 'c'"),
        (batch().assign(b=np.where(np.arange(200) % 2, "low", "high")), "column 'b' holds numbers"),
    ],
    ids=["missing", "new", "text"],
)
def test_different_columns_stop_a_pipeline(run: Run, tmp_path: Path, current: pd.DataFrame, clue: str) -> None:
    files = pair(tmp_path, current)
    done = run("compare", *files)
    assert done.code == 3
    assert done.out.splitlines()[1].startswith("Columns: ")
    assert clue in done.out.splitlines()[1]
    assert done.err.endswith(
        "exchangeable: the tables do not have the same columns, so they were compared on those that they share; "
        "--drop the others to accept this\n"
    )
    assert "NOT REJECTED" in done.out
    column = "c" if "c" in current else "b"
    assert run("compare", *files, "--drop", column).code == 0
    assert record(run("compare", *files, "--drop", column, "--format", "json"))["same_columns"] is True
    changed = pair(tmp_path, current.assign(a=current["a"] + 5.0))
    rejected = run("compare", *changed, "--format", "json")
    assert (rejected.code, json.loads(rejected.out)["same_columns"]) == (1, False)


def test_new_categories_are_only_reported(run: Run, tmp_path: Path) -> None:
    current = batch()
    current.iloc[3, current.columns.get_loc("kind")] = "w"
    done = run("compare", *pair(tmp_path, current))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1] == "Columns: column 'kind': 'w' occurs in current only."


@pytest.mark.parametrize(
    ("words", "clue"),
    [
        (["--label", "kind"], "new.csv: label must name a column of the data, got 'kind'"),
        (["--features", "a,kind"], "new.csv: features must name a column of the data, got 'kind'"),
        (["--drop", "a,nothing"], "drop must name a column of the data, got 'nothing'"),
        (["--label", "a", "--drop", "a"], "old.csv: column 'a' is named by drop and label; choose one"),
    ],
)
def test_columns_that_one_table_lacks(run: Run, tmp_path: Path, words: list[str], clue: str) -> None:
    done = run("compare", *pair(tmp_path, batch().drop(columns="kind")), *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"exchangeable: {clue}")


def test_rows_that_were_sorted_get_no_note_about_times(run: Run, file: Path) -> None:
    assert "are not sorted" in run("test", file).err
    assert "are not sorted" not in run("test", file, "--order", "when").err + run("test", file, "--order", "a").err


# ------------------------------------------------------------------ bad input


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


ROWS = b"".join(b"%d,%d\n" % (37 * i % 41, i % 5) for i in range(40))  # too many numbers for categories
BAD = {
    "empty.csv": b"",
    "blank.csv": b"\n\n  \n",
    "header.csv": b"a,b\n",
    "one.csv": b"a,b\n1,2\n",
    "equal.csv": b"a,b\n" + b"1,2\n" * 50,
    "missing.csv": b"a,b\n" + b",\n" * 50,
    "ragged.csv": b"a,b\n" + ROWS + b"1,2,3\n" + ROWS,
    "binary.csv": bytes(range(256)) * 20,
    "nul.csv": b"a,b\n" + ROWS + b"1,\x00\n" + ROWS,
    "infinite.csv": b"a,b\n" + ROWS + b"inf,2\n" + ROWS,
    "text.csv": b"a,b\n" + ROWS * 20 + b"12x,2\n" + ROWS * 20,
    "formula.csv": b"a,b\n" + ROWS + b"=SUM(A1:A40),2\n",
    "twice.csv": b"a,a\n" + ROWS,
    "unnamed.csv": b"a,\n" + ROWS,
    "mixed.csv": b"a,b\n1,\xc3\xa9\n2,\xe9\n" + ROWS,
    "no.parquet": b"PAR1 no PAR1",
    "no.feather": b"ARROW1 no",
    "no.json": b"[{",
    "no.jsonl": b'{"a": 1}\n{"a": \n',
    "no.npz": b"PK no",
    "no.npy": b"\x93NUMPY no",
    "no.xlsx": b"PK no",
    "no.csv.gz": b"\x1f\x8b no",
    "no.csv.zip": b"PK no",
    "no.csv.zst": b"\x28\xb5\x2f\xfd no",
    "none.zip": zipped(b""),
    "two.zip": zipped(b"a,b\n" + ROWS, "a.csv", "b.csv"),
    "picture.png": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "folder.csv": None,
    "absent.csv": None,
}


@pytest.mark.parametrize("name", BAD)
def test_the_message_for_an_invalid_file_is_one_sentence(run: Run, tmp_path: Path, name: str) -> None:
    content = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    elif name == "folder.csv":
        (tmp_path / name).mkdir()
    for words in (["test", name], ["compare", name, name], ["shift", name, "--label", "b"]):
        plots = ["--plot", "p.png"] if words[0] == "shift" else ["--plot", "p.png", "--report", "r.html"]
        done = run(*words, *plots)
        assert done.code in (2, 3), (words, done)
        assert done.out == ""
        assert done.err.startswith("exchangeable: ")
        assert done.err.count("\n") == 1, done.err
        assert "internal error" not in done.err
    assert not (tmp_path / "p.png").exists()
    assert not (tmp_path / "r.html").exists()
