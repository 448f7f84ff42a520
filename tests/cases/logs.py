"""A topic on real files in a test's directory, and batches as producers send them, honest and hand-made."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import crc32c
import pytest

from app.problems.engine import problem_for
from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.errors import StorageError
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.transactions import AbortedTransaction, TransactionMarker
from rollway.records import (
    BatchHeader,
    Codec,
    Record,
    RecordBatch,
    columns_from_records,
    decode_batch,
    encode_batch,
    records_from_columns,
    split_batches,
)
from storage.disk.file_system import FileSystem
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, AppendResult, PartitionLog
from storage.manager.log_manager import LogManager
from storage.recovery.recovery_progress import PartitionRecovery
from storage.segment.segment import Segment

TOPIC = "cases"
START_MS = 1_700_000_000_000
EVERYTHING = 1 << 30
LONG_MAX = 2**63 - 1

# Kafka's cases are about Kafka's rule for one copy: what is appended is visible. Small index files copy faster.
CONFIG: dict[str, object] = {"flush.policy": "interval", "segment.index.bytes": 4800}


def batch_of(
    count: int = 1,
    *,
    timestamps: Sequence[int] | None = None,
    first_timestamp: int = START_MS,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    codec: Codec = Codec.NONE,
    **fields: int,
) -> bytes:
    """A batch of ``count`` records a millisecond apart, or of one per timestamp; ``fields`` go to ``encode_batch``."""
    if timestamps is None:
        timestamps = range(first_timestamp, first_timestamp + count)
    records = [Record(place, timestamp, key, value, headers) for place, timestamp in enumerate(timestamps)]
    return encode_batch(columns_from_records(records), codec=codec, **fields)


def sized_batch(size_bytes: int, *, timestamp: int = START_MS) -> bytes:
    """A batch of one record and exactly ``size_bytes`` bytes."""
    value_bytes = size_bytes
    while True:
        data = batch_of(timestamps=[timestamp], value=b"v" * value_bytes)
        if len(data) == size_bytes:
            return data
        value_bytes -= len(data) - size_bytes


def varint(number: int) -> bytes:
    """Zigzag, seven bits to the byte, lowest first: written from the format's description, not by the engine."""
    unsigned = 2 * number if number >= 0 else -2 * number - 1
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned % 0x80 + 0x80)
        unsigned //= 0x80
    encoded.append(unsigned)
    return bytes(encoded)


def framed(body: bytes) -> bytes:
    """A record of this body: its length, then it."""
    return varint(len(body)) + body


def raw_record(
    place: int,
    *,
    timestamp_delta: int = 0,
    key: bytes = varint(1) + b"k",
    value: bytes = varint(1) + b"v",
    headers: bytes = varint(0),
) -> bytes:
    """A record whose key, value and headers are given with their length fields, to be wrong about."""
    return framed(b"\0" + varint(timestamp_delta) + varint(place) + key + value + headers)


def raw_batch(
    section: bytes, count: int, *, attributes: int = 0, base_timestamp: int = START_MS, max_timestamp: int = START_MS
) -> bytes:
    """A batch of format 2 around any bytes, with a right CRC."""
    covered = (
        struct.pack(">hiqqqhii", attributes, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count) + section
    )
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c.crc32c(covered)) + covered


def with_crc(data: bytes | bytearray) -> bytes:
    """The batch with the CRC that its bytes now need."""
    return bytes(data[:17]) + struct.pack(">I", crc32c.crc32c(bytes(data[21:]))) + bytes(data[21:])


def patched(data: bytes, at: int, layout: str, *numbers: int) -> bytes:
    """The batch with other numbers in its header, and the CRC that they need."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, *numbers)
    return with_crc(changed)


class CaseLog:
    """The log of one topic, with the hand of whoever runs the service: append, stop, kill, start."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, object] | None = None,
        *,
        partition_count: int = 1,
        file_system: FileSystem | None = None,
    ) -> None:
        self.path = path
        self.clock = ManualClock(START_MS)
        self._file_system = file_system
        self.start()
        if not self.manager.topics:
            self.manager.create_topic(TOPIC, partition_count, CONFIG | dict(config or {}))

    # Starting and stopping

    def start(self) -> None:
        self.manager = LogManager.open(self.path, clock=self.clock, file_system=self._file_system)

    def stop(self) -> None:
        """A clean stop."""
        assert self.manager.close()

    def kill(self) -> None:
        """What kill -9 leaves: nothing is closed, and the kernel lets the lock go."""
        self.manager._lock.release()

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.stop()
        else:
            self.kill()
        self.start()

    def configure(self, config: Mapping[str, object]) -> None:
        """Alter the topic, as its writer takes it."""
        self.partition.update_config(self.manager.alter_topic(TOPIC, config=config).config)

    # What is there

    @property
    def partition(self) -> PartitionLog:
        return self.manager.partition(TOPIC, 0)

    @property
    def snapshot(self) -> LogSnapshot:
        return self.partition.snapshot

    @property
    def recovery(self) -> PartitionRecovery:
        name = self.partition.name
        found = [report for report in self.manager.recovery if report.name == name]
        # A partition that rested until now has told nothing, if nothing was unusual.
        return found[0] if found else PartitionRecovery(name, clean=True)

    @property
    def directory(self) -> Path:
        return self.partition.directory

    @property
    def end_offset(self) -> int:
        return self.snapshot.log_end_offset

    @property
    def base_offsets(self) -> list[int]:
        return list(self.snapshot.base_offsets)

    def file(self, base_offset: int = 0, suffix: str = ".log") -> Path:
        return self.directory / f"{base_offset:020d}{suffix}"

    def file_names(self, *suffixes: str) -> list[str]:
        """Names in the partition's directory, those with one of ``suffixes`` if any are given."""
        return sorted(path.name for path in self.directory.iterdir() if not suffixes or path.name.endswith(suffixes))

    def log_files(self) -> dict[str, bytes]:
        """All log files' bytes."""
        return {name: (self.directory / name).read_bytes() for name in self.file_names(".log")}

    def segment(self, base_offset: int) -> Segment:
        return self.snapshot.segments[self.base_offsets.index(base_offset)]

    def offset_entries(self, base_offset: int = 0) -> list[tuple[int, int]]:
        """(offset, position) of the entries in the file; what lies behind the valid ones is left out."""
        count = self.segment(base_offset).offset_index.get().entry_count
        content = self.file(base_offset, ".index").read_bytes()[: 8 * count]
        return [(base_offset + relative, position) for relative, position in struct.iter_unpack(">ii", content)]

    def time_entries(self, base_offset: int = 0) -> list[tuple[int, int]]:
        """(timestamp, offset) of the entries in the file; what lies behind the valid ones is left out."""
        count = self.segment(base_offset).time_index.get().entry_count
        content = self.file(base_offset, ".timeindex").read_bytes()[: 12 * count]
        return [(timestamp, base_offset + relative) for timestamp, relative in struct.iter_unpack(">qi", content)]

    # Writing

    def send(self, body: bytes) -> AppendResult:
        """Append what one request's body holds, and publish.

        Raises:
            StorageError: what the log answered.
        """
        (answer,) = self.send_group(body)
        if isinstance(answer, StorageError):
            raise answer
        return answer

    def send_group(self, *bodies: bytes) -> list[AppendResult | StorageError]:
        """Append the bodies of several requests as one group, and publish."""
        config, now_ms = self.partition.config, self.clock.now_ms()
        group = [AppendRequest(tuple(validate_batches(body, config, now_ms))) for body in bodies]
        answers = self.partition.append(group)
        self.partition.publish()
        return answers

    def end_transaction(
        self, producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
    ) -> AppendResult:
        """Append the marker of a transaction, and publish.

        Raises:
            StorageError: what the log answered.
        """
        marker = TransactionMarker(producer_id, producer_epoch, coordinator_epoch, commit)
        (answer,) = self.partition.append([AppendRequest.marker(marker)])
        self.partition.publish()
        if isinstance(answer, StorageError):
            raise answer
        return answer

    def fill(self, record_count: int, **fields: int) -> None:
        """Append records, one batch each."""
        for _ in range(record_count):
            self.send(batch_of(**fields))

    def roll(self) -> None:
        self.partition.roll()
        self.partition.publish()

    def flush(self) -> None:
        self.partition.flush()
        self.partition.publish()

    def truncate(self, offset: int) -> None:
        self.partition.truncate_to(offset)
        self.partition.publish()

    def delete_records(self, offset: int) -> int:
        low = self.partition.delete_records(offset)
        self.partition.publish()
        return low

    def run_retention(self) -> list[int]:
        """Delete old segments; return the base offsets of those that went."""
        deleted = self.partition.delete_old_segments(self.manager.protected_clock.now_ms())
        self.partition.publish()
        return [entry.base_offset for entry in deleted]

    # Reading

    def read(
        self, offset: int = 0, isolation: Isolation = Isolation.HIGH_WATERMARK, max_bytes: int = EVERYTHING
    ) -> bytes:
        """The bytes of a fetch."""
        fetched = self.snapshot.read(Offset(offset), max_bytes, isolation=isolation)
        return b"".join(piece.read() for piece in fetched.slices)

    def aborted(self, offset: int = 0, max_bytes: int = EVERYTHING) -> list[AbortedTransaction]:
        """The aborted transactions that a read_committed fetch lists."""
        fetched = self.snapshot.read(Offset(offset), max_bytes, isolation=Isolation.LAST_STABLE)
        assert fetched.aborted is not None
        return list(fetched.aborted)

    def headers(self, isolation: Isolation = Isolation.LOG_END) -> list[BatchHeader]:
        """The header of every batch of the log."""
        return [batch.header for batch in split_batches(self.read(self.snapshot.log_start_offset, isolation))]

    def offsets(self, offset: int = 0, isolation: Isolation = Isolation.HIGH_WATERMARK) -> list[int]:
        """The offsets of the records that a fetch at ``offset`` gives its consumer."""
        return [record.offset for record in self.records(offset, isolation)]

    def records(self, offset: int = 0, isolation: Isolation = Isolation.HIGH_WATERMARK) -> list[Record]:
        """The records that a fetch at ``offset`` gives its consumer, CRCs checked."""
        records: list[Record] = []
        for batch in split_batches(self.read(offset, isolation)):
            batch.check_crc()
            records += records_from_columns(decode_batch(batch), batch.header.timestamp_type)
        return [record for record in records if record.offset >= offset]


def kafka_code_of(error: Exception) -> int:
    """Return Kafka's number for an error of the engine, as the service answers it."""
    return problem_for(error).kafka_code


@contextmanager
def refused(log: CaseLog, kafka_code: int) -> Iterator[pytest.ExceptionInfo[StorageError]]:
    """What happens here is refused with Kafka's error code, and the log stays as it was to the byte."""
    before = log.end_offset, log.base_offsets, log.log_files()
    with pytest.raises(StorageError) as raised:
        yield raised
    assert kafka_code_of(raised.value) == kafka_code, raised.value
    assert (log.end_offset, log.base_offsets, log.log_files()) == before


def assert_whole(log: CaseLog) -> None:
    """Offsets go on from batch to batch, every CRC is right, every index entry in every file is true."""
    assert log.offsets(log.snapshot.log_start_offset, Isolation.LOG_END) == list(
        range(log.snapshot.log_start_offset, log.end_offset)
    )
    ends = [*log.base_offsets[1:], log.end_offset]
    for base_offset, end_offset in zip(log.base_offsets, ends, strict=True):
        batches = split_batches(log.file(base_offset).read_bytes())
        assert all(one.header.next_offset == two.header.base_offset for one, two in pairwise(batches))
        assert not batches or batches[-1].header.next_offset == end_offset
        assert_indexes_true(log, base_offset, batches)


def assert_indexes_true(log: CaseLog, base_offset: int, batches: list[RecordBatch]) -> None:
    """Every entry in a segment's index files names a batch that is there; lookups with them are right."""
    by_last_offset = {}
    position = 0
    for batch in batches:
        by_last_offset[batch.header.last_offset] = position, batch.header.max_timestamp
        position += batch.header.size_bytes
    for offset, position in log.offset_entries(base_offset):
        assert by_last_offset[offset][0] == position
    entries = log.time_entries(base_offset)
    assert entries == sorted(entries)
    newest = max((latest for _, latest in by_last_offset.values()), default=-1)
    if log.segment(base_offset).sealed and newest >= 0:
        assert entries[-1][0] == newest, "a roll ends the time index with the segment's largest timestamp"
    for timestamp, offset in entries:
        assert by_last_offset[offset][1] == timestamp
        assert all(latest <= timestamp for last, (_, latest) in by_last_offset.items() if last <= offset)
