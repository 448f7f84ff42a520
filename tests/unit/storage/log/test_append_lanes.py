"""The quick steps of validation and append do what the general ones do, byte for byte and word for word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import log_model.batches.batch_validation
from log_model.batches.batch_validation import ValidBatch, validate_batches
from log_model.clock import ManualClock
from log_model.config import TopicConfig
from log_model.errors import InvalidRecordError, PartitionOfflineError, StorageError
from rollway.records import Codec, Record, columns_from_records, encode_batch
from storage.log.files_at_rest import begin_change
from storage.log.log_writer import LogWriter
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk

NOW_MS = 1_700_000_000_000
DATA = Path("/data")

CONFIGS = {
    "plain": {},
    "log append time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "in time": {"message.timestamp.before.max.ms": 50, "message.timestamp.after.max.ms": 50},
    "gzip": {"compression.type": "gzip"},
}


def batch(
    ages_ms: Sequence[int], *, key: bytes | None = None, value_bytes: int = 20, codec: Codec = Codec.NONE
) -> bytearray:
    records = [
        Record(place, NOW_MS - age_ms, key, bytes(value_bytes), (("h", b"v"),) if age_ms == 3 else ())
        for place, age_ms in enumerate(ages_ms)
    ]
    return bytearray(encode_batch(columns_from_records(records), codec=codec))


def verdict(body: bytes | bytearray | memoryview, config: TopicConfig) -> object:
    """All that validation says of a body."""
    try:
        return [
            (bytes(valid.head), bytes(valid.body), valid.header, valid.max_timestamp, valid.size_bytes)
            for valid in validate_batches(body, config, NOW_MS)
        ]
    except StorageError as error:
        errors = error.record_errors if isinstance(error, InvalidRecordError) else None
        return type(error), str(error), errors


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Batches, some of them with a few bytes changed and the CRC made right again."""
    body = bytearray()
    for _ in range(draw(st.integers(1, 2))):
        made = batch(
            draw(st.lists(st.sampled_from([0, 0, 3, 40, 90, -200]), min_size=1, max_size=30)),
            key=draw(st.sampled_from([None, b"key"])),
            value_bytes=draw(st.sampled_from([0, 20, 70])),
            codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP])),
        )
        for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
            made[draw(st.integers(0, len(made) - 1))] = draw(st.integers(0, 255))
        if draw(st.booleans()):
            made[17:21] = log_model.batches.batch_validation.crc32c(made[21:]).to_bytes(4, "big")
        body += made
    return bytes(body)


@settings(max_examples=200, deadline=None)
@given(bodies(), st.sampled_from(sorted(CONFIGS)))
def test_facts_and_columns_give_one_verdict(body: bytes, name: str) -> None:
    config = TopicConfig.parse(CONFIGS[name])
    quick = verdict(body, config)
    assert verdict(memoryview(bytearray(body)), config) == quick
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_model.batches.batch_validation, "find_facts", lambda *_: None)
        assert verdict(body, config) == quick


def new_log(clock: ManualClock, config: dict[str, object]) -> tuple[SimulatedDisk, PartitionLog]:
    disk = SimulatedDisk(clock)
    disk.make_directory(DATA)
    manager = LogManager.open(DATA, file_system=disk, clock=clock, topic_defaults=SMALL_INDEXES)
    topic, _ = manager.create_topic("t", 1, config)
    log = topic.partitions[0]
    # As an earlier append would: the first change of a partition that rested takes more than a write.
    begin_change(log.writer)
    return disk, log


def appended(log: PartitionLog, batches: tuple[ValidBatch, ...]) -> object:
    log.appends_without_waiting(AppendRequest(batches))
    try:
        (answer,) = log.append([AppendRequest(batches)])
    except StorageError as error:
        return type(error), str(error)
    log.publish()
    return (type(answer), str(answer)) if isinstance(answer, StorageError) else answer


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), max_size=3), st.integers(0, 30_000)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["plain", "log append time"]),
    st.sampled_from([0, 100, 4096]),
)
def test_a_plain_append_does_what_a_group_does(
    requests: list[tuple[list[list[int]], int]], name: str, interval: int
) -> None:
    config = {**CONFIGS[name], "segment.bytes": 1500, "segment.ms": 60_000, "segment.index.bytes": 100}
    config |= {"index.interval.bytes": interval, "flush.messages": 9, "flush.policy": "interval"}
    clock = ManualClock(NOW_MS)
    (disk, log), (other_disk, other) = new_log(clock, config), new_log(clock, config)
    for batches, wait_ms in requests:
        body = b"".join(batch(ages_ms) for ages_ms in batches)
        ours = tuple(validate_batches(body, log.config, NOW_MS))
        theirs = tuple(validate_batches(body, other.config, NOW_MS))
        with pytest.MonkeyPatch.context() as patch:
            answer = appended(log, ours)
            patch.setattr(LogWriter, "_append_alone", lambda *_: None)
            assert appended(other, theirs) == answer
        clock.advance(wait_ms)
        assert log.snapshot.segment_infos() == other.snapshot.segment_infos()
        assert log.durable_end_offset == other.durable_end_offset
    names = disk.list_directory(log.directory)
    assert names == other_disk.list_directory(other.directory)
    for name in names:
        if name == "partition.metadata":  # has the topic's id, which is random
            continue
        path = log.directory / name
        assert disk.open(path).read(0, disk.size(path)) == other_disk.open(path).read(0, disk.size(path)), name


def test_a_batch_that_needs_more_than_a_write_is_appended_as_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOW_MS)
    config = {"segment.bytes": 1000, "segment.ms": 60_000, "flush.messages": 5, "flush.policy": "interval"}
    _, log = new_log(clock, config)
    groups: list[Sequence[AppendRequest]] = []
    append_group = LogWriter._append_group

    def note_and_append(
        writer: LogWriter, group: Sequence[AppendRequest], answers: list[AppendResult | StorageError]
    ) -> None:
        groups.append(group)
        append_group(writer, group, answers)

    monkeypatch.setattr(LogWriter, "_append_group", note_and_append)

    def one(*ages_ms: int, value_bytes: int = 20) -> ValidBatch:
        (valid,) = validate_batches(batch(ages_ms, value_bytes=value_bytes), log.config, NOW_MS)
        return valid

    def is_alone(valid: ValidBatch, base_offset: int) -> bool:
        """Append it at this offset; whether it took no group."""
        count = len(groups)
        (answer,) = log.append((AppendRequest((valid,)),))
        log.publish()
        assert isinstance(answer, AppendResult)
        assert (answer.base_offset, log.snapshot.high_watermark) == (base_offset, answer.end_offset)
        return len(groups) == count

    assert is_alone(one(0, 0), 0)
    assert log.durable_end_offset == 0
    assert is_alone(one(0, 0, 0), 2)
    assert log.durable_end_offset == 5, "flush.messages asks for a flush"
    assert not is_alone(one(0, value_bytes=900), 5), "the segment is rolled first"
    assert log.snapshot.base_offsets == (0, 5)
    log.roll()
    assert is_alone(one(0), 6)
    assert not is_alone(one(-60_001), 7), "the segment is too old for it"
    assert log.snapshot.base_offsets == (0, 5, 6, 7)
    identified = one(0)
    identified.set_producer(7, 0, 0)
    assert not is_alone(identified, 8)
    log.update_config(TopicConfig.parse({"flush.policy": "interval", "segment.bytes": 2000}))
    assert is_alone(one(0, value_bytes=900), 9), "the settings have changed"
    log.roll()
    assert is_alone(one(0), 10)
    log.take_offline("for the test")
    with pytest.raises(PartitionOfflineError):
        log.append((AppendRequest((one(0),)),))


def test_what_has_to_wait_is_told_before() -> None:
    clock = ManualClock(NOW_MS)
    _, log = new_log(clock, {"segment.bytes": 1000, "flush.messages": 5})
    request = AppendRequest(tuple(validate_batches(batch([0, 0]), log.config, NOW_MS)))
    assert log.appends_without_waiting(request)
    assert not log.appends_without_waiting(AppendRequest(()))
    assert not log.appends_without_waiting(
        AppendRequest(tuple(validate_batches(batch([0] * 5), log.config, NOW_MS)))
    ), "flush.messages asks for a flush"
    large = AppendRequest(tuple(validate_batches(batch([0], value_bytes=900), log.config, NOW_MS)))
    assert log.appends_without_waiting(large)
    log.append([request])
    assert not log.appends_without_waiting(large), "the segment is rolled first"
    log.take_offline("for the test")
    assert not log.appends_without_waiting(request)
