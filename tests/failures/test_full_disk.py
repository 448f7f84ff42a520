"""A disk without a free block: what frees space works, the space comes back at once, and appends go on."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from log_model.clock import ManualClock
from storage.disk import ballast
from storage.disk.ballast import Ballast
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import FULL_DISK_KINDS, Fault
from tests.crash.workload import new_disk
from tests.support.servers import ServerProcess, ThreadedServer
from tests.support.small_disk import SmallDisk

RECORDS = "/v1/topics/events/partitions/0/records"
ROLLWAY = [sys.executable, "-c", "from app.cli import main; main()"]
# What is free on the disk of 5 MiB once the segments are gone, with the journal: about 3.8 million, less what goes on.
SEGMENTS_BYTES = 3_000_000
LARGE, SMALL = {"records": [{"value": "x" * 20_000}]}, {"records": [{"value": "x"}]}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", "5m") as disk:
        yield disk


def fill(disk: SmallDisk, client: httpx.Client, **config: object) -> None:
    """A topic of many segments, and then no free block."""
    settings = {"segment.bytes": 100_000, "retention.ms": -1, "file.delete.delay.ms": 0, **config}
    assert client.put("/v1/topics/events", json={"partitions": 1, "config": settings}).status_code == 201
    for body in (LARGE, SMALL):
        while (status := client.post(RECORDS, json=body).status_code) == 200:
            pass
        assert status == 507
    disk.fill()
    refused = client.post(RECORDS, json=LARGE)
    assert (refused.status_code, refused.json()["code"], refused.json()["applied"]) == (507, "disk_full", "no")


def alter_by_command(client: httpx.Client) -> None:
    alter = ["topics", "alter", "events", "--config", "retention.bytes=200000", "-s", str(client.base_url)]
    done = subprocess.run([*ROLLWAY, *alter], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Altered topic events.\n"), done.stderr


def alter(client: httpx.Client) -> None:
    answer = client.patch("/v1/topics/events", json={"config": {"retention.bytes": 200_000}})
    assert answer.status_code == 200, answer.text


def put_retention(client: httpx.Client) -> None:
    policy = {"retention_ms": None, "retention_bytes": 200_000, "cleanup_policy": None}
    answer = client.put("/v1/topics/events/retention", json=policy)
    assert answer.status_code == 200, answer.text


def delete_records(client: httpx.Client) -> None:
    answer = client.post("/v1/topics/events/partitions/0/delete-records", json={"offset": -1})
    assert answer.status_code == 200, answer.text


def expire_everything(client: httpx.Client) -> None:
    """The active segment goes as well, so that a new one must be begun first."""
    answer = client.patch("/v1/topics/events", json={"config": {"retention.ms": 0}})
    assert answer.status_code == 200, answer.text


WAYS: list[Callable[[httpx.Client], None]] = [
    alter_by_command,
    alter,
    put_retention,
    delete_records,
    expire_everything,
]


def run_retention(client: httpx.Client) -> None:
    answer = client.post("/v1/topics/events/retention/run")
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["deleted"]) > 15


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline


def await_appends(client: httpx.Client) -> None:
    """Appends go on by themselves."""
    await_that(lambda: client.post(RECORDS, json=LARGE).status_code == 200)


def left_by_segments(disk: SmallDisk) -> int:
    """The free bytes, and those of the journal: its files, which have a limit of their own, are used again."""
    found = os.statvfs(disk.path)
    journal = (disk.path / "data/rollway/journal").glob("*")
    return found.f_bavail * found.f_frsize + sum(path.stat().st_size for path in journal)


@pytest.mark.parametrize("way_out", WAYS)
def test_the_ways_out_of_a_full_disk_work(disk: SmallDisk, way_out: Callable[[httpx.Client], None]) -> None:
    with disk.serve() as server, httpx.Client(base_url=server.url, timeout=30) as client:
        fill(disk, client)
        way_out(client)
        run_retention(client)
        await_appends(client)
        # Segments took the disk, but for the ballast and the journal. Files that are unlinked and held open keep more
        # than a million of it.
        await_that(lambda: left_by_segments(disk) > SEGMENTS_BYTES)
        await_that(lambda: (disk.path / "data/rollway/ballast").stat().st_size == ballast.BALLAST_BYTES)


def test_a_topic_is_deleted_and_another_takes_its_place(disk: SmallDisk) -> None:
    with disk.serve() as server, httpx.Client(base_url=server.url, timeout=30) as client:
        fill(disk, client)
        assert client.delete("/v1/topics/events").status_code == 204
        # All but the ballast, the journal and what fills the disk: no refused append holds a file of the topic open.
        await_that(lambda: left_by_segments(disk) > SEGMENTS_BYTES)
        await_that(lambda: client.put("/v1/topics/events", json={"partitions": 1}).status_code == 201)
        await_appends(client)


def test_producers_that_try_again_do_not_take_the_room_of_the_way_out(disk: SmallDisk) -> None:
    with disk.serve() as server, httpx.Client(base_url=server.url, timeout=30) as client:
        fill(disk, client)
        stop = threading.Event()

        def produce() -> None:
            with httpx.Client(base_url=server.url, timeout=30) as producer:
                while not stop.is_set():
                    assert producer.post(RECORDS, json=LARGE).status_code in {200, 507}

        producers = [threading.Thread(target=produce) for _ in range(3)]
        for producer in producers:
            producer.start()
        try:
            # One change after the other: each must find its room.
            for limit in range(800_000, 200_000, -100_000):
                answer = client.patch("/v1/topics/events", json={"config": {"retention.bytes": limit}})
                assert answer.status_code == 200, answer.text
            run_retention(client)
        finally:
            stop.set()
            for producer in producers:
                producer.join()
        await_appends(client)


def test_the_check_finds_settings_that_get_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without the ballast, settings are refused on a full disk."""
    clock = ManualClock()
    disk = new_disk(clock)
    manager = LogManager.open(Path("/data"), file_system=disk, clock=clock)
    manager.create_topic("events", 1)
    disk.fault = Fault(at=0, error=28, lasting=True, kinds=FULL_DISK_KINDS)
    with monkeypatch.context() as planted:
        planted.setattr(Ballast, "run", lambda _self, work: work())
        with pytest.raises(Exception, match="could not be altered"):
            manager.alter_topic("events", config={"retention.bytes": 1})
    disk.fault = None
    assert manager.alter_topic("events", config={"retention.bytes": 1}).config.retention_bytes == 1


def test_a_creation_that_was_refused_leaves_nothing(tmp_path: Path) -> None:
    # Without the room that is kept for connections, so that the system itself refuses.
    program = "from app.engine_local.partitions.partition_room import FileRoom; FileRoom.take = lambda _: None; "
    rollway = [sys.executable, "-c", program + "from app.cli import main; main()"]
    limited = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *rollway]
    refused = []
    with (
        ServerProcess(tmp_path / "data", command=limited) as server,
        httpx.Client(base_url=server.url) as client,
        contextlib.ExitStack() as idle,
    ):
        for name in ("t0", "t1", "wide"):
            assert client.put(f"/v1/topics/{name}", json={"partitions": 30 if name == "wide" else 1}).status_code == 201
        for number in range(30):
            client.post(f"/v1/topics/wide/partitions/{number}/records", json={"records": [{"value": "x"}]})
        # What is left is too little for a partition, and connections take it.
        port = int(server.url.rpartition(":")[2])
        for _ in range(64):
            idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        for number in range(2, 20):
            answer = client.put(f"/v1/topics/t{number}", json={"partitions": 1})
            if answer.status_code == 503:
                assert (answer.json()["code"], answer.json()["applied"]) == ("too_many_open_files", "no")
                refused.append(f"t{number}")
        assert len(refused) > 5
        # Partitions that were being added go as well, and deleting needs no free descriptor.
        assert client.patch("/v1/topics/t0", json={"partitions": 9}).status_code == 503
        assert client.get("/v1/topics/t0").json()["partitions"][1:] == []
        assert client.delete("/v1/topics/t1").status_code == 204
        made = [topic["name"] for topic in client.get("/v1/topics?limit=100").json()["data"]]
        assert not set(made) & set(refused)
        directories = {path.name for path in (tmp_path / "data/logs").iterdir() if not path.name.endswith("-delete")}
        assert {name for name in directories if name[0] == "t"} == {f"{name}-0" for name in made if name != "wide"}
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url) as client:
        assert [topic["name"] for topic in client.get("/v1/topics?limit=100").json()["data"]] == made
        for name in refused:
            assert client.put(f"/v1/topics/{name}", json={"partitions": 1}).status_code == 201


def test_the_data_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "a" / "b" / "c") as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
    assert (tmp_path / "a/b/c/logs").is_dir()
