"""Memory: raw fetches of any size leave the service as it was."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.servers import ServerProcess, http_client
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

RAW = "application/vnd.kafka.record-batch.v2"
MIB = 1024 * 1024
BATCH = record_batch(b"\x5a" * (MIB - 1024))
BATCHES_PER_REQUEST = 16


def fill(client: httpx.Client, size_bytes: int) -> int:
    """A topic of one partition with about so many bytes, in several segments; its exact size."""
    config = {"segment.bytes": max(64 * MIB, size_bytes // 4), "flush.policy": "interval"}
    client.put("/v1/topics/large", json={"config": config}).raise_for_status()
    body = BATCH * BATCHES_PER_REQUEST
    for _ in range(size_bytes // len(body)):
        client.post(
            "/v1/topics/large/partitions/0/records", content=body, headers={"Content-Type": RAW}
        ).raise_for_status()
    stored: int = client.get("/v1/topics/large/partitions/0").json()["size_bytes"]
    return stored


def check_raw_fetch(tmp_path: Path, size_bytes: int, growth_max: int) -> None:
    """Fetch a whole partition in one answer, and look at the most memory the service ever held meanwhile."""
    with ServerProcess(tmp_path / "data", from_nothing=True) as server, http_client(server.url) as client:
        stored = fill(client, size_bytes)
        assert stored > size_bytes * 0.9
        params: dict[str, str | int] = {"offset": 0, "max_bytes": 2**30}
        headers = {"Accept": RAW}
        client.get("/v1/topics/large/partitions/0/records", params={"offset": 0}, headers=headers)
        server.reset_peak_rss()
        before = server.rss_bytes()
        received = 0
        place = 0
        while place < client.get("/v1/topics/large/partitions/0").json()["log_end_offset"]:
            params["offset"] = place
            with client.stream(
                "GET", "/v1/topics/large/partitions/0/records", params=params, headers=headers
            ) as answer:
                assert answer.status_code == 200
                received += sum(len(piece) for piece in answer.iter_raw())
                place = int(answer.headers["next-offset"])
        assert received == stored
        assert server.peak_rss_bytes() - before < growth_max


def test_a_raw_fetch_of_a_large_partition_takes_no_memory(tmp_path: Path) -> None:
    """Spec D16; the full size is below."""
    check_raw_fetch(tmp_path, 256 * MIB, growth_max=16 * MIB)


@pytest.mark.slow
def test_a_raw_fetch_of_1_gib_takes_no_memory(tmp_path: Path) -> None:
    """Acceptance: growth under 32 MiB."""
    check_raw_fetch(tmp_path, 1024 * MIB, growth_max=32 * MIB)
