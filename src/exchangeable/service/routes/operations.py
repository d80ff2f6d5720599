"""Routes for operators: alerts, health and metrics."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from exchangeable.service import alerts, schemas
from exchangeable.service.problems import Problem
from exchangeable.service.routes.replies import (
    ADMIN,
    ERRORS,
    READ,
    Limit,
    documented,
    json_response,
    query,
    result_of,
)

PATIENCE = 5.0  # seconds that a commit may take while the server counts as ready
router: APIRouter = APIRouter(tags=["operations"])


@router.get("/v1/alerts", summary="List alerts", dependencies=READ, responses=documented(schemas.Alerts))
async def list_alerts(request: Request, limit: Limit = 100) -> Response:
    """List the alerts in the outbox: dead letters, pending ones and sent ones."""
    return json_response(await query(request, lambda connection: alerts.list_alerts(connection, limit)))


@router.post(
    "/v1/alerts/{id}/retry", summary="Send an alert again", dependencies=ADMIN, status_code=204, responses=ERRORS
)
async def retry_alert(request: Request, id: Annotated[int, Path(ge=1, le=2**62)]) -> Response:  # noqa: A002
    """Send a dead letter again."""
    await result_of(request.app.state.engine.write(lambda connection: alerts.retry(connection, id)))
    request.app.state.sender.wake()
    return Response(status_code=204)


@router.get("/healthz", summary="Is the process running?", responses=documented(schemas.Health))
async def check_health() -> Response:
    """Report that the process is running."""
    return json_response({"status": "ok"})


@router.get("/readyz", summary="Can observations be accepted?", responses=documented(schemas.Health))
async def check_readiness(request: Request) -> Response:
    """Report whether observations can be accepted: the database is in place, the last commit succeeded."""
    engine = request.app.state.engine
    if not engine.alive:
        raise Problem(503, "not-ready", "the server is not ready: it is starting, stopping, or its engine has ended")
    if engine.busy_seconds > PATIENCE:
        raise _stalled(engine.busy_seconds)
    if engine.failing is not None or not engine.store.in_place:
        try:
            async with asyncio.timeout(PATIENCE):
                await result_of(engine.probe())
        except TimeoutError:
            raise _stalled(PATIENCE) from None
        except Problem as problem:  # such as 507: the disk is full
            raise Problem(503, problem.code, f"the server is not ready: {problem.message}", retry_after=5) from None
    return json_response({"status": "ok"})


def _stalled(seconds: float) -> Problem:
    return Problem(
        503, "not-ready", f"the server has been writing to the disk for {seconds:.0f} seconds", retry_after=5
    )


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    dependencies=READ,
    responses={**ERRORS, 200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
)
async def get_metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    metrics = request.app.state.metrics
    return Response(await run_in_threadpool(metrics.text), media_type=metrics.media_type)
