"""Records as JSON text, in plain Python: documents of ``record_documents``, encoded by msgspec."""

from __future__ import annotations

from typing import NamedTuple, cast

import msgspec
import numpy as np

from app.record_json.record_documents import (
    RecordDocument,
    encode_document,
    encode_lines,
    header_documents,
    header_encoding,
    record_documents,
    shown_bytes,
)
from app.record_json.translate import Encoding
from rollway.records import BinaryColumn, HeaderColumns, RecordColumns

IN_LIST = b","
"""The separator of two records of a JSON array."""

IN_LINES = b"\n"
"""The separator of two records of NDJSON."""

RecordText = RecordDocument | msgspec.Raw
"""A record to encode, or the text of one or more records."""

_HEADERS_AT_A_TIME = 16 * 1024
_FRAME_BYTES = 200
"""The most bytes around a record's key, value and headers."""
_HEADER_FRAME_BYTES = 45
_HEADER_FRAME_BYTES_MIN = 22
_ESCAPED_BYTES_MAX = 6
_WRITTEN_BYTES_MAX = 4096
# Two quotes, and the suffix of the member's name.
_BASE64_FRAME_BYTES = 9


class BoundedTexts(NamedTuple):
    """The texts of the first ``record_count`` records. If there is a next one, it takes about ``missing_bytes``."""

    documents: list[RecordText]
    record_count: int
    size_bytes: int
    missing_bytes: int


def record_texts(
    columns: RecordColumns, *, encoding: Encoding, timestamp_type: str, partition: int
) -> list[RecordText]:
    """Return one document for each record."""
    documents = record_documents(columns, encoding=encoding, timestamp_type=timestamp_type, partition=partition)
    return cast("list[RecordText]", documents)


def bounded_texts(
    columns: RecordColumns,
    *,
    encoding: Encoding,
    timestamp_type: str,
    partition: int,
    between: bytes | None,
    bytes_max: int,
) -> BoundedTexts:
    """Return as many of the first records as ``record_texts.bounded_texts``.

    Raises:
        TooManyValuesError: as there.
    """
    if _bytes_at_most(columns) <= bytes_max:
        documents = record_documents(columns, encoding=encoding, timestamp_type=timestamp_type, partition=partition)
        if between is None:
            return BoundedTexts(cast("list[RecordText]", documents), len(columns), _bytes_at_most(columns), 0)
        joined = encode_document(documents)[1:-1] if between == IN_LIST else encode_lines(documents)[:-1]
        return BoundedTexts([msgspec.Raw(joined)], len(columns), len(joined), 0)
    return _one_by_one(columns, encoding, timestamp_type, partition, between, bytes_max)


def _bytes_at_most(columns: RecordColumns) -> int:
    content_bytes = columns.keys.size_bytes + columns.values.size_bytes
    size = _FRAME_BYTES * len(columns) + _ESCAPED_BYTES_MAX * content_bytes
    headers = columns.headers
    if headers is None:
        return size
    content_bytes = headers.names.size_bytes + headers.values.size_bytes
    return size + _HEADER_FRAME_BYTES * len(headers.names) + _ESCAPED_BYTES_MAX * content_bytes


def _one_by_one(
    columns: RecordColumns,
    encoding: Encoding,
    timestamp_type: str,
    partition: int,
    between: bytes | None,
    bytes_max: int,
) -> BoundedTexts:
    found: list[RecordText] = []
    size = 0
    for place in range(len(columns)):
        one = columns.slice(place, place + 1)
        missing_bytes = _shown_bytes(one, encoding, bytes_max - size)
        if missing_bytes > bytes_max - size:
            return BoundedTexts(found, place, size, missing_bytes)
        text = _record_text(one, encoding, timestamp_type, partition)
        if len(text) > bytes_max - size:
            return BoundedTexts(found, place, size, len(text))
        size += len(text) + 1
        if between is not None:
            found.append(msgspec.Raw(text))
        else:
            (document,) = record_documents(one, encoding=encoding, timestamp_type=timestamp_type, partition=partition)
            found.append(document)
    return BoundedTexts(found, len(columns), size, 0)


def _shown_bytes(one: RecordColumns, encoding: Encoding, bytes_max: int) -> int:
    """Return about how long a record's text is.

    Above ``bytes_max`` the number may be too low, but not below the limit.
    """
    least = one.keys.size_bytes + one.values.size_bytes
    headers = one.headers
    if headers is not None:
        least += _HEADER_FRAME_BYTES_MIN * len(headers.names) + headers.names.size_bytes + headers.values.size_bytes
    if least > bytes_max:
        return least
    size = shown_bytes(one.keys[0], encoding) + shown_bytes(one.values[0], encoding)
    if headers is not None:
        size += _HEADER_FRAME_BYTES * len(headers.names)
        size += _all_shown_bytes(headers.names, "utf8") + _all_shown_bytes(headers.values, header_encoding(encoding))
    return size


def _all_shown_bytes(column: BinaryColumn, encoding: Encoding) -> int:
    """Return the sum of ``shown_bytes`` of each element. An element that is no text makes no other one base64."""
    if encoding == "base64":
        return int(((np.diff(column.offsets) + 2) // 3 * 4 + _BASE64_FRAME_BYTES).sum())
    size = 0
    for first in range(0, len(column), _HEADERS_AT_A_TIME):
        last = min(first + _HEADERS_AT_A_TIME, len(column))
        size += sum(map(_small_shown_bytes, column.slice(first, last).to_list()))
    return size


def _small_shown_bytes(data: bytes | None) -> int:
    """Return ``shown_bytes`` with ``utf8``. Small data are encoded, which is quicker than measuring them."""
    if data is None or len(data) > _WRITTEN_BYTES_MAX:
        return shown_bytes(data, "utf8")
    try:
        return len(encode_document(data.decode()))
    except UnicodeDecodeError:
        return shown_bytes(data, "base64")


def _record_text(one: RecordColumns, encoding: Encoding, timestamp_type: str, partition: int) -> bytes:
    """Return a record's text. With very many headers, only some of them are objects at the same time."""
    headers = one.headers
    if headers is None or len(headers.names) <= _HEADERS_AT_A_TIME:
        (document,) = record_documents(one, encoding=encoding, timestamp_type=timestamp_type, partition=partition)
        return encode_document(document)
    bare = RecordColumns(one.offsets, one.timestamps, one.keys, one.values)
    text = _record_text(bare, encoding, timestamp_type, partition)
    end = b'],"partition":%d}' % partition
    pieces = []
    for first in range(0, len(headers.names), _HEADERS_AT_A_TIME):
        last = min(first + _HEADERS_AT_A_TIME, len(headers.names))
        count = np.array([last - first], dtype=np.int64)
        some = HeaderColumns(count, headers.names.slice(first, last), headers.values.slice(first, last))
        pieces.append(encode_document(header_documents(some, encoding)[0])[1:-1])
    return b"".join((text.removesuffix(end), b",".join(pieces), end))
