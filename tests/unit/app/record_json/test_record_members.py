"""Two members for one content: whatever a request says in them, it means what ``json`` and ``base64`` make of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.problems.problem import Problem
from app.record_json.translate import Encoding, ParsedRecords, parse_record_lines, parse_record_list

NOW_MS = 1_700_000_000_000
Members = list[tuple[str, str]]
"""The members of an object in their order: names as they are meant, and values as they are written."""

# Each as it is written, and what it means; the last ones mean nothing.
TEXTS = [
    '""',
    '"a"',
    '"null"',
    '"AAE="',
    '"\\u0000"',
    '"gr\\u00fc\\u00dfe"',
    '"\\ud83d\\ude00"',
    '"a\\"b\\\\c\\n"',
    '"\u2028"',
]
JSONS = ["1", "-0", "1.10", "true", "{}", "[ 1, null ]", '{"base64": "AAE="}', '{"value":"a","value_base64":"?"}']
ENCODED = ['""', '"AAE="', '"/w=="', '"AA\\u003d\\u003D"', '"\\/w=="', '"AB=="', '"bnVsbA=="']
NOT_ENCODED = [
    *('"AA"', '"AAE"', '"A==="', '"===="', '"AAAA===="', '"AA==AA=="', '"A\\nA="', '"A A="', '" AAE="', '"AAE=\\n"'),
    *('"_-8="', '"\\u00e9AE="', '"AA\\u0000="', '"\\ud83d\\ude00"', "1", "true", "{}", '["AAE="]', '{"base64":"AAE="}'),
]
BROKEN = ['"\\ud800"', '"\\udc00\\ud800"', '"a\nb"', '"\\x"', "nul", "NaN", "'a'", "1e999"]

plain = st.sampled_from([*TEXTS * 3, *JSONS, *["null"] * 6, *BROKEN[:2]])
encoded = st.sampled_from([*ENCODED * 6, *["null"] * 6, *NOT_ENCODED, *BROKEN[:1]])


def some(strategies: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[Members]:
    """Any members in any order, each there or not, and rarely one twice."""
    once = st.fixed_dictionaries({}, optional=strategies).flatmap(lambda chosen: st.permutations(list(chosen.items())))
    names = st.sampled_from(list(strategies))
    again = st.lists(names.flatmap(lambda name: st.tuples(st.just(name), strategies[name])), max_size=1)
    return st.tuples(once, st.booleans(), again).map(lambda drawn: [*drawn[0], *(drawn[2] if drawn[1] else [])])


def written(members: Members) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


HEADERS = some({"name": plain, "name_base64": encoded, "value": plain, "value_base64": encoded})
# Most records of a list are alike, and have what is needed.
SOUND = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: [("value", text)]),
    st.sampled_from(ENCODED).map(lambda text: [("value_base64", text)]),
    st.tuples(st.sampled_from(TEXTS), st.sampled_from(ENCODED)).map(
        lambda two: [("value", two[0]), ("key_base64", two[1])]
    ),
    st.just([("value", "null"), ("value_base64", '"AAE="')]),
)
RECORDS = st.lists(
    SOUND
    | some(
        {
            "key": plain,
            "key_base64": encoded,
            "value": plain,
            "value_base64": encoded,
            "headers": st.lists(HEADERS.map(written), max_size=2).map(lambda each: f"[{','.join(each)}]"),
        }
    ),
    max_size=4,
)


class RefusedError(Exception):
    """What the judge does not take."""


class Judge:
    """What records mean, by the rules of the reference and nothing of the service's code."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def rows(self, records: list[Members]) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        return [self._row(dict(unique(record))) for record in records]

    def _row(self, record: dict[str, str]) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        content = self._json if self._encoding == "json" else self._text
        headers = [self._header(dict(header)) for header in pairs_of(record.get("headers", "[]"))]
        return (
            self._pair(record, "key", content, is_needed=False),
            self._pair(record, "value", content, is_needed=True),
            headers,
        )

    def _header(self, header: dict[str, str]) -> tuple[str, bytes | None]:
        name = self._pair(header, "name", plain_text, is_needed=True)
        if name is None:
            raise RefusedError
        return name.decode("utf-8", "surrogateescape"), self._pair(header, "value", self._text, is_needed=True)

    def _pair(
        self, holder: dict[str, str], name: str, content: Callable[[str], bytes | None], *, is_needed: bool
    ) -> bytes | None:
        found = [content(holder[name])] if name in holder else []
        other = f"{name}_base64"
        found += [decoded(holder[other])] if other in holder else []
        said = [each for each in found if each is not None]
        if len(said) == 2 or (is_needed and not found):
            raise RefusedError
        return said[0] if said else None

    def _text(self, value: str) -> bytes | None:
        if value != "null" and self._encoding == "base64":
            raise RefusedError
        return plain_text(value)

    def _json(self, value: str) -> bytes | None:
        return None if value == "null" else value.encode()


def pairs_of(headers: str) -> list[Members]:
    """Each header with values as they are written: JSON written again by Python, which says the same here."""
    decoder = json.JSONDecoder(
        object_pairs_hook=lambda pairs: unique([(name, json.dumps(each)) for name, each in pairs])
    )
    return [header for header in decoder.decode(headers) if isinstance(header, list)]


def unique(members: Members) -> Members:
    if len({name for name, _ in members}) < len(members):
        raise RefusedError
    return members


def plain_text(value: str) -> bytes | None:
    read = json.loads(value)
    if read is None:
        return None
    if not isinstance(read, str):
        raise RefusedError
    try:
        return read.encode()
    except UnicodeEncodeError:
        raise RefusedError from None


def decoded(value: str) -> bytes | None:
    read = json.loads(value)
    if read is None:
        return None
    # Python takes more padding than there is to be.
    if not isinstance(read, str) or len(read) % 4 or not read.isascii() or "===" in read:
        raise RefusedError
    try:
        return base64.b64decode(read, validate=True)
    except ValueError:
        raise RefusedError from None


def judged(records: list[Members], encoding: Encoding) -> Any:
    if any(broken in written(record) for record in records for broken in BROKEN[:2]):
        return None
    try:
        return Judge(encoding).rows(records)
    except RefusedError:
        return None


def parsed(call: Callable[[], ParsedRecords]) -> Any:
    """As ``judged``, of what the service makes of a body; a refusal is one of the client's faults."""
    try:
        found = call()
    except Problem as problem:
        return None if problem.status in (400, 422) else problem
    headers = [list(row) for row in found.headers or [()] * len(found)]
    return list(zip(found.keys, found.values, headers, strict=True))


@settings(max_examples=500)
@example([[("value", "null"), ("value_base64", "null")], [("value", '"a"')]], "utf8")
@example([[("value_base64", '"AAE="')], [("key_base64", "null"), ("value", "null")]], "base64")
@example([[("key", '"a"'), ("value", '"a"')], [("value_base64", '"AAE="')], [("key", "null")]], "utf8")
@given(RECORDS, st.sampled_from(get_args(Encoding)))
def test_a_pair_means_what_it_says(records: list[Members], encoding: Encoding) -> None:
    expected = judged(records, encoding)
    texts = [written(record) for record in records]
    body = '{"records":[' + ",".join(texts) + "]}"
    assert parsed(lambda: parse_record_list(body.encode(), encoding, now_ms=NOW_MS)) == expected
    block = "".join(f"{text}\n" for text in texts).encode()
    assert parsed(lambda: parse_record_lines(block, encoding, now_ms=NOW_MS)) == expected


@pytest.mark.parametrize("text", NOT_ENCODED)
@pytest.mark.parametrize("name", ["key_base64", "value_base64"])
def test_what_is_no_base64_is_named(text: str, name: str) -> None:
    more = "" if name == "value_base64" else ',"value_base64":""'
    body = f'{{"records":[{{"{name}":{text}{more}}}]}}'.encode()
    for encoding in get_args(Encoding):
        with pytest.raises(Problem) as refused:
            parse_record_list(body, encoding, now_ms=NOW_MS)
        (fault,) = refused.value.errors
        assert (refused.value.status, fault["pointer"]) == (422, f"/records/0/{name}")
        assert fault["detail"].startswith(
            "must be base64" if text.startswith('"') else "must be a string of base64 or null, not"
        )


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("name", ["key", "value", "value_base64"])
def test_what_is_no_json_is_refused(text: str, name: str) -> None:
    for encoding in get_args(Encoding):
        body = f'{{"records":[{{"{name}":{text}}}]}}'.encode()
        with pytest.raises(Problem) as refused:
            parse_record_list(body, encoding, now_ms=NOW_MS)
        assert refused.value.status in (400, 422)
