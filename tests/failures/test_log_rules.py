"""Kafka's rules of the log that were broken, asked of a service over HTTP.

What a broker (Apache Kafka 3.9.1 and 4.1.1) answers to the batches in ``inputs/kafka-judge`` is the measure. The rules
themselves, with their neighbours, are cases in ``tests/cases``.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollway.client import ClientSettings, RollwayClient
from rollway.records import (
    Record,
    RecordBatch,
    columns_from_records,
    decode_batch,
    encode_batch,
    records_from_columns,
    split_batches,
)
from tests.support.kafka_directory import NOON_MS, KafkaDirectory, Segment, batch, emptied
from tests.support.servers import ThreadedServer, http_client

JUDGE = Path(__file__).parent / "inputs/kafka-judge"
RAW = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
NDJSON = {"Accept": "application/x-ndjson"}
ODD_HEADER = {"name_base64": base64.b64encode(b"\xff\xfe").decode(), "value": "x"}


# What a producer may send


@pytest.mark.parametrize(
    ("name", "config", "code"),
    [
        ("lz4-linked-blocks", {}, 87),
        ("lz4-linked-blocks", {"compression.type": "lz4"}, 87),
        ("lz4-linked-blocks", {"compression.type": "zstd"}, 0),
        ("lz4-independent-blocks", {}, 0),
        ("log-append-time-flag", {}, 0),
        ("log-append-time-flag", {"message.timestamp.type": "LogAppendTime"}, 32),
        ("magic-3", {}, 2),
        ("epoch-minus-1", {}, 87),
        ("timestamp-minus-5", {}, 32),
        ("header-name-not-utf8", {}, 0),
        ("producer-0-first-batch", {}, 0),
    ],
)
def test_odd_batches(client: httpx.Client, topic: str, name: str, config: dict[str, str], code: int) -> None:
    """As a broker answers, or as docs/explanation/differences-from-kafka.md says (epoch -1, timestamps below -1)."""
    # The times in these batches are those of the day they were made, whatever the clock here says.
    settings = {"message.timestamp.after.max.ms": 2**63 - 1, **config}
    assert client.patch(topic, json={"config": settings}).status_code == 200
    answer = client.post(f"{topic}/partitions/0/records", content=(JUDGE / f"{name}.batch").read_bytes(), headers=RAW)
    assert (answer.status_code, answer.json().get("kafka_code", 0)) == (400 if code else 200, code), answer.text
    shown = client.get(f"{topic}/partitions/0/records", params={"offset": 0})
    assert shown.status_code == 200
    records = shown.json()["records"]
    assert bool(records) == (code == 0)
    assert {record["timestamp_type"] for record in records} <= {"CreateTime"}
    if name == "lz4-linked-blocks" and code:
        assert "linked blocks" in answer.json()["detail"]


# Header names that are not UTF-8


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    """A service on directories that brokers left: a segment of oddities, and a compacted one with emptied batches."""
    directory = KafkaDirectory(tmp_path_factory.mktemp("copied") / "data")
    directory.configure("oddities", {"cleanup.policy": "compact", "retention.ms": -1})
    partition = directory.logs / "oddities-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes((JUDGE / "broker-accepted-oddities.log").read_bytes())
    emptied_id = "AAAAAAAAAAAAAAAAAAAAAg"
    directory.configure("emptied", {"cleanup.policy": "compact,delete", "retention.ms": -1}, topic_id=emptied_id)
    gone = emptied(batch(5, 5, timestamp=NOON_MS + 90_000, producer_id=7, producer_epoch=0, base_sequence=0))
    path = directory.add_partition("emptied-0", [Segment([batch(0, 5), gone, batch(10, 2, timestamp=NOON_MS + 50)])])
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {emptied_id}")
    with ThreadedServer(directory.path) as running:
        yield running


@pytest.fixture
def odd(copied: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(copied.url) as client:
        yield client


ODDITIES = "/v1/topics/oddities/partitions/0/records"


@pytest.mark.parametrize("offset", range(11))
def test_one_odd_record_blocks_no_read(odd: httpx.Client, offset: int) -> None:
    """Every way in JSON, from every offset: the odd name as base64, all others as text."""
    shown = odd.get(ODDITIES, params={"offset": offset})
    assert shown.status_code == 200, shown.text
    lines = odd.get(ODDITIES, params={"offset": offset}, headers=NDJSON)
    assert [json.loads(line) for line in lines.text.splitlines()] == shown.json()["records"]
    many = odd.post("/v1/fetch", json={"partitions": [{"topic": "oddities", "partition": 0, "fetch_offset": offset}]})
    assert many.status_code == 200, many.text
    assert many.json()["partitions"][0]["records"] == shown.json()["records"]
    for encoding in ("base64", "json"):
        other = odd.get(ODDITIES, params={"offset": offset, "encoding": encoding})
        assert len(other.json()["records"]) == len(shown.json()["records"])
    for record in shown.json()["records"]:
        is_odd = record["offset"] == 5 and record["headers"]
        assert record["headers"] == ([ODD_HEADER] if is_odd else [])
    if offset <= 5:
        assert [header for record in shown.json()["records"] for header in record["headers"]]
    committed = odd.get(ODDITIES, params={"offset": offset, "isolation": "read_committed"})
    assert committed.json()["records"] == shown.json()["records"]


def test_a_single_odd_record(odd: httpx.Client) -> None:
    one = odd.get("/v1/topics/oddities/partitions/0/records/5")
    assert one.status_code == 200, one.text
    assert one.json()["headers"] == [ODD_HEADER]


def test_an_odd_record_can_be_sent_as_it_was_fetched(client: httpx.Client, topic: str, odd: httpx.Client) -> None:
    """As JSON, as NDJSON and by the command line; what is stored is the same name again."""
    record = odd.get("/v1/topics/oddities/partitions/0/records/5").json()
    path = f"{topic}/partitions/0/records"
    sent = {name: value for name, value in record.items() if name != "partition"}
    assert client.post(path, json={"records": [sent]}).status_code == 200
    ndjson = {"Content-Type": "application/x-ndjson"}
    assert client.post(path, content=json.dumps(sent).encode() + b"\n", headers=ndjson).status_code == 200
    name = topic.rpartition("/")[2]
    rollway = [sys.executable, "-c", "from app.cli import main; main()"]
    url = str(client.base_url).rstrip("/")
    command = [*rollway, "produce", name, "--server", url, "--partition", "0", "--format", "records"]
    done = subprocess.run(
        command, input=json.dumps(sent) + "\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = client.get(path, params={"offset": 0}).json()["records"]
    assert [one["headers"] for one in shown] == [[ODD_HEADER]] * 3
    command = [*rollway, "fetch", name, "--server", url, "--partition", "0", "--offset", "earliest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["headers"] for line in done.stdout.splitlines()] == [[ODD_HEADER]] * 3


@pytest.mark.parametrize("name", [None, 7, [], {}, {"base64": "?"}, {"base64": 7}, {"base64": "AA==", "more": 1}])
def test_a_header_name_is_text_or_base64(client: httpx.Client, topic: str, name: Any) -> None:
    for header in ({"name": name}, {"name_base64": name}, {"name": "n", "name_base64": "AA=="}):
        record = {"value": "v", "headers": [{**header, "value": "x"}]}
        refused = client.post(f"{topic}/partitions/0/records", json={"records": [record]})
        assert refused.status_code == 422, refused.text
        assert refused.json()["code"] == "invalid_request"


def test_raw_batches_with_odd_names_are_stored(client: httpx.Client, topic: str) -> None:
    """Plain ones by the compiled append, compressed and recompressed ones by the general way: all as they are."""
    record = Record(0, int(time.time() * 1000), b"k", b"v", (("\udcff", b"x"), ("plain", None)))
    body = encode_batch(columns_from_records([record]))
    for number, compression in enumerate(("producer", "gzip", "uncompressed")):
        client.patch(topic, json={"config": {"compression.type": compression}}).raise_for_status()
        answer = client.post(f"{topic}/partitions/0/records", content=body, headers=RAW)
        assert answer.status_code == 200, answer.text
        stored = client.get(f"{topic}/partitions/0/records/{number}").json()
        assert stored["headers"] == [
            {"name_base64": "/w==", "value": "x"},
            {"name": "plain", "value": None},
        ]


def test_the_client_library_reads_odd_names(copied: ThreadedServer) -> None:
    with RollwayClient(ClientSettings(copied.url)) as client:
        fetched = client.fetch("oddities", 0, offset=5, end_offset=6, max_bytes=1000, isolation="read_committed")
    (stored,) = split_batches(fetched.batches)
    columns = decode_batch(stored)
    assert columns.headers is not None
    assert columns.headers.names.to_list() == [b"\xff\xfe"]
    (record,) = records_from_columns(columns)
    assert record.headers == (("\udcff\udcfe", b"x"),)
    again = decode_batch(RecordBatch(encode_batch(columns_from_records([record]))))
    assert again.headers is not None
    assert again.headers.names == columns.headers.names


def test_log_verify_notes_what_a_broker_accepts(copied: ThreadedServer, tmp_path: Path) -> None:
    """A name that is not UTF-8, epoch -1 and timestamps below -1 are no damage."""
    directory = KafkaDirectory(tmp_path / "data")
    directory.configure("oddities", {"cleanup.policy": "compact"})
    partition = directory.logs / "oddities-0"
    partition.mkdir()
    # Without the batch whose offset deltas leave it, which is none of this.
    batches = (JUDGE / "broker-accepted-oddities.log").read_bytes()
    kept = batches[: len_of(batches)] + batches[len_of(batches) + len_of(batches[len_of(batches) :]) :]
    linked = (JUDGE / "lz4-linked-blocks.batch").read_bytes()
    linked = (11).to_bytes(8, "big") + linked[8:12] + bytes(4) + linked[16:]
    (partition / f"{0:020d}.log").write_bytes(kept + linked)
    command = [sys.executable, "-c", "from app.cli import main; main()"]
    arguments = ["log", "verify", str(directory.path), "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    findings = json.loads(done.stdout)["findings"]
    assert [finding for finding in findings if finding["severity"] == "damage"] == []
    messages = " ".join(finding["message"] for finding in findings)
    assert "header name that is not UTF-8" in messages
    assert "producer 77 with epoch -1" in messages
    assert "lz4 frame of linked blocks" in messages


def len_of(content: bytes) -> int:
    """The length of the batch that ``content`` begins with."""
    return int.from_bytes(content[8:12], "big") + 12


# Emptied batches


EMPTIED = "/v1/topics/emptied/partitions/0"


def test_emptied_batches_in_every_look_up(odd: httpx.Client) -> None:
    """Offsets 0 to 4, then a batch for 5 to 9 without records and with the largest timestamp, then 10 and 11."""
    records, offsets = f"{EMPTIED}/records", f"{EMPTIED}/offsets"

    def offsets_of(**params: Any) -> list[int]:
        answer = odd.get(records, params=params)
        assert answer.status_code == 200, answer.text
        return [record["offset"] for record in answer.json()["records"]]

    def offset_at(timestamp: Any, **params: str) -> int | None:
        answer = odd.get(offsets, params={"timestamp": timestamp, **params})
        assert answer.status_code == 200, answer.text
        found: int | None = answer.json()["offset"]
        return found

    assert offset_at("max_timestamp") == offset_at("max_timestamp", isolation="read_committed") == 4
    assert [offset_at(NOON_MS + ms) for ms in (0, 1, 4000, 4001, 90_000)] == [0, 1, 4, None, None]
    assert (offset_at("earliest"), offset_at("latest")) == (0, 12)
    assert offsets_of(offset=0) == [0, 1, 2, 3, 4, 10, 11]
    for offset in range(5, 10):
        assert offsets_of(offset=offset) == [10, 11]
        assert odd.get(f"{records}/{offset}").status_code == 404
    # So many offsets, of which some have no record: the next fetch begins behind them.
    assert offsets_of(offset=3, max_records=3) == [3, 4]
    assert odd.get(records, params={"offset": 3, "max_records": 3}).json()["next_offset"] == 6
    assert offsets_of(timestamp=NOON_MS + 4000) == [4, 10, 11]
    assert offsets_of(timestamp=NOON_MS, until=NOON_MS + 2000) == [0, 1]
    assert offsets_of(timestamp=NOON_MS + 4001) == []
    assert set(offsets_of(tail=3)) <= {4, 10, 11}
    lines = odd.get(records, params={"offset": 0}, headers=NDJSON).text.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2, 3, 4, 10, 11]
    many = odd.post("/v1/fetch", json={"partitions": [{"topic": "emptied", "partition": 0, "fetch_offset": 5}]})
    assert [record["offset"] for record in many.json()["partitions"][0]["records"]] == [10, 11]
    splits = odd.post("/v1/topics/emptied/splits", json={"split_count": 3})
    assert splits.status_code == 200, splits.text
    listed = odd.get("/v1/topics/emptied/partitions/0/segments")
    assert listed.status_code == 200, listed.text
    assert listed.json()["segments"][0]["first_timestamp"] == NOON_MS


def test_delete_records_before_a_time_with_emptied_batches(tmp_path: Path) -> None:
    directory = KafkaDirectory(tmp_path / "data")
    directory.configure("t", {"cleanup.policy": "compact,delete", "retention.ms": -1})
    gone = emptied(batch(5, 5, timestamp=NOON_MS + 90_000, producer_id=7, producer_epoch=0, base_sequence=0))
    directory.add_partition("t-0", [Segment([batch(0, 5), gone, batch(10, 2, timestamp=NOON_MS + 95_000)])])
    with ThreadedServer(directory.path) as running, http_client(running.url) as client:
        for before, start in ((NOON_MS + 2000, 2), (NOON_MS + 90_000, 10)):
            answer = client.post("/v1/topics/t/partitions/0/delete-records", json={"before_timestamp": before})
            assert answer.status_code == 200, answer.text
            shown = client.get("/v1/topics/t/partitions/0/offsets", params={"timestamp": "earliest"})
            assert shown.json()["offset"] == start


# Look-ups by time


MINUTE_MS = 60_000


@pytest.fixture
def ahead(client: httpx.Client, topic: str) -> tuple[str, int]:
    """A topic, and now: offset 0 is half an hour ahead, then a record for each of the last ten minutes."""
    now = int(time.time() * 1000)
    times = [now + 30 * MINUTE_MS, *(now - minutes * MINUTE_MS for minutes in range(10, 0, -1))]
    for timestamp in times:
        record = {"value": str((timestamp - now) // MINUTE_MS), "timestamp": timestamp}
        assert client.post(f"{topic}/partitions/0/records", json={"records": [record]}).is_success
    return topic, now


def test_until_behind_a_record_ahead_of_its_time(client: httpx.Client, ahead: tuple[str, int]) -> None:
    """``until`` is looked up from the start of the range on, not from the start of the log."""
    topic, now = ahead
    path = f"{topic}/partitions/0/records"

    def values(**params: Any) -> list[str]:
        records = client.get(path, params=params).json()["records"]
        lines = client.get(path, params=params, headers=NDJSON).text.splitlines()
        assert [json.loads(line) for line in lines] == records
        return [record["value"] for record in records]

    # As in Kafka, the first record of the last five minutes is the one ahead. With an end in the past it is not.
    assert values(timestamp=now - 5 * MINUTE_MS)[0] == "30"
    assert values(timestamp=now - 5 * MINUTE_MS, until=now) == ["-5", "-4", "-3", "-2", "-1"]
    assert values(timestamp=now - 5 * MINUTE_MS, until=now - 2 * MINUTE_MS) == ["-5", "-4", "-3"]
    assert values(timestamp=now - 150_000, until=now - 140_000) == []
    assert values(offset=1, until=now) == [str(-minutes) for minutes in range(10, 0, -1)]
    assert values(offset=3, until=now - 3 * MINUTE_MS) == ["-8", "-7", "-6", "-5", "-4"]
    assert values(tail=5, until=now - 2 * MINUTE_MS) == ["-5", "-4", "-3"]
    assert values(offset=6, until=now - 9 * MINUTE_MS) == []
    assert values(offset=0, until=now - 9 * MINUTE_MS) == ["30", "-10"]
    # An end that is still to come is one like any other.
    assert values(timestamp=now - 5 * MINUTE_MS, until=now + 29 * MINUTE_MS) == []
    assert len(values(timestamp=now - 5 * MINUTE_MS, until=now + 31 * MINUTE_MS)) == 11
    # In answers of one batch each, as in one.
    found, offset = [], 6
    while offset < 11:
        page = client.get(path, params={"offset": offset, "until": now - 2 * MINUTE_MS, "max_bytes": 1}).json()
        found += [record["value"] for record in page["records"]]
        if not page["records"]:
            break
        offset = page["next_offset"]
    assert found == ["-5", "-4", "-3"]


def test_splits_end_behind_a_record_ahead_of_its_time(client: httpx.Client, ahead: tuple[str, int]) -> None:
    topic, now = ahead
    request = {"split_count": 1, "start_timestamp": now - 8 * MINUTE_MS, "end_timestamp": now - 3 * MINUTE_MS}
    bounds = [{"partition": 0, "start_offset": 1, "end_timestamp": now - 3 * MINUTE_MS}]
    answer = client.post(f"{topic}/splits", json={**request, "partitions": bounds})
    assert answer.status_code == 200, answer.text
    ranges = {part["partition"]: (part["start_offset"], part["end_offset"]) for part in answer.json()["partitions"]}
    assert ranges[0] == (1, 8)


def test_f_14b_the_largest_timestamp_is_behind_the_last_stable_offset(client: httpx.Client, topic: str) -> None:
    """A broker answers none then; without isolation, and after the marker, it is found."""
    partition, now = f"{topic}/partitions/0", int(time.time() * 1000)
    assert client.post(f"{partition}/records", json={"records": [{"value": "a", "timestamp": now}]}).is_success
    name = f"tx-{topic.rpartition('/')[2]}"
    producer = client.post("/v1/producers", json={"transactional_id": name}).json()
    body = encode_batch(
        columns_from_records([Record(0, now + 60_000, b"k", b"v")]),
        producer_id=producer["producer_id"],
        producer_epoch=producer["producer_epoch"],
        base_sequence=0,
        transactional=True,
    )
    sent = client.post(f"{partition}/records", content=body, headers={**RAW, "Transactional-Id": name})
    assert sent.status_code == 200, sent.text

    def largest(isolation: str) -> int | None:
        params = {"timestamp": "max_timestamp", "isolation": isolation}
        found: int | None = client.get(f"{partition}/offsets", params=params).json()["offset"]
        return found

    assert (largest("read_committed"), largest("read_uncommitted")) == (None, 1)
    ended = client.post(
        f"/v1/transactions/{name}/commit",
        json={"producer_id": producer["producer_id"], "producer_epoch": producer["producer_epoch"]},
    )
    assert ended.is_success, ended.text
    assert (largest("read_committed"), largest("read_uncommitted")) == (1, 1)
