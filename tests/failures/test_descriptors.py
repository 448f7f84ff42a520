"""Partitions must leave connections the descriptors that those need."""

from __future__ import annotations

import contextlib
import functools
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.engine_local.partitions.partition_room import FileRoom, connections_within
from app.settings import Settings
from log_model.clock import ManualClock
from log_model.errors import TooManyOpenFilesError
from tests.support.servers import ServerProcess, ThreadedServer, http_client

CONNECTIONS = 20


def limited(
    data_dir: Path, descriptors: int, settings: dict[str, str] | None = None, *, before: str = ""
) -> ServerProcess:
    """A service of this many descriptors, soft and hard."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors})); "
        f"{before}from app.cli import main; main()"
    )
    return ServerProcess(data_dir, command=[sys.executable, "-c", code], environment=settings)


def count_answered(url: str) -> int:
    """Connections that are answered while all of them are open."""
    port = int(url.rpartition(":")[2])
    answered = 0
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(CONNECTIONS)
        ]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answered += connection.recv(100).startswith(b"HTTP/1.1 200")
    return answered


def await_that(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def append(client: httpx.Client, topic: str, number: int) -> httpx.Response:
    return client.post(f"/v1/topics/{topic}/partitions/{number}/records", json={"records": [{"value": "x"}]})


def is_taken(client: httpx.Client, number: int) -> bool:
    return append(client, "many", number).status_code == 200


def test_partitions_leave_connections_their_descriptors(tmp_path: Path) -> None:
    idle = {"ROLLWAY_PARTITION_IDLE_MS": "300", "ROLLWAY_PARTITION_IDLE_CHECK_INTERVAL_MS": "200"}
    with limited(tmp_path / "data", 256) as process, http_client(process.url) as client:
        # A partition without requests has no file open.
        assert client.put("/v1/topics/many", json={"partitions": 1_000}).status_code == 201
        assert count_answered(process.url) == CONNECTIONS
        answers = [append(client, "many", number) for number in range(200)]
        written = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        assert 20 <= len(written) < 100
        refused = answers[-1].json()
        assert (answers[-1].status_code, refused["code"], refused["applied"]) == (503, "too_many_open_files", "no")
        assert "kept for connections" in refused["detail"]
        assert count_answered(process.url) == CONNECTIONS
        # Who has its files open goes on.
        assert append(client, "many", written[0]).json()["base_offset"] == 1
    with limited(tmp_path / "data", 256, idle) as process, http_client(process.url) as client:
        first = range(200, 220)
        assert {append(client, "many", number).status_code for number in first} == {200}
        # What is idle gives its files back, and then all the others are written one after the other.
        for number in range(300, 500):
            await_that(functools.partial(is_taken, client, number))
        assert count_answered(process.url) == CONNECTIONS
        for number in (*first, 300, 499):
            found = client.get(f"/v1/topics/many/partitions/{number}/records?offset=0").json()["records"]
            assert [record["value"] for record in found] == ["x"]
        assert append(client, "many", first[0]).json()["base_offset"] == 1


def test_partitions_in_all_have_a_limit(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", partition_count_max=5) as server, http_client(server.url) as client:
        assert client.put("/v1/topics/a", json={"partitions": 3}).status_code == 201
        refused = client.put("/v1/topics/b", json={"partitions": 3})
        assert (refused.status_code, refused.json()["code"], refused.json()["kafka_code"]) == (
            403,
            "policy_violation",
            44,
        )
        assert "partition_count_max" in refused.json()["detail"]
        assert client.patch("/v1/topics/a", json={"partitions": 6}).status_code == 403
        assert client.get("/v1/topics/b").status_code == 404
        assert client.patch("/v1/topics/a", json={"config": {"retention.ms": 1}}).status_code == 200
        assert client.put("/v1/topics/b", json={"partitions": 2}).status_code == 201
        assert client.put("/v1/topics/b", json={"partitions": 2}).status_code == 200
        # Topics of the service's own are not refused for it.
        assert client.post("/v1/producers", json={"transactional_id": "t"}).status_code == 200


@pytest.mark.parametrize(("open_files", "room"), [(0, 40), (119, 0), (100, 6), (120, 0), (10_000, 0), (None, 40)])
def test_room_is_what_connections_and_files_leave(open_files: int | None, room: int) -> None:
    """Of 256 descriptors 120 are for connections and 16 are spare; a partition takes three."""
    clock = ManualClock()
    rooms = FileRoom(
        Settings(connections_max=120), clock, descriptors_allowed=lambda: 256, open_file_count=lambda: open_files
    )
    assert rooms.is_short is (room < 10)
    for _ in range(room):
        rooms.take()
    with pytest.raises(TooManyOpenFilesError, match="of 256 136 are kept for connections"):
        rooms.take()
    assert rooms.is_short
    # They are counted again after a second.
    clock.advance(999)
    with pytest.raises(TooManyOpenFilesError):
        rooms.take()
    clock.advance(1)
    for _ in range(room):
        rooms.take()
    with pytest.raises(TooManyOpenFilesError):
        rooms.take()


def test_how_many_connections_there_are() -> None:
    assert [connections_within(allowed) for allowed in (256, 1_024, 20_000)] == [128, 512, 11_808]


def test_the_check_finds_a_service_without_a_reserve(tmp_path: Path) -> None:
    """Planted: partitions open their files without asking, as they did."""
    code = "from app.engine_local.partitions.partition_room import FileRoom; FileRoom.take = lambda _: None; "
    with limited(tmp_path / "data", 256, before=code) as process, http_client(process.url) as client:
        assert client.put("/v1/topics/many", json={"partitions": 1_000}).status_code == 201
        for number in range(200):
            with contextlib.suppress(httpx.HTTPError):
                append(client, "many", number)
        assert count_answered(process.url) < CONNECTIONS
