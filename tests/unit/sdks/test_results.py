"""Recorded results: what makes a row stale, and that no row changes in silence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.openapi.document import PATH
from sdks import results
from sdks.generators import GENERATORS
from sdks.running import Outcome
from sdks.steps import STEPS
from tests.unit.sdks.conftest import generator

DOCUMENT: dict[str, Any] = {
    "info": {"version": "1"},
    "paths": {"/a": {"get": {"summary": "get it", "responses": {"200": {"description": "it"}}}}},
    "components": {
        "schemas": {"A": {"type": "object", "properties": {"description": {"type": "string", "description": "words"}}}}
    },
}
Write = Callable[[str], Path]


def outcome(**members: Any) -> Outcome:
    return Outcome(generator(**members), passed={"today": 18, "tomorrow": 18}, failed={"today": [], "tomorrow": []})


def changed(document: dict[str, Any], *path: str, to: object) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(document))
    inner = copy
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return copy


@pytest.mark.parametrize(
    "path",
    [
        ("info", "version"),
        ("paths", "/a", "get", "summary"),
        ("paths", "/a", "get", "responses", "200", "description"),
        ("components", "schemas", "A", "properties", "description", "description"),
    ],
)
def test_words_of_the_document_make_no_row_stale(program: Write, path: tuple[str, ...]) -> None:
    program("")
    row = results.row_of(outcome(), DOCUMENT)
    assert row.staleness(generator(), changed(DOCUMENT, *path, to="better words")) == []


@pytest.mark.parametrize(
    "path",
    [
        ("components", "schemas", "A", "properties", "description", "type"),
        ("components", "schemas", "A", "properties", "summary"),
        ("components", "schemas", "tags"),
        ("paths", "/a", "get", "operationId"),
    ],
)
def test_the_shape_of_the_document_does(program: Write, path: tuple[str, ...]) -> None:
    program("")
    row = results.row_of(outcome(), DOCUMENT)
    assert row.staleness(generator(), changed(DOCUMENT, *path, to="integer")) == ["run with an earlier document"]


def test_a_member_that_is_called_description_is_no_words() -> None:
    assert "description" in results.without_words(DOCUMENT)["components"]["schemas"]["A"]["properties"]
    shape = results.without_words(json.loads(PATH.read_text("utf-8")))
    assert shape["components"]["schemas"]["Problem"]["properties"].keys() >= {"type", "title", "detail"}
    assert "summary" not in shape["paths"]["/v1/topics"]["get"]


@pytest.mark.parametrize(
    "members",
    [
        {"version": "1.1"},
        {"options": "--lax"},
        {"allowed": ("deprecated",)},
        {"defects": (("gone", "it is"),)},
        {"compile": ()},
        {"tools": (("true",),)},
    ],
)
def test_another_entry_makes_a_row_stale(program: Write, members: dict[str, Any]) -> None:
    program("")
    row = results.row_of(outcome(), DOCUMENT)
    assert row.staleness(generator(is_quick=True), DOCUMENT) == []
    assert row.staleness(generator(**members), DOCUMENT) == ["run with an earlier version or other options"]


def test_other_pins_of_the_tools_make_a_row_stale(program: Write, tmp_path: Path, monkeypatch: Any) -> None:
    program("")
    monkeypatch.setattr("sdks.running.REQUIREMENTS", tmp_path)
    (tmp_path / "tools.lock").write_text("mypy==2.4.1\n")
    row = results.row_of(outcome(lock="tools"), DOCUMENT)
    assert row.staleness(generator(lock="tools"), DOCUMENT) == []
    (tmp_path / "tools.lock").write_text("mypy==2.4.2\n")
    assert row.staleness(generator(lock="tools"), DOCUMENT) == ["run with an earlier version or other options"]


def test_another_program_makes_a_row_stale(program: Write) -> None:
    path = program("print(1)")
    row = results.row_of(outcome(), DOCUMENT)
    path.with_name("config.yaml").write_text("a: 1")
    assert row.staleness(generator(), DOCUMENT) == ["run with an earlier program"]
    path.with_name("config.yaml").unlink()
    assert row.staleness(generator(), DOCUMENT) == []
    program("print(2)")
    assert row.staleness(generator(), DOCUMENT) == ["run with an earlier program"]


def test_a_row_that_somebody_edited_is_known(program: Write) -> None:
    program("")
    row = results.row_of(outcome(), DOCUMENT)
    for edited in ({"version": "2.0"}, {"allowed": ["deprecated"]}, {"options": ""}, {"defects": ["gone"]}):
        assert dataclasses.replace(row, **edited).staleness(generator(), DOCUMENT) == [
            "not what was run: it was edited"
        ]


def test_those_that_did_not_run_keep_their_row(program: Write, tmp_path: Path) -> None:
    program("")
    path = tmp_path / "results.json"
    one, other = generator(), generator(slug="another")
    (tmp_path / "programs" / "another").mkdir()
    results.record(
        [Outcome(other, failed={"today": [], "tomorrow": ["gone"]}, failures=["gone"])], DOCUMENT, [other], path
    )
    former = results.recorded(path)["another"]
    missing = Outcome(other, missing=["cargo"])
    results.record([outcome(), missing], DOCUMENT, [one, other], path)
    rows = results.recorded(path)
    assert list(rows) == ["a-generator", "another"]
    assert rows["another"] == former
    assert (former.works, former.today, former.tomorrow) == (False, [], ["gone"])
    assert (rows["a-generator"].works, rows["a-generator"].steps) == (True, len(STEPS))
    results.record([], DOCUMENT, [one], path)
    assert list(results.recorded(path)) == ["a-generator"], "a generator that is gone has no row"


def test_a_run_that_failed_before_its_steps_has_none(program: Write) -> None:
    program("")
    row = results.row_of(Outcome(generator(), failures=["it does not compile"]), DOCUMENT)
    assert (row.works, row.today, row.tomorrow) == (False, None, None)


def test_what_is_stale_and_what_was_never_run_is_named(program: Write, tmp_path: Path) -> None:
    program("")
    path = tmp_path / "results.json"
    other = generator(slug="another")
    assert results.stale([generator()], DOCUMENT, path) == {"a-generator": ["not run"]}
    results.record([outcome()], DOCUMENT, [generator()], path)
    assert results.stale([generator(), other], DOCUMENT, path) == {"another": ["not run"]}
    assert results.stale([generator(version="2")], DOCUMENT, path) == {
        "a-generator": ["run with an earlier version or other options"]
    }


def test_a_row_holds_no_time_and_nothing_of_a_machine() -> None:
    members = {each.name for each in dataclasses.fields(results.Row)}
    assert members == {
        *("version", "language", "options", "allowed", "steps", "today", "tomorrow", "defects", "works", "digests")
    }
    slugs = {each.slug for each in GENERATORS}
    assert results.recorded().keys() <= slugs
    for row in results.recorded().values():
        assert row.digests.keys() == {"document", "generator", "program"}
