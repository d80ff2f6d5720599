"""Tables that ship with Python packages are read as pandas reads them, and the document about them is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exchangeable as ex
import real_tables

pd: Any = pytest.importorskip("pandas")
pytest.importorskip("polars")

OPTIONS: dict[str, dict[str, Any]] = {  # that pandas needs
    "breast_cancer.csv": {"skiprows": 1, "header": None},  # the first line holds counts and the names of the classes
    "diabetes_data_raw.csv.gz": {"sep": r"\s+", "header": None},
    "diabetes_target.csv.gz": {"header": None},
    "digits.csv.gz": {"header": None},
    "linnerud_exercise.csv": {"sep": " "},
    "linnerud_physiological.csv": {"sep": " "},
    "wine_data.csv": {"skiprows": 1, "header": None},
}
FILES = [path for name in ("scikit-learn", "river") for path in real_tables.installed().get(name, ())]
READ = [path for path in FILES if path.name != "banana.zip"]  # it is not a table
LINE = re.compile(r"\| (?P<file>\S+) \|.*\| (?P<verdict>rejected|not rejected|none) \|.*\| (?P<code>[0-3]) \|")


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_every_cell_is_read_as_by_pandas_with_the_right_options(path: Path) -> None:
    ours = ex.read(path)
    theirs = pd.read_csv(path, float_precision="round_trip", **OPTIONS.get(path.name, {}))
    assert ours.shape == theirs.shape
    for k, name in enumerate(ours.columns):
        expected = theirs.iloc[:, k]
        if ours[name].dtype.is_temporal():
            expected = pd.to_datetime(expected, utc=True, format="mixed").dt.tz_localize(None)
        if expected.dtype == object or ours[name].dtype.is_temporal():
            assert ours[name].to_list() == expected.tolist()
        else:
            assert np.array_equal(ours[name].cast(float).to_numpy(), expected.to_numpy(float), equal_nan=True)


@pytest.mark.skipif(not FILES, reason="needs scikit-learn or river")
def test_a_line_states_the_verdict_of_the_command() -> None:
    path = next(path for path in FILES if path.name in ("iris.csv", "bitcoin.csv"))
    outcome, result = real_tables.run(path), ex.test(path)
    cells = [cell.strip() for cell in real_tables.line(outcome).split("|")[1:-1]]
    assert outcome.code == result.rejected == 1
    assert cells[:3] == [path.name, f"{result.n:,} × {ex.read(path).width}", "rejected"]
    assert result.departure is not None
    assert cells[3] == result.departure.kind
    assert cells[4].split()[0] == f"{result.rejected_at:,}"
    assert f"`{result.rejected_by[0]}`" in cells[5]
    assert len(cells) == real_tables.HEAD.split("\n")[0].count("|") - 1


def test_a_file_without_a_verdict_has_the_message_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("code,name\nA,Anna\nB,Bert\n" + "".join(f"C{i},D{i}\n" for i in range(20)))
    outcome = real_tables.run(tmp_path / "names.csv")
    assert (outcome.code, outcome.result) == (3, {})
    assert "must have a column that can be tested" in real_tables.line(outcome)


def test_the_document_is_complete() -> None:
    text = real_tables.DOCUMENT.read_text(encoding="utf-8")
    lines = [match for line in text.splitlines() if (match := LINE.fullmatch(line))]
    decided = [match for match in lines if match["verdict"] != "none"]
    assert len(lines) == text.count("\n| ") - text.count("\n| file |") >= 40
    assert f"**{len(decided)} of {len(lines)} files" in text
    assert len(decided) >= 0.95 * len(lines)
    assert all(match["code"] == {"rejected": "1", "not rejected": "0"}.get(match["verdict"], "3") for match in lines)
    assert all(f"## {name} " in text for name in real_tables.PATTERNS)
    for path in FILES:
        assert f"| {path.name} |" in text
