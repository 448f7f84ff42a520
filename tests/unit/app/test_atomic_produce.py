"""Requests that are one transaction each: visible in all their partitions, or in none."""

from __future__ import annotations

import asyncio

from app.atomic_produce import produce_atomically
from app.broker import ProduceOptions
from app.enlisting import PartitionAppend
from storage.partition_log import AppendResult, PartitionLog
from tests.brokers import Stand, on_stand
from tests.transactions import visible
from tests.writers import valid_batches


def plain_appends(made: Stand, logs: tuple[PartitionLog, ...], *values: bytes) -> list[PartitionAppend]:
    return [PartitionAppend(log, valid_batches(log, *values)) for log in logs]


def test_an_atomic_request_is_visible_in_all_partitions_or_in_none():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 3)
        for value in (b"a", b"b"):
            done = await produce_atomically(made.broker, plain_appends(made, logs, value, value), ProduceOptions())
            assert done.is_committed
        assert visible(logs) == [[b"a", b"a", b"b", b"b"]] * 3
        # The same producer both times, with sequences that count on.
        assert made.broker.transactions.id_count() == 1
        refusing = ProduceOptions(expected_offset=logs[0].snapshot.log_end_offset)
        await made.append(logs[1], b"moves the end")
        refused = await produce_atomically(made.broker, plain_appends(made, logs, b"no"), refusing)
        assert not refused.is_committed
        assert [isinstance(result, AppendResult) for result in refused.results] == [True, False, True]
        after = await produce_atomically(made.broker, plain_appends(made, logs, b"c"), ProduceOptions())
        assert after.is_committed
        assert [values[-1] for values in visible(logs)] == [b"c"] * 3
        assert not any(b"no" in values for values in visible(logs))

    on_stand(scenario)


def test_atomic_requests_beside_each_other():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        values = [b"%d" % number for number in range(20)]
        done = await asyncio.gather(
            *(produce_atomically(made.broker, plain_appends(made, logs, value), ProduceOptions()) for value in values)
        )
        assert all(each.is_committed for each in done)
        assert [sorted(seen) for seen in visible(logs)] == [sorted(values)] * 2

    on_stand(scenario)


def test_a_producer_that_was_forgotten_while_idle_is_made_anew():
    async def scenario(made: Stand) -> None:
        logs = await made.topic("orders", 2)
        assert (await produce_atomically(made.broker, plain_appends(made, logs, b"a"), ProduceOptions())).is_committed
        made.clock.advance(made.broker.settings.transactional_id_expiration_ms)
        await made.scheduler.run("transactions")
        assert made.broker.transactions.id_count() == 0
        assert (await produce_atomically(made.broker, plain_appends(made, logs, b"b"), ProduceOptions())).is_committed
        assert visible(logs) == [[b"a", b"b"]] * 2

    on_stand(scenario)
