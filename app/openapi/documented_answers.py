"""The parts that the OpenAPI document has for every response: description, example, and common headers."""

from __future__ import annotations

import json
from typing import Any

from app.openapi.documented_records import OFFSET_HEADERS
from app.paths import API
from app.problems.problem import MEDIA_TYPE
from app.problems.request_context import CLIENT_HEADER, HEADER, THROTTLE_HEADER

# FastAPI's description of a response without one.
_UNDESCRIBED = "Successful Response"
_SOME_FAILED = "207"
_LIMITS = ("Log-Start-Offset", "High-Watermark", "Last-Stable-Offset")
"""Headers of a response about a log that does not have the requested offset."""


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema}


HEADERS = {
    HEADER: _header("Id of the request: from the client's request, or made by the service.", type="string"),
    THROTTLE_HEADER: _header(
        "Milliseconds to wait because the client exceeded a quota; earlier requests get 429. Absent otherwise.",
        type="integer",
        minimum=0,
    ),
    "Retry-After": _header("Seconds to wait before a retry.", type="integer", minimum=0),
    "WWW-Authenticate": _header("Authentication scheme to use (RFC 9110).", type="string"),
    "Accept": _header("Media types that the operation accepts.", type="string"),
    "Cache-Control": _header("no-store: caches must not store errors.", type="string"),
    **{name: OFFSET_HEADERS[name] for name in _LIMITS},
}
"""The document's ``components.headers``: headers of responses of all routes."""


def _parameter(name: str, description: str, example: str) -> dict[str, Any]:
    # No pattern, because a request with an unusable value is accepted.
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
    "Id of the request, which its response and the service's log repeat: 1 to 128 visible ASCII characters. Any other "
    "value is replaced.",
    "5f2b9c1e6d7a8034",
)
_CLIENT_ID = _parameter(
    CLIENT_HEADER,
    "Name of the client, for quotas: 1 to 255 visible ASCII characters. Any other value is ignored.",
    "loader",
)
REQUEST_HEADERS = (_REQUEST_ID, _CLIENT_ID)
"""Headers that every request may have. ``Client-Id`` has an effect only below ``/v1``, where quotas apply."""


def complete_answers(path: str, operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Add the common headers, descriptions and examples to ``operation``, which belongs to ``path``.

    ``components`` are the document's schemas.

    Raises:
        ValueError: a schema of a response has a part without an example.
    """
    is_counted = path.startswith(API)
    operation.setdefault("parameters", []).extend(REQUEST_HEADERS if is_counted else [_REQUEST_ID])
    for status, answer in operation["responses"].items():
        is_problem = MEDIA_TYPE in answer.get("content", {})
        of_kinds = answer.pop("headers", {}) if is_problem else {}
        for name in (HEADER, *((THROTTLE_HEADER,) if is_counted else ()), *(("Cache-Control",) if is_problem else ())):
            answer.setdefault("headers", {}).setdefault(name, {"$ref": f"#/components/headers/{name}"})
        answer["headers"].update(of_kinds)
        for content in answer.get("content", {}).values():
            schema = content["schema"]
            if answer["description"] == _UNDESCRIBED and "$ref" in schema:
                answer["description"] = _resolved(schema, components)["description"]
            # For generators lines are bytes; for readers of the document they are text.
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
    """Return an instance of ``schema``, composed of the examples of its parts.

    A list whose items have several shapes has one item of the first shape, or with ``every`` one item of each shape.

    Raises:
        ValueError: a part has no example, and its type does not imply one.
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
            # Responses have one member of a pair such as value and value_base64.
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
