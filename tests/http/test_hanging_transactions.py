"""Transactions that the coordinator does not know: a list of what is open in a partition, and aborting one."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from app.engine.appending import AppendOptions
from app.engine.transactions import ProducerIdentity
from app.engine_local.transactions.sessions import Enlistment, Session
from tests.support.servers import ThreadedServer
from tests.support.transactions import committed_values, transactional_batch, valid_transactional

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}


def hang(server: ThreadedServer, topic: str, producer: ProducerIdentity) -> None:
    """Append as a transaction whose coordinator's log is lost: it is enlisted nowhere."""

    async def append() -> None:
        parts = server.service.parts
        log = await parts.engine.partition(topic.rpartition("/")[2], 0)
        options = AppendOptions()
        batches = valid_transactional(log, producer, 0, b"hanging")
        await parts.engine.appends.outcome_of(
            parts.engine.appends.submit(log, batches, options, Enlistment(Session(), {}, {})), options
        )

    loop = server.service.loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(append(), loop).result()


def test_a_hanging_transaction_is_listed_and_aborted(client: httpx.Client, topic: str, server: ThreadedServer) -> None:
    place = f"{topic}/partitions/0"
    producer = ProducerIdentity(**client.post("/v1/producers").json())
    client.post(f"{place}/records", json={"records": [{"value": "before"}]})
    hang(server, topic, producer)
    client.post(f"{place}/records", json={"records": [{"value": "behind"}]})
    assert client.get(place).json()["last_stable_offset"] == 1
    shown = client.get(f"{place}/transactions").json()
    found = {**producer._asdict(), "first_offset": 1, "transactional_id": None, "hanging": True}
    assert shown == {"partition": 0, "data": [found], "has_more": False, "next_cursor": None}

    body = {**producer._asdict(), "first_offset": 1}
    for wrong in ({"first_offset": 0}, {"producer_epoch": 1}, {"producer_id": producer.producer_id + 1_000_000}):
        answer = client.post(f"{place}/transactions/abort", json=body | wrong)
        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_txn_state")
    assert client.get(place).json()["log_end_offset"] == 3

    answer = client.post(f"{place}/transactions/abort", json=body)
    assert (answer.status_code, answer.json()) == (200, {"partition": 0, "marker_offset": 3})
    assert client.get(place).json()["last_stable_offset"] == 4
    assert client.get(f"{place}/transactions").json()["data"] == []
    log = server.result_of(server.service.parts.engine.partition(topic.rpartition("/")[2], 0))
    assert server.result_of(server.service.parts.engine.reads.stored(log, committed_values)) == [b"before", b"behind"]
    again = client.post(f"{place}/transactions/abort", json=body)
    assert (again.status_code, again.json()["code"]) == (409, "invalid_txn_state")


def test_the_open_transactions_are_paged(client: httpx.Client, topic: str) -> None:
    place = f"{topic}/partitions/0"
    for name in ("one", "two", "three"):
        producer = ProducerIdentity(**client.post("/v1/producers", json={"transactional_id": f"paged-{name}"}).json())
        client.post(f"{place}/records", content=transactional_batch(producer, 0, b"a"), headers=RAW)
    found, cursor = [], None
    for has_more in (True, True, False):
        params: dict[str, str | int] = {"limit": 1} | ({} if cursor is None else {"start_after": cursor})
        page = client.get(f"{place}/transactions", params=params).json()
        found += [each["transactional_id"] for each in page["data"]]
        cursor = page["next_cursor"]
        assert (page["has_more"], cursor is not None) == (has_more, has_more)
    assert found == ["paged-one", "paged-two", "paged-three"]
    assert client.get(f"{place}/transactions", params={"start_after": "one"}).status_code == 422


def test_a_known_transaction_is_not_aborted_in_one_partition(client: httpx.Client, topic: str) -> None:
    place = f"{topic}/partitions/0"
    made = client.post("/v1/producers", json={"transactional_id": "known"}).json()
    producer = ProducerIdentity(**made)
    client.post(f"{place}/records", content=transactional_batch(producer, 0, b"a"), headers=RAW)
    (shown,) = client.get(f"{place}/transactions").json()["data"]
    assert shown == {**made, "first_offset": 0, "transactional_id": "known", "hanging": False}
    answer = client.post(f"{place}/transactions/abort", json={"producer_id": producer.producer_id, "first_offset": 0})
    document = answer.json()
    assert (answer.status_code, document["code"]) == (409, "transaction_not_hanging")
    assert document["transactional_id"] == "known"
    assert client.get(place).json()["log_end_offset"] == 1
    assert client.post("/v1/transactions/known/commit", json=made).status_code == 200


@pytest.mark.parametrize("body", [{}, {"producer_id": 1}, {"producer_id": -1, "first_offset": 0}])
def test_what_names_no_transaction(client: httpx.Client, topic: str, body: dict[str, int]) -> None:
    answer = client.post(f"{topic}/partitions/0/transactions/abort", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_internal_topics_take_no_marker(client: httpx.Client) -> None:
    client.post("/v1/producers", json={"transactional_id": "anybody"})
    body = {"producer_id": 1, "first_offset": 0}
    answer = client.post("/v1/topics/__transaction_state/partitions/0/transactions/abort", json=body)
    assert answer.json()["kafka_code"] == 17
