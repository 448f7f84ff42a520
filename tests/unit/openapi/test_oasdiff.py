"""What `oasdiff` calls breaking, our rules call breaking: ``make contract-oasdiff`` builds it and runs this."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from openapi.breaking_changes import breaking_changes
from openapi.contract import CURRENT, RELEASED
from openapi.nodes import SCHEMAS, components, operations
from tests.unit.openapi.planted_changes import BREAKING, HARMLESS, Node, document

pytestmark = pytest.mark.skipif("OASDIFF" not in os.environ, reason="make contract-oasdiff runs it")
ERROR = 3


def errors(before: Node, now: Node, directory: Path) -> list[Node]:
    """What oasdiff calls an error: ``id``, ``text``, and where it is an operation's ``operation`` and ``path``."""
    files = []
    for name, content in (("before.json", before), ("now.json", now)):
        files.append(str(directory / name))
        Path(files[-1]).write_text(json.dumps(content), "utf-8")
    command = [os.environ["OASDIFF"], "breaking", "--flatten-params", "--format", "json", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [each for each in json.loads(done.stdout or "[]") or [] if each["level"] == ERROR]


def used(whole: Node, name: str) -> set[str]:
    """All that a change can be named after and still concern the operation: itself, its components, the root."""
    found = {name, "security", *components(whole, "securitySchemes"), *components(whole, "headers")}
    waiting = [operations(whole).get(name, {})]
    while waiting:
        text = json.dumps(waiting.pop())
        for component, schema in components(whole, "schemas").items():
            if f'"{SCHEMAS}{component}"' in text and component not in found:
                found.add(component)
                waiting.append(schema)
    return found


def unexplained(before: Node, now: Node, directory: Path) -> list[str]:
    """The errors that oasdiff finds at operations of which our rules name no change."""
    ours = {change.place[0] for change in breaking_changes(before, now)}
    found = errors(before, now, directory)
    places = [(each, f"{each.get('operation', '')} {each.get('path', '')}") for each in found]
    return [each["text"] for each, name in places if not ours & used(before, name)]


def test_our_rules_name_what_it_finds_in_planted_changes(tmp_path: Path) -> None:
    missed = {}
    for name, (change, _) in BREAKING.items():
        changed = document()
        change(changed)
        missed[name] = unexplained(document(), changed, tmp_path)
    assert {name: texts for name, texts in missed.items() if texts} == {}


def test_it_calls_nothing_breaking_that_our_rules_pass(tmp_path: Path) -> None:
    named = {}
    for name, change in HARMLESS.items():
        changed = document()
        change(changed)
        named[name] = errors(document(), changed, tmp_path)
    assert {name: found for name, found in named.items() if found} == {}


def test_our_rules_name_what_it_finds_since_the_last_release(tmp_path: Path) -> None:
    before, now = (json.loads(path.read_text("utf-8")) for path in (RELEASED, CURRENT))
    assert unexplained(before, now, tmp_path) == []


def test_it_sees_into_our_document(tmp_path: Path) -> None:
    """A tool that cannot read the document finds nothing in it, either."""
    now = json.loads(CURRENT.read_text("utf-8"))
    changed = json.loads(CURRENT.read_text("utf-8"))
    for component in components(changed, "schemas").values():
        for member in component.get("properties", {}).values():
            member.update({"type": ["string", "null"]} if member.get("type") == "string" else {})
    found = errors(now, changed, tmp_path)
    assert {each["id"] for each in found} >= {"response-property-became-nullable"}
    assert unexplained(now, changed, tmp_path) == []
