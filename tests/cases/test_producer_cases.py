"""Cases PS: a batch sent twice is stored once, at the level of the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.offsets import Offset
from rollway.records import RecordBatch, split_batches
from rollway.records.batch import build_batch
from storage.log.partition_log import AppendRequest, AppendResult
from tests.cases.logs import START_MS, CaseLog, batch_of, raw_record, refused

NewLog = Callable[..., CaseLog]
DAY_MS = 86_400_000
SEQUENCES = 2**31


def sent_by(producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, value: bytes = b"value") -> bytes:
    return batch_of(count, value=value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


@pytest.mark.parametrize("restart", [None, True, False], ids=["same process", "clean stop", "kill"])
def test_ps_1_duplicate(new_log: NewLog, restart: bool | None) -> None:
    """The first answer again, and nothing written."""
    log = new_log()
    log.fill(3)
    first = log.send(sent_by(1, 0, 5))
    if restart is not None:
        log.restart(clean=restart)
    before = log.log_files()
    again = log.send(sent_by(1, 0, 5))
    assert again == first._replace(duplicate=True)
    assert (again.base_offset, again.last_offset, again.record_count) == (3, 7, 5)
    assert (log.end_offset, log.log_files()) == (8, before)
    assert log.send(sent_by(1, 5)).base_offset == 8


@pytest.mark.parametrize("restart", [None, True, False], ids=["same process", "clean stop", "kill"])
def test_ps_1_with_the_time_of_the_first_append(new_log: NewLog, restart: bool | None) -> None:
    """log_append_time is that of the batch in the log, not of the repetition."""
    log = new_log({"message.timestamp.type": "LogAppendTime"})
    first = log.send(sent_by(1, 0, 2))
    assert first.log_append_time == START_MS
    log.clock.advance(5000)
    if restart is not None:
        log.restart(clean=restart)
    again = log.send(sent_by(1, 0, 2))
    assert (again.log_append_time, again.base_offset, again.duplicate) == (START_MS, 0, True)
    assert log.send(sent_by(1, 2)).log_append_time == START_MS + 5000


def test_e19_the_last_five_batches_are_known(new_log: NewLog) -> None:
    """Spec E19: each of the last five is recognised, an older one is out of order, and so is a partial overlap."""
    log = new_log()
    bodies = [sent_by(1, 3 * number, 3) for number in range(7)]
    for body in bodies:
        log.send(body)
    for number in range(2, 7):
        assert log.send(bodies[number]).base_offset == 3 * number
    for number in range(2):
        with refused(log, 45):
            log.send(bodies[number])
    for sequence, count in ((18, 2), (18, 4), (17, 4), (19, 2), (20, 1)):
        with refused(log, 45):
            log.send(sent_by(1, sequence, count))
    assert log.end_offset == 21


def test_e19_after_a_restart_only_the_last_one(new_log: NewLog) -> None:
    """On-disk: a producer snapshot keeps one batch per producer."""
    log = new_log()
    for sequence in range(3):
        log.send(sent_by(1, sequence))
    log.restart(clean=True)
    assert log.send(sent_by(1, 2)).duplicate
    with refused(log, 45):
        log.send(sent_by(1, 1))


def test_e19_a_duplicate_is_one_by_its_sequences(new_log: NewLog) -> None:
    """Spec E19: epoch and sequences say so, the bytes are not compared; and the producer's id is its own."""
    log = new_log()
    log.send(sent_by(1, 0, 2))
    assert log.send(sent_by(1, 0, 2, value=b"other")).duplicate
    assert not log.send(sent_by(2, 0, 2)).duplicate
    assert log.end_offset == 4


def test_ps_5_gap(new_log: NewLog) -> None:
    """45 and the log as it was; then the right sequence is taken."""
    log = new_log()
    log.send(sent_by(1, 0, 3))
    for sequence in (4, 2, 1, 100, SEQUENCES - 1):
        with refused(log, 45):
            log.send(sent_by(1, sequence))
    assert log.send(sent_by(1, 3)).base_offset == 3


def test_ps_5_an_unknown_producer_may_begin_anywhere(new_log: NewLog) -> None:
    """Spec E19: its earlier records may have been deleted."""
    log = new_log()
    assert log.send(sent_by(1, 77)).base_offset == 0
    with refused(log, 45):
        log.send(sent_by(1, 79))
    assert log.send(sent_by(1, 78)).base_offset == 1


def test_e19_epochs(new_log: NewLog) -> None:
    """Spec E19: an older epoch is fenced (47), a new one of a known producer begins at 0 (45)."""
    log = new_log()
    log.send(sent_by(1, 0, epoch=3))
    with refused(log, 47):
        log.send(sent_by(1, 1, epoch=2))
    with refused(log, 45):
        log.send(sent_by(1, 1, epoch=4))
    assert log.send(sent_by(1, 0, epoch=4)).base_offset == 1
    with refused(log, 47):
        log.send(sent_by(1, 1, epoch=3))
    assert log.send(sent_by(1, 1, epoch=4)).base_offset == 2


@pytest.mark.parametrize("restart", [None, True, False])
def test_e19_sequences_wrap(new_log: NewLog, restart: bool | None) -> None:
    """Spec E19: 0 follows 2^31-1, also inside a batch."""
    log = new_log()
    log.send(sent_by(1, SEQUENCES - 3))
    wrapping = sent_by(1, SEQUENCES - 2, 4)
    assert log.send(wrapping).base_offset == 1
    if restart is not None:
        log.restart(clean=restart)
    assert log.send(wrapping).duplicate
    with refused(log, 45):
        log.send(sent_by(1, 3))
    assert log.send(sent_by(1, 2)).base_offset == 5


def test_ps_6_expiry(new_log: NewLog) -> None:
    """Idle for producer.id.expiration.ms: forgotten, and any sequence is accepted. Idle counts from the append, not
    from the records' timestamps, so that who sends old data is not forgotten at once."""
    log = new_log()
    log.send(sent_by(1, 0))
    log.clock.advance(1000)
    log.send(batch_of(timestamps=[START_MS - 30 * DAY_MS], producer_id=2, producer_epoch=0, base_sequence=0))
    producers = log.partition.producers
    log.clock.advance(DAY_MS - 1001)
    assert producers.expire() == 0
    with refused(log, 45):
        log.send(sent_by(1, 9))
    log.clock.advance(1)
    assert producers.expire() == 1
    assert log.send(sent_by(1, 9)).base_offset == 2
    with refused(log, 45):
        log.send(sent_by(2, 9))
    log.clock.advance(1000)
    assert producers.expire() == 1
    assert sorted(producers.entries) == [1]


def test_ps_1_in_one_group(new_log: NewLog) -> None:
    """A retry that overtakes its first try's fsync is in the same group: it is still one batch."""
    log = new_log()
    body = sent_by(1, 0, 2)
    answers = log.send_group(body, body, sent_by(1, 2), body)
    assert [(answer.base_offset, answer.duplicate) for answer in answers] == [
        (0, False),
        (0, True),
        (2, False),
        (0, True),
    ]
    assert log.end_offset == 3


@pytest.mark.parametrize("restart", [None, True, False], ids=["same process", "clean stop", "kill"])
@pytest.mark.parametrize("parts", [(3, 4, 2), (1,) * 8])
def test_ps_1_a_request_of_several_batches(new_log: NewLog, restart: bool | None, parts: tuple[int, ...]) -> None:
    """Known whole though a snapshot keeps the last batch alone, and five are kept in memory."""
    log = new_log()
    log.send(sent_by(2, 0, 2))
    ends = [sum(parts[:place]) for place in range(len(parts) + 1)]
    body = b"".join(
        sent_by(1, (SEQUENCES - 5 + end) % SEQUENCES, count) for end, count in zip(ends, parts, strict=False)
    )
    first = log.send(body)
    if restart is not None:
        log.restart(clean=restart)
    assert log.send(body) == first._replace(duplicate=True)
    assert log.end_offset == 2 + sum(parts)


def test_e19_a_request_that_is_only_partly_in_the_log(new_log: NewLog) -> None:
    """Spec E19: a partial overlap is out of order, and so is one whose beginning is not where it would be."""
    log = new_log()
    log.send(sent_by(1, 0, 2))
    log.send(sent_by(2, 0, 2))
    log.send(sent_by(1, 2, 2))
    log.restart(clean=True)
    for body in (
        sent_by(1, 0, 2) + sent_by(1, 2, 2),
        sent_by(1, 1, 1) + sent_by(1, 2, 2),
        sent_by(1, 2, 2) + sent_by(1, 4, 2),
        sent_by(1, 2, 1) + sent_by(1, 3, 2),
    ):
        with refused(log, 45):
            log.send(body)
    assert log.end_offset == 6


@pytest.mark.parametrize("restart", [None, True, False], ids=["same process", "clean stop", "kill"])
def test_e19_a_keyed_producer_writes_once(new_log: NewLog, restart: bool | None) -> None:
    """Ids from 2^62 on stand for one request: cut otherwise it is the same, with other records it is another."""
    log = new_log()
    keyed = 2**62 + 5
    log.fill(1)
    first = log.send(sent_by(keyed, 0, 3) + sent_by(keyed, 3, 4))
    if restart is not None:
        log.restart(clean=restart)
    for again in (sent_by(keyed, 0, 7), sent_by(keyed, 0, 1) + sent_by(keyed, 1, 6)):
        assert log.send(again) == first._replace(duplicate=True)
    for other in (sent_by(keyed, 0, 3), sent_by(keyed, 0, 8), sent_by(keyed, 7), sent_by(keyed, 0)):
        with refused(log, 45):
            log.send(other)
    assert log.end_offset == 8


def test_rt_10_a_request_of_deleted_records(new_log: NewLog) -> None:
    """What retention deleted was still written once."""
    log = new_log({"segment.bytes": 400})
    body = sent_by(1, 0, 1) + sent_by(1, 1, 1)
    first = log.send(body)
    for _ in range(5):
        log.send(batch_of(value=b"x" * 200))
    log.delete_records(log.end_offset)
    log.partition.delete_old_segments(log.clock.now_ms())
    log.restart(clean=True)
    again = log.send(body)
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, first.base_offset, first.last_offset)


def test_ps_6_a_restart_does_not_age_producers(new_log: NewLog) -> None:
    """A snapshot tells the time of records and not of appends: who sent old data is not forgotten at once."""
    log = new_log()
    log.send(batch_of(timestamps=[START_MS - 30 * DAY_MS], producer_id=1, producer_epoch=0, base_sequence=0))
    log.restart(clean=True)
    producers = log.partition.producers
    log.clock.advance(DAY_MS - 1)
    assert producers.expire() == 0
    log.clock.advance(1)
    assert producers.expire() == 1


def test_e19_a_duplicate_comes_before_the_expected_offset(new_log: NewLog) -> None:
    """A retry of what was appended at the expected offset finds the log longer, and is the same request even so."""
    log = new_log()
    batches = tuple(validate_batches(bytearray(sent_by(1, 0, 2)), log.partition.config, START_MS))
    (first,) = log.partition.append([AppendRequest(batches, Offset(0))])
    (again,) = log.partition.append([AppendRequest(batches, Offset(0))])
    assert isinstance(first, AppendResult)
    assert again == first._replace(duplicate=True)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_tx_11_what_kafka_compacted_still_knows_its_producers(new_log: NewLog, clean: bool) -> None:
    """A log whose last batches Kafka's cleaner has thinned out or emptied: every batch keeps its producer's numbers."""
    log = new_log({"cleanup.policy": "compact"})
    log.send(sent_by(1, 0, 3))
    log.send(sent_by(1, 3, 3))
    log.send(sent_by(1, 6, 2))
    log.send(sent_by(2, 0, 4))
    (log.stop if clean else log.kill)()
    batches = split_batches(log.file().read_bytes())
    kept = [[1], [0], [0, 1], []]
    log.file().write_bytes(b"".join(_compacted(batch, deltas) for batch, deltas in zip(batches, kept, strict=True)))
    for path in [*log.directory.glob("*.snapshot"), *log.directory.glob("*index")]:
        path.unlink()
    log.start()
    assert not log.partition.damage
    assert log.offsets() == [1, 3, 6, 7]
    assert [header.last_offset for header in log.headers()] == [2, 5, 7, 11]
    assert log.end_offset == 12
    for body, base_offset in ((sent_by(1, 6, 2), 6), (sent_by(2, 0, 4), 8)):
        again = log.send(body)
        assert (again.base_offset, again.duplicate) == (base_offset, True)
    assert log.send(sent_by(1, 8)).base_offset == 12
    assert log.send(sent_by(2, 4)).base_offset == 13


def _compacted(batch: RecordBatch, deltas: list[int]) -> bytes:
    """The batch with only these records left, by offset delta; its header keeps both ends and the producer."""
    section = b"".join(raw_record(delta, timestamp_delta=delta) for delta in deltas)
    emptied = {} if deltas else {"base_timestamp": -1}
    return build_batch(batch.header._replace(record_count=len(deltas), **emptied), section)
