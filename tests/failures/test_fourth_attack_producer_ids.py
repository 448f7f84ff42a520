"""A file of producer ids that is older than the logs, as from another backup."""

from __future__ import annotations

from pathlib import Path

import httpx

from rollway.records import Record, columns_from_records, encode_batch
from storage.manager.log_manager import PRODUCER_IDS
from tests.support.servers import ThreadedServer

RECORDS = "/v1/topics/t/partitions/0/records"
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}


def produced_by_a_new_producer(client: httpx.Client, value: bytes) -> tuple[int, bool]:
    identity = client.post("/v1/producers", json={}).json()
    content = encode_batch(
        columns_from_records([Record(0, 1_700_000_000_000, None, value)]),
        producer_id=identity["producer_id"],
        producer_epoch=identity["producer_epoch"],
        base_sequence=0,
    )
    answer = client.post(RECORDS, content=content, headers=RAW)
    assert answer.status_code == 200, answer.text
    return identity["producer_id"], answer.json()["duplicate"]


def test_an_older_file_of_producer_ids_gives_no_id_twice(tmp_path: Path) -> None:
    """The first batch of the second producer with an id was acknowledged as a repeated one of the first's, and lost."""
    path = tmp_path / "data" / "rollway" / PRODUCER_IDS
    contents = []
    given = set()
    for number in range(4):
        if number > 1:
            path.write_bytes(contents[0])
        with ThreadedServer(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=30) as client:
            assert client.put("/v1/topics/t", json={"partitions": 1}).status_code in {200, 201}
            producer_id, is_repeated = produced_by_a_new_producer(client, b"value %d" % number)
            assert not is_repeated
            assert producer_id not in given
            given.add(producer_id)
            assert client.get("/v1/topics/t").json()["partitions"][0]["log_end_offset"] == number + 1
        contents.append(path.read_bytes())
