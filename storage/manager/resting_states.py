"""The states of partitions that rest: unused since the last clean stop, which wrote the states down.

File ``<data>/rollway/resting-partitions``: a line of JSON, then the columns of ``RestingState``, one after the other,
each an array of 64 bit integers, little endian, with a number for each partition of all topics. The line has the order
of the topics, how many partitions of each there are, and the checksum of the columns. A partition whose log end is -1
has to be opened at start.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from log_model.config import TopicConfig
from log_model.offsets import LeaderEpoch, Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import read_file, write_file_atomically
from storage.log.partition_log import PartitionLog
from storage.log.replica_set import NODE_ID

_VERSION = 1
_FILE_BYTES_MAX = 1024 * 1024 * 1024


class RestingState(NamedTuple):
    """A partition as its log was closed. All its records are durable, and no transaction is open."""

    log_start_offset: Offset
    log_end_offset: Offset
    leader_epoch: LeaderEpoch
    size_bytes: int
    segment_count: int
    oldest_bytes: int
    """The bytes of the oldest segment."""
    oldest_timestamp: int
    """When retention counts the oldest segment from, see ``RetainedSegment``."""
    producer_count: int
    largest_producer_id: int
    """The largest id of a producer that is not of a request's key; -1 if there is none."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """The nodes that hold a copy: this one alone."""
        return (NODE_ID,)

    @property
    def last_stable_offset(self) -> Offset:
        return self.log_end_offset

    @property
    def high_watermark(self) -> Offset:
        return self.log_end_offset


NEW = RestingState(Offset(0), Offset(0), LeaderEpoch(0), 0, 1, 0, -1, 0, -1)
"""A partition that was made and never opened."""
_UNKNOWN = NEW._replace(log_end_offset=Offset(-1))


def state_of(log: PartitionLog) -> RestingState | None:
    """Return the state of a log that was closed, or just opened after a clean stop; ``None`` if it cannot rest.

    Raises:
        OSError, CorruptionError: the age of the oldest segment cannot be read.
    """
    shown, written = log.snapshot, log.writer.written
    first = shown.segments[0]
    ends_below = len(shown.base_offsets) > 1 and shown.base_offsets[1] <= shown.log_start_offset
    is_plain = shown.last_stable_offset == shown.log_end_offset == written.log_end.offset and not log.damage
    if not is_plain or ends_below or len(log.deleted_files) or not log.replicas.is_alone:
        return None
    return RestingState(
        shown.log_start_offset,
        shown.log_end_offset,
        log.leader_epoch,
        shown.size_bytes,
        len(shown.segments),
        first.size_bytes,
        first.retention_timestamp() if first.size_bytes else -1,
        len(log.producers),
        log.producers.largest_id(below=KEYED_PRODUCER_ID_MIN),
    )


def may_have_old_segments(state: RestingState, config: TopicConfig, now_ms: int) -> bool:
    """Return whether retention may delete segments of a partition that rests; see ``PartitionLog.has_old_segments``."""
    if not state.size_bytes or not config.deletes:
        return False
    is_large = 0 <= config.retention_bytes <= state.size_bytes - state.oldest_bytes
    is_old = 0 <= config.retention_ms < now_ms - state.oldest_timestamp
    return is_large or is_old or bool(config.retention_policy)


class RestingStates:
    """The states of one topic's partitions, by number, in little memory."""

    def __init__(self, columns: Sequence[array[int]] | None = None) -> None:
        self.columns = [array("q") for _ in RestingState._fields] if columns is None else list(columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def get(self, number: int) -> RestingState | None:
        """Return the state of a partition; ``None`` if none is known."""
        if number >= len(self):
            return None
        state = RestingState._make(column[number] for column in self.columns)
        return None if state.log_end_offset < 0 else state

    def add(self, state: RestingState | None) -> None:
        """Add the state of the next partition, or that none is known."""
        for column, value in zip(self.columns, state or _UNKNOWN, strict=True):
            column.append(value)

    def size_bytes(self) -> array[int]:
        """Return the bytes of each partition."""
        return self.columns[RestingState._fields.index("size_bytes")]


class RestingFile:
    """The file of all topics' states."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._path = path

    def read(self) -> tuple[str, dict[str, RestingStates]] | None:
        """Return the id of the content, and the states by topic id; ``None`` if there are none, or a damaged file."""
        try:
            line, found, packed = read_file(self._file_system, self._path, _FILE_BYTES_MAX).partition(b"\n")
            if not found:
                return None
            head = json.loads(line)
            if head["version"] != _VERSION or head["fields"] != list(RestingState._fields):
                return None
            counts = {str(topic_id): int(count) for topic_id, count in head["topics"]}
            content_id = str(head["id"])
            checksum = head["crc32c"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        total = sum(counts.values())
        is_whole = len(packed) == total * 8 * len(RestingState._fields) and min(counts.values(), default=0) >= 0
        if not is_whole or checksum != _checksum(content_id, head["topics"], packed):
            return None
        return content_id, _parted(counts, packed, total)

    def write(self, content_id: str, topics: Iterable[tuple[str, RestingStates]]) -> None:
        """Replace the file. Durable: on return.

        Raises:
            OSError: the disk refused.
        """
        kept = list(topics)
        joined = [array("q") for _ in RestingState._fields]
        for _, states in kept:
            for column, part in zip(joined, states.columns, strict=True):
                column.extend(part)
        packed = b"".join(_little_endian(column).tobytes() for column in joined)
        counts = [[topic_id, len(states)] for topic_id, states in kept]
        head = {
            "version": _VERSION,
            "id": content_id,
            "fields": list(RestingState._fields),
            "topics": counts,
            "crc32c": _checksum(content_id, counts, packed),
        }
        write_file_atomically(self._file_system, self._path, json.dumps(head).encode() + b"\n" + packed)


def _parted(counts: Mapping[str, int], packed: bytes, total: int) -> dict[str, RestingStates]:
    columns = []
    for place in range(len(RestingState._fields)):
        column = array("q")
        column.frombytes(packed[place * total * 8 : (place + 1) * total * 8])
        columns.append(_little_endian(column))
    topics, first = {}, 0
    for topic_id, count in counts.items():
        topics[topic_id] = RestingStates([column[first : first + count] for column in columns])
        first += count
    return topics


def _checksum(content_id: str, counts: object, packed: bytes) -> str:
    return f"{crc32c(packed, crc32c(json.dumps([content_id, counts]).encode())):08x}"


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
