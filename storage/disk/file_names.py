"""Names of directories and files, equal to Kafka's (docs/reference/on-disk-format.md#the-tree)."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from log_model.names import PartitionName, topic_name_problem

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
TRANSACTION_INDEX_CHECKPOINT = "transaction-index-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"

OFFSET_DIGITS = 20
FILE_NAME_LENGTH_MAX = 255
PARTITION_COUNT_MAX = 10_000

_DELETE_DIRECTORY = re.compile(r"(?P<name>.+)\.(?P<id>[0-9a-f]{32})-(?P<kind>delete|future|stray)")
_OFFSET_NAME = re.compile(r"(?P<offset>[0-9]+)(?P<suffix>\.[a-z]+)(?P<state>\.deleted|\.cleaned|\.swap)?")


class OffsetFileName(NamedTuple):
    """A file named by an offset: ``00000000000000000042.log`` or ``….log.deleted``."""

    offset: int
    suffix: str
    state: str


def partition_directory_name(name: PartitionName) -> str:
    return f"{name.topic}-{name.partition}"


def parse_partition_directory_name(directory: str) -> PartitionName | None:
    """Split at the last dash: ``a-b-3`` is partition 3 of ``a-b``. ``None`` for a deleted or any other directory."""
    if _DELETE_DIRECTORY.fullmatch(directory):
        return None
    topic, dash, digits = directory.rpartition("-")
    if not dash or topic_name_problem(topic) is not None:
        return None
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        return None
    return PartitionName(topic, int(digits))


def deleted_directory_name(name: PartitionName) -> str:
    """Return ``<topic>-<partition>.<32 hex>-delete``, the topic cut to a total of at most 255 characters."""
    ending = f"-{name.partition}.{uuid.uuid4().hex}-delete"
    return name.topic[: FILE_NAME_LENGTH_MAX - len(ending)] + ending


def is_deleted_directory_name(directory: str) -> bool:
    match = _DELETE_DIRECTORY.fullmatch(directory)
    return match is not None and match["kind"] == "delete"


def is_set_aside_directory_name(directory: str) -> bool:
    """Return whether a Kafka broker keeps a copy here that it does not serve: it moves the copy to another disk
    (``future``), or the copy belongs to no partition of the broker (``stray``).
    """
    match = _DELETE_DIRECTORY.fullmatch(directory)
    return match is not None and match["kind"] in ("future", "stray")


def offset_file_name(offset: int, suffix: str) -> str:
    """Return ``offset`` in twenty digits, followed by ``suffix``."""
    return f"{offset:0{OFFSET_DIGITS}d}{suffix}"


def parse_offset_file_name(name: str) -> OffsetFileName | None:
    """Parse digits, one of the five suffixes and an optional state; ``None`` for any other name."""
    match = _OFFSET_NAME.fullmatch(name)
    if match is None or match["suffix"] not in {*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX}:
        return None
    offset = int(match["offset"])
    if offset >= 2**63:
        return None
    return OffsetFileName(offset, match["suffix"], match["state"] or "")
