"""Streams of rows: the reference, the numbers of the library, restarts, repeats, alerts, metrics and bad rows."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from exchangeable import snapshot
from exchangeable.martingale import LN10
from exchangeable.service.server_config import Limits, Retention, Settings
from serving import NDJSON, Served, served

PARQUET = {"Content-Type": "application/vnd.apache.parquet"}


def make_rows(seed: int, n: int, shift: float = 0.0) -> list[dict[str, Any]]:
    """Rows with a number, a category, missing values and a label; ``shift`` moves the number and the label."""
    rng = np.random.default_rng(seed)
    size, colour = rng.normal(size=n) + shift, rng.choice(["red", "blue"], n).tolist()
    rows = [{"size": float(a), "colour": b, "y": float(a + rng.normal())} for a, b in zip(size, colour, strict=True)]
    for row in rows[::17]:
        row["colour"] = None
    return rows


REFERENCE = make_rows(1, 300)
ROWS = make_rows(2, 150) + make_rows(3, 100, 2.0)


def numbered(rows: list[dict[str, Any]], start: int = 1) -> list[dict[str, Any]]:
    return [{"seq": seq, "row": row} for seq, row in enumerate(rows, start)]


def lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, rows))


def create(server: Served, name: str = "a", **more: Any) -> dict[str, Any]:
    """Create a table stream and give it the reference."""
    measure = {"kind": "table", "label": "y", "bins": 16, **more.pop("measure", {})}
    server.create(name, measure=measure, seed=5, **more)
    reply = server.ask("PUT", f"/v1/streams/{name}/reference", content=lines(REFERENCE), headers=NDJSON)
    assert reply.status_code == 201, reply.text
    return dict(reply.json())


def monitor(**more: Any) -> ex.TableMonitor:
    return ex.TableMonitor(REFERENCE, **{"label": "y", "bins": 16, "seed": 5, **more})


def check_state(state: dict[str, Any], like: ex.TableMonitor, start: int = 0) -> None:
    """The state of a stream is that of a monitor, to the last bit."""
    assert like.last is not None
    assert state["n"] == start + like.n
    assert state["log10_martingale"] == like.last.log_value / LN10
    assert state["log10_max"] == like.log_max / LN10
    assert state["alarm_at"] == (None if like.alarm_at is None else start + like.alarm_at)
    assert state["changepoint"] == (None if like.changepoint is None else start + like.changepoint)
    assert state["guarantee"] == like.guarantee
    assert state["table"]["rejected_by"] == like.rejected_by[:20]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


@pytest.mark.parametrize("bins", [16, None])
def test_the_numbers_are_those_of_the_library(server: Served, bins: int | None) -> None:
    create(server, measure={"bins": bins})
    like = monitor(bins=bins, max_rows=10_000)
    path = like.extend(ROWS)
    for start in (0, 1, 40, 200):
        stop = {0: 1, 1: 40, 40: 200, 200: 250}[start]
        server.take("a", numbered(ROWS[start:stop], start + 1))
    shown = server.show("a")
    check_state(shown["state"], like)
    assert like.alarm_at is not None
    assert shown["state"]["table"]["columns"] == 2
    assert shown["alarms"] == 1
    history = server.ask("GET", "/v1/streams/a/history").json()
    assert history["log10"] == (path.log_value / LN10).tolist()
    assert history["p"] == [None] * len(ROWS)
    assert server.ask("GET", "/v1/streams/a/values").status_code == 409  # the values are at /columns
    assert (history["marks"][0]["n"], history["marks"][0]["changepoint"]) == (like.alarm_at, like.changepoint)
    exported = snapshot.decode(server.ask("GET", "/v1/streams/a/export").content)
    assert exported.extend(ROWS).log_value.tolist() == like.extend(ROWS).log_value.tolist()


def test_columns_are_described(server: Served) -> None:
    create(server)
    server.take("a", numbered(ROWS))
    like = monitor()
    like.extend(ROWS)
    described = server.ask("GET", "/v1/streams/a/columns").json()["columns"]
    found = like.explain()
    assert [line["name"] for line in described] == [finding.name for finding in found]
    assert [line["log10_evidence"] for line in described] == [finding.log10_evidence for finding in found]
    assert [line["rejected"] for line in described] == [finding.rejected for finding in found]
    by_name = {line["name"]: line for line in described}
    size, colour = by_name["size"], by_name["colour"]
    assert size["curve"]["n"] == [64, 128, 192, 250]
    assert size["curve"]["log10"][-1] == pytest.approx(size["log10_evidence"], abs=1e-3)
    values = size["values"]
    assert abs(np.mean(values["value"][:20])) < 0.4 < 1.6 < np.mean(values["value"][-10:])
    assert abs(values["reference"]) < 0.4
    assert colour["values"]["category"] in ("red", "blue", "(new)")
    assert by_name["full rows"]["values"] is None


def test_a_view_that_has_stopped_is_named(server: Served) -> None:
    create(server, measure={"kind": "table", "bins": None, "max_rows": len(REFERENCE) + 20})
    server.take("a", numbered(ROWS))
    described = server.ask("GET", "/v1/streams/a/columns").json()["columns"]
    assert {line["name"] for line in described if line["stopped"]} == {"full rows", "full rows and label"}


def test_a_restarted_server_and_a_reset_continue_with_the_same_numbers(tmp_path: Path) -> None:
    like, path = monitor(), tmp_path / "streams.db"
    settings = Settings(snapshot_every=60)
    with served(path, settings) as server:
        create(server)
        server.take("a", numbered(ROWS[:100]))
        server.take("a", numbered(ROWS[100:130], 101))
        data = sqlite3.connect(path)
        data.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))  # as after a kill: no snapshot at the end
        data.close()
    for name in ("streams.db", "copy.db"):
        with served(tmp_path / name, settings) as server:
            repeated = server.take("a", numbered(ROWS[90:], 91))
            assert (repeated["accepted"], repeated["duplicates"]) == (120, 40)
            if name == "streams.db":
                like.extend(ROWS)
            check_state(repeated["state"], like)
            assert server.ask("POST", "/v1/streams/a/reset").json()["state"]["n"] == 250
            again = monitor()
            again.extend(ROWS[:70])
            check_state(server.take("a", numbered(ROWS[:70], 251))["state"], again, start=250)
    with served(tmp_path / "copy.db") as server:
        again.extend(ROWS[70:])
        check_state(server.take("a", numbered(ROWS[70:], 321))["state"], again, start=250)
        assert server.ask("DELETE", "/v1/streams/a").status_code == 204
        with sqlite3.connect(tmp_path / "copy.db") as data:
            assert data.execute("SELECT count(*) FROM reference").fetchone() == (0,)


def test_restarts_and_the_numbers_of_rows(server: Served) -> None:
    create(server, on_alarm="restart", alarm={"kind": "shiryaev-roberts", "period": 50})
    like = monitor(on_alarm="restart", period=50)
    path = like.extend(ROWS)
    assert path.alarm.sum() > 0
    shown = server.take("a", numbered(ROWS))
    check_state(shown["state"], like)
    marks = server.ask("GET", "/v1/streams/a/history").json()["marks"]
    assert [mark["n"] for mark in marks] == path.n[path.alarm].tolist()


def test_a_reference_is_sent_once(server: Served) -> None:
    made = server.create("a", measure={"kind": "table", "label": "y"})
    assert (made["bet"], made["state"]["table"]["reference"]) == (None, False)
    assert made["state"]["guarantee"].startswith("This stream has no reference yet")
    refused = server.send("a", numbered(ROWS[:1]))
    assert refused.status_code == 409
    assert "send it with PUT /v1/streams/a/reference" in refused.json()["message"]
    assert server.ask("GET", "/v1/streams/a/export").status_code == 409
    assert server.ask("POST", "/v1/streams/a/reset").status_code == 200
    assert server.ask("GET", "/v1/streams/a/columns").json() == {"columns": [], "aside": {}}
    for status in (201, 200):
        reply = server.ask("PUT", "/v1/streams/a/reference", content=lines(REFERENCE), headers=NDJSON)
        assert (reply.status_code, reply.json()["state"]["table"]["reference"]) == (status, True)
    other = server.ask("PUT", "/v1/streams/a/reference", content=lines(REFERENCE[1:]), headers=NDJSON)
    assert (other.status_code, other.json()["error"]) == (409, "conflict")
    assert server.send("a", numbered(ROWS[:1])).status_code == 200
    server.create("b")
    refused = server.ask("PUT", "/v1/streams/b/reference", content=lines(REFERENCE), headers=NDJSON)
    assert refused.json()["message"] == "stream 'b' takes no reference: its measure is value"
    assert server.ask("GET", "/v1/streams/b/columns").status_code == 409
    assert server.ask("PUT", "/v1/streams/c/reference", content=b"{}", headers=NDJSON).status_code == 404


def test_a_reference_in_parquet_gives_the_same_numbers(server: Served) -> None:
    pl = pytest.importorskip("polars")
    buffer = io.BytesIO()
    pl.DataFrame(REFERENCE).write_parquet(buffer)
    server.create("a", measure={"kind": "table", "label": "y", "bins": 16}, seed=5)
    reply = server.ask("PUT", "/v1/streams/a/reference", content=buffer.getvalue(), headers=PARQUET)
    assert reply.status_code == 201, reply.text
    like = monitor()
    like.extend(ROWS)
    check_state(server.take("a", numbered(ROWS))["state"], like)
    server.create("b", measure={"kind": "table"})
    nested = io.BytesIO()
    pl.DataFrame({"a": [[1], [2]]}).write_parquet(nested)
    for body, message in ((b"PAR1 no", "must be a Parquet file"), (nested.getvalue(), "got List(Int64) in 'a'")):
        refused = server.ask("PUT", "/v1/streams/b/reference", content=body, headers=PARQUET)
        assert refused.status_code == 422
        assert message in refused.json()["message"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"", NDJSON, 422, "reference must have at least 30 rows, got 0"),
        (lines(REFERENCE[:20]), NDJSON, 422, "reference must have at least 30 rows, got 20"),
        (b'{"y": 1}\n[1]', NDJSON, 422, "line 2 of the reference must be a JSON object"),
        (b'{"y": NaN}', NDJSON, 422, "line 1 of the reference must be a JSON object"),
        (b'{"y": [1]}', NDJSON, 422, "line 1 of the reference must be a JSON object"),
        (b'{"y": "%s"}' % (b"a" * 60), NDJSON, 422, "strings must have at most 50 characters in line 1"),
        ("\n".join(['{"x": 1}'] * 40), NDJSON, 422, "label must be a column of the reference, got 'y'"),
        (lines(REFERENCE[:20] * 40), NDJSON, 413, "a reference must have at most 400 rows, got 800"),
        (lines(REFERENCE) + '\n{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}', NDJSON, 413, "at most 1400 cells, got 1505"),
        (
            lines(REFERENCE),
            {"Content-Type": "text/html"},
            415,
            "Content-Type must be application/x-ndjson, text/csv or",
        ),
    ],
)
def test_bad_references(tmp_path: Path, body: Any, headers: dict[str, str], status: int, message: str) -> None:
    limits = Limits(reference=400, reference_cells=1400, string=50)
    with served(tmp_path / "streams.db", Settings(limits=limits)) as server:
        server.create("a", measure={"kind": "table", "label": "y"})
        refused = server.ask("PUT", "/v1/streams/a/reference", content=body, headers=headers)
        assert refused.status_code == status, refused.text
        assert message in refused.json()["message"]
        assert not server.show("a")["state"]["table"]["reference"]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ({"x": 1}, 422, "line 2 must be an object with row, and optionally seq, id and time: unknown field 'x'"),
        ({"row": {"size": 1, "colour": "red"}, "x": 1}, 422, "unknown field 'x'"),
        ({"row": 3}, 422, "row must be an object from columns to numbers, strings, booleans or nulls"),
        ({"row": {"size": [1]}}, 422, "row must be an object from columns"),
        ({"row": {"size": 1}}, 422, "row 12 must have the column 'colour', got none"),
        ({"row": {"size": 1, "colour": "red", "shape": 1}}, 422, "row 12 must have only columns of the reference"),
        ({"row": {"size": "big", "colour": "red"}}, 422, "stream 'a': column 'size' must be a finite number"),
        ({"row": {"size": 1, "colour": "red", "y": "high"}}, 422, "label 'y' must be a finite number"),
        ({"row": {"size": 1, "colour": "r" * 300}}, 422, "row must have at most 256 characters, got 300"),
        ('{"seq": 12, "row": {"size": 1, "size": 2, "colour": "red"}}', 400, "must not repeat a key, got 'size'"),
        ('{"seq": 12, "row": {"size": NaN, "colour": "red"}}', 400, "numbers must be finite"),
        ({"row": {"size": 1, "colour": "red"}, "seq": 14}, 409, "seq must be 12"),
        ({"row": {"size": 1, "colour": "red"}, "seq": 3}, 422, "seq 3 of stream 'a' was used for a different"),
    ],
)
def test_a_bad_row_changes_nothing(server: Served, line: Any, status: int, message: str) -> None:
    create(server)
    server.take("a", numbered(ROWS[:10]))
    text = line if isinstance(line, str) else json.dumps({"seq": 12, **line})
    body = "\n".join([json.dumps(numbered(ROWS[10:11], 11)[0]), text])
    refused = server.ask("POST", "/v1/streams/a/observations", content=body, headers=NDJSON)
    assert refused.status_code == status, refused.text
    assert message in refused.json()["message"]
    assert server.show("a")["next_seq"] == 11
    like = monitor()
    like.extend(ROWS)
    check_state(server.take("a", numbered(ROWS[10:], 11))["state"], like)


def test_other_streams_take_no_rows_and_tables_no_late_labels(server: Served) -> None:
    server.create("b")
    refused = server.send("b", numbered([{"size": 1}]))
    message = "x must be given in stream 'b', whose measure is value, got row"
    assert (refused.status_code, refused.json()["message"]) == (422, message)
    assert server.take("b", [{"seq": 1, "x": 1, "id": "row"}])["accepted"] == 1
    create(server)
    refused = server.send("a", [{"seq": 1, "x": 1}])
    message = "line 1 must name columns of the reference ('colour', 'size', 'y'), got 'seq', 'x'"
    assert (refused.status_code, refused.json()["message"]) == (422, message)
    refused = server.label("a", [{"id": "k", "y": 1}])
    assert refused.status_code == 409
    assert refused.json()["message"].endswith("its measure is table, and its labels are columns of the rows")


def test_invalid_cells_may_be_counted(server: Served) -> None:
    create(server, measure={"invalid": "missing"})
    rows = [*ROWS[:100], {"size": "big", "colour": "red"}, {"extra": 1}]
    like = monitor(invalid="missing")
    for row in rows:
        like.update(row)
    state = server.take("a", numbered(rows))["state"]
    check_state(state, like)
    assert state["table"]["invalid_cells"] == like.invalid_cells > 0


def test_alerts_and_metrics_name_the_columns(tmp_path: Path) -> None:
    from exchangeable.service.alerts import Webhook

    settings = Settings(webhooks=(Webhook(name="ops", url="https://hooks.example.org/"),))
    with served(tmp_path / "streams.db", settings) as server:
        create(server)
        rejected = server.take("a", numbered(ROWS))["state"]["table"]["rejected_by"]
        with sqlite3.connect(tmp_path / "streams.db") as data:
            alert = json.loads(data.execute("SELECT alert FROM outbox").fetchone()[0])
        summary = alert["annotations"]["summary"]
        assert summary.startswith("The rows of stream a differ from its reference: ")
        assert summary.split(": ")[1].split(",")[0].rstrip(".") in rejected
        metrics = server.ask("GET", "/metrics").text
    assert f'exchangeable_stream_rejected_columns{{stream="a"}} {len(rejected):.1f}' in metrics
    for name in rejected:
        assert f'exchangeable_stream_rejected_by{{column="{name}",stream="a"}} 1.0' in metrics


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"measure": {"kind": "table", "bins": 1}}, "configuration.measure.bins must"),
        ({"measure": {"kind": "table", "bins": None, "max_rows": 60_000}}, "measure.max_rows must be at most 50000"),
        ({"measure": {"kind": "table"}, "bet": {"kind": "adaptive"}}, "bet must be left out for the measure table"),
        ({"measure": {"kind": "table"}, "alarm": {"kind": "cusum"}}, "alarm.kind must be ville or shiryaev-roberts"),
        ({"measure": {"kind": "table", "reference": []}}, "measure.reference must be left out"),
    ],
)
def test_bad_configurations(server: Served, configuration: dict[str, Any], message: str) -> None:
    refused = server.ask("PUT", "/v1/streams/a", json=configuration)
    assert refused.status_code == 422
    assert message in refused.json()["message"]


def test_pruned_rows_are_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from exchangeable.service import ingest

    monkeypatch.setattr(ingest, "PRUNE_STEPS", 32)
    monkeypatch.setattr(ingest, "SNAPSHOT_BYTES_PER_STEP", 1 << 20)
    settings = Settings(retention=Retention(observations=40), snapshot_every=20)
    with served(tmp_path / "streams.db", settings) as server:
        create(server)
        for start in range(0, 250, 25):
            server.take("a", numbered(ROWS[start : start + 25], start + 1))
        assert server.ask("GET", "/v1/streams/a/columns").status_code == 200
    like = monitor()
    like.extend(ROWS)
    with served(tmp_path / "streams.db", settings) as server:
        check_state(server.show("a")["state"], like)
