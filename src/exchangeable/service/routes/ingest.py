"""Routes that accept observations and labels, and that list the observations waiting for labels."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from exchangeable.data.events.schema import LateLabel, Observation, json_schema
from exchangeable.service import parsing, schemas
from exchangeable.service.problems import Problem
from exchangeable.service.routes.replies import (
    INGEST,
    READ,
    Limit,
    Name,
    Offset,
    documented,
    json_response,
    query,
    read_stream,
    result_of,
)
from exchangeable.service.schema import load_json

router: APIRouter = APIRouter(tags=["observations"])
NDJSON_TYPES = frozenset({parsing.NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
LONG_BODY = 256 * 1024  # bytes: parsing more than this in the event loop would delay other requests


def _body_of(kind: type[Observation] | type[LateLabel]) -> dict[str, Any]:
    lines = {"type": "string", "description": "one JSON object in each line"}
    content = {parsing.JSON: {"schema": json_schema(kind)}, parsing.NDJSON: {"schema": lines}}
    return {"requestBody": {"required": True, "content": content}}


def _is_ndjson(request: Request) -> bool:
    """Return whether the body has one object in each line, by its media type."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != parsing.JSON and media not in NDJSON_TYPES:
        message = f"Content-Type must be {parsing.JSON} or {parsing.NDJSON}, got {media[:80]!r}"
        raise Problem(415, "unsupported-media-type", message)
    return media in NDJSON_TYPES


@router.post(
    "/v1/streams/{name}/observations",
    dependencies=INGEST,
    responses=documented(schemas.IngestReply),
    openapi_extra=_body_of(Observation),
)
async def send_observations(request: Request, name: Name) -> Response:
    """Accept one observation, or many as NDJSON: all of them or none. The reply is sent after the commit.

    ``seq`` counts from 1 and defines the order. An observation that was sent before is counted as a duplicate; a gap is
    409 with ``expected_seq``; a different observation under a used ``seq`` is 422.
    """
    state = request.app.state
    with state.metrics.ingest_seconds.time():
        body, limits = await request.body(), state.settings.limits
        parse = partial(
            parsing.observations,
            many=_is_ndjson(request),
            batch=limits.batch,
            width=limits.width,
            text=limits.string,
        )
        batch = parse(body) if len(body) < LONG_BODY else await run_in_threadpool(parse, body)
        return json_response(await result_of(state.engine.observe(name, batch)))


@router.post(
    "/v1/streams/{name}/labels",
    dependencies=INGEST,
    responses=documented(schemas.LabelReply),
    openapi_extra=_body_of(LateLabel),
)
async def send_labels(request: Request, name: Name) -> Response:
    """Accept labels for waiting observations, by their ids; ``never`` states that a label will not arrive.

    An observation whose label arrives later than ``labels.wait`` is left out. Whether it is used depends only on its
    own delay: the ``time`` of the label minus that of the observation, or the same on the server's clock.
    """
    state = request.app.state
    with state.metrics.ingest_seconds.time():
        body, limits = await request.body(), state.settings.limits
        labels = parsing.labels(body, many=_is_ndjson(request), batch=limits.batch, text=limits.string)
        return json_response(await result_of(state.engine.label(name, labels)))


@router.get("/v1/streams/{name}/waiting", dependencies=READ, responses=documented(schemas.WaitingList))
async def list_waiting(request: Request, name: Name, offset: Offset = 0, limit: Limit = 50) -> Response:
    """List the observations that wait for their labels, in order."""

    def read(connection: sqlite3.Connection) -> dict[str, Any]:
        id_, configuration, stream = read_stream(connection, name)
        rows = connection.execute(
            "SELECT seq, id, y IS NOT NULL FROM waiting WHERE stream = ? ORDER BY seq LIMIT ? OFFSET ?",
            (id_, limit, offset),
        )
        return {
            "waiting": [{"seq": seq, "id": name_, "labelled": bool(labelled)} for seq, name_, labelled in rows],
            "total": stream["waiting"],
            "limit": load_json(configuration)["labels"]["most"],
            "expired": stream["expired"],
            "left_out": stream["left_out"],
        }

    return json_response(await query(request, read))
