"""Files: each format, what is detected in delimited text, types, and the message for each invalid input."""

from __future__ import annotations

import bz2
import datetime as dt
import decimal
import gzip
import io
import json
import logging
import lzma
import math
import os
import re
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchangeable as ex
from contracts import settled
from exchangeable.data import encoding, opening, rows, text_columns
from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.files import FileContents, read_file

FRAME = pl.DataFrame(
    {"n": [1, 2, None], "x": [0.1, -2.5e-7, None], "s": ["ä", None, 'q"; ,\n'], "t": [True, False, None]}
)
NOON = [dt.datetime(2024, 1, 5, 12), dt.datetime(2024, 1, 6, 12)]


def put(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def contents(content: str | bytes, **options: Any) -> FileContents:
    return read_file(io.BytesIO(content.encode() if isinstance(content, str) else content), **options)


def columns(content: str | bytes, **options: Any) -> dict[str, list[Any]]:
    return contents(content, **options).frame.to_dict(as_series=False)


def message(source: Any, kind: type[Exception] = DataError, **options: Any) -> str:
    """Return the error message, which must be one line, printable, and name the file."""
    with pytest.raises(kind) as caught:
        read_file(source, **options)
    text = str(caught.value)
    assert type(caught.value) is kind
    assert text.isprintable()
    assert len(text) < 500
    start, colon, rest = text.partition(": ")
    assert start
    assert colon
    return rest


def fault(content: str | bytes, kind: type[Exception] = DataError, **options: Any) -> str:
    return message(io.BytesIO(content.encode() if isinstance(content, str) else content), kind, **options)


# ------------------------------------------------------------------------------------------------------------ formats


def write(frame: pl.DataFrame, path: Path) -> Path:
    csv = frame.write_csv().encode()
    packed: dict[str, Any] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    if path.suffix == ".zst":
        path.write_bytes(pytest.importorskip("backports.zstd").compress(csv))
    elif path.suffix in packed:
        path.write_bytes(packed[path.suffix](csv))
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("folder/inner.csv", csv)
    elif path.suffix == ".tsv":
        frame.write_csv(path, separator="\t")
    elif path.suffix == ".stream":
        frame.write_ipc_stream(path)
    else:
        names = {".feather": "ipc", ".arrow": "ipc", ".jsonl": "ndjson"}
        getattr(frame, f"write_{names.get(path.suffix, path.suffix[1:])}")(path)
    return path


NAMES = ["t.csv", "T.CSV", "t.tsv", "t.csv.gz", "t.bz2", "t.csv.xz", "t.csv.zst", "t.zip", "t.parquet", "t.feather"]


@pytest.mark.parametrize("name", [*NAMES, "t.arrow", "t.jsonl", "t.json"])
def test_formats(tmp_path: Path, name: str) -> None:
    path = write(FRAME, tmp_path / name.lower()).rename(tmp_path / name)
    assert read_file(path).frame.equals(FRAME)
    assert read_file(path)[1:4] == (name, (), frozenset())
    part = read_file(path, columns=["s", "n", "t"], drop="t")
    assert part.frame.equals(FRAME["n", "s"])
    assert part.unused == {"x", "t"}
    with path.open("rb") as file:
        assert read_file(file).frame.equals(FRAME)


@pytest.mark.parametrize(
    "name", ["t.csv", "t.csv.gz", "t.zip", "t.parquet", "t.arrow", "t.stream", "t.json", "t.jsonl"]
)
def test_unknown_suffixes_are_read_by_content(tmp_path: Path, name: str) -> None:
    content = write(FRAME, tmp_path / name).read_bytes()
    assert read_file(put(tmp_path, content, "table.unknown")).frame.equals(FRAME)
    assert read_file(io.BytesIO(content)).frame.equals(FRAME)


def test_standard_input_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"a,b\n1,2\n"))))
    assert read_file("-").name == "standard input"
    assert columns("a,b\n1,2\n") == read_file(io.StringIO("a,b\n1,2\n")).frame.to_dict(as_series=False)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "a\n1\n", "s3:*[x]?.csv")
    put(tmp_path, "a\n2\n", "s3:yx1.csv")
    monkeypatch.chdir(tmp_path)
    for form in (path, str(path), os.fsencode(path), path.name):
        assert read_file(form).frame.rows() == [(1,)]


@pytest.mark.parametrize("compressed", [False, True])
def test_npz(tmp_path: Path, compressed: bool) -> None:
    X, y = np.arange(6.0, dtype=">f4").reshape(3, 2), np.array(["u", "v", "ü"])
    (np.savez_compressed if compressed else np.savez)(
        tmp_path / "t.npz", X=X, y=y, when=np.array(NOON[:1] * 3, "M8[s]")
    )
    frame = read_file(tmp_path / "t.npz").frame
    assert frame.columns == ["x0", "x1", "y", "when"]
    assert frame.rows()[2] == (4.0, 5.0, "ü", NOON[0])
    np.savez(tmp_path / "t.npz", X)
    assert read_file(tmp_path / "t.npz", columns="x1").frame.to_dict(as_series=False) == {"x1": [1, 3, 5]}
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "t.npz", "t.npz")
    assert read_file(tmp_path / "t.zip").frame.shape == (3, 2)


def test_npy(tmp_path: Path) -> None:
    for array, names in (
        (np.array([1.5, 2.5]), ["x0"]),
        (np.asfortranarray([[True, False], [False, True]]), ["x0", "x1"]),
        (np.array([(1, b"u"), (2, b"v")], [("n", "<i2"), ("s", "S3")]), ["n", "s"]),
    ):
        np.save(tmp_path / "t.npy", array)
        frame = read_file(tmp_path / "t.npy").frame
        assert frame.columns == names
        assert list(map(str, frame.row(1))) == list(map(str, np.array(frame.row(1)).tolist()))
        assert frame.height == 2


SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData></worksheet>"""
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORKBOOK = {
    "[Content_Types].xml": "<Types xmlns='http://schemas.openxmlformats.org/package/2006/content-types'/>",
    "_rels/.rels": "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>"
    f"<Relationship Id='r1' Type='{TYPES}/officeDocument' Target='xl/workbook.xml'/></Relationships>",
    "xl/workbook.xml": "<workbook xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main' "
    f"xmlns:r='{TYPES}'><sheets><sheet name='one' sheetId='1' r:id='r1'/><sheet name='two' sheetId='2' r:id='r1'/>"
    "</sheets></workbook>",
    "xl/_rels/workbook.xml.rels": "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>"
    f"<Relationship Id='r1' Type='{TYPES}/worksheet' Target='worksheets/sheet1.xml'/></Relationships>",
}


def workbook(path: Path, cells: list[list[Any]]) -> Path:
    def cell(value: Any) -> str:
        if isinstance(value, str):
            return f"<c t='inlineStr'><is><t>{value}</t></is></c>"
        if isinstance(value, ArithmeticError):
            return "<c t='e'><f>1/0</f><v>#DIV/0!</v></c>"
        return "<c/>" if value is None else f"<c><f>1+1</f><v>{value}</v></c>"

    with zipfile.ZipFile(path, "w") as archive:
        for name, text in WORKBOOK.items():
            archive.writestr(name, text)
        body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in cells)
        archive.writestr("xl/worksheets/sheet1.xml", SHEET.format(body))
    return path


def test_excel(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    path = workbook(
        tmp_path / "t.xlsx", [["n", "s", ""], [1.5, "u", None], [ArithmeticError(), "NA", None], [3, "v", None]]
    )
    found = read_file(path)
    assert found.frame.to_dict(as_series=False) == {"n": [1.5, None, 3], "s": ["u", None, "v"]}
    assert found.notes == ("left out 1 empty column without a name", "read 'one', the first of 2 sheets")
    assert read_file(path, columns="s").frame.columns == ["s"]
    assert "'a'; the names must differ" in message(workbook(tmp_path / "d.xlsx", [["a", "a"], [1, 2]]))
    assert "the sheet 'one' is empty" in message(workbook(tmp_path / "e.xlsx", []))
    assert "cannot be read as Excel" in message(put(tmp_path, path.read_bytes()[:900], "t.ods"))


def test_json_of_columns_and_values() -> None:
    frame = pd.DataFrame({"a": [1, 2], "s": ["x", None]})
    for text in (frame.to_json(), frame.to_json(orient="records"), '{"a": [1, 2], "s": ["x", null]}'):
        assert columns(text) == {"a": [1, 2], "s": ["x", None]}
    records = [{"a": 1, "b": True, "l": [1], "m": "12.5"}, {"a": 2.5, "b": None, "c": 2**70, "l": [], "m": "1"}]
    found = contents(json.dumps(records)).frame
    assert found.rows() == [(1.0, True, [1], 12.5, None), (2.5, None, [], 1.0, str(2**70))]
    assert columns('[{"a": 1}, {"a": "x"}]') == {"a": ["1", "x"]}
    assert columns('[{"a": [1]}, {"a": {"b": 2}}]') == {"a": [[1], {"b": 2}]}
    assert columns('{"a": 1}\n\n{"b": -Infinity}\n', columns="b") == {"b": [None, -math.inf]}


@pytest.mark.parametrize(
    ("name", "content", "clue"),
    [
        ("t.json", "[1, 2]", "record 1: every record must be an object"),
        ("t.json", "5", "JSON must be a list of records, or an object of columns"),
        ("t.json", '{"a": [1], "b": [1, 2]}', "lists of the same length"),
        ("t.json", '{"a": 1}', "JSON must be a list of records"),
        ("t.json", '[{"a": 1,\n"b": x}]', "line 2: invalid JSON"),
        ("t.json", "[]", "there are no columns"),
        ("t.json", "[" * 100_000, "nested too deeply"),
        ("t.json", "[{" + '"a": 1' + "0" * 5000 + "}]", "integer with too many digits"),
        ("t.jsonl", '{"a": 1}\n{"a": \n', "line 2: invalid JSON"),
        ("t.jsonl", b'{"a": "\xff"}\n{"a": "\xc3\xa4"}', "not valid utf-8 (byte 0xff at offset 7, line 1)"),
        ("t.parquet", "a,b\n1,2\n", "cannot be read as Parquet: it is truncated, damaged or in another format"),
        ("t.arrow", b"ARROW1\0\0" + bytes(50), "cannot be read as Arrow or Feather"),
        ("t.npz", "PK", "cannot be read as NPZ"),
        ("t.npy", b"\x93NUMPY\1\0", "cannot be read as NPY"),
        ("t.zip", b"PK\x03\x04" + bytes(20), "the zip data is truncated or damaged"),
    ],
)
def test_invalid_files_in_other_formats(tmp_path: Path, name: str, content: str | bytes, clue: str) -> None:
    assert clue in message(put(tmp_path, content, name))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.bz2", "t.csv.xz", "t.csv.zst", "t.zip", "t.parquet", "t.arrow"])
def test_truncated_and_damaged_files(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"a": np.random.default_rng(0).random(300)})
    content = write(frame, tmp_path / name).read_bytes()
    for part in (content[:-3], content[: len(content) // 2], content[:12]):
        assert message(put(tmp_path, part, name))
    for at in range(10, len(content), len(content) // 12):
        damaged = content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        with suppress(DataError):
            assert read_file(put(tmp_path, damaged, name)).frame.width > 0


@pytest.mark.parametrize(
    ("arrays", "clue"),
    [
        ({"X": np.eye(2), "y": [1]}, "the arrays must have the same number of rows; the arrays are 'X', 'y'"),
        ({"X": np.ones((2, 2, 2))}, "arrays must be 1-D or 2-D, got 3-D"),
        ({"X": np.eye(2), "y": np.array([{}, 1])}, "array 'y' holds Python objects, which only pickle could load"),
        ({"X": np.eye(2) * 1j}, "column 'x0' must hold numbers, text or times, got complex128"),
        ({"X": np.eye(2), "x0": [1, 2]}, "two columns are named 'x0'"),
        ({}, "there are no arrays"),
    ],
)
def test_invalid_npz(tmp_path: Path, arrays: dict[str, Any], clue: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    assert clue in message(tmp_path / "t.npz")


@pytest.mark.parametrize("shape", [(3, 10), (3, 10**9), (3, 10**15), (3, 10**30), (-3, 2), (0, 10**9)])
def test_an_array_with_less_data_than_its_header_promises(tmp_path: Path, shape: tuple[int, int]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    assert message(put(tmp_path, header.getvalue() + bytes(48), "t.npy"))


# -------------------------------------------------------------------------------------------- how text is delimited


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("a,b\n1,x\n2.5,\n", ()),
        ("\ufeffa,b\n1,x\n2.5,\n", ()),
        ("\n\na,b\r\n1,x\r\n\r\n   \r\n2.5,NA\r\n\n", ()),
        ("a,b\r1,x\r2.5,\r", ()),
        ("a,b\n1,x\n2.5,", ()),
        ('a,"b"\n 1 ,"x"\n"2.5",""\n', ()),
        ('"a", "b"\n"1", "x"\n2.5, " "\n', ()),
        ("a;b\n1;x\n2.5;\n", ("read with delimiter ';'",)),
        ("a\tb\n1\tx\n2.5\t\n", ("read with delimiter tab",)),
        ("a|b\n1|x\n2.5|null\n", ("read with delimiter '|'",)),
        ("'a'\t'b'\n1\t'x'\n2.5\t''\n", ("read with delimiter tab, single quotation marks",)),
        ("a b\n1   x\n 2.5\tNA \n", ("read with delimiter space",)),
        ("a;b\n1,0;x\n2,5;\n", ("read with delimiter ';', decimal comma",)),
        ("a,b,\n1,x,\n2.5,,\n", ("left out 1 empty column without a name",)),
        ("a,b\n1,x,\n2.5,,\n", ("left out 1 empty column without a name",)),
        ("a,b,\n1,x\n2.5,\n", ()),
    ],
)
def test_one_table_in_many_dialects(text: str, note: tuple[str, ...]) -> None:
    found = contents(text)
    assert found.frame.to_dict(as_series=False) == {"a": [1.0, 2.5], "b": ["x", None]}
    assert found.notes == note


def test_options_override_the_detection() -> None:
    assert columns("a|b;c\n1|2;3\n", delimiter="|") == {"a": [1], "b;c": ["2;3"]}
    assert columns("a\tb\n1\t2\n", delimiter="\\t") == {"a": [1], "b": [2]}
    assert columns("a,b\nu,v\n", header=False) == {"1": ["a", "u"], "2": ["b", "v"]}
    assert columns("1,2\n3,4\n", header=True) == {"1": [3], "2": [4]}
    assert columns("a;b\n1.5;2,5\n", decimal=",") == {"a": ["1.5"], "b": [2.5]}
    assert columns("a;b\n1,234;2,5\n", decimal=".") == {"a": [1234], "b": ["2,5"]}
    assert columns("a,b\n\xe4,1\n".encode("latin-1"), encoding="cp1251") == {"a": ["д"], "b": [1]}


@pytest.mark.parametrize(
    ("options", "clue"),
    [
        ({"delimiter": ",,"}, "other than a quotation mark or a line break, got ',,'"),
        ({"delimiter": "ü"}, "delimiter must be one ASCII character"),
        ({"decimal": "x"}, "decimal must be '.' or ',', got 'x'"),
        ({"decimal": ",", "delimiter": ","}, "delimiter and decimal must differ"),
        ({"encoding": "utf-99"}, "such as utf-8, latin-1 or utf-16, got 'utf-99'"),
        ({"encoding": "rot13"}, "encoding must be one that Python knows"),
        ({"encoding": "a\0"}, "encoding must be one that Python knows"),
    ],
)
def test_invalid_options(options: dict[str, Any], clue: str) -> None:
    assert clue in fault("a\n1\n", ColumnError, **options)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n", ["a", "b"]),
        ("a,b\nu,v\n", ["a", "b"]),
        ("a,b\n", ["a", "b"]),
        ("a\n1\n2\n", ["a"]),
        ("0,1,2\n5,6,7\n", ["0", "1", "2"]),
        (",0,1\n0,5,6\n1,5,6\n", ["Unnamed: 0", "0", "1"]),
        (",0\n1821,269\n", ["Unnamed: 0", "0"]),
        (",Unnamed: 0\n1,2\n", ["Unnamed: 0.1", "Unnamed: 0"]),
        ("0,1\n0.5,0.25\n", ["0", "1"]),
        ("land,1960,1970\nFR,3,4\n", ["land", "1960", "1970"]),
        ("150,4,setosa\n5.1,3.5,0\n", ["150", "4", "setosa"]),
        ('"n","m"\n"r1",1,2\n"r2",2,3\n', ["Unnamed: 0", "n", "m"]),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", None),
        ("1,2\n3,4\n", None),
        ("3\n1\n2\n", None),
        ("Bo,1890,1950\nAl,1900,1960\n", None),
        ("yes,no,yes\nno,no,no\n", None),
        ("2020-01-01,u\n2020-01-02,v\n", None),
    ],
)
def test_headers(text: str, names: list[str] | None) -> None:
    found = contents(text)
    assert found.frame.columns == (names or [str(i + 1) for i in range(found.frame.width)])
    assert ("no header (the columns are named '1', '2', ...)" in str(found.notes)) == (names is None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# made by hand\na,b\n1,2\n3,4\n", {"a": [1, 3], "b": [2, 4]}),
        ('Report, "2020"\n\nby me\na,b,c\n1,2,3\n', {"a": [1], "b": [2], "c": [3]}),
        ("178,13,wine\n9,8,7,6,5\n6,7,8,9,10\n", {str(i + 1): [9 - i, i + 6] for i in range(5)}),
    ],
)
def test_lines_above_the_table(text: str, expected: dict[str, list[Any]]) -> None:
    found = contents(text)
    assert found.frame.to_dict(as_series=False) == expected
    assert re.fullmatch(
        r"left out the first (line, which has|2 lines, which have) a different number of fields from the rest",
        found.notes[-1],
    )
    assert "expected" in fault(text, header=True)


def test_one_column_and_prose(tmp_path: Path) -> None:
    assert columns("x\nu v\nw\n") == {"x": ["u v", "w"]}
    lines = ["Hello, world", "a", "b, c, d", "e"]
    assert read_file(put(tmp_path, "\n".join(["text", *lines]), "t.txt")).frame["text"].to_list() == lines


@pytest.mark.parametrize(
    "text",
    [
        'n,s\n1,5" pipe\n2,"x, ""y"""\n3,6" pipe\n',
        'n,s\n1,a "quoted" word\n2,"""all"""\n3,"two\n\nlines"\n',
        'n,s\n1,it\'s\n2,"a\nb"\n3,"c,d"\n',
    ],
)
def test_quotation_marks_are_read_as_by_pandas(text: str) -> None:
    assert columns(text) == pd.read_csv(io.StringIO(text)).to_dict("list")


def test_the_result_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "".join(f'{i},{i / 7!r},"w{i % 3}\n,""x""",{"" if i % 5 else i}\n\n' for i in range(300))
    stray = body + '1,2,5" pipe,3\n' + body
    whole = [contents("n,x,s,m\n" + text).frame for text in (body, stray)]
    assert whole[0].dtypes == [pl.Int64, pl.Float64, pl.String, pl.Int64]
    for size in (64, 100, 1000):
        monkeypatch.setattr(encoding, "BLOCK", size)
        monkeypatch.setattr(rows, "_WRITTEN", size)
        for text, frame in zip((body, stray), whole, strict=True):
            assert contents("n,x,s,m\n" + text).frame.equals(frame)


def test_types_do_not_depend_on_the_order_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BLOCK", 16)
    values = {"a": ["1"] * 50 + ["x"], "b": ["1"] * 50 + ["2.5"], "c": ["7"] * 50 + ["007"], "d": [""] * 50 + ["true"]}
    for order in (1, -1):
        lines = [",".join(row) for row in zip(*(column[::order] for column in values.values()), strict=True)]
        frame = contents("a,b,c,d\n" + "\n".join(lines) + "\n").frame
        assert frame.dtypes == [pl.String, pl.Float64, pl.String, pl.Boolean]
        assert frame["a"].to_list()[::order] == values["a"]


# -------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", " 2 ", "", "+3", "-0"], [1, 2, None, 3, 0]),
        (["1", "2.5", "NA", ".5", "5.", "1e3"], [1, 2.5, None, 0.5, 5, 1000]),
        (["inf", "-inf", "1"], [math.inf, -math.inf, 1]),
        ([str(2**63 - 1), "1"], [2**63 - 1, 1]),
        ([str(2**63), "1"], [str(2**63), "1"]),
        ([str(2**63), "1.5"], [2.0**63, 1.5]),
        (["007", "1"], ["007", "1"]),
        (["-01", "1.5"], ["-01", "1.5"]),
        (["0", "0.5", "-0.5"], [0, 0.5, -0.5]),
        (["True", "FALSE", "true", ""], [True, False, True, None]),
        (["yes", "no"], ["yes", "no"]),
        (["1_000", "2"], ["1_000", "2"]),
        (["0x10", "2"], ["0x10", "2"]),
        (["٣", "2"], ["٣", "2"]),
        (["1", "x"], ["1", "x"]),
        ([" u", "v ", " NA ", "  "], [" u", "v ", None, None]),
        (['"1,234"', "999", '"-12,345,678.5"'], [1234, 999, -12345678.5]),
        (['"1,23"', "999"], [1.23, 999]),
        (["1 234", "999", "1\u00a0000\u202f000"], [1234, 999, 1_000_000]),
        (["2024-01-05 12:00", "2024-01-06 12:00", ""], [*NOON, None]),
        (["2024-01-05", "x"], ["2024-01-05", "x"]),
        (list(text_columns.MISSING), [None] * len(text_columns.MISSING)),
    ],
)
def test_types(cells: list[str], expected: list[Any]) -> None:
    found = columns("n,x\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))["x"]
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected)) or all(isinstance(x, float) for x in found if x)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\n0,5\n1\n,25\n", {"x": [0.5, 1, 0.25]}),
        ("x\n1,5\n2,5\n", {"x": [1.5, 2.5]}),
        ("1,5;2,5\n", {"1": [1.5], "2": [2.5]}),
        ("a,b\n1,5\n2,5\n", {"a": [1, 2], "b": [5, 5]}),
    ],
)
def test_a_decimal_comma_is_not_a_delimiter(text: str, expected: dict[str, list[Any]]) -> None:
    assert columns(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,5;1.500", [1.5, 1500]),
        ("1.234,5;7", [1234.5, 7]),
        ("1,5;1.5", ["1,5", 1.5]),
        ("1,234;1.5", [1234, 1.5]),
        ("1,234;7", [1.234, 7]),
        ("1 234,5;,5", [1234.5, 0.5]),
        ("1,5;2e3", [1.5, 2000]),
    ],
)
def test_the_decimal_mark_is_that_of_the_whole_file(text: str, expected: list[Any]) -> None:
    whole = contents(f"a;b\n{text}\n").frame
    assert list(whole.row(0)) == expected
    for name in whole.columns:
        assert contents(f"a;b\n{text}\n", columns=name).frame[name].equals(whole[name])


def test_ambiguous_dates_have_a_note() -> None:
    found = contents("when,x\n01/02/2024,1\n03/04/2024,2\n")
    assert found.frame["when"].to_list()[0] == dt.datetime(2024, 1, 2)
    assert found.notes == ("column 'when': dates such as 01/02/2024 were read with the month before the day",)


@settled(100)
@given(st.from_regex(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_text_is_rounded_as_python_rounds_it(text: str) -> None:
    found = text_columns.parse_plain(pl.DataFrame({"x": [text, "0.5"]}))["x"]
    if found.dtype != pl.String:
        assert struct.pack("d", found[0]) == struct.pack("d", float(text))
    else:
        assert text.lstrip("+-").startswith("0")


def test_halfway_cases_are_rounded_as_python_rounds_them() -> None:
    random = np.random.default_rng(1)
    below = np.abs(random.standard_normal(500)) * 10.0 ** random.integers(-30, 30, 500)
    with decimal.localcontext(decimal.Context(prec=800)):
        pairs = [(decimal.Decimal(float(x)), decimal.Decimal(float(np.nextafter(x, np.inf)))) for x in below]
        texts = [format((a + b) / 2, "f") for a, b in pairs]
    texts += [text + "1" for text in texts]
    assert text_columns.parse_plain(pl.DataFrame({"x": texts}))["x"].to_list() == [float(text) for text in texts]


NUMBERS = st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1))
WORDS = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6))


@settled(150)
@given(st.lists(st.tuples(NUMBERS, st.one_of(st.none(), st.integers(-(2**53), 2**53)), WORDS), min_size=1, max_size=20))
def test_tables_are_read_as_by_pandas(table: list[tuple[Any, Any, Any]]) -> None:
    written = pd.DataFrame(table, columns=["x", "n", "s"]).astype({"x": float, "n": "Int64", "s": object})
    text = written.to_csv(index=False)
    theirs = pd.read_csv(io.StringIO(text), float_precision="round_trip")
    ours = contents(text, header=True).frame
    assert ours.height == len(theirs)
    for name in ("x", "n"):
        expected = theirs[name].to_numpy(float, na_value=np.nan)
        assert np.array_equal(ours[name].cast(pl.Float64).fill_null(math.nan).to_numpy(), expected, equal_nan=True)
    for cell, word in zip(ours["s"].to_list(), written["s"], strict=True):
        if ours["s"].dtype == pl.String and cell is not None:
            assert cell == word


# ---------------------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    "name", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "latin-1", "shift_jis", "gb18030"]
)
def test_encodings(name: str) -> None:
    word = "größe" if name == "latin-1" else "あいう"
    text = f"{word},b\n" + f"{word},1\n" * 3000
    marked = name in ("utf-8", "utf-8-sig", "utf-16", "utf-32")
    found = contents(text.encode(name), encoding=None if marked else name)
    assert found.frame.to_dict(as_series=False) == {word: [word] * 3000, "b": [1] * 3000}
    assert found.notes == ((f"read with encoding {name}",) if name in ("utf-16", "utf-32") else ())


def test_cp1252_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BLOCK", 7)
    found = contents("name,x\nJosé,1\nŽ€ß,2\n".encode("cp1252"))
    assert found.frame["name"].to_list() == ["José", "Ž€ß"]
    assert found.notes == ("read with encoding cp1252",)


@pytest.mark.parametrize("block", [1 << 24, 5])
def test_bytes_that_are_not_text(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(encoding, "BLOCK", block)
    mixed = "name,x\nJosé,1\n".encode() + "José,2\n".encode("latin-1")
    place = "the text is not valid utf-8 (byte 0xe9 at offset 18, line 3); if this is a text file, give its encoding"
    assert place in fault(mixed)
    assert "not valid utf-8 (byte 0x89 at offset 0, line 1)" in fault(b"\x89PNG\r\n\x1a\n" + bytes(50))
    assert "line 2: the text contains a NUL character; if this is a text file" in fault(b"a,b\n1,\0\n")
    unmarked = "a,b\n1,2\n".encode("utf-16-le")
    assert "such as utf-16-le" in fault(unmarked)
    assert fault(unmarked, encoding="utf-16") == "the text has no byte order mark; give the encoding, such as utf-16-le"
    assert columns(unmarked, encoding="utf-16-le") == {"a": [1], "b": [2]}
    assert "the text is not valid utf-16 (byte" in fault("a,b\n1,2\n".encode("utf-16") + b"\xd8")
    assert "the text is not valid ascii (byte 0xc3 at offset 4" in fault("a,b\nä,2\n", encoding="ascii")


# ---------------------------------------------------------------------------------------------------------- bad input


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert message(tmp_path / "no\x1b.csv", FileNotFoundError) == "the file cannot be read: No such file or directory"
    assert "must be a regular file, got a directory" in message(tmp_path)
    assert "must be a regular file" in message("/dev/null")
    assert "NUL" in message("a\0b.csv", ColumnError)
    assert "only local files can be read" in message("https://example.com/t.csv", ColumnError)
    with pytest.raises(TypeError, match="the source must be a path, '-' for standard input, or an open file, got 5"):
        read_file(5)

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    path = put(tmp_path, "a\n")
    monkeypatch.setattr(Path, "open", refuse)
    assert message(path, PermissionError) == "the file cannot be read: Permission denied"


def test_disk_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(encoding, "_decode", fail)
    assert message(put(tmp_path, "a\n1\n"), OSError) == "the file cannot be read: Input/output error"

    def exhaust(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(encoding, "_decode", exhaust)
    assert "the table does not fit in memory" in message(put(tmp_path, "a\n1\n"))


@pytest.mark.parametrize(
    ("text", "clue"),
    [
        ("", "the file is empty"),
        ("\n\n\n", "the file is empty"),
        ("\ufeff", "the file is empty"),
        (
            "a,b,c\n1,2,3\n4,5\n",
            "line 3: expected 3 fields as in the header, got 2; every row must have the same number of fields",
        ),
        ("a,b\n1,2\n3,4,5\n", "line 3: expected 2 fields as in the header, got 3"),
        ("1,2\n3\n", "line 2: expected 2 fields as in the first row, got 1"),
        ("a,b\n1,2\n" + "3,4\n" * 5000 + "5\n6,7,8\n", "line 5,003: expected 2 fields as in the header, got 1"),
        ('a,b\n1,"2\n\n"\n3\n', "line 5: expected 2 fields"),
        ("a,b\n1,2,3,4\n", "line 2: expected 2 fields as in the header, got 4"),
        ("a,b\n1,2\n3\n4,5\n6,7\n", "line 3: expected 2 fields as in the header, got 1"),
        ('a,b\n1,2\n"3,4\n', "line 3: a quotation mark must be closed, and doubled within a quoted field"),
        ('a,b\n1,"2"3\n', "line 2: a quotation mark must be closed"),
        ("a,b,a\n1,2,3\n", "two columns are named 'a'; the names must differ"),
        ("a,,b\n1,2,3\n", "column 2 has no name; give it one in the header"),
        ("\x1b[31m,\x1b[31m\n1,2\n", r"two columns are named '\x1b[31m'"),
    ],
)
def test_text_that_is_not_a_table(text: str, clue: str) -> None:
    assert clue in fault(text)


def test_short_tables_are_read() -> None:
    assert contents("a,b\n").frame.shape == (0, 2)
    assert contents("a,b\n1,2").frame.rows() == [(1, 2)]
    assert contents("a,b\n,\n,\n").frame.rows() == [(None, None)] * 2


def test_a_row_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONGEST", 1000)
    monkeypatch.setattr(encoding, "BLOCK", 600)
    assert contents("a,y\n" + "1,u\n2,v\n" * 2000).frame.shape == (4000, 2)
    for long in ("v" * 2000, '"' + "\n" * 2000 + '"', '"v\n",' * 500, '5" ' + "v" * 2000):
        assert "line 3: the row is longer than" in fault(f"a,y\n1,u\n2,{long}\n3,u\n")
    assert "line 1: the row is longer than" in fault("v" * 5000)


def test_ten_thousand_columns() -> None:
    names = [f"c{i}" for i in range(10_000)]
    line = ",".join(f"{i}.5" for i in range(10_000))
    frame = contents(",".join(names) + f"\n{line}\n{line}\n").frame
    assert frame.shape == (2, 10_000)
    assert frame.row(1)[-1] == 9999.5


@pytest.mark.parametrize(
    ("members", "clue"),
    [
        ({}, "a ZIP archive must hold one table, got 0"),
        ({"a.csv": "a\n1\n", "b.csv": "a\n1\n"}, "must hold one table, got 2 ('a.csv', 'b.csv')"),
        ({"a.md": "a\n1\n", "b.md": "a\n1\n"}, "must hold one table, got 0 ('a.md', 'b.md')"),
    ],
)
def test_archives_without_one_table(tmp_path: Path, members: dict[str, str], clue: str) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    assert clue in message(tmp_path / "t.zip")


def test_archives_with_one_table(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("readme.md", "hello")
        archive.writestr("__MACOSX/._a.csv", "junk")
        archive.writestr("a.csv.gz", gzip.compress(b"a\n1\n"))
    found = read_file(tmp_path / "t.zip")
    assert (found.frame.rows(), found.notes) == ([(1,)], ("read 'a.csv.gz', one of 2 files in the archive",))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.bz2", "t.csv.xz", "t.csv.zst", "t.zip"])
def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = write(pl.DataFrame({"a": np.zeros(500_000, int)}), tmp_path / name)
    assert read_file(path).frame.height == 500_000
    monkeypatch.setattr(opening, "LARGE", 1 << 19)
    monkeypatch.setattr(opening, "RATIO", 20)
    assert "more than 20 times as large as the file" in message(path)


def test_decompression_bombs_in_arrays_and_workbooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "LARGE", 1 << 20)
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((1 << 18, 2)))
    assert "times as large as the file" in message(tmp_path / "t.npz")
    if pytest.importorskip("fastexcel"):
        with zipfile.ZipFile(tmp_path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("[Content_Types].xml", bytes(1 << 22))
        assert "times as large as the file" in message(tmp_path / "t.xlsx")


@settled(400)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=40).map(str.encode)), st.sampled_from([*opening.FORMATS, ""]))
def test_any_bytes_give_a_frame_or_a_data_error(content: bytes, suffix: str) -> None:
    file = io.BytesIO(content)
    file.name = f"t{suffix}"
    if opening.FORMATS.get(suffix) == "excel":
        pytest.importorskip("fastexcel")
    with suppress(DataError):
        assert isinstance(read_file(file).frame, pl.DataFrame)


@settled(300)
@given(st.text(st.sampled_from("a1\",;\n\t '."), max_size=40))
def test_any_delimited_text_has_one_answer(text: str) -> None:
    """Text that can be read has the rows that `csv.reader` finds, whatever the size of the chunks."""
    try:
        whole = contents(text, delimiter=",", header=False).frame
    except DataError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "BLOCK", 3)
        assert contents(text, delimiter=",", header=False).frame.equals(whole)


# ------------------------------------------------------------------------------------------------- ex.read, and large


def test_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "exchangeable")
    calls: list[tuple[str, int, int]] = []
    frame = ex.read(io.StringIO("a;b\n1,5;x\n"), columns=["a"], progress=lambda *call: calls.append(call))
    assert frame.rows() == [(1.5,)]
    assert caplog.messages == ["the file: read with delimiter ';', decimal comma"]
    assert calls[-1] == ("reading the file", 10, 10)
    with pytest.raises(ColumnError, match=r"^the file: columns must name a column of the data, got 'c'; .*'a', 'b'"):
        ex.read(io.StringIO("a;b\n1,5;x\n"), columns=["a", "c"])


MEASURE = """
import json, resource, sys, polars
from exchangeable.data.files import read_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = str(read_file(sys.argv[1], columns=["c0", "c19"]).frame.shape)
except ValueError as error:
    found = str(error)
print(json.dumps([found, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024]))
"""


def measured(path: Path) -> tuple[str, int]:
    """Return what was read, and the growth of the peak memory in bytes, in a process of its own."""
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stderr == ""
    found, grown = json.loads(done.stdout)
    return found, grown


def large(path: Path, size: int) -> int:
    """Write 20 columns, and return the number of rows."""
    random = np.random.default_rng(0)
    lines = [",".join(map(repr, row)) for row in random.standard_normal((2000, 20)).round(6).tolist()]
    block = "\n".join(lines).encode() + b"\n"
    with path.open("wb") as file:
        file.write(",".join(f"c{i}" for i in range(20)).encode() + b"\n")
        for _ in range(size // len(block)):
            file.write(block)
    return size // len(block) * 2000


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured in kilobytes on Linux only")
@pytest.mark.parametrize("size", [200 << 20, pytest.param(1 << 30, marks=pytest.mark.soak)])
def test_memory_is_proportional_to_the_wanted_columns(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.csv"
    count = large(path, size)
    found, grown = measured(path)
    path.unlink()
    assert found == str((count, 2))
    assert grown < (150 << 20) + 6 * 16 * count


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured in kilobytes on Linux only")
@pytest.mark.parametrize("size", [100 << 20, pytest.param(10 << 30, marks=pytest.mark.soak)])
@pytest.mark.parametrize("line", [b"0,0\n", b"0"])
def test_a_decompression_bomb_is_refused_in_little_memory(tmp_path: Path, size: int, line: bytes) -> None:
    path = tmp_path / "t.csv.gz"
    member = gzip.compress(line * ((1 << 26) // len(line)), 9)
    with path.open("wb") as file:
        for _ in range(max(1, size >> 26)):
            file.write(member)
    found, grown = measured(path)
    assert ("times as large" if size > 1 << 30 else "the row is longer" if line == b"0" else "(") in found
    assert grown < 1 << 29


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured in kilobytes on Linux only")
def test_a_line_of_200_megabytes(tmp_path: Path) -> None:
    path = put(tmp_path, b"a," * (100 << 20))
    found, grown = measured(path)
    path.unlink()
    assert "line 1: the row is longer than the limit of 16 MiB" in found
    assert grown < 400 << 20


def test_archives_in_archives_do_not_multiply_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = gzip.compress(b"1,2\n" * 200)
    path = put(tmp_path, gzip.compress(b"".join([member] * 2000)), "t.csv.gz.gz")
    assert read_file(path).frame.height > 100_000
    monkeypatch.setattr(opening, "LARGE", 1 << 20)
    monkeypatch.setattr(opening, "RATIO", 50)
    assert "more than 50 times as large as the file" in message(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_tables_much_larger_than_their_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    frame = pl.DataFrame({"a": np.zeros(500_000, int), "b": np.zeros(500_000, int)})
    path = tmp_path / name
    frame.write_parquet(path) if name == "t.parquet" else frame.write_ipc(path, compression="zstd")
    assert read_file(path).frame.height == 500_000
    monkeypatch.setattr(opening, "LARGE", 1 << 20)
    assert "more than 1,000 times as large as the file" in message(path)


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert message("-") == "it is closed; give the name of a file"


def test_decimal_comma_with_spaces_between_thousands() -> None:
    assert columns("a;b\n1 234,5;x\n987,25;y\n12 000,0;z\n")["a"] == [1234.5, 987.25, 12000.0]


def test_the_line_that_names_the_delimiter_for_excel() -> None:
    assert columns("sep=;\na;b\n1;2\n3;4\n") == {"a": [1, 3], "b": [2, 4]}
    assert columns("sep=,\na,b,c\n1,2,5\n3,4,6\n") == {"a": [1, 3], "b": [2, 4], "c": [5, 6]}


def test_rows_of_all_lengths_are_not_one_column(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(",".join("1" * (1 + i % 5)) + "\n" for i in range(100)))
    assert message(path).startswith("line 2: expected 1 field")


def test_json_rows_by_their_number(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    for orient in ("index", "columns", "records"):
        assert columns(frame.to_json(orient=orient)) == {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}
    unnamed = pd.DataFrame([[1, 2], [3, 4], [5, 6]])
    assert columns(unnamed.to_json()) == {"0": [1, 3, 5], "1": [2, 4, 6]}


def test_options_of_a_wrong_type(tmp_path: Path) -> None:
    assert "delimiter must be one ASCII character" in message(put(tmp_path, "a,b\n1,2\n"), ColumnError, delimiter=5)


# ------------------------------------------------------------------------------------------------ units, wrong suffixes


def test_currency_and_percent_signs_are_removed_if_all_cells_have_the_same() -> None:
    read = contents('price,share,cost\n"$1,234.50",12.5%,3 €\n$7,8%,\n')
    assert read.frame.to_dict(as_series=False) == {"price": [1234.5, 7.0], "share": [12.5, 8.0], "cost": [3, None]}
    assert read.notes == tuple(
        f"column {name} holds numbers with {unit}"
        for name, unit in (("'price'", "$"), ("'share'", "%"), ("'cost'", "€"))
    )
    assert columns("a\n$1\n€2\n") == {"a": ["$1", "€2"]}
    assert columns("a\n$x\n$y\n") == {"a": ["$x", "$y"]}


def test_the_content_decides_if_a_suffix_for_text_is_wrong(tmp_path: Path) -> None:
    FRAME.write_parquet(tmp_path / "t.csv")
    assert ex.read(tmp_path / "t.csv").equals(FRAME)
    assert "for delimited text" in message(tmp_path / "t.csv", ColumnError, delimiter=";")
    assert "[1]" in columns("a\n[1]\n[2]\n")["a"][0]  # a bracket is not yet JSON


def test_a_name_may_occur_once_in_an_object_of_json(tmp_path: Path) -> None:
    assert "has the name 'a' twice" in message(put(tmp_path, '[{"a": 1, "a": 2}]', "t.json"))
    assert "has the name 'a' twice" in message(put(tmp_path, '{"a": 1, "a": 2}\n', "t.jsonl"))
