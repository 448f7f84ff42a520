"""The contract with the users of generated SDKs: ``python -m openapi.contract`` holds the OpenAPI document to it.

``openapi.json`` may break what ``released.json``, the document of the last release, promises. But each breaking change
needs an item below "### Breaking" in the Unreleased section of CHANGELOG. It begins with the place of the change, in
backticks, and a colon; the words behind it are free::

    - `GET /v1/topics` `?limit` `maximum`: pages have at most 500 topics.

``--release`` makes the document as it is now the released one. Whoever releases does that. Before the first release
anybody may: nothing is promised yet, and the difference of ``released.json`` shows reviewers what changes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openapi.breaking_changes import BreakingChange, Place, breaking_changes
from openapi.nodes import components, operations

CURRENT = Path(__file__).parent / "openapi.json"
RELEASED = Path(__file__).parent / "released.json"
CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"

_SECTION = re.compile(r"^## \[(?P<version>[^]]+)\].*\n", re.MULTILINE)
_HEADING = re.compile(r"^### (?P<name>.+?) *\n", re.MULTILINE)
_PLACE = re.compile(r"^- (?P<place>`[^`]+`(?: `[^`]+`)*):", re.MULTILINE)


@dataclass(frozen=True)
class Changelog:
    """What CHANGELOG says of breaking changes and of releases."""

    releases: tuple[str, ...]
    """Versions, newest first."""
    named: frozenset[Place]
    """The breaking changes since the last release."""

    @staticmethod
    def read(text: str) -> Changelog:
        sections = _split(_SECTION, text)
        breaking = _split(_HEADING, sections.get("Unreleased", "")).get("Breaking", "")
        # An item may go on in the next lines.
        items = re.sub(r"\n +", " ", breaking)
        named = frozenset(tuple(re.findall(r"`([^`]+)`", item["place"])) for item in _PLACE.finditer(items))
        return Changelog(tuple(name for name in sections if name != "Unreleased"), named)


def _split(heading: re.Pattern[str], text: str) -> dict[str, str]:
    """The text below each heading, by its name."""
    # ["before", "Unreleased", "its text", "0.1.0", "its text", ...]
    parts = heading.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def faults(released: dict[str, Any], current: dict[str, Any], changelog: Changelog) -> Iterator[str]:
    """Yield a sentence for each breaking change that CHANGELOG does not name, and for each that it names in vain."""
    version = released["info"]["version"]
    if changelog.releases and version != changelog.releases[0]:
        yield f"released.json is of version {version}, and CHANGELOG's last release is {changelog.releases[0]}."
    changes = breaking_changes(released, current)
    if unnamed := [change for change in changes if change.place not in changelog.named]:
        yield (
            "openapi.json breaks what released.json promises. Take the change back, or name it below "
            f'"### Breaking" in the Unreleased section of CHANGELOG.md:\n\n{_items(unnamed)}'
        )
        if not changelog.releases:
            yield "There is no release yet: `make contract-release` accepts these changes without CHANGELOG, too."
    things = {*operations(released), *operations(current)}
    for document in (released, current):
        things |= {name for kind in ("schemas", "headers", "securitySchemes") for name in components(document, kind)}
    for place in sorted(changelog.named - {change.place for change in changes}):
        # Other items are about something else: a command, a setting, a file.
        if place[0] in things:
            yield f"CHANGELOG names a breaking change that there is not: {' '.join(f'`{name}`' for name in place)}."


def _items(changes: list[BreakingChange]) -> str:
    wrapped = (
        textwrap.fill(change.item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for change in changes
    )
    return "\n".join(wrapped)


def _refusal(current: dict[str, Any], found: list[str], changelog: Changelog) -> str | None:
    """Why ``current`` may not become the released document, or None."""
    version = current["info"]["version"]
    if version in changelog.releases:
        return f"{version} is released, and its document does not change. Set the next version first."
    return "\n\n".join(found) if found and changelog.releases else None


def main(arguments: list[str] | None = None) -> int:
    """Check the contract, or with ``--release`` begin the next one; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m openapi.contract", description=__doc__)
    parser.add_argument("--release", action="store_true", help="make the document as it is now the released one")
    parser.add_argument("--current", type=Path, default=CURRENT, help="the document (default: %(default)s)")
    parser.add_argument("--released", type=Path, default=RELEASED, help="that of the last release")
    parser.add_argument("--changelog", type=Path, default=CHANGELOG, help="CHANGELOG.md")
    options = parser.parse_args(arguments)
    text = options.current.read_text(encoding="utf-8")
    current = json.loads(text)
    changelog = Changelog.read(options.changelog.read_text(encoding="utf-8"))
    if not options.released.is_file():
        found = [f"{options.released} is missing: it is in the repository, or `make contract-release` writes it."]
    else:
        found = list(faults(json.loads(options.released.read_text(encoding="utf-8")), current, changelog))
    if options.release:
        refusal = _refusal(current, found, changelog)
        if refusal is None:
            options.released.write_text(text, encoding="utf-8")
            return 0
        found = [refusal]
    if found:
        sys.stderr.write("\n\n".join(found) + "\n")
        return 1
    sys.stdout.write("the contract holds: CHANGELOG names every breaking change since the last release\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
