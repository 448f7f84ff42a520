"""Generators of clients that are a few lines of Python, for tests of the harness."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sdks import results, running
from sdks.generators import Generator
from sdks.steps import STEPS

ALL_OK = "".join(f"print('ok {step}')\n" for step in STEPS)


def generator(**members: Any) -> Generator:
    """A generator whose client and tools are nothing, and whose program is ``program.py``."""
    return Generator(
        **{
            "name": "a generator",
            "slug": "a-generator",
            "language": "Python",
            "version": "1.0",
            "options": "--strict",
            "needs": (),
            "tools": (),
            "generate": (("{python}", "-c", "print('made')"),),
            "compile": (("{python}", "-m", "py_compile", "program.py"),),
            "run": ("{python}", "program.py"),
            **members,
        }
    )


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes the program of ``generator()``; its folder is that of all programs."""
    folder = tmp_path / "programs" / "a-generator"
    folder.mkdir(parents=True)
    for module in (running, results):
        monkeypatch.setattr(module, "PROGRAMS", folder.parent)
    # The real table is 100 MB of JSON.
    monkeypatch.setattr(running, "contents_document", lambda _: '[{"name": "nothing"}]')

    def write(text: str) -> Path:
        (folder / "program.py").write_text(text)
        return folder / "program.py"

    return write
