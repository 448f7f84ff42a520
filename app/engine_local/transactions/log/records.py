"""The records of ``__transaction_state``, as Kafka writes them: keys of version 0, values of version 1.

All integers are big-endian. A key is its version and a string: its length as int16, and UTF-8. In values of version 1
lengths are unsigned varints, one more than the length, and 0 for null::

    key    version              int16    0
           transactionalId      string
    value  version              int16    1
           producerId           int64
           producerEpoch        int16
           timeoutMs            int32
           status               int8     see ``TransactionState``
           partitions           array    of topic string, partitions array of int32, no tagged fields; null for Empty
           lastUpdateTimestamp  int64
           startTimestamp       int64    -1 before the first transaction
           tagged fields                 their number; then of each tag, size (both varints) and content
             0 previousProducerId        int64, -1 when absent
             1 nextProducerId            int64, -1 when absent
             2 clientTransactionVersion  int16, 0 when absent

Values of version 0 are also read: earlier revisions wrote them. They have no tagged fields, and lengths as in keys; the
length of an array is an int32, -1 for null. Tagged fields that are not listed here are skipped, as Kafka does.

The last record of a key counts. A null value says that the transactional id was forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import groupby

from app.engine.transactions import NO_PRODUCER_ID, Transaction, TransactionState
from log_model.errors import CorruptionError
from log_model.names import PartitionName

_KEY_VERSION = 0
_FIXED, _FLEXIBLE = 0, 1
"""Versions of values: with lengths of fixed size, and with varints and tagged fields."""
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_TRANSACTION_VERSION = 0, 1, 2
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_VARINT_BITS_MAX = 28


def encode_key(transactional_id: str) -> bytes:
    """Return the key of an id's records."""
    name = transactional_id.encode()
    return _SHORT.pack(_KEY_VERSION) + _SHORT.pack(len(name)) + name


def encode_value(transaction: Transaction) -> bytes:
    """Return the value with the whole content of ``transaction``."""
    head = _HEAD.pack(
        _FLEXIBLE, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, transaction.state
    )
    parts = [head]
    if transaction.state is TransactionState.EMPTY:
        parts.append(_varint(0))
    else:
        topics = [
            (topic.encode(), [name.partition for name in names])
            for topic, names in groupby(sorted(transaction.partitions), key=lambda name: name.topic)
        ]
        parts.append(_varint(len(topics) + 1))
        for topic, numbers in topics:
            parts += (_varint(len(topic) + 1), topic)
            parts += (_varint(len(numbers) + 1), struct.pack(f">{len(numbers)}i", *numbers), _varint(0))
    parts.append(_TIMES.pack(transaction.updated_ms, transaction.start_ms))
    tagged = _tagged_fields(transaction)
    parts.append(_varint(len(tagged)))
    for tag, content in tagged.items():
        parts += (_varint(tag), _varint(len(content)), content)
    return b"".join(parts)


def _tagged_fields(transaction: Transaction) -> dict[int, bytes]:
    fields = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        fields[_PREVIOUS_PRODUCER_ID] = _LONG.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        fields[_NEXT_PRODUCER_ID] = _LONG.pack(transaction.next_producer_id)
    if transaction.version != 0:
        fields[_CLIENT_TRANSACTION_VERSION] = _SHORT.pack(transaction.version)
    return fields


def _varint(number: int) -> bytes:
    content = bytearray()
    while number >= 0x80:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)


def decode_key(key: bytes | None) -> str:
    """Return the transactional id of a record.

    Raises:
        CorruptionError: this is no key of this topic.
    """
    try:
        if key is None:
            raise ValueError("there is none")
        reader = _Reader(key, _FIXED)
        (version,) = reader.take(_SHORT)
        if version != _KEY_VERSION:
            raise ValueError(f"version {version} is not {_KEY_VERSION}")
        name = reader.string()
        reader.expect_end()
    except (ValueError, struct.error) as error:
        raise CorruptionError(f"a record of __transaction_state has a damaged key: {error}") from error
    return name


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Return the transaction that ``encode_value``, or an earlier revision, made this value of.

    Raises:
        CorruptionError: this is no value of this topic.
    """
    try:
        (version,) = _SHORT.unpack_from(value)
        if version not in (_FIXED, _FLEXIBLE):
            raise ValueError(f"version {version} is neither {_FIXED} nor {_FLEXIBLE}")
        reader = _Reader(value, version)
        _, producer_id, producer_epoch, timeout_ms, status = reader.take(_HEAD)
        names = []
        for _ in range(reader.count()):
            topic = reader.string()
            names += [PartitionName(topic, reader.take(_INT)[0]) for _ in range(reader.count())]
            reader.tagged_fields()
        updated_ms, start_ms = reader.take(_TIMES)
        fields = reader.tagged_fields()
        reader.expect_end()
        state = TransactionState(status)
        return Transaction(
            transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            state,
            frozenset(names),
            start_ms,
            updated_ms,
            version=_number(fields, _CLIENT_TRANSACTION_VERSION, _SHORT, 0),
            previous_producer_id=_number(fields, _PREVIOUS_PRODUCER_ID, _LONG, NO_PRODUCER_ID),
            next_producer_id=_number(fields, _NEXT_PRODUCER_ID, _LONG, NO_PRODUCER_ID),
        )
    except (ValueError, struct.error) as error:
        raise CorruptionError(
            f"a record of __transaction_state for {transactional_id!r} is damaged: {error}"
        ) from error


def _number(fields: Mapping[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    content = fields.get(tag)
    if content is None:
        return default
    (number,) = layout.unpack(content)
    return int(number)


class _Reader:
    def __init__(self, content: bytes, version: int) -> None:
        self._content = content
        self._is_flexible = version == _FLEXIBLE
        self._position = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        found = layout.unpack_from(self._content, self._position)
        self._position += layout.size
        return found

    def count(self) -> int:
        """Read the length of an array. A null array has length 0."""
        count = self._varint() - 1 if self._is_flexible else self.take(_INT)[0]
        if count > len(self._content) - self._position:
            raise ValueError(f"an array of {count} items does not fit")
        return count

    def string(self) -> str:
        length = self._varint() - 1 if self._is_flexible else self.take(_SHORT)[0]
        return self._bytes(length).decode()

    def tagged_fields(self) -> dict[int, bytes]:
        """Read the content of each tagged field by its tag. Values of version 0 have none."""
        if not self._is_flexible:
            return {}
        fields: dict[int, bytes] = {}
        last = -1
        for _ in range(self._varint()):
            tag = self._varint()
            if tag <= last:
                raise ValueError(f"tag {tag} comes after tag {last}")
            fields[tag] = self._bytes(self._varint())
            last = tag
        return fields

    def expect_end(self) -> None:
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes are left over")

    def _bytes(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._content):
            raise ValueError(f"{length} bytes do not fit")
        content = self._content[self._position : end]
        self._position = end
        return content

    def _varint(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self._bytes(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > _VARINT_BITS_MAX:
                raise ValueError("a length has too many digits")
