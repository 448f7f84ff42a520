"""The same bytes to the connections of the service and to httptools alone: who reads them otherwise?

``Stand`` feeds a stream, cut into pieces, to connections of several classes over one application that echoes what it
was asked, and says what each of them answered.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, cast

import uvicorn
from uvicorn.server import ServerState

from app.http.connection.fast_path_interface import (
    AnswerWait,
    PlainAnswer,
    PlainCall,
    RequestHead,
    ResolvedTarget,
    headers_of,
    make_head,
)
from app.server import connections
from app.settings import Settings
from tests.differential.streams import COMPILED, ENQUEUED, FAIL, LEAVE, SERVE, WAIT

HEADER_BYTES_MAX = 4096
HEADER_COUNT_MAX = 20
BODY_BYTES_MAX = 400
THROUGH_TRANSPORT = "compiled, through the transport"
_VARYING = re.compile(rb"(?<![^&])offset=(0|[1-9][0-9]{0,17})(?![^&])")


class Answered(NamedTuple):
    """What came back: each answer's status, headers and body, and whether the connection was closed."""

    answers: list[tuple[int, dict[bytes, bytes], bytes]]
    rest: bytes
    is_closed: bool


# What is answered


def _echo(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """All that a request says, or all of it that a compiled handler is given."""
    path, _, query = target.partition(b"?")
    if path.startswith((COMPILED, ENQUEUED)) and method in (b"GET", b"POST"):
        kept = [[value for name, value in headers if name == wanted] for wanted in _KEYED]
        return repr((method, path, query, kept, body)).encode()
    # An error is answered late, when the body is gone.
    return repr((method, target, sorted(headers), b"" if path.startswith(FAIL) else body)).encode()


_KEYED = (b"content-type", b"accept", b"accept-encoding", b"idempotency-key")


async def _application(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    echo = _echo(scope["method"].encode(), target, scope["headers"], body)
    headers = [(b"content-length", b"%d" % len(echo)), (b"content-type", b"text/plain")]
    if scope["method"] == "HEAD":
        headers.append((b"is-head", b"yes"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": echo})


def _answer(echo: bytes) -> PlainAnswer:
    return PlainAnswer(make_head(200, [("content-length", str(len(echo))), ("content-type", "text/plain")]), echo)


class _Route:
    body_bytes_max = BODY_BYTES_MAX


class EchoFastPath:
    """Answers plain requests with an echo, as the application does. Nothing of it is the service's but the seam."""

    is_bare = True
    checks_access = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.numbers = iter(lambda: "0" * 16, "")
        self.answered_count = 0
        self.targets: dict[bytes, ResolvedTarget] = {}
        self._loop = loop
        self._queue: list[tuple[Any, bytes]] = []

    def resolve(self, head: RequestHead) -> ResolvedTarget | None:
        path, mark, query = head.target.partition(b"?")
        if mark and not query:
            return None
        if head.producer is not None and path.startswith((COMPILED, ENQUEUED)):
            # A compiled handler is not given it.
            return None
        if head.idempotency_key and head.number is not None:
            # No route takes both.
            return None
        if head.method not in (b"GET", b"POST") or not path.startswith((COMPILED, ENQUEUED, SERVE, LEAVE, WAIT, FAIL)):
            return None
        target = ResolvedTarget(head, _Route())
        if path.startswith((COMPILED, ENQUEUED)):
            template = head.key.partition(b"\n")[0].partition(b" ")[2]
            kept = [[value] if value else [] for value in (head.content_type, head.accept, head.accept_encoding)]

            def echo(varying: int | bytes | None, body: bytes | memoryview) -> bytes:
                start, _, query = template.partition(b"?")
                if isinstance(varying, int):
                    query = _VARYING.sub(b"offset=%d" % varying, query, count=1)
                keys = [varying] if isinstance(varying, bytes) else []
                return repr((head.method, start, query, [*kept, keys], bytes(body))).encode()

            target.compiled_handler = lambda varying, body: _answer(echo(varying, body))
            if path.startswith(ENQUEUED) and connections.compiled is not None:
                target.enqueue = lambda varying, body: self._enqueue(echo(varying, body), body)
        if len(self.targets) > 100:
            self.targets.clear()
        self.targets[head.key] = target
        return target

    def _enqueue(self, echo: bytes, body: bytes | memoryview) -> Any:
        queued = connections.compiled.QueuedAppend(self, body, None, None)  # type: ignore[union-attr]
        if not self._queue:
            self._loop.call_soon(self.end)
        self._queue.append((queued, echo))
        return queued

    def end(self) -> None:
        """The end of a turn."""
        queue, self._queue = self._queue, []
        for queued, echo in queue:
            if queued.connection is not None:
                queued.answer = _answer(echo)
                queued.connection.settle(queued)

    def admits(self, *_: object) -> bool:
        return True

    def serve(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, began: float, peer: object
    ) -> tuple[PlainCall, Any] | None:
        self.answered_count += 1
        call = self.call_of(target, head, body, "0" * 16, began)
        path = head.target
        if path.startswith(LEAVE):
            return None
        if target.compiled_handler is not None:
            return call, target.compiled_handler(head.idempotency_key or head.number, body)
        if path.startswith(FAIL):
            return call, RuntimeError("the handler has failed")
        answer = _answer(_echo(head.method, head.target, headers_of(head.raw), bytes(body)))
        if path.startswith(WAIT):
            subscribe: Callable[..., object] = lambda done: self._loop.call_soon(done, None)  # noqa: E731
            return call, AnswerWait(cast("Any", subscribe), lambda: answer, 10_000, lambda: answer)
        return call, answer

    def call_of(
        self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, request_id: str, began: float
    ) -> PlainCall:
        return PlainCall(target, head, body, request_id, began)

    def hold_body(self, length: int) -> None:
        return None

    def hold_large(self, target: ResolvedTarget, length: int) -> None:
        return None

    def resume(self, scope: dict[str, Any], call: PlainCall, error: Exception) -> None:
        """The application answers, of the same request: its scope is made of the head."""

    def enter(self, call: PlainCall) -> None:
        """Nothing is logged."""


# Connections


class _Transport(asyncio.Transport):
    """The near end of a pair of sockets: what is written is sent at once, and nothing is read."""

    def __init__(self, near: socket.socket) -> None:
        super().__init__()
        self._socket = near
        self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        addresses = {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80), "socket": self._socket}
        return addresses.get(name, default)

    def write(self, data: Any) -> None:
        if not self._closing:
            self._socket.sendall(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever held."""

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self._closing = True

    abort = close

    def pause_reading(self) -> None:
        """Pieces come one by one in any case."""

    def resume_reading(self) -> None:
        """Pieces come one by one in any case."""


class Stand:
    """Ways to take a stream: httptools alone, the parser of plain heads in Python's connection, and in C's, which sends
    to the socket itself or, as under TLS, through the transport.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        settings = Settings(
            allowed_hosts=["*"],
            request_header_bytes_max=HEADER_BYTES_MAX,
            request_header_count_max=HEADER_COUNT_MAX,
        )
        self._config = uvicorn.Config(
            cast("Any", _application), log_config=None, access_log=False, ws="none", lifespan="off", server_header=False
        )
        self._config.load()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._state = ServerState()
        self._state.default_headers = [(b"date", b"now")]
        self.fast_path = EchoFastPath(loop)
        bound = connections.protocol_class(settings, cast("Any", self.fast_path))
        self.ways: dict[str, type[Any]] = {"httptools": connections.protocol_class(settings)}
        if connections.compiled is not None:
            self.ways["compiled"] = bound
            through_transport = EchoFastPath(loop)
            through_transport.is_bare = False
            self.ways[THROUGH_TRANSPORT] = connections.protocol_class(settings, cast("Any", through_transport))
            members = {name: getattr(bound, name) for name in _BOUND}
            self.ways["Python"] = type("BoundPlainRequests", (connections.PlainRequests,), members)
        # One pair of sockets for all: what a connection leaves in it is read before the next one begins.
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._near.close()
        self._far.close()

    async def run(self, way: str, pieces: Sequence[bytes], *, ends: bool) -> Answered:
        """Feed ``pieces``, let the loop come to rest after each, and then end the client's side if it ``ends``."""
        transport = _Transport(self._near)
        connection = self.ways[way](self._config, self._state, {}, _loop=self._loop)
        connection.connection_made(transport)
        received = bytearray()
        try:
            for piece in pieces:
                if transport.is_closing():
                    break
                connection.data_received(piece)
                await self._rest()
            is_closed = transport.is_closing()
            if ends and not is_closed:
                keeps_open = connection.eof_received()
                await self._rest()
                is_closed = not keeps_open or transport.is_closing()
            _drain(self._far, received)
            return Answered(*_parse(bytes(received)), is_closed or connection._deaf)
        finally:
            connection.connection_lost(None)
            await self._rest()
            _drain(self._far, bytearray())

    async def _rest(self) -> None:
        """Return once nothing is left to do but what a timer does."""
        ready = self._loop._ready  # type: ignore[attr-defined]
        while ready:  # noqa: ASYNC110 - what is awaited is that nothing is left to do
            await asyncio.sleep(0)


_BOUND = ("limits", "peers", "late_clients", "starts", "bodies", "transfers", "fast_path")


def _drain(far: socket.socket, received: bytearray) -> None:
    try:
        while piece := far.recv(262144):
            received += piece
    except BlockingIOError:
        return


def _parse(received: bytes) -> tuple[list[tuple[int, dict[bytes, bytes], bytes]], bytes]:
    """Answers by their Content-Length, without what only one way adds or what says when."""
    answers = []
    while b"\r\n\r\n" in received:
        head, _, rest = received.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        headers = dict(cast("tuple[bytes, bytes]", field.split(b": ", 1)) for field in fields)
        length = 0 if b"is-head" in headers else int(headers.get(b"content-length", b"0"))
        kept = {name: value for name, value in headers.items() if name not in (b"date", b"x-request-id")}
        answers.append((int(line.split()[1]), kept, rest[:length]))
        received = rest[length:] if len(rest) >= length else b""
    return answers, received
