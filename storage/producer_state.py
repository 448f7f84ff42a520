"""What the last batches of every idempotent producer were, so that a batch sent twice is stored once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rollway.records import BatchHeader
from storage.config import PRODUCER_COUNT_MAX, PRODUCER_EXPIRATION_MS
from storage.errors import OutOfOrderSequenceError, ProducerFencedError
from storage.file_names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, offset_file_name, parse_offset_file_name
from storage.file_system import FileSystem
from storage.offsets import NO_TIMESTAMP, Offset
from storage.producer_snapshot import CorruptSnapshotError, ProducerRecord, read_snapshot, write_snapshot

_BATCHES_KEPT = 5
_SEQUENCE_MAX = 2**31 - 1
_NO_SEQUENCE = -1
_NO_OFFSET = Offset(-1)

_logger = logging.getLogger(__name__)


def add_sequence(sequence: int, increment: int) -> int:
    """Count on from ``sequence``; 0 follows 2^31-1. A negative ``increment`` counts back."""
    return (sequence + increment) % (_SEQUENCE_MAX + 1)


class ProducerBatch(NamedTuple):
    """A batch that a producer has in the log. Both ends are inclusive: they are a first and a last record."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: int
    """The batch's greatest timestamp; for LogAppendTime, when it was appended."""

    @classmethod
    def of(cls, header: BatchHeader) -> ProducerBatch:
        """The batch with this header, as stamped by the log."""
        return cls(
            header.base_sequence,
            add_sequence(header.base_sequence, header.last_offset_delta),
            Offset(header.base_offset),
            Offset(header.last_offset),
            header.max_timestamp,
        )


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """What is known of one producer. Immutable: every batch makes a new one."""

    producer_id: int
    producer_epoch: int
    batches: tuple[ProducerBatch, ...] = ()
    """Up to five batches of this epoch, oldest first; one after a restart, none after a bare marker."""
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    current_txn_first_offset: Offset = _NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 when this epoch has none."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    def after(self, header: BatchHeader, now_ms: int) -> ProducerEntry:
        """The entry once the batch is in the log."""
        batches = self.batches if header.producer_epoch == self.producer_epoch else ()
        if not header.is_control:
            batches = (*batches, ProducerBatch.of(header))[-_BATCHES_KEPT:]
        return replace(
            self,
            producer_epoch=header.producer_epoch,
            batches=batches,
            last_timestamp=max(header.max_timestamp, now_ms),
        )

    def to_record(self) -> ProducerRecord:
        """The entry as a snapshot keeps it: with its last batch alone."""
        last_sequence, last_offset, offset_delta, timestamp = _NO_SEQUENCE, _NO_OFFSET, 0, self.last_timestamp
        if self.batches:
            last = self.batches[-1]
            last_sequence, last_offset, timestamp = last.last_sequence, last.last_offset, last.timestamp
            offset_delta = last.last_offset - last.first_offset
        return ProducerRecord(
            self.producer_id,
            self.producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @classmethod
    def from_record(cls, record: ProducerRecord) -> ProducerEntry:
        """The entry that ``to_record`` made this of."""
        batches: tuple[ProducerBatch, ...] = ()
        if record.last_offset >= 0:
            first_sequence = add_sequence(record.last_sequence, -record.offset_delta)
            first_offset = Offset(record.last_offset - record.offset_delta)
            last_offset = Offset(record.last_offset)
            batches = (
                ProducerBatch(first_sequence, record.last_sequence, first_offset, last_offset, record.timestamp),
            )
        return cls(
            record.producer_id,
            record.producer_epoch,
            batches,
            record.timestamp,
            record.coordinator_epoch,
            Offset(record.current_txn_first_offset),
        )


def check_batch(entry: ProducerEntry | None, header: BatchHeader) -> ProducerBatch | None:
    """Say whether a batch may follow what its producer sent before; see ``ProducerState.check``."""
    if entry is None or header.producer_id < 0 or header.is_control:
        return None
    who = f"producer {header.producer_id} with epoch {header.producer_epoch}"
    if header.producer_epoch < entry.producer_epoch:
        raise ProducerFencedError(f"{who} is fenced: epoch {entry.producer_epoch} has written since")
    first = header.base_sequence
    if header.producer_epoch > entry.producer_epoch:
        if first != 0:
            raise OutOfOrderSequenceError(f"{who} is new and begins at sequence {first}, not 0")
        return None
    last = add_sequence(first, header.last_offset_delta)
    for batch in entry.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    expected = add_sequence(entry.last_sequence, 1)
    if first != expected:
        raise OutOfOrderSequenceError(f"{who} sent the sequences {first} to {last}, expected was {expected}")
    return None


class ProducerDraft:
    """The state as it will be once a request is written; for requests of several batches, which are all or nothing.

    Thread: the partition's writer only, and the state does not change between ``draft`` and ``accept``.
    """

    def __init__(self, entries: Mapping[int, ProducerEntry]) -> None:
        """Use ``ProducerState.draft``."""
        self._entries = entries
        self._changed: dict[int, ProducerEntry] = {}

    @property
    def changed(self) -> Mapping[int, ProducerEntry]:
        """The entries that differ from the state's."""
        return self._changed

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """As ``ProducerState.check``, with what this draft was told."""
        return check_batch(self._find(header.producer_id), header)

    def update(self, header: BatchHeader, now_ms: int = NO_TIMESTAMP) -> None:
        """As ``ProducerState.update``, for this draft."""
        if header.producer_id >= 0:
            entry = self._find(header.producer_id) or ProducerEntry(header.producer_id, header.producer_epoch)
            self._changed[header.producer_id] = entry.after(header, now_ms)

    def _find(self, producer_id: int) -> ProducerEntry | None:
        return self._changed.get(producer_id) or self._entries.get(producer_id)


class ProducerState:
    """The idempotent producers of one partition (spec E19): epoch, and the last five batches of each.

    Rebuilt at start from the newest valid snapshot and the batches after it. Files: ``<offset in 20 digits>.snapshot``
    in the partition's directory, holding the state of everything below that offset (see ``producer_snapshot``).

    Thread: changed by the partition's writer only. ``entries`` may be taken by any thread.
    """

    def __init__(
        self,
        file_system: FileSystem,
        directory: Path,
        *,
        expiration_ms: int = PRODUCER_EXPIRATION_MS,
        producer_count_max: int = PRODUCER_COUNT_MAX,
    ) -> None:
        """Empty until ``load`` or ``update``."""
        self._file_system = file_system
        self._directory = directory
        self._expiration_ms = expiration_ms
        self._producer_count_max = producer_count_max
        # Longest idle first: every update moves its producer to the end.
        self._entries: dict[int, ProducerEntry] = {}

    @property
    def entries(self) -> dict[int, ProducerEntry]:
        """A copy of what is known, by producer id. Thread: any."""
        return self._entries.copy()

    def largest_id(self, *, below: int) -> int:
        """The largest producer id under ``below``, -1 for none. Thread: any."""
        return max((producer_id for producer_id in self._entries.copy() if producer_id < below), default=-1)

    def __len__(self) -> int:
        """How many are known."""
        return len(self._entries)

    def find(self, producer_id: int) -> ProducerEntry | None:
        """What is known of one producer. Thread: any."""
        return self._entries.get(producer_id)

    def count_idle_from(self, now_ms: int) -> None:
        """Count nobody as idle before ``now_ms``: for what was restored, as snapshots do not tell when they are of.

        Their timestamp is the batch's, and a producer of old data would be forgotten at once.
        """
        for producer_id, entry in self._entries.items():
            if entry.last_timestamp < now_ms:
                self._entries[producer_id] = replace(entry, last_timestamp=now_ms)

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the batch in the log that this one repeats, or ``None`` when it is new and may be appended.

        A batch without a producer is always new, and so is any batch of an unknown producer. It repeats an earlier
        one if epoch, first and last sequence are those of one of the producer's last five batches; else it must
        follow the last one, 0 following 2^31-1. A new epoch begins at sequence 0. Nothing changes here.

        Raises:
            ProducerFencedError: a newer epoch of this producer has written.
            OutOfOrderSequenceError: sequences are missing, overlap, or are older than the last five batches.
        """
        return check_batch(self._entries.get(header.producer_id), header)

    def update(self, header: BatchHeader, now_ms: int = NO_TIMESTAMP) -> None:
        """Note a batch of the log, by its header as stamped. Not checked again: what is in the log is true.

        ``now_ms`` is when it was appended. Given it, a producer of old data does not count as idle, as it would
        by the batch's timestamp alone.
        """
        draft = self.draft()
        draft.update(header, now_ms)
        self.accept(draft)

    def draft(self) -> ProducerDraft:
        """Begin to check and update without changing anything, until ``accept``."""
        return ProducerDraft(self._entries)

    def accept(self, draft: ProducerDraft) -> None:
        """Take over what a draft was told, once its batches are written."""
        for producer_id, entry in draft.changed.items():
            self._entries.pop(producer_id, None)
            self._entries[producer_id] = entry
        while len(self._entries) > self._producer_count_max and self._forget_longest_idle():
            pass

    def _forget_longest_idle(self) -> bool:
        for producer_id, entry in self._entries.items():
            if entry.current_txn_first_offset < 0:
                del self._entries[producer_id]
                return True
        return False

    def expire(self, now_ms: int) -> int:
        """Forget producers idle for ``expiration_ms``, except in an open transaction; return how many.

        Any sequence of a forgotten producer is accepted (spec E19).
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last_timestamp >= self._expiration_ms and entry.current_txn_first_offset < 0
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def load(self, log_start: Offset, log_end: Offset) -> Offset:
        """Restore the state from the newest valid snapshot in ``[log_start, log_end]``; at start and after truncation.

        Return the offset it holds the state of; the caller replays the batches from there on with ``update``.
        Without a snapshot that is ``log_start``, the state being empty. ``log_start`` is the first offset whose
        batches are on disk: with a snapshot below it, batches would be missing between the two. Damaged
        snapshots and those out of the range are deleted, durably: the log may grow to their offset again.
        """
        entries: dict[int, ProducerEntry] = {}
        restored: Offset | None = None
        doomed: list[Offset] = []
        for offset in reversed(self.snapshot_offsets()):
            if not log_start <= offset <= log_end:
                doomed.append(offset)
            elif restored is None:
                try:
                    records = read_snapshot(self._file_system, self.snapshot_path(offset))
                except CorruptSnapshotError as error:
                    _logger.warning("dropping a damaged producer snapshot: %s", error)
                    doomed.append(offset)
                else:
                    entries = {record.producer_id: ProducerEntry.from_record(record) for record in records}
                    restored = offset
        self._delete(doomed)
        self._entries = entries
        return log_start if restored is None else restored

    def truncate_fully(self) -> None:
        """Forget all producers and delete all snapshots, durably; the log starts anew."""
        self._delete(self.snapshot_offsets())
        self._entries = {}

    def take_snapshot(self, offset: Offset) -> Path:
        """Write the state as that of everything below ``offset``; return the file. Durable: on return.

        Raises:
            OSError: the disk refused; there is no new snapshot, or the whole one.
        """
        path = self.snapshot_path(offset)
        write_snapshot(self._file_system, path, [entry.to_record() for entry in self._entries.values()])
        return path

    def snapshot_path(self, offset: Offset) -> Path:
        """Where the snapshot of ``offset`` is, or would be."""
        return self._directory / offset_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)

    def snapshot_offsets(self) -> list[Offset]:
        """The offsets of all snapshots on disk, rising."""
        names = map(parse_offset_file_name, self._file_system.list_directory(self._directory))
        return sorted(
            Offset(name.offset)
            for name in names
            if name is not None and name.suffix == PRODUCER_SNAPSHOT_SUFFIX and not name.state
        )

    def delete_snapshots_before(self, offset: Offset) -> None:
        """Delete the snapshots of offsets below ``offset``."""
        self._delete([found for found in self.snapshot_offsets() if found < offset])

    def delete_snapshots_after(self, offset: Offset) -> None:
        """Delete the snapshots of offsets above ``offset``."""
        self._delete([found for found in self.snapshot_offsets() if found > offset])

    def delete_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment, but not one above all segments' base offsets if it is the
        newest: that is the one of a clean stop (case RC-11)."""
        offsets = self.snapshot_offsets()
        stray = [offset for offset in offsets if offset not in segment_base_offsets]
        if stray and stray[-1] == offsets[-1] and stray[-1] > max(segment_base_offsets, default=-1):
            stray.pop()
        self._delete(stray)

    def mark_snapshot_deleted(self, offset: Offset) -> Path | None:
        """Add ``.deleted`` to the name of a snapshot, with its segment's files (spec E7); ``None`` if there is none."""
        path = self.snapshot_path(offset)
        if not self._file_system.exists(path):
            return None
        target = path.with_name(path.name + DELETED_SUFFIX)
        self._file_system.rename(path, target)
        return target

    def _delete(self, offsets: Collection[Offset]) -> None:
        for offset in offsets:
            self._file_system.unlink(self.snapshot_path(offset))
        if offsets:
            self._file_system.sync_directory(self._directory)
