"""The HTTP connection: uvicorn's httptools protocol with limits on all that a client may send or withhold.

Its classes are layers: ``PeerProtocol`` is the transport side, ``TimedProtocol`` adds the deadlines, and
``EdgeProtocol`` the requests and their answers in order. ``PlainRequests`` of the fast path stands above. A
``RequestReader`` beside them holds the parser and its limits.

A refused request never reaches the application. Its answer is a problem document, as for all other errors. The parser
itself refuses Content-Length beside Transfer-Encoding, two lengths, bare line feeds and folded headers. Answers may be
slices of files, see ``file_transfer``.
"""

from __future__ import annotations

import contextvars
from collections import deque
from typing import Any, ClassVar

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.event_loop.turns import Turns
from app.http.connection.connection_limits import Refusal, problem_of
from app.http.connection.deferred_answer import DeferredAnswer
from app.http.connection.request_reader import RequestReader
from app.http.connection.response_cycle import EdgeCycle
from app.http.connection.stages import Stage as Stage
from app.http.connection.stages import Waits as Waits
from app.http.connection.timed_protocol import TimedProtocol
from app.http.transfer.transfer_turns import TransferTurns
from app.problems import kinds
from app.problems.problem import Problem

PIPELINED_REQUESTS_MAX = 1_000
# If at most this much of a body is missing when the answer begins, it is read to its end, and the connection is kept.
UNREAD_BODY_BYTES_MAX = 64 * 1024


class EdgeProtocol(TimedProtocol):
    """One connection: its requests, and their answers in order. Use the class of ``connections.protocol_class``.

    Thread: the event loop's.
    """

    starts: ClassVar[Turns]
    bodies: ClassVar[Turns]
    transfers: ClassVar[TransferTurns]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._active: EdgeCycle | DeferredAnswer | None = None
        # Whether the client has closed its direction. Its requests are still answered.
        self._has_said_all = False
        # The answer with which the connection ends, behind the one that is being sent.
        self._last_words: Problem | None = None
        # The announced length of the body that comes in.
        self._content_length: int | None = None
        # None once the connection is lost. The two refer to each other, and this frees them without a collection.
        self._reader: RequestReader | None = RequestReader(self)

    # The transport

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._waits_for is Waits.NEXT_REQUEST:
            self._waits_for = Waits.NOTHING
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Read the requests in ``data``, and refuse one that must not be served."""
        assert self._reader is not None
        try:
            goes_on = self._reader.feed(data)
        except (httptools.HttpParserError, Refusal) as error:
            self._refuse(problem_of(error))
            return
        if goes_on:
            self._set_deadline()
            return
        self._deaf = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer the whole requests of a client that has closed its direction (``shutdown(SHUT_WR)``), then close.

        The client may also be gone, which shows only when its answer is sent. So a request that waits for records is
        answered at once, with the available records. TLS ends both directions together.
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
        if active is not None:
            active.stop_waiting()
        return True

    def _owes_an_answer(self) -> bool:
        """Return whether a whole request still waits for its answer."""
        return bool(self.pipeline) or (self._active is not None and not self._active.response_complete)

    def _drop_unfinished(self) -> None:
        """Drop a request whose body will never be whole. If it is being answered, the answer is lost."""
        unfinished = self.cycle
        if unfinished is None or unfinished.response_complete:
            return
        unfinished.disconnected = True
        unfinished.message_event.set()
        if unfinished is self._active:
            self._active.lose_client()
            self._active = None
        self.pipeline = deque(queued for queued in self.pipeline if queued[0] is not unfinished)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self.pipeline.clear()
        if self._active is not None and not self._active.response_complete:
            self._active.lose_client()
        super().connection_lost(exc)
        self._reader = None

    # The request that comes in: calls of its reader

    @property
    def stage(self) -> Stage:
        """The place of the parser in a request."""
        return self._stage

    @property
    def body_bytes(self) -> int:
        """The number of bytes that have come of the body of this request."""
        return self._body_bytes

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = Stage.HEAD
        self._message_number += 1
        self._content_length = None
        self._body_bytes = 0
        self.scope["extensions"] = self.extensions

    def begin_request(self, content_length: int | None) -> None:
        """Start the request whose head is whole, or queue it behind the one that is being answered.

        Raises:
            Refusal: 503, ``PIPELINED_REQUESTS_MAX`` requests wait here.
        """
        if len(self.pipeline) >= PIPELINED_REQUESTS_MAX:
            raise Refusal(Problem(kinds.OVERLOADED, f"more than {PIPELINED_REQUESTS_MAX} requests wait here"))
        self._content_length = content_length
        self.on_headers_complete()
        if self.pipeline and self._active is not None:
            self._active.watch_client()
        # Not earlier, because a refusal before this finds no cycle of this request.
        self._stage = Stage.BODY

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
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
        """Start the next request, or wait for it."""
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
                # The application may have done a part of its work, so only it can say so.
                failed.refuse_body(problem)
                return
            failed.disconnected = True
            failed.message_event.set()
            if failed is self._active:
                if failed.response_started:
                    # Its answer has begun, so there can be no other.
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
