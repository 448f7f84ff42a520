"""An HTTP proxy that loses answers, refuses requests as a busy service does, and says when which request passes.

It stands between Spark and a real service, so that a test can kill either at a request of its choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Self
from urllib.parse import urlsplit

START_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 120.0
_HEAD_BYTES_MAX = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CONTINUE = re.compile(rb"\r\nexpect: *100-continue", re.IGNORECASE)
# Of a record batch: everything before its producer id, that, the producer epoch and base sequence, the record count.
_BATCH = struct.Struct(">43xq6xi")


class Fault(Enum):
    """What happens to one request."""

    NONE = "none"
    LOST_ANSWER = "the service does it, its answer does not arrive"
    LOST_REQUEST = "the service never sees it"
    UNAVAILABLE = "503 from the proxy"
    THROTTLED = "429 from the proxy"
    DOWN = "there was no service"


class Shares(NamedTuple):
    """How many of all requests meet which fault."""

    lost_answers: float = 0.0
    unavailable: float = 0.0
    throttled: float = 0.0

    def draw(self, source: random.Random) -> Fault:
        """The fault of one request."""
        drawn = source.random()
        for share, fault in zip(self, (Fault.LOST_ANSWER, Fault.UNAVAILABLE, Fault.THROTTLED), strict=True):
            if drawn < share:
                return fault
            drawn -= share
        return Fault.NONE


LOSSY = Shares(lost_answers=0.15, unavailable=0.10, throttled=0.10)


class Passing(NamedTuple):
    """A request on its way; ``number`` counts from 1 since the last ``reset``."""

    number: int
    method: str
    path: str
    producer_id: int = -1
    rows: int = 0
    """Of the record batch in a request of ``rollway.spark`` to append one."""


@dataclass
class Trap:
    """Something that a test does at one request: the first that ``catches``.

    ``action`` runs in a thread of its own while the request is held: before it reaches the service, or when it was
    answered. ``fault`` is what happens to the request then.
    """

    catches: Callable[[Passing], bool]
    action: Callable[[], None]
    is_after: bool = False
    fault: Fault = Fault.NONE
    caught: Passing | None = None
    sprung: threading.Event = field(default_factory=threading.Event)
    """Set when the action is done."""
    status: int | None = None
    """The service's answer to the request, if it was asked."""
    _answered: threading.Event = field(default_factory=threading.Event)

    def note_answer(self, status: int | None) -> None:
        """The service was asked."""
        self.status = status
        self._answered.set()

    def wait_answered(self) -> None:
        """Return when the service was asked."""
        assert self._answered.wait(ANSWER_SECONDS_MAX)


def number_is(number: int) -> Callable[[Passing], bool]:
    """The request of this number."""
    return lambda passing: passing.number >= number


def path_ends(end: str) -> Callable[[Passing], bool]:
    """A POST to a path with this end."""
    return lambda passing: passing.method == "POST" and passing.path.endswith(end)


class LossyProxy:
    """Listens on a port of its own, in a thread of its own; see the module."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="lossy proxy")
        self._ready = threading.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._upstream: tuple[str, int] | None = None
        self._traps: list[Trap] = []
        self._lock = threading.Lock()
        self.shares = Shares()
        self.rule: Callable[[Passing], Fault | None] = _no_rule
        """A fault for each request of a kind; ``None``: as the shares say."""
        self.hold: Callable[[Passing, int], None] | None = None
        """Called in a thread of its own with a request and the status of its answer, which waits until it returns."""
        self.url = ""
        self.counts: dict[Fault, int] = {}
        self.passed: list[Passing] = []

    # From the test's thread

    def point_to(self, url: str | None) -> None:
        """Where the service is from now on; ``None``: connections are cut."""
        parts = urlsplit(url or "")
        self._upstream = (parts.hostname or "", parts.port or 80) if url else None

    def reset(self, shares: Shares | None = None) -> None:
        """Count from 1 again, without traps."""
        with self._lock:
            self.hold = None
            self._traps, self.passed, self.counts = [], [], dict.fromkeys(Fault, 0)
            self.shares = shares or Shares()
            self.rule = _no_rule

    def set_trap(self, trap: Trap) -> Trap:
        """Wait for a request."""
        with self._lock:
            self._traps.append(trap)
        return trap

    def __enter__(self) -> Self:
        self.reset()
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    # In its own

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            while await self._one_request(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            await _close(writer)

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass on one request and its answer; whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        if _CONTINUE.search(head):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _read_body(reader, head)
        method, path, _ = head.decode("latin-1").split(" ", 2)
        passing, fault, trap = self._note(method, path, body)
        if trap is not None and not trap.is_after:
            await self._spring(trap)
        answer = await self._answer(fault, trap, head + body)
        if trap is not None and trap.is_after:
            await self._spring(trap)
        if answer is None:
            return False
        if (hold := self.hold) is not None:
            await asyncio.to_thread(hold, passing, _status(answer))
        writer.write(answer)
        await writer.drain()
        return True

    def _note(self, method: str, target: str, body: bytes) -> tuple[Passing, Fault, Trap | None]:
        path = target.partition("?")[0]
        has_batch = path_ends("/record-batches")(Passing(0, method, path)) and len(body) >= _BATCH.size
        with self._lock:
            passing = Passing(len(self.passed) + 1, method, path, *(_BATCH.unpack_from(body) if has_batch else ()))
            self.passed.append(passing)
            trap = next((trap for trap in self._traps if trap.caught is None and trap.catches(passing)), None)
            if trap is not None:
                trap.caught = passing
                fault = trap.fault
            else:
                fault = self.rule(passing) or self.shares.draw(self._source)
            self.counts[fault] += 1
            return passing, fault, trap

    async def _spring(self, trap: Trap) -> None:
        try:
            await asyncio.to_thread(trap.action)
        finally:
            trap.sprung.set()

    async def _answer(self, fault: Fault, trap: Trap | None, request: bytes) -> bytes | None:
        """What the client is told; ``None``: its connection breaks."""
        match fault:
            case Fault.LOST_REQUEST:
                return None
            case Fault.UNAVAILABLE:
                return _refusal(503, "overloaded")
            case Fault.THROTTLED:
                return _refusal(429, "throttled")
        answer = await self._ask(request)
        if trap is not None:
            trap.note_answer(None if answer is None else _status(answer))
        if answer is None:
            self.counts[Fault.DOWN] += 1
        return None if fault is Fault.LOST_ANSWER else answer

    async def _ask(self, request: bytes) -> bytes | None:
        """The service's answer; ``None`` when there is no service, or it dies."""
        if self._upstream is None:
            return None
        try:
            reader, writer = await asyncio.open_connection(*self._upstream, limit=_HEAD_BYTES_MAX)
        except OSError:
            return None
        try:
            writer.write(request)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            is_bare = _status(head) in (204, 304) or request.startswith(b"HEAD ")
            return head if is_bare else head + await _read_body(reader, head)
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            await _close(writer)


def _no_rule(_: Passing) -> Fault | None:
    return None


def _status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    found = _LENGTH.search(head)
    if found:
        return await reader.readexactly(int(found[1]))
    if not _CHUNKED.search(head):
        return b""
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(line, 16) + 2)
        body += line + chunk
        if chunk == b"\r\n":
            return body


def _refusal(status: int, code: str) -> bytes:
    document = {
        "type": f"urn:rollway:problem:{code}",
        "title": code,
        "status": status,
        "detail": "the proxy says so",
        "code": code,
        "kafka_code": -1,
        "retryable": True,
        "applied": "no",
        "retry_after_ms": 10,
        "errors": [],
    }
    body = json.dumps(document).encode()
    head = (
        f"HTTP/1.1 {status} No\r\nContent-Type: application/problem+json\r\nRetry-After: 0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
