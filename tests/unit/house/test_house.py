"""The numbers of this repository are within their limits, and the committed page shows them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from house import limits
from house.__main__ import main

TOOL = Path(limits.__file__).parent


def test_the_house_is_within_its_limits_and_its_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert status == 0, capsys.readouterr().err


def test_the_goals_stay_as_they_were_set() -> None:
    goals = limits.read(limits.PATH.read_text("utf-8"))
    assert (goals.folders.most, goals.methods.most, goals.lines.most) == (15, 25, 500)
    kinds = ("circles of app", "circles of storage", "circles of modules", "rooms in circles of app")
    circles = dict.fromkeys([*kinds, "rooms in circles of storage"], 0)
    assert goals.rooms.most == {"floors of app": 14, "arrows of app": 120, **circles}
    for walks, goal in ((goals.stays.most, 20), (goals.returns.most, 6)):
        assert isinstance(walks, Mapping)
        assert list(walks.values()) == [goal, goal], "a hot produce and a hot fetch"
        assert walks.keys() <= set(goals.entries)


def test_the_tool_imports_the_standard_library_alone() -> None:
    imported = set()
    for path in TOOL.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Import(names=names):
                    imported |= {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module)):
                    imported.add(module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"house", "docs"}, "docs.markdown makes its tables"
