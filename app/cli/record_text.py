"""Lines of input as records: which part of a line is the key, the value, the time, the headers."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from app.cli.timestamps import parse_timestamp

if TYPE_CHECKING:
    import jsonpath

_ABSENT = object()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class InputFormat(StrEnum):
    """What a line of input is."""

    LINES = "lines"
    """A value."""
    NDJSON = "ndjson"
    """A JSON value; paths pick the parts of the record out of it, and the record's value is the line."""
    RECORDS = "records"
    """A record as ``rollway fetch`` prints it."""


class RecordTextError(ValueError):
    """A line cannot become a record; the message is a phrase."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to send. ``None`` is an absent key, a tombstone, or the service's time."""

    line_number: int
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: tuple[tuple[str, bytes | None], ...]

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


class _PathReader:
    """One JSON path, compiled."""

    def __init__(self, path: str) -> None:
        # Imported late: it takes a third of the start of a command, and few lines have paths.
        import jsonpath

        self.path = path
        try:
            self._query = jsonpath.compile(path)
            self._names = _names_of(self._query)
        except jsonpath.JSONPathError as error:
            raise RecordTextError(f"{path!r} is not a JSON path: {str(error).splitlines()[0]}") from None

    def read(self, document: Any) -> Any:
        """What is at the path.

        Raises:
            RecordTextError: nothing is.
        """
        if not isinstance(document, dict | list):
            raise RecordTextError(f"nothing is at {self.path}: the line is not a JSON object")
        if self._names is not None:
            for name in self._names:
                if not isinstance(document, dict) or name not in document:
                    raise RecordTextError(f"nothing is at {self.path}")
                document = document[name]
            return document
        match = self._query.match(document)
        if match is None:
            raise RecordTextError(f"nothing is at {self.path}")
        return match.obj


def _names_of(query: jsonpath.CompoundJSONPath | jsonpath.JSONPath) -> list[str] | None:
    """The names of a path such as ``$.a.b``, which are then looked up six times faster; ``None`` for any other path."""
    import jsonpath
    from jsonpath.selectors import NameSelector

    if not isinstance(query, jsonpath.JSONPath) or not query.singular_query():
        return None
    selectors = [selector for segment in query.segments for selector in segment.selectors]
    names = [selector.name for selector in selectors if isinstance(selector, NameSelector)]
    return names if len(names) == len(selectors) else None


def record_reader(input_format: InputFormat, paths: JsonPaths) -> Callable[[int, bytes], OutgoingRecord]:
    """A function from a line's number and bytes to its record, which raises ``RecordTextError`` for a bad line.

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
        self._key = None if paths.key is None else _PathReader(paths.key)
        self._value = None if paths.value is None else _PathReader(paths.value)
        self._timestamp = None if paths.timestamp is None else _PathReader(paths.timestamp)
        self._headers = None if paths.headers is None else _PathReader(paths.headers)

    def read(self, number: int, line: bytes) -> OutgoingRecord:
        document = parse_json(line)
        return OutgoingRecord(
            line_number=number,
            key=None if self._key is None else _part_bytes(self._key.read(document)),
            value=line if self._value is None else _part_bytes(self._value.read(document)),
            timestamp=None if self._timestamp is None else _timestamp(self._timestamp.read(document)),
            headers=() if self._headers is None else _headers(self._headers.read(document), _part_bytes),
        )


def _read_record(number: int, line: bytes) -> OutgoingRecord:
    document = parse_json(line)
    if not isinstance(document, dict) or "value" not in document:
        raise RecordTextError('a record is an object with a "value"')
    return OutgoingRecord(
        line_number=number,
        key=value_bytes(document.get("key")),
        value=value_bytes(document["value"]),
        timestamp=_timestamp(document.get("timestamp")),
        headers=_headers(document.get("headers"), value_bytes),
    )


def parse_json(line: bytes) -> Any:
    """The JSON document on a line.

    Raises:
        RecordTextError: it is not JSON.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordTextError(f"it is not JSON: {error}") from None


def _part_bytes(part: Any) -> bytes | None:
    """Text as it is, null as absent, anything else as compact JSON."""
    if part is None:
        return None
    return part.encode("utf-8") if isinstance(part, str) else _encode(part)


def _timestamp(value: Any) -> int | None:
    if value is None or value == -1:
        return None
    try:
        return parse_timestamp(value)
    except ValueError as error:
        raise RecordTextError(str(error)) from None


def _headers(value: Any, to_bytes: Callable[[Any], bytes | None]) -> tuple[tuple[str, bytes | None], ...]:
    """Headers from an object of names and values, or from a list of ``{"name", "value"}``."""
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple((str(name), to_bytes(each)) for name, each in value.items())
    if isinstance(value, list) and all(isinstance(each, dict) and _is_name(each.get("name")) for each in value):
        return tuple((_name_text(each["name"]), to_bytes(each.get("value"))) for each in value)
    raise RecordTextError('headers are an object, or a list of {"name", "value"}')


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and set(value) == {"base64"})


def _name_text(name: Any) -> str:
    """A header's name as text, in which bytes that are not UTF-8 are lone surrogates, as in ``rollway.records``."""
    return (value_bytes(name) or b"").decode("utf-8", "surrogateescape")


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
