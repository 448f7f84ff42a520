"""What tasks tell the driver about what they wrote: small, picklable, and all that a commit needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage


class PartitionWritten(NamedTuple):
    """What one attempt wrote to one partition: ``rows`` of the offsets ``[start_offset, end_offset)``.

    Others may have written between them, so the difference of the offsets is not the number of rows.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    rows: int
    size_bytes: int


class LoadVersion(NamedTuple):
    """Whose load it is, and which."""

    application_id: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.application_id!r}"


class Timings(NamedTuple):
    """Where the time of an attempt went, in seconds; sending runs beside the others."""

    total: float = 0.0
    encoding: float = 0.0
    sending: float = 0.0
    """In requests, of all connections together."""
    waiting: float = 0.0
    """For a connection to be free."""


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """One attempt of a task, as it ended.

    ``producer_id`` is -1 when it wrote nothing, or without a producer. ``loaded_before`` is the version of a
    job that was committed before: nothing was written, and nothing is to be committed.
    """

    task: int
    attempt: int
    job_id: str | None = None
    producer_id: int = -1
    rows: int = 0
    """Records in the log, those among the rejects that were written to their topic included."""
    size_bytes: int = 0
    """Of their batches."""
    retries: int = 0
    """Requests that were sent again."""
    loaded_before: LoadVersion | None = None
    written: tuple[PartitionWritten, ...] = ()
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Rows that were not loaded, by reason."""
    timings: Timings = field(default_factory=Timings)
    host: str = ""
    peak_bytes: int = 0
    """The most memory that the task's Python process has held so far, also in tasks before."""

    @property
    def is_loaded(self) -> bool:
        """Whether the job was committed before."""
        return self.loaded_before is not None

    @property
    def rejected(self) -> int:
        """Rows that were not loaded."""
        return sum(self.rejects.values())


def sum_of_rejects(messages: Iterable[TaskMessage]) -> dict[str, int]:
    """The rejects of all tasks, by reason, the most frequent first."""
    counts: dict[str, int] = {}
    for message in messages:
        for reason, count in message.rejects.items():
            counts[reason] = counts.get(reason, 0) + count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def sum_of_written(messages: Iterable[TaskMessage]) -> list[PartitionWritten]:
    """What all tasks wrote, by partition, sorted."""
    merged: dict[tuple[str, int], PartitionWritten] = {}
    for message in messages:
        for one in message.written:
            known, written = merged.get((one.topic, one.partition)), one
            if known is not None:
                written = PartitionWritten(
                    one.topic,
                    one.partition,
                    min(known.start_offset, one.start_offset),
                    max(known.end_offset, one.end_offset),
                    known.rows + one.rows,
                    known.size_bytes + one.size_bytes,
                )
            merged[one.topic, one.partition] = written
    return [merged[place] for place in sorted(merged)]
