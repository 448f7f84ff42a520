"""The mixed load of a soak: producers, fetchers and long polls at a fixed rate, and a probe of honest requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple, Self

from bench.machine import running_on
from bench.processes import Address, BenchError
from bench.requests import JSON, RAW, batch_of_bytes, record_batch, records_path
from bench.rollway_server import RollwayServer

RAW_TOPIC, JSON_TOPIC, POLLED_TOPIC, PROBED_TOPIC = "raw", "json", "polled", "probed"
RAW_PARTITIONS = 2
RAW_BATCH_BYTES = 64 * 1024
JSON_RECORDS = 200
LONG_POLLS = 20
PROBES_PER_SECOND = 50
NEWS_PER_SECOND = 4
# Of all bytes that move: so much goes in as raw batches and as JSON, and comes out again as it went in.
_RAW_SHARE, _JSON_SHARE = 0.42, 0.08
_FETCH_BYTES = 1024 * 1024
# Who reads in bulk waits for so much.
_BULK_BYTES = 256 * 1024
_TIMEOUT_SECONDS = 60


class Timed(NamedTuple):
    """One request: what it was, how long it took since it was due, and the bytes it moved."""

    kind: str
    seconds: float
    size_bytes: int


class Load:
    """Threads that keep a rate. ``taken`` gives what they did since it was last asked."""

    def __init__(self, server: RollwayServer, bytes_per_second: float) -> None:
        self._server = server
        self._done: queue.SimpleQueue[Timed] = queue.SimpleQueue()
        self._stop = threading.Event()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in self._works()]
        self._rate = bytes_per_second

    def _works(self) -> Iterator[Callable[[], None]]:
        for partition in range(RAW_PARTITIONS):
            yield lambda partition=partition: self._produce_raw(partition)  # type: ignore[misc]
            yield lambda partition=partition: self._fetch(  # type: ignore[misc]
                records_path(RAW_TOPIC, partition), RAW, "fetch raw", _BULK_BYTES
            )
        yield self._produce_json
        yield lambda: self._fetch(records_path(JSON_TOPIC), JSON, "fetch JSON", _BULK_BYTES // 4)
        yield self._tell_news
        for _ in range(LONG_POLLS):
            yield lambda: self._fetch(records_path(POLLED_TOPIC), JSON, "long poll")

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_SECONDS)

    def taken(self) -> list[Timed]:
        """Every request that has ended since the last call."""
        done = []
        with contextlib.suppress(queue.Empty):
            while True:
                done.append(self._done.get_nowait())
        return done

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, http.client.HTTPException, BenchError) as error:
            if not self._stop.is_set():
                self.failures.append(f"{type(error).__name__}: {error}")

    def _paced(self, per_second: float) -> Iterator[float]:
        """When each request is due; a client that is late sends at once, and its lateness counts."""
        due = time.perf_counter()
        while not self._stop.is_set():
            if (early := due - time.perf_counter()) > 0 and self._stop.wait(early):
                return
            yield due
            due += 1 / per_second

    def _produce_raw(self, partition: int) -> None:
        batch, _ = batch_of_bytes(RAW_BATCH_BYTES)
        rate = _RAW_SHARE * self._rate / RAW_PARTITIONS / len(batch)
        self._produce(records_path(RAW_TOPIC, partition), RAW, batch, rate, "produce raw")

    def _produce_json(self) -> None:
        values = [{"key": f"k{number}", "value": "v" * 80} for number in range(JSON_RECORDS)]
        body = json.dumps({"records": values}).encode()
        self._produce(records_path(JSON_TOPIC), JSON, body, _JSON_SHARE * self._rate / len(body), "produce JSON")

    def _tell_news(self) -> None:
        body = json.dumps({"records": [{"value": "news"}]}).encode()
        self._produce(records_path(POLLED_TOPIC), JSON, body, NEWS_PER_SECOND, "produce small")

    def _produce(self, path: str, media_type: str, body: bytes, per_second: float, kind: str) -> None:
        with contextlib.closing(_connect(self._server.address)) as connection:
            for due in self._paced(per_second):
                _ask(connection, "POST", path, body, {"Content-Type": media_type})
                self._done.put(Timed(kind, time.perf_counter() - due, len(body)))

    def _fetch(self, path: str, accept: str, kind: str, min_bytes: int = 1) -> None:
        place = "latest"
        with contextlib.closing(_connect(self._server.address)) as connection:
            while not self._stop.is_set():
                query = f"{path}?offset={place}&wait_ms=1000&min_bytes={min_bytes}&max_bytes={_FETCH_BYTES}"
                started = time.perf_counter()
                status, headers, size = _ask(connection, "GET", query, None, {"Accept": accept})
                # Below the log start: retention was quicker than this reader.
                place = headers["Next-Offset"] if status == 200 else "earliest"
                self._done.put(Timed(kind, time.perf_counter() - started, size))


def _connect(address: Address) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(*address, timeout=_TIMEOUT_SECONDS)


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, http.client.HTTPMessage, int]:
    """Status, headers and length of an answer.

    Raises:
        BenchError: it is an error other than 410.
    """
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status >= 300 and answer.status != 410:
        raise BenchError(f"{method} {path} was answered {answer.status}: {said[:200]!r}.")
    return answer.status, answer.headers, len(said)


def probe(address: Address, cores: frozenset[int], pipe: Connection) -> None:
    """Time small fetches and produces in turns, each from when it is due; a process of its own.

    Whenever ``pipe`` says something, the seconds since the last time are sent; ``None`` ends it.
    """
    small = record_batch(1)
    connection = _connect(address)
    path = records_path(PROBED_TOPIC)
    seconds: list[float] = []
    due, number = time.perf_counter(), 0
    with running_on(cores), contextlib.closing(connection):
        _ask(connection, "POST", path, small, {"Content-Type": RAW})
        while True:
            # Asked at least once, however late it is.
            while pipe.poll(max(0.0, due - time.perf_counter())):
                if pipe.recv() is None:
                    return
                pipe.send(seconds)
                seconds = []
            number += 1
            if number % 2:
                _ask(connection, "POST", path, small, {"Content-Type": RAW})
            else:
                _ask(connection, "GET", f"{path}?offset=latest", None, {"Accept": RAW})
            seconds.append(time.perf_counter() - due)
            due += 1 / PROBES_PER_SECOND
