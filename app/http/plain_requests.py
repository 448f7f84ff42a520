"""Connections that answer plain requests themselves, where the hot tier knows how; see ``hot``.

Two ways lead there. The parser's: its callbacks collect the request, and when the headers are complete the tier is
asked. And the short one: a head that is byte by byte one that went the first way, but for one number, is not parsed
again. Whatever the tier leaves alone, at whichever point, becomes an ordinary cycle of the application with the
request whole.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, ClassVar

from app.http.body import BODY_BYTES_ALWAYS_TAKEN
from app.http.body_sink import SINK_BYTES_MIN, BodyBuffers, BodySink
from app.http.byte_budget import Hold
from app.http.exchange import HotExchange, log_access, make_cycle, scope_of
from app.http.file_transfer import send_at_once
from app.http.hot import (
    KNOWN_HEAD_BYTES_MAX,
    NUMBER_DIGITS_MAX,
    HotAnswer,
    HotCall,
    HotTier,
    HotWait,
    KnownHead,
    PlainHead,
    known_head,
)
from app.http.protocol import EdgeProtocol, Stage, Waits, new_parser

_CLOSE_AND_END = b"connection: close\r\n\r\n"
# Members of an enumeration are looked up in its class; these are not, for every request.
_NEXT_REQUEST = Waits.NEXT_REQUEST
_IDLE = Stage.IDLE


# A body that came with its head is copied out of the bytes around it; one that is so large is not.
SLICED_BYTES_MIN = 8 * 1024

STASH_BYTES_MAX = 64 * 1024
"""With more that waits to be looked at, nothing is read."""

KNOWN_HEADS_MAX = 32
"""Of one connection; that of the path which was new longest ago goes first."""


def _target_of(data: bytes, start: int) -> bytes:
    """Method and path of the head at ``start``."""
    end = data.find(b" HTTP/", start, start + KNOWN_HEAD_BYTES_MAX)
    return data[start:end].partition(b"?")[0]


def common_lines(default_headers: list[tuple[bytes, bytes]]) -> bytes:
    """The lines that every answer has."""
    return b"".join([b"%b: %b\r\n" % header for header in default_headers])


class _Collected:
    """A plain request whose body is on its way."""

    __slots__ = ("began", "head", "hold", "missing_bytes", "number", "pieces")

    def __init__(self, head: PlainHead, number: int | None, missing_bytes: int, hold: Hold | None) -> None:
        self.head = head
        # Its bytes among those of all bodies, if it is large.
        self.hold = hold
        self.number = number
        self.missing_bytes = missing_bytes
        self.pieces: list[bytes] = []
        self.began = perf_counter()


class PlainRequests(EdgeProtocol):
    """One connection. Use the class that ``connections.protocol_class`` makes.

    Thread: the event loop's.
    """

    hot: ClassVar[HotTier]
    buffers: ClassVar[BodyBuffers] = BodyBuffers()
    # The headers of every answer, and the list they were made of.
    default_headers: ClassVar[list[tuple[bytes, bytes]] | None] = None
    default_lines: ClassVar[bytes] = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Of a message that the parser sees.
        self._plain: _Collected | None = None
        # Of a message that only we see: its body is still on its way.
        self._body: _Collected | None = None
        self._known: KnownHead | None = None
        # The last one of each path: a client takes turns between partitions.
        self._known_by_target: dict[bytes, KnownHead] = {}
        self._learned: PlainHead | None = None
        self._learned_in_message = 0
        # The service stops: no request comes after the one that is on its way in.
        self._ends = False
        # What a large body counts among those of all requests, until its answer.
        self._room: Hold | None = None
        # What came while the client had not taken its answers; whether nothing is read because of it.
        self._stash = b""
        self._is_stash_full = False

    # The short way

    def data_received(self, data: bytes) -> None:
        while data and not self._deaf:
            is_next = self._is_between_requests()
            if self._stash or (is_next and self.flow.write_paused):
                self._keep(data)
                return
            left = data
            if self._body is not None:
                data = self._collect(self._body, data)
            elif is_next and self._known is not None:
                data = self._take_known(self._known, data)
            if data is left:
                if self._waits_for is _NEXT_REQUEST:
                    self._waits_for = Waits.NOTHING
                self._feed_and_learn(data)
                return

    def _is_between_requests(self) -> bool:
        """Whether all that was asked is answered."""
        return (
            (self._waits_for is _NEXT_REQUEST or self.cycle is None or self.cycle.response_complete)
            and self._stage is _IDLE
            and (self._active is None or self._active.response_complete)
        )

    def _keep(self, data: bytes) -> None:
        """Let what came wait to be looked at; a client that sends on has to wait, too."""
        self._stash += data
        if len(self._stash) >= STASH_BYTES_MAX and not self._is_stash_full:
            self._is_stash_full = True
            self.flow.pause_reading()

    def _look_at_stash(self) -> None:
        """Go on with what came meanwhile."""
        stash, self._stash = self._stash, b""
        if self._is_stash_full:
            # Others may have reasons of their own not to read on, which they find with what waits here.
            self._is_stash_full = False
            self.flow.resume_reading()
        self.data_received(stash)

    def resume_writing(self) -> None:
        """The client has taken its answers, or nearly: those that it has asked for since may be made."""
        super().resume_writing()
        if self._stash:
            self._look_at_stash()

    def _take_known(self, known: KnownHead, data: bytes) -> bytes:
        """Answer the requests at the beginning of ``data`` whose heads are known; what is left is for the parser."""
        start, size = 0, len(data)
        while True:
            number: int | None
            if data.startswith(known.last, start):
                number, body_at = known.last_number, start + known.last_bytes
            else:
                found = known.match(data, start)
                if found is None:
                    other = self._known_by_target.get(_target_of(data, start))
                    found = None if other is None or other is known else other.match(data, start)
                    if other is None or found is None:
                        break
                    known = self._known = other
                number, body_at = found
            length = 0
            if known.is_length and number is not None:
                length, number = number, None
            end = body_at + length
            if end > size or length > known.body_bytes_max:
                if not self._begin_known(known.head, number, length, data, body_at):
                    break
                return b""
            self._message_number += 1
            body = data[body_at:end] if length < SLICED_BYTES_MIN else memoryview(data)[body_at:end]
            self._serve(known.head, number, body, perf_counter())
            if end == size:
                return b""
            start = end
            if self._deaf or self.flow.write_paused or not self._is_between_requests():
                break
        return data[start:] if start else data

    def _begin_known(self, head: PlainHead, number: int | None, length: int, data: bytes, body_at: int) -> bool:
        """Take the body of a request of which not all is there; false leaves it, or one that is too long, alone."""
        missing_bytes = body_at + length - len(data)
        if missing_bytes > 0 and length >= SINK_BYTES_MIN and self._begin_large(head, length, data, body_at):
            return True
        if length > head.route.body_bytes_max:
            return False
        hold = self.hot.hold_body(length) if length > BODY_BYTES_ALWAYS_TAKEN else None
        if length > BODY_BYTES_ALWAYS_TAKEN and hold is None:
            return False
        self._message_number += 1
        self._begin_body(_Collected(head, number, missing_bytes, hold), length, data[body_at:])
        return True

    def _begin_body(self, collected: _Collected, length: int, piece: bytes) -> None:
        self._body = collected
        self._content_length = length
        self._body_bytes = len(piece)
        self.url = collected.head.url
        collected.pieces.append(piece)
        self._stage = Stage.BODY
        self._waits_for = Waits.NOTHING
        self._set_deadline()

    # Large bodies

    def _begin_large(self, head: PlainHead, length: int, data: bytes, body_at: int) -> bool:
        """Let a sink take the body, if it may: one for which there is no room is left to the application."""
        if not self._make_room(head, length):
            return False
        self._message_number += 1
        self._sink(_Collected(head, None, 0, None), length, memoryview(data)[body_at:])
        return True

    def _make_room(self, head: PlainHead, length: int) -> bool:
        """Room for all of a large body, until its answer."""
        self._room = self.hot.hold_large(head, length)
        return self._room is not None

    def _sink(self, collected: _Collected, length: int, begun: memoryview) -> None:
        """Take a body through a sink from where it has come to."""
        self._begin_body(collected, length, b"")
        self._body_bytes = len(begun)
        sink = BodySink(self, self.transport, self.buffers.take(length), begun)
        sink.stand_by()
        # A crowd of large bodies takes a millisecond of copying each.
        self.starts.take(self.loop, sink.start)

    def _sink_rest(self, plain: _Collected, length: int) -> None:
        """Take the rest of a body that the parser has begun. It never sees the end of it, so there is a new one."""
        self._plain = None
        self.parser = new_parser(self)
        begun = plain.pieces[0] if len(plain.pieces) == 1 else b"".join(plain.pieces)
        plain.pieces.clear()
        self._sink(plain, length, memoryview(begun))

    @property
    def is_deaf(self) -> bool:
        """Nothing that comes in counts any more."""
        return self._deaf

    def body_grew(self, size_bytes: int) -> None:
        """A sink has taken so much more."""
        self._body_bytes += size_bytes

    def body_filled(self, body: memoryview) -> None:
        """A sink has all of the body."""
        collected, self._body = self._body, None
        assert collected is not None
        self._stage = Stage.IDLE
        self._waits_for = Waits.NOTHING
        self._serve(collected.head, collected.number, body, collected.began)

    def _release_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.release()

    def on_response_complete(self) -> None:
        self._release_room()
        super().on_response_complete()

    def _collect(self, collected: _Collected, data: bytes) -> bytes:
        """Take of ``data`` what belongs to the body; the rest is another request."""
        taken, missing_bytes = len(data), collected.missing_bytes
        if taken < missing_bytes:
            collected.missing_bytes -= taken
            self._body_bytes += taken
            collected.pieces.append(data)
            if collected.hold is not None:
                collected.hold.resize(self._body_bytes)
            return b""
        collected.pieces.append(data if taken == missing_bytes else data[:missing_bytes])
        self._body = None
        if collected.hold is not None:
            collected.hold.release()
        self._stage = Stage.IDLE
        self._waits_for = Waits.NOTHING
        self._serve(collected.head, collected.number, b"".join(collected.pieces), collected.began)
        return data[missing_bytes:]

    # The parser's way

    def _feed_and_learn(self, data: bytes) -> None:
        is_whole = self._stage is Stage.IDLE
        message_number = self._message_number
        self._feed(data)
        plain, length = self._plain, self._content_length
        if plain is not None and self._room is not None and length is not None:
            self._sink_rest(plain, length)
        learned, self._learned = self._learned, None
        if learned is None or not is_whole or self._learned_in_message != message_number + 1:
            return
        # The head is the first thing in these bytes.
        end = data.find(b"\r\n\r\n") + 4
        if end + NUMBER_DIGITS_MAX <= self.limits.header_bytes_max:
            self._remember(known_head(data[:end], learned))

    def _learn(self, head: PlainHead) -> None:
        """Of several heads in one piece the first can be known again."""
        if self._learned is None:
            self._learned, self._learned_in_message = head, self._message_number

    def _remember(self, known: KnownHead | None) -> None:
        self._known = known
        if known is None:
            return
        others = self._known_by_target
        target = _target_of(known.last, 0)
        if len(others) >= KNOWN_HEADS_MAX and target not in others:
            del others[next(iter(others))]
        others[target] = known

    def _start_request(self) -> None:
        if self._content_length is not None and self._is_free_for_parsed():
            head = self.hot.recognise(self.parser.get_method().decode("ascii"), self.url, self.headers)
            length = self._content_length
            if head is not None and length >= SINK_BYTES_MIN and self._make_room(head, length):
                self._plain = _Collected(head, None, 0, None)
                self._learn(head)
                return
            hold = self.hot.hold_body(length) if length > BODY_BYTES_ALWAYS_TAKEN else None
            has_room = length <= BODY_BYTES_ALWAYS_TAKEN or hold is not None
            if head is not None:
                self._learn(head)
            if head is not None and length <= head.route.body_bytes_max and has_room:
                found = head.route.number_in(self.url)
                self._plain = _Collected(head, None if found is None else found[1], length, hold)
                return
        super()._start_request()

    def _is_free_for_parsed(self) -> bool:
        parser = self.parser
        return (
            (self.cycle is None or self.cycle.response_complete)
            and (self._active is None or self._active.response_complete)
            and not self.flow.write_paused
            and not parser.should_upgrade()
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
            and not self.expect_100_continue
            and not self.root_path
        )

    def on_body(self, body: bytes) -> None:
        if self._plain is None:
            super().on_body(body)
            return
        self._body_bytes += len(body)
        self._plain.pieces.append(body)
        if self._plain.hold is not None:
            self._plain.hold.resize(self._body_bytes)

    def on_message_complete(self) -> None:
        plain, self._plain = self._plain, None
        if plain is None:
            super().on_message_complete()
            return
        self._stage = Stage.IDLE
        if plain.hold is not None:
            plain.hold.release()
        self._serve(plain.head, plain.number, b"".join(plain.pieces), plain.began)

    # Answers

    def _serve(self, head: PlainHead, number: int | None, body: bytes | memoryview, began: float) -> None:
        """Answer a request that is there whole, or let the application do it."""
        served = self.hot.serve(head, number, body, began, self)
        if served is None:
            self._waits_for = Waits.NOTHING
            cycle = make_cycle(self, self._scope_of(head, number, body), body, keep_alive=not self._ends)
            self.cycle = cycle
            self._start_asgi_task(cycle, self.app)
            return
        call, outcome = served
        if not isinstance(outcome, HotAnswer):
            self._begin(self._exchange(call), outcome)
            return
        if not self._answer(call, outcome):
            return
        if self._room is not None:
            self._release_room()
        head.count(outcome.status, perf_counter() - began)
        self.server_state.total_requests += 1
        if self._ends:
            self._close_after_answer(is_client_sending=False)
            return
        # As ``_expect``: nothing but the time is new in most rows of requests.
        self._waits_for = _NEXT_REQUEST
        deadline = self._deadline = self.loop.time() + self.timeout_keep_alive
        if deadline < self._timer_at:
            self._look_at(deadline)

    def _answer(self, call: HotCall, answer: HotAnswer) -> bool:
        """Send an answer; whether all of it is out, or with the transport. An exchange sends what is left."""
        if answer.parts:
            return self._send_parts(call, answer)
        self.write_answer(call, answer, keep_alive=not self._ends)
        return True

    def _exchange(self, call: HotCall) -> HotExchange:
        """What stands for a call whose answer is not there at once."""
        # Whatever the time that an idle connection had left.
        self._waits_for = Waits.NOTHING
        exchange = HotExchange(self, call)
        exchange.keep_alive = not self._ends
        self.cycle = exchange  # type: ignore[assignment]
        self._active = exchange
        return exchange

    def _send_parts(self, call: HotCall, answer: HotAnswer) -> bool:
        """Send an answer with parts of files; whether the kernel has all of it. An exchange sends what is left."""
        parts = answer.parts
        part = parts[0]
        if (
            len(parts) > 1
            or isinstance(part, bytes)
            or self.transport.is_closing()
            or self.transport.get_write_buffer_size()
        ):
            self._exchange(call).send_parts(answer)
            return False
        head = self.head_of(call, answer, keep_alive=not self._ends)
        sent_bytes = send_at_once(self.wire, self.transfers, self.unsent_bytes_max, head, part)
        if sent_bytes < len(head) + part.size_bytes:
            self._exchange(call).send_rest(answer, head, sent_bytes)
            return False
        return True

    def _begin(self, exchange: HotExchange, outcome: HotWait | Coroutine[Any, Any, HotAnswer] | Exception) -> None:
        if isinstance(outcome, HotWait):
            exchange.wait(outcome)
        elif isinstance(outcome, Exception):
            exchange.fail(outcome)
        else:
            exchange.run(outcome)

    def head_of(self, call: HotCall, answer: HotAnswer, *, keep_alive: bool) -> bytes:
        """The whole head of an answer that goes out now."""
        if self.access_log:
            self._log_access(call, answer)
        end = b"\r\n" if keep_alive else _CLOSE_AND_END
        if call.throttle_ms:
            end = b"throttle-time-ms: %d\r\n%b" % (call.throttle_ms, end)
        default_headers = self.server_state.default_headers
        if default_headers is not PlainRequests.default_headers:
            # uvicorn makes a new list each second, for the date.
            PlainRequests.default_headers = default_headers
            PlainRequests.default_lines = common_lines(default_headers)
        return b"%bx-request-id: %b\r\n%b%b" % (answer.head, call.request_id.encode(), PlainRequests.default_lines, end)

    def write_answer(self, call: HotCall, answer: HotAnswer, *, keep_alive: bool) -> None:
        """Write an answer that has no parts of files."""
        head = self.head_of(call, answer, keep_alive=keep_alive)
        if not self.transport.is_closing():
            self.transport.write(head + answer.body)

    def _log_access(self, call: HotCall, answer: HotAnswer) -> None:
        context = contextvars.copy_context()
        context.run(self.hot.enter, call)
        context.run(log_access, self.access_logger, self.client, call.head, call.number, answer.status)

    def end_exchange(self, exchange: HotExchange) -> None:
        """An exchange's answer is complete."""
        self._answer_by = math.inf
        # It stays the connection's last one; a large body is somebody else's from now on.
        exchange.call.body = b""
        if self._active is exchange and not exchange.disconnected:
            self.on_response_complete()

    def run_late(self, exchange: HotExchange, error: Exception) -> None:
        """Let the application answer ``error`` in place of the exchange."""
        self._answer_by = math.inf
        call = exchange.call
        scope = self._scope_of(call.head, call.number, call.body)
        cycle = make_cycle(self, scope, b"", keep_alive=exchange.keep_alive and not exchange.closes)
        cycle.disconnected = exchange.disconnected
        exchange.response_complete = True
        if self.cycle is exchange:  # type: ignore[comparison-overlap]
            self.cycle = cycle
        context = contextvars.copy_context()
        context.run(self.hot.resume, scope, call, error)
        context.run(self._start_asgi_task, cycle, self.app)

    def _scope_of(self, head: PlainHead, number: int | None, body: bytes | memoryview) -> dict[str, Any]:
        scope = scope_of(self, head, number, len(body))
        scope["extensions"] = self.extensions
        return scope

    def wait_for_answer(self, exchange: HotExchange, timeout_ms: int) -> None:  # noqa: ARG002 - it is the active one
        """Call ``exchange.expire`` when the time is up."""
        self._answer_by = self.loop.time() + timeout_ms / 1000
        if self._answer_by < self._timer_at:
            self._look_at(self._answer_by)

    def _answer_is_late(self) -> None:
        if isinstance(self._active, HotExchange):
            self._active.expire()

    # Ends

    def _is_our_turn(self) -> bool:
        if self._plain is None and self._body is None:
            return super()._is_our_turn()
        return self.flow.read_paused

    def _refuse(self, problem: Any) -> None:
        if self._plain is not None or self._body is not None:
            # It has no cycle yet.
            self._forget_collected()
            self._stage = Stage.IDLE
        super()._refuse(problem)

    def _forget_collected(self) -> None:
        for collected in (self._plain, self._body):
            if collected is not None and collected.hold is not None:
                collected.hold.release()
        self._plain = self._body = None
        self._release_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or we have closed."""
        self._forget_collected()
        self._stash = b""
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The service stops. A request that is on its way in is answered, as one that has a cycle."""
        if self._plain is None and self._body is None:
            super().shutdown()
        else:
            self._ends = True
