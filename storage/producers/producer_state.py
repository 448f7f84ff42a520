"""What the last batches of every idempotent producer were, so that a batch sent twice is stored once."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Protocol

from rollway.records import BatchHeader, ControlRecord, ControlType
from storage.config import PRODUCER_COUNT_MAX, PRODUCER_EXPIRATION_MS
from storage.disk.file_names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, offset_file_name, parse_offset_file_name
from storage.disk.file_system import FileSystem
from storage.offsets import LogOffsetMetadata, Offset
from storage.producers.producer_entry import ProducerBatch, ProducerEntry, check_batch, check_marker
from storage.producers.producer_snapshot import CorruptSnapshotError, read_snapshot, write_snapshot
from storage.transactions import CompletedTransaction, OpenTransaction, TransactionMarker

_logger = logging.getLogger(__name__)


class _Known(Protocol):
    """What a draft is made of: the state, or another draft."""

    def find(self, producer_id: int) -> ProducerEntry | None: ...

    def find_open(self, first_offset: Offset) -> OpenTransaction | None: ...

    def open_transactions(self) -> Iterator[OpenTransaction]: ...


class ProducerDraft:
    """The state as it will be once some batches are written: requests and groups are written whole or not at all.

    Drafts are made of the state, or of another draft, which must not change until ``accept``.

    Thread: the partition's writer only.
    """

    def __init__(self, known: _Known) -> None:
        """Use ``draft``."""
        self._known = known
        self.changed: dict[int, ProducerEntry] = {}
        """The entries that differ from those known before, in the order of their last change."""
        self.opened: dict[Offset, OpenTransaction] = {}
        """Transactions begun and not ended here, by rising first offset."""
        self.closed: set[Offset] = set()
        """First offsets of transactions that were open before and are not now."""
        self.completed: list[CompletedTransaction] = []
        """Transactions that ended here, in the order of their markers."""

    def draft(self) -> ProducerDraft:
        """Begin to check and update on top of this one, without changing it until ``accept``."""
        return ProducerDraft(self)

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self.changed.get(producer_id) or self._known.find(producer_id)

    def find_open(self, first_offset: Offset) -> OpenTransaction | None:
        """The open transaction that begins there."""
        if first_offset in self.closed:
            return None
        return self.opened.get(first_offset) or self._known.find_open(first_offset)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """The transactions that are open, by rising first offset."""
        for transaction in self._known.open_transactions():
            if transaction.first.offset not in self.closed:
                yield transaction
        yield from self.opened.values()

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """As ``ProducerState.check``, with what this draft was told."""
        return check_batch(self.find(header.producer_id), header)

    def check_marker(self, marker: TransactionMarker) -> None:
        """As ``ProducerState.check_marker``, with what this draft was told."""
        check_marker(self.find(marker.producer_id), marker)

    def update(
        self,
        header: BatchHeader,
        *,
        place: LogOffsetMetadata | None = None,
        control: ControlRecord | None = None,
    ) -> None:
        """As ``ProducerState.update``, for this draft."""
        if header.producer_id < 0:
            return
        before = self.find(header.producer_id) or ProducerEntry(header.producer_id, header.producer_epoch)
        after = before.after(header, control)
        self.changed.pop(header.producer_id, None)
        self.changed[header.producer_id] = after
        if before.current_txn_first_offset == after.current_txn_first_offset:
            return
        if after.is_in_transaction:
            first = place or LogOffsetMetadata(after.current_txn_first_offset)
            self.opened[first.offset] = OpenTransaction(header.producer_id, first)
        elif control is not None:
            self._complete(before, Offset(header.base_offset), control)

    def _complete(self, producer: ProducerEntry, marker_offset: Offset, control: ControlRecord) -> None:
        first_offset = producer.current_txn_first_offset
        begun = self.find_open(first_offset)
        first = LogOffsetMetadata(first_offset) if begun is None else begun.first
        if self.opened.pop(first_offset, None) is None:
            self.closed.add(first_offset)
        following = next(self.open_transactions(), None)
        self.completed.append(
            CompletedTransaction(
                producer.producer_id,
                first,
                marker_offset,
                control.control_type is ControlType.ABORT,
                Offset(marker_offset + 1) if following is None else following.first.offset,
            )
        )

    def accept(self, draft: ProducerDraft) -> None:
        """Take over what a draft of this one was told."""
        for producer_id, entry in draft.changed.items():
            self.changed.pop(producer_id, None)
            self.changed[producer_id] = entry
        for first_offset in draft.closed:
            if self.opened.pop(first_offset, None) is None:
                self.closed.add(first_offset)
        self.opened.update(draft.opened)
        self.completed += draft.completed


class ProducerState:
    """The producers of one partition (spec E19, E22): epoch, last five batches and open transaction of each.

    Rebuilt at start from the newest valid snapshot and the batches after it. Files: ``<offset in 20 digits>.snapshot``
    in the partition's directory, holding the state of everything below that offset (see ``producer_snapshot``).

    How long a producer has been idle is counted on ``elapsed_ms``, the clock of elapsed time: steps of the wall clock
    and timestamps of records forget no producer. What is loaded counts as used at that moment, because a snapshot does
    not tell how long its producers had been idle.

    Thread: changed by the partition's writer only. ``entries`` may be taken by any thread.
    """

    __slots__ = (
        "_directory",
        "_elapsed_ms",
        "_entries",
        "_expiration_ms",
        "_file_system",
        "_open",
        "_producer_count_max",
        "_used_ms",
    )

    def __init__(
        self,
        file_system: FileSystem,
        directory: Path,
        *,
        expiration_ms: int = PRODUCER_EXPIRATION_MS,
        producer_count_max: int = PRODUCER_COUNT_MAX,
        elapsed_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Empty until ``load`` or ``update``."""
        self._file_system = file_system
        self._directory = directory
        self._expiration_ms = expiration_ms
        self._producer_count_max = producer_count_max
        self._elapsed_ms = elapsed_ms
        self._used_ms: dict[int, int] = {}
        # Longest idle first: every update moves its producer to the end.
        self._entries: dict[int, ProducerEntry] = {}
        # By rising first offset: a transaction begins behind all that began before.
        self._open: OrderedDict[Offset, OpenTransaction] = OrderedDict()

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

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the batch in the log that this one repeats, or ``None`` when it is new and may be appended.

        A batch without a producer is always new, and so is any batch of an unknown producer. It repeats an earlier
        one if epoch, first and last sequence are those of one of the producer's last five batches; else it must
        follow the last one, 0 following 2^31-1. A new epoch begins at sequence 0. Nothing changes here.

        Raises:
            ProducerFencedError: a newer epoch of this producer has written.
            OutOfOrderSequenceError: sequences are missing, overlap, or are older than the last five batches.
        """
        return check_batch(self.find(header.producer_id), header)

    def check_marker(self, marker: TransactionMarker) -> None:
        """Say whether a marker may be written, also one that ends nothing. Nothing changes here.

        Raises:
            ProducerFencedError: a newer epoch of this producer has written.
            CoordinatorFencedError: a newer coordinator has written a marker for this producer.
        """
        check_marker(self.find(marker.producer_id), marker)

    def find_open(self, first_offset: Offset) -> OpenTransaction | None:
        return self._open.get(first_offset)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """The transactions that are open, by rising first offset. Thread: the writer."""
        return iter(self._open.values())

    def place_first_open(self, first: LogOffsetMetadata) -> None:
        """Note where in the log the earliest open transaction begins, of which only the offset was known."""
        transaction = self._open[first.offset]
        self._open[first.offset] = transaction._replace(first=first)

    def update(
        self,
        header: BatchHeader,
        *,
        place: LogOffsetMetadata | None = None,
        control: ControlRecord | None = None,
    ) -> list[CompletedTransaction]:
        """Note a batch of the log, by its header as stamped. Not checked again: what is in the log is true.

        A transactional batch opens a transaction where it begins, at ``place``, unless one is open; a marker ends
        it, ``control`` being what it says. Return the transaction it ended, if any, in a list.
        """
        draft = self.draft()
        draft.update(header, place=place, control=control)
        self.accept(draft)
        return draft.completed

    def draft(self) -> ProducerDraft:
        """Begin to check and update without changing anything, until ``accept``."""
        return ProducerDraft(self)

    def accept(self, draft: ProducerDraft) -> None:
        """Take over what a draft was told, once its batches are written."""
        now_ms = self._elapsed_ms() if draft.changed else 0
        for producer_id, entry in draft.changed.items():
            self._entries.pop(producer_id, None)
            self._entries[producer_id] = entry
            self._used_ms[producer_id] = now_ms
        for first_offset in draft.closed:
            self._open.pop(first_offset, None)
        self._open.update(draft.opened)
        while len(self._entries) > self._producer_count_max and self._forget_longest_idle():
            pass

    def _forget_longest_idle(self) -> bool:
        for producer_id, entry in self._entries.items():
            if not entry.is_in_transaction:
                self._forget(producer_id)
                return True
        return False

    def _forget(self, producer_id: int) -> None:
        del self._entries[producer_id]
        self._used_ms.pop(producer_id, None)

    def expire(self) -> int:
        """Forget producers idle for ``expiration_ms``, except in an open transaction; return how many.

        Any sequence of a forgotten producer is accepted (spec E19).
        """
        now_ms = self._elapsed_ms()
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - self._used_ms[producer_id] >= self._expiration_ms and not entry.is_in_transaction
        ]
        for producer_id in expired:
            self._forget(producer_id)
        return len(expired)

    def load(self, log_start: Offset, log_end: Offset, newest: Offset | None = None) -> Offset:
        """Restore the state from the newest valid snapshot in ``[log_start, log_end]``; at start and after truncation.

        With ``newest`` from none above that offset; those above it stay, but for damaged ones.

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
                    continue
                if newest is None or offset <= newest:
                    entries = {record.producer_id: ProducerEntry.from_record(record) for record in records}
                    restored = offset
        self._delete(doomed)
        self._entries = entries
        self._used_ms = dict.fromkeys(entries, self._elapsed_ms())
        self._open = _open_transactions_of(entries)
        return log_start if restored is None else restored

    def truncate_fully(self) -> None:
        """Forget all producers and delete all snapshots, durably; the log starts anew."""
        self._delete(self.snapshot_offsets())
        self.forget_all()

    def forget_all(self) -> None:
        """Begin with no producers; snapshots stay."""
        self._entries = {}
        self._used_ms = {}
        self._open = OrderedDict()

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


def _open_transactions_of(entries: dict[int, ProducerEntry]) -> OrderedDict[Offset, OpenTransaction]:
    """Their places in the log are not known: a snapshot keeps offsets alone."""
    found = sorted(
        (entry.current_txn_first_offset, producer_id)
        for producer_id, entry in entries.items()
        if entry.is_in_transaction
    )
    return OrderedDict(
        (offset, OpenTransaction(producer_id, LogOffsetMetadata(offset))) for offset, producer_id in found
    )
