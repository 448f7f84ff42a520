"""A small stopped data directory, damaged on purpose, and the check that damage is refused and never believed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from log_model.clock import ManualClock
from log_model.errors import CorruptionError
from log_model.offsets import Offset
from log_model.reads import Isolation
from rollway.records import RecordFormatError, split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from tests.crash.ledger import (
    DATA_DIR,
    EVERYTHING,
    PartitionLedger,
    append_group,
    flush,
    open_directory,
    publish,
    require,
)
from tests.crash.simulated_disk import SimulatedDisk
from tests.crash.workload import new_disk
from tests.model.plain_log import FoundRecord, client_batch

TOPIC = "rot"
PARTITION_DIRECTORY = DATA_DIR / "logs" / f"{TOPIC}-0"
LOG_START = 1
CONFIG: dict[str, object] = {
    "segment.bytes": 320,
    "index.interval.bytes": 1,
    "segment.index.bytes": 48,
    "retention.ms": -1,
    "message.timestamp.after.max.ms": 2**63 - 1,
}
BEHIND_CHECKPOINT = 1


class StoppedDirectory:
    """Three segments and a raised log start, after a clean stop or after a killed process.

    After the kill the checkpointed recovery point lies ``BEHIND_CHECKPOINT`` batches below the log end.
    """

    def __init__(self, *, clean: bool) -> None:
        self.clock = ManualClock()
        self.clean = clean
        self.expected = PartitionLedger()
        disk = new_disk(self.clock)
        manager = open_directory(disk, self.clock)
        log = manager.create_topic(TOPIC, 1, CONFIG)[0].partitions[0]
        for mark, ages in enumerate(((9,), (5, 7), (6,), (1, 1), (8,), (0,), (4,), (7,), (2,), (6,))):
            self._append(log, ages, mark)
        log.delete_records(LOG_START)
        publish(log, self.expected)
        manager.checkpoint()
        manager.checkpoint_high_watermarks()
        self.recovery_point = log.recovery_point
        if clean:
            require(manager.close(), "no clean stop")
        else:
            for mark in range(BEHIND_CHECKPOINT):
                self._append(log, (3,), 10 + mark)
        self.expected.log.start_offset = LOG_START
        self._disk = disk.killed()
        require(len(log.snapshot.segments) >= 3, "too few segments to damage")

    def _append(self, log: PartitionLog, ages: tuple[int, ...], mark: int) -> None:
        timestamps = [self.clock.now_ms() - age for age in ages]
        append_group(log, self.expected, [[client_batch(timestamps, 0, mark)]], self.clock)
        flush(log, self.expected)
        publish(log, self.expected)

    def files(self) -> dict[Path, bytes]:
        """Every file and its bytes."""
        return {Path(path): content for path, content in self._disk.tree().items() if not path.endswith("/")}

    def with_damage(self, path: Path, content: bytes | None) -> SimulatedDisk:
        """A copy in which ``path`` has other bytes, or is gone."""
        disk = self._disk.killed()
        disk.damage(path, content)
        return disk


def without_epoch(batch: bytes) -> bytes:
    """A batch but for its leader epoch: no CRC covers that, and a segment that needs no scan is not read for it."""
    return batch[:12] + batch[16:]


class DamageCheck:
    """Opens a damaged directory and compares everything it serves with what was stored.

    Every record below the recovery point is served as it was or refused in so many words; above it only the tail
    may be missing. ``outcomes`` counts what happened.
    """

    def __init__(self, stopped: StoppedDirectory) -> None:
        self._stopped = stopped
        self._log = stopped.expected.log
        self._stored = {batch.base_offset: batch for batch in self._log.batches}
        self.outcomes: Counter[str] = Counter()

    def run(self, disk: SimulatedDisk) -> None:
        """Open and read everything.

        Raises:
            ViolationError: damage was served as good data, or records were dropped without a word.
        """
        try:
            manager = open_directory(disk, self._stopped.clock)
        except CorruptionError:
            self.outcomes["refused to start"] += 1
            return
        require(TOPIC in manager.topics, "the topic is gone")
        try:
            log = manager.partition(TOPIC, 0)
        except CorruptionError:
            self.outcomes["refused to open"] += 1
            return
        snapshot = log.snapshot
        refused = self._read_all(snapshot)
        self._check_missing(log, snapshot, refused)
        self._check_times(snapshot, refused)
        require(not disk.violations, f"mappings: {disk.violations}")
        self.outcomes["refused in part" if refused or log.offline_reason else "all there"] += 1

    def _read_all(self, snapshot: LogSnapshot) -> set[int]:
        """Every offset on its own; the offsets that were refused."""
        refused: set[int] = set()
        start, end, known_end = snapshot.log_start_offset, snapshot.log_end_offset, self._log.end_offset
        # A damaged offset can put the log end anywhere: what is between is not walked through.
        for offset in sorted({*range(start, min(end, known_end + 1)), *range(max(known_end, end - 1), end)}):
            try:
                fetched = snapshot.read(Offset(offset), 1, isolation=Isolation.LOG_END)
                content = b"".join(piece.read() for piece in fetched.slices)
                batches = split_batches(content)
                for batch in batches:
                    batch.check_crc()
            except (CorruptionError, RecordFormatError):
                refused.add(offset)
                continue
            require(len(batches) == 1, f"{len(batches)} batches at offset {offset}, and no error")
            header = batches[0].header
            expected = self._stored.get(header.base_offset)
            require(
                expected is not None and without_epoch(expected.stored) == without_epoch(content),
                f"offset {offset} is served with other bytes: {header}",
            )
            require(header.base_offset <= offset <= header.last_offset, f"offset {offset} gives {header}")
        self._read_at_once(snapshot)
        return refused

    def _read_at_once(self, snapshot: LogSnapshot) -> None:
        """One answer of many batches: every one of them is right, or shows that it is not.

        Only the first and the last of a long answer were looked at on the way, so a reader must hold the others to
        their CRC, and to following each other: no CRC covers their offsets.
        """
        try:
            fetched = snapshot.read(snapshot.log_start_offset, EVERYTHING, isolation=Isolation.LOG_END)
            batches = split_batches(b"".join(piece.read() for piece in fetched.slices))
        except (CorruptionError, RecordFormatError):
            return
        next_offset = None
        for batch in batches:
            header = batch.header
            if next_offset not in (None, header.base_offset):
                return
            next_offset = header.next_offset
            try:
                batch.check_crc()
            except RecordFormatError:
                continue
            expected = self._stored.get(header.base_offset)
            require(
                expected is not None and without_epoch(expected.stored) == without_epoch(bytes(batch.buffer)),
                f"a long read gives other bytes: {header}",
            )

    def _check_missing(self, log: PartitionLog, snapshot: LogSnapshot, refused: set[int]) -> None:
        start, end = snapshot.log_start_offset, snapshot.log_end_offset
        require(
            start <= self._log.start_offset or log.offline_reason is not None,
            f"the log start went up to {start} without a word",
        )
        require(
            end >= self._stopped.recovery_point or log.offline_reason is not None,
            f"the log ends at {end}, below the recovery point {self._stopped.recovery_point}, without a word",
        )
        known_end = self._log.end_offset
        require(end <= known_end or {known_end, end - 1} <= refused, f"the log end went up to {end} without a word")

    def _check_times(self, snapshot: LogSnapshot, refused: set[int]) -> None:
        start, end = snapshot.log_start_offset, min(snapshot.log_end_offset, self._log.end_offset)
        known = {
            batch.base_offset + place: timestamp
            for batch in self._log.batches
            for place, timestamp in enumerate(batch.timestamps)
            if start <= batch.base_offset + place < end
        }
        for timestamp in sorted(set(known.values())):
            try:
                found = snapshot.offset_for_timestamp(timestamp)
            except (CorruptionError, RecordFormatError):
                continue
            hits = [FoundRecord(offset, own) for offset, own in known.items() if own >= timestamp]
            answer = found and FoundRecord(found.offset, found.timestamp)
            # A first hit that cannot be read is skipped with the refusal its offset gets.
            candidates = [hit for hit in hits if hit.offset not in refused][:1] + hits[:1]
            require(
                answer in candidates or (answer is None and bool(refused)), f"{timestamp} gives {found}, not {hits[:1]}"
            )
        try:
            largest = snapshot.max_timestamp()
        except (CorruptionError, RecordFormatError):
            return
        best = max(known.values(), default=None)
        if not refused and best is not None:
            first = next(FoundRecord(offset, own) for offset, own in known.items() if own == best)
            require(
                largest is not None and (largest.offset, largest.timestamp) == first, f"largest {largest}, not {first}"
            )
