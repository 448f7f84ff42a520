"""Errors of jobs: one sentence for people, and an exit status for programs."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DIFFERENT = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class JobError(Exception):
    """The job failed. The message is a sentence that names a remedy.

    Example: ``copy`` from a topic with six partitions to one with three, with ``keep_partitions``.
    """

    exit_status = EXIT_FAILED


class JobUsageError(JobError):
    """The request is wrong, for any data. Nothing was read or written.

    Example: a ``CopyRequest`` whose source and target are the same topic.
    """

    exit_status = EXIT_USAGE


class RejectedRowsError(JobError):
    """More rows cannot become records than the job may leave out. None of its records is visible.

    Example: ``load`` of a file in which one line of JSON is broken, without ``Rejects``.
    """
