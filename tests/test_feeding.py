"""How observations arrive: objects, arrays, NDJSON and CSV give the same numbers, and seq may be left out."""

from __future__ import annotations

import csv
import io
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

from contracts import settled
from exchangeable.martingale import LN10
from exchangeable.service import csv_body, ingest, parsing
from exchangeable.service.late_labels import LabelQueue
from exchangeable.service.logs import JsonLines
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Limits, Settings
from serving import JSON, NDJSON, Served, numbered, served

CSV = {"Content-Type": "text/csv; charset=utf-8"}
RNG = np.random.default_rng(22)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = Settings(limits=Limits(batch=50, width=20))
    with served(tmp_path_factory.mktemp("feeding") / "streams.db", settings) as running:
        yield running


def post(server: Served, name: str, body: str | bytes, headers: dict[str, str] = JSON) -> Any:
    return server.ask("POST", f"/v1/streams/{name}/observations", content=body, headers=headers)


def taken(server: Served, name: str, body: str | bytes, headers: dict[str, str] = JSON) -> dict[str, Any]:
    reply = post(server, name, body, headers)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def refused(server: Served, name: str, body: str | bytes, headers: dict[str, str] = CSV, status: int = 422) -> str:
    """The message of a rejection, which changes nothing."""
    before = server.show(name)
    reply = post(server, name, body, headers)
    assert reply.status_code == status, reply.text
    assert server.show(name) == before
    return str(reply.json()["message"])


def ndjson(lines: list[Any]) -> str:
    return "\n".join(map(json.dumps, lines))


def as_csv(rows: list[dict[str, Any]], **more: Any) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), **more)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def result(server: Served, name: str) -> tuple[Any, Any]:
    """All that a stream says of its observations, but for its name and times."""
    history = server.ask("GET", f"/v1/streams/{name}/history").json()
    shown = server.show(name)
    return history["log10"], (history["p"], shown["state"], shown["next_seq"], shown["waiting"])


# ------------------------------------------------------------------ without seq


def test_observations_without_seq_are_appended_and_the_reply_has_their_numbers(server: Served) -> None:
    server.create("append", seed=3)
    server.create("counted", seed=3)
    x = RNG.normal(size=30).tolist()
    first = taken(server, "append", ndjson([{"x": value} for value in x[:10]]), NDJSON)
    assert (first["first_seq"], first["last_seq"], first["next_seq"], first["accepted"]) == (1, 10, 11, 10)
    mixed = server.take("append", numbered(x[10:12], 11))
    assert (mixed["first_seq"], mixed["last_seq"]) == (11, 12)
    one = taken(server, "append", json.dumps({"x": x[12]}))
    assert (one["first_seq"], one["last_seq"]) == (13, 13)
    rest = taken(server, "append", json.dumps([{"x": value} for value in x[13:]]))
    assert (rest["first_seq"], rest["last_seq"], rest["duplicates"]) == (14, 30, 0)
    again = server.take("append", numbered(x[:3]))
    assert (again["duplicates"], again["first_seq"], again["last_seq"]) == (3, None, None)
    server.take("counted", numbered(x))
    assert result(server, "append") == result(server, "counted")


def test_the_same_body_without_seq_counts_twice(server: Served) -> None:
    server.create("twice")
    assert [taken(server, "twice", '{"x": 1}')["first_seq"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        ('{"x": 1}\n{"x": 2, "seq": 2}', NDJSON, "line 1: seq must be given for all observations of a request"),
        ('[{"x": 1, "seq": 1}, {"x": 2}]', JSON, "item 2: seq must be given for all observations of a request"),
        ("seq,x\n1,1\n,2\n", CSV, "line 3: seq must be an integer from 1 to 9007199254740991, got ''"),
        ('{"x": 1, "seq": null}', JSON, "line 1: seq must be an integer from 1"),
        ('{"x": 1}\n{"x": "a"}', NDJSON, "line 2: x must be a finite number"),
        ("x\n1\n2\n3.5.1\n", CSV, "line 4: column 'x' must hold a number, got '3.5.1'"),
    ],
)
def test_all_of_a_batch_without_seq_or_none(server: Served, body: str, headers: dict[str, str], message: str) -> None:
    server.create("all")
    assert refused(server, "all", body, headers).startswith(message)


def test_errors_of_a_batch_without_seq_count_within_the_request(server: Served) -> None:
    server.create("risky", measure={"kind": "risk", "limit": 0.1})
    server.take("risky", numbered([0, 1]))
    message = refused(server, "risky", "loss\n1\n0\n2\n")
    assert message == "x must be a loss from 0 to 1 in stream 'risky', got 2 in observation 3 of the request"


def test_many_senders_without_seq_share_a_stream(server: Served) -> None:
    """Each reply has its own numbers; together they are all, and each request is in one piece."""
    server.create("shared", measure={"kind": "nearest-distance", "cap": 2000}, seed=1)
    replies: list[tuple[int, int, int]] = []

    def send(sender: int) -> None:
        for size in (1, 7, 30, 2, 50):
            body = ndjson([{"x": [sender, i, size]} for i in range(size)])
            reply = taken(server, "shared", body, NDJSON)
            replies.append((reply["first_seq"], reply["last_seq"], sender * 100 + size))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replies.sort()
    assert [first for first, _, _ in replies] == [1, *(last + 1 for _, last, _ in replies[:-1])]
    assert replies[-1][1] == 360 == server.show("shared")["state"]["n"]
    server.create("serial", measure={"kind": "nearest-distance", "cap": 2000}, seed=1)
    for first, last, who in replies:
        x = [[who // 100, i, who % 100] for i in range(last - first + 1)]
        server.take("serial", numbered(x, first))
    assert result(server, "shared") == result(server, "serial")


def test_long_batches_without_seq_keep_their_order(tmp_path: Path) -> None:
    """Batches that are computed aside, with short ones between them."""
    x = np.random.default_rng(1).normal(size=(3010, 8))
    with served(tmp_path / "long.db") as server:
        for name in ("aside", "plain"):
            server.create(name, measure={"kind": "nearest-distance", "cap": 5000}, seed=1)
        parts = [x[:1500], x[1500:1505], x[1505:3000], x[3000:]]
        replies: list[Any] = [None] * 4
        sent = [threading.Event() for _ in parts]
        engine = server.app.state.engine
        submit = engine.submit

        def note(job: Any, **more: Any) -> Any:
            future = submit(job, **more)
            next((event for event in sent if not event.is_set()), sent[0]).set()
            return future

        engine.submit = note

        def send(i: int) -> None:
            replies[i] = taken(server, "aside", ndjson([{"x": row} for row in parts[i].tolist()]), NDJSON)

        threads = []
        for i in range(4):
            threads.append(threading.Thread(target=send, args=(i,)))
            threads[-1].start()
            assert sent[i].wait(30)
        for thread in threads:
            thread.join()
        del engine.submit
        assert [(r["first_seq"], r["last_seq"]) for r in replies] == [
            (1, 1500),
            (1501, 1505),
            (1506, 3000),
            (3001, 3010),
        ]
        for start in range(0, 3010, 1000):
            server.take("plain", numbered(x[start : start + 1000].tolist(), start + 1))
        assert result(server, "aside") == result(server, "plain")


def test_observations_without_seq_wait_for_their_labels_under_an_id(server: Served) -> None:
    server.create("late", measure={"kind": "nearest-neighbour", "cap": 100}, seed=1)
    assert "y must be given, or an id" in refused(server, "late", '{"x": 1}', JSON)
    assert refused(server, "late", "x,y\n1,a\n2,\n").endswith("got neither in observation 2 of the request")
    reply = taken(server, "late", "id,x\na,1\nb,2\n", CSV)
    assert (reply["first_seq"], reply["last_seq"], reply["waiting"]) == (1, 2, 2)
    labels = [{"id": "a", "y": "red"}, {"id": "b", "y": "blue"}]
    reply = server.ask("POST", "/v1/streams/late/labels", content=json.dumps(labels), headers=JSON).json()
    assert (reply["accepted"], reply["waiting"], reply["state"]["n"]) == (2, 0, 2)
    assert "first_seq" not in reply
    assert "id must be new" in refused(server, "late", "id,x\na,1\n")


# ------------------------------------------------------------------ forms of numbers


def test_long_bodies_are_not_parsed_in_the_event_loop(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one is, since a thread takes longer."""
    threads: list[int] = []
    for module, name in ((csv_body, "observations"), (parsing, "observations"), (parsing, "labels")):
        parse = getattr(module, name)

        def seen(*values: Any, parse: Callable[..., Any] = parse, **more: Any) -> Any:
            threads.append(threading.get_ident())
            return parse(*values, **more)

        monkeypatch.setattr(module, name, seen)
    server.create("long", measure={"kind": "nearest-neighbour"})
    short = {"text/csv": "x\n", "application/json": "[]", "application/x-ndjson": "{}"}
    for kind, body in short.items():
        for what in ("observations", "labels") if kind != "text/csv" else ("observations",):
            for long in ("", " " * 100_000):
                path = f"/v1/streams/long/{what}"
                assert server.ask("POST", path, content=body + long, headers={"Content-Type": kind}).is_client_error
    assert len(threads) == 10
    assert len(set(threads[::2])) == 1
    assert not set(threads[::2]) & set(threads[1::2])


def test_all_forms_of_numbers_give_the_same(server: Served) -> None:
    x, y = RNG.normal(size=(40, 3)), RNG.choice(["red", "blue", "7"], 40).tolist()
    lines = numbered(x.tolist(), y=[int(label) if label == "7" else label for label in y])
    rows = [
        {"seq": i, "a": row[0], "b": row[1], "y": label, "c": row[2]}
        for i, (row, label) in enumerate(zip(x.tolist(), y, strict=True), 1)
    ]
    bodies = {
        "ndjson": (ndjson(lines), NDJSON),
        "array": (json.dumps(lines, indent=2), JSON),
        "csv": (as_csv(rows), CSV),
        "quoted": ("\ufeff" + as_csv(rows, quoting=csv.QUOTE_ALL, lineterminator="\n"), CSV),
        "unnumbered": (as_csv([{k: v for k, v in row.items() if k != "seq"} for row in rows]), CSV),
    }
    results = []
    for name, (body, headers) in bodies.items():
        server.create(f"form-{name}", measure={"kind": "nearest-neighbour", "cap": 100}, seed=9)
        assert taken(server, f"form-{name}", body, headers)["accepted"] == 40
        results.append(result(server, f"form-{name}"))
    assert all(other == results[0] for other in results[1:])
    for body, headers in list(bodies.values())[:4]:  # what came in one form is a duplicate in another
        assert taken(server, "form-array", body, headers)["duplicates"] == 40


def test_csv_of_single_numbers_and_of_events(server: Served) -> None:
    server.create("single", seed=1)
    reply = taken(server, "single", "time,speed\r\n2024-01-01T00:00:00Z, 1.5 \r\n\r\n17,-2e3\r\n", CSV)
    assert (reply["accepted"], reply["state"]["n"]) == (2, 2)
    assert "x must be one number" in refused(server, "single", "a,b\n1,2\n")
    assert "true or false" in refused(server, "single", "x\nTrue\n")
    server.create("events", measure={"kind": "rate"})
    assert taken(server, "events", "failed\ntrue\nFALSE\n1\n", CSV)["state"]["rate"]["shares"] == pytest.approx(
        [1 / 3, 2 / 3]
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "line 1 must be a header with the names of the columns, got nothing"),
        (b"x\n", 422, "the body must hold at least one observation, got none"),
        (b"1\n2\n", 422, "line 1 must be a header with the names of the columns, got '1'"),
        (b"x;y\n1,5;2\n", 422, "line 1 must separate columns by commas, and decimals by points, got ';'"),
        (b"x\n1,5\n", 422, "line 2: the number of cells must be 1, as in the header, got 2"),
        (b'x\n"1,5"\n', 422, "line 2: column 'x' must hold a number, got '1,5'"),
        (b"x,x\n1,2\n", 422, "line 1 must give each column a name of its own"),
        (b"seq,id\n1,2\n", 422, "x must have a column"),
        (b"x,y\n1,2\n", 422, "line 1 must not name a column y, the label, since the stream uses no labels"),
        (b"x\n1\n\nnan\n", 422, "line 4: column 'x' must hold a number, got 'nan'"),
        (b"x\n1e999\n", 422, "line 2: column 'x' must hold finite numbers, got '1e999'"),
        (b"x,id\n,a\n", 422, "line 2: column 'x' must hold a number, got ''"),
        (b'x,id\n1,"a\nb"\n2,"a"b\n', 400, "line 4 must be CSV: a cell with a quotation mark or a line break must be"),
        (b"x\r1\r2\r", 400, "line 1 must be CSV: a cell with a quotation mark or a line break must be quoted"),
        (b"x,id\n1," + b"a" * 200_000, 400, "line 2 must be CSV: field larger than field limit"),
        (b"x\n1\n\xff\n", 400, "line 3 must be UTF-8 text"),
        (b"seq,x\n1.5,1\n", 422, "line 2: seq must be an integer from 1 to 9007199254740991, got '1.5'"),
        (b"seq,x\n0,1\n", 422, "line 2: seq must be an integer from 1"),
        (b"x,time\n1," + b"9" * 5000 + b"\n", 422, "line 2: time must"),
        (b"x\n" + b"1\n" * 51, 413, "a batch must have at most 50 lines, got 51"),
        (b",".join(b"%d" % i for i in range(30)) + b",a\n", 422, "line 1 must name at most 20 columns"),
        (b"x,id\n1," + b"i" * 300, 422, "line 2: id must have at most 256 characters, got 300"),
    ],
)
def test_csv_that_cannot_be_read_is_refused_in_one_sentence(
    server: Served, body: bytes, status: int, message: str
) -> None:
    server.create("bad-csv")
    assert message in refused(server, "bad-csv", body, CSV, status)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"[]", 422, "the body must hold at least one observation, got none"),
        (b'[{"x": 1}', 400, "item 2 must be JSON: the array is not closed"),
        (b'[{"x": 1},]', 400, "item 2 must be JSON: expecting value"),
        (b'[{"x": 1}] [', 400, "item 2 must be JSON: there is text after the array"),
        (b'[{"x": 1, "x": 2}]', 400, "item 1 must not repeat a key, got 'x'"),
        (b'[{"x": 1}, {"x": NaN}]', 400, "item 2 must be JSON"),
        (b'[{"x": 1}, 7]', 422, "item 2 must be an object with x"),
        (b"[" * 100_000, 400, "item 1 must be JSON: nested too deeply"),
        (b"[" + b'{"x":1},' * 60 + b"1]", 413, "a batch must have at most 50 lines, got 51"),
    ],
)
def test_arrays_that_cannot_be_read_are_refused(server: Served, body: bytes, status: int, message: str) -> None:
    server.create("bad-array")
    assert message in refused(server, "bad-array", body, JSON, status)


def check_problem(problem: Problem) -> None:
    assert 400 <= problem.status < 500
    assert problem.message.isprintable()


@settled(300)
@given(st.binary(max_size=60) | st.text(alphabet='x,y1.5"\r\n ;é-', max_size=40).map(str.encode))
def test_csv_is_read_as_by_the_standard_library_or_refused(body: bytes) -> None:
    try:
        batch = csv_body.observations(body, batch=5, width=3, text=9)
    except Problem as problem:
        check_problem(problem)
        return
    header, *lines = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"), newline="")) if row]
    places = [i for i, name in enumerate(header) if name.strip() not in csv_body.FIELDS]
    assert batch.x.tolist() == [[float(row[place]) for place in places] for row in lines]


# ------------------------------------------------------------------ rows of a table


def table_rows(n: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        zip_code = str(rng.choice(["01", "02", "30"]))
        note = str(rng.choice(["a, b", 'said "no"', "two\nlines"]))
        rows.append({"size": float(rng.normal()), "zip": zip_code, "note": note, "id": int(i), "ok": float(i % 2)})
    for row in rows[::9]:
        row["size"] = row["zip"] = None
    return rows


REFERENCE = table_rows(200, 1)
ROWS = table_rows(40, 2)
MEASURE = {"kind": "table", "label": "ok", "bins": 16}


def create_table(server: Served, name: str, body: str | None = None, headers: dict[str, str] = NDJSON) -> None:
    server.create(name, measure=MEASURE, seed=5)
    content = ndjson(REFERENCE) if body is None else body
    reply = server.ask("PUT", f"/v1/streams/{name}/reference", content=content, headers=headers)
    assert reply.status_code == 201, reply.text


def test_all_forms_of_rows_give_the_same(server: Served) -> None:
    wrapped = [{"seq": i, "row": row} for i, row in enumerate(ROWS, 1)]
    bodies = {
        "wrapped": (ndjson(wrapped), NDJSON),
        "wrapped-array": (json.dumps(wrapped), JSON),
        "plain": (ndjson(ROWS), NDJSON),
        "plain-array": (json.dumps(ROWS), JSON),
        "plain-numbered": (ndjson([{**row, "seq": i} for i, row in enumerate(ROWS, 1)]), NDJSON),
        "csv": (as_csv(ROWS), CSV),
        "csv-numbered": ("\ufeff" + as_csv([{"seq": i, "time": i, **row} for i, row in enumerate(ROWS, 1)]), CSV),
    }
    results = []
    for name, (body, headers) in bodies.items():
        create_table(server, f"rows-{name}")
        assert taken(server, f"rows-{name}", body, headers)["accepted"] == 40
        results.append(result(server, f"rows-{name}"))
    assert all(other == results[0] for other in results[1:])
    assert results[0][1][1]["table"]["invalid_cells"] == 0


def test_one_plain_object_is_a_row(server: Served) -> None:
    create_table(server, "one-row")
    assert taken(server, "one-row", json.dumps(ROWS[1]))["last_seq"] == 1
    assert taken(server, "one-row", json.dumps({"row": ROWS[2]}))["last_seq"] == 2
    assert taken(server, "one-row", json.dumps({"row": ROWS[3], "seq": 3}, indent=2))["last_seq"] == 3
    assert "must have only columns of the reference, got 'x'" in refused(
        server, "one-row", json.dumps({**ROWS[3], "x": 1}), JSON
    )
    assert "seq must be an integer" in refused(server, "one-row", json.dumps({**ROWS[3], "seq": "3"}), JSON)
    assert "line 1 must not repeat a key" in refused(server, "one-row", '{"size": 1, "size": 2}', JSON, 400)
    assert "must have the columns" in refused(server, "one-row", "size\n1\n")


def test_a_column_may_be_named_row(server: Served) -> None:
    server.create("row-column", measure={**MEASURE, "label": None}, seed=5)
    content = ndjson([{"row": float(i), "x": float(i % 7)} for i in range(100)])
    assert server.ask("PUT", "/v1/streams/row-column/reference", content=content, headers=NDJSON).status_code == 201
    assert taken(server, "row-column", '{"row": 5, "x": 1}')["last_seq"] == 1
    assert taken(server, "row-column", '{"row": {"row": 5, "x": 1}}')["last_seq"] == 2
    assert taken(server, "row-column", "x,row\n1,5\n", CSV)["last_seq"] == 3


def test_a_row_without_a_column_of_the_reference_is_not_one_of_missing_values(server: Served) -> None:
    server.create("lenient", measure={**MEASURE, "invalid": "missing"}, seed=5)
    content = ndjson(REFERENCE)
    assert server.ask("PUT", "/v1/streams/lenient/reference", content=content, headers=NDJSON).status_code == 201
    for body, headers in (('{"seq": 1, "x": 2}', JSON), ("{}", JSON), ("speed,seq\n1,1\n", CSV)):
        assert "line 1 must name columns of the reference ('id', " in refused(server, "lenient", body, headers)


def test_errors_in_rows_name_the_line(server: Served) -> None:
    create_table(server, "lines")
    taken(server, "lines", as_csv(ROWS[:5]), CSV)
    good, bad = ({**ROWS[1], "note": "a, b", "size": size} for size in (1.5, "many"))
    header, *cells = as_csv([good, bad]).splitlines()
    bodies = {
        "line 4": ("\n".join([header, "", *cells]), CSV),
        "line 2": (ndjson([{"row": good}, {"row": bad}]), NDJSON),
        "item 2": (json.dumps([good, bad]), JSON),
    }
    for where, (body, headers) in bodies.items():
        reply = post(server, "lines", body, headers).json()
        assert (reply["error"], reply["line"]) == ("bad-observation", int(where[-1]))
        assert reply["message"].startswith(f"{where}, stream 'lines': column 'size' ")


def test_half_of_a_surrogate_pair_is_named(server: Served) -> None:
    server.create("surrogates")
    message = refused(server, "surrogates", '{"x": 1}\n{"x": 1, "id": "\\ud800"}', NDJSON, 400)
    assert message == "line 2 must be JSON: a string must not hold half of a surrogate pair"


def test_a_reference_in_csv_is_that_of_the_same_file_in_python(server: Served) -> None:
    import exchangeable as ex

    text = as_csv(REFERENCE)
    create_table(server, "csv-reference", text, CSV)
    taken(server, "csv-reference", as_csv(ROWS), CSV)
    like = ex.TableMonitor(ex.read(io.StringIO(text)), label="ok", bins=16, seed=5)
    like.extend(ex.read(io.StringIO(as_csv(ROWS))))
    assert like.last is not None
    state = server.show("csv-reference")["state"]
    assert state["log10_martingale"] == like.last.log_value / LN10
    reset = server.ask("POST", "/v1/streams/csv-reference/reset").json()
    assert reset["state"]["n"] == 40


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"\x1f\x8b\x08" + b"\0" * 20, 422),
        (b"PAR1\0\0", 422),
        (b"a,a\n1,2\n", 422),
        (b"a\n1\n2\n", 422),
        (b",".join(b"c%d" % i for i in range(30)) + b"\n", 413),
        (b"\xff\xfe\x00", 422),
        (b'a\n"', 422),
    ],
)
def test_a_reference_in_csv_that_cannot_be_used_is_refused(server: Served, body: bytes, status: int) -> None:
    server.create("bad-reference", measure=MEASURE)
    reply = server.ask("PUT", "/v1/streams/bad-reference/reference", content=body, headers=CSV)
    assert reply.status_code == status, reply.text
    assert "\n" not in reply.json()["message"]


def test_rows_without_a_reference_or_for_numbers(server: Served) -> None:
    server.create("no-reference", measure=MEASURE)
    assert "has no reference yet" in refused(server, "no-reference", "size\n1\n", CSV, 409)
    server.create("no-table")
    assert "must be an object with x" in refused(server, "no-table", '{"size": 1}', JSON)
    reply = post(server, "nobody", "x\n1\n", CSV)
    assert (reply.status_code, reply.json()["error"]) == (404, "not-found")


def test_rows_read_for_a_stream_that_was_replaced_are_refused(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    create_table(server, "replaced")
    fields = server.app.state.engine.schema("replaced").result()._replace(created=1.0)

    def schema(name: str) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fields)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(server.app.state.engine, "schema", schema)
        assert "was replaced meanwhile" in refused(server, "replaced", as_csv(ROWS), CSV, 409)
    assert taken(server, "replaced", as_csv(ROWS), CSV)["accepted"] == 40


# ------------------------------------------------------------------ retention of a stream


def test_a_stream_has_its_own_retention_which_changes_no_result(tmp_path: Path) -> None:
    x = np.random.default_rng(4).normal(size=40_000).tolist()
    settings = Settings(snapshot_every=1000, limits=Limits(batch=10_000))
    with served(tmp_path / "s.db", settings) as server:
        for name in ("short", "long"):
            server.create(name, measure={"kind": "frozen", "reference": x[:50]}, seed=1)
        assert server.show("short")["retention"] == {"observations": None, "rollups": None}
        reply = server.ask("PUT", "/v1/streams/short/retention", json={"observations": 100})
        assert reply.json()["retention"] == {"observations": 100, "rollups": None}
        assert (
            server.create("short", measure={"kind": "frozen", "reference": x[:50]})["retention"]["observations"] == 100
        )
        for start in range(0, 40_000, 10_000):
            for name in ("short", "long"):
                server.take(name, numbered(x[start : start + 10_000], start + 1))
        stored = server.app.state.engine.streams
        assert stored.peek("short").kept > 1 == stored.peek("long").kept
        shown = {name: server.show(name) for name in ("short", "long")}
        assert shown["short"]["state"] == shown["long"]["state"]
    with served(tmp_path / "s.db", settings) as server:
        assert server.show("short") == shown["short"]
        server.take("short", [{"x": 1.0}])
        assert server.app.state.engine.streams.peek("short").retention == {"observations": 100}
        reply = server.ask("PUT", "/v1/streams/short/retention", json={})
        assert reply.json()["retention"] == {"observations": None, "rollups": None}


def test_a_new_retention_applies_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an incomplete block, or a part of a request, may be stored beyond it; the rest is deleted in portions."""
    monkeypatch.setattr(ingest, "PRUNE_STEPS", 1024)
    x = np.random.default_rng(4).normal(size=20_000).tolist()
    with served(tmp_path / "s.db", Settings(limits=Limits(batch=1_000))) as server:
        engine = server.app.state.engine
        server.create("a", measure={"kind": "frozen", "reference": x[:50]}, seed=1)
        for start in range(0, 20_000, 1_000):
            state = server.take("a", numbered(x[start : start + 1_000], start + 1))["state"]
        reply = server.ask("PUT", "/v1/streams/a/retention", json={"observations": 500})
        assert reply.json()["state"] == state
        for _ in range(10):  # each portion is a job behind the one before
            engine.answer().result()
        assert engine.streams.peek("a").kept > 20_000 - 500 - 1024
        with sqlite3.connect(tmp_path / "s.db") as data:
            assert data.execute("SELECT min(first), kept FROM steps JOIN streams ON id = stream").fetchone() == (
                engine.streams.peek("a").kept,
                engine.streams.peek("a").kept,
            )
    with served(tmp_path / "s.db") as server:
        assert server.show("a")["state"] == state
        assert server.take("a", [{"seq": 20_001, "x": 0.5}])["accepted"] == 1


@pytest.mark.parametrize(
    "body", ['{"observations": -1}', '{"observations": "9"}', '{"days": 9}', "[]", "", '{"rollups": 1.5}']
)
def test_a_retention_that_is_none_is_refused(server: Served, body: str) -> None:
    server.create("kept")
    reply = server.ask("PUT", "/v1/streams/kept/retention", content=body, headers=JSON)
    assert (reply.status_code, "\n" in reply.json()["message"]) in ((422, False), (400, False))
    assert server.show("kept")["retention"]["observations"] is None
    assert server.ask("PUT", "/v1/streams/nobody/retention", json={}).status_code == 404


# ------------------------------------------------------------------ log lines


def test_log_lines_of_the_writer_name_the_request_and_the_stream(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create("logged")
    handler = logging.StreamHandler(text := io.StringIO())
    handler.setFormatter(JsonLines())
    log = logging.getLogger("exchangeable")
    log.addHandler(handler)
    store = LabelQueue.store

    def note(queue: LabelQueue, connection: sqlite3.Connection) -> None:
        logging.getLogger("exchangeable.service.writer").warning("noted")
        store(queue, connection)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(LabelQueue, "store", note)
            reply = post(server, "logged", '{"x": 1}')
    finally:
        log.removeHandler(handler)
    line = json.loads(text.getvalue().splitlines()[0])
    assert (line["message"], line["stream"], line["request"]) == ("noted", "logged", reply.headers["x-request-id"])
