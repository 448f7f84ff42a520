"""Changes of topics on the event loop: those of different topics go on side by side, and requests wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.engine.appending import AppendOptions
from log_model.errors import ShuttingDownError, TooManyOpenFilesError, UnknownTopicOrPartitionError
from storage.manager.log_manager import LogManager
from storage.manager.topic_changes import TopicChanges
from tests.support.stands import Stand, on_stand
from tests.support.writers import eventually, held, valid_batches


@contextlib.contextmanager
def held_up(
    patch: pytest.MonkeyPatch, owner: type[Any], method: str, name: str
) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Calls of a method for the topic ``name`` wait: (one was reached, let them go on)."""
    reached, go_on = threading.Event(), threading.Event()
    real = getattr(owner, method)

    def waiting(self: object, *arguments: Any, **options: Any) -> object:
        if name in (arguments[0], getattr(arguments[0], "name", None)):
            reached.set()
            assert go_on.wait(30)
        return real(self, *arguments, **options)

    patch.setattr(owner, method, waiting)
    try:
        yield reached, go_on
    finally:
        go_on.set()


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


def test_topics_are_made_changed_and_deleted_while_a_creation_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Stand) -> None:
        with held_up(monkeypatch, TopicChanges, "create", "big") as (begun, go_on):
            big = asyncio.ensure_future(made.topic("big", 10))
            await reached(begun)
            # More than one thread may wait in this way.
            (small,) = await made.topic("small")
            await made.append(small, b"x")
            await made.engine.topics.alter("small", config={"retention.ms": 5}, partition_count=2)
            page = await made.engine.topics.page("", "", 10, lambda _: True)
            assert [topic.name for topic in page] == ["small"]
            await made.engine.topics.delete("small")
            again = asyncio.ensure_future(made.topic("big", 10))
            await asyncio.sleep(0)
            assert not big.done()
            go_on.set()
        assert len(await big) == 10
        assert await again == await big

    on_stand(scenario)


def test_appends_wait_for_the_deletion_of_their_topic_and_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those to partitions that never had a writer."""

    async def scenario(made: Stand) -> None:
        used, unused, *_ = await made.topic("doomed", 4)
        await made.append(used, b"x")
        appends, options = made.engine.appends, AppendOptions(acks="1")
        with held_up(monkeypatch, LogManager, "delete_topic", "doomed") as (begun, go_on):
            deletion = asyncio.ensure_future(made.engine.topics.delete("doomed"))
            await reached(begun)
            pending = [appends.submit(log, valid_batches(log, b"y"), options) for log in (used, unused)]
            operations = len(made.disk.operations)
            await asyncio.to_thread(lambda: None)
            assert len(made.disk.operations) == operations
            go_on.set()
        await deletion
        for each in pending:
            with pytest.raises(UnknownTopicOrPartitionError):
                await appends.outcome_of(each, options)
        assert used.offline_reason is not None
        assert [log.written_end_offset for log in (used, unused)] == [1, 0]
        assert made.engine.partitions.writers() == []

    on_stand(scenario)


def test_appends_go_on_when_a_deletion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_self: LogManager, _name: str) -> None:
        raise TooManyOpenFilesError("no")

    async def scenario(made: Stand) -> None:
        used, unused = await made.topic("kept", 2)
        await made.append(used, b"x")
        monkeypatch.setattr(LogManager, "delete_topic", refused)
        with pytest.raises(TooManyOpenFilesError):
            await made.engine.topics.delete("kept")
        for log in (used, unused):
            await made.append(log, b"y")
        assert [log.written_end_offset for log in (used, unused)] == [2, 1]

    on_stand(scenario)


def test_a_busy_writer_applies_settings_between_two_groups() -> None:
    async def scenario(made: Stand) -> None:
        busy, idle = await made.topic("t", 2)
        writer = made.engine.partitions.writer_of(busy)
        async with held(writer):
            alter = asyncio.ensure_future(made.engine.topics.alter("t", config={"retention.ms": 5}))
            await eventually(lambda: idle.config.retention_ms == 5)
            assert (busy.config.retention_ms == 5, alter.done()) == (False, False)
        await alter
        assert busy.config.retention_ms == 5

    on_stand(scenario)


def test_a_full_mailbox_takes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are durable already, and a partition without them would be wrong until the next start."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t")
        writer = made.engine.partitions.writer_of(log)
        async with held(writer):
            monkeypatch.setattr(writer.mailbox, "check_room", functools.partial(pytest.fail, "full"))
            alter = asyncio.ensure_future(made.engine.topics.alter("t", config={"retention.ms": 5}))
            await eventually(lambda: len(writer.mailbox) == 1)
        await alter
        assert log.config.retention_ms == 5

    on_stand(scenario)


def test_a_stop_waits_for_a_creation_and_refuses_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Stand) -> None:
        with held_up(monkeypatch, TopicChanges, "create", "big") as (begun, go_on):
            big = asyncio.ensure_future(made.topic("big", 10))
            await reached(begun)
            stop = asyncio.ensure_future(made.engine.topics.close())
            await asyncio.sleep(0)
            with pytest.raises(ShuttingDownError):
                await made.topic("late")
            assert (big.done(), stop.done()) == (False, False)
            go_on.set()
        await stop
        assert len(await big) == 10

    on_stand(scenario)
