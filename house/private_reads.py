"""Private names that compiled code takes from other objects and modules; ruff reads no Cython."""

from __future__ import annotations

from itertools import pairwise

from house.sources import LogicalLine, Source


def private_reads(source: Source) -> list[str]:
    """Find the private names of other objects in a ``.pyx`` or ``.pxd`` file.

    Example: ``log._writer`` in line 7 is "7: log._writer". ``self._name`` is the object's own, and is not found.
    """
    return [f"{line.number}: {found}" for line in source.logical_lines for found in _reads_in(line)]


def _reads_in(line: LogicalLine) -> list[str]:
    if line.words[0] in {"from", "cimport", "import"}:
        return [word for word in line.words if _is_private(word)]
    # The two words before each word, which are an object and a dot before its attribute.
    before = pairwise(("", "", *line.words))
    return [
        f"{holder}.{word}"
        for (holder, dot), word in zip(before, line.words, strict=False)
        if dot == "." and holder != "self" and _is_private(word)
    ]


def _is_private(word: str) -> bool:
    return word.startswith("_") and not word.startswith("__")
