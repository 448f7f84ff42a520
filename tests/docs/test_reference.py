"""The reference is complete and fresh, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.problems import kinds
from docs import generate
from rollway.spark.options.option_names import CONNECTION, KAFKA_MAPPED, KAFKA_REFUSED, READ, WRITE

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", sorted(generate.PAGES), ids=lambda page: page.name)
def test_generated_parts_are_fresh(page: Path) -> None:
    assert page.read_text("utf-8") == generate.fresh_text(page), "run `make docs`"


def test_a_stale_page_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "topic-configuration.md"
    monkeypatch.setattr(generate, "PAGES", {page: generate.topic_configuration_page})
    page.write_text(f"# Head\n\n{generate.MARK}\n\nold\n")
    assert generate.main(["--check"]) == 1
    assert "topic-configuration.md is stale" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert page.read_text().startswith("# Head\n")


def test_every_topic_setting_is_explained() -> None:
    for line in generate.topic_configuration_page()[2:]:
        assert re.fullmatch(r"\| `[a-z0-9.]+` \| .* \| \S.*\. \|", line), line


def test_every_setting_is_explained() -> None:
    for line in generate.settings_page()[2:]:
        assert re.fullmatch(r"\| `\w+` \| `ROLLWAY_\w+` \| .* \| \S.*\. \|", line), line


def test_every_command_and_option_is_explained() -> None:
    lines = generate.command_line_page()
    for heading in (number for number, line in enumerate(lines) if line.startswith("## ")):
        assert re.match(r"\S", lines[heading + 2]), f"{lines[heading]} has no help"
    for line in lines:
        if line.startswith("| `"):
            assert re.fullmatch(r"\| .* \| .* \| \S.* \|", line), line


def test_every_option_of_the_data_source_is_explained() -> None:
    names = {*CONNECTION, *READ, *WRITE, *KAFKA_MAPPED, *KAFKA_REFUSED}
    page = (ROOT / "docs/reference/spark.md").read_text("utf-8")
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_every_error_is_explained() -> None:
    page = (generate.REFERENCE / "errors.md").read_text("utf-8")
    assert len(kinds.ALL) >= 90
    for kind in kinds.ALL:
        row = f"| {kind.status} | `{kind.code}` | {kind.kafka_code} | "
        assert any(line.startswith(row) and line.endswith(f" | {kind.when} |") for line in page.splitlines()), row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} -> {target}"


def test_every_page_is_reachable_from_the_index() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            links = re.findall(r"\]\(([^)#\s:]+\.md)", page.read_text("utf-8"))
            waiting.extend((page.parent / target).resolve() for target in links)
    assert [str(page.relative_to(ROOT)) for page in PAGES if page.resolve() not in reached] == []


def test_a_page_has_one_title_and_fits_a_terminal() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page
        head = text.partition(generate.MARK)[0]
        for number, line in enumerate(head.splitlines(), 1):
            assert len(line) <= 140 or line.startswith(("|", "- [", "[")), f"{page}:{number} (of text): {len(line)}"
