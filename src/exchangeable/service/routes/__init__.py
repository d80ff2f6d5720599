"""The HTTP interface: each route parses its request, asks the engine or the database, and answers.

Each route states the scope that its token must have.
"""

from fastapi import APIRouter

from exchangeable.service.routes import ingest, monitoring, operations, streams

router: APIRouter = APIRouter()
for part in (streams, ingest, monitoring, operations):
    router.include_router(part.router)

__all__ = ["router"]
