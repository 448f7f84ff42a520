"""Topics must leave connections the descriptors that those need, and a refused topic must leave nothing."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.engine_local.partitions.partition_room import PARTITION_DESCRIPTORS, PartitionRoom, connections_within
from app.settings import Settings
from log_model.errors import TooManyOpenFilesError
from storage.manager.log_manager import LogManager
from tests.support.servers import ServerProcess, ThreadedServer, http_client

CONNECTIONS = 20


def limited(data_dir: Path, descriptors: int) -> ServerProcess:
    """A service of this many descriptors, soft and hard."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors})); "
        "from app.cli import main; main()"
    )
    return ServerProcess(data_dir, command=[sys.executable, "-c", code])


def fill(client: httpx.Client, partition_count: int) -> httpx.Response:
    """Make topics until one is refused; the refusal."""
    for number in range(1_000):
        answer = client.put(f"/v1/topics/full{number}", json={"partitions": partition_count})
        if answer.status_code != 201:
            return answer
    raise AssertionError("nothing was refused")


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


@pytest.mark.parametrize("partition_count", [1, 7])
def test_topics_leave_connections_their_descriptors(tmp_path: Path, partition_count: int) -> None:
    with limited(tmp_path / "data", 256) as process, http_client(process.url) as client:
        refused = fill(client, partition_count)
        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["applied"]) == (503, "too_many_open_files", "no")
        assert "kept for connections" in problem["detail"]
        topics = [topic["name"] for topic in client.get("/v1/topics").json()["data"]]
        assert topics
        assert count_answered(process.url) == CONNECTIONS
        # Neither does a topic that exists take more, nor is there anything of the one that was refused.
        grown = client.patch(f"/v1/topics/{topics[0]}", json={"partitions": 1_000})
        assert (grown.status_code, grown.json()["code"]) == (503, "too_many_open_files")
        name = f"full{len(topics)}"
        assert client.get(f"/v1/topics/{name}").status_code == 404
        assert not list((tmp_path / "data" / "logs").glob(f"{name}-*"))
        # The same again is answered as it is, and what is deleted makes room.
        assert client.put(f"/v1/topics/{topics[0]}", json={"partitions": partition_count}).status_code == 200
    with limited(tmp_path / "data", 256) as process, http_client(process.url) as client:
        assert [topic["name"] for topic in client.get("/v1/topics").json()["data"]] == topics
        assert client.get(f"/v1/topics/{name}").status_code == 404
        assert count_answered(process.url) == CONNECTIONS


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


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    opened = LogManager.open(tmp_path / "data")
    yield opened
    opened.close()


@pytest.mark.parametrize(("open_files", "room"), [(0, 24), (119, 0), (100, 4), (120, 0), (10_000, 0)])
def test_room_is_what_connections_and_files_leave(manager: LogManager, open_files: int, room: int) -> None:
    """Of 256 descriptors 120 are for connections and 16 are spare; a partition takes five, or three."""
    settings = Settings(connections_max=120)
    rooms = PartitionRoom(manager, settings, descriptors_allowed=lambda: 256, open_file_count=lambda: open_files)
    room = room if PARTITION_DESCRIPTORS == 5 else max(0, (120 - open_files) // PARTITION_DESCRIPTORS)
    with pytest.raises(TooManyOpenFilesError, match=f"room for {room} more"):
        rooms.create_topic("more", room + 1, {})
    assert not manager.topics
    if room:
        assert rooms.create_topic("fits", room, {})[1]


def test_where_open_files_cannot_be_counted_partitions_are(manager: LogManager) -> None:
    rooms = PartitionRoom(
        manager, Settings(connections_max=1), descriptors_allowed=lambda: 67, open_file_count=lambda: None
    )
    # 67 less one connection and 16 spare.
    room = 50 // PARTITION_DESCRIPTORS
    for number in range(room):
        rooms.create_topic(f"t{number}", 1, {})
    with pytest.raises(TooManyOpenFilesError, match="room for 0 more"):
        rooms.create_topic("more", 1, {})


def test_how_many_connections_there_are() -> None:
    assert [connections_within(allowed) for allowed in (256, 1_024, 20_000)] == [128, 512, 11_808]


def test_the_check_finds_a_service_without_a_reserve(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: creation asks nobody, as it did."""
    monkeypatch.setattr(PartitionRoom, "_check", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        test_room_is_what_connections_and_files_leave(manager, 120, 0)
    assert "more" in manager.topics
