"""The page of results of the generators of SDKs: what ``sdks/results.json`` says, beside ``sdks/generators.py``."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.openapi.document import PATH
from docs.markdown import code, table
from sdks import generators as entries
from sdks.generators import GENERATORS, Generator
from sdks.results import Row, recorded
from sdks.steps import STEPS


def sdks_page() -> list[str]:
    document = json.loads(PATH.read_text("utf-8"))
    return [
        "## Results",
        "",
        *results(GENERATORS, recorded(), document),
        "",
        "## Steps",
        "",
        *table(("step", "what"), STEPS.items()),
        *warnings(GENERATORS, reasons(inspect.getsource(entries))),
        *defects(GENERATORS),
    ]


def results(generators: Iterable[Generator], rows: Mapping[str, Row], document: Mapping[str, Any]) -> list[str]:
    """The table of results. A generator without a recorded run is in it, too."""
    header = (
        "generator",
        "version",
        "client",
        "options",
        "result",
        "steps today",
        "steps tomorrow",
        "warnings allowed",
    )
    return table(header, (_result(each, rows.get(each.slug), document) for each in generators))


def _result(generator: Generator, row: Row | None, document: Mapping[str, Any]) -> tuple[object, ...]:
    name = f"[{generator.name}](../../sdks/{generator.slug})"
    if row is None:
        return name, generator.version, generator.language, code(generator.options), "not run", "", "", ""
    words = [_verdict(row), *row.staleness(generator, document)]
    return (
        name,
        row.version,
        row.language,
        code(row.options),
        "; ".join(words),
        _steps(row, row.today),
        _steps(row, row.tomorrow),
        len(row.allowed),
    )


def _verdict(row: Row) -> str:
    if not row.works:
        return "fails"
    return f"works, but for {', '.join(row.defects)}" if row.defects else "works"


def _steps(row: Row, failed: list[str] | None) -> str:
    if failed is None:
        return "none: it did not come to them"
    done = f"{row.steps - len(failed)} of {row.steps}"
    return f"{done} (not: {', '.join(failed)})" if failed else done


def warnings(generators: Iterable[Generator], known: Mapping[str, str]) -> Iterator[str]:
    """Each warning that is allowed, with its reason and whose it is.

    Raises:
        KeyError: a warning is no constant of ``sdks/generators.py`` with a reason below it.
    """
    users: dict[str, list[str]] = {}
    for generator in generators:
        for warning in generator.allowed:
            users.setdefault(warning, []).append(generator.name)
    if users:
        yield from ["", "## Warnings that are allowed", ""]
        rows = ((code(warning), known[warning], ", ".join(names)) for warning, names in users.items())
        yield from table(("warning", "reason", "of"), rows)


def defects(generators: Iterable[Generator]) -> Iterator[str]:
    """Each step that a defect of a template keeps from working, with what shows it."""
    found = [(generator, step, reason) for generator in generators for step, reason in generator.defects]
    if found:
        yield from ["", "## Defects of templates"]
    for generator, step, reason in found:
        yield from ["", f"### {generator.name}: {step}", "", *inspect.cleandoc(reason).splitlines()]


def reasons(source: str) -> dict[str, str]:
    """The texts that are constants of a module, each with the docstring below it."""
    body = ast.parse(source).body
    found = {}
    for constant, below in itertools.pairwise(body):
        match constant, below:
            case ast.Assign(value=ast.Constant(value=str(text))), ast.Expr(value=ast.Constant(value=str(reason))):
                found[text] = " ".join(reason.split())
    return found
