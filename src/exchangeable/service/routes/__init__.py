"""The HTTP interface: each route parses its request, calls the engine or reads the database, and replies.

Each route states the scope that its token must have.
"""

from fastapi import APIRouter

from exchangeable.service.routes import ingest, monitoring, operations, streams, tables

router: APIRouter = APIRouter()
for part in (streams, tables, ingest, monitoring, operations):
    router.include_router(part.router)

__all__ = ["router"]
