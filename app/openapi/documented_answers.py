"""What the OpenAPI document shows of every answer: what it is, an example, and the headers that any answer may have."""

from __future__ import annotations

import json
from typing import Any

from app.openapi.documented_records import OFFSET_HEADERS
from app.paths import API
from app.problems.problems import MEDIA_TYPE
from app.problems.request_context import CLIENT_HEADER, HEADER, THROTTLE_HEADER

# What FastAPI says of an answer that nobody described.
_UNDESCRIBED = "Successful Response"
_SOME_FAILED = "207"
_LIMITS = ("Log-Start-Offset", "High-Watermark", "Last-Stable-Offset")
"""What an answer says of a log that does not have the offset asked for."""


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema}


HEADERS = {
    HEADER: _header("Number of the request: the client's own, or one that the service gave it.", type="string"),
    THROTTLE_HEADER: _header(
        "How many ms the client is to be silent, as the request broke a quota; absent otherwise. Requests before that "
        "are answered 429.",
        type="integer",
        minimum=0,
    ),
    "Retry-After": _header("Seconds to wait before a retry.", type="integer", minimum=0),
    "WWW-Authenticate": _header("How to say who asks (RFC 9110).", type="string"),
    "Accept": _header("The media types that are taken here.", type="string"),
    "Cache-Control": _header("no-store: an error is not to be kept.", type="string"),
    **{name: OFFSET_HEADERS[name] for name in _LIMITS},
}
"""The document's ``components.headers``: what answers have whichever route they are of."""
_OF_STATUS = {
    "401": ("WWW-Authenticate",),
    "410": _LIMITS,
    "415": ("Accept",),
    "416": _LIMITS,
    "429": ("Retry-After",),
    "503": ("Retry-After",),
    "507": ("Retry-After",),
}


def _parameter(name: str, description: str, example: str) -> dict[str, Any]:
    # No pattern: a request with a name that cannot be taken is no wrong request.
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }


_REQUEST_ID = _parameter(
    HEADER,
    "A number for the request, which its answer and the service's log repeat: 1 to 128 visible ASCII characters. "
    "Anything else is replaced.",
    "5f2b9c1e6d7a8034",
)
_CLIENT_ID = _parameter(
    CLIENT_HEADER,
    "What the client calls itself; quotas may be for it. 1 to 255 visible ASCII characters; anything else is ignored.",
    "loader",
)
REQUEST_HEADERS = (_REQUEST_ID, _CLIENT_ID)
"""What every request may have; ``Client-Id`` means something below ``/v1`` only, where quotas are."""


def complete_answers(path: str, operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Put into ``operation``, of ``path``, what no route says itself; ``components`` are the document's schemas.

    Raises:
        ValueError: a schema of an answer has a part of which there is no example.
    """
    is_counted = path.startswith(API)
    operation.setdefault("parameters", []).extend(REQUEST_HEADERS if is_counted else [_REQUEST_ID])
    for status, answer in operation["responses"].items():
        is_problem = MEDIA_TYPE in answer.get("content", {})
        for name in (
            HEADER,
            *((THROTTLE_HEADER,) if is_counted else ()),
            *(("Cache-Control",) if is_problem else ()),
            *_OF_STATUS.get(status, ()),
        ):
            answer.setdefault("headers", {}).setdefault(name, {"$ref": f"#/components/headers/{name}"})
        for content in answer.get("content", {}).values():
            schema = content["schema"]
            if answer["description"] == _UNDESCRIBED and "$ref" in schema:
                answer["description"] = _resolved(schema, components)["description"]
            # Lines are bytes to generators, and text to people.
            has_text = schema.get("format") != "binary" or "x-line-schema" in schema
            if not {"example", "examples"} & content.keys() and has_text:
                content["example"] = _example_of_content(schema, components, every=status == _SOME_FAILED)


def _example_of_content(schema: dict[str, Any], components: dict[str, Any], *, every: bool) -> Any:
    lines = schema.get("x-line-schema")
    if lines is None:
        return example_of(schema, components, every=every)
    example = example_of(lines, components, every=every)
    return json.dumps(example, ensure_ascii=False, separators=(",", ":")) + "\n"


def example_of(schema: dict[str, Any], components: dict[str, Any], *, every: bool = False) -> Any:
    """An instance of ``schema``, put together from the examples of its parts.

    A list whose items have several shapes has one of the first shape, or with ``every`` one of each.

    Raises:
        ValueError: a part has no example, and its type does not say one.
    """
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(_resolved(schema, components), components, every=every)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], components, every=every)
    match schema.get("type"):
        case "object":
            parts = schema.get("properties", {})
            # Of a pair such as value and value_base64 answers have one.
            second = {f"{name}_base64" for name in parts}
            return {
                name: example_of(part, components, every=every) for name, part in parts.items() if name not in second
            }
        case "array":
            shapes = schema["items"].get("anyOf", [schema["items"]])
            return [example_of(shape, components, every=every) for shape in (shapes if every else shapes[:1])]
        case "boolean":
            return False
    raise ValueError(f"there is no example of {json.dumps(schema)}")


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    return found
