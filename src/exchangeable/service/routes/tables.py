"""Routes of streams whose observations are rows of a table: the reference, and the columns."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from exchangeable.service import schemas
from exchangeable.service.lifecycle import Reference
from exchangeable.service.problems import Problem, invalid
from exchangeable.service.reference import CSV, NDJSON, PARQUET, parse_reference
from exchangeable.service.routes.replies import (
    ADMIN,
    READ,
    Name,
    documented,
    json_response,
    query,
    read_stream,
    result_of,
)
from exchangeable.service.server_config import Limits
from exchangeable.service.stream_config import load_configuration
from exchangeable.service.table_test import TableTest
from exchangeable.service.table_values import read_evidence, read_values

router: APIRouter = APIRouter(tags=["tables"])
BODY: dict[str, Any] = {
    NDJSON: {"schema": {"type": "string", "description": "one JSON object in each line"}},
    CSV: {"schema": {"type": "string", "description": "a header, and one row in each line"}},
    PARQUET: {"schema": {"type": "string", "format": "binary"}},
}


@router.put(
    "/v1/streams/{name}/reference",
    summary="Give a table its reference",
    dependencies=ADMIN,
    responses={**documented(schemas.Stream, 201), 200: {"model": schemas.Stream}},
    openapi_extra={"requestBody": {"required": True, "content": BODY}},
    status_code=201,
)
async def set_reference(request: Request, name: Name) -> Response:
    """Give a stream of the measure table its reference: rows as NDJSON or CSV, or a Parquet file. It cannot be changed.

    The reply is 201 for a new reference, 200 if it is the same as before, and 409 if the stream has another one.
    """
    state, body = request.app.state, await request.body()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in (NDJSON, CSV, PARQUET):
        message = f"Content-Type must be {NDJSON}, {CSV} or {PARQUET}, got {media[:80]!r}"
        raise Problem(415, "unsupported-media-type", message)
    _, text, _ = await query(request, lambda connection: read_stream(connection, name))
    test = await run_in_threadpool(_build_test, name, text, body, media, state.settings.limits)
    snapshot = await run_in_threadpool(test.encode)
    reference = Reference(media, body, load_configuration(text).canonical(), test, snapshot)
    new, stream = await result_of(state.engine.set_reference(name, reference))
    return json_response(stream, 201 if new else 200)


def _build_test(name: str, text: str, body: bytes, media: str, limits: Limits) -> TableTest:
    """Build the test of a stream from its reference."""
    configuration = load_configuration(text)
    if configuration.measure.kind != "table":
        kind = configuration.measure.kind
        raise Problem(409, "conflict", f"stream {name!r} takes no reference: its measure is {kind}")
    try:
        return configuration.table_test(parse_reference(body, media, limits))
    except ValueError as error:
        raise invalid(error, "bad-reference", f"{error}") from error


@router.get(
    "/v1/streams/{name}/columns",
    summary="Show which columns of a table have changed",
    dependencies=READ,
    responses=documented(schemas.Columns),
)
async def get_columns(request: Request, name: Name) -> Response:
    """Describe the columns and views of a stream of rows: evidence, when they changed, and their values over time."""
    n, described, columns = await result_of(request.app.state.engine.columns(name))
    values = await query(request, lambda connection: read_values(connection, name, columns))
    curves = await query(request, lambda connection: read_evidence(connection, name))
    for line in described["columns"]:
        earlier = curves.get(line["name"], {"n": [], "log10": []})
        line["curve"] = {"n": [*earlier["n"], n], "log10": [*earlier["log10"], line["log10_evidence"]]}
        line["values"] = values.get(line["name"]) if line["kind"] == "column" else None
    return json_response(described)
