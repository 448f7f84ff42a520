"""The HTTP connection: uvicorn's httptools protocol with limits on everything a client may send or withhold.

Requests that are refused here never reach the application and are answered with a problem as all others. What the
parser itself is strict about (Content-Length beside Transfer-Encoding, two lengths, bare line feeds, folded headers)
stays there. Answers may be stretches of files, see ``file_transfer``; plain requests have ``plain_requests``.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections import deque
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.event_loop.turns import Turns
from app.http.connection.connection_limits import (
    TURNED_AWAY_MAX,
    ConnectionLimits,
    Peers,
    Refusal,
    address_of,
    answer_of,
    check_framing,
    check_names,
    headers_too_large,
    late_head,
    not_http,
    problem_of,
    slow_body,
)
from app.http.connection.exchange import HotExchange
from app.http.connection.parking import EXTENSION as PARKING
from app.http.connection.parser import RequestLines, head_without_offer, new_parser
from app.http.connection.response_cycle import TLS_PIECE_BYTES, EdgeCycle
from app.http.connection.stages import Stage as Stage
from app.http.connection.stages import Waits as Waits
from app.http.tls.tls import tls_extensions
from app.http.transfer.send_queue import taken_mark
from app.http.transfer.transfer_turns import TransferTurns
from app.http.transfer.wire import Wire
from app.http.transfer.zero_copy import EXTENSION as ZERO_COPY
from app.problems import kinds
from app.problems.problem import Problem

PIPELINED_REQUESTS_MAX = 1_000
# A body of which no more than this is missing when the answer begins is read to its end, and the connection kept.
UNREAD_BODY_BYTES_MAX = 64 * 1024
# How long a client that still sends is listened to after its answer, so that it can read that.
LINGER_SECONDS = 2.0
# Framing of chunks and trailers beside the bytes of a body: chunks of one byte take 5.
_FRAMING_BYTES_PER_BODY_BYTE = 16

# One for all requests: nobody changes it.
_EXTENSIONS: dict[str, dict[object, object]] = {ZERO_COPY: {}, PARKING: {}}


class EdgeProtocol(HttpToolsProtocol):
    """One connection. Use the class that ``connections.protocol_class`` makes.

    It has one timer. That is not moved with every deadline, but looks when it fires whether the deadline is there.

    Thread: the event loop's.
    """

    limits: ClassVar[ConnectionLimits]
    peers: ClassVar[Peers]
    late_clients: ClassVar[Turns]
    starts: ClassVar[Turns]
    bodies: ClassVar[Turns]
    transfers: ClassVar[TransferTurns]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # uvicorn goes by the handlers of its logger, which others may have given it.
        self.access_log = self.access_log and self.config.access_log
        self.stall_timeout_ms = self.limits.stall_timeout_ms
        self.unsent_bytes_max = self.limits.unsent_bytes_max
        self._stage = Stage.IDLE
        self._active: EdgeCycle | HotExchange | None = None
        # The client has said all it will; what it asked for is answered.
        self._has_said_all = False
        # No more is read: the connection ends with the answer that is being sent, or with ``_last_words``.
        self._deaf = False
        self._last_words: Problem | None = None
        self._counted_as: str | None = None
        self.extensions = _EXTENSIONS
        # Of the request that is being parsed.
        self._message_number = 0
        self._offers_upgrade = False
        self._header_bytes = self._header_count = 0
        self._content_length: int | None = None
        self._body_bytes = self._framing_bytes = self._body_bytes_at_check = 0
        self._close_timer: asyncio.TimerHandle | None = None
        self._waits_for = Waits.NOTHING
        self._waits_in_message = 0
        self._deadline = math.inf
        # When the request that is being answered wants an answer at the latest; only plain ones say so here.
        self._answer_by = math.inf
        # What its client had taken (``taken_mark``), and in which message, when it was last looked at.
        self._taken = (-1, 0)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._wire: Wire | None = None
        self._lines = RequestLines()

    # The connection

    @property
    def wire(self) -> Wire:
        """Its socket.

        Raises:
            NotBareError: the connection speaks TLS.
        """
        if self._wire is None:
            self._wire = Wire.of(self.transport)
        return self._wire

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        address = address_of(transport)
        if len(self.connections) >= self.limits.connections_max:
            self._turn_away(transport, "the service has all the connections it takes")
        elif self.peers[address] >= self.limits.connections_per_address_max:
            self._turn_away(transport, "the service has all the connections it takes from this address")
        else:
            self._counted_as = address
            self.peers[address] += 1
            super().connection_made(transport)
            if self.scheme == "https":
                # As over plain TCP; the default is eight times that.
                transport.set_write_buffer_limits(high=TLS_PIECE_BYTES)
                self.extensions = tls_extensions(transport.get_extra_info("peercert"))
            self._expect(Waits.HEAD, self.limits.header_timeout_ms)

    def _turn_away(self, transport: asyncio.Transport, detail: str) -> None:
        self.transport, self.flow = transport, FlowControl(transport)
        if len(self.peers.turned_away) >= TURNED_AWAY_MAX:
            self.cut()
            return
        self.peers.turned_away.add(self)
        self._write_and_close(Problem(kinds.OVERLOADED, detail, retry_after_ms=1_000))

    def connection_lost(self, exc: Exception | None) -> None:
        self.peers.turned_away.discard(self)
        if self._counted_as is not None:
            self.peers.leave(self._counted_as)
            self._counted_as = None
        if self._wire is not None:
            self._wire.release()
        for timer in (self._timer, self._close_timer):
            if timer is not None:
                timer.cancel()
        self._deaf = True
        self.pipeline.clear()
        if self._active is not None and not self._active.response_complete:
            self._active.lose_client()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has said all it will (``shutdown(SHUT_WR)``): what it has asked for in full is answered.

        It may as well be gone, which nobody can tell before its answer is sent. So a request that waits for records is
        answered at once, with those that there are. TLS ends both directions together.
        """
        if self._stage is Stage.BODY:
            self._drop_unfinished()
        if self.scheme == "https" or self._deaf or not self._owes_an_answer():
            return None
        self._has_said_all = True
        active = self._active
        if self.pipeline:
            self.pipeline[0][0].keep_alive = False
        elif active is not None and not active.response_complete:
            if active.response_started:
                active.closes = True
            else:
                active.keep_alive = False
        if isinstance(active, EdgeCycle):
            active.stop_waiting()
        return True

    def _owes_an_answer(self) -> bool:
        """Whether something that was asked for in full is not answered."""
        return bool(self.pipeline) or (self._active is not None and not self._active.response_complete)

    def _drop_unfinished(self) -> None:
        """Forget a request whose body will never be whole; if it is being answered, its answer is lost."""
        unfinished = self.cycle
        if unfinished is None or unfinished.response_complete:
            return
        unfinished.disconnected = True
        unfinished.message_event.set()
        if unfinished is self._active:
            self._active.lose_client()
            self._active = None
        self.pipeline = deque(queued for queued in self.pipeline if queued[0] is not unfinished)

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

    # Deadlines

    def _expect(self, what: Waits, within_ms: float) -> None:
        """Let ``what`` be late after ``within_ms``, and nothing else of the client."""
        self._waits_for = what
        self._waits_in_message = self._message_number
        deadline = self._deadline = self.loop.time() + within_ms / 1000
        if deadline < self._timer_at:
            self._look_at(deadline)

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """See what is late."""
        self._timer, self._timer_at = None, math.inf
        # Timers have a resolution, deadlines have not.
        now = self.loop.time() + 0.001
        if self._waits_for is not Waits.NOTHING:
            if now >= self._deadline:
                self.late_clients.take(self.loop, self._look_at_client)
            else:
                self._look_at(self._deadline)
        if now >= self._answer_by:
            self._answer_by = math.inf
            self._answer_is_late()
        elif self._answer_by < self._timer_at:
            self._look_at(self._answer_by)

    def _look_at_client(self) -> None:
        """It was late, and may have come while others took their turns."""
        if self._waits_for is not Waits.NOTHING and self.loop.time() + 0.001 >= self._deadline:
            self._client_is_late()

    def _client_is_late(self) -> None:
        waited_for, self._waits_for = self._waits_for, Waits.NOTHING
        if self.transport.is_closing():
            return
        if waited_for is Waits.NEXT_REQUEST:
            if self.flow.write_paused and self._takes_bytes():
                self._expect(Waits.NEXT_REQUEST, self.stall_timeout_ms)
            else:
                self._close()
        elif waited_for is Waits.HEAD:
            self._head_is_late()
        else:
            self._check_body_rate()

    def _takes_bytes(self) -> bool:
        """Whether the client has taken anything of its answer since this was last asked, or it is asked anew."""
        taken = taken_mark(self.transport, is_tls=self.scheme == "https")
        asked_in_message, taken_before = self._taken
        self._taken = (self._message_number, taken)
        return asked_in_message != self._message_number or taken > taken_before

    def _set_deadline(self) -> None:
        """Expect what is missing now."""
        if self._deaf:
            return
        stage, waits_for = self._stage, self._waits_for
        is_new = self._waits_in_message != self._message_number
        if stage is Stage.BODY:
            if self.limits.body_bytes_per_second_min and (waits_for is not Waits.BODY or is_new):
                self._body_bytes_at_check = self._body_bytes
                self._expect(Waits.BODY, self.limits.body_grace_ms)
        elif stage is Stage.HEAD:
            if waits_for is not Waits.HEAD or is_new:
                self._expect(Waits.HEAD, self.limits.header_timeout_ms)
        elif self.cycle is not None and not self.cycle.response_complete:
            self._waits_for = Waits.NOTHING
        elif waits_for is Waits.NOTHING:
            self._expect(Waits.HEAD, self.limits.header_timeout_ms)

    def _answer_is_late(self) -> None:
        """``_answer_by`` has come."""

    # Bytes in

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._waits_for is Waits.NEXT_REQUEST:
            self._waits_for = Waits.NOTHING
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Let the parser have ``data``, up to the request line of another protocol."""
        for piece in self._lines.pieces(data, lambda: self._stage is Stage.IDLE):
            if piece is None:
                self.url = b""
                self._refuse(not_http())
            rest = None if piece is None or self._deaf else memoryview(piece)
            while rest is not None:
                rest = self._parse(rest)

    def _parse(self, data: memoryview) -> memoryview | None:
        """Let the parser have ``data``; returns what it has left because of an offer that is ignored."""
        message_before = self._message_number if self._stage is not Stage.IDLE else -1
        body_bytes_before = self._body_bytes
        try:
            self.parser.feed_data(data)
            if message_before == self._message_number and self._stage is not Stage.IDLE:
                self._count_raw(len(data), self._body_bytes - body_bytes_before)
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
        except (httptools.HttpParserError, Refusal) as error:
            self._refuse(problem_of(error))
            return None
        else:
            self._set_deadline()
            return None
        if self._offers_upgrade:
            self._begin_without_offer()
            return rest if rest and not self._deaf else None
        # CONNECT: what follows belongs to a protocol we do not speak.
        self._deaf = True
        if self.cycle is not None:
            self.cycle.keep_alive = False
        return None

    def _count_raw(self, raw_bytes: int, body_bytes: int) -> None:
        """Bound what the parser keeps of one header, and chunk framing. All of the data was of this request."""
        if self._stage is Stage.HEAD:
            # Counts finished headers again: twice the limit is still a limit, and the parser's own memory has one.
            self._framing_bytes += raw_bytes
            if self._framing_bytes > 2 * self.limits.header_bytes_max:
                raise Refusal(headers_too_large(f"more than {self.limits.header_bytes_max} bytes"))
            return
        self._framing_bytes += raw_bytes - body_bytes
        allowed_bytes = 2 * self.limits.header_bytes_max + _FRAMING_BYTES_PER_BODY_BYTE * self._body_bytes
        if self._framing_bytes > allowed_bytes:
            raise Refusal(Problem(kinds.MALFORMED_REQUEST, "the body is framed in chunks without an end"))

    def _begin_without_offer(self) -> None:
        """Take a request that offers another protocol as if it did not (RFC 9110, 7.8).

        The parser has seen a head and no body, as that would be the other protocol's. A new one is given the head again
        without its offer, so the body is framed as any other.
        """
        self._offers_upgrade = False
        self._message_number -= 1
        head = head_without_offer(self.parser, self.url, self.headers)
        self.parser = new_parser(self)
        self._parse(memoryview(head))

    def _head_is_late(self) -> None:
        if self._deaf:
            return
        if self.flow.read_paused:
            # It is us who do not read.
            self._set_deadline()
        elif self._stage is Stage.HEAD:
            self._refuse(late_head(self.limits))
        elif self._stage is Stage.IDLE and (self.cycle is None or self.cycle.response_complete):
            self._close()

    def _check_body_rate(self) -> None:
        if self._deaf or self._stage is not Stage.BODY:
            return
        needed_bytes = self.limits.body_bytes_per_second_min * self.limits.body_grace_ms / 1000
        if self._is_our_turn() or self._body_bytes - self._body_bytes_at_check >= needed_bytes:
            self._set_deadline()
        else:
            self._refuse(slow_body(self.limits))

    def _is_our_turn(self) -> bool:
        """Whether the client cannot go on before we do."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = Stage.HEAD
        self._message_number += 1
        self._header_bytes = self._header_count = 0
        self._content_length = None
        self._body_bytes = self._framing_bytes = 0
        self.scope["extensions"] = self.extensions

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)
        self._header_count += 1
        if self._header_count > self.limits.header_count_max:
            raise Refusal(headers_too_large(f"more than {self.limits.header_count_max} headers"))
        if self._stage is Stage.HEAD:
            super().on_header(name, value)
        # Trailers are counted and dropped: the application believes that it has all headers by now.

    def _count_header(self, size_bytes: int) -> None:
        self._header_bytes += size_bytes
        if self._header_bytes > self.limits.header_bytes_max:
            raise Refusal(headers_too_large(f"more than {self.limits.header_bytes_max} bytes"))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._offers_upgrade = True
            return
        self._framing_bytes = 0
        self._content_length = check_framing(self.parser.get_http_version(), self.headers)
        check_names(self.limits.hosts, self.parser.get_method(), self.url, self.headers)
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX:
            raise Refusal(Problem(kinds.OVERLOADED, f"more than {PIPELINED_REQUESTS_MAX} requests wait here"))
        self._start_request()
        # Only now: until here a refusal finds no cycle of this request.
        self._stage = Stage.BODY

    def _start_request(self) -> None:
        """The head of a request is there, and well."""
        super().on_headers_complete()
        if self.pipeline and isinstance(self._active, EdgeCycle):
            self._active.watch_client()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers_upgrade:
            return
        self._stage = Stage.IDLE
        super().on_message_complete()

    # Answers

    @property
    def has_queued_requests(self) -> bool:
        return bool(self.pipeline)

    def keeps_unread_body(self) -> bool:
        return self._content_length is not None and self._content_length - self._body_bytes <= UNREAD_BODY_BYTES_MAX

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active = EdgeCycle.adopt(cycle, self)
        self._active.is_impatient = self._has_said_all
        context = contextvars.copy_context()
        self.starts.take(self.loop, lambda: context.run(super(EdgeProtocol, self)._start_asgi_task, cycle, app))

    def run_again(self, cycle: EdgeCycle) -> None:
        super()._start_asgi_task(cycle, self.app)

    def on_response_complete(self) -> None:
        cycle = self._active
        assert cycle is not None
        self.server_state.total_requests += 1
        if cycle.closes or not cycle.keep_alive:
            self._close_after_answer(is_client_sending=cycle.more_body)
        elif self._last_words is not None and not self.pipeline:
            self._write_and_close(self._last_words)
        elif not self.transport.is_closing():
            self._go_on()

    def _go_on(self) -> None:
        """To the next request, or to waiting for it."""
        if self._has_said_all and not self._owes_an_answer():
            self._close_after_answer(is_client_sending=False)
            return
        if not self.pipeline:
            self.flow.resume_reading()
            if self._stage is Stage.IDLE:
                self._expect(Waits.NEXT_REQUEST, 1000 * self.timeout_keep_alive)
            else:
                self._set_deadline()
            return
        self._start_asgi_task(*self.pipeline.pop())
        if self.pipeline or self._last_words is not None:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is being parsed with ``problem``, in its turn, and close."""
        self._deaf = True
        if self._stage is Stage.BODY and self.cycle is not None:
            failed = self.cycle
            if failed is self._active and not failed.response_complete and failed.ends_early():
                # What it has done by then is not known here: its last words are its own.
                failed.refuse_body(problem)
                return
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
        target = getattr(self, "url", b"")
        self.transport.write(answer_of(problem, target, self.server_state.default_headers))
        self._close_after_answer(is_client_sending=True)

    def _close_after_answer(self, *, is_client_sending: bool) -> None:
        """Close, but let a client that is still sending read its answer first.

        Closing a socket with unread bytes resets the connection, which may destroy what the peer has not read yet.
        """
        self._deaf = True
        self._waits_for = Waits.NOTHING
        if self.transport.is_closing():
            return
        if is_client_sending and self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._close_timer = self.loop.call_later(LINGER_SECONDS, self._close)
        else:
            self._close()
