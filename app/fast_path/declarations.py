"""Handlers of plain requests. They are declared beside the route, which alone declares path, parameters and rights.

    @router.post(RECORDS, ...)
    @answered_on_connection(produce_batches, content_types=["..."], parameters=["acks"], body_bytes_max=...)
    @needs(Operation.WRITE, ResourceKind.TOPIC)
    async def produce_records(request, ..., parameters) -> Response:
        cache_query(request, parameters)

The handler gets requests that are plain: whose head is (``request_heads_c.pyx``), whose media types are exactly those
named, and whose query has only the parameters named and was validated by the route before. The handler must also take
an Idempotency-Key, or a producer, if they have one. Default deny: a parameter or
header that is declared somewhere else tomorrow makes a request the route's. It answers, or returns ``None`` to leave
the request to the route.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request

from app.fast_path.request import PlainRequest
from app.http.connection.fast_path_interface import Late, Outcome
from app.quotas.limits import QuotaKind

if TYPE_CHECKING:
    from app.fast_path.local_parts import LocalParts

Handler = Callable[["LocalParts", PlainRequest], Outcome | None]
AnswersLate = Callable[[Any, Any, Any, Any, Any, Any], Late]
"""``app.routes.records.partition_fetch.answer_of``."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
FAST_PATH = "fast_path"
"""The attribute of the application's state that holds the fast path."""


@dataclass(frozen=True, slots=True)
class HandlerDeclaration:
    """One handler of a route.

    ``content_types`` and ``accepts`` are the exact values of the headers that it takes, empty for an absent one.
    ``accepts`` says of each which media type it is answered with.
    Bodies above ``body_bytes_max``, and up to ``large_bytes_max``, come as views of a buffer that is used again.
    ``parameters`` are those of the query that the handler knows: a request with any other one is the route's.
    ``varies`` says that the number of ``offset`` may differ between requests that are alike otherwise.
    ``takes_key`` and ``takes_producer`` say that requests may have an Idempotency-Key, or the headers of a producer.
    ``quota`` is the one that the route charges: clients that have it are left to the route. If the handler charges it
    too (``charges_quota``), only those that have to wait are left.
    ``needs_logs`` is false for handlers that answer while the logs are not open; they are given no parts.
    ``sends_files`` is true for handlers whose answers may be stretches of files, where their target allows that.
    ``answers_late`` is the route's part behind a wait, for handlers that let requests wait and leave the answer to it.
    """

    handler: Handler
    content_types: frozenset[bytes]
    accepts: Mapping[bytes, str] | None
    body_bytes_max: int
    large_bytes_max: int
    parameters: frozenset[str]
    varies: bool
    takes_key: bool
    takes_producer: bool
    quota: QuotaKind | None
    charges_quota: bool
    needs_logs: bool
    sends_files: bool
    answers_late: AnswersLate | None


_DECLARED: dict[Callable[..., Any], list[HandlerDeclaration]] = {}


def answered_on_connection(
    handler: Any,
    *,
    content_types: Iterable[str] = ("",),
    accepts: Mapping[str, str] | None = None,
    body_bytes_max: int = 0,
    large_bytes_max: int = 0,
    parameters: Iterable[str] = (),
    varies: bool = False,
    takes_key: bool = False,
    takes_producer: bool = False,
    quota: QuotaKind | None = None,
    charges_quota: bool = False,
    needs_logs: bool = True,
    sends_files: bool = False,
    answers_late: AnswersLate | None = None,
) -> Callable[[Endpoint], Endpoint]:
    """Let ``handler`` answer plain requests of the route. With ``accepts`` absent any Accept will do."""
    declaration = HandlerDeclaration(
        handler,
        frozenset(name.encode() for name in content_types),
        None if accepts is None else {wanted.encode(): answered for wanted, answered in accepts.items()},
        body_bytes_max,
        large_bytes_max,
        frozenset(parameters),
        varies,
        takes_key,
        takes_producer,
        quota,
        charges_quota,
        needs_logs,
        sends_files,
        answers_late,
    )

    def declare(endpoint: Endpoint) -> Endpoint:
        _DECLARED.setdefault(endpoint, []).append(declaration)
        return endpoint

    return declare


def declarations_of(endpoint: Callable[..., Any]) -> list[HandlerDeclaration]:
    """Return the handlers of a route; most have none."""
    return _DECLARED.get(endpoint, [])


def cache_query(request: Request, parameters: Any) -> None:
    """Let plain requests with this query be answered by the route's handlers; the route has validated it.

    Call it in the route, so that its dependencies have agreed.
    """
    fast_path = getattr(request.app.state, FAST_PATH, None)
    if fast_path is not None:
        scope = request.scope
        fast_path.cache_query(scope["route"].endpoint, scope["query_string"], scope["headers"], parameters)
