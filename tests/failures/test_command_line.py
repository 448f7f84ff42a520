"""The command line: what is sent arrives as it was sent, and a stream that is closed, full or unread is named."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.service import rollway_command
from tests.support.servers import ServerProcess, ThreadedServer

_numbers = count()


@pytest.fixture
def name(topic: str) -> str:
    return topic.rpartition("/")[2]


class Shell:
    """Runs ``rollway`` in bash, as ``$rollway``, against one service."""

    def __init__(self, url: str) -> None:
        self._environment = {**os.environ, "ROLLWAY_SERVER": url, "PYTHONWARNINGS": "ignore"}

    def __call__(self, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        text = f'rollway() {{ {shlex.join(rollway_command())} "$@"; }}; set -o pipefail; {command}'
        ended = subprocess.run(
            ["bash", "-c", text], input=stdin, capture_output=True, env=self._environment, timeout=60, check=False
        )
        assert b"Traceback" not in ended.stderr, ended.stderr.decode()
        return ended


@pytest.fixture
def shell(server: ThreadedServer) -> Shell:
    return Shell(server.url)


def records_in(client: httpx.Client, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in (0, 1):
        found += client.get(f"{topic}/partitions/{partition}/records", params={"offset": 0}).json()["records"]
    return found


NUMBERS = [
    ("0.1234567890123456789", "1.10"),
    ("0.12345678901234567", "1E2"),
    ("0.12345678901234568", '{"a":100.00}'),
    ("123456789012345678901234567890", "-0.0"),
    ("1e400", "0"),
    ("-0", "[1e-400, 2.50]"),
]


@pytest.mark.parametrize("paths", [("$.id", "$.v"), ("$..id", "$..v")])
def test_a_number_at_a_path_keeps_its_digits(
    shell: Shell, client: httpx.Client, topic: str, name: str, paths: tuple[str, str]
) -> None:
    lines = "".join(f'{{"id":{key},"v":{value}}}\n' for key, value in NUMBERS).encode()
    ended = shell(f"rollway produce {name} --key '{paths[0]}' --value '{paths[1]}'", lines)
    assert ended.returncode == 0, ended.stderr.decode()
    stored = {(record["key"], record["value"]) for record in records_in(client, topic)}
    assert stored == set(NUMBERS), "two keys that differ behind a float's digits stay two"


def test_closed_standard_input_is_a_sentence(shell: Shell, name: str) -> None:
    ended = shell(f"rollway produce {name} <&-")
    assert ended.returncode == 1
    assert ended.stderr.decode() == (
        "rollway: Standard input is closed: name a file, or give the lines through a pipe.\n"
    )


@pytest.mark.parametrize("command", ["fetch {name}", "topics list", "topics list --json"])
@pytest.mark.parametrize(("stream", "reason"), [("> /dev/full", "No space left"), (">&-", "Bad file descriptor")])
def test_standard_output_that_cannot_be_written_is_named(
    shell: Shell, client: httpx.Client, topic: str, name: str, command: str, stream: str, reason: str
) -> None:
    client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "x"}]})
    ended = shell(f"rollway {command.format(name=name)} {stream}")
    assert ended.returncode == 1
    assert ended.stderr.count(b"\n") == 1
    assert f"Standard output: {reason}" in ended.stderr.decode()


@pytest.mark.parametrize("command", ["fetch {name}", "fetch {name} -f raw"])
def test_a_reader_that_has_enough_is_no_error(
    shell: Shell, client: httpx.Client, topic: str, name: str, command: str
) -> None:
    """More than a pipe holds, so that the command is still writing when its reader goes."""
    for _ in range(4):
        client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "x" * 100_000}] * 5})
    ended = shell(f"rollway {command.format(name=name)} -p 0 | head -c 1; exit ${{PIPESTATUS[0]}}")
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def test_a_service_without_any_stream_runs_and_gives_their_numbers_to_no_file(tmp_path: Path) -> None:
    """Else the first file it opens would be its standard error, and a line of the log would go into the data."""
    closed = ["bash", "-c", 'exec "$@" <&- 2>&-', "bash", *rollway_command()]
    with ServerProcess(tmp_path / "data", command=closed) as service:
        links = {number: Path(f"/proc/{service.pid}/fd/{number}").readlink() for number in (0, 2)}
        assert links == {0: Path(os.devnull), 2: Path(os.devnull)}
        with httpx.Client(base_url=service.url) as client:
            assert client.put("/v1/topics/t", json={}).status_code == 201
        assert service.stop() == 0


@pytest.mark.parametrize("options", ["--format records", "--key '$.value'"])
def test_a_blank_line_between_lines_of_json_is_skipped(
    shell: Shell, client: httpx.Client, topic: str, name: str, options: str
) -> None:
    lines = [b'{"value":"a"}', b"", b'{"value":"b"}', b"  \t\r", b""]
    ended = shell(f"rollway produce {name} -p 0 {options} --json", b"\n".join(lines))
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["record_count"] == 2
    assert len(records_in(client, topic)) == 2
    # Lines are still counted, so that a message names the line of the file.
    ended = shell(f"rollway produce {name} -p 0 {options}", b"\n".join([*lines[:-1], b"{"]))
    assert b"Line 5: it is not JSON" in ended.stderr


def test_a_record_without_a_time_is_copied_as_one(shell: Shell, client: httpx.Client, topic: str, name: str) -> None:
    records = [{"value": "none", "timestamp": -1}, {"value": "first", "timestamp": 0}, {"value": "now"}]
    client.post(f"{topic}/partitions/0/records", json={"records": records})
    copy = f"copy-{next(_numbers)}"
    client.put(f"/v1/topics/{copy}", json={"partitions": 2, "config": {"retention.ms": -1}})
    ended = shell(f"rollway fetch {name} -p 0 | rollway produce {copy} --format records -p 0")
    assert ended.returncode == 0, ended.stderr.decode()
    before, after = records_in(client, topic), records_in(client, f"/v1/topics/{copy}")
    assert [record["timestamp"] for record in before[:2]] == [-1, 0]
    assert after == before


NO_TIME = [
    ("{topic}/partitions/0/records", {"records": [{"value": "x", "timestamp": -1}]}),
    ("{topic}/records", {"records": [{"value": "x", "timestamp": -1, "partition": 0}]}),
    ("{topic}/partitions/0/records?encoding=json", {"records": [{"value": 1.5, "timestamp": -1}]}),
    ("{topic}/partitions/0/records?encoding=base64", {"records": [{"value_base64": "eA==", "timestamp": -1}]}),
    (
        "/v1/produce",
        {"partitions": [{"topic": "{name}", "partition": 0, "records": [{"value": "x", "timestamp": -1}]}]},
    ),
]


@pytest.mark.parametrize(("path", "body"), NO_TIME, ids=[path for path, _ in NO_TIME])
def test_every_way_in_can_say_that_a_record_has_no_time(
    client: httpx.Client, topic: str, name: str, path: str, body: dict[str, Any]
) -> None:
    sent = json.dumps(body).replace("{name}", name).encode()
    for _ in range(3):  # the third request of a kind is read by the quick reader
        answer = client.post(path.format(topic=topic), content=sent, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200, answer.text
    assert [record["timestamp"] for record in records_in(client, topic)] == [-1, -1, -1]


def test_a_line_of_ndjson_can_say_so_too(client: httpx.Client, topic: str) -> None:
    answer = client.post(
        f"{topic}/partitions/0/records",
        content=b'{"value":"x","timestamp":-1}\n',
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == 200, answer.text
    assert [record["timestamp"] for record in records_in(client, topic)] == [-1]


ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
JSON_ROUTES = [
    ("POST", "{topic}/partitions/0/records", '{"records":[{"value":"x"}]}'),
    ("POST", "{topic}/partitions/0/records?encoding=json", '{"records":[{"value":"x"}]}'),
    ("POST", "{topic}/records", '{"records":[{"value":"x"}]}'),
    ("POST", "/v1/produce", '{"partitions":[]}'),
    ("POST", "/v1/fetch", '{"partitions":[]}'),
    ("PATCH", "{topic}", '{"config":{}}'),
    ("PUT", "/v1/topics/new", '{"partitions":1}'),
    ("POST", "/v1/offsets", '{"partitions":[]}'),
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("method", "path", "text"), JSON_ROUTES, ids=[f"{route[0]} {route[1]}" for route in JSON_ROUTES]
)
def test_a_body_in_another_encoding_is_told_which(
    client: httpx.Client, topic: str, encoding: str, method: str, path: str, text: str
) -> None:
    answer = client.request(
        method,
        path.format(topic=topic),
        content=text.encode(encoding),
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    expected = "byte order mark" if encoding == "utf-8-sig" else "UTF-16 or UTF-32; send UTF-8"
    assert expected in answer.json()["detail"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le"])
def test_a_file_of_lines_in_another_encoding_is_told_which(
    client: httpx.Client, shell: Shell, topic: str, name: str, encoding: str
) -> None:
    lines = '{"value":"x"}\n{"value":"y"}\n'.encode(encoding)
    expected = "byte order mark" if encoding == "utf-8-sig" else "UTF-16 or UTF-32; send UTF-8"
    streamed = client.post(
        f"{topic}/partitions/0/records", content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert expected in streamed.text
    assert expected in shell(f"rollway produce {name} --format records", lines).stderr.decode()
    assert records_in(client, topic) == []
