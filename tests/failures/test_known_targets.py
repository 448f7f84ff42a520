"""Percent-encoded bytes of paths and queries are UTF-8: others were all read as U+FFFD, so that two names were one."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from tests.support.servers import ThreadedServer

ALLOWED = "percent-encode the text's UTF-8, %C3%A9 for é"


def fault_of(answer: httpx.Response) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_request"), answer.text
    assert answer.json()["applied"] == "no"
    (fault,) = answer.json()["errors"]
    assert answer.json()["detail"] == f"{fault['pointer']}: {fault['detail']}"
    return dict(fault)


def test_two_groups_do_not_share_positions(client: httpx.Client, topic: str) -> None:
    positions = {topic.rsplit("/", 1)[1]: {"0": 0}}
    for group, shown in [("a%FF", "%FF"), ("a%fe", "%FE"), ("a%ED%A0%80", "%ED"), ("a%C0%80b", "%C0")]:
        path = f"/v1/groups/{group}/start-positions"
        for answer in [client.post(path, json={"positions": positions}), client.get(path), client.delete(path)]:
            fault = fault_of(answer)
            assert fault["pointer"] == "group_id"
            assert fault["detail"] == f"the byte {shown} is not UTF-8; {ALLOWED}"
    # The character itself is a name like any other.
    assert client.get("/v1/groups/a%EF%BF%BD/start-positions").json()["positions"] == {}


@pytest.mark.parametrize(
    ("method", "target", "pointer"),
    [
        ("GET", "/v1/transactions/%FF", "transactional_id"),
        ("POST", "/v1/transactions/a%FF/abort", "transactional_id"),
        ("GET", "/v1/jobs/%FF", "job_id"),
        ("GET", "/v1/jobs?application_id=%FF", "application_id"),
        ("GET", "/v1/jobs?limit=1&application_id=a%ff", "application_id"),
        ("GET", "/v1/topics?prefix=%80", "prefix"),
        ("HEAD", "/v1/topics?prefix=%80", "prefix"),
        ("GET", "/healthz?%FF", "%FF"),
        ("GET", "/v1/topics?%ff=%ff", "%ff"),
        ("GET", "/v1/topics/t/partitions/%D9", "partition"),
        ("GET", "/v1/topics/t/partitions/0/records?offset=%FF", "offset"),
        ("DELETE", "/v1/acls?resource_name=a%FF", "resource_name"),
    ],
)
def test_no_parameter_has_other_bytes(client: httpx.Client, method: str, target: str, pointer: str) -> None:
    answer = client.request(method, target)
    if method == "HEAD":
        assert answer.status_code == 400
    else:
        assert fault_of(answer)["pointer"] == pointer


@pytest.mark.parametrize("parameter", ["prefix=é".encode(), b"prefix=\xff", b"\xff=1"])
def test_no_target_has_bytes_that_are_not_encoded(server: ThreadedServer, parameter: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /v1/topics?%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % parameter)
        assert connection.makefile("rb").readline().split()[1] == b"400"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/groups/%C3%A9%F0%9F%98%80/start-positions", 200),
        ("/v1/topics?prefix=%25%41", 200),
        ("/v1/topics?prefix=%zz", 200),
        ("/v1/topics?prefix=%EF%BF%BD", 200),
        ("/%zz", 404),
        ("/%ff", 404),
    ],
)
def test_utf_8_and_odd_percents_are_no_malformed_requests(client: httpx.Client, target: str, status: int) -> None:
    assert client.get(target).status_code == status


def test_a_topic_keeps_its_own_code(client: httpx.Client) -> None:
    refused = client.put("/v1/topics/%ff", json={})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_topic")
