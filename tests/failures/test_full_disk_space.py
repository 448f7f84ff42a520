"""After a full disk, the space of deleted segments and topics comes back at once: no refused request holds it."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from log_model.errors import DiskFullError, let_go_of_frames
from rollway.records import Record, columns_from_records, encode_batch
from tests.support.servers import ThreadedServer, http_client
from tests.support.small_disk import SmallDisk

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
CONFIG = {"segment.bytes": 100_000, "file.delete.delay.ms": 0}
VALUE = "x" * 20_000
CLIENTS = 3
REFUSALS = 5
REQUESTS_MAX = 2_000
TRIES = 5

Send = Callable[[httpx.Client, str, int], int]


def batch(value: bytes, **columns: Any) -> bytes:
    return encode_batch(columns_from_records([Record(0, time.time_ns() // 1_000_000, None, value)]), **columns)


def raw(client: httpx.Client, topic: str, _: int) -> int:
    path = f"/v1/topics/{topic}/partitions/0/records"
    return client.post(path, content=batch(VALUE.encode()), headers=RAW).status_code


def raw_without_fsync(client: httpx.Client, topic: str, _: int) -> int:
    path = f"/v1/topics/{topic}/partitions/0/records?acks=1"
    return client.post(path, content=batch(VALUE.encode()), headers=RAW).status_code


def raw_and_large(client: httpx.Client, topic: str, _: int) -> int:
    path = f"/v1/topics/{topic}/partitions/0/records"
    return client.post(path, content=batch(os.urandom(90_000)), headers=RAW).status_code


def raw_of_a_producer(client: httpx.Client, topic: str, _: int) -> int:
    producer = client.post("/v1/producers", json={}).json()
    content = batch(VALUE.encode(), producer_id=producer["producer_id"], producer_epoch=0, base_sequence=0)
    return client.post(f"/v1/topics/{topic}/partitions/0/records", content=content, headers=RAW).status_code


def documents(client: httpx.Client, topic: str, _: int) -> int:
    return client.post(f"/v1/topics/{topic}/partitions/0/records", json={"records": [{"value": VALUE}]}).status_code


def keyed(client: httpx.Client, topic: str, number: int) -> int:
    body, key = {"records": [{"value": VALUE}]}, {"Idempotency-Key": str(number)}
    return client.post(f"/v1/topics/{topic}/partitions/0/records", json=body, headers=key).status_code


def lines(client: httpx.Client, topic: str, _: int) -> int:
    content, headers = b'{"value":"%b"}\n' % VALUE.encode(), {"Content-Type": "application/x-ndjson"}
    answer = client.post(f"/v1/topics/{topic}/partitions/0/records", content=content, headers=headers)
    return 507 if b"disk_full" in answer.content else answer.status_code


def many_partitions(client: httpx.Client, topic: str, _: int) -> int:
    parts = [{"topic": topic, "partition": number, "records": [{"value": VALUE}]} for number in (0, 1)]
    answer = client.post("/v1/produce", json={"partitions": parts})
    return 507 if b"disk_full" in answer.content else answer.status_code


def atomic(client: httpx.Client, topic: str, _: int) -> int:
    parts = [{"topic": topic, "partition": number, "records": [{"value": VALUE}]} for number in (0, 1)]
    answer = client.post("/v1/produce?atomic=true&timeout_ms=500", json={"partitions": parts})
    return 507 if b"disk_full" in answer.content else answer.status_code


def late(client: httpx.Client, topic: str, number: int) -> int:
    """Some are not acknowledged in time."""
    path = f"/v1/topics/{topic}/partitions/0/records?timeout_ms=1"
    client.post(path, content=batch(os.urandom(60_000)), headers=RAW)
    return raw(client, topic, number)


def gone(client: httpx.Client, topic: str, number: int) -> int:
    """Some clients do not wait for their answers."""
    body = batch(VALUE.encode())
    head = f"POST /v1/topics/{topic}/partitions/0/records HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(f"{head}Content-Type: {RAW['Content-Type']}\r\n\r\n".encode() + body)
    return raw(client, topic, number)


def creation(client: httpx.Client, topic: str, number: int) -> int:
    if raw(client, topic, number) == 507:
        return client.put(f"/v1/topics/new-{number}", json={"partitions": 3, "config": CONFIG}).status_code
    return 200


WAYS: list[Send] = [
    raw,
    raw_without_fsync,
    raw_and_large,
    raw_of_a_producer,
    documents,
    keyed,
    lines,
    many_partitions,
    late,
    gone,
    creation,
]


def deleted_files(disk: SmallDisk) -> set[str]:
    """The deleted files of this disk that this process has open."""
    device, found = disk.path.stat().st_dev, set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            status = descriptor.stat()
            if status.st_dev == device and not status.st_nlink:
                found.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return found


def refuse(server: ThreadedServer, send: Send) -> None:
    """Append from several clients until each was refused some times."""

    def insist(first: int, statuses: list[int]) -> None:
        with http_client(server.url) as client:
            for number in range(first, first + REQUESTS_MAX):
                statuses.append(send(client, "full", number))
                if statuses.count(507) >= REFUSALS:
                    return

    statuses: list[list[int]] = [[] for _ in range(CLIENTS)]
    senders = [
        threading.Thread(target=insist, args=(REQUESTS_MAX * place, each)) for place, each in enumerate(statuses)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert all(each.count(507) >= REFUSALS for each in statuses), [set(each) for each in statuses]


def left_open(disk: SmallDisk, send: Send | None, how: str) -> set[str]:
    """Fill the disk, if anything is sent, then delete; what stays open of that, while no garbage is collected."""
    with (
        ThreadedServer(disk.path / "data", file_delete_check_interval_ms=50) as server,
        http_client(server.url) as client,
    ):
        client.put("/v1/topics/full", json={"partitions": 2, "config": CONFIG}).raise_for_status()
        for number in range(20):
            assert raw(client, "full", number) == 200
        gc.collect()
        gc.disable()
        try:
            if send is not None:
                refuse(server, send)
            if how == "the topic":
                client.delete("/v1/topics/full").raise_for_status()
            else:
                client.post("/v1/topics/full/partitions/0/delete-records", json={"offset": -1}).raise_for_status()
                assert client.post("/v1/topics/full/retention/run").json()["deleted"]
            until = time.monotonic() + 3
            while (
                left := deleted_files(disk)
                or {path.name for path in (disk.path / "data/logs").iterdir() if path.name.endswith("-delete")}
            ) and time.monotonic() < until:
                client.get("/healthz")
            if send is not None and how == "the topic" and not left:
                client.put("/v1/topics/full", json={"partitions": 2, "config": CONFIG}).raise_for_status()
                assert send(client, "full", -1) == 200
            return left
        finally:
            gc.enable()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", "5m") as disk:
        yield disk


@pytest.mark.parametrize("send", [None, *WAYS])
def test_a_topic_that_is_deleted_after_a_full_disk_is_closed_at_once(disk: SmallDisk, send: Send | None) -> None:
    assert left_open(disk, send, "the topic") == set()


def test_a_full_disk_answers_atomic_requests_at_once_and_keeps_no_deleted_topic(disk: SmallDisk) -> None:
    """It was: 503 after half a minute each, as the last transaction of a pooled producer waited for the disk."""
    statuses: list[int] = []

    def counted(client: httpx.Client, topic: str, number: int) -> int:
        statuses.append(atomic(client, topic, number))
        return statuses[-1]

    assert left_open(disk, counted, "the topic") == set()
    # 504: a commit was decided, and its marker has no room, which takes a segment that is just full.
    assert set(statuses) - {504} == {200, 507}


@pytest.mark.parametrize("send", [raw, documents, late])
def test_segments_that_are_deleted_after_a_full_disk_are_closed_at_once(disk: SmallDisk, send: Send) -> None:
    assert left_open(disk, send, "its records") == set()


@pytest.mark.parametrize("send", [raw, late])
def test_the_check_finds_errors_that_keep_their_frames(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, send: Send
) -> None:
    """Planted: how it was. Some tries: the order of the clients decides which frames hold a log at its deletion."""
    for module in (
        "app.problems.engine",
        "app.engine_local.partitions.pending_append",
        "app.engine_local.partitions.partition_writer",
    ):
        monkeypatch.setattr(f"{module}.let_go_of_frames", lambda _: None)

    def found() -> bool:
        left = left_open(disk, send, "the topic")
        gc.collect()
        return bool(left)

    assert any(found() for _ in range(TRIES))


def test_all_that_led_to_an_error_lets_go_of_its_frames() -> None:
    error, cause = DiskFullError("full"), OSError(28, "No space left on device")
    for each in (error, cause):
        with pytest.raises(type(each)):
            raise each
    # A cycle, as retries make them.
    error.__cause__, cause.__context__ = cause, error
    assert error.__traceback__ is not None
    let_go_of_frames(error)
    assert (error.__traceback__, cause.__traceback__) == (None, None)
