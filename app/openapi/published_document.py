"""The OpenAPI document as it is published: the whole one in the shape that generators of clients read without fault.

The whole document is for people and for our tests: it has every error of every route, examples, and the exact rules
of each member. Generators stumble over much of that; what breaks which of them, and a program that each ran with this
shape, is in ``docs/reference/sdks.md``. Each function here is one change, and none changes a byte on the wire: what
the service takes and answers fits both documents.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from app.problems.problems import MEDIA_TYPE
from app.problems.request_context import CLIENT_HEADER, HEADER
from schemas.base import LONG_MAX, NUMBER_TEXT_PATTERN

_INT_MAX = 2**31 - 1
_REFERENCE = "#/components/schemas/"
_NULL = {"type": "null"}
_ANY_CALLER: list[dict[str, list[str]]] = [{}, {"bearer": []}]
# A time from 1970 on. Regular expressions of every language read it, so it lets 30 February pass.
_TIME = (
    "(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]"
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_EXAMPLES = ("example", "examples", "x-examples")

# The enumerations that are written where they are used, by what they enumerate. Others have a name already.
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
_PROBLEMS = {"410": "LogStartProblem", "412": "ExpectedOffsetProblem", "416": "LogEndProblem", "503": "StartingProblem"}
_TOO_LARGE = "RecordTooLargeProblem"
_PROGRESS = "StartingProgress"


def published(whole: dict[str, Any]) -> dict[str, Any]:
    """``whole`` in the shape for generators; ``whole`` is left as it is.

    Raises:
        ValueError: an enumeration or a union in it has no name here.
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
    """Each path with each of its operations."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def nodes(value: Any, *, into: tuple[str, ...] = _EXAMPLES) -> Iterator[dict[str, Any]]:
    """Every object of ``value``, outermost first, but for what stands below the names ``into``."""
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
    """Examples are three quarters of the document. The reference has them."""
    for owner in nodes(document, into=()):
        for name in ("example", "examples"):
            # A property may also have that name; it is a schema then.
            if name in owner and not (isinstance(owner[name], dict) and "type" in owner[name]):
                del owner[name]


def _one_security(document: dict[str, Any]) -> None:
    """State security once, at the root. Authentication is off by default, so a generated client needs no token."""
    document["components"]["securitySchemes"].pop("mutualTLS", None)
    for _, operation in operations(document):
        operation.pop("security", None)
    document["security"] = _ANY_CALLER


def _parameters_in_order(document: dict[str, Any]) -> None:
    """Those of the path first, in its order. What a client sets once for all requests is no parameter of each."""
    for path, operation in operations(document):
        kept = [each for each in operation.get("parameters", []) if each["name"] not in (HEADER, CLIENT_HEADER)]
        kept.sort(key=lambda each: path.find(f"{{{each['name']}}}") if each["in"] == "path" else len(path))
        operation.pop("parameters", None)
        if kept:
            operation["parameters"] = kept
        if "requestBody" in operation:
            operation["requestBody"]["required"] = True


def _without_titles(document: dict[str, Any]) -> None:
    """A property's title becomes the name of a type: Value, Value1, Value2."""
    for owner in nodes(document["paths"]):
        if not isinstance(owner.get("title"), dict):
            owner.pop("title", None)
    for schema in _schemas(document).values():
        for owner in nodes(schema):
            if owner is not schema and not isinstance(owner.get("title"), dict):
                owner.pop("title", None)


def _required_answers(document: dict[str, Any]) -> None:
    """Members of answers with a default are always there: the service writes it. Those of requests stay optional."""
    schemas = _schemas(document)
    bodies = [operation.get("requestBody", {}) for _, operation in operations(document)]
    asked = _components_of(bodies, schemas)
    for name in _components_of([operation["responses"] for _, operation in operations(document)], schemas) - asked:
        for member, schema in schemas[name].get("properties", {}).items():
            if isinstance(schema.get("default"), str | int) and member not in schemas[name].get("required", []):
                schemas[name].setdefault("required", []).append(member)


def _components_of(owners: list[Any], schemas: dict[str, Any]) -> set[str]:
    """The names of all components that ``owners`` refer to, themselves or through others."""
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
    """A member with a default is required in the types of openapi-typescript; the service knows its defaults itself."""
    for schema in _schemas(document).values():
        for owner in nodes(schema):
            for member in owner.get("properties", {}).values():
                member.pop("default", None)


def _open_objects(document: dict[str, Any]) -> None:
    """Answers may grow: a client of today takes the members of tomorrow. Maps say what their values are, not names."""
    for owner in nodes(document):
        if isinstance(owner.get("additionalProperties"), bool):
            del owner["additionalProperties"]
        if "patternProperties" in owner:
            (owner["additionalProperties"],) = owner.pop("patternProperties").values()
        owner.pop("propertyNames", None)


def _settings_as_text(document: dict[str, Any]) -> None:
    """Settings of topics are sent as text, which the service reads as numbers and truth values, too."""
    for name, kind in (("TopicSpecification", "string"), ("TopicChange", ["string", "null"])):
        _schemas(document)[name]["properties"]["config"]["additionalProperties"] = {"type": kind}


def _plain_unions(document: dict[str, Any]) -> None:
    """A choice of inline types becomes one type: time, number or word.

    In a query all of them are text. In JSON a time is a number of milliseconds, as answers have it; where words are
    allowed it is text. A pattern says what that text may be.
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
    """The text that each of ``choices`` is as text: a number, a time, a word."""
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
    """Each integer says whether it fits into 32 bits, and has limits that are integers."""
    for owner in nodes(document):
        kind = owner.get("type")
        if kind != "integer" and not (isinstance(kind, list) and "integer" in kind):
            continue
        for name in ("minimum", "maximum"):
            if isinstance(owner.get(name), int | float):
                owner[name] = min(int(owner[name]), LONG_MAX)
        owner["format"] = "int32" if 0 <= owner.get("maximum", LONG_MAX) <= _INT_MAX else "int64"


def _flat_outcomes(document: dict[str, Any]) -> None:
    """A result or an error is one object, with the members of both, and those that both need are required.

    Generated code tells the choices of a union apart by members that only one has, or by trying each of them: a member
    that one of them gets later would break it.
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
    """One object for both: with ``error`` it is a failure."""
    good, bad = schemas[result], schemas[failure]
    properties = copy.deepcopy(good["properties"])
    for name, member in bad["properties"].items():
        if name not in properties or "null" in member.get("type", ""):
            properties[name] = copy.deepcopy(member)
    return {
        "type": "object",
        "description": "With `error` it failed; otherwise it has the members of a result.",
        "properties": properties,
        "required": [name for name in good["required"] if name in bad["required"]],
    }


def _name_of(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "")).removeprefix(_REFERENCE)


def _open_enumerations(document: dict[str, Any]) -> None:
    """In answers an enumeration is text that says its words of today: a client of today takes the word of tomorrow."""
    schemas = _schemas(document)
    answers: list[Any] = [operation["responses"] for _, operation in operations(document)]
    # A record is sent again as it was fetched.
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
    """An enumeration is one type, however often it is used."""
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
    """A parameter's description is beside its schema. One beside a reference, too, makes it an untyped one."""
    for _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            if "$ref" in parameter["schema"]:
                parameter["schema"] = {"$ref": parameter["schema"]["$ref"]}


def _named_problems(document: dict[str, Any]) -> None:
    """A problem with members of its own is a whole component, and no sum of two.

    Its members are required, if every problem of that status has them. Where some problems of an operation do not have
    them the status has no type of its own, but for 422: that is the only one of its members.
    """
    schemas = _schemas(document)
    for _, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get(MEDIA_TYPE)
            if content is None or "allOf" not in content["schema"]:
                continue
            members = content["schema"]["allOf"][1]["properties"]
            have_all = all(members.keys() <= example["value"].keys() for example in content["examples"].values())
            name = _TOO_LARGE if "record_offset" in members else _PROBLEMS[status]
            if not have_all and name in ("LogStartProblem", "LogEndProblem", "ExpectedOffsetProblem"):
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
    """Errors without members of their own are one answer: ``default``. Their names are in each error's ``code``."""
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
    """An answer without a body beside one with it is told in words: a client's type would be "perhaps nothing"."""
    for _, operation in operations(document):
        answers = operation["responses"]
        done = [status for status in answers if status.startswith("2")]
        if any("content" in answers[status] for status in done):
            for status in done:
                if "content" not in answers[status]:
                    told = f"{status}, without a body: {answers.pop(status)['description']}"
                    operation["description"] = f"{operation.get('description', '')}\n\n{told}".strip()
