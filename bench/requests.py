"""Requests as bytes, and the record batches in them."""

from __future__ import annotations

import time

import numpy as np

from rollway.records import HEADER_BYTES, BinaryColumn, RecordColumns, encode_batch

RAW = "application/vnd.kafka.record-batch.v2"
JSON = "application/json"
RECORD_BYTES = 100
_RECORD_FRAMING_BYTES_MAX = 12


def record_batch(count: int, value_bytes: int = RECORD_BYTES, last_value_bytes: int | None = None) -> bytes:
    """An uncompressed batch of ``count`` records without keys, with random values."""
    lengths = np.full(count, value_bytes, dtype=np.int64)
    if last_value_bytes is not None:
        lengths[-1] = last_value_bytes
    generator = np.random.default_rng(7)
    values = BinaryColumn.from_lengths(generator.bytes(int(lengths.sum())), lengths)
    timestamps = np.full(count, time.time_ns() // 1_000_000, dtype=np.int64)
    offsets = np.arange(count, dtype=np.int64)
    return bytes(encode_batch(RecordColumns(offsets, timestamps, BinaryColumn.all_null(count), values, None)))


def batch_of_bytes(size_bytes: int) -> tuple[bytes, int]:
    """A batch of exactly ``size_bytes``, of records of about 100 bytes; and how many they are."""
    count = max(1, (size_bytes - HEADER_BYTES) // (RECORD_BYTES + _RECORD_FRAMING_BYTES_MAX))
    last = RECORD_BYTES
    for _ in range(8):
        batch = record_batch(count, RECORD_BYTES, last)
        if len(batch) == size_bytes:
            return batch, count
        last += size_bytes - len(batch)
    raise AssertionError(f"no batch of exactly {size_bytes} bytes")


def get(path: str, accept: str = RAW) -> bytes:
    """A GET as a client writes it."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode("ascii")


def post_head(path: str, body_bytes: int, content_type: str = RAW) -> bytes:
    """The head of a POST whose body follows."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n\r\n"
    ).encode("ascii")


def post(path: str, body: bytes, content_type: str = RAW) -> bytes:
    return post_head(path, len(body), content_type) + body


def records_path(topic: str, partition: int = 0) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}/records"
