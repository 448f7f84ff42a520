"""Requests that may be sent again, beside equal ones that may not; fetches of committed records beside fetches of all.

Nothing waits for the disk. Each row has both of its loads on one service, in turns.
"""

from __future__ import annotations

import itertools
import secrets
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, overload

from crc32c import crc32c

from bench.closed_loop import Load
from bench.machine import choose_cores
from bench.requests import batch_of_bytes, get, post, post_head, records_path
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.scenes import Scene, fresh_topic, once_per_server
from rollway.records import HEADER_BYTES

BENCH = "retries"
OUTSTANDING = 16
BATCH_BYTES = 1024
WRITTEN, READ = "repeatable", "committed"
READ_BATCHES = 1024
PRODUCER_ID_MIN = 1_000_000_000
_PRODUCER = struct.Struct(">qhi")
_CHECKED_AT, _PRODUCER_AT = 21, 43

RESET = fresh_topic(WRITTEN, flush_policy="interval", segment_bytes=str(2**31 - 1))


class Made(Sequence[bytes]):
    """Requests that are made when they are sent, each another one; the number of its connection goes around."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __len__(self) -> int:
        return sys.maxsize // OUTSTANDING * OUTSTANDING

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        assert isinstance(index, int)
        return self._make(index % OUTSTANDING)


class Pair(NamedTuple):
    """A row: a load, and the same without what the row is about."""

    name: str
    load: Load
    beside: str
    without: Load
    bound: float
    writes: bool


def keyed_requests(body: bytes) -> Made:
    """Each has a key of its own."""
    head = post_head(records_path(WRITTEN), len(body)).removesuffix(b"\r\n")
    run, numbers = secrets.token_hex(8).encode(), itertools.count()

    def make(_: int) -> bytes:
        return b"%bIdempotency-Key: %b-%012d\r\n\r\n%b" % (head, run, next(numbers), body)

    return Made(make)


def producer_requests(body: bytes, records: int) -> Made:
    """Each connection has a producer, whose sequences go on."""
    head = post_head(records_path(WRITTEN), len(body))
    begun, checked, count = (
        body[: _CHECKED_AT - 4],
        body[_CHECKED_AT:_PRODUCER_AT],
        body[HEADER_BYTES - 4 : HEADER_BYTES],
    )
    stored = body[HEADER_BYTES:]
    first = PRODUCER_ID_MIN + secrets.randbelow(2**40) * OUTSTANDING
    sequences = [itertools.count(0, records) for _ in range(OUTSTANDING)]

    def make(connection: int) -> bytes:
        middle = checked + _PRODUCER.pack(first + connection, 0, next(sequences[connection])) + count
        return b"".join((head, begun, crc32c(stored, crc32c(middle)).to_bytes(4, "big"), middle, stored))

    return Made(make)


def pairs() -> list[Pair]:
    """Produces of one batch of 1 KiB, and fetches of one."""
    body, records = batch_of_bytes(BATCH_BYTES)
    path = records_path(WRITTEN)
    plain = Load([post(path, body)], OUTSTANDING)
    offsets = range(0, READ_BATCHES * records, records)
    fetch = [get(f"{records_path(READ)}?offset={offset}&max_bytes={BATCH_BYTES}") for offset in offsets]
    committed = [
        get(f"{records_path(READ)}?offset={offset}&max_bytes={BATCH_BYTES}&isolation=read_committed")
        for offset in offsets
    ]
    produce = "raw produce, 1 KiB"
    return [
        Pair(f"{produce}, fresh keys", Load(keyed_requests(body), OUTSTANDING), "without a key", plain, 0.4, True),
        Pair(
            f"{produce}, of producers",
            Load(producer_requests(body, records), OUTSTANDING),
            "without a producer",
            plain,
            0.7,
            True,
        ),
        Pair(f"{produce}, acks=1", Load([post(f"{path}?acks=1", body)], OUTSTANDING), "acks=all", plain, 0.9, True),
        Pair(
            "raw fetch, 1 KiB, read_committed",
            Load(committed, OUTSTANDING),
            "read_uncommitted",
            Load(fetch, OUTSTANDING),
            0.8,
            False,
        ),
    ]


@once_per_server
def fill(server: RollwayServer) -> None:
    """Make the topic that is read."""
    server.create_topic(READ, 1, flush_policy="interval")
    server.fill(READ, BATCH_BYTES, READ_BATCHES * BATCH_BYTES)


def rows_of(plan: Plan, bench: str, server: RollwayServer, chosen: Iterable[Pair], note: str = "") -> Iterator[Row]:
    """Rows: each load in turns with the one beside it, on the same service."""
    fill(server)
    for pair in chosen:
        scenes = [
            Scene(bench, name, "requests/s", load._replace(tls=server.tls), fill, RESET if pair.writes else None)
            for name, load in ((pair.name, pair.load), (pair.beside, pair.without))
        ]
        contestants = {scene.name: scene.measure(server) for scene in scenes}
        samples = in_turns(plan, f"{bench}, {pair.name}", contestants)
        yield row_of(
            bench,
            pair.name,
            "requests/s",
            samples[pair.name],
            limit=pair.beside,
            limits=samples[pair.beside],
            goal=Goal("ratio", ">=", pair.bound),
            note=note,
        )


def measure(plan: Plan) -> Iterator[Row]:
    """Rows over plain TCP."""
    with RollwayServer(plan.data_dir / BENCH, choose_cores().server) as server:
        yield from rows_of(plan, BENCH, server, pairs())
