"""Deadlines of a connection: the next thing that its client must send, and the end of clients that are late."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from typing import Any, ClassVar

from app.event_loop.turns import Turns
from app.http.connection.connection_limits import late_head, slow_body
from app.http.connection.peer_protocol import PeerProtocol
from app.http.connection.stages import Stage, Waits
from app.http.transfer.send_queue import taken_mark
from app.problems.problem import Problem


class TimedProtocol(PeerProtocol):
    """A connection with one timer for all its deadlines.

    The timer is not moved with each deadline. When it fires, it checks whether the deadline has come. Deadline and
    stage are attributes of the connection itself, because plain requests read and set them for each request.

    Thread: the event loop's.
    """

    late_clients: ClassVar[Turns]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The request that comes in.
        self._stage = Stage.IDLE
        self._message_number = 0
        self._body_bytes = self._body_bytes_at_check = 0
        self._waits_for = Waits.NOTHING
        self._waits_in_message = 0
        self._deadline = math.inf
        # The latest time of the answer that is being made. Only plain requests set it.
        self._answer_by = math.inf
        # The message, and the ``taken_mark`` of the client, of the last check.
        self._taken = (-1, 0)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._deaf:
            self._expect(Waits.HEAD, self.limits.header_timeout_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _expect(self, what: Waits, within_ms: float) -> None:
        """Wait for ``what``, which is late after ``within_ms``, and for nothing else of the client."""
        self._waits_for = what
        self._waits_in_message = self._message_number
        deadline = self._deadline = self.loop.time() + within_ms / 1000
        if deadline < self._timer_at:
            self._look_at(deadline)

    def _set_deadline(self) -> None:
        """Set the deadline of the part that is missing of the request that comes in."""
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

    def _close_after_answer(self, *, is_client_sending: bool) -> None:
        self._waits_for = Waits.NOTHING
        super()._close_after_answer(is_client_sending=is_client_sending)

    # The timer

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """Check which deadlines have come."""
        self._timer, self._timer_at = None, math.inf
        # A timer may fire this much before its time.
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

    def _answer_is_late(self) -> None:
        """Answer now, because ``_answer_by`` has come. Here no answer has a deadline."""

    # Late clients

    def _look_at_client(self) -> None:
        """End the wait if the client is still late. Bytes may have come while other connections took their turns."""
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
        """Return whether the client has taken bytes of its answer since the last check, or this check is the first."""
        taken = taken_mark(self.transport, is_tls=self.scheme == "https")
        asked_in_message, taken_before = self._taken
        self._taken = (self._message_number, taken)
        return asked_in_message != self._message_number or taken > taken_before

    def _head_is_late(self) -> None:
        if self._deaf:
            return
        if self.flow.read_paused:
            # The service does not read, so the client is not late.
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
        """Return whether the client waits for the service before it can send more."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    @abstractmethod
    def _refuse(self, problem: Problem) -> None:
        """Answer the request that is being parsed with ``problem``, in its turn, and close."""
