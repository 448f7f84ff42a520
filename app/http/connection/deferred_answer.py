"""Plain requests whose answer is not there at once, and the same requests as the application sees them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, ClassVar, Protocol, cast
from urllib.parse import quote

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.protocols.utils import get_client_addr

from app.http.connection.fast_path_interface import (
    AnswerWait,
    Late,
    PlainAnswer,
    PlainCall,
    PlainDispatcher,
    RequestHead,
    headers_of,
)
from app.http.connection.response_cycle import Connection
from app.http.transfer.file_transfer import FileTransfer, StalledError
from app.http.transfer.unsent_parts import FileEndedError
from app.problems import kinds, request_context
from app.problems.engine import internal_error
from app.problems.problem import Problem

logger = logging.getLogger(__name__)


class DeferringConnection(Connection, Protocol):
    """The connection as its deferred answers use it."""

    transport: asyncio.Transport
    flow: Any
    tasks: Any
    fast_path: ClassVar[PlainDispatcher]

    def head_of(self, call: PlainCall, answer: PlainAnswer, *, keep_alive: bool) -> bytes:
        """Return the whole head of an answer that is sent now."""

    def write_answer(self, call: PlainCall, answer: PlainAnswer, *, keep_alive: bool) -> None:
        """Write an answer that has no parts of files."""

    def end_deferred(self, deferred: DeferredAnswer) -> None:
        """Go on with the next request, because the answer is complete."""

    def run_late(self, deferred: DeferredAnswer, late: Exception | Late) -> None:
        """Let the application answer with ``late`` instead."""

    def wait_for_answer(self, deferred: DeferredAnswer, timeout_ms: int) -> None:
        """Call ``deferred.expire`` after ``timeout_ms``, unless the answer is complete by then."""


class _NoEvent:
    """A placeholder for the event of a cycle: no task waits for the body of a plain request, which is complete."""

    def set(self) -> None:
        """Do nothing."""


_NO_EVENT = _NoEvent()


class DeferredAnswer:
    """A call whose answer is not there at once. It takes the place of a cycle, and uvicorn uses it as one.

    Thread: the event loop.
    """

    message_event = _NO_EVENT
    more_body = False
    waiting_for_100_continue = False

    __slots__ = (
        "_connection",
        "_running",
        "_wait",
        "body",
        "call",
        "closes",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
        "transfer",
    )

    def __init__(self, connection: DeferringConnection, call: PlainCall) -> None:
        self.call = call
        self.body = b""
        self.closes = False
        self.disconnected = False
        self.keep_alive = True
        self.response_started = False
        self.response_complete = False
        self.transfer: FileTransfer | None = None
        self._connection = connection
        self._wait: AnswerWait | None = None
        self._running: asyncio.Task[None] | None = None

    def wait(self, wait: AnswerWait) -> None:
        """Answer when ``wait`` is over."""
        self._wait = wait
        # At its stop, uvicorn waits for the members of this set and cancels them after its grace.
        self._connection.tasks.add(self)
        self._connection.wait_for_answer(self, wait.timeout_ms)
        wait.subscribe(self._done)

    def run(self, answering: Coroutine[Any, Any, PlainAnswer]) -> None:
        """Answer with what the coroutine returns, in a task whose log lines name the request."""
        context = contextvars.copy_context()
        context.run(self._connection.fast_path.enter, self.call)
        self._start(self._run(answering), context)

    def _start(self, work: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
        self._running = self._connection.loop.create_task(work, context=context)
        self._connection.tasks.add(self._running)
        self._running.add_done_callback(self._connection.tasks.discard)

    async def _run(self, answering: Coroutine[Any, Any, PlainAnswer]) -> None:
        try:
            answer = await answering
        except asyncio.CancelledError:
            self.fail(_stopping())
        except Exception as error:  # noqa: BLE001 - the application makes an answer of it
            self.fail(error)
        else:
            if self._connection.flow.write_paused and not self.disconnected:
                await self._until_taken()
            if answer.parts and not self.disconnected:
                self.send_parts(answer)
            else:
                self._finish(answer)

    def _done(self, _: object) -> None:
        wait = self._wait
        if wait is not None:
            self._settle(wait.answer)

    def expire(self) -> None:
        """Answer as the wait does when its time is up."""
        wait = self._wait
        if wait is not None:
            self._settle(wait.expired)

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - as a task's
        """End the wait or the transfer soon, because the service stops; return whether there was one."""
        if self.transfer is not None:
            self._connection.loop.call_soon(self._stop_transfer)
            return True
        if self._wait is None:
            return False
        # Not now, because the caller iterates over the set of all tasks.
        self._connection.loop.call_soon(self._give_up_waiting)
        return True

    def _stop_transfer(self) -> None:
        if self.transfer is not None:
            self.transfer.abort()

    def _give_up_waiting(self) -> None:
        if self._wait is not None:
            self._settle(_raise_stopping)

    def _settle(self, make: Callable[[], PlainAnswer | Coroutine[Any, Any, PlainAnswer]]) -> None:
        self._wait = None
        self._connection.tasks.discard(self)
        try:
            answer = make()
        except Exception as error:  # noqa: BLE001 - the application makes an answer of it
            self.fail(error)
            return
        if not isinstance(answer, PlainAnswer):
            self.run(answer)
        elif answer.parts or (self._connection.flow.write_paused and not self.disconnected):
            self.send_parts(answer)
        else:
            self._finish(answer)

    def fail(self, error: Exception) -> None:
        """Let the application answer ``error``. Behind a begun answer the connection is cut."""
        if self.response_started:
            self._connection.cut()
            self.disconnected = True
            return
        self._connection.run_late(self, error)

    def stop_waiting(self) -> None:
        """Do nothing: what it waits for is not there for its client alone."""

    def watch_client(self) -> None:
        """Do nothing: a begun request is carried out, also for a client that has left."""

    def lose_client(self) -> None:
        """End the transfer, because the connection is gone. A begun request is still carried out (invariant 8)."""
        self.disconnected = True
        if self.transfer is not None:
            self.transfer.abort()

    def _finish(self, answer: PlainAnswer) -> None:
        self.response_started = True
        self._connection.write_answer(self.call, answer, keep_alive=self.keep_alive and not self.closes)
        self._end(answer)

    # Files

    def send_parts(self, answer: PlainAnswer) -> None:
        """Send an answer with parts of files, at once if no bytes wait before it."""
        connection = self._connection
        if connection.transport.get_write_buffer_size():
            self._start(self._send(answer), contextvars.copy_context())
        elif self.transfer_parts(answer):
            self._end(answer)

    def send_rest(self, answer: PlainAnswer, head: bytes, sent_bytes: int) -> None:
        """Send the rest of an answer with one part, of which ``send_at_once`` has sent ``sent_bytes``."""
        if self.transfer_parts(answer, head, sent_bytes):
            self._end(answer)

    async def _send(self, answer: PlainAnswer) -> None:
        """Send an answer with parts when the transport has handed all bytes to the kernel: files come behind them."""
        transport = self._connection.transport
        transport.set_write_buffer_limits(high=0)
        try:
            while transport.get_write_buffer_size() and not self.disconnected:
                await (self._until_taken() if self._connection.flow.write_paused else asyncio.sleep(0))
        finally:
            if not transport.is_closing():
                transport.set_write_buffer_limits()
        if self.disconnected or self.transfer_parts(answer):
            self._end(answer)

    def transfer_parts(self, answer: PlainAnswer, head: bytes | None = None, sent_bytes: int = 0) -> bool:
        """Send an answer with parts, and return whether the kernel has all of it. If not, it ends itself later.

        ``head`` is given if ``sent_bytes`` of it and the first part are already sent.
        """
        self.response_started = True
        self.closes = not self.keep_alive
        connection = self._connection
        transfer = self.transfer = FileTransfer(
            connection.loop,
            connection.transport,
            connection.wire,
            connection.transfers,
            connection.stall_timeout_ms,
            connection.unsent_bytes_max,
        )
        if head is None:
            head = connection.head_of(self.call, answer, keep_alive=self.keep_alive)

        def ended(error: Exception | None) -> None:
            self._transferred(answer, error)

        if transfer.start((head, answer.body, *answer.parts), ended, sent_bytes):
            self.transfer = None
            return True
        # At its stop, uvicorn waits for the members of this set and cancels them after its grace.
        connection.tasks.add(self)
        return False

    def _transferred(self, answer: PlainAnswer, error: Exception | None) -> None:
        transfer, self.transfer = self.transfer, None
        self._connection.tasks.discard(self)
        if error is not None:
            if isinstance(error, StalledError) and transfer is not None:
                logger.info("a client took no byte for %d ms and was cut off", self._connection.stall_timeout_ms)
                transfer.reset()
            elif isinstance(error, FileEndedError):
                logger.error("a file ended before the end of an answer: connection cut")
            elif not isinstance(error, ConnectionError):
                logger.error("an answer could not be sent", exc_info=error)
            self._give_up()
        self._end(answer)

    def _end(self, answer: PlainAnswer) -> None:
        self.response_complete = True
        call = self.call
        call.target.count(answer.status, perf_counter() - call.began)
        self._connection.end_deferred(self)

    async def _until_taken(self) -> None:
        try:
            async with asyncio.timeout(self._connection.stall_timeout_ms / 1000):
                await self._connection.flow.drain()
        except TimeoutError:
            self._give_up()

    def _give_up(self) -> None:
        self.disconnected = True
        self._connection.cut()


def _stopping() -> Problem:
    return Problem(kinds.SHUTTING_DOWN_UNFINISHED, "the service is stopping", headers={"Connection": "close"})


def _raise_stopping() -> PlainAnswer:
    raise _stopping()


def failed_request(head: RequestHead, error: Exception) -> Problem:
    """Log a defect of ours that a request met before its handler or the application, and return the answer."""
    scope = {"method": head.method.decode("ascii"), "path": head.target.partition(b"?")[0].decode("ascii")}
    context = contextvars.copy_context()
    context.run(request_context.request_id.set, request_context.given_request_id(head.request_id))
    context.run(request_context.may_write.set, request_context.may_change(scope))
    return context.run(internal_error, error)


def log_access(logger: Any, client: tuple[str, int] | None, head: RequestHead, status: int) -> None:
    """Log a request with the line that uvicorn writes."""
    path, mark, query = head.target.decode("ascii").partition("?")
    scope: Any = {"client": client}
    logger.info(
        '%s - "%s %s HTTP/%s" %d',
        get_client_addr(scope),
        head.method.decode("ascii"),
        quote(path) + mark + query,
        "1.1",
        status,
    )


def scope_of(connection: Any, head: RequestHead) -> dict[str, Any]:
    """Return the scope that uvicorn would give to the application for a plain request."""
    path, _, query = head.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": connection.asgi_version, "spec_version": "2.3"},
        "http_version": "1.1",
        "server": connection.server,
        "client": connection.client,
        "scheme": connection.scheme,
        "root_path": connection.root_path,
        "headers": headers_of(head.raw),
        "state": connection.app_state.copy(),
        "method": head.method.decode("ascii"),
        "path": path.decode("ascii"),
        "raw_path": path,
        "query_string": query,
    }


def make_cycle(
    connection: Any, scope: dict[str, Any], body: bytes | memoryview, *, keep_alive: bool
) -> RequestResponseCycle:
    """Return the cycle of a request whose body is complete."""
    cycle = RequestResponseCycle(
        scope=cast("Any", scope),
        transport=connection.transport,
        flow=connection.flow,
        logger=connection.logger,
        access_logger=connection.access_logger,
        access_log=connection.access_log,
        default_headers=connection.server_state.default_headers,
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=connection.on_response_complete,
    )
    cycle.body = bytearray(body)
    cycle.more_body = False
    cycle.message_event.set()
    return cycle
