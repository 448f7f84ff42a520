"""The records of ``__transaction_state``, as Kafka writes them: keys and values of version 0.

All integers are big-endian, a string is its length as int16 and UTF-8, an array its length as int32 and its items::

    key    version              int16    0
           transactionalId      string
    value  version              int16    0
           producerId           int64
           producerEpoch        int16
           timeoutMs            int32
           status               int8     see ``TransactionState``
           partitions           array    of topic string, partitions array of int32; length -1 for Empty
           lastUpdateTimestamp  int64
           startTimestamp       int64    -1 before the first transaction

The last record of a key counts; a null value says that the transactional id was forgotten.
"""

from __future__ import annotations

import struct
from itertools import groupby

from app.transactions.state import Transaction, TransactionState
from storage.errors import CorruptionError
from storage.file_names import PartitionName

_VERSION = 0
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")


def encode_key(transactional_id: str) -> bytes:
    """The key of an id's records."""
    return _SHORT.pack(_VERSION) + _string(transactional_id)


def encode_value(transaction: Transaction) -> bytes:
    """The value that says all of ``transaction``."""
    head = _HEAD.pack(
        _VERSION, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, transaction.state
    )
    parts = [head]
    if transaction.state is TransactionState.EMPTY:
        parts.append(_INT.pack(-1))
    else:
        topics = [
            (topic, [name.partition for name in names])
            for topic, names in groupby(sorted(transaction.partitions), key=lambda name: name.topic)
        ]
        parts.append(_INT.pack(len(topics)))
        for topic, numbers in topics:
            parts += (_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_TIMES.pack(transaction.updated_ms, transaction.start_ms))
    return b"".join(parts)


def _string(text: str) -> bytes:
    content = text.encode()
    return _SHORT.pack(len(content)) + content


def decode_key(key: bytes | None) -> str:
    """The transactional id of a record.

    Raises:
        CorruptionError: it is no key of ours.
    """
    try:
        if key is None:
            raise ValueError("there is none")
        reader = _Reader(key)
        reader.expect_version()
        name = reader.string()
        reader.expect_end()
    except (ValueError, struct.error) as error:
        raise CorruptionError(f"a record of __transaction_state has a damaged key: {error}") from error
    return name


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """What ``encode_value`` made this of.

    Raises:
        CorruptionError: it is no value of ours.
    """
    try:
        reader = _Reader(value)
        reader.expect_version()
        reader.position = 0
        _, producer_id, producer_epoch, timeout_ms, status = reader.take(_HEAD)
        names = []
        for _ in range(reader.count()):
            topic = reader.string()
            names += [PartitionName(topic, reader.take(_INT)[0]) for _ in range(reader.count())]
        updated_ms, start_ms = reader.take(_TIMES)
        reader.expect_end()
        state = TransactionState(status)
    except (ValueError, struct.error) as error:
        raise CorruptionError(
            f"a record of __transaction_state for {transactional_id!r} is damaged: {error}"
        ) from error
    return Transaction(
        transactional_id, producer_id, producer_epoch, timeout_ms, state, frozenset(names), start_ms, updated_ms
    )


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._content, self.position)
        self.position += layout.size
        return found

    def count(self) -> int:
        """The length of an array; a null one has no items."""
        (count,) = self.take(_INT)
        if count > len(self._content) - self.position:
            raise ValueError(f"an array of {count} items does not fit")
        return count

    def string(self) -> str:
        (length,) = self.take(_SHORT)
        end = self.position + length
        if length < 0 or end > len(self._content):
            raise ValueError(f"a text of {length} bytes does not fit")
        text = self._content[self.position : end].decode()
        self.position = end
        return text

    def expect_version(self) -> None:
        (version,) = self.take(_SHORT)
        if version != _VERSION:
            raise ValueError(f"version {version} is not {_VERSION}")

    def expect_end(self) -> None:
        if self.position != len(self._content):
            raise ValueError(f"{len(self._content) - self.position} bytes are left over")
