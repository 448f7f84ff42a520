"""The OpenAPI document as one page of HTML that loads nothing: no script, no font, nothing from other hosts."""

from __future__ import annotations

import json
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); overflow-x: auto; padding: .6rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: left; vertical-align: top; }
.method { display: inline-block; font-weight: 600; min-width: 4.5rem; }
nav a { margin-right: 1rem; }
"""


def render_page(document: dict[str, Any]) -> str:
    """Return the page: the operations by tag, then the schemas."""
    info = document["info"]
    tags = document.get("tags", [])
    sections = [_section(document, tag) for tag in tags]
    schemas = [
        f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code> '
        f"{escape(schema.get('description', '').split(chr(10))[0])}</summary>{_json(schema)}</details>"
        for name, schema in document["components"]["schemas"].items()
    ]
    links = "".join(f'<a href="#{escape(tag["name"])}">{escape(tag["name"])}</a>' for tag in tags)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])} API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        f'<nav>{links}<a href="#schemas">schemas</a><a href="/openapi.json">openapi.json</a></nav>'
        f'{"".join(sections)}<h2 id="schemas">schemas</h2>{"".join(schemas)}</body></html>'
    )


def _section(document: dict[str, Any], tag: dict[str, str]) -> str:
    operations = [
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation.get("tags", [])
    ]
    name = escape(tag["name"])
    return f'<h2 id="{name}">{name}</h2><p>{escape(tag["description"])}</p>{"".join(operations)}'


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [
            (
                parameter["name"],
                f"{parameter['in']}{', required' if parameter.get('required') else ''}",
                _about(parameter),
            )
            for parameter in parameters
        ]
        parts.append(_table(("parameter", "where", "what"), rows))
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body: <code>{escape(media_type)}</code> {_reference(content.get('schema', {}))}</p>")
        if "example" in content:
            parts.append(_json(content["example"]))
    rows = [
        (status, ", ".join(response.get("content", {})), response["description"])
        for status, response in operation["responses"].items()
    ]
    parts.append(_table(("response", "media types", "what"), rows))
    return (
        f'<details id="{escape(operation["operationId"])}"><summary><span class="method">{method.upper()}</span>'
        f"<code>{escape(path)}</code> {escape(operation['summary'])}</summary>{''.join(parts)}</details>"
    )


def _about(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    text = parameter.get("description") or schema.get("description", "")
    facts = [
        f"{name}: {json.dumps(schema[name])}" for name in ("enum", "minimum", "maximum", "default") if name in schema
    ]
    return f"{text} {'; '.join(facts)}".strip()


def _table(head: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join(
        f"<tr><td><code>{escape(first)}</code></td>{''.join(f'<td>{escape(cell)}</td>' for cell in rest)}</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table>"


def _reference(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_reference(choice) for choice in schema["anyOf"])
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#schema-{escape(name)}">{escape(name)}</a>' if name else escape(schema.get("description", ""))


def _json(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return f"<pre>{escape(text)}</pre>"
