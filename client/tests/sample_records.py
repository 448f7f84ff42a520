"""Records, batches and hand-built sections for tests."""

from __future__ import annotations

import random

from crc32c import crc32c
from hypothesis import strategies as st

from rollway.records import Record
from rollway.records.batch import BatchHeader, build_batch
from rollway.records.sections.varint import append_varlong

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

byte_strings = st.none() | st.binary(max_size=20) | st.integers(0, 300).map(bytes)
header_rows = st.lists(st.tuples(st.text(max_size=5), byte_strings), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**44) | st.integers(INT64_MIN, INT64_MAX)


@st.composite
def record_lists(draw: st.DrawFn, *, min_size: int = 1, max_size: int = 40) -> list[Record]:
    """Records with offsets from 0."""
    rows = draw(
        st.lists(st.tuples(timestamps, byte_strings, byte_strings, header_rows), min_size=min_size, max_size=max_size)
    )
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def random_records(seed: int, count: int | None = None, *, base_offset: int = 0) -> list[Record]:
    """Records of one of the shapes that come in real life: uniform or not, keys or none, headers or none."""
    random_ = random.Random(seed)
    count = random_.choice([1, 2, 30, 300, 1500]) if count is None else count
    uniform, keyed, headed = (random_.random() < 0.5 for _ in range(3))
    nullable = random_.random() < 0.3
    width = random_.choice([0, 1, 50, 63, 64, 100, 300])

    def value() -> bytes | None:
        if nullable and random_.random() < 0.2:
            return None
        if uniform:
            return random_.randbytes(width)
        return random_.randbytes(random_.randrange(9000 if random_.random() < 0.01 else 200))

    def headers() -> tuple[tuple[str, bytes | None], ...]:
        names = ["", "trace", "größe", "x" * 70]
        return tuple((random_.choice(names), value()) for _ in range(random_.choice([0, 1, 1, 2, 5]))) if headed else ()

    timestamp = random_.randrange(2**41)
    records = []
    for place in range(count):
        timestamp += random_.choice([0, 1, 1, 40, -20, 100_000])
        key = random_.randbytes(8 if uniform else random_.randrange(30)) if keyed else None
        records.append(Record(base_offset + place, timestamp, key, value(), headers()))
    return records


def varint(number: int) -> bytes:
    buffer = bytearray()
    append_varlong(buffer, number)
    return bytes(buffer)


def record_bytes(
    *,
    timestamp_delta: bytes = b"\x00",
    offset_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    tail: bytes = b"",
    length: bytes | None = None,
) -> bytes:
    """One record from its parts, each already encoded: key and value with their length in front; right by default."""
    body = b"\x00" + timestamp_delta + offset_delta + key + value + headers + tail
    return (varint(len(body)) if length is None else length) + body


def batch_bytes(section: bytes, record_count: int, *, attributes: int = 0, base_timestamp: int = 0) -> bytes:
    """A batch with a right CRC around any record section."""
    header = BatchHeader(
        0, 0, 0, 2, 0, attributes, max(record_count - 1, 0), base_timestamp, 0, -1, -1, -1, record_count
    )
    return build_batch(header, section)


def with_right_crc(batch: bytes | bytearray) -> bytes:
    """The same bytes with the CRC worked out again."""
    fixed = bytearray(batch)
    fixed[17:21] = crc32c(bytes(fixed[21:])).to_bytes(4, "big")
    return bytes(fixed)
