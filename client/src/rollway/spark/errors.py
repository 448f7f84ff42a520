"""Errors between Spark and Rollway, beside the client's own. Each message is one sentence with a remedy."""

from __future__ import annotations

import logging

from rollway.client import AuthenticationError, RollwayError

_log = logging.getLogger("rollway.spark")


class OptionError(ValueError):
    """An option is unknown, contradicts another, or does not fit the data.

    Example: ``subscribee="readings"``; the message suggests ``subscribe``.
    """


def append_only(*, streaming: bool) -> OptionError:
    """Return the error for a write that would replace records: a topic is only appended to."""
    hint = ".outputMode('append'), or with foreachBatch" if streaming else ".mode('append')"
    return OptionError(f"a topic is a log, which is only appended to: write with {hint}")


def with_credential_named(error: Exception) -> Exception:
    """Return ``error``. To an ``AuthenticationError``, add where Spark takes the credential from."""
    if not isinstance(error, AuthenticationError):
        return error
    hint = "in Spark it is the option token, or ROLLWAY_API_KEY in the driver's environment"
    return AuthenticationError(error.url, error.status, {**error.problem, "detail": f"{error.detail}; {hint}"})


class DataLossError(RollwayError):
    """Records that a query had to read are gone, and ``failOnDataLoss`` is true.

    Example: retention deleted offsets 0 to 99 after the checkpoint of a stream was written at 50.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} are gone; to go on without them, set failOnDataLoss to false"


def report_loss(what: str, *, fail: bool) -> None:
    """Report that records are gone: raise if the query must ``fail``, else log a warning.

    Raises:
        DataLossError: the query must ``fail``.
    """
    if fail:
        raise DataLossError(what)
    _log.warning("%s are gone; going on without them, because failOnDataLoss is false", what)


def report_made_again(topic: str, topic_id: str, *, fail: bool) -> None:
    """Report that the topic with this id was deleted, and that a new topic has its name.

    Raises:
        DataLossError: the query must ``fail``.
    """
    report_loss(f"topic {topic} was deleted and made again: records of the topic with the id {topic_id}", fail=fail)


class NotCommittedError(RollwayError):
    """Records that a query has to read now are not committed yet.

    They are not gone, so ``failOnDataLoss`` does not matter. Example: a read with ``endingOffsets`` of 500, while an
    open transaction holds the last stable offset at 400.
    """

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
    """A retried task of an idempotent load had written more than the service recognises as repeated.

    Example: the first attempt wrote six batches to one partition. The service recognises the last five.
    """

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
    """Two writes named the same job, and the other write committed it first.

    Example: two threads write with the same ``jobId``.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)

    def __str__(self) -> str:
        return (
            f"load job {self.args[0]} was committed by another write: no row of this one counts; a job takes one "
            "write, so begin another job for each, or leave out jobId"
        )


class JobTimedOutError(RollwayError):
    """The load job of a write was aborted because nothing was written in it for its timeout.

    Example: with ``transactionTimeout=1m`` the driver was suspended for two minutes before the commit.
    """

    def __init__(self, job_id: str, application_id: str, timeout_ms: int) -> None:
        super().__init__(job_id, application_id, timeout_ms)

    def __str__(self) -> str:
        job_id, application_id, timeout_ms = self.args
        return (
            f"load job {job_id} of {application_id!r} was aborted, since nothing was written for transactionTimeout, "
            f"{timeout_ms} ms; a longer transactionTimeout helps"
        )


class StartNotFoundError(RollwayError):
    """No record of a partition is as late as the start time of a read, and the strategy makes this an error.

    Example: ``startingTimestamp`` is tomorrow, with ``startingOffsetsByTimestampStrategy=error``.
    """

    def __init__(self, topic: str, partition: int, timestamp: int) -> None:
        super().__init__(topic, partition, timestamp)

    def __str__(self) -> str:
        topic, partition, timestamp = self.args
        return (
            f"{topic}-{partition} has no record at or after {timestamp} ms; to start at its end instead, "
            "set startingOffsetsByTimestampStrategy to latest"
        )
