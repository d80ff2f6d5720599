"""Routes that create, show, list, reset, export and delete streams."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from exchangeable.service import events, history, parsing, schemas
from exchangeable.service.routes.replies import (
    ADMIN,
    ERRORS,
    READ,
    Limit,
    Name,
    Offset,
    documented,
    json_response,
    query,
    result_of,
)
from exchangeable.service.stream_config import Configuration, parse_configuration
from exchangeable.service.stream_summary import SUMMARY_COLUMNS, describe_stream, summarize_row

router: APIRouter = APIRouter(tags=["streams"])


def _configuration_body() -> dict[str, Any]:
    schema = Configuration.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {parsing.JSON: {"schema": schema}}}}


@router.put(
    "/v1/streams/{name}",
    dependencies=ADMIN,
    responses={**documented(schemas.Stream, 201), 200: {"model": schemas.Stream}},
    openapi_extra=_configuration_body(),
    status_code=201,
)
async def create_stream(request: Request, name: Name) -> Response:
    """Create a stream. Every part of the configuration is optional.

    The reply is 201 for a new stream, 200 if it exists with the same configuration, and 409 with another one.
    """
    limits = request.app.state.settings.limits
    body = await request.body()
    values = parsing.json_object(body, limits.json_depth) if body.strip() else {}
    configuration = await run_in_threadpool(
        parse_configuration, values, cap=limits.nearest, waiting=limits.waiting, reference=limits.reference
    )
    new, stream = await result_of(request.app.state.engine.create(name, configuration))
    return json_response(stream, 201 if new else 200)


@router.get("/v1/streams/{name}", dependencies=READ, responses=documented(schemas.Stream))
async def get_stream(request: Request, name: Name) -> Response:
    """Return a stream: its configuration and its state."""
    return json_response(await query(request, lambda connection: describe_stream(connection, name)))


@router.delete("/v1/streams/{name}", dependencies=ADMIN, status_code=204, responses=ERRORS)
async def delete_stream(request: Request, name: Name) -> Response:
    """Delete a stream and its history. Its position in the fleet and its number of tests are kept (see /v1/fleet)."""
    await result_of(request.app.state.engine.delete(name))
    return Response(status_code=204)


@router.get("/v1/streams", dependencies=READ, responses=documented(schemas.Streams))
async def list_streams(
    request: Request,
    q: Annotated[str, Query(max_length=64)] = "",
    offset: Offset = 0,
    limit: Limit = 50,
    order: Literal["alarm", "name"] = "alarm",
    spark: Annotated[int, Query(ge=0, le=200)] = 0,
) -> Response:
    """List the streams whose name contains ``q``. Streams with an alarm and those with the most evidence come first."""

    def page(connection: sqlite3.Connection) -> dict[str, Any]:
        by = "alarm DESC, log10 DESC, name" if order == "alarm" else "name"
        rows = connection.execute(
            f"SELECT id, {SUMMARY_COLUMNS} FROM streams WHERE instr(name, ?) > 0"  # noqa: S608
            f" ORDER BY {by} LIMIT ? OFFSET ?",
            (q, limit, offset),
        ).fetchall()
        total = connection.execute("SELECT count(*) FROM streams WHERE instr(name, ?) > 0", (q,)).fetchone()[0]
        streams = [_summary(connection, row, spark) for row in rows]
        return {"streams": streams, "total": total, "offset": offset, "limit": limit}

    return json_response(await query(request, page))


def _summary(connection: sqlite3.Connection, row: tuple[Any, ...], spark: int) -> dict[str, Any]:
    """Summarize a stream, with the points of a sparkline if one is requested."""
    stream = summarize_row(row[1:])
    if spark:
        max_points = max(spark, history.MIN_POINTS)
        points = history.read(connection, row[0], stream["since"] + 1, stream["state"]["n"], max_points)
        stream["spark"] = {key: values for key, values in events.point_columns(points).items() if key != "p"}
    return stream


@router.post("/v1/streams/{name}/reset", dependencies=ADMIN, responses=documented(schemas.Stream))
async def reset_stream(request: Request, name: Name) -> Response:
    """Start a new test with the next observation: capital 1, no alarm, an empty pool. ``seq`` and ``n`` continue.

    Observations that wait for labels are left out.
    """
    return json_response(await result_of(request.app.state.engine.reset(name)))


@router.get(
    "/v1/streams/{name}/export",
    dependencies=READ,
    responses={**ERRORS, 200: {"content": {"application/octet-stream": {}}, "description": "the monitor"}},
)
async def export_stream(request: Request, name: Name) -> Response:
    """Return the monitor as a file that ``exchangeable.load`` opens."""
    data = await result_of(request.app.state.engine.export(name))
    headers = {"Content-Disposition": f'attachment; filename="{name}.exchangeable"'}
    return Response(data, media_type="application/octet-stream", headers=headers)
