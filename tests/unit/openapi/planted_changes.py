"""A small document in the shape of ours, with changes that break it and changes that do not, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Node = dict[str, Any]
Change = Callable[[Node], object]
Place = tuple[str, ...]

LIST, PUT, DELETE = "GET /v1/topics", "PUT /v1/topics/{topic}", "DELETE /v1/topics/{topic}"
REFERENCE = "#/components/schemas/"


def _answer(component: str, media_type: str = "application/json", **more: Any) -> Node:
    content = {media_type: {"schema": {"$ref": REFERENCE + component}}}
    return {"description": "An answer.", "content": content, **more}


def _problem() -> Node:
    return _answer(
        "Problem", "application/problem+json", headers={"Retry-After": {"$ref": "#/components/headers/Retry"}}
    )


def _parameter(where: str, name: str, schema: Node, **more: Any) -> Node:
    return {"name": name, "in": where, "required": where == "path", "schema": schema, "description": "Words.", **more}


def _components() -> Node:
    """``Topic`` is in answers, ``NewTopic`` in requests, ``Retention`` in both, ``Line`` in neither."""
    state = {"anyOf": [{"$ref": REFERENCE + "State"}, {"type": "null"}], "description": "Words."}
    size = {"type": "integer", "format": "int32", "maximum": 100}
    return {
        "Topic": {
            "type": "object",
            "title": "Topic",
            "required": ["name", "partitions", "state"],
            "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$"},
                "partitions": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1000},
                "state": state,
                "description": {"type": "string", "description": "A member with the name of a keyword for words."},
                "tags": {"type": "array", "items": {"type": "string"}},
                "offsets": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
                "reason": {"type": "string", "x-extensible-enum": ["asked", "fenced"]},
                "retention": {"$ref": REFERENCE + "Retention"},
            },
        },
        "NewTopic": {
            "type": "object",
            "title": "NewTopic",
            "required": ["partitions"],
            "properties": {
                "partitions": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1000},
                "policy": {"$ref": REFERENCE + "Policy"},
                "owner": {"type": ["string", "null"], "maxLength": 20},
                "key": {"type": "string", "contentEncoding": "base64"},
                "retention": {"$ref": REFERENCE + "Retention"},
                "sizes": {"type": "array", "items": size, "maxItems": 9},
            },
        },
        "Retention": {"type": "object", "properties": {"bytes": {"type": "integer", "format": "int64", "maximum": 9}}},
        "Policy": {"type": "string", "enum": ["delete", "compact"]},
        "State": {"type": "string", "enum": ["open", "deleted"]},
        "Outcome": {"oneOf": [{"$ref": REFERENCE + "Topic"}, {"$ref": REFERENCE + "Problem"}]},
        "Problem": {"type": "object", "title": "Problem", "properties": {"code": {"type": "string"}}},
        "Line": {"type": "object", "properties": {"of": {"type": "string", "maxLength": 9}}},
    }


def document() -> Node:
    """A fresh one."""
    topic = _parameter("path", "topic", {"type": "string", "maxLength": 249})
    limit = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1000, "default": 100}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Small", "version": "0.1.0"},
        "paths": {
            "/v1/topics": {
                "get": {
                    "tags": ["topics"],
                    "summary": "List topics",
                    "operationId": "listTopics",
                    "parameters": [
                        _parameter("query", "limit", limit),
                        _parameter("query", "policy", {"$ref": REFERENCE + "Policy"}),
                        _parameter("header", "If-None-Match", {"type": "string"}),
                    ],
                    "responses": {"200": _answer("Outcome"), "410": _problem(), "default": _problem()},
                }
            },
            "/v1/topics/{topic}": {
                "parameters": [topic],
                "put": {
                    "tags": ["topics"],
                    "operationId": "ensureTopic",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {"schema": {"$ref": REFERENCE + "NewTopic"}},
                            "application/octet-stream": {"schema": {"type": "string"}},
                        },
                    },
                    "responses": {"200": _answer("Topic"), "201": _answer("Topic"), "default": _problem()},
                },
                "delete": {
                    "tags": ["topics"],
                    "operationId": "deleteTopic",
                    "responses": {
                        "204": {"description": "Gone.", "headers": {"ETag": {"schema": {"type": "string"}}}},
                        "default": _problem(),
                    },
                },
            },
        },
        "components": {
            "schemas": _components(),
            "headers": {"Retry": {"schema": {"type": "integer", "format": "int64"}, "description": "Words."}},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "Words."}},
        },
        "security": [{}, {"bearer": []}],
    }


def operation(document: Node, name: str) -> Node:
    method, path = name.split()
    found: Node = document["paths"][path][method.lower()]
    return found


def schema(document: Node, component: str, member: str = "") -> Node:
    found: Node = document["components"]["schemas"][component]
    return found["properties"][member] if member else found


def parameter(document: Node, name: str) -> Node:
    return next(each for each in operation(document, LIST)["parameters"] if each["name"] == name)


def _rename_component(document: Node) -> None:
    schemas = document["components"]["schemas"]
    schemas["TopicDescription"] = {**schemas.pop("Topic"), "title": "TopicDescription"}
    for status in ("200", "201"):
        operation(document, PUT)["responses"][status] = _answer("TopicDescription")
    schemas["Outcome"]["oneOf"][0] = {"$ref": REFERENCE + "TopicDescription"}


def _new_parameter(document: Node, required: bool) -> None:
    added = _parameter("query", "owner", {"type": "string"}) | {"required": required}
    operation(document, LIST)["parameters"].append(added)


def _new_operation(document: Node) -> None:
    document["paths"]["/v1/jobs"] = {"get": {**operation(document, LIST), "operationId": "listJobs"}}
    document["components"]["schemas"]["Job"] = {"type": "object", "required": ["id"], "properties": {"id": {}}}


def _other_words(document: Node) -> None:
    operation(document, LIST).update(summary="Topics", description="More.", deprecated=True)
    operation(document, LIST)["responses"]["200"]["description"] = "Others."
    parameter(document, "limit")["description"] = "Others."
    schema(document, "Topic").update(description="Others.", examples=[{}])
    schema(document, "Topic", "state")["description"] = "Others."
    document["components"]["headers"]["Retry"]["description"] = "Others."


BREAKING: dict[str, tuple[Change, set[Place]]] = {
    "operation removed": (lambda d: d["paths"]["/v1/topics/{topic}"].pop("delete"), {(DELETE,)}),
    "path removed": (lambda d: d["paths"].pop("/v1/topics/{topic}"), {(PUT,), (DELETE,)}),
    "operationId renamed": (lambda d: operation(d, LIST).update(operationId="topics"), {(LIST, "operationId")}),
    "tag renamed": (lambda d: operation(d, LIST).update(tags=["names"]), {(LIST, "tags")}),
    "component renamed": (_rename_component, {("Topic",)}),
    "component removed": (lambda d: d["components"]["schemas"].pop("Line"), {("Line",)}),
    "parameter removed": (lambda d: operation(d, LIST)["parameters"].pop(0), {(LIST, "?limit")}),
    "parameter required": (lambda d: parameter(d, "limit").update(required=True), {(LIST, "?limit", "required")}),
    "parameter new and required": (lambda d: _new_parameter(d, True), {(LIST, "?owner")}),
    "parameter narrower": (
        lambda d: parameter(d, "limit")["schema"].update(maximum=500, minimum=2),
        {(LIST, "?limit", "maximum"), (LIST, "?limit", "minimum")},
    ),
    "parameter of a path narrower": (
        lambda d: d["paths"]["/v1/topics/{topic}"]["parameters"][0]["schema"].update(maxLength=100),
        {(PUT, "{topic}", "maxLength"), (DELETE, "{topic}", "maxLength")},
    ),
    "parameter with another default": (
        lambda d: parameter(d, "limit")["schema"].update(default=10),
        {(LIST, "?limit", "default")},
    ),
    "header of a request with another type": (
        lambda d: parameter(d, "If-None-Match")["schema"].update(type="integer"),
        {(LIST, "If-None-Match", "type")},
    ),
    "parameter written in another way": (
        lambda d: parameter(d, "limit").update(explode=False),
        {(LIST, "?limit", "explode")},
    ),
    "value of a request removed": (lambda d: schema(d, "Policy")["enum"].remove("compact"), {("Policy", "compact")}),
    "member of a request required": (
        lambda d: schema(d, "NewTopic")["required"].append("owner"),
        {("NewTopic", "owner", "required")},
    ),
    "member of a request new and required": (
        lambda d: (
            schema(d, "NewTopic")["required"].append("rack"),
            schema(d, "NewTopic")["properties"].update(rack={"type": "string"}),
        ),
        {("NewTopic", "rack")},
    ),
    "member of a request removed": (
        lambda d: schema(d, "NewTopic")["properties"].pop("owner"),
        {("NewTopic", "owner")},
    ),
    "member of a request no longer null": (
        lambda d: schema(d, "NewTopic", "owner").update(type="string"),
        {("NewTopic", "owner", "type")},
    ),
    "member of a request optional": (
        lambda d: schema(d, "NewTopic")["required"].remove("partitions"),
        {("NewTopic", "partitions", "required")},
    ),
    "limit of a request lower": (
        lambda d: schema(d, "NewTopic", "partitions").update(maximum=10),
        {("NewTopic", "partitions", "maximum")},
    ),
    "limit of a request new": (
        lambda d: schema(d, "NewTopic", "partitions").update(multipleOf=2),
        {("NewTopic", "partitions", "multipleOf")},
    ),
    "items of a request narrower": (
        lambda d: schema(d, "NewTopic", "sizes")["items"].update(maximum=10),
        {("NewTopic", "sizes", "items", "maximum")},
    ),
    "encoding of bytes": (
        lambda d: schema(d, "NewTopic", "key").update(contentEncoding="base64url"),
        {("NewTopic", "key", "contentEncoding")},
    ),
    "limit of both lower": (
        lambda d: schema(d, "Retention", "bytes").update(maximum=8),
        {("Retention", "bytes", "maximum")},
    ),
    "limit of both higher": (
        lambda d: schema(d, "Retention", "bytes").update(maximum=10),
        {("Retention", "bytes", "maximum")},
    ),
    "limit of a component that only words name": (
        lambda d: schema(d, "Line", "of").pop("maxLength"),
        {("Line", "of", "maxLength")},
    ),
    "request body new and required": (
        lambda d: operation(d, DELETE).update(requestBody=operation(d, PUT)["requestBody"]),
        {(DELETE, "body")},
    ),
    "request body removed": (lambda d: operation(d, PUT).pop("requestBody"), {(PUT, "body")}),
    "media type of a request removed": (
        lambda d: operation(d, PUT)["requestBody"]["content"].pop("application/octet-stream"),
        {(PUT, "body", "application/octet-stream")},
    ),
    "request body with another component": (
        lambda d: operation(d, PUT)["requestBody"]["content"].update(_answer("Topic")["content"]),
        {(PUT, "body", "application/json", "type")},
    ),
    "member of an answer removed": (lambda d: schema(d, "Topic")["properties"].pop("name"), {("Topic", "name")}),
    "member of an answer with the name of words removed": (
        lambda d: schema(d, "Topic")["properties"].pop("description"),
        {("Topic", "description")},
    ),
    "member of an answer optional": (
        lambda d: schema(d, "Topic")["required"].remove("name"),
        {("Topic", "name", "required")},
    ),
    "integer to string": (
        lambda d: schema(d, "Topic")["properties"].update(partitions={"type": "string"}),
        {("Topic", "partitions", "type")},
    ),
    "int32 to int64": (
        lambda d: schema(d, "Topic", "partitions").update(format="int64"),
        {("Topic", "partitions", "format")},
    ),
    "null in an answer": (
        lambda d: schema(d, "Topic", "name").update(type=["string", "null"]),
        {("Topic", "name", "type")},
    ),
    "type of an answer's items": (
        lambda d: schema(d, "Topic", "tags")["items"].update(type="integer"),
        {("Topic", "tags", "items", "type")},
    ),
    "type of an answer's values": (
        lambda d: schema(d, "Topic", "offsets")["additionalProperties"].update(format="int32"),
        {("Topic", "offsets", "additionalProperties", "format")},
    ),
    "limit of an answer higher": (
        lambda d: schema(d, "Topic", "partitions").update(maximum=2000),
        {("Topic", "partitions", "maximum")},
    ),
    "pattern of an answer gone": (lambda d: schema(d, "Topic", "name").pop("pattern"), {("Topic", "name", "pattern")}),
    "value of an answer new": (lambda d: schema(d, "State")["enum"].append("moved"), {("State", "moved")}),
    "word of an open enumeration removed": (
        lambda d: schema(d, "Topic", "reason")["x-extensible-enum"].remove("asked"),
        {("Topic", "reason", "asked")},
    ),
    "choice of an answer new": (
        lambda d: schema(d, "Outcome")["oneOf"].append({"$ref": REFERENCE + "Line"}),
        {("Outcome", "type")},
    ),
    "choice written in another way": (
        lambda d: schema(d, "Outcome").update(anyOf=schema(d, "Outcome").pop("oneOf")),
        {("Outcome", "type")},
    ),
    "success new": (lambda d: operation(d, LIST)["responses"].update({"207": _answer("Topic")}), {(LIST, "207")}),
    "success removed": (lambda d: operation(d, PUT)["responses"].pop("201"), {(PUT, "201")}),
    "error with members of its own removed": (lambda d: operation(d, LIST)["responses"].pop("410"), {(LIST, "410")}),
    "media type of an answer replaced": (
        lambda d: operation(d, PUT)["responses"].update({"200": _answer("Topic", "text/plain")}),
        {(PUT, "200", "text/plain"), (PUT, "200", "application/json")},
    ),
    "answer with a body that had none": (
        lambda d: operation(d, DELETE)["responses"]["204"].update(content=_answer("Topic")["content"]),
        {(DELETE, "204", "application/json")},
    ),
    "header of an answer removed": (
        lambda d: operation(d, DELETE)["responses"]["204"]["headers"].pop("ETag"),
        {(DELETE, "204", "ETag")},
    ),
    "type of a shared header": (
        lambda d: d["components"]["headers"]["Retry"]["schema"].update(type="string"),
        {("Retry", "type")},
    ),
    "authentication required": (lambda d: d.update(security=[{"bearer": []}]), {("security",)}),
    "authentication of one operation required": (
        lambda d: operation(d, LIST).update(security=[{"bearer": []}]),
        {(LIST, "security")},
    ),
    "scheme of authentication": (
        lambda d: d["components"]["securitySchemes"]["bearer"].update(scheme="basic"),
        {("bearer", "scheme")},
    ),
    "keyword without a rule": (
        lambda d: schema(d, "Topic").update(dependentRequired={"name": ["tags"]}),
        {("Topic", "dependentRequired")},
    ),
}
HARMLESS: dict[str, Change] = {
    "operation new": _new_operation,
    "parameter new": lambda d: _new_parameter(d, False),
    "parameter wider": lambda d: parameter(d, "limit")["schema"].update(maximum=2000, minimum=0),
    "request body new": lambda d: operation(d, DELETE).update(
        requestBody={**operation(d, PUT)["requestBody"], "required": False}
    ),
    "media type of a request new": lambda d: operation(d, PUT)["requestBody"]["content"].update({"text/plain": {}}),
    "member of a request new": lambda d: schema(d, "NewTopic")["properties"].update(rack={"type": "string"}),
    "limit of a request higher": lambda d: schema(d, "NewTopic", "partitions").update(maximum=2000),
    "limit of a request gone": lambda d: schema(d, "NewTopic", "owner").pop("maxLength"),
    "value of a request new": lambda d: schema(d, "Policy")["enum"].append("both"),
    "member of an answer new": lambda d: (
        schema(d, "Topic")["properties"].update(size={"type": "integer"}),
        schema(d, "Topic")["required"].append("size"),
    ),
    "limit of an answer lower": lambda d: schema(d, "Topic", "partitions").update(maximum=10),
    "word of an open enumeration new": lambda d: schema(d, "Topic", "reason")["x-extensible-enum"].append("late"),
    "error new": lambda d: operation(d, PUT)["responses"].update({"412": _problem()}),
    "header of an answer new": lambda d: operation(d, LIST)["responses"]["200"].update(
        headers={"ETag": {"schema": {"type": "string"}}}
    ),
    "no request needs a credential any more": lambda d: d.update(security=[]),
    "other words": _other_words,
    "another version": lambda d: d["info"].update(version="0.2.0", title="Smaller"),
    "order of members": lambda d: schema(d, "Topic")["required"].reverse(),
}
