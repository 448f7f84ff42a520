"""Sentences about faults of a document, in JSON's words, with the values that are allowed there."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from pydantic import BaseModel

from log_model.nearest_name import nearest_or_all
from schemas.names import TOPIC_ID_PATTERN, TOPIC_NAME_PATTERN
from schemas.records import NOT_BASE64

_EXPECTED = re.compile(r"Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)", re.DOTALL)
_KINDS = {
    "str": "a string",
    "bytes": "a string of base64",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_GIVEN = {**_KINDS, "float": "a number with a fraction"}
# The types of a record's members that have a second member for bytes: without an encoding, and with base64.
_TEXT_OR_NULL = ("str | null", "null")
_PATTERNS = {
    TOPIC_ID_PATTERN: "must be 22 characters of base64url",
    TOPIC_NAME_PATTERN: 'must be 1 to 249 ASCII letters, digits, ".", "_" and "-"',
}
_PYDANTIC = {
    "missing": "this field is required",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be an array",
}


def coder_words(detail: str, kind: Any, steps: Sequence[str]) -> str:
    """Return our sentence for msgspec's ``detail`` about the place ``steps`` of a document that must be a ``kind``."""
    for pattern, words in _PATTERNS.items():
        if detail.endswith(f"matching regex {pattern!r}"):
            return words
    if detail.startswith("Invalid enum value"):
        allowed = [str(value) for part in _parts(_schema_of(kind), steps) for value in part.get("enum", ())]
        return f"must be one of {', '.join(allowed)}" if allowed else detail
    if detail.startswith("Invalid base64"):
        return NOT_BASE64
    expected = _EXPECTED.fullmatch(detail)
    if expected is None:
        return detail
    hint = _other_way(expected[1], steps) if expected[1] in _TEXT_OR_NULL and expected[2] else ""
    *others, last = (_KINDS.get(each, each) for each in expected[1].split(" | "))
    sentence = f"must be {', '.join(others)} or {last}" if others else f"must be {last}"
    if expected[2]:
        sentence += f", not {_GIVEN.get(expected[2], expected[2])}"
    return sentence + expected[3] + hint


def model_words(fault: Mapping[str, Any]) -> str:
    """Return pydantic's sentence about a fault: ours as it is, its own in JSON's words."""
    if fault["type"] == "string_pattern_mismatch":
        message: str = _PATTERNS.get(fault["ctx"]["pattern"], fault["msg"])
    else:
        message = _PYDANTIC.get(fault["type"], fault["msg"])
    return message.removeprefix("Value error, ").replace("Input should be", "must be")


def unknown_field(name: str, kind: Any, steps: Sequence[str | int]) -> str:
    """Say that the object at the place ``steps`` of a ``kind`` has no field ``name``, and which fields it may have."""
    known = {each for part in _parts(_schema_of(kind), steps) for each in part.get("properties", ())}
    return f"unknown field; {nearest_or_all(name, known)}" if known else "unknown field"


def _other_way(expected: str, steps: Sequence[str]) -> str:
    """Return how to send another type than ``expected`` as a key, a value or a header's, if ``steps`` lead to one."""
    name = steps[-1] if steps else ""
    if name not in ("key", "value", "name"):
        return ""
    if expected == "null":
        return f" (with encoding=base64 send {name}_base64; to send text leave encoding out)"
    if "headers" in steps:
        return f" (a header is text: write JSON as a string, and bytes as base64 in {name}_base64)"
    return (
        f" (is the {name} JSON? then add encoding=json to the query, or send it as a string; "
        f"bytes go in {name}_base64 as base64)"
    )


@functools.lru_cache(maxsize=256)
def _schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a pydantic model or of a type that msgspec reads; empty if there is none."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_json_schema()
    try:
        return msgspec.json.schema(kind)
    except TypeError:
        return {}


def _parts(document: dict[str, Any], steps: Sequence[str | int]) -> list[dict[str, Any]]:
    """Return the schemas that the value at ``steps`` may have."""
    parts = list(_choices(document, document))
    for step in steps:
        below: list[dict[str, Any]] = []
        for part in parts:
            more = part.get("additionalProperties")
            found = part.get("properties", {}).get(step, part.get("items", more if isinstance(more, dict) else None))
            below += _choices(document, found) if isinstance(found, dict) else ()
        parts = below
    return parts


def _choices(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from _choices(document, document["$defs"][schema["$ref"].rpartition("/")[2]])
        return
    yield schema
    for choice in schema.get("anyOf", ()):
        yield from _choices(document, choice)
