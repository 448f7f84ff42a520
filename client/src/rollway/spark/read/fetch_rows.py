"""One task of a read: it fetches a range of offsets, and yields the visible records in Arrow batches.

While one response is decoded, a second thread fetches the next. Never more than two are held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from rollway.client import Fetched, OffsetOutOfRangeError, RollwayClient, TopicNotFoundError, TopicReplacedError
from rollway.records import (
    RecordBatch,
    RecordColumns,
    TimestampType,
    committed_batches,
    decode_batch,
    split_batches,
)
from rollway.spark.errors import NotCommittedError, report_loss, report_made_again
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.arrow_records import ArrowRecords

# Smaller batches are joined up to these limits: each Arrow batch costs Spark a fixed amount of work.
_JOINED_ROWS = 8_192
_JOINED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets ``[start_offset, end_offset)`` of one partition, which one task reads.

    ``topic_id`` is the id of the topic; ``None`` if the topic was gone when the range was made.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: str | None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start_offset}, {self.end_offset})"


def read_range(options: ReadOptions, schema: StructType, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield all visible records of the range, in order, with the columns of ``schema``.

    Markers, and with read_committed records of aborted transactions, are left out. Their offsets are missing, which is
    no loss. Lost records are an error, or with ``failOnDataLoss=false`` a warning.

    Raises:
        DataLossError: records of the range are gone.
        NotCommittedError: a part of the range is not committed yet.
        RollwayError: the service cannot be reached, or refuses.
        RecordFormatError: a batch is damaged.
    """
    arrow = ArrowRecords(schema, wanted.topic, wanted.partition)
    is_committed = options.isolation == "read_committed"
    with RollwayClient(options.client) as client:
        for fetched, first_offset in _answers(client, options, wanted):
            batches: Iterable[RecordBatch] = split_batches(fetched.batches)
            if is_committed:
                batches = committed_batches(batches, fetched.aborted)
            else:
                batches = (batch for batch in batches if not batch.header.is_control)
            for columns, timestamp_type in _joined(_decoded(batches, first_offset, wanted.end_offset)):
                yield from arrow.batches(columns, timestamp_type)


def _answers(client: RollwayClient, options: ReadOptions, wanted: OffsetRange) -> Iterator[tuple[Fetched, int]]:
    """Yield the responses that together hold the range, each with the first offset to read of it. One is fetched ahead.

    The first batch of a response may begin below that offset, with records that another response had, or that were
    deleted.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="fetch ahead") as ahead:

        def ask(offset: int) -> Future[tuple[Fetched, int, int] | None]:
            return ahead.submit(_fetch, client, options, wanted, offset)

        pending = ask(wanted.start_offset) if wanted.start_offset < wanted.end_offset else None
        while pending is not None:
            found = pending.result()
            if found is None:
                return
            fetched, first_offset, next_offset = found
            pending = ask(next_offset) if next_offset < wanted.end_offset else None
            yield fetched, first_offset


def _fetch(
    client: RollwayClient, options: ReadOptions, wanted: OffsetRange, offset: int
) -> tuple[Fetched, int, int] | None:
    """Fetch the records from ``offset`` on. Return them, their first existing offset, and the offset of the next fetch.

    Return ``None`` if the rest of the range is gone, and the options tolerate it.

    Raises:
        DataLossError: records are gone, and the options do not tolerate it.
        NotCommittedError: no record at ``offset`` is committed yet.
    """
    fail = options.fail_on_data_loss
    while True:
        try:
            fetched = client.fetch(
                wanted.topic,
                wanted.partition,
                offset=offset,
                end_offset=wanted.end_offset,
                topic_id=wanted.topic_id,
                max_bytes=options.fetch_max_bytes,
                isolation=options.isolation,
            )
        except OffsetOutOfRangeError as error:
            start = error.log_start_offset
            if start <= offset:
                report_loss(f"records {offset} to {wanted.end_offset} of {wanted}: {error}", fail=fail)
                return None
            report_loss(
                f"records {offset} to {min(start, wanted.end_offset)} of {wanted}: {error}",
                fail=fail,
            )
            if start >= wanted.end_offset:
                return None
            offset = start
        except TopicReplacedError:
            assert wanted.topic_id is not None
            report_made_again(wanted.topic, wanted.topic_id, fail=fail)
            return None
        except TopicNotFoundError as error:
            report_loss(f"records {offset} to {wanted.end_offset} of {wanted}: {error}", fail=fail)
            return None
        else:
            if fetched.next_offset <= offset:
                if fetched.last_stable_offset <= offset < fetched.high_watermark:
                    raise NotCommittedError(wanted.topic, wanted.partition, wanted.end_offset, offset)
                report_loss(
                    f"records {offset} to {wanted.end_offset} of {wanted}: they can no longer be read, "
                    f"the log ends at {fetched.high_watermark}",
                    fail=fail,
                )
                return None
            return fetched, offset, fetched.next_offset


def _decoded(
    batches: Iterable[RecordBatch], first_offset: int, end_offset: int
) -> Iterator[tuple[RecordColumns, TimestampType]]:
    """Yield the records of these batches with offsets in ``[first_offset, end_offset)``."""
    for batch in batches:
        batch.check_crc()
        columns = decode_batch(batch)
        header = batch.header
        if header.base_offset < first_offset or header.last_offset >= end_offset:
            bounds = columns.offsets.searchsorted((first_offset, end_offset))
            columns = columns.slice(int(bounds[0]), int(bounds[1]))
        if len(columns):
            yield columns, header.timestamp_type


def _joined(
    decoded: Iterable[tuple[RecordColumns, TimestampType]],
) -> Iterator[tuple[RecordColumns, TimestampType]]:
    """Yield the same records, with small batches of one timestamp type joined."""
    held: list[RecordColumns] = []
    held_type = TimestampType.CREATE_TIME
    rows = size_bytes = 0
    for columns, timestamp_type in decoded:
        if held and (timestamp_type is not held_type or rows >= _JOINED_ROWS or size_bytes >= _JOINED_BYTES):
            yield RecordColumns.concatenate(held), held_type
            held, rows, size_bytes = [], 0, 0
        held.append(columns)
        held_type = timestamp_type
        rows += len(columns)
        size_bytes += columns.keys.size_bytes + columns.values.size_bytes
    if held:
        yield RecordColumns.concatenate(held), held_type
