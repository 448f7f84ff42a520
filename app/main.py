"""The application: routes, errors, documents, and the service behind them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

from fastapi import Depends, FastAPI

from app.access.authentication import Authentication
from app.access.needs import check_needs, open_paths
from app.fast_path.declarations import FAST_PATH
from app.fast_path.dispatcher import FastPath
from app.http import methods
from app.http.compression import AnswerCompression
from app.http.connection.parking import ParkedRequests
from app.metrics.metrics import RequestMetrics
from app.openapi.document import TAGS, make_document, render
from app.openapi.published_document import published
from app.problems import framework
from app.problems.request_context import RequestContext
from app.routes.counted_answers import CountedAnswers
from app.routes.dependencies import only_known_parameters, only_utf8, within_capabilities, within_request_quota
from app.routes.operations import access, operations, quotas
from app.routes.records import (
    fetch,
    multi_fetch,
    offsets,
    produce,
    record_batches,
    record_lines,
    records,
    single_record,
    splits,
)
from app.routes.topics import epochs, retention, topics
from app.routes.transactions import hanging_transactions, load_jobs, producers, start_positions, transactions
from app.service.opening import Opening
from app.service.service import Service
from app.settings import Settings
from log_model.clock import Clock

ROUTERS = [
    routes.router
    for routes in (
        topics,
        records,
        produce,
        fetch,
        record_batches,
        record_lines,
        single_record,
        multi_fetch,
        splits,
        offsets,
        epochs,
        producers,
        transactions,
        hanging_transactions,
        load_jobs,
        start_positions,
        retention,
        quotas,
        access,
        operations,
    )
]
TITLE = "Rollway"
VERSION = "0.1.0"
SUMMARY = "Kafka's log over HTTP"
DESCRIPTION = """Topics of partitions, each an append-only log of records in Kafka's own format on disk.

Every end is exclusive, offsets and sizes are 64-bit numbers, times are milliseconds since the epoch. Every error is a
problem document (RFC 9457); decide on a retry from `retryable` and `applied` alone. HEAD works wherever
GET does, and is answered with the headers of GET."""


def create_app(
    settings: Settings,
    *,
    clock: Clock | None = None,
    opening: Opening | None = None,
    on_ready: Callable[[], None] | None = None,
    on_failure: Callable[[Exception], None] | None = None,
) -> FastAPI:
    """Return the service as an ASGI application.

    Its lifespan opens the data directory in a thread. Until the directory is open, health routes answer, and all other
    routes answer 503. Then ``on_ready`` is called, or ``on_failure`` if the directory cannot be opened. Call
    ``app.state.begin_shutdown`` when the stop begins: it answers long polls and refuses later requests. The end of the
    lifespan closes the logs cleanly.

    ``opening`` brings up another engine than the local one. Plain requests then have no shorter path.
    """
    service = Service(settings, clock=clock, opening=opening, on_ready=on_ready, on_failure=on_failure)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await service.close()

    service.metrics.show_version(VERSION)
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        summary=SUMMARY,
        description=DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_tags=TAGS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[
            Depends(only_utf8),
            Depends(check_needs),
            Depends(within_request_quota),
            Depends(within_capabilities),
            Depends(only_known_parameters),
        ],
        lifespan=lifespan,
    )
    app.state.service = service
    if opening is None:  # its handlers know the local engine alone
        setattr(app.state, FAST_PATH, FastPath(service, ROUTERS))
    app.state.begin_shutdown = service.release
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(ParkedRequests)
    framework.install(app, methods)
    app.add_middleware(CountedAnswers, budget=lambda: getattr(service.ready_parts, "answer_budget", None))
    app.add_middleware(AnswerCompression, pool=service.pools.read)
    app.add_middleware(methods.HeadOfGet)
    if settings.authentication:
        routes = [route for router in ROUTERS for route in router.routes]
        app.add_middleware(Authentication, authenticator=lambda: service.authenticator, open_paths=open_paths(routes))
    app.add_middleware(RequestMetrics, metrics=service.metrics)
    app.add_middleware(RequestContext)

    # Made on demand, because most services never need them.
    whole = cache(lambda: make_document(app, ROUTERS))
    app.state.whole_document = whole
    app.openapi = cache(lambda: published(whole()))  # type: ignore[method-assign]
    return app


def build_routes(app: FastAPI) -> None:
    """Build all routes of FastAPI now. Otherwise the first request with an unknown path does, in 60 to 150 ms."""
    scope = {"type": "http", "method": "GET", "path": "/\x00", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(scope)


def current_document() -> str:
    """Return the published OpenAPI document of this version as ``openapi/openapi.json`` holds it."""
    return render(create_app(Settings()).openapi())


@cache
def whole_document() -> dict[str, Any]:
    """Return the document from which the published one is made, with every error of every route. Do not change it."""
    document: dict[str, Any] = json.loads(render(create_app(Settings()).state.whole_document()))
    return document
