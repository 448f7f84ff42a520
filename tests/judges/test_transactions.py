"""Kafka's Python clients as judges of transactions: they decode our markers and filter by our aborted list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiokafka.consumer.fetcher as their_fetcher
import pytest
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from aiokafka.structs import TopicPartition
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from log_model.offsets import Offset
from log_model.reads import Isolation
from tests.cases.logs import CaseLog
from tests.cases.transactional import Producer, mixed


def kept_by_aiokafka(log: CaseLog, offset: int) -> list[int]:
    """What aiokafka's consumer of committed records makes of a fetch of ours."""
    fetched = log.snapshot.read(Offset(offset), 1 << 20, isolation=Isolation.LAST_STABLE)
    content = b"".join(piece.read() for piece in fetched.slices)
    aborted = [(entry.producer_id, entry.first_offset) for entry in fetched.aborted or ()]
    records: Any = their_fetcher.PartitionRecords(
        TopicPartition("cases", 0), AioRecords(content), aborted, offset, None, None, True, their_fetcher.READ_COMMITTED
    )
    kept = [record.offset for record in records]
    assert records.next_fetch_offset == fetched.next_offset
    return kept


@pytest.mark.parametrize("commit", [True, False])
def test_aiokafka_keeps_exactly_the_committed_records(tmp_path: Path, commit: bool) -> None:
    log = CaseLog(tmp_path / "data")
    mixed(log)
    assert kept_by_aiokafka(log, 0) == [11]
    log.end_transaction(4, commit=commit)
    one, two = Producer(log, 11), Producer(log, 12)
    kept = [11, 16, 17, 18, 19] if commit else [11, 18, 19]
    for number in range(6):
        kept += range(first := one.send(2), first + 2) if number % 2 else ()
        if not number % 2:
            one.send(1)
        two.send(1)
        one.commit() if number % 2 else one.abort()
        if number == 3:
            log.roll()
    two.abort()
    assert kept_by_aiokafka(log, 0) == kept
    for offset in range(log.end_offset):
        assert kept_by_aiokafka(log, offset) == [entry for entry in kept if entry >= offset]


@pytest.mark.parametrize("judge", [AioRecords, KafkaPythonRecords])
def test_both_decode_transactional_and_control_batches(tmp_path: Path, judge: Any) -> None:
    log = CaseLog(tmp_path / "data")
    mixed(log)
    theirs = []
    for base_offset in log.base_offsets:
        records = judge(log.file(base_offset).read_bytes())
        while records.has_next():
            batch = records.next_batch()
            assert batch.validate_crc()
            theirs.append((batch.base_offset, batch.is_transactional, batch.is_control_batch, len(list(batch))))
    assert theirs == [
        (header.base_offset, header.is_transactional, header.is_control, header.record_count)
        for header in log.headers()
    ]
