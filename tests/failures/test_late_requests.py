"""A request of an ended transaction that arrives late changes nothing in the next one."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.servers import ServerProcess, http_client

COMMITTED = {"offset": "0", "isolation": "read_committed"}


class Producer(NamedTuple):
    """A transactional producer of any HTTP client; each answer to an end makes the next one."""

    client: httpx.Client
    topic: str
    name: str
    producer_id: int
    producer_epoch: int

    @classmethod
    def initialise(cls, client: httpx.Client, topic: str, name: str) -> Producer:
        answer = client.post("/v1/producers", json={"transactional_id": name})
        assert answer.status_code == 200, answer.text
        return cls(client, topic, name, **answer.json())

    @property
    def stamp(self) -> dict[str, int]:
        return {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}

    def send(self, sequence: int, value: str) -> httpx.Response:
        headers = {
            "Transactional-Id": self.name,
            "Producer-Id": str(self.producer_id),
            "Producer-Epoch": str(self.producer_epoch),
            "Base-Sequence": str(sequence),
        }
        path = f"{self.topic}/partitions/0/records"
        return self.client.post(path, json={"records": [{"value": value}]}, headers=headers)

    def end(self, how: str) -> httpx.Response:
        return self.client.post(f"/v1/transactions/{self.name}/{how}", json=self.stamp)

    def after(self, answer: httpx.Response) -> Producer:
        assert answer.status_code == 200, answer.text
        return self._replace(**{name: answer.json()[name] for name in self.stamp})


def committed(client: httpx.Client, topic: str) -> list[str]:
    document: dict[str, Any] = client.get(f"{topic}/partitions/0/records", params=COMMITTED).json()
    return [record["value"] for record in document["records"]]


@pytest.mark.parametrize("late_copy", ["commit", "abort"])
@pytest.mark.parametrize("first_end", ["commit", "abort"])
def test_a_late_copy_of_an_end_leaves_the_next_transaction_alone(
    client: httpx.Client, topic: str, first_end: str, late_copy: str
) -> None:
    """Once it committed what the producer had sent so far of a transaction that it then aborted."""
    first = Producer.initialise(client, topic, f"late-{first_end}-{late_copy}")
    assert first.send(0, "T1").status_code == 200
    second = first.after(first.end(first_end))
    assert second.producer_epoch > first.producer_epoch
    assert second.send(0, "T2 before the late copy").status_code == 200
    refused = first.end(late_copy)
    assert (refused.status_code, refused.json()["code"]) == (409, "producer_fenced")
    assert second.send(1, "T2 after it").status_code == 200
    late = first.send(1, "T1, late")
    assert (late.status_code, late.json()["code"]) == (409, "producer_fenced")
    third = second.after(second.end("commit" if late_copy == "abort" else "abort"))
    of_first = ["T1"] if first_end == "commit" else []
    of_second = ["T2 before the late copy", "T2 after it"] if late_copy == "abort" else []
    assert committed(client, topic) == of_first + of_second
    for older in (first, second):
        late = older.send(2, "late")
        assert (late.status_code, late.json()["code"]) == (409, "producer_fenced")
    assert client.get(f"/v1/transactions/{first.name}").json()["producer_epoch"] == third.producer_epoch


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_repeated_end_is_answered_as_the_first_time_also_after_a_kill(
    tmp_path_factory: pytest.TempPathFactory, end: str
) -> None:
    data_dir = tmp_path_factory.mktemp("late")
    topic = "/v1/topics/late"
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        assert client.put(topic, json={"partitions": 1}).status_code == 201
        first = Producer.initialise(client, topic, "late")
        assert first.send(0, "T1").status_code == 200
        second = first.after(first.end(end))
        assert first.after(first.end(end)) == second
        server.kill()
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        first, second = first._replace(client=client), second._replace(client=client)
        assert first.after(first.end(end)) == second
        refused = first.end("abort" if end == "commit" else "commit")
        assert (refused.status_code, refused.json()["code"]) == (409, "invalid_txn_state")
        assert second.send(0, "T2").status_code == 200
        assert first.end(end).status_code == 409
        server.kill()
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        assert first._replace(client=client).end(end).status_code == 409
        assert committed(client, topic) == (["T1"] if end == "commit" else [])
        second = second._replace(client=client)
        second.after(second.end("commit"))
        assert committed(client, topic) == (["T1", "T2"] if end == "commit" else ["T2"])
