"""Default deny: a header or parameter that is declared somewhere is known to the fast path, or makes a request cold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.access import authentication
from app.fast_path import declarations
from app.fast_path.declarations import declarations_of
from app.fast_path.dispatcher import FastPath
from app.http import allowed_hosts, compression, negotiation
from app.http.bodies import body
from app.http.connection import connection_limits
from app.main import ROUTERS
from app.problems import request_context
from app.quotas.limits import QuotaKind
from app.routes import dependencies
from app.routes.records import (
    fetch,
    idempotence_headers,
    partition_fetch,
    produce_requests,
    record_batches,
    record_lines,
    records,
    single_record,
)
from tests.http.test_fast_path_agrees import RAW, Pair, comparable, fetch_case, pair

__all__ = ["pair"]

# The headers


_READERS = (
    *(
        allowed_hosts,
        authentication,
        body,
        compression,
        connection_limits,
        declarations,
        dependencies,
        fetch,
        idempotence_headers,
    ),
    *(negotiation, partition_fetch, produce_requests, record_batches, record_lines, records, request_context),
    single_record,
)


def _declared_headers() -> set[str]:
    """The aliases of every header parameter of every route, dependencies included."""
    found: set[str] = set()
    waiting: list[Dependant] = [
        route.dependant for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)
    ]
    while waiting:
        dependant = waiting.pop()
        waiting += dependant.dependencies
        found |= {parameter.alias.lower() for parameter in dependant.header_params}
    return found


def _read_headers() -> set[str]:
    """The names that routes, middlewares and the connection read by hand."""
    by_get = re.compile(r"""headers\.(?:get|getlist)\(\s*["']([a-z-]+)""")
    by_name = re.compile(r"""name == b["']([a-z-]+)""")
    found = {request_context.HEADER.lower(), request_context.CLIENT_HEADER.lower()}
    for module in _READERS:
        source = inspect.getsource(module)
        found |= set(by_get.findall(source)) | set(by_name.findall(source))
    compressed = re.compile(r"""Headers\(scope=scope\)\.get\(["']([a-z-]+)""")
    return found | set(compressed.findall(inspect.getsource(compression)))


def _app_sources() -> Iterator[Path]:
    root = Path(inspect.getfile(records)).parents[1]
    for path in root.rglob("*.py"):
        if "cli" not in path.parts:
            yield path


def test_no_header_that_is_read_is_one_without_effect() -> None:
    """A head with a header that the parser of plain heads does not know is not plain: these it must not know."""
    heads = pytest.importorskip("app.http.connection.request_heads_c")
    read = _declared_headers() | _read_headers()
    assert {"idempotency-key", "transactional-id", "range", "if-none-match", "authorization"} <= read
    unread = {name.encode() for name in read} - set(heads.OF_INTEREST)
    assert not unread & heads.WITHOUT_EFFECT
    # It only tells whose wrong credential it was, and requests with a wrong one are the application's.
    assert {name for name in unread if name.startswith(b"x-")} <= {b"x-forwarded-for"}


# The parameters


def _hot_routes() -> list[APIRoute]:
    routes = (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    return [route for route in routes if declarations_of(route.endpoint)]


def _declared_parameters(route: APIRoute) -> set[str]:
    """Every parameter of a route's query, those of its models too."""
    found: set[str] = set()
    for parameter in route.dependant.query_params:
        model = parameter.field_info.annotation
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        found |= set(model.model_fields) if is_model else {parameter.alias}
    return found


def test_handlers_know_only_parameters_that_their_route_declares() -> None:
    routes = _hot_routes()
    wanted = {"fetchRecords", "produceRecords", "fetchRecordBatches", "produceRecordBatches", "fetchRecordLines"}
    assert wanted <= {route.operation_id for route in routes}
    for route in routes:
        for declared in declarations_of(route.endpoint):
            assert declared.parameters <= _declared_parameters(route), route.operation_id


@pytest.mark.needs_local("it tests the fast path of plain requests")
@pytest.mark.parametrize(
    "query",
    ["timestamp=5", "tail=1", "until=9999999999999&offset=0", "hard_limit=false&offset=0", "offset=0&tomorrow=1"],
)
def test_a_parameter_that_no_handler_knows_is_the_routes(pair: Pair, query: str) -> None:
    places = [("records", "application/json"), ("records", RAW), ("record-batches", RAW), ("record-lines", "*/*")]
    for place, accept in places:
        request = fetch_case("", f"?{query}", accept, place=place).encode()
        before = pair.fast_path.fast_path_count
        for _ in range(3):
            fast, slow = pair.ask(request)
            assert comparable(fast) == comparable(slow)
        assert pair.fast_path.fast_path_count == before


class _Tomorrow(partition_fetch.AnyFetchParameters):
    """As if a parameter were added to the route and to nothing else."""

    newest: int = 0


@pytest.mark.needs_local("it tests the fast path of plain requests")
@pytest.mark.parametrize("is_declared", [False, True])
def test_a_parameter_that_is_added_tomorrow_is_the_routes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_declared: bool
) -> None:
    """And this test would see it if handlers were believed to know every parameter."""
    heads = pytest.importorskip("app.http.connection.request_heads_c")
    fast_path: FastPath = pair.fast_path.app.state.fast_path
    query = b"offset=0&newest=1&max_bytes=%d" % (7 + is_declared)
    if is_declared:
        for route in fast_path._routes["GET"]:
            monkeypatch.setattr(route, "parameters", route.parameters | {"newest"})
    fast_path.cache_query(fetch.fetch_records, query, [(b"accept", RAW.encode())], _Tomorrow(offset=0, newest=1))
    raw = b"GET /v1/topics/fetched/partitions/0/records?%b HTTP/1.1\r\nHost: a\r\nAccept: %b\r\n\r\n"
    head = heads.read(raw % (query, RAW.encode()), 0, 65536, 100)
    assert (fast_path.resolve(head) is not None) is is_declared


def test_nobody_else_reads_headers_of_requests() -> None:
    """A new place that does must be added above."""
    readers = {
        path.name
        for path in _app_sources()
        if re.search(r"request\.headers|scope\[.headers.\]|Headers\(scope", path.read_text())
    }
    assert readers <= {Path(inspect.getfile(module)).name for module in _READERS}


# The quotas


_QUOTAS = {dependencies.within_produce_quota: QuotaKind.PRODUCE, dependencies.within_fetch_quota: QuotaKind.FETCH}


def test_handlers_declare_the_quota_that_their_route_charges() -> None:
    """A handler that forgot it would answer clients that must wait, and would withhold nothing."""
    seen = []
    for router in ROUTERS:
        for route in router.routes:
            if not isinstance(route, APIRoute) or not (declared := declarations_of(route.endpoint)):
                continue
            called = {dependant.call for dependant in route.dependant.dependencies}
            charged = [kind for dependency, kind in _QUOTAS.items() if dependency in called]
            assert [one.quota for one in declared] == (charged or [None]) * len(declared), route.path
            seen += charged
    assert seen.count(QuotaKind.PRODUCE) == 2
    assert seen.count(QuotaKind.FETCH) == 3
