"""The hot tier: which requests are plain, who may send them, and which handler answers.

It never refuses anything: a request that would be refused, or that it does not know in every detail, is left to the
application's own route, the twin, so that both agree about every error.

Thread: the event loop.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from fastapi.routing import APIRoute

from app.access.access import EVERYTHING, Access, audit
from app.access.needs import SCOPE_KEY, declaration_of
from app.access.operations import CLUSTER, Resource, ResourceKind
from app.hot.declarations import HotDeclaration, declarations_of
from app.hot.request import HotRequest
from app.http import request_context
from app.http.byte_budget import Hold
from app.http.hot import Headers, HotAnswer, HotCall, Outcome, Peer, PlainHead, Quick
from app.http.parking import CONTINUATION, Parked
from app.http.problems import Problem
from app.http.request_context import given_client_id, given_request_id
from app.paths import API
from app.quotas.limits import QuotaKind
from app.quotas.throttling import ANONYMOUS, Client
from app.service import Service

COLD_HEADERS = frozenset(
    {
        b"expect",
        b"transfer-encoding",
        b"content-encoding",
        b"te",
        b"trailer",
        b"upgrade",
        b"range",
        b"if-range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"idempotency-key",
        b"producer-id",
        b"producer-epoch",
        b"base-sequence",
        b"transactional-id",
    }
)
"""A request with one of these is not plain."""
HANDLED_HEADERS = frozenset(
    {
        b"host",
        b"connection",
        b"content-length",
        b"content-type",
        b"accept",
        b"accept-encoding",
        b"authorization",
        b"client-id",
        b"x-request-id",
        b"x-forwarded-for",
    }
)
"""The others that anything in the service reads. The last only tells whose wrong credential it was, and requests with
a wrong one are not plain. Every header beside these makes no difference to any route."""

KNOWN_QUERIES_MAX = 10_000
KNOWN_QUERY_BYTES_MAX = 1_024
_NO_TOPIC = ""


class Route:
    """A route of the application and one of its handlers."""

    __slots__ = (
        "accepts",
        "body_bytes_max",
        "content_types",
        "endpoint",
        "handler",
        "is_charged",
        "large_bytes_max",
        "needs_broker",
        "path",
        "pattern",
        "rights",
        "route",
        "varying",
    )

    def __init__(self, route: APIRoute, declared: HotDeclaration) -> None:
        self.route = route
        self.endpoint = route.endpoint
        self.path = route.path
        self.pattern = _pattern_of(route.path)
        self.handler = declared.handler
        self.content_types = declared.content_types
        self.accepts = declared.accepts
        self.body_bytes_max = declared.body_bytes_max
        self.large_bytes_max = declared.large_bytes_max
        self.varying = declared.varying
        self.needs_broker = declared.needs_broker
        # What ``within_request_quota`` counts.
        self.is_charged = route.path.startswith(API)
        if self.is_charged and not self.needs_broker:
            raise ValueError(f"{route.path} is charged to a quota, which the broker knows")
        needs = declaration_of(route.endpoint)
        self.rights = None if needs is None else (() if needs.is_open else tuple(needs.checked))

    def number_in(self, url: bytes) -> tuple[bytes, int, bytes] | None:
        """What of ``url`` stands before the number that may vary, the number, and what stands behind it."""
        found = None if self.varying is None else self.varying.search(url)
        if found is None:
            return None
        return url[: found.start(1)], int(found[1]), url[found.end(1) :]


def _pattern_of(path: str) -> re.Pattern[bytes]:
    pattern = re.escape(path).replace(r"\{topic\}", r"(?P<topic>[A-Za-z0-9._-]{1,249})")
    pattern = pattern.replace(r"\{partition\}", r"(?P<partition>0|[1-9][0-9]{0,8})")
    if "\\{" in pattern:
        raise ValueError(f"{path} has parameters that plain requests cannot have")
    return re.compile(pattern.encode())


class Tier:
    """See the module."""

    def __init__(self, service: Service, routers: Iterable[Any]) -> None:
        self._service = service
        # The one place that decides it, for whatever is beside the transport: files, sinks, the way in C.
        self.is_bare = service.settings.tls_certificate is None
        self._metrics = service.metrics
        self._has_authentication = service.settings.authentication
        self._routes: dict[str, list[Route]] = {}
        self._queries: dict[tuple[Any, bytes], Any] = {}
        self.numbers = _request_numbers()
        self.answered_count = 0
        """Requests that were answered here."""
        for router in routers:
            for route in router.routes:
                for declared in declarations_of(getattr(route, "endpoint", None) or _pattern_of):
                    if declared.sends_files and not self.is_bare:
                        continue
                    for method in route.methods:
                        self._routes.setdefault(method, []).append(Route(route, declared))

    # What the twin tells

    def remember(self, endpoint: Any, query: bytes, parameters: Any) -> None:
        """Take the route's word for a query."""
        if len(query) > KNOWN_QUERY_BYTES_MAX:
            return
        declared = declarations_of(endpoint)
        if not declared:
            return
        key = (endpoint, _template_of(declared[0].varying, query))
        if key not in self._queries:
            if len(self._queries) >= KNOWN_QUERIES_MAX:
                del self._queries[next(iter(self._queries))]
            self._queries[key] = parameters

    # What connections ask

    def recognise(self, method: str, url: bytes, headers: Headers) -> PlainHead | None:
        """What a request asks, if it is plain; header names are lower case. Its framing is checked already."""
        path, mark, query = url.partition(b"?")
        routes = [route for route in self._routes.get(method, ()) if route.pattern.fullmatch(path)]
        if not routes or (mark and not query) or b"#" in url:
            return None
        head = PlainHead(method, url, headers, routes[0])
        if not _read_headers(head):
            return None
        for route in routes:
            if head.content_type in route.content_types and (route.accepts is None or head.accept in route.accepts):
                break
        else:
            return None
        head.route = route
        if route.needs_broker:
            head.parameters = self._queries.get((route.endpoint, _template_of(route.varying, query)))
            if head.parameters is None:
                return None
        elif query:
            return None
        found = route.pattern.fullmatch(path)
        assert found is not None
        groups = found.groupdict()
        head.topic = groups.get("topic", b"").decode("ascii")
        head.partition = int(groups.get("partition", b"-1"))
        head.client = Client(ANONYMOUS, head.client_id)
        head.count = self._metrics.requests.of(method, route.path).count
        return head

    def serve(
        self, head: PlainHead, number: int | None, body: bytes | memoryview, began: float, peer: Peer
    ) -> tuple[HotCall, Outcome] | None:
        """Answer; ``None`` leaves the request to the twin, as if nobody had seen it."""
        if head.quick is not None and not self._has_authentication:
            answered: HotAnswer | Exception | None
            try:
                answered = head.quick(number, body)
            except Exception as error:  # noqa: BLE001 - the application makes an answer of it
                answered = error
            if answered is not None:
                self.answered_count += 1
                return self.call_of(head, number, body, head.given_id or next(self.numbers), began), answered
        route: Route = head.route  # type: ignore[assignment]
        broker = None
        if route.needs_broker:
            broker = self._service.ready_broker
            if broker is None:
                return None
        access, client = EVERYTHING, head.client
        if self._has_authentication and route.rights != ():
            found = self._access_of(head, route, peer)
            if found is None:
                return None
            access, client = found, Client(found.principal, head.client_id)
        quotas = broker.quotas if broker is not None and route.is_charged and broker.quotas.table.has_any else None
        if quotas is not None and quotas.is_muted(QuotaKind.REQUEST, client):
            # It is refused by the twin, which also counts that.
            return None
        request_id = head.given_id or next(self.numbers)
        request = HotRequest(head, number, body, request_id, began, access, client)
        outcome: Outcome | None
        if broker is None:
            # It does nothing that a log line could tell.
            outcome = route.handler(broker, request)  # type: ignore[arg-type]
        else:
            token = request_context.request_id.set(request_id)
            try:
                outcome = route.handler(broker, request)
            except Exception as error:  # noqa: BLE001 - the application makes an answer of it
                outcome = error
            finally:
                request_context.request_id.reset(token)
        if outcome is None:
            return None
        self.answered_count += 1
        if quotas is not None:
            quotas.charge(QuotaKind.REQUEST, client, 1)
        for name in ("quick", "join"):
            answers = getattr(request, name)
            if answers is not None:
                setattr(head, name, answers if access is EVERYTHING else self._allowed(answers, head, route, peer))
        return request, outcome

    def call_of(
        self, head: PlainHead, number: int | None, body: bytes | memoryview, request_id: str, began: float
    ) -> HotCall:
        """What stands for a request that its head's ``quick`` has answered."""
        return HotRequest(head, number, body, request_id, began, EVERYTHING, head.client)

    def _allowed(self, quick: Quick, head: PlainHead, route: Route, peer: Peer) -> Quick:
        """``quick`` for as long as its client may do what it asks for."""
        who = _Who(peer.client, peer.scheme)

        def answer(number: int | None, body: bytes | memoryview) -> HotAnswer | None:
            return None if self._access_of(head, route, who) is None else quick(number, body)

        return answer

    def _access_of(self, head: PlainHead, route: Route, peer: Peer) -> Access | None:
        """What the request may do, if its credential is one that memory knows and all that it needs is allowed."""
        if head.authorization is None or route.rights is None or audit.isEnabledFor(logging.DEBUG):
            return None
        try:
            access = self._service.authenticator.known_access(head.authorization, peer.scheme, peer.client)
        except Problem:
            return None
        if access is None:
            return None
        for operation, kind in route.rights:
            if not access.allows(operation, _resource(kind, head)):
                return None
        return access

    def hold_body(self, length: int) -> Hold | None:
        """Room for a body that is collected; ``None`` when bodies hold all the memory that they may have."""
        broker = self._service.ready_broker
        if broker is None or broker.body_budget.held_bytes + length > broker.body_budget.limit_bytes:
            return None
        return broker.body_budget.hold()

    def hold_large(self, head: PlainHead, length: int) -> Hold | None:
        """Room for a body that comes in through a sink, counted whole; ``None`` when this one must not, or not now.

        Half of what bodies may hold is left to those whose bytes are counted as they come.
        """
        route: Route = head.route  # type: ignore[assignment]
        broker = self._service.ready_broker
        if not self.is_bare or broker is None:
            return None
        if length > min(route.large_bytes_max, self._service.settings.request_body_bytes_max):
            return None
        budget = broker.body_budget
        return budget.hold(length) if budget.held_bytes + length <= budget.limit_bytes // 2 else None

    def enter(self, call: HotCall) -> None:
        """Let log lines of the context of now name the call, and who asks."""
        assert isinstance(call, HotRequest)
        request_context.request_id.set(call.request_id)
        request_context.principal.set(None if call.access is EVERYTHING else call.access.principal)
        request_context.client_id.set(call.head.client_id)
        request_context.throttle_time_ms.set(call.throttle_ms)

    def resume(self, scope: dict[str, Any], call: HotCall, error: Exception) -> None:
        """Let the application answer ``error`` for a call that was begun here, in the context of now."""
        assert isinstance(call, HotRequest)
        self.enter(call)
        route: Route = call.head.route  # type: ignore[assignment]
        scope["route"] = route.route
        scope[SCOPE_KEY] = call.access

        async def answer(_: object) -> Any:
            raise error

        parked = Parked(_Over(), answer)
        parked.began = call.began
        scope[CONTINUATION] = parked


class _Who(NamedTuple):
    """A peer without its connection."""

    client: tuple[str, int] | None
    scheme: Any


class _Over:
    """A wait that is over."""

    class _Done:
        def done(self) -> bool:
            return True

        def cancelled(self) -> bool:
            return False

    done: Any = _Done()

    def cancel(self) -> None:
        """Nothing to cancel."""


def _template_of(varying: re.Pattern[bytes] | None, query: bytes) -> bytes:
    """What requests have in common that differ in the number alone."""
    found = None if varying is None else varying.search(b"?" + query)
    return query if found is None else query[: found.start(1) - 1] + b"0" + query[found.end(1) - 1 :]


def _resource(kind: ResourceKind, head: PlainHead) -> Resource:
    return CLUSTER if kind is ResourceKind.CLUSTER else Resource(kind, head.topic)


def _read_headers(head: PlainHead) -> bool:
    """Take from the headers what routes and middlewares would; false if the request is not plain."""
    seen: set[bytes] = set()
    for name, value in head.headers:
        if name in COLD_HEADERS:
            return False
        if name not in HANDLED_HEADERS:
            continue
        if name in seen:
            return False
        seen.add(name)
        if name == b"content-type":
            head.content_type = value
        elif name == b"accept":
            head.accept = value
        elif name == b"accept-encoding":
            head.accept_encoding = value
        elif name == b"authorization":
            head.authorization = value
        elif name == b"client-id":
            head.client_id = given_client_id(value) or ""
        elif name == b"x-request-id":
            head.given_id = given_request_id(value)
        elif name == b"connection" and value.lower() != b"keep-alive":
            return False
    return True


def _request_numbers() -> Iterator[str]:
    """Numbers that no other request has, as ``request_context.new_request_id`` makes them, many at a time."""

    def block() -> list[str]:
        numbers = os.urandom(8 * 256).hex()
        return [numbers[start : start + 16] for start in range(0, len(numbers), 16)]

    # There is no end of blocks: none equals None. The next number so runs no code of ours.
    return chain.from_iterable(iter(block, None))


__all__ = ["COLD_HEADERS", "HANDLED_HEADERS", "Route", "Tier"]
