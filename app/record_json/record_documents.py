"""Records of responses, from columns to JSON: prebuilt msgspec coders, no pydantic.

The pydantic models in ``schemas.records`` describe the same documents. A test checks that both give the same results.
All functions are synchronous and stateless: the event loop calls them for small responses, a thread for large ones.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from app.record_json.json_values import UNCOUNTED_BYTES, VALUES_MAX, count_values
from app.record_json.translate import Encoding
from rollway.records import BinaryColumn, HeaderColumns, RecordColumns
from rollway.records.columns import ByteArray


class RecordDocument(msgspec.Struct, gc=False):
    """One record of a response; see ``schemas.records.FetchedRecord``."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: Any
    key_base64: bytes | UnsetType | None
    value: Any
    value_base64: bytes | UnsetType | None
    headers: list[Any]
    partition: int


class _HeaderDocument(msgspec.Struct, gc=False):
    name: str | UnsetType
    name_base64: bytes | UnsetType
    value: str | UnsetType | None
    value_base64: bytes | UnsetType | None


class _TextHeaderDocument(msgspec.Struct, gc=False):
    name: str
    value: str | None


class FetchDocument(msgspec.Struct, gc=False):
    """The response to a fetch in JSON; see ``schemas.records.FetchResult``."""

    records: list[RecordDocument | msgspec.Raw]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int


_ENCODER = msgspec.json.Encoder()


def encode_document(document: object) -> bytes:
    """Return structs, dicts, lists and plain values as JSON text. Bytes become base64 text."""
    return _ENCODER.encode(document)


def encode_lines(documents: Iterable[object]) -> bytes:
    """Return one JSON text per line."""
    return _ENCODER.encode_lines(list(documents))


def record_documents(
    columns: RecordColumns, *, encoding: Encoding, timestamp_type: str, partition: int
) -> list[RecordDocument]:
    """Return these records as JSON shows them. Bytes that are no text (no JSON, with ``encoding=json``) become base64.

    One member of each pair is set, such as ``key`` or ``key_base64``. The other one is unset.
    """
    return list(
        map(
            RecordDocument,
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            repeat(timestamp_type),
            *_all_from_bytes(columns.keys, encoding),
            *_all_from_bytes(columns.values, encoding),
            repeat([]) if columns.headers is None else header_documents(columns.headers, encoding),
            repeat(partition),
        )
    )


def header_documents(headers: HeaderColumns, encoding: Encoding) -> list[list[Any]]:
    """Return the headers of each record as JSON shows them: names as text, values as text or as ``encoding`` says."""
    shown = header_encoding(encoding)
    names, encoded_names = _all_from_bytes(headers.names, "utf8")
    values, encoded_values = _all_from_bytes(headers.values, shown)
    documents: list[Any]
    if isinstance(encoded_names, repeat) and isinstance(encoded_values, repeat):
        # In most records all are text.
        documents = list(map(_TextHeaderDocument, names, values))
    else:
        documents = list(map(_HeaderDocument, names, encoded_names, values, encoded_values))
    ends = np.cumsum(headers.counts).tolist()
    return [documents[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def header_encoding(encoding: Encoding) -> Encoding:
    """Return the encoding of header values for records with ``encoding``: header values are not JSON."""
    return "utf8" if encoding == "json" else encoding


_Pair = tuple[Iterable[Any], Iterable[Any]]


def _all_from_bytes(column: BinaryColumn, encoding: Encoding) -> _Pair:
    """Return each element as JSON shows it, as itself and as base64: one of both is unset. ASCII is decoded at once."""
    unset: Iterable[UnsetType] = repeat(UNSET, len(column))
    if encoding == "base64":
        return unset, column.to_list()
    if column.nulls is not None and column.nulls.all():
        return [None] * len(column), unset
    if encoding == "utf8" and column.nulls is None:
        base = int(column.offsets[0])
        data = column.data[base : int(column.offsets[-1])].tobytes()
        if data.isascii():
            text = data.decode("ascii")
            return [text[start:end] for start, end in pairwise((column.offsets - base).tolist())], unset
    shown = list(map(_text_from_bytes if encoding == "utf8" else _json_from_bytes, column.to_list()))
    if bytes not in set(map(type, shown)):
        return shown, unset
    return (
        [UNSET if type(each) is bytes else each for each in shown],
        [each if type(each) is bytes else UNSET for each in shown],
    )


def _text_from_bytes(data: bytes | None) -> str | bytes | None:
    """Return the text, or the bytes if they are no text."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class TooManyValuesError(ValueError):
    """A stored JSON text has more values than the service reads in one go."""


def _json_from_bytes(data: bytes | None) -> msgspec.Raw | bytes | None:
    """Return the JSON text, or the bytes if they are no JSON, or are ``null``, which as JSON would mean no value."""
    if data is None:
        return None
    if len(data) > UNCOUNTED_BYTES and (count := count_values(data)) > VALUES_MAX:
        raise TooManyValuesError(f"is JSON of {count} values, of which {VALUES_MAX} are read at once")
    try:
        msgspec.json.decode(data)
        if data.strip() == b"null":
            return data
        # A line break may stand between the tokens of a JSON text, but not inside a line of a response. The formatter
        # that removes it accepts a little less nesting than the reader.
        return msgspec.Raw(msgspec.json.format(data, indent=-1) if _LINE_BREAK.search(data) else data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data


def shown_bytes(data: bytes | ByteArray | None, encoding: Encoding) -> int:
    """Return how many bytes of JSON text these bytes become, at most and almost exactly. Makes no text.

    Base64 includes the suffix of the member's name. With ``encoding=json`` bytes that are no JSON count as they are.
    """
    if data is None:
        return 4
    if encoding == "json":
        return len(data)
    base64_bytes = (len(data) + 2) // 3 * 4 + 9
    if encoding == "base64":
        return base64_bytes
    array = np.frombuffer(data, dtype=np.uint8)
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 2
    try:
        for start in range(0, len(array), _SLICE_BYTES):
            piece = array[start : start + _SLICE_BYTES]
            decoder.decode(piece.tobytes())
            size += int(_TEXT_BYTES[piece].sum(dtype=np.int64))
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return base64_bytes
    return size


_LINE_BREAK = re.compile(rb"[\r\n]")
_SLICE_BYTES = 1024 * 1024
_TEXT_BYTES = np.ones(256, dtype=np.uint8)
_TEXT_BYTES[:0x20] = 6
_TEXT_BYTES[list(b'"\\\b\f\n\r\t')] = 2
