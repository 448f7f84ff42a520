"""Cases V about formats: message sets on their way in, compression.type, and timestamps with both."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest

from app.engine.reading import Read
from app.engine_local.reading.ranges import read_range
from app.fetch.message_sets import read_message_set
from log_model.batches.batch_validation import validate_batches
from log_model.batches.message_conversion import convert_message_set
from log_model.errors import InvalidRecordError
from log_model.offsets import Offset
from log_model.reads import Isolation
from rollway.records import (
    Codec,
    Record,
    TimestampType,
    columns_from_records,
    decode_batch,
    decode_message_set,
    encode_message_set,
    split_batches,
)
from rollway.records.compression import compress
from storage.log.partition_log import AppendRequest, AppendResult
from tests.cases.logs import START_MS, CaseLog, batch_of, patched, raw_batch, raw_record, refused, varint

NewLog = Callable[..., CaseLog]
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
TYPES = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def send_messages(log: CaseLog, body: bytes) -> AppendResult:
    """Append a message set, and publish."""
    batches = convert_message_set(body, log.partition.config, log.clock.now_ms())
    (answer,) = log.partition.append([AppendRequest(tuple(batches))])
    log.partition.publish()
    assert isinstance(answer, AppendResult), answer
    return answer


def rows(count: int, *, base: int = 0, key: bytes | None = b"key") -> list[Record]:
    return [Record(base + n, START_MS + 10 * n, key, b"value %d" % n * 5) for n in range(count)]


def message_set(
    records: list[Record],
    magic: int = 1,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    return encode_message_set(columns_from_records(records), magic=magic, codec=codec, timestamp_type=timestamp_type)


def entry(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    """One message by hand (spec A10)."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += b"".join(struct.pack(">i", -1) if d is None else struct.pack(">i", len(d)) + d for d in (key, value))
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


# Message sets: spec A10-A13, E17


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_e17_a_message_set_is_stored_as_batches_of_format_2(new_log: NewLog, magic: int, codec: Codec) -> None:
    """Spec E17: one batch with the set's codec, offsets from the log end, timestamps kept; magic 0 has none."""
    log = new_log()
    log.fill(10)
    sent = rows(5, base=77)
    result = send_messages(log, message_set(sent, magic, codec))
    assert (result.base_offset, result.last_offset, result.record_count) == (10, 14, 5)
    header = log.headers()[-1]
    assert (header.magic, header.codec, header.base_offset, header.last_offset) == (2, codec, 10, 14)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    expected = [
        Record(10 + n, record.timestamp if magic else -1, record.key, record.value) for n, record in enumerate(sent)
    ]
    assert log.records(10) == expected
    assert header.max_timestamp == (sent[-1].timestamp if magic else -1)
    log.restart(clean=False)
    assert log.records(10) == expected


def test_a13_offsets_of_document_000(new_log: NewLog) -> None:
    """The example of spec A13: log end 10, five messages of magic 0 get 10 to 14, the next is 15."""
    log = new_log()
    log.fill(10)
    body = b"".join(entry(offset, 0, 0, 0, None, b"m") for offset in (9, 9, 0, 5, 2**62))
    result = send_messages(log, body)
    assert (result.base_offset, result.last_offset, log.end_offset) == (10, 14, 15)


def test_v_21_wrappers_with_absolute_and_relative_inner_offsets(new_log: NewLog) -> None:
    """Whatever offsets a producer gives, inside or outside, the log gives its own."""
    log = new_log()
    for magic, inner_offsets, wrapper_offset in ((1, range(5), 9), (1, range(5), 0), (0, range(5, 10), 9)):
        inner = b"".join(entry(offset, magic, 0, START_MS, b"k", b"v") for offset in inner_offsets)
        before = log.end_offset
        wrapper = entry(wrapper_offset, magic, 1, START_MS, None, bytes(compress(Codec.GZIP, inner)))
        assert send_messages(log, wrapper).base_offset == before
    assert log.offsets() == list(range(15))


def test_a11_a_partial_last_message_is_left_out(new_log: NewLog) -> None:
    """Spec A11: a full message and 20 bytes of another: 1 stored. Spec A12: none whole: nothing is written."""
    log = new_log()
    full = message_set(rows(1))
    assert send_messages(log, full + full[:20]).record_count == 1
    before = log.log_files()
    for nothing in (b"", full[:-1], full[:11]):
        result = send_messages(log, nothing)
        assert (result.base_offset, result.record_count) == (-1, 0)
    assert (log.end_offset, log.log_files()) == (1, before)


def test_a11_a_size_that_no_message_has(new_log: NewLog) -> None:
    log = new_log()
    with refused(log, 2):
        send_messages(log, message_set(rows(1)) + struct.pack(">qi", 0, 13) + bytes(13))


@pytest.mark.parametrize("magic", [0, 1])
def test_a10_every_flipped_bit_from_the_crc_on_is_found(new_log: NewLog, magic: int) -> None:
    """Spec A10, A12: 2; the magic of record batches is 87. Bits of the offset mean nothing."""
    log = new_log()
    sent = message_set(rows(1), magic)
    config, now_ms = log.partition.config, log.clock.now_ms()
    for bit in range(8 * 12, 8 * len(sent)):
        flipped = bytearray(sent)
        flipped[bit // 8] ^= 1 << bit % 8
        with refused(log, 87 if bit // 8 == 16 and flipped[16] == 2 else 2):
            convert_message_set(flipped, config, now_ms)
    for bit in range(64):
        flipped = bytearray(sent)
        flipped[bit // 8] ^= 1 << bit % 8
        assert len(convert_message_set(flipped, config, now_ms)) == 1


def test_e13_a_message_set_holds_no_batches(new_log: NewLog) -> None:
    log = new_log()
    with refused(log, 87):
        send_messages(log, batch_of(3))
    with refused(log, 87):
        log.send(message_set(rows(3)) + bytes(61))


def test_e14_inner_messages_have_the_magic_of_their_wrapper(new_log: NewLog) -> None:
    log = new_log()
    for inner in (entry(0, 0, 0, 0, None, b"v"), message_set(rows(2), 1, Codec.GZIP)):
        with refused(log, 87):
            send_messages(log, entry(0, 1, 1, 0, None, bytes(compress(Codec.GZIP, inner))))


def test_v_25_zstd_is_younger_than_message_sets(new_log: NewLog) -> None:
    """Kafka answers 76 to zstd in a produce request of before it; here that is a message set."""
    log = new_log()
    inner = message_set(rows(3))
    with refused(log, 76):
        send_messages(log, entry(2, 1, 4, START_MS, None, bytes(compress(Codec.ZSTD, inner))))


def test_a12_several_messages_and_wrappers_in_one_set(new_log: NewLog) -> None:
    """Plain messages in a row are one batch, each wrapper is one; all of them or none."""
    log = new_log()
    plain, wrapped = rows(3), rows(4)
    body = message_set(plain) + message_set(wrapped, 1, Codec.LZ4) + message_set(wrapped, 0, Codec.GZIP)
    body += message_set(plain[:1], 0)
    assert send_messages(log, body).record_count == 12
    assert [(header.codec, header.record_count) for header in log.headers()] == [
        (Codec.NONE, 3),
        (Codec.LZ4, 4),
        (Codec.GZIP, 4),
        (Codec.NONE, 1),
    ]
    damaged = bytearray(body + message_set(plain))
    damaged[-1] ^= 1
    with refused(log, 2):
        send_messages(log, bytes(damaged))


def test_e10_limits_before_and_after_conversion(new_log: NewLog) -> None:
    """Spec E10: each message as it came, then each batch as it is stored."""
    log = new_log({"max.message.bytes": 500})
    fits = entry(0, 1, 0, START_MS, None, bytes(500 - 34))
    assert len(fits) == 500
    with refused(log, 10):
        # As a batch of format 2 it is a few bytes larger.
        send_messages(log, fits)
    with refused(log, 10):
        send_messages(log, entry(0, 1, 0, START_MS, None, bytes(501 - 34)))
    with refused(log, 10):
        # Small as it came, too large once it is stored; Kafka's message sets have no place for headers to blame.
        log.configure({"compression.type": "uncompressed"})
        send_messages(
            log,
            entry(0, 1, 1, START_MS, None, bytes(compress(Codec.GZIP, message_set([Record(0, 0, None, bytes(600))])))),
        )
    log.configure({"compression.type": "producer"})
    result = send_messages(log, message_set(rows(40)))
    assert result.record_count == 40
    assert len(log.headers()) > 1
    assert all(header.size_bytes <= 500 for header in log.headers())


def test_e11_a_set_fits_into_one_segment(new_log: NewLog) -> None:
    log = new_log({"segment.bytes": 1000})
    with refused(log, 18):
        send_messages(log, message_set(rows(100)))
    assert send_messages(log, message_set(rows(5))).record_count == 5


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_v_13_null_key_on_a_compacted_topic(new_log: NewLog, magic: int, codec: Codec) -> None:
    """Spec A13: 87; the message is named by its place in the body."""
    log = new_log({"cleanup.policy": "compact"})
    body = message_set(rows(2), magic) + message_set([*rows(2), *rows(1, key=None)], magic, codec)
    with refused(log, 87) as raised:
        send_messages(log, body)
    assert isinstance(raised.value, InvalidRecordError)
    assert [error.batch_index for error in raised.value.record_errors] == [4]
    assert send_messages(log, message_set(rows(3), magic, codec)).record_count == 3
    assert send_messages(new_log(), body).record_count == 5


def test_e14_timestamps_of_messages(new_log: NewLog) -> None:
    """Out of range: 32, named; magic 0 has no timestamp that could be wrong."""
    log = new_log({"message.timestamp.before.max.ms": 1000})
    old = [Record(0, START_MS, b"k", b"v"), Record(1, START_MS - 1001, b"k", b"v")]
    with refused(log, 32) as raised:
        send_messages(log, message_set(rows(3)) + message_set(old, 1, Codec.SNAPPY))
    assert isinstance(raised.value, InvalidRecordError)
    assert [error.batch_index for error in raised.value.record_errors] == [4]
    assert send_messages(log, message_set(old, 0)).record_count == 2


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_v_15_messages_that_claim_log_append_time(new_log: NewLog, codec: Codec) -> None:
    """As batches: stored with create times on a topic with those, and 32 only without a time; otherwise 32."""
    claiming = message_set(rows(2), 1, codec, TimestampType.LOG_APPEND_TIME)
    body = message_set(rows(1)) + claiming
    log = new_log()
    log.clock.advance(99)
    assert send_messages(log, body).log_append_time == -1
    # All messages of a wrapper have its time, which is the largest of theirs.
    times = [START_MS, START_MS, START_MS + 10] if codec is Codec.NONE else [START_MS, START_MS + 10, START_MS + 10]
    assert [record.timestamp for record in log.records()] == times
    assert {header.timestamp_type for header in log.headers()} == {TimestampType.CREATE_TIME}
    timeless = message_set([Record(0, -1, b"key", b"value")], 1, codec, TimestampType.LOG_APPEND_TIME)
    log = new_log()
    with refused(log, 32) as raised:
        send_messages(log, message_set(rows(1)) + timeless)
    assert isinstance(raised.value, InvalidRecordError)
    assert [error.batch_index for error in raised.value.record_errors] == [1]
    log = new_log({"message.timestamp.type": "LogAppendTime"})
    for refusal, wrong in ((body, [1, 2]), (timeless, [0])):
        with refused(log, 32) as raised:
            send_messages(log, refusal)
        assert isinstance(raised.value, InvalidRecordError)
        assert [error.batch_index for error in raised.value.record_errors] == wrong
    log.clock.advance(99)
    assert send_messages(log, message_set(rows(3))).log_append_time == START_MS + 99
    assert {record.timestamp for record in log.records()} == {START_MS + 99}


def test_v_16_the_largest_timestamp_of_a_wrapper_is_its_messages(new_log: NewLog) -> None:
    """The wrapper says 0; what is stored is the maximum of what is in it."""
    log = new_log()
    inner = b"".join(entry(n, 1, 0, timestamp, None, b"v") for n, timestamp in enumerate((5, 9, 7)))
    send_messages(log, entry(2, 1, 1, 0, None, bytes(compress(Codec.GZIP, inner))))
    assert log.headers()[0].max_timestamp == 9
    assert [record.timestamp for record in log.records()] == [5, 9, 7]


# Message sets on their way out: spec E17


@pytest.mark.parametrize("magic", [0, 1])
def test_e17_old_readers_get_records_and_no_markers(new_log: NewLog, magic: int) -> None:
    """Control batches are left out, aborted records too for those who read committed; offsets are the log's."""
    log = new_log()
    for producer_id, commit in ((1, True), (2, False)):
        log.send(batch_of(2, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))
        log.end_transaction(producer_id, commit=commit, producer_epoch=0)
    log.send(batch_of(1, codec=Codec.ZSTD))
    log.send(batch_of(2, producer_id=3, producer_epoch=0, base_sequence=0, transactional=True))
    for isolation, expected, next_offset in (
        (Isolation.HIGH_WATERMARK, [0, 1, 3, 4, 6, 7, 8], 9),
        (Isolation.LAST_STABLE, [0, 1, 6], 7),
    ):
        outcome = read_range(log.snapshot, Read(offset=0, isolation=isolation), Offset(0))
        read = read_message_set(outcome, magic=magic)
        offsets = [offset for part in decode_message_set(read.content) for offset in part.columns.offsets.tolist()]
        assert (offsets, read.next_offset) == (expected, next_offset)


# compression.type: spec E12


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("compression_type", TYPES)
def test_v_18_codec_matrix(new_log: NewLog, compression_type: str, source: Codec) -> None:
    """Stored codec = the type, with producer the source; records, headers and the rest of the batch stay."""
    log = new_log({"compression.type": compression_type})
    log.fill(3)
    fields = {"producer_id": 2**40, "producer_epoch": 3, "base_sequence": 0}
    sent = batch_of(50, value=b"value" * 20, headers=(("h", None), ("", b"\xff"), ("h", b"2")), codec=source, **fields)
    result = log.send(sent)
    assert (result.base_offset, result.last_offset) == (3, 52)
    target = TYPES[compression_type]
    stored = split_batches(log.file().read_bytes())[-1]
    stored.check_crc()
    assert stored.header.codec is (source if target is None else target)
    if target in (None, source):
        assert bytes(stored.body) == sent[61:], "the same codec: not a byte of the payload is touched (V-20)"
    (original,) = split_batches(sent)
    sent_header = original.header
    changed = {"base_offset", "batch_length", "partition_leader_epoch", "crc", "attributes"}
    for name, value in stored.header._asdict().items():
        assert name in changed or value == getattr(sent_header, name), name
    expected = decode_batch(original)
    found = decode_batch(stored)
    assert found.timestamps.tolist() == expected.timestamps.tolist()
    assert (found.keys, found.values) == (expected.keys, expected.values)
    assert found.headers is not None
    assert expected.headers is not None
    assert found.headers.to_rows() == expected.headers.to_rows()
    log.restart(clean=False)
    assert len(log.records(3)) == 50


@pytest.mark.parametrize(
    ("codec", "settings"),
    [
        (Codec.GZIP, {"compression.gzip.level": 1}),
        (Codec.LZ4, {"compression.lz4.level": 17}),
        (Codec.ZSTD, {"compression.zstd.level": 22}),
    ],
)
def test_v_18_a_level_alone_rewrites_nothing(new_log: NewLog, codec: Codec, settings: dict[str, int]) -> None:
    """Spec E12: only another codec does; then the topic's level is used."""
    log = new_log({"compression.type": codec.name.lower(), **settings})
    sent = batch_of(30, value=b"value" * 50, codec=codec)
    log.send(sent)
    assert log.file().read_bytes()[61:] == sent[61:]
    (level,) = settings.values()
    log.send(batch_of(30, value=b"value" * 50))
    plain = split_batches(batch_of(30, value=b"value" * 50))[0].body
    assert bytes(split_batches(log.file().read_bytes())[1].body) == bytes(compress(codec, plain, level))


def test_v_18_control_batches_are_never_compressed(new_log: NewLog) -> None:
    """Spec E12, E13: the service writes its markers as they are, beside data that it compresses."""
    log = new_log({"compression.type": "gzip"})
    log.send(batch_of(3, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.end_transaction(1, commit=True, producer_epoch=0)
    data, marker = log.headers()
    assert (data.codec, data.is_transactional, data.producer_id) == (Codec.GZIP, True, 1)
    assert (marker.codec, marker.is_control, marker.size_bytes) == (Codec.NONE, True, 78)
    with refused(log, 87):
        log.send(patched(batch_of(), 21, ">h", 0x20))


def test_e10_the_size_is_looked_at_again_after_compressing(new_log: NewLog) -> None:
    """Spec E10: 60 bytes of gzip that are 100,000 without it."""
    sent = batch_of(1, value=bytes(100_000), codec=Codec.GZIP)
    assert len(sent) < 1000
    log = new_log({"max.message.bytes": 1000, "compression.type": "uncompressed"})
    with refused(log, 10):
        log.send(sent)
    log = new_log({"max.message.bytes": 1000})
    log.send(sent)
    # What does not compress becomes larger by it.
    noise = batch_of(1, value=random.Random(1).randbytes(1000))
    log = new_log({"max.message.bytes": len(noise)})
    log.send(noise)
    log = new_log({"max.message.bytes": len(noise), "compression.type": "snappy"})
    with refused(log, 10):
        log.send(noise)


def test_e12_message_sets_and_compression_type(new_log: NewLog) -> None:
    log = new_log({"compression.type": "zstd"})
    for codec in LEGACY_CODECS:
        send_messages(log, message_set(rows(5), 1, codec))
    assert {header.codec for header in log.headers()} == {Codec.ZSTD}
    assert len(log.records()) == 20


# Timestamps with both: spec E14, E15


@pytest.mark.parametrize("compression_type", ["gzip", "uncompressed"])
def test_e15_log_append_time_with_another_codec(new_log: NewLog, compression_type: str) -> None:
    """All records report the time of the append, and a duplicate gets the first answer's, also after a restart."""
    log = new_log({"message.timestamp.type": "LogAppendTime", "compression.type": compression_type})
    sent = batch_of(4, codec=Codec.LZ4, producer_id=5, producer_epoch=0, base_sequence=0)
    log.clock.advance(500)
    first = log.send(sent)
    assert first.log_append_time == START_MS + 500
    assert [(r.timestamp, r.timestamp_type) for r in log.records()] == [
        (START_MS + 500, TimestampType.LOG_APPEND_TIME)
    ] * 4
    log.clock.advance(500)
    again = log.send(sent)
    assert (again.duplicate, again.base_offset, again.log_append_time) == (True, 0, START_MS + 500)
    for clean in (True, False):
        log.restart(clean=clean)
        again = log.send(sent)
        assert (again.duplicate, again.base_offset, again.log_append_time) == (True, 0, START_MS + 500)
    assert log.end_offset == 4


def test_v_16_with_another_codec(new_log: NewLog) -> None:
    log = new_log({"compression.type": "gzip"})
    log.send(patched(batch_of(timestamps=[5, 9, 7], codec=Codec.LZ4), 35, ">q", 0))
    assert log.headers()[0].max_timestamp == 9


@pytest.mark.parametrize(
    ("config", "before_ms", "after_ms"),
    [
        ({"message.timestamp.difference.max.ms": 1000}, 1000, 1000),
        ({"message.timestamp.difference.max.ms": 1000, "message.timestamp.before.max.ms": 50}, 50, 1000),
        ({"message.timestamp.difference.max.ms": 1000, "message.timestamp.after.max.ms": 50}, 1000, 50),
        ({"message.timestamp.before.max.ms": 7, "message.timestamp.after.max.ms": 0}, 7, 0),
        ({}, START_MS, 3_600_000),
    ],
)
def test_e14_the_older_timestamp_limit(new_log: NewLog, config: dict[str, int], before_ms: int, after_ms: int) -> None:
    """Spec E14: message.timestamp.difference.max.ms counts for each newer limit that is not set."""
    log = new_log(config)
    log.send(batch_of(timestamps=[START_MS - before_ms, START_MS + after_ms, -1]))
    with refused(log, 32):
        log.send(batch_of(timestamps=[START_MS + after_ms + 1]))
    if before_ms < START_MS:
        with refused(log, 32):
            log.send(batch_of(timestamps=[START_MS - before_ms - 1]))


def test_e14_all_record_errors_are_collected(new_log: NewLog) -> None:
    """Spec E14: every record that breaks a rule is named, with the first it breaks; one bad timestamp makes it 32."""
    log = new_log({"cleanup.policy": "compact", "message.timestamp.after.max.ms": 0})
    no_key, late = varint(-1), START_MS + 1
    section = b"".join(
        (
            raw_record(0),
            raw_record(1, key=no_key),
            raw_record(2, timestamp_delta=1),
            raw_record(3),
            raw_record(4, key=no_key, timestamp_delta=1),
        )
    )
    with refused(log, 32) as raised:
        log.send(raw_batch(section, 5, max_timestamp=late))
    assert isinstance(raised.value, InvalidRecordError)
    assert [error.batch_index for error in raised.value.record_errors] == [1, 2, 4]
    assert "key" in raised.value.record_errors[2].message
    with refused(log, 87) as raised:
        log.send(raw_batch(raw_record(0) + raw_record(1, key=no_key, timestamp_delta=1), 2))
    config, now_ms = log.partition.config, log.clock.now_ms()
    many = raw_batch(b"".join(raw_record(n, key=no_key) for n in range(300)), 300)
    with pytest.raises(InvalidRecordError) as raised:
        validate_batches(many, config, now_ms)
    assert [error.batch_index for error in raised.value.record_errors] == list(range(100))


# Segments of an old Kafka


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_old_kafka_in_a_segment_are_named_and_never_cut(
    new_log: NewLog, magic: int, before: int, clean: bool
) -> None:
    """They are no torn tail, whatever the recovery point: the file stays, the partition is read-only, and produced as a
    message set the same bytes are converted."""
    log = new_log()
    log.fill(before)
    if clean:
        log.stop()
    else:
        log.kill()
    old = message_set(rows(4, base=before), magic)
    start = log.file().stat().st_size if before else 0
    content = log.file().read_bytes()[:start] + old
    log.file().write_bytes(content)
    log.start()
    assert log.recovery.truncated_bytes == 0
    assert log.file().read_bytes() == content
    reason = log.partition.offline_reason
    assert reason is not None
    assert f"unsupported message format: magic {magic}" in " ".join(map(str, log.recovery.notes))
    assert f"byte {start}" in " ".join(map(str, log.recovery.notes))
    if before:
        assert len(log.records()) == before
    other = new_log()
    assert send_messages(other, old).record_count == 4
    assert [record.value for record in other.records()] == [record.value for record in rows(4)]
