"""Transactions over HTTP: producers, raw transactional batches, commit, abort, looking at them."""

from __future__ import annotations

import base64
import json
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.engine.transactions import ProducerIdentity
from rollway.records import split_batches
from tests.support.servers import ServerProcess, ThreadedServer, http_client
from tests.support.transactions import committed_values, transactional_batch

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
_numbers = count()


@pytest.fixture
def name() -> str:
    return f"loader {next(_numbers)} é"


def initialise(client: httpx.Client, name: str, **more: Any) -> ProducerIdentity:
    answer = client.post("/v1/producers", json={"transactional_id": name, **more})
    assert answer.status_code == 200, answer.text
    return ProducerIdentity(**answer.json())


def send(
    client: httpx.Client, topic: str, partition: int, producer: ProducerIdentity, sequence: int, *values: bytes
) -> httpx.Response:
    body = transactional_batch(producer, sequence, *values)
    return client.post(f"{topic}/partitions/{partition}/records", content=body, headers=RAW)


def end(client: httpx.Client, name: str, how: str, producer: ProducerIdentity) -> httpx.Response:
    return client.post(f"/v1/transactions/{name}/{how}", json=producer._asdict())


def identity_in(document: dict[str, Any]) -> ProducerIdentity:
    return ProducerIdentity(document["producer_id"], document["producer_epoch"])


def limits(client: httpx.Client, topic: str, partition: int = 0) -> dict[str, int]:
    answer: dict[str, int] = client.get(f"{topic}/partitions/{partition}").json()
    return answer


def problem(answer: httpx.Response) -> tuple[int, str, int]:
    document = answer.json()
    return answer.status_code, document["code"], document["kafka_code"]


def test_a_producer_without_a_transactional_id(client: httpx.Client) -> None:
    first, second = (client.post("/v1/producers", **body).json() for body in ({}, {"json": {}}))
    assert second["producer_id"] > first["producer_id"]
    assert first["producer_epoch"] == second["producer_epoch"] == 0


def test_a_transaction_over_two_partitions(client: httpx.Client, topic: str, name: str, server: ThreadedServer) -> None:
    producer = initialise(client, name)
    assert send(client, topic, 0, producer, 0, b"a", b"b").json()["base_offset"] == 0
    assert send(client, topic, 1, producer, 0, b"c").status_code == 200
    assert limits(client, topic)["last_stable_offset"] == 0
    shown = client.get(f"/v1/transactions/{name}").json()
    assert (shown["state"], shown["partition_count"], shown["transaction_timeout_ms"]) == ("ongoing", 2, 60_000)
    assert [place["partition"] for place in shown["partitions"]] == [0, 1]
    assert name in [each["transactional_id"] for each in client.get("/v1/transactions").json()["data"]]

    answer = end(client, name, "commit", producer)
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["partitions"]) == ("complete_commit", [])
    assert (limits(client, topic)["last_stable_offset"], limits(client, topic, 1)["last_stable_offset"]) == (3, 2)
    assert values(server, topic)[0] == [b"a", b"b"]
    raw = client.get(f"{topic}/partitions/0/records?offset=0", headers={"Accept": RAW["Content-Type"]})
    assert [batch.header.is_control for batch in split_batches(raw.content)] == [False, True]
    assert name not in [each["transactional_id"] for each in client.get("/v1/transactions").json()["data"]]


def test_answers_that_were_lost(client: httpx.Client, topic: str, name: str) -> None:
    """Kafka's table of EndTxn, over HTTP."""
    producer = initialise(client, name)
    assert problem(end(client, name, "commit", producer)) == (409, "invalid_txn_state", 48)
    send(client, topic, 0, producer, 0, b"a")
    answers = [end(client, name, "abort", producer).json() for _ in range(2)]
    assert [answer["state"] for answer in answers] == ["complete_abort"] * 2
    following = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert [identity_in(answer) for answer in answers] == [following] * 2
    assert problem(end(client, name, "commit", producer)) == (409, "invalid_txn_state", 48)
    assert problem(send(client, topic, 0, producer, 0, b"a")) == (409, "producer_fenced", 47)
    assert client.get(f"/v1/transactions/{name}").json()["state"] == "complete_abort"


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_a_late_request_of_the_last_transaction_is_refused(
    client: httpx.Client, topic: str, name: str, server: ThreadedServer, how: str
) -> None:
    """Whatever it is, it does not end the transaction that has begun since, and is no part of it."""
    producer = initialise(client, name)
    send(client, topic, 0, producer, 0, b"first")
    following = identity_in(end(client, name, "commit", producer).json())
    assert send(client, topic, 0, following, 0, b"second").status_code == 200
    assert problem(end(client, name, how, producer)) == (409, "producer_fenced", 47)
    for partition in (0, 1):
        assert problem(send(client, topic, partition, producer, 1, b"late")) == (409, "producer_fenced", 47)
    stamp = {"Producer-Id": str(producer.producer_id), "Producer-Epoch": str(producer.producer_epoch)}
    headers = {"Transactional-Id": name.encode(), "Base-Sequence": "1", **stamp}
    body = {"records": [{"value": "late"}]}
    answer = client.post(f"{topic}/partitions/0/records", json=body, headers=headers)
    assert problem(answer) == (409, "producer_fenced", 47)
    part = {"topic": topic.rpartition("/")[2], "partition": 0, "base_sequence": 1, **body}
    answer = client.post("/v1/produce", json={"transactional_id": name, **producer._asdict(), "partitions": [part]})
    assert answer.json()["results"][0]["error"]["code"] == "producer_fenced"
    assert values(server, topic) == [[b"first"], []]
    assert end(client, name, "commit", following).status_code == 200
    assert values(server, topic) == [[b"first", b"second"], []]


def test_an_abort_without_records_is_a_success(client: httpx.Client, topic: str, name: str) -> None:
    """It shuts out requests that were given up and may still arrive."""
    producer = initialise(client, name)
    answer = end(client, name, "abort", producer)
    assert (answer.status_code, answer.json()["state"]) == (200, "complete_abort")
    assert problem(send(client, topic, 0, producer, 0, b"late")) == (409, "producer_fenced", 47)
    assert send(client, topic, 0, identity_in(answer.json()), 0, b"a").status_code == 200
    assert end(client, name, "commit", identity_in(answer.json())).status_code == 200


def test_an_older_instance_is_shut_out(client: httpx.Client, topic: str, name: str) -> None:
    old = initialise(client, name)
    send(client, topic, 0, old, 0, b"old")
    new = initialise(client, name)
    assert new.producer_epoch > old.producer_epoch
    assert problem(send(client, topic, 0, old, 1, b"zombie")) == (409, "producer_fenced", 47)
    assert problem(end(client, name, "commit", old)) == (409, "producer_fenced", 47)
    assert limits(client, topic)["last_stable_offset"] == 2


def test_a_stranger_writes_nothing(client: httpx.Client, topic: str, name: str) -> None:
    stranger = ProducerIdentity(**client.post("/v1/producers").json())
    assert problem(send(client, topic, 0, stranger, 0, b"x")) == (409, "invalid_producer_id_mapping", 49)
    assert problem(end(client, name, "commit", stranger)) == (409, "invalid_producer_id_mapping", 49)
    producer = initialise(client, name)
    body = transactional_batch(producer, 0, b"x")
    for other, code in (("somebody", 49), (name.encode(), None)):
        answer = client.post(f"{topic}/partitions/0/records", content=body, headers={**RAW, "Transactional-Id": other})
        assert (answer.json().get("kafka_code"), answer.status_code) == (code, 200 if code is None else 409)
    assert limits(client, topic)["log_end_offset"] == 1
    end(client, name, "abort", producer)


def test_json_records_of_a_transaction(client: httpx.Client, topic: str, name: str, server: ThreadedServer) -> None:
    """Any HTTP client can: the producer is in headers, and a repeated request changes nothing."""
    producer = initialise(client, name)
    headers = {
        "Transactional-Id": name.encode(),
        "Producer-Id": str(producer.producer_id),
        "Producer-Epoch": str(producer.producer_epoch),
        "Base-Sequence": "0",
    }
    answers = [
        client.post(
            f"{topic}/partitions/0/records", json={"records": [{"value": "a"}, {"value": "b"}]}, headers=headers
        ).json()
        for _ in range(2)
    ]
    assert [(answer["base_offset"], answer["duplicate"]) for answer in answers] == [(0, False), (0, True)]
    assert limits(client, topic)["last_stable_offset"] == 0
    assert end(client, name, "commit", producer).status_code == 200
    assert values(server, topic)[0] == [b"a", b"b"]


def test_records_of_a_transaction_are_acknowledged(client: httpx.Client, topic: str, name: str) -> None:
    """With acks=0 an append that failed behind the answer would not stop the commit."""
    producer = initialise(client, name)
    batch = transactional_batch(producer, 0, b"a")
    place = {"topic": topic.rpartition("/")[2], "partition": 0}
    raw = {**place, "record_batches": base64.b64encode(batch).decode()}
    plain = {**place, "records": [{"value": "b"}]}
    stamped = {**plain, "base_sequence": 0}
    headers = {"Producer-Id": str(producer.producer_id), "Producer-Epoch": "0", "Base-Sequence": "0"}
    answers = [
        client.post(f"{topic}/partitions/0/records?acks=0", content=batch, headers=RAW),
        client.post(
            f"{topic}/partitions/0/records?acks=0",
            json={"records": [{"value": "a"}]},
            headers={**headers, "Transactional-Id": name.encode()},
        ),
        client.post("/v1/produce?acks=0", json={"partitions": [plain, raw]}),
        client.post(
            "/v1/produce?acks=0", json={"partitions": [stamped], "transactional_id": name, **producer._asdict()}
        ),
    ]
    assert [problem(answer) for answer in answers] == [(422, "invalid_required_acks", 21)] * 4
    assert limits(client, topic)["log_end_offset"] == 0
    assert client.get(f"/v1/transactions/{name}").json()["state"] == "empty"


def atomic(client: httpx.Client, topic: str, *parts: dict[str, Any], **more: Any) -> httpx.Response:
    name = topic.rpartition("/")[2]
    body = {"partitions": [{"topic": name, **part} for part in parts], **more}
    return client.post("/v1/produce", params={"atomic": "true"}, json=body)


def values(server: ThreadedServer, topic: str) -> list[list[bytes]]:
    engine = server.service.parts.engine
    partitions = engine.topic(topic.rpartition("/")[2]).partitions
    return [server.result_of(engine.reads.stored(partition, committed_values)) for partition in partitions]


def test_an_atomic_request(client: httpx.Client, topic: str, server: ThreadedServer) -> None:
    parts = [{"partition": number, "records": [{"value": f"v{place}"}]} for place, number in enumerate((0, 1, 0))]
    answer = atomic(client, topic, *parts)
    assert answer.status_code == 200, answer.text
    assert [result["base_offset"] for result in answer.json()["results"]] == [0, 0, 1]
    assert values(server, topic) == [[b"v0", b"v2"], [b"v1"]]
    assert limits(client, topic)["last_stable_offset"] == 3


def test_atomic_requests_one_after_the_other(client: httpx.Client, topic: str, server: ThreadedServer) -> None:
    """Each is a transaction with an epoch of its own, also behind one that was aborted."""
    name = topic.rpartition("/")[2]
    log = server.result_of(server.service.parts.engine.partition(name, 0))
    for number in range(5):
        part = {"partition": 0, "records": [{"value": f"v{number}"}]}
        assert atomic(client, topic, part, {**part, "partition": 1}).status_code == 200
        too_large = {"partition": 1, "records": [{"value": "x" * 3_000_000}]}
        assert atomic(client, topic, part, too_large).status_code >= 400
    assert values(server, topic) == [[b"v%d" % number for number in range(5)]] * 2
    raw = client.get(f"{topic}/partitions/0/records?offset=0", headers={"Accept": RAW["Content-Type"]})
    epochs = [batch.header.producer_epoch for batch in split_batches(raw.content) if not batch.header.is_control]
    assert len(set(epochs)) == len(epochs)
    assert log.snapshot.last_stable_offset == log.snapshot.log_end_offset


def test_an_atomic_request_that_is_refused_in_one_place_is_nowhere(
    client: httpx.Client, topic: str, server: ThreadedServer
) -> None:
    """Before anything is appended, and after."""
    good = {"partition": 0, "records": [{"value": "good"}]}
    refused = atomic(client, topic, good, {"partition": 9, "records": [{"value": "x"}]})
    assert problem(refused) == (404, "unknown_topic_or_partition", 3)
    assert [result["error"]["code"] for result in refused.json()["results"]] == [
        "transaction_aborted",
        "unknown_topic_or_partition",
    ]
    partition: Any = server.result_of(server.service.parts.engine.partition(topic.rpartition("/")[2], 1))
    partition.take_offline("a test says so")
    refused = atomic(client, topic, good, {"partition": 1, "records": [{"value": "x"}]})
    assert refused.status_code in {503, 504}
    assert values(server, topic) == [[], []]


def test_what_cannot_be_atomic(client: httpx.Client, topic: str, name: str) -> None:
    producer = initialise(client, name)
    part = {"partition": 0, "records": [{"value": "a"}]}
    mine = atomic(client, topic, {**part, "base_sequence": 0}, transactional_id=name, **producer._asdict())
    assert problem(mine) == (422, "invalid_request", -1)
    body = {"partitions": [{"topic": topic.rpartition("/")[2], **part}]}
    answer = client.post("/v1/produce", params={"atomic": "true", "acks": "0"}, json=body)
    assert problem(answer) == (422, "invalid_request", -1)
    assert limits(client, topic)["log_end_offset"] == 0


def test_a_transaction_is_not_named_for_nothing(client: httpx.Client, topic: str) -> None:
    answer = client.post(
        f"{topic}/partitions/0/records", json={"records": [{"value": "x"}]}, headers={"Transactional-Id": "t"}
    )
    assert problem(answer) == (409, "invalid_txn_state", 48)


@pytest.mark.parametrize(
    ("path", "media_type", "instead"),
    [
        ("/v1/topics/{topic}/records", "application/json", "/v1/topics/{topic}/partitions/{partition}/records"),
        ("/v1/topics/{topic}/records", "application/x-ndjson", "/v1/topics/{topic}/partitions/{partition}/records"),
        ("/v1/produce", "application/json", "transactional_id"),
    ],
)
def test_a_transaction_is_named_where_it_counts(
    client: httpx.Client, topic: str, name: str, path: str, media_type: str, instead: str
) -> None:
    """Ignored, the header would make the records visible at once."""
    topic_name = topic.rpartition("/")[2]
    part = {"topic": topic_name, "partition": 0, "records": [{"value": "a"}]}
    bodies = {"application/json": '{"records":[{"value":"a"}]}', "application/x-ndjson": '{"value":"a"}\n'}
    body = json.dumps({"partitions": [part]}) if path == "/v1/produce" else bodies[media_type]
    headers = {"Content-Type": media_type, "Transactional-Id": "loader"}
    for _ in range(2):
        answer = client.post(path.format(topic=topic_name), content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
        (fault,) = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("Transactional-Id", "unsupported_header")
        assert instead in fault["detail"]
        # Once the query is known, plain requests may be answered without the application.
        plain = {"Content-Type": media_type}
        assert client.post(path.format(topic=topic_name), content=body, headers=plain).status_code == 200
    ends = [limits(client, topic, partition)["log_end_offset"] for partition in (0, 1)]
    assert sum(ends) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"transactional_id": ""},
        {"transactional_id": "x" * 250},
        {"transactional_id": "."},
        {"transactional_id": ".."},
        {"transactional_id": "a/b"},
        {"transactional_id": "a\nb"},
        {"transactional_id": "a\u2028b"},
        {"transactional_id": "__rollway_atomic_0"},
        {"transactional_id": 7},
        {"transactional_id": "t", "transaction_timeout_ms": 0},
        {"transactional_id": "t", "transaction_timeout_ms": 2**31},
        {"transaction_timeout_ms": 5},
        {"surprise": 1},
    ],
)
def test_impossible_producers(client: httpx.Client, body: dict[str, object]) -> None:
    answer = client.post("/v1/producers", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


def test_a_timeout_above_the_limit_is_50(client: httpx.Client) -> None:
    answer = client.post("/v1/producers", json={"transactional_id": "t", "transaction_timeout_ms": 900_001})
    assert problem(answer) == (422, "invalid_transaction_timeout", 50)


@pytest.mark.parametrize("name", ["x" * 250, "a%2Fb%0A", "__rollway_atomic_0", "%0A"])
def test_impossible_ids_in_the_path(client: httpx.Client, name: str) -> None:
    assert client.get(f"/v1/transactions/{name}").status_code in {404, 422}
    answer = client.post(f"/v1/transactions/{name}/commit", json={"producer_id": 1, "producer_epoch": 0})
    assert answer.status_code in {404, 422}


def test_an_unknown_id_is_105(client: httpx.Client) -> None:
    assert problem(client.get("/v1/transactions/nobody")) == (404, "transactional_id_not_found", 105)


def test_the_list_is_paged_and_filtered(client: httpx.Client) -> None:
    names = [f"page-{number}" for number in range(5)]
    for each in names:
        initialise(client, each)
    found: list[str] = []
    cursor = "page"
    while cursor:
        page = client.get("/v1/transactions", params={"state": "empty", "limit": 2, "start_after": cursor}).json()
        assert len(page["data"]) <= 2
        found += [each["transactional_id"] for each in page["data"]]
        cursor = page["next_cursor"]
    assert found == names
    assert client.get("/v1/transactions", params={"state": "no such"}).status_code == 422
    everything = client.get("/v1/transactions", params={"state": "all", "limit": 1000}).json()["data"]
    assert set(names) <= {each["transactional_id"] for each in everything}


def test_the_internal_topic_is_shown_and_left_alone(client: httpx.Client, name: str) -> None:
    initialise(client, name)
    path = "/v1/topics/__transaction_state"
    assert client.get(path).json()["internal"] is True
    assert client.get(f"{path}/partitions/0/records", params={"offset": "earliest"}).status_code == 200
    refusals = [
        client.put(path, json={}),
        client.patch(path, json={"config": {"retention.ms": 1}}),
        client.delete(path),
        client.post(f"{path}/records", json={"records": [{"value": "x"}]}),
        client.post(f"{path}/partitions/0/records", json={"records": [{"value": "x"}]}),
        client.post(f"{path}/partitions/0/delete-records", json={"offset": 0}),
        client.put(f"{path}/retention", json={"retention_ms": 1, "retention_bytes": None, "cleanup_policy": None}),
    ]
    assert [problem(answer)[1:] for answer in refusals] == [("invalid_topic", 17)] * len(refusals)


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_killed_service_remembers(tmp_path: Path) -> None:
    """An acknowledged commit stays one, what was open stays open, and ids are not given twice."""
    data_dir = tmp_path / "data"
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        topic = "/v1/topics/orders"
        client.put(topic, json={"partitions": 2})
        committed, pending = initialise(client, "committed"), initialise(client, "pending")
        plain = client.post("/v1/producers").json()["producer_id"]
        send(client, topic, 0, committed, 0, b"a")
        answer = end(client, "committed", "commit", committed).json()
        send(client, topic, 1, pending, 0, b"b")
        server.kill()
    with ServerProcess(data_dir) as server, http_client(server.url) as client:
        again = end(client, "committed", "commit", committed).json()
        assert again["state"] == "complete_commit"
        assert identity_in(again) == identity_in(answer) != committed
        assert limits(client, topic)["last_stable_offset"] == 2
        assert limits(client, topic, 1)["last_stable_offset"] == 0
        assert send(client, topic, 1, pending, 1, b"c").status_code == 200
        assert end(client, "pending", "commit", pending).status_code == 200
        assert limits(client, topic, 1)["last_stable_offset"] == 3
        assert client.post("/v1/producers").json()["producer_id"] > plain
