"""Records of a KRaft cluster's metadata log, written from Kafka's schemas without the code that reads them."""

from __future__ import annotations

import struct

from rollway.records import Record, columns_from_records, encode_batch

ORDERS_ID = bytes(range(16))
_NO_TAGS = b"\0"


def metadata_batch(base_offset: int, *records: bytes) -> bytes:
    """A batch of the log, at this offset."""
    rows = [Record(base_offset + place, 0, None, record) for place, record in enumerate(records)]
    return encode_batch(columns_from_records(rows), base_offset=base_offset)


def topic_record(name: str, topic_id: bytes = ORDERS_ID) -> bytes:
    return _framed(2, _text(name) + topic_id + _NO_TAGS)


def partition_record(number: int, topic_id: bytes = ORDERS_ID) -> bytes:
    """A partition on broker 1; the reader needs only what comes first."""
    replicas = b"\x02" + struct.pack(">i", 1)
    rest = replicas + replicas + b"\x01\x01" + struct.pack(">iii", 1, 0, 0) + _NO_TAGS
    return _framed(3, struct.pack(">i", number) + topic_id + rest)


def config_record(resource_name: str, name: str, value: str | None, *, resource: int = 2) -> bytes:
    """A setting of a topic (resource 2) or a broker (4); without a value it is deleted."""
    return _framed(4, struct.pack(">b", resource) + _text(resource_name) + _text(name) + _text(value) + _NO_TAGS)


def removed_topic_record(topic_id: bytes = ORDERS_ID) -> bytes:
    return _framed(9, topic_id + _NO_TAGS)


def other_record() -> bytes:
    """A record of a type that has nothing to do with topics: a feature level."""
    return _framed(12, _text("metadata.version") + struct.pack(">h", 25) + _NO_TAGS)


def _framed(kind: int, fields: bytes) -> bytes:
    return bytes([1, kind, 0]) + fields


def _text(text: str | None) -> bytes:
    """A compact string; these are short enough for a length of one byte."""
    if text is None:
        return b"\0"
    return bytes([len(text.encode()) + 1]) + text.encode()
