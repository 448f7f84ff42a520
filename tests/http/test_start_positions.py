"""Start positions: the first answer counts, for everybody, for as long as somebody asks, whatever dies."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.access.access_documents import acl_from
from app.access.acls import Acl
from app.cli.administration.offline_access import open_registry
from log_model.clock import ManualClock
from tests.support.access import bearer
from tests.support.servers import ServerProcess, ThreadedServer, http_client

_numbers = count()


@pytest.fixture
def group() -> str:
    return f"/v1/groups/readers {next(_numbers)}/start-positions"


@pytest.fixture
def name(topic: str) -> str:
    return topic.rpartition("/")[2]


def pin(client: httpx.Client, group: str, positions: dict[str, dict[str, int]], status: int) -> Any:
    answer = client.post(group, json={"positions": positions})
    assert answer.status_code == status, answer.text
    return answer.json()["positions"] if status < 300 else answer.json()


def test_who_asks_first_decides(client: httpx.Client, group: str, name: str) -> None:
    assert pin(client, group, {name: {"0": 7}}, 201) == {name: {"0": 7}}
    assert pin(client, group, {name: {"0": 9}}, 200) == {name: {"0": 7}}
    assert pin(client, group, {name: {"1": 2**63 - 1, "0": 9}}, 201) == {name: {"1": 2**63 - 1, "0": 7}}
    assert pin(client, group, {name: {"1": 0}}, 200) == {name: {"1": 2**63 - 1}}
    assert pin(client, group, {}, 200) == {}
    found = client.get(group).json()
    assert found == {"group_id": group.split("/")[3], "positions": {name: {"0": 7, "1": 2**63 - 1}}}
    assert client.get(f"{group}".replace("readers", "others")).json()["positions"] == {}


def test_many_who_ask_at_once_are_told_the_same(client: httpx.Client, group: str, name: str) -> None:
    told: list[Any] = []

    def ask(offset: int) -> None:
        told.append(client.post(group, json={"positions": {name: {"0": offset, "1": offset}}}))

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in told) == [200] * 15 + [201]
    (positions,) = {str(answer.json()["positions"]) for answer in told}
    assert positions == str(client.get(group).json()["positions"])


def test_forgetting_is_of_a_topic_or_of_all(client: httpx.Client, group: str, name: str) -> None:
    client.put(f"/v1/topics/{name}.more")
    both = {name: {"0": 1}, f"{name}.more": {"0": 2}}
    pin(client, group, both, 201)
    assert client.delete(group, params={"topic": "nowhere"}).json()["positions"] == {}
    assert client.delete(group, params={"topic": name}).json()["positions"] == {name: {"0": 1}}
    assert client.get(group).json()["positions"] == {f"{name}.more": {"0": 2}}
    pin(client, group, {name: {"0": 5}}, 201)
    assert client.delete(group).json()["positions"] == {name: {"0": 5}, f"{name}.more": {"0": 2}}
    assert client.delete(group).json()["positions"] == {}


def test_a_topic_made_anew_is_another(client: httpx.Client, group: str, name: str) -> None:
    pin(client, group, {name: {"0": 7, "1": 8}}, 201)
    client.delete(f"/v1/topics/{name}")
    assert client.get(group).json()["positions"] == {}
    assert pin(client, group, {name: {"0": 7}}, 404)["kafka_code"] == 3
    client.put(f"/v1/topics/{name}", json={"partitions": 2})
    assert client.get(group).json()["positions"] == {}
    assert pin(client, group, {name: {"0": 1}}, 201) == {name: {"0": 1}}
    assert client.get(group).json()["positions"] == {name: {"0": 1}}


def test_one_partition_that_is_not_there_pins_nothing(client: httpx.Client, group: str, name: str) -> None:
    assert pin(client, group, {name: {"0": 1, "99": 1}}, 404)["code"] == "unknown_topic_or_partition"
    assert pin(client, group, {name: {"0": 1}, "nowhere": {}}, 404)["code"] == "unknown_topic_or_partition"
    assert client.get(group).json()["positions"] == {}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"positions": {"t": {"0": -1}}},
        {"positions": {"t": {"0": 2**63}}},
        {"positions": {"t": {"0": "1"}}},
        {"positions": {"t": {"-1": 1}}},
        {"positions": {"t": {"01": 1}}},
        {"positions": {"t": {"2147483648": 1}}},
        {"positions": {"a b": {"0": 1}}},
        {"positions": {"t": {"0": 1}}, "more": 1},
    ],
)
def test_what_is_no_position_is_422(client: httpx.Client, group: str, body: dict[str, Any]) -> None:
    answer = client.post(group, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text


@pytest.mark.parametrize("group_id", ["x" * 250, "a%0Ab", "%2E%2E"])
def test_what_is_no_group_is_422(client: httpx.Client, group_id: str) -> None:
    answer = client.get(f"/v1/groups/{group_id}/start-positions")
    assert answer.status_code in (404, 422)
    assert client.get(f"/v1/groups/{'x' * 250}/start-positions").json()["errors"][0]["pointer"] == "group_id"


def test_there_are_limits(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", start_position_count_max=3_010) as server, http_client(server.url) as client:
        client.put("/v1/topics/t", json={"partitions": 20})
        first = {str(partition): 5 for partition in range(10)}
        for number in range(301):
            pin(client, f"/v1/groups/g{number}/start-positions", {"t": first}, 201)
        assert "rollway_start_positions 3010.0" in client.get("/metrics").text
        refused = pin(client, "/v1/groups/one-more/start-positions", {"t": {"0": 1}}, 503)
        assert (refused["code"], refused["retryable"]) == ("overloaded", True)
        assert pin(client, "/v1/groups/g0/start-positions", {"t": {"0": 9}}, 200) == {"t": {"0": 5}}
        client.delete("/v1/groups/g1/start-positions")
        pin(client, "/v1/groups/one-more/start-positions", {"t": {"0": 1}}, 201)


def test_what_nobody_asks_for_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"start_position_expiration_ms": 10_000, "start_position_check_interval_ms": 20}
    asked, idle = "/v1/groups/asked/start-positions", "/v1/groups/idle/start-positions"
    with ThreadedServer(tmp_path / "data", clock=clock, **settings) as server, http_client(server.url) as client:
        client.put("/v1/topics/t")
        for group in (asked, idle):
            pin(client, group, {"t": {"0": 4}}, 201)
        clock.advance(6_000)
        assert pin(client, asked, {"t": {"0": 9}}, 200) == {"t": {"0": 4}}
        clock.advance(6_000)
        while client.get(idle).json()["positions"]:
            pass
        assert client.get(asked).json()["positions"] == {"t": {"0": 4}}
        assert pin(client, idle, {"t": {"0": 9}}, 201) == {"t": {"0": 9}}


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    groups = [f"/v1/groups/g{number}/start-positions" for number in range(8)]
    service = ServerProcess(tmp_path / "data").start()
    try:
        told: dict[str, Any] = {}
        for offset in range(4):
            with http_client(service.url) as client:
                client.put("/v1/topics/t", json={"partitions": 4})
                killing = threading.Timer(0.005 * offset, service.kill_if_alive)
                killing.start()
                for group in groups:
                    try:
                        answer = client.post(group, json={"positions": {"t": {str(offset): offset, "0": offset}}})
                    except httpx.HTTPError:
                        break
                    assert answer.status_code in (200, 201), answer.text
                    told.setdefault(group, {}).update(answer.json()["positions"]["t"])
                    assert answer.json()["positions"]["t"].items() <= told[group].items()
                killing.join()
            service.kill_if_alive()
            service = ServerProcess(tmp_path / "data").start()
            with http_client(service.url) as client:
                for group, positions in told.items():
                    assert positions.items() <= client.get(group).json()["positions"]["t"].items()
    finally:
        service.kill_if_alive()


@pytest.mark.needs_local("it looks into the data directory")
def test_a_damaged_log_stops_start_positions_alone(tmp_path: Path) -> None:
    group = "/v1/groups/g/start-positions"
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        client.put("/v1/topics/t")
        pin(client, group, {"t": {"0": 4}}, 201)
    (log,) = (tmp_path / "data").glob("logs/__start_positions-0/*0.log")
    content = bytearray(log.read_bytes())
    content[-4] ^= 255
    log.write_bytes(content)
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        for answer in (
            client.get(group),
            client.post(group, json={"positions": {"t": {"0": 1}}}),
            client.delete(group),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "partition_offline")
        assert client.post("/v1/topics/t/records", json={"records": [{"value": "v"}]}).status_code == 200


def test_the_right_to_the_topic_is_needed_too(tmp_path: Path) -> None:
    with open_registry(tmp_path / "data") as registry:
        registry.acls.super_users = frozenset({"User:admin"})
        _, super_key = registry.create_key("User:admin")
        _, key = registry.create_key("User:reader")
        rights = [("READ", "group", "g"), ("READ", "topic", "mine"), ("DESCRIBE", "topic", "seen")]
        registry.add_acls(_acl(*right) for right in rights)
    group = "/v1/groups/g/start-positions"
    settings = {"authentication": True, "super_users": ["User:admin"]}
    with ThreadedServer(tmp_path / "data", **settings) as server:
        with http_client(server.url, headers=bearer(super_key)) as client:
            for topic in ("mine", "seen", "hidden"):
                client.put(f"/v1/topics/{topic}")
                pin(client, group, {topic: {"0": 3}}, 201)
        with http_client(server.url, headers=bearer(key)) as client:
            assert pin(client, group, {"mine": {"0": 5}}, 200) == {"mine": {"0": 3}}
            assert pin(client, group, {"seen": {"0": 5}}, 403)["kafka_code"] == 29
            assert pin(client, group, {"hidden": {"0": 5}}, 404)["kafka_code"] == 3
            assert client.get(group).json()["positions"] == {"mine": {"0": 3}, "seen": {"0": 3}}
            assert client.delete(group).status_code == 403


def _acl(operation: str, kind: str, name: str) -> Acl:
    return acl_from({"principal": "User:reader", "operation": operation, "resource_type": kind, "resource_name": name})
