"""Citations of rules in source, tests and docs, and the headings, numbers and rows that they must lead to.

The forms of a citation are listed at the top of ``docs/reference/rules.md``. Case ids and paths of pages are citations
wherever they stand. The id of a rule is one after the word "spec", at the beginning of a docstring, in parentheses, and
anywhere on the page of rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RULES = "docs/reference/rules.md"
CASES = "docs/reference/kafka-cases.md"
DURABILITY = "docs/explanation/durability.md"
ARCHITECTURE = "ARCHITECTURE.md"
SUFFIXES = frozenset({".md", ".pxd", ".py", ".pyx"})

# Between two words of a citation: spaces, or a line end and the beginning of the next line of a text or comment.
_GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:#[ \t]+)?(?=\S))"
_POINT = r"(?: \((?:[a-h]|\d)\)(?:, \(\d\))*| [a-h](?=[;,.:)]))?"
_RULE = rf"[A-Z]\d{{1,2}}\b{_POINT}"
_RULES = rf"{_RULE}(?:(?:,{_GAP}|{_GAP}(?:and|to){_GAP}|-){_RULE})*"
_NUMBERS = rf"\d+(?:(?:,{_GAP}|{_GAP}(?:and|to){_GAP})\d+)*"

_SPEC = re.compile(rf"(?<![\w-])[Ss]pec{_GAP}({_RULES})")
_ID = re.compile(r"\b[A-E]\d{1,2}\b")
_BARE = re.compile(rf"(?:\"\"\"|\()({_RULES})(?=[\s,;:.)])")
# "spec" before anything else: the name of a rule without a number, or no citation that leads anywhere.
_NAMED = re.compile(rf"(?<![\w-])[Ss]pec{_GAP}(?![A-Z]\d)([\w\"][\w/-]*)|(?<![\w-])[Ss]pec(/on-disk)")
_DISK = re.compile(rf"\b[Dd]isk{_GAP}rules?{_GAP}({_NUMBERS})")
_NUMBERED = re.compile(rf"(\b[Dd]isk{_GAP})?\b[Rr]ules?{_GAP}\d+")
_INVARIANT = re.compile(rf"\b[Ii]nvariants?{_GAP}({_NUMBERS})")
_CASE = re.compile(r"\b((?:V|R|IX|F|X|RT|TR|RC|PS|TX|LE|HW|Q|Z)-\d+[a-z]?)\b")
_TEST = re.compile(r"\bdef test_(v|r|ix|f|x|rt|tr|rc|ps|tx|le|hw|q|z)_(\d+[a-z]?)_")
_TEST_OF_RULE = re.compile(r"\bdef test_([a-e])_?(\d{1,2})_")
_DECISION = re.compile(r"\bADR (\d+)\b")
_DOCUMENT = re.compile(rf"\b([Dd]ocuments?{_GAP}00\d)\b")
_PAGE = re.compile(r"(?<![\w./-])((?:docs/[\w/-]+|ARCHITECTURE)\.md(?:#[\w-]+)?)")
_PROSE = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*')


class Citation(NamedTuple):
    """One citation: where it is, how it is written, and the id it stands for, as ``anchors`` has them."""

    place: str
    text: str
    anchor: str


def find_citations(name: str, text: str) -> Iterator[Citation]:
    """All citations in ``text``, the content of the file called ``name``."""
    for at, written, anchor in _found(name, text):
        line = text.count("\n", 0, at) + 1
        yield Citation(f"{name}:{line}", re.sub(_GAP, " ", written), anchor)


def unresolved(citations: Iterable[Citation], known: frozenset[str]) -> list[str]:
    """``file:line`` and text of the citations that lead nowhere."""
    return [f"{place}: {text}" for place, text, anchor in citations if anchor not in known]


def _found(name: str, text: str) -> Iterator[tuple[int, str, str]]:
    for match in _SPEC.finditer(text):
        yield from ((match.start(), match[0], anchor) for anchor in _rule_anchors(match[1]))
    for match in _NAMED.finditer(text):
        yield match.start(), match[0], f"spec {match[1] or match[2]}"
    if name == RULES:
        yield from ((match.start(), match[0], f"spec {match[0]}") for match in _ID.finditer(text))
    if not name.endswith(".md"):
        for prose in _PROSE.finditer(text):
            for match in _BARE.finditer(prose[0]):
                yield from ((prose.start() + match.start(1), match[1], anchor) for anchor in _rule_anchors(match[1]))
    for match in _DISK.finditer(text):
        yield from ((match.start(), match[0], f"disk rule {number}") for number in _numbers(match[1]))
    for match in _NUMBERED.finditer(text):
        if match[1] is None:
            yield match.start(), match[0], "rule of what?"
    for match in _INVARIANT.finditer(text):
        yield from ((match.start(), match[0], f"invariant {number}") for number in _numbers(match[1]))
    for match in _CASE.finditer(text):
        yield match.start(), match[0], match[1]
    for match in _TEST.finditer(text):
        yield match.start(), match[0], f"{match[1].upper()}-{match[2]}"
    for match in _TEST_OF_RULE.finditer(text):
        yield match.start(), match[0], f"spec {match[1].upper()}{match[2]}"
    for pattern in (_DECISION, _DOCUMENT, _PAGE):
        for match in pattern.finditer(text):
            yield match.start(), match[0], match[1] if pattern is _PAGE else match[0]


def _rule_anchors(text: str) -> Iterator[str]:
    """The anchors of a list such as ``D2, D5 to D7, E6 (3), (4)``: each rule, and each point with its rule."""
    for part in re.split(rf",{_GAP}(?=[A-Z])|{_GAP}and{_GAP}", text):
        first, *last = re.findall(r"[A-Z]\d{1,2}", part)
        if last:
            group = first[0]
            yield from (f"spec {group}{number}" for number in range(int(first[1:]), int(last[-1][1:]) + 1))
            if last[-1][0] != group:
                yield f"spec {part}"
            continue
        points = re.findall(r"\b[a-h]\b|(?<=\()\w(?=\))", part.removeprefix(first))
        yield from ((f"spec {first} {point}" for point in points) if points else (f"spec {first}",))


def _numbers(text: str) -> Iterator[int]:
    for part in re.split(rf",{_GAP}|{_GAP}and{_GAP}", text):
        first, *last = [int(number) for number in re.findall(r"\d+", part)]
        yield from range(first, (last[-1] if last else first) + 1)


def anchors(root: Path = ROOT) -> frozenset[str]:
    """The id of everything that may be cited below ``root``."""
    return frozenset([*rule_anchors(root), *_other_anchors(root)])


def rule_anchors(root: Path = ROOT) -> list[str]:
    """The rules of the page of rules, with their points: ``spec E6``, ``spec E6 3``, ``spec Defaults``."""
    found = []
    for section in re.split(r"^### ", (root / RULES).read_text("utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        rule = heading.split()[0]
        found += [f"spec {rule}", *(f"spec {rule} {point}" for point in re.findall(r"\(([a-h]|\d)\)", body))]
    return found


def _other_anchors(root: Path) -> Iterator[str]:
    for page, heading, kind in (
        (DURABILITY, "The rules for the disk", "disk rule"),
        (ARCHITECTURE, "Invariants", "invariant"),
    ):
        section = (root / page).read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        yield from (f"{kind} {number}" for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE))
    cases = (root / CASES).read_text("utf-8").partition("\n## All cases\n")[2]
    yield from re.findall(r"^\| ([A-Z]+-\d+[a-z]?) \|", cases, re.MULTILINE)
    yield from (f"ADR {int(path.name[:4])}" for path in (root / "docs/adr").glob("[0-9]*.md"))
    for path in [root / ARCHITECTURE, *(root / "docs").rglob("*.md")]:
        page = path.relative_to(root).as_posix()
        headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
        yield from (page, *(f"{page}#{_slug(heading)}" for heading in headings))


def _slug(heading: str) -> str:
    """The anchor that forges give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
