"""Messages from the tasks to the driver about their rows: small, picklable, and sufficient for a commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql.datasource import WriterCommitMessage


class PartitionWritten(NamedTuple):
    """The rows that one attempt wrote to one partition, at offsets within ``[start_offset, end_offset)``.

    Other producers may have written between them: ``rows`` is at most the difference of the offsets.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    rows: int
    size_bytes: int


class LoadVersion(NamedTuple):
    """The identity of a load: its application and its version."""

    application_id: str
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of {self.application_id!r}"


class Timings(NamedTuple):
    """The times of an attempt in seconds. Sending runs in parallel to the rest."""

    total: float = 0.0
    encoding: float = 0.0
    sending: float = 0.0
    """Time in requests, of all connections together."""
    waiting: float = 0.0
    """Time of waiting for a free connection."""


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """The result of one attempt of a task.

    ``producer_id`` is -1 if it wrote nothing, or wrote without a producer. ``loaded_before`` is the version of a job
    that was committed before: nothing was written, and there is nothing to commit.
    """

    task: int
    attempt: int
    job_id: str | None = None
    producer_id: int = -1
    rows: int = 0
    """Records in the log, with the rejected rows that were written to their topic."""
    size_bytes: int = 0
    """Bytes of their batches."""
    retries: int = 0
    """Number of requests that were sent again."""
    loaded_before: LoadVersion | None = None
    written: tuple[PartitionWritten, ...] = ()
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Number of rows that were not loaded, by reason."""
    timings: Timings = field(default_factory=Timings)
    host: str = ""
    peak_bytes: int = 0
    """Peak memory of the task's Python process so far, with its earlier tasks."""

    @property
    def is_loaded(self) -> bool:
        """True if the job was committed before."""
        return self.loaded_before is not None

    @property
    def rejected(self) -> int:
        """Number of rows that were not loaded."""
        return sum(self.rejects.values())


def sum_of_rejects(messages: Iterable[TaskMessage]) -> dict[str, int]:
    """Return the number of rejected rows of all tasks, by reason, the most frequent first."""
    counts: dict[str, int] = {}
    for message in messages:
        for reason, count in message.rejects.items():
            counts[reason] = counts.get(reason, 0) + count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def sum_of_written(messages: Iterable[TaskMessage]) -> list[PartitionWritten]:
    """Return the rows that all tasks wrote, by partition, sorted."""
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
