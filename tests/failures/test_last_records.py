"""``tail=n`` means records: markers are none, and those of aborted transactions only where they are shown."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import crc32c
import httpx
import pytest

from app.engine_local.reading.last_records import start_of_last
from log_model.reads import Isolation
from storage.manager.log_manager import LogManager
from tests.support.servers import ThreadedServer

RAW = "application/vnd.kafka.record-batch.v2"
ISOLATIONS = ("read_uncommitted", "read_committed")


class Writer:
    """Appends plain records and transactions, and knows which records who must be shown."""

    def __init__(self, client: httpx.Client, topic: str) -> None:
        self.client = client
        self.path = f"{topic}/partitions/0/records"
        self.shown: dict[str, list[str]] = {isolation: [] for isolation in ISOLATIONS}
        self._number = 0

    def plain(self, count: int) -> None:
        values = self._values(count)
        answer = self.client.post(self.path, json={"records": [{"value": value} for value in values]})
        assert answer.status_code == 200, answer.text
        self._note(values, *ISOLATIONS)

    def transaction(self, count: int, *, commit: bool, batches: int = 1) -> None:
        name = f"tail-{self.path.split('/')[3]}"
        given = self.client.post("/v1/producers", json={"transactional_id": name}).json()
        sequence = 0
        for _ in range(batches):
            values = self._values(count)
            headers = {
                "Producer-Id": str(given["producer_id"]),
                "Producer-Epoch": str(given["producer_epoch"]),
                "Base-Sequence": str(sequence),
                "Transactional-Id": name,
            }
            body = {"records": [{"value": value} for value in values]}
            assert self.client.post(self.path, json=body, headers=headers).status_code == 200
            sequence += count
            self._note(values, *(ISOLATIONS if commit else ISOLATIONS[:1]))
        end = self.client.post(f"/v1/transactions/{name}/{'commit' if commit else 'abort'}", json=given)
        assert end.status_code == 200, end.text

    def _values(self, count: int) -> list[str]:
        self._number += count
        return [str(number) for number in range(self._number - count, self._number)]

    def _note(self, values: list[str], *isolations: str) -> None:
        for isolation in isolations:
            self.shown[isolation] += values


def tail(client: httpx.Client, path: str, count: int, isolation: str) -> list[Any]:
    """All that a reader gets who begins ``count`` records before the end, over as many answers as it takes."""
    answer = client.get(path, params={"tail": count, "isolation": isolation})
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_last_records_are_records(client: httpx.Client, topic: str, isolation: str) -> None:
    writer = Writer(client, topic)
    writer.plain(3)
    writer.transaction(1, commit=True)
    assert tail(client, writer.path, 1, isolation) == writer.shown[isolation][-1:]
    writer.transaction(2, commit=False, batches=3)
    for _ in range(3):
        writer.transaction(1, commit=True)
    writer.plain(1)
    writer.transaction(2, commit=True)
    writer.transaction(5, commit=False)
    shown = writer.shown[isolation]
    for count in range(len(shown) + 4):
        assert tail(client, writer.path, count, isolation) == shown[len(shown) - min(count, len(shown)) :], count


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_log_of_markers_is_looked_through(client: httpx.Client, topic: str, isolation: str) -> None:
    """The last visible record lies further back than the first look goes, before hundreds of aborted ones."""
    writer = Writer(client, topic)
    writer.plain(3)
    for _ in range(2):
        writer.transaction(300, commit=False)
    shown = writer.shown[isolation]
    for count in (1, 2, 3, 4, 299, 300, 301, 600, 601, 603, 604):
        assert tail(client, writer.path, count, isolation) == shown[len(shown) - min(count, len(shown)) :], count
    answer = client.get(writer.path, params={"tail": 1, "isolation": isolation}, headers={"Accept": RAW})
    assert answer.status_code == 200


def test_an_open_transaction_is_not_the_end_of_committed_records(client: httpx.Client, topic: str) -> None:
    writer = Writer(client, topic)
    writer.plain(2)
    writer.transaction(1, commit=True)
    given = client.post("/v1/producers", json={"transactional_id": "tail-open"}).json()
    headers = {
        "Producer-Id": str(given["producer_id"]),
        "Producer-Epoch": str(given["producer_epoch"]),
        "Base-Sequence": "0",
        "Transactional-Id": "tail-open",
    }
    body = {"records": [{"value": "open"}]}
    assert client.post(writer.path, json=body, headers=headers).status_code == 200
    writer.plain(1)
    assert tail(client, writer.path, 2, "read_uncommitted") == ["open", "3"]
    assert tail(client, writer.path, 2, "read_committed") == ["1", "2"]


def test_a_deleted_beginning_is_not_counted(client: httpx.Client, topic: str) -> None:
    writer = Writer(client, topic)
    writer.plain(4)
    writer.transaction(1, commit=True)
    assert client.post(f"{topic}/partitions/0/delete-records", json={"offset": 2}).status_code == 200
    for isolation in ISOLATIONS:
        assert tail(client, writer.path, 3, isolation) == ["2", "3", "4"]
        assert tail(client, writer.path, 9, isolation) == ["2", "3", "4"]


def sparse(base_offset: int, *deltas: int) -> bytes:
    """One batch with a record at each of these offset deltas, as compaction leaves it."""
    records = b"".join(bytes([14, 0, 0, 2 * delta, 1, 2]) + b"v" + b"\0" for delta in deltas)
    covered = struct.pack(">hiqqqhii", 0, deltas[-1], 1, 1, -1, -1, -1, len(deltas)) + records
    return struct.pack(">qiibI", base_offset, len(covered) + 9, 0, 2, crc32c.crc32c(covered)) + covered


def test_gaps_of_compacted_batches_are_not_counted(tmp_path: Path) -> None:
    """Copied from a compacted log: offsets 0, 5 and 9 of one batch, 20 of the next."""

    manager = LogManager.open(tmp_path / "data")
    try:
        topic, _ = manager.create_topic("copied", 1, {"cleanup.policy": "delete"})
        log = topic.partitions[0]
        for batch in (sparse(0, 0, 5, 9), sparse(20, 0)):
            log.append_copied(batch)
        snapshot = log.publish()
        found = [start_of_last(snapshot, count, Isolation.LOG_END) for count in range(6)]
        assert found == [21, 20, 9, 5, 0, 0]
    finally:
        manager.close()


def test_the_check_finds_offsets_that_are_counted(
    client: httpx.Client, server: ThreadedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the rule as it was."""
    monkeypatch.setattr(
        "app.engine_local.reading.ranges.start_of_last",
        lambda snapshot, count, isolation: max(snapshot.log_start_offset, snapshot.bound(isolation).offset - count),
    )
    for isolation in ISOLATIONS:
        with pytest.raises(AssertionError):
            test_the_last_records_are_records(client, topic, isolation)
