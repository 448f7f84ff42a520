"""What the last recorded run of each generator came to: ``sdks/results.json``, written by ``--record`` alone.

Beside each row stand digests of what was run. A row whose digests are not those of today is stale: the page of results
says so in words, and so does every ``make sdks``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sdks.generators import Generator
from sdks.running import PROGRAMS, Outcome, lock_text
from sdks.steps import STEPS

PATH = PROGRAMS / "results.json"
_WORDS = ("description", "summary", "info", "tags")
_NAMED = (
    "properties",
    "patternProperties",
    "schemas",
    "parameters",
    "headers",
    "responses",
    "paths",
    "securitySchemes",
)
"""Members of the document whose own members are named by us, and by no keyword of OpenAPI."""


@dataclass(frozen=True)
class Row:
    """What came of one generator in the run that was recorded.

    Attributes:
        version: of the generator that was run; ``options`` and ``allowed`` are those it was run with.
        steps: how many steps the program had.
        today: the steps that failed against the service; ``None``: the client or the program did not compile.
        tomorrow: the same against the service whose answers had grown.
        defects: the steps that were expected to fail.
        works: whether all was as it should be.
        digests: of the document, the generator's entry, and its program, by these names.
    """

    version: str
    language: str
    options: str
    allowed: list[str]
    steps: int
    today: list[str] | None
    tomorrow: list[str] | None
    defects: list[str]
    works: bool
    digests: dict[str, str]

    def staleness(self, generator: Generator, document: Mapping[str, Any]) -> list[str]:
        """In words, how what was run differs from what would be run today; nothing for nothing."""
        now = digests(generator, document)
        found = [
            words
            for name, words in (
                ("document", "run with an earlier document"),
                ("generator", "run with an earlier version or other options"),
                ("program", "run with an earlier program"),
            )
            if self.digests.get(name) != now[name]
        ]
        said = (self.version, self.language, self.options, self.allowed, self.defects)
        if not found and said != _of_entry(generator):
            found.append("not what was run: it was edited")
        return found


def row_of(outcome: Outcome, document: Mapping[str, Any]) -> Row:
    """The row of a generator that was run."""
    generator = outcome.generator
    version, language, options, allowed, defects = _of_entry(generator)
    return Row(
        version=version,
        language=language,
        options=options,
        allowed=allowed,
        steps=len(STEPS),
        today=outcome.failed.get("today"),
        tomorrow=outcome.failed.get("tomorrow"),
        defects=defects,
        works=not outcome.failures,
        digests=digests(generator, document),
    )


def digests(generator: Generator, document: Mapping[str, Any]) -> dict[str, str]:
    """What tells whether the same would be run again.

    Words of the document do not count, else each better sentence would ask everybody for eleven toolchains. What words
    break, the quick generators find in CI.
    """
    entry = dataclasses.asdict(generator)
    entry.pop("is_quick")
    return {
        "document": _digest(json.dumps(without_words(document), sort_keys=True)),
        "generator": _digest(json.dumps(entry, sort_keys=True), lock_text(generator)),
        "program": _digest(json.dumps(list(STEPS)), *_files(PROGRAMS / generator.slug)),
    }


def without_words(value: Any, *, is_named: bool = False) -> Any:
    """The document without what is for readers alone. Names of ours may be words too, and stay."""
    if isinstance(value, Mapping):
        return {
            name: without_words(each, is_named=name in _NAMED and not is_named)
            for name, each in value.items()
            if is_named or name not in _WORDS
        }
    return [without_words(each) for each in value] if isinstance(value, list) else value


def recorded(path: Path = PATH) -> dict[str, Row]:
    """The rows by the generators' slugs."""
    if not path.exists():
        return {}
    return {slug: Row(**row) for slug, row in json.loads(path.read_text("utf-8")).items()}


def record(
    outcomes: Iterable[Outcome],
    document: Mapping[str, Any],
    generators: Iterable[Generator],
    path: Path = PATH,
) -> None:
    """Writes the rows of those that ran. The others of ``generators`` keep theirs."""
    rows = recorded(path)
    rows |= {each.generator.slug: row_of(each, document) for each in outcomes if not each.missing}
    kept = {each.slug: dataclasses.asdict(rows[each.slug]) for each in generators if each.slug in rows}
    path.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


def stale(generators: Iterable[Generator], document: Mapping[str, Any], path: Path = PATH) -> dict[str, list[str]]:
    """Why the row of a generator is not one of today, by its slug; those whose row is are not in it."""
    rows = recorded(path)
    found = {
        each.slug: rows[each.slug].staleness(each, document) if each.slug in rows else ["not run"]
        for each in generators
    }
    return {slug: why for slug, why in found.items() if why}


def surprises(outcomes: Iterable[Outcome], document: Mapping[str, Any], path: Path = PATH) -> dict[str, list[str]]:
    """Those that ran and came to something else than the record says, by their slugs."""
    rows = recorded(path)
    ran = (each for each in outcomes if not each.missing)
    return {
        each.generator.slug: ["this run came to something else"]
        for each in ran
        if rows.get(each.generator.slug) != row_of(each, document)
    }


def _of_entry(generator: Generator) -> tuple[str, str, str, list[str], list[str]]:
    steps = [step for step, _ in generator.defects]
    return generator.version, generator.language, generator.options, list(generator.allowed), steps


def _files(folder: Path) -> Iterable[str]:
    """The names and digests of a program's files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
