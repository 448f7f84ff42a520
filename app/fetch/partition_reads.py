"""Reading many partitions within one budget of bytes (spec D7, D8, D11). Synchronous: it may touch the disk.

A partition that cannot be read never keeps another one from being read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from app.fetch.fetch_range import read_listable
from app.fetch.multi_fetch_body import FetchPartition
from app.record_json.record_texts import RecordText
from log_model.errors import PartitionOfflineError, StorageError
from log_model.offsets import Offset
from log_model.reads import FetchData, Isolation
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog


class Diverging(NamedTuple):
    """The records before the fetch offset are not those of this log, in which ``epoch`` ends with ``end_offset``."""

    epoch: int
    end_offset: int


@dataclass(slots=True)
class PartitionAnswer:
    """What one partition answers: an error, or records and the limits that were true before they were read.

    ``data`` is what was read of the files, ``records`` what JSON shows of it once it is decoded.
    """

    asked: FetchPartition
    log: PartitionLog | None = None
    error: Exception | None = None
    snapshot: LogSnapshot | None = None
    data: FetchData | None = None
    diverging: Diverging | None = None
    records: list[RecordText] = field(default_factory=list)
    next_offset: int = -1

    @property
    def topic(self) -> str | None:
        return self.asked.topic if self.log is None else self.log.name.topic

    @property
    def topic_id(self) -> str | None:
        return None if self.log is None else self.log.topic_id

    @property
    def size_bytes(self) -> int:
        """Bytes of batches that were read."""
        return 0 if self.data is None else self.data.size_bytes

    @property
    def brings_records(self) -> bool:
        """Whether the client has more offsets behind it with this answer."""
        return self.next_offset > self.asked.fetch_offset

    @property
    def high_watermark(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.last_stable_offset

    @property
    def log_start_offset(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return -1 if self.snapshot is None else self.snapshot.log_end_offset

    def fail(self, error: Exception) -> None:
        """Answer with ``error``: without records, and with limits of -1, as Kafka does (spec B8)."""
        self.error = error
        self.snapshot = self.data = self.diverging = None
        self.next_offset = -1


def read_partitions(
    answers: Iterable[PartitionAnswer], max_bytes: int, isolation: Isolation, aborted_count_max: int | None = None
) -> None:
    """Read, in order, those that have a log and no error; each gets what the ones before it left of ``max_bytes``.

    The first that has records gets its first batch whole, whatever the limits say; the others only what fits. None
    gets a part of a batch, nor more than ``aborted_count_max`` aborted transactions.
    """
    left_bytes = max_bytes
    min_one = True
    for answer in answers:
        if answer.log is None or answer.error is not None:
            continue
        try:
            _read(answer, answer.log, min(answer.asked.max_bytes, left_bytes), isolation, min_one, aborted_count_max)
        except StorageError as error:
            answer.fail(error)
        except OSError as error:
            answer.fail(PartitionOfflineError(f"{answer.log.name} cannot be read: {error.strerror or error}"))
        if answer.size_bytes:
            min_one = False
            left_bytes = max(0, left_bytes - answer.size_bytes)


def _read(
    answer: PartitionAnswer,
    log: PartitionLog,
    max_bytes: int,
    isolation: Isolation,
    min_one: bool,
    aborted_count_max: int | None,
) -> None:
    asked = answer.asked
    check_leader_epoch(log, asked)
    # Before the records: what is told with them was true when they were read.
    snapshot = log.snapshot
    offset = Offset(asked.fetch_offset)
    answer.diverging = find_divergence(log, snapshot, asked)
    data = None
    if answer.diverging is None:
        data = read_listable(snapshot, offset, max_bytes, isolation, aborted_count_max, min_one=min_one)
    answer.snapshot = snapshot
    answer.data = data
    answer.next_offset = offset if data is None else data.next_offset


def find_divergence(log: PartitionLog, snapshot: LogSnapshot, asked: FetchPartition) -> Diverging | None:
    """Where the client's log and this one part, if ``last_fetched_epoch`` shows that they do (spec E2).

    Raises:
        OffsetOutOfRangeError: the epoch is unknown here, or the fetch offset lies below the log start.
    """
    if asked.last_fetched_epoch is None or asked.last_fetched_epoch < 0:
        return None
    found = log.epochs.find_divergence(
        asked.last_fetched_epoch,
        Offset(asked.fetch_offset),
        log_start_offset=snapshot.log_start_offset,
        log_end_offset=snapshot.log_end_offset,
    )
    return None if found is None else Diverging(*found)


def check_leader_epoch(log: PartitionLog, asked: FetchPartition) -> None:
    """Compare what a client takes for the leader epoch with the log's own; absent and -1 are not checked (spec D11).

    Raises:
        FencedLeaderEpochError, UnknownLeaderEpochError
    """
    if asked.current_leader_epoch is not None and asked.current_leader_epoch >= 0:
        log.epochs.check_current(asked.current_leader_epoch)
