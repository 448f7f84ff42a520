"""Media types asked for and sent (RFC 9110, 12.5.1 and 8.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from app.http.negotiation import accept, content_type
from app.problems.problem import Problem

JSON = "application/json"
NDJSON = "application/x-ndjson"
BATCH = "application/vnd.kafka.record-batch.v2"
OFFERED = [JSON, NDJSON, BATCH]


def make_request(name: str, *values: str) -> Request:
    headers = [(name.encode(), value.encode("latin-1", "replace")) for value in values]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        (NDJSON, NDJSON),
        (f"{NDJSON}, {JSON}", JSON),
        (f"{NDJSON}, {JSON};q=0.9", NDJSON),
        (f"{JSON};q=0.1, */*", NDJSON),
        (f"{JSON};q=0, */*;q=0.1", NDJSON),
        (f"application/*;q=0.2, {BATCH};q=0.3, {JSON};q=0.1", BATCH),
        ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
        ("APPLICATION/JSON", JSON),
        (f"{BATCH} ; q=1.000", BATCH),
        (f"{BATCH};q=2, {NDJSON};q=0.1", NDJSON),
        (f"nonsense, ;, {NDJSON}", NDJSON),
        ("application/json;charset=utf-8", JSON),
    ],
)
def test_the_most_liked_type_is_chosen(header: str, chosen: str) -> None:
    assert accept(make_request("accept", header), OFFERED) == chosen


def test_several_headers_are_one() -> None:
    assert accept(make_request("accept", f"{JSON};q=0.1", BATCH), OFFERED) == BATCH
    assert accept(make_request("other"), OFFERED) == JSON


@pytest.mark.parametrize("header", ["application/problem+json", "application/problem+json;q=0.5"])
def test_a_form_of_errors_says_nothing_of_answers(header: str) -> None:
    """Clients made by openapi-generator send it alone where answers are bytes."""
    assert accept(make_request("accept", header), [BATCH, NDJSON]) == BATCH
    with pytest.raises(Problem):
        accept(make_request("accept", f"{header}, text/plain"), [BATCH, NDJSON])


@pytest.mark.parametrize("header", ["text/plain", f"{JSON};q=0", "*/*;q=0", "text/*", "*/json", "nonsense", ";q=1"])
def test_nothing_that_is_liked_is_406(header: str) -> None:
    with pytest.raises(Problem) as caught:
        accept(make_request("accept", header), OFFERED)
    assert (caught.value.status, caught.value.extra["offered"]) == (406, OFFERED)


@given(st.text(max_size=80))
def test_no_header_does_anything_else(header: str) -> None:
    outcomes: list[str | int] = []
    for name, read in (("accept", accept), ("content-type", content_type)):
        try:
            outcomes.append(read(make_request(name, header), OFFERED))
        except Problem as problem:
            outcomes.append(problem.status)
    assert outcomes[0] in (*OFFERED, 406)
    assert outcomes[1] in (*OFFERED, 415)


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        (JSON, JSON),
        ("Application/JSON; charset=UTF-8", JSON),
        ('application/json;charset="utf-8"', JSON),
        (f"{BATCH}; anything=else", BATCH),
    ],
)
def test_a_known_body_is_taken(header: str, media_type: str) -> None:
    assert content_type(make_request("content-type", header), OFFERED) == media_type


def test_a_body_without_a_type_may_have_one() -> None:
    assert content_type(make_request("other"), OFFERED, absent=BATCH) == BATCH
    assert content_type(make_request("content-type", JSON), OFFERED, absent=BATCH) == JSON
    for headers in ([""], ["text/plain"], [JSON, JSON]):
        with pytest.raises(Problem):
            content_type(make_request("content-type", *headers), OFFERED, absent=BATCH)


@pytest.mark.parametrize(
    "headers", [[], [""], ["text/plain"], [JSON, JSON], [f"{JSON}; charset=latin-1"], [f"{JSON},"]]
)
def test_any_other_body_is_415(headers: list[str]) -> None:
    with pytest.raises(Problem) as caught:
        content_type(make_request("content-type", *headers), OFFERED)
    assert caught.value.status == 415
    assert caught.value.headers["Accept"] == ", ".join(OFFERED)
