"""The coordinator on a simulated disk: what each call promises, and what stands in its way."""

from __future__ import annotations

import asyncio
import errno

import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity, Transaction
from app.engine_local.transactions.coordinator import TransactionCoordinator
from app.engine_local.transactions.limits import TransactionLimits
from app.engine_local.transactions.log import state_log
from app.event_loop.pools import Pools
from app.metrics.metrics import Metrics
from app.problems.problem import Problem
from app.produce.enlisting import PartitionAppend, submit_appends
from app.service.parts import Parts
from app.settings import Settings
from log_model.errors import (
    ConcurrentTransactionsError,
    DiskFullError,
    InvalidPidMappingError,
    InvalidRecordError,
    InvalidTransactionTimeoutError,
    PartitionOfflineError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import FULL_DISK_KINDS, Fault
from tests.crash.simulated_disk import SMALL_INDEXES
from tests.support.local_parts import local_parts
from tests.support.stands import Stand, on_stand
from tests.support.transactions import TestProducer, all_values, producer_on, settled, valid_transactional, visible
from tests.support.writers import DATA, append_request, eventually


def reopened(made: Stand, *, killed: bool) -> Parts:
    disk = made.disk.killed() if killed else made.disk.power_cut()
    settings = Settings()
    manager = LogManager.open(DATA, file_system=disk, clock=made.clock, topic_defaults=SMALL_INDEXES)
    return local_parts(manager, settings, Metrics(), Pools(settings))


def test_a_commit_shows_everything_at_once():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        await producer.send(logs[0], b"a")
        await producer.send(logs[1], b"b", b"c")
        assert visible(logs) == [[], []]
        assert [all_values(log.snapshot) for log in logs] == [[b"a"], [b"b", b"c"]]
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert visible(logs) == [[b"a"], [b"b", b"c"]]
        assert [log.snapshot.last_stable_offset for log in logs] == [2, 3]

    on_stand(scenario)


def test_an_abort_hides_everything_for_ever():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        for log in logs:
            await producer.send(log, b"no")
        assert await producer.end(commit=False) == "COMPLETE_ABORT"
        for log in logs:
            await producer.send(log, b"yes")
        await producer.end(commit=True)
        assert visible(logs) == [[b"yes"], [b"yes"]]

    on_stand(scenario)


def test_two_requests_to_commit_write_one_marker():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        answers = await asyncio.gather(*(producer.end(commit=True) for _ in range(5)))
        assert answers == ["COMPLETE_COMMIT"] * 5
        assert log.snapshot.log_end_offset == 2

    on_stand(scenario)


def test_a_new_instance_aborts_what_the_old_one_left_open_and_shuts_it_out():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        old = await producer_on(made)
        await old.send(logs[0], b"old")
        new = await producer_on(made)
        assert new.identity.producer_id == old.identity.producer_id
        assert new.identity.producer_epoch > old.identity.producer_epoch
        assert logs[0].snapshot.last_stable_offset == logs[0].snapshot.log_end_offset
        for log in logs:
            with pytest.raises(ProducerFencedError):
                await old.send(log, b"zombie")
        for commit in (True, False):
            with pytest.raises(ProducerFencedError):
                await old.end(commit=commit)
        await new.send(logs[0], b"new")
        await new.end(commit=True)
        assert visible(logs) == [[b"new"], []]

    on_stand(scenario)


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_shut_out():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made, timeout_ms=1_000)
        await producer.send(log, b"slow")
        made.clock.advance(1_000)
        await made.scheduler.run("transactions")
        assert made.engine.transactions.open_count() == 1
        made.clock.advance(1)
        await made.scheduler.run("transactions")
        await settled(made.parts)
        assert made.engine.transactions.open_count() == 0
        assert log.snapshot.last_stable_offset == log.snapshot.log_end_offset
        with pytest.raises(ProducerFencedError):
            await producer.send(log, b"late")
        with pytest.raises(ProducerFencedError):
            await producer.end(commit=True)
        await producer.initialise()
        await producer.send(log, b"again")
        await producer.end(commit=True)
        assert visible([log]) == [[b"again"]]

    on_stand(scenario)


def test_who_was_never_initialised_writes_nothing():
    """49, whether nobody has the producer id, or it is not a transactional one, or another id is named."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        stranger = TestProducer(made.parts, "stranger", identity=await made.engine.transactions.allocate())
        with pytest.raises(InvalidPidMappingError):
            await stranger.send(log, b"x")
        with pytest.raises(InvalidPidMappingError):
            await stranger.end(commit=True)
        known = await producer_on(made, "known")
        await producer_on(made, "other")
        with pytest.raises(InvalidPidMappingError):
            await made.engine.transactions.enlist(known.identity, {log.name: []}, "other")
        assert log.snapshot.log_end_offset == 0

    on_stand(scenario)


def test_a_repetition_within_the_transaction_is_answered_as_one():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        assert (await producer.send_again(log)).duplicate
        await producer.end(commit=True)
        assert visible([log]) == [[b"a"]]

    on_stand(scenario)


def test_a_commit_waits_for_appends_that_are_on_their_way():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        batches = valid_transactional(log, producer.identity, 0, b"a")
        enlistment = await made.engine.transactions.enlist(
            producer.identity, {log.name: [batch.header for batch in batches]}
        )
        commit = asyncio.ensure_future(producer.end(commit=True))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not commit.done()
        late = asyncio.ensure_future(producer.send_at(log, 1, b"late"))
        made.engine.writer_of(log).append(append_request(log, b"not"), size_bytes=1)
        enlistment.release()
        enlistment.release()
        assert await commit == "COMPLETE_COMMIT"
        with pytest.raises(ProducerFencedError):
            await late

    on_stand(scenario)


def test_a_client_that_goes_away_gives_its_enlistment_back():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        waiting = asyncio.ensure_future(made.engine.transactions.enlist(producer.identity, {log.name: []}))
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await settled(made.parts)
        assert await producer.end(commit=False) == "COMPLETE_ABORT"

    on_stand(scenario)


def test_an_enlisted_partition_costs_nothing():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        end = state.written_end_offset
        for number in range(10):
            await producer.send(log, b"%d" % number)
        assert state.written_end_offset == end

    on_stand(scenario)


def test_many_partitions_of_a_request_are_enlisted_with_one_record():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 8)
        producer = await producer_on(made)
        state = made.engine.manager.partition(state_log.TOPIC, 0)
        end = state.written_end_offset
        with await made.engine.transactions.enlist(producer.identity, {log.name: [] for log in logs}):
            assert state.written_end_offset == end + 1
        await producer.end(commit=True)

    on_stand(scenario)


def test_a_partition_without_room_keeps_the_commit_waiting_and_is_shown():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        for log in logs:
            await producer.send(log, b"a")
        made.disk.fault = Fault(at=0, error=errno.ENOSPC, written=0.0, lasting=True, kinds=FULL_DISK_KINDS)
        full = made.disk.fault
        # The decision has room, as on a disk that fills up just then.
        made.disk.fault = None
        written = made.engine.transactions._state_log.write

        async def write_and_fill(transaction: object) -> None:
            await written(transaction)
            made.disk.fault = full

        made.engine.transactions._state_log.write = write_and_fill
        with pytest.raises(Problem) as caught:
            await producer.end(commit=True, wait_ms=200)
        assert (caught.value.code, caught.value.applied) == ("request_timed_out", "unknown")
        assert {wait["partition"] for wait in caught.value.extra["waits_for"]} == {0, 1}
        assert all("space" in reason for reason in (await made.engine.transactions.describe("t")).waits.values())
        with pytest.raises(ProducerFencedError):
            await producer.send(logs[0], b"b")
        following = producer.identity._replace(producer_epoch=producer.identity.producer_epoch + 1)
        with pytest.raises(ConcurrentTransactionsError):
            await producer.send_at(logs[0], 0, b"b", identity=following)
        with pytest.raises(ConcurrentTransactionsError):
            await TestProducer(made.parts, "t").initialise(wait_ms=50)
        made.disk.fault = None
        made.engine.transactions.hurry()
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert (await made.engine.transactions.describe("t")).waits == {}
        assert visible(logs) == [[b"a"], [b"a"]]

    on_stand(scenario)


def test_a_decision_that_finds_no_room_is_none():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        made.disk.fault = Fault(at=0, error=errno.ENOSPC, written=0.0, lasting=True, kinds=FULL_DISK_KINDS)
        with pytest.raises(DiskFullError):
            await producer.end(commit=True)
        made.disk.fault = None
        await producer.send(log, b"b")
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert visible([log]) == [[b"a", b"b"]]

    on_stand(scenario)


def test_a_topic_deleted_under_an_open_transaction_does_not_hold_up_its_end():
    async def scenario(made: Stand) -> None:
        (gone,) = await made.topic("gone")
        (log,) = await made.topic("stays")
        producer = await producer_on(made)
        await producer.send(gone, b"a")
        await producer.send(log, b"b")
        await made.engine.topics.delete("gone")
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert visible([log]) == [[b"b"]]
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send(gone, b"c")

    on_stand(scenario)


@pytest.mark.parametrize("writes_to_the_new_one", [False, True])
def test_a_topic_made_anew_under_an_open_transaction_gets_a_marker_for_its_own_records_alone(writes_to_the_new_one):
    async def scenario(made: Stand) -> None:
        (old,) = await made.topic("orders")
        producer = await producer_on(made)
        await producer.send(old, b"a", b"b")
        await made.engine.topics.delete("orders")
        (new,) = await made.topic("orders")
        if writes_to_the_new_one:
            await producer.send(new, b"c")
            assert visible([new]) == [[]]
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert new.snapshot.log_end_offset == (2 if writes_to_the_new_one else 0)
        await producer.send(new, b"d")
        await producer.end(commit=True)
        assert visible([new]) == [[b"c", b"d"] if writes_to_the_new_one else [b"d"]]

    on_stand(scenario)


def test_idle_ids_are_forgotten_and_open_ones_are_not():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        idle, busy = await producer_on(made, "idle"), await producer_on(made, "busy", timeout_ms=900_000)
        made.clock.advance(made.parts.settings.transactional_id_expiration_ms)
        await busy.send(log, b"a")
        await made.scheduler.run("transactions")
        assert made.engine.transactions.find("idle") is None
        assert made.engine.transactions.find("busy") is not None
        with pytest.raises(InvalidPidMappingError):
            await idle.send(log, b"x")
        await busy.end(commit=True)

    on_stand(scenario)


def test_limits():
    async def scenario(made: Stand) -> None:
        limits = TransactionLimits(timeout_ms_max=10, id_count_max=1, partition_count_max=2)
        coordinator = TransactionCoordinator(made.engine, limits)
        with pytest.raises(InvalidTransactionTimeoutError):
            await coordinator.initialise("t", 11, 1_000)
        identity = await coordinator.initialise("t", 10, 1_000)
        with pytest.raises(Problem) as overloaded:
            await coordinator.initialise("u", 10, 1_000)
        assert overloaded.value.code == "overloaded"
        logs = await made.topic("orders", 3)
        with pytest.raises(Problem) as many:
            await coordinator.enlist(identity, {log.name: [] for log in logs})
        assert many.value.code == "too_many_partitions"
        (await coordinator.enlist(identity, {log.name: [] for log in logs[:2]})).release()
        await coordinator.end("t", identity, commit=False, wait_ms=1_000)
        await coordinator.close()
        assert coordinator._sessions.keys() <= {"t"}

    on_stand(scenario)


def test_batches_of_one_append_belong_to_one_transaction():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders")
        one, two = await producer_on(made, "one"), await producer_on(made, "two")
        mixed = (
            *valid_transactional(log, one.identity, 0, b"a"),
            *valid_transactional(log, two.identity, 0, b"b"),
        )
        (outcome,) = await submit_appends(made.parts.producing, [PartitionAppend(log, mixed)], AppendOptions())
        assert isinstance(outcome, InvalidRecordError)
        assert log.snapshot.log_end_offset == 0

    on_stand(scenario)


@pytest.mark.parametrize("killed", [True, False])
def test_what_was_decided_is_ended_by_the_next_start_and_what_was_open_stays_open(killed):
    async def scenario(made: Stand) -> None:
        made.disk.sync_directory(DATA.parent)
        logs = await made.topic("orders", 2)
        decided, undecided = await producer_on(made, "decided"), await producer_on(made, "undecided")
        await decided.send(logs[0], b"a")
        await undecided.send(logs[1], b"b")
        # Nothing behind the decision reaches the disk.
        stopped = asyncio.get_running_loop().create_future()

        async def never(*_: object) -> bool:
            stopped.set_result(None)
            return await asyncio.get_running_loop().create_future()

        made.engine.transactions._markers.write = never
        commit = asyncio.ensure_future(decided.end(commit=True))
        await stopped
        parts = reopened(made, killed=killed)
        await parts.engine.transactions.start()
        await settled(parts)
        after = [parts.engine.manager.partition("orders", number) for number in range(2)]
        assert visible(after) == [[b"a"], []]
        decided.parts = undecided.parts = parts
        assert await decided.end(commit=True) == "COMPLETE_COMMIT"
        await undecided.send(after[1], b"c")
        await undecided.end(commit=True)
        assert visible(after) == [[b"a"], [b"b", b"c"]]
        await parts.close()
        parts.pools.close()
        commit.cancel()
        for task in tuple(made.engine.transactions._tasks):
            task.cancel()
        await asyncio.wait([commit])
        await eventually(lambda: not made.engine.transactions.is_busy)

    on_stand(scenario)


def test_after_the_stop_began_nothing_begins():
    async def scenario(made: Stand) -> None:
        producer = await producer_on(made)
        await made.engine.transactions.close()
        with pytest.raises(Exception, match="stopping"):
            await producer.initialise()

    on_stand(scenario)


def test_a_commit_makes_records_durable_that_were_not():
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("orders", flush_policy="interval")
        producer = await producer_on(made)
        await producer.send(log, b"a")
        assert log.unflushed_count == 1
        durable: list[int] = []
        write = made.engine.transactions._state_log.write

        async def look_and_write(transaction: Transaction) -> None:
            durable.append(log.unflushed_count)
            await write(transaction)

        made.engine.transactions._state_log.write = look_and_write
        await producer.end(commit=True)
        assert durable == [0]

    on_stand(scenario)


def test_a_transaction_with_an_offline_partition_can_only_be_aborted():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        for log in logs:
            await producer.send(log, b"a")
        logs[0].take_offline("a test says so")
        with pytest.raises(PartitionOfflineError):
            await producer.end(commit=True)
        with pytest.raises(Problem) as late:
            await producer.end(commit=False, wait_ms=100)
        assert late.value.code == "request_timed_out"
        assert list((await made.engine.transactions.describe("t")).waits) == [logs[0].name]
        assert visible(logs)[1] == []
        assert logs[1].snapshot.last_stable_offset == logs[1].snapshot.log_end_offset

    on_stand(scenario)


def test_a_partition_that_is_offline_does_not_become_part_of_a_transaction():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        producer = await producer_on(made)
        await producer.send(logs[1], b"a")
        logs[0].take_offline("a test says so")
        with pytest.raises(PartitionOfflineError, match="a test says so"):
            await producer.send(logs[0], b"b")
        assert await producer.end(commit=True) == "COMPLETE_COMMIT"
        assert visible(logs) == [[], [b"a"]]

    on_stand(scenario)


def test_identities_are_never_given_twice():
    async def scenario(made: Stand) -> None:
        given = [await made.engine.transactions.allocate() for _ in range(3)]
        assert len(set(given)) == 3
        assert {identity.producer_epoch for identity in given} == {0}
        assert ProducerIdentity(-1, -1) not in given

    on_stand(scenario)
