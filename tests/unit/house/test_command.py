"""``python -m house`` on a planted tree: it prints, checks, records, lowers limits, and shows walks."""

from __future__ import annotations

from pathlib import Path

import pytest

from house import limits
from house.__main__ import main
from house.page import MARK
from tests.unit.house.conftest import Plant

FILES = {
    "app/a.py": """
        from app.b import check

        class Large:
            def one(self): ...
            def two(self): ...
            def three(self): ...

        def handle(request):
            check(request)
            return request
        """,
    "app/b.py": "def check(given):\n    import app.a\n",
    "app/c.py": "",
    "app/d.py": "",
    "app/engine/port.py": "x = 1\n",
    "storage/e.py": "",
}


@pytest.fixture
def options(plant: Plant, tmp_path: Path) -> list[str]:
    plant(FILES)
    page, own_limits = tmp_path / "house.md", tmp_path / "limits.toml"
    page.write_text(f"# Numbers\n\nHow they are counted.\n\n{MARK}\n\nold\n", "utf-8")
    own_limits.write_text((Path(__file__).parent / "planted_limits.toml").read_text("utf-8"), "utf-8")
    return ["--root", str(tmp_path), "--limits", str(own_limits), "--page", str(page)]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    """The exit status, the output, and the lines of the errors."""
    status = main(list(arguments))
    shown = capsys.readouterr()
    return status, shown.out, shown.err.strip().splitlines()


FALLS = ["stays: app/a.py:handle:request is 3, and was 4: lower the entry"]


def test_the_numbers_are_printed_and_a_fall_is_a_fault(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, errors = run(capsys, *options)
    assert (status, errors) == (1, FALLS)
    for line in (
        "| rooms of app | 5 |  |  |",
        "| floors of app | 2 |  |  |",
        "| arrows of app | 2 |  |  |",
        "| circles of app | 1 | 0 | 1 |",
        "| rooms of app | `a`, `b` |",
        "| modules | `app.a`, `app.b` |",
        "| `app/a.py:Large` | 3 | it was larger |",
        "| `app/a.py:handle:request` | 3 | 1 | 4 | 1 | 0 | 1 | 2 | 0 |",
        "| `app` | 30 | 11 |",
        "| inside a function | 1 |",
    ):
        assert line in out.splitlines()


def test_recording_writes_the_page_and_lowers_the_limits(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, errors = run(capsys, "--check", *options)
    assert (status, errors) == (1, [*FALLS, "house.md is stale: make house HOUSE=--record"])
    assert run(capsys, "--record", *options)[::2] == (0, [])
    page = (tmp_path / "house.md").read_text("utf-8")
    assert page.startswith(f"# Numbers\n\nHow they are counted.\n\n{MARK}\n\n## Folders\n")
    assert "| `app/a.py:handle:request` | 3 | 1 | 3 | 1 | 0 | 1 | 2 | 0 |" in page.splitlines()
    assert limits.read((tmp_path / "limits.toml").read_text("utf-8")).stays.listed == {
        "app/a.py:handle:request": limits.Listed(3)
    }
    assert run(capsys, "--check", *options) == (0, "", [])


def test_a_number_above_its_limit_is_a_fault_and_is_not_recorded_away(
    options: list[str], plant: Plant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--record", *options)
    recorded = (tmp_path / "limits.toml").read_text("utf-8")
    methods = "".join(f"    cdef int method_{number}(self):\n        return 1\n" for number in range(2))
    plant({"app/new.pyx": f"cdef class Planted:\n{methods}", "app/f.py": "x = 1\n" * 101})
    faults = [
        "folders: app is 6, and was 4; the goal is 2",
        "methods: app/new.pyx:Planted is 2, and 1 is the limit",
        "lines: app/f.py is 101, and 100 is the limit",
        "statements: there are 117, and 30 is the limit",
    ]
    assert run(capsys, *options)[::2] == (1, faults)
    assert run(capsys, "--record", *options)[::2] == (1, faults)
    assert (tmp_path / "limits.toml").read_text("utf-8") == recorded


def test_a_page_is_stale_in_everything_but_its_size(
    options: list[str], plant: Plant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--record", *options)
    plant({"app/d.py": "import json\nx = 1\n"})
    assert run(capsys, "--check", *options) == (0, "", [])
    plant({"app/d.py": "import app.c\n"})
    assert run(capsys, "--check", *options) == (1, "", ["house.md is stale: make house HOUSE=--record"])
    page = tmp_path / "house.md"
    page.write_text(page.read_text("utf-8").replace("it was larger", "it is larger"), "utf-8")
    plant({"app/d.py": ""})
    assert run(capsys, "--check", *options)[0] == 1


def test_what_is_configured_and_gone_is_a_fault(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app/a.py").unlink()
    status, out, errors = run(capsys, *options)
    assert status == 1
    assert "| `app/a.py:handle:request` | not there |" in out.splitlines()
    assert "walks: app/a.py:handle:request is not there: give it its new name" in errors
    assert "methods: app/a.py:Large is not there: give the entry its new name, or take it out" in errors


def test_a_walk_is_printed_stay_by_stay(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, errors = run(capsys, "--walk", "app/a.py:handle:request", *options)
    assert (status, errors) == (0, [])
    assert out.splitlines() == [
        "app/a.py:handle:request: 3 stays, 1 returns, 2 files, 0 stops",
        "   1       app/a.py:9   handle  [request]",
        "   2       app/b.py:1   check  [given]",
        "   3 again app/a.py:11  handle  [request]",
    ]


def test_the_imports_behind_arrows_are_printed(
    options: list[str], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant({"app/c.py": "from app.engine import port, other\n", "app/engine/other.py": ""})
    status, out, errors = run(capsys, "--arrows", "app", *options)
    assert (status, errors) == (0, [])
    assert out.splitlines() == [
        "a -> b  (in a circle): app.a imports app.b",
        "b -> a  (in a circle): app.b imports app.a",
        "c -> engine: app.c imports app.engine.other, app.c imports app.engine.port",
    ]


def test_another_tree_is_measured_and_compared_with_nothing(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, errors = run(capsys, "--root", str(tmp_path))
    assert (status, errors) == (0, [])
    assert "| rooms of app | 5 |  |  |" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--walk", "app/a.py:missing:request"], "app/a.py has no function missing"),
        (["--check", "--record"], "not allowed with argument"),
        (["--limits", "missing.toml"], "missing.toml"),
    ],
)
def test_a_wrong_command_line_is_an_error(
    options: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*options, *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_another_tree_is_not_recorded_into_this_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--root", str(tmp_path), "--record"])
    assert "another one needs --limits and --page of its own" in capsys.readouterr().err


def test_a_page_that_lost_its_mark_is_an_error(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "house.md").write_text("# Numbers\n", "utf-8")
    with pytest.raises(SystemExit):
        main(["--record", *options])
    assert "has lost its mark" in capsys.readouterr().err
