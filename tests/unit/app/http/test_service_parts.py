"""Small parts of the service: compression, ranges of values, partitioning, metrics."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.http.compression import AnswerCompression, chosen_encoding, encoded_etag, plain_etag
from app.http.value_range import ByteRange, requested_range
from app.metrics.metrics import Metrics
from app.problems.problem import Problem
from app.produce.partitioning import STICKY_BYTES, StickyPartitioner, rows_by_partition
from app.record_json.translate import ParsedRecords
from rollway.records import partition_for_key


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;q=0", None),
        ("*", "zstd"),
        ("*;q=0.1, zstd;q=0", "gzip"),
        ("GZIP", "gzip"),
        ("gzip;q=nonsense", None),
    ],
)
def test_the_encoding_the_client_likes_best(header: str, chosen: str | None) -> None:
    assert chosen_encoding(header) == chosen


def test_each_encoding_has_its_own_etag() -> None:
    assert encoded_etag('"a-1"', "gzip") == '"a-1;gzip"'
    assert plain_etag('"a-1;gzip"') == plain_etag('"a-1;zstd"') == plain_etag('"a-1"') == '"a-1"'


def answer_of(pieces: list[bytes], content_type: str = "application/json", **headers: str) -> list[dict[str, Any]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        all_headers = [(b"content-type", content_type.encode())]
        all_headers += [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": all_headers})
        for place, piece in enumerate(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": place < len(pieces) - 1})

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        scope = {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}
        with ThreadPoolExecutor(1) as pool:
            await AnswerCompression(app, pool)(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(run())
    return sent


def test_only_large_whole_json_is_compressed() -> None:
    for size in (5_000, 500_000):
        start, body = answer_of([b" " * size])
        assert (b"content-encoding", b"gzip") in start["headers"]
        assert (b"content-length", str(len(body["body"])).encode()) in start["headers"]
        assert len(body["body"]) < size / 5
    for sent in (
        answer_of([b" " * 100]),
        answer_of([b" " * 5000, b" " * 5000]),
        answer_of([b" " * 5000], "application/octet-stream"),
        answer_of([b" " * 5000], **{"content-encoding": "zstd"}),
    ):
        assert (b"content-encoding", b"gzip") not in sent[0]["headers"]
        assert b"".join(message["body"] for message in sent[1:]).strip() == b""


def test_ranges_of_bytes() -> None:
    assert requested_range("bytes=0-0", None, '"e"', 10) == ByteRange(0, 1)
    assert requested_range("bytes=-4", None, '"e"', 10) == ByteRange(6, 10)
    assert requested_range("bytes=2-", '"e"', '"e"', 10) == ByteRange(2, 10)
    assert requested_range("bytes=2-", '"other"', '"e"', 10) is None
    assert requested_range(None, None, '"e"', 10) is None
    for header, size in (("bytes=10-", 10), ("bytes=0-", 0), ("bytes=-5", 0), ("bytes=-0", 5)):
        with pytest.raises(Problem) as refused:
            requested_range(header, None, '"e"', size)
        assert refused.value.headers["Content-Range"] == f"bytes */{size}"


def records(*rows: tuple[bytes | None, int | None]) -> ParsedRecords:
    count = len(rows)
    return ParsedRecords([key for key, _ in rows], [b"v"] * count, [0] * count, None, [number for _, number in rows], 0)


def test_rows_go_by_partition_by_key_and_to_one_partition() -> None:
    sticky = StickyPartitioner(random.Random(7))
    parsed = records((b"a", None), (None, None), (b"a", 3), (b"", None), (None, None), (None, 9))
    spread = rows_by_partition(parsed, "t", 4, range(4), sticky)
    assert sorted(row for rows in spread.values() for row in rows) == list(range(6))
    assert list(spread) == sorted(spread)
    assert 0 in spread[partition_for_key(b"a", 4)]
    assert 3 in spread[partition_for_key(b"", 4)]
    assert 2 in spread[3]
    assert spread[9] == [5]
    assert any({1, 4} <= set(rows) for rows in spread.values())


def test_keyless_records_stick_and_then_move_and_avoid_offline_partitions() -> None:
    sticky = StickyPartitioner(random.Random(7))
    first = sticky.take("t", range(4), 10)
    assert {sticky.take("t", range(4), 10) for _ in range(20)} == {first}
    sticky.take("t", range(4), STICKY_BYTES)
    assert sticky.take("t", range(4), 10) != first
    online = [number for number in range(4) if number != first]
    assert sticky.take("t", online, STICKY_BYTES) in online
    assert sticky.take("t", [2], STICKY_BYTES) == 2
    assert sticky.take("t", [2], 1) == 2
    sticky.forget("t")
    assert sticky.take("t", [1], 1) == 1


def test_two_services_never_share_a_counter() -> None:
    one, other = Metrics(), Metrics()
    one.produced_records.inc(5)
    assert b"rollway_produced_records_total 5.0" in one.render()
    assert b"rollway_produced_records_total 0.0" in other.render()
    assert "rollway_produced_records" in {family.name for family in one.registry.collect()}
