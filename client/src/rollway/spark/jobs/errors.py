"""Why a job did not do what was asked: one sentence for people, and an exit status for programs."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DIFFERENT = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class JobError(Exception):
    """The job failed; the message is a sentence that names what to change."""

    exit_status = EXIT_FAILED


class JobUsageError(JobError):
    """What was asked for makes no sense, whatever the data are; nothing was read or written."""

    exit_status = EXIT_USAGE


class RejectedRowsError(JobError):
    """Rows cannot become records, and more of them than the job may leave out. Nothing it wrote is visible."""
