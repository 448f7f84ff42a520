"""Runs a page as a reader would: what the reader does not see, the page does not get.

A page that runs commands sets the port of its own service in one line, ``export ROLLWAY_PORT=8103
ROLLWAY_SERVER=http://127.0.0.1:8103``. A reader whose port is taken changes that line, and so does a test.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.docs.console import Command, Shell, output_matches, read_commands
from tests.support.quick_java import set_quick_java

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]
# Its cells share a session of Spark with its commands: tests/spark/test_tutorial.py runs both.
NOTEBOOK = ROOT / "docs/tutorial/spark.md"
PAGES_WITH_COMMANDS = [page for page in PAGES if read_commands(page)]
PAGES_IN_A_SHELL = [page for page in PAGES_WITH_COMMANDS if page != NOTEBOOK]

PORT_LINE = re.compile(r"export ROLLWAY_PORT=(\d+) ROLLWAY_SERVER=http://127\.0\.0\.1:\1")

# Each page runs on a port below the range that the system gives to outgoing connections.
FIRST_PORT = 21_000
PORTS_PER_PAGE = 50


class PageFault(AssertionError):  # noqa: N818 - a page does not do what it says
    """A command of a page did not do what the page says."""

    def __init__(self, page: Path, command: Command, what: str) -> None:
        super().__init__(f"{page_id(page)}:{command.line_number}: {command.text}\n{what}")
        self.command = command


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def documented_port(page: Path) -> str:
    """The port that the page's own line sets; it is set once."""
    found = [match[1] for command in read_commands(page) if (match := PORT_LINE.fullmatch(command.text))]
    assert len(found) == 1, f"{page_id(page)} sets its port {len(found)} times"
    return found[0]


@contextlib.contextmanager
def free_port(page: Path) -> Iterator[str]:
    """A port of the page's own range that nothing uses, and that no other test of this machine gets meanwhile."""
    locks = Path(tempfile.gettempdir()) / f"rollway-page-ports-{os.getuid()}"
    locks.mkdir(exist_ok=True)
    first = FIRST_PORT + PAGES.index(page) * PORTS_PER_PAGE
    for port in range(first, first + PORTS_PER_PAGE):
        with (locks / str(port)).open("w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_free(port):
                yield str(port)
                return
    raise AssertionError(f"no free port from {first} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def reader_environment(home: Path) -> dict[str, str]:
    """What a reader's shell has: the project's commands on the path, and nothing of ours set but for a quick Java."""
    commands = Path(sys.executable).parent
    environment = {
        "PATH": f"{commands}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "120",
    }
    set_quick_java(environment)
    return environment


class PageRun:
    """One reader with one page: a shell in a directory, and a port in place of the documented one."""

    def __init__(self, page: Path, directory: Path, port: str, environment: dict[str, str] | None = None) -> None:
        self._page = page
        self._documented = documented_port(page)
        self._port = port
        self._shell = Shell(directory, {**(environment or {}), **reader_environment(directory)})

    def with_port(self, text: str) -> str:
        """``text`` of the page with the port that it really runs on."""
        return text.replace(self._documented, self._port)

    def run(self, command: Command) -> None:
        """Run one command.

        Raises:
            PageFault: it ended otherwise than the page says, or printed something else.
        """
        status, output = self._shell.run(self.with_port(command.text))
        shown = output.replace(self._port, self._documented)
        if status != command.exit_status:
            raise PageFault(self._page, command, f"exit status {status}, printed:\n{shown}")
        if command.expected and not shown.endswith("\n"):
            raise PageFault(self._page, command, f"the prompt is glued to what it printed:\n{shown}")
        if command.expected and not output_matches(command.expected, shown):
            raise PageFault(self._page, command, f"printed:\n{shown}")

    def check_nothing_runs(self, last: Command) -> None:
        """A page stops what it has started."""
        _, running = self._shell.run("jobs -pr")
        if running:
            raise PageFault(self._page, last, f"at the end of the page these still run: {running}")

    def close(self) -> None:
        """End the shell and what it started."""
        self._shell.close()


def run_page(page: Path, directory: Path, port: str, *, leave_out: Iterable[str] = ()) -> None:
    """Run all commands of ``page`` but those with one of the texts of ``leave_out`` in them.

    Raises:
        PageFault: the page does not do what it says.
    """
    commands = read_commands(page)
    left_out = {text: [command for command in commands if text in command.text] for text in leave_out}
    assert all(left_out.values()), f"{page_id(page)} has no command with {left_out}"
    skipped = [command for found in left_out.values() for command in found]
    reader = PageRun(page, directory, port)
    try:
        for command in commands:
            if command not in skipped:
                reader.run(command)
        reader.check_nothing_runs(commands[-1])
    finally:
        reader.close()
