"""Planted trees: a few short files below a folder of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from house.sources import SourceTree

Plant = Callable[[Mapping[str, str]], SourceTree]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Write files, by their paths, and read them as a tree."""

    def planted(files: Mapping[str, str]) -> SourceTree:
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(textwrap.dedent(text), "utf-8")
        return SourceTree(tmp_path)

    return planted
