"""The transactional ids of producers, read from the log of transactions of a data directory without a service."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from log_model.names import PartitionName
from rollway.records import RecordFormatError, decode_batch, split_batches
from storage.disk.file_names import LOG_SUFFIX
from storage.disk.file_system import LocalFileSystem
from storage.log_export import OpenTransaction, end_as_hanging
from storage.log_inspection import StoredFileError, read_batches

_DIRECTORY = "__transaction_state-0"
_KEY_HEAD = struct.Struct(">hh")
_VALUE_HEAD = struct.Struct(">hqhib")
"""Version, producer id, producer epoch, timeout and state: the same in both versions of Kafka's values."""
_ENDING_STATES = frozenset({2, 3})
"""The transaction is being committed or aborted, and the next start finishes it."""


class NamedTransaction(NamedTuple):
    """The last record of a transactional id."""

    transactional_id: str
    producer_id: int
    state: int


class TransactionNames:
    """Finds the commands that end open transactions of a data directory, which it reads at the first call."""

    def __init__(self, data_directory: Path) -> None:
        self._directory = data_directory / "logs" / _DIRECTORY
        self._by_producer: dict[int, NamedTransaction] | None = None

    def how_to_end(self, name: PartitionName, opened: OpenTransaction) -> str:
        """Return the commands that end a transaction: by its name, or by its place if no name is known."""
        if self._by_producer is None:
            self._by_producer = _read(self._directory)
        transaction = self._by_producer.get(opened.producer_id)
        if transaction is None:
            return end_as_hanging(name, opened)
        if transaction.state in _ENDING_STATES:
            return "start Rollway, wait until `rollway transactions list` is empty, stop Rollway"
        return f"start Rollway; rollway transactions abort {quote(transaction.transactional_id)}; stop Rollway"


def _read(directory: Path) -> dict[int, NamedTransaction]:
    """Return the last record of each transactional id, by its producer. Damage ends the list, which only helps."""
    found: dict[str, NamedTransaction] = {}
    with contextlib.suppress(OSError, StoredFileError, RecordFormatError, struct.error, UnicodeDecodeError):
        for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
            with contextlib.closing(LocalFileSystem().open(path, writable=False)) as file:
                for stored in read_batches(file, file.size()):
                    (batch,) = split_batches(file.read(stored.position, stored.size_bytes))
                    columns = decode_batch(batch)
                    for key, value in zip(columns.keys.to_list(), columns.values.to_list(), strict=True):
                        _take(found, key or b"", value)
    return {transaction.producer_id: transaction for transaction in found.values()}


def _take(found: dict[str, NamedTransaction], key: bytes, value: bytes | None) -> None:
    _, length = _KEY_HEAD.unpack_from(key)
    name = key[_KEY_HEAD.size : _KEY_HEAD.size + length].decode()
    if value is None:
        found.pop(name, None)
        return
    _, producer_id, _, _, state = _VALUE_HEAD.unpack_from(value)
    found[name] = NamedTransaction(name, producer_id, state)
