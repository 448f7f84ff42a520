"""Producing from a body of any length: NDJSON read as a stream, appended in batches, acknowledged line by line.

Lines are appended immediately while no append of this stream is in flight, so a slow client is acknowledged record by
record. During an append lines gather, so a fast client fills batches. Reading, appending and responding go on at the
same time: a client may read its acknowledgements while it sends, or after it has sent everything.

A proxy such as nginx sends no more of a body once the response begins. So the response to a body with a Content-Length
waits for the end of the body, or for a pause of the client, which may be waiting for its acknowledgements.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.engine.appending import AppendOptions
from app.engine.partitions import Partition
from app.event_loop.pools import INLINE_BYTES_MAX, call_in
from app.http.bodies.body import BODY_BYTES_ALWAYS_TAKEN
from app.media_types import NDJSON
from app.problems import kinds
from app.problems.engine import problem_for
from app.problems.problem import Problem
from app.produce.enlisting import submit_in_request
from app.produce.producing import (
    ProduceFailureDocument,
    batches_of,
    plain_batches_of,
    result_document,
    spread_records,
)
from app.produce.submit import Producing
from app.record_json.record_documents import encode_document
from app.record_json.translate import Encoding, ParsedRecords, parse_record_lines
from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import ValidBatch
from log_model.errors import ShuttingDownError, StorageError, let_go_of_frames

BATCH_BYTES = 512 * 1024
"""This many bytes of lines are appended together, even while earlier appends are in flight."""
IN_FLIGHT_MAX = 8
GATHERED_BYTES_MAX = 4 * BATCH_BYTES
LINE_BYTES_MIN = 1024 * 1024
BODY_PAUSE_SECONDS = 1.0
"""The pause after which the response to a client that announced the length of its body begins."""
UNREAD_BYTES_MAX = 8 * 1024 * 1024
"""The bytes of unread acknowledgements above which no more records are read."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    log: Partition
    outcome: asyncio.Task[AppendResult]


class _Unacknowledged:
    """The outcomes of the batches of a stream with ``acks=0``. Only the problem of a failed stream reports them."""

    def __init__(self) -> None:
        self._may_be_in_log = False
        self._has_failed = False
        self._record_count = 0

    def note(self, outcome: asyncio.Task[AppendResult]) -> None:
        """Count a batch in the order of the stream."""
        error = outcome.exception()
        if error is None:
            self._may_be_in_log = True
            self._record_count += 0 if self._has_failed else outcome.result().record_count
            return
        self._has_failed = True
        if not isinstance(error, Exception) or problem_for(error).applied == "unknown":
            self._may_be_in_log = True

    def tell(self, problem: Problem, *, is_one_partition: bool) -> None:
        """Note in ``problem`` that something was appended; in one partition also how many of the first lines."""
        if not self._may_be_in_log:
            return
        problem.applied = "unknown"
        if is_one_partition:
            problem.extra["acknowledged_lines"] = self._record_count


class _GatheredLines:
    """The bytes of a stream that are read and not yet appended. The search for a line end reads each byte once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._searched_bytes = 0

    def __len__(self) -> int:
        return len(self._bytes)

    def append(self, piece: bytes) -> None:
        """Add the next bytes of the body."""
        self._bytes += piece

    def first_line_end(self) -> int:
        """Return the position behind the first whole line; 0 if there is none."""
        found = self._bytes.find(b"\n", self._searched_bytes)
        self._searched_bytes = len(self._bytes) if found < 0 else found
        return found + 1

    def cut(self, *, is_last: bool, line_max: int) -> bytes:
        """Remove and return whole lines, about as many as make one batch. No bytes if no line is whole.

        With ``is_last`` the end of the body also ends a line.

        Raises:
            Problem: a line has more than ``line_max`` bytes.
        """
        gathered = self._bytes
        end = 0
        if len(gathered) <= BATCH_BYTES and is_last:
            end = len(gathered)
        elif self._searched_bytes < BATCH_BYTES:
            end = gathered.rfind(b"\n", self._searched_bytes, BATCH_BYTES) + 1
        if end == 0:
            end = self.first_line_end() or (len(gathered) if is_last else 0)
        if (end or len(gathered)) > line_max:
            raise Problem(kinds.REQUEST_TOO_LARGE, f"a line has more than {line_max} bytes")
        block = bytes(gathered[:end])
        del gathered[:end]
        self._searched_bytes = 0 if end else self._searched_bytes
        return block


class RecordStream:
    """The records of one request, appended to one partition, or with ``partition`` absent to any of the topic."""

    def __init__(
        self,
        producing: Producing,
        topic: str,
        partition: int | None,
        options: AppendOptions,
        encoding: Encoding,
        instance: str,
    ) -> None:
        self._producing = producing
        self._topic = topic
        self._partition = partition
        self._options = options
        self._encoding = encoding
        self._instance = instance
        self._holds_answer = False
        self._gathered = _GatheredLines()
        # The memory of the gathered lines, and that of decoding the body.
        self._hold = producing.body_budget.hold()
        self.window = producing.body_budget.hold()
        self._line_count = 0
        self._in_flight: deque[_InFlight] = deque()
        self._lines: deque[bytes] = deque()
        self._lines_bytes = 0
        self._lines_taken = asyncio.Event()
        self._progressed = asyncio.Event()
        self._problem: Problem | None = None
        self._problem_partition: int | None = None
        self._is_refusing = False
        self._is_finished = False
        self._is_first_submit = True
        self._expects_offset = options.expected_offset is not None
        self._unacknowledged = _Unacknowledged()
        self._acknowledged_count = 0

    def hold_answer(self) -> None:
        """Let the response wait for the end of the body, or for a pause of the client."""
        self._holds_answer = True

    async def run(self, body: AsyncIterator[bytes]) -> None:
        """Read and append until the body ends, an append is refused, or the service stops; then wait for the rest."""
        incoming: asyncio.Future[bytes] | None = asyncio.ensure_future(anext(body))
        stop = asyncio.ensure_future(self._producing.released.wait())
        try:
            while incoming is not None and not self._is_refusing:
                await self._wait_for(incoming, stop)
                if stop.done():
                    raise ShuttingDownError("the service is stopping")
                while incoming is not None and incoming.done() and self._takes_more():
                    incoming = self._take(incoming, body)
                    # The next piece may be there already, and so may the end of the body.
                    await asyncio.sleep(0)
                await self._append_ready(is_last=incoming is None)
        except (StorageError, Problem) as error:
            self._refuse(problem_for(error))
        finally:
            stop.cancel()
            if incoming is not None and not incoming.cancel() and not incoming.cancelled():
                incoming.exception()  # retrieved, so that asyncio does not log it: the body is not read on
            self._hold.release()
            self.window.release()
            # Drop the lines now: an error that still refers to the stream would keep their memory.
            self._gathered = _GatheredLines()
            await self._settle()

    def _takes_more(self) -> bool:
        """Return whether to read on: while few bytes are gathered, or until the first line is whole.

        Once the bodies hold all the memory they may have, each stream goes on with little memory.
        """
        gathered_bytes_max = BODY_BYTES_ALWAYS_TAKEN if self._is_budget_spent else GATHERED_BYTES_MAX
        return len(self._gathered) < gathered_bytes_max or not self._gathered.first_line_end()

    @property
    def _is_budget_spent(self) -> bool:
        budget = self._producing.body_budget
        return budget.held_bytes > budget.limit_bytes

    async def _wait_for(self, incoming: asyncio.Future[bytes], stop: asyncio.Future[Any]) -> None:
        """Wait for the next event that lets the stream go on. Take the acknowledgements that have come."""
        awaited: set[asyncio.Future[Any]] = {stop}
        taken: asyncio.Future[Any] | None = None
        if self._lines_bytes > UNREAD_BYTES_MAX:
            self._lines_taken.clear()
            taken = asyncio.ensure_future(self._lines_taken.wait())
            awaited.add(taken)
        elif self._takes_more() or not self._in_flight:
            awaited.add(incoming)
        if self._in_flight:
            awaited.add(self._in_flight[0].outcome)
        self._holds_answer = self._holds_answer and taken is None
        pause_seconds = BODY_PAUSE_SECONDS if self._holds_answer and incoming in awaited else None
        done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED, timeout=pause_seconds)
        if not done or taken is not None:
            self._holds_answer = False
            self._progressed.set()
        if taken is not None:
            taken.cancel()
        while self._in_flight and self._in_flight[0].outcome.done():
            self._acknowledge(self._in_flight.popleft())

    def _take(self, incoming: asyncio.Future[bytes], body: AsyncIterator[bytes]) -> asyncio.Future[bytes] | None:
        """Gather the piece that came. Return the future of the next piece, ``None`` at the end of the body.

        Raises:
            Problem: the rest of the body cannot be read.
        """
        try:
            self._gathered.append(incoming.result())
        except StopAsyncIteration as end:
            # This frame refers to ``incoming``, which refers to the error.
            let_go_of_frames(end)
            return None
        self._note_gathered()
        if self._is_budget_spent and len(self._gathered) > BODY_BYTES_ALWAYS_TAKEN:
            # Whole lines are appended next, which frees most of their memory.
            always_bytes = BATCH_BYTES if self._gathered.first_line_end() else BODY_BYTES_ALWAYS_TAKEN
            self._hold.grow(len(self._gathered), always_bytes=always_bytes)
        return asyncio.ensure_future(anext(body))

    async def _append_ready(self, *, is_last: bool) -> None:
        """Append gathered lines: all of them at the end of the body.

        Before the end, append full batches, and fewer bytes only while no append is in flight.
        """
        while self._gathered and not self._is_refusing:
            if len(self._in_flight) >= self._in_flight_max:
                if not is_last:
                    return
                await self._acknowledge_oldest()
                continue
            if self._in_flight and len(self._gathered) < BATCH_BYTES and not is_last:
                return
            block = self._gathered.cut(
                is_last=is_last, line_max=max(LINE_BYTES_MIN, self._producing.settings.request_body_bytes_max)
            )
            if not block:
                return
            self._note_gathered()
            await self._append(block)

    def _note_gathered(self) -> None:
        gathered_bytes = len(self._gathered)
        self._hold.resize(gathered_bytes if gathered_bytes > BODY_BYTES_ALWAYS_TAKEN else 0)

    async def _append(self, block: bytes) -> None:
        if self._partition is not None:
            log = await self._producing.engine.partition(self._topic, self._partition)
            batches = await plain_batches_of(self._producing, log, block, self._encoding, is_lines=True, together=False)
            if batches is not None:
                self._line_count += sum(batch.header.record_count for batch in batches)
                await self._submit(log, batches)
                return
        parsed = await self._parse(block, self._producing.engine.now_ms())
        for number, rows in (await self._spread(parsed)).items():
            log = await self._producing.engine.partition(self._topic, number)
            await self._submit(log, await batches_of(self._producing, log, parsed, rows, together=False))

    async def _parse(self, block: bytes, now_ms: int) -> ParsedRecords:
        parse = functools.partial(
            parse_record_lines,
            block,
            self._encoding,
            now_ms=now_ms,
            first_line=self._line_count,
        )
        pool = self._producing.pools.read
        if len(block) > BATCH_BYTES:
            # A long line: the memory for its records is counted, and the stream waits until there is enough.
            async with self._producing.rooms.request(pool) as work:
                parsed = await work.parse(block, parse)
        else:
            parsed = parse() if len(block) <= INLINE_BYTES_MAX else await call_in(pool, parse)
        self._line_count += len(parsed)
        return parsed

    async def _submit(self, log: Partition, batches: Sequence[ValidBatch]) -> None:
        """Submit each batch, as an append of its own."""
        for batch in batches:
            while len(self._in_flight) >= self._in_flight_max:
                await self._acknowledge_oldest()
            if self._is_refusing:
                return
            pending = submit_in_request(self._producing, log, [batch], self._next_options())
            outcome = asyncio.ensure_future(self._producing.outcome_of(pending, self._options))
            self._in_flight.append(_InFlight(log, outcome))

    async def _spread(self, parsed: ParsedRecords) -> dict[int, list[int] | None]:
        if not len(parsed):
            return {}
        if self._partition is not None:
            return {self._partition: None}
        online = self._producing.engine.topic(self._topic).online_partitions()
        return {**await spread_records(self._producing, self._topic, parsed, online, self._producing.sticky)}

    @property
    def _in_flight_max(self) -> int:
        """The most appends at the same time. An append with an expected offset runs alone."""
        return 1 if self._expects_offset else IN_FLIGHT_MAX

    async def _acknowledge_oldest(self) -> None:
        await asyncio.wait([self._in_flight[0].outcome])
        self._acknowledge(self._in_flight.popleft())

    def _next_options(self) -> AppendOptions:
        """Return the options of the next append. Only the first has the expected offset: the rest follows it."""
        options = self._options
        if not self._is_first_submit:
            options = replace(options, expected_offset=None)
        self._is_first_submit = False
        return options

    def _acknowledge(self, done: _InFlight) -> None:
        error = done.outcome.exception()
        self._expects_offset = False
        if self._options.acks == "0":
            self._unacknowledged.note(done.outcome)
            return
        if error is None:
            self._acknowledged_count += done.outcome.result().record_count
            self._put_line(encode_document(result_document(done.log, done.outcome.result())) + b"\n")
        else:
            problem = problem_for(error if isinstance(error, Exception) else RuntimeError(str(error)))
            if self._problem is None and not self._lines:
                self._refuse(problem, done.log.name.partition)
            else:
                self._is_refusing = True
                self._say_how_far(problem)
                self._put_line(self._error_line(done.log.name.partition, problem))

    def _say_how_far(self, problem: Problem) -> None:
        """Note in ``problem`` how many of the first lines were acknowledged before it, if there is one partition."""
        if self._acknowledged_count and self._partition is not None:
            problem.extra["acknowledged_lines"] = self._acknowledged_count

    def _put_line(self, line: bytes) -> None:
        self._lines.append(line)
        self._lines_bytes += len(line)
        self._progressed.set()

    def _refuse(self, problem: Problem, partition: int | None = None) -> None:
        """Read no more. The problem is the last line of the response, or the whole response if no line came before."""
        self._is_refusing = True
        if self._problem is None:
            self._problem = problem
            self._problem_partition = self._partition if partition is None else partition

    async def _settle(self) -> None:
        while self._in_flight:
            await self._acknowledge_oldest()
        if self._problem is not None and self._options.acks == "0":
            self._unacknowledged.tell(self._problem, is_one_partition=self._partition is not None)
        elif self._problem is not None:
            self._say_how_far(self._problem)
        self._is_finished = True
        self._progressed.set()

    async def first(self) -> Problem | None:
        """Wait until a line may be sent, or the stream has ended. Return the problem if no line came before it."""
        while (self._holds_answer or not self._lines) and not self._is_finished:
            await self._progressed.wait()
            self._progressed.clear()
        return None if self._lines else self._problem

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the acknowledgements as they come, then the problem that ended the stream, if there is one."""
        while self._lines or not self._is_finished:
            if not self._lines:
                await self._progressed.wait()
                self._progressed.clear()
                continue
            block = b"".join(self._lines)
            self._lines.clear()
            self._lines_bytes = 0
            self._lines_taken.set()
            yield block
        if self._problem is not None:
            yield self._error_line(self._problem_partition, self._problem)

    def _error_line(self, partition: int | None, problem: Problem) -> bytes:
        return encode_document(ProduceFailureDocument(partition, problem.document(self._instance))) + b"\n"


class AcknowledgementStream(Response):
    """The response: 200, and a line for each appended batch as it is acknowledged.

    Unlike Starlette's own streaming response it leaves ``receive`` alone: the body is still being read.
    """

    def __init__(self, stream: RecordStream, running: asyncio.Task[None]) -> None:
        super().__init__(media_type=NDJSON)
        self._stream = stream
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        headers = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for lines in self._stream.lines():
            await send({"type": "http.response.body", "body": lines, "more_body": True})
        await self._running
        await send({"type": "http.response.body", "body": b"", "more_body": False})
