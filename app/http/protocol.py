"""The HTTP connection: uvicorn's httptools protocol with limits on everything a client may send or withhold.

Requests that are refused here never reach the application and are answered with a problem as all others. What the
parser itself is strict about (Content-Length beside Transfer-Encoding, two lengths, bare line feeds, folded headers)
stays there. Answers may be stretches of files, see ``file_transfer``.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from app.http.parking import EXTENSION as PARKING
from app.http.problems import Problem
from app.http.response_cycle import EdgeCycle
from app.http.tls import subject_of
from app.http.zero_copy import EXTENSION as ZERO_COPY
from app.settings import Settings

logger = logging.getLogger(__name__)

PIPELINED_REQUESTS_MAX = 1_000
# A body of which no more than this is missing when the answer begins is read to its end, and the connection kept.
UNREAD_BODY_BYTES_MAX = 64 * 1024
# How long a client that still sends is listened to after its answer, so that it can read that.
LINGER_SECONDS = 2.0
# Framing of chunks and trailers beside the bytes of a body: chunks of one byte take 5.
_FRAMING_BYTES_PER_BODY_BYTE = 16

# One for all requests: nobody changes it.
_EXTENSIONS: dict[str, dict[object, object]] = {ZERO_COPY: {}, PARKING: {}}

# What the classes here lean on beyond uvicorn's documented interface.
_USED_METHODS = [
    "_should_upgrade",
    "_start_asgi_task",
    "_unset_keepalive_if_required",
    "handle_websocket_upgrade",
    "on_headers_complete",
    "on_message_begin",
    "on_response_complete",
    "timeout_keep_alive_handler",
]
_USED_ATTRIBUTES = ["cycle", "flow", "headers", "loop", "parser", "pipeline", "scheme", "scope", "server_state"]
_USED_CYCLE_METHODS = ["receive", "run_asgi", "send", "send_500_response"]
_USED_CYCLE_ATTRIBUTES = [
    "body",
    "chunked_encoding",
    "disconnected",
    "expected_content_length",
    "flow",
    "keep_alive",
    "message_event",
    "more_body",
    "response_complete",
    "response_started",
    "transport",
    "waiting_for_100_continue",
]


def protocol_class(settings: Settings) -> type[asyncio.Protocol]:
    """The class of the connections of one server, with its limits and its count of peers.

    If this uvicorn lacks what the class builds on, uvicorn's own protocol is used, with a warning: the service works,
    without these limits and with files copied.
    """
    missing = missing_internals()
    if missing:
        logger.warning(
            "this uvicorn has no %s: connections have no limits, and files are copied through memory",
            ", ".join(missing),
        )
        return HttpToolsProtocol
    limits = ConnectionLimits.of(settings)
    return type("BoundEdgeProtocol", (EdgeProtocol,), {"limits": limits, "peers": Counter()})


def missing_internals(protocol: type[Any] = HttpToolsProtocol, cycle: type[Any] = RequestResponseCycle) -> list[str]:
    """What the classes here use of uvicorn's, documented nowhere, and what of that does not exist."""
    missing = [name for name in _USED_METHODS if not inspect.isfunction(getattr(protocol, name, None))]
    missing += [name for name in _USED_ATTRIBUTES if name not in protocol.__init__.__code__.co_names]
    missing += [name for name in _USED_CYCLE_ATTRIBUTES if name not in cycle.__init__.__code__.co_names]
    missing += [name for name in _USED_CYCLE_METHODS if not inspect.isfunction(getattr(cycle, name, None))]
    return missing


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a connection may cost."""

    header_bytes_max: int
    header_count_max: int
    header_timeout_ms: int
    body_bytes_per_second_min: int
    body_grace_ms: int
    stall_timeout_ms: int
    connections_max: int
    connections_per_address_max: int

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """The limits among the settings."""
        return cls(
            header_bytes_max=settings.request_header_bytes_max,
            header_count_max=settings.request_header_count_max,
            header_timeout_ms=settings.request_header_timeout_ms,
            body_bytes_per_second_min=settings.request_body_bytes_per_second_min,
            body_grace_ms=settings.request_body_grace_ms,
            stall_timeout_ms=settings.send_stall_timeout_ms,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
        )


class _Refusal(Exception):  # noqa: N818 - a way out of the parser, caught beside it
    """Raised in a callback of the parser; it comes out as the context of the parser's own error."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class _Stage(enum.Enum):
    """Where in a request the parser is."""

    IDLE = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


class EdgeProtocol(HttpToolsProtocol):
    """One connection. Use the class that ``protocol_class`` makes.

    Thread: the event loop's.
    """

    limits: ClassVar[ConnectionLimits]
    peers: ClassVar[Counter[str]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stall_timeout_ms = self.limits.stall_timeout_ms
        self._stage = _Stage.IDLE
        self._active: EdgeCycle | None = None
        # No more is read: the connection ends with the answer that is being sent, or with ``_last_words``.
        self._deaf = False
        self._last_words: Problem | None = None
        self._counted_as: str | None = None
        self._tls_extensions: dict[str, dict[object, object]] = {}
        # Of the request that is being parsed.
        self._message_number = 0
        self._header_bytes = 0
        self._header_count = 0
        self._content_length: int | None = None
        self._body_bytes = 0
        self._framing_bytes = 0
        self._body_bytes_at_check = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = get_remote_addr(transport)
        address = peer[0] if peer else ""
        if len(self.connections) >= self.limits.connections_max:
            self._turn_away(transport, "the service has all the connections it takes")
        elif self.peers[address] >= self.limits.connections_per_address_max:
            self._turn_away(transport, "the service has all the connections it takes from this address")
        else:
            self._counted_as = address
            self.peers[address] += 1
            super().connection_made(transport)
            if self.scheme == "https":
                self._tls_extensions = tls_extensions(transport.get_extra_info("peercert"))
            self._head_timer = self.loop.call_later(self.limits.header_timeout_ms / 1000, self._head_is_late)

    def _turn_away(self, transport: asyncio.Transport, detail: str) -> None:
        self.transport = transport
        self.flow = FlowControl(transport)
        self._write_and_close(Problem(503, "overloaded", detail, retryable=True, retry_after_ms=1_000))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted_as is not None:
            self.peers[self._counted_as] -= 1
            if not self.peers[self._counted_as]:
                del self.peers[self._counted_as]
            self._counted_as = None
        for timer in (self._head_timer, self._body_timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._deaf = True
        self.pipeline.clear()
        if self._active is not None and not self._active.response_complete:
            self._active.lose_client()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has said all it will may still read a file that is on its way; any other is gone."""
        if self._active is not None and self._active.transfer is not None:
            self._active.closes = True
            return True
        return None

    def _close(self) -> None:
        """Close once all is written; a client that does not take it is cut off."""
        self._deaf = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._close_timer = self.loop.call_later(self.stall_timeout_ms / 1000, self.transport.abort)
        self.transport.close()

    def cut(self) -> None:
        self._deaf = True
        self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self._close()

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        message_before = self._message_number if self._stage is not _Stage.IDLE else -1
        body_bytes_before = self._body_bytes
        try:
            self.parser.feed_data(data)
            if message_before == self._message_number and self._stage is not _Stage.IDLE:
                self._count_raw(len(data), self._body_bytes - body_bytes_before)
        except httptools.HttpParserUpgrade:
            self._upgrade()
        except (httptools.HttpParserError, _Refusal) as error:
            self._refuse(_problem_of(error))
            return
        self._set_timers()

    def _count_raw(self, raw_bytes: int, body_bytes: int) -> None:
        """Bound what the parser keeps of one header, and chunk framing. All of the data was of this request."""
        if self._stage is _Stage.HEAD:
            # Counts finished headers again: twice the limit is still a limit, and the parser's own memory has one.
            self._framing_bytes += raw_bytes
            if self._framing_bytes > 2 * self.limits.header_bytes_max:
                raise _Refusal(_headers_too_large(f"more than {self.limits.header_bytes_max} bytes"))
            return
        self._framing_bytes += raw_bytes - body_bytes
        allowed_bytes = 2 * self.limits.header_bytes_max + _FRAMING_BYTES_PER_BODY_BYTE * self._body_bytes
        if self._framing_bytes > allowed_bytes:
            raise _Refusal(Problem(400, "malformed_request", "the body is framed in chunks without an end"))

    def _upgrade(self) -> None:
        if self._should_upgrade():
            self.handle_websocket_upgrade()
            return
        # Answered as if it had not asked; what follows belongs to a protocol we do not speak.
        self._deaf = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _set_timers(self) -> None:
        waits_for_head = self._stage is _Stage.HEAD or (
            self._stage is _Stage.IDLE and (self.cycle is None or self.cycle.response_complete)
        )
        if waits_for_head and self._head_timer is None and not self._deaf:
            self._head_timer = self.loop.call_later(self.limits.header_timeout_ms / 1000, self._head_is_late)
        if self._stage is _Stage.BODY and self._body_timer is None and self.limits.body_bytes_per_second_min:
            self._body_bytes_at_check = self._body_bytes
            self._body_timer = self.loop.call_later(self.limits.body_grace_ms / 1000, self._check_body_rate)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._deaf or self.transport.is_closing():
            return
        if self.flow.read_paused:
            # It is us who do not read.
            self._set_timers()
        elif self._stage is _Stage.HEAD:
            self._refuse(
                Problem(
                    408,
                    "request_timeout",
                    f"the headers did not arrive within {self.limits.header_timeout_ms} ms",
                    retryable=True,
                )
            )
        elif self._stage is _Stage.IDLE and (self.cycle is None or self.cycle.response_complete):
            self._close()

    def _check_body_rate(self) -> None:
        self._body_timer = None
        if self._deaf or self._stage is not _Stage.BODY:
            return
        needed_bytes = self.limits.body_bytes_per_second_min * self.limits.body_grace_ms / 1000
        is_our_turn = self.flow.read_paused or self.cycle.waiting_for_100_continue
        if not is_our_turn and self._body_bytes - self._body_bytes_at_check < needed_bytes:
            self._refuse(
                Problem(
                    408,
                    "request_timeout",
                    f"the body arrives at less than {self.limits.body_bytes_per_second_min} bytes a second",
                    retryable=True,
                    applied="unknown",
                )
            )
        else:
            self._set_timers()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = _Stage.HEAD
        self._message_number += 1
        self._header_bytes = self._header_count = 0
        self._content_length = None
        self._body_bytes = self._framing_bytes = 0
        if self.scheme == "http":
            self.scope["extensions"] = _EXTENSIONS
        else:
            self.scope["extensions"] = self._tls_extensions

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)
        self._header_count += 1
        if self._header_count > self.limits.header_count_max:
            raise _Refusal(_headers_too_large(f"more than {self.limits.header_count_max} headers"))
        if self._stage is _Stage.HEAD:
            super().on_header(name, value)
        # Trailers are counted and dropped: the application believes that it has all headers by now.

    def _count_header(self, size_bytes: int) -> None:
        self._header_bytes += size_bytes
        if self._header_bytes > self.limits.header_bytes_max:
            raise _Refusal(_headers_too_large(f"more than {self.limits.header_bytes_max} bytes"))

    def on_headers_complete(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._framing_bytes = 0
        self._content_length = check_framing(self.parser.get_http_version(), self.headers)
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX:
            raise _Refusal(
                Problem(503, "overloaded", f"more than {PIPELINED_REQUESTS_MAX} requests wait here", retryable=True)
            )
        super().on_headers_complete()
        # Only now: until here a refusal finds no cycle of this request.
        self._stage = _Stage.BODY

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stage = _Stage.IDLE
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        super().on_message_complete()

    # Answers

    @property
    def has_queued_requests(self) -> bool:
        return bool(self.pipeline)

    def keeps_unread_body(self) -> bool:
        missing_bytes = None if self._content_length is None else self._content_length - self._body_bytes
        return missing_bytes is not None and missing_bytes <= UNREAD_BODY_BYTES_MAX

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = EdgeCycle.adopt(cycle, self)
        super()._start_asgi_task(cycle, app)

    def run_again(self, cycle: EdgeCycle) -> None:
        super()._start_asgi_task(cycle, self.app)

    def on_response_complete(self) -> None:
        cycle = self._active
        assert cycle is not None
        if cycle.closes or not cycle.keep_alive:
            self.server_state.total_requests += 1
            self._close_after_answer(is_client_sending=cycle.more_body)
        elif self._last_words is not None and not self.pipeline:
            self.server_state.total_requests += 1
            self._write_and_close(self._last_words)
        else:
            super().on_response_complete()
            if self.pipeline or self._last_words is not None:
                self.flow.pause_reading()

    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is being parsed with ``problem``, in its turn, and close."""
        self._deaf = True
        if self._stage is _Stage.BODY and self.cycle is not None:
            failed = self.cycle
            failed.disconnected = True
            failed.message_event.set()
            if failed is self._active:
                if failed.response_started:
                    # Its answer is under way or out: there is no other to give.
                    self._close()
                else:
                    self._write_and_close(problem)
                return
            self.pipeline = deque(queued for queued in self.pipeline if queued[0] is not failed)
        if self._active is not None and not self._active.response_complete:
            self._last_words = problem
            self.flow.pause_reading()
        else:
            self._write_and_close(problem)

    def _write_and_close(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        path = getattr(self, "url", b"").partition(b"?")[0].decode("ascii", "replace")
        body = problem.body(path)
        headers = {**problem.all_headers(), "Content-Length": str(len(body)), "Connection": "close"}
        head = [STATUS_LINE[problem.status]]
        head += [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        head += [f"{name.lower()}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
        self.transport.write(b"".join([*head, b"\r\n", body]))
        self._close_after_answer(is_client_sending=True)

    def _close_after_answer(self, *, is_client_sending: bool) -> None:
        """Close, but let a client that is still sending read its answer first.

        Closing a socket with unread bytes resets the connection, which may destroy what the peer has not read yet.
        """
        self._deaf = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if is_client_sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._close_timer = self.loop.call_later(LINGER_SECONDS, self._close)
        else:
            self._close()


def tls_extensions(certificate: dict[str, Any] | None) -> dict[str, dict[object, object]]:
    """What a connection of TLS offers, and the name in its client's verified certificate, as ASGI's TLS extension."""
    return {PARKING: {}, "tls": {"client_cert_name": subject_of(certificate)}}


def check_framing(http_version: str, headers: list[tuple[bytes, bytes]]) -> int | None:
    """Refuse what the parser lets through, and return the announced length of the body, None if chunked.

    Raises:
        _Refusal: 505 another version than 1.0 and 1.1; 400 no or two hosts, or a transfer coding that is not chunked.
    """
    if http_version not in ("1.0", "1.1"):
        raise _Refusal(Problem(505, "http_version_not_supported", "this service speaks HTTP/1.1"))
    hosts = codings = 0
    length: int | None = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            codings += 1
            length = None
            if value.strip().lower() != b"chunked" or http_version == "1.0" or codings > 1:
                raise _Refusal(Problem(400, "malformed_request", "Transfer-Encoding may only be chunked"))
    if hosts > 1 or (hosts == 0 and http_version == "1.1"):
        raise _Refusal(Problem(400, "malformed_request", "a request has exactly one Host header"))
    return length


def _headers_too_large(what: str) -> Problem:
    return Problem(431, "request_header_fields_too_large", f"the request line and headers have {what}")


def _problem_of(error: Exception) -> Problem:
    """The answer to an error of the parser, or of one of its callbacks."""
    if isinstance(error, _Refusal):
        return error.problem
    cause = error.__context__
    if isinstance(cause, _Refusal):
        return cause.problem
    if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, httptools.HttpParserError):
        logger.error("a request could not be taken", exc_info=cause)
    return Problem(400, "malformed_request", "the bytes are not a valid HTTP/1.1 request")
