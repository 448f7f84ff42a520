"""Every rule that source, tests and docs cite is in the repository, and every rule on the page is cited."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from tests.docs.citations import ROOT, RULES, SUFFIXES, Citation, anchors, find_citations, rule_anchors, unresolved

# They hold citations of rules that there are not: this test, and the finder's patterns.
_NOT_READ = {"tests/docs/citations.py", "tests/docs/test_rules.py"}


@functools.cache
def all_citations() -> list[Citation]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = [name for name in listing.split("\0") if Path(name).suffix in SUFFIXES and name not in _NOT_READ]
    return [
        citation
        for name in names
        if (ROOT / name).is_file()
        for citation in find_citations(name, (ROOT / name).read_text("utf-8"))
    ]


def test_every_citation_leads_to_a_rule() -> None:
    citations = all_citations()
    kinds = {citation.anchor.split()[0].partition("-")[0] for citation in citations}
    assert {"spec", "disk", "invariant", "RC", "TX", "ADR"} <= kinds
    missing = unresolved(citations, anchors())
    assert not missing, "no such rule: correct the citation, or write the rule down\n" + "\n".join(missing)


def test_every_rule_on_the_page_is_cited() -> None:
    """A rule that no file cites is kept by none that says so: its test is missing, or the code it was for is gone."""
    cited = {anchor for place, _, anchor in all_citations() if not place.startswith(RULES)}
    cited |= {" ".join(anchor.split()[:2]) for anchor in cited}
    rules = [anchor for anchor in rule_anchors() if len(anchor.split()) == 2]
    assert len(rules) == len(set(rules)) > 80
    assert [rule for rule in rules if rule not in cited] == [], "cite them where they are kept, or remove them"


# The finder itself

PLANTED = '''"""E22, C99: the first two (spec E6 (3), (4), C8; disk rules 3 and 4) and Z-1, not HW-99.

See (spec D5 to D7, D6 f, E6 (9)), spec on-disk, spec Defaults and document 002. %C3%A9 is no rule.
"""

# Invariants 1 to 3 and 12 hold (B13 (b), spec
# A99), as rule 5 says and disk
# rule 12; ADR 1, ADR 999; docs/explanation/durability.md#promises-under-faults, docs/nowhere.md.
NAMES = {"B6": 1, "A1": 2}


def test_rc_6_lost() -> None: ...
def test_tx_99_missing() -> None: ...
def test_b4_flush() -> None: ...
def test_d_99_nothing() -> None: ...
'''


def test_the_finder_finds_each_form_of_citation() -> None:
    found = [(int(place.rpartition(":")[2]), anchor) for place, _, anchor in find_citations("planted.py", PLANTED)]
    assert sorted(found) == [
        (1, "HW-99"),
        (1, "Z-1"),
        (1, "disk rule 3"),
        (1, "disk rule 4"),
        (1, "spec C8"),
        (1, "spec C99"),
        (1, "spec E22"),
        (1, "spec E6 3"),
        (1, "spec E6 4"),
        (3, "document 002"),
        (3, "spec D5"),
        (3, "spec D6"),
        (3, "spec D6 f"),
        (3, "spec D7"),
        (3, "spec Defaults"),
        (3, "spec E6 9"),
        (3, "spec on-disk"),
        (6, "invariant 1"),
        (6, "invariant 12"),
        (6, "invariant 2"),
        (6, "invariant 3"),
        (6, "spec A99"),
        (6, "spec B13 b"),
        (7, "disk rule 12"),
        (7, "rule of what?"),
        (8, "ADR 1"),
        (8, "ADR 999"),
        (8, "docs/explanation/durability.md#promises-under-faults"),
        (8, "docs/nowhere.md"),
        (12, "RC-6"),
        (13, "TX-99"),
        (14, "spec B4"),
        (15, "spec D99"),
    ]


def test_citations_that_lead_nowhere_are_named_with_their_lines(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    citations = list(find_citations(planted.name, planted.read_text("utf-8")))
    assert sorted(unresolved(citations, anchors())) == [
        "planted.py:13: def test_tx_99_",
        "planted.py:15: def test_d_99_",
        "planted.py:1: E22, C99",
        "planted.py:1: HW-99",
        "planted.py:3: document 002",
        "planted.py:3: spec D5 to D7, D6 f, E6 (9)",
        "planted.py:3: spec on-disk",
        "planted.py:6: Invariants 1 to 3 and 12",
        "planted.py:6: spec A99",
        "planted.py:7: disk rule 12",
        "planted.py:7: rule 5",
        "planted.py:8: ADR 999",
        "planted.py:8: docs/nowhere.md",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a rule",
        "the spec",
        "## Rules\n\n1. First",
        "specification A99",
        "--input-spec openapi.json",
        "rules of the disk",
        '("B6", 1)',
        "UTF-8",
    ],
)
def test_other_words_are_no_citations(text: str) -> None:
    assert list(find_citations("words.py", text)) == []
