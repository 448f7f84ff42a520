"""``app.cli.records.producing``: what is acknowledged is counted, what may pass is tried again, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from app.cli.command_errors import CommandError, ServiceError, UnreachableError
from app.cli.http_session import Session, client_settings
from app.cli.records.producing import ATTEMPTS_MAX, RecordSender
from app.cli.records.record_text import OutgoingRecord
from rollway.records import partition_for_key

SERVER = "http://127.0.0.1:1"


def records(count: int, *, first_line: int = 1, key: bytes | None = None) -> list[OutgoingRecord]:
    return [OutgoingRecord(first_line + number, key, b"value", None, ()) for number in range(count)]


class Log:
    """A service of which only the produce route is there; ``refuse`` may answer in its place."""

    def __init__(
        self, refuse: Callable[[int, int], dict[str, object] | None] = lambda _request, _partition: None
    ) -> None:
        self._refuse = refuse
        self.partitions: dict[int, list[str]] = {}
        self.request_count = 0
        self.keys: list[str] = []
        self._known: dict[tuple[str, int], dict[str, object]] = {}

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.request_count += 1
        key = request.headers["Idempotency-Key"]
        self.keys.append(key)
        sent: dict[int, list[str]] = {}
        for record in json.loads(request.content)["records"]:
            sent.setdefault(record["partition"], []).append(record["value"])
        results: list[dict[str, object]] = []
        for number, values in sent.items():
            problem = self._refuse(self.request_count, number)
            if problem is not None:
                results.append({"partition": number, "error": problem})
                continue
            if (key, number) in self._known:
                results.append(self._known[key, number])
                continue
            kept = self.partitions.setdefault(number, [])
            base = len(kept)
            kept += values
            self._known[key, number] = {
                "partition": number,
                "base_offset": base,
                "last_offset": len(kept) - 1,
                "record_count": len(values),
            }
            results.append(self._known[key, number])
        failed = sum("error" in result for result in results)
        if failed == len(results):
            return httpx.Response(503, json=results[0]["error"])
        return httpx.Response(207 if failed else 200, json={"results": results, "throttle_time_ms": 0})

    def sender(self, partition_count: int = 3, partition: int | None = None) -> RecordSender:
        client = httpx.Client(transport=httpx.MockTransport(self.answer), base_url=client_settings(SERVER)["base_url"])
        self.pauses: list[float] = []
        session = Session(client, SERVER)
        return RecordSender(
            session, "orders", list(range(partition_count)), partition=partition, pause=self.pauses.append
        )


def offline(retryable: bool = True, applied: str = "no") -> dict[str, object]:
    return {"status": 503, "detail": "The partition is offline.", "retryable": retryable, "applied": applied}


def test_keys_go_where_kafkas_partitioner_puts_them_and_others_in_turn() -> None:
    log = Log()
    sender = log.sender()
    sender.send(records(4, key=b"AA"))
    expected = partition_for_key(b"AA", 3)
    assert {number: len(kept) for number, kept in log.partitions.items()} == {expected: 4}
    for _ in range(3):
        sender.send(records(2))
    assert sum(len(kept) for kept in log.partitions.values()) == 10
    assert set(log.partitions) == {0, 1, 2}
    assert sender.progress.record_count == 10


def test_one_partition_for_all() -> None:
    log = Log()
    sender = log.sender(partition=2)
    sender.send(records(3, key=b"AA") + records(3))
    assert {number: len(kept) for number, kept in log.partitions.items()} == {2: 6}
    progress = sender.progress.partitions[2]
    assert (progress.record_count, progress.base_offset, progress.last_offset) == (6, 0, 5)


def test_a_refusal_that_may_pass_is_tried_again_and_nothing_is_sent_twice() -> None:
    log = Log(lambda request, number: offline() if request <= 2 and number == 0 else None)
    sender = log.sender(partition_count=2)
    keys = {partition_for_key(b"%d" % number, 2): b"%d" % number for number in range(20)}
    sender.send(records(2, key=keys[0]) + records(3, key=keys[1]))
    assert {number: len(kept) for number, kept in log.partitions.items()} == {0: 2, 1: 3}
    assert log.request_count == 3
    assert len(log.pauses) == 2
    assert len(set(log.keys)) == 1
    assert sender.progress.record_count == 5
    sender.send(records(1))
    assert len(set(log.keys)) == 2


def test_the_service_says_how_long_to_wait() -> None:
    log = Log(lambda request, _number: offline() | {"retry_after_ms": 1234} if request == 1 else None)
    log.sender().send(records(1))
    assert log.pauses == [1.234]


def test_it_gives_up_after_a_few_attempts() -> None:
    log = Log(lambda _request, _number: offline())
    sender = log.sender()
    with pytest.raises(ServiceError, match="offline"):
        sender.send(records(2, first_line=7))
    assert log.request_count == ATTEMPTS_MAX
    assert sender.progress.first_unacknowledged_line == 7
    assert sender.progress.record_count == 0


@pytest.mark.parametrize(
    ("problem", "requests", "unknown"),
    [
        (offline(retryable=False), 1, 0),
        (offline(retryable=False, applied="unknown"), 1, 2),
        (offline(applied="unknown"), ATTEMPTS_MAX, 2),
    ],
)
def test_what_cannot_pass_is_sent_once_and_what_may_have_been_applied_again(
    problem: dict[str, object], requests: int, unknown: int
) -> None:
    log = Log(lambda _request, _number: problem)
    sender = log.sender()
    with pytest.raises(ServiceError):
        sender.send(records(2))
    assert log.request_count == requests
    assert sender.progress.unknown_count == unknown


def test_what_was_unknown_once_stays_so_when_it_is_given_up() -> None:
    log = Log(lambda request, _number: offline(applied="unknown" if request == 1 else "no"))
    sender = log.sender()
    with pytest.raises(ServiceError):
        sender.send(records(2))
    assert sender.progress.unknown_count == 2


def test_a_part_that_failed_names_the_first_line_of_it() -> None:
    log = Log(lambda _request, number: offline(retryable=False) if number == 1 else None)
    sender = log.sender(partition_count=2)
    keys = {partition_for_key(b"%d" % number, 2): b"%d" % number for number in range(20)}
    with pytest.raises(CommandError, match="offline"):
        sender.send(
            records(3, key=keys[0]) + records(2, first_line=4, key=keys[1]) + records(2, first_line=6, key=keys[0])
        )
    assert sender.progress.record_count == 5
    assert sender.progress.first_unacknowledged_line == 4


def test_a_broken_connection_leaves_the_outcome_unknown() -> None:
    def break_off(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    client = httpx.Client(transport=httpx.MockTransport(break_off), base_url=SERVER)
    sender = RecordSender(Session(client, SERVER), "orders", [0], pause=lambda _seconds: None)
    with pytest.raises(UnreachableError):
        sender.send(records(5))
    assert sender.progress.unknown_count == 5


def test_a_service_that_is_not_there_is_tried_again() -> None:
    attempts = 0

    def refuse(_request: httpx.Request) -> httpx.Response:
        nonlocal attempts
        attempts += 1
        raise httpx.ConnectError("refused")

    client = httpx.Client(transport=httpx.MockTransport(refuse), base_url=SERVER)
    sender = RecordSender(Session(client, SERVER), "orders", [0], pause=lambda _seconds: None)
    with pytest.raises(UnreachableError, match="rollway serve"):
        sender.send(records(1))
    assert attempts == ATTEMPTS_MAX
    assert sender.progress.unknown_count == 0


def test_an_answer_that_leaves_a_partition_out_is_an_error() -> None:
    client = httpx.Client(
        transport=httpx.MockTransport(lambda _request: httpx.Response(200, json={"results": []})), base_url=SERVER
    )
    sender = RecordSender(Session(client, SERVER), "orders", [0], pause=lambda _seconds: None)
    with pytest.raises(CommandError, match="leaves out"):
        sender.send(records(1))
