"""Lines as records without Spark: CSV after RFC 4180 is what Python's csv module makes of it, JSON what json does."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollway.spark.jobs.files.raw_records import (
    CsvDialect,
    NoRecordError,
    csv_records,
    json_column,
    json_fields,
    json_of_fields,
    lines_without_ends,
)

TEXT = st.text(st.sampled_from('ab",;\r\n \t\\\u00e9\u2028'), max_size=8)
ROWS = st.lists(st.lists(TEXT, min_size=2, max_size=4), min_size=1, max_size=6)


def pieces_of(text: str) -> list[bytes]:
    return text.encode().removesuffix(b"\n").split(b"\n")


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([",", ";", "||"]))
def test_csv_that_python_writes_is_read_as_python_reads_it(rows: list[list[str]], end: str, separator: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator[0], quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    written = text.getvalue() if len(separator) == 1 else ""
    if not written:
        written = end.join(separator.join(f'"{f.replace(chr(34), chr(34) * 2)}"' for f in row) for row in rows) + end
    dialect = CsvDialect(separator=separator)
    found = [dialect.fields(record.decode()) for record in csv_records(pieces_of(written), dialect)]
    assert found == rows


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("a,b", ["a", "b"]),
        (',"",', [None, "", None]),
        ('5" nails,x"y"z', ['5" nails', 'x"y"z']),
        ('"a""b","c,d"', ['a"b', "c,d"]),
        ('"a\\""b"', ['a\\"b']),
        (" a , b ", [" a ", " b "]),
    ],
)
def test_fields(record: str, expected: list[str | None]) -> None:
    assert CsvDialect().fields(record) == expected
    assert not CsvDialect().ends_open(record, is_open=False)


@pytest.mark.parametrize("record", ['"a"b', '"a" ', '"abc', 'x,"abc'])
def test_fields_that_are_none(record: str) -> None:
    with pytest.raises(NoRecordError):
        CsvDialect().fields(record)
    assert CsvDialect().ends_open(record, is_open=False) == ("abc" in record)
    assert CsvDialect(quote="").fields(record) == record.split(",")


@pytest.mark.parametrize(
    ("line", "is_open"),
    [("b", True), ('b"', False), ('b"",c', True), ('b","c', True), ('b"x,"c"', False), ('""",d', False), ("", True)],
)
def test_fields_that_go_on(line: str, is_open: bool) -> None:
    assert CsvDialect().ends_open(line, is_open=True) == is_open


def test_blank_lines_and_carriage_returns_of_csv() -> None:
    pieces = [b"a,b\r", b"", b"  ", b'1,"x\r', b'y"\r', b"2,z\r3,w"]
    assert list(csv_records(pieces, CsvDialect())) == [b"a,b", b'1,"x\r\ny"', b"2,z", b"3,w"]
    assert list(csv_records([b'"a', b"b"], CsvDialect())) == [b'"a\nb']
    assert list(lines_without_ends([b"a\r", b"", b"b\rc"])) == [b"a", b"", b"b", b"c"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4), st.sampled_from(["", " ", "\t\r\n"]))
def test_fields_of_json_stand_as_they_are(document: dict[str, Any], space: str) -> None:
    text = space + json.dumps(document, separators=(f"{space},{space}", f"{space}:{space}")) + space
    fields = json_fields(text)
    assert {name: json.loads(raw) for name, raw in fields.items()} == document
    assert all(raw in text for raw in fields.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "5",
        "null",
        "{",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        "{,}",
        '{"a":1} x',
        '{"a":1}{}',
        '{"a":01}',
        "{'a':1}",
    ],
)
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(NoRecordError):
        json_fields(text)


def test_numbers_and_names_of_json_are_kept() -> None:
    assert json_fields('{"p":1.10,"b":12345678901234567890.123,"a":{},"a":{ "x" : 1e400 }}') == {
        "p": "1.10",
        "b": "12345678901234567890.123",
        "a": '{ "x" : 1e400 }',
    }
    assert [json_column(each, "text") for each in ('"\\u0041"', "1.10", "null", None, '"\\ud800"')] == [
        "A",
        "1.10",
        None,
        None,
        "?",
    ]
    for raw, kind in [("1.5", "whole"), ('"1"', "whole"), ("1", "boolean"), ("1", "time")]:
        with pytest.raises(NoRecordError):
            json_column(raw, kind)


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2))
def test_rows_of_csv_are_written_as_json(fields: list[str | None]) -> None:
    written = json_of_fields(["a`b", "c"], fields)
    expected = dict(zip(["a`b", "c"], fields, strict=True))
    assert json.loads(written) == {name: text for name, text in expected.items() if text is not None}
    assert json_of_fields(["a"], ["\\u001f\x1f\x0b\n/\u2028"]) == '{"a":"\\\\u001f\\u001F\\u000B\\n/\u2028"}'
