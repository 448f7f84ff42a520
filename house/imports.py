"""Which module imports which, read from the text: nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from house.sources import LogicalLine, Source, SourceTree

Kind = Literal["at the top", "in functions", "for types only", "by name", "of compiled modules"]
KINDS: dict[Kind, str] = {
    "at the top": "at the top of a Python module",
    "in functions": "inside a function",
    "for types only": "under `TYPE_CHECKING`",
    "by name": 'of a compiled module, by a call such as `load("package.module")`',
    "of compiled modules": "`import` and `cimport` lines of `.pyx` and `.pxd` files",
}

# Functions that import the module whose name they are given.
_LOADERS = frozenset(("load", "import_module"))


@dataclass(frozen=True)
class Import:
    """``importer`` needs ``imported``; both are modules of the tree."""

    importer: str
    imported: str
    kind: Kind


def imports_of(tree: SourceTree) -> list[Import]:
    """Every import of one module of ``tree`` by another.

    ``from package import name`` counts for ``package.name`` if that is a module, else for ``package``. The packages
    around an imported module do not count, although Python runs their ``__init__``.
    """
    found = []
    for each in named_imports(tree):
        imported = closest(each.imported, tree.modules)
        if imported is not None and imported != each.importer:
            found.append(Import(each.importer, imported, each.kind))
    return found


def named_imports(tree: SourceTree) -> Iterator[Import]:
    """Yield each imported name as it is written, also of modules outside of the tree: ``app.x.Name``, ``os``."""
    for source in tree.sources:
        for node, kind in _import_nodes(source):
            for name in imported_names(source, node):
                yield Import(source.module, name, kind)


def closest(name: str, modules: set[str]) -> str | None:
    """The module that ``name`` is, or is a member of."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def imported_names(source: Source, node: ast.AST) -> Iterator[str]:
    """The dotted names that an import takes, or the name that a loader is given."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = absolute(source, module, level)
            yield from (f"{base}.{alias.name}" for alias in names)
        case ast.Call(args=[ast.Constant(value=str(name)), *_]):
            yield name


def absolute(source: Source, module: str | None, level: int) -> str:
    """The module that ``from <dots><module> import`` names in ``source``."""
    if not level:
        return module or ""
    parts = source.package.split(".")
    base = parts[: len(parts) - level + 1]
    return ".".join([*base, module] if module else base)


def loaded_name(node: ast.AST) -> str | None:
    """The module that a call such as ``load("package.module")`` imports."""
    match node:
        case ast.Call(func=ast.Name(id=loader) | ast.Attribute(attr=loader), args=[ast.Constant(value=str(name)), *_]):
            return name if loader in _LOADERS else None
    return None


def _import_nodes(source: Source) -> Iterator[tuple[ast.AST, Kind]]:
    if source.is_compiled:
        for line in source.logical_lines:
            if (node := _compiled_import(line)) is not None:
                yield node, "of compiled modules"
    else:
        yield from _import_statements(source.tree, "at the top")
        if any(f"{loader}(" in source.text for loader in _LOADERS):
            yield from ((node, "by name") for node in ast.walk(source.tree) if loaded_name(node) is not None)


def _import_statements(node: ast.AST, kind: Kind) -> Iterator[tuple[ast.AST, Kind]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import() | ast.ImportFrom():
                yield child, kind
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _import_statements(child, "in functions")
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _import_statements(child, "for types only")
            case _ if not isinstance(child, ast.expr):
                yield from _import_statements(child, kind)


def _compiled_import(line: LogicalLine) -> ast.AST | None:
    """The import that a line of Cython is, with ``cimport`` as ``import``."""
    if line.words[0] not in {"import", "cimport", "from"}:
        return None
    text = " ".join("import" if word == "cimport" else word for word in line.words)
    return ast.parse(text).body[0]
