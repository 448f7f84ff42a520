"""The one table from errors of the engine and of the record formats to problems.

Details of internal errors stay in the service's log, under a request id that the answer names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from app.problems import kinds, request_context
from app.problems.kind import Kind
from app.problems.problem import ERRORS_MAX, Fault, Problem, json_pointer
from log_model import errors as storage_errors
from log_model.errors import StorageError, let_go_of_frames
from rollway.records import errors as format_errors
from rollway.records.errors import RecordFormatError

logger = logging.getLogger(__name__)

_RETRY_AFTER_SHUTDOWN_MS = 1_000


def problem_for(error: Exception) -> Problem:
    """Return the answer to an error of the engine or of the record formats; any other error is an internal one.

    A subclass without a line of its own is answered as its nearest ancestor that has one. The error loses its
    traceback, for it has become an answer: see ``let_go_of_frames``.
    """
    problem = error if isinstance(error, Problem) else _answer_to(error)
    let_go_of_frames(error)
    return problem


def _answer_to(error: Exception) -> Problem:
    for ancestor in type(error).__mro__:
        answer = _ANSWERS.get(ancestor)
        if answer is not None:
            return Problem(answer, str(error)) if isinstance(answer, Kind) else answer(error)
    return internal_error(error)


def record_problem(
    error: StorageError, record_errors: Iterable[tuple[int, str]], pointer: Callable[[int], str]
) -> Problem:
    """Return the answer to records that the log refuses, each named by ``pointer`` of its place.

    The detail is the first fault. The engine's own words name bytes of batches, but the client has sent records.
    """
    problem = problem_for(error)
    problem.errors = [fault._asdict() for fault in _record_faults(record_errors, problem.code, pointer)]
    if problem.errors:
        problem.detail = "{pointer}: {detail}".format_map(problem.errors[0])
    return problem


def internal_error(error: Exception) -> Problem:
    """Return the answer to an unforeseen error or to damaged stored bytes: the log has all of it, the answer no inside.

    How far the request came is not known: the change that a writing request asks for may be made.
    """
    request_id = request_context.request_id.get() or request_context.new_request_id()
    is_write = request_context.may_write.get()
    if isinstance(error, storage_errors.CorruptionError):
        logger.error("request %s: %s", request_id, error)
        kind = kinds.STORED_DATA_CORRUPT_OF_WRITE if is_write else kinds.STORED_DATA_CORRUPT
        detail = "stored bytes that this request needs are damaged"
    else:
        logger.error("request %s failed", request_id, exc_info=error)
        kind = kinds.INTERNAL_ERROR_OF_WRITE if is_write else kinds.INTERNAL_ERROR
        detail = "the service failed"
    return Problem(kind, f"{detail}; its log says more under {request_id}", request_id=request_id)


# Answers that take more from an error than its words


def _offset_out_of_range(error: storage_errors.OffsetOutOfRangeError) -> Problem:
    is_below = error.offset < error.log_start_offset
    kind = kinds.OFFSET_OUT_OF_RANGE_BELOW if is_below else kinds.OFFSET_OUT_OF_RANGE_ABOVE
    known: dict[str, Any] = {"log_start_offset": error.log_start_offset, "log_end_offset": error.log_end_offset}
    if error.high_watermark is None or error.last_stable_offset is None:
        return Problem(kind, str(error), **known)
    if is_below:
        known |= {"log_start_moved_ms": error.log_start_moved_ms, "log_start_moved_by": error.log_start_moved_by}
    headers = {
        "Log-Start-Offset": str(error.log_start_offset),
        "High-Watermark": str(error.high_watermark),
        "Last-Stable-Offset": str(error.last_stable_offset),
    }
    return Problem(kind, str(error), headers=headers, **known)


def _expected_offset_mismatch(error: storage_errors.ExpectedOffsetMismatchError) -> Problem:
    return Problem(
        kinds.EXPECTED_OFFSET_MISMATCH,
        str(error),
        expected_offset=error.expected_offset,
        log_end_offset=error.log_end_offset,
    )


def _invalid_config(error: storage_errors.InvalidConfigError) -> Problem:
    kind = kinds.INVALID_CONFIG
    faults = [Fault(json_pointer(("config", name)), kind.code, reason) for name, reason in error.problems[:ERRORS_MAX]]
    return Problem(kind, str(error), errors=faults)


def _in_field(kind: Kind, error: storage_errors.InvalidTopicError | storage_errors.TopicExistsError) -> Problem:
    return Problem(kind, str(error)) if error.field is None else _at_member(kind, error.field, error)


def _at_member(kind: Kind, name: str, error: Exception) -> Problem:
    return Problem(kind, str(error), errors=[Fault(json_pointer((name,)), kind.code, str(error))])


def _with_records(kind: Kind, error: storage_errors.InvalidRecordError | format_errors.BrokenRecordError) -> Problem:
    return Problem(kind, str(error), errors=_record_faults(error.record_errors, kind.code))


def _record_faults(
    record_errors: Iterable[tuple[int, str]], code: str, pointer: Callable[[int], str] = "/records/{}".format
) -> list[Fault]:
    return [Fault(pointer(index), code, message) for index, message in list(record_errors)[:ERRORS_MAX]]


def _shutting_down(error: storage_errors.ShuttingDownError) -> Problem:
    return Problem(kinds.SHUTTING_DOWN, str(error), retry_after_ms=_RETRY_AFTER_SHUTDOWN_MS)


_ANSWERS: dict[type, Kind | Callable[[Any], Problem]] = {
    RecordFormatError: kinds.CORRUPT_BATCH,
    format_errors.BrokenRecordError: partial(_with_records, kinds.INVALID_RECORD),
    format_errors.UnknownCodecError: kinds.UNSUPPORTED_CODEC,
    format_errors.UnsupportedMagicError: kinds.INVALID_RECORD,
    format_errors.DecompressedSizeError: kinds.MESSAGE_TOO_LARGE,
    storage_errors.CorruptBatchError: kinds.CORRUPT_BATCH,
    storage_errors.InvalidRecordError: partial(_with_records, kinds.INVALID_RECORD),
    storage_errors.InvalidTimestampError: partial(_with_records, kinds.INVALID_TIMESTAMP),
    storage_errors.UnsupportedCodecError: kinds.UNSUPPORTED_CODEC,
    storage_errors.MessageTooLargeError: kinds.MESSAGE_TOO_LARGE,
    storage_errors.RecordListTooLargeError: kinds.RECORD_LIST_TOO_LARGE,
    storage_errors.OffsetOutOfRangeError: _offset_out_of_range,
    storage_errors.UnknownTopicOrPartitionError: kinds.UNKNOWN_TOPIC_OR_PARTITION,
    storage_errors.InvalidTopicError: partial(_in_field, kinds.INVALID_TOPIC),
    storage_errors.TopicExistsError: partial(_in_field, kinds.TOPIC_EXISTS),
    storage_errors.InvalidConfigError: _invalid_config,
    storage_errors.PolicyViolationError: kinds.POLICY_VIOLATION,
    storage_errors.OutOfOrderSequenceError: kinds.OUT_OF_ORDER_SEQUENCE,
    storage_errors.ProducerFencedError: kinds.PRODUCER_FENCED,
    storage_errors.InvalidTxnStateError: kinds.INVALID_TXN_STATE,
    storage_errors.InvalidPidMappingError: kinds.INVALID_PRODUCER_ID_MAPPING,
    storage_errors.InvalidTransactionTimeoutError: partial(
        _at_member, kinds.INVALID_TRANSACTION_TIMEOUT, "transaction_timeout_ms"
    ),
    storage_errors.CoordinatorFencedError: kinds.TRANSACTION_COORDINATOR_FENCED,
    storage_errors.UnsupportedFormatError: kinds.UNSUPPORTED_MESSAGE_FORMAT,
    storage_errors.FencedLeaderEpochError: kinds.FENCED_LEADER_EPOCH,
    storage_errors.UnknownTopicIdError: kinds.UNKNOWN_TOPIC_ID,
    storage_errors.InconsistentTopicIdError: kinds.INCONSISTENT_TOPIC_ID,
    storage_errors.ExpectedOffsetMismatchError: _expected_offset_mismatch,
    storage_errors.UnexpectedAppendOffsetError: kinds.UNEXPECTED_APPEND_OFFSET,
    storage_errors.NotEnoughReplicasError: kinds.NOT_ENOUGH_REPLICAS,
    storage_errors.NotEnoughReplicasAfterAppendError: kinds.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    storage_errors.ConcurrentTransactionsError: kinds.CONCURRENT_TRANSACTIONS,
    storage_errors.UnknownLeaderEpochError: kinds.UNKNOWN_LEADER_EPOCH,
    storage_errors.OffsetNotAvailableError: kinds.OFFSET_NOT_AVAILABLE,
    storage_errors.PartitionOfflineError: kinds.PARTITION_OFFLINE,
    storage_errors.DiskFullError: kinds.DISK_FULL,
    storage_errors.TooManyOpenFilesError: kinds.TOO_MANY_OPEN_FILES,
    storage_errors.DiskFailedError: kinds.DISK_FAILED,
    storage_errors.DirectoryLockedError: kinds.DIRECTORY_LOCKED,
    storage_errors.ShuttingDownError: _shutting_down,
    storage_errors.PartitionFailedError: kinds.APPEND_OUTCOME_UNKNOWN,
    storage_errors.ChangeOutcomeUnknownError: kinds.CHANGE_OUTCOME_UNKNOWN,
    storage_errors.CorruptionError: internal_error,
}
"""A class of error -> its kind, or the function that makes the answer where members or faults come from the error."""
