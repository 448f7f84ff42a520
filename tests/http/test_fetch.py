"""Fetching: ranges, forms, headers, caching, single records and values."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from rollway.records import split_batches
from tests.support.servers import ThreadedServer
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"


@pytest.fixture
def path(client: httpx.Client, topic: str) -> str:
    """A partition with 12 records: values 0 to 11, four to a batch, timestamps 100, 110, ..."""
    path = f"{topic}/partitions/0"
    for first in range(0, 12, 4):
        records = [{"value": str(number), "timestamp": 100 + 10 * number} for number in range(first, first + 4)]
        assert client.post(f"{path}/records", json={"records": records}).status_code == 200
    return path


def fetch(client: httpx.Client, path: str, accept: str = "application/json", **params: Any) -> httpx.Response:
    return client.get(f"{path}/records", params=params, headers={"Accept": accept})


def offsets(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [record["offset"] for record in answer.json()["records"]]


@pytest.mark.parametrize(
    ("params", "expected", "next_offset"),
    [
        ({"offset": 0}, range(12), 12),
        ({"offset": 7}, range(7, 12), 12),
        ({"offset": "earliest"}, range(12), 12),
        ({"offset": "latest"}, [], 12),
        ({"offset": 12}, [], 12),
        ({"tail": 3}, range(9, 12), 12),
        ({"tail": 0}, [], 12),
        ({"tail": 1000}, range(12), 12),
        ({"timestamp": 0}, range(12), 12),
        ({"timestamp": 145}, range(5, 12), 12),
        ({"timestamp": "1970-01-01T00:00:00.150Z"}, range(5, 12), 12),
        ({"timestamp": 211}, [], 12),
        ({"offset": 2, "end_offset": 6}, range(2, 6), 6),
        ({"offset": 2, "end_offset": 2}, [], 2),
        ({"offset": 6, "end_offset": 2}, [], 6),
        ({"offset": 2, "end_offset": 99}, range(2, 12), 12),
        ({"offset": 2, "until": 150}, range(2, 5), 5),
        ({"offset": 2, "until": 100}, [], 2),
        ({"offset": 2, "until": 9999}, range(2, 12), 12),
        ({"timestamp": 120, "until": 140, "end_offset": 99}, range(2, 4), 4),
        ({"offset": 2, "max_records": 5}, range(2, 7), 7),
        ({"offset": 2, "max_records": 5, "end_offset": 4}, range(2, 4), 4),
        ({"offset": 1, "max_bytes": 1}, range(1, 4), 4),
        ({"offset": 0, "isolation": "read_committed"}, range(12), 12),
    ],
)
def test_ranges(client: httpx.Client, path: str, params: dict[str, Any], expected: Any, next_offset: int) -> None:
    """Spec B5, B7, D12, D14."""
    answer = fetch(client, path, **params)
    assert offsets(answer) == list(expected)
    assert answer.json()["next_offset"] == next_offset
    lines = fetch(client, path, NDJSON, **params)
    assert [json.loads(line) for line in lines.text.splitlines()] == answer.json()["records"]
    assert lines.headers["next-offset"] == str(next_offset)
    raw = fetch(client, path, RAW, **params)
    batches = split_batches(raw.content)
    covered = {offset for batch in batches for offset in range(batch.header.base_offset, batch.header.next_offset)}
    assert set(expected) <= covered
    if expected:
        assert batches[0].header.base_offset <= expected[0] <= batches[0].header.last_offset
        assert batches[-1].header.base_offset <= expected[-1] <= batches[-1].header.last_offset
    else:
        assert batches == []


def test_f_1_boundaries(client: httpx.Client, path: str) -> None:
    """Spec B8."""
    client.post(f"{path}/delete-records", json={"offset": 4})
    assert offsets(fetch(client, path, offset=12)) == []
    above = fetch(client, path, offset=13)
    assert (above.status_code, above.json()["code"], above.json()["kafka_code"]) == (416, "offset_out_of_range", 1)
    assert above.json()["log_end_offset"] == 12
    for offset in (3, 0):
        below = fetch(client, path, offset=offset)
        assert (below.status_code, below.json()["code"], below.json()["kafka_code"]) == (410, "offset_out_of_range", 1)
        assert below.json()["log_start_offset"] == 4
        assert below.json()["log_start_moved_by"] == "delete-records"
        assert below.json()["log_start_moved_ms"] > 1_700_000_000_000
        assert below.headers["log-start-offset"] == "4"
    assert fetch(client, path, offset=-1).status_code == 422
    assert offsets(fetch(client, path, offset=0, on_truncated="earliest")) == list(range(4, 12))
    assert offsets(fetch(client, path, offset="earliest")) == list(range(4, 12))
    assert offsets(fetch(client, path, timestamp=0)) == list(range(4, 12))


def test_every_answer_tells_the_limits(client: httpx.Client, path: str) -> None:
    for accept in ("application/json", NDJSON, RAW):
        answer = fetch(client, path, accept, offset=10)
        names = ("log-start-offset", "high-watermark", "last-stable-offset", "next-offset")
        assert [answer.headers[name] for name in names] == ["0", "12", "12", "12"]
        assert answer.headers["content-type"] == accept
        assert answer.headers["cache-control"] == "no-store"
        assert "etag" not in answer.headers
    document = fetch(client, path, offset=10).json()
    limits = ("next_offset", "log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset")
    assert [document[name] for name in limits] == [12, 0, 12, 12, 12]


def test_head_answers_the_headers_alone(client: httpx.Client, path: str) -> None:
    for accept in ("application/json", RAW):
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        params = {"offset": 0, "end_offset": 4}
        full = client.get(f"{path}/records", params=params, headers=headers)
        head = client.head(f"{path}/records", params=params, headers=headers)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-length", "etag", "next-offset", "high-watermark", "content-type", "cache-control"):
            assert head.headers[name] == full.headers[name]
    missing = client.head(f"{path}/records", params={"offset": 99})
    assert (missing.status_code, missing.content) == (416, b"")


def test_a_closed_range_is_cached(client: httpx.Client, path: str) -> None:
    for accept in ("application/json", NDJSON, RAW):
        closed = fetch(client, path, accept, offset=2, end_offset=6)
        assert closed.headers["cache-control"] == "max-age=60, immutable"
        etag = closed.headers["etag"]
        assert etag.startswith('"' if accept == RAW else 'W/"')
        client.post(f"{path}/records", json={"records": [{"value": "more"}]})
        for tags in (etag, f'"other", {etag}', f"W/{etag.removeprefix('W/')}", "*"):
            headers = {"Accept": accept, "If-None-Match": tags}
            same = client.get(f"{path}/records", params={"offset": 2, "end_offset": 6}, headers=headers)
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
            assert same.headers["vary"] == closed.headers["vary"]
        # What a cache has kept of the JSON of before is not the same.
        assert (";pairs" in etag) is (accept != RAW)
        before = '"other"' if accept == RAW else f'"other", {etag.replace(";pairs", "")}'
        headers = {"Accept": accept, "If-None-Match": before}
        other = client.get(f"{path}/records", params={"offset": 2, "end_offset": 6}, headers=headers)
        assert other.status_code == 200
    tags = {fetch(client, path, accept, offset=2, end_offset=6).headers["etag"] for accept in (NDJSON, RAW)}
    assert len(tags) == 2
    by_time = fetch(client, path, timestamp=110, until=150)
    assert by_time.headers["cache-control"] == "no-cache"
    assert by_time.headers["etag"]


def test_a_topic_made_anew_is_not_answered_from_a_cache(client: httpx.Client) -> None:
    """The same URLs are other records then: an answer that may be kept is asked for again, after a minute."""
    asked = [
        ("records?offset=0&end_offset=1", "application/json"),
        ("records?offset=0&end_offset=1", NDJSON),
        ("records?offset=0&end_offset=1", RAW),
        ("records/0", "application/json"),
        ("records/0/value", "*/*"),
    ]
    kept: list[httpx.Response] = []
    for life in ("first", "second"):
        client.put("/v1/topics/made-anew", json={"partitions": 1})
        path = "/v1/topics/made-anew/partitions/0"
        client.post(f"{path}/records", json={"records": [{"value": life}]})
        for number, (url, accept) in enumerate(asked):
            headers = {"Accept": accept}
            if life == "second":
                headers["If-None-Match"] = kept[number].headers["etag"]
            answer = client.get(f"{path}/{url}", headers=headers)
            assert (answer.status_code, life.encode() in answer.content) == (200, True)
            assert answer.headers["cache-control"] == "max-age=60, immutable"
            kept.append(answer)
        client.delete("/v1/topics/made-anew")


def test_a_plus_that_became_a_space_is_explained(client: httpx.Client, path: str) -> None:
    for name in ("timestamp", "until"):
        start = "" if name == "timestamp" else "offset=0&"
        refused = client.get(f"{path}/records?{start}{name}=2013-07-04T00:00:00+02:00")
        assert refused.status_code == 422
        assert "write + as %2B in a URL" in refused.text
        other = client.get(f"{path}/records?{start}{name}=2013-07-04")
        assert (other.status_code, "%2B" in other.text) == (422, False)
        assert client.get(f"{path}/records?{start}{name}=2013-07-04T00:00:00%2B02:00").status_code == 200
    assert "%2B" in client.get(f"{path}/offsets?timestamp=2013-07-04T00:00:00+02:00").text


def test_what_is_not_durable_is_not_cached(client: httpx.Client) -> None:
    client.put("/v1/topics/not-durable", json={"config": {"flush.policy": "interval"}})
    path = "/v1/topics/not-durable/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "a"}]})
    closed = fetch(client, path, offset=0, end_offset=1)
    assert (closed.headers["cache-control"], "etag" in closed.headers) == ("no-store", False)
    assert client.get(f"{path}/records/0").headers["cache-control"] == "no-store"
    assert client.get(f"{path}/records/0/value").headers["cache-control"] == "no-store"
    client.post(f"{path}/records?durability=fsynced", json={"records": [{"value": "b"}]})
    closed = fetch(client, path, offset=0, end_offset=1)
    assert (closed.headers["cache-control"], "etag" in closed.headers) == ("max-age=60, immutable", True)


def test_json_answers_are_compressed_on_request(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "x" * 5000}]})
    params = {"offset": 0, "end_offset": 1}
    plain = client.get(f"{path}/records", params=params, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    etags = {plain.headers["etag"]}
    decoders = {
        "gzip": gzip.decompress,
        "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    }
    for encoding, decompress in decoders.items():
        headers = {"Accept-Encoding": encoding}
        with client.stream("GET", f"{path}/records", params=params, headers=headers) as answer:
            assert answer.headers["content-encoding"] == encoding
            assert "Accept-Encoding" in answer.headers["vary"]
            content = b"".join(answer.iter_raw())
            assert int(answer.headers["content-length"]) == len(content) < 1000
            assert json.loads(decompress(content))["records"] == plain.json()["records"]
            etags.add(answer.headers["etag"])
            headers["If-None-Match"] = answer.headers["etag"]
        assert client.get(f"{path}/records", params=params, headers=headers).status_code == 304
    assert len(etags) == 3
    raw = client.get(f"{path}/records", params=params, headers={"Accept": RAW, "Accept-Encoding": "gzip"})
    assert "content-encoding" not in raw.headers


def test_accept_chooses_the_form(client: httpx.Client, path: str) -> None:
    def form(accept: str) -> str:
        return fetch(client, path, accept, offset=0).headers["content-type"]

    assert form("*/*") == "application/json"
    assert form(f"{RAW};q=0.5, {NDJSON}") == NDJSON
    assert form(f"application/json;q=0, {RAW}") == RAW
    refused = fetch(client, path, "text/csv", offset=0)
    assert (refused.status_code, refused.json()["code"]) == (406, "not_acceptable")


@pytest.mark.needs_local("it looks into the data directory")
def test_b_3_a_raw_fetch_is_a_slice_of_the_log_file(client: httpx.Client, data_dir: Path, topic: str) -> None:
    """Spec B3, D16: the same bytes are stored and sent, over several segments."""
    client.patch(topic, json={"config": {"segment.bytes": 700}})
    path = f"{topic}/partitions/0"
    sent = [record_batch(b"%d" % number * 100, b"x") for number in range(10)]
    for batch in sent:
        client.post(f"{path}/records", content=batch, headers={"Content-Type": RAW})
    directory = data_dir / "logs" / f"{topic.rpartition('/')[2]}-0"
    stored = b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))
    assert len(list(directory.glob("*.log"))) > 2
    whole = fetch(client, path, RAW, offset=0, max_bytes=10**9)
    assert whole.content == stored
    assert int(whole.headers["content-length"]) == len(stored) == sum(map(len, sent))
    size_bytes = len(sent[0])
    part = fetch(client, path, RAW, offset=5, end_offset=9)
    assert part.content == stored[2 * size_bytes : 5 * size_bytes]


def test_the_first_batch_comes_whole_and_no_batch_is_cut(client: httpx.Client, topic: str) -> None:
    """Spec B5, KIP-74."""
    path = f"{topic}/partitions/0"
    small, large = record_batch(b"s"), record_batch(b"l" * 100_000)
    for batch in (large, small, small, large):
        client.post(f"{path}/records", content=batch, headers={"Content-Type": RAW})
    assert len(fetch(client, path, RAW, offset=0, max_bytes=1).content) == len(large)
    assert len(fetch(client, path, RAW, offset=1, max_bytes=2 * len(small)).content) == 2 * len(small)
    assert len(fetch(client, path, RAW, offset=1, max_bytes=3 * len(small)).content) == 2 * len(small)


def test_exactly_one_start_is_given(client: httpx.Client, path: str) -> None:
    for params in ({}, {"offset": 0, "tail": 1}, {"timestamp": 0, "tail": 1}):
        refused = fetch(client, path, **params)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
        assert refused.json()["errors"][0]["pointer"]


@pytest.mark.parametrize(
    "query",
    [
        "offset=x",
        "offset=1.0",
        "offset=%2B1",
        "offset=1_0",
        "offset=9223372036854775808",
        "offset=0&offset=1",
        "offset=0&max_bytes=0",
        "offset=0&max_bytes=-1",
        "offset=0&max_records=0",
        "offset=0&wait_ms=60001",
        "offset=0&min_bytes=0",
        "offset=0&end_offset=-1",
        "offset=0&isolation=dirty",
        "offset=0&on_truncated=maybe",
        "offset=0&encoding=hex",
        "offset=0&maxbytes=1",
        "timestamp=-1",
        "timestamp=2013-07-04",
        "tail=-1",
    ],
)
def test_wrong_parameters_are_refused(client: httpx.Client, path: str, query: str) -> None:
    refused = client.get(f"{path}/records?{query}")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    assert refused.json()["errors"]


def test_one_record(client: httpx.Client, path: str) -> None:
    record = client.get(f"{path}/records/5")
    assert record.json() == fetch(client, path, offset=5, max_records=1).json()["records"][0]
    etag = record.headers["etag"]
    assert (record.headers["cache-control"], etag[0]) == ("max-age=60, immutable", '"')
    known = client.get(f"{path}/records/5", headers={"If-None-Match": etag})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)
    other = client.get(f"{path}/records/5", params={"encoding": "base64"}, headers={"If-None-Match": etag})
    assert (other.status_code, other.headers["etag"] != etag) == (200, True)
    before = client.get(f"{path}/records/5", headers={"If-None-Match": etag.replace(";pairs", "")})
    assert (before.status_code, before.headers["etag"]) == (200, etag)
    above = client.get(f"{path}/records/12")
    assert (above.status_code, above.json()["kafka_code"]) == (416, 1)
    client.post(f"{path}/delete-records", json={"offset": 6})
    assert client.get(f"{path}/records/5").status_code == 410
    assert client.get(f"{path}/records/-1").status_code == 422


@pytest.mark.needs_local("it looks into the local engine")
def test_an_offset_no_record_has_is_404(client: httpx.Client, server: ThreadedServer, path: str) -> None:
    """Spec E21: truncation inside a batch leaves a gap."""
    parts = server.service.parts
    log = parts.engine.manager.partition(path.split("/")[3], 0)
    loop = server.service.loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(parts.engine.partitions.run_in_log(log, lambda: log.truncate_to(10)), loop).result(
        30
    )
    client.post(f"{path}/records", json={"records": [{"value": "after the gap"}]})
    for route in (f"{path}/records/9", f"{path}/records/9/value"):
        missing = client.get(route)
        assert (missing.status_code, missing.json()["code"]) == (404, "record_not_found")
    assert offsets(fetch(client, path, offset=7)) == [7, 10] or offsets(fetch(client, path, offset=7)) == [10]
    assert client.get(f"{path}/records/10").json()["value"] == "after the gap"


def test_a_value_has_ranges(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    client.post(path, json={"records": [{"value": "0123456789"}, {"value": None}, {"value": ""}]})
    whole = client.get(f"{path}/0/value")
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (200, b"0123456789", "bytes")
    assert whole.headers["content-type"] == "application/octet-stream"
    for header, content, content_range in [
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=8-", b"89", "bytes 8-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
    ]:
        part = client.get(f"{path}/0/value", headers={"Range": header})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, content, content_range)
    for header in ("bytes=4-2", "bytes=0-1,3-4", "items=0-1", "bytes=x-", "bytes=-"):
        assert client.get(f"{path}/0/value", headers={"Range": header}).content == b"0123456789"
    for header in ("bytes=10-", "bytes=-0"):
        outside = client.get(f"{path}/0/value", headers={"Range": header})
        assert (outside.status_code, outside.json()["code"]) == (416, "range_not_satisfiable")
        assert outside.headers["content-range"] == "bytes */10"
    etag = whole.headers["etag"]
    assert client.get(f"{path}/0/value", headers={"If-None-Match": etag}).status_code == 304
    ranged = {"Range": "bytes=2-4", "If-Range": etag}
    assert client.get(f"{path}/0/value", headers=ranged).status_code == 206
    assert client.get(f"{path}/0/value", headers={**ranged, "If-Range": '"old"'}).status_code == 200
    assert client.get(f"{path}/1/value").status_code == 204
    empty = client.get(f"{path}/2/value")
    assert (empty.status_code, empty.content) == (200, b"")


@pytest.mark.needs_local("it looks into the data directory")
def test_damage_is_never_served_as_good_data(client: httpx.Client, data_dir: Path, topic: str) -> None:
    """Bit rot: docs/explanation/durability.md#promises-under-faults."""
    path = f"{topic}/partitions/0"
    client.post(f"{path}/records", json={"records": [{"value": "good data here"}]})
    (log,) = (data_dir / "logs" / f"{topic.rpartition('/')[2]}-0").glob("*.log")
    with log.open("r+b") as file:
        file.seek(75)
        file.write(b"!")
    for route in ("records?offset=0", "records/0", "records/0/value"):
        damaged = client.get(f"{path}/{route}")
        assert (damaged.status_code, damaged.json()["code"]) == (500, "stored_data_corrupt")
        assert "good" not in damaged.text
