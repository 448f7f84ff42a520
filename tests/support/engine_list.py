"""Which tests run on which engine: the marker ``needs_local``, and the page that lists the marked tests.

``make engine-test`` runs the suite on the engine in memory and writes the page: the tests that need the local engine,
grouped by reason, and the numbers of that run.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "engines.md"
MARKER = "needs_local"

SUITE = ("tests/http", "tests/cases/test_fetch_session_cases.py", "tests/judges/test_committed_reads.py")
"""The tests that talk HTTP to a service of this process. Each runs on the engine in memory, or says why not."""

QUICK = (
    "tests/http/test_record_paths.py",
    "tests/http/test_offsets.py",
    "tests/http/test_splits.py",
    "tests/http/test_produce.py",
    "tests/http/test_produce_parts.py",
    "tests/http/test_idempotence.py",
    "tests/http/test_transactions.py",
    "tests/http/test_fetch.py",
    "tests/http/test_multi_fetch.py",
    "tests/http/test_long_poll.py",
    "tests/http/test_load_jobs.py",
    "tests/cases/test_fetch_session_cases.py",
)
"""The part that CI runs: it takes less than a minute."""

_BEGIN, _END = "<!-- the list of make engine-test -->", "<!-- the end of the list -->"


class Need(NamedTuple):
    """One mark: of a whole file if ``test`` is ``None``; of single parameters if ``test`` is a constant of the file."""

    path: str
    test: str | None
    reason: str


class Numbers(NamedTuple):
    """The tests of one run, and those left out by their reasons."""

    passed_count: int
    left_out: Mapping[str, int]


def needs() -> list[Need]:
    """Return every mark in the files of the suite, by file.

    Raises:
        ValueError: a mark has no reason, or none that is written out.
    """
    found = []
    for root in SUITE:
        path = ROOT / root
        for file in sorted(path.glob("test_*.py")) if path.is_dir() else [path]:
            found += list(_marks(file))
    return found


def _marks(file: Path) -> Iterator[Need]:
    name = file.relative_to(ROOT).as_posix()
    tree = ast.parse(file.read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for reason in _reasons(node, name):
                yield Need(name, node.name, reason)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            for reason in _reasons(node, name):
                yield Need(name, None if target == "pytestmark" else target, reason)


def _reasons(node: ast.AST, name: str) -> Iterator[str]:
    called = {id(each.func): each for each in ast.walk(node) if isinstance(each, ast.Call)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr == MARKER:
            arguments = called[id(each)].args if id(each) in called else []
            reason = arguments[0].value if len(arguments) == 1 and isinstance(arguments[0], ast.Constant) else None
            if not isinstance(reason, str) or not reason:
                raise ValueError(f"{name}:{each.lineno}: {MARKER} needs a reason, written out")
            yield reason


def list_of(marks: Sequence[Need], left_out: Mapping[str, int]) -> str:
    """Return the list for people: a part for each reason, the one with the most tests first."""
    lines = []
    for reason in sorted({mark.reason for mark in marks}, key=lambda reason: (-left_out.get(reason, 0), reason)):
        lines += [f"### {reason[0].upper()}{reason[1:]} ({left_out.get(reason, 0)})", ""]
        by_file: dict[str, list[str]] = {}
        for mark in marks:
            if mark.reason == reason:
                by_file.setdefault(mark.path, []).append(mark.test or "")
        for path, tests in by_file.items():
            lines.append(f"- `{path}`" + ("" if "" in tests else ":"))
            lines += [f"  - `{test}`" for test in tests if "" not in tests]
        lines.append("")
    return "\n".join(lines)


def page_with(text: str, marks: Sequence[Need], numbers: Numbers) -> str:
    """Return the page with another list and other numbers."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    left_out = sum(numbers.left_out.values())
    count = (
        f"Of {numbers.passed_count + left_out} tests of the suite, {numbers.passed_count} pass on the engine in "
        f"memory, and {left_out} need the local engine."
    )
    return f"{head}{_BEGIN}\n\n{count}\n\n{list_of(marks, numbers.left_out)}{_END}{tail}"


def numbers_of(text: str) -> Numbers:
    """Return the numbers that a page has.

    Raises:
        ValueError: it has none.
    """
    words = text.partition(_BEGIN)[2].split()
    if len(words) < 7 or words[0] != "Of":
        raise ValueError("the page has no numbers")
    titles = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    left_out = {}
    for title in titles:
        reason, _, count = title.rpartition(" (")
        left_out[reason[0].lower() + reason[1:]] = int(count.rstrip(")"))
    return Numbers(int(words[6]), left_out)


def write_page(passed_count: int, left_out: Counter[str]) -> None:
    """Write the page after a run of the whole suite."""
    PAGE.write_text(page_with(PAGE.read_text("utf-8"), needs(), Numbers(passed_count, left_out)), "utf-8")


if __name__ == "__main__":
    print(*{"suite": SUITE, "quick": QUICK}[sys.argv[1]])
