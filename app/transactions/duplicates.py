"""Requests that come again after their transaction has ended: they must not open another."""

from __future__ import annotations

from collections.abc import Sequence

from app.transactions.logs import Logs
from rollway.records import BatchHeader
from storage.offsets import NO_TIMESTAMP
from storage.partition_log import AppendResult, PartitionLog


async def find_duplicate(logs: Logs, log: PartitionLog, headers: Sequence[BatchHeader]) -> AppendResult | None:
    """What the log answered to these batches when they came first, if they did.

    Raises:
        RefusedError: they cannot follow what is there.
        Problem: overloaded.
    """
    if not headers or log.producers.check(headers[0]) is None:
        return None
    # Again, in the writer's turn: what is judged to be there must be there, or it would be appended unlisted.
    return await logs.writer_of(log).run(lambda: _find_duplicate(log, headers))


def _find_duplicate(log: PartitionLog, headers: Sequence[BatchHeader]) -> AppendResult | None:
    known = [log.producers.check(header) for header in headers]
    originals = [batch for batch in known if batch is not None]
    if len(originals) < len(known):
        return None
    stamped = log.config.message_timestamp_type == "LogAppendTime"
    return AppendResult(
        originals[0].first_offset,
        originals[-1].last_offset,
        sum(header.record_count for header in headers),
        originals[0].timestamp if stamped else NO_TIMESTAMP,
        log.snapshot.log_start_offset,
        duplicate=True,
    )
