"""Streams whose clients go away in the middle of a line."""

from __future__ import annotations

import gc
import time

from app.produce.record_stream import RecordStream
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

LINE = b'{"value":"' + b"x" * 3_000_000


def streams() -> list[RecordStream]:
    return [found for found in gc.get_objects() if isinstance(found, RecordStream)]


def test_a_line_that_is_cut_off_takes_no_memory_afterwards(server: ThreadedServer, topic: str) -> None:
    """The error that ended the stream kept it in a circle, and the stream its line: 150 MB for 60 clients, until the
    garbage collector looked at the oldest generation, which it does after some hundred such requests."""
    head = (
        f"POST {topic}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    budget = server.service.parts.body_budget
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with Connection(server.port) as connection:
                connection.send(head.encode() + b"%x\r\n%b\r\n" % (len(LINE), LINE))
                deadline = time.monotonic() + 30
                while not any(len(stream._gathered) == len(LINE) for stream in streams()):
                    assert time.monotonic() < deadline
            while budget.held_bytes:
                assert time.monotonic() < deadline
        assert sum(len(stream._gathered) for stream in streams()) == 0
    finally:
        gc.enable()
