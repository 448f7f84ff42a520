"""A name that occurs twice in one object of a JSON body is told as that, whatever is wrong with either member."""

from __future__ import annotations

import httpx
import pytest

RECORDS = "/partitions/0/records"
LINES = "application/x-ndjson"
SENTENCE = "this name occurs more than once in one object, and may occur once; leave one of them"


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        (RECORDS, b'{"records":[{"value":"a","value":"b"}]}', "/records/0/value"),
        (RECORDS, b'{"records":[{"value":"a","value":"b","value":"c"}]}', "/records/0/value"),
        # The advice was to add encoding=json to the query.
        (RECORDS, b'{"records":[{"value":1,"value":"b"}]}', "/records/0/value"),
        (RECORDS, b'{"records":[{"value":"a"},{"value":"b","value":{}}]}', "/records/1/value"),
        (RECORDS, b'{"records":[{"value":"a","headers":[{"name":"a","name":"b"}]}]}', "/records/0/headers/0/name"),
        (RECORDS, b'{"records":[{"value":"a","x":1,"x":2}]}', "/records/0/x"),
        (RECORDS, b'{"value":"a"}\n{"value":1,"value":"b"}\n', "/1/value"),
        ("/records", b'{"value":"a"}\n{"key":1,"key":"b","value":"c"}\n', "/1/key"),
        ("", b'{"config":{"retention.ms":"x","retention.ms":2}}', "/config/retention.ms"),
    ],
)
def test_a_repeated_name_is_told_before_all_else(
    client: httpx.Client, topic: str, path: str, body: bytes, pointer: str
) -> None:
    media_type = LINES if body.endswith(b"\n") else "application/json"
    answer = client.request(
        "PATCH" if not path else "POST", f"{topic}{path}", content=body, headers={"Content-Type": media_type}
    )
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid_request")
    assert problem["errors"] == [{"pointer": pointer, "code": "duplicate_field", "detail": SENTENCE}]
    assert problem["detail"] == f"{pointer}: {SENTENCE}"


def test_other_faults_keep_their_advice(client: httpx.Client, topic: str) -> None:
    answer = client.post(f"{topic}{RECORDS}", json={"records": [{"value": 1}]})
    assert "add encoding=json to the query" in answer.json()["detail"]
