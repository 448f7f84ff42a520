"""Access matrix, the dimension of own and foreign ids; the table and what must hold is in ``foreign_ids``."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.fetch.fetch_sessions import FetchSessions
from app.produce.enlisting import transactional_id_of
from app.produce.idempotence import RequestKey
from app.produce.producer_rights import require_producer
from app.service.parts import Parts
from tests.http import foreign_ids
from tests.http.foreign_ids import (
    Given,
    Stand,
    batch_of,
    faults_of_other_ids,
    faults_of_producer_ids,
    make_keys,
    plain_producer,
)
from tests.support.servers import ThreadedServer, http_client


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    yield from foreign_ids.stand(tmp_path / "data", make_keys(tmp_path / "data"))


def test_a_producer_id_is_its_owners_alone(stand: Stand) -> None:
    assert list(faults_of_producer_ids(stand)) == []


def test_every_other_id_is_its_owners_alone(stand: Stand) -> None:
    assert list(faults_of_other_ids(stand)) == []


def test_who_may_act_as_a_copy_writes_under_every_id(stand: Stand) -> None:
    """As a replica does, with CLUSTER_ACTION; a super user may everything."""
    for client in (stand.replica, stand.admin):
        for given in (plain_producer(stand, stand.mine, ""), Given(foreign_ids.NEVER_GIVEN)):
            answer = foreign_ids.PLAIN_WAYS["a batch"](client, stand.new_topic(), given)
            assert answer.status_code == 200, answer.text


def test_an_id_is_its_owners_after_a_restart(tmp_path: Path) -> None:
    keys = make_keys(tmp_path / "data")
    for before in foreign_ids.stand(tmp_path / "data", keys):
        mine = plain_producer(before, before.mine, "")
        others = plain_producer(before, before.other, "")
    for after in foreign_ids.stand(tmp_path / "data", keys):
        topic = "ids-restart"
        assert after.admin.put(f"/v1/topics/{topic}").status_code == 201
        for given, owner, stranger in ((mine, after.mine, after.other), (others, after.other, after.mine)):
            refused = foreign_ids.PLAIN_WAYS["a batch"](stranger, topic, given)
            assert refused.json()["code"] == "invalid_producer_id_mapping"
            assert foreign_ids.PLAIN_WAYS["a batch"](owner, topic, given).status_code == 200
        fresh = {plain_producer(after, client, "").producer_id for client in (after.mine, after.other)}
        assert not fresh & {mine.producer_id, others.producer_id}


@pytest.mark.needs_local("it looks into the data directory")
@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 100])
def test_a_damaged_file_of_owners_costs_new_ids_and_no_start(tmp_path: Path, content: bytes) -> None:
    keys = make_keys(tmp_path / "data")
    for before in foreign_ids.stand(tmp_path / "data", keys):
        mine = plain_producer(before, before.mine, "")
    (tmp_path / "data" / "rollway" / "producer-owners").write_bytes(content)
    for after in foreign_ids.stand(tmp_path / "data", keys):
        topic = "ids-damaged"
        assert after.admin.put(f"/v1/topics/{topic}").status_code == 201
        for client in (after.mine, after.other):
            answer = foreign_ids.PLAIN_WAYS["a batch"](client, topic, mine)
            assert answer.json()["code"] == "invalid_producer_id_mapping"
        fresh = plain_producer(after, after.mine, "")
        assert fresh.producer_id > mine.producer_id
        assert foreign_ids.PLAIN_WAYS["a batch"](after.mine, topic, fresh).status_code == 200


def test_without_authentication_every_id_is_everybodys(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data") as server, http_client(server.url) as client:
        assert client.put("/v1/topics/open").status_code == 201
        for producer_id in (client.post("/v1/producers").json()["producer_id"], foreign_ids.NEVER_GIVEN, 7):
            for name, write in foreign_ids.PLAIN_WAYS.items():
                topic = f"open-{producer_id}-{name.replace(' ', '-')}"
                assert client.put(f"/v1/topics/{topic}", json=foreign_ids.TOPIC).status_code == 201
                answer = write(client, topic, Given(producer_id))
                assert answer.status_code == 200, (name, answer.text)
        assert not (tmp_path / "data" / "rollway" / "producer-owners").exists()


def test_a_refused_id_is_one_audit_line_that_names_who_asked(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    given = foreign_ids.transactional_producer(stand, stand.mine, "mine-")
    topic = stand.new_topic()
    with caplog.at_level(logging.INFO, "rollway.audit"):
        foreign_ids.PLAIN_WAYS["a part of batches"](stand.other, topic, given)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "rollway.audit"]
    assert line == f"denied WRITE on transactional_id:{given.name} to User:other"


# Planted defects: the check finds each.


def _as_before(parts: Parts, access: Any, batches: Any, named: str | None = None) -> str | None:
    """Only transactional batches are asked for."""
    transactional = [batch for batch in batches if batch.header.is_transactional]
    if transactional or named is not None:
        owner = transactional_id_of(parts.producing, batches, named)
        for batch in transactional[:1]:
            require_producer(parts.producing, access, batch.header.producer_id)
        return owner
    return None


def test_the_check_finds_ids_that_nobody_looks_at(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.routes.records.produce_requests.require_producers", _as_before)
    monkeypatch.setattr("app.fast_path.produce.require_producers", _as_before)
    monkeypatch.setattr("app.produce.produce_dispatch.check_producers", _as_before)
    found = "\n".join(faults_of_producer_ids(stand))
    for kind in foreign_ids.KINDS:
        assert f"a batch, {kind}, of another: 200" in found
    assert "a part of batches, a transactional producer, of another: 200" in found
    assert "a batch, an id never given: 200" in found
    monkeypatch.setattr("app.routes.records.produce_requests.require_producer", lambda *_: None)
    assert "a stream of lines, a producer, of another: 200" in "\n".join(faults_of_producer_ids(stand, ["a producer"]))


@pytest.mark.needs_local("it tests the fast path of plain requests")
def test_the_check_finds_a_fast_way_that_does_not_ask(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ways to answer on the connection, the one for batches of several producers asks on its own."""
    monkeypatch.setattr("app.fast_path.produce.require_producers", lambda parts, access, batches: None)
    assert "a compressed batch, a producer, of another: 200" in "\n".join(faults_of_producer_ids(stand, ["a producer"]))


def test_the_check_finds_keys_without_their_principal(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    class KeyOfAnybody(RequestKey):
        def __init__(self, text: str, _: str) -> None:
            super().__init__(text, "")

    for module in ("app.routes.records.idempotence_headers", "app.fast_path.produce"):
        monkeypatch.setattr(f"{module}.RequestKey", KeyOfAnybody)
    assert "Idempotency-Key in partition, by mine" in "\n".join(faults_of_other_ids(stand))


def test_the_check_finds_sessions_of_everybody(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = FetchSessions.context
    monkeypatch.setattr(FetchSessions, "context", lambda self, request, _: genuine(self, request, None))
    monkeypatch.setattr(FetchSessions, "create", functools.partialmethod(_create_for_nobody, FetchSessions.create))
    assert "a fetch session of another: 200" in "\n".join(faults_of_other_ids(stand))


def _create_for_nobody(self: FetchSessions, genuine: Any, request: Any, _: Any, answers: Any) -> Any:
    return genuine(self, request, None, answers)


def test_the_batches_are_what_they_say() -> None:
    assert batch_of(Given(7), transactional=True) != batch_of(Given(7), transactional=False)
