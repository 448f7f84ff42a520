"""Message sets of magic 0 and 1 (spec A10, A11): round trips, wrappers, and whatever bytes."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.tests.sample_records import random_records, record_lists
from rollway.records import (
    BrokenBatchError,
    BrokenRecordError,
    Codec,
    DecompressedSizeError,
    Record,
    RecordFormatError,
    TimestampType,
    UnknownCodecError,
    UnsupportedMagicError,
    columns_from_records,
    decode_message_set,
    encode_message_set,
    records_from_columns,
    walk_entries,
)
from rollway.records.compression import compress
from rollway.records.message_sets.lz4_of_magic_0 import with_right_checksum, with_wrong_checksum

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
codecs = pytest.mark.parametrize("codec", CODECS)
magics = pytest.mark.parametrize("magic", [0, 1])


def message(
    value: bytes | None,
    *,
    key: bytes | None = None,
    offset: int = 0,
    magic: int = 0,
    attributes: int = 0,
    timestamp: int = 7,
    content: bytes | None = None,
) -> bytes:
    """One entry by hand, from the layout of spec A10; ``content`` replaces key and value with their lengths."""
    if content is None:
        content = b"".join(struct.pack(">i", -1) if d is None else struct.pack(">i", len(d)) + d for d in (key, value))
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic == 1 else b"") + content
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def rows(buffer: bytes) -> list[Record]:
    return [
        record
        for part in decode_message_set(buffer)
        for record in records_from_columns(part.columns, part.timestamp_type)
    ]


def without_headers(records: list[Record], magic: int) -> list[Record]:
    return [
        Record(record.offset, record.timestamp if magic else -1, record.key, record.value, ()) for record in records
    ]


def test_a10_a_message_of_magic_0_by_hand() -> None:
    """Spec A10: 12 bytes before the message, 14 of overhead in it; any bit from byte 16 on is under the CRC."""
    entry = message(b"value", key=b"k", offset=42)
    assert len(entry) == 12 + 14 + 6
    assert rows(entry) == [Record(42, -1, b"k", b"value")]
    assert encode_message_set(columns_from_records(rows(entry)), magic=0) == entry
    for bit in range(8 * 16, 8 * len(entry)):
        flipped = bytearray(entry)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RecordFormatError) as raised:
            list(decode_message_set(flipped))
        assert raised.value.kafka_code == (43 if bit // 8 == 16 and flipped[16] not in (0, 1) else 2)


def test_a10_a_message_of_magic_1_by_hand() -> None:
    entry = message(None, key=b"", offset=2**40, magic=1, timestamp=1372923600000)
    assert len(entry) == 12 + 22
    assert rows(entry) == [Record(2**40, 1372923600000, b"", None)]
    assert encode_message_set(columns_from_records(rows(entry)), magic=1) == entry


def test_a11_a_partial_last_message_ends_the_walk() -> None:
    whole, other = message(b"one"), message(b"another", offset=1)
    for cut in range(len(other)):
        assert [entry.size_bytes for entry in walk_entries(whole + other[:cut])] == [len(whole)]
        assert len(rows(whole + other[:cut])) == 1
    assert [entry[:2] for entry in walk_entries(whole + other)] == [(0, 0), (len(whole), 1)]


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a11_a_size_below_the_least_is_damage(size: int) -> None:
    broken = message(b"one") + struct.pack(">qi", 1, size) + bytes(20)
    with pytest.raises(BrokenBatchError, match="at byte 29"):
        list(walk_entries(broken))


@magics
@codecs
@given(data=st.data())
def test_records_come_back(magic: int, codec: Codec, data: st.DataObject) -> None:
    records = data.draw(record_lists())
    base = data.draw(st.integers(0, 2**62))
    records = [Record(base + r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]
    encoded = encode_message_set(columns_from_records(records), magic=magic, codec=codec)
    (part,) = decode_message_set(encoded)
    assert (part.magic, part.codec, part.timestamp_type) == (magic, codec, TimestampType.CREATE_TIME)
    assert records_from_columns(part.columns) == without_headers(records, magic)


@magics
@codecs
def test_gaps_in_offsets_stay(magic: int, codec: Codec) -> None:
    """As down-conversion of a compacted log needs."""
    records = [Record(offset, 5, b"k", b"v") for offset in (100, 103, 110)]
    encoded = encode_message_set(columns_from_records(records), magic=magic, codec=codec)
    assert [record.offset for record in rows(encoded)] == [100, 103, 110]
    if codec is not Codec.NONE:
        assert struct.unpack_from(">q", encoded) == (110,)


def test_v_21_wrappers() -> None:
    """A wrapper of magic 1 has the last absolute offset, its messages count from 0; with magic 0 they are absolute."""
    inner = b"".join(message(b"%d" % n, offset=n, magic=1) for n in range(5))
    wrapper = message(bytes(compress(Codec.GZIP, inner)), offset=9, magic=1, attributes=1)
    assert [record.offset for record in rows(wrapper)] == [5, 6, 7, 8, 9]
    inner = b"".join(message(b"%d" % n, offset=5 + n) for n in range(5))
    wrapper = message(bytes(compress(Codec.GZIP, inner)), offset=9, attributes=1)
    assert [record.offset for record in rows(wrapper)] == [5, 6, 7, 8, 9]
    inner = b"".join(message(b"%d" % n, offset=n, magic=1) for n in range(5))
    wrapper = message(bytes(compress(Codec.GZIP, inner)), offset=0, magic=1, attributes=1)
    assert [record.offset for record in rows(wrapper)] == [0, 1, 2, 3, 4]


@codecs
def test_log_append_time(codec: Codec) -> None:
    """Spec A10: plain messages carry it themselves; of a wrapper it is the wrapper's."""
    records = [Record(n, timestamp, None, b"v") for n, timestamp in enumerate((5, 9, 7))]
    columns = columns_from_records(records)
    encoded = encode_message_set(columns, magic=1, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
    expected = [5, 9, 7] if codec is Codec.NONE else [9, 9, 9]
    assert [(r.timestamp, r.timestamp_type) for r in rows(encoded)] == [
        (timestamp, TimestampType.LOG_APPEND_TIME) for timestamp in expected
    ]


def test_a_set_of_many_kinds_is_cut_into_parts_that_are_alike() -> None:
    inner = message(b"in", magic=1)
    content = b"".join(
        (
            message(b"a"),
            message(b"b", offset=1),
            message(b"c", offset=2, magic=1),
            message(b"d", offset=3, magic=1, attributes=8),
            message(bytes(compress(Codec.SNAPPY, inner)), offset=4, magic=1, attributes=2),
            message(bytes(compress(Codec.LZ4, inner)), offset=5, magic=1, attributes=3),
            message(b"e", offset=6),
        )
    )
    parts = list(decode_message_set(content))
    assert [(part.magic, part.codec, len(part), part.columns.offsets.tolist()) for part in parts] == [
        (0, Codec.NONE, 2, [0, 1]),
        (1, Codec.NONE, 1, [2]),
        (1, Codec.NONE, 1, [3]),
        (1, Codec.SNAPPY, 1, [4]),
        (1, Codec.LZ4, 1, [5]),
        (0, Codec.NONE, 1, [6]),
    ]
    assert list(decode_message_set(b"")) == []


def _wrapped(inner: bytes, *, codec: Codec = Codec.GZIP, magic: int = 1) -> bytes:
    return message(bytes(compress(codec, inner)), magic=magic, attributes=int(codec))


SHORT_OF_MAGIC_1 = struct.pack(">qiIbb", 0, 14, zlib.crc32(b"\1\0" + b"\xff" * 8), 1, 0) + b"\xff" * 8

BROKEN: dict[str, tuple[bytes, type[RecordFormatError]]] = {
    "magic 2": (message(b"v", magic=2), UnsupportedMagicError),
    "magic -1": (message(b"v", magic=-1), UnsupportedMagicError),
    "magic 1 without room for a timestamp": (SHORT_OF_MAGIC_1, BrokenRecordError),
    "zstd": (message(b"v", magic=1, attributes=4), UnknownCodecError),
    "codec 7": (message(b"v", attributes=7), UnknownCodecError),
    "key beyond the message": (message(b"", content=struct.pack(">i", 5) + b"abcd"), BrokenRecordError),
    "key of 2 GiB": (message(b"", content=struct.pack(">ii", 2**31 - 1, -1)), BrokenRecordError),
    "key length -2": (message(b"", content=struct.pack(">ii", -2, -1)), BrokenRecordError),
    "value beyond the message": (message(b"", content=struct.pack(">ii", -1, 3) + b"ab"), BrokenRecordError),
    "value length -2": (message(b"", content=struct.pack(">ii", -1, -2)), BrokenRecordError),
    "bytes left over": (message(b"", content=struct.pack(">ii", -1, -1) + b"x"), BrokenRecordError),
    "no value length": (message(b"", content=struct.pack(">i", 4) + bytes(4)), BrokenRecordError),
    "wrapper without value": (message(None, attributes=1), BrokenRecordError),
    "wrapper of nothing": (_wrapped(b""), BrokenRecordError),
    "wrapper of an empty value": (message(b"", attributes=1), BrokenBatchError),
    "wrapper of a wrapper": (_wrapped(_wrapped(message(b"v", magic=1))), BrokenRecordError),
    "inner message of another magic": (_wrapped(message(b"v", magic=0)), BrokenRecordError),
    "inner message with a wrong CRC": (_wrapped(message(b"v", magic=1)[:-1] + b"w"), BrokenBatchError),
    "partial inner message": (_wrapped(message(b"v", magic=1) + message(b"w", magic=1)[:-1]), BrokenBatchError),
    "a few inner bytes": (_wrapped(message(b"v", magic=1) + b"abc"), BrokenBatchError),
    "damaged gzip": (message(b"\x1f\x8b" + bytes(20), attributes=1), BrokenBatchError),
    "damaged snappy": (message(b"\xff" * 20, attributes=2), BrokenBatchError),
    "damaged lz4": (message(b"\xff" * 20, attributes=3), BrokenBatchError),
    "lz4 of magic 0 cut off": (message(b"\x04\x22\x4d\x18\x68\x40\x00", attributes=3), BrokenBatchError),
    "lz4 of magic 0 with a dictionary": (
        message(b"\x04\x22\x4d\x18\x61\x40" + bytes(9), attributes=3),
        BrokenBatchError,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_messages(name: str) -> None:
    content, error = BROKEN[name]
    for buffer in (content, message(b"before") + content):
        with pytest.raises(error) as raised:
            list(decode_message_set(buffer))
        assert type(raised.value) is error


def test_magic_0_takes_and_writes_the_wrong_lz4_checksum() -> None:
    columns = columns_from_records(random_records(3, 20))
    frames = {}
    for magic in (0, 1):
        encoded = encode_message_set(columns, magic=magic, codec=Codec.LZ4)
        frames[magic] = encoded[26 + 8 * magic :]
        assert len(rows(encoded)) == 20
    # The two frames differ in content, so their headers are compared by what the standard's reader says.
    assert with_right_checksum(frames[0]) != frames[0]
    assert with_right_checksum(frames[1]) == frames[1]
    assert with_wrong_checksum(with_right_checksum(frames[0])) == frames[0]
    # A writer of magic 0 that does it right is understood too.
    assert len(rows(message(with_right_checksum(frames[0]), attributes=3))) == 20


def test_decompression_stops_at_the_limit() -> None:
    """The limit is for all wrappers together, and memory goes with the limit, not with what would come out."""
    bomb = _wrapped(message(bytes(50_000_000), magic=1))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedSizeError):
            list(decode_message_set(bomb, decompressed_bytes_max=100_000))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    small = _wrapped(message(bytes(600), magic=1))
    assert len(list(decode_message_set(small, decompressed_bytes_max=1000))) == 1
    with pytest.raises(DecompressedSizeError):
        list(decode_message_set(small * 2, decompressed_bytes_max=1000))


def test_many_small_messages_take_little_memory() -> None:
    inner = message(None) * 100_000
    wrapper = _wrapped(inner, magic=0)
    tracemalloc.start()
    try:
        assert sum(map(len, decode_message_set(wrapper))) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 8 * len(inner)
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_an_error(content: bytes) -> None:
    with contextlib.suppress(RecordFormatError):
        list(decode_message_set(content, decompressed_bytes_max=10_000))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from(CODECS), st.sampled_from([0, 1]), st.data())
def test_damaged_messages_with_right_crcs_are_messages_or_an_error(
    seed: int, codec: Codec, magic: int, data: st.DataObject
) -> None:
    """Bytes changed before the wrapper is built, so that the reader gets past the CRCs."""
    source = random.Random(seed)
    inner = bytearray(encode_message_set(columns_from_records(random_records(seed, 5)), magic=magic))
    for _ in range(data.draw(st.integers(1, 4))):
        inner[source.randrange(len(inner))] = source.randrange(256)
    value = bytearray(compress(codec, bytes(inner)))
    if data.draw(st.booleans()):
        value[source.randrange(len(value))] ^= 1 << source.randrange(8)
    for buffer in (message(bytes(value), magic=magic, attributes=int(codec)), bytes(inner)):
        with contextlib.suppress(RecordFormatError):
            list(decode_message_set(buffer, decompressed_bytes_max=1_000_000))


def test_what_cannot_be_encoded() -> None:
    columns = columns_from_records([Record(0, 0, None, b"v")])
    for wrong in ({"magic": 2}, {"magic": 1, "codec": Codec.ZSTD}, {"magic": 1, "codec": Codec.GZIP, "level": 77}):
        with pytest.raises(ValueError, match=r"."):
            encode_message_set(columns, **wrong)  # type: ignore[arg-type]
    assert encode_message_set(columns_from_records([]), magic=1, codec=Codec.GZIP) == b""
