"""Strict JSON: UTF-8 only, no NaN, no number too large for a float, no lone surrogates, no name twice in one object.

The coders of the hot path refuse all of that themselves, except names that occur twice. ``refuse_duplicates`` finds
those names. ``check`` is for documents that no coder reads to the end of each value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np
from pydantic import BaseModel, ValidationError

from app.problems import kinds
from app.problems.fault_words import coder_words, model_words, unknown_field
from app.problems.problem import ERRORS_MAX, Fault, Problem, invalid
from app.record_json.text_encodings import foreign_encoding

Model = TypeVar("Model", bound=BaseModel)

_PLACE = re.compile(r" - at `(\$.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
# Measured: smaller bodies are read quicker without numpy.
_ARRAYS_MIN = 4096
# This many bytes take some 20 ms.
_REWRITTEN_BYTES_MAX = 128 * 1024
_FRACTION = re.compile(rb"[0-9](?:\.0|[eE])")
_EXACT_MAX = 2**53
# A longer document gets a general error: a search for the place of the fault holds the interpreter for too long.
_SEARCHED_BYTES_MAX = 8 * 1024 * 1024
_NAME_SHOWN_MAX = 100


def malformed(detail: str, pointer: str = "") -> Problem:
    """Return the 400 for a body that is no JSON, or whose line of NDJSON at ``pointer`` is no JSON."""
    errors = [Fault(pointer, "malformed_body", detail)] if pointer else []
    return Problem(kinds.MALFORMED_BODY, f"{pointer}: {detail}" if pointer else detail, errors=errors)


def decode(decoder: msgspec.json.Decoder[Any], body: bytes | bytearray, *, takes_whole_floats: bool = False) -> Any:
    """Return ``body`` as ``decoder`` reads it. With ``takes_whole_floats`` 3.0 is a whole number.

    Raises:
        Problem: 400 when it is no JSON, 422 with a pointer when it is JSON of another shape.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        refuse_duplicates_first(body)
        whole = _with_whole_numbers(body) if takes_whole_floats else None
        if whole is not None:
            return decode(decoder, whole)
        raise invalid([fault_of(error, decoder.type)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(reason_of(error, body)) from None


def refuse_duplicates_first(body: bytes | bytearray, prefix: str = "") -> None:
    """Refuse a name that occurs twice in a ``body`` that has another fault: the fault may be in the extra member.

    Bodies longer than ``_LOOKED_THROUGH_BYTES_MAX`` are not searched.
    """
    if len(body) <= _LOOKED_THROUGH_BYTES_MAX:
        try:
            refuse_duplicates(body, prefix)
        except Problem as error:
            # A body that cannot be searched keeps its first fault.
            if error.code != "malformed_body":
                raise


def check(body: bytes | bytearray) -> None:
    """Refuse anything that is not strict JSON, everywhere in ``body``.

    Raises:
        Problem: 400 when it is no JSON, 422 for a name that occurs twice or a number out of range.
    """
    decode(_ANYTHING, body)
    refuse_duplicates(body)


def refuse_duplicates(body: bytes | bytearray, prefix: str = "") -> None:
    """Refuse a name that occurs twice in one object; ``body`` is known to be JSON.

    Raises:
        Problem: 422 with a pointer to the second occurrence.
    """
    try:
        if quote_count(_ENCODER.encode(_ANYTHING.decode(body))) == quote_count(body):
            # The coder keeps only the last of two members with one name. It has dropped none here.
            return
        if len(body) > _SEARCHED_BYTES_MAX:
            raise invalid([Fault(prefix, "duplicate_field", "a field occurs twice in one object")])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError):
        pass
    try:
        document = json.loads(body, object_pairs_hook=_note_duplicates)
    except (ValueError, RecursionError) as error:
        raise malformed(reason_of(error)) from None
    fault = _find_duplicate(document)
    if fault is not None:
        raise invalid([fault.below(prefix)])


def quote_count(body: bytes | bytearray) -> int:
    """Return how many quotes of ``body``, which is JSON, begin or end a text: two for each text and name."""
    if b"\\" in body:
        unescaped = body.replace(b"\\\\", b"")
        return unescaped.count(b'"') - unescaped.count(b'\\"')
    if len(body) < _ARRAYS_MIN:
        return body.count(b'"')
    return int(np.count_nonzero(np.frombuffer(body, dtype=np.uint8) == ord('"')))


def read_model(model: type[Model], body: bytes | bytearray) -> Model:
    """Return ``body`` as an instance of a pydantic model, as the control plane reads bodies.

    Raises:
        Problem: 400 or 422, all faults listed.
    """
    check(body)
    try:
        return model.model_validate_json(bytes(body))
    except ValidationError as error:
        whole = _with_whole_numbers(body)
        if whole is None:
            raise invalid(faults_of_model(error, model)) from None
    try:
        return model.model_validate_json(whole)
    except ValidationError as error:
        raise invalid(faults_of_model(error, model)) from None


def _with_whole_numbers(body: bytes | bytearray) -> bytes | None:
    """Return ``body``, which is JSON, with whole numbers such as 3.0 written as 3; ``None`` when it has none.

    To JSON Schema both are the same number, and clients that keep all numbers as floats write 3.0. Bodies longer
    than ``_REWRITTEN_BYTES_MAX`` and numbers from 2^53 on stay as they are.
    """
    if len(body) > _REWRITTEN_BYTES_MAX or _FRACTION.search(body) is None:
        return None
    try:
        rewritten = _ENCODER.encode(json.loads(body, parse_float=_whole_or_float))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return rewritten


def _whole_or_float(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT_MAX else number


def faults_of_model(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Return the first faults that pydantic found in a document for ``model``, in our terms.

    To return the first, pydantic makes all of them. So of more than ``_FAULTS_READ_MAX`` none is listed.
    """
    if (count := error.error_count()) > _FAULTS_READ_MAX:
        return [Fault("", "invalid_value", f"{count} faults are too many to list; send fewer entries at a time")]
    faults = []
    for found in error.errors(include_url=False, include_input=False)[:ERRORS_MAX]:
        code = _PYDANTIC_CODES.get(
            found["type"], "invalid_type" if found["type"].endswith("_type") else "invalid_value"
        )
        steps = found["loc"]
        if steps[-1:] == ("[key]",):
            # pydantic places the fault of a name below its value.
            steps = steps[:-1]
        is_unknown = code == "unknown_field"
        detail = unknown_field(str(steps[-1]), model, steps[:-1]) if is_unknown else model_words(found)
        faults.append(Fault(_pointer(steps), code, detail))
    return faults


def fault_of(error: msgspec.ValidationError, kind: Any = None) -> Fault:
    """Return the fault that msgspec found in a document for ``kind``, in our terms."""
    message = str(error)
    place = _PLACE.search(message)
    detail = message[: place.start()] if place else message
    steps = [name or number for name, number in _STEP.findall(place[1])] if place else []
    if "..." in steps:
        steps = steps[: steps.index("...")]
    if unknown := _UNKNOWN_FIELD.fullmatch(detail):
        return Fault(_pointer([*steps, unknown[1]]), "unknown_field", unknown_field(unknown[1], kind, steps))
    if missing := _MISSING_FIELD.fullmatch(detail):
        return Fault(_pointer([*steps, missing[1]]), "missing", "this field is required")
    code = "invalid_type" if detail.startswith("Expected `") and ", got `" in detail else "invalid_value"
    return Fault(_pointer(steps), code, coder_words(detail, kind, steps))


def reason_of(error: Exception, body: bytes | bytearray | None = None, what: str = "the body") -> str:
    """Return why ``body``, called ``what``, is no JSON, for people. The text has no piece of the body."""
    if body is not None and (foreign := foreign_encoding(body)):
        return f"{what} {foreign}"
    if isinstance(error, UnicodeDecodeError):
        return f"{what} is not UTF-8"
    if isinstance(error, RecursionError):
        return f"{what} is nested too deeply"
    if isinstance(error, msgspec.DecodeError):
        return _reason_of_end(body, what) if str(error) == _TRUNCATED and body is not None else str(error)
    return f"{what} is not JSON"


def _reason_of_end(body: bytes | bytearray, what: str) -> str:
    """Return the meaning of the coder's error that its input was truncated."""
    if len(body) > _SEARCHED_BYTES_MAX:
        return f"{what} is incomplete JSON, or a text has an unpaired surrogate"
    if not body.strip():
        return f"{what} is empty"
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return "the JSON body is incomplete" if what == "the body" else f"{what} is incomplete JSON"
    return "a text has an unpaired surrogate"


class _Duplicated(dict[str, Any]):
    """An object with a name that occurs twice."""

    name = ""


def _note_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    marked = _Duplicated(members)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            marked.name = name
            break
        seen.add(name)
    return marked


def _find_duplicate(document: Any) -> Fault | None:
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(document, ())]
    while waiting:
        value, steps = waiting.pop()
        if isinstance(value, _Duplicated):
            return Fault(_pointer([*steps, value.name]), "duplicate_field", _DUPLICATE)
        if isinstance(value, dict):
            waiting += [(member, (*steps, name)) for name, member in value.items() if isinstance(member, dict | list)]
        elif isinstance(value, list):
            waiting += [(item, (*steps, place)) for place, item in enumerate(value) if isinstance(item, dict | list)]
    return None


def _pointer(steps: Iterable[str | int]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step)[:_NAME_SHOWN_MAX].replace("~", "~0").replace("/", "~1") for step in steps)


_ENCODER = msgspec.json.Encoder()
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
# This many faults take some 100 ms.
_FAULTS_READ_MAX = 30_000
_LOOKED_THROUGH_BYTES_MAX = 1024 * 1024
_DUPLICATE = "this name occurs more than once in one object, and may occur once; leave one of them"
_TRUNCATED = "Input data was truncated"
_PYDANTIC_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "duplicate_partition": "duplicate_partition",
}
