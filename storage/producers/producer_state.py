"""The last batches of every idempotent producer, so that a batch sent twice is stored once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from log_model.config import PRODUCER_COUNT_MAX, PRODUCER_EXPIRATION_MS
from log_model.offsets import LogOffsetMetadata, Offset
from log_model.producers import ProducerBatch
from log_model.transactions import CompletedTransaction, OpenTransaction, TransactionMarker
from rollway.records import BatchHeader, ControlRecord, ControlType
from storage.disk.file_system import FileSystem
from storage.producers.known_producers import KnownProducers
from storage.producers.producer_entry import ProducerEntry, check_batch, check_marker
from storage.producers.producer_snapshot import ProducerSnapshots


class _Known(Protocol):
    """The base of a draft: the state, or another draft."""

    def find(self, producer_id: int) -> ProducerEntry | None: ...

    def find_open(self, first_offset: Offset) -> OpenTransaction | None: ...

    def open_transactions(self) -> Iterator[OpenTransaction]: ...


class ProducerDraft:
    """The state after some batches are written: requests and groups are written whole or not at all.

    A draft is based on the state or on another draft, which must not change until ``accept``.

    Thread: the partition's writer only.
    """

    def __init__(self, known: _Known) -> None:
        """Use ``draft``."""
        self._known = known
        self.changed: dict[int, ProducerEntry] = {}
        """The entries that differ from the base, in the order of their last change."""
        self.opened: dict[Offset, OpenTransaction] = {}
        """Transactions begun and not ended here, by rising first offset."""
        self.closed: set[Offset] = set()
        """First offsets of transactions that were open in the base and have ended here."""
        self.completed: list[CompletedTransaction] = []
        """Transactions that ended here, in the order of their markers."""

    def draft(self) -> ProducerDraft:
        """Make a draft based on this one, which does not change until ``accept``."""
        return ProducerDraft(self)

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self.changed.get(producer_id) or self._known.find(producer_id)

    def find_open(self, first_offset: Offset) -> OpenTransaction | None:
        """Return the open transaction that begins at ``first_offset``."""
        if first_offset in self.closed:
            return None
        return self.opened.get(first_offset) or self._known.find_open(first_offset)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Iterate over the open transactions, by rising first offset."""
        for transaction in self._known.open_transactions():
            if transaction.first.offset not in self.closed:
                yield transaction
        yield from self.opened.values()

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Check as ``ProducerState.check``, including the updates of this draft."""
        return check_batch(self.find(header.producer_id), header)

    def check_marker(self, marker: TransactionMarker) -> None:
        """Check as ``ProducerState.check_marker``, including the updates of this draft."""
        check_marker(self.find(marker.producer_id), marker)

    def update(
        self,
        header: BatchHeader,
        *,
        place: LogOffsetMetadata | None = None,
        control: ControlRecord | None = None,
    ) -> None:
        """Record a batch in this draft; see ``ProducerState.update``."""
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
        """Take over the updates of a draft that is based on this one."""
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

    The state is in memory. At start it is rebuilt from the newest valid snapshot and the batches after it.

    Idle time is counted on ``elapsed_ms``, the clock of elapsed time, so steps of the wall clock and timestamps of
    records never expire a producer. Loaded producers count as used at that moment, because a snapshot does not hold
    their idle times.

    Thread: only the partition's writer changes it. Any thread may take ``entries``.
    """

    __slots__ = (
        "_expiration_ms",
        "_open",
        "elapsed_ms",
        "known",
        "producer_count_max",
        "snapshots",
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
        """Make an empty state; ``load`` or ``update`` fills it."""
        self.snapshots = ProducerSnapshots(file_system, directory)
        """The files that keep this state over a restart."""
        self._expiration_ms = expiration_ms
        self.producer_count_max = producer_count_max
        self.elapsed_ms = elapsed_ms
        self.known = KnownProducers()
        # By rising first offset: a new transaction begins behind all earlier ones.
        self._open: OrderedDict[Offset, OpenTransaction] = OrderedDict()

    @property
    def entries(self) -> dict[int, ProducerEntry]:
        """A copy of the entries, by producer id. Thread: any."""
        return {entry.producer_id: entry for entry in self.known.entries()}

    def largest_id(self, *, below: int) -> int:
        """Return the largest producer id under ``below``, -1 for none. Thread: any."""
        return max((producer_id for producer_id in self.known.ids() if producer_id < below), default=-1)

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self.known)

    def find(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of one producer, if there is one. Thread: any."""
        return self.known.find(producer_id)

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the batch in the log that this one repeats, or ``None`` if it is new and may be appended.

        A batch without a producer is always new, and so is any batch of an unknown producer. A batch repeats one of the
        producer's last five batches if epoch, first and last sequence are equal. Otherwise it must follow the last one,
        0 following 2^31-1. A new epoch begins at sequence 0. Nothing changes here.

        Raises:
            ProducerFencedError: a newer epoch of this producer has written.
            OutOfOrderSequenceError: sequences are missing, overlap, or are older than the last five batches.
        """
        return check_batch(self.find(header.producer_id), header)

    def check_marker(self, marker: TransactionMarker) -> None:
        """Check that a marker may be written, even if it ends no transaction. Nothing changes here.

        Raises:
            ProducerFencedError: a newer epoch of this producer has written.
            CoordinatorFencedError: a newer coordinator has written a marker for this producer.
        """
        check_marker(self.find(marker.producer_id), marker)

    def find_open(self, first_offset: Offset) -> OpenTransaction | None:
        return self._open.get(first_offset)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Iterate over the open transactions, by rising first offset. Thread: the writer."""
        return iter(self._open.values())

    def place_first_open(self, first: LogOffsetMetadata) -> None:
        """Set the position of an open transaction of which only the offset was known."""
        transaction = self._open[first.offset]
        self._open[first.offset] = transaction._replace(first=first)

    def update(
        self,
        header: BatchHeader,
        *,
        place: LogOffsetMetadata | None = None,
        control: ControlRecord | None = None,
    ) -> list[CompletedTransaction]:
        """Record a batch of the log, by its stamped header, without another check: the log is the truth.

        A transactional batch opens a transaction at its base offset, at ``place``, unless one is open. A marker, whose
        record is ``control``, ends it. Return the ended transaction, if any, in a list.
        """
        draft = self.draft()
        draft.update(header, place=place, control=control)
        self.accept(draft)
        return draft.completed

    def draft(self) -> ProducerDraft:
        """Make a draft for checks and updates; the state does not change until ``accept``."""
        return ProducerDraft(self)

    def accept(self, draft: ProducerDraft) -> None:
        """Take over the updates of a draft, once its batches are written."""
        now_ms = self.elapsed_ms() if draft.changed else 0
        for entry in draft.changed.values():
            self.known.put(entry, now_ms)
        for first_offset in draft.closed:
            self._open.pop(first_offset, None)
        self._open.update(draft.opened)
        self.forget_above_limit()

    def forget_above_limit(self) -> None:
        """Forget the longest idle producers, except in an open transaction, while there are too many."""
        while len(self.known) > self.producer_count_max and self.known.forget_longest_unchanged():
            pass

    def expire(self) -> int:
        """Forget producers idle for ``expiration_ms``, except in an open transaction; return their number.

        A forgotten producer may continue with any sequence (spec E19).
        """
        return self.known.expire(self.elapsed_ms(), self._expiration_ms)

    def load(self, log_start: Offset, log_end: Offset, newest: Offset | None = None) -> Offset:
        """Restore the state from the newest valid snapshot in ``[log_start, log_end]``; at start and after truncation.

        With ``newest`` set, use no snapshot above that offset. See ``ProducerSnapshots.load_newest``.

        Return the offset of the snapshot; the caller replays the batches from there with ``update``. Without a snapshot
        return ``log_start``, with an empty state. ``log_start`` is the first offset whose batches are on disk: between
        a snapshot below it and ``log_start``, batches would be missing.
        """
        restored, records = self.snapshots.load_newest(log_start, log_end, newest)
        self.known, now_ms = KnownProducers(), self.elapsed_ms()
        for record in records:
            self.known.put(ProducerEntry.from_record(record), now_ms)
        self._open = _open_transactions_of(self.known)
        return restored

    def take_snapshot(self, offset: Offset) -> Path:
        """Write the state of everything below ``offset`` to a snapshot; see ``ProducerSnapshots.write``."""
        return self.snapshots.write(offset, [entry.to_record() for entry in self.known.entries()])

    def truncate_fully(self) -> None:
        """Forget all producers and delete all snapshots, durably, as the log restarts empty."""
        self.snapshots.delete_all()
        self.known = KnownProducers()
        self._open = OrderedDict()


def _open_transactions_of(known: KnownProducers) -> OrderedDict[Offset, OpenTransaction]:
    """Return the open transactions without positions, because a snapshot keeps only offsets."""
    found = sorted(
        (entry.current_txn_first_offset, entry.producer_id) for entry in known.entries() if entry.is_in_transaction
    )
    return OrderedDict(
        (offset, OpenTransaction(producer_id, LogOffsetMetadata(offset))) for offset, producer_id in found
    )
