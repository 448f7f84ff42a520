"""The engine's errors, as a tree. Its branches show whether a retry is sensible and whether a change was applied.

StorageError
├── RefusedError             the caller's fault; nothing changed
│   ├── CorruptBatchError               bytes that are not a record batch, or a wrong CRC
│   ├── InvalidRecordError              well-framed, but breaks a rule of the log
│   ├── InvalidTimestampError
│   ├── UnsupportedCodecError
│   ├── MessageTooLargeError
│   ├── RecordListTooLargeError
│   ├── OffsetOutOfRangeError
│   ├── UnknownTopicOrPartitionError
│   ├── InvalidTopicError
│   ├── TopicExistsError
│   ├── InvalidConfigError
│   ├── PolicyViolationError
│   ├── OutOfOrderSequenceError
│   ├── ProducerFencedError
│   ├── InvalidTxnStateError
│   ├── InvalidPidMappingError
│   ├── InvalidTransactionTimeoutError
│   ├── CoordinatorFencedError
│   ├── UnsupportedFormatError
│   ├── FencedLeaderEpochError
│   ├── UnknownTopicIdError
│   ├── InconsistentTopicIdError
│   ├── UnexpectedAppendOffsetError
│   └── ExpectedOffsetMismatchError
├── UnavailableError         the service's fault, for now; nothing changed
│   ├── PartitionOfflineError
│   ├── DiskFullError
│   ├── TooManyOpenFilesError
│   ├── DiskFailedError
│   ├── NotEnoughReplicasError
│   ├── ConcurrentTransactionsError
│   ├── UnknownLeaderEpochError
│   ├── OffsetNotAvailableError
│   ├── DirectoryLockedError
│   └── ShuttingDownError
├── PartitionFailedError                outcome unknown
├── ChangeOutcomeUnknownError           the next start may find it or not
├── NotEnoughReplicasAfterAppendError   written, but not by enough copies
└── CorruptionError                     stored bytes are damaged

An error's number in Kafka's protocol and its name over HTTP are in the service's table of problem kinds.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple


class RecordError(NamedTuple):
    """One refused record of a refused batch: its index in the batch, and the reason (spec E14)."""

    batch_index: int
    message: str


class StorageError(Exception):
    """Any error that the engine raises on purpose."""


class RefusedError(StorageError):
    """The request is at fault. Nothing changed, and the same request fails again."""


class CorruptBatchError(RefusedError):
    """The bytes are not whole record batches, or a CRC does not match."""


class InvalidRecordError(RefusedError):
    """A batch breaks a rule of the log; the records are named when single ones are at fault."""

    def __init__(self, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is outside the range that the topic accepts."""


class UnsupportedCodecError(RefusedError):
    """The batch names a compression codec that does not exist."""


class MessageTooLargeError(RefusedError):
    """One batch is larger than the topic's ``max.message.bytes``."""


class RecordListTooLargeError(RefusedError):
    """The batches of one request do not fit into one segment (``segment.bytes``)."""


class OffsetOutOfRangeError(RefusedError):
    """The offset is below the log start or above the end of the readable offsets.

    An engine also tells the other limits of that moment, and, for an offset below the log start, the time and the
    cause of the last move of the log start. Unknown values are ``None``.
    """

    def __init__(
        self,
        message: str,
        *,
        offset: int,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int | None = None,
        last_stable_offset: int | None = None,
        log_start_moved_ms: int | None = None,
        log_start_moved_by: str | None = None,
    ) -> None:
        super().__init__(message)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_moved_ms = log_start_moved_ms
        self.log_start_moved_by = log_start_moved_by


class UnknownTopicOrPartitionError(RefusedError):
    """No such topic, or no such partition of it."""


class InvalidTopicError(RefusedError):
    """The topic's name or partition count is not allowed, or the topic is internal."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """The wrong part of the topic's specification: ``partitions``, or ``None`` for its name."""


class TopicExistsError(RefusedError):
    """A topic of that name exists with other partitions or another configuration."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """The difference: ``partitions`` or ``config``; ``None`` for a directory that is in the way."""


class InvalidConfigError(RefusedError):
    """A topic configuration has unknown names or impossible values; all of them are listed."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {detail}" if name else detail for name, detail in problems))
        self.problems = tuple(problems)


class PolicyViolationError(RefusedError):
    """The topic's policy forbids it, such as deleting records of a topic that is only compacted."""


class OutOfOrderSequenceError(RefusedError):
    """A producer skipped or repeated a sequence number."""


class ProducerFencedError(RefusedError):
    """The producer's epoch is not the current one: a newer instance exists, or its transaction has ended."""


class InvalidTxnStateError(RefusedError):
    """The transaction is not in a state that allows this."""


class InvalidPidMappingError(RefusedError):
    """The transactional id belongs to another producer id, or to none."""


class InvalidTransactionTimeoutError(RefusedError):
    """The transaction timeout is above the service's limit."""


class CoordinatorFencedError(RefusedError):
    """A newer transaction coordinator has written a marker."""


class UnsupportedFormatError(RefusedError):
    """The message format lacks a feature that the request needs."""


class FencedLeaderEpochError(RefusedError):
    """The client's leader epoch is over; the client must fetch the current one first."""


class UnknownTopicIdError(RefusedError):
    """No topic has this id."""


class InconsistentTopicIdError(RefusedError):
    """The topic of this name has another id."""


class ExpectedOffsetMismatchError(RefusedError):
    """The log end offset is not the one that the append requires."""

    def __init__(self, expected_offset: int, log_end_offset: int) -> None:
        super().__init__(f"expected log end offset {expected_offset}, but it is {log_end_offset}")
        self.expected_offset = expected_offset
        self.log_end_offset = log_end_offset


class UnexpectedAppendOffsetError(RefusedError):
    """Batches copied from a leader do not continue at the end of this log."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class UnavailableError(StorageError):
    """The service cannot do it now. Nothing changed; the same request may work later."""


class PartitionOfflineError(UnavailableError):
    """The partition is offline after a disk failure, or read-only because stored bytes are damaged."""


class DiskFullError(UnavailableError):
    """The disk is full or read-only. Reads go on; appends resume when space returns."""


class TooManyOpenFilesError(UnavailableError):
    """The process, or the machine, may open no more files. Open files keep working; the disk is not at fault."""


class DiskFailedError(UnavailableError):
    """The disk refused a change with an error, such as EIO. The change was not made; stored data is unchanged."""


NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
NO_ROOM_ERRNOS = DISK_FULL_ERRNOS | NO_DESCRIPTOR_ERRNOS
"""The system has no space, on the disk or for open files; stored data is not damaged."""
NO_ROOM_ERRORS = (DiskFullError, TooManyOpenFilesError)
"""The errors that callers receive for ``NO_ROOM_ERRNOS``."""


def too_many_open_files(what: str, error: OSError) -> TooManyOpenFilesError:
    """Return the error to raise if ``what`` needs a file, and no more files may be opened."""
    return TooManyOpenFilesError(f"{what}: {error.strerror}; raise the service's limit (ulimit -n, LimitNOFILE)")


def refused_by_system(what: str, error: OSError) -> DiskFullError | TooManyOpenFilesError | DiskFailedError:
    """Return the error to raise if the system refused ``what``, by its errno: ``what`` has not happened.

    Example: ENOSPC is a full disk, EMFILE too many open files, EIO and all others a disk that failed.
    """
    if error.errno in NO_DESCRIPTOR_ERRNOS:
        return too_many_open_files(what, error)
    kind = DiskFullError if error.errno in DISK_FULL_ERRNOS else DiskFailedError
    return kind(f"{what}: {error.strerror or error}")


class NotEnoughReplicasError(UnavailableError):
    """Fewer copies are in sync than ``min.insync.replicas`` requires."""


class ConcurrentTransactionsError(UnavailableError):
    """The producer's last transaction is still ending; the same request works afterwards."""


class UnknownLeaderEpochError(UnavailableError):
    """The client's leader epoch is newer than this leader's."""


class OffsetNotAvailableError(UnavailableError):
    """The high watermark has not reached the current leader epoch yet."""


class DirectoryLockedError(UnavailableError):
    """Another process holds the data directory."""


class ShuttingDownError(UnavailableError):
    """The service is stopping."""


class PartitionFailedError(StorageError):
    """The disk failed during an append: any part of it may be written, and the partition goes offline."""


class ChangeOutcomeUnknownError(StorageError):
    """The disk failed after a change, or refused to undo it: the next start may find it or not."""


def outcome_unknown(what: str, error: OSError) -> ChangeOutcomeUnknownError:
    """Return the error to raise if the disk did not make ``what`` durable, or refused to undo it."""
    return ChangeOutcomeUnknownError(f"{what}: {error.strerror or error}; the next start may find the change or not")


class NotEnoughReplicasAfterAppendError(StorageError):
    """The records are written, but fewer copies than ``min.insync.replicas`` have them now."""


class CorruptionError(StorageError):
    """Stored bytes are damaged. The message names the file and the position."""


def let_go_of_frames(error: BaseException) -> None:
    """Drop the tracebacks of an expected error, and of all errors that led to it.

    A traceback keeps its frames, and their objects: segments with their files. If a frame also holds the error, both
    stay until the garbage collector runs, perhaps hours later, and the space of deleted files stays with them. Call
    this where an error is kept, and where it has become a response.

    Thread: any.
    """
    following: list[BaseException | None] = [error]
    seen: set[int] = set()
    while following:
        each = following.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            following += [each.__cause__, each.__context__]
