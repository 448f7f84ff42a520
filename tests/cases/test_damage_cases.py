"""Damage below the durable end: only what is damaged is refused, what lies behind it is served (disk rule 5)."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_model.errors import CorruptionError, PartitionOfflineError
from log_model.offsets import Offset
from log_model.reads import Isolation, OffsetRange
from rollway.records import Record, columns_from_records, encode_batch
from tests.cases.logs import START_MS, CaseLog, batch_of

NewLog = Callable[..., CaseLog]
SIZE = len(batch_of())
COUNT = 10


def put(layout: str, at: int, number: int) -> Callable[[bytearray], None]:
    """Write another number into a batch's header; the CRC stays."""
    return lambda batch: struct.pack_into(layout, batch, at, number)


DAMAGES: dict[str, Callable[[bytearray], None]] = {
    "a record": put(">B", 65, 0xAA),
    "the CRC": put(">I", 17, 1),
    "the magic": put(">b", 16, 3),
    "the epoch": put(">i", 12, 7),
    "the base offset, too high": put(">q", 0, 2**40),
    "the base offset, one too high": lambda batch: put(">q", 0, batch[7] + 1)(batch),
    "the base offset, negative": put(">q", 0, -1),
    "the length, two batches": put(">i", 8, 2 * SIZE - 12),
    "the length, too long": put(">i", 8, 2**30),
    "the length, too short": put(">i", 8, 50),
    "the length, negative": put(">i", 8, -5),
    "the length, zero": put(">i", 8, 0),
    "the last offset delta": put(">i", 23, 1),
    "the last offset delta, negative": put(">i", 23, -2),
    "all of it": lambda batch: batch.__setitem__(slice(None), bytes(len(batch))),
    "all of it, random": lambda batch: batch.__setitem__(slice(None), random.Random(5).randbytes(len(batch))),
}


def stopped_log(new_log: NewLog, config: dict[str, object] | None = None) -> CaseLog:
    """Ten batches of one record, all durable and below the checkpointed recovery point, and killed."""
    log = new_log(config or {})
    for number in range(COUNT):
        log.send(batch_of(value=b"%d" % (number % 10), first_timestamp=START_MS + number))
    log.flush()
    log.manager.checkpoint()
    log.kill()
    return log


def damage(log: CaseLog, number: int, how: Callable[[bytearray], None], size: int | None = None) -> None:
    content = bytearray(log.file().read_bytes())
    size = len(content) // COUNT if size is None else size
    batch = content[number * size : (number + 1) * size]
    how(batch)
    content[number * size : (number + 1) * size] = batch
    log.file().write_bytes(content)


def assert_served_around(log: CaseLog, *lost: int, end: int = COUNT) -> None:
    """Every offset but the lost ones is served with its own record; those are refused, and nothing is appended."""
    for offset in range(end):
        if offset in lost:
            with pytest.raises(CorruptionError, match="damaged"):
                log.read(offset)
            continue
        records = log.records(offset)
        run_end = min((number for number in lost if number > offset), default=end)
        assert [record.offset for record in records] == list(range(offset, run_end))
        assert [record.value for record in records] == [b"%d" % (number % 10) for number in range(offset, run_end)]
    assert log.end_offset == log.snapshot.high_watermark == end
    assert log.read(end) == b""
    if lost:
        with pytest.raises(PartitionOfflineError):
            log.send(batch_of())


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("number", [0, 1, 4, COUNT - 2, COUNT - 1])
def test_only_the_damaged_batch_is_lost(new_log: NewLog, name: str, number: int) -> None:
    log = stopped_log(new_log)
    damage(log, number, DAMAGES[name])
    before = log.file().read_bytes()
    for _ in range(2):
        log.start()
        assert log.recovery.damage == [OffsetRange(Offset(number), Offset(number + 1))]
        assert_served_around(log, number)
        found = log.snapshot.offset_for_timestamp(START_MS + 6)
        assert found is not None
        assert found.offset == (7 if number == 6 else 6)
        assert log.file().read_bytes() == before
        log.kill()


@pytest.mark.parametrize("name", ["a record", "the length, two batches", "the magic", "all of it"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_in_a_sealed_segment(new_log: NewLog, name: str, stop: str) -> None:
    """A clean start and one above the recovery point look at headers only, and only behind the last index entry."""
    log = new_log()
    for number in range(COUNT):
        log.send(batch_of(value=b"%d" % number))
    log.roll()
    for number in range(COUNT, COUNT + 3):
        log.send(batch_of(value=b"%d" % (number % 10)))
    if stop == "clean":
        log.stop()
    else:
        log.kill()
    damage(log, 4, DAMAGES[name])
    log.start()
    if stop == "clean" and name == "a record":
        assert log.recovery.damage == []
        return
    assert log.recovery.damage == [OffsetRange(Offset(4), Offset(5))]
    assert_served_around(log, 4, end=COUNT + 3)
    everything = log.snapshot.read(Offset(5), 1 << 20, isolation=Isolation.LOG_END)
    assert everything.next_offset == COUNT + 3


@pytest.mark.parametrize(
    ("first", "second"), [("a record", "a record"), ("the length, too long", "a record"), ("a record", "the epoch")]
)
def test_two_places(new_log: NewLog, first: str, second: str) -> None:
    """Between two damaged batches that still say how long they are everything is served."""
    log = stopped_log(new_log)
    damage(log, 2, DAMAGES[first])
    damage(log, 6, DAMAGES[second])
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(2), Offset(3)), OffsetRange(Offset(6), Offset(7))]
    assert_served_around(log, 2, 6)


def test_what_no_chain_confirms_is_not_served(new_log: NewLog) -> None:
    """Between two batches whose lengths are lost nothing proves where good ones begin: all of it is refused."""
    log = stopped_log(new_log)
    damage(log, 2, DAMAGES["the magic"])
    damage(log, 6, DAMAGES["the magic"])
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(2), Offset(7))]
    assert_served_around(log, 2, 3, 4, 5, 6)


def test_a_wrong_offset_behind_damage_is_not_believed(new_log: NewLog) -> None:
    """No CRC covers offsets: the last batch alone, behind a damaged one, may claim any."""
    log = stopped_log(new_log)
    damage(log, COUNT - 2, DAMAGES["the magic"])
    damage(log, COUNT - 1, put(">q", 0, COUNT + 3))
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(COUNT - 2), Offset(COUNT))]
    assert_served_around(log, COUNT - 2, COUNT - 1)


def test_batches_inside_a_record_are_not_taken_for_the_logs(new_log: NewLog) -> None:
    """A value may hold whole batches with offsets and epoch that would fit. They lead nowhere."""
    log = new_log()
    inner = b"".join(
        encode_batch(columns_from_records([Record(0, START_MS, b"key", b"x")]), base_offset=offset, leader_epoch=0)
        for offset in (2, 3)
    )
    log.fill(1)
    outer = batch_of(5, value=inner)
    log.send(outer)
    log.fill(3)
    log.flush()
    log.manager.checkpoint()
    log.kill()
    content = bytearray(log.file().read_bytes())
    struct.pack_into(">i", content, SIZE + 8, 2**29)
    log.file().write_bytes(content)
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(1), Offset(6))]
    assert [record.offset for record in log.records(6)] == [6, 7, 8]
    for offset in range(1, 6):
        with pytest.raises(CorruptionError):
            log.read(offset)


def test_the_tail_of_a_crash_behind_damage(new_log: NewLog) -> None:
    """Above the durable end a bad batch ends the log as ever; behind damage it is left where it is."""
    log = new_log()
    log.fill(6)
    log.flush()
    log.manager.checkpoint()
    log.fill(4)
    log.kill()
    damage(log, 3, DAMAGES["a record"])
    damage(log, 8, DAMAGES["a record"])
    before = log.file().read_bytes()
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(3), Offset(4))]
    assert log.end_offset == 8
    assert [record.offset for record in log.records(4)] == [4, 5, 6, 7]
    assert log.file().read_bytes() == before


def test_a_compacted_log(new_log: NewLog) -> None:
    """Offsets may be missing between its batches; only what is damaged is refused there too."""
    log = new_log({"cleanup.policy": "compact"})
    for number in range(COUNT):
        log.send(batch_of(value=b"%d" % number))
    log.flush()
    log.manager.checkpoint()
    log.kill()
    content = log.file().read_bytes()
    size = len(content) // COUNT
    log.file().write_bytes(content[: 2 * size] + content[3 * size : 5 * size] + content[6 * size :])
    log.start()
    assert log.recovery.damage == []
    assert log.offsets() == [0, 1, 3, 4, 6, 7, 8, 9]
    log.kill()
    damage(log, 3, DAMAGES["a record"], size)
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(4), Offset(6))]
    assert [record.offset for record in log.records(6)] == [6, 7, 8, 9]
    assert [record.offset for record in log.records(0)] == [0, 1, 3]


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize(("number", "log_start"), [(0, 1), (3, 4), (3, 7), (COUNT - 2, COUNT - 1), (COUNT - 1, COUNT)])
def test_below_the_log_start_it_harms_nobody(new_log: NewLog, name: str, number: int, log_start: int) -> None:
    """Those records are deleted: the partition takes appends, also after every later stop."""
    log = new_log()
    for place in range(COUNT):
        log.send(batch_of(value=b"%d" % place, first_timestamp=START_MS + place))
    log.delete_records(log_start)
    log.flush()
    log.manager.checkpoint()
    log.kill()
    damage(log, number, DAMAGES[name])
    log.start()
    assert log.recovery.damage == []
    # What is known of leader epochs begins at the log start.
    assert name == "the epoch" or f"below the log start {log_start}" in " ".join(log.recovery.notes)
    for end, clean in enumerate((False, True, True, False, True), start=COUNT + 1):
        log.send(batch_of(value=b"x", first_timestamp=START_MS + end))
        for offset in range(log_start, end):
            assert log.records(offset)[0].value == (b"%d" % offset if offset < COUNT else b"x")
        found = log.snapshot.offset_for_timestamp(START_MS)
        assert found is not None
        assert found.offset == log_start
        log.restart(clean=clean)
        assert log.partition.offline_reason is None
        assert (log.snapshot.log_start_offset, log.end_offset) == (log_start, end)
    log.roll()
    log.send(batch_of())
    log.restart(clean=True)
    assert log.records(log_start)[0].offset == log_start
    log.delete_records(log.end_offset - 1)
    oldest = log.base_offsets[0]
    assert log.run_retention() == [oldest]


def test_damage_that_reaches_over_the_log_start(new_log: NewLog) -> None:
    """What is not deleted is damaged still."""
    log = new_log()
    log.fill(3)
    log.send(batch_of(4))
    log.fill(3)
    log.delete_records(5)
    log.flush()
    log.manager.checkpoint()
    log.kill()
    content = bytearray(log.file().read_bytes())
    content[3 * SIZE + 70] ^= 1
    log.file().write_bytes(content)
    log.start()
    assert log.recovery.damage == [OffsetRange(Offset(3), Offset(7))]
    assert [record.offset for record in log.records(7)] == [7, 8, 9]


def test_a_torn_tail_is_cut_though_there_is_damage_below_the_log_start(new_log: NewLog) -> None:
    log = new_log()
    log.fill(6)
    log.delete_records(4)
    log.flush()
    log.manager.checkpoint()
    log.fill(4)
    log.kill()
    damage(log, 3, DAMAGES["a record"])
    damage(log, 8, DAMAGES["a record"])
    log.start()
    assert log.recovery.damage == []
    assert (log.end_offset, log.file().stat().st_size) == (8, 8 * SIZE)
    log.fill(2)
    log.restart(clean=False)
    assert log.offsets(4) == [4, 5, 6, 7, 8, 9]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is overwritten: every offset gives its own record or is refused, and only the ranges reported are."""
    log = stopped_log(lambda config: CaseLog(tmp_path_factory.mktemp("damage") / "data", config))
    whole = log.file().read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=2 * SIZE))
        content[at : at + len(junk)] = junk[: len(content) - at]
    log.file().write_bytes(content)
    log.start()
    touched = {place // (len(whole) // COUNT) for place, byte in enumerate(whole) if content[place] != byte}
    reported = {offset for start, end in log.recovery.damage for offset in range(start, end)}
    assert touched <= reported
    assert log.end_offset == COUNT
    assert_served_around(log, *reported)
    assert log.file().read_bytes() == content
