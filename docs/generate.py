"""Writes the parts of docs/reference that the code knows better, and the client library's table of exceptions.

A file keeps the text above its mark; everything below is written again. ``--check`` only compares.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from app.cli import make_application
from app.main import whole_document
from app.openapi.documented_answers import REQUEST_HEADERS
from app.problems import kinds
from app.settings import Settings
from docs.markdown import code, table
from docs.sdks_page import sdks_page
from log_model.config import TopicConfig
from rollway.client import errors as library_errors
from rollway.spark.jobs.command.cli import application as rollway_spark

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
CLIENT_ERRORS = ROOT / "client/src/rollway/client/errors.py"
MARK = "<!-- Written by `make docs` from the code: do not edit below. -->"
_MARKS = {".md": MARK, ".py": "# Written by `make docs` from app/problems/kinds.py: do not edit below."}


def settings_page() -> list[str]:
    prefix = str(Settings.model_config.get("env_prefix", ""))
    rows = []
    for name, setting in Settings.model_fields.items():
        default = setting.get_default(call_default_factory=True) if not setting.is_required() else None
        rows.append((code(name), code(f"{prefix}{name}".upper()), code(default), setting.description or ""))
    return table(("setting", "environment", "default", "what"), rows)


def topic_configuration_page() -> list[str]:
    return table(
        ("name", "default", "what"),
        ((code(option.name), code(option.default), option.doc) for option in TopicConfig.options().values()),
    )


def errors_page() -> list[str]:
    return table(
        ("status", "code", "kafka_code", "retryable", "applied", "when"),
        (
            (kind.status, code(kind.code), kind.kafka_code, "yes" if kind.retryable else "no", kind.applied, kind.when)
            for kind in kinds.ALL
        ),
    )


def client_errors() -> list[str]:
    exceptions = {kind.code: kind.client_error for kind in kinds.ALL if kind.client_error}
    if missing := {name for name in exceptions.values() if not hasattr(library_errors, name)}:
        raise SystemExit(f"{CLIENT_ERRORS} has no {', '.join(sorted(missing))}: write the exception first")
    entries = [f'    "{code}": {exception},' for code, exception in sorted(exceptions.items())]
    return ["_BY_CODE: dict[str, type[ProblemError]] = {", *entries, "}"]


def option_rows(command: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = f"`{parameter.metavar or parameter.name.upper()}`"
        elif not getattr(parameter, "is_flag", False) and parameter.metavar:
            names += f" `{parameter.metavar}`"
        if getattr(parameter, "hidden", False):
            continue
        default = (
            parameter.default if getattr(parameter, "show_default", True) and not callable(parameter.default) else None
        )
        yield names, code(None if default is False else default), parameter.help or ""


def command_sections(command: Any, path: str) -> Iterator[str]:
    yield ""
    yield f"## `{path}`"
    yield ""
    text, _, examples = inspect.cleandoc(command.help or "").replace("\b", "").partition("Examples:\n")
    yield from re.sub(r"\n{3,}", "\n\n", text.rstrip()).splitlines()
    if examples:
        yield from ["", "```sh", *inspect.cleandoc(examples).splitlines(), "```"]
    rows = list(option_rows(command))
    if rows:
        yield ""
        yield from table(("option or argument", "default", "what"), rows)
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from command_sections(child, f"{path} {name}")


def command_line_page() -> list[str]:
    return list(command_sections(typer.main.get_command(make_application()), "rollway"))[1:]


def spark_command_line_page() -> list[str]:
    return list(command_sections(typer.main.get_command(rollway_spark), "rollway-spark"))[1:]


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def http_page() -> list[str]:
    document = whole_document()
    lines = ["## Routes", ""]
    lines += table(
        ("method", "path", "what"),
        ((method, code(path), operation["summary"]) for method, path, operation in operations(document)),
    )
    rows = ((code(each["name"]), each["description"]) for each in REQUEST_HEADERS)
    lines += ["", "## Headers of every request", "", *table(("name", "what"), rows)]
    for method, path, operation in operations(document):
        parameters = [
            each
            for each in operation.get("parameters", [])
            if each["in"] in {"query", "header"} and each not in REQUEST_HEADERS
        ]
        if parameters and method != "HEAD":
            lines += ["", f"## Parameters of `{method} {path}`", ""]
            shown = (
                (code(each["name"]), code(each["schema"].get("default")), each["description"]) for each in parameters
            )
            lines += table(("name", "default", "what"), shown)
    return lines


PAGES: dict[Path, Callable[[], list[str]]] = {
    REFERENCE / "http.md": http_page,
    REFERENCE / "settings.md": settings_page,
    REFERENCE / "topic-configuration.md": topic_configuration_page,
    REFERENCE / "errors.md": errors_page,
    REFERENCE / "command-line.md": command_line_page,
    REFERENCE / "spark-command-line.md": spark_command_line_page,
    REFERENCE / "sdks.md": sdks_page,
    CLIENT_ERRORS: client_errors,
}


def fresh_text(path: Path) -> str:
    """Return the text that ``path`` must have: its hand-written head, and the part written from the code."""
    wanted = _MARKS[path.suffix]
    head, mark, _ = path.read_text("utf-8").partition(wanted)
    if not mark:
        raise SystemExit(f"{path} has lost its mark: {wanted}")
    return f"{head}{mark}\n\n" + "\n".join(line.rstrip() for line in PAGES[path]()) + "\n"


def main(arguments: list[str]) -> int:
    """Write all generated parts, or with ``--check`` name the stale ones and return 1."""
    stale = [path for path in PAGES if path.read_text("utf-8") != fresh_text(path)]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{os.path.relpath(path, ROOT)} is stale: make docs", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(fresh_text(path), "utf-8")
        print(f"wrote {os.path.relpath(path, ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
