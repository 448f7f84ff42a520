"""``app.cli.records.record_text``: lines become records, and a bad line says what is wrong with it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.json_paths import RecordTextError
from app.cli.records.record_text import (
    InputFormat,
    JsonPaths,
    OutgoingRecord,
    bytes_of,
    record_reader,
    text_or_base64,
)

NOTHING = JsonPaths()


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.binary())
def test_a_line_is_a_value_byte_for_byte(line: bytes) -> None:
    assert record_reader(InputFormat.LINES, NOTHING)(3, line) == OutgoingRecord(3, None, line, None, ())


@given(st.one_of(st.none(), st.binary()))
def test_every_key_and_value_survives_the_way_to_the_service(data: bytes | None) -> None:
    written = json.loads(json.dumps(text_or_base64("value", data)))
    assert bytes_of(written, "value") == data
    assert list(written) == (["value"] if data is None or is_text(data) else ["value_base64"])


def test_paths_pick_the_parts_and_the_value_is_the_line() -> None:
    line = b'{"carrier": "AA", "at": "2013-07-04T04:00:00Z", "meta": {"trace": "a1", "n": 7, "none": null}}'
    paths = JsonPaths(key="$.carrier", timestamp="$.at", headers="$.meta")
    record = record_reader(InputFormat.NDJSON, paths)(1, line)
    headers = (("trace", b"a1"), ("n", b"7"), ("none", None))
    assert record == OutgoingRecord(1, b"AA", line, 1372910400000, headers)


def test_a_value_path_takes_text_without_its_quotes_and_other_json_as_it_stands() -> None:
    read = record_reader(InputFormat.NDJSON, JsonPaths(value="$.body"))
    assert read(1, b'{"body": "caf\\u00e9"}').value == "café".encode()
    assert read(1, b'{"body": {"a": [1, 2]} }').value == b'{"a": [1, 2]}'
    assert read(1, b'{"body": 0}').value == b"0"
    assert read(1, b'{"body": null}').value is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.a.b", b"1"),
        ("$['a']['b']", b"1"),
        ("a.b", b"1"),
        ("$.list[1].x", b"5"),
        ("$.list[-1].x", b"5"),
        ("$..x", b"4"),
        ("$.list[?@.x > 4].x", b"5"),
        ("$", b'{"a": {"b": 1}, "list": [{"x": 4}, {"x": 5}]}'),
        ("$.a.~b", b"b"),
    ],
)
def test_any_json_path_will_do(path: str, found: bytes) -> None:
    line = b'{"a": {"b": 1}, "list": [{"x": 4}, {"x": 5}]}'
    assert record_reader(InputFormat.NDJSON, JsonPaths(key=path))(1, line).key == found


@pytest.mark.parametrize("path", ["$.a.b.c", "$.a.c", "$.list.x", "$.list[2]", "$.c"])
def test_a_path_to_nothing_is_told(path: str) -> None:
    line = b'{"a": {"b": 1}, "list": [{"x": 4}, {"x": 5}]}'
    with pytest.raises(RecordTextError, match="nothing is at"):
        record_reader(InputFormat.NDJSON, JsonPaths(key=path))(1, line)


def test_null_means_absent() -> None:
    paths = JsonPaths(key="$.k", timestamp="$.t", headers="$.h")
    record = record_reader(InputFormat.NDJSON, paths)(1, b'{"k": null, "t": null, "h": null}')
    assert (record.key, record.timestamp, record.headers) == (None, None, ())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON: it begins with a byte order mark; send UTF-8 without one"),
        ("{}".encode("utf-16-le"), "not JSON: it is UTF-16 or UTF-32"),
        (b'{"k": 1e400, "t": "\\ud800"}', "not JSON"),
        (b'{"k": 1e400, "t": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"5", "not a JSON object"),
        (b'{"x": 1}', r"nothing is at \$\.k"),
        (b'{"k": 1, "t": "yesterday"}', "is not a timestamp"),
        (b'{"k": 1, "t": true}', "is not a timestamp"),
        (b'{"k": 1, "t": 1, "h": 5}', "headers are an object"),
        (b'{"k": 1, "t": 1, "h": [{"value": "x"}]}', "headers are an object"),
    ],
)
def test_a_bad_line_says_why(line: bytes, message: str) -> None:
    read = record_reader(InputFormat.NDJSON, JsonPaths(key="$.k", timestamp="$.t", headers="$.h"))
    with pytest.raises(RecordTextError, match=message):
        read(1, line)


@pytest.mark.parametrize("path", ["$.[", "$.a[", "??"])
def test_a_bad_path_is_refused_before_anything_is_read(path: str) -> None:
    with pytest.raises(RecordTextError, match="not a JSON path"):
        record_reader(InputFormat.NDJSON, JsonPaths(key=path))


def test_records_as_fetch_prints_them_are_read_back() -> None:
    line = json.dumps(
        {
            "offset": 4,
            "timestamp": 5,
            "timestamp_type": "CreateTime",
            "key_base64": "AP8=",
            "value": "text",
            "headers": [
                {"name": "a", "value": "1"},
                {"name": "a", "value": None},
                {"name_base64": "/w==", "value_base64": "AP8="},
            ],
            "partition": 2,
        }
    ).encode()
    expected = OutgoingRecord(9, b"\x00\xff", b"text", 5, (("a", b"1"), ("a", None), ("\udcff", b"\x00\xff")))
    assert record_reader(InputFormat.RECORDS, NOTHING)(9, line) == expected
    tombstone = record_reader(InputFormat.RECORDS, NOTHING)(1, b'{"value": null}')
    assert (tombstone.value, tombstone.timestamp) == (None, None)
    for line in (b'{"value_base64": null}', b'{"value": null, "value_base64": null, "key_base64": null}'):
        assert record_reader(InputFormat.RECORDS, NOTHING)(1, line) == tombstone
    both = record_reader(InputFormat.RECORDS, NOTHING)(1, b'{"value": null, "value_base64": "AA==", "key": null}')
    assert (both.key, both.value) == (None, b"\x00")


@pytest.mark.parametrize(
    ("input_format", "paths"),
    [(InputFormat.RECORDS, NOTHING), (InputFormat.NDJSON, JsonPaths(timestamp="$.timestamp"))],
)
def test_a_record_without_a_time_stays_one(input_format: InputFormat, paths: JsonPaths) -> None:
    record = record_reader(input_format, paths)(1, b'{"value": "x", "timestamp": -1}')
    assert record is not None
    assert record.timestamp == -1
    assert record.as_json(0)["timestamp"] == -1


NUMBERS = ["1.10", "1E2", "-0", "-0.0", "100.00", "1e400", "-1e400", "0.1234567890123456789", "1" * 30, "1" * 5000]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:20])
@pytest.mark.parametrize("path", ["$.part", "$.list[0].part", "$..deep", "$.list[?@.ok == true].part"])
def test_numbers_keep_the_text_that_was_sent(number: str, path: str) -> None:
    for part in (number, f"[{number}, 2]", f'{{"a":  {number}}}'):
        line = f'{{"list": [{{"ok": true, "part": {part} }}], "part":{part}, "deep": {part}, "at": 1372910400000}}'
        read = record_reader(InputFormat.NDJSON, JsonPaths(key=path, value=path, timestamp="$.at"))
        record = read(1, line.encode())
        assert record is not None
        assert (record.key, record.value, record.timestamp) == (part.encode(), part.encode(), 1372910400000)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:20])
def test_numbers_in_headers_keep_their_text_too(number: str) -> None:
    read = record_reader(InputFormat.NDJSON, JsonPaths(headers="$.meta"))
    as_object = read(1, f'{{"meta": {{"n": {number}, "list": [{number} ], "text": "t", "none": null}}}}'.encode())
    expected = (("n", number.encode()), ("list", f"[{number} ]".encode()), ("text", b"t"), ("none", None))
    assert as_object is not None
    assert as_object.headers == expected
    items = '{"name": "text", "value": "t"}, {"name": "none"}'
    as_list = read(1, f'{{"meta": [{{"name": "n", "value": {number} }}, {items}]}}'.encode())
    assert as_list is not None
    assert as_list.headers == (("n", number.encode()), ("text", b"t"), ("none", None))


@pytest.mark.parametrize("line", [b"", b"  \t", b"\r"])
def test_a_blank_line_of_json_is_no_record_and_a_blank_line_of_text_is_one(line: bytes) -> None:
    assert record_reader(InputFormat.RECORDS, NOTHING)(1, line) is None
    assert record_reader(InputFormat.NDJSON, JsonPaths(key="$.k"))(1, line) is None
    assert record_reader(InputFormat.LINES, NOTHING)(1, line) == OutgoingRecord(1, None, line, None, ())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"5", "a record is an object"),
        (b"{}", "a record is an object"),
        (b'{"key": "x"}', 'with a "value" or a "value_base64"'),
        (b'{"value": 5}', "value is text or null"),
        (b'{"value": {"base64": "AA=="}}', "bytes go in value_base64"),
        (b'{"value": "x", "key": {"base64": "AA=="}}', "bytes go in key_base64"),
        (b'{"value_base64": "%"}', "value_base64 is no base64"),
        (b'{"value_base64": 5}', "value_base64 is no base64"),
        (b'{"value": "x", "value_base64": "AA=="}', "value and value_base64 are both there"),
        (b'{"value": "x", "key": []}', "key is text or null"),
        (b'{"value": "x", "headers": [{"name": {"base64": "AA=="}, "value": null}]}', "bytes go in name_base64"),
        (b'{"value": "x", "headers": [{"name": "h", "value": {"base64": "AA=="}}]}', "bytes go in value_base64"),
        (b'{"value": "x", "headers": {"h": {"base64": "AA=="}}}', "bytes go in value_base64"),
        (b'{"value": "x", "headers": [{"name": null, "value": null}]}', "headers are an object"),
    ],
)
def test_what_is_no_record_is_refused(line: bytes, message: str) -> None:
    with pytest.raises(RecordTextError, match=message):
        record_reader(InputFormat.RECORDS, NOTHING)(1, line)


def test_headers_at_a_path_may_be_bytes() -> None:
    read = record_reader(InputFormat.NDJSON, JsonPaths(headers="$.h"))
    record = read(
        1, b'{"h": [{"name_base64": "/w==", "value_base64": "AP8="}, {"name": "n", "value": {"base64": "AA=="}}]}'
    )
    assert record is not None
    assert record.headers == (("\udcff", b"\x00\xff"), ("n", b'{"base64": "AA=="}'))


def test_what_is_sent_has_only_what_is_there() -> None:
    bare = OutgoingRecord(1, None, b"\xff", None, ())
    assert bare.as_json(3) == {"value_base64": "/w==", "partition": 3}
    full = OutgoingRecord(1, b"k", None, 7, (("h", None),))
    assert full.as_json(0) == {
        "value": None,
        "partition": 0,
        "key": "k",
        "timestamp": 7,
        "headers": [{"name": "h", "value": None}],
    }
