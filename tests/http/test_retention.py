"""Retention policy, plan and run, and deleting records by hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from log_model.clock import ManualClock
from tests.support.servers import ThreadedServer, http_client


def fill(client: httpx.Client, path: str, timestamps: list[int]) -> None:
    """One segment per record."""
    client.patch(path.partition("/partitions")[0], json={"config": {"segment.bytes": 150}})
    for timestamp in timestamps:
        record = {"value": "x" * 40, "timestamp": timestamp}
        assert client.post(f"{path}/records", json={"records": [record]}).status_code == 200


def log_files(data_dir: Path, topic: str) -> list[str]:
    return sorted(path.name for path in (data_dir / "logs" / f"{topic.rpartition('/')[2]}-0").glob("*.log*"))


def keep(client: httpx.Client, topic: str, **policy: Any) -> httpx.Response:
    """Set the policy of a topic, and what is not given to the service's default."""
    members = ("retention_ms", "retention_bytes", "cleanup_policy")
    return client.put(f"{topic}/retention", json={name: policy.get(name) for name in members})


def test_the_policy_is_read_and_replaced(client: httpx.Client, topic: str) -> None:
    default = {"retention_ms": 604800000, "retention_bytes": -1, "cleanup_policy": "delete"}
    assert client.get(f"{topic}/retention").json() == default
    changed = {"retention_ms": 1000, "retention_bytes": 5000, "cleanup_policy": "delete,compact"}
    assert client.put(f"{topic}/retention", json=changed).json()["retention_ms"] == 1000
    assert client.get(f"{topic}/retention").json()["retention_bytes"] == 5000
    assert client.get(topic).json()["config"]["retention.ms"] == {"value": 1000, "source": "topic"}
    assert keep(client, topic, retention_bytes=7).json() == {**default, "retention_bytes": 7}
    assert keep(client, topic).json() == default
    refused = keep(client, topic, cleanup_policy="shred")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/cleanup_policy"]


def test_a_policy_is_replaced_as_a_whole(client: httpx.Client, topic: str) -> None:
    """What is left out would go back to its default: to seven days where it was for ever."""
    assert keep(client, topic, retention_ms=-1).status_code == 200
    refused = client.put(f"{topic}/retention", json={"retention_bytes": 5000})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    missing = [(fault["pointer"], fault["code"]) for fault in refused.json()["errors"]]
    assert missing == [("/retention_ms", "missing"), ("/cleanup_policy", "missing")]
    assert client.get(f"{topic}/retention").json()["retention_ms"] == -1


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_rt_1_size_retention_is_planned_then_run(client: httpx.Client, data_dir: Path, topic: str) -> None:
    """Spec E5."""
    path = f"{topic}/partitions/0"
    now_ms = time.time_ns() // 1_000_000
    fill(client, path, [now_ms + number for number in range(5)])
    segments = client.get(f"{path}/segments").json()["segments"]
    assert len(segments) == 5
    keep(client, topic, retention_bytes=sum(s["size_bytes"] for s in segments[-2:]))
    plan = client.get(f"{topic}/retention/plan").json()["partitions"]
    assert [entry["partition"] for entry in plan] == [0, 1]
    planned = plan[0]["segments"]
    assert [entry["deleted"] for entry in planned] == [True, True, True, False, False]
    assert {entry["reason"] for entry in planned[:3]} == {"retention.bytes"}
    assert all(entry["held_by"] for entry in planned[3:])
    assert client.get(path).json()["log_start_offset"] == 0
    ran = client.post(f"{topic}/retention/run")
    assert ran.status_code == 200
    assert ran.json()["deleted"] == [
        {
            "partition": 0,
            "base_offset": number,
            "size_bytes": segments[number]["size_bytes"],
            "reason": "retention.bytes",
        }
        for number in range(3)
    ]
    assert client.get(path).json()["log_start_offset"] == 3
    assert client.post(f"{topic}/retention/run").json() == {"deleted": []}
    gone = client.get(f"{path}/records?offset=0").json()
    assert (gone["log_start_offset"], gone["log_start_moved_by"]) == (3, "retention")
    assert [name.endswith(".deleted") for name in log_files(data_dir, topic)] == [True] * 3 + [False] * 2


def test_delete_records_raises_the_log_start(client: httpx.Client, topic: str) -> None:
    """Spec E8."""
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": str(n), "timestamp": 100 + n} for n in range(10)]})

    def delete(**body: Any) -> httpx.Response:
        return client.post(f"{path}/delete-records", json=body)

    assert delete(offset=7, dry_run=True).json() == {"log_start_offset": 7}
    assert client.get(path).json()["log_start_offset"] == 0
    assert delete(before_timestamp=103).json() == {"log_start_offset": 3}
    assert delete(offset=7).json() == {"log_start_offset": 7}
    assert delete(offset=2).json() == {"log_start_offset": 7}
    assert delete(offset=2, dry_run=True).json() == {"log_start_offset": 7}
    above = delete(offset=11)
    assert (above.status_code, above.json()["kafka_code"]) == (416, 1)
    assert delete(offset=11, dry_run=True).status_code == 416
    assert client.get(f"{path}/records?offset=6").status_code == 410
    assert delete(offset=-1).json() == {"log_start_offset": 10}
    assert delete(before_timestamp=10**15).json() == {"log_start_offset": 10}


def test_an_offset_above_the_high_watermark_is_refused_with_the_limits(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "a"}, {"value": "b"}]})
    for dry_run in (True, False):
        refused = client.post(f"{path}/delete-records", json={"offset": 3, "dry_run": dry_run})
        assert refused.status_code == 416
        assert refused.json() == {
            "type": "urn:rollway:problem:offset_out_of_range",
            "title": "Offset out of range",
            "status": 416,
            "detail": "offset 3 is beyond the log end offset 2",
            "instance": f"{path}/delete-records",
            "code": "offset_out_of_range",
            "kafka_code": 1,
            "retryable": False,
            "applied": "no",
            "retry_after_ms": None,
            "errors": [],
            "log_start_offset": 0,
            "log_end_offset": 2,
        }
        limits = [refused.headers[name] for name in ("Log-Start-Offset", "High-Watermark", "Last-Stable-Offset")]
        assert limits == ["0", "2", "2"]


def test_a_compacted_topic_refuses_delete_records(client: httpx.Client) -> None:
    client.put("/v1/topics/only-compacted", json={"config": {"cleanup.policy": "compact"}})
    for dry_run in (True, False):
        refused = client.post(
            "/v1/topics/only-compacted/partitions/0/delete-records", json={"offset": 0, "dry_run": dry_run}
        )
        assert (refused.status_code, refused.json()["code"], refused.json()["kafka_code"]) == (
            403,
            "policy_violation",
            44,
        )


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_time_retention_follows_the_clock_and_files_follow_later(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spec E5, E7."""
    clock = ManualClock()
    data_dir = tmp_path_factory.mktemp("by-time") / "data"
    with (
        ThreadedServer(data_dir, clock=clock, file_delete_check_interval_ms=10) as server,
        http_client(server.url) as client,
    ):
        client.put("/v1/topics/t", json={"config": {"retention.ms": 1000, "file.delete.delay.ms": 5000}})
        path = "/v1/topics/t/partitions/0"
        fill(client, path, [clock.now_ms(), clock.now_ms() + 300])
        assert client.post("/v1/topics/t/retention/run").json() == {"deleted": []}
        clock.advance(1001)
        deleted = client.post("/v1/topics/t/retention/run").json()["deleted"]
        assert [(entry["base_offset"], entry["reason"]) for entry in deleted] == [(0, "retention.ms")]
        clock.advance(1000)
        deleted = client.post("/v1/topics/t/retention/run").json()["deleted"]
        assert [entry["base_offset"] for entry in deleted] == [1]
        partition = client.get(path).json()
        assert (partition["log_start_offset"], partition["log_end_offset"], partition["segments"]) == (2, 2, 1)
        assert any(name.endswith(".deleted") for name in log_files(data_dir, "/v1/topics/t"))
        clock.advance(5000)
        deadline = time.monotonic() + 30
        while any(name.endswith(".deleted") for name in log_files(data_dir, "/v1/topics/t")):
            assert time.monotonic() < deadline


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_a_clock_that_jumps_deletes_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Clock jumps: docs/explanation/durability.md#promises-under-faults."""
    clock = ManualClock()
    data_dir = tmp_path_factory.mktemp("jump") / "data"
    with ThreadedServer(data_dir, clock=clock) as server, http_client(server.url) as client:
        client.put("/v1/topics/t", json={"config": {"retention.ms": 1000}})
        fill(client, "/v1/topics/t/partitions/0", [clock.now_ms()] * 3)
        clock.jump(10 * 365 * 86_400_000)
        assert client.post("/v1/topics/t/retention/run").json() == {"deleted": []}


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_a_run_with_a_body_deletes_nothing(client: httpx.Client, topic: str) -> None:
    """Who sends dry_run here must not lose data for it."""
    assert keep(client, topic, retention_bytes=0).status_code == 200
    assert client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "x"}]}).status_code == 200
    refused = client.post(f"{topic}/retention/run", json={"dry_run": True})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert client.get(f"{topic}/partitions/0").json()["log_start_offset"] == 0


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_a_segment_begins_with_its_first_records_time(client: httpx.Client, topic: str) -> None:
    records = [{"value": "a", "timestamp": 1_714_564_800_000}, {"value": "b", "timestamp": 1_714_566_000_000}]
    assert client.post(f"{topic}/partitions/0/records", json={"records": records}).status_code == 200
    (segment,) = client.get(f"{topic}/partitions/0/segments").json()["segments"]
    assert segment["first_timestamp"] == 1_714_564_800_000
    assert segment["largest_timestamp"] == 1_714_566_000_000
