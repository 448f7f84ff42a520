"""Errors of requests. Each message is one sentence that a user can act on. Every error is picklable.

RollwayError
├── ServiceUnavailableError        every try had no response, or a refusal that allows a retry
├── InvalidAnswerError             the response is not one of Rollway, or one of a newer Rollway
│   └── AnswerTooLargeError        the response has more bytes than this client accepts
└── ProblemError                   the response is an error of the service (RFC 9457)
    ├── AuthenticationError        401
    ├── AuthorizationError         403
    ├── TopicNotFoundError         404, no such topic or partition
    ├── TopicReplacedError         409, the topic of this name has another id
    ├── TopicExistsError           409, with other partitions or settings
    ├── JobNotFoundError           404, no such load job
    ├── JobConflictError           409, the load job ended in another way
    ├── ProducerFencedError        409, the producer may not write any more
    ├── OffsetOutOfRangeError      410 and 416
    └── UnsupportedByEngineError   501, the engine of the service cannot do this
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RollwayError(Exception):
    """The base of all errors of this library's calls.

    Example::

        try:
            topic = client.describe_topic("readings")
        except RollwayError as error:
            sys.exit(str(error))  # one sentence, such as: cannot reach Rollway at http://127.0.0.1:8080: tried ...
    """


class ServiceUnavailableError(RollwayError):
    """The service could not be reached, or was not ready, in every try.

    Example: with ``retries=2`` and no service at the address, ``attempt_count`` is 3, and ``last_error`` is the third
    try's error.
    """

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
    """The response is not one of this interface.

    Example: the address is that of another web server, which responds to ``list_topics()`` with HTML and 200.
    """


class AnswerTooLargeError(InvalidAnswerError):
    """The response has more bytes than this client accepts: ``answer_bytes_max``, or the call's ``max_bytes`` and 1 MiB
    if that is more.

    Example: with ``answer_bytes_max=2_000_000``, a page of topics that has 3,000,000 bytes.
    """


class ProblemError(RollwayError):
    """The service responded with an error.

    ``problem`` is the whole document: ``retryable``, ``applied``, and the members that only this kind of error has.

    Example: ``create_topic("readings", partitions=0)`` raises one with ``status`` 422 and ``code`` "invalid_request".
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
        """True if the same request can succeed later."""
        return self.problem.get("retryable") is True

    @property
    def may_be_applied(self) -> bool:
        """True if the request may have changed something in spite of the error."""
        return self.problem.get("applied") != "no"

    def __reduce__(self) -> Any:
        return type(self), (self.url, self.status, self.problem)


class AuthenticationError(ProblemError):
    """The request carries no credential, or one that was not accepted.

    Example: any call with the token of a key that was revoked.
    """


class AuthorizationError(ProblemError):
    """The principal has no right to do this.

    Example: ``create_topic("readings")`` with a key that may only read.
    """


class TopicNotFoundError(ProblemError):
    """There is no such topic, or no such partition of it.

    Example: ``describe_topic("readnigs")``.
    """


class TopicReplacedError(ProblemError):
    """The topic of this name has another id: the requested topic was deleted, and a new one was created.

    Example: a fetch with the ``topic_id`` from before the deletion.
    """


class TopicExistsError(ProblemError):
    """There is a topic of this name with other partitions or settings.

    Example: ``create_topic("readings", partitions=3)`` if it has six.
    """


class JobNotFoundError(ProblemError):
    """There is no such load job, or the service has forgotten it.

    Example: ``find_job("0000000000000000")``.
    """


class JobConflictError(ProblemError):
    """The load job has ended in another way, its commit is refused, or another load has this version of its data.

    Example: ``commit_job`` of a job that was aborted; ``state`` is "aborted".
    """

    @property
    def state(self) -> str | None:
        """The job's state; ``None`` if the response has none."""
        state = self.problem.get("state")
        return None if state is None else str(state)


class ProducerFencedError(ProblemError):
    """The producer's transaction is over: another instance replaced it, or its job was decided.

    Example: ``produce_batches`` with batches of an attempt whose job was committed.
    """


class OffsetOutOfRangeError(ProblemError):
    """The offset is below the log start or above the log end.

    Example: a fetch at 10 from a partition whose log starts at 100; ``log_start_offset`` is 100.
    """

    @property
    def log_start_offset(self) -> int:
        """The first readable offset; -1 if the response has none."""
        return self._offset("log_start_offset")

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets; -1 if the response has none."""
        return self._offset("log_end_offset")

    def _offset(self, name: str) -> int:
        value = self.problem.get(name)
        return value if type(value) is int else -1


class UnsupportedByEngineError(ProblemError):
    """The engine of the service cannot do this. The message says what to use instead.

    Example: a request for the segments of a partition, to a service over brokers; ``capability`` is "segments".
    """

    @property
    def capability(self) -> str | None:
        """The name of the capability that the engine lacks; ``None`` if the response has none."""
        capability = self.problem.get("capability")
        return None if capability is None else str(capability)


_BY_STATUS: dict[int, type[ProblemError]] = {401: AuthenticationError, 403: AuthorizationError}


def problem_error(url: str, status: int, problem: Mapping[str, Any]) -> ProblemError:
    """Return the most specific error for a response of the service."""
    kind = _BY_CODE.get(str(problem.get("code"))) or _BY_STATUS.get(status) or ProblemError
    return kind(url, status, problem)


def _detail(problem: Mapping[str, Any], status: int) -> str:
    """Return the problem's detail in one line, with the first faults of the request if the document has some."""
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


# Written by `make docs` from app/problems/kinds.py: do not edit below.

_BY_CODE: dict[str, type[ProblemError]] = {
    "inconsistent_topic_id": TopicReplacedError,
    "invalid_job_state": JobConflictError,
    "invalid_producer_id_mapping": ProducerFencedError,
    "invalid_txn_state": ProducerFencedError,
    "job_incomplete": JobConflictError,
    "job_not_found": JobNotFoundError,
    "job_topics_differ": JobConflictError,
    "job_version_forgotten": JobConflictError,
    "offset_out_of_range": OffsetOutOfRangeError,
    "producer_fenced": ProducerFencedError,
    "topic_exists": TopicExistsError,
    "unknown_topic_id": TopicNotFoundError,
    "unknown_topic_or_partition": TopicNotFoundError,
    "unsupported_by_engine": UnsupportedByEngineError,
}
