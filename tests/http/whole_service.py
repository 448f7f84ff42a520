"""One conversation with a service that touches every kind of answer, for services that must all say the same in it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

from tests.support.edge_server import Answer, Connection
from tests.support.writers import record_batch

RAW = "application/vnd.kafka.record-batch.v2"
FRAMES = "application/vnd.rollway.multi-fetch"
MESSAGES = "application/vnd.kafka.message-set"
TOPIC = "/v1/topics/spoken"
RECORDS = f"{TOPIC}/partitions/0/records"
BATCH = record_batch(bytes(range(256)) * 256)
LARGE = record_batch(b"large" * 60_000)
# What is another one in each service and each answer.
_VARYING = ("date", "x-request-id")

Told = tuple[str, int, dict[str, str], bytes]


class Conversation:
    """Asks a service, and keeps what it answers."""

    def __init__(
        self, connect: Callable[[], Connection], data_dir: Path, authorization: dict[str, str] | None = None
    ) -> None:
        """``connect`` opens connections; ``authorization`` is a header of every request."""
        self._connect = connect
        self._data_dir = data_dir
        self._authorization = authorization or {}
        self._told: list[tuple[str, Answer]] = []

    def hold(self) -> list[Told]:
        """Every answer in order; ids of topics are blanked, as each service gives its own."""
        with self._connect() as connection:
            self._fill(connection)
            self._fetch(connection)
            self._download(connection)
            with self._connect() as other:
                self._poll(connection, other)
                # A connection that knows no head yet, and a file that is on the disk alone.
                self._tell("fetch elsewhere", other, "GET", f"{RECORDS}?offset=0&max_bytes=1", Accept=RAW)
                self._drop_from_memory()
                self._tell("fetch from the disk", other, "GET", f"{RECORDS}?offset=1", Accept=RAW)
                self._tell("fetch from the disk again", connection, "GET", f"{RECORDS}?offset=1", Accept=RAW)
            topic_id = json.loads(self._ask(connection, "GET", TOPIC).body)["topic_id"]
        return [self._comparable(name, answer, topic_id) for name, answer in self._told]

    def _fill(self, connection: Connection) -> None:
        config = {"partitions": 2, "config": {"flush.policy": "group", "max.message.bytes": 1_000_000}}
        assert self._ask(connection, "PUT", TOPIC, json.dumps(config).encode()).status == 201
        # The third head of its kind is known, and a body of that size has a sink, where there are such things.
        for number in range(3):
            self._tell(f"produce {number}", connection, "POST", RECORDS, BATCH, **{"Content-Type": RAW})
        for number in range(2):
            self._tell(f"produce much {number}", connection, "POST", RECORDS, LARGE, **{"Content-Type": RAW})
        rows = [{"key": "k", "value": "v" * 300, "timestamp": 5}] * 100
        body = json.dumps({"records": rows}).encode()
        self._tell("produce JSON", connection, "POST", f"{TOPIC}/partitions/1/records", body)
        self._tell("produce garbage", connection, "POST", RECORDS, BATCH[:-1], **{"Content-Type": RAW})

    def _fetch(self, connection: Connection) -> None:
        for number in range(3):
            self._tell(f"fetch {number}", connection, "GET", f"{RECORDS}?offset=0&max_bytes=1", Accept=RAW)
        for number in range(3):
            self._tell(f"fetch all {number}", connection, "GET", f"{RECORDS}?offset=0&max_bytes=9999999", Accept=RAW)
        self._tell("fetch JSON", connection, "GET", f"{TOPIC}/partitions/1/records?offset=0", Accept="application/json")
        self._tell("fetch messages", connection, "GET", f"{TOPIC}/partitions/1/records?offset=0", Accept=MESSAGES)
        self._tell("fetch too far", connection, "GET", f"{RECORDS}?offset=999", Accept=RAW)
        asked = [{"topic": "spoken", "partition": number, "fetch_offset": 0} for number in (0, 1, 7)]
        body = json.dumps({"partitions": asked, "max_bytes": 9_999_999}).encode()
        for accept in (FRAMES, FRAMES, "application/json"):
            self._tell(f"fetch many as {accept}", connection, "POST", "/v1/fetch", body, Accept=accept)

    def _download(self, connection: Connection) -> None:
        self._tell("a value", connection, "GET", f"{RECORDS}/0/value")
        self._tell("part of a value", connection, "GET", f"{RECORDS}/3/value", Range="bytes=100-250099")
        self._tell("end of a value", connection, "GET", f"{RECORDS}/3/value", Range="bytes=-7")
        self._tell("no part of a value", connection, "GET", f"{RECORDS}/3/value", Range="bytes=99999999-")
        self._tell("a record", connection, "GET", f"{TOPIC}/partitions/1/records/7")
        whole = f"{RECORDS}?offset=0&end_offset=4&max_bytes=9999999"
        self._tell("a closed range", connection, "GET", whole, Accept=RAW)

    def _poll(self, connection: Connection, other: Connection) -> None:
        connection.send(self._request("GET", f"{RECORDS}?offset=5&wait_ms=20000", b"", {"Accept": RAW}))
        self._tell("produce for who waits", other, "POST", RECORDS, BATCH, **{"Content-Type": RAW})
        self._told.append(("a long poll", connection.read_answer()))

    def _drop_from_memory(self) -> None:
        for path in self._data_dir.glob("logs/spoken-0/*.log"):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def _request(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
        content_type = {"Content-Type": "application/json"} if body else {}
        fields = {**content_type, **self._authorization, **headers, "Content-Length": str(len(body))}
        lines = [f"{method} {target} HTTP/1.1", "Host: a", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _ask(self, connection: Connection, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        connection.send(self._request(method, target, body, headers))
        return connection.read_answer()

    def _tell(
        self, name: str, connection: Connection, method: str, target: str, body: bytes = b"", **headers: str
    ) -> None:
        self._told.append((name, self._ask(connection, method, target, body, **headers)))

    def _comparable(self, name: str, answer: Answer, topic_id: str) -> Told:
        headers = {name: value.replace(topic_id, "-" * 22) for name, value in answer.headers.items()}
        request_id = answer.headers.get("x-request-id", "-").encode()
        body = answer.body.replace(topic_id.encode(), b"-" * 22).replace(request_id, b"-" * 16)
        body = body.replace(base64.urlsafe_b64decode(f"{topic_id}=="), bytes(16))
        return name, answer.status, {name: headers[name] for name in headers.keys() - set(_VARYING)}, body
