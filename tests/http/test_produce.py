"""Producing in JSON and in raw batches."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import time
from typing import Any

import httpx
import pytest
import zstandard

from app.engine_local.partitions.flush_pace import FlushPace
from rollway.records import Codec, Record, columns_from_records, encode_batch, partition_for_key
from tests.support.held_flushes import HeldFlush
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}


def values(client: httpx.Client, path: str, offset: int = 0) -> list[Any]:
    answer = client.get(f"{path}/records", params={"offset": offset})
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


def test_records_of_one_request_get_consecutive_offsets(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    first = client.post(f"{path}/records", json={"records": [{"value": "a"}, {"value": "b"}]})
    assert first.status_code == 200
    assert first.json() == {
        "partition": 0,
        "base_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "log_append_time": -1,
        "log_start_offset": 0,
        "durable_offset": 2,
        "duplicate": False,
        "throttle_time_ms": 0,
    }
    second = client.post(f"{path}/records", json={"records": [{"value": "c"}]}).json()
    assert (second["base_offset"], second["last_offset"]) == (2, 2)
    assert values(client, path) == ["a", "b", "c"]


def test_no_records_append_nothing(client: httpx.Client, topic: str) -> None:
    """Spec A12, case V-26."""
    path = f"{topic}/partitions/0"
    for answer in (
        client.post(f"{path}/records", json={"records": []}),
        client.post(f"{path}/records", content=b"", headers=RAW),
    ):
        assert answer.status_code == 200
        assert (answer.json()["base_offset"], answer.json()["record_count"]) == (-1, 0)
    assert client.post(f"{topic}/records", json={"records": []}).json() == {"results": [], "throttle_time_ms": 0}
    assert client.get(path).json()["log_end_offset"] == 0


def test_v_1_a_raw_batch_is_stored_but_for_offset_and_epoch(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "before"}] * 10})
    sent = record_batch(b"a", b"b", b"c", b"d")
    answer = client.post(path, content=sent, headers=RAW).json()
    assert (answer["base_offset"], answer["last_offset"]) == (10, 13)
    stored = client.get(path, params={"offset": 10}, headers={"Accept": RAW["Content-Type"]}).content
    assert len(stored) == len(sent)
    differing = {place for place, (one, other) in enumerate(zip(sent, stored, strict=True)) if one != other}
    assert differing <= {*range(8), *range(12, 16)}
    assert int.from_bytes(stored[:8], "big") == 10


def test_several_raw_batches_are_appended_whole_or_not_at_all(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    answer = client.post(f"{path}/records", content=record_batch(b"a", b"b") + record_batch(b"c"), headers=RAW).json()
    assert (answer["base_offset"], answer["last_offset"], answer["record_count"]) == (0, 2, 3)
    broken = bytearray(record_batch(b"e"))
    broken[-1] ^= 1
    refused = client.post(f"{path}/records", content=record_batch(b"d") + bytes(broken), headers=RAW)
    assert (refused.status_code, refused.json()["code"], refused.json()["kafka_code"]) == (400, "corrupt_batch", 2)
    assert values(client, path) == ["a", "b", "c"]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_taken_and_read(client: httpx.Client, topic: str, codec: Codec) -> None:
    records = [Record(number, 1000 + number, b"k", b"value %d" % number) for number in range(100)]
    batch = encode_batch(columns_from_records(records), codec=codec)
    path = f"{topic}/partitions/0"
    assert client.post(f"{path}/records", content=batch, headers=RAW).status_code == 200
    assert values(client, path, 97) == ["value 97", "value 98", "value 99"]


def test_keys_values_headers_and_times_come_back(client: httpx.Client, topic: str) -> None:
    raw = base64.b64encode(bytes(range(256))).decode()
    records = [
        {"key": "k\u00e9y", "value": "\U0001f6eb", "timestamp": 0},
        {"key": "", "value": "", "timestamp": "2013-07-04T00:00:00-04:00"},
        {"value": None, "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": None}]},
        {"key_base64": raw, "value_base64": raw, "headers": [{"name": "", "value_base64": "/w=="}]},
    ]
    before = time.time_ns() // 1_000_000
    path = f"{topic}/partitions/0/records"
    assert client.post(path, json={"records": records}).status_code == 200
    after = time.time_ns() // 1_000_000
    shown = client.get(path, params={"offset": 0}).json()["records"]
    assert [record["key"] for record in shown[:3]] == ["k\u00e9y", "", None]
    assert [record["value"] for record in shown[:3]] == ["\U0001f6eb", "", None]
    assert (shown[3]["key_base64"], shown[3]["value_base64"]) == (raw, raw)
    for record in shown:
        assert ("key" in record, "value" in record) == (record is not shown[3],) * 2
        assert ("key_base64" in record, "value_base64" in record) == (record is shown[3],) * 2
    assert [record["timestamp"] for record in shown[:2]] == [0, 1_372_910_400_000]
    assert before <= shown[2]["timestamp"] <= after
    assert [record["headers"] for record in shown] == [
        [],
        [],
        [{"name": "a", "value": "1"}, {"name": "a", "value": None}],
        [{"name": "", "value_base64": "/w=="}],
    ]
    assert {record["timestamp_type"] for record in shown} == {"CreateTime"}


def test_json_and_base64_encodings(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    values = [{"value": {"a": [1, None]}}, {"value_base64": "AAE="}, {"value": None}, {"value": {"base64": "AAE="}}]
    body = {"records": [{"key": 7, **values[0]}, *values[1:]]}
    assert client.post(f"{path}?encoding=json", json=body).status_code == 200
    encoded = {"value_base64": "eyJ4IjoxfQ==", "headers": [{"name": "h", "value_base64": "eA=="}]}
    assert client.post(f"{path}?encoding=base64", json={"records": [encoded]}).status_code == 200
    as_json = client.get(path, params={"offset": 0, "encoding": "json"}).json()["records"]
    assert [value.items() <= record.items() for record, value in zip(as_json, values, strict=False)] == [True] * 4
    assert ["value_base64" in record for record in as_json] == [False, True, False, False, False]
    assert ["value" in record for record in as_json] == [True, False, True, True, True]
    assert as_json[4]["value"] == {"x": 1}
    assert as_json[0]["key"] == 7
    assert as_json[4]["headers"] == [{"name": "h", "value": "x"}]
    as_base64 = client.get(path, params={"offset": 4, "encoding": "base64"}).json()["records"]
    assert encoded.items() <= as_base64[0].items()
    assert as_base64[0]["key_base64"] is None
    assert not {"key", "value"} & as_base64[0].keys()
    assert client.get(path, params={"offset": 4}).json()["records"][0]["value"] == '{"x":1}'


def test_records_are_spread_by_partition_by_key_and_sticky(client: httpx.Client) -> None:
    client.put("/v1/topics/spread", json={"partitions": 6})
    keys = [f"key-{number}" for number in range(50)]
    records: list[dict[str, Any]] = [{"key": key, "value": key} for key in keys]
    records += [{"key": "key-0", "value": "named", "partition": 5}]
    records += [{"value": "keyless 1"}, {"value": "keyless 2"}]
    answer = client.post("/v1/topics/spread/records", json={"records": records})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["partition"] for result in results] == sorted(result["partition"] for result in results)
    assert sum(result["record_count"] for result in results) == 53
    found = {partition: values(client, f"/v1/topics/spread/partitions/{partition}") for partition in range(6)}
    for key in keys:
        assert key in found[partition_for_key(key.encode(), 6)]
    assert "named" in found[5]
    (with_keyless,) = [partition for partition in range(6) if "keyless 1" in found[partition]]
    assert found[with_keyless][-2:] == ["keyless 1", "keyless 2"] or with_keyless == 5


def test_keyless_records_move_to_other_partitions(client: httpx.Client) -> None:
    client.put("/v1/topics/sticky", json={"partitions": 3})
    # Each second one moves, to one of two others: that one of three is never chosen has a chance of 2 to the -38th.
    for _ in range(80):
        client.post("/v1/topics/sticky/records", json={"records": [{"value": "x" * 8192}]})
    ends = [partition["log_end_offset"] for partition in client.get("/v1/topics/sticky").json()["partitions"]]
    assert sum(ends) == 80
    assert min(ends) > 0


def test_some_failed_is_207_and_all_failed_is_the_error(client: httpx.Client, topic: str) -> None:
    mixed = client.post(
        f"{topic}/records", json={"records": [{"value": "a", "partition": 0}, {"value": "b", "partition": 9}]}
    )
    assert mixed.status_code == 207
    good, bad = mixed.json()["results"]
    assert (good["partition"], good["base_offset"]) == (0, 0)
    assert (bad["partition"], bad["error"]["status"], bad["error"]["kafka_code"]) == (9, 404, 3)
    failed = client.post(
        f"{topic}/records", json={"records": [{"value": "a", "partition": 8}, {"value": "b", "partition": 9}]}
    )
    assert failed.status_code == 404
    assert failed.headers["content-type"] == "application/problem+json"
    assert [result["partition"] for result in failed.json()["results"]] == [8, 9]


def test_a_bad_record_refuses_its_partition_and_is_named_as_asked(client: httpx.Client) -> None:
    """Spec E14."""
    client.put("/v1/topics/compacted", json={"partitions": 2, "config": {"cleanup.policy": "compact"}})
    records = [
        {"key": "a", "value": "1", "partition": 0},
        {"key": "b", "value": "2", "partition": 1},
        {"value": "keyless", "partition": 1},
    ]
    answer = client.post("/v1/topics/compacted/records", json={"records": records})
    assert answer.status_code == 207
    good, bad = answer.json()["results"]
    assert good["base_offset"] == 0
    assert (bad["error"]["code"], bad["error"]["kafka_code"]) == ("invalid_record", 87)
    assert [fault["pointer"] for fault in bad["error"]["errors"]] == ["/records/2"]
    assert client.get("/v1/topics/compacted/partitions/1").json()["log_end_offset"] == 0


def test_acks_0_answers_at_once_and_appends(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    answer = client.post(f"{path}/records?acks=0", json={"records": [{"value": "x"}]})
    unknown = {"base_offset": -1, "last_offset": -1, "log_append_time": -1, "duplicate": False, "throttle_time_ms": 0}
    taken = {"partition": 0, "record_count": 1, "log_start_offset": 0, "durable_offset": 0}
    assert (answer.status_code, answer.json()) == (200, unknown | taken)
    client.post(f"{path}/records", json={"records": [{"value": "y"}]})
    assert values(client, path) == ["x", "y"]
    spread = client.post(f"{topic}/records?acks=0", json={"records": [{"value": "z", "partition": 0}] * 3})
    (result,) = spread.json()["results"]
    assert (spread.status_code, result["base_offset"], result["record_count"]) == (200, -1, 3)
    mixed = {"records": [{"value": "taken", "partition": 1}, {"value": "dropped", "partition": 9}]}
    assert client.post(f"{topic}/records?acks=0", json=mixed).status_code == 207
    client.post(f"{topic}/partitions/1/records", json={"records": [{"value": "after"}]})
    assert values(client, f"{topic}/partitions/1")[-2:] == ["taken", "after"]
    failed = {"records": [{"value": "dropped", "partition": 9}]}
    assert client.post(f"{topic}/records?acks=0", json=failed).status_code == 404


@pytest.mark.parametrize("query", ["acks=1", "acks=all", "acks=1&durability=fsynced", "durability=written"])
def test_acks_and_durability_are_taken(client: httpx.Client, topic: str, query: str) -> None:
    answer = client.post(f"{topic}/partitions/0/records?{query}", json={"records": [{"value": "x"}]})
    assert answer.status_code == 200
    if "fsynced" in query or query == "acks=all":
        assert answer.json()["durable_offset"] == 1


def test_a_promise_that_no_answer_could_give_is_refused(client: httpx.Client, topic: str) -> None:
    """An answer that waits for nothing says nothing of the disk."""
    records = {"records": [{"value": "x"}]}
    part = {"topic": topic.rpartition("/")[2], "partition": 0, **records}
    for path, body in (
        (f"{topic}/partitions/0/records", records),
        (f"{topic}/records", records),
        ("/v1/produce", {"partitions": [part]}),
    ):
        for _ in range(2):
            refused = client.post(f"{path}?acks=0&durability=fsynced", json=body)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
            assert [fault["pointer"] for fault in refused.json()["errors"]] == ["durability"]
        assert client.post(f"{path}?acks=0&durability=written", json=body).status_code == 200


def test_an_interval_topic_acknowledges_before_the_fsync(client: httpx.Client) -> None:
    client.put("/v1/topics/interval", json={"config": {"flush.policy": "interval"}})
    path = "/v1/topics/interval/partitions/0"
    first = client.post(f"{path}/records", json={"records": [{"value": "x"}]}).json()
    assert first["durable_offset"] == 0
    assert client.get(path).json()["high_watermark"] == 1
    second = client.post(f"{path}/records?durability=fsynced", json={"records": [{"value": "y"}]}).json()
    assert second["durable_offset"] == 2


def test_expected_offset_appends_only_there(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    assert client.post(f"{path}/records?expected_offset=0", json={"records": [{"value": "a"}]}).status_code == 200
    refused = client.post(f"{path}/records?expected_offset=0", json={"records": [{"value": "b"}]})
    assert refused.status_code == 412
    assert (refused.json()["code"], refused.json()["log_end_offset"]) == ("expected_offset_mismatch", 1)
    assert values(client, path) == ["a"]


def test_log_append_time_is_the_services(client: httpx.Client) -> None:
    """Spec E15."""
    client.put("/v1/topics/stamped", json={"config": {"message.timestamp.type": "LogAppendTime"}})
    path = "/v1/topics/stamped/partitions/0/records"
    answer = client.post(
        path, json={"records": [{"value": "x", "timestamp": 5}, {"value": "y", "timestamp": 7}]}
    ).json()
    shown = client.get(path, params={"offset": 0}).json()["records"]
    assert {record["timestamp"] for record in shown} == {answer["log_append_time"]}
    assert {record["timestamp_type"] for record in shown} == {"LogAppendTime"}


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)]
)
def test_a_body_may_be_compressed(client: httpx.Client, topic: str, encoding: str, compress: Any) -> None:
    path = f"{topic}/partitions/0"
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = client.post(f"{path}/records", content=compress(b'{"records":[{"value":"x"}]}'), headers=headers)
    assert answer.status_code == 200
    raw = client.post(
        f"{path}/records", content=compress(record_batch(b"y")), headers={**RAW, "Content-Encoding": encoding}
    )
    assert raw.status_code == 200
    assert values(client, path) == ["x", "y"]


def test_large_json_becomes_several_batches_of_one_append(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    records = [{"value": f"{number:08d}" * 100} for number in range(5000)]
    answer = client.post(f"{path}/records", json={"records": records}).json()
    assert (answer["base_offset"], answer["last_offset"]) == (0, 4999)
    assert client.get(f"{path}/records/4321/value").text == "00004321" * 100


def test_concurrent_producers_get_each_offset_once(client: httpx.Client, server: ThreadedServer, topic: str) -> None:
    """Spec A9."""
    path = f"{server.url}{topic}/partitions/0/records"
    results: list[tuple[int, str]] = []

    def produce(name: int) -> None:
        with httpx.Client() as own:
            for number in range(25):
                value = f"{name}-{number}"
                answer = own.post(path, json={"records": [{"value": value}]}).json()
                results.append((answer["base_offset"], value))

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(client, f"{topic}/partitions/0") == [value for _, value in sorted(results)]


@pytest.mark.needs_local("it breaks, fills or holds up a disk")
def test_a_timed_out_produce_is_unknown_and_goes_on(
    client: httpx.Client, server: ThreadedServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spec A6."""
    parts = server.service.parts
    log = parts.engine.manager.partition(topic.rpartition("/")[2], 0)
    # A disk that was quick before would be waited for on the loop, which is to see how late it is.
    monkeypatch.setattr(parts.engine.partitions, "_flush_pace", FlushPace(0))
    held = HeldFlush(parts.engine.manager, log)
    try:
        late = client.post(f"{topic}/partitions/0/records?timeout_ms=1", json={"records": [{"value": "late"}]})
    finally:
        held.go_on.set()
    document = late.json()
    assert (late.status_code, document["code"], document["kafka_code"]) == (504, "request_timed_out", 7)
    assert (document["applied"], document["retryable"]) == ("unknown", True)
    client.post(f"{topic}/partitions/0/records", json={"records": [{"value": "next"}]})
    assert values(client, f"{topic}/partitions/0") == ["late", "next"]


def test_a_fetched_record_can_be_sent_again_as_it_is(client: httpx.Client, topic: str) -> None:
    """Its offset and timestamp type are ignored; its partition must be the one the request is for."""
    path = f"{topic}/partitions/1/records"
    sent = [
        {"key": "k", "value": "text", "timestamp": 5, "headers": [{"name": "h", "value": None}]},
        {"value_base64": "/w==", "timestamp": -1},
        {"key": None, "value": None},
    ]
    assert client.post(path, json={"records": sent}).status_code == 200
    shown = client.get(path, params={"offset": 0}).json()["records"]
    assert [record["timestamp"] for record in shown[:2]] == [5, -1]
    assert client.post(path, json={"records": shown}).json()["base_offset"] == 3
    lines = client.get(path, params={"offset": 0, "max_records": 3}, headers={"Accept": "application/x-ndjson"}).content
    answer = client.post(path, content=lines, headers={"Content-Type": "application/x-ndjson"})
    assert answer.json()["base_offset"] == 6
    key = {"Idempotency-Key": f"again-{topic}"}
    assert client.post(path, json={"records": shown}, headers=key).json()["base_offset"] == 9
    assert client.post(f"{topic}/records", json={"records": shown}).json()["results"][0]["partition"] == 1
    again = client.get(path, params={"offset": 0}).json()["records"]
    assert len(again) == 15
    for place, record in enumerate(again):
        assert {**record, "offset": 0} == {**shown[place % 3], "offset": 0}
    refused = client.post(f"{topic}/partitions/0/records", json={"records": shown})
    assert refused.status_code == 422
    assert [fault["pointer"] for fault in refused.json()["errors"]] == [f"/records/{n}/partition" for n in range(3)]


@pytest.mark.parametrize("whole_topic", [False, True])
def test_what_the_log_refuses_in_a_stream_of_lines_is_named_by_its_line(
    client: httpx.Client, topic: str, whole_topic: bool
) -> None:
    """Not by its place in the batch that it happened to be in."""
    client.patch(topic, json={"config": {"message.timestamp.before.max.ms": 1000}}).raise_for_status()
    path = f"{topic}/records" if whole_topic else f"{topic}/partitions/0/records"
    good = '{"key":"k","value":"' + "v" * 2000 + '"}\n'
    lines = good * 1000 + '{"key":"k","value":"old","timestamp":7}\n' + good * 3
    answer = client.post(path, content=lines, headers={"Content-Type": "application/x-ndjson"})
    last = json.loads(answer.text.splitlines()[-1])
    problem = last if answer.status_code == 400 else last["error"]
    assert problem["kafka_code"] == 32
    assert [fault["pointer"] for fault in problem["errors"]] == ["/1000"]
    answer = client.post(
        path, content='{"key":"k","value":"old","timestamp":7}\n', headers={"Content-Type": "application/x-ndjson"}
    )
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/0"]


def test_json_records_that_the_log_refuses_are_named_by_their_place_in_the_request(
    client: httpx.Client, topic: str
) -> None:
    client.patch(topic, json={"config": {"cleanup.policy": "compact"}}).raise_for_status()
    records = [{"key": "a", "value": "1", "partition": 0}, {"value": "2", "partition": 1}, {"key": "b", "value": "3"}]
    answer = client.post(f"{topic}/records", json={"records": records})
    (failed,) = [result for result in answer.json()["results"] if "error" in result]
    assert [fault["pointer"] for fault in failed["error"]["errors"]] == ["/records/1"]
