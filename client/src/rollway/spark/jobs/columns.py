"""Columns by name: names quoted for SQL, columns that are not the file's, and the ``*`` of an expression."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name

LINE = "__rollway_line"
"""The column with the unchanged line of the file that a row was read from, for formats that keep it."""
LINE_REASON = "__rollway_line_reason"
"""The column with the reason why a line cannot be loaded; null if it can."""

# An asterisk in a string, a quoted name or a comment is no star. A star has no operand behind it, or EXCEPT.
_STARS = re.compile(
    r"'(?:[^'\\]|\\.)*'"
    r'|"(?:[^"\\]|\\.)*"'
    r"|`(?:[^`]|``)*`"
    r"|--[^\n]*"
    r"|/\*.*?\*/"
    r"|(?P<except>\*\s*EXCEPT\s*\()"
    r"|(?P<star>\*)(?=\s*(?:[),]|$))",
    re.DOTALL | re.IGNORECASE,
)


def quoted(name: str) -> str:
    """Return ``name`` as an identifier of SQL: ``a`b`` is written ```` `a``b` ````."""
    return f"`{name.replace('`', '``')}`"


def column(name: str) -> Column:
    """Return the column of this name. The name may have any characters."""
    return F.col(quoted(name))


def star_without(expression: str, hidden: Collection[str]) -> str:
    """Return ``expression`` with each ``*`` changed to leave out the columns ``hidden``."""
    if not hidden or "*" not in expression:
        return expression
    names = ", ".join(quoted(name) for name in hidden)

    def shown(match: re.Match[str]) -> str:
        if match["star"]:
            return f"* EXCEPT ({names})"
        return f"{match[0]}{names}, " if match["except"] else match[0]

    return _STARS.sub(shown, expression)
