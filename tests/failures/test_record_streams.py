"""Streams of records that end early, have long lines, or go through a proxy that buffers."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.support.servers import ServerProcess, ThreadedServer, http_client

NDJSON = {"Content-Type": "application/x-ndjson"}
LINES = 3_000
BODY = (b'{"value":"' + b"n" * 1_000 + b'"}\n') * LINES
SHORT_GRACE = {"request_body_grace_ms": 1_500}


class BufferingProxy:
    """What nginx does by default: it takes the whole request, sends it on, stops sending once the answer begins, and
    hands the answer back to its end."""

    def __init__(self, server_url: str) -> None:
        host, port = re.findall(r"//([^:/]+):(\d+)", server_url)[0]
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = 0
        self._thread = threading.Thread(target=self._serve, name="buffering proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(60)

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client, client.makefile("rb") as reader, socket.create_connection(self._upstream, timeout=60) as upstream:
            head = b"".join(iter(reader.readline, b"\r\n")) + b"Connection: close\r\n\r\n"
            length = re.search(rb"(?i)content-length: (\d+)", head)
            assert length is not None
            with contextlib.suppress(ConnectionError):
                self._forward(upstream, head + reader.read(int(length[1])))
                while piece := upstream.recv(65_536):
                    client.sendall(piece)

    def _forward(self, upstream: socket.socket, request: bytes) -> None:
        for place in range(0, len(request), 65_536):
            with contextlib.suppress(TimeoutError):
                # The answer begins: no byte more.
                upstream.settimeout(0.005)
                if upstream.recv(1, socket.MSG_PEEK):
                    break
            upstream.settimeout(60)
            upstream.sendall(request[place : place + 65_536])
            self.sent_bytes += len(request[place : place + 65_536])
        upstream.settimeout(60)


def acknowledged(answer: httpx.Response) -> tuple[int, dict[str, Any]]:
    """How many records the lines of an answer acknowledge, and its last line."""
    told = [json.loads(line) for line in answer.text.splitlines()]
    return sum(line.get("record_count", 0) for line in told), told[-1]


def test_a_stream_through_a_buffering_proxy_arrives_whole(server: ThreadedServer, topic: str) -> None:
    with BufferingProxy(server.url) as proxy, http_client(proxy.url) as client:
        answer = client.post(f"{topic}/partitions/0/records", content=BODY, headers=NDJSON)
    assert answer.status_code == 200
    count, last = acknowledged(answer)
    assert (count, "error" in last) == (LINES, False)
    assert proxy.sent_bytes > len(BODY)


def test_the_proxy_of_this_test_cuts_off_a_stream_that_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect is how it was: the answer begins with the first lines. Its last line says so at least."""
    monkeypatch.setattr("app.produce.record_stream.RecordStream.hold_answer", lambda self: None)
    with ThreadedServer(tmp_path / "data", **SHORT_GRACE) as server:
        httpx.put(f"{server.url}/v1/topics/t").raise_for_status()
        with BufferingProxy(server.url) as proxy, http_client(proxy.url) as client:
            answer = client.post("/v1/topics/t/partitions/0/records", content=BODY, headers=NDJSON)
        end = httpx.get(f"{server.url}/v1/topics/t/partitions/0").json()["log_end_offset"]
    count, last = acknowledged(answer)
    assert proxy.sent_bytes < len(BODY)
    assert 0 < count == end == last["error"]["acknowledged_lines"] < LINES


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_a_stream_through_nginx_arrives_whole(server: ThreadedServer, topic: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # Its workers write long bodies there, where nobody else may.
    user = "user root;" if os.geteuid() == 0 else ""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    site = f"server {{ listen 127.0.0.1:{port}; client_max_body_size 100m; location / {{ proxy_pass {server.url}; }} }}"
    (tmp_path / "conf").write_text(
        f"{user} daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} "
        f"http {{ access_log off; {paths} {site} }}"
    )
    nginx = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "conf")], stderr=subprocess.DEVNULL)
    try:
        with http_client(f"http://127.0.0.1:{port}") as client:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with contextlib.suppress(httpx.ConnectError):
                    client.get("/healthz")
                    break
            count, last = acknowledged(client.post(f"{topic}/partitions/0/records", content=BODY, headers=NDJSON))
    finally:
        nginx.terminate()
        nginx.wait(30)
    assert (count, "error" in last) == (LINES, False)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    """A service that waits for bodies for a moment only."""
    with ThreadedServer(tmp_path_factory.mktemp("impatient") / "data", **SHORT_GRACE) as server:
        httpx.put(f"{server.url}/v1/topics/t", json={"partitions": 2}).raise_for_status()
        yield server


def cut_off(server: ThreadedServer, path: str, framing: str, pieces: list[bytes]) -> tuple[int, bytes]:
    """Send a head and the beginning of a body, and nothing more; the status and the whole body of the answer."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n{framing}\r\n\r\n"
        connection.sendall(head.encode() + b"".join(pieces))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        # IncompleteRead, if the answer has no end.
        return answer.status, answer.read()


def framed(piece: bytes, framing: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if framing.startswith("Transfer") else piece


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("place", ["partitions/0/records", "records"])
def test_a_stream_that_is_cut_off_says_so_in_its_last_line(impatient: ThreadedServer, place: str, framing: str) -> None:
    ends = [f"{impatient.url}/v1/topics/t/partitions/{number}" for number in range(2)]
    before = sum(httpx.get(end).json()["log_end_offset"] for end in ends)
    pieces = [framed(b'{"value":"a"}\n{"value":"b"}\n{"value":"half a l', framing)]
    status, content = cut_off(impatient, f"/v1/topics/t/{place}", framing, pieces)
    assert status == 200
    told = [json.loads(line) for line in content.splitlines()]
    kept = sum(httpx.get(end).json()["log_end_offset"] for end in ends) - before
    assert sum(line.get("record_count", 0) for line in told) == kept == 2
    assert told[-1]["error"]["code"] == "request_timeout"
    assert told[-1]["error"].get("acknowledged_lines") == (2 if place.startswith("partitions") else None)


def test_a_stream_that_breaks_the_framing_of_its_body_says_so_in_its_last_line(impatient: ThreadedServer) -> None:
    framing = "Transfer-Encoding: chunked"
    pieces = [framed(b'{"value":"a"}\n', framing), b"no length of a chunk\r\n"]
    status, content = cut_off(impatient, "/v1/topics/t/partitions/0/records", framing, pieces)
    last = json.loads(content.splitlines()[-1])
    last = last["error"] if status == 200 else last
    assert last["code"] == "malformed_request"


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_stream_without_acknowledgements_that_is_cut_off_does_not_say_that_nothing_was_applied(
    impatient: ThreadedServer, framing: str
) -> None:
    path = "/v1/topics/t/partitions/0/records?acks=0"
    status, content = cut_off(impatient, path, framing, [framed(b'{"value":"a"}\n{"val', framing)])
    problem = json.loads(content)
    assert (status, problem["code"]) == (408, "request_timeout")
    assert (problem["applied"], problem["acknowledged_lines"]) == ("unknown", 1)


def test_a_client_that_pauses_is_answered_although_it_announced_a_length(server: ThreadedServer, topic: str) -> None:
    line = b'{"value":"a"}\n'
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST {topic}/partitions/0/records HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{head}Content-Length: {2 * len(line)}\r\n\r\n".encode() + line)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert json.loads(answer.readline())["base_offset"] == 0
        connection.sendall(line)
        assert json.loads(answer.readline())["base_offset"] == 1
        assert answer.read() == b""


LONG = 3_000_000


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("place", ["partitions/0/records", "records"])
def test_a_long_line_is_a_record(server: ThreadedServer, client: httpx.Client, place: str, encoding: str) -> None:
    path = f"/v1/topics/long-{encoding}-{place.count('/')}"
    client.put(path, json={"config": {"max.message.bytes": 8_000_000}}).raise_for_status()
    body = json.dumps({"value": "x" * LONG}).encode() + b"\n" + b'{"value":"y"}\n'
    content = gzip.compress(body) if encoding == "gzip" else body
    answer = client.post(f"{path}/{place}", content=content, headers={**NDJSON, "Content-Encoding": encoding})
    assert (answer.status_code, acknowledged(answer)[0]) == (200, 2)
    assert len(client.get(f"{path}/partitions/0/records/0/value").content) == LONG
    assert client.get(f"{path}/partitions/0/records/1/value").text == "y"


def test_a_line_above_the_limit_is_refused(tmp_path: Path) -> None:
    with (
        ThreadedServer(tmp_path / "data", request_body_bytes_max=4_000_000) as server,
        http_client(server.url) as client,
    ):
        client.put("/v1/topics/t").raise_for_status()
        body = json.dumps({"value": "x" * 6_000_000}).encode()
        refused = client.post("/v1/topics/t/partitions/0/records", content=body, headers=NDJSON)
        assert (refused.status_code, refused.json()["code"]) == (413, "request_too_large")
        assert server.service.parts.body_budget.held_bytes == 0


def test_long_lines_count_among_the_memory_of_bodies(tmp_path: Path) -> None:
    budget_bytes = 8_000_000
    with (
        ThreadedServer(
            tmp_path / "data",
            request_body_bytes_max=7_000_000,
            request_bodies_bytes_max=budget_bytes,
            # None of the bodies ends, and none is to be refused as slow.
            request_body_grace_ms=600_000,
        ) as server,
        http_client(server.url) as client,
    ):
        client.put("/v1/topics/t").raise_for_status()
        host, port = server.url.removeprefix("http://").split(":")
        head = f"POST /v1/topics/t/records HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
        head += "Content-Length: 9000000\r\n\r\n"
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(3):
                connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
                connections.append(connection)
                # Refused on the way, and reset by a service that does not read on.
                with contextlib.suppress(ConnectionError):
                    connection.sendall(head.encode() + b'{"value":"' + b"x" * 6_500_000)
                # The first is in memory before the next one comes: of two that come at once both may be refused.
                while server.service.parts.body_budget.held_bytes < 6_500_000:
                    client.get("/healthz")
            refused = http.client.HTTPResponse(connections[-1])
            refused.begin()
            assert (refused.status, json.loads(refused.read())["code"]) == (503, "overloaded")
            assert server.service.parts.body_budget.held_bytes <= budget_bytes
        until = time.monotonic() + 30
        while server.service.parts.body_budget.held_bytes and time.monotonic() < until:
            client.get("/healthz")
        assert server.service.parts.body_budget.held_bytes == 0


def test_a_long_line_that_does_not_end_costs_no_time(tmp_path: Path) -> None:
    """The service once went round without end as long as it lived, the client being gone or not."""
    with ServerProcess(tmp_path / "data") as server, http_client(server.url) as client:
        client.put("/v1/topics/t").raise_for_status()
        host, port = server.url.removeprefix("http://").split(":")
        head = f"POST /v1/topics/t/records HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(f"{head}Content-Length: 9000000\r\n\r\n".encode() + b'{"value":"' + b"x" * LONG)
            client.get("/healthz").raise_for_status()
            assert busy_share(server.pid, client) < 0.5
        assert busy_share(server.pid, client) < 0.5


def busy_share(pid: int, client: httpx.Client) -> float:
    """The share of a core that a process takes in a second, in which it is asked for little."""
    began, ticks = time.monotonic(), _ticks(pid)
    while time.monotonic() < began + 1:
        client.get("/healthz", params=None)
        threading.Event().wait(0.1)
    return (_ticks(pid) - ticks) / 100 / (time.monotonic() - began)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
