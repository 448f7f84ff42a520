"""Hypothesis drives one partition with random operations and holds every answer against a plain list."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from log_model.clock import ManualClock
from log_model.errors import OffsetOutOfRangeError
from log_model.offsets import Offset
from log_model.reads import Isolation, SegmentInfo
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.ledger import (
    EVERYTHING,
    PartitionLedger,
    append_group,
    content_of,
    flush,
    open_directory,
    publish,
)
from tests.crash.workload import TOPIC_CONFIG, new_disk
from tests.model.plain_log import PlainLog, client_batch
from tests.model.plain_transactions import (
    PlainProducers,
    aborted_entries,
    committed_offsets,
    kept_by_a_consumer,
    last_stable_offset,
)

TOPIC = "model"
START_MS = 1_700_000_000_000
_EXAMPLES = 400 if settings.get_current_profile_name() == "ci" else 800
"""Histories; CI has 20 minutes."""

ages_ms = st.integers(0, 20_000)
batches = st.lists(st.lists(ages_ms, min_size=1, max_size=6), min_size=1, max_size=3)
fractions = st.floats(0, 1)
sizes = st.sampled_from([0, 1, 100, 400, 1000, 3000, EVERYTHING])


def brute_force_retention(
    segments: list[SegmentInfo],
    modified_ms: list[int],
    log: PlainLog,
    high_watermark: int,
    now_ms: int,
    limits: tuple[int, int],
) -> list[int]:
    """Base offsets that go by spec E5, rule after rule: below the log start, too many bytes, too old."""
    retention_bytes, retention_ms = limits
    left = list(zip(segments, modified_ms, strict=True))
    gone: list[int] = []

    def allowed() -> bool:
        segment = left[0][0]
        empty_active = len(left) == 1 and segment.size_bytes == 0
        return high_watermark >= segment.next_offset and not empty_active

    while len(left) > 1 and allowed() and left[1][0].base_offset <= log.start_offset:
        gone.append(left.pop(0)[0].base_offset)
    while retention_bytes >= 0 and left and allowed() and sum(s.size_bytes for s, _ in left[1:]) >= retention_bytes:
        gone.append(left.pop(0)[0].base_offset)
    while retention_ms >= 0 and left and allowed():
        segment, modified = left[0]
        newest = segment.largest_timestamp if segment.largest_timestamp >= 0 else modified
        if now_ms - newest <= retention_ms:
            break
        gone.append(left.pop(0)[0].base_offset)
    return gone


class LogMachine(RuleBasedStateMachine):
    """The engine's answers are the list's answers, whatever happened before."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.disk = new_disk(self.clock)
        self.expected = PartitionLedger()
        self.mark = 0
        self.manager: LogManager = open_directory(self.disk, self.clock)

    @property
    def log(self) -> PartitionLog:
        return self.manager.partition(TOPIC, 0)

    @initialize(
        policy=st.sampled_from(["group", "interval"]),
        interval=st.sampled_from([0, 150, 100_000]),
        preallocate=st.booleans(),
    )
    def create(self, policy: str, interval: int, preallocate: bool) -> None:
        config = TOPIC_CONFIG | {
            "flush.policy": policy,
            "index.interval.bytes": interval,
            "preallocate": preallocate,
            "retention.bytes": -1,
            "retention.ms": -1,
        }
        self.expected.group_flush = policy == "group"
        self.manager.create_topic(TOPIC, 1, config)

    # Writing

    @rule(
        group=st.lists(batches, min_size=1, max_size=3),
        value_bytes=st.sampled_from([0, 30, 60]),
        durable=st.booleans(),
    )
    def append(self, group: list[list[list[int]]], value_bytes: int, durable: bool) -> None:
        requests = []
        for request in group:
            made = []
            for ages in request:
                self.mark += 1
                timestamps = [-1 if age == 0 else self.clock.now_ms() - age for age in ages]
                made.append(client_batch(timestamps, value_bytes, self.mark))
            requests.append(made)
        append_group(self.log, self.expected, requests, self.clock)
        if durable:
            flush(self.log, self.expected)
        publish(self.log, self.expected)

    @rule(
        sends=st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 3)), min_size=1, max_size=4),
        commits=st.lists(st.booleans(), min_size=4, max_size=4),
        durable=st.booleans(),
    )
    def append_transactions(self, sends: list[tuple[int, int]], commits: list[bool], durable: bool) -> None:
        """Each sends a batch of so many records, or with 0 the marker of its transaction."""
        producers, now_ms = PlainProducers(self.expected.log), self.clock.now_ms()
        group = []
        for (producer_id, count), commit in zip(sends, commits, strict=False):
            self.mark += 1
            if count:
                group.append([producers.batch(producer_id, [now_ms] * count, 30, self.mark)])
            else:
                group.append([producers.marker(producer_id, commit=commit, now_ms=now_ms)])
        append_group(self.log, self.expected, group, self.clock)
        if durable:
            flush(self.log, self.expected)
        publish(self.log, self.expected)

    @rule()
    def flush(self) -> None:
        flush(self.log, self.expected)
        publish(self.log, self.expected)

    @rule()
    def roll(self) -> None:
        self.log.roll()
        publish(self.log, self.expected)
        assert self.log.snapshot.segments[-1].base_offset == self.expected.log.end_offset

    @rule(ms=st.sampled_from([1, 1000, 700_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    # Forgetting

    @rule(retention_bytes=st.sampled_from([-1, 0, 1000, 4000]), retention_ms=st.sampled_from([-1, 1, 10_000]))
    def run_retention(self, retention_bytes: int, retention_ms: int) -> None:
        limits = {"retention.bytes": retention_bytes, "retention.ms": retention_ms}
        self.log.update_config(self.manager.alter_topic(TOPIC, config=limits).config)
        snapshot = self.log.snapshot
        gone = brute_force_retention(
            snapshot.segment_infos(),
            [segment.modified_ms() for segment in snapshot.segments],
            self.expected.log,
            snapshot.high_watermark,
            self.clock.now_ms(),
            (retention_bytes, retention_ms),
        )
        planned = [entry.base_offset for entry in self.log.retention_plan(self.clock.now_ms()) if entry.reason]
        deleted = self.log.delete_old_segments(self.clock.now_ms())
        publish(self.log, self.expected)
        assert [entry.base_offset for entry in deleted] == gone == planned
        if gone:
            first_left = next((s.base_offset for s in snapshot.segments if s.base_offset > gone[-1]), None)
            new_start = self.expected.log.end_offset if first_left is None else first_left
            self.expected.log.start_offset = max(self.expected.log.start_offset, new_start)

    @rule(place=fractions)
    def delete_records(self, place: float) -> None:
        snapshot = self.log.snapshot
        target = round(snapshot.high_watermark * place)
        self.expected.log.start_offset = max(self.expected.log.start_offset, target)
        assert self.log.delete_records(target) == self.expected.log.start_offset
        publish(self.log, self.expected)

    @rule()
    def delete_due_files(self) -> None:
        self.clock.advance(3000)
        self.manager.delete_due_files()

    @rule(place=fractions)
    def truncate(self, place: float) -> None:
        log = self.expected.log
        # Where a batch begins: a cut inside one leaves a gap, which has tests of its own.
        targets = [batch.base_offset for batch in log.batches if batch.base_offset >= log.start_offset]
        targets.append(log.end_offset)
        target = targets[round((len(targets) - 1) * place)]
        self.log.truncate_to(target)
        log.truncate_to(target)
        self.expected.written_end = log.end_offset
        self.expected.durable_end = min(self.expected.durable_end, log.end_offset)
        self.expected.seen_end = min(self.expected.seen_end, log.end_offset)
        publish(self.log, self.expected)

    # Restarting

    @rule()
    def close_and_open(self) -> None:
        self.manager.close()
        self.expected.durable_end = self.expected.written_end
        self.disk = self.disk.killed()
        self.manager = open_directory(self.disk, self.clock)
        assert all(entry.scanned_bytes == 0 for entry in self.manager.recovery)

    @rule()
    def kill_and_open(self) -> None:
        self.disk = self.disk.killed()
        self.manager = open_directory(self.disk, self.clock)
        assert all(not entry.damage for entry in self.manager.recovery)
        self.expected.durable_end = self.expected.written_end

    # Reading

    @rule(place=fractions, max_bytes=sizes, isolation=st.sampled_from(Isolation), min_one=st.booleans())
    def read(self, place: float, max_bytes: int, isolation: Isolation, min_one: bool) -> None:
        snapshot, log = self.log.snapshot, self.expected.log
        offset = log.start_offset + round((log.end_offset - log.start_offset) * place)
        bound = snapshot.bound(isolation).offset
        fetched = snapshot.read(Offset(offset), max_bytes, isolation=isolation, min_one=min_one)
        answer = content_of(fetched)
        assert answer == log.read(offset, max_bytes, bound, min_one=min_one)
        # What is read on the event loop is the same, or nothing.
        cached = snapshot.read_cached(
            Offset(offset), max_bytes, isolation=isolation, min_one=min_one, content_bytes_max=max_bytes // 2
        )
        assert cached is None or (content_of(cached), cached.next_offset) == (answer, fetched.next_offset)
        assert fetched.next_offset >= offset
        if max_bytes == EVERYTHING:
            assert fetched.next_offset == max(offset, bound)
            assert snapshot.available_bytes(Offset(offset), isolation) == len(answer)

    @rule(place=fractions, max_bytes=sizes)
    def read_committed(self, place: float, max_bytes: int) -> None:
        """A consumer that goes by the list keeps what was committed, and the list is no longer than need be."""
        snapshot, log = self.log.snapshot, self.expected.log
        offset = log.start_offset + round((snapshot.last_stable_offset - log.start_offset) * place)
        fetched = snapshot.read(Offset(offset), max_bytes, isolation=Isolation.LAST_STABLE)
        assert fetched.aborted is not None
        cached = snapshot.read_cached(Offset(offset), max_bytes, isolation=Isolation.LAST_STABLE)
        assert cached is None or (content_of(cached), cached[1:]) == (content_of(fetched), fetched[1:])
        kept = kept_by_a_consumer(content_of(fetched), fetched.aborted, offset)
        assert kept == committed_offsets(log, offset, fetched.next_offset)
        entries = [entry for entry in aborted_entries(log) if entry[2] >= offset and entry[1] < fetched.next_offset]
        assert list(fetched.aborted) == (entries if fetched.slices else [])

    @rule(place=fractions)
    def read_all_in_steps(self, place: float) -> None:
        """Following ``next_offset`` visits every batch once."""
        snapshot, log = self.log.snapshot, self.expected.log
        pieces = []
        offset = log.start_offset
        while offset < snapshot.high_watermark:
            fetched = snapshot.read(Offset(offset), round(700 * place))
            assert fetched.next_offset > offset
            pieces.append(content_of(fetched))
            offset = fetched.next_offset
        assert b"".join(pieces) == log.read(log.start_offset, EVERYTHING, snapshot.high_watermark)

    @rule(outside=st.integers(1, 1 << 40))
    def read_outside(self, outside: int) -> None:
        log = self.expected.log
        for offset in (log.start_offset - outside, log.end_offset + outside):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                self.log.snapshot.read(Offset(offset), 1)
            assert raised.value.log_start_offset == log.start_offset
            assert raised.value.log_end_offset == log.end_offset

    @rule(age_ms=st.integers(-10, 2_000_000))
    def find_timestamp(self, age_ms: int) -> None:
        self._check_timestamp(self.clock.now_ms() - age_ms)

    @precondition(lambda self: self.expected.log.batches)
    @rule(place=fractions, step=st.sampled_from([-1, 0, 1]))
    def find_stored_timestamp(self, place: float, step: int) -> None:
        batches = self.expected.log.batches
        self._check_timestamp(max(0, batches[round((len(batches) - 1) * place)].timestamps[0] + step))

    def _check_timestamp(self, timestamp: int) -> None:
        snapshot = self.log.snapshot
        found = snapshot.offset_for_timestamp(timestamp)
        expected = self.expected.log.offset_for_timestamp(timestamp, snapshot.high_watermark)
        assert (found and (found.offset, found.timestamp)) == expected

    @rule()
    def find_max_timestamp(self) -> None:
        snapshot = self.log.snapshot
        found = snapshot.max_timestamp()
        expected = self.expected.log.max_timestamp(snapshot.high_watermark)
        assert (found and (found.offset, found.timestamp)) == expected

    @rule()
    def indexes_are_true(self) -> None:
        """What Kafka's DumpLogSegments checks: every entry names a batch, and the batch is what it says."""
        batches = {batch.last_offset: batch for batch in self.expected.log.batches}
        for segment in self.log.snapshot.segments:
            for entry in segment.offset_index.get().entries():
                stored = segment.file.read(entry.position, 61)
                if entry.offset in batches:
                    assert stored == batches[entry.offset].stored[:61], entry
            for entry in segment.time_index.get().entries():
                if entry.offset in batches:
                    assert max(batches[entry.offset].timestamps) == entry.timestamp

    @invariant()
    def ends_agree(self) -> None:
        if TOPIC not in self.manager.topics:
            return
        snapshot, expected = self.log.snapshot, self.expected
        assert self.log.offline_reason is None
        assert snapshot.log_start_offset == expected.log.start_offset
        assert snapshot.log_end_offset == expected.log.end_offset
        assert expected.seen_end <= snapshot.high_watermark <= snapshot.log_end_offset
        assert snapshot.last_stable_offset == last_stable_offset(expected.log, snapshot.high_watermark)
        lowest = expected.durable_end if expected.group_flush else expected.log.end_offset
        assert snapshot.high_watermark >= lowest

    @invariant()
    def segments_follow_each_other(self) -> None:
        if TOPIC not in self.manager.topics:
            return
        infos = self.log.snapshot.segment_infos()
        for info, following in pairwise(infos):
            assert info.base_offset < following.base_offset == info.next_offset
            assert info.state == "sealed"
        assert infos[-1].state == "active"

    @invariant()
    def nothing_shrank_under_a_mapping(self) -> None:
        assert self.disk.violations == []


LogMachine.TestCase.settings = settings(
    max_examples=_EXAMPLES, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogModel = LogMachine.TestCase
