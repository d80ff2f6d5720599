"""Routes that show how streams develop: history, bets, events, and the test of all streams together."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from exchangeable.service import events, fleet, history, schemas
from exchangeable.service.clock import format_time
from exchangeable.service.problems import Problem
from exchangeable.service.routes.replies import (
    ERRORS,
    READ,
    Filtered,
    Name,
    documented,
    json_response,
    query,
    read_stream,
    result_of,
)

router: APIRouter = APIRouter(tags=["monitoring"])
LAST_STEP = 2**62
MAX_MARKS = 1000  # the newest
EVENTS: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {
        "content": {"text/event-stream": {}},
        "description": "server-sent events, as long as the client is connected",
    },
}


@router.get(
    "/v1/streams/{name}/history",
    summary="Show the evidence over time",
    dependencies=READ,
    responses=documented(schemas.History),
)
async def get_history(
    request: Request,
    name: Name,
    start: Annotated[int, Query(alias="from", ge=1, le=LAST_STEP)] = 1,
    to: Annotated[int, Query(ge=1, le=LAST_STEP)] = LAST_STEP,
    max_points: Annotated[int, Query(ge=history.MIN_POINTS, le=10_000)] = 1000,
    times: bool = False,
) -> Response:
    """Return the capital between two steps, thinned to ``max_points`` so that minima and maxima are kept.

    For the measure risk, the reply also has the mean loss and its interval; with ``times``, when each step arrived and
    the time of its observation, in seconds since 1970, interpolated between steps whose times are stored.
    """

    def read(connection: sqlite3.Connection) -> tuple[str, dict[str, Any]]:
        id_, _, stream = read_stream(connection, name)
        points = history.read(connection, id_, start, to, max_points)
        marks = _marks(connection, id_, start, to)
        columns = {**events.point_columns(points), **(_times(connection, id_, points) if times else {})}
        return stream["measure"], {**columns, "exact": points.exact, "stop": stream["state"]["n"], "marks": marks}

    measure, reply = await query(request, read)
    if measure == "risk":
        reply["risk"] = await result_of(request.app.state.engine.band(name, start, to))
    return json_response(reply)


def _times(connection: sqlite3.Connection, stream: int, points: history.Points) -> dict[str, list[float | None]]:
    arrived, own = history.times_at(connection, stream, points.n)
    return {"arrived": events.nullable(arrived), "time": events.nullable(own)}


@router.get(
    "/v1/streams/{name}/values",
    summary="Get the numbers that were sent",
    dependencies=READ,
    responses=documented(schemas.StreamValues),
)
async def get_values(
    request: Request,
    name: Name,
    start: Annotated[int, Query(alias="from", ge=1, le=LAST_STEP)] = 1,
    to: Annotated[int, Query(ge=1, le=LAST_STEP)] = LAST_STEP,
    max_points: Annotated[int, Query(ge=history.MIN_POINTS, le=10_000)] = 1000,
    column: Annotated[int, Query(ge=0, le=LAST_STEP)] = 0,
    times: bool = False,
) -> Response:
    """Return the observations between two steps: the number at position ``column``, thinned as the history is.

    Only observations that are retained can be shown, and of these the newest that fit into a request.
    """

    def read(connection: sqlite3.Connection) -> dict[str, Any]:
        id_, _, stream = read_stream(connection, name)
        if stream["measure"] == "table":
            raise Problem(409, "conflict", f"stream {name!r} has rows of a table: its values are at /columns")
        n, values, width = history.read_column(connection, id_, column, start, to)
        points = history.thin(n, values, values, max_points)
        shown = {"n": points.n.tolist(), "value": points.log10.tolist(), "exact": points.exact, "width": width}
        return {**shown, **(_times(connection, id_, points) if times else {})}

    return json_response(await query(request, read))


def _marks(connection: sqlite3.Connection, stream: int, start: int, to: int) -> list[dict[str, Any]]:
    rows = connection.execute(
        "SELECT n, kind, changepoint, time FROM marks WHERE stream = ? AND n BETWEEN ? AND ?"
        " ORDER BY n DESC, rowid DESC LIMIT ?",
        (stream, start - 1, to, MAX_MARKS),
    ).fetchall()
    return [
        {"n": n, "kind": kind, "changepoint": changepoint, "time": format_time(time)}
        for n, kind, changepoint, time in reversed(rows)
    ]


@router.get(
    "/v1/streams/{name}/bet",
    summary="Show the bet on the next p-value",
    dependencies=READ,
    responses=documented(schemas.Bet),
)
async def get_bet(request: Request, name: Name) -> Response:
    """Return the betting function for the next p-value, and a histogram of the p-values of this test."""
    return json_response(await result_of(request.app.state.engine.bet(name)))


@router.get("/v1/streams/{name}/events", summary="Follow a stream", dependencies=READ, responses=EVENTS)
async def get_stream_events(request: Request, name: Name) -> Response:
    """Send the events of a stream, as server-sent events; ``Last-Event-ID``, the number of a step, resumes them."""
    header = request.headers.get("last-event-id", "")
    last = int(header) if header.isascii() and header.isdigit() and len(header) < 19 else None

    async def query_after(after: int | None) -> tuple[dict[str, Any], history.Points | None]:
        def read(connection: sqlite3.Connection) -> tuple[dict[str, Any], history.Points | None]:
            id_, _, stream = read_stream(connection, name)
            if after is None:
                return stream, None
            return stream, history.read(connection, id_, after + 1, LAST_STEP, events.MAX_RESUMED_POINTS)

        return await query(request, read)

    await query_after(None)  # an unknown stream is rejected before the events start
    reader = events.StreamReader(name)
    feed: events.Feed = request.app.state.feed
    feed.join(reader)
    return _event_stream(events.stream_events(feed, reader, last, query_after, _check_access(request)))


@router.get("/v1/events", summary="Follow all streams", responses=EVENTS)
async def get_events(request: Request, grant: Filtered) -> Response:
    """Send the events of all streams, at most twice a second; to a token for some streams, those of these."""
    reader, feed = events.AllStreamsReader(grant.names), request.app.state.feed
    feed.join(reader)
    return _event_stream(events.all_events(feed, reader, _check_access(request)))


def _event_stream(lines: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _check_access(request: Request) -> events.CheckAccess:
    """Return a function that checks the token again, since it may have been revoked."""
    access, authorization = request.app.state.access, request.headers.getlist("authorization")
    return lambda: access.authenticate(authorization).require("read", filtered=True)  # its streams never change


@router.get(
    "/v1/fleet", summary="Find the streams that have changed", dependencies=READ, responses=documented(schemas.Fleet)
)
async def get_fleet(
    request: Request,
    alpha: Annotated[float, Query(gt=0.0, lt=1.0)] = 0.05,
    method: Literal["adjusted", "current"] = "adjusted",
) -> Response:
    """Return which streams have changed, with a false discovery rate of at most alpha (e-BH over all that ever joined).

    A stream that restarts after alarms carries its evidence over the restarts, as the capital of one gambler. Deleted
    streams keep their positions, and the test count of a reused name continues.
    """
    size = request.app.state.settings.fleet_size
    return json_response(await query(request, lambda connection: fleet.report(connection, alpha, method, size)))
