"""Batches of transactions: the hot tier enlists and answers them as the application does."""

from __future__ import annotations

from pathlib import Path

from tests.http.test_hot_twin import Case, batch_of, comparable, running_pair
from tests.support.servers import http_client


def test_batches_of_a_transaction_agree(tmp_path: Path) -> None:
    with running_pair(tmp_path) as pair:
        made = []
        for server in (pair.hot, pair.twin):
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
                # The first lets the tier know the query; it is the one that counts.
                first_hot, first_twin = pair.ask(each.encode())
                assert comparable(first_hot) == comparable(first_twin), each.name
                before = pair.hot.hot_count
                hot, twin = pair.ask(each.encode())
                assert comparable(hot) == comparable(twin), each.name
                is_valid = each.name != "an older epoch"
                assert pair.hot.hot_count == before + is_valid, each.name

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
        for server in (pair.hot, pair.twin):
            with http_client(server.url) as client:
                body = {"producer_id": owned, "producer_epoch": 0}
                answer = client.post("/v1/transactions/agree/commit", json=body).json()
                assert (answer["producer_id"], answer["producer_epoch"]) == (owned, 1)
        agree(
            case("late, of the transaction before", owned, 504),
            case("the next one's first", owned, 0, epoch=1),
            case("late, while the next one is open", owned, 504),
        )
