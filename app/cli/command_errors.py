"""Errors of commands: one sentence on stderr and an exit status, never a traceback."""

from __future__ import annotations

from collections.abc import Mapping

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandError(Exception):
    """The command failed. The message is a sentence for people.

    ``problem`` is the service's document, if the service refused the request.
    """

    exit_status = EXIT_FAILED
    problem: Mapping[str, object] | None = None


class UsageProblem(CommandError):  # noqa: N818 - it is not the command that failed
    """The command line itself is wrong."""

    exit_status = EXIT_USAGE


class ServiceError(CommandError):
    """The service refused the request with problem+json (api: Errors). A retry can help only if ``retryable``."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        retryable: bool = False,
        is_applied_unknown: bool = False,
        retry_after_ms: int | None = None,
        log_start_offset: int | None = None,
        problem: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retryable = retryable
        self.is_applied_unknown = is_applied_unknown
        self.retry_after_ms = retry_after_ms
        self.log_start_offset = log_start_offset
        self.problem = problem


class AnswerError(CommandError):
    """The response is not of a Rollway service, or of another version. A write may have been applied."""


class UnreachableError(CommandError):
    """No service responded. ``was_sent``: the request was sent, so it may have been applied."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
