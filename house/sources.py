"""The source files of a tree, Python and Cython, with their module names, syntax trees and logical lines."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

PLACES = ("app", "storage", "log_model", "schemas", "client/src")
"""The folders that are read, from the root of the repository."""
SUFFIXES = (".py", ".pyx", ".pxd")

# Two spellings of Cython that Python's tokenizer refuses: ``except? -1`` and ``10ULL``.
_EXCEPT_MAYBE = re.compile(r"\bexcept\?")
_C_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]+\b")

_LAYOUT = frozenset((tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER))


@dataclass(frozen=True)
class LogicalLine:
    """One statement or header of a statement, as the tokenizer tells them apart."""

    words: tuple[str, ...]
    number: int
    """The number of its first line in the file."""
    column: int
    """The indentation."""
    is_text: bool
    """Whether it consists of nothing but strings: a docstring, or the explanation of a constant."""


class Source:
    """One file.

    ``path`` is its path from the root, ``module`` its dotted name. A ``.pxd`` file has the name of its ``.pyx`` file.
    """

    def __init__(self, root: Path, path: PurePosixPath) -> None:
        self.path = str(path)
        self.folder = str(path.parent)
        self.suffix = path.suffix
        self.is_compiled = path.suffix != ".py"
        self.is_package = path.stem == "__init__"
        parts = path.with_suffix("").parts
        parts = parts[2:] if parts[:2] == ("client", "src") else parts
        self.module = ".".join(parts[:-1] if self.is_package else parts)
        self.text = (root / path).read_text("utf-8")

    @property
    def package(self) -> str:
        """The package that relative imports of this file start from."""
        return self.module if self.is_package else self.module.rpartition(".")[0]

    @property
    def line_count(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of a Python file.

        Raises:
            SyntaxError: the file is not Python.
        """
        return ast.parse(self.text, self.path)

    @cached_property
    def logical_lines(self) -> list[LogicalLine]:
        """The logical lines of the file, docstrings with them; comments and blank lines are none.

        Raises:
            tokenize.TokenError: the file cannot be read as tokens.
        """
        return list(_logical_lines(_as_python(self.text) if self.is_compiled else self.text))


def _as_python(text: str) -> str:
    """Cython as the tokenizer takes it; no line begins or ends elsewhere."""
    return _C_NUMBER.sub(r"\1", _EXCEPT_MAYBE.sub("except", text))


def _logical_lines(text: str) -> Iterator[LogicalLine]:
    words: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            is_text = all(word.type == tokenize.STRING for word in words)
            yield LogicalLine(tuple(word.string for word in words), *words[0].start, is_text)
            words = []
        elif token.type not in _LAYOUT:
            words.append(token)


class SourceTree:
    """All source files below ``PLACES`` of one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = (path for place in PLACES for path in (root / place).rglob("*") if path.suffix in SUFFIXES)
        self.sources = [Source(root, PurePosixPath(path.relative_to(root).as_posix())) for path in sorted(paths)]
        self.modules = {source.module for source in self.sources}

    def below(self, *places: str) -> list[Source]:
        """The files of these folders, and of all folders inside them."""
        return [source for source in self.sources if any(is_below(source.path, place) for place in places)]


def is_below(path: str, place: str) -> bool:
    """Whether ``path`` is the file or folder ``place``, or inside it."""
    return path == place or path.startswith(f"{place}/")
