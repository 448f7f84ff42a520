"""Cases V: what the log takes, what it refuses, and what of a batch it changes."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.errors import InvalidRecordError, StorageError
from log_model.offsets import Offset
from rollway.records import Codec, ControlType, RecordBatch, decode_batch, encode_control_batch, parse_header
from rollway.records.compression import compress
from storage.log.partition_log import AppendRequest
from tests.cases.logs import (
    LONG_MAX,
    START_MS,
    CaseLog,
    batch_of,
    framed,
    kafka_code_of,
    patched,
    raw_batch,
    raw_record,
    refused,
    sized_batch,
    varint,
    with_crc,
)

NewLog = Callable[..., CaseLog]
CODECS = pytest.mark.parametrize("codec", list(Codec))


def outside_stamp(batch: bytes) -> tuple[bytes, bytes]:
    """A batch without bytes 0-7 and 12-15."""
    return batch[8:12], batch[16:]


@CODECS
def test_v_1_offsets_are_stamped_in_place(new_log: NewLog, codec: Codec) -> None:
    """Spec E16: only base offset and leader epoch differ from what was sent, and neither is under the CRC."""
    log = new_log()
    log.fill(10)
    sent = patched(batch_of(4, codec=codec), 12, ">i", -1)
    before_bytes = log.file().stat().st_size
    result = log.send(sent)
    assert (result.base_offset, result.last_offset, result.record_count) == (10, 13, 4)
    assert log.end_offset == 14
    stored = log.file().read_bytes()[before_bytes:]
    assert stored[:8] == struct.pack(">q", 10)
    assert stored[12:16] == struct.pack(">i", log.partition.leader_epoch) != sent[12:16]
    assert outside_stamp(stored) == outside_stamp(sent)
    RecordBatch(stored).check_crc()


def test_v_3_several_batches_in_one_body_are_allowed(new_log: NewLog) -> None:
    """Kafka refuses a second batch with 87; here a raw body may hold several (ARCHITECTURE.md#decisions).

    They are appended contiguously, and all of them or none.
    """
    log = new_log()
    result = log.send(batch_of(2) + batch_of(3, codec=Codec.ZSTD) + batch_of(1))
    assert (result.base_offset, result.last_offset, result.record_count) == (0, 5, 6)
    assert [(header.base_offset, header.last_offset) for header in log.headers()] == [(0, 1), (2, 4), (5, 5)]
    with refused(log, 87):
        log.send(batch_of(2) + patched(batch_of(3), 57, ">i", 2) + batch_of(1))
    with refused(log, 2):
        log.send(batch_of(2) + batch_of(3)[:-1])
    with refused(log, 87):
        log.send(batch_of(2) + b"\0" * 100)


def test_v_3_each_batch_of_a_body_has_its_own_sequence_check(new_log: NewLog) -> None:
    """Architecture, decisions: the second batch must follow the first, not what was in the log before."""
    log = new_log()
    first = batch_of(2, producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch_of(3, producer_id=7, producer_epoch=0, base_sequence=2)
    late = batch_of(3, producer_id=7, producer_epoch=0, base_sequence=3)
    with refused(log, 45):
        log.send(first + late)
    assert log.send(first + second).base_offset == 0
    repeated = log.send(first + second)
    assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (0, 4, True)
    assert log.end_offset == 5


@pytest.mark.parametrize("base_offset", [5, 1, -1, LONG_MAX, -(2**63)])
def test_v_4_nonzero_client_base_offset(new_log: NewLog, base_offset: int) -> None:
    log = new_log()
    log.fill(5)
    with refused(log, 87):
        log.send(batch_of(2, base_offset=base_offset))


def test_v_5_every_flipped_bit_is_found(new_log: NewLog) -> None:
    """Every bit but those that the log overwrites. Bits of base offset and leader epoch leave the CRC right."""
    log = new_log()
    sent = batch_of(2, headers=(("h", b"x"),))
    now_ms = log.clock.now_ms()
    for bit in range(8 * len(sent)):
        flipped = bytearray(sent)
        flipped[bit // 8] ^= 1 << bit % 8
        place = bit // 8
        if 12 <= place < 16:
            (batch,) = validate_batches(flipped, log.partition.config, now_ms)
            batch.stamp(Offset(0), log.partition.leader_epoch)
            assert bytes(batch.head) + bytes(batch.body) == sent
            continue
        with pytest.raises(StorageError) as raised:
            validate_batches(flipped, log.partition.config, now_ms)
        if place < 8:
            assert kafka_code_of(raised.value) == 87
            RecordBatch(flipped).check_crc()
        elif place < 12:
            # A batch that says to be larger than the topic allows is refused for that before anything else.
            assert kafka_code_of(raised.value) in (2, 10)
        elif place == 16:
            # Magic 0 is that of a message set; the other bits make one that no format has.
            assert kafka_code_of(raised.value) == (87 if flipped[16] == 0 else 2)
        else:
            assert kafka_code_of(raised.value) == 2, place
    with refused(log, 2):
        log.send(sent[:-1] + bytes([sent[-1] ^ 1]))


def test_v_6_a_partial_tail_is_trimmed(new_log: NewLog) -> None:
    """Spec A11: the log's own interface takes the whole batches; the strict way, for HTTP, refuses."""
    log = new_log()
    whole, other = batch_of(2), batch_of(3)
    config, now_ms = log.partition.config, log.clock.now_ms()
    for cut in range(1, len(other)):
        body = whole + other[:cut]
        kept = validate_batches(body, config, now_ms, ignore_partial_tail=True)
        assert [batch.size_bytes for batch in kept] == [len(whole)]
        with pytest.raises(StorageError) as raised:
            validate_batches(body, config, now_ms)
        assert kafka_code_of(raised.value) == 2
    half = validate_batches(whole + other[: len(other) // 2], config, now_ms, ignore_partial_tail=True)
    log.partition.append([AppendRequest(tuple(half))])
    log.partition.publish()
    assert log.file().read_bytes() == whole
    assert log.end_offset == 2


def test_v_9_segment_limit(new_log: NewLog) -> None:
    """Spec E11: a batch as large as a segment gets one of its own, a larger one is refused."""
    log = new_log({"segment.bytes": 1000})
    log.send(sized_batch(300))
    with refused(log, 18):
        log.send(sized_batch(1001))
    with refused(log, 18):
        log.send(sized_batch(500) + sized_batch(501))
    log.send(sized_batch(1000))
    log.send(sized_batch(100))
    assert {name: len(content) for name, content in log.log_files().items()} == {
        f"{0:020d}.log": 300,
        f"{1:020d}.log": 1000,
        f"{2:020d}.log": 100,
    }


def test_v_9_the_limit_is_that_of_the_log_not_of_the_check(new_log: NewLog) -> None:
    """A body that was checked before segment.bytes fell is refused when its turn comes."""
    log = new_log({"segment.bytes": 1000})
    checked = AppendRequest(tuple(validate_batches(sized_batch(1000), log.partition.config, log.clock.now_ms())))
    log.configure({"segment.bytes": 999})
    answers = log.partition.append([checked])
    assert [kafka_code_of(answer) for answer in answers] == [18]
    assert log.partition.publish().log_end_offset == 0


def test_e10_max_message_bytes(new_log: NewLog) -> None:
    """Spec E10: exactly the limit passes, one byte more is refused with 10; the limit is each batch's own."""
    log = new_log({"max.message.bytes": 500})
    log.send(sized_batch(500))
    log.send(sized_batch(500) + sized_batch(500))
    with refused(log, 10):
        log.send(sized_batch(501))
    with refused(log, 10):
        log.send(sized_batch(100) + sized_batch(501))


@pytest.mark.parametrize("control_type", list(ControlType))
def test_v_10_control_batch_from_client(new_log: NewLog, control_type: ControlType) -> None:
    log = new_log()
    marker = encode_control_batch(
        control_type, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
    )
    with refused(log, 87):
        log.send(marker)
    with refused(log, 87):
        log.send(patched(batch_of(), 21, ">h", 0x20))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_v_13_null_key_on_a_compacted_topic(new_log: NewLog, policy: str) -> None:
    """The record is named, the whole batch is refused; a topic that is not compacted takes it."""
    log = new_log({"cleanup.policy": policy})
    records = b"".join(raw_record(place, key=varint(-1) if place == 1 else varint(1) + b"k") for place in range(3))
    body = raw_batch(records, 3)
    with refused(log, 87) as raised:
        log.send(body)
    assert [error.batch_index for error in raised.value.record_errors] == [1]
    plain = new_log()
    assert plain.send(body).record_count == 3
    assert [record.key for record in plain.records()] == [b"k", None, b"k"]


def test_e14_e15_log_append_time(new_log: NewLog) -> None:
    """Spec E15: all records report the time of the append, which is the answer's; deltas and base stay."""
    log = new_log({"message.timestamp.type": "LogAppendTime"})
    sent = batch_of(timestamps=[START_MS - 10**9, 7, -1, START_MS + 10**12, 5])
    log.clock.advance(1234)
    result = log.send(sent)
    assert result.log_append_time == START_MS + 1234
    assert {record.timestamp for record in log.records()} == {START_MS + 1234}
    stored = log.file().read_bytes()
    assert stored[27:35] == sent[27:35]
    assert stored[43:] == sent[43:]
    header = parse_header(stored)
    assert (header.attributes, header.max_timestamp) == (0x08, START_MS + 1234)
    RecordBatch(stored).check_crc()
    found = log.snapshot.offset_for_timestamp(START_MS + 1234)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, START_MS + 1234)


def test_e14_one_bad_record_refuses_the_batch(new_log: NewLog) -> None:
    """Spec E14: timestamps outside the topic's range give 32, all of them named."""
    log = new_log({"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 500})
    log.send(batch_of(timestamps=[START_MS - 1000, -1, START_MS + 500]))
    with refused(log, 32) as raised:
        log.send(batch_of(timestamps=[START_MS, START_MS - 1001, START_MS, START_MS + 501]))
    assert [error.batch_index for error in raised.value.record_errors] == [1, 3]


def test_v_16_wrong_max_timestamp_is_recomputed(new_log: NewLog) -> None:
    """Spec E15: the header's maximum is wrong, its CRC right; the records' own maximum is stored."""
    log = new_log()
    sent = patched(batch_of(timestamps=[5, 9, 7]), 35, ">q", 0)
    log.send(sent)
    stored = log.file().read_bytes()
    assert parse_header(stored).max_timestamp == 9
    assert stored == patched(sent, 35, ">q", 9)
    assert [record.timestamp for record in log.records()] == [5, 9, 7]


@pytest.mark.parametrize(
    "headers",
    [
        (("null", None), ("empty", b""), ("", b"no name"), ("", None)),
        (("twice", b"1"), ("other", b"x"), ("twice", b"2"), ("twice", b"1")),
        tuple((f"name {number % 7}", None if number % 3 == 0 else b"%d" % number) for number in range(1000)),
        (("ключ", "значение".encode()),),
    ],
    ids=["null and empty", "duplicates", "a thousand", "utf-8"],
)
@CODECS
def test_v_19_headers(new_log: NewLog, codec: Codec, headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """Order, duplicates and nulls are kept."""
    log = new_log()
    log.send(batch_of(3, headers=headers, codec=codec))
    assert [record.headers for record in log.records()] == [headers] * 3


def test_v_19_null_header_key(new_log: NewLog) -> None:
    log = new_log()
    nameless = varint(1) + varint(-1) + varint(1) + b"v"
    with refused(log, 87):
        log.send(raw_batch(raw_record(0, headers=nameless), 1))


@CODECS
def test_v_20_the_payload_is_stored_as_sent(new_log: NewLog, codec: Codec) -> None:
    """Spec E12, B3: the same codec and contiguous offsets, so the compressed bytes are never touched."""
    log = new_log()
    sent = [batch_of(count, value=b"v" * 200, codec=codec) for count in (1, 7, 30)]
    for body in sent:
        log.send(body)
    position = 0
    stored = log.file().read_bytes()
    for body in sent:
        assert outside_stamp(stored[position : position + len(body)]) == outside_stamp(body)
        position += len(body)
    assert log.read() == stored


def _malformed_records() -> dict[str, bytes]:
    """Bytes of one record each, the third of a batch."""
    start = b"\0" + varint(0) + varint(2)
    good = raw_record(2)
    return {
        "negative header count": raw_record(2, headers=varint(-1)),
        "more headers than bytes": raw_record(2, headers=varint(2)),
        "two thousand million headers": raw_record(2, headers=varint(2**31 - 1)),
        "a key longer than what is left": raw_record(2, key=varint(100) + b"k"),
        "a key of 2 GiB": raw_record(2, key=varint(2**31 - 1) + b"k"),
        "a value of 2 GiB": raw_record(2, value=varint(2**31 - 1)),
        "a negative key length": raw_record(2, key=varint(-2)),
        "a header value of 2 GiB": raw_record(2, headers=varint(1) + varint(1) + b"h" + varint(2**31 - 1)),
        "a trailing byte in the record": framed(start + varint(-1) + varint(-1) + varint(0) + b"\0"),
        "a varint of six bytes": framed(start + b"\x80" * 5 + b"\0" + varint(-1) + varint(0)),
        "a timestamp of eleven bytes": framed(b"\0" + b"\x80" * 10 + b"\0" + varint(2) + b"\1\1\0"),
        "a length that runs over the end": varint(1000) + good[1:],
        "a length of 2 GiB": varint(2**31 - 1) + good[1:],
        "a negative length": varint(-1) + good[1:],
        "cut off": good[:-2],
        "nothing": b"",
    }


MALFORMED = _malformed_records()


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("good_count", [2, 200])
def test_v_22_malformed_record(new_log: NewLog, name: str, codec: Codec, good_count: int) -> None:
    """87 or 2, whatever is wrong; few records are read one by one and many in columns, so both are tried."""
    log = new_log()
    section = b"".join(map(raw_record, range(2))) + MALFORMED[name] + b"".join(map(raw_record, range(3, good_count)))
    body = raw_batch(compress(codec, section, None), max(good_count, 3), attributes=int(codec))
    tracemalloc.start()
    try:
        with refused(log, 87) as raised:
            log.send(body)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert isinstance(raised.value, InvalidRecordError)


def test_v_22_wrong_counts(new_log: NewLog) -> None:
    """Spec E13: a count that the records, or the last offset delta, do not bear out; never as many bytes of memory."""
    log = new_log()
    section = b"".join(map(raw_record, range(3)))
    honest = raw_batch(section, 3)
    for count in (0, -1, 1, 2, 4, 2**31 - 1, -(2**31)):
        wrong_count = patched(honest, 57, ">i", count)
        with refused(log, 87):
            log.send(wrong_count)
        if count > -(2**31):
            with refused(log, 87):
                log.send(patched(wrong_count, 23, ">i", count - 1))
            with refused(log, 87):
                log.send(patched(honest, 23, ">i", count - 1))
    log.send(honest)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, 87),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, 87),
        ({"transactional": True}, 87),
    ],
)
def test_e13_producer_fields(new_log: NewLog, fields: dict[str, int], code: int) -> None:
    """Spec E13: a producer id needs a sequence and an epoch, a transaction needs a producer."""
    log = new_log()
    with refused(log, code):
        log.send(batch_of(2, **fields))


def test_v_22_random_damage_never_ends_otherwise(new_log: NewLog) -> None:
    """Any bytes between header and end, with a right CRC: refused by a code, or taken and read back whole."""
    log = new_log({"max.message.bytes": 100_000})
    source = random.Random(22)
    honest = b"".join(raw_record(place, headers=varint(1) + varint(1) + b"h" + varint(-1)) for place in range(5))
    codes = set()
    for _ in range(1500):
        section = bytearray(honest)
        for _ in range(source.randint(1, 4)):
            section[source.randrange(len(section))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        body = raw_batch(bytes(section), 5)
        try:
            log.send(body)
        except StorageError as error:
            codes.add(kafka_code_of(error))
        else:
            assert log.records(log.end_offset - 5)
    assert codes <= {2, 32, 87}


def test_v_23_timestamps_at_the_edges(new_log: NewLog) -> None:
    """Deltas of 2^63-1 and of -2^63, a delta of -1: what was sent comes back, also by time."""
    log = new_log({"message.timestamp.after.max.ms": LONG_MAX, "index.interval.bytes": 0})
    sent = [[0, LONG_MAX], [LONG_MAX, 0], [LONG_MAX, -1], [1, 0]]
    for timestamps in sent:
        log.send(batch_of(timestamps=timestamps))
    assert [record.timestamp for record in log.records()] == [timestamp for pair in sent for timestamp in pair]
    for clean in (True, False):
        found = log.snapshot.offset_for_timestamp(LONG_MAX)
        assert found is not None
        assert (found.offset, found.timestamp) == (1, LONG_MAX)
        log.roll()
        log.restart(clean=clean)


def test_v_23_the_longest_delta_is_of_ten_bytes(new_log: NewLog) -> None:
    """-2^63 in ten bytes, as Kafka writes it; the sum wraps around as Java's does."""
    log = new_log()
    section = raw_record(0, timestamp_delta=-(2**63)) + raw_record(1, timestamp_delta=-(2**63) + 1 + START_MS)
    log.send(raw_batch(section, 2, base_timestamp=LONG_MAX, max_timestamp=START_MS))
    assert [record.timestamp for record in log.records()] == [-1, START_MS]


def test_v_23_offset_delta_at_the_edge(new_log: NewLog) -> None:
    """An offset delta of 2^31-1 is decoded; the log refuses it: 0, 1, 2, ... (ARCHITECTURE.md#decisions)."""
    log = new_log()
    record = framed(b"\0" + varint(0) + varint(2**31 - 1) + varint(-1) + varint(-1) + varint(0))
    body = raw_batch(record, 1)
    columns = decode_batch(RecordBatch(body))
    assert columns.offsets.tolist() == [2**31 - 1]
    assert (columns.keys.to_list(), columns.values.to_list()) == ([None], [None])
    with refused(log, 87):
        log.send(body)
    with refused(log, 87):
        log.send(patched(body, 23, ">i", 2**31 - 1))


@pytest.mark.parametrize("deltas", [[0, 2, 1], [0, 1, 1], [0, 1, 3], [1, 2, 3], [-1, 0, 1]])
def test_offset_deltas_must_be_contiguous(new_log: NewLog, deltas: list[int]) -> None:
    """Kafka stores such a batch unchecked; here it is refused with 87 (ARCHITECTURE.md#decisions)."""
    log = new_log()
    with refused(log, 87) as raised:
        log.send(raw_batch(b"".join(map(raw_record, deltas)), 3))
    wrong = [place for place, delta in enumerate(deltas) if delta != place]
    assert [error.batch_index for error in raised.value.record_errors] == wrong


def test_v_26_empty_record_set(new_log: NewLog) -> None:
    """Spec A12: an answer without offsets, nothing written, and no roll even when one is due."""
    log = new_log({"segment.ms": 1000})
    log.fill(3)
    log.clock.advance(5000)
    before = log.log_files()
    result = log.send(b"")
    assert (result.base_offset, result.record_count, result.log_append_time) == (-1, 0, -1)
    assert (log.end_offset, log.base_offsets, log.log_files()) == (3, [0], before)
    answers = log.send_group(b"", batch_of(2, first_timestamp=START_MS + 1), b"")
    assert [answer.base_offset for answer in answers] == [-1, 3, -1]


def test_a7_a_refused_request_leaves_the_others_of_its_group(new_log: NewLog) -> None:
    """Spec A7: one answer per request; those behind a refused one get the offsets it would have had."""
    log = new_log()
    bad = batch_of(2, producer_id=1, producer_epoch=0, base_sequence=5)
    log.send(batch_of(2, producer_id=1, producer_epoch=0, base_sequence=0))
    answers = log.send_group(batch_of(3), bad, batch_of(4))
    assert [getattr(answer, "base_offset", None) for answer in answers] == [2, None, 5]
    assert kafka_code_of(answers[1]) == 45
    assert log.offsets() == list(range(9))


def test_v_22_a_wrong_crc_of_a_wrong_record_is_a_wrong_crc(new_log: NewLog) -> None:
    """Damage on the way is told from a producer's fault: 2 before 87."""
    log = new_log()
    body = bytearray(with_crc(raw_batch(raw_record(0, headers=varint(-1)), 1)))
    body[17] ^= 1
    with refused(log, 2):
        log.send(bytes(body))
