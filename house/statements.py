"""How much code there is: logical lines, however they are wrapped."""

from __future__ import annotations

from collections.abc import Iterable

from house.sources import Source, SourceTree, is_below


def statement_count(source: Source) -> int:
    """The logical lines of a file.

    ``if x: return`` is one, ``a = 1; b = 2`` is one, a header such as ``else:`` or ``def f():`` is one. Comments, blank
    lines, docstrings and other strings that stand alone are none.
    """
    return sum(not line.is_text for line in source.logical_lines)


def statements_of(tree: SourceTree, place: str, *, without: Iterable[str] = ()) -> int:
    """The statements of the files in ``place`` that are in none of the places ``without``."""
    without = tuple(without)
    sources = (each for each in tree.below(place) if not any(is_below(each.path, other) for other in without))
    return sum(map(statement_count, sources))
