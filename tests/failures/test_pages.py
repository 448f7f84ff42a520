"""The pages can fail: each plant is what once went wrong without a word, and a check of the page must find it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.docs.console import read_commands
from tests.docs.pages import PAGES_IN_A_SHELL, PORT_LINE, ROOT, PageFault, free_port, page_id, run_page
from tests.support.servers import ThreadedServer

HOW_TO = ROOT / "docs/how-to"


@pytest.mark.parametrize("page", PAGES_IN_A_SHELL, ids=page_id)
def test_the_service_of_another_page_is_noticed_before_anything_is_written(
    page: Path, server: ThreadedServer, client: httpx.Client, tmp_path: Path
) -> None:
    """README's service still runs, and the reader goes on with a page that cannot start its own."""
    with pytest.raises(PageFault) as caught:
        run_page(page, tmp_path, str(server.port))
    commands = [command for command in read_commands(page) if command.line_number <= caught.value.command.line_number]
    assert any(PORT_LINE.fullmatch(command.text) for command in commands)
    assert sum("rollway serve" in command.text for command in commands) == 1
    assert commands[-1].text.startswith(("curl -sf -w '\\n' --retry", "cat serve.log", "tail -n 1 rollway.log"))
    assert client.get("/v1/topics").json()["data"] == []


PLANTS = [
    ("README.md", "reading-42"),
    ("docs/tutorial/first-log.md", "the last one"),
    ("docs/how-to/back-up.md", "tar --create"),
    ("docs/how-to/load-files.md", "rollway produce"),
    ("docs/how-to/repair.md", "dd of="),
    ("docs/how-to/retry-safely.md", "-sT numbers.ndjson"),
    ("docs/how-to/secure-a-service.md", "umask"),
    ("docs/how-to/write-exactly-once.md", "commit"),
]
"""A page, and a step that a reader leaves out; what follows must not look as if it had been done."""


@pytest.mark.parametrize(("page", "step"), PLANTS, ids=lambda value: str(value).rpartition("/")[2])
def test_a_step_that_is_left_out_is_noticed(page: str, step: str, tmp_path: Path) -> None:
    with free_port(ROOT / page) as port, pytest.raises(PageFault):
        run_page(ROOT / page, tmp_path, port, leave_out=[step])


def test_a_backup_that_holds_nothing_is_not_taken_for_one(tmp_path: Path) -> None:
    """The page as it was: the restored copy is empty, and the original service answers in its place."""
    page = HOW_TO / "back-up.md"
    left_out = ["kill $server", "wait $server", "grep version", "rollway log verify"]
    with free_port(page) as port, pytest.raises(PageFault) as caught:
        run_page(page, tmp_path, port, leave_out=left_out)
    assert caught.value.command.text == "tail -n 1 restored.log"


def test_a_page_that_leaves_its_service_running_is_noticed(tmp_path: Path) -> None:
    page = HOW_TO / "limit-clients.md"
    with free_port(page) as port, pytest.raises(PageFault, match="still run"):
        run_page(page, tmp_path, port, leave_out=["kill $server", "wait $server"])
