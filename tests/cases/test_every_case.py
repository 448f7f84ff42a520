"""Every case of Kafka's that this project is held to is a test of its name, or stands in the table of differences."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/kafka-cases.md"
CASES: dict[str, tuple[int | str, ...]] = {
    "V": (1, 3, 4, 5, 6, 9, 10, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 26),
    "R": (1, 4, 5, 7, 8, 9, 11),
    "IX": (1, 3, 4, 7, 8, 9, 10, 11),
    "F": (1, 4, 7, 8, 11, 13, "14b", 15, 16, 17, 19),
    "X": (9,),
    "RT": (1, 4, 5, 6, 7, 8, 9, 10, 11),
    "TR": (1,),
    "RC": (1, 2, 5, 6, 7, 8, 9, 10, 11, 12),
    "PS": (1, 5, 6),
    "TX": (1, 3, 4, 5, 6, 8, 9, 10, 11),
    "LE": (1, 2, 3, 4),
    "HW": (1, 4),
    "Q": (1,),
    "Z": (1,),
}


def names_of_tests() -> set[str]:
    names = set()
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("client/tests/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(node.name)
    return names


def cases_below(heading: str) -> list[str]:
    """The cases of the table in one section of the page."""
    section = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| ([A-Z]+-\d+[a-z]?) \|", section, re.MULTILINE)


def test_the_page_lists_every_case_once_and_no_other() -> None:
    listed = cases_below("All cases")
    assert listed == [f"{group}-{number}" for group, numbers in CASES.items() for number in numbers]


def test_every_case_is_a_test_or_a_documented_difference() -> None:
    names = names_of_tests()
    listed = cases_below("Where Rollway answers otherwise")
    assert "RC-6" in listed
    missing = []
    for group, numbers in CASES.items():
        for number in numbers:
            mark = re.compile(rf"_{group.lower()}_{number}(_|$)")
            if f"{group}-{number}" not in listed and not any(mark.search(name) for name in names):
                missing.append(f"{group}-{number}")
    assert not missing
