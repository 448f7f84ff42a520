"""What the connections and the hot tier say to each other: plain heads, what they ask for, calls, answers.

A *plain* request for a hot route is answered on the connection itself, without scope, cycle, task and routing. Plain
heads are read by the strict parser of ``request_heads_c.pyx``, which keeps nothing of them. All other requests, and
every request that the hot tier has the least doubt about, go through httptools to the application, the *twin*.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.http.bodies.byte_budget import Hold
from app.http.transfer.zero_copy import Part
from rollway.records.compiled import load

Headers = list[tuple[bytes, bytes]]

plain_heads = load("app.http.connection.request_heads_c")
"""The parser of plain heads, or ``None``; without it every request goes through httptools."""


class RequestHead(Protocol):
    """The head of one plain request, as ``request_heads_c.pyx`` reads it. Immutable.

    ``raw`` is all of it, ``size`` bytes. ``key`` is what it has in common with equal requests: method, target with 0 in
    place of ``number``, Content-Type, Accept and Accept-Encoding. ``number`` is that of ``offset=`` in the query.
    Fields that are absent are empty, but for ``authorization``.
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


def headers_of(raw: bytes) -> Headers:
    """The headers of a plain head, as httptools gives them: names in lower case, values without the spaces around."""
    fields = (line.partition(b":") for line in raw[:-4].split(b"\r\n")[1:])
    return [(name.lower(), value.strip(b" ")) for name, _, value in fields]


class HotRoute(Protocol):
    """A route of the application that is also answered here."""

    body_bytes_max: int


Quick = Callable[[int | None, bytes | memoryview], "HotAnswer | None"]
"""What answers requests for one target, given their numbers and bodies: as ``HotTier.serve`` would, at once and with
nothing to say about quotas. ``None`` leaves a request to ``serve``, as if nobody had seen it. It may raise what the
twin's route may raise."""


class ResolvedTarget:
    """What all requests with one ``RequestHead.key`` ask for: shared by them, on whichever connection they come.

    ``parameters`` is the model that the twin has validated; ``offset`` in it does not count for a request that has a
    number. ``media_type`` is that of the answer, where Accept decides it. ``memo`` is the handler's, for what follows
    from the target alone; ``count`` counts an answer, with its status and how many seconds it took. ``is_guarded``
    says that who asks must be looked at. ``quick``, once there is one, answers most of the requests; ``join`` does,
    too, or gives a ticket of ``connection_c.pyx``, whose answer comes at the end of the turn of the loop.
    """

    __slots__ = (
        "accept",
        "accept_encoding",
        "body_bytes_max",
        "content_type",
        "count",
        "is_guarded",
        "join",
        "media_type",
        "memo",
        "parameters",
        "partition",
        "quick",
        "route",
        "topic",
    )

    def __init__(self, head: RequestHead, route: HotRoute) -> None:
        self.content_type = head.content_type
        self.accept = head.accept
        self.accept_encoding = head.accept_encoding
        self.route = route
        self.body_bytes_max = route.body_bytes_max
        self.is_guarded = True
        self.media_type = ""
        self.topic = ""
        self.partition = -1
        self.parameters: Any = None
        self.memo: Any = None
        self.count: Callable[[int, float], None] = _count_nothing
        self.quick: Quick | None = None
        self.join: Callable[[int | None, bytes | memoryview], Any] | None = None


def _count_nothing(_: int, __: float) -> None:
    """Before the tier has said what counts."""


class HotCall:
    """One plain request. ``body`` is all of it.

    ``began`` is when its head was there, by ``time.perf_counter``; ``throttle_ms`` how long a quota that it broke asks
    its client to be silent.
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


class HotAnswer(NamedTuple):
    """An answer: ``head`` (see ``make_head``), then ``body`` or ``parts``, as long as the head says."""

    head: bytes
    body: bytes | bytearray | memoryview = b""
    parts: Sequence[Part] = ()
    status: int = 200


class HotWait(NamedTuple):
    """An answer that waits, and needs no task: ``subscribe`` is given what to call once ``answer`` can make it.

    After ``timeout_ms`` without that ``expired`` is called instead, which most often raises. Both may raise what the
    twin's route may raise. When the client goes away, neither is called.
    """

    subscribe: Callable[[Callable[[Any], None]], None]
    answer: Callable[[], HotAnswer | Coroutine[Any, Any, HotAnswer]]
    timeout_ms: int
    expired: Callable[[], HotAnswer]


Outcome = HotAnswer | HotWait | Coroutine[Any, Any, HotAnswer] | Exception


class Peer(Protocol):
    """What the tier may know of a connection."""

    @property
    def client(self) -> tuple[str, int] | None:
        """Its address."""
        ...

    @property
    def scheme(self) -> Any:
        """http or https."""
        ...


class HotTier(Protocol):
    """Knows the hot routes. Thread: the event loop."""

    numbers: Iterator[str]
    """Numbers of requests: the next one is nobody else's."""
    answered_count: int
    """Requests that were answered here."""
    is_bare: bool
    """Whether connections are bare TCP. If not, no answer has parts, and no body comes in through a sink."""
    targets: dict[bytes, ResolvedTarget]
    """What was resolved already, by ``RequestHead.key``."""
    checks_access: bool
    """Whether a request for a guarded target is answered only if its caller has the rights."""

    def resolve(self, head: RequestHead) -> ResolvedTarget | None:
        """What a head asks for, which is kept in ``targets``; ``None`` if the twin must answer it."""
        ...

    def admits(self, target: ResolvedTarget, authorization: bytes | None, peer: Peer) -> bool:
        """Whether a request for a guarded target may be answered here, by its credential."""
        ...

    def serve(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, began: float, peer: Peer
    ) -> tuple[HotCall, Outcome] | None:
        """Answer; ``None`` leaves the request to the twin, as if nobody had seen it."""
        ...

    def call_of(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, request_id: str, began: float
    ) -> HotCall:
        """What stands for a request that its target's ``quick`` has answered."""
        ...

    def hold_body(self, length: int) -> Hold | None:
        """Room for a body that is collected; ``None`` when bodies hold all the memory that they may have."""
        ...

    def hold_large(self, target: ResolvedTarget, length: int) -> Hold | None:
        """Room for a body that comes in through a sink, counted whole; ``None`` when this one must not, or not now."""
        ...

    def resume(self, scope: dict[str, Any], call: HotCall, error: Exception) -> None:
        """Let the application answer ``error`` for a call that was begun here, in the context of now."""
        ...

    def enter(self, call: HotCall) -> None:
        """Let log lines of the context of now name the call."""
        ...


def make_head(status: int, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Status line and headers of an answer. The connection adds Date, X-Request-Id and the end."""
    fields = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers)
    return STATUS_LINE[status] + fields.encode("latin-1")
