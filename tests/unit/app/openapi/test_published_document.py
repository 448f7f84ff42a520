"""The published document keeps to the shape that generators of clients read without fault; each rule has its reason."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.main import whole_document
from app.openapi.document import PATH
from app.openapi.published_document import nodes, operations, published
from app.problems.problem import MEDIA_TYPE

PUBLISHED: dict[str, Any] = json.loads(PATH.read_text())
SIZE_MAX = 500_000
LIMITS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
REFERENCE = "#/components/schemas/"

Rule = Callable[[dict[str, Any]], Iterator[str]]


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the content of the request and of each response, with ``request`` or the status."""
    if "requestBody" in operation:
        yield "request", operation["requestBody"]["content"]
    for status, answer in operation["responses"].items():
        if "content" in answer:
            yield status, answer["content"]


def one_media_type(document: dict[str, Any]) -> Iterator[str]:
    """openapi-generator takes the first of several alone; openapi-python-client takes none."""
    for _, operation in operations(document):
        yield from (f"{operation['operationId']} {part}" for part, content in contents(operation) if len(content) != 1)


def no_answer_without_a_body_beside_one_with(document: dict[str, Any]) -> Iterator[str]:
    """The answer of hey-api is ``unknown`` then, that of openapi-fetch may be undefined."""
    for _, operation in operations(document):
        done = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        if len({"content" in answer for answer in done}) > 1:
            yield str(operation["operationId"])


def no_inline_unions(document: dict[str, Any]) -> Iterator[str]:
    """Each becomes a class per use, or an empty one. A component or null is fine."""
    named = [id(schema) for schema in document["components"]["schemas"].values()]
    for owner in nodes(document):
        if "allOf" in owner or ("oneOf" in owner and id(owner) not in named):
            yield json.dumps(owner)
        choices = owner.get("anyOf", [])
        if choices and not (len(choices) == 2 and "$ref" in choices[0] and choices[1] == {"type": "null"}):
            yield json.dumps(owner)


def no_inline_enumerations(document: dict[str, Any]) -> Iterator[str]:
    """One type for each, and not one for each use."""
    named = [id(schema) for schema in document["components"]["schemas"].values()]
    yield from (json.dumps(owner) for owner in nodes(document) if "enum" in owner and id(owner) not in named)


def open_enumerations(document: dict[str, Any]) -> Iterator[str]:
    """Clients in Python, Java, Rust and Go refuse a whole answer for one word that they do not know."""
    answers = [answer for _, operation in operations(document) for answer in operation["responses"].values()]
    found: set[str] = set()
    while names := set(re.findall(rf'"{REFERENCE}([^"]+)"', json.dumps(answers))) - found:
        found |= names
        answers = [document["components"]["schemas"][name] for name in names]
    yield from (name for name in found if "enum" in document["components"]["schemas"][name])


def sized_integers(document: dict[str, Any]) -> Iterator[str]:
    """Java and Go take 32 bits where nothing is said; a limit of 2^63 as a float is outside 64 bits."""
    for owner in nodes(document):
        if "integer" in ([owner["type"]] if isinstance(owner.get("type"), str) else owner.get("type", [])):
            limits = [owner[name] for name in ("minimum", "maximum") if name in owner]
            low, high = LIMITS.get(owner.get("format", ""), (0, -1))
            if not all(isinstance(limit, int) and low <= limit <= high for limit in limits) or low > high:
                yield json.dumps(owner)


def no_exclusive_minimum(document: dict[str, Any]) -> Iterator[str]:
    """ogen refuses the document."""
    yield from (
        json.dumps(owner) for owner in nodes(document) if {"exclusiveMinimum", "exclusiveMaximum"} & owner.keys()
    )


def no_defaults_in_bodies(document: dict[str, Any]) -> Iterator[str]:
    """openapi-typescript makes members with one required."""
    for schema in document["components"]["schemas"].values():
        yield from (json.dumps(owner) for owner in nodes(schema) if "default" in owner)


def open_answers(document: dict[str, Any]) -> Iterator[str]:
    """Go's and Java's clients refuse the first new member of an answer otherwise."""
    for owner in nodes(document):
        if isinstance(owner.get("additionalProperties"), bool) or "patternProperties" in owner:
            yield json.dumps(owner)


def security_at_the_root(document: dict[str, Any]) -> Iterator[str]:
    """openapi-python-client demands a token otherwise, though a service asks for none by default."""
    if document.get("security") != [{}, {"bearer": []}] or set(document["components"]["securitySchemes"]) != {"bearer"}:
        yield "root"
    yield from (str(operation["operationId"]) for _, operation in operations(document) if "security" in operation)


def parameters_in_path_order(document: dict[str, Any]) -> Iterator[str]:
    """``produce(topic, partition)`` is what the path says; what a client sets once is no parameter."""
    for path, operation in operations(document):
        given = operation.get("parameters", [])
        names = [each["name"] for each in given if each["in"] == "path"]
        once = {"Client-Id", "X-Request-Id"} & {each["name"] for each in given}
        if names != re.findall(r"{(\w+)}", path) or names != [each["name"] for each in given[: len(names)]] or once:
            yield str(operation["operationId"])


def no_titles(document: dict[str, Any]) -> Iterator[str]:
    """They become names of types: Value1, Value2."""
    for _, operation in operations(document):
        yield from (json.dumps(owner) for owner in nodes(operation) if isinstance(owner.get("title"), str))
    for schema in document["components"]["schemas"].values():
        for owner in nodes(schema):
            if owner is not schema and isinstance(owner.get("title"), str):
                yield json.dumps(owner)


def no_component_is_called_as_its_property(document: dict[str, Any]) -> Iterator[str]:
    """openapi-python-client shadows the one with the other."""
    for name, schema in document["components"]["schemas"].items():
        if name.lower() in {each.replace("_", "").lower() for each in schema.get("properties", {})}:
            yield name


def required_bodies(document: dict[str, Any]) -> Iterator[str]:
    """One that may be absent moves behind the optional headers in Python."""
    for _, operation in operations(document):
        if "requestBody" in operation and operation["requestBody"].get("required") is not True:
            yield str(operation["operationId"])


def a_default_problem(document: dict[str, Any]) -> Iterator[str]:
    """Every operation has one error for all that has no members of its own."""
    for _, operation in operations(document):
        shown = operation["responses"].get("default", {}).get("content", {}).get(MEDIA_TYPE, {}).get("schema")
        if shown != {"$ref": f"{REFERENCE}Problem"}:
            yield str(operation["operationId"])


def every_component_is_used(document: dict[str, Any]) -> Iterator[str]:
    """And every one that is used is there."""
    used = set(re.findall(rf'"{REFERENCE}([^"]+)"', json.dumps(document)))
    yield from used ^ set(document["components"]["schemas"])


def small(document: dict[str, Any]) -> Iterator[str]:
    """Editors and generators load it whole."""
    size = len(json.dumps(document, indent=2, ensure_ascii=False).encode())
    if size >= SIZE_MAX:
        yield f"{size} bytes"


RULES: list[Rule] = [
    one_media_type,
    no_answer_without_a_body_beside_one_with,
    no_inline_unions,
    no_inline_enumerations,
    open_enumerations,
    sized_integers,
    no_exclusive_minimum,
    no_defaults_in_bodies,
    open_answers,
    security_at_the_root,
    parameters_in_path_order,
    no_titles,
    no_component_is_called_as_its_property,
    required_bodies,
    a_default_problem,
    every_component_is_used,
    small,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_document_keeps_to_the_rule(rule: Rule) -> None:
    assert list(rule(PUBLISHED)) == []


def _first(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(operation for _, operation in operations(document) if operation["operationId"] == name)


PLANTED: dict[str, Callable[[dict[str, Any]], object]] = {
    "one_media_type": lambda d: _first(d, "ensureTopic")["requestBody"]["content"].update({"text/plain": {}}),
    "no_answer_without_a_body_beside_one_with": lambda d: _first(d, "getTopic")["responses"].update({"202": {}}),
    "no_inline_unions": lambda d: d["components"]["schemas"]["Problem"]["properties"]["code"].update(
        {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    ),
    "no_inline_enumerations": lambda d: d["components"]["schemas"]["Problem"]["properties"]["code"].update(
        {"enum": ["a"]}
    ),
    "open_enumerations": lambda d: d["components"]["schemas"]["Problem"]["properties"]["applied"].update(
        {"$ref": f"{REFERENCE}Isolation"}
    ),
    "sized_integers": lambda d: d["components"]["schemas"]["Problem"]["properties"]["status"].update(
        {"maximum": 9.2e18}
    ),
    "no_exclusive_minimum": lambda d: d["components"]["schemas"]["Problem"]["properties"]["status"].update(
        {"exclusiveMinimum": 0}
    ),
    "no_defaults_in_bodies": lambda d: d["components"]["schemas"]["Problem"]["properties"]["code"].update(
        {"default": None}
    ),
    "open_answers": lambda d: d["components"]["schemas"]["Problem"].update({"additionalProperties": False}),
    "security_at_the_root": lambda d: _first(d, "getTopic").update({"security": [{"bearer": []}]}),
    "parameters_in_path_order": lambda d: _first(d, "fetchRecords")["parameters"].reverse(),
    "no_titles": lambda d: d["components"]["schemas"]["Problem"]["properties"]["code"].update({"title": "Code"}),
    "no_component_is_called_as_its_property": lambda d: d["components"]["schemas"]["Problem"]["properties"].update(
        {"problem": {"type": "string"}}
    ),
    "required_bodies": lambda d: _first(d, "ensureTopic")["requestBody"].pop("required"),
    "a_default_problem": lambda d: _first(d, "getTopic")["responses"].pop("default"),
    "every_component_is_used": lambda d: d["components"]["schemas"].update({"Nobodys": {"type": "string"}}),
    "small": lambda d: d.update({"description": "x" * SIZE_MAX}),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_what_breaks_it(rule: Rule) -> None:
    broken = copy.deepcopy(PUBLISHED)
    PLANTED[rule.__name__](broken)
    assert list(rule(broken))


def test_an_enumeration_or_union_without_a_name_is_refused() -> None:
    for change in (
        {"enum": ["left", "right"], "type": "string"},
        {"anyOf": [{"$ref": f"{REFERENCE}Problem"}, {"$ref": f"{REFERENCE}Health"}]},
    ):
        whole = copy.deepcopy(whole_document())
        whole["components"]["schemas"]["JobSpecification"]["properties"]["mode"] = change
        with pytest.raises(ValueError, match="has no name"):
            published(whole)


def test_patterns_are_regular_expressions_of_every_language() -> None:
    """RE2, Rust, Java and JavaScript: no look-around, no back reference, no class by name, nothing beyond 16 bits."""
    patterns = {owner["pattern"] for owner in nodes(PUBLISHED) if isinstance(owner.get("pattern"), str)}
    assert len(patterns) >= 8
    for pattern in patterns:
        assert pattern.isascii()
        assert pattern.startswith("^")
        assert pattern.endswith("$")
        assert not re.search(r"\(\?|\\[^x.*]|[*+?}][+?]", pattern), pattern
        assert not set("/'\"`") & set(pattern), pattern
        re.compile(pattern)


@pytest.mark.parametrize(
    ("component", "member", "good", "bad"),
    [
        (
            "OffsetQuery",
            "timestamp",
            ["0", "1714564800000", "earliest", "latest", "max_timestamp", "2024-05-01T14:00:00+02:00"],
            ["", "soon", "-1", "01", "1" * 19, "2024-05-01", "2024-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "latest "],
        ),
        ("SplitRequest", "start_offset", ["0", "42", "earliest", "latest"], ["", "max_timestamp", "-1", "01"]),
    ],
)
def test_text_that_stands_for_a_choice_has_a_pattern_of_it(
    component: str, member: str, good: list[str], bad: list[str]
) -> None:
    schema = PUBLISHED["components"]["schemas"][component]["properties"][member]
    assert "string" in schema["type"]
    assert all(re.search(schema["pattern"], text) for text in good)
    assert not any(re.search(schema["pattern"], text) for text in bad)


def test_the_whole_document_is_left_as_it_was() -> None:
    before = json.dumps(whole_document())
    published(whole_document())
    assert json.dumps(whole_document()) == before


def test_both_documents_have_the_same_operations() -> None:
    """The published document only leaves out HEAD: a generator would make a method of each that no program calls."""

    def names(document: dict[str, Any]) -> set[str]:
        return {operation["operationId"] for _, operation in operations(document)}

    assert names(PUBLISHED) <= names(whole_document())
    assert all(name.startswith("head") for name in names(whole_document()) - names(PUBLISHED))
