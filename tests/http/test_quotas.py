"""Quotas over HTTP: set, in force at once, kept over a restart, and what a throttled client is told."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from log_model.clock import ManualClock
from storage.manager.log_manager import OWN_DIRECTORY
from tests.support.servers import ServerProcess, ThreadedServer, http_client

QUOTAS = "/v1/quotas"
RAW = "application/vnd.kafka.record-batch.v2"


def test_a_quota_is_listed_replaced_and_removed(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        assert client.get(QUOTAS).json() == {"data": []}
        answer = client.put(QUOTAS, params={"user": "alice"}, json={"producer_byte_rate": 1000})
        assert answer.status_code == 200, answer.text
        client.put(QUOTAS, params={"user": "<default>", "client_id": "loader"}, json={"request_rate": 2.5})
        client.put(QUOTAS, params={"user": "alice"}, json={"request_rate": 7})
        unset = {"producer_byte_rate": None, "consumer_byte_rate": None, "request_rate": None}
        assert client.get(QUOTAS).json()["data"] == [
            {**unset, "user": "<default>", "client_id": "loader", "request_rate": 2.5},
            {**unset, "user": "alice", "client_id": None, "request_rate": 7},
        ]
        assert client.delete(QUOTAS, params={"user": "alice"}).status_code == 204
        assert client.delete(QUOTAS, params={"user": "alice"}).status_code == 204
        assert [quota["user"] for quota in client.get(QUOTAS).json()["data"]] == ["<default>"]


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
            if number == 0:
                client.put(QUOTAS, params={"client_id": "loader"}, json={"request_rate": 5})
            assert [quota["client_id"] for quota in client.get(QUOTAS).json()["data"]] == ["loader"]


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_damaged_file_of_quotas_is_named_at_start(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        client.put(QUOTAS, params={"user": "alice"}, json={"request_rate": 5})
    path = tmp_path / "data" / OWN_DIRECTORY / "quotas"
    path.write_bytes(path.read_bytes().replace(b"alice", b"malie"))
    process = ServerProcess(tmp_path / "data")
    assert process.wait() == 1
    assert str(path) in process.errors()
    assert "Traceback" not in process.errors()


@pytest.mark.parametrize(
    ("params", "body", "pointer"),
    [
        ({}, {"request_rate": 1}, "user"),
        ({"user": ""}, {"request_rate": 1}, "user"),
        ({"user": "a b"}, {"request_rate": 1}, "user"),
        ({"client_id": "x" * 256}, {"request_rate": 1}, "client_id"),
        ({"user": "a"}, {"request_rate": 0}, "/request_rate"),
        ({"user": "a"}, {"request_rate": -1}, "/request_rate"),
        ({"user": "a"}, {"request_rate": "1"}, "/request_rate"),
        ({"user": "a"}, {"request_rate": 1e16}, "/request_rate"),
        ({"user": "a"}, {"rate": 1}, "/rate"),
    ],
)
def test_a_wrong_quota_is_named(tmp_path: Path, params: dict[str, str], body: dict[str, object], pointer: str) -> None:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        answer = client.put(QUOTAS, params=params, json=body)
        assert answer.status_code == 422, answer.text
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
        assert client.get(QUOTAS).json() == {"data": []}


def test_requests_above_the_rate_are_refused_until_their_time(tmp_path: Path) -> None:
    clock = ManualClock()
    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as client:
        client.put(QUOTAS, params={"client_id": "busy"}, json={"request_rate": 1})
        busy = {"Client-Id": "busy"}
        # Ten windows of one second are open at the first request.
        answers = [client.get("/v1/topics", headers=busy) for _ in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 11 + [429]
        problem = answers[-1].json()
        assert (problem["code"], problem["kafka_code"], problem["applied"]) == ("throttled", 89, "no")
        assert problem["throttle_time_ms"] == problem["retry_after_ms"] == 1000
        assert answers[-1].headers["Retry-After"] == "1"
        assert client.get("/v1/topics").status_code == 200
        assert client.get("/healthz", headers=busy).status_code == 200
        clock.advance(1000)
        assert client.get("/v1/topics", headers=busy).status_code == 200


def test_a_client_id_is_no_way_round_the_quota_of_a_user(tmp_path: Path) -> None:
    clock = ManualClock()
    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as client:
        client.put(QUOTAS, params={"user": "ANONYMOUS"}, json={"request_rate": 1})
        statuses = [
            client.get("/v1/topics", headers={"Client-Id": f"name-{number}"}).status_code for number in range(15)
        ]
        assert statuses.count(200) == 11


def test_who_has_locked_himself_out_can_let_himself_in(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", clock=ManualClock()) as server, http_client(server.url) as client:
        client.put(QUOTAS, params={"user": "<default>"}, json={"request_rate": 0.001})
        assert [client.get("/v1/topics").status_code for _ in range(2)] == [200, 429]
        assert client.delete(QUOTAS, params={"user": "<default>"}).status_code == 204
        assert client.get("/v1/topics").status_code == 200


def test_quotas_of_whom_nobody_knows_cost_nothing(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server:
        answers = [httpx.get(f"{server.url}/v1/topics", headers={"Client-Id": str(number)}) for number in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        assert not server.service.parts.quotas._accounts


def test_q_1_produce_over_http(tmp_path: Path) -> None:
    """Kafka's numbers, with the batch's own size as the unit."""
    clock = ManualClock()
    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as client:
        client.put("/v1/topics/a", json={"partitions": 1})
        path = "/v1/topics/a/partitions/0/records"
        body = {"records": [{"value": "x" * 400, "timestamp": 0}]}
        client.post(path, json=body)
        unit = client.get("/v1/topics/a/partitions/0").json()["size_bytes"]
        client.put(QUOTAS, params={"user": "ANONYMOUS"}, json={"producer_byte_rate": unit * 500 / 400})
        for _ in range(10):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.json()["throttle_time_ms"]) == (200, 0)
            assert "Throttle-Time-Ms" not in answer.headers
            clock.advance(1000)
        clock.advance(500)
        # 2300 units in Kafka's example: here six batches of 400 in one request, 2400.
        six = {"records": [{"value": "x" * 400, "timestamp": 0, "partition": 0}] * 6}
        answer = client.post("/v1/topics/a/records", json=six)
        assert answer.status_code == 200, answer.text
        throttle_ms = answer.json()["throttle_time_ms"]
        rate = (client.get("/v1/topics/a/partitions/0").json()["size_bytes"] - unit) / 10.5
        assert throttle_ms == round((rate / (unit * 500 / 400) - 1) * 10_500)
        assert answer.json()["results"][0]["throttle_time_ms"] == throttle_ms
        assert answer.headers["Throttle-Time-Ms"] == str(throttle_ms)
        refused = client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "throttled")
        assert refused.json()["retry_after_ms"] == throttle_ms
        assert client.get(path, params={"offset": 0}).status_code == 200
        end = client.get("/v1/topics/a/partitions/0").json()["log_end_offset"]
        assert end == 1 + 10 + 6
        clock.advance(throttle_ms)
        assert client.post(path, json=body).status_code == 200


def _topic_with_batches(client: httpx.Client, count: int) -> int:
    """A topic of ``count`` equal batches; the size of one."""
    client.put("/v1/topics/a", json={"partitions": 1})
    for _ in range(count):
        client.post("/v1/topics/a/partitions/0/records", json={"records": [{"value": "x" * 400, "timestamp": 0}]})
    return int(client.get("/v1/topics/a/partitions/0").json()["size_bytes"]) // count


def test_q_1_fetch_over_http(tmp_path: Path) -> None:
    """Kafka's numbers: a fetch that breaks the quota is empty, not counted, and says how long to wait."""
    clock = ManualClock()
    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as client:
        unit = _topic_with_batches(client, 30)
        bound = unit * 500 / 400
        client.put(QUOTAS, params={"user": "ANONYMOUS"}, json={"consumer_byte_rate": bound})
        path = "/v1/topics/a/partitions/0/records"
        raw = {"Accept": RAW}
        for number in range(10):
            answer = client.get(path, params={"offset": number, "max_bytes": unit}, headers=raw)
            assert len(answer.content) == unit
            clock.advance(1000)
        clock.advance(500)
        answer = client.get(path, params={"offset": 10, "max_bytes": 6 * unit, "end_offset": 16}, headers=raw)
        throttle_ms = round(((10 + 6) * unit / 10.5 / bound - 1) * 10_500)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["Throttle-Time-Ms"] == str(throttle_ms)
        assert answer.headers["Next-Offset"] == "10"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "ETag" not in answer.headers
        assert client.get(path, params={"offset": 10}).status_code == 429
        clock.advance(throttle_ms)
        assert len(client.get(path, params={"offset": 10, "max_bytes": unit}, headers=raw).content) == unit


def test_a_throttled_fetch_of_many_partitions_is_empty_and_keeps_its_session(tmp_path: Path) -> None:
    clock = ManualClock()
    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as client:
        unit = _topic_with_batches(client, 30)
        wanted = {"topic": "a", "partition": 0, "fetch_offset": 0, "max_bytes": unit}
        begun = client.post("/v1/fetch", json={"session_epoch": 0, "partitions": [wanted]}).json()
        session = {"session_id": begun["session_id"]}
        assert session["session_id"] > 0
        client.put(QUOTAS, params={"user": "ANONYMOUS"}, json={"consumer_byte_rate": unit / 10})
        moved = {**session, "session_epoch": 1, "partitions": [{**wanted, "fetch_offset": 1}]}
        assert len(client.post("/v1/fetch", json=moved).json()["partitions"]) == 1
        clock.advance(10_000)
        moved = {**session, "session_epoch": 2, "partitions": [{**wanted, "fetch_offset": 2}]}
        answer = client.post("/v1/fetch", json=moved)
        assert (answer.status_code, answer.json()["partitions"]) == (200, [])
        throttle_ms = answer.json()["throttle_time_ms"]
        assert answer.headers["Throttle-Time-Ms"] == str(throttle_ms)
        assert throttle_ms > 0
        clock.advance(11_000)
        answer = client.post("/v1/fetch", json={**session, "session_epoch": 3}).json()
        assert [record["offset"] for record in answer["partitions"][0]["records"]] == [2]


def test_single_records_count_too(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", clock=ManualClock()) as server, http_client(server.url) as client:
        _topic_with_batches(client, 1)
        client.put(QUOTAS, params={"user": "ANONYMOUS"}, json={"consumer_byte_rate": 60})
        path = "/v1/topics/a/partitions/0/records/0/value"
        assert [client.get(path).status_code for _ in range(3)] == [200, 200, 429]
        assert client.get("/v1/topics/a/partitions/0/records/0").status_code == 429
