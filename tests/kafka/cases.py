"""The produced batches of the differential run: one table, made from a seed.

A case is a series of produce requests to one partition, and is sent in order. Every producer id of the table belongs to
one case, so that cases may share a partition. A broker says what their answers must be.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import cramjam
import lz4.frame

from rollway.records import Codec, Record, columns_from_records, encode_batch
from rollway.records.compression import compress
from tests.cases.logs import START_MS, batch_of, framed, patched, raw_batch, raw_record, sized_batch, varint, with_crc

SEED = 20261127
JUDGE = Path(__file__).parents[1] / "failures/inputs/kafka-judge"
LONG_MAX = 2**63 - 1
SMALL_BATCH_BYTES = 1_000
SEGMENT_BYTES = 1 << 20
"""The least that Kafka 4 allows."""

TOPICS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": SMALL_BATCH_BYTES},
    "segments": {"segment.bytes": SEGMENT_BYTES, "max.message.bytes": 2 * SEGMENT_BYTES},
    "far": {},
    "recent": {"message.timestamp.before.max.ms": 3_600_000},
    "past": {"message.timestamp.after.max.ms": 3_600_000},
    **{f"to-{name}": {"compression.type": name} for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd")},
}
"""The settings of each topic of the table, beside those of ``SETTINGS``."""

SETTINGS: Mapping[str, object] = {
    "retention.ms": -1,
    "retention.bytes": -1,
    # Its default is another one in Kafka 3.
    "message.timestamp.after.max.ms": LONG_MAX,
    "index.interval.bytes": 512,
    "segment.index.bytes": 65_536,
}

_CODECS = tuple(Codec)
_COMPRESSED = _CODECS[1:]
_TIMES_AT, _MAX_TIME_AT, _PRODUCER_AT, _SEQUENCE_AT, _COUNT_AT = 27, 35, 43, 53, 57


class Case(NamedTuple):
    """Produce requests to one partition of one topic, each with the bytes of its records."""

    name: str
    topic: str
    bodies: tuple[bytes, ...]


def all_cases(seed: int = SEED) -> list[Case]:
    """Return the whole table; names are unique."""
    parts: tuple[Callable[[random.Random], Iterator[Case]], ...] = (
        _records,
        _recompressed,
        _timestamps,
        _header_fields,
        _record_fields,
        _compressed_streams,
        _counts,
        _bodies,
        _sizes,
        _sequences,
        _outside_transactions,
        _compacted,
        _judged,
        _drawn,
    )
    cases = [case for number, part in enumerate(parts) for case in part(random.Random(seed + number))]
    names = {case.name for case in cases}
    assert len(names) == len(cases), "two cases have one name"
    return cases


def _plain(name: str, *bodies: bytes) -> Case:
    return Case(name, "plain", bodies)


# Legal batches


def _shapes(draw: random.Random) -> dict[str, list[Record]]:
    """Lists of records of every shape that a client sends."""
    headers = (
        ("name", b"value"),
        ("name", b"again"),
        ("empty", b""),
        ("none", None),
        ("", b"no name"),
        ("né", b"\xff"),
    )
    values = [draw.randbytes(draw.randrange(1, 200)) for _ in range(40)]
    return {
        "one": [Record(0, START_MS, b"k", b"v")],
        "many": [Record(place, START_MS + place, b"k%d" % place, value) for place, value in enumerate(values)],
        "null key": [Record(0, START_MS, None, b"v"), Record(1, START_MS, b"", b"v")],
        "null value": [
            Record(0, START_MS, b"k", None),
            Record(1, START_MS, b"k", b""),
            Record(2, START_MS, None, None),
        ],
        "headers": [Record(0, START_MS, b"k", b"v", headers), Record(1, START_MS, b"k", b"v", headers[:1])],
        "1000 headers": [Record(0, START_MS, b"k", b"v", tuple((f"h{place}", b"v") for place in range(1_000)))],
        "large": [Record(0, START_MS, b"k", draw.randbytes(60_000)), Record(1, START_MS, b"k", b"v" * 90_000)],
        "times fall": [Record(place, START_MS - 1_000 * place, b"k", b"v") for place in range(5)],
    }


def _encoded(records: list[Record], codec: Codec, **fields: int) -> bytes:
    return encode_batch(columns_from_records(records), codec=codec, **fields)


def _records(draw: random.Random) -> Iterator[Case]:
    for shape, records in _shapes(draw).items():
        for codec in _CODECS:
            yield _plain(f"records: {shape}, {codec.name.lower()}", _encoded(records, codec))


def _recompressed(draw: random.Random) -> Iterator[Case]:
    records = _shapes(draw)["many"]
    for topic in (name for name in TOPICS if name.startswith("to-")):
        for codec in _CODECS:
            yield Case(f"recompressed: {codec.name.lower()} {topic}", topic, (_encoded(records, codec),))


def _drawn(draw: random.Random) -> Iterator[Case]:
    for number in range(20):
        count = draw.randrange(1, 60)
        records = [
            Record(
                place,
                START_MS + draw.randrange(-10_000, 10_000),
                draw.choice([None, b"", draw.randbytes(draw.randrange(20))]),
                draw.choice([None, b"", draw.randbytes(draw.randrange(300)), b"text " * draw.randrange(80)]),
                tuple((f"h{draw.randrange(3)}", draw.choice([None, b"v"])) for _ in range(draw.randrange(3))),
            )
            for place in range(count)
        ]
        codec = draw.choice(_CODECS)
        yield _plain(f"drawn: {number}", _encoded(records, codec))


# Timestamps


def _claiming(timestamps: list[int], codec: Codec = Codec.NONE, max_timestamp: int | None = None) -> bytes:
    """A batch that has the flag of LogAppendTime."""
    newest = max(timestamps) if max_timestamp is None else max_timestamp
    return patched(patched(batch_of(timestamps=timestamps, codec=codec), 21, ">h", 0x08 | codec), 35, ">q", newest)


def _timestamps(draw: random.Random) -> Iterator[Case]:
    flagged = [START_MS, START_MS - 7, START_MS + 3]
    for topic in ("plain", "stamped", "to-gzip"):
        for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
            yield Case(f"log append time flag: {topic}, {codec.name.lower()}", topic, (_claiming(flagged, codec),))
        yield Case(f"log append time flag: {topic}, no time", topic, (_claiming([-1, -1]),))
        yield Case(f"log append time flag: {topic}, maximum -1", topic, (_claiming(flagged, max_timestamp=-1),))
    yield _plain("log append time flag: maximum too large", _claiming(flagged, max_timestamp=START_MS + 99))
    for codec in (Codec.NONE, Codec.LZ4):
        name = codec.name.lower()
        yield Case(f"stamped: times, {name}", "stamped", (batch_of(timestamps=flagged, codec=codec),))
        yield Case(f"stamped: no time, {name}", "stamped", (batch_of(timestamps=[-1], codec=codec),))
        yield _plain(f"timestamps: none, {name}", batch_of(timestamps=[-1, -1], codec=codec))
        yield _plain(f"timestamps: some, {name}", batch_of(timestamps=[START_MS, -1, START_MS + 2], codec=codec))
    for timestamp in (-2, -5, -START_MS, -(2**63)):
        yield _plain(f"timestamps: negative {timestamp}", batch_of(timestamps=[timestamp]))
    yield _plain("timestamps: zero", batch_of(timestamps=[0, 1]))
    yield Case("timestamps: far", "far", (batch_of(timestamps=[START_MS, 2**62]), batch_of(2)))
    yield Case("timestamps: too old", "recent", (batch_of(3),))
    yield Case("timestamps: none where old ones are refused", "recent", (batch_of(timestamps=[-1]),))
    yield Case("timestamps: too new", "past", (batch_of(timestamps=[START_MS, 2**52]),))
    yield Case("timestamps: past where new ones are refused", "past", (batch_of(timestamps=[START_MS]),))


# Headers of batches


def _header_fields(draw: random.Random) -> Iterator[Case]:
    good = batch_of(3)

    def wrong(name: str, at: int, layout: str, *numbers: int, body: bytes = good) -> Case:
        return _plain(f"header: {name}", patched(body, at, layout, *numbers))

    for offset in (5, -1, LONG_MAX):
        yield wrong(f"base offset {offset}", 0, ">q", offset)
    for name, length in (("one too small", len(good) - 13), ("one too large", len(good) - 11)):
        yield wrong(f"length {name}", 8, ">i", length)
    for length in (0, -1, 48, 2**31 - 1):
        yield wrong(f"length {length}", 8, ">i", length)
    for epoch in (-1, 0, 7, -7):
        yield wrong(f"leader epoch {epoch}", 12, ">i", epoch)
    for magic in (0, 1, 3, 4, 127, -1):
        yield wrong(f"magic {magic}", 16, ">b", magic)
    for at in sorted(draw.sample(range(21, len(good)), 6)):
        flipped = bytearray(good)
        flipped[at] ^= 1 << draw.randrange(8)
        yield _plain(f"header: a flipped bit of byte {at}", bytes(flipped))
    yield _plain("header: a wrong CRC", good[:17] + bytes(4) + good[21:])
    for bit in range(7, 16):
        yield wrong(f"attribute bit {bit}", 21, ">H", 1 << bit)
    for codec in (5, 6, 7):
        yield wrong(f"codec {codec}", 21, ">h", codec)
    yield wrong("control", 21, ">h", 0x20)
    yield wrong("transactional without a producer", 21, ">h", 0x10)
    yield wrong("delete horizon", 21, ">h", 0x40)
    for delta in (0, 1, 3, -1, 2**31 - 1):
        yield wrong(f"last offset delta {delta}", 23, ">i", delta)
    for count in (0, 1, 2, 4, -1, 2**31 - 1):
        yield wrong(f"record count {count}", _COUNT_AT, ">i", count)
    for count in (0, 2, 4, 2**31 - 1):
        yield _plain(f"header: {count} records and last offset", _recounted(good, count))
    for timestamp in (0, START_MS - 9, START_MS + 9, -1):
        yield wrong(f"maximum timestamp {timestamp}", _MAX_TIME_AT, ">q", timestamp)
        yield wrong(f"base timestamp {timestamp}", _TIMES_AT, ">q", timestamp)
    numbered = iter(range(1_000, 2_000))
    for name, producer, epoch, sequence in (
        ("epoch -1", next(numbered), -1, 0),
        ("sequence -1", next(numbered), 0, -1),
        ("epoch and sequence -1", next(numbered), -1, -1),
        ("epoch -2", next(numbered), -2, 0),
        ("sequence -2", next(numbered), 0, -2),
        ("id -1 and an epoch", -1, 3, -1),
        ("id -1 and a sequence", -1, -1, 3),
        ("id -2", -2, 0, 0),
        ("largest id below the keyed ones", 2**62 - 1, 0, 0),
        ("id 2^62", 2**62, 0, 0),
        ("largest id", LONG_MAX, 0, 0),
        ("largest epoch", next(numbered), 32_767, 0),
    ):
        yield wrong(f"producer: {name}", _PRODUCER_AT, ">qhi", producer, epoch, sequence)


def _recounted(body: bytes, count: int) -> bytes:
    """The batch with another number of records, in both fields that have it."""
    return patched(patched(body, 23, ">i", count - 1), _COUNT_AT, ">i", count)


# Records


def _faulty_records() -> dict[str, list[bytes]]:
    good = raw_record(0)
    return {
        "length too small": [varint(4) + good[1:]],
        "length too large": [varint(len(good) + 1) + good[1:]],
        "length 0": [varint(0) + good[1:]],
        "length -1": [varint(-1) + good[1:]],
        "length huge": [varint(2**31 - 1) + good[1:]],
        "attributes 1": [good[:1] + b"\x01" + good[2:]],
        "key length -2": [raw_record(0, key=varint(-2))],
        "key longer than the record": [raw_record(0, key=varint(300) + b"k")],
        "value length -2": [raw_record(0, value=varint(-2))],
        "value longer than the record": [raw_record(0, value=varint(300) + b"v")],
        "header count -1": [raw_record(0, headers=varint(-1))],
        "header count too large": [raw_record(0, headers=varint(3) + varint(1) + b"h" + varint(-1))],
        "header count huge": [raw_record(0, headers=varint(2**31 - 1))],
        "header name null": [raw_record(0, headers=varint(1) + varint(-1) + varint(1) + b"v")],
        "header name length -2": [raw_record(0, headers=varint(1) + varint(-2) + varint(1) + b"v")],
        "header value length -2": [raw_record(0, headers=varint(1) + varint(1) + b"h" + varint(-2))],
        "header name not UTF-8": [raw_record(0, headers=varint(1) + varint(2) + b"\xff\xfe" + varint(-1))],
        "header name a surrogate": [raw_record(0, headers=varint(1) + varint(3) + b"\xed\xa0\x80" + varint(-1))],
        "header name with a zero": [raw_record(0, headers=varint(1) + varint(2) + b"h\0" + varint(-1))],
        "bytes left over in the record": [framed(good[1:] + b"xx")],
        "varint of six bytes": [b"\x8e\x80\x80\x80\x80\x00" + good[1:]],
        "time delta of eleven bytes": [framed(b"\0" + b"\x80" * 10 + b"\x01" + good[3:])],
        "offset delta 1": [raw_record(1)],
        "offset deltas 0, 0": [good, good],
        "offset deltas 0, 2": [good, raw_record(2)],
        "offset deltas 1, 0": [raw_record(1), good],
        "offset delta -1": [raw_record(-1)],
        "time delta overflows": [raw_record(0, timestamp_delta=LONG_MAX)],
    }


def _record_fields(draw: random.Random) -> Iterator[Case]:
    for codec in (Codec.NONE, draw.choice(_COMPRESSED)):
        for name, records in _faulty_records().items():
            section = bytes(compress(codec, b"".join(records)))
            body = raw_batch(section, len(records), attributes=codec)
            yield _plain(f"record: {name}, {'compressed' if codec else 'uncompressed'}", body)
    good = raw_record(0)
    yield _plain("record: bytes behind the last, uncompressed", raw_batch(good + b"xyz", 1))
    for codec in _COMPRESSED:
        section = bytes(compress(codec, good + b"xyz"))
        yield _plain(f"record: bytes behind the last, {codec.name.lower()}", raw_batch(section, 1, attributes=codec))


def _counts(draw: random.Random) -> Iterator[Case]:
    """Headers whose number of records is not that of the compressed records."""
    records = b"".join(raw_record(place) for place in range(4))
    for codec in _COMPRESSED:
        section = bytes(compress(codec, records))
        for count in (3, 5):
            body = raw_batch(section, count, attributes=codec)
            yield _plain(f"count: {count} of 4 records, {codec.name.lower()}", body)
        yield _plain(
            f"count: no record, {codec.name.lower()}", raw_batch(bytes(compress(codec, b"")), 1, attributes=codec)
        )


# Compressed streams


def _compressed_streams(draw: random.Random) -> Iterator[Case]:
    records = b"".join(raw_record(place, value=varint(50) + draw.randbytes(50)) for place in range(40))

    def of(name: str, codec: Codec, section: bytes) -> Case:
        return _plain(f"stream: {name}, {codec.name.lower()}", raw_batch(section, 40, attributes=codec))

    for codec in _COMPRESSED:
        sound = bytes(compress(codec, records))
        yield of("cut", codec, sound[: len(sound) // 2])
        yield of("without its last byte", codec, sound[:-1])
        yield of("bytes behind it", codec, sound + b"behind")
        yield of("none", codec, b"")
        yield of("no stream", codec, b"\x01\x02\x03\x04" * 20)
        yield of("in two", codec, bytes(compress(codec, records[:999])) + bytes(compress(codec, records[999:])))
    for linked in (False, True):
        for checksum in (False, True):
            frame = lz4.frame.compress(records * 40, block_linked=linked, block_size=4, content_checksum=checksum)
            body = raw_batch(frame, 40, attributes=Codec.LZ4)
            yield _plain(f"stream: blocks {'linked' if linked else 'independent'}, checksum {checksum}, lz4", body)
    blocks = lz4.frame.compress(records, block_linked=False, block_checksum=True, store_size=True)
    yield of("checksums of blocks, size", Codec.LZ4, blocks)
    yield of("raw block", Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(records)))
    yield of("framed", Codec.SNAPPY, bytes(cramjam.snappy.compress(records)))
    yield of("level 9", Codec.GZIP, bytes(cramjam.gzip.compress(records, level=9)))
    yield of("zlib", Codec.GZIP, bytes(cramjam.zlib.compress(records)))
    yield of("level 19", Codec.ZSTD, bytes(cramjam.zstd.compress(records, level=19)))


# Bodies and sizes


def _bodies(draw: random.Random) -> Iterator[Case]:
    one, two = batch_of(2), batch_of(3)
    yield _plain("body: empty", b"")
    for size in (1, 12, 17, 60, 61):
        yield _plain(f"body: {size} bytes of a batch", one[:size])
    yield _plain("body: a batch without its last byte", one[:-1])
    yield _plain("body: two batches", one + two)
    yield _plain("body: a batch and a half", one + two[:40])
    yield _plain("body: a batch and a byte", one + b"\0")
    yield _plain("body: a batch and zeros", one + bytes(100))
    yield _plain("body: zeros", bytes(100))
    yield _plain("body: noise", draw.randbytes(200))


def _sizes(draw: random.Random) -> Iterator[Case]:
    for more in (-1, 0, 1):
        yield Case(f"size: max.message.bytes {more:+}", "small", (sized_batch(SMALL_BATCH_BYTES + more),))
    text = Record(0, START_MS, b"k", b"v" * 5_000)
    for codec in _COMPRESSED:
        yield Case(f"size: small as {codec.name.lower()}", "small", (_encoded([text], codec),))
    yield Case("size: segments", "segments", tuple(sized_batch(SEGMENT_BYTES // 5) for _ in range(7)))
    for more in (0, 1):
        yield Case(f"size: segment.bytes {more:+}", "segments", (sized_batch(SEGMENT_BYTES + more),))


# Producers


def _of_producer(producer: int, epoch: int, sequence: int, count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    return batch_of(count, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def _sequences(draw: random.Random) -> Iterator[Case]:
    """Batches of idempotent producers: epoch, sequence and number of records of each."""
    stories: dict[str, list[tuple[int, int, int]]] = {
        "in order": [(0, 0, 2), (0, 2, 3), (0, 5, 1)],
        "begins at 5": [(0, 5, 1), (0, 6, 1)],
        "repeated": [(0, 0, 2), (0, 0, 2), (0, 2, 1), (0, 2, 1)],
        "the oldest of five repeated": [*((0, number, 1) for number in range(5)), (0, 0, 1)],
        "the sixth last repeated": [*((0, number, 1) for number in range(6)), (0, 0, 1)],
        "a gap": [(0, 0, 1), (0, 2, 1), (0, 1, 1)],
        "backwards": [(0, 0, 5), (0, 3, 1)],
        "an overlap": [(0, 0, 3), (0, 2, 3)],
        "repeated with fewer records": [(0, 0, 3), (0, 0, 2)],
        "repeated with more records": [(0, 0, 3), (0, 0, 4)],
        "a newer epoch": [(0, 0, 2), (1, 0, 1), (1, 1, 1)],
        "a newer epoch not from 0": [(0, 0, 2), (1, 2, 1)],
        "an older epoch": [(3, 0, 2), (2, 2, 1), (3, 2, 1)],
        "an older epoch repeated": [(1, 0, 1), (0, 0, 1)],
        "round the end": [(0, 2**31 - 2, 1), (0, 2**31 - 1, 1), (0, 0, 1)],
        "round the end in a batch": [(0, 2**31 - 2, 4), (0, 2, 1)],
        "not round the end": [(0, 2**31 - 1, 1), (0, 1, 1)],
    }
    for number, (name, batches) in enumerate(stories.items()):
        codec = draw.choice(_CODECS)
        bodies = (_of_producer(5_000 + number, *batch, codec=codec) for batch in batches)
        yield _plain(f"producer: {name}", *bodies)
    repeated = _of_producer(6_000, 0, 0, 2)
    yield Case("producer: repeated on a stamped topic", "stamped", (repeated, repeated))


def _outside_transactions(draw: random.Random) -> Iterator[Case]:
    transactional = patched(_of_producer(7_000, 0, 0), 21, ">h", 0x10)
    yield _plain("transaction: without a name", transactional)
    yield _plain("transaction: a control batch of a producer", patched(_of_producer(7_001, 0, 0), 21, ">h", 0x30))
    yield _plain("transaction: no producer, compressed", patched(batch_of(codec=Codec.GZIP), 21, ">h", 0x11))


def _compacted(draw: random.Random) -> Iterator[Case]:
    for codec in (Codec.NONE, Codec.SNAPPY):
        name = codec.name.lower()
        yield Case(f"compacted: a key, {name}", "compacted", (batch_of(2, codec=codec),))
        yield Case(f"compacted: an empty key, {name}", "compacted", (batch_of(key=b"", codec=codec),))
        yield Case(f"compacted: no key, {name}", "compacted", (batch_of(key=None, codec=codec),))
        yield Case(f"compacted: no value, {name}", "compacted", (batch_of(value=None, codec=codec),))
        some = [Record(0, START_MS, b"k", b"v"), Record(1, START_MS, None, b"v")]
        yield Case(f"compacted: no key in one, {name}", "compacted", (_encoded(some, codec),))


# What was found before


def _judged(draw: random.Random) -> Iterator[Case]:
    for file in sorted(JUDGE.glob("*.batch")):
        yield _plain(f"judged: {file.stem}", file.read_bytes())
        if file.stem in ("log-append-time-flag", "lz4-linked-blocks", "lz4-independent-blocks"):
            topic = "stamped" if file.stem.startswith("log") else "to-zstd"
            yield Case(f"judged: {file.stem} {topic}", topic, (file.read_bytes(),))
    # A CRC that is right around the oddest bytes that a header can have.
    yield _plain("judged: every header byte 255", with_crc(batch_of()[:16] + b"\x02" + b"\xff" * 44 + batch_of()[61:]))
