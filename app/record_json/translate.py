"""Records of requests, from JSON to columns: prebuilt msgspec coders, no pydantic, no model per record kept.

The pydantic models in ``schemas.records`` describe the same documents. A test checks that both give the same results.
All functions are synchronous and stateless: small requests call them on the event loop, large ones in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from app.problems.problem import Fault, invalid
from app.record_json.record_members import PairError, contents, header_row, pair_faults
from app.record_json.strict_json import (
    check,
    decode,
    fault_of,
    malformed,
    quote_count,
    reason_of,
    refuse_duplicates,
    refuse_duplicates_first,
)
from rollway.records import BinaryColumn, HeaderColumns, RecordColumns
from schemas.base import LONG_MAX, NO_TIMESTAMP, parse_timestamp
from schemas.names import PARTITION_MAX

Encoding = Literal["utf8", "base64", "json"]
Data = TypeVar("Data")
HeaderData = TypeVar("HeaderData")

TIME_ABSENT = -2
"""A ``now_ms`` for the parsers that marks the records without a time. -1 is a time: that of a record that has none."""

_Time = Annotated[int, Meta(ge=NO_TIMESTAMP, le=LONG_MAX)]
_OffsetNumber = Annotated[int, Meta(ge=0, le=LONG_MAX)]
_PartitionNumber = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]


class _Header(msgspec.Struct, Generic[HeaderData], gc=False, forbid_unknown_fields=True):
    name: str | UnsetType | None = UNSET
    value: HeaderData | UnsetType = UNSET
    name_base64: bytes | UnsetType | None = UNSET
    value_base64: bytes | UnsetType | None = UNSET


class ProducedRecord(msgspec.Struct, Generic[Data, HeaderData], gc=False, forbid_unknown_fields=True):
    """A record to append. ``offset`` and ``timestamp_type`` are ignored: clients may send fetched records back."""

    value: Data | UnsetType = UNSET
    key: Data | UnsetType = UNSET
    headers: list[_Header[HeaderData]] | UnsetType = UNSET
    timestamp: _Time | str | UnsetType | None = UNSET
    partition: _PartitionNumber | UnsetType | None = UNSET
    value_base64: bytes | UnsetType | None = UNSET
    key_base64: bytes | UnsetType | None = UNSET
    offset: _OffsetNumber | UnsetType | None = UNSET
    timestamp_type: Literal["CreateTime", "LogAppendTime"] | UnsetType | None = UNSET


TextRecord = ProducedRecord[str | None, str | None]
EncodedRecord = ProducedRecord[None, None]
JsonRecord = ProducedRecord[msgspec.Raw, str | None]
Record = TypeVar("Record")


class _RecordList(msgspec.Struct, Generic[Record], gc=False, forbid_unknown_fields=True):
    records: list[Record]


_Decoders = dict[Encoding, msgspec.json.Decoder[Any]]
_LIST_DECODERS: _Decoders = {
    "utf8": msgspec.json.Decoder(_RecordList[TextRecord]),
    "base64": msgspec.json.Decoder(_RecordList[EncodedRecord]),
    "json": msgspec.json.Decoder(_RecordList[JsonRecord]),
}
_LINE_DECODERS: _Decoders = {
    "utf8": msgspec.json.Decoder(TextRecord),
    "base64": msgspec.json.Decoder(EncodedRecord),
    "json": msgspec.json.Decoder(JsonRecord),
}

_IGNORED_FIELDS = ("offset", "timestamp_type")
_PLAIN_FIRST = ("value", "key", "timestamp", "headers", "partition", "value_base64", "key_base64", *_IGNORED_FIELDS)
_BYTES_FIRST = ("value_base64", "key_base64", "timestamp", "headers", "partition", "value", "key", *_IGNORED_FIELDS)
# The most frequent fields come first.
_FIELDS: dict[Encoding, dict[str, Callable[[Any], Any]]] = {
    "utf8": {name: attrgetter(name) for name in _PLAIN_FIRST},
    "base64": {name: attrgetter(name) for name in _BYTES_FIRST},
    "json": {name: attrgetter(name) for name in _PLAIN_FIRST},
}
_HEADER_FIELDS = [(attrgetter(name), attrgetter(f"{name}_base64")) for name in ("name", "value")]


@dataclass(slots=True)
class ParsedRecords:
    """Records of a request, row by row in columns of Python objects. ``partitions`` is absent when none is named.

    ``now_ms`` is the reading of the wall clock that records without a time were given. All times are judged by the same
    reading: after a clock was set back, a second reading would refuse times of the first. ``pointer`` returns the place
    of a row in the request.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Sequence[tuple[str, bytes | None]]] | None
    partitions: list[int | None] | None
    now_ms: int
    pointer: Callable[[int], str] = "/records/{}".format

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all keys, values and headers. A character of a header's name counts as a byte."""
        return self.size_of(range(len(self)))

    def size_of(self, rows: Sequence[int]) -> int:
        """Return the bytes of these rows, as ``size_bytes``."""
        size = 0
        for column in (self.keys, self.values):
            size += sum(len(column[row] or b"") for row in rows)
        if self.headers is not None:
            size += sum(len(name) + len(value or b"") for row in rows for name, value in self.headers[row])
        return size

    def check_partition(self, number: int) -> None:
        """Check that records that name a partition name ``number``, the partition of the request.

        Raises:
            Problem: 422 with pointers such as ``/records/3/partition``.
        """
        if self.partitions is None:
            return
        others = [row for row, named in enumerate(self.partitions) if named is not None and named != number]
        if others:
            detail = f"the request is for partition {number}; leave partition out, or send the record there"
            raise invalid(Fault(f"{self.pointer(row)}/partition", "invalid_value", detail) for row in others)

    def chosen(self, rows: Sequence[int]) -> ParsedRecords:
        """Return these rows. Their pointers count from 0, as if they were the first rows of a request."""
        return ParsedRecords(
            [self.keys[row] for row in rows],
            [self.values[row] for row in rows],
            [self.timestamps[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            None,
            self.now_ms,
        )

    def columns(self, rows: Sequence[int] | None = None) -> RecordColumns:
        """Return all records, or these rows, as columns with offsets 0, 1, 2, ..."""
        if rows is not None:
            return self.chosen(rows).columns()
        return RecordColumns(
            np.arange(len(self), dtype=np.int64),
            np.array(self.timestamps, dtype=np.int64),
            BinaryColumn.from_list(self.keys),
            BinaryColumn.from_list(self.values),
            None if self.headers is None else HeaderColumns.from_rows(self.headers),
        )


def parse_record_list(body: bytes | bytearray, encoding: Encoding, *, now_ms: int) -> ParsedRecords:
    """Parse ``{"records": [...]}``. Records without a timestamp get ``now_ms``.

    Raises:
        Problem: 400 or 422 with pointers such as ``/records/3/value``.
    """
    if encoding == "json":
        check(body)
    records = decode(_LIST_DECODERS[encoding], body).records
    columns, repeats = (None, False) if encoding == "json" else _columns_of(body, records, encoding, outside=1)
    if repeats:
        refuse_duplicates(body)
    return parsed_records(records, encoding, now_ms, "/records/{}".format, columns)


def parse_record_lines(
    block: bytes | bytearray, encoding: Encoding, *, now_ms: int, first_line: int = 0
) -> ParsedRecords:
    """Parse records, one per line, which a ``\\n`` ends. Blank lines are skipped. ``first_line`` records came before.

    Raises:
        Problem: 400 or 422 with pointers such as ``/17/value``, where 17 is the line.
    """
    lines = [line for line in block.split(b"\n") if line.strip(b" \t\r")]
    records: list[Any] = []
    decoder = _LINE_DECODERS[encoding]
    line: bytes | bytearray = b""
    try:
        for line in lines:
            if encoding == "json":
                msgspec.json.decode(line)
            records.append(decoder.decode(line))
    except msgspec.ValidationError as error:
        place = f"/{first_line + len(records)}"
        refuse_duplicates_first(line, place)
        raise invalid([fault_of(error, decoder.type).below(place)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(reason_of(error, line, "the line"), f"/{first_line + len(records)}") from None

    def pointer(row: int) -> str:
        return f"/{first_line + row}"

    columns, repeats = (None, True) if encoding == "json" else _columns_of(block, records, encoding, outside=0)
    if repeats:
        for row, line in enumerate(lines):
            refuse_duplicates(line, pointer(row))
    return parsed_records(records, encoding, now_ms, pointer, columns)


_Columns = dict[str, list[Any]]


def _columns_of(body: bytes | bytearray, records: list[Any], encoding: Encoding, outside: int) -> tuple[_Columns, bool]:
    """Return the fields that records have, each as a column, and whether a name occurs twice in one object.

    The coder keeps the last of two members, without an error. But each text stands between two quotes, and quotes
    inside of texts are escaped. So a dropped member shows in the count of texts. ``outside`` is the number of texts
    around the records. Once all texts are found, no record has any more fields.
    """
    wanted = quote_count(body)
    columns: _Columns = {}
    texts = outside
    for name, field in _FIELDS[encoding].items():
        if 2 * texts == wanted:
            break
        column = list(map(field, records))
        present_count, text_count = _counts(column)
        if present_count:
            columns[name] = column
            texts += present_count + (_header_text_count(column) if name == "headers" else text_count)
    return columns, 2 * texts != wanted


def _header_text_count(column: list[Any]) -> int:
    headers = [header for row in column if row is not UNSET for header in row]
    texts = 0
    for plain, encoded in _HEADER_FIELDS:
        present_count, text_count = _counts(list(map(plain, headers)))
        texts += present_count + text_count
        if present_count < len(headers):
            # Pairs with a null in one member are rare: the search for duplicates judges them.
            texts += sum(_counts(list(map(encoded, headers))))
    return texts


def _counts(items: list[Any]) -> tuple[int, int]:
    """Return how many of the items are set, and how many of those are texts."""
    if items and items[0] is UNSET and items.count(UNSET) == len(items):
        return 0, 0
    kinds = list(map(type, items))
    texts = kinds.count(str)
    if texts == len(items):
        return texts, texts
    # Bytes were decoded from base64 text.
    return len(items) - kinds.count(UnsetType), texts + kinds.count(bytes)


def parsed_records(
    records: list[Any],
    encoding: Encoding,
    now_ms: int,
    pointer: Callable[[int], str],
    columns: _Columns | None = None,
) -> ParsedRecords:
    """Return the records of a body that was read, in columns. ``pointer`` returns the place of a record in the body.

    ``columns`` has the fields that any of them has, if they are known.

    Raises:
        Problem: 422 for a record with both of a pair such as ``value`` and ``value_base64``, or without a value, and
            for a timestamp that is no time.
    """
    if columns is None:
        columns = {name: list(map(field, records)) for name, field in _FIELDS[encoding].items()}
    headers: list[Sequence[tuple[str, bytes | None]]] | None = None
    partitions: list[int | None] | None = None
    if int in map(type, columns.get("partition", ())):
        partitions = [None if partition is UNSET else partition for partition in columns["partition"]]
    try:
        keys = contents(columns, "key", encoding, len(records))
        values = contents(columns, "value", encoding, len(records))
        if any(columns.get("headers", ())):
            headers = list(map(header_row, columns["headers"]))
    except PairError:
        raise invalid(pair_faults(records, encoding, pointer)) from None
    timestamps = [now_ms] * len(records)
    if "timestamp" in columns:
        timestamps = _timestamps(columns["timestamp"], now_ms, pointer)
    return ParsedRecords(keys, values, timestamps, headers, partitions, now_ms, pointer)


def _timestamps(timestamps: list[Any], now_ms: int, pointer: Callable[[int], str]) -> list[int]:
    if set(map(type, timestamps)) == {int}:
        return timestamps
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
