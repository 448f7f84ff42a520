"""Text that users read, and code that is finished, has none of the phrases that docs/style.md rules out."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.main import create_app
from app.settings import Settings

ROOT = Path(__file__).parents[2]
PACKAGES = ("app", "log_model", "storage", "schemas", "client/src", "demo", "bench")

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

FINISHED = (
    "app/access",
    "app/cli",
    "app/engine",
    "app/engine_local",
    "app/event_loop",
    "app/fast_path",
    "app/fetch",
    "app/http",
    "app/load_jobs",
    "app/main.py",
    "app/metrics",
    "app/openapi",
    "app/problems",
    "app/produce",
    "app/quotas",
    "app/record_json",
    "app/routes",
    "app/server",
    "app/service",
    "app/settings.py",
    "app/start_positions",
    "client/src/pyspark_rollway",
    "client/src/rollway/client",
    "client/src/rollway/records",
    "client/src/rollway/spark",
    "log_model",
    "schemas",
    "storage",
)
"""Folders and files whose docstrings and comments are also held to the phrases. The list only grows."""
UNFINISHED = frozenset[str]()
"""Files in these folders that are not finished. The list only shrinks."""

BEGINNINGS = {
    "a noun phrase that says what the thing is, or a verb": re.compile(r"(?:What|Who|Whom|Whose)(?:ever)?\b"),
    "Whether, and when it is true": re.compile(r"Whether\s[^.;:]*\bnot\b"),
}
"""How a docstring must begin, and the beginnings that are ruled out."""
FUNCTION_BEGINNINGS = {
    "Return whether": re.compile(r"Whether\b"),
    "a verb": re.compile(r"(?:A|All|An|As|Each|Every|How|Nothing|That|The|Those|Where|Which)\b"),
}
"""The same for functions. Properties and attributes are things, and their conditions begin with "Whether"."""


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


# Docstrings and comments of finished code


class CodeText(NamedTuple):
    """A docstring, or the comments of adjacent lines. ``kind`` is "docstring", "function" or "comment"."""

    line: int
    kind: str
    text: str


def docstrings_and_comments(source: str) -> Iterator[CodeText]:
    """Yield the docstrings of a module, including those of attributes, then its comments."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for place, statement in enumerate(body if isinstance(body, list) else []):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                is_function = place == 0 and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                if isinstance(text, str):
                    kind = "function" if is_function and not _is_property(node) else "docstring"
                    yield CodeText(statement.lineno, kind, text)
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.COMMENT
    ]
    yield from _joined([(token.start[0], token.string) for token in comments])


def _is_property(function: ast.AST) -> bool:
    decorators = getattr(function, "decorator_list", [])
    return any("property" in ast.unparse(decorator) for decorator in decorators)


def docstrings_and_comments_in_compiled_source(source: str) -> Iterator[CodeText]:
    """Yield the same of Cython, which ``ast`` cannot read. Docstrings of functions count as "docstring"."""
    for match in re.finditer(r'"""((?:.|\n)*?)"""', source):
        yield CodeText(source.count("\n", 0, match.start()) + 1, "docstring", match[1])
    rest = re.sub(r'"""(?:.|\n)*?"""|"(?:[^"\\\n]|\\.)*"', lambda part: "\n" * part[0].count("\n"), source)
    lines = enumerate(rest.splitlines(), start=1)
    yield from _joined([(number, line[line.index("#") :]) for number, line in lines if "#" in line])


def _joined(comments: list[tuple[int, str]]) -> Iterator[CodeText]:
    """Join the comments of adjacent lines, so that a phrase may span two of them."""
    started, lines = 0, list[str]()
    for number, comment in comments:
        if lines and number != started + len(lines):
            yield CodeText(started, "comment", "\n".join(lines))
            lines = []
        started = number if not lines else started
        lines.append(comment.lstrip("# "))
    if lines:
        yield CodeText(started, "comment", "\n".join(lines))


def code_faults(found: CodeText) -> list[str]:
    """Return the faults of a docstring or comment, each with its line and what to write instead."""
    numbered = [fault.partition(": ") for fault in faults(found.text)]
    texts = [f"{found.line + int(line) - 1}: {fault}" for line, _, fault in numbered]
    beginnings = {"docstring": BEGINNINGS, "function": {**BEGINNINGS, **FUNCTION_BEGINNINGS}, "comment": {}}[found.kind]
    start = " ".join(found.text.split())
    return texts + [
        f"{found.line}: begins {start[:40]!r}: begin with {instead}"
        for instead, pattern in beginnings.items()
        if pattern.match(start)
    ]


def finished_files() -> list[str]:
    paths = [
        path for name in FINISHED for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))
    ]
    names = {str(path.relative_to(ROOT)) for path in paths if path.suffix in (".py", ".pyx")}
    return sorted(names - UNFINISHED)


def test_docstrings_and_comments_of_finished_code_have_none_of_the_phrases() -> None:
    found, count = [], 0
    for name in finished_files():
        read = docstrings_and_comments if name.endswith(".py") else docstrings_and_comments_in_compiled_source
        for text in read((ROOT / name).read_text("utf-8")):
            count += 1
            found += [f"{name}:{fault}" for fault in code_faults(text)]
    assert count > 900
    assert not found, "\n".join(found)


def test_files_that_are_not_finished_are_there() -> None:
    missing = [name for name in sorted(UNFINISHED) if not (ROOT / name).is_file()]
    assert missing == [], "take them off the list"


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


PLANTED = '''"""What the module does."""

# Nobody knows so
# many of them.
LIMIT = 1  # it is made anew
"""Whether it is not reached."""


class Log:
    """The log of one partition."""

    @property
    def is_open(self) -> bool:
        """Whether it is open."""

    def find(self) -> int:
        """The first offset."""
        return "shall"

    def has(self) -> bool:
        """Whether it has
        so much."""
'''


def test_docstrings_and_comments_are_found() -> None:
    found = sorted(
        (int(fault.partition(":")[0]), fault)
        for text in docstrings_and_comments(PLANTED)
        for fault in code_faults(text)
    )
    assert [line for line, _ in found] == [1, 3, 3, 5, 6, 17, 21, 22]
    assert [fault.rpartition(": ")[2] for line, fault in found if line in (1, 6, 17, 21)] == [
        "begin with a noun phrase that says what the thing is, or a verb",
        "begin with Whether, and when it is true",
        "begin with a verb",
        "begin with Return whether",
    ]


def test_docstrings_and_comments_of_compiled_code_are_found() -> None:
    source = (
        'cdef int a() except -1:\n    """Who calls it."""\n'
        '    raise ValueError("# shall")  # nobody\n    # so\n    # many\n'
    )
    texts = list(docstrings_and_comments_in_compiled_source(source))
    assert texts == [CodeText(2, "docstring", "Who calls it."), CodeText(3, "comment", "nobody\nso\nmany")]
    assert sorted(fault.partition(":")[0] for text in texts for fault in code_faults(text)) == ["2", "3", "4"]
