"""How modules lie beside each other and on each other: folders, rooms, floors, arrows and circles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from house.imports import Import
from house.sources import SourceTree


def folder_sizes(tree: SourceTree, *places: str) -> dict[str, int]:
    """How many modules lie beside each other in each folder; packages, ``__init__`` and ``.pxd`` files are none."""
    sources = tree.below(*places)
    return dict(Counter(each.folder for each in sources if not each.is_package and each.suffix != ".pxd"))


@dataclass(frozen=True)
class Rooms:
    """The packages and modules directly below one package, and their imports of each other."""

    names: frozenset[str]
    arrows: dict[tuple[str, str], list[Import]]
    """The imports behind each arrow."""

    @property
    def floors(self) -> int:
        """How many rooms the longest chain of imports has; a circle is as high as it has rooms."""
        return floors(self.names, self.arrows)

    @cached_property
    def circles(self) -> list[list[str]]:
        """The groups of rooms that import each other, directly or not."""
        return circles(self.arrows)


def rooms_of(package: str, tree: SourceTree, imports: Iterable[Import]) -> Rooms:
    """The rooms of ``package``, whose ``__init__`` is none."""
    below = f"{package}."

    def room(module: str) -> str | None:
        return module.removeprefix(below).partition(".")[0] if module.startswith(below) else None

    arrows: dict[tuple[str, str], list[Import]] = {}
    for each in imports:
        one, other = room(each.importer), room(each.imported)
        if one and other and one != other:
            arrows.setdefault((one, other), []).append(each)
    return Rooms(frozenset(name for module in tree.modules if (name := room(module))), arrows)


def module_circles(imports: Iterable[Import], *packages: str) -> list[list[str]]:
    """Groups of modules of ``packages`` that import each other, however far around."""
    chosen = tuple(f"{package}." for package in packages)

    def is_inside(module: str) -> bool:
        return f"{module}.".startswith(chosen)

    pairs = ((each.importer, each.imported) for each in imports)
    return circles((one, other) for one, other in pairs if is_inside(one) and is_inside(other))


def circles(arrows: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The groups of two and more nodes that reach each other, each sorted."""
    reached = _reached(arrows)
    groups = {frozenset(each for each in reached[node] if node in reached[each]) for node in reached}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def floors(nodes: Iterable[str], arrows: Iterable[tuple[str, str]]) -> int:
    """How many nodes the longest chain of arrows has. A chain that meets a circle passes all nodes of it."""
    arrows = list(arrows)
    groups = circles(arrows)
    home = {node: group[0] for group in groups for node in group}
    sizes = {group[0]: len(group) for group in groups}
    below: dict[str, set[str]] = {home.get(node, node): set() for node in nodes}
    for one, other in arrows:
        upper, lower = home.get(one, one), home.get(other, other)
        if upper != lower:
            below[upper].add(lower)
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = sizes.get(node, 1) + max(map(height, below[node]), default=0)
        return heights[node]

    return max(map(height, below), default=0)


def _reached(arrows: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """For each node the nodes that its arrows lead to, directly or not."""
    following: dict[str, set[str]] = {}
    for one, other in arrows:
        following.setdefault(one, set()).add(other)
        following.setdefault(other, set())
    reached = {}
    for node in following:
        seen: set[str] = set()
        waiting = [node]
        while waiting:
            new = following[waiting.pop()] - seen
            seen |= new
            waiting.extend(new)
        reached[node] = seen
    return reached
