"""The page of engines lists every test that needs the local engine, with its reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support import engine_list
from tests.support.engine_list import PAGE, ROOT, SUITE, Need, Numbers, list_of, needs, numbers_of, page_with

_ALLOWED_OF_LOCAL = "app.engine_local.transactions.log"
"""The pure states of transactions: no engine's own."""


def test_the_page_lists_the_marked_tests() -> None:
    text, marks = PAGE.read_text("utf-8"), needs()
    numbers = numbers_of(text)
    print(list_of(marks, numbers.left_out))
    assert {mark.reason for mark in marks} == set(numbers.left_out)
    assert text == page_with(text, marks, numbers), "run `make engine-test`"


def test_a_reason_must_be_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_list, "ROOT", tmp_path)
    monkeypatch.setattr(engine_list, "SUITE", ("test_it.py",))
    file = tmp_path / "test_it.py"
    file.write_text("import pytest\n\n@pytest.mark.needs_local('it kills')\ndef test_it() -> None: ...\n")
    assert needs() == [Need("test_it.py", "test_it", "it kills")]
    file.write_text("import pytest\npytestmark = [pytest.mark.needs_local('it kills')]\n")
    assert needs() == [Need("test_it.py", None, "it kills")]
    for mark in ("needs_local", "needs_local()", "needs_local('')", "needs_local(why)"):
        file.write_text(f"import pytest\n\nwhy = ''\n\n@pytest.mark.{mark}\ndef test_it() -> None: ...\n")
        with pytest.raises(ValueError, match=r"test_it.py:5: needs_local needs a reason"):
            needs()


def test_numbers_survive_the_page() -> None:
    marks = [Need("a.py", None, "it kills"), Need("b.py", "test_b", "it looks"), Need("b.py", "test_c", "it looks")]
    numbers = Numbers(7, {"it kills": 2, "it looks": 3})
    text = page_with(PAGE.read_text("utf-8"), marks, numbers)
    assert "Of 12 tests of the suite, 7 pass on the engine in memory, and 5 need the local engine." in text
    assert "### It looks (3)\n\n- `b.py`:\n  - `test_b`\n  - `test_c`\n" in text
    assert numbers_of(text) == numbers


def test_the_suite_exists() -> None:
    assert all((ROOT / path).exists() for path in (*SUITE, *engine_list.QUICK))
    assert all(any(Path(path).is_relative_to(root) for root in SUITE) for path in engine_list.QUICK)


def test_the_engine_in_memory_uses_the_port_alone() -> None:
    for file in sorted((ROOT / "tests" / "memory_engine").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            for name in names:
                assert name.partition(".")[0] != "storage", f"{file.name} imports {name}"
                is_local = name.startswith("app.engine_local")
                assert not is_local or name.startswith(_ALLOWED_OF_LOCAL), f"{file.name} imports {name}"
