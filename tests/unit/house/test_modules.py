"""Imports, folders, rooms, floors, arrows and circles of planted trees."""

from __future__ import annotations

import pytest

from house.imports import Import, imports_of
from house.modules import circles, floors, folder_sizes, module_circles, rooms_of
from house.sources import SourceTree
from tests.unit.house.conftest import Plant


def pairs(tree: SourceTree) -> set[tuple[str, str, str]]:
    return {(each.importer, each.imported, each.kind) for each in imports_of(tree)}


def test_modules_beside_each_other_are_counted_for_each_folder(plant: Plant) -> None:
    tree = plant(
        {
            "app/__init__.py": "",
            "app/a.py": "",
            "app/b.pyx": "",
            "app/b.pxd": "",
            "app/inner/__init__.py": "",
            "app/inner/c.py": "",
            "storage/d.py": "",
            "schemas/e.py": "",
        }
    )
    assert folder_sizes(tree, "app", "storage") == {"app": 2, "app/inner": 1, "storage": 1}


def test_an_import_of_a_member_is_one_of_its_module(plant: Plant) -> None:
    tree = plant(
        {
            "app/__init__.py": "",
            "app/a.py": "import json\nimport app.b\nfrom app import c\nfrom app.inner import d, name\n",
            "app/b.py": "from . import c\nfrom .inner.d import value\n",
            "app/c.py": "",
            "app/inner/__init__.py": "from .d import name\n",
            "app/inner/d.py": "from .. import c\n",
        }
    )
    assert pairs(tree) == {
        ("app.a", "app.b", "at the top"),
        ("app.a", "app.c", "at the top"),
        ("app.a", "app.inner.d", "at the top"),
        ("app.a", "app.inner", "at the top"),
        ("app.b", "app.c", "at the top"),
        ("app.b", "app.inner.d", "at the top"),
        ("app.inner", "app.inner.d", "at the top"),
        ("app.inner.d", "app.c", "at the top"),
    }


def test_each_kind_of_import_is_told_apart(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from typing import TYPE_CHECKING, cast
                from rollway.records.compiled import load

                if TYPE_CHECKING:
                    from app.b import B

                compiled = cast("object", load("app._c"))
                other = load("missing")

                def later():
                    import app.d
                """,
            "app/b.py": "",
            "app/_c.pyx": """
                from libc.stdint cimport int64_t
                from app._e cimport Span, size_of
                from app.d import (
                    one,
                    two as another,
                )
                """,
            "app/_e.pxd": "cdef struct Span:\n    int size\n",
            "app/_e.pyx": "cimport app._c\n",
            "app/d.py": "",
        }
    )
    assert pairs(tree) == {
        ("app.a", "app.b", "for types only"),
        ("app.a", "app._c", "by name"),
        ("app.a", "app.d", "in functions"),
        ("app._c", "app._e", "of compiled modules"),
        ("app._c", "app.d", "of compiled modules"),
        ("app._e", "app._c", "of compiled modules"),
    }


def test_rooms_are_what_lies_directly_below_a_package(plant: Plant) -> None:
    tree = plant(
        {
            "app/__init__.py": "import app.a",
            "app/a.py": "from app.inner.b import one\nfrom app.inner.c import two\nimport storage.f\n",
            "app/inner/__init__.py": "",
            "app/inner/b.py": "from app.inner import c\n",
            "app/inner/c.py": "from app import d\n",
            "app/d.py": "",
            "app/alone.py": "",
            "storage/f.py": "",
        }
    )
    rooms = rooms_of("app", tree, imports_of(tree))
    assert rooms.names == {"a", "inner", "d", "alone"}
    assert {pair: len(imports) for pair, imports in rooms.arrows.items()} == {("a", "inner"): 2, ("inner", "d"): 1}
    assert (rooms.floors, rooms.circles) == (3, [])
    assert rooms_of("storage", tree, imports_of(tree)).names == {"f"}


def test_a_planted_circle_is_found(plant: Plant) -> None:
    tree = plant(
        {
            "app/one.py": "import app.two.inner\n",
            "app/two/__init__.py": "",
            "app/two/inner.py": "def later():\n    from app.three import name\n",
            "app/three.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import app.one\n",
            "app/below.py": "",
            "app/two/side.py": "import app.below\nimport app.three\n",
        }
    )
    imports = imports_of(tree)
    rooms = rooms_of("app", tree, imports)
    assert rooms.circles == [["one", "three", "two"]]
    assert rooms.floors == 4, "three of the circle, and the room below"
    assert module_circles(imports, "app") == [["app.one", "app.three", "app.two.inner"]]
    assert module_circles(imports, "storage") == []


def test_a_circle_of_rooms_needs_none_of_modules(plant: Plant) -> None:
    tree = plant(
        {
            "app/left/a.py": "import app.right.b\n",
            "app/left/c.py": "",
            "app/right/b.py": "",
            "app/right/d.py": "import app.left.c\n",
        }
    )
    assert rooms_of("app", tree, imports_of(tree)).circles == [["left", "right"]]
    assert module_circles(imports_of(tree), "app") == []


def test_a_circle_counts_between_packages_that_are_asked_for_together() -> None:
    imports = [Import("app.a", "storage.b", "at the top"), Import("storage.b", "app.a", "in functions")]
    assert module_circles(imports, "app", "storage") == [["app.a", "storage.b"]]
    assert module_circles(imports, "app") == []


@pytest.mark.parametrize(
    ("arrows", "count"),
    [
        ([], 1),
        (["ab", "bc", "ac"], 3),
        (["ab", "ba", "bc"], 3),
        (["ab", "bc", "ca", "bd", "ed", "fe", "gf"], 4),
        (["ab", "cd", "de", "ef"], 4),
    ],
)
def test_floors_are_the_longest_chain(arrows: list[str], count: int) -> None:
    assert floors("abcdefg", [(each[0], each[1]) for each in arrows]) == count


def test_circles_that_do_not_touch_are_two() -> None:
    assert circles([("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c"), ("d", "d")]) == [["a", "b"], ["c", "d"]]


def test_nothing_has_no_floor() -> None:
    assert floors([], []) == 0
