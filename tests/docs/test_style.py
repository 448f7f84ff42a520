"""Text that users read has none of the phrases that docs/style.md rules out."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "storage", "schemas", "client/src", "demo", "bench")

PHRASES = {
    # Not of a consequence ("so many that"), nor of a condition ("so long as").
    "this many, this long": r"\bso (?:many|much)\b(?! (?:[\w-]+ ){0,3}that\b)|\bso long\b(?! as\b)",
    "any, all that": r"\bwho(?:m)?ever\b",
    "callers that, those that": r"\b(?:by|for|from|of|to|with) who\b",
    "again, rebuilt": r"\banew\b",
    "does not say, does not know": r"\b(?:asks|knows|minds|says|sees|tells|wants) (?:nobody|not)\b(?! only\b)",
    "if there is none, an operator": r"\b(?:any|no|some)body\b",
    "must, is to": r"\bshall\b",
    "also, before the verb": r", too(?=[.,:;)\]]|\s*\Z)",
    "matters if you": r"\bof interest to who\b",
}
"""What to write instead, and the phrase."""
_PATTERNS = {instead: re.compile(phrase.replace(" ", r"\s+"), re.IGNORECASE) for instead, phrase in PHRASES.items()}


def faults(text: str) -> list[str]:
    """The phrases in ``text`` that are ruled out, each with its line and what to write instead."""
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())!r}: write {instead!r}"
        for instead, pattern in _PATTERNS.items()
        for match in pattern.finditer(text)
    ]


# Pages


def page_text(path: Path) -> str:
    """A page without its code, and without the changes of released versions; lines keep their numbers."""
    text = path.read_text("utf-8")
    if path.name == "CHANGELOG.md":
        text = text.partition("\n## [Unreleased]")[2].partition("\n## [")[0]
    return re.sub(r"```.*?```|`[^`\n]*`", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)


def pages() -> list[Path]:
    """Decisions are history and stay as they were written. The page of style shows what not to write."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(
        path
        for path in found
        if path != ROOT / "docs/style.md" and (ROOT / "docs/adr" not in path.parents or path.name == "README.md")
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_none_of_the_phrases(page: Path) -> None:
    found = faults(page_text(page))
    assert not found, "\n".join(found)


# The OpenAPI document


def texts_of(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a JSON document, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from texts_of(member, f"{place}/{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from texts_of(item, f"{place}/{number}")


@pytest.mark.parametrize("which", ["committed", "whole"])
def test_the_openapi_document_has_none_of_the_phrases(which: str) -> None:
    if which == "committed":
        document = json.loads((ROOT / "openapi/openapi.json").read_text("utf-8"))
    else:
        document = create_app(Settings()).state.whole_document()
    places = {text: place for place, text in texts_of(document)}
    assert len(places) > 1_000
    found = [f"{place}: {fault}" for text, place in places.items() for fault in faults(text)]
    assert not found, "\n".join(found)


# Messages, help and descriptions in source


def texts_in_source(source: str) -> Iterator[tuple[int, str]]:
    """Every text of a module that is no docstring, with its line: errors, help, descriptions, lines of the log."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.lineno, node.value


def texts_in_compiled_source(source: str) -> Iterator[tuple[int, str]]:
    """As ``texts_in_source``, of Cython, which ``ast`` cannot read."""
    source = re.sub(r'"""(?:.|\n)*?"""|#[^\n"]*$', lambda part: "\n" * part[0].count("\n"), source, flags=re.MULTILINE)
    for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', source):
        yield source.count("\n", 0, match.start()) + 1, match[1]


def test_messages_help_and_descriptions_have_none_of_the_phrases() -> None:
    found, count = [], 0
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py*")):
            read = {".py": texts_in_source, ".pyx": texts_in_compiled_source}.get(path.suffix)
            if read is None:
                continue
            for line, text in read(path.read_text("utf-8")):
                count += 1
                found += [f"{path.relative_to(ROOT)}:{line}: {fault.partition(': ')[2]}" for fault in faults(text)]
    assert count > 10_000
    assert not found, "\n".join(found)


# The patterns themselves


@pytest.mark.parametrize(
    "text",
    [
        "Start so many records from the end.",
        "At most so\nmuch memory.",
        "Make records visible in steps of so long.",
        "null for who may not know",
        "It is open to who asks.",
        "whoever the user is",
        "The index is made anew.",
        "The request says not who it comes from.",
        "The module knows nobody.",
        "nobody is asked",
        "Somebody else's fsync",
        "The topic shall have three partitions.",
        "Rows of aborted loads are shown, too.",
        "It counts (rows, too), always",
        "The rest is of interest to who ran it.",
    ],
)
def test_phrases_that_are_ruled_out_are_found(text: str) -> None:
    assert len(faults(text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "Start this many records before the end.",
        "It takes so many bytes that the budget is spent.",
        "The lock is held so long as the process runs.",
        "The person to whom the key belongs says who may use it.",
        "The service says not only that, it also counts.",
        "It has not been written, and need not be.",
        "The value is too large, too small or not a number.",
        "Marshalling a shallow copy renews nothing.",
        "The renewed lease belongs to the caller whose key it is.",
    ],
)
def test_good_english_passes(text: str) -> None:
    assert faults(text) == []


def test_places_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```\nUser=nobody\n```\n\nThe user `nobody` is nobody.\n")
    assert faults(page_text(page)) == ["7: 'nobody': write 'if there is none, an operator'"]
    source = '"""Nobody reads this."""\nclass A:\n    """anew"""\n    b: int\n    """shall"""\nmessage = f"{1} shall"\n'
    assert list(texts_in_source(source)) == [(6, " shall")]
    compiled = 'cdef int a():\n    """anew"""\n    raise ValueError("shall")  # nobody\n'
    assert list(texts_in_compiled_source(compiled)) == [(3, "shall")]
