"""The state of the service's own, in partitions of internal topics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from app.engine.state import Change
from log_model.batches.batch_validation import own_batch
from log_model.errors import UnknownTopicOrPartitionError
from log_model.offsets import Offset
from rollway.records import Record, columns_from_records, encode_batch
from tests.memory_engine.log import MemoryLog
from tests.memory_engine.topics import MemoryTopics


class MemoryStateLog:
    """A map from keys to values, written as records; see ``StateLog`` of the port. Thread: the event loop."""

    def __init__(self, topics: MemoryTopics, topic: str, now_ms: Callable[[], int]) -> None:
        self._topics = topics
        self._topic = topic
        self._now_ms = now_ms

    def _log(self) -> MemoryLog | None:
        try:
            return self._topics.partition(self._topic, 0)
        except UnknownTopicOrPartitionError:
            return None

    @property
    def record_count(self) -> int:
        """Records in the log."""
        log = self._log()
        return 0 if log is None else log.snapshot.log_end_offset - log.snapshot.log_start_offset

    async def load(self) -> dict[bytes, bytes]:
        """Return the last value of each key."""
        known: dict[bytes, bytes] = {}
        log = self._log()
        if log is None:
            return known
        limits = log.snapshot
        for batch in log.view().walk(limits.log_start_offset, limits.log_end_offset):
            columns = batch.columns()
            for key, value in zip(columns.keys.to_list(), columns.values.to_list(), strict=True):
                assert key is not None
                known.pop(key, None)
                if value is not None:
                    known[key] = value
        return known

    async def write(self, changes: Sequence[Change], *, durable: bool = True) -> None:
        """Write changes as one batch."""
        now_ms = self._now_ms()
        records = [Record(place, now_ms, key, value) for place, (key, value) in enumerate(changes)]
        log = self._topics.ensure_internal(self._topic).partitions[0]
        log.append([own_batch(encode_batch(columns_from_records(records)))])

    async def shorten(self, live: AsyncGenerator[Sequence[Change], None]) -> None:
        """Write all of ``live`` again, and delete every record before it."""
        log = self._topics.ensure_internal(self._topic).partitions[0]
        start = Offset(log.snapshot.log_end_offset)
        async with aclosing(live):
            async for changes in live:
                await self.write(changes)
        log.raise_log_start(start, "retention")

    def check_online(self) -> None:
        """Return: memory does not fail."""
