"""A connection between a client and a service that breaks at random: before, in the midst of, and after a request."""

from __future__ import annotations

import asyncio
import contextlib
import random
from enum import Enum
from typing import Self

PIECE_BYTES = 65_536


class Fault(Enum):
    """What happens to one connection."""

    NONE = "none"
    REFUSED = "cut before anything reached the service"
    CUT_REQUEST = "cut in the midst of the request"
    NO_ANSWER = "the request arrives, its answer does not"
    CUT_ANSWER = "cut in the midst of the answer"


class FaultProxy:
    """Listens on a port of its own and passes every connection on to where the service is now, or breaks it.

    While the service is down, ``port`` being ``None``, new connections wait.
    """

    def __init__(self, source: random.Random, fault_share: float) -> None:
        self._source = source
        self._fault_share = fault_share
        self._up = asyncio.Event()
        self._port: int | None = None
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()
        self.url = ""
        self.counts = dict.fromkeys(Fault, 0)

    def point_to(self, port: int | None) -> None:
        """Where the service is from now on."""
        self._port = port
        if port is None:
            self._up.clear()
        else:
            self._up.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        fault = self._draw()
        self.counts[fault] += 1
        try:
            if fault is not Fault.REFUSED:
                await self._pass_on(reader, writer, fault)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._running.discard(task)
            await _close(writer)

    def _draw(self) -> Fault:
        if self._source.random() >= self._fault_share:
            return Fault.NONE
        return self._source.choice([fault for fault in Fault if fault is not Fault.NONE])

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
        await self._up.wait()
        service_reader, service_writer = await asyncio.open_connection("127.0.0.1", self._port)
        request_max = self._source.randint(1, 3000) if fault is Fault.CUT_REQUEST else None
        answer_max = {Fault.NO_ANSWER: 0, Fault.CUT_ANSWER: self._source.randint(1, 400)}.get(fault)
        ways = [
            asyncio.ensure_future(_copy(reader, service_writer, request_max)),
            asyncio.ensure_future(_copy(service_reader, writer, answer_max)),
        ]
        try:
            # The client says when it has sent all by waiting, the service that it has answered by closing.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _close(service_writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int | None) -> None:
    """Pass on what comes until one side ends it, or ``bytes_max`` of it; of what is over, nothing."""
    left = bytes_max
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            if left is not None and len(piece) > left:
                writer.write(piece[:left])
                await writer.drain()
                return
            writer.write(piece)
            await writer.drain()
            if left is not None:
                left -= len(piece)
