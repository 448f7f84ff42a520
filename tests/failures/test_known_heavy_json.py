"""JSON that is little as values, and long: spaces, escapes, and what is looked for when something is wrong with it.

The coder holds the interpreter, and with it the loop, from the first byte of a document to the last: 300 ms for 60 MB.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from app.problems.problem import Problem
from app.record_json import strict_json
from app.record_json.json_values import ESCAPES_OF_VALUE, SPACES_OF_VALUE, count_values

JSON = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("document", "count"),
    [
        (b" \n\t\r" * (4 * SPACES_OF_VALUE), 16),
        (b"[1," + b" " * (3 * SPACES_OF_VALUE) + b"2]", 5),
        (b'"' + b" [{,:" * 1000 + b'"', 0),
        (b'"' + b"\\n" * (5 * ESCAPES_OF_VALUE) + b'"', 5),
        (b'"' + b"\\u0041" * (5 * ESCAPES_OF_VALUE) + b'"', 5),
    ],
)
def test_spaces_and_escapes_are_counted(twin: str, document: bytes, count: int) -> None:
    assert count_values(document, 0) == count


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/topics/heavy/partitions/0/records?encoding=json", b" " * (20 * MIB)),
        ("/v1/topics/heavy/records?encoding=json", b'{"records":[' + b"\n" * (20 * MIB) + b'{"value":"x"}]}'),
        ("/v1/produce", b'{"partitions":[]}' + b"\t" * (20 * MIB)),
        ("/v1/produce", b'{"partitions":["' + b"\\n" * (9 * MIB) + b'"]}'),
    ],
)
def test_a_long_body_of_little_is_refused_before_it_is_read(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str, body: bytes
) -> None:
    client.put("/v1/topics/heavy").raise_for_status()
    read: list[int] = []

    def decode(_: Any, document: bytes) -> Any:
        read.append(len(document))
        raise AssertionError

    for module in ("app.record_json.strict_json", "app.record_json.translate", "app.produce.produce_body"):
        monkeypatch.setattr(f"{module}.decode", decode)
    answer = client.post(path, content=gzip.compress(body, 1), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
    assert "bytes of space" in answer.json()["detail"]
    assert read == []


def test_what_is_wrong_with_a_long_document_is_said_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "_SEARCHED_BYTES_MAX", 1000)

    def loads(*_: object, **__: object) -> Any:
        raise AssertionError("a long document was read again")

    monkeypatch.setattr(json, "loads", loads)
    filler = b"a" * 1000
    for document in (b'"' + filler, b'"' + filler + b'\\ud800"'):
        with pytest.raises(Problem) as refused:
            strict_json.check(document)
        assert refused.value.code == "malformed_body"
        assert refused.value.detail == "the body is incomplete JSON, or a text has an unpaired surrogate"
    with pytest.raises(Problem) as refused:
        strict_json.check(b'{"a":"' + filler + b'","a":1}')
    assert refused.value.detail == "the body: a field occurs twice in one object"
