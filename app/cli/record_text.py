"""Lines of input as records: which part of a line is the key, the value, the time, the headers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.cli.json_paths import JsonPath, Part, RecordTextError, parse_json
from app.cli.timestamps import parse_timestamp

NO_TIMESTAMP = -1
"""The timestamp of a record that has none, in Kafka and over HTTP."""

Headers = tuple[tuple[str, bytes | None], ...]

_ABSENT = Part(None, None)
_BLANK = b" \t\r"


class InputFormat(StrEnum):
    """What a line of input is."""

    LINES = "lines"
    """A value."""
    NDJSON = "ndjson"
    """A JSON value; paths pick the parts of the record out of it, and the record's value is the line."""
    RECORDS = "records"
    """A record as ``rollway fetch`` prints it."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send. ``None`` is an absent key, a tombstone, or the service's time; time -1 is none."""

    line_number: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers

    @property
    def size_bytes(self) -> int:
        """About what it takes in a request."""
        headers = sum(len(name) + len(value or b"") + 24 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 64

    def as_json(self, partition: int) -> dict[str, Any]:
        """The record as the HTTP interface takes it (api: Media types)."""
        record: dict[str, Any] = {"value": text_or_base64(self.value), "partition": partition}
        if self.key is not None:
            record["key"] = text_or_base64(self.key)
        if self.timestamp is not None:
            record["timestamp"] = self.timestamp
        if self.headers:
            record["headers"] = [
                {"name": text_or_base64(_name_bytes(name)), "value": text_or_base64(value)}
                for name, value in self.headers
            ]
        return record


def text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    """``data`` as the HTTP interface writes keys and values (api: Media types)."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def value_bytes(value: object) -> bytes | None:
    """Bytes of a key or value as the HTTP interface writes it: text, ``{"base64": ...}`` or null.

    Raises:
        RecordTextError: it is none of these.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise RecordTextError("its base64 is wrong") from None
    raise RecordTextError('a key or value is text, {"base64": ...} or null')


@dataclass(frozen=True, slots=True)
class JsonPaths:
    """Where in a line's JSON the parts of a record are; ``None``: not there."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    headers: str | None = None

    @property
    def is_empty(self) -> bool:
        return (self.key, self.value, self.timestamp, self.headers) == (None, None, None, None)


def record_reader(input_format: InputFormat, paths: JsonPaths) -> Callable[[int, bytes], OutgoingRecord | None]:
    """A function from a line's number and bytes to its record; it raises ``RecordTextError`` for a bad line.

    Where lines are JSON, a blank one is no record: ``None``, as over HTTP.

    Raises:
        RecordTextError: a path is not a JSON path.
    """
    if input_format is InputFormat.LINES:
        return lambda number, line: OutgoingRecord(number, None, line, None, ())
    if input_format is InputFormat.RECORDS:
        return _read_record
    return _PathedReader(paths).read


class _PathedReader:
    def __init__(self, paths: JsonPaths) -> None:
        self._key = None if paths.key is None else JsonPath(paths.key)
        self._value = None if paths.value is None else JsonPath(paths.value)
        self._timestamp = None if paths.timestamp is None else JsonPath(paths.timestamp)
        self._headers = None if paths.headers is None else JsonPath(paths.headers)

    def read(self, number: int, line: bytes) -> OutgoingRecord | None:
        if not line.strip(_BLANK):
            return None
        document = parse_json(line)
        return OutgoingRecord(
            line_number=number,
            key=None if self._key is None else self._key.find(line, document).as_bytes(),
            value=line if self._value is None else self._value.find(line, document).as_bytes(),
            timestamp=None if self._timestamp is None else _timestamp(self._timestamp.find(line, document).value),
            headers=() if self._headers is None else _headers_at(self._headers.find(line, document)),
        )


def _read_record(number: int, line: bytes) -> OutgoingRecord | None:
    if not line.strip(_BLANK):
        return None
    document = parse_json(line)
    if not isinstance(document, dict) or "value" not in document:
        raise RecordTextError('a record is an object with a "value"')
    return OutgoingRecord(
        line_number=number,
        key=value_bytes(document.get("key")),
        value=value_bytes(document["value"]),
        timestamp=_timestamp(document.get("timestamp")),
        headers=_headers(document.get("headers")),
    )


def _timestamp(value: Any) -> int | None:
    """Milliseconds; -1 for a record without a time; null leaves it to the service."""
    if value is None or (type(value) is int and value == NO_TIMESTAMP):
        return value
    try:
        return parse_timestamp(value)
    except ValueError as error:
        raise RecordTextError(str(error)) from None


def _headers_at(part: Part) -> Headers:
    """Headers from an object of names and values, or from a list of ``{"name", "value"}``; numbers as they stand."""
    if isinstance(part.value, Mapping):
        return tuple((name, each.as_bytes()) for name, each in part.members().items())
    if _is_list_of_headers(part.value):
        members = [item.members() for item in part.items()]
        return tuple((_name_text(each["name"].value), each.get("value", _ABSENT).as_bytes()) for each in members)
    return _headers(part.value)


def _headers(value: Any) -> Headers:
    """Headers as the HTTP interface writes them, or from an object of names and values."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple((str(name), value_bytes(each)) for name, each in value.items())
    if _is_list_of_headers(value):
        return tuple((_name_text(each["name"]), value_bytes(each.get("value"))) for each in value)
    raise RecordTextError('headers are an object, or a list of {"name", "value"}')


def _is_list_of_headers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) and _is_name(each.get("name")) for each in value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and set(value) == {"base64"})


def _name_text(name: Any) -> str:
    """A header's name as text, in which bytes that are not UTF-8 are lone surrogates, as in ``rollway.records``."""
    return (value_bytes(name) or b"").decode("utf-8", "surrogateescape")


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
