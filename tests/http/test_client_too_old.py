"""The library of before is refused where the JSON of records has changed since, and nowhere else."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.routes.dependencies import LIBRARY_OF_BEFORE
from rollway.client import ClientSettings, ProblemError, RollwayClient
from rollway.client.transport import USER_AGENT
from rollway.records import Record, columns_from_records, encode_batch
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

ROOT = Path(__file__).parents[2]
BATCHES = "application/vnd.kafka.record-batch.v2"
LINES = "application/x-ndjson"
BATCH = encode_batch(columns_from_records([Record(0, 1_700_000_000_000, b"k", b"v")]))
ONE = {"records": [{"value": "v"}]}

Request = tuple[str, str, dict[str, Any]]
CHANGED: list[Request] = [
    ("POST", "{topic}/partitions/0/records", {"json": ONE}),
    ("POST", "{topic}/partitions/0/records?encoding=base64", {"json": {"records": [{"value_base64": "AA=="}]}}),
    ("POST", "{topic}/partitions/0/records", {"content": b'{"value":"v"}\n', "headers": {"Content-Type": LINES}}),
    ("POST", "{topic}/partitions/0/records", {"content": BATCH, "headers": {"Content-Type": BATCHES}}),
    ("POST", "{topic}/records", {"json": ONE}),
    ("POST", "/v1/produce", {"json": {"partitions": []}}),
    ("GET", "{topic}/partitions/0/records?offset=0", {}),
    ("GET", "{topic}/partitions/0/records?offset=0", {"headers": {"Accept": LINES}}),
    ("GET", "{topic}/partitions/0/records?offset=0", {"headers": {"Accept": BATCHES}}),
    ("GET", "{topic}/partitions/0/records/0", {}),
    ("POST", "/v1/fetch", {"json": {"partitions": []}}),
]
UNCHANGED: list[Request] = [
    ("GET", "{topic}", {}),
    ("GET", "{topic}/partitions/0/records/0/value", {}),
    ("GET", "{topic}/partitions/0/offsets?timestamp=earliest", {}),
    ("POST", "{topic}/splits", {}),
    ("GET", "/healthz", {}),
]


def ask(client: httpx.Client, topic: str, request: Request, user_agent: str) -> httpx.Response:
    method, path, more = request
    headers = {**more.get("headers", {}), "User-Agent": user_agent, "Client-Id": user_agent}
    return client.request(method, path.replace("{topic}", topic), **{**more, "headers": headers})


@pytest.fixture
def written(client: httpx.Client, topic: str) -> str:
    client.post(f"{topic}/partitions/0/records", json=ONE).raise_for_status()
    return topic


def names(requests: list[Request]) -> list[str]:
    return [f"{method} {path} {sorted(more.get('headers', {}).values())}" for method, path, more in requests]


@pytest.mark.parametrize("request_", CHANGED, ids=names(CHANGED))
def test_the_library_of_before_is_refused_and_told_what_to_do(
    client: httpx.Client, written: str, request_: Request
) -> None:
    end = client.get(f"{written}/partitions/0").json()["log_end_offset"]
    # The first lets the fast path know what follows.
    assert ask(client, written, request_, USER_AGENT).is_success
    assert ask(client, written, request_, USER_AGENT).is_success
    between = client.get(f"{written}/partitions/0").json()["log_end_offset"]
    for _ in range(2):
        refused = ask(client, written, request_, LIBRARY_OF_BEFORE)
        assert (refused.status_code, refused.json()["code"]) == (400, "client_too_old")
        assert (refused.json()["retryable"], refused.json()["applied"]) == (False, "no")
        for word in ("value_base64", "key_base64", "install the rollway package"):
            assert word in refused.json()["detail"]
    assert client.get(f"{written}/partitions/0").json()["log_end_offset"] == between >= end
    for other in ("rollways", "rollway/2", "rollway rollway", "curl/8", ""):
        assert ask(client, written, request_, other).is_success


@pytest.mark.parametrize("request_", [CHANGED[0], CHANGED[3], CHANGED[6]], ids=str)
def test_however_the_header_is_written(server: ThreadedServer, written: str, request_: Request) -> None:
    """With blanks around the name, and beside another one: what a proxy adds makes no library a new one."""
    method, path, more = request_
    fields = [f"{name}: {value}\r\n" for name, value in more.get("headers", {}).items()]
    body = more.get("content", json.dumps(more["json"]).encode() if "json" in more else b"")
    if "json" in more:
        fields.append("Content-Type: application/json\r\n")
    head = f"{method} {path.replace('{topic}', written)} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"

    def status_of(*user_agents: str) -> int:
        sent = [*fields, *(f"User-Agent:{each}\r\n" for each in user_agents)]
        with Connection(int(server.url.rpartition(":")[2])) as connection:
            connection.send((head + "".join(sent) + "\r\n").encode() + body)
            return connection.read_answer().status

    for refused in (("rollway",), (" rollway",), (" \trollway \t",), (" curl/8", " rollway"), (" rollway", " curl/8")):
        assert [status_of(*refused) for _ in range(2)] == [400, 400], refused
    for taken in ((" Rollway",), (" rollway/0.1.0",), (" rollway, curl/8",), (" x rollway",), ("", "")):
        assert [status_of(*taken) for _ in range(2)] == [200, 200], taken


@pytest.mark.parametrize("request_", UNCHANGED, ids=names(UNCHANGED))
def test_what_has_not_changed_is_answered(client: httpx.Client, written: str, request_: Request) -> None:
    assert ask(client, written, request_, LIBRARY_OF_BEFORE).is_success


@pytest.fixture
def library_of_before(server: ThreadedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[RollwayClient]:
    """Today's, with the name and the path that it had: it knew no ``record-batches``."""
    monkeypatch.setattr("rollway.client.transport.USER_AGENT", LIBRARY_OF_BEFORE)
    monkeypatch.setattr(
        "rollway.client.client._record_batches",
        lambda topic, partition: f"/v1/topics/{topic}/partitions/{partition}/records",
    )
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


def test_a_program_of_before_gets_the_sentence(library_of_before: RollwayClient, written: str) -> None:
    name = written.rpartition("/")[2]
    with pytest.raises(ProblemError, match="install the rollway package") as refused:
        library_of_before.fetch(name, 0, offset=0, max_bytes=1000, isolation="read_uncommitted")
    assert refused.value.code == "client_too_old"
    with pytest.raises(ProblemError, match="install the rollway package"):
        library_of_before.produce_batches(name, 0, [BATCH])


def test_the_library_says_its_version_and_its_client_id_apart(server: ThreadedServer, written: str) -> None:
    project = tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]
    assert f"{project['name']}/{project['version']}" == USER_AGENT
    with RollwayClient(ClientSettings(server.url, client_id=LIBRARY_OF_BEFORE)) as client:
        name = written.rpartition("/")[2]
        assert client.fetch(name, 0, offset=0, max_bytes=1000, isolation="read_uncommitted").batches
