"""Strict JSON: what is refused, how it is called, and where it points."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.fetch.multi_fetch_body import parse_multi_fetch
from app.problems.problem import Problem
from app.record_json.strict_json import check, read_model, refuse_duplicates
from schemas.offsets import DeleteRecords, OffsetQueries
from schemas.retention import RetentionPolicy
from schemas.topics import TopicSpecification


def refusal(body: bytes) -> Problem:
    with pytest.raises(Problem) as refused:
        check(body)
    return refused.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"a":}',
        b'{"a":1,}',
        b"{'a':1}",
        b"NaN",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"-Infinity",
        b"01",
        b"+1",
        b".5",
        b"1 2",
        b"[1,]",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\ud800 and more text behind it"',
        b'{"\\udfff":1}',
        b'"a\x00b"',
        b'"\\x41"',
        b"\xef\xbb\xbf{}",
        b"// comment\n{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    refused = refusal(body)
    assert (refused.status, refused.code) == (400, "malformed_body")
    assert len(refused.detail) < 200


@pytest.mark.parametrize("body", [b"1e999", b'{"a":-1e999}', b"[1E+400]"])
def test_numbers_beyond_a_float_are_refused(body: bytes) -> None:
    assert refusal(body).status in (400, 422)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"a":1,"a":2}', "/a"),
        (b'{"a":1,"\\u0061":2}', "/a"),
        (b'{"x":[{},{"a":{"b":1,"c":2,"b":3}}]}', "/x/1/a/b"),
        (b'{"a/b~c":1,"a/b~c":2}', "/a~1b~0c"),
        (b'{"":1,"":2}', "/"),
    ],
)
def test_a_name_that_occurs_twice_is_refused_with_a_pointer(body: bytes, pointer: str) -> None:
    refused = refusal(body)
    assert (refused.status, refused.code) == (422, "invalid_request")
    assert [(fault["pointer"], fault["code"]) for fault in refused.errors] == [(pointer, "duplicate_field")]


@pytest.mark.parametrize(
    "body",
    [b"{}", b"null", b'{"a":{"b":1},"c":{"b":2}}', b'[{"a":1},{"a":1}]', b'"\\ud83d\\ude00"', '"\u00e9"'.encode()],
)
def test_json_is_accepted(body: bytes) -> None:
    check(body)
    refuse_duplicates(body)


@pytest.mark.parametrize(
    ("model", "body", "faults"),
    [
        (TopicSpecification, b'{"partitions":"1"}', [("/partitions", "invalid_type")]),
        (TopicSpecification, b'{"partitions":true}', [("/partitions", "invalid_type")]),
        (TopicSpecification, b'{"partitions":1.5}', [("/partitions", "invalid_type")]),
        (TopicSpecification, b'{"partitions":0}', [("/partitions", "invalid_value")]),
        (TopicSpecification, b'{"partitions":10001}', [("/partitions", "invalid_value")]),
        (TopicSpecification, b'{"partitons":1}', [("/partitons", "unknown_field")]),
        (TopicSpecification, b'{"config":{"retention.ms":[1]}}', [("/config/retention.ms", "invalid_value")]),
        (TopicSpecification, b'{"config":{"retention.ms":1.5}}', [("/config/retention.ms", "invalid_value")]),
        (TopicSpecification, b"[]", [("", "invalid_type")]),
        (
            RetentionPolicy,
            b'{"retention_ms":-2,"retention_bytes":null,"cleanup_policy":null}',
            [("/retention_ms", "invalid_value")],
        ),
        (
            RetentionPolicy,
            b'{"retention_ms":9223372036854775808,"retention_bytes":-1,"cleanup_policy":"delete"}',
            [("/retention_ms", "invalid_value")],
        ),
        (DeleteRecords, b"{}", [("", "invalid_value")]),
        (DeleteRecords, b'{"offset":1,"before_timestamp":2}', [("", "invalid_value")]),
        (DeleteRecords, b'{"before_timestamp":"yesterday"}', [("/before_timestamp", "invalid_value")]),
        (OffsetQueries, b'{"queries":[]}', [("/queries", "invalid_value")]),
        (
            OffsetQueries,
            b'{"queries":[{"topic":"a/b","partition":-1,"timestamp":"soon"}]}',
            [
                ("/queries/0/topic", "invalid_value"),
                ("/queries/0/partition", "invalid_value"),
                ("/queries/0/timestamp", "invalid_value"),
            ],
        ),
        (
            OffsetQueries,
            b'{"queries":[{"topic":"a"}]}',
            [("/queries/0/partition", "missing"), ("/queries/0/timestamp", "missing")],
        ),
    ],
)
def test_all_faults_of_a_document_are_listed_with_pointers(
    model: type, body: bytes, faults: list[tuple[str, str]]
) -> None:
    with pytest.raises(Problem) as refused:
        read_model(model, body)
    assert refused.value.status == 422
    assert [(fault["pointer"], fault["code"]) for fault in refused.value.errors] == faults


@pytest.mark.parametrize("number", ["3.0", "3.000", "3e0", "0.3E1", "30e-1"])
def test_a_whole_number_may_be_written_as_a_float(number: str) -> None:
    """It is the same number to JSON Schema; clients that keep all numbers as floats write it so."""
    assert read_model(DeleteRecords, b'{"offset":%s}' % number.encode()).offset == 3
    fetch = b'{"partitions":[{"topic":"t","partition":0,"fetch_offset":%s}]}' % number.encode()
    assert parse_multi_fetch(fetch).partitions[0].fetch_offset == 3


@pytest.mark.parametrize("number", ["3.5", "1e300", "1e19", "9007199254740993.0", '"3.0"'])
def test_other_floats_are_no_whole_numbers(number: str) -> None:
    body = b'{"offset":%s}' % number.encode()
    with pytest.raises(Problem) as refused:
        read_model(DeleteRecords, body)
    assert (refused.value.status, refused.value.errors[0]["pointer"]) == (422, "/offset")
    with pytest.raises(Problem) as refused:
        parse_multi_fetch(b'{"partitions":[{"topic":"t","partition":0,"fetch_offset":%s}]}' % number.encode())
    assert (refused.value.status, refused.value.errors[0]["pointer"]) == (422, "/partitions/0/fetch_offset")


def test_a_float_beside_another_fault_hides_nothing() -> None:
    with pytest.raises(Problem) as refused:
        read_model(DeleteRecords, b'{"offset":3.0,"dry_run":1,"more":2}')
    assert {fault["pointer"] for fault in refused.value.errors} == {"/dry_run", "/more"}
    twice = b'{"partitions":[{"topic":"t","partition":0.0,"fetch_offset":1,"fetch_offset":2}]}'
    with pytest.raises(Problem) as refused:
        parse_multi_fetch(twice)
    assert refused.value.errors[0]["code"] == "duplicate_field"
    long = b'{"offset":3.0%s}' % (b" " * 128 * 1024)
    with pytest.raises(Problem, match="whole number"):
        read_model(DeleteRecords, long)


def test_times_are_milliseconds_or_rfc_3339() -> None:
    def parsed(text: str) -> int:
        body = b'{"before_timestamp":%s}' % text.encode()
        before = read_model(DeleteRecords, body).before_timestamp
        assert before is not None
        return before

    assert parsed("0") == 0
    assert parsed("9223372036854775807") == 2**63 - 1
    assert parsed('"2013-07-04T00:00:00-04:00"') == 1_372_910_400_000
    assert parsed('"2013-07-04t04:00:00.1239z"') == 1_372_910_400_123
    assert parsed('"1970-01-01T00:00:00.001Z"') == 1
    for wrong in (
        '"2013-07-04T00:00:00"',
        '"2013-02-30T00:00:00Z"',
        '"2013-07-04"',
        '"1969-12-31T23:59:59Z"',
        "-1",
        '""',
    ):
        with pytest.raises(Problem):
            parsed(wrong)


class Members(list[tuple[str, Any]]):
    """An object as its members, some of which may have the same name."""


TEXTS = st.lists(st.sampled_from(['"', "\\", "\\\\", "a", "b", "é", "\n", "u0022"]), max_size=3).map("".join)
DOCUMENTS = st.recursive(
    st.none() | TEXTS | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXTS, inner), max_size=4).map(Members),
    max_leaves=8,
)


def written(value: Any) -> str:
    if isinstance(value, Members):
        return "{" + ",".join(f"{json.dumps(name)}: {written(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def objects_in(value: Any) -> Iterator[Members]:
    if isinstance(value, Members):
        yield value
        for _, member in value:
            yield from objects_in(member)
    elif isinstance(value, list):
        for item in value:
            yield from objects_in(item)


@given(DOCUMENTS)
def test_exactly_the_documents_with_a_name_that_occurs_twice_are_refused(document: Any) -> None:
    repeats = any(len({name for name, _ in members}) < len(members) for members in objects_in(document))
    body = written(document).encode()
    if repeats:
        assert refusal(body).errors[0]["code"] == "duplicate_field"
    else:
        check(body)
