"""Drawn requests for records in all their forms: the fast path and the application answer and store the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.test_fast_path_agrees import Case, Pair, batch_of, comparable, connect, running_pair
from tests.support.edge_server import Answer
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it looks into the data directory")

DRAWN_COUNT = 1000
JSON, LINES = "application/json", "application/x-ndjson"
RAW, OCTETS, PROBLEM = "application/vnd.kafka.record-batch.v2", "application/octet-stream", "application/problem+json"
TOPICS = ("t", "group", "stamped", "small", "zipped")

CONTENTS = [
    *('""', '"a"', '"null"', '"AAE="', '"\\u0000\\u001f"', '"\\ud83d\\ude00"', '"\u00e9\u2028"', "null", "null"),
    *("1", "-0", "1.10", "true", "[ 1, null ]", '{"base64":"AAE="}', '{"a":1,"a":2}', '{\n"a":\r\n1}', '"\\ud800"'),
]
ENCODED = [
    *('""', '"AAE="', '"/w=="', '"AA\\u003d="', '"bnVsbA=="', "null", "null", '"7aCA"', '"eyJhIiA6CjF9Cg=="'),
    *('"AA"', '"_-8="', '"AA\\n=="', '"A A="', '"AAAA===="', "1", "{}"),
]
LARGE = f'"{"x" * 20_000}"'
USER_AGENTS = ("rollway", "Rollway", "rollway/0.1.0", "rollway ", "\trollway", "rollways", "curl/8", "rollway, x")
ACCEPTS = (JSON, LINES, RAW, OCTETS, PROBLEM, f"{OCTETS},{PROBLEM}", "*/*", "text/html", f"{LINES};q=0.1, {RAW};q=0")
ODD_HEADERS = (
    *('If-None-Match: "x"', "Range: bytes=0-3", "Accept-Encoding: gzip", "Accept-Encoding: identity"),
    *(
        "Idempotency-Key: k1",
        'Idempotency-Key: "k2"',
        "Producer-Id: 1",
        "Transactional-Id: x",
        "Content-Encoding: gzip",
    ),
    *("Client-Id: rollway", "X-Any: thing", "Expect: 100-continue"),
)


class Draw:
    """Requests of one seed, always the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _is(self, share: float) -> bool:
        return self._random.random() < share

    def request(self) -> tuple[bytes, bool]:
        """The bytes of a request, and whether it is a HEAD."""
        method = self._random.choice(("POST", "POST", "POST", "GET", "GET", "GET", "HEAD"))
        place = self._random.choice(("records", "records", "record-lines", "record-batches"))
        topic = self._random.choice(TOPICS)
        path = f"/v1/topics/{topic}/partitions/0/{place}"
        if place != "record-batches" and method == "POST" and self._is(0.2):
            path = f"/v1/topics/{topic}/{place}"
        elif method != "POST" and place == "records" and self._is(0.2):
            path += f"/{self._random.randrange(9)}"
        elif method == "POST" and self._is(0.1):
            path, place = "/v1/produce", "parts"
        fields, body = ["Host: a"], b""
        if method == "POST":
            media_type, body = self._body(place, topic)
            fields += [f"Content-Type: {media_type}"] if media_type else []
            fields.append(f"Content-Length: {len(body)}")
        elif self._is(0.7):
            fitting = {"records": (JSON, LINES, RAW), "record-lines": (LINES,), "record-batches": (RAW, OCTETS)}[place]
            fields.append(f"Accept: {self._random.choice(fitting if self._is(0.8) else ACCEPTS)}")
        fields += [
            f"User-Agent: {self._random.choice(USER_AGENTS)}" for _ in range(self._random.choice((0, 0, 1, 1, 2)))
        ]
        fields += self._random.sample(ODD_HEADERS, self._random.choice((0, 0, 0, 1)))
        head = "\r\n".join([f"{method} {path}{self._query(method, place)} HTTP/1.1", *fields, "", ""])
        return head.encode() + body, method == "HEAD"

    def _query(self, method: str, place: str) -> str:
        encoding = self._random.choice(("", "", "encoding=utf8", "encoding=base64", "encoding=json"))
        if place == "record-batches" and self._is(0.9):
            encoding = ""
        if method == "POST":
            chosen = [encoding, self._random.choice(("", "", "acks=0", "acks=1", "acks=all"))]
            chosen.append(self._random.choice(("",) * 9 + ("expected_offset=0", "durability=written")))
        else:
            chosen = [f"offset={self._random.choice((0, 1, 2, 5, 'earliest', 'earliest', 'latest', 9999))}", encoding]
            chosen.append(
                self._random.choice(("", "max_records=1", "max_bytes=1", "end_offset=4", "isolation=read_committed"))
            )
        query = "&".join(each for each in chosen if each)
        return f"?{query}" if query else ""

    def _body(self, place: str, topic: str) -> tuple[str, bytes]:
        if place == "record-batches" or self._is(0.1):
            content = record_batch(b"one", b"two") if self._is(0.8) else b"rubbish"
            return self._random.choice((RAW, RAW, OCTETS, "", JSON)), content
        records = [self._record() for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        if place == "parts":
            listed = ",".join(records)
            parts = [f'{{"topic":"{name}","partition":0,"records":[{listed}]}}' for name in {topic, "t", "nothing"}]
            return JSON, f'{{"partitions":[{",".join(sorted(parts))}]}}'.encode()
        if place == "record-lines" or self._is(0.2):
            return LINES, "".join(f"{record}\n" for record in records).encode()
        return JSON, f'{{"records":[{",".join(records)}]}}'.encode()

    def _record(self) -> str:
        members = self._pair("value", 0.95) + self._pair("key", 0.3)
        if self._is(0.3):
            headers = [
                self._object(self._pair("name", 0.97) + self._pair("value", 0.97))
                for _ in range(self._random.randrange(3))
            ]
            members.append(("headers", f"[{','.join(headers)}]"))
        if self._is(0.1):
            members.append(
                self._random.choice((("offset", "3"), ("timestamp_type", '"CreateTime"'), ("partition", "0")))
            )
        return self._object(members)

    def _pair(self, name: str, share: float) -> list[tuple[str, str]]:
        """Mostly one member, and mostly one that says something; now and then both, in any order."""
        if not self._is(share):
            return []
        last = len(CONTENTS) if self._is(0.15) else 7
        text = (name, LARGE if self._is(0.02) else self._random.choice(CONTENTS[:last]))
        encoded = (f"{name}_base64", self._random.choice(ENCODED if self._is(0.1) else ENCODED[:5]))
        return self._random.choice(([text], [text], [encoded], [encoded], [(name, "null"), encoded], [text, encoded]))

    def _object(self, members: list[tuple[str, str]]) -> str:
        self._random.shuffle(members)
        if members and self._is(0.02):
            members.append(self._random.choice(members))
        return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running_pair(tmp_path_factory.mktemp("drawn")) as running:
        yield running


def ask(pair: Pair, request: bytes, *, is_head: bool) -> tuple[Answer, Answer]:
    answers = []
    for server in (pair.fast_path, pair.application):
        with connect(server) as connection:
            connection.send(request)
            answers.append(connection.read_answer(is_head=is_head))
    return answers[0], answers[1]


def alike(answer: Answer) -> tuple[int, dict[str, str], Any]:
    """As ``comparable``, without what follows from the topic's id, and from how far fsyncs have come."""
    status, headers, body = comparable(answer)
    return status, {name: value for name, value in headers.items() if name not in ("etag", "cache-control")}, body


def wait_for_appends(pair: Pair, request: bytes) -> None:
    """Append something behind what the request may have left on its way into the log."""
    if any(each in request for each in (b"acks=0", b"acks=1", b"durability=written")):
        for topic in TOPICS:
            if topic.encode() in request.partition(b"\r\n\r\n")[0] or b"/v1/produce" in request:
                behind = Case("behind", None, topic, "?acks=all", batch_of("behind"))
                assert [answer.status for answer in pair.ask(behind.encode())] == [200, 200]


def records_of(answer: Answer) -> list[dict[str, Any]]:
    """The records in an answer, if it has some."""
    media_type = answer.headers.get("content-type", "")
    if answer.status != 200 or answer.headers.get("content-encoding") or media_type not in (JSON, LINES):
        return []
    documents = [json.loads(line) for line in answer.body.split(b"\n") if line]
    found = [record for document in documents for record in document.get("records", [document])]
    return [record for record in found if "timestamp_type" in record]


def is_of_before(request: bytes) -> bool:
    """Whether the library of before may not ask this: it says its name, and speaks of records as they were."""
    line, *fields = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    path = line.split(b" ")[1].partition(b"?")[0]
    names = [field.partition(b":")[2].strip() for field in fields if field.startswith(b"User-Agent:")]
    return b"rollway" in names and not path.endswith((b"/record-batches", b"/record-lines"))


def check_pairs(record: dict[str, Any]) -> None:
    holders = [(record, ("key", "value")), *((header, ("name", "value")) for header in record["headers"])]
    for holder, names in holders:
        for name in names:
            assert (name in holder) != (f"{name}_base64" in holder), record


def test_drawn_requests_are_answered_alike(pair: Pair) -> None:
    statuses: dict[int, int] = {}
    shown_count = refused_count = 0
    for seed in range(DRAWN_COUNT):
        request, is_head = Draw(seed).request()
        # The first lets the fast path know the query.
        for _ in range(2):
            fast, slow = ask(pair, request, is_head=is_head)
            assert alike(fast) == alike(slow), (seed, request)
            assert fast.status < 500 or fast.status == 501, (seed, request, fast)
            wait_for_appends(pair, request)
            statuses[fast.status] = statuses.get(fast.status, 0) + 1
            for record in records_of(fast):
                check_pairs(record)
                shown_count += 1
            if is_of_before(request):
                # What else is wrong may be told first.
                assert fast.status >= 400, (seed, request)
                refused_count += b"client_too_old" in fast.body
            else:
                assert b"client_too_old" not in fast.body, (seed, request)
    assert statuses[200] > DRAWN_COUNT / 2
    assert shown_count > DRAWN_COUNT
    assert refused_count > DRAWN_COUNT / 50
    for topic in TOPICS:
        logs = [
            (Path(server.settings.data_dir) / "logs" / f"{topic}-0" / f"{0:020}.log").read_bytes().rstrip(b"\0")
            for server in (pair.fast_path, pair.application)
        ]
        assert logs[0] == logs[1]
        assert logs[0]
