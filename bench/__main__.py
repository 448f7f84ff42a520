"""``python -m bench``: how fast this machine produces and fetches over HTTP.

The client is Python too and shares the cores with the service, so figures are floors, and only those of one run on one
machine compare. Every produce waits for the fsync that covers it (acks=all, flush.policy=group).
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.table import Table

from demo.service import Service
from rollway.records import HEADER_BYTES, Record, columns_from_records, encode_batch

RAW = "application/vnd.kafka.record-batch.v2"
JSON = "application/json"
RECORD_BYTES = 100
RECORD_FRAMING_BYTES_MAX = 12
TOPIC = "bench"
RECORDS_PATH = f"/v1/topics/{TOPIC}/partitions/0/records"
MIB = 1024 * 1024


class Load(NamedTuple):
    """One request, repeated: what it sends, what it carries, and on how many connections at a time."""

    name: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None
    records: int
    connections: int


class Figures(NamedTuple):
    """What one load achieved."""

    requests_per_second: float
    bytes_per_second: float
    records_per_second: float
    median_ms: float
    slowest_percent_ms: float


class Worker(threading.Thread):
    """One connection that repeats a request until it is told to stop."""

    def __init__(self, address: tuple[str, int], load: Load, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(*address, timeout=60)
        self._load = load
        self._stop_asked = stop
        self.seconds: list[float] = []
        self.bytes_moved = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._once()
        except (OSError, http.client.HTTPException) as error:
            self.failure = str(error)
        finally:
            self._connection.close()

    def _once(self) -> None:
        started = time.perf_counter()
        self._connection.request(self._load.method, self._load.path, self._load.body, self._load.headers)
        answer = self._connection.getresponse()
        received = 0
        buffer = bytearray(MIB)
        while count := answer.readinto(buffer):
            received += count
        if answer.status >= 300:
            raise http.client.HTTPException(f"{self._load.name}: {answer.status} {bytes(buffer[:300])!r}")
        self.seconds.append(time.perf_counter() - started)
        self.bytes_moved += received if self._load.body is None else len(self._load.body)


def run_load(address: tuple[str, int], load: Load, seconds: float) -> Figures:
    """Repeat ``load`` for ``seconds`` and say what came of it.

    Raises:
        RuntimeError: a request failed.
    """
    stop = threading.Event()
    workers = [Worker(address, load, stop) for _ in range(load.connections)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    stop.wait(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    elapsed = time.perf_counter() - started
    for worker in workers:
        if worker.failure is not None:
            raise RuntimeError(worker.failure)
    latencies = sorted(latency for worker in workers for latency in worker.seconds)
    return Figures(
        requests_per_second=len(latencies) / elapsed,
        bytes_per_second=sum(worker.bytes_moved for worker in workers) / elapsed,
        records_per_second=len(latencies) * load.records / elapsed,
        median_ms=statistics.median(latencies) * 1000,
        slowest_percent_ms=latencies[int(len(latencies) * 0.99)] * 1000,
    )


def make_records(count: int) -> list[Record]:
    now_ms = time.time_ns() // 1_000_000
    return [
        Record(
            offset=number, timestamp=now_ms, key=None, value=os.urandom(RECORD_BYTES // 2).hex().encode(), headers=()
        )
        for number in range(count)
    ]


def raw_batch(size_bytes: int) -> tuple[bytes, int]:
    """A record batch of at most ``size_bytes``, and how many records it holds."""
    count = max(1, (size_bytes - HEADER_BYTES) // (RECORD_BYTES + RECORD_FRAMING_BYTES_MAX))
    return encode_batch(columns_from_records(make_records(count))), count


def produce_loads() -> Iterator[Load]:
    for size_bytes, connections in ((1024, 1), (1024, 16), (64 * 1024, 4), (MIB, 4)):
        body, count = raw_batch(size_bytes)
        name = f"produce raw, {len(body) / 1024:.0f} KiB"
        yield Load(name, "POST", RECORDS_PATH, {"Content-Type": RAW}, body, count, connections)
    values = [{"value": (record.value or b"").decode()} for record in make_records(500)]
    yield Load(
        "produce JSON, 500 records",
        "POST",
        RECORDS_PATH,
        {"Content-Type": JSON},
        json.dumps({"records": values}).encode(),
        500,
        4,
    )


def fetch_loads() -> Iterator[Load]:
    for size_bytes, connections in ((64 * 1024, 4), (MIB, 4), (8 * MIB, 4)):
        path = f"{RECORDS_PATH}?offset=earliest&max_bytes={size_bytes}"
        yield Load(f"fetch raw, {size_bytes // 1024} KiB", "GET", path, {"Accept": RAW}, None, 0, connections)
    path = f"{RECORDS_PATH}?offset=earliest&max_records=500"
    yield Load("fetch JSON, 500 records", "GET", path, {"Accept": JSON}, None, 500, 4)


@contextmanager
def running_service(parent: Path) -> Iterator[tuple[str, int]]:
    """A fresh service with one topic, on a directory that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="rollway-bench-", dir=parent) as directory:
        service = Service.start(Path(directory))
        try:
            parts = urlsplit(service.url)
            address = (parts.hostname or "127.0.0.1", parts.port or 80)
            connection = http.client.HTTPConnection(*address)
            connection.request("PUT", f"/v1/topics/{TOPIC}", b'{"partitions": 1}', {"Content-Type": JSON})
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()
            connection.close()
            yield address
        finally:
            service.kill()


def machine() -> str:
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    congestion = control.read_text().strip() if control.exists() else "unknown"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.release()}, TCP {congestion}"


def main(
    seconds: Annotated[float, typer.Option(help="How long each line is measured.", min=0.1)] = 3.0,
    data_dir: Annotated[
        Path, typer.Option(help="Where the service's data lie meanwhile: the disk that is measured.")
    ] = Path(),
) -> None:
    """Measure produce and fetch over HTTP."""
    table = Table(title=machine(), title_justify="left")
    for heading in ("what", "connections", "requests/s", "MB/s", "records/s", "median ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    with running_service(data_dir.resolve()) as address:
        for load in (*produce_loads(), *fetch_loads()):
            run_load(address, load, min(0.5, seconds))  # warms caches and the allocator
            figures = run_load(address, load, seconds)
            table.add_row(
                load.name,
                str(load.connections),
                f"{figures.requests_per_second:,.0f}",
                f"{figures.bytes_per_second / 1e6:,.1f}",
                f"{figures.records_per_second:,.0f}" if load.records else "",
                f"{figures.median_ms:.2f}",
                f"{figures.slowest_percent_ms:.2f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    application = typer.Typer(pretty_exceptions_enable=False)
    application.command()(main)
    application()
