"""Each change of a document is named where it is made, or is harmless."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openapi.breaking_changes import breaking_changes
from openapi.contract import CURRENT
from openapi.nodes import components, operations, parameters, resolved
from tests.unit.openapi.planted_changes import BREAKING, HARMLESS, Node, Place, document

PUBLISHED: Node = json.loads(Path(CURRENT).read_text("utf-8"))


def places(before: Node, now: Node) -> set[Place]:
    return {change.place for change in breaking_changes(before, now)}


@pytest.mark.parametrize("name", BREAKING)
def test_what_breaks_is_named_where_it_is_and_nothing_else(name: str) -> None:
    change, expected = BREAKING[name]
    changed = document()
    change(changed)
    assert places(document(), changed) == expected


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_not_named(name: str) -> None:
    changed = document()
    HARMLESS[name](changed)
    assert changed != document()
    assert places(document(), changed) == set()


def test_a_change_says_what_was_and_what_is() -> None:
    changed = document()
    BREAKING["parameter narrower"][0](changed)
    assert [change.item for change in breaking_changes(document(), changed)] == [
        "- `GET /v1/topics` `?limit` `maximum`: was 1000, is 500.",
        "- `GET /v1/topics` `?limit` `minimum`: was 1, is 2.",
    ]


def test_a_renamed_component_says_its_new_name() -> None:
    changed = document()
    BREAKING["component renamed"][0](changed)
    assert [change.item for change in breaking_changes(document(), changed)] == [
        "- `Topic`: renamed to `TopicDescription`."
    ]


def test_an_operation_may_open_what_the_document_closes() -> None:
    closed = document() | {"security": [{"bearer": []}]}
    opened = copy.deepcopy(closed)
    opened["paths"]["/v1/topics"]["get"]["security"] = []
    assert places(closed, opened) == set()
    assert places(opened, closed) == {("GET /v1/topics", "security")}


def test_parameters_and_answers_behind_references_are_compared() -> None:
    """However a document spreads over references, it says the same."""
    spread = document()
    operation = spread["paths"]["/v1/topics"]["get"]
    spread["components"]["parameters"] = {"Limit": operation["parameters"][0]}
    operation["parameters"][0] = {"$ref": "#/components/parameters/Limit"}
    spread["components"]["responses"] = {"Gone": operation["responses"]["410"]}
    operation["responses"]["410"] = {"$ref": "#/components/responses/Gone"}
    assert places(document(), spread) == set()
    changed = copy.deepcopy(spread)
    changed["components"]["parameters"]["Limit"]["schema"]["maximum"] = 10
    del changed["components"]["responses"]["Gone"]["content"]
    assert places(spread, changed) == {
        ("GET /v1/topics", "?limit", "maximum"),
        ("GET /v1/topics", "410", "application/problem+json"),
    }


def members(schema: Any, *place: str) -> Iterator[tuple[Place, Node]]:
    """Each schema below ``schema``, with its place."""
    for name, member in schema.get("properties", {}).items():
        yield (*place, name), member
        yield from members(member, *place, name)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield (*place, keyword), schema[keyword]
            yield from members(schema[keyword], *place, keyword)


def schemas(whole: Node) -> Iterator[tuple[Place, Node]]:
    """Each schema of a document with its place: of components, parameters, bodies, answers and headers."""
    for name, component in components(whole, "schemas").items():
        yield (name,), component
        yield from members(component, name)
    for name, header in components(whole, "headers").items():
        yield (name,), header["schema"]
    for name, operation in operations(whole).items():
        for spelling, parameter in parameters(whole, operation).items():
            yield (name, spelling), parameter["schema"]
        contents = {"body": operation.get("requestBody", {}), **operation["responses"]}
        for part, holder in contents.items():
            for media_type, content in resolved(whole, holder).get("content", {}).items():
                yield (name, part, media_type), content["schema"]
                yield from members(content["schema"], name, part, media_type)


@pytest.mark.parametrize("keyword", ["$ref", "type", "format", "pattern", "contentEncoding", "const", "anyOf", "oneOf"])
def test_no_type_of_the_published_document_changes_unseen(keyword: str) -> None:
    """Every place at once: what is altered and not named would be unseen."""
    released = copy.deepcopy(PUBLISHED)
    if keyword == "oneOf":
        # Outcomes were unions of this kind; the document has none now.
        choices = [{"$ref": "#/components/schemas/Health"}, {"$ref": "#/components/schemas/Problem"}]
        released["components"]["schemas"]["Union"] = {"oneOf": choices}
    changed = copy.deepcopy(released)
    expected: set[Place] = set()
    for place, schema in schemas(changed):
        # What was an array or an object is not looked into when it is something else.
        is_inside = any((*place[:end], "type") in expected for end in range(1, len(place)))
        if keyword in schema and not is_inside:
            if keyword in ("anyOf", "oneOf"):
                schema[keyword] = [*schema[keyword], {"type": "boolean"}]
            else:
                schema[keyword] += "-other" if isinstance(schema[keyword], str) else ["boolean"]
            expected.add((*place, "type" if keyword in ("$ref", "anyOf", "oneOf") else keyword))
    assert expected
    assert places(released, changed) == expected


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"])
def test_no_limit_of_the_published_document_changes_unseen(keyword: str) -> None:
    """A limit that moves by one is named one way, the other way, or both: in requests, in answers, in what both use."""
    moved: list[set[Place]] = []
    for step in (-1, 1):
        changed = copy.deepcopy(PUBLISHED)
        expected = set()
        for place, schema in schemas(changed):
            if keyword in schema:
                schema[keyword] += step
                expected.add((*place, keyword))
        moved.append(places(PUBLISHED, changed))
    assert expected
    assert moved[0] | moved[1] == expected


def test_nothing_of_the_published_document_goes_away_unseen() -> None:
    changed = copy.deepcopy(PUBLISHED)
    expected: set[Place] = set()
    for name, component in components(changed, "schemas").items():
        expected |= {(name, member) for member in component.pop("properties", {})}
        expected |= {
            (name, str(value)) for keyword in ("enum", "x-extensible-enum") for value in component.get(keyword, [])
        }
        component.update({keyword: [] for keyword in ("enum", "x-extensible-enum") if keyword in component})
    for name, operation in operations(changed).items():
        expected |= {(name, spelling) for spelling in parameters(changed, operation)}
        expected |= {(name, status) for status in operation["responses"]} | {(name, "operationId"), (name, "tags")}
        expected |= {(name, "body")} if "requestBody" in operation else set()
    for item in changed["paths"].values():
        for operation in item.values():
            for part in ("parameters", "requestBody", "operationId", "tags"):
                operation.pop(part, None)
            operation["responses"] = {}
    assert places(PUBLISHED, changed) == expected


def test_no_requirement_of_the_published_document_changes_unseen() -> None:
    changed = copy.deepcopy(PUBLISHED)
    expected = set()
    for place, schema in schemas(changed):
        for member in schema.get("properties", {}):
            expected.add((*place, member, "required"))
        if "properties" in schema:
            schema["required"] = [name for name in schema["properties"] if name not in schema.get("required", ())]
    for item in changed["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                parameter["required"] = not parameter["required"]
    for name, operation in operations(changed).items():
        expected |= {(name, spelling, "required") for spelling in parameters(changed, operation)}
    assert places(PUBLISHED, changed) == expected
