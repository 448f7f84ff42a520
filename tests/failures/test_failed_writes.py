"""A request that failed inside may have been carried out: who writes must hear ``applied: unknown``, never ``no``."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.fetch.fetching import Fetching
from app.quotas.limits import QuotaEntity, QuotaKind, QuotaTable
from app.quotas.sampled_rate import THROTTLE_MS_MAX, SampledRate
from app.quotas.throttling import Quotas
from tests.support.servers import ThreadedServer, http_client

RECORDS = {"records": [{"value": "x"}]}
EVERYBODY = QuotaEntity("<default>", None)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        assert client.put("/v1/topics/failed").status_code == 201
        yield client


PATH = "/v1/topics/failed/partitions/0/records"


def end_of(client: httpx.Client) -> int:
    return int(client.get("/v1/topics/failed/partitions/0").json()["log_end_offset"])


@pytest.mark.parametrize("rate", ["1e-320", "5e-324", "0.0009999", "-1", "0"])
@pytest.mark.parametrize("kind", [kind.value for kind in QuotaKind])
def test_a_quota_that_nobody_can_keep_is_refused(client: httpx.Client, kind: str, rate: str) -> None:
    body = f'{{"{kind}":{rate}}}'
    refused = client.put("/v1/quotas?user=%3Cdefault%3E", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, f"/{kind}")
    assert client.get("/v1/quotas").json()["data"] == []


@pytest.mark.parametrize("kind", list(QuotaKind))
@pytest.mark.parametrize("rate", [1e-320, 1e-12])
def test_a_quota_of_an_older_file_breaks_no_request(
    server: ThreadedServer, client: httpx.Client, kind: QuotaKind, rate: float
) -> None:
    """It may be stored from before there was a least one."""
    for _ in range(3):
        # Known to the fast path.
        assert client.post(PATH, json=RECORDS).status_code == 200
    server.call(
        lambda: setattr(server.service.parts.quotas, "table", QuotaTable().with_limits(EVERYBODY, {kind: rate}))
    )
    before = end_of_log(server)
    answers = [client.post(PATH, json=RECORDS), client.get(f"{PATH}?offset=0"), client.get(f"{PATH}?offset=0")]
    for answer in answers:
        assert answer.status_code in (200, 429), answer.text
        assert int(answer.headers.get("throttle-time-ms", "0")) <= THROTTLE_MS_MAX
    appended = end_of_log(server) - before
    assert appended == (answers[0].status_code == 200)


def end_of_log(server: ThreadedServer) -> int:
    return int(server.service.parts.engine.manager.partition("failed", 0).snapshot.log_end_offset)


def test_how_long_to_wait_has_a_number_for_every_quota() -> None:
    for bound in (5e-324, 1e-320, 1e-9, 1e-3, 1.0):
        rate = SampledRate()
        rate.record(2.0**40, 0)
        wait_ms = rate.throttle_ms(bound, 0)
        assert 0 < wait_ms <= THROTTLE_MS_MAX
        assert math.isfinite(wait_ms)


def test_a_write_that_fails_behind_the_append_is_unknown(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every way: plain requests on the connection, the routes, parts, and lines."""
    for _ in range(3):
        assert client.post(PATH, json=RECORDS).status_code == 200

    def fail(_: Quotas, kind: QuotaKind, *_rest: object) -> int:
        if kind is QuotaKind.PRODUCE:
            raise RuntimeError("planted behind the append")
        return 0

    # Every append is charged once the engine has taken it.
    monkeypatch.setattr(Quotas, "charge", fail)
    parts = {"partitions": [{"topic": "failed", "partition": 0, **RECORDS}]}
    requests: list[tuple[str, dict[str, Any]]] = [
        (PATH, {"json": RECORDS}),
        (f"{PATH}?acks=1", {"json": RECORDS}),
        (f"{PATH}?timeout_ms=999", {"json": RECORDS, "headers": {"Idempotency-Key": "k"}}),
        ("/v1/topics/failed/records", {"json": RECORDS}),
        ("/v1/produce", {"json": parts}),
        ("/v1/produce?atomic=true", {"json": parts}),
    ]
    for path, content in requests:
        before = end_of(client)
        answer = client.post(path, **content)
        problem = answer.json()
        found = (answer.status_code, problem["code"], problem["applied"], problem["retryable"])
        assert found == (500, "internal_error", "unknown", False), path
        assert end_of(client) > before, path
    lines = client.post(PATH, content=b'{"value":"x"}\n', headers={"Content-Type": "application/x-ndjson"})
    last = json.loads(lines.content.splitlines()[-1])
    assert (last if lines.status_code == 500 else last["error"])["applied"] == "unknown"


def test_the_check_finds_writes_that_are_called_not_applied(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the answer as it was."""
    monkeypatch.setattr("app.problems.request_context.may_change", lambda _: False)
    with pytest.raises(AssertionError):
        test_a_write_that_fails_behind_the_append_is_unknown(client, monkeypatch)


def test_a_read_that_fails_has_changed_nothing(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.post(PATH, json=RECORDS).status_code == 200

    def fail(*_: object) -> None:
        raise RuntimeError("planted in a read")

    monkeypatch.setattr(Fetching, "count_fetched", fail)
    answer = client.get(f"{PATH}?offset=0&max_bytes=1001")
    assert (answer.status_code, answer.json()["applied"]) == (500, "no")


def test_a_failure_in_a_callback_of_the_parser_is_ours_and_not_the_clients(
    server: ThreadedServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the bytes: 500, not 400. The head is not plain, so the parser has it."""

    def fail(*_: object) -> None:
        raise RuntimeError("planted in a callback")

    monkeypatch.setattr("app.http.connection.request_reader.check_names", fail)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        body = json.dumps(RECORDS)
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nRange: x\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    assert received.startswith(b"HTTP/1.1 500")
    problem = json.loads(received.partition(b"\r\n\r\n")[2])
    assert (problem["code"], problem["applied"]) == ("internal_error", "unknown")
    assert "RuntimeError" not in json.dumps(problem)
