"""Lines of files as records, read in Python and not by Spark: CSV after RFC 4180, and objects of JSON.

``compare`` reads files with this module, and ``load`` does not, so that changes made by ``load`` are found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]

_WHITE_SPACE = b" \t\r\n"
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_ESCAPED = re.compile(r"\\\\|\\u00[0-9a-f]{2}")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_INTEGER = re.compile(r"-?\d+")


class NoRecordError(ValueError):
    """The text is no record of this format."""


def lines_without_ends(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of the bytes between two LF: CR also ends a line."""
    for piece in pieces:
        yield from piece.removesuffix(b"\r").split(b"\r")


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """RFC 4180 with other characters. ``quote`` is empty if quotes are text."""

    separator: str = ","
    quote: str = '"'
    encoding: str = "utf-8"

    def ends_open(self, line: str, *, is_open: bool) -> bool:
        """Return whether a quoted field continues behind ``line``, which begins a record, or with ``is_open`` continues
        such a field."""
        if not self.quote or (not is_open and self.quote not in line):
            return False
        place = 0
        while True:
            if is_open:
                end = line.find(self.quote, place)
                if end < 0:
                    return True
                place = end + len(self.quote)
                if line.startswith(self.quote, place):
                    place += len(self.quote)
                    continue
            elif line.startswith(self.quote, place):
                is_open = True
                place += len(self.quote)
                continue
            end = line.find(self.separator, place)
            if end < 0:
                return False
            is_open = False
            place = end + len(self.separator)

    def fields(self, record: str) -> list[str | None]:
        """Return the fields; ``None`` for an empty field without quotes.

        Raises:
            NoRecordError: there is text behind the end of a quoted field.
        """
        if not self.quote or self.quote not in record:
            return [each or None for each in record.split(self.separator)]
        found: list[str | None] = []
        place = 0
        while True:
            if record.startswith(self.quote, place):
                text, place = self._quoted(record, place + len(self.quote))
                found.append(text)
            else:
                end = record.find(self.separator, place)
                end = len(record) if end < 0 else end
                found.append(record[place:end] or None)
                place = end
            if place == len(record):
                return found
            if not record.startswith(self.separator, place):
                raise NoRecordError("something stands behind a quoted field")
            place += len(self.separator)

    def _quoted(self, record: str, place: int) -> tuple[str, int]:
        """Return the field that begins at ``place``, behind its quote, and the index behind its end."""
        parts = []
        while True:
            end = record.find(self.quote, place)
            if end < 0:
                raise NoRecordError("a quoted field does not end")
            parts.append(record[place:end])
            place = end + len(self.quote)
            if not record.startswith(self.quote, place):
                return self.quote.join(parts), place
            place += len(self.quote)


def csv_records(pieces: Iterable[bytes], dialect: CsvDialect) -> Iterator[bytes]:
    """Yield records from the bytes between two LF, of one file, or of a part that begins with a record.

    Blank records are left out. In a record without quotes, CR also ends a record.
    """
    kept: list[bytes] = []
    is_open = False
    for piece in pieces:
        kept.append(piece)
        is_open = dialect.ends_open(piece.decode(dialect.encoding, "replace"), is_open=is_open)
        if is_open:
            continue
        record = b"\n".join(kept)
        kept = []
        whole = record.removesuffix(b"\r")
        parts = [whole] if dialect.quote and dialect.quote.encode() in whole else whole.split(b"\r")
        yield from (each for each in parts if each.strip(_WHITE_SPACE))
    if kept:
        yield b"\n".join(kept)


def json_of_fields(names: list[str], fields: list[str | None]) -> str:
    """Return an object of text as ``load`` writes a row: in the order of the columns, without nulls."""
    pairs = (
        f"{_json_text(name)}:{_json_text(field)}"
        for name, field in zip(names, fields, strict=True)
        if field is not None
    )
    return "{" + ",".join(pairs) + "}"


def _json_text(text: str) -> str:
    return _ESCAPED.sub(
        lambda match: match[0] if match[0] == "\\\\" else "\\u" + match[0][2:].upper(),
        json.dumps(text, ensure_ascii=False),
    )


def json_fields(text: str) -> dict[str, str]:
    """Return the fields of an object, each with its unchanged text. Of a repeated name the last one counts.

    Raises:
        NoRecordError: the text is not one JSON object.
    """
    try:
        return _json_fields(text)
    except (ValueError, RecursionError, IndexError) as error:
        raise NoRecordError(str(error)) from None


def _json_fields(text: str) -> dict[str, str]:
    place = _skip(text, 0)
    if text[place] != "{":
        raise NoRecordError("it is no object")
    fields: dict[str, str] = {}
    place = _skip(text, place + 1)
    while text[place] != "}" or fields:
        if text[place] != '"':
            raise NoRecordError("a name is missing")
        name, place = scanstring(text, place + 1, True)
        place = _skip(text, place)
        if text[place] != ":":
            raise NoRecordError("a colon is missing")
        start = _skip(text, place + 1)
        _, end = _DECODER.raw_decode(text, start)
        fields[name] = text[start:end]
        place = _skip(text, end)
        if text[place] == "}":
            break
        if text[place] != ",":
            raise NoRecordError("a comma is missing")
        place = _skip(text, place + 1)
    if _skip(text, place + 1) != len(text):
        raise NoRecordError("something stands behind the object")
    return fields


def _skip(text: str, place: int) -> int:
    match = _JSON_SPACE.match(text, place)
    return place if match is None else match.end()


def json_column(raw: str | None, kind: str) -> str | None:
    """Return a field of JSON as text, from which Spark makes a column of ``kind``.

    Raises:
        NoRecordError: the field is of another kind.
    """
    if raw is None or raw == "null":
        return None
    is_text = raw.startswith('"')
    if kind == "nested":
        return raw
    if kind == "text":
        # Half of a surrogate pair is not valid in UTF-8: Java writes a question mark.
        return json.loads(raw).encode("utf-8", "replace").decode() if is_text else raw
    fits: dict[str, Callable[[str], object]] = {
        "whole": _INTEGER.fullmatch,
        "boolean": ("true", "false").__contains__,
        "time": lambda text: text.startswith('"'),
    }
    if kind in fits and not fits[kind](raw):
        raise NoRecordError(f"{raw} is not {kind}")
    return str(json.loads(raw)) if is_text else raw
