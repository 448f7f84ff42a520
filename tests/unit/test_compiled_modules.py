"""A module that does not build is left out in silence, as if there were no compiler; here it is missed."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from rollway.records.compiled import is_compiled

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
