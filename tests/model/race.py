"""One writer and many readers on one log, and the list of what the readers must find."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.errors import OffsetOutOfRangeError
from log_model.offsets import Offset
from log_model.reads import Isolation
from log_model.transactions import TransactionMarker
from rollway.records import split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from tests.model.plain_log import ClientBatch, PlainLog, client_batch
from tests.model.plain_transactions import kept_by_a_consumer, marker_batch

READER_COUNT = 8
GROUP_COUNT = 400
READS_PER_READER = 150
TIMEOUT_S = 120
CONFIG: dict[str, object] = {
    "segment.bytes": 6000,
    "index.interval.bytes": 300,
    "segment.index.bytes": 1200,
    "retention.bytes": 40_000,
    "file.delete.delay.ms": 0,
    "flush.policy": "interval",
}


def open_shared_log(directory: Path) -> tuple[LogManager, PartitionLog]:
    """A log on real files whose segments and retention are small."""
    manager = LogManager.open(directory, clock=ManualClock())
    topic, _ = manager.create_topic("shared", 1, CONFIG)
    return manager, topic.partitions[0]


class Race:
    """The writer's list of what it wrote, filled before it is published, and the readers that look it up."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.plain = PlainLog()
        self.stored: dict[int, bytes] = {}
        self.sequences: dict[int, int] = {}
        self.opened: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        """Batches of aborted transactions, by their offset; there before their marker is published."""
        self.aborted_seen_count = 0
        self.writer_done = threading.Event()
        self.out_of_range_count = 0
        self.read_counts: list[int] = []

    def write(self) -> None:
        """Append, roll, delete, unlink."""
        source = random.Random(1)
        try:
            for number in range(GROUP_COUNT):
                self._append(source, number)
                if source.random() < 0.05:
                    self.log.roll()
                if source.random() < 0.15:
                    self.log.delete_old_segments(self.plain.batches[-1].timestamps[0])
                if source.random() < 0.05:
                    snapshot = self.log.snapshot
                    target = snapshot.log_start_offset + (snapshot.high_watermark - snapshot.log_start_offset) // 4
                    self.log.delete_records(target)
                self.log.publish()
                self.log.deleted_files.unlink_due()
        finally:
            self.writer_done.set()

    def _append(self, source: random.Random, number: int) -> None:
        requests = []
        if source.random() < 0.3:
            requests.append(self._marker(source))
        for place in range(source.randint(1, 3)):
            if source.random() < 0.3:
                requests.append(self._transactional(source, number * 10 + place))
                continue
            timestamps = [1_700_000_000_000 + number * 10 - source.randrange(200) for _ in range(source.randint(1, 9))]
            batch = client_batch(timestamps, source.choice((10, 100, 500)), number * 10 + place)
            requests.append(AppendRequest(tuple(validate_batches(batch.sent, self.log.config, 1_700_000_000_000))))
            self._note(batch)
        self.log.append(requests)

    def _note(self, batch: ClientBatch) -> None:
        entry = self.plain.append(batch, self.log.leader_epoch)
        self.stored[entry.base_offset] = entry.stored

    def _transactional(self, source: random.Random, mark: int) -> AppendRequest:
        producer_id = source.choice((1, 2))
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        batch = client_batch(
            [1_700_000_000_000],
            50,
            mark,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        self.opened.setdefault(producer_id, []).append(self.plain.end_offset)
        self._note(batch)
        return AppendRequest(tuple(validate_batches(batch.sent, self.log.config, 1_700_000_000_000)))

    def _marker(self, source: random.Random) -> AppendRequest:
        """Mostly an abort; what it ends is known to the readers before it is published."""
        producer_id, commit = source.choice((1, 2)), source.random() < 0.3
        marker = TransactionMarker(producer_id, 0, 0, commit)
        offsets = self.opened.pop(producer_id, [])
        if not commit:
            self.aborted.update(offsets)
        self._note(marker_batch(marker, 1_700_000_000_000))
        return AppendRequest.marker(marker)

    def read(self, seed: int) -> int:
        """Read at random until the writer is done, and often enough; how often."""
        source = random.Random(seed)
        count = 0
        while count < READS_PER_READER or not self.writer_done.is_set():
            snapshot = self.log.snapshot
            step = source.choice(
                (self._read_offset, self._read_offset, self._read_committed, self._find_timestamp, self._read_held)
            )
            step(source, snapshot)
            count += 1
        return count

    def _read_offset(self, source: random.Random, snapshot: LogSnapshot) -> None:
        offset = Offset(source.randint(snapshot.log_start_offset, snapshot.log_end_offset))
        max_bytes, isolation = source.choice((1, 700, 9000)), source.choice(list(Isolation))
        contents = source.choice((0, 1000))
        fetched = snapshot.read_cached(offset, max_bytes, isolation=isolation, content_bytes_max=contents)
        if fetched is None:
            fetched = snapshot.read(offset, max_bytes, isolation=isolation, content_bytes_max=contents)
        self._check(b"".join(piece.read() for piece in fetched.slices), offset, fetched.next_offset)
        if snapshot.high_watermark == offset:
            assert not fetched.slices
        with pytest.raises(OffsetOutOfRangeError):
            snapshot.read(Offset(snapshot.log_end_offset + 1), 1)

    def _read_committed(self, source: random.Random, snapshot: LogSnapshot) -> None:
        """No aborted record is kept by a consumer that goes by the list, and no open one is read."""
        offset = source.randint(snapshot.log_start_offset, snapshot.last_stable_offset)
        fetched = snapshot.read(Offset(offset), source.choice((700, 9000)), isolation=Isolation.LAST_STABLE)
        content = b"".join(piece.read() for piece in fetched.slices)
        self._check(content, offset, fetched.next_offset)
        assert fetched.next_offset <= snapshot.last_stable_offset
        kept = set(kept_by_a_consumer(content, fetched.aborted or (), 0))
        assert not kept & self.aborted, "an aborted record is not listed"
        self.aborted_seen_count += len(fetched.aborted or ())

    def _read_held(self, source: random.Random, snapshot: LogSnapshot) -> None:
        """A snapshot, and a slice, that are held while the writer goes on."""
        offset = source.randint(snapshot.log_start_offset, snapshot.high_watermark)
        fetched = snapshot.read(Offset(offset), 3000)
        later = self.log.snapshot
        while later is self.log.snapshot and not self.writer_done.is_set():
            self.writer_done.wait(0.001)
        self._check(b"".join(piece.read() for piece in fetched.slices), offset, fetched.next_offset)
        self._check_again(snapshot, offset)
        log_start_offset = offset
        try:
            self.log.snapshot.read(Offset(offset), 100)
        except OffsetOutOfRangeError as error:
            log_start_offset = error.log_start_offset
            self.out_of_range_count += 1
        else:
            return
        assert offset < log_start_offset <= self.log.snapshot.log_start_offset

    def _check_again(self, snapshot: LogSnapshot, offset: int) -> None:
        fetched = snapshot.read(Offset(offset), 1000)
        self._check(b"".join(piece.read() for piece in fetched.slices), offset, fetched.next_offset)

    def _find_timestamp(self, source: random.Random, snapshot: LogSnapshot) -> None:
        timestamp = 1_700_000_000_000 + source.randrange(GROUP_COUNT * 10)
        found = snapshot.offset_for_timestamp(timestamp)
        if found is not None:
            assert snapshot.log_start_offset <= found.offset < snapshot.high_watermark
            assert found.timestamp >= timestamp
        largest = snapshot.max_timestamp()
        if largest is not None:
            assert found is None or found.timestamp <= largest.timestamp
            assert snapshot.log_start_offset <= largest.offset < snapshot.high_watermark

    def _check(self, content: bytes, offset: int, next_offset: int) -> None:
        expected = offset
        for batch in split_batches(content):
            batch.check_crc()
            header = batch.header
            assert header.base_offset == expected or header.base_offset <= offset <= header.last_offset
            assert bytes(batch.buffer) == self.stored[header.base_offset]
            expected = header.next_offset
        assert next_offset == expected


def run_race(log: PartitionLog) -> Race:
    """Let them run against each other to the end.

    Raises:
        Exception: what any of them met.
    """
    race = Race(log)
    with ThreadPoolExecutor(READER_COUNT + 1) as pool:
        readers = [pool.submit(race.read, seed) for seed in range(READER_COUNT)]
        pool.submit(race.write).result(TIMEOUT_S)
        race.read_counts = [reader.result(TIMEOUT_S) for reader in readers]
    return race
