"""Who asks, and what they may, holds for plain requests as for all others, from the next request on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.access import bearer, make_keys
from tests.support.edge_server import Answer, Connection
from tests.support.servers import ServerProcess, ThreadedServer, http_client
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

BATCH = record_batch(b"one")
RAW = "application/vnd.kafka.record-batch.v2"


def produce(credential: str | None) -> bytes:
    lines = ["POST /v1/topics/t/partitions/0/records HTTP/1.1", "Host: a", f"Content-Type: {RAW}"]
    if credential is not None:
        lines.append(f"Authorization: Bearer {credential}")
    return "\r\n".join([*lines, f"Content-Length: {len(BATCH)}", "", ""]).encode() + BATCH


class Stand(NamedTuple):
    server: ThreadedServer
    client: httpx.Client
    connection: Connection
    admin: str
    writer: str
    reader: str

    def ask(self, credential: str | None) -> tuple[Answer, bool]:
        """The answer, and whether it was the fast path's."""
        before = self.server.fast_path_count
        self.connection.send(produce(credential))
        return self.connection.read_answer(), self.server.fast_path_count > before

    def change(self, operation: str, principal: str) -> None:
        entry = {"principal": principal, "operation": operation, "resource_type": "topic", "resource_name": "t"}
        answer = self.client.post("/v1/acls", json={"acls": [entry]}, headers=bearer(self.admin))
        assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def stand(tmp_path: Path) -> Iterator[Stand]:
    data_dir = tmp_path / "data"
    admin, writer, reader = make_keys(data_dir, "User:admin", "User:writer", "User:reader")
    with (
        ThreadedServer(data_dir, authentication=True, super_users=["User:admin"]) as server,
        http_client(server.url) as client,
        Connection(int(server.url.rpartition(":")[2])) as connection,
    ):
        assert client.put("/v1/topics/t", headers=bearer(admin)).status_code == 201
        made = Stand(server, client, connection, admin, writer, reader)
        made.change("WRITE", "User:writer")
        made.change("READ", "User:reader")
        # The application takes the first, so that the query is known.
        assert made.ask(writer)[0].status == 200
        yield made


def test_a_key_with_the_right_is_answered_here(tmp_path: Path) -> None:
    with stand(tmp_path) as made:
        for credential in (made.writer, made.admin):
            answer, is_fast = made.ask(credential)
            assert (answer.status, is_fast) == (200, True)


def test_others_are_refused_by_the_application(tmp_path: Path) -> None:
    with stand(tmp_path) as made:
        wrong = made.writer[:-1] + ("a" if made.writer[-1] != "a" else "b")
        for credential, status in ((made.reader, 403), (wrong, 401), ("nonsense", 401), (None, 401)):
            answer, is_fast = made.ask(credential)
            assert (answer.status, is_fast) == (status, False), credential
        metrics = made.client.get("/metrics", headers=bearer(made.admin)).text
        # The wrong one and the nonsense, each counted once.
        assert "rollway_authentication_failures_total 2.0" in metrics


def test_what_is_taken_away_is_gone_with_the_next_request(tmp_path: Path) -> None:
    with stand(tmp_path) as made:
        assert made.ask(made.writer)[1]
        removed = made.client.delete("/v1/acls", params={"principal": "User:writer"}, headers=bearer(made.admin))
        assert removed.is_success
        answer, is_fast = made.ask(made.writer)
        assert (answer.status, is_fast) == (404, False)
        made.change("WRITE", "User:writer")
        assert made.ask(made.writer)[1]
        number = made.writer.split("_")[1]
        assert made.client.delete(f"/v1/keys/{number}", headers=bearer(made.admin)).is_success
        answer, is_fast = made.ask(made.writer)
        assert (answer.status, json.loads(answer.body)["code"], is_fast) == (401, "unauthenticated", False)


def test_the_access_log_has_plain_requests_too(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    (admin,) = make_keys(data_dir, "User:admin")
    environment = {
        "ROLLWAY_ACCESS_LOG": "true",
        "ROLLWAY_AUTHENTICATION": "true",
        "ROLLWAY_SUPER_USERS": "User:admin",
    }
    with ServerProcess(data_dir, "--log-format", "json", environment=environment) as server:
        httpx.put(f"{server.url}/v1/topics/t", headers=bearer(admin))
        with Connection(int(server.url.rpartition(":")[2])) as connection:
            answers = []
            for _ in range(3):
                connection.send(produce(admin))
                answers.append(connection.read_answer())
        server.stop()
        lines = {line.get("request_id"): line for line in map(json.loads, server.errors().splitlines())}
    for answer in answers:
        line = lines[answer.headers["x-request-id"]]
        assert (line["logger"], line["method"], line["status"]) == ("uvicorn.access", "POST", 200)
        assert (line["path"], line["principal"]) == ("/v1/topics/t/partitions/0/records", "User:admin")
        assert line["client"].startswith("127.0.0.1:")
