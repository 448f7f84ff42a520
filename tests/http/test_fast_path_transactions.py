"""Batches of transactions: the fast path enlists and answers them, and what reads them, as the application does."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from storage.log.log_snapshot import LogSnapshot
from storage.manager import log_manager
from tests.http.test_fast_path_agrees import Case, batch_of, comparable, running_pair
from tests.http.test_plain_requests import batch, connect, for_the_application, get, post, server
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer, http_client

pytestmark = pytest.mark.needs_local("it tests the fast path of plain requests")

__all__ = ["server"]

LIMITS = ("log-start-offset", "high-watermark", "last-stable-offset", "next-offset", "content-length")


def test_batches_of_a_transaction_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_manager, "first_id_of", lambda directory_id: 0)
    with running_pair(tmp_path) as pair:
        made = []
        for server in (pair.fast_path, pair.application):
            with http_client(server.url) as client:
                made += [client.post("/v1/producers", json=body).json() for body in ({"transactional_id": "agree"}, {})]
        assert made[:2] == made[2:]
        owned, stranger = (each["producer_id"] for each in made[:2])

        def case(name: str, producer_id: int, sequence: int, epoch: int = 0, query: str = "", size: int = 1) -> Case:
            stamp = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
            body = batch_of(*["x" * 100] * size, **stamp, transactional=True)
            return Case(name, True, query=query, body=body)

        def agree(*cases: Case) -> None:
            for each in cases:
                # The first lets the fast path know the query; it is the one that counts.
                first_fast, first_slow = pair.ask(each.encode())
                assert comparable(first_fast) == comparable(first_slow), each.name
                before = pair.fast_path.fast_path_count
                fast, slow = pair.ask(each.encode())
                assert comparable(fast) == comparable(slow), each.name
                is_valid = each.name != "an older epoch"
                assert pair.fast_path.fast_path_count == before + is_valid, each.name

        agree(
            case("its first", owned, 0),
            case("again", owned, 0),
            case("large", owned, 1, size=500),
            case("a gap", owned, 700),
            case("an older epoch", owned, 501, epoch=-1),
            case("a later epoch", owned, 501, epoch=1),
            case("of all copies", owned, 501, query="?acks=all"),
            case("on the disk", owned, 502, query="?durability=fsynced"),
            case("nobody waits", owned, 503, query="?acks=0"),
            case("of no transaction", stranger, 0),
            case("of nobody", 10_000, 0),
        )
        for server in (pair.fast_path, pair.application):
            with http_client(server.url) as client:
                body = {"producer_id": owned, "producer_epoch": 0}
                answer = client.post("/v1/transactions/agree/commit", json=body).json()
                assert (answer["producer_id"], answer["producer_epoch"]) == (owned, 1)
        agree(
            case("late, of the transaction before", owned, 504),
            case("the next one's first", owned, 0, epoch=1),
            case("late, while the next one is open", owned, 504),
        )


def told(connection: Connection, request: bytes) -> tuple[int, bytes, list[str | None]]:
    """What an answer to a fetch says: its status, its batches, and its headers about the log."""
    connection.send(request)
    answer = connection.read_answer()
    is_found = answer.status == 200
    names = (*LIMITS, "aborted-transactions") if is_found else ()
    return answer.status, answer.body if is_found else b"", [answer.headers.get(name) for name in names]


class TransactionalProducer:
    """Sends batches of transactions to a topic over a connection, and ends them."""

    def __init__(self, client: httpx.Client, connection: Connection, topic: str) -> None:
        self._client, self._connection, self._topic = client, connection, topic
        made = client.post("/v1/producers", json={"transactional_id": "reader"}).json()
        self._id, self._epoch, self._sequence = made["producer_id"], made["producer_epoch"], 0

    def send(self) -> None:
        """A batch of one record."""
        stamp = {"producer_id": self._id, "producer_epoch": self._epoch, "base_sequence": self._sequence}
        self._connection.send(post(self._topic, batch_of("x", **stamp, transactional=True)))
        assert self._connection.read_answer().status == 200
        self._sequence += 1

    def end(self, how: str) -> None:
        """``commit`` or ``abort``."""
        body = {"producer_id": self._id, "producer_epoch": self._epoch}
        ended = self._client.post(f"/v1/transactions/reader/{how}", json=body).json()
        self._epoch, self._sequence = ended["producer_epoch"], 0


def test_reads_of_committed_records_agree_however_transactions_end(
    server: ThreadedServer, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets outlive the state of the log in which they were resolved: each state is met by known ones."""
    topic = "interval"
    with http_client(server.url) as client, connect(server) as connection, connect(server) as stranger:
        log = server.service.parts.engine.manager.partition(topic, 0)
        producer = TransactionalProducer(client, connection, topic)

        def send_plain() -> None:
            connection.send(post(topic, batch(b"v", 1)))
            assert connection.read_answer().status == 200

        def agree() -> None:
            ends = {log.snapshot.last_stable_offset, log.snapshot.high_watermark, log.snapshot.high_watermark + 1}
            for place in ("earliest", "latest", *range(3), *ends):
                for isolation in ("read_committed", "read_uncommitted"):
                    request = get(topic, f"offset={place}&isolation={isolation}")
                    expected = told(stranger, for_the_application(request))
                    assert [told(connection, request) for _ in range(3)] == [expected] * 3, request

        def stable_end(offset: int) -> str | None:
            """The last stable offset, by an answer that is compiled where anything is; it reads one segment."""
            with monkeypatch.context() as patch:
                if twin == "compiled":
                    patch.setattr(LogSnapshot, "read_cached", None)
                status, _, limits = told(connection, get(topic, f"offset={offset}&isolation=read_committed"))
            assert status == 200
            return limits[2]

        for _ in range(3):
            send_plain()
        agree()
        assert stable_end(0) == "3"
        producer.send()
        send_plain()
        agree()
        assert (stable_end(0), log.snapshot.high_watermark) == ("3", 5)
        producer.end("commit")
        agree()
        # The marker has a segment of its own: it is some years younger than the records.
        assert stable_end(log.snapshot.base_offsets[-1]) == "6"
        producer.send()
        producer.end("abort")
        send_plain()
        agree()
        committed = get(topic, "offset=0&isolation=read_committed")
        aborted = told(connection, committed)[2][-1]
        assert aborted
        producer.send()
        agree()
        assert told(connection, committed)[2][-1] == aborted
