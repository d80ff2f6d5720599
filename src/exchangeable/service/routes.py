"""The HTTP interface: parse, ask the engine or the database, answer. Each route names the scope it needs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from exchangeable.data.events.schema import LateLabel, Observation, json_schema
from exchangeable.service import alerts, events, fleet, history, parsing, schemas
from exchangeable.service.access import allow
from exchangeable.service.problems import Problem
from exchangeable.service.stream_config import NAME, Configuration, configuration
from exchangeable.service.stream_summary import (
    SUMMARY_COLUMNS,
    describe_stream,
    format_time,
    summarize_row,
    unknown_stream,
)

router: APIRouter = APIRouter()
Name = Annotated[str, Path(pattern=NAME, description="1 to 64 of a-z, 0-9, '.', '_', '-'")]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=500)]
READ, INGEST, ADMIN = ([Depends(allow(scope))] for scope in ("read", "ingest", "admin"))
MANY = frozenset({parsing.NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
LATEST_MARKS = 1000
LONG = 256 * 1024  # bytes: the parsing of more would keep others waiting
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Error} for status in (400, 401, 403, 404, 409, 413, 415, 421, 422, 429, 500, 503, 507)
}
T = TypeVar("T")


def reply(value: Any, status: int = 200) -> Response:
    """JSON, made once."""
    return Response(events.encode(value), status, media_type=parsing.JSON)


def said(model: type[BaseModel], status: int = 200, **more: Any) -> dict[int | str, dict[str, Any]]:
    """The replies of a route, for the documentation."""
    return {status: {"model": model, **more}, **REFUSALS}


async def done(future: Future[T]) -> T:
    """What the engine answers."""
    return await asyncio.wrap_future(future)


async def looked(request: Request, work: Callable[[sqlite3.Connection], T]) -> T:
    """What a look into the database shows."""

    def look() -> T:
        with request.app.state.store.read() as connection:
            return work(connection)

    return await run_in_threadpool(look)


# ------------------------------------------------------------------ streams


def _body(model: Any) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {parsing.JSON: {"schema": schema}}}}


@router.put(
    "/v1/streams/{name}",
    dependencies=ADMIN,
    responses={**said(schemas.Stream, 201), 200: {"model": schemas.Stream}},
    openapi_extra=_body(Configuration),
    status_code=201,
    tags=["streams"],
)
async def create(request: Request, name: Name) -> Response:
    """Make a stream: 201; the same configuration again: 200; another one: 409. Every part may be left out."""
    limits = request.app.state.settings.limits
    body = await request.body()
    given = parsing.json_object(body, limits.json_depth) if body.strip() else {}
    wanted = await run_in_threadpool(
        configuration, given, cap=limits.nearest, waiting=limits.waiting, reference=limits.reference
    )
    new, stream = await done(request.app.state.engine.create(name, wanted))
    return reply(stream, 201 if new else 200)


@router.get("/v1/streams/{name}", dependencies=READ, responses=said(schemas.Stream), tags=["streams"])
async def show(request: Request, name: Name) -> Response:
    """A stream: its configuration and where it stands."""
    return reply(await looked(request, lambda connection: describe_stream(connection, name)))


@router.delete("/v1/streams/{name}", dependencies=ADMIN, status_code=204, responses=REFUSALS, tags=["streams"])
async def delete(request: Request, name: Name) -> Response:
    """Remove a stream and its history. Its place in the fleet and the number of its tests are kept (see /v1/fleet)."""
    await done(request.app.state.engine.delete(name))
    return Response(status_code=204)


@router.get("/v1/streams", dependencies=READ, responses=said(schemas.Streams), tags=["streams"])
async def streams(
    request: Request,
    q: Annotated[str, Query(max_length=64)] = "",
    offset: Offset = 0,
    limit: Limit = 50,
    order: Literal["alarm", "name"] = "alarm",
    spark: Annotated[int, Query(ge=0, le=200)] = 0,
) -> Response:
    """All streams whose name contains ``q``, those with an alarm and the most evidence first."""

    def page(connection: sqlite3.Connection) -> dict[str, Any]:
        by = "alarm DESC, log10 DESC, name" if order == "alarm" else "name"
        rows = connection.execute(
            f"SELECT id, {SUMMARY_COLUMNS} FROM streams WHERE instr(name, ?) > 0 ORDER BY {by} LIMIT ? OFFSET ?",  # noqa: S608
            (q, limit, offset),
        ).fetchall()
        total = connection.execute("SELECT count(*) FROM streams WHERE instr(name, ?) > 0", (q,)).fetchone()[0]
        found = [_sparked(connection, row, spark) for row in rows]
        return {"streams": found, "total": total, "offset": offset, "limit": limit}

    return reply(await looked(request, page))


def _sparked(connection: sqlite3.Connection, row: tuple[Any, ...], spark: int) -> dict[str, Any]:
    stream = summarize_row(row[1:])
    if spark:
        points = history.read(
            connection, row[0], stream["since"] + 1, stream["state"]["n"], max(spark, history.MIN_POINTS)
        )
        stream["spark"] = {key: values for key, values in events.point_columns(points).items() if key != "p"}
    return stream


def _row(connection: sqlite3.Connection, name: str) -> tuple[Any, ...]:
    """The stream's id, its configuration, and what is said of it."""
    query = f"SELECT id, configuration, {SUMMARY_COLUMNS} FROM streams WHERE name = ?"  # noqa: S608
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        raise unknown_stream(name)
    return tuple(row)


@router.post("/v1/streams/{name}/reset", dependencies=ADMIN, responses=said(schemas.Stream), tags=["streams"])
async def reset(request: Request, name: Name) -> Response:
    """Begin a new test with the next observation: capital 1, no alarm, an empty pool. ``seq`` and ``n`` go on.

    Observations that wait for labels are set aside.
    """
    return reply(await done(request.app.state.engine.reset(name)))


@router.get(
    "/v1/streams/{name}/export",
    dependencies=READ,
    responses={**REFUSALS, 200: {"content": {"application/octet-stream": {}}, "description": "the monitor"}},
    tags=["streams"],
)
async def export(request: Request, name: Name) -> Response:
    """The monitor as plain data: save it to a file, and ``exchangeable.load`` opens it."""
    data = await done(request.app.state.engine.export(name))
    headers = {"Content-Disposition": f'attachment; filename="{name}.exchangeable"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


# ------------------------------------------------------------------ observations and labels


def _lines(one: dict[str, Any]) -> dict[str, Any]:
    lines = {"type": "string", "description": "one JSON object a line"}
    content = {parsing.JSON: {"schema": one}, parsing.NDJSON: {"schema": lines}}
    return {"requestBody": {"required": True, "content": content}}


def _many(request: Request) -> bool:
    """Whether the body has many lines, by its media type."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != parsing.JSON and media not in MANY:
        raise Problem(
            415,
            "unsupported-media-type",
            f"Content-Type must be {parsing.JSON} or {parsing.NDJSON}, got {media[:80]!r}",
        )
    return media in MANY


async def _ingest(request: Request, take: Callable[[bytes, bool], Awaitable[dict[str, Any]]]) -> Response:
    """Take a body in; note how long it took."""
    with request.app.state.metrics.ingest_seconds.time():
        return reply(await take(await request.body(), _many(request)))


@router.post(
    "/v1/streams/{name}/observations",
    dependencies=INGEST,
    responses=said(schemas.Taken),
    openapi_extra=_lines(json_schema(Observation)),
    tags=["observations"],
)
async def observe(request: Request, name: Name) -> Response:
    """Take one observation, or NDJSON of many: all of them or none. Answered after the commit.

    ``seq`` counts from 1 and is the order. The same again is counted as a duplicate; a gap is 409 with
    ``expected_seq``; a different observation under a used seq is 422.
    """
    limits, engine = request.app.state.settings.limits, request.app.state.engine

    async def take(body: bytes, many: bool) -> dict[str, Any]:
        parse = partial(parsing.observations, many=many, batch=limits.batch, width=limits.width, text=limits.string)
        batch = parse(body) if len(body) < LONG else await run_in_threadpool(parse, body)
        taken: dict[str, Any] = await done(engine.observe(name, batch))
        return taken

    return await _ingest(request, take)


@router.post(
    "/v1/streams/{name}/labels",
    dependencies=INGEST,
    responses=said(schemas.Labelled),
    openapi_extra=_lines(json_schema(LateLabel)),
    tags=["observations"],
)
async def label(request: Request, name: Name) -> Response:
    """Give labels to observations that wait for them under their ids, or state with ``never`` that none will come.

    An observation whose label came later than ``labels.wait`` is left out. Whether it is used depends on its own delay
    only: the ``time`` of the label minus that of the observation, or the same on the server's clock.
    """
    limits, engine = request.app.state.settings.limits, request.app.state.engine

    async def take(body: bytes, many: bool) -> dict[str, Any]:
        labels = parsing.labels(body, many=many, batch=limits.batch, text=limits.string)
        taken: dict[str, Any] = await done(engine.label(name, labels))
        return taken

    return await _ingest(request, take)


@router.get("/v1/streams/{name}/waiting", dependencies=READ, responses=said(schemas.Waiters), tags=["observations"])
async def waiting(request: Request, name: Name, offset: Offset = 0, limit: Limit = 50) -> Response:
    """Observations that wait for their labels, in order."""

    def look(connection: sqlite3.Connection) -> dict[str, Any]:
        row = _row(connection, name)
        rows = connection.execute(
            "SELECT seq, id, y IS NOT NULL FROM waiting WHERE stream = ? ORDER BY seq LIMIT ? OFFSET ?",
            (row[0], limit, offset),
        )
        stream = summarize_row(row[2:])
        return {
            "waiting": [{"seq": seq, "id": id_, "labelled": bool(labelled)} for seq, id_, labelled in rows],
            "total": stream["waiting"],
            "limit": json.loads(row[1])["labels"]["most"],
            "expired": stream["expired"],
            "left_out": stream["left_out"],
        }

    return reply(await looked(request, look))


# ------------------------------------------------------------------ looking


@router.get("/v1/streams/{name}/history", dependencies=READ, responses=said(schemas.History), tags=["looking"])
async def past(
    request: Request,
    name: Name,
    start: Annotated[int, Query(alias="from", ge=1, le=2**62)] = 1,
    to: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
    max_points: Annotated[int, Query(ge=history.MIN_POINTS, le=10_000)] = 1000,
) -> Response:
    """The capital from one step to another, thinned to ``max_points`` keeping lows and highs."""

    def look(connection: sqlite3.Connection) -> dict[str, Any]:
        row = _row(connection, name)
        points = history.read(connection, row[0], start, to, max_points)
        marks = connection.execute(
            "SELECT n, kind, changepoint, time FROM marks WHERE stream = ? AND n BETWEEN ? AND ?"
            " ORDER BY n DESC, rowid DESC LIMIT ?",
            (row[0], start - 1, to, LATEST_MARKS),
        ).fetchall()
        return {
            **events.point_columns(points),
            "exact": points.exact,
            "stop": summarize_row(row[2:])["state"]["n"],
            "marks": [
                {"n": n, "kind": kind, "changepoint": changepoint, "time": format_time(time)}
                for n, kind, changepoint, time in reversed(marks)
            ],
        }

    return reply(await looked(request, look))


@router.get("/v1/streams/{name}/bet", dependencies=READ, responses=said(schemas.Bet), tags=["looking"])
async def bet(request: Request, name: Name) -> Response:
    """The betting function for the next p-value, and the p-values of this test in bins."""
    return reply(await done(request.app.state.engine.bet(name)))


EVENTS: dict[int | str, dict[str, Any]] = {
    **REFUSALS,
    200: {"content": {"text/event-stream": {}}, "description": "server-sent events, without end"},
}


def _streaming(lines: Any) -> StreamingResponse:
    return StreamingResponse(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _watch(request: Request) -> events.CheckAccess:
    """Asked with every heartbeat: a token may have been revoked."""
    access, shown = request.app.state.access, request.headers.getlist("authorization")
    return lambda: access.check(shown, "read")


@router.get("/v1/streams/{name}/events", dependencies=READ, responses=EVENTS, tags=["looking"])
async def stream_events(request: Request, name: Name) -> Response:
    """What happens in a stream, as server-sent events; resumes after ``Last-Event-ID``, the number of a step."""
    given = request.headers.get("last-event-id", "")
    last = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None

    async def look(after: int | None) -> tuple[dict[str, Any], history.Points | None]:
        def work(connection: sqlite3.Connection) -> tuple[dict[str, Any], history.Points | None]:
            row = _row(connection, name)
            points = (
                None if after is None else history.read(connection, row[0], after + 1, 2**62, events.MAX_RESUMED_POINTS)
            )
            return summarize_row(row[2:]), points

        return await looked(request, work)

    await look(None)  # a stream that is not there is told so before the events begin
    reader = events.StreamReader(name)
    hub: events.Feed = request.app.state.feed
    hub.join(reader)
    return _streaming(events.stream_events(hub, reader, last, look, _watch(request)))


@router.get("/v1/events", dependencies=READ, responses=EVENTS, tags=["looking"])
async def all_events(request: Request) -> Response:
    """What happens in all streams, at most twice a second."""
    reader, hub = events.AllStreamsReader(), request.app.state.feed
    hub.join(reader)
    return _streaming(events.all_events(hub, reader, _watch(request)))


@router.get("/v1/fleet", dependencies=READ, responses=said(schemas.Fleet), tags=["looking"])
async def all_together(
    request: Request,
    alpha: Annotated[float, Query(gt=0.0, lt=1.0)] = 0.05,
    method: Literal["adjusted", "current"] = "adjusted",
) -> Response:
    """Which streams have changed, with a false discovery rate of at most alpha (e-BH over all that ever joined).

    The evidence of a stream that restarts after alarms is carried over the restarts, as one gambler's capital.
    Deleted streams keep their place, and the test count of a reused name continues.
    """
    size = request.app.state.settings.fleet_size
    return reply(await looked(request, lambda connection: fleet.report(connection, alpha, method, size)))


# ------------------------------------------------------------------ operation


@router.get("/v1/alerts", dependencies=READ, responses=said(schemas.Alerts), tags=["operation"])
async def outbox(request: Request, limit: Limit = 100) -> Response:
    """Alerts on their way, sent, and dead."""
    return reply(await looked(request, lambda connection: alerts.listing(connection, limit)))


@router.post("/v1/alerts/{id}/retry", dependencies=ADMIN, status_code=204, responses=REFUSALS, tags=["operation"])
async def again(request: Request, id: Annotated[int, Path(ge=1, le=2**62)]) -> Response:  # noqa: A002
    """Put a dead letter back into the outbox."""
    await done(request.app.state.engine.write(lambda connection: alerts.retry(connection, id)))
    request.app.state.sender.wake()
    return Response(status_code=204)


@router.get("/healthz", responses=said(schemas.Status), tags=["operation"])
async def healthy() -> Response:
    """Whether the process answers."""
    return reply({"status": "ok"})


@router.get("/readyz", responses=said(schemas.Status), tags=["operation"])
async def ready(request: Request) -> Response:
    """Whether observations can be taken: the database is open, and the disk took the last commit."""
    engine = request.app.state.engine
    if not engine.alive:
        raise Problem(503, "not-ready", "the server is not ready: it is starting, stopping, or its engine has ended")
    if engine.failing is not None:
        await done(engine.probe())
    return reply({"status": "ok"})


@router.get(
    "/metrics",
    dependencies=READ,
    responses={**REFUSALS, 200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
    tags=["operation"],
)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    shown = request.app.state.metrics
    return Response(await run_in_threadpool(shown.text), media_type=shown.media_type)
