"""A service under load that is killed every few seconds, and the history of what its clients saw."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx

from rollway.records import split_batches
from tests.histories.clients import (
    PATIENCE_SECONDS,
    RAW,
    TOPIC,
    Consumer,
    PlainProducer,
    Run,
    TransactionalProducer,
    records_path,
)
from tests.histories.clock_steps import SteppedClock
from tests.histories.history import FinalLog, History, Seen, StoredBatch
from tests.histories.holding_proxy import HoldingProxy
from tests.support.servers import ServerProcess, http_client

PARTITIONS = 6
PLAIN_FORMS = ("headers", "raw", "key", "raw")
TRANSACTIONAL = 4
CONSUMERS = 8
SEGMENT_BYTES = 200_000
FRUITLESS_READS_MAX = 50
KILL_SECONDS = (1.5, 4.0)
STEPS_BETWEEN_STOPS = 3


class Scenario:
    """One run: start, load, kill and start again until the time is over, read everything."""

    def __init__(
        self,
        data_dir: Path,
        *,
        seed: int,
        seconds: float,
        program: Sequence[str] = (),
        patience_seconds: float = PATIENCE_SECONDS,
        signals: Sequence[signal.Signals] = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM),
        clock: SteppedClock | None = None,
    ) -> None:
        """``program`` starts the service instead of ``rollway``, see ``ServerProcess``.

        ``clock`` is stepped several times between two stops; then ``program`` must start a service that has it.
        """
        self._data_dir = data_dir
        self._source = random.Random(seed)
        self._seconds = seconds
        self._program = program
        self._signals = signals
        self._patience_seconds = patience_seconds
        self._port = _free_port()
        self._clock = clock
        self.kill_count = 0
        self.late_ends: Counter[int] = Counter()
        """Requests to end a transaction that arrived late, by the status of the answer."""

    def run(self) -> History:
        """The history, with the final logs in it."""
        server = self._start()
        try:
            with http_client(server.url) as client:
                config = {"segment.bytes": SEGMENT_BYTES, "flush.policy": "group"}
                body = {"partitions": PARTITIONS, "config": config}
                assert client.put(f"/v1/topics/{TOPIC}", json=body).status_code == 201
            history, server = asyncio.run(self._load(server))
            with http_client(server.url) as client:
                for partition in range(PARTITIONS):
                    history.final[partition] = read_log(client, partition)
            assert server.stop() == 0, server.errors()
        finally:
            server.kill_if_alive()
        return history

    def _start(self) -> ServerProcess:
        return ServerProcess(self._data_dir, "--port", str(self._port), program=self._program).start()

    async def _load(self, server: ServerProcess) -> tuple[History, ServerProcess]:
        limits = httpx.Limits(max_connections=64)
        async with (
            HoldingProxy(self._source, self._port) as proxy,
            httpx.AsyncClient(base_url=server.url, limits=limits, timeout=30) as client,
            httpx.AsyncClient(base_url=proxy.url, limits=limits, timeout=30) as held,
        ):
            run = Run(client, History(), PARTITIONS, self._source, self._patience_seconds, held=held)
            plain = [PlainProducer(run, number, form, itertools.count()) for number, form in enumerate(PLAIN_FORMS)]
            transactional = [
                TransactionalProducer(run, len(plain) + number, itertools.count()) for number in range(TRANSACTIONAL)
            ]
            consumers = [
                Consumer(run, 100 + number, "read_committed" if number % 2 else "read_uncommitted")
                for number in range(CONSUMERS)
            ]
            load = asyncio.gather(*(run.note(each.run()) for each in [*plain, *transactional, *consumers]))
            server = await self._kill_again_and_again(run, server, load)
            run.over = True
            await load
            # What a producer left open would hide what comes after it from read_committed.
            await asyncio.gather(*(run.note(producer.begin_anew()) for producer in transactional))
            await proxy.release_all()
            self.late_ends = proxy.released
            await asyncio.gather(*(run.note(consumer.drain()) for consumer in consumers))
        return run.history, server

    async def _kill_again_and_again(
        self, run: Run, server: ServerProcess, load: asyncio.Future[list[None]]
    ) -> ServerProcess:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds
        while True:
            pause = min(self._source.uniform(*KILL_SECONDS), end - loop.time())
            if pause <= 0:
                return server
            # The load goes on meanwhile; it ends early only when a client gave up.
            steps = 1 if self._clock is None else STEPS_BETWEEN_STOPS
            for _ in range(steps):
                await asyncio.wait([load], timeout=pause / steps)
                if load.done():
                    return server
                if self._clock is not None:
                    self._clock.step()
            if not self._signals:
                continue
            server.signal(self._source.choice(self._signals))
            await asyncio.to_thread(server.wait)
            server = await asyncio.to_thread(self._start)
            self.kill_count += 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_log(client: httpx.Client, partition: int) -> FinalLog:
    """Everything in a partition: by both isolations, and batch by batch."""
    path = records_path(partition)
    seen: dict[str, list[Seen]] = {}
    for isolation in ("read_uncommitted", "read_committed"):
        seen[isolation] = []
        offset, end, fruitless = 0, 1, 0
        # A defective service may never show the end.
        while offset < end and fruitless < FRUITLESS_READS_MAX:
            answer = client.get(path, params={"offset": offset, "isolation": isolation, "max_bytes": 4_000_000})
            assert answer.is_success, answer.text
            document = answer.json()
            seen[isolation] += [Seen(record["offset"], record["value"]) for record in document["records"]]
            end = document["log_end_offset"]
            fruitless = fruitless + 1 if document["next_offset"] == offset else 0
            offset = document["next_offset"]
    batches = []
    offset = 0
    while offset < end:
        answer = client.get(path, params={"offset": offset, "max_bytes": 4_000_000}, headers={"Accept": RAW})
        assert answer.is_success, answer.text
        for batch in split_batches(answer.content):
            batch.check_crc()
            batches.append(StoredBatch(batch.header.base_offset, batch.header.next_offset, batch.header.is_control))
        offset = int(answer.headers["Next-Offset"])
    return FinalLog(0, end, seen["read_uncommitted"], seen["read_committed"], batches)
