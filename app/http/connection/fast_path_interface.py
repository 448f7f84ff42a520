"""The interface between connections and the fast path: plain heads, their targets, calls, answers.

If a route has a handler for a *plain* request, the connection answers it without scope, cycle, task and routing. The
strict parser of ``request_heads_c.pyx`` reads plain heads and keeps no state. All other requests, and every request
that the fast path leaves alone, go through httptools to the application. ``app.fast_path`` has a glossary.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.http.bodies.byte_budget import Hold
from app.http.transfer.zero_copy import Part
from rollway.records.compiled import load

Headers = list[tuple[bytes, bytes]]

plain_heads = load("app.http.connection.request_heads_c")
"""The parser of plain heads, or ``None``. Without it every request goes through httptools."""


class RequestHead(Protocol):
    """The head of one plain request, as ``request_heads_c.pyx`` reads it. Immutable.

    ``raw`` is the whole head, ``size`` bytes. Equal requests have the same ``key``: method, target with 0 in place of
    ``number``, Content-Type, Accept, Accept-Encoding, and whether there is an Idempotency-Key or a producer. ``number``
    is that of ``offset=`` in the query. ``producer`` has Producer-Id, Producer-Epoch and Base-Sequence. Absent fields
    are empty, except ``authorization`` and ``producer``, which are ``None``.
    """

    raw: bytes
    size: int
    key: bytes
    method: bytes
    target: bytes
    number: int | None
    content_length: int
    host: bytes
    content_type: bytes
    accept: bytes
    accept_encoding: bytes
    authorization: bytes | None
    client_id: bytes
    request_id: bytes
    idempotency_key: bytes
    producer: tuple[bytes, bytes, bytes] | None


def headers_of(raw: bytes) -> Headers:
    """Return the headers of a plain head as httptools does: names in lower case, values without outer spaces."""
    fields = (line.partition(b":") for line in raw[:-4].split(b"\r\n")[1:])
    return [(name.lower(), value.strip(b" ")) for name, _, value in fields]


class PlainRoute(Protocol):
    """A route of the application that connections also answer."""

    body_bytes_max: int


CompiledHandler = Callable[[int | bytes | None, bytes | memoryview], "PlainAnswer | None"]
"""A function that answers requests for one target at once, given what varies among them, and their bodies.

What varies is ``number`` or the ``idempotency_key``: no target has both.
It answers as ``PlainDispatcher.serve`` does, without quotas. ``None`` leaves a request to ``serve``, and has no effect.
It may raise the errors of the application.
"""


class ResolvedTarget:
    """The target of all requests with one ``RequestHead.key``, shared by all connections.

    - ``parameters`` is the model that a route has validated. Its ``offset`` is ignored for a request with a number.
    - ``media_type`` is that of the answer, where Accept decides it.
    - ``append_options`` are those that a produce makes of ``parameters``, once for all requests.
    - ``compiled_topic_id`` and ``compiled_config`` are those for which the compiled handler was made.
    - ``count`` counts an answer, with its status and its seconds.
    - ``is_guarded`` says that the credential of each request must be checked.
    - ``sends_files`` says that answers may have parts of files: only connections of bare TCP can send them.
    - ``compiled_handler``, if it is set, answers most requests.
    - ``enqueue`` also does, or returns a ``QueuedAppend`` of ``connection_c.pyx``, whose answer comes at the end of the
      iteration of the loop.
    """

    __slots__ = (
        "accept",
        "accept_encoding",
        "append_options",
        "body_bytes_max",
        "compiled_config",
        "compiled_handler",
        "compiled_topic_id",
        "content_type",
        "count",
        "enqueue",
        "is_guarded",
        "media_type",
        "parameters",
        "partition",
        "route",
        "sends_files",
        "topic",
    )

    def __init__(self, head: RequestHead, route: PlainRoute) -> None:
        self.content_type = head.content_type
        self.accept = head.accept
        self.accept_encoding = head.accept_encoding
        self.route = route
        self.body_bytes_max = route.body_bytes_max
        self.is_guarded = True
        self.sends_files = False
        self.media_type = ""
        self.topic = ""
        self.partition = -1
        self.parameters: Any = None
        self.append_options: Any = None
        self.compiled_topic_id = ""
        self.compiled_config: Any = None
        self.count: Callable[[int, float], None] = _count_nothing
        self.compiled_handler: CompiledHandler | None = None
        self.enqueue: Callable[[int | bytes | None, bytes | memoryview], Any] | None = None


def _count_nothing(_: int, __: float) -> None:
    """Count nothing, until the fast path sets another function."""


class PlainCall:
    """One plain request with its whole ``body``.

    ``began`` is the time at which its head was complete, by ``time.perf_counter``. If the request broke a quota, its
    client is asked to send nothing for ``throttle_ms``.
    """

    __slots__ = ("began", "body", "head", "request_id", "target", "throttle_ms")

    def __init__(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, request_id: str, began: float
    ) -> None:
        self.target = target
        self.head = head
        self.body = body
        self.request_id = request_id
        self.began = began
        self.throttle_ms = 0


class PlainAnswer(NamedTuple):
    """An answer: ``head`` (see ``make_head``), then ``body`` or ``parts`` with the length that the head announces."""

    head: bytes
    body: bytes | bytearray | memoryview = b""
    parts: Sequence[Part] = ()
    status: int = 200


class AnswerWait(NamedTuple):
    """An answer that waits without a task. ``subscribe`` receives a callback for when ``answer`` can be called.

    If the callback is not called within ``timeout_ms``, ``expired`` is called instead, which usually raises. Both may
    raise the errors of the application. When the client goes away, neither is called.
    """

    subscribe: Callable[[Callable[[Any], None]], None]
    answer: Callable[[], PlainAnswer | Coroutine[Any, Any, PlainAnswer]]
    timeout_ms: int
    expired: Callable[[], PlainAnswer]


class CrowdWait(abc.ABC):
    """An answer that a call waits for together with others. Each gets a ``CrowdMember``, which is answered once."""

    __slots__ = ()

    @abc.abstractmethod
    def join(self, member: Any) -> None:
        """Let ``member`` wait. It may raise the errors of the application."""

    @abc.abstractmethod
    def leave(self, member: Any) -> bool:
        """End the wait of ``member`` without an answer. Return whether it waited."""

    @abc.abstractmethod
    def expire(self, member: Any) -> None:
        """Have ``member`` answered soon with what there is, if it waits."""


Late = Callable[[Any], Awaitable[Any]]
"""A function that answers a request in the application, given its ``Request``, when its wait is over."""

Outcome = PlainAnswer | AnswerWait | CrowdWait | Coroutine[Any, Any, PlainAnswer] | Exception


class Peer(Protocol):
    """The connection as the fast path sees it."""

    @property
    def client(self) -> tuple[str, int] | None:
        """The address of the client."""

    @property
    def scheme(self) -> Any:
        """The scheme of the connection: http or https."""


class PlainDispatcher(Protocol):
    """The handlers of all routes that have one for plain requests.

    Thread: the event loop's.
    """

    numbers: Iterator[str]
    """The request IDs that the service assigns; each is unique."""
    answered_count: int
    """The number of requests that the fast path has answered."""
    is_bare: bool
    """Whether connections are bare TCP. If not, no answer has parts, and no body comes in through a sink."""
    targets: dict[bytes, ResolvedTarget]
    """The targets that are resolved, by ``RequestHead.key``."""
    checks_access: bool
    """Whether a request for a guarded target is answered only if its caller has the rights."""

    def resolve(self, head: RequestHead) -> ResolvedTarget | None:
        """Return the target of a head and keep it in ``targets``; ``None`` if the application must answer it."""

    def admits(self, target: ResolvedTarget, authorization: bytes | None, peer: Peer) -> bool:
        """Return whether the credential of a request for a guarded target allows the fast path to answer it."""

    def serve(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, began: float, peer: Peer
    ) -> tuple[PlainCall, Outcome] | None:
        """Answer a request; ``None`` leaves it to the application, and has no effect."""

    def call_of(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, request_id: str, began: float
    ) -> PlainCall:
        """Return the call of a request that ``compiled_handler`` of its target has answered."""

    def hold_body(self, length: int) -> Hold | None:
        """Hold memory for a body that is collected; ``None`` if bodies hold all the memory that they may have."""

    def hold_large(self, target: ResolvedTarget, length: int) -> Hold | None:
        """Hold memory for the whole of a body that comes in through a sink; ``None`` if it must not, or not now."""

    def resume(self, scope: dict[str, Any], call: PlainCall, late: Exception | Late) -> None:
        """Let the application answer with ``late`` a call that the fast path has begun, in the current context."""

    def enter(self, call: PlainCall) -> None:
        """Let log lines of the current context name the call."""


def make_head(status: int, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the status line and headers of an answer. The connection adds Date, X-Request-Id and the end."""
    fields = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers)
    return STATUS_LINE[status] + fields.encode("latin-1")
