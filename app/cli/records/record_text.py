"""Lines of input as records: the key, the value, the time and the headers of each line."""

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
"""The timestamp of a record without one, in Kafka and over HTTP."""

Headers = tuple[tuple[str, bytes | None], ...]

_ABSENT = Part(None, None)
_BLANK = b" \t\r"


class InputFormat(StrEnum):
    """The form of a line of input."""

    LINES = "lines"
    """The line is a value."""
    NDJSON = "ndjson"
    """The line is a JSON value. Paths select the parts of the record; the record's value is the line."""
    RECORDS = "records"
    """The line is a record as ``rollway fetch`` prints it."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send. ``None`` is an absent key, a tombstone, or the service's time; the time -1 is no time."""

    line_number: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers

    @property
    def size_bytes(self) -> int:
        """About its size in a request."""
        headers = sum(len(name) + len(value or b"") + 24 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 64

    def as_json(self, partition: int) -> dict[str, Any]:
        """Return the record in the form of the HTTP interface (api: Media types)."""
        record: dict[str, Any] = {**text_or_base64("value", self.value), "partition": partition}
        if self.key is not None:
            record |= text_or_base64("key", self.key)
        if self.timestamp is not None:
            record["timestamp"] = self.timestamp
        if self.headers:
            record["headers"] = [
                text_or_base64("name", name.encode("utf-8", "surrogateescape")) | text_or_base64("value", value)
                for name, value in self.headers
            ]
        return record


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return the member for ``data`` over HTTP (api: Media types): ``name``, or ``name_base64`` if it is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def bytes_of(holder: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of a key or value of the HTTP interface: text in ``name``, or base64 in ``name_base64``.

    Return ``None`` if both are null or absent.

    Raises:
        RecordTextError: both have a value, or one has another type.
    """
    text, encoded = holder.get(name), holder.get(f"{name}_base64")
    if text is not None and not isinstance(text, str):
        raise RecordTextError(f"{name} is text or null; bytes go in {name}_base64 as base64, and JSON as text")
    if encoded is None:
        return None if text is None else text.encode("utf-8")
    if text is not None:
        raise RecordTextError(f"{name} and {name}_base64 are both there; one of them may be")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise RecordTextError(f"{name}_base64 is no base64") from None


def has_member(holder: object, name: str) -> bool:
    """Return whether ``holder`` is an object with ``name`` or ``name_base64``, null or not."""
    return isinstance(holder, Mapping) and (name in holder or f"{name}_base64" in holder)


@dataclass(frozen=True, slots=True)
class JsonPaths:
    """The paths to the parts of a record in a line's JSON; ``None``: the line has no such part."""

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    headers: str | None = None

    @property
    def is_empty(self) -> bool:
        return (self.key, self.value, self.timestamp, self.headers) == (None, None, None, None)


def record_reader(input_format: InputFormat, paths: JsonPaths) -> Callable[[int, bytes], OutgoingRecord | None]:
    """Return a function from a line's number and bytes to its record. It raises ``RecordTextError`` for a bad line.

    If lines are JSON, a blank one is no record, as over HTTP: the function returns ``None``.

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
    if not has_member(document, "value"):
        raise RecordTextError('a record is an object with a "value" or a "value_base64"')
    return OutgoingRecord(
        line_number=number,
        key=bytes_of(document, "key"),
        value=bytes_of(document, "value"),
        timestamp=_timestamp(document.get("timestamp")),
        headers=_headers(document.get("headers")),
    )


def _timestamp(value: Any) -> int | None:
    """Return milliseconds; -1 for a record without a time; ``None`` leaves the time to the service."""
    if value is None or (type(value) is int and value == NO_TIMESTAMP):
        return value
    try:
        return parse_timestamp(value)
    except ValueError as error:
        raise RecordTextError(str(error)) from None


def _headers_at(part: Part) -> Headers:
    """Return headers from an object of names and values, or from a list of ``{"name", "value"}``. Numbers keep their
    text."""
    if isinstance(part.value, Mapping):
        return tuple((name, each.as_bytes()) for name, each in part.members().items())
    if _is_list_of_headers(part.value):
        return tuple(map(_header_at, part.items()))
    return _headers(part.value)


def _header_at(item: Part) -> tuple[str, bytes | None]:
    value = item.value
    if value.get("value_base64") is not None:
        return _name_text(value), bytes_of(value, "value")
    return _name_text(value), item.members().get("value", _ABSENT).as_bytes()


def _headers(value: Any) -> Headers:
    """Return headers from the form of the HTTP interface, or from an object of names and values."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple((str(name), bytes_of({"value": each}, "value")) for name, each in value.items())
    if _is_list_of_headers(value):
        return tuple((_name_text(each), bytes_of(each, "value")) for each in value)
    raise RecordTextError('headers are an object, or a list of {"name", "value"}')


def _is_list_of_headers(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and (each.get("name"), each.get("name_base64")) != (None, None) for each in value
    )


def _name_text(header: Mapping[str, Any]) -> str:
    """Return a header's name as text. As in ``rollway.records``, bytes that are not UTF-8 are lone surrogates."""
    return (bytes_of(header, "name") or b"").decode("utf-8", "surrogateescape")
