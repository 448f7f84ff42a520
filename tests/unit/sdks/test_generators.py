"""Every entry is whole: its program is there, its versions are pinned, and what it is forgiven has a reason."""

from __future__ import annotations

import inspect
import re

import pytest

from docs.sdks_page import reasons
from sdks import generators as entries
from sdks.generators import GENERATORS, Generator
from sdks.running import PROGRAMS, lock_text
from sdks.steps import STEPS

each_generator = pytest.mark.parametrize("generator", GENERATORS, ids=lambda each: each.slug)


def test_names_and_folders_are_unique() -> None:
    assert len({each.name for each in GENERATORS}) == len({each.slug for each in GENERATORS}) == len(GENERATORS)


@each_generator
def test_its_program_is_there(generator: Generator) -> None:
    assert any(path.is_file() for path in (PROGRAMS / generator.slug).rglob("*"))


@each_generator
def test_its_version_is_the_one_that_is_installed(generator: Generator) -> None:
    words = [word for command in (*generator.tools, *generator.generate) for word in command]
    assert any(generator.version in text for text in (*words, *lock_text(generator).splitlines())), generator.version


@each_generator
def test_it_is_pinned(generator: Generator) -> None:
    """Packages of npm and Go name one version each, and those of Python are in a lock with hashes."""
    for command in generator.tools:
        if "pip" in command:
            assert "--require-hashes" in command
            assert "--no-deps" in command
            assert command[-2:] == ("--requirement", "{requirements}/" + f"{generator.lock}.lock")
        for word in command:
            assert not re.search(r"[<>~^*]|@latest", word), f"{word} is no exact version"


@each_generator
def test_what_it_is_forgiven_has_a_reason(generator: Generator) -> None:
    known = reasons(inspect.getsource(entries))
    assert set(generator.allowed) <= known.keys()
    assert all(known[warning] for warning in generator.allowed)
    for step, reason in generator.defects:
        assert step in STEPS
        assert len(reason.split()) > 5, "a defect is shown by the smallest document that has it"


def test_those_with_one_toolbox_have_the_same_tools() -> None:
    """Else each would install its own over the other's."""
    boxes: dict[str, set[tuple[object, ...]]] = {}
    for each in GENERATORS:
        boxes.setdefault(each.toolbox or each.slug, set()).add((each.tools, each.lock))
    assert all(len(tools) == 1 for tools in boxes.values()), boxes


def test_one_language_each_has_an_example_for_people() -> None:
    assert sorted(each.language for each in GENERATORS if each.example) == sorted(
        {each.language for each in GENERATORS}
    )


@each_generator
def test_an_example_has_a_command_that_runs_it(generator: Generator) -> None:
    found = [path for path in (PROGRAMS / generator.slug).rglob("*") if "example" in path.as_posix().lower()]
    assert bool(found) == bool(generator.example)
