"""The command line: arguments that are not UTF-8, and headers that ``fetch`` has printed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest

from demo.service import rollway_command
from tests.support.servers import ThreadedServer


def rollway(server: ThreadedServer, *arguments: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "ROLLWAY_SERVER": server.url, "PYTHONWARNINGS": "ignore"}
    command = [*rollway_command(), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=60, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "new", "--config", b"\xff=1"],
        ["jobs", "describe", b"a\xffb"],
        ["positions", "delete", b"a\xffb"],
        ["transactions", "abort", b"\xff"],
        ["keys", "create", "--principal", b"User:\xff"],
        ["serve", "--port", "0", "--host", b"\xff"],
    ],
)
def test_an_argument_that_is_not_utf8_is_named(server: ThreadedServer, arguments: list[str | bytes]) -> None:
    """A traceback, where the argument was to become a part of a request."""
    done = rollway(server, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"\\udcff" in done.stderr
    assert b"UTF-8" in done.stderr


def test_the_message_as_json_names_a_file_that_is_not_utf8(server: ThreadedServer, tmp_path: Path) -> None:
    done = rollway(server, "produce", "t", os.fsencode(tmp_path) + b"/\xff", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"].endswith("\\udcff cannot be read: No such file or directory.")


def test_headers_as_fetch_prints_them_are_taken_at_a_path(
    server: ThreadedServer, client: httpx.Client, topic: str
) -> None:
    """A traceback: the name came as an object."""
    name = topic.rpartition("/")[2]
    headers = [{"name_base64": "/w==", "value": "x"}, {"name": "n", "value": "1.10"}]
    line = json.dumps({"value": "v", "headers": headers}).encode()
    produce = ["produce", name, "-q", "-p", "0", "--value", "$.value", "--headers", "$.headers"]
    done = rollway(server, *produce, stdin=line)
    assert done.returncode == 0, done.stderr
    (record,) = client.get(f"{topic}/partitions/0/records", params={"offset": 0}).json()["records"]
    assert (record["value"], record["headers"]) == ("v", headers)
    bad = rollway(server, *produce, stdin=line.replace(b"/w==", b"/w="))
    assert (bad.returncode, b"name_base64 is no base64" in bad.stderr) == (1, True)
