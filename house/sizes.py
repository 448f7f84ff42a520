"""Classes with many methods, and long files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import takewhile

from house.sources import LogicalLine, Source, SourceTree


def method_counts(tree: SourceTree) -> dict[str, int]:
    """How many methods each class has, by ``path:Class``; a class of Python inside another is ``path:Outer.Inner``.

    Every ``def``, ``async def``, ``cdef`` and ``cpdef`` of the body counts, also properties, their setters, overloads
    and dunder methods. Inherited methods do not count, nor do the declarations of a ``.pxd`` file.
    """
    counts = {}
    for source in tree.sources:
        if source.suffix != ".pxd":
            for name, count in _compiled_classes(source) if source.is_compiled else _python_classes(source.tree):
                counts[f"{source.path}:{name}"] = count
    return counts


def line_counts(tree: SourceTree) -> dict[str, int]:
    """How many lines each file has."""
    return {source.path: source.line_count for source in tree.sources}


def _python_classes(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            name = f"{prefix}{child.name}"
            yield name, sum(1 for _ in _methods(child.body))
            yield from _python_classes(child, f"{name}.")
        elif not isinstance(child, ast.expr):
            yield from _python_classes(child, prefix)


def _methods(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The functions of a class body, those under an ``if`` of it with them."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        elif isinstance(statement, ast.If):
            yield from _methods([*statement.body, *statement.orelse])


def _compiled_classes(source: Source) -> Iterator[tuple[str, int]]:
    lines = source.logical_lines
    for number, line in enumerate(lines):
        if (name := class_name(line)) is not None:
            body = list(takewhile(lambda each: each.column > line.column, lines[number + 1 :]))  # noqa: B023
            inner = min((each.column for each in body), default=0)
            yield name, sum(each.column == inner and function_name(each) is not None for each in body)


def class_name(line: LogicalLine) -> str | None:
    """The name of the class that begins with this line of Cython."""
    words = line.words
    if "class" in words[:3] and words[-1] == ":" and words[0] in {"class", "cdef", "cpdef"}:
        return words[words.index("class") + 1]
    return None


def function_name(line: LogicalLine) -> str | None:
    """The name of the function that begins with this line of Cython."""
    words = line.words
    if words[0] == "def" or words[:2] == ("async", "def"):
        return words[words.index("def") + 1]
    if words[0] in {"cdef", "cpdef"} and "(" in words and class_name(line) is None:
        parenthesis = words.index("(")
        # A variable has a value before any call, and no body.
        if "=" not in words[:parenthesis] and _has_body(words[parenthesis:]):
            return words[parenthesis - 1]
    return None


def _has_body(words: Sequence[str]) -> bool:
    """Whether a colon outside of all parentheses says that a body follows."""
    depth = 0
    for word in words:
        depth += (word in {"(", "[", "{"}) - (word in {")", "]", "}"})
        if word == ":" and depth == 0:
            return True
    return False
