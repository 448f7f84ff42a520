"""One request and its answer on a connection: uvicorn's cycle with files, time limits and problem documents."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar, Protocol, cast

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.event_loop.turns import Turns
from app.http.connection.parking import Parked, forget_routing
from app.http.transfer.file_transfer import FileTransfer, StalledError
from app.http.transfer.send_queue import has_left, taken_mark
from app.http.transfer.transfer_turns import TransferTurns
from app.http.transfer.unsent_parts import FileEndedError
from app.http.transfer.wire import Wire
from app.http.transfer.zero_copy import EXTENSION
from app.problems import kinds
from app.problems.problem import Problem, instance_of
from app.problems.request_context import CLIENT, CONTINUATION, may_change

ENDS_EARLY = "rollway.ends_early"
"""The entry of a scope that is true if the application itself reports why a body is not read to its end."""

CLIENT_LOOK_SECONDS = 1.0
"""The interval of checks whether the client of a waiting request is there, while nothing is read from it."""
TLS_PIECE_BYTES = 64 * 1024
"""Bytes of an answer that are written at a time under TLS.

A larger piece would be encrypted whole and handed to the transport below, which does not report that it is full.
"""


class Connection(Protocol):
    """The connection as its cycles use it."""

    stall_timeout_ms: int
    unsent_bytes_max: int
    bodies: ClassVar[Turns]
    transfers: ClassVar[TransferTurns]
    loop: asyncio.AbstractEventLoop

    @property
    def wire(self) -> Wire:
        """The socket of the connection."""

    @property
    def has_queued_requests(self) -> bool:
        """Whether pipelined requests wait for this one."""

    def keeps_unread_body(self) -> bool:
        """Return whether reading the rest of the body costs less than closing the connection."""

    def cut(self) -> None:
        """Drop the connection and all unsent bytes."""

    def run_again(self, cycle: EdgeCycle) -> None:
        """Run the application for a request whose wait is over."""


class EdgeCycle(RequestResponseCycle):
    """uvicorn's cycle with our rules. ``adopt`` turns one into the other, because uvicorn makes it deep inside.

    ``closes`` says that the connection ends after the answer. The connection closes itself, and the cycle does not:
    with a body that is still coming in, the kernel would reset the connection and lose the answer.
    """

    closes: bool
    is_impatient: bool
    _ends_with_the_connection: bool
    refusal: Problem | None
    parked: Parked | None
    _watched: Parked | None
    transfer: FileTransfer | None
    connection: Connection

    @classmethod
    def adopt(cls, cycle: RequestResponseCycle, connection: Connection) -> EdgeCycle:
        """Turn ``cycle``, which has not begun, into an ``EdgeCycle``, and return it."""
        cycle.__class__ = cls
        adopted = cast("EdgeCycle", cycle)
        adopted.closes = adopted.is_impatient = adopted._ends_with_the_connection = False  # noqa: SLF001 - its own
        adopted.refusal = None
        adopted.parked = adopted._watched = None  # noqa: SLF001
        adopted.transfer = None
        adopted.connection = connection
        return adopted

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application until it has answered or waits.

        If the shutdown cancels it, the client receives a problem document, or the connection is cut behind a begun
        answer.
        """
        failure: BaseException | None = None
        cast("dict[str, Any]", self.scope)[CLIENT] = self
        try:
            await app(self.scope, self.receive, self.send)
        except Parked as parked:
            self._park(parked)
            return
        except asyncio.CancelledError:
            if self.response_started:
                self.connection.cut()
                self.disconnected = True
            else:
                await self.send_problem(Problem(kinds.SHUTTING_DOWN_UNFINISHED, "the service is stopping"))
        except BaseException as error:  # noqa: BLE001 - raised again in ``ended``, for uvicorn
            failure = error

        async def ended(*_: object) -> None:
            if failure is not None:
                raise failure

        await super().run_asgi(ended)

    def _park(self, parked: Parked) -> None:
        # The traceback would keep the whole stack alive.
        self.parked = parked.with_traceback(None)
        parked.__context__ = None
        forget_routing(cast("dict[str, Any]", self.scope))
        if self.connection.has_queued_requests:
            self.watch_client()
        else:
            # So that a client that leaves is noticed.
            self.flow.resume_reading()
        parked.waiting.done.add_done_callback(self._go_on)
        if self.disconnected:
            parked.waiting.cancel()
        elif self.is_impatient:
            parked.waiting.expire()

    def stop_waiting(self) -> None:
        """Answer with the available records: now, or as soon as the request waits."""
        self.is_impatient = True
        if self.parked is not None:
            self.parked.waiting.expire()

    def watch_client(self) -> None:
        """Check at intervals whether the client has left, while the request waits and nothing is read."""
        if self.parked is not None and self._watched is not self.parked:
            self._watched = self.parked
            self._look_for_client(self.parked)

    def _look_for_client(self, parked: Parked) -> None:
        if self.parked is not parked or self.disconnected:
            return
        if has_left(self.transport):
            # The client may only have closed its direction. If it is gone, the first answer shows it.
            self.stop_waiting()
        else:
            asyncio.get_running_loop().call_later(CLIENT_LOOK_SECONDS, self._look_for_client, parked)

    def _go_on(self, _: object) -> None:
        parked, self.parked = self.parked, None
        cast("dict[str, Any]", self.scope)[CONTINUATION] = parked
        self.connection.run_again(self)

    def lose_client(self) -> None:
        """End all waits for the client or on its behalf, because the connection is gone."""
        self.disconnected = True
        self.message_event.set()
        if self.parked is not None:
            self.parked.waiting.cancel()
        if self.transfer is not None:
            self.transfer.abort()

    def ends_early(self) -> bool:
        """Return whether the application answers if the body is refused.

        Its answer may have begun, and it may have taken a part of the body.
        """
        return bool(cast("dict[str, Any]", self.scope).get(ENDS_EARLY))

    def refuse_body(self, problem: Problem) -> None:
        """Read no more of the body: ``receive`` raises ``problem`` from now on. The connection ends with the answer."""
        self.refusal = problem
        self.closes = True
        self.message_event.set()

    async def send_500_response(self) -> None:
        """Answer in place of an application that failed without an answer. uvicorn calls this."""
        is_write = may_change(cast("dict[str, Any]", self.scope))
        kind = kinds.INTERNAL_ERROR_OF_WRITE if is_write else kinds.INTERNAL_ERROR
        await self.send_problem(Problem(kind, "the service failed"))

    async def send_problem(self, problem: Problem) -> None:
        """Answer with ``problem`` and close the connection."""
        body = problem.body(instance_of(cast("dict[str, Any]", self.scope)))
        headers = {**problem.all_headers(), "Content-Length": str(len(body)), "Connection": "close"}
        await self.send(
            {
                "type": "http.response.start",
                "status": problem.status,
                "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
            }
        )
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    async def give_way(self) -> None:
        """Let other tasks run, also requests whose bodies come in at the same time."""
        await asyncio.sleep(0)
        await self.connection.bodies.enter()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next piece of the body, or the message that the client has left.

        Unlike uvicorn's, it resumes reading only if no pipelined request waits, so the waiting bytes are bounded.
        Requests that had to wait continue in turns, because pieces for hundreds of them may come at the same time.

        Raises:
            Problem: the connection refuses the rest of the body, and the application answers.
        """
        is_wanted = not self.disconnected and self.refusal is None
        if self.waiting_for_100_continue and is_wanted and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            if not self.connection.has_queued_requests:
                self.flow.resume_reading()
            if not self.message_event.is_set():
                await self.message_event.wait()
                await self.connection.bodies.enter()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        if self.refusal is not None:
            raise self.refusal
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer. A client that takes no byte for the stall timeout is cut off."""
        self._see_whether_lost()
        if self.flow.write_paused and not self.disconnected:
            await self._wait_for_writing()
        kind: str = message["type"]
        if kind == EXTENSION:
            await self._send_file(cast("dict[str, Any]", message))
            return
        begins = kind == "http.response.start" and not self.response_started
        if begins and self.scope["http_version"] == "1.0":
            self._end_with_the_connection(cast("dict[str, Any]", message))
        if self._ends_with_the_connection and not begins:
            self.expected_content_length = len(cast("dict[str, Any]", message).get("body", b""))
        if begins and self.more_body and (self.waiting_for_100_continue or not self.connection.keeps_unread_body()):
            self.keep_alive = False
        if self._is_tls and kind == "http.response.body":
            await self._send_pieces(message)
        else:
            await super().send(message)
        if self.flow.write_paused and not self.disconnected:
            # The sender may free its memory once the client has taken nearly all bytes.
            await self._wait_for_writing()
        if begins and not self.keep_alive:
            # The head announces the close. The connection closes itself when the answer is complete.
            self.closes, self.keep_alive = True, True

    def _end_with_the_connection(self, message: dict[str, Any]) -> None:
        """Let an answer without a length end with its connection, as HTTP/1.0 has no chunks (RFC 9112, 6.1)."""
        if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
            self._ends_with_the_connection, self.chunked_encoding = True, False

    @property
    def _is_tls(self) -> bool:
        return self.scope["scheme"] == "https"

    async def _send_pieces(self, message: ASGISendEvent) -> None:
        """Send a body in pieces, each one when the client has taken nearly all bytes before it."""
        whole = cast("dict[str, Any]", message)
        body, more_body = memoryview(whole.get("body", b"")), whole.get("more_body", False)
        while len(body) > TLS_PIECE_BYTES and not self.disconnected:
            piece: Any = {**whole, "body": bytes(body[:TLS_PIECE_BYTES]), "more_body": True}
            self._see_whether_lost()
            await super().send(piece)
            body = body[TLS_PIECE_BYTES:]
            if self.flow.write_paused and not self.disconnected:
                await self._wait_for_writing()
        last: Any = {**whole, "body": bytes(body), "more_body": more_body}
        self._see_whether_lost()
        await super().send(last)

    def _see_whether_lost(self) -> None:
        """Note a lost client early. The connection learns of it only some iterations of the loop later."""
        if self.transport.is_closing():
            self.disconnected = True

    async def _wait_for_writing(self) -> None:
        """Return when the transport takes more. A client that takes no byte for the stall timeout is cut off."""
        taken = taken_mark(self.transport, is_tls=self._is_tls)
        while True:
            try:
                async with asyncio.timeout(self.connection.stall_timeout_ms / 1000):
                    await self.flow.drain()
                return
            except TimeoutError:
                before, taken = taken, taken_mark(self.transport, is_tls=self._is_tls)
                if taken <= before:
                    self.disconnected = True
                    self.connection.cut()
                    return

    async def _send_file(self, message: dict[str, Any]) -> None:
        if self.disconnected:
            return
        if not self.response_started or self.response_complete:
            raise RuntimeError(f"Unexpected ASGI message {EXTENSION!r} outside of a response body.")
        file = message["file"]
        offset = message.get("offset")
        if offset is None:
            offset = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        count = message.get("count")
        if count is None:
            count = max(0, os.fstat(file.fileno()).st_size - offset)
        if self.scope["method"] != "HEAD":
            await self._transfer(file, offset, count)
        if not self.disconnected and not message.get("more_body", False):
            await super().send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _transfer(self, file: Any, offset: int, count: int) -> None:
        if not self.chunked_encoding:
            if count > self.expected_content_length:
                raise RuntimeError("Response content longer than Content-Length")
            self.expected_content_length -= count
        elif count:
            self.transport.write(b"%x\r\n" % count)
        connection = self.connection
        transfer = self.transfer = FileTransfer(
            connection.loop,
            self.transport,
            connection.wire,
            connection.transfers,
            connection.stall_timeout_ms,
            connection.unsent_bytes_max,
        )
        try:
            transfer.hold_small_writes()
            await self._until_written()
            if not self.disconnected:
                await transfer.send(file, offset, count)
        except ConnectionError:
            self._give_up()
        except StalledError:
            self.logger.info("a client took no byte for %d ms and was cut off", self.connection.stall_timeout_ms)
            transfer.reset()
            self._give_up()
        except FileEndedError:
            self.logger.error("a file ended before byte %d of an answer: connection cut", offset + count)
            self._give_up()
        except BaseException:
            self._give_up()
            raise
        finally:
            self.transfer = None
            transfer.close()
        if self.chunked_encoding and count and not self.disconnected:
            self.transport.write(b"\r\n")

    async def _until_written(self) -> None:
        """Wait until the transport has handed all bytes to the kernel: the bytes of the file come behind them."""
        # Most often it does so at the end of this iteration of the loop.
        await asyncio.sleep(0)
        if not self.transport.get_write_buffer_size():
            return
        self.transport.set_write_buffer_limits(high=0)
        try:
            while self.transport.get_write_buffer_size() and not self.disconnected:
                await (self._wait_for_writing() if self.flow.write_paused else asyncio.sleep(0))
        finally:
            if not self.transport.is_closing():
                self.transport.set_write_buffer_limits()

    def _give_up(self) -> None:
        self.disconnected = True
        self.connection.cut()
