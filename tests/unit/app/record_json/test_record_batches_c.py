"""Batches made straight of a body are those that ``translate`` makes of it, or it is left to ``translate``."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.problems.problem import Problem
from app.record_json import record_batches as module
from app.record_json.record_batches import plain_batches, validated_batches
from app.record_json.translate import parse_record_lines, parse_record_list
from log_model.batches.batch_validation import ValidBatch
from log_model.config import TopicConfig
from log_model.errors import RefusedError

pytestmark = pytest.mark.skipif(module.compiled is None, reason="the service was installed without a compiler")

NOW_MS = 1_700_000_000_000
PARTITION = 3
DEFAULTS = TopicConfig.DEFAULTS
Outcome = list[tuple[bytes, bytes, Any, int]] | None


def written(batches: list[ValidBatch] | None) -> Outcome:
    if batches is None:
        return None
    return [(bytes(batch.head), bytes(batch.body), batch.header, batch.max_timestamp) for batch in batches]


def translated(body: bytes, config: TopicConfig, is_lines: bool) -> Outcome:
    """What the way in Python makes of a body; ``None`` when it refuses it."""
    try:
        parsed = (parse_record_lines if is_lines else parse_record_list)(body, "utf8", now_ms=NOW_MS)
        parsed.check_partition(PARTITION)
        return written(validated_batches(parsed, config, together=not is_lines))
    except (Problem, RefusedError):
        return None


def plain(body: bytes, config: TopicConfig = DEFAULTS, *, is_lines: bool = False) -> Outcome:
    """What was made of a body at once, after it was seen to be the same; ``None`` when it was not."""
    found = written(plain_batches(body, "utf8", config, PARTITION, NOW_MS, is_lines=is_lines, together=not is_lines))
    if found is not None:
        assert found == translated(body, config, is_lines)
    return found


def both(record: bytes) -> list[bool]:
    """Whether this record of JSON is plain, among others in a list and in lines."""
    other = b'{"value":"other"}'
    body = b'{"records":[%b,%b,%b]}' % (other, record, other)
    return [plain(body) is not None, plain(b"%b\n%b\n" % (record, other), is_lines=True) is not None]


PLAIN = [
    b'{"value":""}',
    b'{"value":null}',
    b'{"value":"text","key":"k"}',
    b'{"key":null,"value":"text","timestamp":null,"partition":null,"headers":[]}',
    b'{"timestamp":0,"value":"a"}',
    b'{"value":"a","timestamp":1699999999999,"partition":3}',
    b'{"value":"a","headers":[{"name":"trace","value":"1"},{"value":null,"name":""}]}',
    b' { "value" : "a" , "headers" : [ { "name" : "n" , "value" : "v" } , { "name" : "n" , "value" : "v" } ] }\t',
    b'{"value":"\\"\\\\\\/\\b\\f\\n\\r\\t \\u0000\\u001f\\u00e9\\u20AC\\ud83d\\uDE00\\uffff","key":"\\u00DF"}',
    '{"value":"Grüße, 世界 😀 \u2028\x7f","key":"é","headers":[{"name":"ä","value":"\\u00e4"}]}'.encode(),
    b'{"value":"' + b"long " * 1000 + b'"}',
    b'{"value":"' + b"\\n" * 1000 + b'","key":"' + b"a\\u00e9" * 1000 + b'"}',
]
NOT_PLAIN = [
    b"{}",
    b"null",
    b'{"key":"a"}',
    b'{"value":1}',
    b'{"value_base64":"AA=="}',
    b'{"value":null,"value_base64":"AA=="}',
    b'{"value":"a","key_base64":"AA=="}',
    b'{"value":{"base64":"AA=="}}',
    b'{"value":"a","headers":[{"name_base64":"AA==","value":"a"}]}',
    b'{"value":"a","headers":[{"name":"a","value_base64":"AA=="}]}',
    b'{"value":"a","value":"a"}',
    b'{"value":"a","v\\u0061lue":"a"}',
    b'{"value":"a","timestamp":-1}',
    b'{"value":"a","timestamp":-0}',
    b'{"value":"a","timestamp":-2}',
    b'{"value":"a","timestamp":007}',
    b'{"value":"a","timestamp":1.0}',
    b'{"value":"a","timestamp":1e3}',
    b'{"value":"a","timestamp":9223372036854775807}',
    b'{"value":"a","timestamp":"2026-01-01T00:00:00Z"}',
    b'{"value":"a","partition":4}',
    b'{"value":"a","partition":-1}',
    b'{"value":"a","offset":1}',
    b'{"value":"a","headers":null}',
    b'{"value":"a","headers":[{"name":"n"}]}',
    b'{"value":"a","headers":[{"name":null,"value":"v"}]}',
    b'{"value":"a","headers":[{"name":"n","value":"v","name":"n"}]}',
    b'{"value":"a","headers":[{"name":"n","value":"v"},]}',
    b'{"value":"a","headers":[}',
    b'{"value":"a",}',
    b'{"value":"a" "key":"k"}',
    b'{"value":"a"}}',
    b'{"value":"a\nb"}',
    b'{"value":"a\x00b"}',
    b'{"value":"\\x"}',
    b'{"value":"\\u00g0"}',
    b'{"value":"\\ud800"}',
    b'{"value":"\\ud800\\u0041"}',
    b'{"value":"\\ude00\\ud83d"}',
    b'{"value":"\xff"}',
    b'{"value":"\xed\xa0\x80"}',
    b'{"value":"\xc3"}',
    b'{"value":"a"\xa0}',
    b"{'value':'a'}",
    b'{"value":nul}',
    b'{"value":"a"',
    b'{"value":"a',
    b'{"value":"a\\',
    b'{"value":"a\\u12',
]


@pytest.mark.parametrize("record", PLAIN)
def test_records_that_are_plain(record: bytes) -> None:
    assert both(record) == [True, True]


@pytest.mark.parametrize("record", NOT_PLAIN)
def test_records_that_are_left_to_others(record: bytes) -> None:
    assert both(record) == [False, False]


TEXT = st.text(max_size=12) | st.sampled_from(["x" * 70, "\\", '"', "ü" * 40])
UTF_8 = ["c2 80", "df bf", "e0 a0 80", "ed 9f bf", "ee 80 80", "ef bf bf", "f0 90 80 80", "f1 80 80 80", "f4 8f bf bf"]
NOT_UTF_8 = [
    *("80", "bf", "c0 80", "c1 bf", "c2", "c2 41", "c2 c2", "e0 9f bf", "e0 80 80", "ed a0 80", "ed bf bf", "ee 80"),
    *("e1 80 41", "f0 8f bf bf", "f0 80 80 80", "f0 9f 98", "f0 9f 41 80", "f0 9f 98 41", "f4 90 80 80", "f5 80 80 80"),
    *("f8 88 80 80 80", "fc 84 80 80 80 80", "fe", "ff", "c3 5c 75 30 30 65 39", "ed a0 80 ed b0 80"),
]


@pytest.mark.parametrize("hexadecimal", UTF_8 + NOT_UTF_8)
@pytest.mark.parametrize("around", [b"", b"1234567", b"\\n", b"long enough to look at eight bytes at once"])
def test_texts_are_utf_8(hexadecimal: str, around: bytes) -> None:
    text = bytes.fromhex(hexadecimal)
    for record in (
        b'{"value":"%b%b%b"}' % (around, text, around),
        b'{"value":"%b%b"}' % (around, text),
        b'{"value":null,"key":"%b"}' % text,
        b'{"value":null,"headers":[{"name":"%b","value":"%b"}]}' % (text, around),
        b'{"value":null,"headers":[{"name":"%b","value":"%b"}]}' % (around, text),
    ):
        assert both(record) == [hexadecimal in UTF_8] * 2
        body = b'{"records":[%b]}' % record
        assert (translated(body, DEFAULTS, False) is not None) == (hexadecimal in UTF_8)


@settings(max_examples=500)
@given(st.binary(max_size=6), TEXT, st.data())
def test_any_bytes_in_a_text_are_judged_as_in_python(spliced: bytes, text: str, data: st.DataObject) -> None:
    for encoded in (text.encode(), json.dumps(text)[1:-1].encode()):
        place = data.draw(st.integers(0, len(encoded)))
        record = b'{"value":"%b"}' % (encoded[:place] + spliced + encoded[place:])
        body = b'{"records":[%b]}' % record
        # Few bytes make no more of a record than a text: both take it, or neither does.
        assert (plain(body) is not None) == (translated(body, DEFAULTS, False) is not None)
        plain(record + b"\n", is_lines=True)


@pytest.mark.parametrize("character", ["x", "😀"])
def test_characters_that_are_not_ascii_cost_no_memory(character: str) -> None:
    record = b'{"value":"%b"},' % (b"v" * 1000)
    body = b'{"records":[%b{"value":"%b"}]}' % (record * (8 * 1024 * 1024 // len(record)), character.encode())
    tracemalloc.start()
    try:
        found = plain_batches(body, "utf8", TopicConfig.parse({}), PARTITION, NOW_MS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert peak_bytes < 1.1 * len(body)


@pytest.mark.parametrize(
    ("body", "is_plain"),
    [
        (b'{"records":[{"value":"a"}]}', True),
        (b' \r\n\t{ "records" : [ {"value":"a"} ,\n {"value":"b"} ] } \n', True),
        (b'{"records":[]}', False),
        (b'{"records":[{"value":"a"}],"more":1}', False),
        (b'{"records":[{"value":"a"}],"records":[{"value":"a"}]}', False),
        (b'{"records":[{"value":"a"},]}', False),
        (b'{"records":[{"value":"a"}]}x', False),
        (b'{"record":[{"value":"a"}]}', False),
        (b'[{"value":"a"}]', False),
        (b'\xef\xbb\xbf{"records":[{"value":"a"}]}', False),
        (b"", False),
    ],
)
def test_what_stands_around_the_records(body: bytes, is_plain: bool) -> None:
    assert (plain(body) is not None) == is_plain


@pytest.mark.parametrize(
    ("block", "count"),
    [
        (b"", 0),
        (b"\n \r\n\t\n", 0),
        (b'{"value":"a"}', 1),
        (b'{"value":"a"}\r\n\n  {"value":"b"} \n', 2),
        (b'{"value":"a"} {"value":"b"}\n', None),
        (b'{"value":\n"a"}\n', None),
        (b'{"value":"a"}x\n', None),
        (b'{"value":"a"}\n]', None),
    ],
)
def test_what_stands_around_lines(block: bytes, count: int | None) -> None:
    found = plain(block, is_lines=True)
    assert (None if found is None else sum(header.record_count for _, _, header, _ in found)) == count


def test_a_body_that_ends_anywhere_or_has_another_byte_anywhere() -> None:
    record = (
        '{"key":"k\\u00e9\\n","value":"é","timestamp":1699999999999,"headers":[{"name":"n","value":null}]}'.encode()
    )
    body = b'{"records":[%b,{"value":"\\ud83d\\ude00"}]}' % record
    assert plain(body) is not None
    for place in range(len(body)):
        assert plain(body[:place]) is None
        for byte in (0, ord("1"), ord('"'), ord("\\"), ord("u"), ord("}"), 0x80, 0xFF):
            plain(body[:place] + bytes([byte]) + body[place + 1 :])
            plain(record[:place] + bytes([byte]) + record[place + 1 :], is_lines=True)


MAYBE = st.none() | TEXT
# Few, as no list with one of them is plain.
ENCODED = st.sampled_from(["", "AA==", "/w==", "AA", "_w==", None])
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"value": MAYBE},
        optional={
            "key": MAYBE,
            "timestamp": st.none() | st.integers(NOW_MS - 10**10, NOW_MS) | st.integers(-1, 2**63 - 1),
            "partition": st.none() | st.just(PARTITION) | st.integers(0, 9),
            "headers": st.lists(st.fixed_dictionaries({"name": TEXT, "value": MAYBE}), max_size=3),
        },
    ),
    min_size=1,
    max_size=90,
)
ENCODED_RECORD = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("value", "key"), MAYBE),
        **dict.fromkeys(("value_base64", "key_base64"), ENCODED),
        "headers": st.lists(
            st.fixed_dictionaries(
                {},
                optional={"name": MAYBE, "value": MAYBE, "name_base64": ENCODED, "value_base64": ENCODED},
            ),
            max_size=2,
        ),
    },
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"max.message.bytes": 300},
    {"max.message.bytes": 70},
    {"message.timestamp.before.max.ms": 10**9},
    {"compression.type": "gzip"},
]


@settings(max_examples=300)
@example([{"value": None, "timestamp": -1}], {}, False, False, False)
@example([{"value": None, "timestamp": -1}], {}, True, False, False)
@given(RECORDS, st.sampled_from(SETTINGS), st.booleans(), st.booleans(), st.booleans())
def test_any_records_are_the_batches_that_translate_makes(
    records: list[dict[str, Any]], topic: dict[str, Any], is_lines: bool, is_ascii: bool, is_tight: bool
) -> None:
    separators = (",", ":") if is_tight else None
    try:
        if is_lines:
            lines = [json.dumps(record, ensure_ascii=is_ascii, separators=separators) + "\n" for record in records]
            body = "".join(lines).encode()
        else:
            body = json.dumps({"records": records}, ensure_ascii=is_ascii, separators=separators).encode()
    except UnicodeEncodeError:
        return
    config = TopicConfig.parse(topic)
    found = plain(body, config, is_lines=is_lines)
    if found is None and translated(body, config, is_lines) is not None:
        # What is left to the way in Python and yet in order is one of these; -1 is a record that has no timestamp.
        times = [record.get("timestamp") or 0 for record in records]
        assert "compression.type" in topic or min(times) == -1 or max(times) >= 10**18


@settings(max_examples=300)
@given(RECORDS, ENCODED_RECORD, st.data(), st.booleans())
def test_records_with_bytes_are_left_to_translate_wherever_they_stand(
    records: list[dict[str, Any]], encoded: dict[str, Any], data: st.DataObject, is_lines: bool
) -> None:
    record = dict(data.draw(st.permutations(list(encoded.items()))))
    row = [*records[:5], record, *records[5:]]
    text = "".join(json.dumps(each) + "\n" for each in row) if is_lines else json.dumps({"records": row})
    # Whatever is taken at once is what translate makes of it: ``plain`` has looked.
    found = plain(text.encode(), is_lines=is_lines)
    headers = record.get("headers", [])
    has_bytes = any(name.endswith("_base64") for holder in (record, *headers) for name in holder)
    lacks = "value" not in record or any({"name", "value"} - set(header) for header in headers)
    assert found is None or not (has_bytes or lacks)


@pytest.mark.parametrize("is_lines", [False, True])
def test_many_records_fill_batches_one_after_the_other(is_lines: bool) -> None:
    """So many that the lock of the interpreter is let go meanwhile."""
    records = [{"value": f"{number:05}" * (number % 40), "timestamp": NOW_MS - number} for number in range(3000)]
    lines = [json.dumps(record).encode() for record in records]
    body = b"\n".join(lines) if is_lines else b'{"records":[%b]}' % b",".join(lines)
    found = plain(body, TopicConfig.parse({"max.message.bytes": 9000}), is_lines=is_lines)
    assert found is not None
    assert len(found) > 30
    assert max(len(head) + len(section) for head, section, _, _ in found) <= 9000


def test_what_is_together_must_fit_into_a_segment() -> None:
    config = TopicConfig.parse({"segment.bytes": 4096, "max.message.bytes": 3000})
    records = [{"value": "x" * 1000} for _ in range(6)]
    assert plain(json.dumps({"records": records}).encode(), config) is None
    assert plain(json.dumps({"records": records[:3]}).encode(), config) is not None
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    assert len(plain(lines, config, is_lines=True) or []) == 3


@pytest.mark.parametrize("encoding", ["base64", "json"])
def test_other_encodings_are_left_to_others(encoding: Literal["base64", "json"]) -> None:
    assert plain_batches(b'{"records":[{"value":"AA=="}]}', encoding, DEFAULTS, PARTITION, NOW_MS) is None


def test_whatever_holds_the_bytes() -> None:
    body = b'{"records":[{"value":"a"}]}'
    expected = plain(body)
    for kind in (bytearray, memoryview):
        assert written(plain_batches(kind(body), "utf8", DEFAULTS, PARTITION, NOW_MS)) == expected
