"""A producer id is given once, even if the file that counts them is lost: what else knows of an id counts too."""

from __future__ import annotations

import json
from itertools import count, pairwise
from pathlib import Path

import pytest

from app.engine_local.transactions.producer_owners import FILE as OWNERS
from storage.manager.log_manager import PRODUCER_IDS
from tests.http import foreign_ids
from tests.http.foreign_ids import KINDS, Given, make_keys
from tests.support.servers import ThreadedServer, http_client

_numbers = count()


def given_to_each(server_directory: Path, keys: dict[str, str]) -> list[int]:
    """Ids of each kind, which ``mine`` and ``other`` are given by turns and write nothing under."""
    given: list[Given] = []
    for stand in foreign_ids.stand(server_directory, keys):
        stand.numbers = _numbers
        for give in KINDS.values():
            given += [give(stand, stand.mine, "mine-"), give(stand, stand.other, "other-")]
    return [each.producer_id for each in given]


@pytest.mark.parametrize("content", [None, b""])
def test_a_lost_file_of_producer_ids_gives_no_id_twice(tmp_path: Path, content: bytes | None) -> None:
    keys = make_keys(tmp_path / "data")
    lost = tmp_path / "data" / "rollway" / PRODUCER_IDS
    given: list[int] = []
    for _ in range(3):
        fresh = given_to_each(tmp_path / "data", keys)
        assert len({*given, *fresh}) == len(given) + len(fresh)
        given += fresh
        lost.unlink() if content is None else lost.write_bytes(content)
    blocks = json.loads(lost.with_name(OWNERS).read_bytes())["blocks"]
    assert all(after[0] >= before[1] for before, after in pairwise(blocks))


def test_the_owners_are_known_after_the_file_of_producer_ids_was_lost(tmp_path: Path) -> None:
    """Blocks that overlap were taken for damage at the start after the next: all ids so far were refused then."""
    keys = make_keys(tmp_path / "data")
    given: dict[int, str] = {}
    for order in (("mine", "other"), ("other", "mine"), ("mine", "other")):
        for stand in foreign_ids.stand(tmp_path / "data", keys):
            for who in order:
                client = stand.mine if who == "mine" else stand.other
                given[foreign_ids.plain_producer(stand, client, "").producer_id] = f"User:{who}"
            parts = stand.server.service.ready_parts
            assert parts is not None
            owners = parts.engine.producer_owners
            assert {each: owners.principal_of(each) for each in given} == given
        (tmp_path / "data" / "rollway" / PRODUCER_IDS).unlink()
    assert len(given) == 6


def test_an_id_that_a_transactional_id_has_is_not_given_to_an_unknown_caller(tmp_path: Path) -> None:
    """Without authentication too: nothing was written under it, so no log has it."""
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        for name in ("a", "b"):
            assert client.post("/v1/producers", json={"transactional_id": name}).status_code == 200
        listed = client.get("/v1/transactions/b").json()
        largest = listed["producer_id"]
    (tmp_path / "data" / "rollway" / PRODUCER_IDS).unlink()
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        assert client.post("/v1/producers", json={}).json()["producer_id"] > largest
