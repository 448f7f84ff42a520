"""Plain batches appended in C: the files, answers and snapshots of the general way, or nothing at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.config import TopicConfig
from log_model.errors import DiskFullError, PartitionFailedError, StorageError
from rollway.records import Codec, parse_header
from rollway.records.compiled import load
from storage.disk.file_system import LocalFileSystem
from storage.log.files_at_rest import begin_change
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from tests.unit.storage.log.test_append_lanes import CONFIGS, NOW_MS, batch, bodies

plain_append: Any = load("storage.log.append_c")
pytestmark = pytest.mark.skipif(plain_append is None or not plain_append.is_usable, reason="not compiled here")

GROUP_MAX = 64
INTERVAL = {"flush.policy": "interval"}


@settings(max_examples=200, deadline=None)
@given(bodies(), st.sampled_from(sorted(CONFIGS)))
def test_a_batch_that_is_found_plain_is_what_validation_makes_of_it(body: bytes, name: str) -> None:
    config = TopicConfig.parse(CONFIGS[name])
    if plain_append.is_plain_batch(body, config, NOW_MS):
        (valid,) = validate_batches(body, config, NOW_MS)
        # Nothing is to be changed in it but what the log stamps.
        assert bytes(valid.head) + bytes(valid.body) == body
        assert valid.header == parse_header(body)
        assert valid.max_timestamp == valid.header.max_timestamp
        assert valid.header.producer_id < 0


@pytest.mark.parametrize("ages_ms", [[0], [0, 3, 40], [0] * 8, [5] * 40], ids=len)
@pytest.mark.parametrize("name", ["plain", "log append time", "in time"])
def test_most_batches_are_found_plain(ages_ms: list[int], name: str) -> None:
    assert plain_append.is_plain_batch(batch(ages_ms), TopicConfig.parse(CONFIGS[name]), NOW_MS)


def test_batches_that_break_a_rule_or_need_more_are_not_found_plain() -> None:
    plain, small = TopicConfig(), TopicConfig(max_message_bytes=80)
    body = batch([0])
    refused = [b"", body[:60], body[:-1], body + b"x", bytes(len(body)), body[:-1] + b"?", body + body]
    assert not any(plain_append.is_plain_batch(each, plain, NOW_MS) for each in refused)
    assert not plain_append.is_plain_batch(body, small, NOW_MS)
    assert not plain_append.is_plain_batch(batch([0], codec=Codec.GZIP), plain, NOW_MS)
    assert not plain_append.is_plain_batch(body, TopicConfig.parse(CONFIGS["compacted"]), NOW_MS)
    assert plain_append.is_plain_batch(batch([0], key=b"k"), TopicConfig.parse(CONFIGS["compacted"]), NOW_MS)
    assert not plain_append.is_plain_batch(batch([51]), TopicConfig.parse(CONFIGS["in time"]), NOW_MS)
    assert not plain_append.is_plain_batch(batch([-51]), TopicConfig.parse(CONFIGS["in time"]), NOW_MS)


class Stand:
    """A log on a real disk."""

    def __init__(self, directory: Path, config: dict[str, object], clock: ManualClock) -> None:
        directory.mkdir()
        self.manager = LogManager.open(directory, file_system=LocalFileSystem(), clock=clock)
        topic, _ = self.manager.create_topic("t", 1, config)
        self.log = topic.partitions[0]
        # As an earlier append would: the first change of a partition that rested is no work for compiled code.
        begin_change(self.log.writer)

    def append(self, *bodies: bytes) -> list[AppendResult | None] | None:
        found: list[AppendResult | None] | None = plain_append.append(self.log, list(bodies), self.log.config, NOW_MS)
        return found

    def content(self) -> dict[str, bytes]:
        """The bytes of all files but those that hold a random id."""
        return {
            path.name: path.read_bytes()
            for path in sorted(self.log.directory.iterdir())
            if path.is_file() and path.name != "partition.metadata"
        }

    def seen(self) -> object:
        """What readers see."""
        snapshot = self.log.snapshot
        return (
            snapshot.segment_infos(),
            snapshot.log_start_offset,
            snapshot.last_stable_metadata,
            snapshot.high_watermark_metadata,
            snapshot.log_end_metadata,
            (snapshot.last_stable_offset, snapshot.high_watermark, snapshot.log_end_offset),
            snapshot.damage,
        )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def new_stand(tmp_path: Path, clock: ManualClock) -> Iterator[Any]:
    made: list[Stand] = []

    def make(config: dict[str, object]) -> Stand:
        made.append(Stand(tmp_path / str(len(made)), config, clock))
        return made[-1]

    yield make
    for stand in made:
        stand.manager.close()


def general(log: PartitionLog, body: bytes) -> object:
    """One body as the general way takes it."""
    try:
        (answer,) = log.append([AppendRequest(tuple(validate_batches(body, log.config, NOW_MS)))])
    except StorageError as error:
        return type(error)
    log.publish()
    return type(answer) if isinstance(answer, StorageError) else answer


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.lists(bodies(), min_size=1, max_size=6), st.integers(0, 30_000)), min_size=1, max_size=8),
    st.sampled_from(sorted(CONFIGS)),
    st.sampled_from([0, 100, 4096]),
    st.sampled_from(["interval", "group"]),
)
def test_a_group_does_what_its_batches_do_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[tuple[list[bytes], int]],
    name: str,
    interval: int,
    policy: str,
) -> None:
    config = {**CONFIGS[name], "segment.bytes": 3000, "segment.ms": 60_000, "segment.index.bytes": 100}
    config |= {"index.interval.bytes": interval, "flush.messages": 60, "flush.policy": policy}
    clock, root = ManualClock(NOW_MS), tmp_path_factory.mktemp("logs")
    ours, theirs = Stand(root / "ours", config, clock), Stand(root / "theirs", config, clock)
    for group, wait_ms in groups:
        answers = ours.append(*group) or [None] * len(group)
        # Those that are left out come behind.
        left = [place for place, answer in enumerate(answers) if answer is None]
        taken = [place for place, answer in enumerate(answers) if answer is not None]
        ours.log.publish()
        for place in taken:
            assert plain_append.is_plain_batch(group[place], ours.log.config, NOW_MS)
            assert general(theirs.log, group[place]) == answers[place]
        for place in left:
            assert general(ours.log, group[place]) == general(theirs.log, group[place])
        assert ours.seen() == theirs.seen()
        assert ours.log.durable_end_offset == theirs.log.durable_end_offset
        clock.advance(wait_ms)
    assert ours.content() == theirs.content()
    ours.manager.close()
    theirs.manager.close()
    assert ours.content() == theirs.content()


def test_most_groups_are_taken_once_the_log_is_known(new_stand: Any) -> None:
    stand = new_stand({**INTERVAL, "index.interval.bytes": 100})
    assert stand.append(batch([0]), batch([0])) is None, "the first batch of a segment tells how long it lasts"
    for offset in (0, 1):
        (answer,) = stand.append(batch([0]))
        assert answer.base_offset == offset
    answers = stand.append(*[batch([0, 3], value_bytes=size) for size in (1, 500, 30_000)])
    assert [answer.base_offset for answer in answers] == [2, 4, 6]
    assert stand.log.snapshot.high_watermark == 8
    assert len(stand.append(*[batch([0])] * GROUP_MAX)) == 64
    assert stand.append(*[batch([0])] * (GROUP_MAX + 1)) is None


def test_a_group_without_a_plain_batch_is_left_alone(new_stand: Any) -> None:
    stand = new_stand(INTERVAL)
    for _ in range(2):
        general(stand.log, batch([0]))
    before = stand.content(), stand.seen()
    for body in (b"", b"x" * 61, batch([0])[:-1], batch([0], codec=Codec.GZIP), batch([0]) + batch([0])):
        assert stand.append(bytes(body)) is None
    assert (stand.content(), stand.seen()) == before
    answers = stand.append(b"", batch([0]), b"")
    assert [answer if answer is None else answer.base_offset for answer in answers] == [None, 2, None]


def test_what_is_more_than_a_write_is_left_alone(new_stand: Any, clock: ManualClock) -> None:
    stand = new_stand({**INTERVAL, "segment.bytes": 1000, "segment.ms": 60_000, "flush.messages": 6})
    log = stand.log
    for _ in range(2):
        general(log, batch([0]))
    assert stand.append(batch([0]), batch([0, 0, 0])) is None, "flush.messages asks for a flush"
    assert stand.append(batch([0], value_bytes=900)) is None, "the segment is rolled first"
    assert stand.append(batch([-60_001])) is None, "the segment is too old for it"
    with log.writing:
        assert stand.append(batch([0])) is None, "somebody writes"
    config = log.config
    log.update_config(TopicConfig.parse({**INTERVAL, "segment.bytes": 2000}))
    assert plain_append.append(log, [batch([0])], config, NOW_MS) is None, "the settings have changed"
    general(log, batch([0]))
    assert stand.append(batch([0])) is not None
    log.promote()
    log.publish()
    (answer,) = stand.append(batch([0])) or [None]
    assert answer is not None
    stored = log.snapshot.read(answer.base_offset, 1 << 20).slices[0].read()
    assert int.from_bytes(stored[12:16], "big") == log.leader_epoch == 1
    log.roll()
    log.publish()
    (answer,) = stand.append(batch([0]))
    assert answer.base_offset == log.snapshot.segments[-1].base_offset
    log.take_offline("for the test")
    assert stand.append(batch([0])) is None


def test_a_log_that_waits_for_fsyncs_shows_nothing_before(new_stand: Any) -> None:
    stand = new_stand({"flush.policy": "group"})
    for _ in range(2):
        general(stand.log, batch([0]))
    stand.log.flush()
    stand.log.publish()
    (answer,) = stand.append(batch([0]))
    assert answer.base_offset == 2
    assert stand.log.snapshot.log_end_offset == 2
    assert stand.log.publish().log_end_offset == 3
    assert stand.log.snapshot.high_watermark == 2
    stand.log.flush()
    assert stand.log.publish().high_watermark == 3


def known(new_stand: Any) -> Stand:
    stand: Stand = new_stand({**INTERVAL, "index.interval.bytes": 0})
    for _ in range(3):
        general(stand.log, batch([0]))
    return stand


def test_a_disk_that_refuses_the_write_is_left_to_the_general_way(new_stand: Any) -> None:
    stand = known(new_stand)
    before = stand.content(), stand.seen()
    file: Any = stand.log.snapshot.segments[-1].file
    descriptor, reading = file.descriptor, os.open(file.path, os.O_RDONLY)
    file.descriptor = reading
    try:
        assert stand.append(batch([0]), batch([0])) is None
    finally:
        file.descriptor = descriptor
        os.close(reading)
    assert (stand.content(), stand.seen()) == before
    assert stand.append(batch([0])) is not None


class RefusingFile:
    """A file on a disk that takes only so many writes more."""

    def __init__(self, file: Any, number: int, allowed_writes: int) -> None:
        self._file, self._number, self._left = file, number, allowed_writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, position: int, parts: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(self._number, "refused")
        self._file.write(position, parts)


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, DiskFullError), (errno.EIO, PartitionFailedError)])
def test_an_index_that_takes_no_entry_takes_the_batches_back(
    new_stand: Any, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    stand = known(new_stand)
    before = stand.content(), stand.seen()
    index = stand.log.snapshot.segments[-1].offset_index.get().file
    disk = RefusingFile(index.opened, number, allowed_writes=1)
    with monkeypatch.context() as patch:
        patch.setattr(index, "opened", disk)
        with pytest.raises(expected):
            stand.append(*[batch([0])] * 4)
    assert stand.log.snapshot.log_end_offset == 3
    if expected is DiskFullError:
        assert stand.seen() == before[1]
        name = f"{0:020}.log"
        assert stand.content()[name] == before[0][name]
        general(stand.log, batch([0]))
        assert stand.append(batch([0])) is not None
    else:
        assert stand.log.offline_reason is not None


def test_numbers_that_would_wrap_around_are_judged_by_the_general_way(new_stand: Any) -> None:
    stand = known(new_stand)
    for at, value in ((27, 2**63 - 1), (27, -(2**63)), (35, 2**63 - 1), (43, 0), (43, 2**63 - 1)):
        changed = bytearray(batch([0, 0]))
        changed[at : at + 8] = (value % 2**64).to_bytes(8, "big")
        changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
        assert stand.append(bytes(changed)) is None
