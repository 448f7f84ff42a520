"""Tables and code of Markdown, for the generated pages."""

from __future__ import annotations

from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """A Markdown table; a bar in a cell is escaped."""

    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    names = list(header)
    return [line(names), "|" + "---|" * len(names), *(line(row) for row in rows)]


def code(value: object) -> str:
    """``value`` as code, in the spelling of configuration files; nothing for nothing."""
    if value is None or value in ("", {}, [], ()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
