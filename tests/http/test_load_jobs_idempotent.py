"""Idempotent load jobs: whichever way their batches take into the log, writing keeps the job open and is counted."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from log_model.clock import ManualClock
from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.support.load_jobs import RAW, Driver, Writer
from tests.support.servers import ThreadedServer, http_client

TIMEOUT_MS = 60_000
# More than one timeout passes in three of these steps, none in one or two.
STEP_MS = 25_000
ROUNDS = 8
ROWS = 2

Send = Callable[[httpx.Client, str, int, int], httpx.Response]
"""Two rows to a partition, of a producer, from a sequence."""


def batch(producer_id: int, sequence: int, *, rows: int = ROWS, codec: Codec = Codec.NONE, size: int = 9) -> bytes:
    records = [Record(place, 1_700_000_000_000, None, b"v" * size) for place in range(rows)]
    return encode_batch(
        columns_from_records(records),
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def raw(query: str = "", make: Callable[[int, int], bytes] = batch) -> Send:
    def send(client: httpx.Client, path: str, producer_id: int, sequence: int) -> httpx.Response:
        content = make(producer_id, sequence)
        return client.post(f"{path}/records{query}", content=content, headers={"Content-Type": RAW})

    return send


def two_batches(producer_id: int, sequence: int) -> bytes:
    return batch(producer_id, sequence, rows=1) + batch(producer_id, sequence + 1, rows=1)


def compressed(producer_id: int, sequence: int) -> bytes:
    return batch(producer_id, sequence, codec=Codec.GZIP)


def large(producer_id: int, sequence: int) -> bytes:
    return batch(producer_id, sequence, size=400_000)


def headers_of(producer_id: int, sequence: int, media_type: str) -> dict[str, str]:
    return {
        "Content-Type": media_type,
        "Producer-Id": str(producer_id),
        "Producer-Epoch": "0",
        "Base-Sequence": str(sequence),
    }


def as_json(client: httpx.Client, path: str, producer_id: int, sequence: int) -> httpx.Response:
    content = json.dumps({"records": [{"value": "v"}] * ROWS})
    return client.post(
        f"{path}/records", content=content, headers=headers_of(producer_id, sequence, "application/json")
    )


def as_lines(client: httpx.Client, path: str, producer_id: int, sequence: int) -> httpx.Response:
    content = '{"value": "v"}\n' * ROWS
    return client.post(
        f"{path}/records", content=content, headers=headers_of(producer_id, sequence, "application/x-ndjson")
    )


def parts(client: httpx.Client, path: str, part: dict[str, Any], **more: Any) -> httpx.Response:
    _, _, _, topic, _, number = path.split("/")
    body = {"partitions": [{"topic": topic, "partition": int(number), **part}], **more}
    return client.post("/v1/produce", json=body)


def as_part_of_json(client: httpx.Client, path: str, producer_id: int, sequence: int) -> httpx.Response:
    part = {"records": [{"value": "v"}] * ROWS, "base_sequence": sequence}
    return parts(client, path, part, producer_id=producer_id, producer_epoch=0)


def as_part_of_batches(client: httpx.Client, path: str, producer_id: int, sequence: int) -> httpx.Response:
    return parts(client, path, {"record_batches": base64.b64encode(batch(producer_id, sequence)).decode()})


WAYS: dict[str, Send] = {
    "raw": raw(),
    "raw, fsync": raw("?acks=all&durability=fsynced"),
    "raw, nobody waits": raw("?acks=0"),
    "raw, two batches": raw(make=two_batches),
    "raw, compressed": raw(make=compressed),
    "raw, large": raw(make=large),
    "json": as_json,
    "lines": as_lines,
    "part of json": as_part_of_json,
    "part of batches": as_part_of_batches,
}


class Service:
    """A service whose clock stands still, and whose jobs are looked at when a test says so."""

    def __init__(self, root: Path, *, has_fast_path: bool) -> None:
        self.clock = ManualClock()
        self.has_fast_path = has_fast_path
        self.server = ThreadedServer(
            root, clock=self.clock, has_fast_path=has_fast_path, load_job_check_interval_ms=86_400_000
        )

    @property
    def fast_path_count(self) -> int:
        """Requests that the fast path has answered, or 0 without one."""
        return self.server.fast_path_count if self.has_fast_path else 0

    def check_jobs(self) -> None:
        """What the service does each second."""
        loop = self.server.service.loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(self.server.service.parts.load_jobs.run_jobs(), loop).result(60)


FAST_PATH = pytest.param(True, marks=pytest.mark.needs_local("it tests the fast path of plain requests"))


@pytest.fixture(scope="module", params=[FAST_PATH, False], ids=["fast path", "route"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("jobs") / "data", has_fast_path=request.param)
    with made.server:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_an_idempotent_job_that_writes_for_longer_than_its_timeout_commits(service: Service, way: str) -> None:
    """Writing is the only sign of life that it gives; its rows and bytes are those of its partition."""
    with http_client(service.server.url) as client:
        name = "t-" + "".join(filter(str.isalpha, way))
        client.delete(f"/v1/topics/{name}")
        assert client.put(f"/v1/topics/{name}", json={"partitions": 1}).status_code == 201
        path = f"/v1/topics/{name}/partitions/0"
        job = Driver.begin(client, name, mode="idempotent", topics=[name], timeout_ms=TIMEOUT_MS)
        writer = job.enlist(0)
        fast_before = service.fast_path_count
        for number in range(ROUNDS):
            service.clock.advance(STEP_MS)
            sent = WAYS[way](client, path, writer.producer_id, number * ROWS)
            assert sent.status_code == 200, sent.text
            service.check_jobs()
        # The first of a kind is always the route's; the last looks go to it as well.
        is_fast = service.has_fast_path and (way.startswith("raw") or way == "json")
        assert (service.fast_path_count - fast_before >= ROUNDS - 1) is is_fast
        while client.get(path).json()["log_end_offset"] < ROUNDS * ROWS:
            pass
        seen = job.look()
        assert (seen["state"], seen["rows"]) == ("open", ROUNDS * ROWS)
        assert seen["size_bytes"] == client.get(path).json()["size_bytes"] > 0
        writer.sequences[path] = ROUNDS * ROWS
        done = job.commit(writer)
        assert (done["state"], done["rows"], done["size_bytes"]) == ("committed", seen["rows"], seen["size_bytes"])


def test_a_batch_that_is_there_already_keeps_the_job_open_and_is_not_counted(service: Service) -> None:
    with http_client(service.server.url) as client:
        assert client.put("/v1/topics/again", json={"partitions": 1}).status_code in (200, 201)
        path = "/v1/topics/again/partitions/0"
        job = Driver.begin(client, "again", mode="idempotent", topics=["again"], timeout_ms=TIMEOUT_MS)
        writer = job.enlist(0)
        for number in range(ROUNDS):
            service.clock.advance(STEP_MS)
            sent = raw()(client, path, writer.producer_id, 0)
            assert sent.json()["duplicate"] is (number > 0)
            service.check_jobs()
        seen = job.look()
        assert (seen["state"], seen["rows"]) == ("open", ROWS)
        assert seen["size_bytes"] == client.get(path).json()["size_bytes"]


def test_an_idempotent_job_in_which_nobody_writes_is_aborted(service: Service) -> None:
    """Batches of others, with a producer or without, are no sign of life."""
    with http_client(service.server.url) as client:
        assert client.put("/v1/topics/idle", json={"partitions": 1}).status_code == 201
        path = "/v1/topics/idle/partitions/0"
        job = Driver.begin(client, "idle", mode="idempotent", topics=["idle"], timeout_ms=TIMEOUT_MS)
        job.enlist(0)
        other = Writer(client, client.post("/v1/producers", json={}).json()["producer_id"])
        for number in range(4):
            service.clock.advance(STEP_MS)
            assert raw()(client, path, other.producer_id, number * ROWS).status_code == 200
            assert raw()(client, path, -1, -1).status_code == 200
        service.check_jobs()
        assert job.look()["reason"] == "timed_out"
