"""Topics for the tests of Spark's reads, filled by plain HTTP, and what a service has counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import httpx

from rollway.records import Record, columns_from_records, encode_batch
from tests.support.transactions import ProducerIdentity, transactional_batch

RAW = "application/vnd.kafka.record-batch.v2"
TIMESTAMP = 1_700_000_000_000

_numbers = count()


@dataclass
class FilledTopic:
    """A topic of a service, to be filled."""

    client: httpx.Client
    name: str
    topic_id: str

    @property
    def path(self) -> str:
        return f"/v1/topics/{self.name}"

    def send_batch(self, partition: int, batch: bytes) -> int:
        """Append batches as they are; the offset of the first record."""
        path = f"{self.path}/partitions/{partition}/records"
        answer = self.client.post(path, content=batch, headers={"Content-Type": RAW})
        assert answer.status_code == 200, answer.text
        return int(answer.json()["base_offset"])

    def send(self, partition: int, records: Sequence[Record]) -> int:
        """Append one batch of these records."""
        return self.send_batch(partition, encode_batch(columns_from_records(records)))

    def send_values(self, partition: int, *values: str, timestamp: int = TIMESTAMP) -> int:
        """Append one batch of values without keys, one ms apart."""
        return self.send(
            partition, [Record(0, timestamp + place, None, value.encode()) for place, value in enumerate(values)]
        )

    def transact(self, partition: int, *values: str, end: str | None = "commit") -> None:
        """Append one batch in a transaction of its own, and end it that way."""
        end_it = self.begin(partition, *values)
        if end is not None:
            end_it(end)

    def begin(self, partition: int, *values: str) -> Callable[[str], None]:
        """Append one batch in a transaction of its own; returns what ends it, by ``commit`` or ``abort``."""
        name = f"test-{next(_numbers)}"
        identity = ProducerIdentity(**self.client.post("/v1/producers", json={"transactional_id": name}).json())
        self.send_batch(partition, transactional_batch(identity, 0, *(value.encode() for value in values)))

        def end_it(end: str) -> None:
            body = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
            answer = self.client.post(f"/v1/transactions/{name}/{end}", json=body)
            assert answer.status_code == 200, answer.text

        return end_it

    def delete_before(self, partition: int, offset: int) -> None:
        """Raise the log start offset."""
        path = f"{self.path}/partitions/{partition}/delete-records"
        answer = self.client.post(path, json={"offset": offset})
        assert answer.status_code == 200, answer.text

    def delete(self) -> None:
        assert self.client.delete(self.path).status_code in (200, 204)


def new_topic(client: httpx.Client, partition_count: int = 1, name: str | None = None) -> FilledTopic:
    """Make a topic, with a name of its own unless one is given."""
    name = name or f"read-{next(_numbers)}"
    made = client.put(f"/v1/topics/{name}", json={"partitions": partition_count})
    assert made.status_code == 201, made.text
    return FilledTopic(client, name, made.json()["topic_id"])


def counted(client: httpx.Client, metric: str, **labels: str) -> float:
    """The sum of a metric over all its series with these labels; 0 if there is none."""
    total = 0.0
    for line in client.get("/metrics").text.splitlines():
        found = re.fullmatch(rf"{metric}(?:\{{(.*)\}})? (\S+)", line)
        if found and all(f'{name}="{value}"' in (found[1] or "") for name, value in labels.items()):
            total += float(found[2])
    return total
