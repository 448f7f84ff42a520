"""Whatever a record holds goes every way into the service and out of it, and comes back as it was, told apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import run
from rollway.client import ClientSettings, RollwayClient
from rollway.records import (
    HEADER_BYTES,
    Record,
    columns_from_records,
    decode_batch,
    encode_batch,
    records_from_columns,
    split_batches,
)
from tests.support.every_value import CONTENTS, ENCODINGS, SMALL, Content
from tests.support.servers import ThreadedServer

LINES = "application/x-ndjson"
TIMESTAMP = 1_700_000_000_000
NAME = "every-value"
TOPIC = f"/v1/topics/{NAME}"
PARTITION = f"{TOPIC}/partitions/0"
# A key, a value and a header's value of it, and a header with a name that is no text.
ODD_NAME = "\udcff"


@pytest.fixture(scope="module", autouse=True)
def topic(client: httpx.Client) -> None:
    config = {"max.message.bytes": "40000000", "retention.ms": "-1", "flush.policy": "interval"}
    client.put(TOPIC, json={"partitions": 1, "config": config}).raise_for_status()


@pytest.fixture(scope="module")
def library(server: ThreadedServer) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url)) as client:
        yield client


def record_of(content: Content) -> Record:
    if content.is_large:
        return Record(0, TIMESTAMP, None, content.data, ())
    return Record(0, TIMESTAMP, content.data, content.data, (("h", content.data), (ODD_NAME, content.data)))


def text_of(content: Content, encoding: str) -> bytes:
    """The record as a client writes it, and as an answer has it, but for offset and time's type."""
    header_encoding = "utf8" if encoding == "json" else encoding
    headers = b""
    if not content.is_large:
        value = content.member("value", header_encoding)
        headers = b'{"name":"h",%b},{"name_base64":"/w==",%b}' % (value, value)
    key = Content(None) if content.is_large else content
    members = (key.member("key", encoding), content.member("value", encoding))
    return b'{"timestamp":%d,%b,%b,"headers":[%b],"partition":0}' % (TIMESTAMP, *members, headers)


def stored(library: RollwayClient, offset: int) -> Record:
    fetched = library.fetch(
        NAME, 0, offset=offset, end_offset=offset + 1, max_bytes=HEADER_BYTES, isolation="read_uncommitted"
    )
    (record,) = [
        record
        for batch in split_batches(fetched.batches)
        for record in records_from_columns(decode_batch(batch))
        if record.offset == offset
    ]
    return replace(record, offset=0)


def end_of(client: httpx.Client) -> int:
    end: int = client.get(PARTITION).json()["log_end_offset"]
    return end


# In


def post(client: httpx.Client, path: str, body: bytes, encoding: str, **headers: str) -> None:
    headers = {"Content-Type": "application/json", **headers}
    answer = client.post(path, params={"encoding": encoding}, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert "error" not in answer.text


def as_list(client: httpx.Client, text: bytes, encoding: str) -> None:
    post(client, f"{PARTITION}/records", b'{"records":[%b]}' % text, encoding)


def as_lines(client: httpx.Client, text: bytes, encoding: str) -> None:
    post(client, f"{PARTITION}/records", text + b"\n", encoding, **{"Content-Type": LINES})


def to_topic(client: httpx.Client, text: bytes, encoding: str) -> None:
    post(client, f"{TOPIC}/records", b'{"records":[%b]}' % text, encoding)


def with_key(client: httpx.Client, text: bytes, encoding: str) -> None:
    key = {"Idempotency-Key": f"key-{end_of(client)}-{encoding}"}
    post(client, f"{PARTITION}/records", b'{"records":[%b]}' % text, encoding, **key)


def in_parts(client: httpx.Client, text: bytes, encoding: str) -> None:
    part = b'{"topic":"%b","partition":0,"records":[%b]}' % (NAME.encode(), text)
    post(client, "/v1/produce", b'{"partitions":[%b]}' % part, encoding)


WAYS_IN: list[Callable[[httpx.Client, bytes, str], None]] = [as_list, as_lines, to_topic, with_key, in_parts]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", CONTENTS)
def test_what_goes_in_by_http_is_stored_as_it_was(
    client: httpx.Client, library: RollwayClient, name: str, encoding: str
) -> None:
    content = CONTENTS[name]
    text = text_of(content, encoding)
    for way_in in WAYS_IN if not content.is_large else WAYS_IN[:1]:
        offset = end_of(client)
        way_in(client, text, encoding)
        assert stored(library, offset) == record_of(content), way_in


# Out


def of_partition(client: httpx.Client, offset: int, encoding: str) -> Any:
    params: dict[str, str | int] = {"offset": offset, "max_records": 1, "encoding": encoding}
    (record,) = client.get(f"{PARTITION}/records", params=params).raise_for_status().json()["records"]
    return record


def of_lines(client: httpx.Client, offset: int, encoding: str) -> Any:
    params: dict[str, str | int] = {"offset": offset, "max_records": 1, "encoding": encoding}
    (line,) = client.get(f"{PARTITION}/records", params=params, headers={"Accept": LINES}).content.splitlines()
    return json.loads(line)


def alone(client: httpx.Client, offset: int, encoding: str) -> Any:
    return client.get(f"{PARTITION}/records/{offset}", params={"encoding": encoding}).raise_for_status().json()


def of_many(client: httpx.Client, offset: int, encoding: str) -> Any:
    asked = {"topic": NAME, "partition": 0, "fetch_offset": offset, "max_bytes": 1}
    answer = client.post("/v1/fetch", json={"partitions": [asked], "encoding": encoding, "max_bytes": 1})
    return answer.raise_for_status().json()["partitions"][0]["records"][0]


WAYS_OUT: list[Callable[[httpx.Client, int, str], Any]] = [of_partition, of_lines, alone, of_many]


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_stored_comes_out_as_it_was(client: httpx.Client, library: RollwayClient, name: str) -> None:
    """And what comes out goes in again, where JSON as Python writes it again stays the same text."""
    content = CONTENTS[name]
    offset = end_of(client)
    library.produce_batches(NAME, 0, [encode_batch(columns_from_records([record_of(content)]))])
    own = {"offset": offset, "timestamp_type": "CreateTime"}
    for encoding in ENCODINGS:
        expected = {**json.loads(text_of(content, encoding)), **own}
        for way_out in WAYS_OUT:
            shown = way_out(client, offset, encoding)
            assert shown == expected, (way_out, encoding)
            assert text_of_numbers(shown) == text_of_numbers(expected)
        again = end_of(client)
        as_list(client, json.dumps(shown).encode(), encoding)
        if encoding != "json" or not content.is_json:
            assert stored(library, again) == record_of(content)
        else:
            assert json.loads(stored(library, again).value or b"") == json.loads(content.data or b"")
    value = client.get(f"{PARTITION}/records/{offset}/value")
    assert (value.status_code, value.content) == ((204, b"") if content.data is None else (200, content.data))


def text_of_numbers(shown: object) -> str:
    """JSON in which 1 and 1.0 and true are not the same."""
    return json.dumps(shown, sort_keys=True)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_two_are_shown_alike(encoding: str) -> None:
    shown = [text_of_numbers(content.shown("value", encoding)) for content in CONTENTS.values()]
    assert len(set(shown)) == len(CONTENTS)


# The library


def test_the_library_has_all_in_one_batch(client: httpx.Client, library: RollwayClient) -> None:
    records = [replace(record_of(content), offset=place) for place, content in enumerate(CONTENTS.values())]
    offset = end_of(client)
    batches = [encode_batch(columns_from_records([record])) for record in records if not record.headers]
    batches.append(encode_batch(columns_from_records([record for record in records if record.headers])))
    for batch in batches:
        library.produce_batches(NAME, 0, [batch])
    found = [stored(library, place) for place in range(offset, end_of(client))]
    assert sorted(map(repr, found)) == sorted(repr(replace(record, offset=0)) for record in records)


# The command line


@pytest.fixture
def rollway(
    server: ThreadedServer, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., bytes]:
    monkeypatch.setenv("ROLLWAY_SERVER", server.url)

    def call(*arguments: str | Path) -> bytes:
        capfdbinary.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        assert status == 0, captured.err
        return captured.out

    return call


@pytest.mark.parametrize("name", CONTENTS)
def test_the_command_line_takes_and_prints_it_as_it_was(
    client: httpx.Client, library: RollwayClient, rollway: Callable[..., bytes], tmp_path: Path, name: str
) -> None:
    content = CONTENTS[name]
    offset = end_of(client)
    path = tmp_path / "records"
    path.write_bytes(text_of(content, "utf8") + b"\n")
    rollway("produce", NAME, path, "--format", "records", "-q")
    assert stored(library, offset) == record_of(content)
    printed = rollway("fetch", NAME, "-p", "0", "--offset", str(offset))
    assert json.loads(printed) == {
        **json.loads(text_of(content, "utf8")),
        "offset": offset,
        "timestamp_type": "CreateTime",
    }
    path.write_bytes(printed)
    rollway("produce", NAME, path, "--format", "records", "-q")
    assert stored(library, offset + 1) == record_of(content)
    assert (
        rollway("fetch", NAME, "-p", "0", "-o", str(offset), "-n", "1", "-f", "value") == (content.data or b"") + b"\n"
    )


def test_the_command_line_takes_lines_and_parts_of_json(
    client: httpx.Client, library: RollwayClient, rollway: Callable[..., bytes], tmp_path: Path
) -> None:
    """Lines are bytes; at a path text is text, and all other JSON what it is."""
    offset = end_of(client)
    lines = [content.data for content in CONTENTS.values() if content.data is not None and b"\n" not in content.data]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines))
    rollway("produce", NAME, path, "-q")
    assert [stored(library, offset + place).value for place in range(len(lines))] == lines
    offset = end_of(client)
    parts = [content for content in SMALL.values() if content.is_json or content.text is not None]
    path.write_bytes(b"\n".join(b"{%b}" % part.member("value", "json" if part.is_json else "utf8") for part in parts))
    rollway("produce", NAME, path, "--value", "$.value", "-q")
    expected = [b"plain text" if part.data == b'"plain text"' else part.data for part in parts]
    assert [stored(library, offset + place).value for place in range(len(parts))] == expected
