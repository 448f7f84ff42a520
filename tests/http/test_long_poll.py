"""Fetches that wait."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.support.servers import ServerProcess, ThreadedServer, http_client


class Poll:
    """A fetch in a thread of its own."""

    def __init__(self, server: ThreadedServer | ServerProcess, path: str, **params: Any) -> None:
        self._url = f"{server.url}{path}/records"
        self._params = {"offset": "latest", "wait_ms": 30_000, **params}
        self.answer: httpx.Response | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        self.answer = httpx.get(self._url, params=self._params, timeout=60)
        self.seconds = time.monotonic() - began

    def result(self) -> httpx.Response:
        self._thread.join(60)
        assert self.answer is not None
        return self.answer


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


def waiting_count(server: ThreadedServer) -> int:
    return int(server.service.metrics.registry.get_sample_value("rollway_waiting_fetches") or 0)


def test_an_append_answers_a_waiting_fetch(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    path = f"{topic}/partitions/0"
    polls = [Poll(server, path) for _ in range(5)]
    other = Poll(server, f"{topic}/partitions/1", wait_ms=500)
    until(lambda: waiting_count(server) == 6)
    client.post(f"{path}/records", json={"records": [{"value": "news"}]})
    for poll in polls:
        (record,) = poll.result().json()["records"]
        assert (record["value"], poll.seconds < 10) == ("news", True)
    assert other.result().json()["records"] == []
    assert 0.5 <= other.seconds < 10
    assert waiting_count(server) == 0


def test_nothing_in_time_is_an_empty_200(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    answer = client.get(f"{topic}/partitions/0/records", params={"offset": 0, "wait_ms": 20})
    assert (answer.status_code, answer.json()["records"], answer.headers["next-offset"]) == (200, [], "0")


def test_what_is_there_is_answered_at_once(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "a"}, {"value": "b"}]})
    began = time.monotonic()
    assert len(client.get(path, params={"offset": 0, "wait_ms": 30_000}).json()["records"]) == 2
    closed = {"offset": 0, "end_offset": 1, "wait_ms": 30_000, "min_bytes": 10_000}
    assert len(client.get(path, params=closed).json()["records"]) == 1
    assert client.get(path, params={"offset": 9, "wait_ms": 30_000}).status_code == 416
    assert time.monotonic() - began < 10


def test_min_bytes_waits_for_more(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "a" * 100}]})
    poll = Poll(server, path, offset=0, min_bytes=300)
    until(lambda: waiting_count(server) == 1)
    client.post(f"{path}/records", json={"records": [{"value": "b" * 10}]})
    assert waiting_count(server) == 1
    client.post(f"{path}/records", json={"records": [{"value": "c" * 100}]})
    assert [record["value"][0] for record in poll.result().json()["records"]] == ["a", "b", "c"]


def test_min_bytes_not_reached_answers_what_there_is(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "a"}]})
    answer = client.get(path, params={"offset": 0, "wait_ms": 20, "min_bytes": 10_000})
    assert [record["value"] for record in answer.json()["records"]] == ["a"]


def test_a_deleted_topic_and_a_passed_log_start_answer_a_waiting_fetch(
    client: httpx.Client, server: ThreadedServer, topic: str
) -> None:
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "a"}, {"value": "b"}]})
    passed = Poll(server, path, offset=0, min_bytes=10_000)
    gone = Poll(server, f"{topic}/partitions/1")
    until(lambda: waiting_count(server) == 2)
    client.post(f"{path}/delete-records", json={"offset": 1})
    assert (passed.result().status_code, passed.result().json()["log_start_offset"]) == (410, 1)
    assert client.delete(topic).status_code == 204
    assert (gone.result().status_code, gone.result().json()["kafka_code"]) == (404, 3)


@pytest.mark.parametrize(("is_reset", "status"), [(True, 499), (False, 200)])
def test_a_client_that_goes_away_leaves_no_waiter(
    client: httpx.Client,
    server: ThreadedServer,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    is_reset: bool,
    status: int,
) -> None:
    """One that only closes may still read, as far as the service can tell: it is answered at once."""
    route = "/v1/topics/{topic}/partitions/{partition}/records"
    counter = f'rollway_http_requests_total{{method="GET",route="{route}",status="{status}"}}'
    before = count_of(client, counter)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(
            f"GET {topic}/partitions/0/records?offset=0&wait_ms=30000 HTTP/1.1\r\nHost: a\r\n\r\n".encode()
        )
        until(lambda: waiting_count(server) == 1)
        if is_reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    until(lambda: waiting_count(server) == 0)
    until(lambda: count_of(client, counter) == before + 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_fetch_that_waited_is_one_request_with_one_number(
    client: httpx.Client, server: ThreadedServer, topic: str
) -> None:
    """It waits outside of the application, and comes back with what it brought."""
    path = f"{topic}/partitions/0/records"
    for method in ("GET", "HEAD"):
        labels = f'{{method="{method}",route="/v1/topics/{{topic}}/partitions/{{partition}}/records",status="200"}}'
        before = count_of(client, f"rollway_http_requests_total{labels}")
        answer = client.request(
            method, path, params={"offset": "latest", "wait_ms": 20}, headers={"X-Request-Id": f"number-of-{method}"}
        )
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, f"number-of-{method}")
        assert "next-offset" in answer.headers
        assert answer.headers["vary"] == "Accept, Accept-Encoding"
        assert count_of(client, f"rollway_http_requests_total{labels}") == before + 1


def count_of(client: httpx.Client, name: str) -> float:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_requests_behind_a_waiting_one_are_answered_in_their_order(
    client: httpx.Client, server: ThreadedServer, topic: str
) -> None:
    """HTTP/1.1 pipelining: the connection keeps the order while a request waits outside of the application."""
    path = f"{topic}/partitions/0/records"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        for query in ("wait_ms=30000&offset=0", "wait_ms=20&offset=1", "offset=7"):
            connection.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: waiting_count(server) == 1)
        client.post(path, json={"records": [{"value": "news"}]})
        received = b""
        while b"HTTP/1.1 416 " not in received:
            received += connection.recv(65_536)
        assert received.index(b'"news"') < received.index(b'"records":[]') < received.index(b"HTTP/1.1 416 ")
    assert waiting_count(server) == 0


def test_a_server_that_cannot_park_requests_waits_inside(server: ThreadedServer, topic: str) -> None:
    """The application is plain ASGI: it asks for nothing that a server must have."""

    async def poll_in_process() -> tuple[httpx.Response, float]:
        transport = httpx.ASGITransport(app=server.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as inside:
            began = time.monotonic()
            answer = await inside.get(f"{topic}/partitions/0/records", params={"offset": 0, "wait_ms": 20})
            return answer, time.monotonic() - began

    assert server.service.loop is not None
    answer, seconds = asyncio.run_coroutine_threadsafe(poll_in_process(), server.service.loop).result(30)
    assert (answer.status_code, answer.json()["records"], seconds >= 0.02) == (200, [], True)


def test_waiters_have_a_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Invariant 9."""
    data_dir = tmp_path_factory.mktemp("few-waiters") / "data"
    with ThreadedServer(data_dir, waiter_count_max=2) as server, http_client(server.url) as client:
        client.put("/v1/topics/t")
        path = "/v1/topics/t/partitions/0"
        polls = [Poll(server, path) for _ in range(2)]
        until(lambda: waiting_count(server) == 2)
        refused = client.get(f"{path}/records", params={"offset": 0, "wait_ms": 30_000})
        assert (refused.status_code, refused.json()["code"], refused.json()["retryable"]) == (503, "overloaded", True)
        assert int(refused.headers["retry-after"]) >= 1
        client.post(f"{path}/records", json={"records": [{"value": "a"}]})
        assert [poll.result().status_code for poll in polls] == [200, 200]


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_sigterm_answers_long_polls_and_stops_cleanly(tmp_path_factory: pytest.TempPathFactory) -> None:
    """docs/explanation/durability.md#promises-under-faults: SIGTERM with long polls; the next start scans nothing."""
    data_dir = tmp_path_factory.mktemp("stopped") / "data"
    count = 200
    with ServerProcess(data_dir) as server:
        with http_client(server.url) as client:
            client.put("/v1/topics/t", json={"partitions": 2})
            client.post("/v1/topics/t/partitions/0/records", json={"records": [{"value": "kept"}]})

        async def poll_and_stop() -> tuple[list[httpx.Response], float]:
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:
                params = {"offset": "latest", "wait_ms": 60_000}
                polls = [
                    asyncio.ensure_future(client.get("/v1/topics/t/partitions/0/records", params=params))
                    for _ in range(count)
                ]
                waiting = ""
                while f"rollway_waiting_fetches {count}.0" not in waiting:
                    waiting = (await client.get("/metrics")).text
                began = time.monotonic()
                server.signal(15)
                return await asyncio.gather(*polls), began

        answers, began = asyncio.run(poll_and_stop())
        assert server.wait() == 0
        assert time.monotonic() - began < 10
    assert [answer.status_code for answer in answers] == [200] * count
    assert all(answer.json()["records"] == [] for answer in answers)
    assert (data_dir / "logs" / ".kafka_cleanshutdown").exists()
    with ServerProcess(data_dir) as again:
        metrics = httpx.get(f"{again.url}/metrics").text
        assert "rollway_recovery_scanned_bytes 0.0" in metrics
        records = httpx.get(f"{again.url}/v1/topics/t/partitions/0/records?offset=0").json()["records"]
        assert [record["value"] for record in records] == ["kept"]
        assert "Traceback" not in server.errors()
