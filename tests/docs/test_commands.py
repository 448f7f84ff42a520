"""Every command of the README, the tutorial and the how-to guides runs, and prints what the page says."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import Shell, output_matches, read_blocks, read_commands
from tests.quick_java import set_quick_java

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]

# The pages use the default port; each test has its own, below the range the system gives to outgoing connections.
DOCUMENTED_PORT = "8080"
FIRST_PORT = 21_000
# A page with this mark takes a service for granted; its data are in service-data, its process is $server.
SERVICE_MARK = "<!-- a service runs -->"
START_SERVICE = """
rollway serve --data-dir service-data > service.log 2>&1 & server=$!
curl -sf --retry 60 --retry-connrefused --retry-delay 1 --output /dev/null http://127.0.0.1:8080/readyz
"""
PORTS_PER_PAGE = 50


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def free_port(page_number: int) -> int:
    first = FIRST_PORT + page_number * PORTS_PER_PAGE
    for port in range(first, first + PORTS_PER_PAGE):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port from {first} on")


def reader_environment(home: Path, port: int) -> dict[str, str]:
    """What a reader's shell has: the project's commands on the path, and nothing of ours set but for a quick Java."""
    commands = Path(sys.executable).parent
    environment = {
        "PATH": f"{commands}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "120",
        "ROLLWAY_PORT": str(port),
        "ROLLWAY_SERVER": f"http://127.0.0.1:{port}",
    }
    set_quick_java(environment)
    return environment


# Its cells share a session of Spark with its commands: tests/spark/test_tutorial.py runs both.
NOTEBOOK = ROOT / "docs/tutorial/spark.md"


@pytest.mark.parametrize("page", [page for page in PAGES if page != NOTEBOOK and read_commands(page)], ids=page_id)
def test_commands_of_the_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the pages use curl, which is not installed")
    port = free_port(PAGES.index(page))
    shell = Shell(tmp_path, reader_environment(tmp_path, port))
    try:
        if SERVICE_MARK in page.read_text("utf-8"):
            status, output = shell.run(START_SERVICE.replace(DOCUMENTED_PORT, str(port)))
            assert status == 0, f"{output}{(tmp_path / 'service.log').read_text()}"
        for command in read_commands(page):
            status, output = shell.run(command.text.replace(DOCUMENTED_PORT, str(port)))
            where = f"{page_id(page)}:{command.line_number}: {command.text}"
            shown = output.replace(str(port), DOCUMENTED_PORT)
            assert status == command.exit_status, f"{where}\nexit status {status}, printed:\n{shown}"
            if command.expected:
                assert output_matches(command.expected, shown), f"{where}\nprinted:\n{shown}"
    finally:
        shell.close()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_blocks_that_cannot_run_are_at_least_shell(page: Path) -> None:
    for block in read_blocks(page):
        assert block.language in {"console", "sh", "json", "python", "ini", "toml", "text", "ndjson", ""}, (
            f"{page_id(page)}:{block.line_number}: {block.language} blocks are neither run nor checked"
        )
        source = "\n".join(block.lines)
        if block.language == "sh":
            check = subprocess.run(["bash", "-n"], input=source, capture_output=True, text=True, check=False)
            assert check.returncode == 0, f"{page_id(page)}:{block.line_number}: {check.stderr}"
        elif block.language == "python":
            compile(source, f"{page_id(page)}:{block.line_number}", "exec")
