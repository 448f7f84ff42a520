"""The directory of a real service that was killed, exported, and compared with what a cluster would serve of it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from app.cli import run
from tests.support.adopted_broker import AdoptedBroker
from tests.support.servers import ServerProcess
from tests.unit.storage.log_export.exported_directory import CLUSTER_ID
from tests.unit.storage.log_export.parsed_batches import Header, header_of, split

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

DESCRIBED = (
    f"Topic: t\tTopicId: {CLUSTER_ID}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=-1\n"
    "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    "\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\n"
)


def write(client: httpx.Client) -> None:
    """Keyed requests of one batch, of many batches and to many partitions; a producer's; an open transaction."""
    path = "/v1/topics/t/partitions/0/records"
    many = {"records": [{"value": f"{number:0500}"} for number in range(30)]}
    spread = {"records": [{"key": str(number), "value": "v"} for number in range(20)]}
    client.post(path, json={"records": [{"value": "one"}]}, headers={"Idempotency-Key": "one"}).raise_for_status()
    client.post(path, json=many, headers={"Idempotency-Key": "many"}).raise_for_status()
    client.post("/v1/topics/t/records", json=spread, headers={"Idempotency-Key": "spread"}).raise_for_status()
    given = client.post("/v1/producers", json={"transactional_id": "loader"})
    given.raise_for_status()
    producer = {
        "Producer-Id": str(given.json()["producer_id"]),
        "Producer-Epoch": str(given.json()["producer_epoch"]),
        "Base-Sequence": "0",
        "Transactional-Id": "loader",
    }
    client.post(path, json={"records": [{"value": "later"}]}, headers=producer).raise_for_status()


def headers_of(directory: Path) -> list[Header]:
    return [header_of(stored) for log in sorted(directory.glob("*.log")) for stored in split(log.read_bytes())]


def test_a_killed_service_is_exported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, target, topic_ids = tmp_path / "data", tmp_path / "kafka", tmp_path / "topic-ids.txt"
    topic_ids.write_text(DESCRIBED)
    export = ["log", "export", str(data), "--to", str(target), "--topic-ids", str(topic_ids)]
    server = ServerProcess(data).start()
    with httpx.Client(base_url=server.url, timeout=30) as client:
        config = {"max.message.bytes": 2000, "retention.ms": -1}
        client.put("/v1/topics/t", json={"partitions": 2, "config": config}).raise_for_status()
        write(client)
        assert run(export) == 1
        assert "in use by another process" in capfd.readouterr().err
    server.kill()
    assert run(export) == 1
    assert "rollway transactions abort loader" in capfd.readouterr().out
    server = ServerProcess(data).start()
    assert run(["transactions", "abort", "loader", "--server", server.url]) == 0
    server.kill()
    capfd.readouterr()

    assert run([*export, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["recovered"]
    headers = headers_of(target / "t-0") + headers_of(target / "t-1")
    assert {header.leader_epoch for header in headers} == {0}
    assert not [header for header in headers if 0 <= header.producer_id < 2**60]
    keyed = [header for header in headers if header.producer_id >= 2**62]
    assert len(keyed) > 8
    assert {(header.producer_epoch, header.base_sequence) for header in keyed} == {(0, 0)}
    of_first = [header.producer_id for header in headers_of(target / "t-0") if header.producer_id >= 2**62]
    assert len(set(of_first)) == len(of_first), "each batch of a keyed request has an id of its own"
    with AdoptedBroker(target, 5_000) as broker:
        assert run(["log", "export", str(data), "--verify", broker.address]) == 0
    assert capfd.readouterr().out == "Equal: 2 partitions compared, record for record.\n"
