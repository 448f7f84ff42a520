"""What can go wrong with a request. Each message is one sentence that a user can act on; every error is picklable.

RollwayError
├── ServiceUnavailableError        no answer, or only refusals that said to come again, however often it was tried
├── InvalidAnswerError             what answered is not Rollway, or a newer one
│   └── AnswerTooLargeError        the answer has more bytes than this client takes
└── ProblemError                   the service's answer was an error (RFC 9457)
    ├── AuthenticationError        401
    ├── AuthorizationError         403
    ├── TopicNotFoundError         404, no such topic or partition
    ├── TopicReplacedError         409, the topic of this name has another id
    ├── TopicExistsError           409, with other partitions or settings
    ├── JobNotFoundError           404, no such load job
    ├── JobConflictError           409, the load job ended another way
    ├── ProducerFencedError        409, the producer may not write any more
    └── OffsetOutOfRangeError      410 and 416
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RollwayError(Exception):
    """Something that a caller of the service has to know."""


class ServiceUnavailableError(RollwayError):
    """The service could not be reached, or was not ready, in all the tries there were."""

    def __init__(self, url: str, attempt_count: int, elapsed_ms: int, last_error: str) -> None:
        self.url = url
        self.attempt_count = attempt_count
        self.elapsed_ms = elapsed_ms
        self.last_error = last_error
        times = "once" if attempt_count == 1 else f"{attempt_count} times"
        duration = f"{elapsed_ms} ms" if elapsed_ms < 1_000 else f"{elapsed_ms / 1_000:.0f} s"
        super().__init__(f"cannot reach Rollway at {url}: tried {times} in {duration}; last error: {last_error}")

    def __reduce__(self) -> Any:
        return type(self), (self.url, self.attempt_count, self.elapsed_ms, self.last_error)


class InvalidAnswerError(RollwayError):
    """The answer is not one of this interface."""


class AnswerTooLargeError(InvalidAnswerError):
    """The answer has more bytes than this client takes: ``answer_bytes_max``, or what was asked for if that is more."""


class ProblemError(RollwayError):
    """The service answered with an error.

    ``problem`` is the whole document: ``retryable``, ``applied`` and what this error alone has.
    """

    def __init__(self, url: str, status: int, problem: Mapping[str, Any]) -> None:
        self.url = url
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown"))
        self.detail = _detail(problem, status)
        super().__init__(f"{self.detail} ({status} {self.code} from {url})")

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed later."""
        return self.problem.get("retryable") is True

    @property
    def may_be_applied(self) -> bool:
        """Whether the request may have changed something all the same."""
        return self.problem.get("applied") != "no"

    def __reduce__(self) -> Any:
        return type(self), (self.url, self.status, self.problem)


class AuthenticationError(ProblemError):
    """The service does not believe who asks, or was not told."""


class AuthorizationError(ProblemError):
    """Who asks may not do this."""


class TopicNotFoundError(ProblemError):
    """There is no such topic, or no such partition of it."""


class TopicReplacedError(ProblemError):
    """The topic of this name is not the one that was asked for: that one was deleted, and another one was made."""


class TopicExistsError(ProblemError):
    """There is a topic of this name with other partitions or settings."""


class JobNotFoundError(ProblemError):
    """There is no such load job, or it was forgotten."""


class JobConflictError(ProblemError):
    """The load job has ended another way, its commit is refused, or this version of its data is another load's."""

    @property
    def state(self) -> str | None:
        """The job's state, where the service says it."""
        state = self.problem.get("state")
        return None if state is None else str(state)


class ProducerFencedError(ProblemError):
    """The producer's transaction is over: another instance took its place, or its job was decided."""


class OffsetOutOfRangeError(ProblemError):
    """The offset is below the log start or above the log end."""

    @property
    def log_start_offset(self) -> int:
        """The first readable offset; -1 where the service does not say it."""
        return self._offset("log_start_offset")

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets; -1 where the service does not say it."""
        return self._offset("log_end_offset")

    def _offset(self, name: str) -> int:
        value = self.problem.get(name)
        return value if type(value) is int else -1


_BY_CODE: dict[str, type[ProblemError]] = {
    "unknown_topic_or_partition": TopicNotFoundError,
    "unknown_topic_id": TopicNotFoundError,
    "inconsistent_topic_id": TopicReplacedError,
    "topic_exists": TopicExistsError,
    "job_not_found": JobNotFoundError,
    "invalid_job_state": JobConflictError,
    "job_incomplete": JobConflictError,
    "job_version_forgotten": JobConflictError,
    "job_topics_differ": JobConflictError,
    "producer_fenced": ProducerFencedError,
    "invalid_producer_id_mapping": ProducerFencedError,
    "invalid_txn_state": ProducerFencedError,
    "offset_out_of_range": OffsetOutOfRangeError,
}
_BY_STATUS: dict[int, type[ProblemError]] = {401: AuthenticationError, 403: AuthorizationError}


def problem_error(url: str, status: int, problem: Mapping[str, Any]) -> ProblemError:
    """The most specific error for an answer of the service."""
    kind = _BY_CODE.get(str(problem.get("code"))) or _BY_STATUS.get(status) or ProblemError
    return kind(url, status, problem)


def _detail(problem: Mapping[str, Any], status: int) -> str:
    """What went wrong, in one line, with the first faults of the request if it names some."""
    detail = str(problem.get("detail") or problem.get("title") or f"the answer has status {status}")
    errors = problem.get("errors")
    faults = [
        f"{fault.get('pointer')}: {fault.get('detail')}"
        for fault in (errors if isinstance(errors, list) else ())
        if isinstance(fault, Mapping) and str(fault.get("detail")) not in detail
    ]
    if faults:
        detail = f"{detail}: {'; '.join(faults[:3])}"
    return " ".join(detail.split())
