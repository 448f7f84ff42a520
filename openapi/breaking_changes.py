"""Breaking changes between two OpenAPI documents, as the user of a generated SDK feels them.

A change is breaking if a program that compiled compiles no longer, if a request that was accepted is refused, or if an
answer that could be read cannot be read. Therefore

- no operation, parameter, member, enumeration value, status, media type or component goes away or gets another name;
- the type of whatever stays is the same: its component, format, null, and whether it is required. Compiled languages
  have a type of their own for each of these;
- no new parameter or member is required in requests, and no request needs a credential that did not need one before;
- limits do not narrow in requests and do not widen in answers, as some SDKs check them. A component that is part of
  both may do neither.

Additions and words are free, also additions to ``x-extensible-enum``. A keyword without a rule here may not change.

These rules are our own because ``oasdiff`` does not fit into CI: no wheel carries it, and to build it takes a Go
compiler and a minute of CPU time. By default it is also silent when an operationId, a tag or a component gets another
name. ``make contract-oasdiff`` checks that our rules find whatever it finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from openapi.nodes import (
    ANSWER,
    METHODS,
    REQUEST,
    SCHEMAS,
    WORDS,
    Node,
    bare,
    components,
    operations,
    parameters,
    renamed,
    resolved,
    uses_of_components,
)

Place = tuple[str, ...]

_BOTH = frozenset((REQUEST, ANSWER))

_UNIONS = {"anyOf": "{} or {}", "oneOf": "either {} or {}", "allOf": "{} and {}"}
_ENUMERATIONS = ("enum", "x-extensible-enum")
# What ``_Comparison._schema`` compares keyword by keyword. Every other keyword is for ``_keywords``.
_STRUCTURE = {"$ref", "type", "properties", "required", "items", "additionalProperties", *_UNIONS, *_ENUMERATIONS}
_UPPER = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))
_LOWER = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
_CONDITIONS = frozenset(("pattern", "const", "multipleOf", "uniqueItems"))


@dataclass(frozen=True, order=True)
class BreakingChange:
    """One change, and how CHANGELOG names it."""

    place: Place
    """From the outside in: ``METHOD /path`` or a component, then the part of it, then the keyword that changed."""
    what: str

    @property
    def item(self) -> str:
        """The item of CHANGELOG that names this change. The words behind the colon are free."""
        return f"- {' '.join(f'`{name}`' for name in self.place)}: {self.what}."


def breaking_changes(released: Node, current: Node) -> list[BreakingChange]:
    """Return what breaks for users of ``released`` when the service is that of ``current``, sorted by place."""
    return sorted(set(_Comparison(released, current).changes()))


class _Comparison:
    """Two documents. Each method yields the breaking changes of one kind of node."""

    def __init__(self, released: Node, current: Node) -> None:
        self._old, self._new = released, current
        self._uses = uses_of_components(released)
        self._renamed = renamed(released, current)

    def changes(self) -> Iterator[BreakingChange]:
        by_itself = {"openapi", "info", "tags", "paths", "components", "security"}
        yield from _keywords((), self._old, self._new, by_itself)
        yield from _security(("security",), self._old.get("security"), self._new.get("security"))
        for path, old in self._old["paths"].items():
            yield from _keywords((path,), old, self._new["paths"].get(path, old), {*METHODS, "parameters"})
        served = operations(self._new)
        for name, operation in operations(self._old).items():
            if name in served:
                yield from self._operation((name,), operation, served[name])
            else:
                yield BreakingChange((name,), "removed")
        for kind in ("schemas", "headers", "securitySchemes"):
            now = components(self._new, kind)
            for name, component in components(self._old, kind).items():
                if name in now:
                    yield from self._component(kind, name, component, now[name])
                else:
                    new_name = self._renamed.get(name)
                    yield BreakingChange((name,), f"renamed to `{new_name}`" if new_name else "removed")

    def _beside(self, old: Node, new: Node) -> Iterator[tuple[Node, Node]]:
        """Each of two nodes with its document."""
        yield old, self._old
        yield new, self._new

    def _component(self, kind: str, name: str, old: Node, new: Node) -> Iterator[BreakingChange]:
        if kind == "schemas":
            yield from self._schema((name,), old, new, self._uses.get(name, _BOTH))
        elif kind == "headers":
            yield from self._with_schema((name,), old, new, ANSWER)
        else:
            yield from _keywords((name,), old, new)

    def _operation(self, place: Place, old: Node, new: Node) -> Iterator[BreakingChange]:
        by_itself = {"tags", "parameters", "requestBody", "responses", "security"}
        yield from _keywords(place, old, new, by_itself)
        if old.get("tags") != new.get("tags"):
            # Generators make a class or a module of each tag.
            yield BreakingChange((*place, "tags"), f"was {_shown(old.get('tags'))}, is {_shown(new.get('tags'))}")
        if "security" in old or "security" in new:
            before, now = (each.get("security", whole.get("security")) for each, whole in self._beside(old, new))
            yield from _security((*place, "security"), before, now)
        yield from self._parameters(place, old, new)
        yield from self._request_body((*place, "body"), old.get("requestBody"), new.get("requestBody"))
        for status, answer in old["responses"].items():
            if status in new["responses"]:
                yield from self._answer((*place, status), answer, new["responses"][status])
            else:
                yield BreakingChange((*place, status), "the answer is removed")
        for status in new["responses"].keys() - old["responses"].keys():
            if status.startswith("2"):
                yield BreakingChange((*place, status), "a success that older clients do not know")

    def _parameters(self, place: Place, old: Node, new: Node) -> Iterator[BreakingChange]:
        before, now = (parameters(whole, each) for each, whole in self._beside(old, new))
        for name, parameter in before.items():
            if name in now:
                yield from self._with_schema((*place, name), parameter, now[name], REQUEST)
            else:
                yield BreakingChange((*place, name), "the parameter is removed")
        for name in now.keys() - before.keys():
            if now[name].get("required", False):
                yield BreakingChange((*place, name), "a new parameter that is required")

    def _request_body(self, place: Place, old: Node | None, new: Node | None) -> Iterator[BreakingChange]:
        if old is not None and new is not None:
            old, new = resolved(self._old, old), resolved(self._new, new)
            yield from _keywords(place, old, new, {"content", "required"})
            yield from _required(place, old.get("required", False), new.get("required", False))
            yield from self._content(place, old["content"], new["content"], REQUEST)
        elif old is not None:
            yield BreakingChange(place, "the request body is removed")
        elif new is not None and resolved(self._new, new).get("required", False):
            yield BreakingChange(place, "a new request body that is required")

    def _answer(self, place: Place, old: Node, new: Node) -> Iterator[BreakingChange]:
        old, new = resolved(self._old, old), resolved(self._new, new)
        yield from _keywords(place, old, new, {"content", "headers"})
        yield from self._content(place, old.get("content", {}), new.get("content", {}), ANSWER)
        headers = new.get("headers", {})
        for name, header in old.get("headers", {}).items():
            if name not in headers:
                yield BreakingChange((*place, name), "the header is removed")
            elif "$ref" not in header or header != headers[name]:
                yield from self._with_schema((*place, name), header, headers[name], ANSWER)

    def _content(self, place: Place, old: Node, new: Node, use: str) -> Iterator[BreakingChange]:
        for media_type, content in old.items():
            if media_type in new:
                yield from self._with_schema((*place, media_type), content, new[media_type], use)
            else:
                yield BreakingChange((*place, media_type), "the media type is removed")
        for media_type in new.keys() - old.keys():
            if use == ANSWER:
                yield BreakingChange((*place, media_type), "an answer that older clients do not know")

    def _with_schema(self, place: Place, old: Node, new: Node, use: str) -> Iterator[BreakingChange]:
        """Compare parameters, headers and contents, which have a schema and maybe are required."""
        old, new = resolved(self._old, old), resolved(self._new, new)
        yield from _keywords(place, old, new, {"schema", "required", "name", "in"})
        yield from _required(place, old.get("required", False), new.get("required", False))
        yield from self._schema(place, old.get("schema", {}), new.get("schema", {}), frozenset((use,)))

    def _schema(self, place: Place, old: Any, new: Any, uses: AbstractSet[str]) -> Iterator[BreakingChange]:
        before, now = _type(old, self._renamed), _type(new, {})
        if before != now:
            yield BreakingChange((*place, "type"), f"was {before}, is {now}")
            return
        if not isinstance(old, dict) or not isinstance(new, dict):
            return
        yield from _keywords(place, old, new, _STRUCTURE, uses)
        yield from _enumeration(place, old, new, uses)
        yield from self._members(place, old, new, uses)
        for keyword in {"items", "additionalProperties"} & (old.keys() | new.keys()):
            yield from self._schema((*place, keyword), old.get(keyword, {}), new.get(keyword, {}), uses)
        for keyword in _UNIONS:
            # As many on both sides: the types are the same.
            for choices in zip(old.get(keyword, ()), new.get(keyword, ()), strict=True):
                yield from self._schema(place, *choices, uses)

    def _members(self, place: Place, old: Node, new: Node, uses: AbstractSet[str]) -> Iterator[BreakingChange]:
        members, required = new.get("properties", {}), new.get("required", ())
        for name, member in old.get("properties", {}).items():
            if name in members:
                yield from _required((*place, name), name in old.get("required", ()), name in required)
                yield from self._schema((*place, name), member, members[name], uses)
            else:
                yield BreakingChange((*place, name), "the member is removed")
        for name in set(required) - old.get("properties", {}).keys() - set(old.get("required", ())):
            if REQUEST in uses:
                yield BreakingChange((*place, name), "a new member that is required in requests")


def _keywords(
    place: Place, old: Node, new: Node, by_itself: AbstractSet[str] = frozenset(), uses: AbstractSet[str] = _BOTH
) -> Iterator[BreakingChange]:
    """Compare every keyword that is neither words nor compared ``by_itself``."""
    for keyword in (old.keys() | new.keys()) - WORDS - by_itself:
        before, now = bare(old.get(keyword)), bare(new.get(keyword))
        if before == now:
            continue
        narrows = widens = True
        if keyword in _UPPER | _LOWER:
            sign = 1 if keyword in _UPPER else -1
            narrows = now is not None and (before is None or sign * now < sign * before)
            widens = before is not None and (now is None or sign * now > sign * before)
        elif keyword in _CONDITIONS:
            narrows, widens = now is not None, before is not None
        elif keyword == "default":
            # A request without it means something else now.
            narrows, widens = before is not None, False
        if (narrows and REQUEST in uses) or (widens and ANSWER in uses):
            yield BreakingChange((*place, keyword), f"was {_shown(before)}, is {_shown(now)}")


def _required(place: Place, before: bool, now: bool) -> Iterator[BreakingChange]:
    if before != now:
        yield BreakingChange((*place, "required"), "now required" if now else "no longer required")


def _enumeration(place: Place, old: Node, new: Node, uses: AbstractSet[str]) -> Iterator[BreakingChange]:
    for keyword in _ENUMERATIONS:
        before, now = old.get(keyword, []), new.get(keyword, [])
        for value in (value for value in before if value not in now):
            yield BreakingChange((*place, _shown(value)), "the value is removed")
        if keyword == "enum" and ANSWER in uses:
            for value in (value for value in now if value not in before):
                yield BreakingChange((*place, _shown(value)), "a value that older clients do not know")


def _security(place: Place, old: list[Node] | None, new: list[Node] | None) -> Iterator[BreakingChange]:
    ways = new or [{}]
    for way in old or [{}]:
        if way not in ways and {} not in ways:
            yield BreakingChange(place, f"{_shown(way)} is no longer enough" if way else "authentication is required")


def _type(schema: Any, renamed: dict[str, str]) -> str:
    """The type that generators make of ``schema``, without its members, its format and its limits."""
    if not isinstance(schema, dict):
        return "any value" if schema else "no value"
    parts = []
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(SCHEMAS)
        parts.append(renamed.get(name, name))
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    parts += [" or ".join(sorted(kinds, key=lambda kind: (kind == "null", kind)))] if kinds else []
    for keyword, words in _UNIONS.items():
        if keyword in schema:
            choices = [_type(choice, renamed) for choice in schema[keyword]]
            *others, last = (f"({choice})" if " or " in choice or " and " in choice else choice for choice in choices)
            parts.append(words.format(", ".join(others), last))
    if "enum" in schema:
        parts.append("enumeration")
    return " ".join(parts) or "any value"


def _shown(value: Any) -> str:
    """``value`` on one line, as it stands in the document."""
    if value is None:
        return "absent"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
