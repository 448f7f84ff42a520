"""All house numbers of one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from house.definitions import Definitions
from house.imports import Kind, imports_of
from house.limits import Fault, Limits
from house.modules import Rooms, folder_sizes, module_circles, rooms_of
from house.sizes import line_counts, method_counts
from house.sources import SourceTree
from house.statements import statements_of
from house.walks import Walk, walk

PACKAGES = ("app", "storage")
"""The packages with rooms."""


@dataclass(frozen=True)
class Numbers:
    folders: dict[str, int]
    rooms: dict[str, Rooms]
    module_circles: list[list[str]]
    methods: dict[str, int]
    lines: dict[str, int]
    statements: dict[str, int]
    imports: dict[Kind, int]
    walks: dict[str, Walk]
    """By entry; without those whose function or parameter is not there."""

    def of_rooms(self) -> dict[str, int]:
        """The numbers of rooms by the names that limits have for them."""
        found = {"circles of modules": len(self.module_circles)}
        for package, rooms in self.rooms.items():
            found[f"floors of {package}"] = rooms.floors
            found[f"arrows of {package}"] = len(rooms.arrows)
            found[f"circles of {package}"] = len(rooms.circles)
            found[f"rooms in circles of {package}"] = sum(map(len, rooms.circles))
        return found

    def faults(self, limits: Limits) -> Iterator[Fault]:
        """All limits that do not hold, and all entries that are not up to date."""
        yield from limits.folders.faults(self.folders)
        yield from limits.rooms.faults(self.of_rooms())
        yield from limits.methods.faults(self.methods)
        yield from limits.lines.faults(self.lines)
        yield from limits.statements.faults(self.statements)
        yield from limits.stays.faults({entry: len(each.stays) for entry, each in self.walks.items()})
        yield from limits.returns.faults({entry: each.return_count for entry, each in self.walks.items()})
        for entry in limits.entries:
            if entry not in self.walks:
                yield Fault(f"walks: {entry} is not there: give it its new name", "walks", entry)


def measure(root: Path, limits: Limits) -> Numbers:
    """Measure the tree below ``root``; ``limits`` name the walks.

    Raises:
        SyntaxError, tokenize.TokenError: a file cannot be read.
    """
    tree = SourceTree(root)
    imports = imports_of(tree)
    return Numbers(
        folders=folder_sizes(tree, *PACKAGES),
        rooms={package: rooms_of(package, tree, imports) for package in PACKAGES},
        module_circles=module_circles(imports, *PACKAGES),
        methods=method_counts(tree),
        lines=line_counts(tree),
        statements={place: statements_of(tree, place) for place in limits.statements.before},
        imports=dict(Counter(each.kind for each in imports)),
        walks=dict(_walks(tree, limits)),
    )


def _walks(tree: SourceTree, limits: Limits) -> Iterator[tuple[str, Walk]]:
    definitions = Definitions(tree)
    for entry in limits.entries:
        try:
            yield entry, walk(definitions, entry, limits.leaves)
        except LookupError:
            continue
