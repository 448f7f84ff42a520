"""How much code there is: logical lines, however they are wrapped."""

from __future__ import annotations

from house.sources import Source, SourceTree


def statement_count(source: Source) -> int:
    """The logical lines of a file.

    ``if x: return`` is one, ``a = 1; b = 2`` is one, a header such as ``else:`` or ``def f():`` is one. Comments, blank
    lines, docstrings and other strings that stand alone are none.
    """
    return sum(not line.is_text for line in source.logical_lines)


def statements_of(tree: SourceTree, place: str) -> int:
    """The statements of the files in ``place``."""
    return sum(map(statement_count, tree.below(place)))
