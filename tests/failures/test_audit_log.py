"""What one request adds to the log is bounded, and has no character that shows it as something else."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.access.access import Access
from app.cli.administration.offline_access import open_registry
from app.problems import request_context
from app.server import log_output
from rollway.printable import escape_json, escape_unprintable
from tests.support.access import bearer
from tests.support.servers import ServerProcess, http_client

LOG_BYTES_MAX = 4_096


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, httpx.Client]]:
    """A service whose log is a file, and a client without any right."""
    data_dir = tmp_path_factory.mktemp("audit") / "data"
    with open_registry(data_dir) as registry:
        _, nobody = registry.create_key("User:nobody")
    with (
        ServerProcess(data_dir, "--authentication") as process,
        http_client(process.url, headers=bearer(nobody)) as client,
    ):
        yield process, client


def grown(process: ServerProcess, before: str) -> str:
    """What the log has more than ``before``."""
    return process.errors().removeprefix(before)


@pytest.mark.parametrize("length", [250, 32_767, 32_768, 3_000_000])
def test_a_name_of_any_length_is_no_flood(service: tuple[ServerProcess, httpx.Client], length: int) -> None:
    process, client = service
    before = process.errors()
    body = {"partitions": [{"topic": "t" * length, "partition": 0, "records": []}]}
    answer = client.post("/v1/produce", json=body)
    assert answer.status_code in (403, 422)
    assert len(grown(process, before)) < LOG_BYTES_MAX
    # The name comes once, as the name of its part, and not at all when it is too long for one.
    assert len(answer.content) < (length if length <= 32_767 else 0) + LOG_BYTES_MAX


def test_many_parts_are_one_line(service: tuple[ServerProcess, httpx.Client]) -> None:
    process, client = service
    names = [f"t{number}" for number in range(1_000)]
    parts = [{"topic": name, "partition": 0, "records": [{"value": "v"}]} for name in names]
    queries = [{"topic": name, "partition": 0, "timestamp": "earliest"} for name in names]
    fetched = [{"topic": name, "partition": 0, "fetch_offset": 0} for name in names]
    requests = [
        ("/v1/produce", {"partitions": parts}, "WRITE"),
        ("/v1/produce?atomic=true", {"partitions": parts}, "WRITE"),
        ("/v1/offsets", {"queries": queries}, "DESCRIBE"),
        ("/v1/fetch", {"partitions": fetched}, "READ"),
        ("/v1/fetch", {"session_epoch": 0, "partitions": fetched}, "READ"),
    ]
    for path, body, operation in requests:
        before = process.errors()
        answer = client.post(path, json=body)
        assert answer.status_code in (200, 207, 403), answer.text[:200]
        (line,) = grown(process, before).splitlines()
        shown = ", ".join(f"topic:{name}" for name in names[:10])
        assert f"denied {operation} on {shown} and 990 more to User:nobody" in line
    session_id = answer.json()["session_id"]
    before = process.errors()
    client.post("/v1/fetch", json={"session_id": session_id, "session_epoch": 1})
    assert len(grown(process, before).splitlines()) == 1


def test_a_long_name_in_a_path_is_cut(service: tuple[ServerProcess, httpx.Client]) -> None:
    process, client = service
    for path in (f"/v1/transactions/{'t' * 20_000}/commit", f"/v1/groups/{'g' * 20_000}/start-positions"):
        before = process.errors()
        answer = client.request("POST", path, json={"producer_id": 0, "producer_epoch": 0, "positions": {}})
        assert answer.status_code in (403, 422)
        assert len(grown(process, before)) < LOG_BYTES_MAX


def test_what_is_refused_once_is_the_line_that_it_was(caplog: pytest.LogCaptureFixture) -> None:
    from app.access.operations import Operation, topic_resource

    class Nothing:
        def allows(self, *_: object) -> bool:
            return False

        allows_any = allows

        def are_alive(self) -> bool:
            return True

    access = Access("User:x", Nothing())
    with caplog.at_level(logging.INFO, "rollway.audit"):
        assert access.refusal(Operation.READ, topic_resource("a")) is not None
        assert access.refusal(Operation.READ, topic_resource("a")) is not None
        assert caplog.messages == []
        access.write_audit()
        access.write_audit()
    assert caplog.messages == ["denied READ on topic:a to User:x"]


# Characters

UNPRINTABLE = [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029]
UNPRINTABLE += [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF, 0xE0001]
SEPARATORS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_unprintable_character_is_in_a_log_line(
    capsys: pytest.CaptureFixture[str], log_format: log_output.LogFormat
) -> None:
    log_output.configure("info", access_log=False, log_format=log_format)
    nasty = "".join(map(chr, UNPRINTABLE))
    token = request_context.principal.set(f"Jwt:{nasty}")
    try:
        logging.getLogger("rollway.audit").info("denied READ on topic:%s to x", f"a{nasty}é漢b")
    finally:
        request_context.principal.reset(token)
    written = capsys.readouterr().err
    assert written.endswith("\n")
    line = written[:-1]
    assert line.isprintable()
    assert "é漢" in line
    assert len(line.splitlines()) == 1
    if log_format == "json":
        assert json.loads(line)["message"] == f"denied READ on topic:a{nasty}é漢b to x"
    else:
        assert r"\u202e" in line
        assert r"\u2028" in line
        assert r"\x9b" in line


@pytest.mark.usefixtures("logging_as_before")
def test_a_message_of_an_error_cannot_begin_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    log_output.configure("info", access_log=False)
    forged = "2026-01-01T00:00:00.000Z INFO rollway.audit: created key by User:admin"
    try:
        raise ValueError(f"x\n{forged}\u2028{forged}\x1b[2J")
    except ValueError:
        logging.getLogger("app").error("failed", exc_info=sys.exc_info())
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("20")]) == 1
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines[1:] if not line.startswith("    ")] == []


def test_what_is_printable_stays() -> None:
    text = "Straße 漢字 🙂 a\u0301"
    assert escape_unprintable(text) == text
    assert escape_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)
    assert escape_unprintable("a\tb\nc\x1b", keep_lines=True) == "a\tb\nc\\x1b"


def test_a_document_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"value": "".join(map(chr, UNPRINTABLE)) + SEPARATORS + "漢"}
    escaped = escape_json(json.dumps(document, ensure_ascii=False))
    assert escaped.isprintable()
    assert json.loads(escaped) == document


def test_commands_show_no_unprintable_character(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    from app.cli.records.fetch import shown_on_terminal
    from app.cli.rendering import note, print_json, print_table, say

    nasty = "a\x1b[2J\x9b2J\u202e\u2028b"
    say(nasty)
    note(nasty)
    print_json({"name": nasty})
    print_table(["NAME"], [[nasty]])
    captured = capsysbinary.readouterr()
    for line in (captured.out + captured.err).decode().split("\n"):
        assert line.isprintable(), line
    shown = shown_on_terminal(json.dumps({"value": nasty}, ensure_ascii=False).encode(), is_json=True)
    assert json.loads(shown) == {"value": nasty}
    assert shown.decode().isprintable()
    assert shown_on_terminal(b"a\xffb\x1b\n", is_json=False) == b"a\\xffb\\x1b\n"


def test_the_check_finds_lines_for_every_part(
    service: tuple[ServerProcess, httpx.Client], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted: a line for each part, as it was."""
    genuine = Access.refusal

    def refusal(self: Access, *asked: Any) -> object:
        found = genuine(self, *asked)
        self.write_audit()
        return found

    from tests.support.servers import ThreadedServer

    monkeypatch.setattr(Access, "refusal", refusal)
    with open_registry(tmp_path / "data") as registry:
        _, nobody = registry.create_key("User:nobody")
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    audit = logging.getLogger("rollway.audit")
    audit.addHandler(handler)
    level = audit.level
    audit.setLevel(logging.INFO)
    try:
        with (
            ThreadedServer(tmp_path / "data", authentication=True) as server,
            http_client(server.url, headers=bearer(nobody)) as client,
        ):
            partitions = [{"topic": f"t{number}", "partition": 0, "fetch_offset": 0} for number in range(20)]
            client.post("/v1/fetch", json={"partitions": partitions})
    finally:
        audit.removeHandler(handler)
        audit.setLevel(level)
    assert len(lines) == 20
