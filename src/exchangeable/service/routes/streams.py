"""Routes that create, show, list, reset, export and delete streams."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from exchangeable.service import bulk, events, history, parsing, schemas
from exchangeable.service.logs import REQUEST
from exchangeable.service.problems import Problem
from exchangeable.service.routes.replies import (
    ADMIN,
    ERRORS,
    READ,
    Filtered,
    Limit,
    Name,
    Offset,
    documented,
    json_response,
    query,
    result_of,
)
from exchangeable.service.server_config import Limits
from exchangeable.service.stream_config import Configuration, parse_configuration
from exchangeable.service.stream_summary import SUMMARY_COLUMNS, describe_stream, summarize_row

router: APIRouter = APIRouter(tags=["streams"])
LOGGED = 10  # names of created streams in an audit line


def _body(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {parsing.JSON: {"schema": schema}}}}


@router.put(
    "/v1/streams/{name}",
    summary="Create a stream",
    dependencies=ADMIN,
    responses={**documented(schemas.Stream, 201), 200: {"model": schemas.Stream}},
    openapi_extra=_body(Configuration),
    status_code=201,
)
async def create_stream(request: Request, name: Name) -> Response:
    """Create a stream. Every part of the configuration is optional.

    The reply is 201 for a new stream, 200 if it exists with the same configuration, and 409 with another one.
    """
    limits = request.app.state.settings.limits
    body = await request.body()
    configuration = await run_in_threadpool(_parse_configuration, body, limits)
    new, stream = await result_of(request.app.state.engine.create(name, configuration))
    return await run_in_threadpool(json_response, stream, 201 if new else 200)


def _parse_configuration(body: bytes, limits: Limits) -> Configuration:
    values = parsing.json_object(body, limits.json_depth) if body.strip() else {}
    return parse_configuration(values, cap=limits.nearest, waiting=limits.waiting, reference=limits.reference)


@router.post(
    "/v1/streams",
    summary="Create many streams",
    dependencies=ADMIN,
    responses=documented(schemas.CreatedStreams),
    openapi_extra={"requestBody": {"required": True, "content": {parsing.NDJSON: {"schema": {"type": "string"}}}}},
)
async def create_streams(request: Request) -> Response:
    """Create many streams: each line has the name of a stream, and the parts of its configuration.

    If a line is invalid, nothing is created (422). Then they are created in groups; those that exist with the same
    configuration are counted as such, and lines that must be rejected (409, with all others created) are reported. It
    is safe to send a request again.
    """
    state, context, body = request.app.state, REQUEST.get() or {}, await request.body()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != parsing.NDJSON:
        raise Problem(415, "unsupported-media-type", f"Content-Type must be {parsing.NDJSON}, got {media[:80]!r}")
    streams = await run_in_threadpool(bulk.parse_streams, body, state.settings.limits)
    outcomes: list[bool | Problem] = []
    for start in range(0, len(streams), bulk.GROUP):
        outcomes += await result_of(state.engine.create_many(streams[start : start + bulk.GROUP]))
        names = [stream.name for stream, outcome in zip(streams, outcomes, strict=False) if outcome is True]
        context |= {"created_streams": len(names), "names": names[:LOGGED]}
    counts = {"created": outcomes.count(True), "existing": outcomes.count(False)}
    errors = [
        {"line": stream.line, "name": stream.name, **outcome.body}
        for stream, outcome in zip(streams, outcomes, strict=True)
        if isinstance(outcome, Problem)
    ]
    if errors:
        raise bulk.rejected(409, "all others exist now", errors, **counts)
    return json_response(counts)


@router.put(
    "/v1/streams/{name}/retention",
    summary="Change how much history of a stream is kept",
    dependencies=ADMIN,
    responses=documented(schemas.Stream),
    openapi_extra=_body(schemas.StreamRetention),
)
async def set_retention(request: Request, name: Name) -> Response:
    """Change how much history of a stream is kept, in place of the retention in the settings of the server.

    What is left out, or null, is as in the settings. Steps above it are deleted at once, except for a part of 1,024
    of them or of one request, and do not come back. No result depends on it.
    """
    body, depth = await request.body(), request.app.state.settings.limits.json_depth
    values = await run_in_threadpool(parsing.json_object, body, depth)
    try:
        retention = schemas.StreamRetention.model_validate(values).model_dump(exclude_none=True)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error
    return json_response(await result_of(request.app.state.engine.set_retention(name, retention)))


@router.get("/v1/streams/{name}", summary="Show a stream", dependencies=READ, responses=documented(schemas.Stream))
async def get_stream(request: Request, name: Name) -> Response:
    """Return a stream: its configuration and its state."""
    return await query(request, lambda connection: json_response(describe_stream(connection, name)))


@router.delete("/v1/streams/{name}", summary="Delete a stream", dependencies=ADMIN, status_code=204, responses=ERRORS)
async def delete_stream(request: Request, name: Name) -> Response:
    """Delete a stream and its history. Its position in the fleet and its number of tests are kept (see /v1/fleet)."""
    await result_of(request.app.state.engine.delete(name))
    return Response(status_code=204)


@router.get("/v1/streams", summary="List streams", responses=documented(schemas.Streams))
async def list_streams(
    request: Request,
    grant: Filtered,
    q: Annotated[str, Query(max_length=64)] = "",
    offset: Offset = 0,
    limit: Limit = 50,
    order: Literal["alarm", "name"] = "alarm",
    spark: Annotated[int, Query(ge=0, le=200)] = 0,
) -> Response:
    """List the streams whose name contains ``q``: alarms first, then those restarted after one, then by evidence.

    A token for some streams gets only these.
    """
    patterns = () if grant.names is None else grant.names.patterns
    where = "instr(name, ?) > 0" + ("" if grant.names is None else f" AND {grant.names.condition}")

    def page(connection: sqlite3.Connection) -> dict[str, Any]:
        by = "alarm DESC, carried != 0.0 DESC, log10 DESC, name" if order == "alarm" else "name"
        rows = connection.execute(
            f"SELECT id, {SUMMARY_COLUMNS} FROM streams WHERE {where}"  # noqa: S608
            f" ORDER BY {by} LIMIT ? OFFSET ?",
            (q, *patterns, limit, offset),
        ).fetchall()
        counted = "count(*), total(alarm), total(carried != 0.0 AND NOT alarm)"
        total, alarms, restarted = connection.execute(
            f"SELECT {counted} FROM main.streams WHERE {where}",  # noqa: S608
            (q, *patterns),
        ).fetchone()
        streams = [_summary(connection, row, spark) for row in rows]
        counts = {"total": total, "alarms": int(alarms), "restarted": int(restarted)}
        return {"streams": streams, **counts, "offset": offset, "limit": limit}

    return json_response(await query(request, page))


def _summary(connection: sqlite3.Connection, row: tuple[Any, ...], spark: int) -> dict[str, Any]:
    """Summarize a stream, with the points of a sparkline if one is requested."""
    stream = summarize_row(row[1:])
    if spark:
        max_points = max(spark, history.MIN_POINTS)
        points = history.read(connection, row[0], stream["since"] + 1, stream["state"]["n"], max_points)
        stream["spark"] = {key: values for key, values in events.point_columns(points).items() if key != "p"}
    return stream


@router.post(
    "/v1/streams/{name}/reset", summary="Start a new test", dependencies=ADMIN, responses=documented(schemas.Stream)
)
async def reset_stream(request: Request, name: Name) -> Response:
    """Start a new test with the next observation: capital 1, no alarm, an empty pool. ``seq`` and ``n`` continue.

    Observations that wait for labels are left out.
    """
    return json_response(await result_of(request.app.state.engine.reset(name)))


@router.get(
    "/v1/streams/{name}/export",
    summary="Download the monitor of a stream",
    dependencies=READ,
    responses={**ERRORS, 200: {"content": {"application/octet-stream": {}}, "description": "the monitor"}},
)
async def export_stream(request: Request, name: Name) -> Response:
    """Return the monitor as a file that ``exchangeable.load`` opens."""
    data = await result_of(request.app.state.engine.export(name))
    headers = {"Content-Disposition": f'attachment; filename="{name}.exchangeable"'}
    return Response(data, media_type="application/octet-stream", headers=headers)
