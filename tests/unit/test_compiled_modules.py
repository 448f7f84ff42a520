"""A module that does not build is left out in silence, as if there were no compiler; here it is missed."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest

from house.imports import loaded_name
from house.sources import SourceTree
from rollway.records.compiled import is_compiled
from tests.support.twins import CHOOSERS, OTHERS

ROOT = Path(__file__).parents[2]


def modules() -> list[str]:
    found = []
    for project in (ROOT, ROOT / "client"):
        settings = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
        found += [module["name"] for module in settings["tool"]["setuptools"]["ext-modules"]]
    return found


@pytest.mark.parametrize("name", modules())
def test_every_module_was_built_where_one_was(name: str) -> None:
    if not is_compiled():
        pytest.skip("there was no compiler")
    assert importlib.util.find_spec(name) is not None


def test_the_makefile_builds_them_again_when_their_source_changes() -> None:
    line = next(line for line in (ROOT / "Makefile").read_text("utf-8").splitlines() if line.startswith("COMPILED :="))
    sources = [Path(path) for path in line.partition(":=")[2].split()]
    assert sorted(path.stem for path in sources) == sorted(name.rpartition(".")[2] for name in modules())
    assert all((ROOT / path).is_file() for path in sources)


def test_each_has_a_plain_twin_and_a_module_that_chooses_or_says_what_it_has_instead() -> None:
    sources = {source.module: source for source in SourceTree(ROOT).sources if source.suffix != ".pxd"}
    assert {name for name, source in sources.items() if source.is_compiled} == set(modules())
    for name in modules():
        base = name.removesuffix("_c")
        assert base != name
        if {base, f"{base}_py"} <= sources.keys():
            assert f'load("{name}")' in sources[base].text, f"{base} does not choose"
        else:
            docstring = next(line for line in sources[name].logical_lines if line.is_text)
            assert "no plain twin" in docstring.words[0], f"{name} has neither a twin nor a word about it"


def test_the_fixture_of_the_tests_knows_every_variable_that_holds_a_compiled_module() -> None:
    """Those of the library have a fixture of their own, beside its tests."""
    holders = set()
    for source in SourceTree(ROOT).sources:
        if not source.is_compiled and not source.module.startswith("rollway."):
            for statement in source.tree.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and any(map(loaded_name, ast.walk(statement))):
                    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
                    holders.add(f"{source.module}.{ast.unparse(target)}")
    assert holders == {*CHOOSERS, *OTHERS}
