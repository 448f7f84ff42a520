"""Batches of a segment as two parsers see them that are not the service's: ``struct``, and kafka-python."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import cramjam
import crc32c
import kafka.codec
import lz4.frame
import pytest
from kafka.record.memory_records import MemoryRecords

from rollway.records import Codec, Record, columns_from_records, encode_batch

_HEADER = struct.Struct(">qiibIhiqqqhii")
NOON_MS = 1_714_564_800_000


class Header(NamedTuple):
    """All fields of a batch's header."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Row(NamedTuple):
    """One record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class _Snappy:
    """kafka-python reads the xerial frames itself; only their blocks are left to a package."""

    decompress = staticmethod(lambda block: bytes(cramjam.snappy.decompress_raw(block)))


@pytest.fixture(autouse=True, scope="module")
def kafka_python_with_snappy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka.codec, "snappy", _Snappy)
        yield


def split(content: bytes) -> list[bytes]:
    """Cut a segment into batches by their lengths."""
    batches = []
    while content:
        (length,) = struct.unpack_from(">i", content, 8)
        assert len(content) >= length + 12
        batches.append(content[: length + 12])
        content = content[length + 12 :]
    return batches


def header_of(batch: bytes) -> Header:
    return Header(*_HEADER.unpack_from(batch))


def has_right_crc(batch: bytes) -> bool:
    return header_of(batch).crc == crc32c.crc32c(batch[21:])


def rows_of(content: bytes) -> list[Row]:
    """The records of batches, as kafka-python reads them."""
    return list(_rows(content))


def _rows(content: bytes) -> Iterator[Row]:
    stored = MemoryRecords(content)
    while (batch := stored.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            headers = tuple((name, value) for name, value in record.headers)
            yield Row(record.offset, record.timestamp, record.key, record.value, headers)


def with_crc(batch: bytes) -> bytes:
    return batch[:17] + struct.pack(">I", crc32c.crc32c(batch[21:])) + batch[21:]


def linked_lz4(batch: bytes) -> bytes:
    """The batch, uncompressed before, as an LZ4 frame of linked blocks: the default of many encoders."""
    records = lz4.frame.compress(batch[61:], block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    head = batch[:8] + struct.pack(">i", 49 + len(records)) + batch[12:21]
    (attributes,) = struct.unpack_from(">h", batch, 21)
    linked = with_crc(head + struct.pack(">h", attributes | Codec.LZ4) + batch[23:61] + records)
    assert not linked[65] & 0x20
    return linked


def batch(
    base_offset: int, count: int = 3, *, codec: Codec = Codec.NONE, value_bytes: int = 20, **fields: int
) -> bytes:
    """A batch with null keys and values, and headers; ``fields`` go to ``encode_batch``."""
    records = [
        Record(
            base_offset + number,
            NOON_MS + base_offset + number,
            None if number % 3 == 1 else b"key %d" % number,
            None if number % 4 == 3 else (b"value %d " % (base_offset + number)).ljust(value_bytes, b"."),
            (("name", b"content"), ("empty", None)) if number % 2 else (),
        )
        for number in range(count)
    ]
    return encode_batch(columns_from_records(records), base_offset=base_offset, codec=codec, **fields)
