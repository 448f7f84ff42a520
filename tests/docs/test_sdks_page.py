"""The page of generated clients shows every generator, what is stale, and every reason."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import pytest

from app.openapi.document import PATH
from docs import sdks_page
from sdks import generators as entries
from sdks.generators import BETA, GENERATORS
from sdks.results import Row, row_of
from sdks.running import PROGRAMS, Outcome
from sdks.steps import STEPS

ROOT = PROGRAMS.parent
DOCUMENT = json.loads(PATH.read_text("utf-8"))
ONE = GENERATORS[0]


def result(row: Row | None, document: dict[str, object] = DOCUMENT) -> list[str]:
    """The cells of the table from the column "result" on."""
    *_, line = sdks_page.results([ONE], {} if row is None else {ONE.slug: row}, document)
    return [cell.strip() for cell in line.strip("|").split("|")][4:]


def ran(**members: object) -> Row:
    return row_of(Outcome(ONE, **{"failed": {"today": [], "tomorrow": []}, **members}), DOCUMENT)


def test_every_generator_and_every_step_is_on_the_page() -> None:
    page = "\n".join(sdks_page.sdks_page())
    for generator in GENERATORS:
        assert f"[{generator.name}](../../sdks/{generator.slug})" in page
    for step, words in STEPS.items():
        assert f"| {step} | {words} |" in page


def test_a_generator_without_a_recorded_run_is_shown_as_not_run() -> None:
    assert result(None) == ["not run", "", "", ""]


def test_what_came_of_a_run_is_shown() -> None:
    count = len(STEPS)
    assert result(ran()) == ["works", f"{count} of {count}", f"{count} of {count}", str(len(ONE.allowed))]
    failed = ran(failed={"today": [], "tomorrow": ["gone", "job"]}, failures=["gone", "job"])
    assert result(failed)[:3] == ["fails", f"{count} of {count}", f"{count - 2} of {count} (not: gone, job)"]
    unfinished = ran(failed={}, failures=["it does not compile"])
    assert result(unfinished)[:2] == ["fails", "none: it did not come to them"]


def test_a_stale_row_is_shown_as_such() -> None:
    assert result(ran(), {**DOCUMENT, "paths": {}})[0] == "works; run with an earlier document"


def test_every_warning_that_is_allowed_has_a_reason() -> None:
    known = sdks_page.reasons(inspect.getsource(entries))
    page = "\n".join(sdks_page.warnings(GENERATORS, known))
    for generator in GENERATORS:
        for warning in generator.allowed:
            assert f"| `{warning}` | {known[warning]} |" in page


def test_a_warning_without_a_reason_is_found() -> None:
    allowed = [each for each in GENERATORS if BETA in each.allowed]
    assert allowed
    with pytest.raises(KeyError):
        list(sdks_page.warnings(allowed, sdks_page.reasons('BETA = "another"\n"""A reason."""\nNO_NAME = "none"\n')))


def test_the_defects_of_a_template_are_shown_with_what_shows_them() -> None:
    reason = """
        The template drops it:

            type: string
    """
    found = list(sdks_page.defects([dataclasses.replace(ONE, defects=(("raw batches", reason),))]))
    assert found == [
        *("", "## Defects of templates", "", f"### {ONE.name}: raw batches", ""),
        *("The template drops it:", "", "    type: string"),
    ]
    assert list(sdks_page.defects([dataclasses.replace(ONE, defects=())])) == []


def test_the_page_on_generating_a_client_has_the_examples_that_are_run() -> None:
    """Each block of code on it is a file of ``sdks``, and no example is missing."""
    page = (ROOT / "docs" / "how-to" / "generate-a-client.md").read_text("utf-8")
    blocks = re.findall(r"^```(?:python|typescript|go|java|rust|yaml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    files = {
        path.read_text("utf-8"): path
        for generator in GENERATORS
        if generator.example
        for path in (PROGRAMS / generator.slug).rglob("*")
        if path.is_file() and ("example" in path.as_posix().lower() or path.name == "config.yaml")
    }
    examples = [text for text, path in files.items() if path.name != "config.yaml"]
    assert len(examples) == len({each.language for each in GENERATORS})
    assert set(examples) <= set(blocks) <= files.keys()
