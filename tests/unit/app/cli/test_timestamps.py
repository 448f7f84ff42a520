"""``app.cli.timestamps``: milliseconds or RFC 3339 in, milliseconds out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.timestamps import TIMESTAMP_MAX, format_timestamp, parse_timestamp


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        (0, 0),
        ("0", 0),
        (1372910400000, 1372910400000),
        ("1372910400000", 1372910400000),
        ("2013-07-04T00:00:00-04:00", 1372910400000),
        ("2013-07-04T04:00:00Z", 1372910400000),
        ("2013-07-04t04:00:00z", 1372910400000),
        ("2013-07-04 04:00:00.5+00:00", 1372910400500),
        ("2013-07-04T04:00:00.123999Z", 1372910400123),
        ("1970-01-01T00:00:00Z", 0),
        (TIMESTAMP_MAX, TIMESTAMP_MAX),
    ],
)
def test_both_forms_are_read(text: object, milliseconds: int) -> None:
    assert parse_timestamp(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2013-07-04", "2013-07-04T00:00:00", "2013-13-04T00:00:00Z", "2013-07-04T25:00:00Z",
        "1969-12-31T23:59:59Z", "-1", "1.5", "1e3",
        "\uff19", -1, TIMESTAMP_MAX + 1, "9" * 19, "9" * 40, 1.5, True, None, [], {},
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        parse_timestamp(text)


@given(st.integers(0, 253_402_300_799_999))
def test_what_is_written_reads_back(milliseconds: int) -> None:
    assert parse_timestamp(format_timestamp(milliseconds)) == milliseconds


def test_times_beyond_the_calendar_and_no_time() -> None:
    assert format_timestamp(TIMESTAMP_MAX) == str(TIMESTAMP_MAX)
    assert format_timestamp(None) == format_timestamp(-1) == "-"
