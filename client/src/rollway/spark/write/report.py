"""The report of a load, for people and for programs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollway.spark.write.load_jobs import JobInUse
from rollway.spark.write.messages import LoadVersion, PartitionWritten, TaskMessage, sum_of_rejects, sum_of_written

_SHOWN_MAX = 20
_WIDTHS = (6, 8, 14, 10, 7, 8, 10, 9, 9, 10)
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of one load: written rows, rejected rows, and the times of each task.

    ``is_loaded`` is true if this version was committed before, so that nothing was written. ``str()`` is a table.

    Example::

        report = bulk_load(df, "http://127.0.0.1:8080", "readings")
        print(f"{report.rows} rows in {report.seconds:.1f} s, {report.rejected} rejected")
        for part in report.partitions:
            print(part.topic, part.partition, part.rows)
    """

    topic: str | None
    mode: str
    job_id: str | None
    application_id: str | None
    version: int | None
    is_loaded: bool
    seconds: float
    tasks: tuple[TaskMessage, ...]

    @property
    def rows(self) -> int:
        """Number of records that were written, with the rejected rows that went to their topic."""
        return sum(task.rows for task in self.tasks)

    @property
    def size_bytes(self) -> int:
        """Bytes of the written record batches."""
        return sum(task.size_bytes for task in self.tasks)

    @property
    def rejects(self) -> Mapping[str, int]:
        """Number of rows that were not loaded, by reason."""
        return sum_of_rejects(self.tasks)

    @property
    def rejected(self) -> int:
        """Number of rows that were not loaded."""
        return sum(self.rejects.values())

    @property
    def retries(self) -> int:
        """Number of requests that were sent again."""
        return sum(task.retries for task in self.tasks)

    @property
    def peak_bytes(self) -> int:
        """Peak memory in bytes of a task's Python process."""
        return max((task.peak_bytes for task in self.tasks), default=0)

    @property
    def partitions(self) -> list[PartitionWritten]:
        """Rows that were written, by partition."""
        return sum_of_written(self.tasks)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self._rejects(), *self._partitions(), *self._tasks()])

    def _headline(self) -> str:
        where = f" into {self.topic}" if self.topic is not None else ""
        if self.is_loaded:
            return f"version {self.version} of {self.application_id!r} was loaded before: nothing was written{where}"
        rate = self.rows / self.seconds if self.seconds else 0.0
        job = "" if self.job_id is None else f", job {self.job_id}"
        return (
            f"loaded {self.rows:,} rows, {self.size_bytes / _MIB:,.1f} MiB{where} in {self.seconds:.1f} s "
            f"({rate:,.0f} rows/s, {self.mode}{job}); {self.rejected:,} rejected, {self.retries:,} requests sent again"
        )

    def _rejects(self) -> list[str]:
        return [f"  rejected {count:>12,}  {reason}" for reason, count in self.rejects.items()]

    def _partitions(self) -> list[str]:
        partitions = self.partitions
        lines = [f"  {'topic/partition':30}{'rows':>14}{'MiB':>10}  offsets"] if partitions else []
        for one in partitions[:_SHOWN_MAX]:
            name = f"{one.topic}/{one.partition}"
            offsets = f"[{one.start_offset:,}, {one.end_offset:,})"
            lines.append(f"  {name:30}{one.rows:>14,}{one.size_bytes / _MIB:>10,.1f}  {offsets}")
        return lines + _and_more(len(partitions), "partitions")

    def _tasks(self) -> list[str]:
        names = ("task", "attempt", "rows", "rejected", "again", "s", "encoding", "sending", "waiting", "peak MiB")
        lines = [_columns(*names) + "  host"] if self.tasks else []
        for task in self.tasks[:_SHOWN_MAX]:
            counts = (task.task, task.attempt, f"{task.rows:,}", f"{task.rejected:,}", task.retries)
            seconds = (f"{each:.2f}" for each in task.timings)
            lines.append(_columns(*counts, *seconds, f"{task.peak_bytes / _MIB:,.0f}") + f"  {task.host}")
        return lines + _and_more(len(self.tasks), "tasks")


def _columns(*cells: object) -> str:
    return "  " + "".join(f"{cell:>{width}}" for cell, width in zip(map(str, cells), _WIDTHS, strict=True))


def _and_more(count: int, what: str) -> list[str]:
    return [f"  and {count - _SHOWN_MAX:,} more {what}"] if count > _SHOWN_MAX else []


def outcome(messages: Sequence[TaskMessage], job: JobInUse | None) -> tuple[int, str]:
    """Return a line about a write for the driver's log, and its level: a warning if rows were not written."""
    before = next((message.loaded_before for message in messages if message.loaded_before is not None), None)
    if job is not None and job.is_loaded:
        before = LoadVersion(job.application_id, job.version)
    if before is not None:
        return logging.WARNING, f"{before} was loaded before: nothing was written"
    rows, size_bytes = sum(one.rows for one in messages), sum(one.size_bytes for one in messages)
    rejects = sum_of_rejects(messages)
    reasons = "".join(f"; rejected {count:,}: {reason}" for reason, count in rejects.items())
    name = "" if job is None else f" (job {job.job_id} of {job.application_id!r})"
    level = logging.WARNING if rejects else logging.INFO
    return level, f"loaded {rows:,} rows, {size_bytes:,} bytes{name}{reasons}"
