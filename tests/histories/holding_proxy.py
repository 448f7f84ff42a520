"""A proxy that holds requests back and releases them later, when their client has long gone on.

Of some requests it keeps a second copy, as a network that repeats. Others it keeps itself and breaks the connection, so
that the client sends them again and overtakes them. Each is released after a number of other requests: the end of a
transaction after a few of the same transactional id, so that it comes into the next transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

HEAD_BYTES_MAX = 1 << 16
ENDS_HELD = 0.5
"""Of the requests that end a transaction, how many are held back; of those that append, ``APPENDS_HELD``."""
APPENDS_HELD = 0.05
COPIED = 0.7
"""Of those that are held back, how many are copies."""
ENDS_PASSED_BY = (1, 4)
"""Requests of the same transactional id that pass before a request to end is released; for one to append any count,
``APPENDS_PASSED_BY``."""
APPENDS_PASSED_BY = (1, 40)
RELEASE_SECONDS_MAX = 30.0

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END = re.compile(rb"POST /v1/transactions/([^/ ]+)/(?:commit|abort) ")
_APPEND = re.compile(rb"POST (?:/v1/topics/[^? ]*/records|/v1/produce)[? ]")


@dataclass(slots=True)
class _Held:
    request: bytes
    subject: bytes
    """What requests have in them that count."""
    left: int
    """How many of them have to pass."""


class HoldingProxy:
    """Listens on a free port of loopback while it is entered. Thread: the event loop.

    A request for a producer is never held back: one that comes late is a newer instance, and shuts out the one at work.
    """

    def __init__(self, source: random.Random, port: int) -> None:
        """``port`` is where the service listens, whenever it runs."""
        self._source = source
        self._port = port
        self._held: list[_Held] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.released: Counter[int] = Counter()
        """Requests to end a transaction that came late, by the status of the answer."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def release_all(self) -> None:
        """Release whatever is held back, and return when it was answered. The service runs."""
        while self._held:
            await self._release(self._held.pop())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream = contextlib.AsyncExitStack()
        try:
            # A service that is not there, or goes away, breaks the connection of its client.
            async with upstream:
                service_reader, service_writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, limit=HEAD_BYTES_MAX
                )
                upstream.callback(service_writer.close)
                while True:
                    request = await _read_message(reader)
                    if self._hold_back(request):
                        return
                    service_writer.write(request)
                    writer.write(await _read_message(service_reader))
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _hold_back(self, request: bytes) -> bool:
        """Release what is due, and keep this request or a copy of it if it shall be; whether it goes no further."""
        for held in self._held:
            held.left -= held.subject in request
        due = [held for held in self._held if held.left <= 0]
        self._held = [held for held in self._held if held.left > 0]
        for held in due:
            self._spawn_release(held)
        end = _END.match(request)
        share = ENDS_HELD if end else APPENDS_HELD if _APPEND.match(request) else 0.0
        if self._source.random() >= share:
            return False
        passed_by = ENDS_PASSED_BY if end else APPENDS_PASSED_BY
        self._held.append(_Held(request, end[1] if end else b"", self._source.randint(*passed_by)))
        return self._source.random() >= COPIED

    def _spawn_release(self, held: _Held) -> None:
        task = asyncio.get_running_loop().create_task(self._release(held), name="a late request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, held: _Held) -> None:
        """Send what was held back, on a connection of its own; later if there is no service now."""
        answer = b""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=HEAD_BYTES_MAX)
                try:
                    writer.write(held.request)
                    answer = await _read_message(reader)
                finally:
                    writer.close()
        if not answer:
            self._held.append(replace(held, left=1))
        elif _END.match(held.request):
            self.released[int(answer.split(b" ", 2)[1])] += 1


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """One request or answer, with its body; none of them is chunked."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = _LENGTH.search(head)
    return head if found is None else head + await reader.readexactly(int(found[1]))
