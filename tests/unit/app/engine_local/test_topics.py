"""The topics of the local engine as the port has them: pages, views of partitions, leader epochs, deleted records."""

from __future__ import annotations

import pytest

from app.engine.topics import PartitionCounts, PartitionEpochs, PartitionView
from log_model.epochs import EpochEndOffset, EpochEntry
from log_model.errors import FencedLeaderEpochError, InvalidTopicError, OffsetOutOfRangeError
from log_model.offsets import LeaderEpoch, Offset
from storage.log.partition_log import PartitionLog
from tests.support.stands import Stand, on_stand


async def append_durably(made: Stand, log: PartitionLog, *values: bytes) -> None:
    await made.append(log, *values)
    await made.engine.partitions.run_in_log(log, log.flush)


def test_a_page_has_the_visible_topics_of_a_prefix_by_name() -> None:
    async def scenario(made: Stand) -> None:
        for name in ("b-2", "a-3", "a-1", "a-2", "a-4"):
            await made.topic(name)
        topics = made.engine.topics

        async def page(start_after: str, limit: int) -> list[str]:
            found = await topics.page("a-", start_after, limit, lambda name: name != "a-2")
            return [topic.name for topic in found]

        assert await page("", 2) == ["a-1", "a-3"]
        assert await page("a-1", 5) == ["a-3", "a-4"]
        assert await page("a-4", 5) == []

    on_stand(scenario)


def test_a_view_shows_one_partition_at_one_moment() -> None:
    async def scenario(made: Stand) -> None:
        first, second = await made.topic("t", 2)
        await append_durably(made, first, b"x", b"y")
        topics = made.engine.topics
        topic = made.engine.topic("t")
        await made.topic("rests", 1)
        before = topics.count_partitions()
        views = await topics.describe([made.engine.topic("rests"), topic])
        snapshot = first.snapshot
        assert [view.partition for view in views] == [0, 0, 1]
        assert views[1] == PartitionView(
            0, snapshot, LeaderEpoch(0), first.recovery_point, snapshot.size_bytes, 1, (1,), (1,), None
        )
        assert snapshot.size_bytes > 0 == views[0].size_bytes == views[2].size_bytes
        assert await topics.describe_partition("t", 0) == views[1]
        await made.append(first, b"z")
        assert views[1].limits.log_end_offset == 2
        second.take_offline("a test")
        assert (await topics.describe([topic]))[1].offline_reason == "a test"
        assert topics.count_partitions() == PartitionCounts(before.all, before.offline + 1)

    on_stand(scenario)


def test_leader_epochs_and_the_end_of_one() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        topics = made.engine.topics
        await made.append(log, b"x")
        assert await topics.begin_epoch(log) == EpochEntry(LeaderEpoch(1), Offset(1))
        await made.append(log, b"y")
        entries = (EpochEntry(LeaderEpoch(0), Offset(0)), EpochEntry(LeaderEpoch(1), Offset(1)))
        assert await topics.epochs(log) == PartitionEpochs(LeaderEpoch(1), entries, Offset(2), None)
        shown = await topics.epochs(log, 0, current_leader_epoch=1)
        assert shown.asked == EpochEndOffset(LeaderEpoch(0), Offset(1))
        assert (await topics.epochs(log, 2)).asked is None
        with pytest.raises(FencedLeaderEpochError):
            await topics.epochs(log, current_leader_epoch=0)

    on_stand(scenario)


def test_records_are_deleted_by_offset_and_by_time() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        topics = made.engine.topics
        await append_durably(made, log, b"x", b"y")
        assert await topics.delete_records(log, 1, dry_run=True) == 1
        assert log.snapshot.log_start_offset == 0
        assert await topics.delete_records_before(log, 0, dry_run=False) == 0
        assert await topics.delete_records_before(log, 10**15, dry_run=True) == 2
        assert await topics.delete_records(log, 1, dry_run=False) == 1
        with pytest.raises(OffsetOutOfRangeError, match="offset 3 is beyond the log end offset 2") as refused:
            await topics.delete_records(log, 3, dry_run=False)
        error = refused.value
        assert (error.offset, error.log_start_offset, error.log_end_offset) == (3, 1, 2)
        assert (error.high_watermark, error.last_stable_offset) == (2, 2)

    on_stand(scenario)


def test_an_internal_topic_has_neither_its_records_deleted_nor_an_epoch_begun() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.engine.ensure_internal_topic("__load_jobs", 1, {})
        for refused in (made.engine.topics.delete_records(log, 0, dry_run=True), made.engine.topics.begin_epoch(log)):
            with pytest.raises(InvalidTopicError):
                await refused

    on_stand(scenario)
