"""Records between JSON and columns: what the fast coders take is what the documented models take."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from pydantic import BaseModel, ValidationError

from app.problems.problem import Problem
from app.record_json.record_documents import encode_document, record_documents
from app.record_json.translate import Encoding, parse_record_lines, parse_record_list
from rollway.records import BinaryColumn, RecordColumns
from schemas.records import ProducedRecord, RecordList, RoutedRecord, RoutedRecordList

NOW_MS = 1_700_000_000_000


def parse(*records: Any, encoding: Encoding = "utf8") -> Any:
    body = json.dumps({"records": list(records)}).encode()
    return parse_record_list(body, encoding, now_ms=NOW_MS)


def refusal(body: bytes, encoding: Encoding = "utf8") -> Problem:
    with pytest.raises(Problem) as refused:
        parse_record_list(body, encoding, now_ms=NOW_MS)
    return refused.value


def test_a_record_has_all_its_parts() -> None:
    parsed = parse(
        {
            "key": "k",
            "value_base64": "AAH/",
            "headers": [
                {"name": "h", "value": "1"},
                {"name": "h", "value": None},
                {"name": "", "value": ""},
                {"name_base64": "/w==", "value_base64": "/w=="},
                {"name": "h", "name_base64": None, "value": None, "value_base64": "AA=="},
            ],
            "timestamp": "2013-07-04T00:00:00Z",
            "partition": 3,
        },
        {"value": None},
        {"value": "", "key": None, "headers": [], "timestamp": None, "partition": None},
        {"value": None, "value_base64": "AA==", "key": None, "key_base64": "/w=="},
        {"value_base64": None, "key_base64": None},
    )
    assert parsed.keys == [b"k", None, None, b"\xff", None]
    assert parsed.values == [b"\x00\x01\xff", None, b"", b"\x00", None]
    assert parsed.timestamps == [1_372_896_000_000, NOW_MS, NOW_MS, NOW_MS, NOW_MS]
    assert parsed.headers == [
        [("h", b"1"), ("h", None), ("", b""), ("\udcff", b"\xff"), ("h", b"\x00")],
        (),
        [],
        (),
        (),
    ]
    assert parsed.partitions == [3, None, None, None, None]


def test_columns_hold_the_rows_asked_for() -> None:
    parsed = parse({"value": "a", "key": "x"}, {"value": "b"}, {"value": "c", "headers": [{"name": "h", "value": "1"}]})
    columns = parsed.columns([2, 0])
    assert columns.values.to_list() == [b"c", b"a"]
    assert columns.keys.to_list() == [None, b"x"]
    assert columns.offsets.tolist() == [0, 1]
    assert columns.headers is not None
    assert columns.headers.to_rows() == [(("h", b"1"),), ()]


@pytest.mark.parametrize(
    ("body", "status", "pointer", "code"),
    [
        (b'{"records":[{"value":"a"},{"value":3}]}', 422, "/records/1/value", "invalid_type"),
        (b'{"records":[{"value":true}]}', 422, "/records/0/value", "invalid_type"),
        (b'{"records":[{"key":"a"}]}', 422, "/records/0/value", "missing"),
        (b'{"records":[{"value_base64":"!"}]}', 422, "/records/0/value_base64", "invalid_value"),
        (b'{"records":[{"value_base64":"AA"}]}', 422, "/records/0/value_base64", "invalid_value"),
        (b'{"records":[{"value":"a","value_base64":"AA=="}]}', 422, "/records/0/value_base64", "invalid_value"),
        (b'{"records":[{"value":"","value_base64":""}]}', 422, "/records/0/value_base64", "invalid_value"),
        (b'{"records":[{"value":"a","key":"a","key_base64":"AA=="}]}', 422, "/records/0/key_base64", "invalid_value"),
        (b'{"records":[{"value":{"base64":"AA=="}}]}', 422, "/records/0/value", "invalid_type"),
        (b'{"records":[{"value":{"hex":"AA"}}]}', 422, "/records/0/value", "invalid_type"),
        (b'{"records":[{"value":"a","value_hex":"AA"}]}', 422, "/records/0/value_hex", "unknown_field"),
        (b'{"records":[{"value":"a","header":[]}]}', 422, "/records/0/header", "unknown_field"),
        (
            b'{"records":[{"value":"a","headers":[{"name":null,"value":"a"}]}]}',
            422,
            "/records/0/headers/0/name",
            "invalid_type",
        ),
        (b'{"records":[{"value":"a","headers":[{"name":"a"}]}]}', 422, "/records/0/headers/0/value", "missing"),
        (b'{"records":[{"value":"a","headers":[{"value":"a"}]}]}', 422, "/records/0/headers/0/name", "missing"),
        (
            b'{"records":[{"value":"a","headers":[{"name":"a","name_base64":"AA==","value":"a"}]}]}',
            422,
            "/records/0/headers/0/name_base64",
            "invalid_value",
        ),
        (
            b'{"records":[{"value":"a","headers":[{"name":"a","value":"a","value_base64":"AA=="}]}]}',
            422,
            "/records/0/headers/0/value_base64",
            "invalid_value",
        ),
        (b'{"records":[{"value":"a","timestamp":-2}]}', 422, "/records/0/timestamp", "invalid_value"),
        (b'{"records":[{"value":"a","timestamp":1.0}]}', 422, "/records/0/timestamp", "invalid_type"),
        (b'{"records":[{"value":"a","timestamp":false}]}', 422, "/records/0/timestamp", "invalid_type"),
        (b'{"records":[{"value":"a","timestamp":9223372036854775808}]}', 422, "/records/0/timestamp", "invalid_value"),
        (b'{"records":[{"value":"a","timestamp":"now"}]}', 422, "/records/0/timestamp", "invalid_value"),
        (b'{"records":[{"value":"a","partition":-1}]}', 422, "/records/0/partition", "invalid_value"),
        (b'{"records":[{"value":"a","offset":-1}]}', 422, "/records/0/offset", "invalid_value"),
        (b'{"records":[{"value":"a","offset":1,"offset":1}]}', 422, "/records/0/offset", "duplicate_field"),
        (b'{"records":[{"value":"a","timestamp_type":"Now"}]}', 422, "/records/0/timestamp_type", "invalid_value"),
        (b'{"records":[{"value":"a","value":"b"}]}', 422, "/records/0/value", "duplicate_field"),
        (b'{"records":[{"value":"a","v\\u0061lue":"b"}]}', 422, "/records/0/value", "duplicate_field"),
        (b'{"records":[],"records":[]}', 422, "/records", "duplicate_field"),
        (b'{"records":{}}', 422, "/records", "invalid_type"),
        (b"{}", 422, "/records", "missing"),
        (b"[]", 422, "", "invalid_type"),
        (b'{"records":[{"value":"\\ud800 lone surrogate"}]}', 400, None, None),
        (b'{"records":[{"value":"\xff"}]}', 400, None, None),
        (b'{"records":[{"value":NaN}]}', 400, None, None),
        (b'{"records":[', 400, None, None),
    ],
)
def test_what_is_wrong_is_named_with_a_pointer(body: bytes, status: int, pointer: str | None, code: str | None) -> None:
    refused = refusal(body)
    assert refused.status == status
    assert refused.code == ("malformed_body" if status == 400 else "invalid_request")
    assert [(fault["pointer"], fault["code"]) for fault in refused.errors] == ([(pointer, code)] if code else [])


@pytest.mark.parametrize("value", ["key", '"key"', '"value":', "\\u0061", 'a","value":"b', "records", "timestamp"])
def test_names_inside_text_are_no_duplicates(value: str) -> None:
    parsed = parse({"value": value, "key": value, "headers": [{"name": value, "value": value}]})
    assert parsed.values == [value.encode()]


PIECES = st.sampled_from(['"', "\\", "\\\\", "a", "key", '"value":', "é", "\n", "base64"])
NAMED = st.sampled_from(
    ["value_base64", "key", "key_base64", "headers", "timestamp", "partition", "offset", "timestamp_type"]
)


def written(name: str, with_escapes: bool) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in name) if with_escapes else name


@given(
    st.lists(
        st.lists(st.tuples(NAMED, st.lists(PIECES, max_size=3).map("".join), st.booleans()), max_size=5), max_size=3
    ),
    st.sampled_from(["utf8", "base64"]),
)
def test_a_name_that_occurs_twice_is_found_whatever_the_texts_say(
    rows: list[list[tuple[str, str, bool]]], encoding: Encoding
) -> None:
    """Names with and without escapes, texts full of quotes, backslashes and names; ``json`` is the judge."""
    is_text = encoding == "utf8"
    value = "value" if is_text else "value_base64"
    content = {
        "headers": lambda text: [
            {"name": text, "value_base64": "AAE="},
            {"name_base64": "AAE=", value: text if is_text else ""},
        ],
        "timestamp": lambda _: 7,
        "partition": lambda _: None,
        "offset": lambda _: 1,
        "timestamp_type": lambda _: "CreateTime",
        "value": lambda text: text if is_text else None,
        "key": lambda text: text if is_text else None,
        # Beside a text it would be one too many.
        "value_base64": lambda _: None if is_text else "AA==",
        "key_base64": lambda _: None if is_text else "AA==",
    }

    def member(name: str, text: str, with_escapes: bool) -> str:
        return f'"{written(name, with_escapes)}":{json.dumps(content[name](text))}'

    lines = ["{" + ",".join(member(*field) for field in [*row, ("value", "end", False)]) + "}" for row in rows]
    repeats = [len({name for name, *_ in row} | {"value"}) != len(row) + 1 for row in rows]
    body = '{"records":[' + ",".join(lines) + "]}"
    assert parses(lambda: parse_record_list(body.encode(), encoding, now_ms=NOW_MS)) != any(repeats)
    block = "".join(f"{line}\n" for line in lines).encode()
    assert parses(lambda: parse_record_lines(block, encoding, now_ms=NOW_MS)) != any(repeats)


def test_base64_encoding_takes_base64_alone() -> None:
    header = {"name": "h", "value_base64": "AA=="}
    parsed = parse(
        {"value_base64": "AAE=", "key_base64": "/w==", "headers": [header]}, {"value": None}, encoding="base64"
    )
    assert (parsed.values, parsed.keys) == ([b"\x00\x01", None], [b"\xff", None])
    assert parsed.headers == [[("h", b"\x00")], ()]
    parsed = parse({"value_base64": "AAE="}, {"value_base64": ""}, encoding="base64")
    assert (parsed.values, parsed.keys) == ([b"\x00\x01", b""], [None, None])
    for record, pointer in [
        ('{"value":"AAE="}', "/records/0/value"),
        ('{"value":{"base64":"AA=="}}', "/records/0/value"),
        ('{"value_base64":"text!"}', "/records/0/value_base64"),
        ('{"key":"AAE=","value_base64":""}', "/records/0/key"),
        ('{"value":null,"headers":[{"name":"h","value":"AAE="}]}', "/records/0/headers/0/value"),
        ("{}", "/records/0/value_base64"),
    ]:
        fault = refusal(b'{"records":[%s]}' % record.encode(), "base64").errors[0]
        assert fault["pointer"] == pointer
        assert "base64" in fault["detail"]


def test_json_encoding_stores_the_text_of_any_json() -> None:
    body = b"""{"records":[{"value":{"a": [1, 2.50]},"key":7},{"value":null},{"value":"x"},{"value_base64":"AAE="},
        {"value":{"base64":"AAE="},"key":{"base64":"?"}},{"value_base64":"bnVsbA==","value":null}]}"""
    parsed = parse_record_list(body, "json", now_ms=NOW_MS)
    assert parsed.values == [b'{"a": [1, 2.50]}', None, b'"x"', b"\x00\x01", b'{"base64":"AAE="}', b"null"]
    assert parsed.keys == [b"7", None, None, None, b'{"base64":"?"}', None]
    assert refusal(b'{"records":[{"value_base64":"A"}]}', "json").errors[0]["pointer"] == "/records/0/value_base64"
    both = refusal(b'{"records":[{"value":{},"value_base64":"AA=="}]}', "json").errors[0]
    assert (both["pointer"], both["detail"]) == ("/records/0/value_base64", "give value or value_base64, not both")
    assert refusal(b'{"records":[{"key":1}]}', "json").errors[0]["pointer"] == "/records/0/value"
    assert refusal(b'{"records":[{"value":{"a":1,"a":2}}]}', "json").errors[0]["code"] == "duplicate_field"
    assert refusal(b'{"records":[{"value":[1e999]}]}', "json").status == 422


def test_records_for_another_partition_than_the_requests_are_named() -> None:
    parsed = parse({"value": "a", "partition": 3}, {"value": "b"}, {"value": "c", "partition": 4})
    with pytest.raises(Problem) as refused:
        parsed.check_partition(3)
    assert refused.value.status == 422
    assert [fault["pointer"] for fault in refused.value.errors] == ["/records/2/partition"]
    lines = b'{"value":"a","partition":3}\n' * 2
    with pytest.raises(Problem) as refused:
        parse_record_lines(lines, "utf8", now_ms=NOW_MS, first_line=7).check_partition(0)
    assert [fault["pointer"] for fault in refused.value.errors] == ["/7/partition", "/8/partition"]
    parse({"value": "a"}, {"value": "b", "partition": None}).check_partition(0)


def test_lines_are_records_and_faults_point_at_their_line() -> None:
    parsed = parse_record_lines(b'{"value":"a"}\n\n  \r\n{"value":"b","partition":1}', "utf8", now_ms=NOW_MS)
    assert (parsed.values, parsed.partitions) == ([b"a", b"b"], [None, 1])
    for block, pointer in [
        (b'{"value":"a"}\n{"value":1}\n', "/11/value"),
        (b'{"value":"a"}\n{"value":"a","value":"b"}\n', "/11/value"),
        (b'{"value":"a","timestamp":"x"}\n', "/10/timestamp"),
        (b"[]\n", "/10"),
    ]:
        with pytest.raises(Problem) as refused:
            parse_record_lines(block, "utf8", now_ms=NOW_MS, first_line=10)
        assert [fault["pointer"] for fault in refused.value.errors] == [pointer]
    for block in (
        b'{"value":\n"a"}\n',
        b'{"value":"a"} {"value":"b"}\n',
        b'{"value":"a"}x\n',
        b'{"value":"a"\n',
        b"\xff\n",
    ):
        for encoding in ("utf8", "json"):
            with pytest.raises(Problem) as refused:
                parse_record_lines(block, encoding, now_ms=NOW_MS)  # type: ignore[arg-type]
            assert refused.value.status == 400


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TEXTS = st.sampled_from(
    ["", "a", "AAE=", "AA", "AAAA====", "\u00e9", "base64", "2013-07-04T00:00:00Z", "2013-07-04T00:00:00"]
)
FIELDS: dict[str, Any] = {
    "value": TEXTS | st.none() | st.fixed_dictionaries({"base64": TEXTS}) | JSON_VALUES,
    "key": TEXTS | st.none() | st.fixed_dictionaries({"base64": TEXTS}) | JSON_VALUES,
    "value_base64": TEXTS | st.none() | JSON_VALUES,
    "key_base64": TEXTS | st.none() | JSON_VALUES,
    "headers": st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "name": TEXTS | JSON_VALUES,
                "value": TEXTS | st.none() | JSON_VALUES,
                "name_base64": TEXTS | st.none(),
                "value_base64": TEXTS | st.none(),
            },
        ),
        max_size=2,
    )
    | JSON_VALUES,
    "timestamp": st.integers(-2, 2**63) | TEXTS | JSON_VALUES,
    "partition": st.integers(-1, 2**31) | JSON_VALUES,
    "offset": st.integers(-1, 2**63) | JSON_VALUES,
    "timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime", "createtime"]) | JSON_VALUES,
    "surprise": JSON_VALUES,
}
DOCUMENTS = st.fixed_dictionaries(
    {"records": st.lists(st.fixed_dictionaries({}, optional=FIELDS), max_size=2)}, optional={"more": JSON_VALUES}
)


def accepts(model: type[BaseModel], body: bytes) -> bool:
    try:
        model.model_validate_json(body)
    except ValidationError:
        return False
    return True


def parses(call: Any) -> bool:
    try:
        call()
    except Problem:
        return False
    return True


ONE, OTHER = b'{"value":"a"}', b'{"value":"b","key":"k"}'


@pytest.mark.parametrize("encoding", ["utf8", "json"])
@pytest.mark.parametrize(
    ("block", "is_lines"),
    [
        (ONE + b"\r\n\n \t\n" + OTHER, True),
        (b'{"value":\r"a"}\n', True),
        (ONE + OTHER + b"\n\n", False),
        (b'{"value":\n"a"}\n', False),
        (b'{"value":\n"a"}' + OTHER + b"\n", False),
        (ONE + b"\r" + OTHER + b"\n", False),
        (ONE + b"\n\x0b\n" + OTHER + b"\n", False),
        (ONE + b"\n]\n" + OTHER + b"\n", False),
    ],
)
def test_a_record_is_a_line_wherever_a_stream_is_cut(block: bytes, is_lines: bool, encoding: Encoding) -> None:
    def read(*pieces: bytes) -> list[bytes | None] | None:
        try:
            return [value for piece in pieces for value in parse_record_lines(piece, encoding, now_ms=NOW_MS).values]
        except Problem:
            return None

    whole = read(block)
    assert (whole is not None) == is_lines
    cuts = [place + 1 for place, byte in enumerate(block) if byte == ord("\n")]
    for cut in cuts:
        assert read(block[:cut], block[cut:]) == whole


def is_of_encoding(record: dict[str, Any], encoding: Encoding) -> bool:
    """What the models say in words alone: which kinds of ``key`` and ``value`` an encoding takes."""
    if encoding == "json":
        return True
    kinds = (str, type(None)) if encoding == "utf8" else (type(None),)
    values = [header.get("value") for header in record.get("headers", ())]
    contents = [record.get("key"), record.get("value")]
    return all(isinstance(content, kinds) for content in (contents if encoding == "utf8" else contents + values))


@given(DOCUMENTS, st.booleans(), st.sampled_from(["utf8", "base64", "json"]))
def test_coders_and_models_accept_and_refuse_the_same(
    document: dict[str, Any], routed: bool, encoding: Encoding
) -> None:
    body = json.dumps(document).encode()
    model = RoutedRecordList if routed else RecordList
    read = parses(lambda: parse_record_list(body, encoding, now_ms=NOW_MS))
    of_encoding = accepts(model, body) and all(is_of_encoding(record, encoding) for record in document["records"])
    assert read == of_encoding
    line_model = RoutedRecord if routed else ProducedRecord
    for record in document["records"]:
        line = json.dumps(record).encode() + b"\n"
        read = parses(lambda line=line: parse_record_lines(line, encoding, now_ms=NOW_MS))
        assert read == (accepts(line_model, line) and is_of_encoding(record, encoding))


@given(st.fixed_dictionaries({"value": JSON_VALUES}, optional={"key": JSON_VALUES, "timestamp": JSON_VALUES}))
def test_coders_and_models_agree_about_json_values(record: dict[str, Any]) -> None:
    line = json.dumps(record).encode() + b"\n"
    read = parses(lambda: parse_record_lines(line, "json", now_ms=NOW_MS))
    assert read == accepts(RoutedRecord, line)
    body = b'{"records":[%s]}' % line
    read = parses(lambda: parse_record_list(body, "json", now_ms=NOW_MS))
    assert read == accepts(RecordList, body)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b'{"a" : [1, 1.10e+05, -0],\t"\\u00e9\\/": "\\/"}', None),
        (b'{"a":1,"a":2}', None),
        (b" 1 ", None),
        (b'{"a" : 1.10,\n "b\\n" : -0}\n', b'{"a":1.10,"b\\n":-0}'),
        (b'\r\n"x y"\r\n', b'"x y"'),
    ],
)
def test_json_is_shown_as_it_is_stored_but_for_line_breaks(stored: bytes, shown: bytes | None) -> None:
    column = BinaryColumn.from_list([stored])
    columns = RecordColumns(np.arange(1), np.arange(1), column, column)
    (document,) = record_documents(columns, encoding="json", timestamp_type="CreateTime", partition=0)
    assert (bytes(document.key), bytes(document.value)) == (shown or stored,) * 2
    line = encode_document(document) + b"\n"
    if stored == b'{"a":1,"a":2}':
        assert not parses(lambda: parse_record_lines(line, "json", now_ms=NOW_MS))
    else:
        assert parse_record_lines(line, "json", now_ms=NOW_MS).values == [(shown or stored).strip()]


def nested(depth: int) -> tuple[bytes, bytes]:
    """A list and an object of this depth, with a line break inside."""
    return b"[" * depth + b"\n" + b"]" * depth, b'{"a":' * depth + b"1\n" + b"}" * depth


def is_shown(data: bytes) -> bool:
    """Whether a stored value is shown as JSON. Otherwise it must be shown whole in base64."""
    column = BinaryColumn.from_list([data])
    columns = RecordColumns(np.arange(1), np.arange(1), column, column)
    (document,) = record_documents(columns, encoding="json", timestamp_type="CreateTime", partition=0)
    if document.value_base64 is UNSET:
        assert bytes(document.value) == data.replace(b"\n", b"")
        return True
    assert document.value_base64 == data
    return False


def test_json_that_is_nested_as_deeply_as_can_be_is_shown_or_base64() -> None:
    """Whichever of the steps to an answer gives up first. How deep they go depends on the version of Python."""
    shown, not_shown = 500, 200_000
    while not_shown - shown > 1:
        middle = (shown + not_shown) // 2
        if is_shown(nested(middle)[0]):
            shown = middle
        else:
            not_shown = middle
    around = {is_shown(data) for depth in range(shown - 50, shown + 50) for data in nested(depth)}
    assert around == {True, False}


BYTES = (
    st.binary(max_size=20)
    | st.text(max_size=10).map(str.encode)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
)


def bytes_or_none(data: bytes | None) -> bytes | None:
    return data


def meaning(data: bytes | None) -> object:
    """JSON for what it says, as ``json.loads`` between the two ways does not keep its spelling."""
    try:
        return data if data is None else ("json", json.loads(data))
    except ValueError:
        return data


@given(
    st.lists(st.tuples(st.none() | BYTES, st.none() | BYTES, st.integers(-1, 2**60)), max_size=5),
    st.sampled_from(["utf8", "base64", "json"]),
)
def test_what_comes_out_goes_in_again_unchanged(
    rows: list[tuple[bytes | None, bytes | None, int]], encoding: Encoding
) -> None:
    """Every stored byte string survives the way through JSON and back, in every encoding."""

    def encoded(content: bytes | None) -> str | None:
        return None if content is None else base64.b64encode(content).decode()

    records = [
        {
            "key_base64": encoded(key),
            "value_base64": encoded(value),
            "headers": [{"name": "h", "value_base64": encoded(value)}],
            "timestamp": timestamp,
        }
        for key, value, timestamp in rows
    ]
    columns = parse(*records).columns()
    documents = record_documents(columns, encoding=encoding, timestamp_type="CreateTime", partition=0)
    shown = json.loads(encode_document(documents))
    again = parse_record_list(encode_document({"records": shown}), encoding, now_ms=NOW_MS)
    again.check_partition(0)
    same = meaning if encoding == "json" else bytes_or_none
    assert list(map(same, again.keys)) == [same(key) for key, _, _ in rows]
    assert list(map(same, again.values)) == [same(value) for _, value, _ in rows]
    assert again.timestamps == [timestamp for _, _, timestamp in rows]
    assert again.headers == ([[("h", value)] for _, value, _ in rows] or None)
    pairs = [("key", "key_base64"), ("value", "value_base64")]
    for record, row in zip(shown, rows, strict=True):
        assert all((plain in record) != (other in record) for plain, other in pairs)
        assert "value" not in record if encoding == "base64" else (record.get("value", "") is None) == (row[1] is None)
        assert ("value" in record["headers"][0]) != ("value_base64" in record["headers"][0])
    assert len(encode_document(documents).split(b"\n")) == 1
