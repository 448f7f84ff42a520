"""What can go wrong between Spark and Rollway beside the client's own errors. One sentence each, with what to do."""

from __future__ import annotations

import logging

from rollway.client import AuthenticationError, RollwayError

_log = logging.getLogger("rollway.spark")


class OptionError(ValueError):
    """An option that is unknown, contradictory or does not fit what is there."""


def append_only(*, streaming: bool) -> OptionError:
    """A write would put something in the place of what is there."""
    hint = ".outputMode('append'), or with foreachBatch" if streaming else ".mode('append')"
    return OptionError(f"a topic is a log, which is only appended to: write with {hint}")


def with_credential_named(error: Exception) -> Exception:
    """The same error, but where the service has no credential or does not accept it, with where Spark's is from."""
    if not isinstance(error, AuthenticationError):
        return error
    hint = "in Spark it is the option token, or ROLLWAY_API_KEY in the driver's environment"
    return AuthenticationError(error.url, error.status, {**error.problem, "detail": f"{error.detail}; {hint}"})


class DataLossError(RollwayError):
    """Records that a query was to read are gone, and ``failOnDataLoss`` is true."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} are gone; to go on without them, set failOnDataLoss to false"


def report_loss(what: str, *, fail: bool) -> None:
    """Say that records are gone, which is a warning where the query need not ``fail``.

    Raises:
        DataLossError: it must.
    """
    if fail:
        raise DataLossError(what)
    _log.warning("%s are gone; going on without them, because failOnDataLoss is false", what)


def report_made_again(topic: str, topic_id: str, *, fail: bool) -> None:
    """Say that the topic which a query knows by this id was deleted, and that another one has its name.

    Raises:
        DataLossError: the query must ``fail``.
    """
    report_loss(f"topic {topic} was deleted and made again: records of the topic with the id {topic_id}", fail=fail)


class NotCommittedError(RollwayError):
    """Records that a query is to read now are not committed yet. They are not gone: ``failOnDataLoss`` has no part."""

    def __init__(self, topic: str, partition: int, end_offset: int, last_stable_offset: int) -> None:
        super().__init__(topic, partition, end_offset, last_stable_offset)

    def __str__(self) -> str:
        topic, partition, end_offset, last_stable_offset = self.args
        return (
            f"{topic}-{partition} is to be read up to offset {end_offset}, and is not committed yet from offset "
            f"{last_stable_offset} on: wait for the open transaction there to end, end the read before it, "
            "or set isolationLevel to read_uncommitted"
        )


class AttemptNotRecognisedError(RollwayError):
    """A task of an idempotent load is tried again, and had written more than the service recognises when sent again."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)

    def __str__(self) -> str:
        topic, partition = self.args
        return (
            f"a task that is tried again had written more than five batches to {topic}-{partition}, or has other rows "
            "now: what is there already is not recognised, and nothing was written twice; where tasks may be tried "
            "again, load with deliveryMode=transactional"
        )


class JobTakenError(RollwayError):
    """Two writes named the same job, and the other one committed it first."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)

    def __str__(self) -> str:
        return (
            f"load job {self.args[0]} was committed by another write: no row of this one counts; a job takes one "
            "write, so begin another job for each, or leave out jobId"
        )


class JobTimedOutError(RollwayError):
    """The load job of a write was aborted since nobody gave a sign of life for its timeout."""

    def __init__(self, job_id: str, application_id: str, timeout_ms: int) -> None:
        super().__init__(job_id, application_id, timeout_ms)

    def __str__(self) -> str:
        job_id, application_id, timeout_ms = self.args
        return (
            f"load job {job_id} of {application_id!r} was aborted, since nothing was written for transactionTimeout, "
            f"{timeout_ms} ms; a longer transactionTimeout helps"
        )


class StartNotFoundError(RollwayError):
    """No record of a partition is as late as the time a read is to start at, and that is to be an error."""

    def __init__(self, topic: str, partition: int, timestamp: int) -> None:
        super().__init__(topic, partition, timestamp)

    def __str__(self) -> str:
        topic, partition, timestamp = self.args
        return (
            f"{topic}-{partition} has no record at or after {timestamp} ms; to start at its end instead, "
            "set startingOffsetsByTimestampStrategy to latest"
        )
