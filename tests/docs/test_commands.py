"""Every command of the README, the tutorials and the how-to guides runs, and prints what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.console import read_blocks, read_commands
from tests.docs.pages import (
    PAGES,
    PAGES_IN_A_SHELL,
    PAGES_WITH_COMMANDS,
    PORT_LINE,
    documented_port,
    free_port,
    page_id,
    run_page,
)

PROGRAM_LANGUAGES = ("javascript", "typescript", "go", "java", "rust", "yaml")
"""Programs in these are files of sdks/, which tests/sdks and `make sdks` run."""
PROGRAMS = {
    path.read_text("utf-8").strip()
    for suffix in ("mjs", "ts", "go", "java", "rs", "yaml", "toml")
    for path in (Path(__file__).parents[2] / "sdks").rglob(f"*.{suffix}")
}


@pytest.mark.parametrize("page", PAGES_IN_A_SHELL, ids=page_id)
def test_commands_of_the_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the pages use curl, which is not installed")
    with free_port(page) as port:
        run_page(page, tmp_path, port)


def test_each_page_has_a_port_of_its_own() -> None:
    ports = [documented_port(page) for page in PAGES_WITH_COMMANDS]
    assert len(set(ports)) == len(ports) > 10


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=page_id)
def test_a_page_finds_its_service_by_the_line_that_sets_the_port(page: Path) -> None:
    """A reader who changes that line has changed all of the page; the cells of a notebook apart."""
    for command in read_commands(page):
        if not PORT_LINE.fullmatch(command.text):
            assert not re.search(r"127\.0\.0\.1|localhost|--port [^0]|--server", command.text), (
                f"{page_id(page)}:{command.line_number}: {command.text}"
            )


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=page_id)
def test_a_page_starts_and_stops_its_service_and_keeps_nothing_from_the_reader(page: Path) -> None:
    commands = [command.text for command in read_commands(page)]
    assert sum(text.startswith("rollway serve --data-dir ") and "& server=$!" in text for text in commands) >= 1
    assert "kill $server" in commands[-3:]
    hidden = re.findall(r"<!--(?! exit: \d+ -->).*?-->", page.read_text("utf-8"), re.DOTALL)
    assert hidden == [], "what a rendered page does not show, a reader does not do"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_blocks_that_cannot_run_are_at_least_shell(page: Path) -> None:
    for block in read_blocks(page):
        source = "\n".join(block.lines)
        if block.language in PROGRAM_LANGUAGES:
            assert source.strip() in PROGRAMS, f"{page_id(page)}:{block.line_number}: no file of sdks/ is this program"
            continue
        # tests/failures/test_spark_sql.py runs SQL.
        assert block.language in {"console", "sh", "json", "python", "ini", "toml", "text", "ndjson", "sql", ""}, (
            f"{page_id(page)}:{block.line_number}: {block.language} blocks are neither run nor checked"
        )
        if block.language == "sh":
            check = subprocess.run(["bash", "-n"], input=source, capture_output=True, text=True, check=False)
            assert check.returncode == 0, f"{page_id(page)}:{block.line_number}: {check.stderr}"
        elif block.language == "python":
            compile(source, f"{page_id(page)}:{block.line_number}", "exec")
