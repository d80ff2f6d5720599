"""The ASGI application, which connects the parts of the server for one database."""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from exchangeable.service.access import Access
from exchangeable.service.alerts import Sender
from exchangeable.service.announcements import StreamEvent
from exchangeable.service.engine import Engine
from exchangeable.service.events import Feed
from exchangeable.service.live_settings import LiveSettings
from exchangeable.service.metrics import DatabaseStatus, Metrics, read_status
from exchangeable.service.middleware import SecurityMiddleware
from exchangeable.service.page import PageFile, page_files
from exchangeable.service.problems import Problem, out_of_memory
from exchangeable.service.routes import router
from exchangeable.service.routes.replies import json_response, read_database, result_of
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store, StoreError
from exchangeable.service.writer import storage_problem

T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)
DESCRIPTION = """Is this data still exchangeable (i.i.d.)? Send observations in order; the server measures the evidence
against it. A capital of 10^2 is evidence at the 1 % level; the guarantee of each stream says what its alarm means."""


def create_app(store: Store, settings: Settings | None = None, *, loopback: bool = True, page: bool = True) -> FastAPI:
    """Create the application for an open database. ``loopback`` states that only this machine can reach it."""
    live = LiveSettings(settings or Settings())
    settings = live.settings
    app = FastAPI(
        title="exchangeable",
        version=sys.modules["exchangeable"].__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=_lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    state = app.state
    state.store, state.live = store, live
    state.access = Access(store.read, loopback=loopback, limits=settings.limits)
    state.feed = Feed(settings.limits.events_readers)
    state.engine = Engine(store, settings, lambda events, alerted: _publish(app, events, alerted))
    state.metrics = _metrics(store, state.engine)
    state.engine.commit_seconds = state.metrics.commit_seconds.observe
    state.sender = _sender(app, settings)
    live.subscribe(lambda settings: _configure(app, settings))
    app.include_router(router)
    if page:
        for path, file in page_files().items():
            app.add_api_route(path, _serve_file(file), methods=["GET", "HEAD"], include_in_schema=False)
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
    count = state.metrics.count_rejected
    app.add_middleware(SecurityMiddleware, settings=settings, count_rejected=count, subscribe=live.subscribe)
    return app


def _configure(app: FastAPI, settings: Settings) -> None:
    """Let the parts of the server take over new settings; the middleware does so itself."""
    state = app.state
    state.settings = settings
    state.access.configure(settings.limits)
    state.feed.max_readers = settings.limits.events_readers
    state.engine.configure(settings)
    state.sender.configure(settings.receivers, settings.external_url or "")


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    state.feed.open()
    state.engine.start()
    try:
        async with state.sender:
            yield
    finally:
        state.feed.close()
        await run_in_threadpool(state.engine.stop)


def _publish(app: FastAPI, events: list[StreamEvent], alerted: bool) -> None:
    """Notify the readers of events, and the sender of alerts, of what a commit changed."""
    app.state.feed.publish(events)
    if alerted:
        app.state.sender.wake()


def _metrics(store: Store, engine: Engine) -> Metrics:
    def read() -> DatabaseStatus:
        with store.read() as connection:
            return read_status(connection, engine.settings.metrics_streams)

    return Metrics(read, load=engine.load, database_bytes=store.bytes, in_place=lambda: store.in_place)


def _sender(app: FastAPI, settings: Settings) -> Sender:
    engine, store = app.state.engine, app.state.store

    async def write(work: Callable[[sqlite3.Connection], T], /) -> T:
        result: T = await result_of(engine.write(work))
        return result

    async def read(work: Callable[[sqlite3.Connection], T], /) -> T:
        return await read_database(store, work)

    return Sender(settings.receivers, write, read=read, external_url=settings.external_url or "")


def _serve_file(file: PageFile) -> Callable[[Request], Any]:
    stat = file.path.stat()
    tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
    headers = {"Cache-Control": file.cache_control, "ETag": tag}

    async def send(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return FileResponse(file.path, media_type=file.media_type, headers=headers)

    return send


# ------------------------------------------------------------------ errors


def _error_response(request: Request, problem: Problem) -> Response:
    """Count a problem and return it as a response."""
    request.app.state.metrics.count_rejected(problem.code)
    response = json_response(problem.body, problem.status)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if "retry_after" in problem.extra:
        response.headers["Retry-After"] = str(problem.extra["retry_after"])
    return response


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101
    return _error_response(request, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    rule = first["msg"][0].lower() + first["msg"][1:]
    return _error_response(
        request, Problem(422, "bad-request", f"{where} must satisfy: {rule}, got {str(first.get('input'))[:80]!r}")
    )


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    codes = {404: "not-found", 405: "method-not-allowed"}
    messages = {404: "path not found", 405: "this path does not support this method"}
    message = messages.get(error.status_code, str(error.detail))
    response = _error_response(
        request, Problem(error.status_code, codes.get(error.status_code, "bad-request"), message)
    )
    response.headers.update(error.headers or {})
    return response


async def _storage(request: Request, error: Exception) -> Response:
    assert isinstance(error, sqlite3.Error)  # noqa: S101
    return _error_response(request, storage_problem(error))


async def _memory(request: Request, error: Exception) -> Response:
    log.error("out of memory: a request was rejected")
    return _error_response(request, out_of_memory())


async def _closed(request: Request, error: Exception) -> Response:
    return _error_response(request, Problem(503, "storage", str(error), retry_after=5))


HANDLERS: dict[int | type[Exception], Callable[[Request, Exception], Any]] = {
    Problem: _problem,
    RequestValidationError: _invalid,
    HTTPException: _http,
    sqlite3.Error: _storage,
    MemoryError: _memory,
    StoreError: _closed,
}
