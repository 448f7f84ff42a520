"""What the connections and the hot tier say to each other: plain heads, calls, answers.

A *plain* request for a hot route is answered on the connection itself, without scope, cycle, task and routing. All
others, and every request that the hot tier has the least doubt about, go to the application, the *twin*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from app.http.byte_budget import Hold
from app.http.zero_copy import Part

Headers = list[tuple[bytes, bytes]]


class HotRoute(Protocol):
    """A route of the application that is also answered here."""

    body_bytes_max: int

    def number_in(self, url: bytes) -> tuple[bytes, int, bytes] | None:
        """What of ``url`` stands before the number that may vary, the number, and what stands behind it."""
        ...


Quick = Callable[[int | None, bytes | memoryview], "HotAnswer | None"]
"""What answers requests of one head, given their numbers and bodies: as ``HotTier.serve`` would, at once and with
nothing to say about quotas. ``None`` leaves a request to ``serve``, as if nobody had seen it. It may raise what the
twin's route may raise."""


class PlainHead:
    """What the request line and headers of a plain request say: found once, shared by equal requests. Immutable.

    ``parameters`` is the model that the twin has validated; the number of ``offset=`` in it does not count, as
    requests that differ in that alone share it: see ``HotCall.number``. ``memo`` is the handler's, for what follows
    from the head alone; ``client`` is the tier's, who asks while nobody has to say so; ``count`` counts an answer, with
    its status and how many seconds it took. ``quick``, once there is one, answers most requests of this head; ``join``
    does, too, or gives a ticket of ``_known_requests.pyx``, whose answer comes at the end of the turn of the loop.
    """

    __slots__ = (
        "accept",
        "accept_encoding",
        "authorization",
        "client",
        "client_id",
        "content_type",
        "count",
        "given_id",
        "headers",
        "join",
        "memo",
        "method",
        "parameters",
        "partition",
        "path",
        "quick",
        "route",
        "topic",
        "url",
    )

    def __init__(self, method: str, url: bytes, headers: Headers, route: HotRoute) -> None:
        self.method = method
        self.url = url
        self.path = url.partition(b"?")[0]
        self.headers = headers
        self.route = route
        self.topic = ""
        self.partition = -1
        self.parameters: Any = None
        self.memo: Any = None
        self.content_type = b""
        self.accept = b""
        self.accept_encoding = b""
        self.authorization: bytes | None = None
        self.client_id = ""
        self.client: Any = None
        self.count: Callable[[int, float], None] = _count_nothing
        self.given_id: str | None = None
        self.quick: Quick | None = None
        self.join: Callable[[int | None, bytes | memoryview], Any] | None = None


def _count_nothing(_: int, __: float) -> None:
    """Before the tier has said what counts."""


class HotCall:
    """One plain request. ``body`` is all of it; ``number`` is that of ``offset=`` in its query, if there is one.

    ``began`` is when its head was there, by ``time.perf_counter``; ``throttle_ms`` how long a quota that it broke asks
    its client to be silent.
    """

    __slots__ = ("began", "body", "head", "number", "request_id", "throttle_ms")

    def __init__(
        self, head: PlainHead, number: int | None, body: bytes | memoryview, request_id: str, began: float
    ) -> None:
        self.head = head
        self.number = number
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

    def recognise(self, method: str, url: bytes, headers: Headers) -> PlainHead | None:
        """What a request asks, if it is plain; header names are lower case. Its framing is checked already."""
        ...

    def serve(
        self, head: PlainHead, number: int | None, body: bytes | memoryview, began: float, peer: Peer
    ) -> tuple[HotCall, Outcome] | None:
        """Answer; ``None`` leaves the request to the twin, as if nobody had seen it."""
        ...

    def call_of(
        self, head: PlainHead, number: int | None, body: bytes | memoryview, request_id: str, began: float
    ) -> HotCall:
        """What stands for a request that its head's ``quick`` has answered."""
        ...

    def hold_body(self, length: int) -> Hold | None:
        """Room for a body that is collected; ``None`` when bodies hold all the memory that they may have."""
        ...

    def hold_large(self, head: PlainHead, length: int) -> Hold | None:
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


# Heads of which only a number is new

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
NUMBER_DIGITS_MAX = 18
KNOWN_HEAD_BYTES_MAX = 4096


class KnownHead:
    """The bytes of a head that the parser took and the tier recognised, but for one number in them.

    Equal bytes mean the same again, so the parser needs not see them: what follows ``before``, a number and
    ``behind`` is the body. ``last`` is a head as it came, ``last_bytes`` long, that has the number ``last_number``: a
    client most often sends it again, which one comparison tells. The number is None in a head without one.
    """

    __slots__ = ("before", "behind", "body_bytes_max", "head", "is_length", "last", "last_bytes", "last_number")

    def __init__(
        self, head: PlainHead, before: bytes, behind: bytes, number: int | None, last: bytes, *, is_length: bool
    ) -> None:
        self.head = head
        self.before = before
        self.behind = behind
        self.is_length = is_length
        self.body_bytes_max = head.route.body_bytes_max
        self.last = last
        self.last_bytes = len(last)
        self.last_number = number

    def match(self, data: bytes, start: int = 0) -> tuple[int | None, int] | None:
        """The number in the head at ``start``, and where the head ends; ``None`` if another head, or not all of it."""
        before, behind = self.before, self.behind
        if not behind or not data.startswith(before, start):
            return (None, start + self.last_bytes) if data.startswith(self.last, start) else None
        number_at = start + len(before)
        end = data.find(behind, number_at, number_at + NUMBER_DIGITS_MAX + len(behind))
        if end < 0:
            return None
        digits = data[number_at:end]
        if not digits.isdigit() or (digits[0] == 48 and end - number_at > 1):
            return None
        number, end = int(digits), end + len(behind)
        if self.is_length:
            # Bodies of one length come in rows; what else is counted goes on.
            self.last, self.last_bytes, self.last_number = data[start:end], end - start, number
        return number, end


def known_head(raw: bytes, head: PlainHead) -> KnownHead | None:
    """How to know the head ``raw`` again; a number in it may vary: that of the query, or else the body's length."""
    number = head.route.number_in(head.url)
    lengths = _LENGTH.findall(raw)
    line = b"%b %b HTTP/1.1\r\n" % (head.method.encode(), head.url)
    if len(raw) > KNOWN_HEAD_BYTES_MAX or len(lengths) > 1 or not raw.startswith(line):
        return None
    if number is not None:
        if lengths and lengths[0] != b"0":
            return None
        before = b"%b %b" % (head.method.encode(), number[0])
        behind = raw[len(before) + len(b"%d" % number[1]) :]
        return KnownHead(head, before, behind, number[1], raw, is_length=False)
    found = _LENGTH.search(raw)
    if found is None or found[1] == b"0":
        return KnownHead(head, raw, b"", None, raw, is_length=False)
    return KnownHead(head, raw[: found.start(1)], raw[found.end(1) :], int(found[1]), raw, is_length=True)
