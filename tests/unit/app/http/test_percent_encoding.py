"""Which parts of a target are not UTF-8."""

from __future__ import annotations

import pytest

from app.http.percent_encoding import wrong_bytes_of_path, wrong_bytes_of_query

TEMPLATE = "/v1/groups/{group_id}/start-positions"


@pytest.mark.parametrize(
    ("raw_path", "expected"),
    [
        (b"/v1/groups/a/start-positions", []),
        (b"/v1/groups/%C3%A9%25FF/start-positions", []),
        (b"/v1/groups/%zz%/start-positions", []),
        (b"/v1/groups/a%FF/start-positions", [("group_id", 0xFF)]),
        (b"/v1/groups/%C3/start-positions", [("group_id", 0xC3)]),
        (b"/prefix/v1/groups/a%FF/start-positions", [("group_id", 0xFF)]),
        ("/v1/groups/é/start-positions".encode(), [("group_id", 0xC3)]),
        (b"/v1/groups%FF/a/start-positions", []),
        (b"", []),
    ],
)
def test_paths(raw_path: bytes, expected: list[tuple[str, int]]) -> None:
    assert wrong_bytes_of_path(TEMPLATE, raw_path) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", []),
        (b"a=%C3%A9&b=%EF%BF%BD", []),
        (b"a=%C3&b=%A9", [("a", 0xC3), ("b", 0xA9)]),
        (b"%FF", [("%FF", 0xFF)]),
        (b"a=\xff", [("a", 0xFF)]),
        (b"\xff=a", [("\\xff", 0xFF)]),
        (b"%ED%A0%80=1", [("%ED%A0%80", 0xED)]),
    ],
)
def test_queries(query: bytes, expected: list[tuple[str, int]]) -> None:
    assert wrong_bytes_of_query(query) == expected
