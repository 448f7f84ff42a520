"""Contents of records that a request has in one of two members: text or JSON in ``value``, bytes in ``value_base64``.

The same holds for keys, and for the names and values of headers. At most one member of a pair has content. The other is
absent or null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from app.problems.problem import Fault
from rollway.records.columns import name_from_bytes
from schemas.records import Encoding


class PairError(ValueError):
    """Both members of a pair such as ``value`` and ``value_base64`` have content, or neither is there."""


def contents(columns: dict[str, list[Any]], name: str, encoding: Encoding, count: int) -> list[bytes | None]:
    """Return the keys or the values of records, from the columns of the members that are in use.

    Raises:
        PairError: a record has two contents, or no value.
    """
    plain, encoded = columns.get(name), columns.get(f"{name}_base64")
    if encoded is None and plain is not None and encoding == "utf8":
        try:
            # In most requests all contents are text.
            return list(map(str.encode, plain))
        except TypeError:
            pass
    if plain is None and encoded is not None and set(map(type, encoded)) == {bytes}:
        return encoded
    if plain is None and encoded is None and name == "key":
        return [None] * count
    to_bytes = _TO_BYTES[encoding]
    if plain is None or encoded is None:
        found = plain or encoded or [UNSET] * count
        if name == "value" and UNSET in found:
            raise PairError
        if plain is None:
            return [None if content is UNSET else content for content in found]
        return [None if content is None or content is UNSET else to_bytes(content) for content in found]
    return [
        _content(one, other, to_bytes, is_needed=name == "value") for one, other in zip(plain, encoded, strict=True)
    ]


def _content(
    plain: Any, encoded: bytes | UnsetType | None, to_bytes: Callable[[Any], bytes | None], *, is_needed: bool
) -> bytes | None:
    content = None if plain is None or plain is UNSET else to_bytes(plain)
    if encoded is None or encoded is UNSET:
        if is_needed and plain is UNSET and encoded is UNSET:
            raise PairError
        return content
    if content is not None:
        raise PairError
    return encoded


def header_row(headers: list[Any] | UnsetType) -> Sequence[tuple[str, bytes | None]]:
    """Return the headers of a record.

    Raises:
        PairError: a name or a value has two contents, or none.
    """
    if headers is UNSET:
        return ()
    row: list[tuple[str, bytes | None]] = []
    for header in headers:
        name, value = header.name, header.value
        if header.name_base64 is UNSET and header.value_base64 is UNSET and name and value:
            # In most headers both are text.
            row.append((name, value.encode()))
        else:
            row.append((_name_of(header), _content(value, header.value_base64, str.encode, is_needed=True)))
    return row


def _name_of(header: Any) -> str:
    name: str | UnsetType | None = header.name
    encoded: bytes | UnsetType | None = header.name_base64
    if encoded is None or encoded is UNSET:
        if name is None or name is UNSET:
            raise PairError
        return name
    if name is None or name is UNSET:
        return name_from_bytes(encoded)
    raise PairError


def _json_to_bytes(data: msgspec.Raw) -> bytes | None:
    content = bytes(data).strip()
    return None if content == b"null" else content


_TO_BYTES: dict[Encoding, Callable[[Any], bytes | None]] = {
    "utf8": str.encode,
    # ``value_base64`` has the content. ``value`` may only be null.
    "base64": bytes,
    "json": _json_to_bytes,
}


def pair_faults(records: list[Any], encoding: Encoding, pointer: Callable[[int], str]) -> Iterator[Fault]:
    """Yield the faults in the pairs of these records. ``pointer`` returns the place of a record in the body."""
    to_bytes = _TO_BYTES[encoding]
    for row, record in enumerate(records):
        at = pointer(row)
        yield from _faults_of_pair(record, "key", to_bytes, at, needed="")
        yield from _faults_of_pair(record, "value", to_bytes, at, needed=_VALUE_NAMES[encoding])
        for place, header in enumerate(record.headers or ()):
            below = f"{at}/headers/{place}"
            yield from _faults_of_pair(header, "name", str.encode, below, needed="name", takes_null=False)
            yield from _faults_of_pair(header, "value", str.encode, below, needed=_VALUE_NAMES[encoding])


_VALUE_NAMES: dict[Encoding, str] = {"utf8": "value", "base64": "value_base64", "json": "value"}


def _faults_of_pair(
    holder: Any, name: str, to_bytes: Callable[[Any], bytes | None], at: str, *, needed: str, takes_null: bool = True
) -> Iterator[Fault]:
    plain, encoded = getattr(holder, name), getattr(holder, f"{name}_base64")
    is_plain = plain is not None and plain is not UNSET and to_bytes(plain) is not None
    if is_plain and isinstance(encoded, bytes):
        detail = f"give {name} or {name}_base64, not both"
        yield Fault(f"{at}/{name}_base64", "invalid_value", detail)
    elif needed and not is_plain and not isinstance(encoded, bytes):
        if plain is UNSET and encoded is UNSET:
            yield Fault(f"{at}/{needed}", "missing", f"this field is required: {name} or {name}_base64")
        elif not takes_null:
            yield Fault(f"{at}/{needed}", "invalid_type", f"must be a string, not null: {name} or {name}_base64")
