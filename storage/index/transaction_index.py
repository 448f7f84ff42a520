"""The aborted transactions of a segment, for readers that must not see their records."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from log_model.offsets import Offset
from log_model.transactions import AbortedTransaction
from storage.disk.file_system import File, FileSystem
from storage.disk.whole_files import read_file, write_file_atomically
from storage.index.index_file import CorruptIndexError, InvalidEntryError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_ENTRIES_PER_READ = 512


class AbortedTransactions(NamedTuple):
    """The result of ``collect_aborted``. ``is_complete``: no later segment can add to it."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The transactions that a marker in this segment aborted (spec C1, E22, E23).

    File: ``<base offset in 20 digits>.txnindex``, made with the first entry, entries of 34 bytes, big-endian, last
    offsets strictly rising:

        version             i16   0
        producer id         i64
        first offset        i64   of the transaction, maybe in an earlier segment
        last offset         i64   of its abort marker, in this segment
        last stable offset  i64   after the marker

    Nothing is preallocated or kept in memory: few segments have such an index, and it has few entries.

    Thread: only the partition's writer changes it; any thread may read meanwhile.
    Durable: after ``flush``.
    """

    ENTRY = _ENTRY
    ENTRY_BYTES = _ENTRY.size

    def __init__(self, file_system: FileSystem, path: Path, base_offset: Offset) -> None:
        """Use ``open``."""
        self.path = path
        self.base_offset = base_offset
        self.entry_count = 0
        self.last_entry: AbortedTransaction | None = None
        self._file_system = file_system
        self._file: File | None = None
        self._odd_bytes = 0
        self._name_is_durable = True
        self._changes = 0
        self._durable_changes = 0

    @classmethod
    def open(cls, file_system: FileSystem, path: Path, base_offset: Offset, *, writable: bool = True) -> Self:
        """Open the index of the segment with this base offset; without a file it is empty.

        All whole entries count as valid; see ``sanity_check``.

        Raises:
            FileNotFoundError: the directory is gone, so it is unknown whether there was a file.
        """
        index = cls(file_system, path, base_offset)
        if file_system.exists(path):
            index._attach(file_system.open(path, writable=writable))
        elif not file_system.is_directory(path.parent):
            raise FileNotFoundError(errno.ENOENT, "its directory is gone", str(path))
        return index

    def _attach(self, file: File) -> None:
        self._file = file
        self.entry_count, self._odd_bytes = divmod(file.size(), self.ENTRY_BYTES)
        self._remember_last()

    def _remember_last(self) -> None:
        last = next(self._entries_from(self.entry_count - 1), None) if self.entry_count else None
        self.last_entry = None if last is None else last[1]

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction, before the last stable offset moves past it.

        Raises:
            InvalidEntryError: its last offset is not above the last entry's, or is below the segment.
            OSError: the disk refused; the index is as before once ``undo_append`` was called.
        """
        last = self.last_entry
        if transaction.last_offset < self.base_offset or (
            last is not None and transaction.last_offset <= last.last_offset
        ):
            raise InvalidEntryError(f"{self.path}: {transaction} cannot follow {last}")
        if self._file is None:
            self._name_is_durable = False
            self._file = self._file_system.open(self.path, create=True)
        self._changes += 1
        self._file.write(self.entry_count * self.ENTRY_BYTES, [_ENTRY.pack(_VERSION, *transaction)])
        self.last_entry = transaction
        self.entry_count += 1

    def undo_append(self, log_end: Offset) -> None:
        """Remove the entries of a failed append, including a partial one; ``log_end`` is the log end before it.

        A file without remaining entries is deleted.

        Raises:
            OSError: the disk also refused this.
        """
        self.truncate_to(log_end)
        if self._file is None:
            return
        if self.entry_count == 0:
            self.delete()
        elif self._file.size() > self.entry_count * self.ENTRY_BYTES:
            self._cut(self.entry_count)

    def entries(self) -> Iterator[AbortedTransaction]:
        """Iterate over the entries that exist when the first is taken, in order."""
        return (transaction for _version, transaction in self._entries_from(0))

    def content(self) -> bytes:
        """Return all whole entries, as in the file."""
        return b"" if self._file is None else self._file.read(0, self.entry_count * self.ENTRY_BYTES)

    def collect_aborted(self, fetch_offset: Offset, upper_bound: Offset) -> AbortedTransactions:
        """Return the transactions that overlap ``[fetch_offset, upper_bound)``, in the order of their markers.

        The result is complete if an entry's last stable offset reaches ``upper_bound``; otherwise the following
        segments may have more (spec E23).
        """
        found: list[AbortedTransaction] = []
        # Earlier entries end below ``fetch_offset``, so their last stable offsets do not reach ``upper_bound``.
        for _version, transaction in self._entries_from(self._slot_of(fetch_offset)):
            if transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return AbortedTransactions(found, is_complete=True)
        return AbortedTransactions(found, is_complete=False)

    def _slot_of(self, offset: Offset) -> int:
        """Return the first slot whose last offset is not below ``offset``; last offsets rise."""
        file, low, high = self._file, 0, self.entry_count
        while file is not None and low < high:
            middle = (low + high) // 2
            piece = file.read(middle * self.ENTRY_BYTES, self.ENTRY_BYTES)
            # Shorter if it was truncated meanwhile.
            if len(piece) == self.ENTRY_BYTES and _ENTRY.unpack(piece)[3] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate_to(self, offset: Offset) -> None:
        """Remove the transactions whose last offset is at or above ``offset``."""
        kept = 0
        for transaction in self.entries():
            if transaction.last_offset >= offset:
                break
            kept += 1
        if kept < self.entry_count:
            self._cut(kept)

    def truncate_fully(self) -> None:
        """Remove all transactions."""
        self._cut(0)

    def _cut(self, entry_count: int) -> None:
        self.entry_count = entry_count
        self._changes += 1
        if self._file is not None:
            self._file.truncate(entry_count * self.ENTRY_BYTES)
            self._odd_bytes = 0
        self._remember_last()

    def flush(self) -> None:
        """Return when the entries, and the file's name, would survive a power cut. May run during an append; it covers
        the entries that existed when it began."""
        changes, file = self._changes, self._file
        if file is None or changes == self._durable_changes:
            return
        name_is_durable = self._name_is_durable
        file.sync()
        if not name_is_durable:
            self._file_system.sync_directory(self.path.parent)
            self._name_is_durable = True
        self._durable_changes = changes

    def sanity_check(self) -> None:
        """Check every entry.

        Raises:
            CorruptIndexError: bytes behind the last entry, an unknown version, or offsets out of order.
        """
        if self._odd_bytes:
            raise CorruptIndexError(f"{self.path}: {self._odd_bytes} bytes behind the last whole entry")
        last_offset = self.base_offset - 1
        for slot, (version, transaction) in enumerate(self._entries_from(0)):
            place = f"{self.path}: entry {slot} at byte {slot * self.ENTRY_BYTES}"
            if version != _VERSION:
                raise CorruptIndexError(f"{place}: version {version} is unknown")
            if transaction.last_offset <= last_offset or transaction.first_offset > transaction.last_offset:
                raise CorruptIndexError(f"{place}: {transaction} is out of order")
            last_offset = transaction.last_offset

    def moved(self, path: Path) -> None:
        """Record that the file was renamed to ``path``, or would have been if there were one."""
        self.path = path

    def delete(self) -> None:
        """Unlink the file if there is one. Readers that have started continue."""
        if self._file_system.exists(self.path):
            self._file_system.unlink(self.path)
        self._file = None

    def close(self) -> None:
        """Close the file, without a flush."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self.entry_count = 0
            self.last_entry = None

    def _entries_from(self, slot: int) -> Iterator[tuple[int, AbortedTransaction]]:
        count = self.entry_count
        file = self._file
        while file is not None and slot < count:
            wanted = min(count - slot, _ENTRIES_PER_READ)
            piece = file.read(slot * self.ENTRY_BYTES, wanted * self.ENTRY_BYTES)
            whole = len(piece) // self.ENTRY_BYTES
            for version, producer_id, first, last, last_stable in _ENTRY.iter_unpack(piece[: whole * _ENTRY.size]):
                yield version, AbortedTransaction(producer_id, Offset(first), Offset(last), Offset(last_stable))
            if whole < wanted:
                return  # truncated meanwhile
            slot += whole


def write_transaction_index(file_system: FileSystem, path: Path, transactions: Sequence[AbortedTransaction]) -> None:
    """Replace an index by one of these transactions; without transactions there is no file. Durable: on return.

    Raises:
        OSError: the disk refused. Not raised if the file already has this content, as it may on a full or read-only
            disk.
    """
    content = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in transactions)
    if not content:
        if file_system.exists(path):
            file_system.unlink(path)
            file_system.sync_directory(path.parent)
        return
    try:
        write_file_atomically(file_system, path, content)
    except OSError:
        if not file_system.exists(path) or read_file(file_system, path, len(content)) != content:
            raise
