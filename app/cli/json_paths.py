"""JSON paths into a line of input, and the text of the values that they find: a number keeps its digits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from app.record_json.text_encodings import ESCAPE_BYTES, foreign_encoding, unpaired_surrogates

if TYPE_CHECKING:
    import jsonpath

Steps = tuple[str | int, ...]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_INT_DIGITS_MAX = 1000


class RecordTextError(ValueError):
    """A line cannot become a record. The message is a phrase."""


def parse_json(line: bytes) -> Any:
    """Parse the JSON document on a line. A number beyond a float's range becomes infinite; its text is in the line.

    Raises:
        RecordTextError: the line is not JSON.
    """
    try:
        return _decode(line)
    except msgspec.ValidationError:
        # Only a number of any size is JSON, and yet refused.
        return _parse_large_numbers(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordTextError(f"it is not JSON: {_why_not(line, error)}") from None


def _why_not(line: bytes, error: Exception) -> str:
    if foreign := foreign_encoding(line):
        return f"it {foreign}"
    places = unpaired_surrogates(line)
    if not places:
        return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    # The decoder reports such a line as truncated, or its surrogate as an incomplete escape.
    whole = bytearray(line)
    for place in places:
        whole[place : place + ESCAPE_BYTES] = rb"\ufffd"
    try:
        _decode_raw(whole)
    except (msgspec.DecodeError, RecursionError) as other:
        return str(other)
    first = places[0]
    column = len(line[:first].decode("utf-8", "replace")) + 1
    return f"{line[first : first + ESCAPE_BYTES].decode()} at column {column} is an unpaired surrogate"


def _parse_large_numbers(line: bytes) -> Any:
    try:
        # It checks everything except the size of numbers and UTF-8. The other decoder would accept lone surrogates.
        _decode_raw(line)
        return json.loads(line.decode("utf-8"), parse_int=_int_or_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordTextError(f"it is not JSON: {_why_not(line, error)}") from None


def _int_or_float(text: str) -> int | float:
    return int(text) if len(text) < _INT_DIGITS_MAX else float(text)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


class Part(NamedTuple):
    """The result of a path: the value, and its text in the line. A result that is a member's name has no text."""

    value: Any
    text: bytes | None

    def as_bytes(self) -> bytes | None:
        """Return the bytes of the value: text decoded, null as ``None``, any other value unchanged from the line."""
        if self.value is None:
            return None
        if isinstance(self.value, str):
            return self.value.encode("utf-8")
        return _encode(self.value) if self.text is None else self.text

    def members(self) -> dict[str, Part]:
        """Return the members of an object. Raises ``TypeError`` for any other value."""
        if not isinstance(self.value, Mapping):
            raise TypeError
        texts: Mapping[str, Any] = {} if self.text is None else _members(self.text)
        return {name: Part(value, _bytes(texts.get(name))) for name, value in self.value.items()}

    def items(self) -> list[Part]:
        """Return the items of a list. Raises ``TypeError`` for any other value."""
        if not isinstance(self.value, list):
            raise TypeError
        texts = [None] * len(self.value) if self.text is None else _items(self.text)
        return [Part(value, _bytes(text)) for value, text in zip(self.value, texts, strict=True)]


def _bytes(text: msgspec.Raw | None) -> bytes | None:
    return None if text is None else bytes(text)


class JsonPath:
    """One JSON path, compiled.

    Raises:
        RecordTextError: the text is not a JSON path.
    """

    def __init__(self, path: str) -> None:
        # Imported late: it takes a third of a command's start, and few commands have paths.
        import jsonpath

        self.path = path
        try:
            self._query = jsonpath.compile(path)
            self._names = _names_of(self._query)
        except jsonpath.JSONPathError as error:
            raise RecordTextError(f"{path!r} is not a JSON path: {str(error).splitlines()[0]}") from None

    def find(self, line: bytes, document: Any) -> Part:
        """Find the value at the path in ``document``, which is ``line`` parsed.

        Raises:
            RecordTextError: there is none.
        """
        if not isinstance(document, dict | list):
            raise RecordTextError(f"nothing is at {self.path}: the line is not a JSON object")
        if self._names is not None:
            value = document
            for name in self._names:
                if not isinstance(value, dict) or name not in value:
                    raise RecordTextError(f"nothing is at {self.path}")
                value = value[name]
            return Part(value, _text_of(value, line, self._names))
        match = self._query.match(document)
        if match is None:
            raise RecordTextError(f"nothing is at {self.path}")
        is_place = _is_at(document, match.parts, match.obj)
        return Part(match.obj, _text_of(match.obj, line, match.parts) if is_place else None)


def _text_of(value: Any, line: bytes, steps: Steps) -> bytes | None:
    """Return the text at ``steps``; ``None`` for text and null, which need none."""
    if value is None or isinstance(value, str):
        return None
    text: Any = line.strip(b" \t\r")
    for step in steps:
        text = _members(text)[step] if isinstance(step, str) else _items(text)[step]
    return bytes(text)


def _is_at(document: Any, steps: Steps, value: Any) -> bool:
    """Return whether ``value`` is at ``steps``. Some extensions of JSON path find values without a place, such as a
    member's name."""
    for step in steps:
        try:
            document = document[step]
        except (TypeError, LookupError):
            return False
    return document is value


def _names_of(query: jsonpath.CompoundJSONPath | jsonpath.JSONPath) -> Steps | None:
    """Return the names of a path such as ``$.a.b``, whose look-up is six times faster; ``None`` for any other path."""
    import jsonpath
    from jsonpath.selectors import NameSelector

    if not isinstance(query, jsonpath.JSONPath) or not query.singular_query():
        return None
    selectors = [selector for segment in query.segments for selector in segment.selectors]
    names = tuple(selector.name for selector in selectors if isinstance(selector, NameSelector))
    return names if len(names) == len(selectors) else None
