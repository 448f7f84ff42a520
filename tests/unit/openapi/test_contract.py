"""CHANGELOG names each breaking change, and exactly those; a release begins the next contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openapi.breaking_changes import breaking_changes
from openapi.contract import Changelog, faults, main
from tests.unit.openapi.planted_changes import BREAKING, HARMLESS, Node, document

RELEASE = "\n## [0.1.0] - 2026-01-31\n\nThe first.\n"


def changelog(*items: str, after: str = "") -> str:
    lines = "\n".join(items)
    before = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- More.\n"
    return f"{before}\n### Breaking\n\n{lines}\n\n### Fixed\n\n- Less.\n{after}"


def planted(name: str) -> Node:
    changed = document()
    BREAKING[name][0](changed)
    return changed


class Repository:
    """The three files in a directory, and the command on them."""

    def __init__(self, directory: Path, *, current: Node, changelog: str, released: Node | None = None) -> None:
        self.current, self.released = directory / "openapi.json", directory / "released.json"
        self.changelog = directory / "CHANGELOG.md"
        self.current.write_text(json.dumps(current), "utf-8")
        self.released.write_text(json.dumps(released or document()), "utf-8")
        self.changelog.write_text(changelog, "utf-8")

    def run(self, *arguments: str) -> int:
        files = ["--current", self.current, "--released", self.released, "--changelog", self.changelog]
        return main([*(str(each) for each in files), *arguments])


@pytest.mark.parametrize("name", BREAKING)
def test_the_lines_that_the_check_prints_are_the_lines_that_it_accepts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However long they are: the check wraps them."""
    repository = Repository(tmp_path, current=planted(name), changelog=changelog(after=RELEASE))
    assert repository.run() == 1
    told = capsys.readouterr().err
    items = told[told.index("\n\n- ") :].strip()
    repository.changelog.write_text(changelog(items, after=RELEASE), "utf-8")
    assert repository.run() == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", BREAKING)
def test_without_one_of_its_lines_a_change_is_a_fault(name: str) -> None:
    changes = breaking_changes(document(), planted(name))
    for left_out in changes:
        text = changelog(*(change.item for change in changes if change is not left_out))
        found = list(faults(document(), planted(name), Changelog.read(text)))
        assert left_out.item.partition(":")[0] in found[0]
        assert found[0].count("\n- ") == 1


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_change_needs_no_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = document()
    HARMLESS[name](changed)
    assert Repository(tmp_path, current=changed, changelog=changelog()).run() == 0
    assert "the contract holds" in capsys.readouterr().out


def test_the_words_of_an_item_are_free_and_its_place_is_not() -> None:
    """A line for a part accepts neither the whole nor another part, and a line for the whole accepts no part."""
    change = planted("parameter narrower")
    accepted = [
        "- `GET /v1/topics` `?limit` `maximum`: pages have at most 500 topics. `?limit` was 1000 before.",
        "- `GET /v1/topics` `?limit`\n  `minimum`: a page without topics\n  is no page.",
    ]
    assert list(faults(document(), change, Changelog.read(changelog(*accepted, after=RELEASE)))) == []
    for other in (
        "- `GET /v1/topics`: other pages.",
        "- `GET /v1/topics` `?limit`: other pages.",
        "- `GET /v1/topics` `?limit` `maxLength`: other pages.",
        "- `PUT /v1/topics/{topic}` `?limit` `maximum`: other pages.",
        "- `GET /v1/topics` `?limit` `maximum` pages have at most 500 topics.",
        "- GET /v1/topics ?limit maximum: pages have at most 500 topics.",
    ):
        found = list(faults(document(), change, Changelog.read(changelog(other, accepted[1], after=RELEASE))))
        assert "`GET /v1/topics` `?limit` `maximum`: was 1000, is 500." in found[0]
        assert "`minimum`" not in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "# Changelog\n",
        "# Changelog\n\n## [Unreleased]\n",
        "# Changelog\n\n## [Unreleased]\n\n### Changed\n\n- `Line`: removed.\n",
        "# Changelog\n\n## [Unreleased]\n\n### Breaking\n\n### Changed\n\n- `Line`: removed.\n",
        "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n### Breaking\n\n- `Line`: removed.\n",
    ],
)
def test_only_the_items_below_breaking_of_unreleased_count(text: str) -> None:
    assert Changelog.read(text).named == frozenset()


def test_a_line_for_a_change_that_there_is_not_is_a_fault() -> None:
    stale = ["- `Line`: removed.", "- `GET /v1/topics` `?limti`: a slip.", "- `rollway serve`: has another port."]
    found = list(faults(document(), document(), Changelog.read(changelog(*stale, after=RELEASE))))
    assert [each.rpartition(": ")[2] for each in found] == ["`GET /v1/topics` `?limti`.", "`Line`."]


def test_before_the_first_release_the_check_says_that_the_baseline_may_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path, current=planted("operation removed"), changelog=changelog())
    assert repository.run() == 1
    assert "make contract-release" in capsys.readouterr().err
    assert repository.run("--release") == 0
    assert repository.released.read_bytes() == repository.current.read_bytes()
    assert repository.run() == 0


def test_after_the_first_release_the_baseline_does_not_move_without_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path, current=planted("operation removed"), changelog=changelog(after=RELEASE))
    before = repository.released.read_bytes()
    assert repository.run("--release") == 1
    assert "0.1.0 is released" in capsys.readouterr().err
    assert repository.released.read_bytes() == before


def test_a_release_names_its_breaking_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the next version as CONTRIBUTING says: the document, the copy, then CHANGELOG's heading."""
    current = planted("operation removed")
    current["info"]["version"] = "0.2.0"
    repository = Repository(tmp_path, current=current, changelog=changelog(after=RELEASE))
    before = repository.released.read_bytes()
    assert repository.run("--release") == 1
    item = "- `DELETE /v1/topics/{topic}`: removed."
    assert item in capsys.readouterr().err
    assert repository.released.read_bytes() == before
    text = changelog(item, after=RELEASE)
    repository.changelog.write_text(text, "utf-8")
    assert repository.run("--release") == 0
    text = text.replace("## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0] - 2026-02-28\n")
    repository.changelog.write_text(text, "utf-8")
    assert repository.run() == 0


def test_a_baseline_that_is_not_of_the_last_release_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = document()
    later["info"]["version"] = "0.2.0"
    assert Repository(tmp_path, current=later, released=later, changelog=changelog(after=RELEASE)).run() == 1
    assert "released.json is of version 0.2.0" in capsys.readouterr().err


def test_a_repository_without_a_baseline_is_not_passed_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path, current=document(), changelog=changelog())
    repository.released.unlink()
    assert repository.run() == 1
    assert "released.json is missing" in capsys.readouterr().err
    assert repository.run("--release") == 0
    assert repository.run() == 0


def test_the_contract_of_this_repository_holds() -> None:
    assert main([]) == 0
