"""Files of a running service that another process cuts or removes, and disks that change under it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from rollway.records import Record, columns_from_records, encode_batch
from storage.disk.file_system import LocalFile
from storage.manager.log_manager import LogManager
from storage.segment.file_watch import FileWatch
from tests.support.servers import ServerProcess, ThreadedServer
from tests.support.small_disk import SmallDisk
from tests.support.writers import append_request

RECORDS = "/v1/topics/t/partitions/0/records"
FIRST = "00000000000000000000"
RAW = "application/vnd.kafka.record-batch.v2"
LARGE = {"records": [{"value": "x" * 3000, "timestamp": 1_700_000_000_000}]}


def await_that(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline


def filled(client: httpx.Client, **config: object) -> None:
    """A topic with some sealed segments and an active one, 100 records."""
    settings = {"segment.bytes": 100_000, "index.interval.bytes": 0, **config}
    assert client.put("/v1/topics/t", json={"partitions": 1, "config": settings}).status_code == 201
    for number in range(100):
        record = {"value": f"{number}" + "x" * 3000, "timestamp": 1_700_000_000_000 + number}
        assert client.post(RECORDS, json={"records": [record]}).status_code == 200


def assert_found(client: httpx.Client, count: int = 100) -> None:
    """Every record is found by its offset and by its time."""
    for number in range(count):
        answer = client.get(RECORDS, params={"offset": number, "max_bytes": 1})
        assert answer.json()["records"][0]["offset"] == number
        found = client.get("/v1/topics/t/partitions/0/offsets", params={"timestamp": 1_700_000_000_000 + number})
        assert found.json()["offset"] == number, found.text


@pytest.mark.parametrize("left_bytes", [0, 13, 4096])
def test_look_ups_survive_indexes_that_are_cut(tmp_path: Path, left_bytes: int) -> None:
    """A read behind the end of a mapped file killed the process (SIGBUS)."""
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        filled(client)
        assert_found(client)
        paths = [path for suffix in ("index", "timeindex") for path in (tmp_path / "data/logs/t-0").glob(f"*.{suffix}")]
        assert len(paths) >= 8
        for path in paths:
            os.truncate(path, min(left_bytes, path.stat().st_size))
        assert_found(client)
        assert client.post(RECORDS, json=LARGE).status_code == 200
        active = max(paths)
        # The active segment's are written again, zeros behind their entries.
        await_that(lambda: active.stat().st_size > 100_000)
        assert client.get("/readyz").status_code == 200
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert_found(client)


def removed(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replaced(path: Path) -> None:
    path.with_suffix(".copy").write_bytes(path.read_bytes())
    path.with_suffix(".copy").replace(path)


@pytest.mark.parametrize("damage", [removed, cut, replaced])
@pytest.mark.parametrize("policy", [{}, {"flush.policy": "group"}], ids=["interval", "group"])
def test_appends_to_a_file_that_is_gone_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], policy: dict[str, str]
) -> None:
    with ServerProcess(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        settings = {"segment.bytes": 100_000_000, **policy}
        assert client.put("/v1/topics/t", json={"partitions": 1, "config": settings}).status_code == 201
        assert client.put("/v1/topics/other", json={"partitions": 1}).status_code == 201
        assert client.post(RECORDS, json=LARGE).status_code == 200
        damage(tmp_path / f"data/logs/t-0/{FIRST}.log")
        began = time.monotonic()
        await_that(lambda: client.post(RECORDS, json=LARGE, params={"acks": "1"}).status_code == 503, 20)
        # Within a second, with some for a machine that is busy.
        assert time.monotonic() - began < 5
        refused = client.post(RECORDS, json=LARGE)
        assert (refused.status_code, refused.json()["code"]) == (503, "partition_offline")
        (partition,) = client.get("/v1/topics/t").json()["partitions"]
        assert "by another process" in partition["offline_reason"]
        assert client.post("/v1/topics/other/partitions/0/records", json=LARGE).status_code == 200


def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look of each second comes too late, or never."""
    monkeypatch.setattr(FileWatch, "check", lambda *_: None)


@pytest.mark.parametrize("left_bytes", [0, 100, 3000])
@pytest.mark.parametrize("kind", ["documents", "batches", "crowds of batches"])
def test_a_cut_is_seen_by_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, left_bytes: int
) -> None:
    """Appends that grew a cut file past its old length hid the cut from the look of each second."""
    never_looks(monkeypatch)
    with ThreadedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        assert send(client, kind) == {200}
        assert send(client, kind) == {200}
        os.truncate(tmp_path / f"data/logs/t-0/{FIRST}.log", left_bytes)
        assert send(client, kind) == {503}
        (partition,) = client.get("/v1/topics/t").json()["partitions"]
        assert "was cut by another process" in partition["offline_reason"]


def test_the_check_finds_appends_behind_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an append that does not look at the length goes where it thinks the end is."""
    never_looks(monkeypatch)
    monkeypatch.setattr("storage.segment.segment_file.SegmentFile.check_size", lambda *_: None)
    with ThreadedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        # A flush of the first append may come after the cut, and looks, too.
        settings = {"flush.policy": "interval", "flush.ms": 3_600_000}
        assert client.put("/v1/topics/t", json={"partitions": 1, "config": settings}).status_code == 201
        assert send(client, "documents") == {200}
        os.truncate(tmp_path / f"data/logs/t-0/{FIRST}.log", 100)
        assert send(client, "documents") == {200}


def send(client: httpx.Client, kind: str) -> set[int]:
    """Append without waiting for an fsync, which looks, too; the statuses."""
    parameters = {"acks": "1"}
    if kind == "documents":
        return {client.post(RECORDS, json=LARGE, params=parameters).status_code}
    count = 1 if kind == "batches" else 20
    batch = encode_batch(columns_from_records([Record(0, time.time_ns() // 1_000_000, None, b"x" * 5000)]))
    head = f"POST {RECORDS}?acks=1 HTTP/1.1\r\nHost: a\r\nContent-Length: {len(batch)}\r\nContent-Type: {RAW}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        address = (client.base_url.host, client.base_url.port)
        # All are sent before the first answer is read.
        sockets = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(count)]
        for each in sockets:
            each.sendall(head.encode() + batch)
        return {int(each.recv(65536).split()[1]) for each in sockets}


def test_a_flush_beside_appends_takes_none_of_them_for_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an append wrote between two looks of an fsync, at the length and at what is written, was called a cut."""
    manager = LogManager.open(tmp_path / "data")
    topic, _ = manager.create_topic("t", 1)
    log = topic.partitions[0]
    log.append([append_request(log, b"x")])
    real_size = LocalFile.size
    appended: list[bool] = []

    def size_then_an_append(self: LocalFile) -> int:
        found = real_size(self)
        if not appended:
            appended.append(True)
            log.append([append_request(log, b"y")])
        return found

    monkeypatch.setattr(LocalFile, "size", size_then_an_append)
    log.flush()
    assert appended
    assert log.offline_reason is None
    manager.close()


def test_the_check_finds_appends_that_nobody_looks_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without the look every append to a removed file is acknowledged, until an fsync looks."""
    monkeypatch.setattr(FileWatch, "check", lambda *_: None)
    monkeypatch.setattr("storage.segment.segment_file.SegmentFile.check", lambda *_: None)
    with ThreadedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
        assert client.post(RECORDS, json=LARGE).status_code == 200
        (tmp_path / f"data/logs/t-0/{FIRST}.log").unlink()
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            assert client.post(RECORDS, json=LARGE).status_code == 200


def test_a_read_only_disk_that_becomes_writable_takes_appends(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk") as disk:
        with disk.serve() as server, httpx.Client(base_url=server.url) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code == 201
            assert client.post(RECORDS, json=LARGE).status_code == 200
        disk.remount("ro")
        with disk.serve() as server, httpx.Client(base_url=server.url) as client, disk.serve() as second:
            # Who cannot write may share the directory; whoever writes must have it alone.
            assert client.get(RECORDS, params={"offset": 0}).json()["records"][0]["offset"] == 0
            assert client.post(RECORDS, json=LARGE).json()["code"] == "disk_full"
            disk.remount("rw")
            for url in (second.url, server.url, second.url):
                refused = httpx.post(url + RECORDS, json=LARGE)
                assert (refused.status_code, refused.json()["code"]) == (507, "disk_full")
                assert "another process uses this directory" in refused.json()["detail"]
            second.kill()
            await_that(lambda: client.post(RECORDS, json=LARGE).status_code == 200)
            assert client.post(RECORDS, json=LARGE, params={"acks": "all"}).status_code == 200
            assert client.put("/v1/topics/u", json={"partitions": 1}).status_code == 201
            # The mark of a clean stop is gone: a crash from now on is recovered from.
            assert not (disk.path / "data/logs/.kafka_cleanshutdown").exists()
            server.kill()
        with disk.serve() as server, httpx.Client(base_url=server.url) as client:
            offsets = [record["offset"] for record in client.get(RECORDS, params={"offset": 0}).json()["records"]]
            assert offsets == [0, 1, 2]
