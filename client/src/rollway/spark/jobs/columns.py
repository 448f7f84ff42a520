"""Columns by name: quoted as SQL quotes names, hidden where they are not the file's, and the ``*`` of an expression."""

from __future__ import annotations

import re
from collections.abc import Collection

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

LINE = "__rollway_line"
"""The column with the line that a row was read from, as it stands in the file, for formats that keep it."""
LINE_REASON = "__rollway_line_reason"
"""The column that says why a line cannot be taken, null where it can."""

# Strings, quoted names and comments may hold an asterisk that is none. A star has no operand behind it, or EXCEPT.
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
    """``name`` as an identifier of SQL: ``a`b`` is written ```` `a``b` ````."""
    return f"`{name.replace('`', '``')}`"


def column(name: str) -> Column:
    """The column of this name, whatever characters the name has."""
    return F.col(quoted(name))


def star_without(expression: str, hidden: Collection[str]) -> str:
    """``expression``, of which each ``*`` leaves out the columns ``hidden``."""
    if not hidden or "*" not in expression:
        return expression
    names = ", ".join(quoted(name) for name in hidden)

    def shown(match: re.Match[str]) -> str:
        if match["star"]:
            return f"* EXCEPT ({names})"
        return f"{match[0]}{names}, " if match["except"] else match[0]

    return _STARS.sub(shown, expression)
