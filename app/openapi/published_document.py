"""The published OpenAPI document: the whole document in a form that generators of clients read correctly.

The whole document is for people and for our tests. It has every error of every route, examples, and the exact rules of
each member. Generators fail on many of these parts: ``docs/reference/sdks.md`` says which generator fails on which
part, and has a program that was run with each generator. Each function here makes one change. None changes a byte on
the wire: requests and responses fit both documents.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from app.problems import kinds
from app.problems.problem import MEDIA_TYPE
from app.problems.request_context import CLIENT_HEADER, HEADER
from schemas.base import LONG_MAX, NUMBER_TEXT_PATTERN

_INT_MAX = 2**31 - 1
_REFERENCE = "#/components/schemas/"
_NULL = {"type": "null"}
_ANY_CALLER: list[dict[str, list[str]]] = [{}, {"bearer": []}]
# A time from 1970 on. The pattern works in the regular expressions of every language, so it allows 30 February.
_TIME = (
    "(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_EXAMPLES = ("example", "examples", "x-examples")

# Names for the enumerations that are inline in the whole document, by their words. Other enumerations have a name.
_ENUMERATIONS: dict[tuple[str, ...], str] = {
    ("0", "1", "all"): "Acks",
    ("written", "fsynced"): "Durability",
    ("utf8", "base64", "json"): "Encoding",
    ("read_uncommitted", "read_committed"): "Isolation",
    ("error", "earliest"): "OnTruncated",
    ("delete", "compact", "delete,compact", "compact,delete"): "CleanupPolicy",
    ("allow", "deny"): "AclPermission",
    ("literal", "prefixed"): "AclPatternType",
    ("topic", "group", "cluster", "transactional_id"): "AclResourceType",
    ("topic", "group", "transactional_id"): "TokenResourceType",
    (
        "ALL",
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ): "AclOperation",
    ("transactional", "idempotent"): "JobMode",
    ("all", "open", "committing", "committed", "aborting", "aborted"): "JobFilter",
    (
        "open",
        "all",
        "empty",
        "ongoing",
        "prepare_commit",
        "prepare_abort",
        "complete_commit",
        "complete_abort",
    ): "TransactionFilter",
}
_OUTCOMES = {
    ("OffsetResult", "OffsetFailure"): "OffsetOutcome",
    ("PartProduceResult", "PartProduceFailure"): "PartProduceOutcome",
    ("ProduceResult", "ProduceFailure"): "PartitionProduceOutcome",
}
# A status has these types even if some of its problems lack the members: 503 while the service starts, and 422, where
# no other problem has members.
_LOOSE = (kinds.STARTING.component, kinds.RECORD_TOO_LARGE.component)
_PROGRESS = "StartingProgress"


def published(whole: dict[str, Any]) -> dict[str, Any]:
    """Return ``whole`` in the form for generators; ``whole`` itself stays unchanged.

    Raises:
        ValueError: an enumeration or a union in it has no name in this module.
    """
    document = copy.deepcopy(whole)
    for each in (
        _named_problems,
        _without_examples,
        _one_security,
        _parameters_in_order,
        _without_titles,
        _required_answers,
        _without_defaults,
        _open_objects,
        _settings_as_text,
        _plain_unions,
        _sized_numbers,
        _flat_outcomes,
        _open_enumerations,
        _named_enumerations,
        _plain_parameters,
        _default_problem,
        _one_success,
    ):
        each(document)
    document["components"]["schemas"] = dict(sorted(document["components"]["schemas"].items()))
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each path with each of its operations."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def nodes(value: Any, *, into: tuple[str, ...] = _EXAMPLES) -> Iterator[dict[str, Any]]:
    """Yield every object of ``value``, outermost first, except below the members named in ``into``."""
    if isinstance(value, dict):
        yield value
        for name, each in list(value.items()):
            if name not in into:
                yield from nodes(each, into=into)
    elif isinstance(value, list):
        for each in value:
            yield from nodes(each, into=into)


def _schemas(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def _without_examples(document: dict[str, Any]) -> None:
    """Remove the examples. They are three quarters of the document, and the reference has them."""
    for owner in nodes(document, into=()):
        for name in ("example", "examples"):
            # A property may also have this name; its value is a schema then.
            if name in owner and not (isinstance(owner[name], dict) and "type" in owner[name]):
                del owner[name]


def _one_security(document: dict[str, Any]) -> None:
    """State security once, at the root. Authentication is off by default, so a generated client needs no token."""
    document["components"]["securitySchemes"].pop("mutualTLS", None)
    for _, operation in operations(document):
        operation.pop("security", None)
    document["security"] = _ANY_CALLER


def _parameters_in_order(document: dict[str, Any]) -> None:
    """Put the parameters of the path first, in its order.

    Headers that a client sets once for all of its requests are removed from each operation.
    """
    for path, operation in operations(document):
        kept = [each for each in operation.get("parameters", []) if each["name"] not in (HEADER, CLIENT_HEADER)]
        kept.sort(key=lambda each: path.find(f"{{{each['name']}}}") if each["in"] == "path" else len(path))
        operation.pop("parameters", None)
        if kept:
            operation["parameters"] = kept
        if "requestBody" in operation:
            operation["requestBody"]["required"] = True


def _without_titles(document: dict[str, Any]) -> None:
    """Remove titles of properties. Generators would make them names of types: Value, Value1, Value2."""
    for owner in nodes(document["paths"]):
        if not isinstance(owner.get("title"), dict):
            owner.pop("title", None)
    for schema in _schemas(document).values():
        for owner in nodes(schema):
            if owner is not schema and not isinstance(owner.get("title"), dict):
                owner.pop("title", None)


def _required_answers(document: dict[str, Any]) -> None:
    """Require the members of responses that have a default, since the service always writes them.

    Members of requests stay optional.
    """
    schemas = _schemas(document)
    bodies = [operation.get("requestBody", {}) for _, operation in operations(document)]
    asked = _components_of(bodies, schemas)
    for name in _components_of([operation["responses"] for _, operation in operations(document)], schemas) - asked:
        for member, schema in schemas[name].get("properties", {}).items():
            if isinstance(schema.get("default"), str | int) and member not in schemas[name].get("required", []):
                schemas[name].setdefault("required", []).append(member)


def _components_of(owners: list[Any], schemas: dict[str, Any]) -> set[str]:
    """Return the names of all components that ``owners`` refer to, directly or through other components."""
    found: set[str] = set()
    waiting = list(owners)
    while waiting:
        for owner in nodes(waiting.pop()):
            name = _name_of(owner)
            if name in schemas and name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return found


def _without_defaults(document: dict[str, Any]) -> None:
    """Remove defaults: openapi-typescript requires members with a default, and the service applies its own defaults."""
    for schema in _schemas(document).values():
        for owner in nodes(schema):
            for member in owner.get("properties", {}).values():
                member.pop("default", None)


def _open_objects(document: dict[str, Any]) -> None:
    """Allow unknown members, so that clients accept the new members of a later version.

    Maps declare the type of their values, and no rules for their names.
    """
    for owner in nodes(document):
        if isinstance(owner.get("additionalProperties"), bool):
            del owner["additionalProperties"]
        if "patternProperties" in owner:
            (owner["additionalProperties"],) = owner.pop("patternProperties").values()
        owner.pop("propertyNames", None)


def _settings_as_text(document: dict[str, Any]) -> None:
    """Declare settings of topics as text, which the service also parses as numbers and booleans."""
    for name, kind in (("TopicSpecification", "string"), ("TopicChange", ["string", "null"])):
        _schemas(document)[name]["properties"]["config"]["additionalProperties"] = {"type": kind}


def _plain_unions(document: dict[str, Any]) -> None:
    """Replace a union of inline types (time, number or word) by one type.

    In a query the type is text. In JSON a time is a number of milliseconds, as in responses. If the union has words,
    the type is text with a pattern.
    """
    for _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            if "anyOf" in parameter["schema"]:
                parameter["schema"] = _text_of(parameter["schema"]["anyOf"])
    for owner in nodes(document):
        choices = owner.get("anyOf")
        if choices is None or any("$ref" in choice for choice in choices):
            continue
        others = [flat for choice in choices if choice != _NULL for flat in choice.get("anyOf", [choice])]
        is_nullable = _NULL in choices
        del owner["anyOf"]
        owner.update(_one_of(others) | {name: owner[name] for name in ("description",) if name in owner})
        if is_nullable and "type" in owner:
            owner["type"] = [owner["type"], "null"]
            if "enum" in owner:
                owner["enum"] = [*owner["enum"], None]


def _one_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    if len(choices) == 1:
        return choices[0]
    kinds = {choice.get("type") for choice in choices}
    if kinds == {"integer", "string"}:
        is_time = all(choice.get("format") in ("int64", "date-time") for choice in choices)
        return choices[0] if is_time else _text_of(choices)
    return {}


def _text_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a schema of text that matches the text forms of ``choices``: numbers, times and words."""
    patterns: list[str] = []
    for choice in choices:
        if "enum" in choice:
            patterns += choice["enum"]
        elif choice.get("format") == "date-time":
            patterns.append(_TIME)
        elif choice["type"] == "integer" or choice.get("pattern") == NUMBER_TEXT_PATTERN:
            patterns.append(NUMBER_TEXT_PATTERN[1:-1])
        else:
            return {"type": "string"}
    return {"type": "string", "pattern": f"^({'|'.join(dict.fromkeys(patterns))})$"}


def _sized_numbers(document: dict[str, Any]) -> None:
    """Declare for each integer whether it fits into 32 bits, and make its limits integers."""
    for owner in nodes(document):
        kind = owner.get("type")
        if kind != "integer" and not (isinstance(kind, list) and "integer" in kind):
            continue
        for name in ("minimum", "maximum"):
            if isinstance(owner.get(name), int | float):
                owner[name] = min(int(owner[name]), LONG_MAX)
        owner["format"] = "int32" if 0 <= owner.get("maximum", LONG_MAX) <= _INT_MAX else "int64"


def _flat_outcomes(document: dict[str, Any]) -> None:
    """Replace a union of a result and an error by one object with the members of both.

    A member is required if both require it. Generated code distinguishes the types of a union by members that only one
    type has, or by trying each type. It would break when one type gets another member later.
    """
    schemas = _schemas(document)
    components = {id(schema) for schema in schemas.values()}
    for owner in list(nodes(document)):
        names = tuple(_name_of(choice) for choice in owner.get("anyOf", []) if choice != _NULL)
        if len(names) < 2:
            continue
        if names not in _OUTCOMES:
            raise ValueError(f"the union {names} has no name")
        if id(owner) not in components:
            del owner["anyOf"]
            owner["$ref"] = _REFERENCE + _OUTCOMES[names]
        schemas[_OUTCOMES[names]] = _flat(names[0], names[1], schemas)
    text = json.dumps(document)
    for name in {name for names in _OUTCOMES for name in names}:
        if f'"{_REFERENCE}{name}"' not in text:
            del schemas[name]


def _flat(result: str, failure: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return one schema for both; an object with ``error`` is a failure."""
    good, bad = schemas[result], schemas[failure]
    properties = copy.deepcopy(good["properties"])
    for name, member in bad["properties"].items():
        if name not in properties or "null" in member.get("type", ""):
            properties[name] = copy.deepcopy(member)
    return {
        "type": "object",
        "description": "A failure if it has `error`; otherwise a result.",
        "properties": properties,
        "required": [name for name in good["required"] if name in bad["required"]],
    }


def _name_of(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).removeprefix(_REFERENCE)


def _open_enumerations(document: dict[str, Any]) -> None:
    """Make each enumeration in a response a text, so that clients accept the new words of a later version.

    The description and ``x-extensible-enum`` list the words of this version.
    """
    schemas = _schemas(document)
    answers: list[Any] = [operation["responses"] for _, operation in operations(document)]
    # Clients produce records again as they fetched them.
    answers += [schemas["ProducedRecord"], schemas["RoutedRecord"]]
    for answer in [*answers, *(schemas[name] for name in sorted(_components_of(answers, schemas)))]:
        for owner in nodes(answer):
            words = owner.get("enum")
            if isinstance(words, list) and words != ["true"]:
                known = [word for word in owner.pop("enum") if word is not None]
                told = f"One of {', '.join(known)}; a later version may have more."
                owner["description"] = f"{owner.get('description', '')} {told}".strip()
                owner["x-extensible-enum"] = known


def _named_enumerations(document: dict[str, Any]) -> None:
    """Make each enumeration one named type for all of its uses."""
    schemas = _schemas(document)
    for owner in list(nodes(document)):
        words = owner.get("enum")
        if words is None or not isinstance(words, list):
            continue
        known = tuple(word for word in words if word is not None)
        if known == ("true",):
            del owner["enum"]
            owner["type"] = "boolean"
            continue
        if known not in _ENUMERATIONS:
            raise ValueError(f"the enumeration {known} has no name")
        name = _ENUMERATIONS[known]
        schemas[name] = {"type": "string", "enum": list(known)}
        del owner["enum"], owner["type"]
        owner.pop("default", None)
        if None in words:
            owner["anyOf"] = [{"$ref": _REFERENCE + name}, _NULL]
        else:
            owner["$ref"] = _REFERENCE + name


def _plain_parameters(document: dict[str, Any]) -> None:
    """Remove everything beside a reference in the schema of a parameter, which generators would read as untyped.

    The parameter itself keeps its description.
    """
    for _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            if "$ref" in parameter["schema"]:
                parameter["schema"] = {"$ref": parameter["schema"]["$ref"]}


def _named_problems(document: dict[str, Any]) -> None:
    """Make each problem with members of its own one whole component instead of an ``allOf`` of two.

    Its own members are required if every problem of the status has them. If some problems of the operation lack them,
    the status has no type of its own, except for ``_LOOSE``, whose own members are optional then.
    """
    schemas = _schemas(document)
    for _, operation in operations(document):
        for answer in operation["responses"].values():
            content = answer.get("content", {}).get(MEDIA_TYPE)
            if content is None or "allOf" not in content["schema"]:
                continue
            own = content["schema"]["allOf"][1]
            members, name = own["properties"], own["title"]
            have_all = all(members.keys() <= example["value"].keys() for example in content["examples"].values())
            if not have_all and name not in _LOOSE:
                content["schema"] = {"$ref": f"{_REFERENCE}Problem"}
                continue
            whole = copy.deepcopy(schemas["Problem"])
            whole["title"] = name
            whole["properties"].update(members)
            if have_all:
                whole["required"] += [each for each, member in members.items() if member.get("type") == "integer"]
            if "progress" in members:
                schemas[_PROGRESS], _ = members["progress"]["anyOf"]
                members["progress"]["anyOf"][0] = {"$ref": _REFERENCE + _PROGRESS}
            if schemas.setdefault(name, whole) != whole:
                raise ValueError(f"{name} has members of two kinds")
            content["schema"] = {"$ref": _REFERENCE + name}


def _default_problem(document: dict[str, Any]) -> None:
    """Merge all errors without members of their own into the response ``default``; their ``code`` tells them apart."""
    plain = {"$ref": f"{_REFERENCE}Problem"}
    for _, operation in operations(document):
        kept: dict[str, Any] = {}
        titles: dict[str, None] = {}
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get(MEDIA_TYPE)
            if content is not None and content["schema"] == plain:
                titles |= dict.fromkeys(answer["description"].split("; "))
            else:
                kept[status] = answer
        if titles:
            kept["default"] = {
                "description": "; ".join(titles),
                "headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}},
                "content": {MEDIA_TYPE: {"schema": plain}},
            }
        operation["responses"] = kept


def _one_success(document: dict[str, Any]) -> None:
    """Describe a success without a body in words if another success has a body.

    Otherwise the type of a generated client's result would be optional.
    """
    for _, operation in operations(document):
        answers = operation["responses"]
        done = [status for status in answers if status.startswith("2")]
        if any("content" in answers[status] for status in done):
            for status in done:
                if "content" not in answers[status]:
                    told = f"{status}, without a body: {answers.pop(status)['description']}"
                    operation["description"] = f"{operation.get('description', '')}\n\n{told}".strip()
