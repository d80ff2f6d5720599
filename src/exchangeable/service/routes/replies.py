"""Parts that all routes share: parameters, scopes, replies, and access to the engine and the database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Query, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from exchangeable.service import events, parsing, schemas
from exchangeable.service.access import Grant, allow
from exchangeable.service.store import Store
from exchangeable.service.stream_config import NAME
from exchangeable.service.stream_summary import SUMMARY_COLUMNS, summarize_row, unknown_stream

Name = Annotated[str, Path(pattern=NAME, description="1 to 64 of a-z, 0-9, '.', '_', '-'")]
Offset = Annotated[int, Query(ge=0, le=10**9)]
Limit = Annotated[int, Query(ge=1, le=500)]
READ, INGEST, ADMIN = ([Depends(allow(scope))] for scope in ("read", "ingest", "admin"))
FILTERED = Depends(allow("read", filtered=True))  # of routes that show a token only its own streams
Filtered = Annotated[Grant, FILTERED]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Error} for status in (400, 401, 403, 404, 409, 413, 415, 421, 422, 429, 500, 503, 507)
}
T = TypeVar("T")


def json_response(value: Any, status: int = 200) -> Response:
    """Encode a value as the JSON body of a response."""
    return Response(events.encode(value), status, media_type=parsing.JSON)


def documented(model: type[BaseModel], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the possible replies of a route, for the OpenAPI document."""
    return {status: {"model": model}, **ERRORS}


async def result_of(future: Future[T]) -> T:
    """Wait for the result of a request to the engine."""
    return await asyncio.wrap_future(future)


async def query(request: Request, read: Callable[[sqlite3.Connection], T]) -> T:
    """Run a function that reads the database, in a thread."""
    return await read_database(request.app.state.store, read)


async def read_database(store: Store, read: Callable[[sqlite3.Connection], T]) -> T:
    """Run a function that reads a database, in a thread."""

    def run() -> T:
        with store.read() as connection:
            return read(connection)

    return await run_in_threadpool(run)


def read_stream(connection: sqlite3.Connection, name: str) -> tuple[int, str, dict[str, Any]]:
    """Return the id of a stream, its configuration as JSON, and its summary."""
    sql = f"SELECT id, configuration, {SUMMARY_COLUMNS} FROM streams WHERE name = ?"  # noqa: S608
    row = connection.execute(sql, (name,)).fetchone()
    if row is None:
        raise unknown_stream(name)
    return row[0], row[1], summarize_row(row[2:])
