"""Producing NDJSON: a body of any length, acknowledged line by line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, Self

import httpx
import pytest

from rollway.records import partition_for_key
from tests.support.servers import ThreadedServer, http_client

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def acknowledgements(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("application/x-ndjson"), answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def log_end(client: httpx.Client, path: str) -> int:
    end: int = client.get(path).json()["log_end_offset"]
    return end


def test_lines_are_appended_and_acknowledged(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    body = lines({"value": "a", "key": "k"}, {"value": None}, {"value": "c"}).rstrip(b"\n")
    answer = client.post(f"{path}/records", content=body, headers=NDJSON)
    assert answer.status_code == 200
    (line,) = acknowledgements(answer)
    assert (line["partition"], line["base_offset"], line["last_offset"], line["record_count"]) == (0, 0, 2, 3)
    shown = client.get(f"{path}/records?offset=0").json()["records"]
    assert [(record["key"], record["value"]) for record in shown] == [("k", "a"), (None, None), (None, "c")]


def test_an_empty_body_appends_nothing(client: httpx.Client, topic: str) -> None:
    for body in (b"", b"\n\n"):
        answer = client.post(f"{topic}/partitions/0/records", content=body, headers=NDJSON)
        assert (answer.status_code, answer.content) == (200, b"")


def test_a_long_body_becomes_many_batches_in_order(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    count = 20_000

    def body() -> Iterator[bytes]:
        for first in range(0, count, 100):
            yield lines(*({"value": f"{number:0200d}"} for number in range(first, first + 100)))

    answer = client.post(f"{path}/records", content=body(), headers=NDJSON)
    told = acknowledgements(answer)
    assert len(told) > 3
    assert sum(line["record_count"] for line in told) == count
    assert [line["base_offset"] for line in told[1:]] == [line["last_offset"] + 1 for line in told[:-1]]
    assert client.get(f"{path}/records/{count - 1}/value").text == f"{count - 1:0200d}"
    assert client.get(f"{path}/records/7/value").text == f"{7:0200d}"


def test_a_long_body_is_cut_to_fit_the_topics_segments_and_batches(client: httpx.Client) -> None:
    body = lines(*({"value": f"{number:0100d}"} for number in range(4000)))
    for number, (segment_bytes, batch_bytes) in enumerate([(100_000, 1_048_588), (100_000, 5_000), (2_000, 1_000_000)]):
        path = f"/v1/topics/small-segments-{number}"
        config = {"segment.bytes": segment_bytes, "max.message.bytes": batch_bytes, "index.interval.bytes": 0}
        assert client.put(path, json={"config": config}).status_code == 201
        for place in ("partitions/0/records", "records"):
            told = acknowledgements(client.post(f"{path}/{place}", content=body, headers=NDJSON))
            assert sum(line["record_count"] for line in told) == 4000
            assert all("error" not in line for line in told)
        values = client.get(f"{path}/partitions/0/records/7999/value")
        assert values.text == f"{3999:0100d}"
        too_long = lines({"value": "a"}, {"value": "x" * segment_bytes})
        refused = client.post(f"{path}/records", content=too_long, headers=NDJSON)
        assert refused.status_code == 413
        whole = {"records": [{"value": "x" * 1000}] * 120}
        assert client.post(f"{path}/partitions/0/records", json=whole).status_code == 413
        assert log_end(client, f"{path}/partitions/0") == 8000


class Stream:
    """A produce request over a plain connection, where an answer can be read while the body is being sent."""

    def __init__(self, server: ThreadedServer, path: str) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._connection = socket.create_connection((host, int(port)), timeout=30)
        self._reader = self._connection.makefile("rb")
        self._connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-ndjson\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )

    def send(self, piece: bytes) -> None:
        self._connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end(self) -> None:
        self._connection.sendall(b"0\r\n\r\n")

    def status(self) -> int:
        """Read the head of the answer."""
        status = int(self._reader.readline().split()[1])
        while self._reader.readline() != b"\r\n":
            pass
        return status

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the answer as they come."""
        gathered = b""
        while size := int(self._reader.readline(), 16):
            gathered += self._reader.read(size)
            assert self._reader.readline() == b"\r\n"
            *whole, gathered = gathered.split(b"\n")
            yield from map(json.loads, whole)
        assert gathered == b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._connection.close()


def test_each_line_of_a_slow_client_is_acknowledged_before_the_next_is_sent(server: ThreadedServer, topic: str) -> None:
    with Stream(server, f"{topic}/partitions/0/records") as stream:
        stream.send(lines({"value": "0"}))
        assert stream.status() == 200
        told = stream.lines()
        assert next(told)["base_offset"] == 0
        for number in (1, 2):
            stream.send(lines({"value": str(number)}))
            assert next(told)["base_offset"] == number
        stream.end()
        assert list(told) == []


def test_a_line_may_arrive_in_pieces(client: httpx.Client, topic: str) -> None:
    body = lines({"value": "a\u00e9b"}, {"value": "c"})
    pieces = (body[place : place + 1] for place in range(len(body)))
    answer = client.post(f"{topic}/partitions/0/records", content=pieces, headers=NDJSON)
    assert sum(line["record_count"] for line in acknowledgements(answer)) == 2
    assert client.get(f"{topic}/partitions/0/records/0/value").text == "a\u00e9b"


@pytest.mark.parametrize("query", ["", "?encoding=json"])
@pytest.mark.parametrize("body", [b'{"value":"a"}{"value":"b"}\n\n', b'{"value":\n"a"}{"value":"b"}\n'])
def test_a_record_is_a_line_however_it_arrives(client: httpx.Client, topic: str, query: str, body: bytes) -> None:
    pieces = [[body], *([body[:cut], body[cut:]] for cut in range(1, len(body)))]
    for each in pieces:
        answer = client.post(f"{topic}/partitions/0/records{query}", content=iter(each), headers=NDJSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert client.get(f"{topic}/partitions/0").json()["log_end_offset"] == 0


def test_records_are_spread_over_a_topic(client: httpx.Client) -> None:
    client.put("/v1/topics/spread-stream", json={"partitions": 4})
    records: list[dict[str, Any]] = [{"key": f"k{number}", "value": f"k{number}"} for number in range(40)]
    records += [{"value": "named", "partition": 3}]
    answer = client.post("/v1/topics/spread-stream/records", content=lines(*records), headers=NDJSON)
    told = acknowledgements(answer)
    assert sum(line["record_count"] for line in told) == 41
    for number in range(4):
        shown = client.get(f"/v1/topics/spread-stream/partitions/{number}/records?offset=0").json()["records"]
        for record in shown:
            assert record["value"] == "named" or partition_for_key(record["key"].encode(), 4) == number


def test_what_is_wrong_at_once_is_an_error_of_its_own(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    for body, status, pointer in [
        (b'{"value":1}\n', 422, "/0/value"),
        (lines({"value": "a"}) + b'{"value":1}\n', 422, "/1/value"),
        (b"not json\n", 400, "/0"),
        (b'{"value":"\xff"}\n', 400, "/0"),
        (lines(*[{"value": "a"}] * 20) + b"xx\n", 400, "/20"),
    ]:
        refused = client.post(f"{path}/records", content=body, headers=NDJSON)
        assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json")
        assert [fault["pointer"] for fault in refused.json()["errors"]] == [pointer]
    assert log_end(client, path) == 0
    unknown = client.post(f"{topic}/partitions/7/records", content=lines({"value": "a"}), headers=NDJSON)
    assert unknown.status_code == 404
    assert client.post("/v1/topics/nowhere/records", content=lines({"value": "a"}), headers=NDJSON).status_code == 404


def test_what_is_wrong_later_ends_the_stream_with_an_error_line(
    client: httpx.Client, server: ThreadedServer, topic: str
) -> None:
    path = f"{topic}/partitions/0"
    with Stream(server, f"{path}/records") as stream:
        stream.send(lines({"value": "a"}))
        assert stream.status() == 200
        told = stream.lines()
        assert next(told)["base_offset"] == 0
        stream.send(lines({"value": "b"}, {"valeu": "c"}))
        (last,) = told
    assert (last["partition"], last["error"]["code"]) == (0, "invalid_request")
    assert last["error"]["errors"][0]["pointer"] == "/2/valeu"
    assert log_end(client, path) == 1


def test_acks_0_has_no_lines(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0"
    body = lines(*({"value": str(number)} for number in range(10)))
    answer = client.post(f"{path}/records?acks=0", content=body, headers=NDJSON)
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, "application/x-ndjson", b"")
    assert log_end(client, path) == 10


def test_acks_0_that_fails_after_batches_does_not_say_that_nothing_was_applied(
    client: httpx.Client, topic: str
) -> None:
    many = lines(*({"value": "x" * 1000} for _ in range(2000)))
    bad = b'{"value":1}\n'
    for path, is_told in ((f"{topic}/partitions/0/records", True), (f"{topic}/records", False)):
        refused = client.post(f"{path}?acks=0", content=many + bad, headers=NDJSON)
        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["applied"]) == (422, "invalid_request", "unknown")
        assert ("acknowledged_lines" in problem) == is_told
        if is_told:
            taken = problem["acknowledged_lines"]
            assert 0 < taken < 2000
            assert log_end(client, f"{topic}/partitions/0") == taken
        nothing = client.post(f"{path}?acks=0", content=bad, headers=NDJSON).json()
        assert (nothing["applied"], "acknowledged_lines" in nothing) == ("no", False)


def test_expected_offset_is_that_of_the_first_batch(client: httpx.Client, topic: str) -> None:
    path = f"{topic}/partitions/0/records"
    many = lines(*({"value": "x" * 1000} for _ in range(2000)))
    assert (
        sum(
            line["record_count"]
            for line in acknowledgements(client.post(f"{path}?expected_offset=0", content=many, headers=NDJSON))
        )
        == 2000
    )
    refused = client.post(f"{path}?expected_offset=0", content=many, headers=NDJSON)
    assert (refused.status_code, refused.json()["log_end_offset"]) == (412, 2000)


def test_a_line_has_a_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    data_dir = tmp_path_factory.mktemp("short-lines") / "data"
    with ThreadedServer(data_dir, request_body_bytes_max=1024) as server, http_client(server.url) as client:
        client.put("/v1/topics/t")
        path = "/v1/topics/t/partitions/0"
        body = (b'{"value":"' if place == 0 else b"x" * 65536 for place in range(40))
        refused = client.post(f"{path}/records", content=body, headers=NDJSON)
        assert (refused.status_code, refused.json()["code"]) == (413, "request_too_large")
        assert log_end(client, path) == 0
        many = (lines({"value": "x" * 100}) for _ in range(100))
        assert client.post(f"{path}/records", content=many, headers=NDJSON).status_code == 200
        assert log_end(client, path) == 100


def test_a_stream_ends_when_the_service_stops(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = ThreadedServer(tmp_path_factory.mktemp("stopped-stream") / "data").start()
    httpx.put(f"{server.url}/v1/topics/t")
    with Stream(server, "/v1/topics/t/partitions/0/records") as stream:
        stream.send(lines({"value": "a"}))
        assert stream.status() == 200
        told = stream.lines()
        assert next(told)["base_offset"] == 0
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        (last,) = told
        assert last["error"]["code"] == "shutting_down"
        stopping.join(30)


def test_a_client_that_goes_away_keeps_what_was_acknowledged(
    client: httpx.Client, server: ThreadedServer, topic: str
) -> None:
    path = f"{topic}/partitions/0"
    with Stream(server, f"{path}/records") as stream:
        stream.send(lines({"value": "a"}) + b'{"value":"half a li')
        assert stream.status() == 200
        assert next(stream.lines())["base_offset"] == 0
    assert client.post(f"{path}/records", json={"records": [{"value": "b"}]}).json()["base_offset"] == 1
