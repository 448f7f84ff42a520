"""Cases V in which a real broker is the judge: what it stores and what it refuses of odd batches, and as what.

The batches are those in ``tests/failures/inputs/kafka-judge``, and others like them. Apache Kafka 3.9.1 was asked over
its protocol: topics with and without ``compression.type``, with both timestamp types.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest

from log_model.errors import InvalidRecordError
from rollway.records import Codec, RecordBatch, TimestampType, decode_batch, parse_header
from rollway.records.compression import compress
from tests.cases.logs import LONG_MAX, START_MS, CaseLog, batch_of, patched, raw_batch, raw_record, refused

NewLog = Callable[..., CaseLog]
JUDGE = Path(__file__).parents[1] / "failures/inputs/kafka-judge"
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
COMPRESSED = pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name.lower())


ANY_TIME: dict[str, object] = {"message.timestamp.after.max.ms": LONG_MAX}


def judged(name: str) -> bytes:
    """One of the batches that a broker was asked about."""
    return (JUDGE / f"{name}.batch").read_bytes()


def stored_batch(log: CaseLog) -> RecordBatch:
    """The only batch of the log."""
    batch = RecordBatch(log.file().read_bytes())
    batch.check_crc()
    return batch


# Timestamps


def claiming(timestamps: list[int], codec: Codec = Codec.NONE, max_timestamp: int | None = None) -> bytes:
    """A batch with the flag of LogAppendTime."""
    newest = max(timestamps) if max_timestamp is None else max_timestamp
    return patched(patched(batch_of(timestamps=timestamps, codec=codec), 21, ">h", 0x08 | codec), 35, ">q", newest)


@CODECS
def test_v_15_client_set_log_append_time(new_log: NewLog, codec: Codec) -> None:
    """A topic with create time stores the batch and clears the flag; one with log append time refuses it with 32."""
    sent = claiming([START_MS, START_MS - 7, START_MS + 3], codec)
    log = new_log()
    assert log.send(sent).log_append_time == -1
    batch = stored_batch(log)
    assert (batch.header.attributes, batch.header.max_timestamp) == (codec, START_MS + 3)
    assert batch.buffer == patched(sent, 21, ">h", codec)
    assert [record.timestamp for record in log.records()] == [START_MS, START_MS - 7, START_MS + 3]
    log = new_log({"message.timestamp.type": "LogAppendTime"})
    with refused(log, 32) as raised:
        log.send(sent)
    assert isinstance(raised.value, InvalidRecordError)
    assert [error.batch_index for error in raised.value.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("timestamps", [[-1, -1], [START_MS, START_MS]])
def test_v_15_log_append_time_without_a_time(new_log: NewLog, timestamps: list[int]) -> None:
    """The maximum is the time that all records of such a batch report: without one, 32 on both kinds of topic."""
    for timestamp_type in TimestampType:
        log = new_log({"message.timestamp.type": ["CreateTime", "LogAppendTime"][timestamp_type]})
        with refused(log, 32):
            log.send(claiming(timestamps, max_timestamp=-1))


def test_v_15_the_maximum_is_that_of_the_records(new_log: NewLog) -> None:
    """The flag is gone, so the maximum is what the records say, as without it (V-16); a broker keeps the header's."""
    log = new_log()
    log.send(claiming([START_MS, START_MS + 5], max_timestamp=START_MS + 99))
    assert stored_batch(log).header.max_timestamp == START_MS + 5
    found = log.snapshot.max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp) == (1, START_MS + 5)


def test_v_15_the_times_must_be_in_range(new_log: NewLog) -> None:
    log = new_log({"message.timestamp.before.max.ms": 1000})
    with refused(log, 32) as raised:
        log.send(claiming([START_MS, START_MS - 1001]))
    assert [error.batch_index for error in raised.value.record_errors] == [1]


@pytest.mark.parametrize("compression_type", ["gzip", "uncompressed", "lz4"])
@CODECS
def test_v_15_with_another_codec(new_log: NewLog, codec: Codec, compression_type: str) -> None:
    log = new_log({"compression.type": compression_type})
    log.send(claiming([START_MS, START_MS + 3], codec))
    assert stored_batch(log).header.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp for record in log.records()] == [START_MS, START_MS + 3]


# Offset deltas


def misnumbered(deltas: list[int], codec: Codec, last_offset_delta: int | None = None, **fields: int) -> bytes:
    """A batch whose records have these offset deltas."""
    records = b"".join(raw_record(delta, timestamp_delta=place) for place, delta in enumerate(deltas))
    body = raw_batch(bytes(compress(codec, records)), len(deltas), attributes=codec, max_timestamp=START_MS + 2)
    last = len(deltas) - 1 if last_offset_delta is None else last_offset_delta
    return patched(body, 23, ">i", last)


@pytest.mark.parametrize("deltas", [[0, 0, 2], [1, 2, 3], [0, 2, 3], [2, 1, 0], [-1, 0, 1]])
@COMPRESSED
def test_v_17_compressed_offset_deltas_are_rebuilt(new_log: NewLog, codec: Codec, deltas: list[int]) -> None:
    """Old clients number compressed records wrongly, and brokers have always rewritten them rather than refuse.

    Between different codecs 3.9.1 does so still; with one and the same codec it fails in the attempt, with -1.
    """
    log = new_log()
    before = log.send(batch_of(2))
    assert log.send(misnumbered(deltas, codec)).record_count == 3
    batch = RecordBatch(log.file().read_bytes()[before.record_count and len(batch_of(2)) :])
    batch.check_crc()
    assert (batch.header.codec, batch.header.last_offset_delta, batch.header.record_count) == (codec, 2, 3)
    assert decode_batch(batch).offsets.tolist() == [2, 3, 4]
    assert decode_batch(batch).timestamps.tolist() == [START_MS, START_MS + 1, START_MS + 2]
    assert batch.header.max_timestamp == START_MS + 2
    assert log.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("source", "target"), [("none", "gzip"), ("gzip", "uncompressed"), ("zstd", "lz4")])
def test_v_17_rebuilt_for_another_codec(new_log: NewLog, source: str, target: str) -> None:
    log = new_log({"compression.type": target})
    log.send(misnumbered([0, 0, 2], Codec[source.upper()]))
    assert stored_batch(log).header.codec is (Codec.NONE if target == "uncompressed" else Codec[target.upper()])
    assert log.offsets() == [0, 1, 2]


@COMPRESSED
def test_v_17_a_header_that_disagrees(new_log: NewLog, codec: Codec) -> None:
    """Spec E13: the last offset delta and the number of records belong together."""
    log = new_log()
    with refused(log, 87):
        log.send(misnumbered([0, 2, 3], codec, last_offset_delta=3))


def test_v_17_the_rest_of_the_header_is_kept(new_log: NewLog) -> None:
    """Producer, epoch, sequence, the transaction; and a repetition is told from a new batch."""
    log = new_log()
    sent = misnumbered([0, 0, 2], Codec.ZSTD)
    sent = patched(patched(sent, 43, ">qhi", 9, 1, 0), 21, ">h", Codec.ZSTD | 0x10)
    first, second = log.send(sent), log.send(sent)
    assert (first.duplicate, second.duplicate, second.base_offset) == (False, True, 0)
    header = stored_batch(log).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 0)
    assert header.is_transactional
    log.end_transaction(9, commit=True, producer_epoch=1)
    log.restart(clean=False)
    assert log.send(sent).duplicate


def test_v_17_other_rules_hold_for_rebuilt_records(new_log: NewLog) -> None:
    log = new_log({"message.timestamp.before.max.ms": 1000})
    log.clock.advance(1001)
    with refused(log, 32) as raised:
        log.send(misnumbered([0, 0, 2], Codec.GZIP))
    assert [error.batch_index for error in raised.value.record_errors] == [0]


def test_v_17_rebuilt_records_keep_to_the_size_limit(new_log: NewLog) -> None:
    """Stored uncompressed, the batch is as large as its records are."""
    records = b"".join(raw_record(0, value=b"\xc8\x01" + b"v" * 100) for _ in range(20))
    body = raw_batch(bytes(compress(Codec.GZIP, records)), 20, attributes=Codec.GZIP)
    log = new_log({"max.message.bytes": 1000, "compression.type": "uncompressed"})
    with refused(log, 10):
        log.send(body)


# Codecs


def test_lz4_frames_of_linked_blocks_are_refused(new_log: NewLog) -> None:
    """Kafka's own reader refuses them: a consumer, a tool, or a broker that takes the files over, would stop there."""
    log = new_log(ANY_TIME)
    with refused(log, 87) as raised:
        log.send(judged("lz4-linked-blocks"))
    assert "linked blocks" in str(raised.value)
    assert "compression.type" in str(raised.value)
    assert log.send(judged("lz4-independent-blocks")).record_count == 400


@pytest.mark.parametrize("compression_type", ["gzip", "snappy", "zstd", "uncompressed", "lz4"])
def test_a_topic_that_recompresses_takes_linked_blocks(new_log: NewLog, compression_type: str) -> None:
    log = new_log(ANY_TIME | {"compression.type": compression_type})
    if compression_type == "lz4":
        with refused(log, 87):
            log.send(judged("lz4-linked-blocks"))
        return
    log.send(judged("lz4-linked-blocks"))
    values = [record.value for record in log.records()]
    twin = new_log(ANY_TIME)
    twin.send(judged("lz4-independent-blocks"))
    assert values == [record.value for record in twin.records()]


def is_sound(frame: bytes) -> bool:
    try:
        lz4.frame.decompress(frame)
    except RuntimeError:
        return False
    return True


def test_an_lz4_frame_with_a_dictionary_is_refused(new_log: NewLog) -> None:
    """A flag that Kafka's reader takes for a reserved one: it stops at it. Ours needs no dictionary to read on."""
    frame = bytearray(lz4.frame.compress(raw_record(0), block_linked=False, store_size=False))
    frame[4] |= 0x01
    # The byte behind the flags is a checksum of them: the one that the decompressor takes.
    head, rest = bytes(frame[:6]) + b"\0\0\0\0", bytes(frame[7:])
    frames = (head + bytes([checksum]) + rest for checksum in range(256))
    body = raw_batch(next(filter(is_sound, frames)), 1, attributes=Codec.LZ4)
    log = new_log()
    with refused(log, 87) as raised:
        log.send(body)
    assert "dictionary" in str(raised.value)


# Magic


@pytest.mark.parametrize(("magic", "code"), [(0, 87), (1, 87), (3, 2), (4, 2), (127, 2), (0xFF, 2)])
def test_a_magic_that_no_format_has_is_damage(new_log: NewLog, magic: int, code: int) -> None:
    """87 for the formats of old, which a request of this kind may not carry; 2 for what is no format."""
    body = bytearray(batch_of())
    body[16] = magic
    log = new_log()
    with refused(log, code):
        log.send(bytes(body))
    with refused(log, 2):
        log.send(judged("magic-3"))


# Stricter than a broker, on purpose: docs/explanation/differences-from-kafka.md


@pytest.mark.parametrize(("name", "code"), [("epoch-minus-1", 87), ("timestamp-minus-5", 32)])
def test_what_no_client_sends_is_refused(new_log: NewLog, name: str, code: int) -> None:
    log = new_log()
    with refused(log, code):
        log.send(judged(name))


def test_records_without_a_time_are_none_of_it(new_log: NewLog) -> None:
    log = new_log()
    log.send(batch_of(timestamps=[-1, -1]))
    assert parse_header(log.file().read_bytes()).max_timestamp == -1
