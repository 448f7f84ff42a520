"""Requests that are repeated after their transaction has ended: they must not open another."""

from __future__ import annotations

from collections.abc import Sequence

from app.engine_local.logs import Logs
from log_model.errors import OutOfOrderSequenceError
from log_model.offsets import NO_TIMESTAMP, Offset
from log_model.producers import ProducerBatch, add_sequence
from rollway.records import BatchHeader
from storage.log.partition_log import AppendResult, PartitionLog


async def find_duplicates(logs: Logs, log: PartitionLog, headers: Sequence[BatchHeader]) -> list[AppendResult] | None:
    """Return the first result of each of these batches if all of them are in the log, else ``None``.

    Raises:
        RefusedError: the batches cannot follow the batches in the log.
        Problem: overloaded.
    """
    if not headers or not _may_be_there(log, headers):
        return None
    # The second look is a job of the writer: a batch that is wrongly found here would be appended without enlistment.
    return await logs.writer_of(log).run(lambda: _find_duplicates(log, headers))


def _may_be_there(log: PartitionLog, headers: Sequence[BatchHeader]) -> bool:
    try:
        return log.producers.check(headers[0]) is not None
    except OutOfOrderSequenceError:
        if len(headers) == 1:
            raise
        # Of a request with several batches the log may remember only the last one, as after a restart.
        return True


def _find_duplicates(log: PartitionLog, headers: Sequence[BatchHeader]) -> list[AppendResult] | None:
    stamped = log.config.message_timestamp_type == "LogAppendTime"
    whole = log.find_repeated(headers)
    results = []
    for header in headers:
        known = log.producers.check(header) if whole is None else _part_of(whole, header)
        if known is None:
            return None
        results.append(
            AppendResult(
                known.first_offset,
                known.last_offset,
                header.record_count,
                known.timestamp if stamped else NO_TIMESTAMP,
                log.snapshot.log_start_offset,
                duplicate=True,
            )
        )
    return results


def _part_of(whole: ProducerBatch, header: BatchHeader) -> ProducerBatch:
    """Return the place of one batch of a request that is in the log as a whole."""
    skipped = add_sequence(header.base_sequence, -whole.first_sequence)
    first_offset = Offset(whole.first_offset + skipped)
    last_offset = Offset(first_offset + header.last_offset_delta)
    return whole._replace(first_offset=first_offset, last_offset=last_offset)
