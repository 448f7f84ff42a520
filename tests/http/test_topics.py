"""Topics, partitions, segments."""

from __future__ import annotations

import httpx
import pytest

from log_model.config import TopicConfig
from tests.support.servers import ThreadedServer


def test_ensure_creates_finds_and_refuses(client: httpx.Client) -> None:
    wanted = {"partitions": 3, "config": {"retention.ms": 86400000, "segment.bytes": "1048576"}}
    created = client.put("/v1/topics/ensured", json=wanted)
    assert created.status_code == 201
    again = client.put("/v1/topics/ensured", json=wanted)
    assert (again.status_code, again.json()) == (200, created.json())
    for other in ({"partitions": 2}, {"partitions": 3}, {**wanted, "config": {"retention.ms": 1}}):
        refused = client.put("/v1/topics/ensured", json=other)
        assert (refused.status_code, refused.json()["code"], refused.json()["kafka_code"]) == (409, "topic_exists", 36)
    assert client.get("/v1/topics/ensured").json() == created.json()


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_a_topic_shows_every_setting_and_its_source(client: httpx.Client) -> None:
    client.put("/v1/topics/described", json={"partitions": 2, "config": {"segment.ms": 5, "preallocate": True}})
    shown = client.get("/v1/topics/described").json()
    assert shown["name"] == "described"
    assert len(shown["topic_id"]) == 22
    assert list(shown["config"]) == list(TopicConfig.options())
    assert shown["config"]["segment.ms"] == {"value": 5, "source": "topic"}
    assert shown["config"]["preallocate"] == {"value": True, "source": "topic"}
    assert shown["config"]["segment.bytes"] == {"value": 1073741824, "source": "default"}
    assert [partition["partition"] for partition in shown["partitions"]] == [0, 1]
    assert shown["partitions"][0] == {
        "partition": 0,
        "leader_epoch": 0,
        "log_start_offset": 0,
        "high_watermark": 0,
        "last_stable_offset": 0,
        "log_end_offset": 0,
        "recovery_point": 0,
        "size_bytes": 0,
        "segments": 1,
        "replicas": [1],
        "isr": [1],
        "offline_reason": None,
    }


def test_a_topic_needs_no_body(client: httpx.Client) -> None:
    created = client.put("/v1/topics/plain")
    assert created.status_code == 201
    assert len(created.json()["partitions"]) == 1


def test_alter_changes_settings_and_adds_partitions(client: httpx.Client, topic: str) -> None:
    changed = client.patch(topic, json={"partitions": 4, "config": {"retention.ms": 3600000}})
    assert changed.status_code == 200
    assert len(changed.json()["partitions"]) == 4
    assert changed.json()["config"]["retention.ms"] == {"value": 3600000, "source": "topic"}
    back = client.patch(topic, json={"config": {"retention.ms": None}})
    assert back.json()["config"]["retention.ms"]["source"] == "default"
    fewer = client.patch(topic, json={"partitions": 2})
    assert (fewer.status_code, fewer.json()["code"]) == (422, "invalid_topic")
    assert client.post(f"{topic}/partitions/3/records", json={"records": [{"value": "x"}]}).status_code == 200


def test_changed_settings_are_in_force_when_the_answer_comes(client: httpx.Client, topic: str) -> None:
    records = {"records": [{"value": "x" * 200}]}
    assert client.post(f"{topic}/partitions/0/records", json=records).status_code == 200
    client.patch(topic, json={"config": {"max.message.bytes": 100}})
    refused = client.post(f"{topic}/partitions/0/records", json=records)
    assert (refused.status_code, refused.json()["code"]) == (413, "message_too_large")


def test_wrong_settings_are_all_named(client: httpx.Client, topic: str) -> None:
    wrong = {"config": {"retention.ms": "soon", "colour": "red", "segment.ms": 1}}
    refused = client.put("/v1/topics/never-made", json=wrong)
    assert (refused.status_code, refused.json()["code"], refused.json()["kafka_code"]) == (422, "invalid_config", 40)
    assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/config/retention.ms", "/config/colour"]
    assert client.get("/v1/topics/never-made").status_code == 404
    assert client.patch(topic, json=wrong).status_code == 422
    assert client.get(topic).json()["config"]["segment.ms"]["source"] == "default"


def test_delete_makes_a_topic_unknown_and_its_name_free(client: httpx.Client, topic: str) -> None:
    before = client.get(topic).json()["topic_id"]
    client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "old"}]})
    assert client.delete(topic).status_code == 204
    for method, path in (("GET", topic), ("DELETE", topic), ("GET", f"{topic}/partitions/0/records?offset=0")):
        gone = client.request(method, path)
        assert (gone.status_code, gone.json()["kafka_code"]) == (404, 3)
    assert client.put(topic, json={"partitions": 1}).status_code == 201
    assert client.get(topic).json()["topic_id"] != before
    assert client.get(f"{topic}/partitions/0/records?offset=0").json()["records"] == []


def test_topics_are_listed_in_pages(client: httpx.Client) -> None:
    names = [f"page-{letter}" for letter in "abcde"]
    for name in reversed(names):
        client.put(f"/v1/topics/{name}")
    first = client.get("/v1/topics", params={"prefix": "page-", "limit": 2}).json()
    assert [topic["name"] for topic in first["data"]] == names[:2]
    assert (first["has_more"], first["next_cursor"]) == (True, "page-b")
    assert first["data"][0] == client.get("/v1/topics/page-a").json()
    rest = client.get("/v1/topics", params={"prefix": "page-", "start_after": first["next_cursor"]}).json()
    assert [topic["name"] for topic in rest["data"]] == names[2:]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_partitions_and_segments_are_described(client: httpx.Client, topic: str) -> None:
    client.patch(topic, json={"config": {"segment.bytes": 200, "index.interval.bytes": 0}})
    for number in range(4):
        record = {"value": "x" * 50, "timestamp": 1000 + number}
        client.post(f"{topic}/partitions/1/records", json={"records": [record]})
    listed = client.get(f"{topic}/partitions").json()["partitions"]
    one = client.get(f"{topic}/partitions/1").json()
    assert listed[1] == one
    assert (one["high_watermark"], one["recovery_point"], one["segments"]) == (4, 4, 4)
    segments = client.get(f"{topic}/partitions/1/segments").json()
    assert segments["partition"] == 1
    assert [segment["base_offset"] for segment in segments["segments"]] == [0, 1, 2, 3]
    assert [segment["next_offset"] for segment in segments["segments"]] == [1, 2, 3, 4]
    assert [segment["state"] for segment in segments["segments"]] == ["sealed"] * 3 + ["active"]
    assert [segment["first_timestamp"] for segment in segments["segments"]] == [1000, 1001, 1002, 1003]
    assert sum(segment["size_bytes"] for segment in segments["segments"]) == one["size_bytes"]


@pytest.mark.needs_local("it needs segments or retention on request, which are capabilities")
def test_an_unknown_partition_is_404(client: httpx.Client, topic: str) -> None:
    for path in ("", "/segments", "/records?offset=0", "/records/0", "/records/0/value", "/offsets?timestamp=0"):
        unknown = client.get(f"{topic}/partitions/2{path}")
        assert (unknown.status_code, unknown.json()["kafka_code"]) == (404, 3)


@pytest.mark.parametrize("partition", ["-1", "1.0", "x", "2147483648", "99999999999999999999", "+1", "1_0", "%201"])
def test_a_partition_is_a_plain_number(client: httpx.Client, topic: str, partition: str) -> None:
    refused = client.get(f"{topic}/partitions/{partition}")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


def test_topics_survive_a_restart(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    data_dir = tmp_path_factory.mktemp("restarted") / "data"
    with ThreadedServer(data_dir) as first:
        path = f"{first.url}/v1/topics/kept"
        created = httpx.put(path, json={"partitions": 2, "config": {"segment.ms": 77}}).json()
        httpx.post(f"{path}/partitions/1/records", json={"records": [{"value": "x"}]})
    with ThreadedServer(data_dir) as second:
        path = f"{second.url}/v1/topics/kept"
        again = httpx.get(path).json()
        assert (again["topic_id"], again["config"]) == (created["topic_id"], created["config"])
        assert httpx.get(f"{path}/partitions/1/records?offset=0").json()["records"][0]["value"] == "x"


def test_altering_a_topic_names_all_faults_at_once(client: httpx.Client) -> None:
    assert client.put("/v1/topics/all-faults", json={"partitions": 1}).status_code == 201
    config = {"retention.ms": "soon", "no.such": 1, "none.such": None}
    answer = client.patch("/v1/topics/all-faults", json={"config": config})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_config")
    assert all(name in answer.text for name in config), answer.text


def test_a_wrong_parameter_has_one_code(client: httpx.Client) -> None:
    for query in ("timeout_ms=0", "timeout_ms=x", "encoding=latin1", "durability=none"):
        answer = client.post(f"/v1/produce?{query}", json={"partitions": []})
        assert [fault["code"] for fault in answer.json()["errors"]] == ["invalid_value"], answer.text
