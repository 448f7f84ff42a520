"""Memory for decoding and parsing: it is counted before it is taken, and requests wait if there is not enough."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from app.event_loop.pools import INLINE_BYTES_MAX, call_in
from app.http.bodies.byte_budget import ByteBudget, Hold
from app.http.connection.parking import ClientGoneError
from app.problems import kinds
from app.problems.problem import Problem
from app.problems.request_context import Client, client
from app.record_json.decoding import DECOMPRESSED_BYTES_MAX, DecodingLimits, DecodingMeter, NeedsRoomError
from app.record_json.json_values import refuse_too_many

Result = TypeVar("Result")

SMALL_BATCH_BYTES = 8 * 1024 * 1024
SMALL_TEXT_BYTES = 16 * 1024 * 1024
SMALL_BYTES = 2 * SMALL_BATCH_BYTES + 2 * SMALL_TEXT_BYTES
"""The size of a small room: a batch while its pieces are joined, and the text of a response while it is built."""

TEXT_BYTES_MIN = 64 * 1024
"""The text that is decoded even if responses hold all their memory."""

WAITING_COUNT_MAX = 256
"""The most requests that wait for a large room. Further requests are refused with a later time to retry."""

_RETRY_AFTER_MS = 1_000
_FEWER = "send fewer records at a time, or a stream of NDJSON without an Idempotency-Key"


class _Waiter(NamedTuple):
    """A request that waits, and its client, if it is known."""

    size_bytes: int
    entered: asyncio.Future[None]
    client: Client | None

    @property
    def is_over(self) -> bool:
        return self.entered.done() or (self.client is not None and self.client.disconnected)

    @property
    def may_be_over(self) -> bool:
        return self.client is not None and self.client.is_impatient


class _Lane:
    """A part of the memory, first come, first served.

    One request may always enter, even if it takes more than the limit.

    Requests of clients that may be gone come last. Otherwise clients that give up and retry would have the service work
    on abandoned requests, and would wait longer for it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._waiting: deque[_Waiter] = deque()
        self._last: deque[_Waiter] = deque()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + len(self._last)

    def fits(self, size_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self.limit_bytes

    def add(self, waiter: _Waiter) -> None:
        self._waiting.append(waiter)

    def let_in(self) -> None:
        while (queue := self._next()) is not None and self.fits(queue[0].size_bytes):
            waiter = queue.popleft()
            self.held_bytes += waiter.size_bytes
            waiter.entered.set_result(None)

    def make_place(self, newcomer: Client | None, refusal: Problem) -> bool:
        """Return whether there is a place to wait, after dropping requests of clients that are gone.

        If there is none, a request of a client that may be gone gives up its place, unless the newcomer's may be gone
        as well.
        """
        for queue in (self._waiting, self._last):
            for _ in range(len(queue)):
                waiter = queue.popleft()
                if waiter.is_over:
                    _send_away(waiter, ClientGoneError())
                else:
                    (self._last if waiter.may_be_over else queue).append(waiter)
        if self.waiting_count < WAITING_COUNT_MAX:
            return True
        if not self._last or (newcomer is not None and newcomer.is_impatient):
            return False
        _send_away(self._last.pop(), refusal)
        return True

    def _next(self) -> deque[_Waiter] | None:
        """Return the queue whose first request is the next to enter; ``None`` if no request waits."""
        for queue in (self._waiting, self._last):
            while queue:
                waiter = queue[0]
                if waiter.is_over:
                    _send_away(queue.popleft(), ClientGoneError())
                elif waiter.may_be_over and queue is self._waiting:
                    self._last.append(queue.popleft())
                else:
                    return queue
        return None


def _send_away(waiter: _Waiter, error: Exception) -> None:
    if not waiter.entered.done():
        waiter.entered.set_exception(error)


class WorkRooms:
    """The memory for decoding stored batches for requests, and for parsing their bodies.

    Small work has two fifths of it and large work three fifths, so that neither waits for the other. Work of unknown
    size begins in a small room, and begins again in a large one if it does not fit.

    Thread: the event loop.
    """

    def __init__(self, limit_bytes: int, answers: ByteBudget) -> None:
        """Limit the memory to ``limit_bytes``. ``answers`` limits decoded responses that are not sent yet."""
        self.limit_bytes = limit_bytes
        self.peak_bytes = 0
        self.meter = DecodingMeter()
        self._answers = answers
        self._small = _Lane(limit_bytes * 2 // 5)
        self._large = _Lane(limit_bytes - self._small.limit_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes that are taken now."""
        return self._small.held_bytes + self._large.held_bytes

    @property
    def waiting_count(self) -> int:
        """Requests that wait for room."""
        return self._small.waiting_count + self._large.waiting_count

    @contextlib.asynccontextmanager
    async def room(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold room for work of this size, after waiting for it.

        Raises:
            ClientGoneError: the client went away while its request waited.
            Problem: 503, too many wait for a large room.
        """
        lane = self._small if size_bytes <= SMALL_BYTES else self._large
        if not lane.waiting_count and lane.fits(size_bytes):
            lane.held_bytes += size_bytes
        else:
            await self._wait(lane, size_bytes)
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        try:
            yield
        finally:
            lane.held_bytes -= size_bytes
            lane.let_in()

    @contextlib.asynccontextmanager
    async def request(self, pool: Executor) -> AsyncIterator[RequestWork]:
        """Hold the memory of one request until its response: the body, and the values parsed from it in ``pool``."""
        async with contextlib.AsyncExitStack() as stack:
            yield RequestWork(self, pool, stack)

    async def _wait(self, lane: _Lane, size_bytes: int) -> None:
        asked_by = client.get()
        if lane is self._large and lane.waiting_count >= WAITING_COUNT_MAX:
            detail = f"{WAITING_COUNT_MAX} requests wait for memory to decode or parse in already"
            refusal = Problem(kinds.OVERLOADED, detail, retry_after_ms=_RETRY_AFTER_MS)
            if not lane.make_place(asked_by, refusal):
                raise refusal
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.add(_Waiter(size_bytes, entered, asked_by))
        try:
            await entered
        except asyncio.CancelledError:
            if entered.done() and not entered.cancelled() and entered.exception() is None:
                lane.held_bytes -= size_bytes
            lane.let_in()
            raise

    async def decode(self, attempt: Callable[[DecodingLimits], Awaitable[Result]]) -> tuple[Result, Hold]:
        """Decode a response with ``attempt``, within the limits that it receives, and hold the memory for it.

        The hold counts the limit. The caller must ``settle`` it to the size of the response, and release it once the
        response is sent or dropped. ``attempt`` may be called twice: it raises ``NeedsRoomError`` if a small room was
        too small.

        Raises:
            Problem: 503, all responses together hold their limit, or too many wait.
        """
        limit_bytes = self._answers.limit_bytes
        text_bytes = min(max(TEXT_BYTES_MIN, self._answers.fair_share()), SMALL_TEXT_BYTES)
        first_bytes = min(SMALL_TEXT_BYTES, limit_bytes)
        limits = DecodingLimits(text_bytes, first_bytes, limit_bytes, SMALL_BATCH_BYTES, is_large=False)
        try:
            return await self._attempt(attempt, limits, SMALL_BYTES, text_bytes)
        except NeedsRoomError:
            pass
        text_bytes = max(TEXT_BYTES_MIN, min(self._answers.fair_share(), limit_bytes))
        limits = DecodingLimits(text_bytes, limit_bytes, limit_bytes, DECOMPRESSED_BYTES_MAX, is_large=True)
        # The batch while its pieces are joined or its records become columns, the text of its record, the response.
        return await self._attempt(attempt, limits, 3 * DECOMPRESSED_BYTES_MAX + 3 * limit_bytes, limit_bytes)

    async def _attempt(
        self,
        attempt: Callable[[DecodingLimits], Awaitable[Result]],
        limits: DecodingLimits,
        room_bytes: int,
        held_bytes: int,
    ) -> tuple[Result, Hold]:
        async with self.room(room_bytes):
            hold = self._answers.take(held_bytes, always_bytes=TEXT_BYTES_MIN)
            try:
                found = await attempt(limits)
            except BaseException:
                hold.release()
                raise
            finally:
                self._note(limits.meter)
            return found, hold

    def _note(self, meter: DecodingMeter) -> None:
        ours = self.meter
        ours.decompressed_bytes += meter.decompressed_bytes
        ours.record_count += meter.record_count
        ours.header_count += meter.header_count
        ours.text_bytes += meter.text_bytes
        ours.piece_text_bytes_max = max(ours.piece_text_bytes_max, meter.piece_text_bytes_max)


class RequestWork:
    """The memory of one request with a body."""

    def __init__(self, rooms: WorkRooms, pool: Executor, stack: contextlib.AsyncExitStack) -> None:
        self._rooms = rooms
        self._pool = pool
        self._stack = stack

    def hold(self, budget: ByteBudget) -> Hold:
        """Return a hold that is released with the request."""
        hold = budget.hold()
        self._stack.callback(hold.release)
        return hold

    async def parse(self, body: bytes | bytearray, parse: Callable[[], Result]) -> Result:
        """Parse a JSON ``body``: at once if it is small, otherwise in a thread, after waiting for room for its values.

        Raises:
            Problem: 413, it has too many values, which are counted before they are made; 503, too many wait.
        """
        if len(body) <= INLINE_BYTES_MAX:
            return parse()
        size_bytes = await call_in(self._pool, functools.partial(refuse_too_many, body, _FEWER))
        await self._stack.enter_async_context(self._rooms.room(size_bytes))
        return await call_in(self._pool, parse)
