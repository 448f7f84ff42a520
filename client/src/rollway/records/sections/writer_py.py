"""Record sections written by plain Python: one record after the other, one field after the other.

``writer`` says what these functions promise. The layout of a section is in ``reader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

from rollway.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from rollway.records.columns import HeaderColumns, RecordColumns, name_to_bytes
from rollway.records.sections.varint import encode_varlong

SECTION_BYTES_MAX = 2**31 - 1 - (HEADER_BYTES - LOG_OVERHEAD_BYTES)
"""The bytes that ``batchLength``, an int32, leaves for records."""

_ATTRIBUTES = b"\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"

# Records of columns that become objects at the same time.
_BLOCK_COUNT = 4096

_varint = lru_cache(16 * 1024)(encode_varlong)


def write_section(columns: RecordColumns) -> bytes:
    """Write all records, offset deltas from 0.

    Raises:
        ValueError: they take more than ``SECTION_BYTES_MAX``.
    """
    return _joined(_encoded(columns))


def write_lists(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    header_blocks: Sequence[bytes] | None,
) -> bytes:
    """Write the records of these lists, offset deltas from 0.

    Raises:
        ValueError: as ``write_section``.
    """
    blocks = [_NO_HEADERS] * len(values) if header_blocks is None else header_blocks
    rows = zip(timestamps, keys, values, blocks, strict=True)
    return _joined(_encode_record(place, timestamps[0], *row) for place, row in enumerate(rows))


def fit_records(columns: RecordColumns, bytes_max: int) -> int:
    """Return how many of the records a section of at most ``bytes_max`` holds."""
    size_bytes = 0
    for count, record in enumerate(_encoded(columns)):
        size_bytes += len(record)
        if size_bytes > bytes_max:
            return count
    return len(columns)


def encode_headers(headers: Sequence[tuple[str | bytes, bytes | None]]) -> bytes:
    """Return the headers of a record as they end it, their number in front.

    Raises:
        UnicodeEncodeError: a name has a lone surrogate that stands for no byte.
    """
    if not headers:
        return _NO_HEADERS
    parts = [_varint(len(headers))]
    for name, value in headers:
        encoded = name if isinstance(name, bytes) else name_to_bytes(name)
        parts += (_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (_varint(len(value)), value)
    return b"".join(parts)


def too_large() -> ValueError:
    """Return the error of records that do not fit into one batch."""
    return ValueError(f"a batch holds at most {SECTION_BYTES_MAX} bytes of records; use encode_batches")


def _joined(records: Iterable[bytes]) -> bytes:
    section = bytearray()
    for record in records:
        section += record
        if len(section) > SECTION_BYTES_MAX:
            raise too_large()
    return bytes(section)


def _encoded(columns: RecordColumns) -> Iterator[bytes]:
    first_timestamp = int(columns.timestamps[0])
    for start in range(0, len(columns), _BLOCK_COUNT):
        block = columns.slice(start, min(start + _BLOCK_COUNT, len(columns)))
        rows = zip(
            block.timestamps.tolist(),
            block.keys.to_list(),
            block.values.to_list(),
            _header_blocks(block.headers, len(block)),
            strict=True,
        )
        for place, row in enumerate(rows, start):
            yield _encode_record(place, first_timestamp, *row)


def _header_blocks(headers: HeaderColumns | None, record_count: int) -> Iterable[bytes]:
    if headers is None:
        return [_NO_HEADERS] * record_count
    pairs = zip((name or b"" for name in headers.names.to_list()), headers.values.to_list(), strict=True)
    return [encode_headers(list(islice(pairs, count))) for count in headers.counts.tolist()]


def _encode_record(
    place: int, first_timestamp: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes
) -> bytes:
    delta = timestamp - first_timestamp
    if not -(2**63) <= delta < 2**63:
        # Wraps around, as a long of Java does.
        delta = (delta + 2**63) % 2**64 - 2**63
    body = b"".join((_ATTRIBUTES, _varint(delta), _varint(place), *_sized(key), *_sized(value), headers))
    return _varint(len(body)) + body


def _sized(content: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if content is None else (_varint(len(content)), content)
