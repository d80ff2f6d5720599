"""Routes that accept observations and labels, and that list the observations waiting for labels."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from exchangeable.data.events.schema import LateLabel, Observation, TableRow, json_schema
from exchangeable.service import csv_body, parsing, schemas
from exchangeable.service.logs import REQUEST
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
from exchangeable.service.row_fields import RowFields
from exchangeable.service.schema import load_json
from exchangeable.service.stream_config import LABELLED

T = TypeVar("T")
router: APIRouter = APIRouter(tags=["observations"])
NDJSON_TYPES = frozenset({parsing.NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
LONG_BODY = {parsing.CSV: 2_048, parsing.JSON: 16_384, parsing.NDJSON: 32_768}  # bytes that take 1 or 2 ms to parse


def _body_of(*kinds: type[Observation] | type[TableRow] | type[LateLabel], csv: bool = False) -> dict[str, Any]:
    one = [json_schema(kind) for kind in kinds]
    if csv:
        one.append({"type": "object", "description": "a row of a table: a value for each column"})
    item = one[0] if len(one) == 1 else {"anyOf": one}
    content = {
        parsing.JSON: {"schema": {"anyOf": [*one, {"type": "array", "items": item, "minItems": 1}]}},
        parsing.NDJSON: {"schema": {"type": "string", "description": "one JSON object in each line"}},
    }
    if csv:
        text = "a header, and one observation in each line; columns seq, id, time and y are not part of x"
        content[parsing.CSV] = {"schema": {"type": "string", "description": text}}
    return {"requestBody": {"required": True, "content": content}}


def _media(request: Request, *more: str) -> str:
    """Return the media type of the body, one of JSON, NDJSON and ``more``."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media in NDJSON_TYPES:
        return parsing.NDJSON
    allowed = (parsing.JSON, parsing.NDJSON, *more)
    if media not in allowed:
        message = f"Content-Type must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {media[:80]!r}"
        raise Problem(415, "unsupported-media-type", message)
    return media


def _form(media: str) -> parsing.Form:
    return "ndjson" if media == parsing.NDJSON else "json"


async def _kind(request: Request, name: str) -> tuple[str, RowFields | None]:
    """Return the measure of a stream, and the columns of a stream of rows."""
    engine = request.app.state.engine
    stream = engine.streams.peek(name)
    if stream is None:
        kind = (await query(request, lambda connection: read_stream(connection, name)))[2]["measure"]
    else:
        kind = stream.configuration.measure.kind
    return kind, (await result_of(engine.schema(name)) if kind == "table" else None)


async def _parse(parse: Callable[[], T], is_long: bool) -> T:
    """Parse a body; a long one in a thread, since the event loop would delay other requests."""
    return await run_in_threadpool(parse) if is_long else parse()


def _count(request: Request, count: int) -> None:
    """Count observations or labels for the rate limit of the sender."""
    address = "?" if request.client is None else request.client.host
    request.app.state.access.count_observations((REQUEST.get() or {}).get("token"), address, count)


@router.post(
    "/v1/streams/{name}/observations",
    summary="Send observations",
    dependencies=INGEST,
    responses=documented(schemas.IngestReply),
    openapi_extra=_body_of(Observation, TableRow, csv=True),
)
async def send_observations(request: Request, name: Name) -> Response:
    """Accept observations, all or none, as a JSON object, a JSON array, NDJSON or CSV; reply after the commit.

    ``seq`` counts from 1 and defines the order. An observation that was sent before is counted as a duplicate; a gap is
    409 with ``expected_seq``; a different observation under a used ``seq`` is 422. Without ``seq``, observations are
    appended in the order of their arrival, and the reply has their numbers: sent again, they count again.
    """
    state = request.app.state
    with state.metrics.ingest_seconds.time():
        media = _media(request, parsing.CSV)
        body, limits = await request.body(), state.settings.limits
        kind, fields = await _kind(request, name)
        more: dict[str, Any] = {"batch": limits.batch, "width": limits.width, "text": limits.string}

        def parse() -> parsing.Batch:
            if media == parsing.CSV:
                return csv_body.observations(body, fields=fields, labels=kind in LABELLED, **more)
            return parsing.observations(body, _form(media), fields=fields, **more)

        batch = await _parse(parse, len(body) > LONG_BODY[media])
        batch = batch if fields is None else replace(batch, created=fields.created)
        _count(request, len(batch))
        return json_response(await result_of(state.engine.observe(name, batch)))


@router.post(
    "/v1/streams/{name}/labels",
    summary="Send labels that come late",
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
        media, body, limits = _media(request), await request.body(), state.settings.limits
        parse = partial(parsing.labels, body, _form(media), batch=limits.batch, text=limits.string)
        labels = await _parse(parse, len(body) > LONG_BODY[media])
        _count(request, len(labels))
        return json_response(await result_of(state.engine.label(name, labels)))


@router.get(
    "/v1/streams/{name}/waiting",
    summary="List the observations that wait for labels",
    dependencies=READ,
    responses=documented(schemas.WaitingList),
)
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
            "limit": (load_json(configuration)["labels"] or {"most": 0})["most"],
            "expired": stream["expired"],
            "left_out": stream["left_out"],
        }

    return json_response(await query(request, read))
