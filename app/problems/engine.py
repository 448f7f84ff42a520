"""The one table from errors of the engine and of the record formats to problems.

What went wrong inside the service stays in its log, under a request id that the answer names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

from app.problems import request_context
from app.problems.problem import ERRORS_MAX, Problem, json_pointer
from rollway.records.errors import (
    BrokenBatchError,
    BrokenRecordError,
    DecompressedSizeError,
    RecordFormatError,
    UnknownCodecError,
    UnsupportedMagicError,
)
from storage import errors as storage_errors
from storage.errors import StorageError, let_go_of_frames

logger = logging.getLogger(__name__)

_RETRY_AFTER_SHUTDOWN_MS = 1_000
_RETRY_AFTER_DISK_MS = 5_000
_RETRY_AFTER_REPLICAS_MS = 1_000
_RETRY_AFTER_TRANSACTION_MS = 20


class _Answer(NamedTuple):
    status: int
    retry_after_ms: int | None = None


_ANSWERS: dict[type[StorageError], _Answer] = {
    storage_errors.CorruptBatchError: _Answer(400),
    storage_errors.InvalidRecordError: _Answer(400),
    storage_errors.InvalidTimestampError: _Answer(400),
    storage_errors.UnsupportedCodecError: _Answer(400),
    storage_errors.MessageTooLargeError: _Answer(413),
    storage_errors.RecordListTooLargeError: _Answer(413),
    storage_errors.OffsetOutOfRangeError: _Answer(416),
    storage_errors.UnknownTopicOrPartitionError: _Answer(404),
    storage_errors.InvalidTopicError: _Answer(422),
    storage_errors.TopicExistsError: _Answer(409),
    storage_errors.InvalidConfigError: _Answer(422),
    storage_errors.PolicyViolationError: _Answer(403),
    storage_errors.OutOfOrderSequenceError: _Answer(409),
    storage_errors.ProducerFencedError: _Answer(409),
    storage_errors.InvalidTxnStateError: _Answer(409),
    storage_errors.InvalidPidMappingError: _Answer(409),
    storage_errors.InvalidTransactionTimeoutError: _Answer(422),
    storage_errors.CoordinatorFencedError: _Answer(409),
    storage_errors.UnsupportedFormatError: _Answer(400),
    storage_errors.FencedLeaderEpochError: _Answer(409),
    storage_errors.UnknownTopicIdError: _Answer(404),
    storage_errors.InconsistentTopicIdError: _Answer(409),
    storage_errors.ExpectedOffsetMismatchError: _Answer(412),
    storage_errors.UnexpectedAppendOffsetError: _Answer(409),
    storage_errors.NotEnoughReplicasError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.NotEnoughReplicasAfterAppendError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.ConcurrentTransactionsError: _Answer(503, _RETRY_AFTER_TRANSACTION_MS),
    storage_errors.UnknownLeaderEpochError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.OffsetNotAvailableError: _Answer(503, _RETRY_AFTER_REPLICAS_MS),
    storage_errors.PartitionOfflineError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DiskFullError: _Answer(507, _RETRY_AFTER_DISK_MS),
    storage_errors.TooManyOpenFilesError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DiskFailedError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.DirectoryLockedError: _Answer(503, _RETRY_AFTER_DISK_MS),
    storage_errors.ShuttingDownError: _Answer(503, _RETRY_AFTER_SHUTDOWN_MS),
    storage_errors.PartitionFailedError: _Answer(503),
    storage_errors.ChangeOutcomeUnknownError: _Answer(503),
    storage_errors.CorruptionError: _Answer(500),
}

_FORMAT_ERRORS: dict[type[RecordFormatError], tuple[int, str, int]] = {
    BrokenBatchError: (400, "corrupt_batch", 2),
    BrokenRecordError: (400, "invalid_record", 87),
    UnknownCodecError: (400, "unsupported_codec", 76),
    UnsupportedMagicError: (400, "invalid_record", 87),
    DecompressedSizeError: (413, "message_too_large", 10),
}


def problem_for(error: Exception) -> Problem:
    """The answer to an error of the engine or of the record formats; any other becomes internal_error.

    A subclass without a line of its own is answered as its nearest ancestor that has one. Whatever it was, it loses its
    traceback, for it has become an answer: see ``let_go_of_frames``.
    """
    problem = _answer_to(error)
    let_go_of_frames(error)
    return problem


def _answer_to(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case StorageError():
            return _storage_problem(error)
        case RecordFormatError():
            return _format_problem(error)
    return internal_error(error)


def _storage_problem(error: StorageError) -> Problem:
    answer = next((_ANSWERS[kind] for kind in type(error).__mro__ if kind in _ANSWERS), None)
    if answer is None or answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return internal_error(error)
    status = answer.status
    detail = str(error)
    faults: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    match error:
        case storage_errors.OffsetOutOfRangeError():
            status = 410 if error.offset < error.log_start_offset else 416
            extra = {"log_start_offset": error.log_start_offset, "log_end_offset": error.log_end_offset}
        case storage_errors.ExpectedOffsetMismatchError():
            extra = {"expected_offset": error.expected_offset, "log_end_offset": error.log_end_offset}
        case storage_errors.InvalidConfigError():
            faults = [
                {"pointer": json_pointer(("config", name)), "code": error.code, "detail": reason}
                for name, reason in error.problems[:ERRORS_MAX]
            ]
        case storage_errors.InvalidTopicError(field=str(field)) | storage_errors.TopicExistsError(field=str(field)):
            faults = [{"pointer": json_pointer((field,)), "code": error.code, "detail": detail}]
        case storage_errors.InvalidTransactionTimeoutError():
            faults = [{"pointer": "/transaction_timeout_ms", "code": error.code, "detail": detail}]
        case storage_errors.InvalidRecordError():
            faults = _record_faults(error.record_errors, error.code)
    return Problem(
        status,
        error.code,
        detail,
        kafka_code=error.kafka_code,
        retryable=error.retryable,
        applied=error.applied,
        retry_after_ms=answer.retry_after_ms,
        errors=faults,
        **extra,
    )


def _format_problem(error: RecordFormatError) -> Problem:
    status, code, kafka_code = next(
        (_FORMAT_ERRORS[kind] for kind in type(error).__mro__ if kind in _FORMAT_ERRORS), (400, "corrupt_batch", 2)
    )
    faults = _record_faults(error.record_errors, code) if isinstance(error, BrokenRecordError) else []
    return Problem(status, code, str(error), kafka_code=kafka_code, errors=faults)


def _record_faults(
    record_errors: Iterable[tuple[int, str]], code: str, pointer: Callable[[int], str] = "/records/{}".format
) -> list[dict[str, Any]]:
    listed = list(record_errors)[:ERRORS_MAX]
    return [{"pointer": pointer(index), "code": code, "detail": message} for index, message in listed]


def record_problem(
    error: StorageError, record_errors: Iterable[tuple[int, str]], pointer: Callable[[int], str]
) -> Problem:
    """The answer to records that the log refuses, each named by ``pointer`` of its place.

    Who sent records knows of no batch at a byte: what is said first is what is wrong with the first of them.
    """
    problem = problem_for(error)
    problem.errors = _record_faults(record_errors, error.code, pointer)
    if problem.errors:
        problem.detail = "{pointer}: {detail}".format_map(problem.errors[0])
    return problem


def internal_error(error: Exception) -> Problem:
    """The answer to an unforeseen error or to damage of stored bytes: logged whole, answered without its inside.

    Nobody knows how far the request came: what one that writes has asked for may be done.
    """
    request_id = request_context.request_id.get() or request_context.new_request_id()
    code, kafka_code, detail = "internal_error", -1, "the service failed"
    if isinstance(error, StorageError):
        code, kafka_code = error.code, error.kafka_code
        if isinstance(error, storage_errors.CorruptionError):
            detail = "stored bytes that this request needs are damaged"
            logger.error("request %s: %s", request_id, error)
        else:
            logger.error("request %s failed", request_id, exc_info=error)
    else:
        logger.error("request %s failed", request_id, exc_info=error)
    return Problem(
        500,
        code,
        f"{detail}; its log says more under {request_id}",
        kafka_code=kafka_code,
        applied="unknown" if request_context.may_write.get() else "no",
        request_id=request_id,
    )
