"""Whoever may WRITE a topic must not take the place of another principal's records by writing under its producer id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.producers.producer_ids import FIRST_ID_STEP
from tests.http import foreign_ids
from tests.http.foreign_ids import RAW, Given, Stand, batch_of, make_keys


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    yield from foreign_ids.stand(tmp_path / "data", make_keys(tmp_path / "data"))


def send(client: httpx.Client, topic: str, batch: bytes) -> httpx.Response:
    return client.post(f"/v1/topics/{topic}/partitions/0/records", content=batch, headers={"Content-Type": RAW})


def committed_values(stand: Stand, topic: str) -> list[Any]:
    path = f"/v1/topics/{topic}/partitions/0/records?offset=0&isolation=read_committed"
    return [record["value"] for record in stand.admin.get(path).json()["records"]]


def test_records_of_a_transaction_are_not_swallowed(stand: Stand) -> None:
    topic = stand.new_topic()
    given = foreign_ids.transactional_producer(stand, stand.mine, "mine-")
    for transactional in (True, False):
        forged = send(stand.other, topic, batch_of(given, transactional=transactional, value=b"forged"))
        assert (forged.status_code, forged.json()["code"]) == (403, "transactional_id_authorization_failed")
    own = send(stand.mine, topic, batch_of(given, transactional=True, value=b"the row"))
    assert (own.status_code, own.json()["duplicate"]) == (200, False)
    identity = {"producer_id": given.producer_id, "producer_epoch": given.epoch}
    assert stand.mine.post(f"/v1/transactions/{given.name}/commit", json=identity).status_code == 200
    assert committed_values(stand, topic) == ["the row"]


def test_an_idempotent_producer_is_neither_answered_for_nor_fenced(stand: Stand) -> None:
    topic = stand.new_topic()
    given = foreign_ids.plain_producer(stand, stand.mine, "mine-")
    for epoch in (0, 1, 32_767):
        forged = send(
            stand.other, topic, batch_of(Given(given.producer_id, epoch), transactional=False, value=b"forged")
        )
        assert (forged.status_code, forged.json()["code"]) == (409, "invalid_producer_id_mapping")
    own = send(stand.mine, topic, batch_of(given, transactional=False, value=b"the row"))
    assert (own.status_code, own.json()["duplicate"]) == (200, False)
    assert committed_values(stand, topic) == ["the row"]


def test_an_id_cannot_be_taken_before_it_is_given(stand: Stand) -> None:
    """Ids count up: the next ones are known to everybody."""
    topic = stand.new_topic()
    known = foreign_ids.plain_producer(stand, stand.other, "other-").producer_id
    for ahead in (1, 999, 1_000, 1_001, 2_500):
        refused = send(stand.other, topic, batch_of(Given(known + ahead), transactional=False))
        # The rest of the block is the caller's own, and given to no other. Blocks follow the first id of the directory.
        assert refused.status_code == (200 if ahead < 1_000 - known % FIRST_ID_STEP % 1_000 else 409)
    mine = foreign_ids.plain_producer(stand, stand.mine, "mine-")
    assert send(stand.mine, topic, batch_of(mine, transactional=False)).json()["duplicate"] is False
