"""Plain requests that wait together with others for one answer; see ``fast_path_interface.CrowdWait``."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from app.http.connection.deferred_answer import DeferredAnswer, DeferringConnection
from app.http.connection.fast_path_interface import CrowdWait, Late, PlainAnswer, PlainCall
from app.http.connection.parking import CLIENT_GONE_STATUS
from app.http.connection.response_cycle import CLIENT_LOOK_SECONDS
from app.http.transfer.send_queue import has_left


class CrowdMember(DeferredAnswer):
    """A call that waits in a crowd. What it waits in sets ``crowd`` and ``deadline``, and answers it once.

    Thread: the event loop.
    """

    __slots__ = ("_is_watched", "_wait_in", "crowd", "deadline")

    def __init__(self, connection: DeferringConnection, call: PlainCall, wait: CrowdWait) -> None:
        super().__init__(connection, call)
        self.crowd: Any = None
        self.deadline: Any = None
        self._wait_in = wait
        self._is_watched = False

    @property
    def connection(self) -> Any:
        """The connection that it waits on."""
        return self._connection

    def join(self, *, is_impatient: bool) -> None:
        """Begin to wait. A client that has closed its direction is answered soon, with the available records."""
        try:
            self._wait_in.join(self)
        except Exception as error:  # noqa: BLE001 - the application makes an answer of it
            self.fail(error)
            return
        if is_impatient:
            self.stop_waiting()

    def stop_waiting(self) -> None:
        """Answer soon with the available records."""
        self._wait_in.expire(self)

    def lose_client(self) -> None:
        """End the wait, because the connection is gone. The metrics count the request as the application would."""
        super().lose_client()
        if self._wait_in.leave(self):
            self.response_complete = True
            self.call.target.count(CLIENT_GONE_STATUS, perf_counter() - self.call.began)

    def watch_client(self) -> None:
        """Check at intervals whether the client has left, while nothing is read, because requests wait behind it."""
        if not self._is_watched:
            self._is_watched = True
            self._look_for_client()

    def _look_for_client(self) -> None:
        if self.crowd is None:
            return
        connection = self._connection
        if has_left(connection.transport):
            # As in ``EdgeCycle``: it may only have closed its direction. If it is gone, the answer shows it.
            self.stop_waiting()
        else:
            connection.loop.call_later(CLIENT_LOOK_SECONDS, self._look_for_client)

    def answer(self, answer: PlainAnswer) -> None:
        """Answer now, or when the client has taken what was sent before. The wait is over."""
        self._settle(lambda: answer)

    def resume(self, late: Late) -> None:
        """Let the application answer with ``late``, from the next turn on. The wait is over."""
        self._connection.run_late(self, late)
