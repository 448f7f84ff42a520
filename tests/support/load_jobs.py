"""Load jobs for tests: a driver and its tasks, over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from rollway.records import split_batches
from tests.support.transactions import ProducerIdentity, transactional_batch

RAW = "application/vnd.kafka.record-batch.v2"


@dataclass
class Writer:
    """One attempt of a task, which keeps its sequences."""

    client: httpx.Client
    producer_id: int
    sequences: dict[str, int] = field(default_factory=dict)

    def send(self, partition: str, *values: bytes) -> httpx.Response:
        sequence = self.sequences.get(partition, 0)
        batch = transactional_batch(ProducerIdentity(self.producer_id, 0), sequence, *values)
        answer = self.client.post(f"{partition}/records", content=batch, headers={"Content-Type": RAW})
        if answer.status_code == 200:
            self.sequences[partition] = sequence + len(values)
        return answer

    @property
    def winner(self) -> dict[str, int]:
        return {"producer_id": self.producer_id, "rows": sum(self.sequences.values())}


@dataclass
class Driver:
    """Who begins a job and decides it."""

    client: httpx.Client
    document: dict[str, Any]

    @classmethod
    def begin(cls, client: httpx.Client, application: str, version: int = 1, status: int = 201, **body: Any) -> Driver:
        answer = client.post("/v1/jobs", json={"application_id": application, "version": version, **body})
        assert answer.status_code == status, answer.text
        return cls(client, answer.json())

    @property
    def path(self) -> str:
        return f"/v1/jobs/{self.document['job_id']}"

    def enlist(self, task: int, attempt: int = 0) -> Writer:
        answer = self.client.post(f"{self.path}/attempts", json={"task": task, "attempt": attempt})
        assert answer.status_code == 201, answer.text
        assert answer.json()["producer_epoch"] == 0
        return Writer(self.client, answer.json()["producer_id"])

    def commit(self, *winners: Writer, status: int = 200) -> dict[str, Any]:
        answer = self.client.post(f"{self.path}/commit", json={"winners": [writer.winner for writer in winners]})
        assert answer.status_code == status, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def abort(self, status: int = 200) -> dict[str, Any]:
        answer = self.client.post(f"{self.path}/abort")
        assert answer.status_code == status, answer.text
        document: dict[str, Any] = answer.json()
        return document

    def look(self) -> dict[str, Any]:
        answer = self.client.get(self.path)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document


def committed(client: httpx.Client, partition: str) -> list[str]:
    """What a reader of committed records has of a partition, now."""
    values: list[str] = []
    offset: int | str = "earliest"
    while True:
        params = {"offset": offset, "isolation": "read_committed", "max_bytes": 1 << 24}
        answer = client.get(f"{partition}/records", params=params)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        values += [record["value"] for record in document["records"]]
        if document["next_offset"] == offset or document["next_offset"] >= document["last_stable_offset"]:
            return values
        offset = document["next_offset"]


def is_held_up(client: httpx.Client, partition: str) -> bool:
    """Whether an open transaction holds up readers of committed records."""
    found = client.get(partition).json()
    return bool(found["last_stable_offset"] < found["high_watermark"])


def batch_count(client: httpx.Client, partition: str) -> int:
    """Batches in the partition, markers included."""
    answer = client.get(
        f"{partition}/records", params={"offset": "earliest", "max_bytes": 1 << 24}, headers={"Accept": RAW}
    )
    return len(list(split_batches(answer.content)))
