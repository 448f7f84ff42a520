"""The aborted transactions whose markers are in one segment: its transaction index, opened at first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from log_model.errors import CorruptionError
from log_model.offsets import Offset
from log_model.transactions import AbortedTransaction
from storage.disk.file_names import TRANSACTION_INDEX_SUFFIX, offset_file_name
from storage.disk.file_system import FileSystem
from storage.index.lazy_index import LazyIndex
from storage.index.transaction_index import AbortedTransactions, TransactionIndex, write_transaction_index


class SegmentTransactions:
    """The transaction index of a segment. Without a file it is empty; the first entry makes one (spec C1).

    Thread: one writer, any number of readers, and a flush beside the writer.
    """

    __slots__ = ("_file_system", "index")

    def __init__(self, file_system: FileSystem, directory: Path, base_offset: Offset) -> None:
        self._file_system = file_system
        self.index: LazyIndex[TransactionIndex] = LazyIndex(
            partial(TransactionIndex.open, file_system, base_offset=base_offset),
            directory / offset_file_name(base_offset, TRANSACTION_INDEX_SUFFIX),
        )

    def add(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction, before readers see its marker (spec E22).

        Raises:
            OSError: the disk refused; ``undo`` removes the written part.
        """
        self.index.get().append(transaction)

    def undo(self, log_end: Offset) -> None:
        """Remove the entries of failed appends; ``log_end`` is the log end before them.

        Raises:
            OSError: the disk also refused this.
        """
        if self.index.is_open:
            self.index.get().undo_append(log_end)

    def flush(self) -> None:
        """Make the added entries durable."""
        if self.index.is_open:
            self.index.get().flush()

    @property
    def are_known_to_be_none(self) -> bool:
        """Whether the index is open and empty, so that no transaction was aborted here. Needs no disk access."""
        return self.index.is_open and not self.index.get().entry_count

    def collect(self, fetch_offset: Offset, upper_bound: Offset) -> AbortedTransactions:
        """Return the transactions that overlap ``[fetch_offset, upper_bound)`` (spec E23).

        Raises:
            CorruptionError: the topic was deleted, and the index with it, before its first use.
        """
        try:
            index = self.index.get()
        except FileNotFoundError as error:
            raise CorruptionError(f"{self.index.path} is gone: how its transactions ended is unknown") from error
        return index.collect_aborted(fetch_offset, upper_bound)

    def checked_content(self, end: Offset) -> bytes:
        """Return the index of a segment that ends below ``end``, as bytes, without leaving it open.

        Raises:
            CorruptionError: it is no such index, or has markers that are not in this segment.
        """

        def check(index: TransactionIndex) -> bytes:
            index.sanity_check()
            if index.last_entry is not None and index.last_entry.last_offset >= end:
                raise CorruptionError(f"{index.path}: {index.last_entry} lies beyond the segment's end {end}")
            return index.content()

        return self.index.ask(check)

    def content(self) -> bytes:
        """Return the index as bytes, without leaving it open."""
        return self.index.ask(TransactionIndex.content)

    def entries(self) -> list[AbortedTransaction]:
        """Return the transactions in the index, without leaving it open."""
        return self.index.ask(lambda index: list(index.entries()))

    def replace(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Rebuild the index with these transactions; call before the first read. Durable: on return."""
        write_transaction_index(self._file_system, self.index.path, transactions)
