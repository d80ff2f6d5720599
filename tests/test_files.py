"""Tables: every rule of the reader, each with the sentence it gives."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from contracts import settled
from exchangeable.data import files as tables
from exchangeable.data.files import ColumnError, TableError, read_table
from exchangeable.data.table import MAX_CATEGORIES, Table

QUOTES = "a quotation mark must be closed, and doubled within quotes, and a field may have at most 131072 characters"
GOOD = "a,b,y\n1,2,u\n3,4,v\n5,6,u\n"


def put(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def parquet_file(folder: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


def sentence(path: Path, kind: type[Exception] = TableError, **options: Any) -> str:
    """What the reader says, after the laws that hold for every sentence: one line, printable, the file named."""
    with pytest.raises(kind) as caught:
        read_table(path, **{"label": "y", **options})
    message = str(caught.value)
    assert type(caught.value) is kind
    assert caught.value.__suppress_context__
    assert message.isprintable()
    assert len(message) < 600
    return message


def csv_sentence(folder: Path, text: str | bytes, kind: type[Exception] = TableError, **options: Any) -> str:
    message = sentence(put(folder, text), kind, **options)
    assert message.startswith("t.csv: ")
    return message


# ------------------------------------------------------------------------------------------------- what can be read


def assert_good(table: Table) -> None:
    assert table.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    assert table.features == ["a", "b"]
    assert table.y == ["u", "v", "u"]


@pytest.mark.parametrize("name", ["t.csv", "T.CSV", "a.b.csv", "t.csv.gz", "t.tsv", "t.tsv.gz", "t.tsv.csv"])
def test_text_formats(tmp_path: Path, name: str) -> None:
    lower = name.lower()
    text = (GOOD.replace(",", "\t") if lower.endswith((".tsv", ".tsv.gz")) else GOOD).encode()
    table = read_table(put(tmp_path, gzip.compress(text, mtime=0) if lower.endswith(".gz") else text, name), label="y")
    assert_good(table)
    assert table.name == name


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r"),
        GOOD.replace("\n", "\n\n"),
        "\n\n" + GOOD,
        GOOD.rstrip(),
        GOOD.replace("1,2", " 1 ,\u00a02 "),
        GOOD.replace("1,2", '"1","2"'),
        GOOD.replace("1,2", "+1,.2e1"),
    ],
)
def test_variants_of_csv_are_the_same_table(tmp_path: Path, text: str) -> None:
    assert_good(read_table(put(tmp_path, text), label="y"))


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"]
)
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = GOOD.replace("u", "ü").replace("a,b", "größe,b")
    table = read_table(put(tmp_path, text.encode(encoding)), label="y", encoding=encoding)
    assert table.y == ["ü", "v", "ü"]
    assert table.features == ["größe", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "shift_jis", "gb18030", "cp1252"])
def test_encodings_in_a_longer_file(tmp_path: Path, encoding: str) -> None:
    word = "Ž€" if encoding == "cp1252" else "あい"
    text = f"a,y\n{'1,' + word + chr(10)}{'2,v' + chr(10)}" * 1 + f"3,{word}\n" * 9999
    assert (
        read_table(put(tmp_path, text.encode(encoding)), label="y", encoding=encoding).y == [word, "v"] + [word] * 9999
    )


def test_quoted_newlines_commas_and_quotes(tmp_path: Path) -> None:
    table = read_table(put(tmp_path, 'a,"the\nlabel"\n1,"x\ny"\n2,"p,""q"""\n3,"x\ny"\n'), label="the\nlabel")
    assert table.y == ["x\ny", 'p,"q"', "x\ny"]


def test_csv_labels_stay_exactly_as_written(tmp_path: Path) -> None:
    assert read_table(put(tmp_path, "a,y\n1, 01\n2,1\n3,NA\n4,1\n"), label="y").y == [" 01", "1", "NA", "1"]


def test_the_label_may_be_any_column(tmp_path: Path) -> None:
    table = read_table(put(tmp_path, "y,a\nu,1\nv,2\nu,3\n"), label="y")
    assert (table.X.tolist(), table.features) == ([[1], [2], [3]], ["a"])


def test_without_header_the_columns_are_numbered(tmp_path: Path) -> None:
    path = put(tmp_path, "1,2,u\n3,4,v\n5,6,u\n")
    table = read_table(path, label="3", header=False)
    assert (table.features, table.X.tolist(), table.y) == (["1", "2"], [[1, 2], [3, 4], [5, 6]], ["u", "v", "u"])
    assert read_table(path, label="3", header=False, drop=["1"]).features == ["2"]
    assert "the columns are '1', '2', '3'" in sentence(path, ColumnError, header=False)


def test_drop(tmp_path: Path) -> None:
    assert read_table(put(tmp_path, "a,b,y\nred,2,u\n,4,v\nx,6,u\n"), label="y", drop=["a"]).X.tolist() == [
        [2],
        [4],
        [6],
    ]


def test_categories_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = put(tmp_path, "n,colour,y\n1,red,u\n2,blue,v\n3,red,u\n4,NA,v\n")
    table = read_table(path, label="y", categorical=["colour"])
    assert table.features == ["n", "colour=NA", "colour=blue", "colour=red"]
    assert table.X.tolist() == [[1, 0, 0, 1], [2, 0, 1, 0], [3, 0, 0, 1], [4, 1, 0, 0]]
    assert table.columns == [("n", 0, 1, False), ("colour", 1, 4, True)]
    assert table.label == "y"


def test_rows_in_another_order_are_the_same_rows(tmp_path: Path) -> None:
    lines = [f"{i},{colour},{'uv'[i % 2]}\n" for i, colour in enumerate(["red", "NA", "blue", "red", "grey"])]
    tables = [
        read_table(put(tmp_path, "n,colour,y\n" + "".join(rows)), label="y", categorical=["colour"])
        for rows in (lines, lines[::-1])
    ]
    assert tables[0].features == tables[1].features
    assert tables[0].X.tolist() == tables[1].X[::-1].tolist()  # so that distances are, to the last bit


def test_numbers_may_be_categories(tmp_path: Path) -> None:
    table = read_table(put(tmp_path, "n,y\n7,u\n3,v\n7,u\n"), label="y", categorical=["n"])
    assert (table.features, table.X.tolist()) == (["n=3", "n=7"], [[0, 1], [1, 0], [0, 1]])


def test_many_columns_few_rows(tmp_path: Path) -> None:
    width = 10_000
    row = ",".join(f"{i}.5" for i in range(width))
    table = read_table(
        put(tmp_path, ",".join(f"c{i}" for i in range(width)) + f",y\n{row},u\n{row},v\n{row},u\n"), label="y"
    )
    assert table.X.shape == (3, width)
    assert table.X[2, -1] == width - 0.5


def test_batches_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_CELLS", 64)
    rows = [(i / 7, f"c{i % 3}", "uv"[i % 2]) for i in range(500)]
    path = put(tmp_path, "a,c,y\n" + "".join(f"{a!r},{c},{y}\n" for a, c, y in rows))
    table = read_table(path, label="y", categorical=["c"])
    assert table.X[:, 0].tolist() == [a for a, _, _ in rows]
    assert table.X[:, 1:].argmax(axis=1).tolist() == [i % 3 for i in range(500)]
    assert table.y == [y for _, _, y in rows]


ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("alone", sys.argv[1])
sys.modules["alone"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["alone"])
assert "pyarrow" not in sys.modules
"""


def test_the_import_is_light() -> None:
    subprocess.run([sys.executable, "-c", ALONE, tables.__file__], timeout=60, check=True)


# ------------------------------------------------------------------------------------------------ exact numbers


@settled(60)
@given(
    st.integers(1, 4).flatmap(
        lambda d: st.lists(
            st.lists(st.floats(-1e150, 1e150), min_size=d, max_size=d),
            min_size=3,
            max_size=20,
        )
    )
)
def test_round_trip_is_bit_for_bit(tmp_path: Path, rows: list[list[float]]) -> None:
    head = [f"x{i}" for i in range(len(rows[0]))]
    body = "".join(",".join([*map(repr, row), "uv"[i % 2]]) + "\n" for i, row in enumerate(rows))
    table = read_table(put(tmp_path, ",".join([*head, "y"]) + "\n" + body), label="y")
    assert table.X.tobytes() == np.array(rows).tobytes()
    assert table.features == head


@settled(300)
@given(st.from_regex(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_text_is_rounded_as_python_rounds_it(text: str) -> None:
    values = tables._to_floats([text])
    assert values is not None
    assert struct.pack("d", values[0]) == struct.pack("d", float(text))


def test_halfway_cases_are_rounded_as_python_rounds_them() -> None:
    random = np.random.default_rng(1)
    below = np.abs(random.standard_normal(2000)) * 10.0 ** random.integers(-30, 30, 2000)
    with decimal.localcontext(decimal.Context(prec=800)):
        exact = [decimal.Decimal(float(x)) for x in below]
        step = [decimal.Decimal(float(np.nextafter(x, np.inf))) for x in below]
        texts = [format((a + b) / 2, "f") for a, b in zip(exact, step, strict=True)]
    texts += [text + "1" for text in texts]
    values = tables._to_floats(texts)
    assert values is not None
    assert values.tolist() == [float(text) for text in texts]


def test_decimals_are_rounded_correctly(tmp_path: Path) -> None:
    values = [decimal.Decimal(text) for text in ("1.10", "12345678901234567.89", "-0.07")]
    table = read_table(parquet_file(tmp_path, a=values, y=["u", "v", "u"]), label="y")
    assert table.X[:, 0].tolist() == [float(value) for value in values]


# ------------------------------------------------------------------------------------------- files that are none


def test_missing_file(tmp_path: Path) -> None:
    assert sentence(tmp_path / "no.csv") == "no.csv: the file cannot be read: No such file or directory"


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_directory_and_empty_file(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"d{suffix}").mkdir()
    assert "a regular file is needed" in sentence(tmp_path / f"d{suffix}")
    assert sentence(put(tmp_path, "", f"e{suffix}")) == f"e{suffix}: the file is empty"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.csv")
    assert "a regular file is needed" in sentence(tmp_path / "p.csv")


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_permission_denied(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    path = put(tmp_path, GOOD, f"t{suffix}")
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(gzip, "open", refuse)
    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    assert sentence(path).endswith("cannot be read: Permission denied")


def test_disk_error_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(tables, "_open_binary", lambda path: Broken())
    assert "Input/output error" in csv_sentence(tmp_path, GOOD)


def test_a_file_that_changes_between_the_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter([GOOD.encode(), b"y\nu\nv\n"])
    monkeypatch.setattr(tables, "_open_binary", lambda path: io.BytesIO(next(versions)))
    assert "expected 3 columns as in the header, got 1" in csv_sentence(tmp_path, GOOD)


def test_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(tables, "_assemble", exhaust)
    assert "the table does not fit in memory" in csv_sentence(tmp_path, GOOD)


@pytest.mark.parametrize("name", ["t", "t.txt", "t.xlsx", "t.csv.bz2", "csv", "t.parquet.gz"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    assert "must end in one of .csv, .csv.gz, .tsv" in sentence(put(tmp_path, GOOD, name), ColumnError)


def test_nul_in_the_path(tmp_path: Path) -> None:
    assert "a\\x00b.csv: the path contains a NUL" in sentence(tmp_path / "a\0b.csv", ColumnError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n\n", "the file is empty"),
        ("\ufeff", "the file is empty"),
        ("a,b,y", "there are no data rows; at least two are needed"),
        ("a,b,y\n", "there are no data rows; at least two are needed"),
        ("a,b,y\n1,2,u", "there is only one data row; at least two are needed"),
        ("a,b,y\n1,2,u\n3,v\n", "data row 2: expected 3 columns as in the header, got 2"),
        ('a,b,y\n1,2,"u\nu"\n\n\n3,4,v,5\n', "data row 2: expected 3 columns as in the header, got 4"),
        ("b,y\n1,2,u\n3,4,v\n", "data row 1: expected 2 columns as in the header, got 3"),
        ('a,b,y\n1,2,u\n"3,4,v\n5,6,u\n', f"line 3: {QUOTES}"),
        ('a,b,y\n1,"2"3,u\n', f"line 2: {QUOTES}"),
        ('"a,b,y\n1,2,u\n', f"line 1: {QUOTES}"),
        ("a,b,y\n1,2," + "u" * 131073 + "\n", f"line 2: {QUOTES}"),
        ("a,b,a,y\n1,2,3,u\n", "two columns are named 'a'; names must differ"),
        ("y\nu\nv\n", "no feature column is left; at least one besides the label is needed"),
        ("a,b,y\n1,\0,u\n", "line 2: there is a NUL character; if this is UTF-16, try --encoding utf-16"),
    ],
)
def test_content_that_is_no_table(tmp_path: Path, text: str, message: str) -> None:
    assert csv_sentence(tmp_path, text) == f"t.csv: {message}"


def test_ragged_rows_without_header_and_far_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "1,u\n" * 5000 + "2\n"
    assert "data row 5001: expected 2 columns as in the first row, got 1" in csv_sentence(
        tmp_path, text, header=False, label="2"
    )
    monkeypatch.setattr(tables, "BATCH_CELLS", 64)
    assert "data row 5001: expected 2" in csv_sentence(tmp_path, text, header=False, label="2")
    assert "data row 5000: expected 2" in csv_sentence(tmp_path, text, label="u")


@pytest.mark.parametrize("long", ["v" * 2000, '"' + "\n" * 2000 + '"', '"v\n",' * 500])
def test_a_row_that_is_too_long(tmp_path: Path, long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROW_LENGTH", 1000)
    assert "the row is longer than" in csv_sentence(tmp_path, f"a,y\n1,u\n2,{long}\n3,u\n")
    assert "the row is longer than" in csv_sentence(tmp_path, long)
    assert read_table(put(tmp_path, "a,y\n" + "1,u\n2,v\n" * 2000), label="y").X.shape == (4000, 1)


def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    message = csv_sentence(tmp_path, "a,y\n1,u\n" + "2," * (tables.MAX_ROW_LENGTH // 2 + 9))
    assert message == "t.csv: line 3: the row is longer than 16 million characters, the limit"


# ------------------------------------------------------------------------------------------------------ encodings


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (GOOD.encode("utf-16"), "byte 0xff at offset 0, line 1"),
        (GOOD.replace("3", "é").encode("latin-1"), "byte 0xe9 at offset 12, line 3"),
        (GOOD.encode() + b"\xc3", f"byte 0xc3 at offset {len(GOOD)}, line 5"),
    ],
)
def test_not_utf8(tmp_path: Path, data: bytes, where: str) -> None:
    message = csv_sentence(tmp_path, data)
    assert f"the text is not utf-8 ({where}); name its encoding with --encoding" in message


@pytest.mark.parametrize("rows", [1, 1170, 1171, 30_000])
@pytest.mark.parametrize("packed", [False, True])
def test_the_offset_is_right_in_long_files(tmp_path: Path, rows: int, packed: bool) -> None:
    text = "\ufeffa,y\n" + "1,é€\n" * rows + "1,"
    expected = f"byte 0xff at offset {len(text.encode())}, line {rows + 2})"
    data = text.encode() + b"\xff,u\n" + b"1,u\n" * 5000
    assert expected in sentence(
        put(tmp_path, gzip.compress(data, mtime=0) if packed else data, "t.csv.gz" if packed else "t.csv")
    )


def test_utf16_without_a_mark_is_found_by_its_nul(tmp_path: Path) -> None:
    assert "--encoding utf-16" in csv_sentence(tmp_path, GOOD.encode("utf-16-le"))


def test_truncated_utf16(tmp_path: Path) -> None:
    assert "the text is not utf-16" in csv_sentence(tmp_path, GOOD.encode("utf-16")[:-1], encoding="utf-16")


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "", "a\0b", "\x1b[31m", "undefined"])
def test_wrong_encoding_names(tmp_path: Path, encoding: str) -> None:
    assert "unknown encoding" in csv_sentence(tmp_path, GOOD, ColumnError, encoding=encoding)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    assert "the text is not" in csv_sentence(tmp_path, b"a,y\n1,+2AA-\n", encoding="utf-7")


# ------------------------------------------------------------------------------------------------------- columns


def test_unknown_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "weight,label,b\n1,u,2\n")
    assert sentence(path, ColumnError, label="lable") == (
        "t.csv: --label 'lable' is not a column; did you mean 'label'? the columns are 'weight', 'label', 'b'"
    )
    assert "--drop 'q' is not a column; the columns" in sentence(path, ColumnError, label="label", drop=["q"])
    assert "--categorical 'B'" in sentence(path, ColumnError, label="label", categorical=["b", "B"])
    message = sentence(path, ColumnError, label=None)
    assert "class labels must be named with --label COLUMN (exchangeable test --measure nearest-distance" in message
    assert message.endswith("; the columns are 'weight', 'label', 'b'")
    message = sentence(path, ColumnError, label=None, labels="numbers")
    assert "the column of numbers" in message
    assert message.endswith("must be named with --label COLUMN; the columns are 'weight', 'label', 'b'")


def test_a_long_list_of_columns_is_cut(tmp_path: Path) -> None:
    message = csv_sentence(tmp_path, ",".join(f"c{i}" for i in range(500)) + "\n", ColumnError)
    assert message.endswith("'c8', 'c9' and 490 more")


@pytest.mark.parametrize("options", [{"categorical": ["y"]}, {"drop": ["y"]}, {"categorical": ["a"], "drop": ["a"]}])
def test_one_use_for_each_column(tmp_path: Path, options: dict[str, Any]) -> None:
    assert "is named by two of --label, --categorical and --drop" in csv_sentence(
        tmp_path, GOOD, ColumnError, **options
    )


def test_everything_dropped(tmp_path: Path) -> None:
    assert "no feature column is left" in csv_sentence(tmp_path, GOOD, drop=["a", "b"])


@pytest.mark.parametrize(("name", "typed"), [("", "''"), ("Unnamed: 0", "'Unnamed: 0'"), ("__index_level_0__",) * 2])
def test_a_saved_row_index_is_no_feature(tmp_path: Path, name: str, typed: str) -> None:
    text = f"{name},a,y\n0,5,u\n1,6,v\n2,7,u\n"
    assert f"like a saved row index; give it a name, or leave it out with --drop {typed}" in csv_sentence(
        tmp_path, text
    )
    assert read_table(put(tmp_path, text), label="y", drop=[name]).features == ["a"]


HOSTILE = ["\x1b[31mred\x1b[0m", "two\nlines", "bell\x07", "\u202egnp.exe", "x" * 5000, "'; rm -rf ~; '"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_values_are_shown_escaped(tmp_path: Path, name: str) -> None:
    quoted = f'"{name}"'
    shown = tables._format(name)
    assert len(shown) <= 40
    assert shown in csv_sentence(tmp_path, f"{quoted},y\n1,u\nx,v\n")
    assert shown in csv_sentence(tmp_path, f"{quoted},y\nx,u\nx,v\n")
    assert shown in csv_sentence(tmp_path, f"a,y\n{quoted},u\n1,v\n")
    assert shown in csv_sentence(tmp_path, f"{quoted},z\n1,u\n", ColumnError)
    assert shown in csv_sentence(tmp_path, f"{quoted},{quoted},y\n")
    assert shown in csv_sentence(tmp_path, GOOD, ColumnError, label=name)
    assert shown in csv_sentence(tmp_path, f"a,{quoted}\n1,u\n2,u\n", label=name)
    assert name in read_table(put(tmp_path, f"{quoted},y\n1,u\n2,v\n3,u\n"), label="y").features


def test_hostile_file_names(tmp_path: Path) -> None:
    path = put(tmp_path, "a", "\x1b[31m\n.csv")
    assert sentence(path, ColumnError).startswith("\\x1b[31m\\n.csv: ")
    assert read_table(put(tmp_path, GOOD, "\x07.csv"), label="y").name == "\\x07.csv"
    if sys.platform == "linux":
        assert read_table(put(tmp_path, GOOD, os.fsdecode(b"\xff.csv")), label="y").name == "\\udcff.csv"


def test_a_remedy_can_be_typed(tmp_path: Path) -> None:
    assert "--drop 'my column'" in csv_sentence(tmp_path, "my column,y\nred,u\nred,v\n")


# -------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("word", ["", " ", "NA", "n/a", "nan", "NaN", "-nan", "null", "None", '""'])
def test_missing_numbers(tmp_path: Path, word: str) -> None:
    message = csv_sentence(tmp_path, f"a,b,y\n1,2,u\n3,{word},v\n5,6,u\n")
    assert message.startswith("t.csv: data row 2, column 'b': the value is missing (")
    assert repr(word.strip('"')) in message


@pytest.mark.parametrize("word", ["inf", "-inf", "Infinity", "1e999", "9" * 400])
@pytest.mark.parametrize("also", ["6", "x"])
def test_infinite_numbers(tmp_path: Path, word: str, also: str) -> None:
    message = csv_sentence(tmp_path, f"a,b,y\n1,2,u\n3,{word},v\n5,{also},u\n")
    if also == "6":
        assert f"data row 2, column 'b': {tables._format(word)} is " in message
    assert "is not finite" in message or "beyond 1e+150" in message or "data row 3" in message


@pytest.mark.parametrize("word", ["red", "1,5", "0x10", "1_000", "1e", "--1", "1 2", "٣", "True", "1d5", "2020-01-01"])
def test_text_among_numbers(tmp_path: Path, word: str) -> None:
    message = csv_sentence(tmp_path, f'a,b,y\n1,2,u\n3,"{word}",v\n5,x,u\n')
    assert message.startswith(f"t.csv: data row 2, column 'b': {word!r} is not a number; ")
    assert "--categorical b" in message


def test_text_first_and_numbers_later(tmp_path: Path) -> None:
    assert "data row 1, column 'a': 'x' is not a number" in csv_sentence(tmp_path, "a,y\nx,u\n2,v\n3,u\n")


def test_text_in_a_later_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_CELLS", 64)
    text = "a,y\n" + "1,u\n" * 998 + "x,u\n" * 99
    assert "data row 999, column 'a': 'x' is not a number" in csv_sentence(tmp_path, text)


@pytest.mark.parametrize("first", ["red", "NA", "inf", "true"])
def test_a_text_column_is_never_guessed(tmp_path: Path, first: str) -> None:
    assert csv_sentence(tmp_path, f"n,colour,y\n1,{first},u\n2,blue,v\n3,red,u\n") == (
        f"t.csv: column 'colour' holds text ({first!r} in data row 1); name it with --categorical colour to one-hot "
        "encode it, or leave it out with --drop colour"
    )


@pytest.mark.parametrize("blank", ["", "  "])
def test_missing_categories_and_labels(tmp_path: Path, blank: str) -> None:
    text = f"c,y\nr,u\n{blank},v\nr,u\n"
    assert "data row 2, column 'c': the value is missing" in csv_sentence(tmp_path, text, categorical=["c"])
    assert "data row 2, column 'y': the value is missing" in csv_sentence(tmp_path, f"a,y\n1,u\n2,{blank}\n3,v\n")


def test_too_many_categories(tmp_path: Path) -> None:
    text = "c,y\n" + "".join(f"id{i},u\n" for i in range(MAX_CATEGORIES + 1))
    assert "holds more than 1000 categories, the limit; leave it out with --drop c" in csv_sentence(
        tmp_path, text, categorical=["c"]
    )


@pytest.mark.parametrize(
    "word", ["9007199254740993", "-9007199254740993", " +12345678901234567890 ", "0" * 5000 + "9" * 17]
)
def test_integers_beyond_float64(tmp_path: Path, word: str) -> None:
    message = csv_sentence(tmp_path, f"a,y\n1,u\n{word},v\n3,u\n")
    assert f"data row 2, column 'a': {tables._format(word)} is beyond 2**53" in message


def test_numbers_that_float64_can_hold(tmp_path: Path) -> None:
    path = put(tmp_path, "a,y\n9007199254740992,u\n-9007199254740992,v\n1e150,u\n9007199254740994.0,u\n1e-400,v\n")
    assert read_table(path, label="y").X[:, 0].tolist() == [2.0**53, -(2.0**53), 1e150, 2.0**53 + 2, 0.0]


@pytest.mark.parametrize("word", ["1.1e150", "-1e200", "1" + "0" * 200])
def test_numbers_whose_square_overflows(tmp_path: Path, word: str) -> None:
    message = csv_sentence(tmp_path, f"a,y\n1,u\n{word},v\n3,u\n")
    assert (
        f"data row 2, column 'a': {tables._format(word)} is beyond 1e+150, where squared distances overflow" in message
    )


# --------------------------------------------------------------------------------------------------------- labels


def test_one_class(tmp_path: Path) -> None:
    message = csv_sentence(tmp_path, "a,y\n1,u\n2,u\n3,u\n")
    assert "label column 'y' holds one class only ('u'); classes are compared, so at least two are needed" in message
    assert "(exchangeable test --measure nearest-distance needs no labels)" in message


def test_every_label_distinct(tmp_path: Path) -> None:
    message = csv_sentence(tmp_path, "a,y\n1,0.5\n2,0.6\n3,0.7\n")
    assert "'y' holds 3 different values in 3 rows; it looks like a continuous number or an identifier" in message
    assert message.endswith("(for numbers, use exchangeable test --measure nearest-residual)")


@pytest.mark.parametrize(
    "labels",
    [[0, 1, 0], [True, False, True], [1.0, 2.0, 1.0], ["u", "v", "u"], [0.5, 1.5, 0.5], [-1, 1, -1]],
)
def test_labels_keep_their_python_type(tmp_path: Path, labels: list[object]) -> None:
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=np.array(labels))
    for path in (parquet_file(tmp_path, a=[1, 2, 3], y=labels), tmp_path / "t.npz"):
        y = read_table(path, label="y").y
        assert y == labels
        assert [type(value) for value in y] == [type(value) for value in labels]


def same_in_all_formats(folder: Path, X: np.ndarray, y: list[Any]) -> list[Path]:
    """The same table with columns 1, 2, ... and y, in every format."""
    columns = {str(i + 1): X[:, i] for i in range(X.shape[1])} | {"y": y}
    rows = [list(columns), *(list(map(str, row)) for row in zip(*columns.values(), strict=True))]
    text = "".join(",".join(row) + "\n" for row in rows)
    np.savez(folder / "t.npz", X=X, y=np.array(y))
    return [
        put(folder, text),
        put(folder, gzip.compress(text.encode(), mtime=0), "t.csv.gz"),
        put(folder, text.replace(",", "\t"), "t.tsv"),
        parquet_file(folder, **columns),
        folder / "t.npz",
    ]


NUMBERS = np.array([[1.5, 2.0], [-3.0, 4.0], [5.0, 6.5]])


def test_labels_as_numbers(tmp_path: Path) -> None:
    for path in same_in_all_formats(tmp_path, NUMBERS, [0.25, -7.5, 1e-3]):
        table = read_table(path, label="y", labels="numbers")
        assert isinstance(table.y, np.ndarray)
        assert table.y.dtype == np.float64
        assert table.y.tolist() == [0.25, -7.5, 1e-3]
        assert (table.X.tolist(), table.features) == (NUMBERS.tolist(), ["1", "2"])


def test_any_numbers_may_be_labels(tmp_path: Path) -> None:
    """One value only, integers, booleans, decimals: what features may be."""
    for values in ([1, 1, 1], [True, False, True], [decimal.Decimal("1.10")] * 3):
        y = read_table(parquet_file(tmp_path, a=[1, 2, 3], y=values), label="y", labels="numbers").y
        assert isinstance(y, np.ndarray)
        assert y.tolist() == [float(value) for value in values]
    np.savez(tmp_path / "t.npz", data=NUMBERS, t=np.array([1, 2, 1], ">i2"))
    y = read_table(tmp_path / "t.npz", label="t", labels="numbers").y
    assert isinstance(y, np.ndarray)
    assert y.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["1", "x", "2"], "data row 2, column 'y': 'x' is not a number; correct it, or if the column is text, choose"),
        (["u", "v", "u"], "column 'y' holds text ('u' in data row 1); choose another --label that holds numbers, or"),
        (["1", "", "2"], "data row 2, column 'y': the value is missing ('')"),
        (["1", "nan", "2"], "data row 2, column 'y': the value is missing ('nan')"),
        (["1", "-inf", "2"], "data row 2, column 'y': '-inf' is not finite"),
        (["1", "1e151", "2"], "data row 2, column 'y': '1e151' is beyond 1e+150"),
        (["1", "9007199254740993", "2"], "is beyond 2**53, where float64 loses digits; rescale the column, or choose"),
    ],
)
def test_labels_that_are_no_numbers(tmp_path: Path, column: list[str], message: str) -> None:
    text = "a,y\n" + "".join(f"{i},{word}\n" for i, word in enumerate(column))
    found = csv_sentence(tmp_path, text, labels="numbers")
    assert message in found
    assert "--drop" not in found
    assert "--categorical" not in found


def test_typed_labels_that_are_no_numbers(tmp_path: Path) -> None:
    text = sentence(parquet_file(tmp_path, a=[1, 2, 3], y=["1", "2", "3"]), labels="numbers")
    assert text.endswith("choose another --label that holds numbers, or for classes --measure nearest-neighbour")
    dates = sentence(parquet_file(tmp_path, a=[1, 2], y=[dt.date(2020, 1, 1)] * 2), labels="numbers")
    assert "is of type 'date32[day]'; only numbers, booleans and text" in dates
    assert dates.endswith("choose another --label")
    for values, message in {
        (1, None, 3): "data row 2, column 'y': the value is missing (None)",
        (1.0, float("inf"), 3.0): "data row 2, column 'y': inf is not finite",
        (1, 2**53 + 1, 3): "is beyond 2**53, where float64 loses digits; rescale the column, or choose another --label",
    }.items():
        assert message in sentence(parquet_file(tmp_path, a=[1, 2, 3], y=values), labels="numbers")
    archive = put(tmp_path, npz(X=np.eye(3), y=np.array(["u", "v", "u"])), "t.npz")
    assert "array 'y' must be 1-D and hold numbers or booleans, got 1-D of str" in sentence(archive, labels="numbers")


def test_no_labels(tmp_path: Path) -> None:
    """The named column is left out and not looked at; without a name all columns are features."""
    for path in same_in_all_formats(tmp_path, NUMBERS, ["u", "u", "u"]):
        table = read_table(path, label="y", labels="none")
        assert (table.X.tolist(), table.y, table.features) == (NUMBERS.tolist(), None, ["1", "2"])
    for path in same_in_all_formats(tmp_path, NUMBERS, [1, 2, 3])[:-1]:
        table = read_table(path, label=None, labels="none")
        assert (table.X[:, 2].tolist(), table.y, table.features) == ([1, 2, 3], None, ["1", "2", "y"])
    assert read_table(put(tmp_path, "a,y\n1,\n2,x\n"), label="y", labels="none").X.tolist() == [[1], [2]]


def test_no_labels_and_few_columns_or_rows(tmp_path: Path) -> None:
    assert csv_sentence(tmp_path, "y\nu\n", labels="none") == (
        "t.csv: no feature column is left; at least one besides the label is needed"
    )
    assert csv_sentence(tmp_path, "a\n1\n", labels="none", label=None, drop=["a"]) == (
        "t.csv: no feature column is left; at least one is needed"
    )
    for labels in ("numbers", "none"):
        assert "there is only one data row" in csv_sentence(tmp_path, "a,y\n1,2\n", labels=labels)
        assert "there are no data rows" in csv_sentence(tmp_path, "a,y\n", labels=labels)
    assert "--label 'q' is not a column" in csv_sentence(tmp_path, GOOD, ColumnError, labels="none", label="q")
    assert "is named by two of" in csv_sentence(tmp_path, GOOD, ColumnError, labels="none", drop=["y"])


def test_npz_without_labels_needs_features_only(tmp_path: Path) -> None:
    read_none: dict[str, Any] = {"label": None, "labels": "none"}
    for arrays in ({"X": NUMBERS}, {"X": NUMBERS, "y": [1]}, {"some": NUMBERS, "y": [1]}, {"X": NUMBERS, "z": NUMBERS}):
        table = read_table(put(tmp_path, npz(**arrays), "t.npz"), **read_none)
        assert (table.X.tolist(), table.y, table.features) == (NUMBERS.tolist(), None, ["1", "2"])
    assert read_table(put(tmp_path, npz(a=NUMBERS, b=NUMBERS[::-1]), "t.npz"), label="b", labels="none").X[0, 0] == 1.5
    two = sentence(put(tmp_path, npz(a=NUMBERS, b=NUMBERS), "t.npz"), **read_none)
    assert two == "t.npz: one 2-D array of features is needed, best named X; the arrays are 'a', 'b'"


def test_a_given_width(tmp_path: Path) -> None:
    one: dict[str, Any] = {"label": None, "labels": "none", "width": 1}
    message = csv_sentence(tmp_path, "a,b,c\n1,2,3\n", ColumnError, **one)
    assert message == (
        "t.csv: there are 3 feature columns ('a', 'b', 'c'); the measure needs exactly 1, so leave the others out with "
        "--drop"
    )
    assert "there are 2 feature columns" in csv_sentence(tmp_path, GOOD, ColumnError, **{**one, "label": "y"})
    table = read_table(put(tmp_path, "a,b,c\n1,2,3\n4,5,6\n"), label="c", labels="none", width=1, drop=["a"])
    assert (table.X.tolist(), table.features) == ([[2], [5]], ["b"])


@pytest.mark.parametrize(
    "arrays",
    [{"X": [1.5, 2.5]}, {"X": [[1.5], [2.5]]}, {"values": [1.5, 2.5]}, {"X": [1.5, 2.5], "y": [7, 8], "z": [7, 8]}],
)
def test_one_column_of_an_npz_may_be_one_dimensional(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = put(tmp_path, npz(**arrays), "t.npz")
    table = read_table(path, label=None, labels="none", width=1)
    assert (table.X.tolist(), table.features) == ([[1.5], [2.5]], ["1"])
    if np.ndim(next(iter(arrays.values()))) == 1:
        assert "2-D" in sentence(path, label=None, labels="none")


def test_one_column_of_an_npz_refused(tmp_path: Path) -> None:
    one: dict[str, Any] = {"label": None, "labels": "none", "width": 1}
    for arrays, message in (
        ({"a": [1.0], "b": [2.0]}, "one 1-D or 2-D array of features is needed, best named X; the arrays are 'a', 'b'"),
        ({"X": np.ones((2, 2, 2))}, "array 'X' must be 1-D or 2-D and hold numbers or booleans, got 3-D"),
        ({"X": np.array(["u", "v"])}, "array 'X' must be 1-D or 2-D and hold numbers or booleans, got 1-D of str"),
        ({"X": [1.0, np.nan]}, "data row 2, column '1': the value is missing (nan)"),
    ):
        assert message in sentence(put(tmp_path, npz(**arrays), "t.npz"), **one)
    assert "there are 2 feature columns" in sentence(put(tmp_path, npz(X=NUMBERS), "t.npz"), ColumnError, **one)


# ----------------------------------------------------------------------------------------------------------- length


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_the_limit_of_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    X, y = np.arange(40.0).reshape(20, 2), ["u", "v"] * 10
    if suffix == ".csv":
        put(tmp_path, "a,b,y\n" + "".join(f"{a},{b},{c}\n" for (a, b), c in zip(X.tolist(), y, strict=True)))
    elif suffix == ".parquet":
        parquet_file(tmp_path, a=X[:, 0], b=X[:, 1], y=y)
    else:
        np.savez(path, X=X, y=y)
    assert read_table(path, label="y", max_rows=20).X.tolist() == X.tolist()
    message = sentence(path, max_rows=19)
    assert (
        "more than 19 rows, the limit; --max-rows N raises it (the time of nearest-neighbour measures grows" in message
    )
    assert read_table(path, label="y", labels="none", max_rows=20).X.tolist() == X.tolist()
    assert "more than 19 rows" in sentence(path, labels="none", max_rows=19)


MEASURE = """
import json, resource, sys
import pyarrow.csv
from exchangeable.data import files as tables
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    tables.read_table(sys.argv[1], label="y", max_rows=1000)
except tables.TableError as error:
    message = str(error)
print(json.dumps([message, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024]))
"""


def measured(path: Path) -> tuple[str, int]:
    """What was message and the growth of the peak memory, in bytes, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tables.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    message, grown = json.loads(done.stdout)
    return message, grown


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured in kilobytes on Linux only")
@pytest.mark.parametrize("packed", [False, True])
def test_a_large_csv_is_not_read_to_its_end(tmp_path: Path, packed: bool) -> None:
    size = 64 << 20
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    rows = b"0.123456789,0.987654321,u\n" * 40_000
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        file.write(b"a,b,y\n")
        for _ in range(size // len(rows)):
            file.write(rows)
    message, grown = measured(path)
    path.unlink()
    assert "more than 1000 rows" in message
    assert grown < size / 2


def test_little_of_a_large_csv_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without measuring memory: how many bytes are asked for?"""

    class Endless(io.BytesIO):
        served = 0

        def read1(self, size: int | None = -1) -> bytes:
            given = b"0.25,u\n0.75,v\n" * 1000
            Endless.served += len(given)
            return given

    monkeypatch.setattr(tables, "_open_binary", lambda path: Endless())
    assert "more than 1000 rows" in csv_sentence(tmp_path, "x", header=False, label="2", max_rows=1000)
    assert Endless.served < 10 * tables.BATCH_CELLS


def test_a_large_npz_is_refused_by_its_header(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 3)})
    labels = io.BytesIO()
    np.lib.format.write_array_header_1_0(labels, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X.npy", header.getvalue())
        archive.writestr("y.npy", labels.getvalue())
    assert "more than 100000 rows" in sentence(tmp_path / "t.npz")


# ------------------------------------------------------------------------------------------------------------- gzip


def test_truncated_gzip(tmp_path: Path) -> None:
    random = np.random.default_rng(0).random((4000, 2))
    whole = gzip.compress(("a,b,y\n" + "".join(f"{a},{b},u\n" for a, b in random)).encode())
    for size in (5, 15, len(whole) // 2, len(whole) - 1):
        assert "the gzip data is truncated or damaged" in sentence(put(tmp_path, whole[:size], "t.csv.gz"))


@pytest.mark.parametrize("data", [GOOD.encode(), gzip.compress(GOOD.encode(), mtime=0) + b"junk"])
def test_not_gzip(tmp_path: Path, data: bytes) -> None:
    assert "the gzip data is truncated or damaged, or not gzip at all" in sentence(put(tmp_path, data, "t.csv.gz"))


def test_damaged_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(GOOD.encode(), mtime=0))
    data[-5] ^= 0xFF
    assert "the gzip data is truncated or damaged" in sentence(put(tmp_path, bytes(data), "t.csv.gz"))


def test_gzip_of_nothing(tmp_path: Path) -> None:
    assert sentence(put(tmp_path, gzip.compress(b"", mtime=0), "t.csv.gz")) == "t.csv.gz: the file is empty"


# ---------------------------------------------------------------------------------------------------------- Parquet


def test_parquet_types(tmp_path: Path) -> None:
    columns = {
        "bool": pa.array([True, False, True]),
        "int8": pa.array([1, -2, 3], pa.int8()),
        "uint64": pa.array([0, 1, 2**53], pa.uint64()),
        "half": pa.array(np.array([0.5, 1.5, 2.5], np.float16)),
        "float": pa.array([0.1, 0.2, 0.3], pa.float32()),
        "double": pa.array([0.1, 0.2, 0.3]),
    }
    table = read_table(parquet_file(tmp_path, **columns, y=["u", "v", "u"]), label="y")
    assert table.features == list(columns)
    assert table.X[:, 0].tolist() == [1, 0, 1]
    assert table.X[:, 2].tolist() == [0, 1, 2.0**53]
    assert table.X[:, 4].tolist() == np.array([0.1, 0.2, 0.3], np.float32).tolist()
    assert table.X[:, 5].tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (["red", "blue", "red"], ["c=red", "c=blue"]),
        (pa.array(["red", "blue", "red"], pa.large_string()), ["c=red", "c=blue"]),
        (pa.array(["red", "blue", "red"]).dictionary_encode(), ["c=red", "c=blue"]),
        (pa.DictionaryArray.from_arrays([1, 0, 1], ["blue", "red", "unused"]), ["c=red", "c=blue"]),
        (pa.DictionaryArray.from_arrays([1, 0, 1], [10, 20]), ["c=20", "c=10"]),
        ([7, 3, 7], ["c=7", "c=3"]),
        ([True, False, True], ["c=True", "c=False"]),
        ([0.5, 1.5, 0.5], ["c=0.5", "c=1.5"]),
    ],
)
def test_parquet_categories(tmp_path: Path, values: Any, names: list[str]) -> None:
    path = parquet_file(tmp_path, c=values, y=values)
    table = read_table(path, label="y", categorical=["c"])
    assert table.features == sorted(names)
    assert (table.X[:, 0] == (np.array([1, 0, 1]) == (sorted(names)[0] == names[0]))).all()
    assert (table.X.sum(axis=1) == 1).all()
    assert [f"c={value}" for value in table.y or ()] == [names[0], names[1], names[0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2", "3"], "holds text ('1' in data row 1); name it with --categorical c"),
        (pa.array(["r", "g", "r"]).dictionary_encode(), "holds text ('r' in data row 1); name it with --categorical c"),
        ([dt.date(2020, 1, 1)] * 3, "is of type 'date32[day]'; only numbers, booleans and text are allowed"),
        ([dt.datetime(2020, 1, 1)] * 3, "is of type 'timestamp[us]'"),
        ([dt.timedelta(1)] * 3, "is of type 'duration[us]'"),
        ([[1], [2], [3]], "is of type 'list<element: int64>'; only numbers"),
        ([{"p": 1}] * 3, "is of type 'struct<p: int64>'; only numbers"),
        ([b"a", b"b", b"a"], "is of type 'binary'"),
    ],
)
def test_parquet_types_that_are_refused(tmp_path: Path, values: Any, message: str) -> None:
    path = parquet_file(tmp_path, a=[1, 2, 3], c=values, y=["u", "v", "u"])
    complaint = sentence(path)
    assert f"column 'c' {message}" in complaint
    assert "leave it out with --drop c" in complaint
    if "is of type" in message:
        assert "convert it, or choose another --label" in sentence(path, label="c", drop=["y"])
    assert read_table(path, label="y", drop=["c"]).features == ["a"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, None, 3], "the value is missing (None)"),
        ([1.5, None, float("nan")], "the value is missing (None)"),
        ([1.5, float("nan"), 3.5], "the value is missing (nan)"),
        ([1.5, -float("inf"), 3.5], "-inf is not finite"),
        ([1.5, 1e151, 3.5], "1e+151 is beyond 1e+150"),
        ([1, 2**53 + 1, 3], "9007199254740993 is beyond 2**53"),
        ([1, -(2**53) - 1, 3], "-9007199254740993 is beyond 2**53"),
        (pa.array([1, 2**64 - 1, 3], pa.uint64()), "18446744073709551615 is beyond 2**53"),
        ([True, None, False], "the value is missing (None)"),
    ],
)
def test_parquet_values_that_are_refused(tmp_path: Path, values: Any, message: str) -> None:
    path = parquet_file(tmp_path, c=values, y=["u", "v", "u"])
    assert sentence(path).startswith(f"t.parquet: data row 2, column 'c': {message}")


@pytest.mark.parametrize("values", [[1, None, 1], ["u", None, "u"], [1.0, float("nan"), 1.0], [True, None, True]])
def test_parquet_missing_labels_and_categories(tmp_path: Path, values: Any) -> None:
    path = parquet_file(tmp_path, a=[1, 2, 3], y=values)
    assert "data row 2, column 'y': the value is missing" in sentence(path)
    assert "data row 2, column 'y': the value" in sentence(path, label="a", categorical=["y"])


def test_a_column_of_nulls(tmp_path: Path) -> None:
    path = parquet_file(tmp_path, a=pa.nulls(3), b=[1, 2, 3], y=["u", "v", "u"])
    assert "data row 1, column 'a': the value is missing" in sentence(path)


def test_rows_are_counted_over_batches(tmp_path: Path) -> None:
    values = np.arange(20_000.0)
    values[17_000] = np.nan
    assert "data row 17001, column 'a'" in sentence(parquet_file(tmp_path, a=values, y=[1, 2] * 10_000))


def test_names_with_dots(tmp_path: Path) -> None:
    path = parquet_file(tmp_path, **{"a.b": [1, 2, 3], "a": [4, 5, 6], "y": [1, 2, 1]})
    assert read_table(path, label="y").X.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert read_table(path, label="y", drop=["a.b"]).X.tolist() == [[4], [5], [6]]


def test_parquet_without_rows_or_names(tmp_path: Path) -> None:
    assert "there are no data rows" in sentence(
        parquet_file(tmp_path, a=pa.array([], pa.int64()), y=pa.array([], "str"))
    )
    parquet.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["y", "y"]), tmp_path / "t.parquet")
    assert "two columns are named 'y'" in sentence(tmp_path / "t.parquet")
    assert "the columns are 'a'" in sentence(parquet_file(tmp_path, a=[1]), ColumnError)


def test_damaged_parquet(tmp_path: Path) -> None:
    whole = parquet_file(tmp_path, a=list(range(3000)), y=[1, 2, 3] * 1000).read_bytes()
    for data in (b"PAR1", b"junk" * 50, GOOD.encode(), whole[: len(whole) // 2], whole[:-1], whole[100:]):
        message = sentence(put(tmp_path, data, "t.parquet"))
        assert (
            message == "t.parquet: this is not a Parquet file that can be read: truncated, damaged or of another type"
        )


def test_parquet_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    raw = pa.array([b"\xff", b"\xfe", b"\xff"])
    broken = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    assert "not a Parquet file that can be read" in sentence(parquet_file(tmp_path, a=[1, 2, 3], y=broken))


@settled(60)
@given(st.data())
def test_damage_anywhere_gives_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes are changed at random in files of every type: either a table is read, or one of our errors is raised."""
    whole = {
        "t.csv": GOOD.encode(),
        "t.csv.gz": gzip.compress(GOOD.encode(), mtime=0),
        "t.npz": npz(X=np.arange(6.0).reshape(3, 2), y=np.array([1, 2, 1])),
    }
    name = data.draw(st.sampled_from(sorted(whole)))
    bytes_ = bytearray(whole[name])
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    message = ""
    try:
        assert np.isfinite(read_table(put(tmp_path, bytes(bytes_), name), label="y").X).all()
    except (TableError, ColumnError) as error:
        message = str(error)
    assert message.isprintable()


# -------------------------------------------------------------------------------------------------------------- NPZ


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_npz(tmp_path: Path) -> None:
    X = np.arange(6.0).reshape(3, 2)
    cases: list[tuple[str | None, dict[str, Any]]] = [
        (None, {"X": X, "y": np.array([1, 2, 1])}),
        ("y", {"X": np.asfortranarray(X), "y": np.array([1, 2, 1], ">i4"), "other": X}),
        ("t", {"data": X.astype(">f4"), "t": np.array([1, 2, 1], np.uint8)}),
        (None, {"X": X.astype(np.longdouble), "y": np.array([1.0, 2.0, 1.0], np.float16)}),
        (None, {"X": X.astype(int), "y": np.array([1, 2, 1]), "unused": np.array([None])}),
    ]
    for label, arrays in cases:
        table = read_table(put(tmp_path, npz(**arrays), "t.npz"), label=label)
        assert (table.X.tolist(), table.y, table.features) == (X.tolist(), [1, 2, 1], ["1", "2"])


def test_npz_columns_have_numbers(tmp_path: Path) -> None:
    path = put(tmp_path, npz(X=np.array([[1, 7], [2, 8], [3, 7]]), y=np.array(["u", "v", "u"])), "t.npz")
    assert read_table(path, label=None, categorical=["2"], drop=["1"]).features == ["2=7", "2=8"]
    assert "--drop '3' is not a column" in sentence(path, ColumnError, drop=["3"])


def test_compressed_npz(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "t.npz", X=np.eye(3), y=np.array([1, 2, 1]))
    assert read_table(tmp_path / "t.npz", label=None).X.tolist() == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"X": np.array([[1, None]] * 3), "y": [1, 2, 1]},
            "array 'X' must be 2-D and hold numbers or booleans, got 2-D",
        ),
        ({"X": np.eye(3), "y": np.array([1, None, "a"])}, "of object (which only pickle could load"),
        ({"X": np.ones(3), "y": [1, 2, 1]}, "array 'X' must be 2-D and hold numbers or booleans, got 1-D of float64"),
        ({"X": np.eye(3), "y": np.eye(3)}, "array 'y' must be 1-D and hold numbers or booleans or text, got 2-D"),
        ({"X": np.eye(3) * 1j, "y": [1, 2, 1]}, "got 2-D of complex128"),
        ({"X": np.eye(3), "y": np.array(["2020"] * 3, "M8[D]")}, "got 1-D of datetime64[D]"),
        ({"X": np.eye(3), "y": [1, 2]}, "there are 3 rows of features and 2 labels"),
        ({"X": np.ones((3, 0)), "y": [1, 2, 1]}, "no feature column is left"),
        ({"X": np.ones((0, 3)), "y": np.ones(0)}, "there are no data rows"),
        ({"p": np.eye(3), "q": np.eye(3), "y": [1, 2, 1]}, "one 2-D array of features is needed, best named X"),
        ({"y": [1, 2, 1]}, "one 2-D array of features is needed, best named X; the arrays are 'y'"),
        ({"X": [[1.0], [np.nan], [2.0]], "y": [1, 2, 1]}, "data row 2, column '1': the value is missing (nan)"),
        ({"X": [[1.0], [np.inf], [2.0]], "y": [1, 2, 1]}, "data row 2, column '1': inf is not finite"),
        ({"X": [[1], [2**60], [2]], "y": [1, 2, 1]}, f"data row 2, column '1': {2**60} is beyond 2**53"),
        ({"X": np.eye(3), "y": [1, np.nan, 1]}, "data row 2, column 'y': the value is missing (nan)"),
        ({"X": np.eye(3), "y": ["u", "", "u"]}, "data row 2, column 'y': the value is missing ('')"),
        ({"X": np.eye(3), "y": [1, 1, 1]}, "one class only (1)"),
        ({"X": np.eye(3), "y": [1, 2, 3]}, "holds 3 different values in 3 rows"),
        ({"X": np.eye(1), "y": [1]}, "only one data row"),
    ],
)
def test_npz_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    assert message in sentence(put(tmp_path, npz(**arrays), "t.npz"), label=None)


def test_npz_without_labels(tmp_path: Path) -> None:
    path = put(tmp_path, npz(X=np.eye(3)), "t.npz")
    message = sentence(path, ColumnError, label=None)
    assert "there is no array 'y' of labels (exchangeable test --measure nearest-distance needs no labels)" in message
    assert message.endswith("--label may name any of 'X'")
    for labels in ("classes", "numbers", "none"):
        assert "there is no array 'q'" in sentence(path, ColumnError, label="q", labels=labels)


def test_damaged_npz(tmp_path: Path) -> None:
    whole = npz(X=np.eye(30), y=np.arange(30))
    broken_header = whole.replace(b"'descr'", b"'dEscr'")
    for data in (b"PK\x03\x04", b"junk" * 50, whole[: len(whole) // 2], whole[:-10], broken_header):
        message = sentence(put(tmp_path, data, "t.npz"))
        assert message == "t.npz: this is not an NPZ file that can be read: truncated, damaged or of another type"


def test_npz_with_less_data_than_its_header_promises(tmp_path: Path) -> None:
    for shape in ((3, 10), (3, 10**9), (3, 10**15), (3, 10**30), (-3, 2)):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        labels = io.BytesIO()
        np.save(labels, np.array([1, 2, 1][: max(shape[0], 0)]))
        with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
            archive.writestr("X.npy", header.getvalue() + bytes(48))
            archive.writestr("y.npy", labels.getvalue())
        assert sentence(tmp_path / "t.npz")
