"""Offsets by time, where leader epochs and transactions hold them back (spec ListOffsets, cases F-15 and LE-4)."""

from __future__ import annotations

import pytest

from app.fetch.offset_lookup import find_offset
from log_model.batches.batch_validation import validate_batches
from log_model.errors import FencedLeaderEpochError, OffsetNotAvailableError
from log_model.transactions import TransactionMarker
from storage.log.partition_log import AppendRequest
from storage.log.replica_set import ReplicaSet
from tests.cases.logs import batch_of
from tests.support.stands import Stand, on_stand
from tests.support.writers import append_request

FIRST_MS = 1_700_000_000_000


def test_78_until_the_high_watermark_has_come_to_the_epoch() -> None:
    """`latest`: always; a time: only if its record is there and not visible; what is visible, and earliest: never."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", flush_policy="interval")
        log.append([append_request(log, b"a", b"b")])
        log.publish()
        log.replicas = ReplicaSet(1, (2,))
        log.append([append_request(log, b"c"), append_request(log, b"d")])
        log.promote()
        log.publish()
        assert (log.snapshot.high_watermark, log.snapshot.log_end_offset) == (2, 4)

        async def offset_of(timestamp: object) -> int | None:
            answer = await find_offset(made.parts.fetching, log, timestamp)  # type: ignore[arg-type]
            return answer.offset

        assert await offset_of("earliest") == 0
        assert await offset_of(FIRST_MS) == 0
        assert await offset_of(FIRST_MS + 10) is None
        with pytest.raises(OffsetNotAvailableError):
            await offset_of("latest")
        with pytest.raises(FencedLeaderEpochError):
            await find_offset(made.parts.fetching, log, "latest", current_leader_epoch=0)
        log.replicas = ReplicaSet(1)
        log.publish()
        assert await offset_of("latest") == 4

    on_stand(scenario)


def test_78_for_a_record_that_is_there_and_not_visible() -> None:
    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", flush_policy="interval")
        log.replicas = ReplicaSet(1, (2,))
        log.append([append_request(log, b"a")])
        log.promote()
        log.publish()
        with pytest.raises(OffsetNotAvailableError):
            await find_offset(made.parts.fetching, log, FIRST_MS)
        assert (await find_offset(made.parts.fetching, log, FIRST_MS + 1)).offset is None

    on_stand(scenario)


def test_f_15_offsets_by_isolation() -> None:
    """Three records of an open transaction: uncommitted latest 3, committed 0, a time none; after the commit both."""

    async def scenario(made: Stand) -> None:
        (log,) = await made.topic("t", flush_policy="interval")
        body = batch_of(3, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        log.append([AppendRequest(tuple(validate_batches(body, log.config, made.engine.now_ms())))])
        log.publish()

        async def offset_of(timestamp: object, isolation: str) -> int | None:
            answer = await find_offset(made.parts.fetching, log, timestamp, isolation)  # type: ignore[arg-type]
            return answer.offset

        assert await offset_of("latest", "read_uncommitted") == 3
        assert await offset_of("latest", "read_committed") == 0
        assert await offset_of(FIRST_MS, "read_uncommitted") == 0
        assert await offset_of(FIRST_MS, "read_committed") is None
        assert await offset_of("max_timestamp", "read_committed") is None
        marker = TransactionMarker(7, 0, 0, commit=True)
        log.append([AppendRequest.marker(marker)])
        log.publish()
        assert await offset_of("latest", "read_committed") == 4
        assert await offset_of(FIRST_MS, "read_committed") == 0

    on_stand(scenario)
