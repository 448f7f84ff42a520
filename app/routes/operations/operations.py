"""Routes for health, metrics, the OpenAPI document and a page that shows the document."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import asdict

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from app.access.needs import AccessOf, needs, needs_authentication, open_to_all
from app.access.operations import CLUSTER, Operation, ResourceKind
from app.event_loop.pools import call_in
from app.fast_path.declarations import answered_on_connection
from app.fast_path.health import answer_health
from app.metrics.metrics import CONTENT_TYPE
from app.openapi.docs_page import render_page
from app.openapi.documented_problems import problems
from app.paths import DOCS, DOCUMENT, ENGINE, HEALTH, METRICS, READINESS
from app.record_json.record_documents import encode_document
from app.routes.answers import json_answer
from app.routes.dependencies import EngineOf, ServiceOf
from app.routes.records.partition_fetch import is_match
from schemas.engine import EngineCapabilities, EngineDescription
from schemas.health import Health, OpeningProgress, Readiness

router = APIRouter(tags=["operations"])

_EXAMPLE = (
    "# HELP rollway_recovery_truncated_bytes Torn bytes the last start cut off.\n"
    "# TYPE rollway_recovery_truncated_bytes gauge\n"
    "rollway_recovery_truncated_bytes 0.0\n"
)


@router.get(HEALTH, operation_id="getHealth", summary="Is the process alive", responses=problems())
@answered_on_connection(answer_health, needs_logs=False)
@open_to_all
async def get_health() -> Health:
    """Return 200 while the process runs, also during recovery and during the stop."""
    return Health()


@router.get(
    READINESS, operation_id="getReadiness", summary="Is the service ready", responses=problems(progress=OpeningProgress)
)
@open_to_all
async def get_readiness(service: ServiceOf, access: AccessOf) -> Readiness:
    """Return 200 once all logs are recovered, and 503 with the progress before.

    A service that stops returns 503 on open connections and refuses new connections. Treat both as not ready.

    If authentication is on, only callers with DESCRIBE on the cluster see the numbers.
    """
    sees_numbers = access.allows(Operation.DESCRIBE, CLUSTER)
    if not service.is_ready:
        raise service.unready(with_progress=sees_numbers)
    if not sees_numbers:
        return Readiness()
    counts = service.parts.engine.topics.count_partitions()
    return Readiness(partitions=counts.all, offline_partitions=counts.offline)


@router.get(ENGINE, operation_id="getEngine", summary="Describe the engine", responses=problems())
@needs(Operation.DESCRIBE, ResourceKind.CLUSTER)
async def get_engine(request: Request, engine: EngineOf) -> EngineDescription:
    """Return the engine that keeps the records, and the table of its capabilities.

    A route that needs a missing capability answers 501 `unsupported_by_engine`.
    """
    table = asdict(engine.capabilities)
    return EngineDescription(
        engine=table.pop("engine"), version=request.app.version, capabilities=EngineCapabilities(**table)
    )


@router.get(
    METRICS,
    operation_id="getMetrics",
    summary="Get the metrics",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics in Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **problems(),
    },
)
@needs(Operation.DESCRIBE, ResourceKind.CLUSTER)
async def get_metrics(service: ServiceOf) -> Response:
    """Return the metrics for Prometheus to scrape."""
    # In a thread, since it is slow with thousands of partitions.
    text = await call_in(service.pools.read, service.metrics.render)
    return Response(text, media_type=CONTENT_TYPE)


@router.get(DOCUMENT, include_in_schema=False)
@needs_authentication
async def get_document(request: Request, service: ServiceOf) -> Response:
    """Return the OpenAPI document of this service. Its ETag changes only with the document, so tools may cache it."""
    # In a thread, since the first call takes half a second.
    text, etag = await call_in(service.pools.read, functools.partial(_document, request.app))
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if is_match(request, etag):
        return Response(status_code=304, headers={**headers, "Vary": "Accept-Encoding"})
    return json_answer(text, headers=headers)


def _document(app: FastAPI) -> tuple[bytes, str]:
    """Return the document and its ETag. The application caches both for as long as it lives."""
    kept: tuple[bytes, str] | None = getattr(app.state, "document", None)
    if kept is None:
        text = encode_document(app.openapi())
        kept = app.state.document = (text, f'"{hashlib.sha256(text).hexdigest()[:32]}"')
    return kept


@router.get(DOCS, include_in_schema=False)
@needs_authentication
async def get_docs(request: Request, service: ServiceOf) -> HTMLResponse:
    """Return the whole document with its examples as an HTML page that loads nothing from other hosts."""
    return HTMLResponse(await call_in(service.pools.read, lambda: render_page(request.app.state.whole_document())))
