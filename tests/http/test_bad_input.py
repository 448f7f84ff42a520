"""Bad input: the documented code for each, no traceback in the log, nothing written."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rollway.records import Record, columns_from_records, encode_batch
from tests.support.engines import ENGINE
from tests.support.kafka_directory import with_crc
from tests.support.servers import ServerProcess, ThreadedServer, http_client
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
NDJSON = "application/x-ndjson"
OCTETS = "application/octet-stream"
JSON = "application/json"
PARTITION = "/v1/topics/t/partitions/0"


class Bad(NamedTuple):
    """A request and the answer it must get."""

    name: str
    status: int
    code: str
    method: str
    path: str
    content: bytes = b""
    media_type: str = JSON


def batch_with(position: int, layout: str, value: int) -> bytes:
    """A batch with one header field changed and the CRC made right again."""
    data = bytearray(record_batch(b"a", b"b"))
    struct.pack_into(layout, data, position, value)
    return with_crc(bytes(data))


def json_records(*records: Any) -> bytes:
    return json.dumps({"records": list(records)}).encode()


GOOD = record_batch(b"a", b"b")
TIMELESS = with_crc(GOOD[:21] + b"\0\x08" + GOOD[23:35] + b"\xff" * 8 + GOOD[43:])
WRONG_BATCHES = [
    ("truncated", GOOD[:-1], 400, "corrupt_batch"),
    ("truncated in the header", GOOD[:60], 400, "corrupt_batch"),
    ("half a second batch", GOOD + GOOD[:40], 400, "corrupt_batch"),
    ("flipped CRC", GOOD[:17] + bytes([GOOD[17] ^ 1]) + GOOD[18:], 400, "corrupt_batch"),
    ("flipped bit", GOOD[:-1] + bytes([GOOD[-1] ^ 1]), 400, "corrupt_batch"),
    ("noise", b"\x00" * 100, 400, "invalid_record"),
    ("text", b"hello", 400, "corrupt_batch"),
    (
        "base offset 5",
        encode_batch(columns_from_records([Record(0, 1, None, b"a")]), base_offset=5),
        400,
        "invalid_record",
    ),
    ("count too large", batch_with(57, ">i", 3), 400, "invalid_record"),
    ("count zero", batch_with(57, ">i", 0), 400, "invalid_record"),
    ("count negative", batch_with(57, ">i", -1), 400, "invalid_record"),
    ("count huge", batch_with(57, ">i", 2**31 - 1), 400, "invalid_record"),
    ("last offset delta wrong", batch_with(23, ">i", 9), 400, "invalid_record"),
    ("length huge", GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:], 400, "corrupt_batch"),
    ("length negative", GOOD[:8] + struct.pack(">i", -1) + GOOD[12:], 400, "corrupt_batch"),
    ("magic 1", GOOD[:16] + b"\x01" + GOOD[17:], 400, "invalid_record"),
    ("magic 3", GOOD[:16] + b"\x03" + GOOD[17:], 400, "corrupt_batch"),
    ("codec 7", batch_with(21, ">h", 7), 400, "unsupported_codec"),
    ("control batch", batch_with(21, ">h", 0x20), 400, "invalid_record"),
    ("log append time, and no time", TIMELESS, 400, "invalid_timestamp"),
    ("oversized record", record_batch(b"x" * 1_100_000), 413, "message_too_large"),
    ("timestamp far ahead", record_batch(b"a", timestamp=2**62), 400, "invalid_timestamp"),
]
WRONG_JSON = [
    ("no JSON", b"{", 400, "malformed_body"),
    ("not UTF-8", b'{"records":[{"value":"\xff"}]}', 400, "malformed_body"),
    ("NaN", b'{"records":[{"value":NaN}]}', 400, "malformed_body"),
    ("lone surrogate", b'{"records":[{"value":"\\ud800"}]}', 400, "malformed_body"),
    ("deep nesting", b'{"records":[{"value":' + b"[" * 100_000, 422, "invalid_request"),
    ("an array", b"[]", 422, "invalid_request"),
    ("value a number", json_records({"value": 1}), 422, "invalid_request"),
    ("value a bool", json_records({"value": True}), 422, "invalid_request"),
    ("key a list", json_records({"key": [], "value": "a"}), 422, "invalid_request"),
    ("no value", json_records({"key": "a"}), 422, "invalid_request"),
    ("bad base64", json_records({"value_base64": "not base64!"}), 422, "invalid_request"),
    ("base64 without padding", json_records({"value_base64": "AA"}), 422, "invalid_request"),
    ("bytes as before", json_records({"value": {"base64": "AA=="}}), 422, "invalid_request"),
    ("text and bytes", json_records({"value": "a", "value_base64": "AA=="}), 422, "invalid_request"),
    ("a key that is text and bytes", json_records({"value": "a", "key": "", "key_base64": ""}), 422, "invalid_request"),
    ("timestamp negative", json_records({"value": "a", "timestamp": -5}), 422, "invalid_request"),
    ("timestamp huge", json_records({"value": "a", "timestamp": 2**63}), 422, "invalid_request"),
    ("timestamp 1e999", b'{"records":[{"value":"a","timestamp":1e999}]}', 422, "invalid_request"),
    ("timestamp far ahead", json_records({"value": "a", "timestamp": 2**62}), 400, "invalid_timestamp"),
    ("unknown field", json_records({"value": "a", "vaule": "b"}), 422, "invalid_request"),
    ("field twice", b'{"records":[{"value":"a","value":"b"}]}', 422, "invalid_request"),
    ("oversized record", json_records({"value": "x" * 1_100_000}), 413, "message_too_large"),
    ("one good one bad", json_records({"value": "a"}, {"value": 1}), 422, "invalid_request"),
]
ILLEGAL_NAMES = {
    "..": "%2e%2e",
    "dot": "%2e",
    "250 characters": "x" * 250,
    "NUL": "a%00b",
    "space": "a%20b",
    "not ASCII": "%C3%A9",
    "not UTF-8": "%ff",
    "colon": "a:b",
}
WRONG_NUMBERS = ["-1", "99999999999999999999", "1e3", "0x10", "1.5", "NaN", "%00", "1;2", "%D9%A1"]


def requests() -> Iterator[Bad]:
    for name, content, status, code in WRONG_BATCHES:
        yield Bad(f"raw: {name}", status, code, "POST", f"{PARTITION}/records", content, RAW)
        yield Bad(f"batches: {name}", status, code, "POST", f"{PARTITION}/record-batches", content, OCTETS)
    for name, content, status, code in WRONG_JSON:
        yield Bad(f"json: {name}", status, code, "POST", f"{PARTITION}/records", content)
        yield Bad(f"topic json: {name}", status, code, "POST", "/v1/topics/t/records", content)
    for path in (f"{PARTITION}/record-lines", "/v1/topics/t/record-lines"):
        yield Bad(f"{path}: wrong type", 422, "invalid_request", "POST", path, b'{"value":1}\n', NDJSON)
        yield Bad(f"{path}: no JSON", 400, "malformed_body", "POST", path, b"{\n", NDJSON)
        yield Bad(f"{path}: a list", 415, "unsupported_media_type", "POST", path, json_records({"value": "a"}))
    yield Bad("batches: JSON", 415, "unsupported_media_type", "POST", f"{PARTITION}/record-batches", b"{}")
    yield Bad("ndjson: wrong type", 422, "invalid_request", "POST", f"{PARTITION}/records", b'{"value":1}\n', NDJSON)
    yield Bad("ndjson: no JSON", 400, "malformed_body", "POST", f"{PARTITION}/records", b"{\n", NDJSON)
    yield Bad("media type", 415, "unsupported_media_type", "POST", f"{PARTITION}/records", b"<a/>", "text/xml")
    yield Bad(
        "charset",
        415,
        "unsupported_media_type",
        "POST",
        f"{PARTITION}/records",
        b"{}",
        "application/json; charset=latin1",
    )
    yield from wrong_names()
    yield from wrong_numbers()


def wrong_names() -> Iterator[Bad]:
    for name, escaped in ILLEGAL_NAMES.items():
        for method, path in (
            ("PUT", f"/v1/topics/{escaped}"),
            ("GET", f"/v1/topics/{escaped}"),
            ("DELETE", f"/v1/topics/{escaped}"),
            ("POST", f"/v1/topics/{escaped}/partitions/0/records"),
            ("POST", f"/v1/topics/{escaped}/partitions/0/record-batches"),
            ("POST", f"/v1/topics/{escaped}/record-lines"),
        ):
            body = json_records({"value": "a"}) if method == "POST" else b"{}" if method == "PUT" else b""
            yield Bad(f"name {name}: {method} {path.rpartition('/')[2]}", 422, "invalid_topic", method, path, body)
    yield Bad("name with slash", 404, "not_found", "PUT", "/v1/topics/a/b", b"{}")
    yield Bad("name with escaped slash", 404, "not_found", "PUT", "/v1/topics/a%2fb", b"{}")
    yield Bad("internal topic", 422, "invalid_topic", "PUT", "/v1/topics/__consumer_offsets", b"{}")
    yield Bad(
        "unknown topic", 404, "unknown_topic_or_partition", "POST", "/v1/topics/u/partitions/0/records", GOOD, RAW
    )
    yield Bad(
        "unknown partition", 404, "unknown_topic_or_partition", "POST", "/v1/topics/t/partitions/9/records", GOOD, RAW
    )


def wrong_numbers() -> Iterator[Bad]:
    for number in WRONG_NUMBERS:
        yield Bad(f"partition {number}", 422, "invalid_request", "GET", f"/v1/topics/t/partitions/{number}")
        yield Bad(
            f"offset {number}",
            422,
            "invalid_request",
            "GET",
            f"{PARTITION}/records?offset={number.replace(';', '%3B')}",
        )
        escaped = number.replace(";", "%3B")
        for place in ("record-batches", "record-lines"):
            path = f"{PARTITION}/{place}?offset={escaped}"
            yield Bad(f"{place}: offset {number}", 422, "invalid_request", "GET", path)
        yield Bad(f"record {number}", 422, "invalid_request", "GET", f"{PARTITION}/records/{number}")
        yield Bad(
            f"max_bytes {number}", 422, "invalid_request", "GET", f"{PARTITION}/records?offset=0&max_bytes={number}"
        )
    yield Bad("acks", 422, "invalid_required_acks", "POST", f"{PARTITION}/records?acks=2", GOOD, RAW)
    yield Bad("durability", 422, "invalid_request", "POST", f"{PARTITION}/records?durability=maybe", GOOD, RAW)
    yield Bad("partitions 0", 422, "invalid_request", "PUT", "/v1/topics/new", b'{"partitions":0}')
    yield Bad(
        "partitions huge", 422, "invalid_request", "PUT", "/v1/topics/new", b'{"partitions":99999999999999999999}'
    )
    yield Bad("config", 422, "invalid_config", "PUT", "/v1/topics/new", b'{"config":{"segment.bytes":1}}')
    yield Bad("delete offset", 422, "invalid_request", "POST", f"{PARTITION}/delete-records", b'{"offset":-2}')
    yield Bad(
        "delete offset huge",
        422,
        "invalid_request",
        "POST",
        f"{PARTITION}/delete-records",
        b'{"offset":9223372036854775808}',
    )
    yield Bad(
        "queries",
        422,
        "invalid_request",
        "POST",
        "/v1/offsets",
        b'{"queries":[{"topic":"..","partition":0,"timestamp":0}]}',
    )


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess | ThreadedServer]:
    data_dir = tmp_path_factory.mktemp("bad-input") / "data"
    with contextlib.ExitStack() as stack:
        running: ServerProcess | ThreadedServer
        if ENGINE == "local":
            running = stack.enter_context(ServerProcess(data_dir, from_nothing=True))
        else:
            running = stack.enter_context(ThreadedServer(data_dir))
        with http_client(running.url) as client:
            assert client.put("/v1/topics/t").status_code == 201
        yield running
        if isinstance(running, ServerProcess):
            assert running.stop() == 0


def stored(process: ServerProcess | ThreadedServer) -> dict[str, bytes]:
    """Every log file of the directory; without one, what the service answers about its partitions."""
    if isinstance(process, ServerProcess):
        return {str(path): path.read_bytes() for path in process.data_dir.rglob("*.log")}
    with http_client(process.url) as client:
        topics = client.get("/v1/topics").content
        raw = client.get(f"{PARTITION}/records", params={"offset": "earliest"}, headers={"Accept": RAW})
        return {"topics": topics, "records": raw.content}


def errors_of(process: ServerProcess | ThreadedServer) -> str:
    """What a process of its own wrote to stderr."""
    return process.errors() if isinstance(process, ServerProcess) else ""


def send(process: ServerProcess | ThreadedServer, bad: Bad) -> tuple[int, dict[str, str], bytes]:
    """Over a plain connection, so that no client repairs or refuses the path."""
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as reader:
        head = (
            f"{bad.method} {bad.path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            f"Content-Type: {bad.media_type}\r\nContent-Length: {len(bad.content)}\r\n\r\n"
        )
        connection.sendall(head.encode() + bad.content)
        status = int(reader.readline().split()[1])
        headers = {}
        while (line := reader.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers, reader.read()


@pytest.mark.parametrize("bad", list(requests()), ids=lambda bad: bad.name)
def test_bad_input_gets_its_code_and_writes_nothing(process: ServerProcess | ThreadedServer, bad: Bad) -> None:
    before = stored(process)
    status, headers, body = send(process, bad)
    assert status == bad.status, body
    assert headers["content-type"] == "application/problem+json"
    problem = json.loads(body)
    assert (problem["code"], problem["status"], problem["applied"]) == (bad.code, bad.status, "no")
    assert stored(process) == before
    assert "Traceback" not in errors_of(process)


def test_afterwards_the_service_is_as_before(process: ServerProcess | ThreadedServer) -> None:
    with http_client(process.url) as client:
        assert [topic["name"] for topic in client.get("/v1/topics").json()["data"]] == ["t"]
        assert client.get(PARTITION).json()["log_end_offset"] == 0
        answer = client.post(f"{PARTITION}/records", content=GOOD, headers={"Content-Type": RAW})
        assert answer.json()["base_offset"] == 0
        assert client.get(f"{PARTITION}/records/1").json()["value"] == "b"
    assert not errors_of(process)


def test_every_byte_of_a_batch_may_be_wrong(process: ServerProcess | ThreadedServer) -> None:
    """Case V-5: a flip from byte 21 on is found by the CRC; before, it is the offset, the epoch, or refused."""
    with http_client(process.url) as client:
        client.put("/v1/topics/flips")
        path = "/v1/topics/flips/partitions/0"
        headers = {"Content-Type": RAW}
        for position in range(len(GOOD)):
            broken = bytearray(GOOD)
            broken[position] ^= 0x40
            answer = client.post(f"{path}/records", content=bytes(broken), headers=headers)
            assert answer.status_code == (200 if 12 <= position < 16 else 400), (position, answer.text)
        assert client.get(path).json()["log_end_offset"] == 4 * 2
    assert "Traceback" not in errors_of(process)


@pytest.mark.needs_local("it looks into the data directory")
def test_data_outside_the_topics_directory_is_out_of_reach(process: ServerProcess) -> None:
    outside = {path.name for path in process.data_dir.parent.iterdir()}
    for name in ("..", "../evil", "..%2fevil", "%2e%2e%2fevil", "....//evil"):
        send(process, Bad(name, 0, "", "PUT", f"/v1/topics/{name}", b"{}"))
    assert {path.name for path in process.data_dir.parent.iterdir()} == outside
    assert not list(Path(process.data_dir).rglob("*evil*"))


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_a_body_above_the_limit_is_refused_without_being_held(process: ServerProcess) -> None:
    """Acceptance: a produce body of 1 GiB is refused without being buffered."""
    with http_client(process.url) as client:
        client.post(f"{PARTITION}/records", content=GOOD, headers={"Content-Type": RAW})
        process.reset_peak_rss()
        before = process.rss_bytes()
        piece = bytes(1024 * 1024)

        def endless() -> Iterator[bytes]:
            for _ in range(1024):
                yield piece

        # The answer comes early, so the connection may be cut while the rest is still being sent.
        with contextlib.suppress(httpx.TransportError):
            refused = client.post(f"{PARTITION}/records", content=endless(), headers={"Content-Type": RAW})
            assert refused.status_code == 413
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as reader:
        head = f"POST {PARTITION}/records HTTP/1.1\r\nHost: {host}\r\nContent-Type: {RAW}\r\n"
        connection.sendall(f"{head}Content-Length: {2**30}\r\n\r\n".encode())
        assert reader.readline().split()[1] == b"413"
    assert process.peak_rss_bytes() - before < 96 * 1024 * 1024


def test_bad_base64_in_every_place_is_named(process: ServerProcess | ThreadedServer) -> None:
    wrong = "AAA"
    with http_client(process.url) as client:
        for record, pointer in [
            ({"value_base64": wrong}, "/records/0/value_base64"),
            ({"value": "a", "key_base64": wrong}, "/records/0/key_base64"),
            ({"value": "a", "headers": [{"name": "h", "value_base64": wrong}]}, "/records/0/headers/0/value_base64"),
            ({"value": "a", "headers": [{"name_base64": wrong, "value": "v"}]}, "/records/0/headers/0/name_base64"),
        ]:
            refused = client.post(f"{PARTITION}/records", json={"records": [record]})
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize("encoding", ["utf8", "base64"])
@pytest.mark.parametrize("name", ["key", "value"])
@pytest.mark.parametrize("content", [{"base64": "AAEC"}, {"base64": 7}, {"base64": "?"}, {"a": 1}])
def test_an_object_for_bytes_is_refused_and_the_member_for_bytes_named(
    process: ServerProcess | ThreadedServer, encoding: str, name: str, content: dict[str, Any]
) -> None:
    """What an object of base64 meant before the first release changes in no silence; as JSON, lines, and in parts."""
    record = {"value": None, name: content}
    line = json.dumps(record).encode() + b"\n"
    with http_client(process.url) as client:
        for path, request in [
            (f"{PARTITION}/records", {"json": {"records": [record]}}),
            (f"{PARTITION}/records", {"content": line, "headers": {"Content-Type": "application/x-ndjson"}}),
            ("/v1/produce", {"json": {"partitions": [{"topic": "t", "partition": 0, "records": [record]}]}}),
        ]:
            refused = client.post(path, params={"encoding": encoding}, **request)
            problem = json.loads(refused.content.splitlines()[-1])
            problem = problem.get("error", problem)
            assert (problem["status"], problem["code"]) == (422, "invalid_request")
            assert f"{name}_base64" in problem["detail"]
            assert problem["errors"][0]["pointer"].endswith(f"/{name}")
