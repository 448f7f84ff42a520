"""The table of differences, the page that shows it, and the cases: held against each other, without a broker."""

from __future__ import annotations

from pathlib import Path

from tests.kafka.cases import TOPICS, all_cases
from tests.kafka.differences import DIFFERENCES, difference_of, page_rows

PAGE = Path(__file__).parents[2] / "docs/reference/kafka-cases.md"
SECTION = "Where brokers answer otherwise"
LEAST_CASES = 205


def test_the_page_shows_every_row_and_no_other() -> None:
    section = PAGE.read_text("utf-8").partition(f"\n## {SECTION}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert lines[1:] == page_rows()


def test_every_row_covers_a_case_and_every_case_has_one_row_at_most() -> None:
    cases = all_cases()
    assert len(cases) >= LEAST_CASES
    assert {case.topic for case in cases} == {*TOPICS}
    covered = {row.columns for case in cases if (row := difference_of(case)) is not None}
    assert covered == {row.columns for row in DIFFERENCES}


def test_a_seed_makes_the_same_bodies() -> None:
    assert all_cases(7) == all_cases(7)
    assert all_cases(7) != all_cases(8)
    assert [case.name for case in all_cases(7) if not case.name.startswith(("header: a flipped", "record: "))] == [
        case.name for case in all_cases(8) if not case.name.startswith(("header: a flipped", "record: "))
    ]
