"""Records between JSON and columns: prebuilt msgspec coders, no pydantic, no model per record kept.

The pydantic models in ``schemas.records`` describe the same documents; a test holds the two to the same answers.
Everything here is synchronous and stateless: small requests call it on the event loop, large ones in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from app.strict_json import Fault, check, decode, fault_of, invalid, malformed, reason_of, refuse_duplicates
from rollway.records import BinaryColumn, HeaderColumns, RecordColumns
from schemas.base import LONG_MAX, NO_TIMESTAMP, parse_timestamp
from schemas.names import PARTITION_MAX

Encoding = Literal["utf8", "base64", "json"]
Data = TypeVar("Data")

TIME_ABSENT = -2
"""As ``now_ms`` of the parsers: marks the records that came without a time. -1 is the time of one that has none."""

_Time = Annotated[int, Meta(ge=NO_TIMESTAMP, le=LONG_MAX)]
_OffsetNumber = Annotated[int, Meta(ge=0, le=LONG_MAX)]
_PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]


class Base64Bytes(msgspec.Struct, gc=False, forbid_unknown_fields=True, frozen=True):
    """``{"base64": "..."}``: bytes that are not text."""

    base64: bytes


class _Header(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    value: str | Base64Bytes | None


class ProducedRecord(msgspec.Struct, Generic[Data], gc=False, forbid_unknown_fields=True):
    """A record to append; ``offset`` and ``timestamp_type`` are there for records that were fetched, and ignored."""

    value: Data
    key: Data | UnsetType = UNSET
    headers: list[_Header] | UnsetType = UNSET
    timestamp: _Time | str | UnsetType | None = UNSET
    partition: _PartitionNumber | UnsetType | None = UNSET
    offset: _OffsetNumber | UnsetType | None = UNSET
    timestamp_type: Literal["CreateTime", "LogAppendTime"] | UnsetType | None = UNSET


class _RecordList(msgspec.Struct, Generic[Data], gc=False, forbid_unknown_fields=True):
    records: list[ProducedRecord[Data]]


Text = str | Base64Bytes | None
Encoded = bytes | Base64Bytes | None
_Decoders = dict[Encoding, msgspec.json.Decoder[Any]]
_LIST_DECODERS: _Decoders = {
    "utf8": msgspec.json.Decoder(_RecordList[Text]),
    "base64": msgspec.json.Decoder(_RecordList[Encoded]),
    "json": msgspec.json.Decoder(_RecordList[msgspec.Raw]),
}
_LINE_DECODERS: _Decoders = {
    "utf8": msgspec.json.Decoder(ProducedRecord[Text]),
    "base64": msgspec.json.Decoder(ProducedRecord[Encoded]),
    "json": msgspec.json.Decoder(ProducedRecord[msgspec.Raw]),
}

_FIELD_TOKENS = [b'"%s"' % name for name in (b"key", b"value", b"headers", b"timestamp", b"name", b"base64")]
_RARE_FIELDS = {name: b'"%s"' % name.encode() for name in ("partition", "offset", "timestamp_type")}
_LIST_TOKEN = b'"records"'
# A field's name may be written with escapes; no encoder escapes letters or digits, so this is looked at closely.
_ESCAPED_LETTER = re.compile(rb"\\u00[3-7]", re.IGNORECASE)
_LINE_BREAK = re.compile(rb"[\r\n]")


@dataclass(slots=True)
class ParsedRecords:
    """Records of a request, row by row in columns of Python objects. ``partitions`` is absent when none is named.

    ``pointer`` says where in the request a row stands.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Sequence[tuple[str, bytes | None]]] | None
    partitions: list[int | None] | None
    pointer: Callable[[int], str] = "/records/{}".format

    def __len__(self) -> int:
        return len(self.values)

    def check_partition(self, number: int) -> None:
        """Records that name a partition name this one, which the request is for.

        Raises:
            Problem: 422 with pointers such as ``/records/3/partition``.
        """
        if self.partitions is None:
            return
        others = [row for row, named in enumerate(self.partitions) if named is not None and named != number]
        if others:
            detail = f"the request is for partition {number}; leave partition out, or send the record there"
            raise invalid(Fault(f"{self.pointer(row)}/partition", "invalid_value", detail) for row in others)

    def columns(self, rows: Sequence[int] | None = None) -> RecordColumns:
        """All records, or these rows, as columns with offsets 0, 1, 2, ..."""
        if rows is None:
            keys, values, timestamps, headers = self.keys, self.values, self.timestamps, self.headers
        else:
            keys = [self.keys[row] for row in rows]
            values = [self.values[row] for row in rows]
            timestamps = [self.timestamps[row] for row in rows]
            headers = None if self.headers is None else [self.headers[row] for row in rows]
        return RecordColumns(
            np.arange(len(values), dtype=np.int64),
            np.array(timestamps, dtype=np.int64),
            BinaryColumn.from_list(keys),
            BinaryColumn.from_list(values),
            None if headers is None else HeaderColumns.from_rows(headers),
        )


def parse_record_list(body: bytes | bytearray, encoding: Encoding, *, now_ms: int) -> ParsedRecords:
    """``{"records": [...]}``; records without a timestamp get ``now_ms``.

    Raises:
        Problem: 400 or 422 with pointers such as ``/records/3/value``.
    """
    if encoding == "json":
        check(body)
    records = decode(_LIST_DECODERS[encoding], body).records
    parsed = parsed_records(records, encoding, now_ms, "/records/{}".format)
    if encoding != "json" and (body.count(_LIST_TOKEN) != 1 or _names_may_repeat(body, records)):
        refuse_duplicates(body)
    return parsed


def parse_record_lines(
    block: bytes | bytearray, encoding: Encoding, *, now_ms: int, first_line: int = 0
) -> ParsedRecords:
    """Records, one per line; blank lines are skipped. ``first_line`` counts the lines that came before, from 0.

    Raises:
        Problem: 400 or 422 with pointers such as ``/17/value``, where 17 is the line.
    """
    if encoding == "json":
        _check_lines(block, first_line)
    try:
        records = _LINE_DECODERS[encoding].decode_lines(block)
    except msgspec.ValidationError as error:
        raise invalid([_shift_line(fault_of(error), first_line)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"after line {first_line}: {reason_of(error)}") from None
    if block.count(b"\n") != len(records) and sum(1 for line in block.splitlines() if line.strip()) != len(records):
        raise malformed(f"after line {first_line}: a record does not end with its line")

    def pointer(row: int) -> str:
        return f"/{first_line + row}"

    parsed = parsed_records(records, encoding, now_ms, pointer)
    if encoding != "json" and _names_may_repeat(block, records):
        for row, line in enumerate(line for line in block.splitlines() if line.strip()):
            refuse_duplicates(line, pointer(row))
    return parsed


def _check_lines(block: bytes | bytearray, first_line: int) -> None:
    for row, line in enumerate(line for line in block.splitlines() if line.strip()):
        try:
            msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise malformed(f"line {first_line + row}: {reason_of(error)}") from None
        refuse_duplicates(line, f"/{first_line + row}")


def _shift_line(fault: Fault, first_line: int) -> Fault:
    _, line, *rest = fault.pointer.split("/") if fault.pointer else ("", "0")
    return fault._replace(pointer="/".join(["", str(first_line + int(line)), *rest]))


def _names_may_repeat(body: bytes | bytearray, records: list[Any]) -> bool:
    """Whether a name may occur twice in one object: the coder would keep the last of them and tell nobody.

    Every name stands in the body between quotes, and inside a text those would be escaped. So as many tokens as
    fields, and none written with escapes, means that no name is repeated; more is looked at closely.
    """
    if _ESCAPED_LETTER.search(body):
        return True
    fields = len(records)
    fields += _present([record.key for record in records]) + _present([record.timestamp for record in records])
    tokens = 0
    for name, token in _RARE_FIELDS.items():
        if (count := body.count(token)) > 0:
            tokens += count
            fields += _present([getattr(record, name) for record in records])
    for headers in [record.headers for record in records if record.headers is not UNSET]:
        fields += 1 + 2 * len(headers) + sum(type(header.value) is Base64Bytes for header in headers)
    fields += sum(type(record.key) is Base64Bytes for record in records)
    fields += sum(type(record.value) is Base64Bytes for record in records)
    return tokens + sum(body.count(token) for token in _FIELD_TOKENS) != fields


def _present(values: list[Any]) -> int:
    return len(values) - values.count(UNSET)


def parsed_records(records: list[Any], encoding: Encoding, now_ms: int, pointer: Callable[[int], str]) -> ParsedRecords:
    """Records of a body that was read, in columns; ``pointer`` says where in the body each of them is.

    Raises:
        Problem: 422 for what is no base64 or no time.
    """
    to_bytes = _TO_BYTES[encoding]
    headers: list[Sequence[tuple[str, bytes | None]]] | None = None
    if any(record.headers for record in records):
        headers = [_header_row(record.headers) for record in records]
    partitions: list[int | None] | None = None
    if any(type(record.partition) is int for record in records):
        partitions = [None if record.partition is UNSET else record.partition for record in records]
    try:
        keys = [None if record.key is UNSET else to_bytes(record.key) for record in records]
        values = [to_bytes(record.value) for record in records]
    except _NotBase64Error:
        raise invalid(_base64_faults(records, pointer)) from None
    return ParsedRecords(keys, values, _timestamps(records, now_ms, pointer), headers, partitions, pointer)


def _timestamps(records: list[Any], now_ms: int, pointer: Callable[[int], str]) -> list[int]:
    timestamps = [record.timestamp for record in records]
    for row, timestamp in enumerate(timestamps):
        if type(timestamp) is int:
            continue
        if timestamp is UNSET or timestamp is None:
            timestamps[row] = now_ms
            continue
        try:
            timestamps[row] = parse_timestamp(timestamp)
        except ValueError as error:
            raise invalid([Fault(f"{pointer(row)}/timestamp", "invalid_value", str(error))]) from None
    return timestamps


def _header_row(headers: list[_Header] | UnsetType) -> Sequence[tuple[str, bytes | None]]:
    if headers is UNSET:
        return ()
    return [(header.name, _text_to_bytes(header.value)) for header in headers]


class _NotBase64Error(ValueError):
    pass


def _text_to_bytes(data: str | Base64Bytes | None) -> bytes | None:
    if type(data) is str:
        return data.encode()
    return data.base64 if isinstance(data, Base64Bytes) else None


def _encoded_to_bytes(data: bytes | Base64Bytes | None) -> bytes | None:
    return data.base64 if isinstance(data, Base64Bytes) else data


def _json_to_bytes(data: msgspec.Raw) -> bytes | None:
    content = bytes(data).strip()
    if content == b"null":
        return None
    if _is_base64_object(content):
        try:
            return _BASE64_DECODER.decode(content).base64
        except msgspec.ValidationError:
            raise _NotBase64Error from None
    return content


_TO_BYTES: dict[Encoding, Callable[[Any], bytes | None]] = {
    "utf8": _text_to_bytes,
    "base64": _encoded_to_bytes,
    "json": _json_to_bytes,
}


def _base64_faults(records: list[Any], pointer: Callable[[int], str]) -> Iterable[Fault]:
    for row, record in enumerate(records):
        for name in ("key", "value"):
            data = getattr(record, name)
            try:
                if data is not UNSET:
                    _json_to_bytes(data)
            except _NotBase64Error:
                yield Fault(f"{pointer(row)}/{name}/base64", "invalid_value", "Invalid base64 encoded string")


class _AnyBase64(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    base64: str


_BASE64_DECODER = msgspec.json.Decoder(Base64Bytes)
_ANY_BASE64_DECODER = msgspec.json.Decoder(_AnyBase64)


def _is_base64_object(content: bytes) -> bool:
    """Whether this JSON means bytes and not itself: an object of one member, ``base64``, that is text."""
    if content[:1] != b"{" or b"base64" not in content:
        return False
    try:
        _ANY_BASE64_DECODER.decode(content)
    except msgspec.MsgspecError:
        return False
    return True


# The way out


class RecordDocument(msgspec.Struct, gc=False):
    """One record of an answer; see ``schemas.records.FetchedRecord``."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: Any
    value: Any
    headers: list[Any]
    partition: int


class _HeaderDocument(msgspec.Struct, gc=False):
    name: str
    value: str | Base64Bytes | None


class FetchDocument(msgspec.Struct, gc=False):
    """The answer to a fetch in JSON; see ``schemas.records.FetchResult``."""

    records: list[RecordDocument]
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int


_ENCODER = msgspec.json.Encoder()


def encode_document(document: object) -> bytes:
    """JSON text of structs, dicts, lists and plain values; bytes become base64 text."""
    return _ENCODER.encode(document)


def encode_lines(documents: Iterable[object]) -> bytes:
    """One JSON text per line."""
    return _ENCODER.encode_lines(list(documents))


def record_documents(
    columns: RecordColumns, *, encoding: Encoding, timestamp_type: str, partition: int
) -> list[RecordDocument]:
    """What JSON shows of these records. What is not text (or not JSON, with ``encoding=json``) becomes base64."""
    from_bytes = _FROM_BYTES[encoding]
    if columns.headers is None:
        headers: list[list[Any]] = [[] for _ in range(len(columns))]
    else:
        headers = [
            [_HeaderDocument(name, _text_from_bytes(value)) for name, value in row] for row in columns.headers.to_rows()
        ]
    make = partial(_record_document, timestamp_type=timestamp_type, partition=partition)
    return list(
        map(
            make,
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            map(from_bytes, columns.keys.to_list()),
            map(from_bytes, columns.values.to_list()),
            headers,
        )
    )


def _record_document(
    offset: int, timestamp: int, key: Any, value: Any, headers: list[Any], *, timestamp_type: str, partition: int
) -> RecordDocument:
    return RecordDocument(offset, timestamp, timestamp_type, key, value, headers, partition)


def _text_from_bytes(data: bytes | None) -> str | Base64Bytes | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64Bytes(data)


def _json_from_bytes(data: bytes | None) -> msgspec.Raw | Base64Bytes | None:
    if data is None:
        return None
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Base64Bytes(data)
    if data.strip() == b"null" or _is_base64_object(data.strip()):
        return Base64Bytes(data)
    # A line break may stand between the tokens of a JSON text, but not inside a line of an answer.
    return msgspec.Raw(msgspec.json.format(data, indent=-1) if _LINE_BREAK.search(data) else data)


def _encoded_from_bytes(data: bytes | None) -> bytes | None:
    return data


_FROM_BYTES: dict[Encoding, Callable[[bytes | None], Any]] = {
    "utf8": _text_from_bytes,
    "base64": _encoded_from_bytes,
    "json": _json_from_bytes,
}
