"""What an OpenAPI document consists of, found without a care for how it is spread over references."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

Node = dict[str, Any]

METHODS = frozenset(("get", "put", "post", "delete", "options", "head", "patch", "trace"))
SCHEMAS = "#/components/schemas/"
REQUEST, ANSWER = "request", "answer"

# What people read; no program depends on it.
WORDS = frozenset(("description", "summary", "example", "examples", "externalDocs", "deprecated", "$comment"))
# Keywords whose value is a map from names to schemas: a name may be one of those words.
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs"))


def bare(value: Any, *, is_map: bool = False) -> Any:
    """``value`` without words."""
    if isinstance(value, dict):
        kept = (name for name in value if is_map or name not in WORDS)
        return {name: bare(value[name], is_map=not is_map and name in _MAPS) for name in kept}
    return [bare(each) for each in value] if isinstance(value, list) else value


def components(document: Node, kind: str) -> dict[str, Node]:
    found: dict[str, Node] = document.get("components", {}).get(kind, {})
    return found


def resolved(document: Node, node: Node) -> Node:
    """What ``node`` refers to, or ``node``."""
    while "$ref" in node:
        kind, _, name = str(node["$ref"]).removeprefix("#/components/").partition("/")
        node = components(document, kind)[name]
    return node


def operations(document: Node) -> dict[str, Node]:
    """Each operation by ``METHOD /path``, with the parameters of its path."""
    found = {}
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            parameters = [*item.get("parameters", ()), *item[method].get("parameters", ())]
            found[f"{method.upper()} {path}"] = {**item[method], "parameters": parameters}
    return found


def parameters(document: Node, operation: Node) -> dict[str, Node]:
    """The parameters of ``operation`` as CHANGELOG names them: ``?name`` in a query, ``{name}`` in a path, ``name``."""
    spellings = {"query": "?{}", "path": "{{{}}}"}
    found = (resolved(document, parameter) for parameter in operation["parameters"])
    return {spellings.get(each["in"], "{}").format(each["name"]): each for each in found}


def renamed(released: Node, current: Node) -> dict[str, str]:
    """The new names of released components that are the same under a name that was free."""

    def content(schema: Node) -> Node:
        return {keyword: value for keyword, value in bare(schema).items() if keyword != "title"}

    old, new = components(released, "schemas"), components(current, "schemas")
    fresh = [name for name in new if name not in old]
    gone = [name for name in old if name not in new]
    return {name: other for name in gone for other in fresh if content(old[name]) == content(new[other])}


def uses_of_components(document: Node) -> dict[str, AbstractSet[str]]:
    """Whether each component is part of requests, of answers, or of both; those that only words name are not here."""
    uses: dict[str, set[str]] = {}
    seen = set()

    def visit(value: Any, use: str) -> None:
        for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
            visit(each, use)
        reference = value.get("$ref") if isinstance(value, dict) else None
        if isinstance(reference, str) and (reference, use) not in seen:
            seen.add((reference, use))
            uses.setdefault(reference.removeprefix(SCHEMAS), set()).add(use)
            visit(resolved(document, value), use)

    for operation in operations(document).values():
        visit([operation["parameters"], operation.get("requestBody")], REQUEST)
        visit(operation["responses"], ANSWER)
    return dict(uses)
