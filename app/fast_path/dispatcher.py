"""The dispatcher of the fast path: it decides who may send plain requests, and which handler answers.

It never refuses anything: a request that would be refused, or that it does not know in every detail, is left to the
application, so that both agree about every error.

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
from app.fast_path.declarations import HandlerDeclaration, declarations_of
from app.fast_path.request import PlainRequest
from app.http.bodies.byte_budget import Hold
from app.http.connection.fast_path_interface import (
    Headers,
    Late,
    Outcome,
    Peer,
    PlainAnswer,
    PlainCall,
    RequestHead,
    ResolvedTarget,
)
from app.http.connection.parking import Parked
from app.paths import API
from app.problems import request_context
from app.problems.problem import Problem
from app.problems.request_context import CONTINUATION, given_client_id, given_request_id
from app.quotas.limits import QuotaKind
from app.quotas.throttling import ANONYMOUS, Client, Quotas
from app.service.service import Service

QUERIES_MAX = 10_000
"""Queries that are kept after a route has validated them. The oldest is dropped first."""
TARGETS_MAX = 10_000
"""Targets that are kept. The oldest is dropped first. One takes a kilobyte or two."""
KEY_BYTES_MAX = 2_048
"""Longer targets and media types are the application's."""
_VARYING = re.compile(rb"(?<![^&])offset=(?:0|[1-9][0-9]{0,17})(?![^&])")
"""The number that ``RequestHead.key`` has 0 for."""


class _Query(NamedTuple):
    """A query that a route has validated: the route, and the parts of ``RequestHead.key`` that decide its answer."""

    endpoint: Any
    query: bytes
    content_type: bytes
    accept: bytes


class Route:
    """A route of the application and one of its handlers."""

    __slots__ = (
        "accepts",
        "answers_late",
        "body_bytes_max",
        "charges_quota",
        "content_types",
        "endpoint",
        "handler",
        "is_charged",
        "large_bytes_max",
        "needs_logs",
        "parameters",
        "path",
        "pattern",
        "quota",
        "rights",
        "route",
        "sends_files",
        "takes_key",
        "takes_producer",
        "varies",
    )

    def __init__(self, route: APIRoute, declared: HandlerDeclaration) -> None:
        self.route = route
        self.endpoint = route.endpoint
        self.path = route.path
        self.pattern = _pattern_of(route.path)
        self.handler = declared.handler
        self.answers_late = declared.answers_late
        self.content_types = declared.content_types
        self.accepts = declared.accepts
        self.body_bytes_max = declared.body_bytes_max
        self.large_bytes_max = declared.large_bytes_max
        self.parameters = declared.parameters
        self.varies = declared.varies
        self.takes_key = declared.takes_key
        self.takes_producer = declared.takes_producer
        self.quota = declared.quota
        self.charges_quota = declared.charges_quota
        self.needs_logs = declared.needs_logs
        self.sends_files = declared.sends_files
        # What ``within_request_quota`` counts.
        self.is_charged = route.path.startswith(API)
        if self.is_charged and not self.needs_logs:
            raise ValueError(f"{route.path} is charged to a quota, which are kept with the logs")
        needs = declaration_of(route.endpoint)
        self.rights = None if needs is None else (() if needs.is_open else tuple(needs.checked))

    def takes(self, head: RequestHead) -> bool:
        """Return whether the handler takes these media types, and the headers that not every request has."""
        if (head.idempotency_key and not self.takes_key) or (head.producer is not None and not self.takes_producer):
            return False
        return head.content_type in self.content_types and (self.accepts is None or head.accept in self.accepts)

    def leaves(self, client: Client, quotas: Quotas) -> bool:
        """Return whether the client's quotas leave its request to the application, which also counts refusals."""
        if quotas.is_muted(QuotaKind.REQUEST, client):
            return True
        if self.quota is None:
            return False
        if self.charges_quota:
            return quotas.is_muted(self.quota, client)
        return quotas.table.find(self.quota, *client) is not None


def _pattern_of(path: str) -> re.Pattern[bytes]:
    pattern = re.escape(path).replace(r"\{topic\}", r"(?P<topic>[A-Za-z0-9._-]{1,249})")
    pattern = pattern.replace(r"\{partition\}", r"(?P<partition>0|[1-9][0-9]{0,8})")
    if "\\{" in pattern:
        raise ValueError(f"{path} has parameters that plain requests cannot have")
    return re.compile(pattern.encode())


class FastPath:
    """See the module."""

    def __init__(self, service: Service, routers: Iterable[Any]) -> None:
        self._service = service
        # The one place that decides it, for all that bypasses the transport: files, sinks, compiled connections.
        self.is_bare = service.settings.tls_certificate is None
        self._metrics = service.metrics
        self.checks_access = service.settings.authentication
        """Whether a request for a guarded target is answered only if its caller has the rights."""
        self._routes: dict[str, list[Route]] = {}
        self._queries: dict[_Query, Any] = {}
        self.targets: dict[bytes, ResolvedTarget] = {}
        """The targets that are resolved, by ``RequestHead.key``."""
        self.numbers = _request_numbers()
        self.answered_count = 0
        """Requests that were answered here."""
        for router in routers:
            for route in router.routes:
                for declared in declarations_of(getattr(route, "endpoint", None) or _pattern_of):
                    for method in route.methods:
                        self._routes.setdefault(method, []).append(Route(route, declared))

    # What the application tells

    def cache_query(self, endpoint: Any, query: bytes, headers: Headers, parameters: Any) -> None:
        """Keep the parameters of a query with these headers, which the route has validated."""
        if not declarations_of(endpoint):
            return
        template = _VARYING.sub(b"offset=0", query, count=1)
        asked = _Query(endpoint, template, _only(headers, b"content-type"), _only(headers, b"accept"))
        if len(template) + len(asked.content_type) + len(asked.accept) > KEY_BYTES_MAX or asked in self._queries:
            return
        if len(self._queries) >= QUERIES_MAX:
            del self._queries[next(iter(self._queries))]
        self._queries[asked] = parameters

    # What connections ask

    def resolve(self, head: RequestHead) -> ResolvedTarget | None:
        """Return the target of a head and keep it in ``targets``; ``None`` if the application must answer it.

        Default deny: its query has only parameters that the handler declares, each once, and a route has validated it.
        """
        key = head.key
        if len(key) > KEY_BYTES_MAX:
            return None
        template = key[: key.index(b"\n")].partition(b" ")[2]
        path, mark, query = template.partition(b"?")
        method = head.method.decode("ascii")
        for route in self._routes.get(method, ()):
            found = route.pattern.fullmatch(path)
            if found is not None and route.takes(head):
                break
        else:
            return None
        target = ResolvedTarget(head, route)
        names = [parameter.partition(b"=")[0].decode("ascii") for parameter in query.split(b"&")] if mark else []
        if len(set(names)) < len(names) or not route.parameters.issuperset(names):
            return None
        if head.number is not None and not route.varies:
            return None
        if route.needs_logs:
            target.parameters = self._queries.get(_Query(route.endpoint, query, head.content_type, head.accept))
            if target.parameters is None or not route.parameters.issuperset(target.parameters.model_fields_set):
                return None
        elif mark:
            return None
        groups = found.groupdict()
        target.media_type = "" if route.accepts is None else route.accepts[head.accept]
        target.topic = groups.get("topic", b"").decode("ascii")
        target.partition = int(groups.get("partition", b"-1"))
        target.is_guarded = route.rights != ()
        target.sends_files = route.sends_files and self.is_bare
        target.count = self._metrics.requests.of(method, route.path).count
        if len(self.targets) >= TARGETS_MAX:
            del self.targets[next(iter(self.targets))]
        self.targets[key] = target
        return target

    def admits(self, target: ResolvedTarget, authorization: bytes | None, peer: Peer) -> bool:
        """Return whether a request for a guarded target may be answered here, by its credential."""
        return self._access_of(target, authorization, peer) is not None

    def serve(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, began: float, peer: Peer
    ) -> tuple[PlainCall, Outcome] | None:
        """Answer; ``None`` leaves the request to the application, and has no effect."""
        access, client_id = EVERYTHING, given_client_id(head.client_id) or ""
        if self.checks_access and target.is_guarded:
            found = self._access_of(target, head.authorization, peer)
            if found is None:
                return None
            access = found
        client = Client(ANONYMOUS if access is EVERYTHING else access.principal, client_id)
        request_id = given_request_id(head.request_id) or next(self.numbers)
        request = PlainRequest(target, head, body, request_id, began, access, client)
        if target.compiled_handler is not None:
            answered: PlainAnswer | Exception | None
            try:
                answered = target.compiled_handler(head.idempotency_key or head.number, body)
            except Exception as error:  # noqa: BLE001 - the application makes an answer of it
                answered = error
            if answered is not None:
                self.answered_count += 1
                return request, answered
        outcome = self._ask_handler(target.route, request)  # type: ignore[arg-type]
        if outcome is None:
            return None
        self.answered_count += 1
        if request.compiled_handler is not None:
            target.compiled_handler = request.compiled_handler
        if request.enqueue is not None:
            target.enqueue = request.enqueue
        return request, outcome

    def _ask_handler(self, route: Route, request: PlainRequest) -> Outcome | None:
        """Let the handler answer a request, and charge it to the quotas."""
        if not route.needs_logs:
            # It does nothing that a log line could tell.
            return route.handler(None, request)  # type: ignore[arg-type]
        parts = self._service.ready_parts
        if parts is None:
            return None
        quotas = parts.quotas if route.is_charged and parts.quotas.table.has_any else None
        if quotas is not None and route.leaves(request.client, quotas):
            return None
        token = request_context.request_id.set(request.request_id)
        outcome: Outcome | None
        try:
            # A tier is made for services on the local engine alone.
            outcome = route.handler(parts, request)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the application makes an answer of it
            outcome = error
        finally:
            request_context.request_id.reset(token)
        if outcome is not None and quotas is not None:
            quotas.charge(QuotaKind.REQUEST, request.client, 1)
        return outcome

    def call_of(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, request_id: str, began: float
    ) -> PlainCall:
        """Return the call of a request that ``compiled_handler`` of its target has answered."""
        client = Client(ANONYMOUS, given_client_id(head.client_id) or "")
        return PlainRequest(target, head, body, request_id, began, EVERYTHING, client)

    def _access_of(self, target: ResolvedTarget, authorization: bytes | None, peer: Peer) -> Access | None:
        """Return the access of a request, if its credential is in memory and allows all that the route needs."""
        route: Route = target.route  # type: ignore[assignment]
        if authorization is None or route.rights is None or audit.isEnabledFor(logging.DEBUG):
            return None
        try:
            access = self._service.authenticator.known_access(authorization, peer.scheme, peer.client)
        except Problem:
            return None
        if access is None:
            return None
        for operation, kind in route.rights:
            if not access.allows(operation, _resource(kind, target)):
                return None
        return access

    def hold_body(self, length: int) -> Hold | None:
        """Hold memory for a body that is collected; ``None`` when bodies hold all the memory that they may have."""
        parts = self._service.ready_parts
        if parts is None or parts.body_budget.held_bytes + length > parts.body_budget.limit_bytes:
            return None
        return parts.body_budget.hold()

    def hold_large(self, target: ResolvedTarget, length: int) -> Hold | None:
        """Hold memory for the whole of a body that comes in through a sink; ``None`` if it must not, or not now.

        Half of the memory of all bodies is left to those whose bytes are counted as they come.
        """
        route: Route = target.route  # type: ignore[assignment]
        parts = self._service.ready_parts
        if not self.is_bare or parts is None:
            return None
        if length > min(route.large_bytes_max, self._service.settings.request_body_bytes_max):
            return None
        budget = parts.body_budget
        return budget.hold(length) if budget.held_bytes + length <= budget.limit_bytes // 2 else None

    def enter(self, call: PlainCall) -> None:
        """Let log lines of the current context name the call and its client."""
        assert isinstance(call, PlainRequest)
        request_context.request_id.set(call.request_id)
        request_context.principal.set(None if call.access is EVERYTHING else call.access.principal)
        request_context.client_id.set(call.client.client_id)
        request_context.throttle_time_ms.set(call.throttle_ms)

    def resume(self, scope: dict[str, Any], call: PlainCall, late: Exception | Late) -> None:
        """Let the application answer with ``late`` a call that was begun here, in the current context."""
        assert isinstance(call, PlainRequest)
        self.enter(call)
        route: Route = call.target.route  # type: ignore[assignment]
        scope["route"] = route.route
        scope[SCOPE_KEY] = call.access

        async def fail(_: object) -> Any:
            assert isinstance(late, Exception)
            raise late

        parked = Parked(_Over(), fail if isinstance(late, Exception) else late)
        parked.began = call.began
        scope[CONTINUATION] = parked


class _Over:
    """A wait that is over."""

    class _Done:
        def done(self) -> bool:
            return True

        def cancelled(self) -> bool:
            return False

    done: Any = _Done()

    def cancel(self) -> None:
        """Do nothing."""

    def expire(self) -> None:
        """Do nothing."""


def _only(headers: Headers, wanted: bytes) -> bytes:
    """Return the value of a header. If it comes twice, the result is a value that no plain head has."""
    values = [value for name, value in headers if name == wanted]
    return b"\n".join(values)


def _resource(kind: ResourceKind, target: ResolvedTarget) -> Resource:
    return CLUSTER if kind is ResourceKind.CLUSTER else Resource(kind, target.topic)


def _request_numbers() -> Iterator[str]:
    """Numbers that no other request has, as ``request_context.new_request_id`` makes them, many at a time."""

    def block() -> list[str]:
        numbers = os.urandom(8 * 256).hex()
        return [numbers[start : start + 16] for start in range(0, len(numbers), 16)]

    # There is no end of blocks: none equals None. The next number so runs no code of ours.
    return chain.from_iterable(iter(block, None))


__all__ = ["FastPath", "Route"]
