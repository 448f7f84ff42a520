"""Connections that answer plain requests themselves, where the fast path knows how; see ``fast_path_interface``.

The parser of plain heads looks at what comes between two requests. If a head is not plain, or the fast path does not
know its target, httptools gets the same bytes, and all that follows until the request is answered. A request that the
fast path leaves alone later becomes an ordinary cycle of the application, with its body whole.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, ClassVar

from app.http.bodies.body import BODY_BYTES_ALWAYS_TAKEN
from app.http.bodies.body_sink import SINK_BYTES_MIN, BodyBuffers, BodySink
from app.http.bodies.byte_budget import Hold
from app.http.connection.crowd_member import CrowdMember
from app.http.connection.deferred_answer import DeferredAnswer, failed_request, log_access, make_cycle, scope_of
from app.http.connection.fast_path_interface import (
    AnswerWait,
    CrowdWait,
    Late,
    Outcome,
    PlainAnswer,
    PlainCall,
    PlainDispatcher,
    RequestHead,
    ResolvedTarget,
    plain_heads,
)
from app.http.connection.protocol import EdgeProtocol, Stage, Waits
from app.http.connection.response_cycle import EdgeCycle
from app.http.transfer.file_transfer import send_at_once

_CLOSE_AND_END = b"connection: close\r\n\r\n"
# Members of an enumeration are looked up in its class; these are not, for every request.
_NEXT_REQUEST = Waits.NEXT_REQUEST
_IDLE = Stage.IDLE


# A body that came with its head is copied out of the bytes around it; one that is so large is not.
SLICED_BYTES_MIN = 8 * 1024

STASH_BYTES_MAX = 64 * 1024
"""With more that waits to be looked at, nothing is read."""

TURN_SECONDS = 0.002
"""Requests that came together are answered for about this long. Then other connections have their turn."""


def common_lines(default_headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the lines that every answer has."""
    return b"".join([b"%b: %b\r\n" % header for header in default_headers])


class _Collected:
    """A plain request whose body is on its way."""

    __slots__ = ("began", "head", "hold", "missing_bytes", "pieces", "target")

    def __init__(self, target: ResolvedTarget, head: RequestHead, missing_bytes: int, hold: Hold | None) -> None:
        self.target = target
        self.head = head
        # Its bytes among those of all bodies, if it is large.
        self.hold = hold
        self.missing_bytes = missing_bytes
        self.pieces: list[bytes] = []
        self.began = perf_counter()


class PlainRequests(EdgeProtocol):
    """One connection. Use the class that ``connections.protocol_class`` makes.

    Thread: the event loop's.
    """

    fast_path: ClassVar[PlainDispatcher]
    buffers: ClassVar[BodyBuffers] = BodyBuffers()
    # The headers of every answer, and the list they were made of.
    default_headers: ClassVar[list[tuple[bytes, bytes]] | None] = None
    default_lines: ClassVar[bytes] = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A request whose body is still on its way; httptools sees nothing of it.
        self._body: _Collected | None = None
        # The service stops: no request comes after the one that is on its way in.
        self._ends = False
        # What a large body counts among those of all requests, until its answer.
        self._room: Hold | None = None
        # What came while the client had not taken its answers, or while other connections had their turn. Above
        # ``STASH_BYTES_MAX`` the connection reads no more.
        self._stash = b""
        self._is_stash_full = False

    # Requests

    def data_received(self, data: bytes) -> None:
        while data and not self._deaf:
            is_next = self._is_between_requests()
            if self._stash or (is_next and self.flow.write_paused):
                self._keep(data)
                return
            left = data
            if self._body is not None:
                data = self._collect(self._body, data)
            elif is_next and not self._ends:
                data = self._take_plain(data)
            if data is left:
                if self._waits_for is _NEXT_REQUEST:
                    self._waits_for = Waits.NOTHING
                self._feed(data)
                return

    def _is_between_requests(self) -> bool:
        """Return whether all requests are answered."""
        return (
            self._stage is _IDLE
            and (self._waits_for is _NEXT_REQUEST or self.cycle is None or self.cycle.response_complete)
            and (self._active is None or self._active.response_complete)
        )

    def _keep(self, data: bytes) -> None:
        """Keep bytes for later; a client that sends more has to wait."""
        self._stash += data
        if len(self._stash) >= STASH_BYTES_MAX and not self._is_stash_full:
            self._is_stash_full = True
            self.flow.pause_reading()

    def _give_way(self, rest: bytes) -> None:
        """Keep ``rest`` for a later turn of the loop, behind connections that gave way earlier."""
        self._keep(rest)
        self.loop.call_soon(self.starts.take, self.loop, self._take_turn)

    def _take_turn(self) -> None:
        """Go on with the bytes that were kept, unless the client has to take its answers first."""
        if self._stash and not self._deaf and not self.flow.write_paused and self._is_between_requests():
            self._look_at_stash()
            self._end_if_all_is_said()

    def _client_is_late(self) -> None:
        if self._waits_for is _NEXT_REQUEST and self._stash and not self.flow.write_paused:
            # The service is late, not the client.
            self._expect(Waits.NEXT_REQUEST, 1000 * self.timeout_keep_alive)
        else:
            super()._client_is_late()

    def _look_at_stash(self) -> None:
        """Go on with the bytes that came meanwhile."""
        stash, self._stash = self._stash, b""
        if self._is_stash_full:
            # Others may have reasons of their own not to read on, which they find with what waits here.
            self._is_stash_full = False
            self.flow.resume_reading()
        self.data_received(stash)

    def resume_writing(self) -> None:
        """Answer the next requests, because the client has taken its answers, or nearly all."""
        super().resume_writing()
        if self._stash:
            self._look_at_stash()
            self._end_if_all_is_said()

    def _end_if_all_is_said(self) -> None:
        """Close behind the last answer of a client that sends no more."""
        if self._has_said_all and not self._deaf and not self._owes_an_answer():
            self._close_after_answer(is_client_sending=False)

    def _take_plain(self, data: bytes) -> bytes:
        """Answer the plain requests at the beginning of ``data``; what is left is for httptools."""
        start, size, limits, until = 0, len(data), self.limits, perf_counter() + TURN_SECONDS
        while True:
            head = plain_heads.read(data, start, limits.header_bytes_max, limits.header_count_max)  # type: ignore[union-attr]
            if head is None or (limits.hosts is not None and not limits.hosts.allows(head.host)):
                break
            length = head.content_length
            body_at = start + head.size
            end = body_at + length
            try:
                target = self.fast_path.targets.get(head.key) or self.fast_path.resolve(head)
                if target is None:
                    break
                if end > size or length > target.body_bytes_max:
                    if not self._begin_plain(target, head, data, body_at):
                        break
                    return b""
            except Exception as error:  # noqa: BLE001 - its client is told, and the log
                self.fail_request(head, error)
                return b""
            self._message_number += 1
            body = data[body_at:end] if length < SLICED_BYTES_MIN else memoryview(data)[body_at:end]
            self._serve(target, head, body, perf_counter())
            if end == size:
                return b""
            start = end
            if self._deaf or self._ends or self.flow.write_paused or not self._is_between_requests():
                break
            if perf_counter() > until:
                self._give_way(data[start:])
                return b""
        return data[start:] if start else data

    def _begin_plain(self, target: ResolvedTarget, head: RequestHead, data: bytes, body_at: int) -> bool:
        """Take the body of a request of which not all is there; false leaves it, or one that is too long, alone."""
        length = head.content_length
        missing_bytes = body_at + length - len(data)
        if missing_bytes > 0 and length >= SINK_BYTES_MIN and self._begin_large(target, head, data, body_at):
            return True
        if length > target.body_bytes_max or missing_bytes <= 0:
            return False
        hold = self.fast_path.hold_body(length) if length > BODY_BYTES_ALWAYS_TAKEN else None
        if length > BODY_BYTES_ALWAYS_TAKEN and hold is None:
            return False
        self._message_number += 1
        self._begin_body(_Collected(target, head, missing_bytes, hold), data[body_at:])
        return True

    def _begin_body(self, collected: _Collected, piece: bytes) -> None:
        self._body = collected
        self._content_length = collected.head.content_length
        self._body_bytes = len(piece)
        self.url = collected.head.target
        collected.pieces.append(piece)
        self._stage = Stage.BODY
        self._waits_for = Waits.NOTHING
        self._set_deadline()

    # Large bodies

    def _begin_large(self, target: ResolvedTarget, head: RequestHead, data: bytes, body_at: int) -> bool:
        """Let a sink take the body, if it may: one for which there is no room is left to the application."""
        self._room = self.fast_path.hold_large(target, head.content_length)
        if self._room is None:
            return False
        self._message_number += 1
        self._begin_body(_Collected(target, head, 0, None), b"")
        begun = memoryview(data)[body_at:]
        self._body_bytes = len(begun)
        sink = BodySink(self, self.transport, self.buffers.take(head.content_length), begun)
        sink.stand_by()
        # A crowd of large bodies takes a millisecond of copying each.
        self.starts.take(self.loop, sink.start)
        return True

    @property
    def is_deaf(self) -> bool:
        """Nothing that comes in counts any more."""
        return self._deaf

    def body_grew(self, size_bytes: int) -> None:
        """Count bytes that a sink has taken."""
        self._body_bytes += size_bytes

    def body_filled(self, body: memoryview) -> None:
        """Answer the request whose whole body a sink has taken."""
        collected, self._body = self._body, None
        assert collected is not None
        self._stage = Stage.IDLE
        self._waits_for = Waits.NOTHING
        self._serve(collected.target, collected.head, body, collected.began)

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
        self._serve(collected.target, collected.head, b"".join(collected.pieces), collected.began)
        return data[missing_bytes:]

    # Answers

    def _serve(self, target: ResolvedTarget, head: RequestHead, body: bytes | memoryview, began: float) -> None:
        """Answer a request that is there whole, or let the application do it."""
        try:
            served = self.fast_path.serve(target, head, body, began, self)
        except Exception as error:  # noqa: BLE001 - its client is told, and the log
            self.fail_request(head, error)
            return
        if served is None:
            self._waits_for = Waits.NOTHING
            cycle = make_cycle(self, self._scope_of(head), body, keep_alive=not self._ends)
            self.cycle = cycle
            self._start_asgi_task(cycle, self.app)
            return
        call, outcome = served
        if not isinstance(outcome, PlainAnswer):
            self._begin(self._defer(call, outcome), outcome)
            return
        if not self._answer(call, outcome):
            return
        if self._room is not None:
            self._release_room()
        target.count(outcome.status, perf_counter() - began)
        self.server_state.total_requests += 1
        if self._ends:
            self._close_after_answer(is_client_sending=False)
            return
        # As ``_expect``: nothing but the time is new in most rows of requests.
        self._waits_for = _NEXT_REQUEST
        deadline = self._deadline = self.loop.time() + self.timeout_keep_alive
        if deadline < self._timer_at:
            self._look_at(deadline)

    def fail_request(self, head: RequestHead, error: Exception) -> None:
        """Answer a request that met a defect of ours on its way to its handler, and close; what is behind it is left.

        Only while nothing of an answer is out.
        """
        self._release_room()
        self.url = head.target
        self._refuse(failed_request(head, error))

    def _answer(self, call: PlainCall, answer: PlainAnswer) -> bool:
        """Send an answer; whether all of it is out, or with the transport. A deferred answer sends what is left."""
        if answer.parts:
            return self._send_parts(call, answer)
        self.write_answer(call, answer, keep_alive=not self._ends)
        return True

    def _defer(self, call: PlainCall, outcome: Outcome | None = None) -> DeferredAnswer:
        """Return the deferred answer of a call with this outcome, and let the connection wait for it."""
        # Whatever the time that an idle connection had left.
        self._waits_for = Waits.NOTHING
        in_crowd = isinstance(outcome, CrowdWait)
        deferred = CrowdMember(self, call, outcome) if in_crowd else DeferredAnswer(self, call)  # type: ignore[arg-type]
        deferred.keep_alive = not self._ends
        self.cycle = deferred  # type: ignore[assignment]
        self._active = deferred
        return deferred

    def _send_parts(self, call: PlainCall, answer: PlainAnswer) -> bool:
        """Send an answer with parts of files; whether the kernel has all. A deferred answer sends what is left."""
        parts = answer.parts
        part = parts[0]
        if (
            len(parts) > 1
            or isinstance(part, bytes)
            or self.transport.is_closing()
            or self.transport.get_write_buffer_size()
        ):
            self._defer(call).send_parts(answer)
            return False
        head = self.head_of(call, answer, keep_alive=not self._ends)
        sent_bytes = send_at_once(self.wire, self.transfers, self.unsent_bytes_max, head, part)
        if sent_bytes < len(head) + part.size_bytes:
            self._defer(call).send_rest(answer, head, sent_bytes)
            return False
        return True

    def _begin(
        self, deferred: DeferredAnswer, outcome: AnswerWait | CrowdWait | Coroutine[Any, Any, PlainAnswer] | Exception
    ) -> None:
        if isinstance(outcome, CrowdWait):
            assert isinstance(deferred, CrowdMember)
            deferred.join(is_impatient=self._has_said_all)
        elif isinstance(outcome, AnswerWait):
            deferred.wait(outcome)
        elif isinstance(outcome, Exception):
            deferred.fail(outcome)
        else:
            deferred.run(outcome)

    def head_of(self, call: PlainCall, answer: PlainAnswer, *, keep_alive: bool) -> bytes:
        """Return the whole head of an answer that is sent now."""
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

    def write_answer(self, call: PlainCall, answer: PlainAnswer, *, keep_alive: bool) -> None:
        """Write an answer that has no parts of files."""
        head = self.head_of(call, answer, keep_alive=keep_alive)
        if not self.transport.is_closing():
            self.transport.write(head + answer.body)

    def _log_access(self, call: PlainCall, answer: PlainAnswer) -> None:
        context = contextvars.copy_context()
        context.run(self.fast_path.enter, call)
        context.run(log_access, self.access_logger, self.client, call.head, answer.status)

    def end_deferred(self, deferred: DeferredAnswer) -> None:
        """Go on with the next request, because a deferred answer is complete."""
        self._answer_by = math.inf
        # It stays the connection's last one; the buffer of a large body is used again from now on.
        deferred.call.body = b""
        if self._active is deferred and not deferred.disconnected:
            self.on_response_complete()

    def run_late(self, deferred: DeferredAnswer, late: Exception | Late) -> None:
        """Let the application answer with ``late`` in place of the deferred answer."""
        self._answer_by = math.inf
        call = deferred.call
        scope = self._scope_of(call.head)
        cycle = make_cycle(self, scope, b"", keep_alive=deferred.keep_alive and not deferred.closes)
        cycle.disconnected = deferred.disconnected
        deferred.response_complete = True
        if self.cycle is deferred:  # type: ignore[comparison-overlap]
            self.cycle = cycle
        context = contextvars.copy_context()
        context.run(self.fast_path.resume, scope, call, late)
        if isinstance(late, Exception):
            context.run(self._start_asgi_task, cycle, self.app)
            return
        # As where a wait ends in the application: what wakes many has counted its turns.
        active = self._active = EdgeCycle.adopt(cycle, self)
        active.is_impatient = self._has_said_all
        context.run(self.run_again, active)

    def _scope_of(self, head: RequestHead) -> dict[str, Any]:
        scope = scope_of(self, head)
        scope["extensions"] = self.extensions
        return scope

    def wait_for_answer(self, deferred: DeferredAnswer, timeout_ms: int) -> None:  # noqa: ARG002 - it is the active one
        """Call ``deferred.expire`` when the time is up."""
        self._answer_by = self.loop.time() + timeout_ms / 1000
        if self._answer_by < self._timer_at:
            self._look_at(self._answer_by)

    def _answer_is_late(self) -> None:
        if isinstance(self._active, DeferredAnswer):
            self._active.expire()

    # Ends

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Answer the requests before the end first, if the client has taken the answers before them."""
        if self._body is not None:
            self._forget_collected()
            self._stage = Stage.IDLE
        return super().eof_received()

    def _owes_an_answer(self) -> bool:
        return bool(self._stash) or super()._owes_an_answer()

    def _is_our_turn(self) -> bool:
        return self.flow.read_paused if self._body is not None else super()._is_our_turn()

    def _refuse(self, problem: Any) -> None:
        if self._body is not None:
            # It has no cycle yet.
            self._forget_collected()
            self._stage = Stage.IDLE
        super()._refuse(problem)

    def _forget_collected(self) -> None:
        if self._body is not None and self._body.hold is not None:
            self._body.hold.release()
        self._body = None
        self._release_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all that is kept, because the connection is closed."""
        self._forget_collected()
        self._stash = b""
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Stop after the request whose body is on its way in, as after one that has a cycle."""
        if self._body is None:
            super().shutdown()
        else:
            self._ends = True
