"""TLS: whatever a client proves itself with, it reads exactly what it would read without, and nothing goes out bare."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.fast_path.dispatcher import FastPath
from app.http.connection.fast_path_interface import plain_heads
from app.http.transfer.wire import NotBareError
from app.server import connections
from storage.segment import batch_search
from tests.http.test_plain_requests import batch, get, group_sizes, offset_of, one_turn, post, trust_the_disk
from tests.http.whole_service import Conversation, Told
from tests.support.access import Authority, make_keys
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

NAME = "Certificate:CN=orders,O=Acme"
CROWD_COUNT = 8
WARM_UP_COUNT = 6


class Secured(NamedTuple):
    """A service that speaks TLS, and what its client needs."""

    settings: dict[str, Any]
    context: ssl.SSLContext
    authorization: dict[str, str]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is told without TLS."""
    data_dir = tmp_path_factory.mktemp("plain") / "data"
    with ThreadedServer(data_dir) as server:
        return Conversation(lambda: Connection(server.port), data_dir).hold()


@pytest.fixture(params=["nothing", "key", "certificate"])
def secured(tmp_path: Path, request: pytest.FixtureRequest) -> Secured:
    """By what the client proves who it is."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    settings: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key}
    context = ssl.create_default_context(cafile=str(authority.file))
    authorization = {}
    if request.param != "nothing":
        settings |= {"authentication": True, "super_users": ["User:admin", NAME]}
    if request.param == "key":
        [api_key] = make_keys(tmp_path / "data", "User:admin")
        authorization = {"Authorization": f"Bearer {api_key}"}
    elif request.param == "certificate":
        settings |= {"tls_client_ca": authority.file, "tls_client_certificates": "required"}
        context.load_cert_chain(*authority.issue("client", O="Acme", CN="orders"))
    return Secured(settings, context, authorization)


@pytest.fixture
def server(tmp_path: Path, secured: Secured) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path / "data", **secured.settings) as running:
        yield running


def test_all_is_told_as_without_tls(server: ThreadedServer, secured: Secured, plain: list[Told]) -> None:
    def connect() -> Connection:
        return Connection(server.port, tls=secured.context)

    told = Conversation(connect, server.settings.data_dir, secured.authorization).hold()
    assert [each[:2] for each in told] == [each[:2] for each in plain]
    for ours, theirs in zip(told, plain, strict=True):
        assert ours == theirs, ours[0]


@pytest.mark.needs_local("it tests the fast path of plain requests")
def test_a_tier_that_takes_tls_for_bare_tcp_sends_nothing_bare(
    twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A planted defect: who would write past the transport is refused, and told."""
    monkeypatch.setattr(FastPath, "is_bare", property(lambda _: True, lambda *_: None), raising=False)
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    settings: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key}
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        ThreadedServer(tmp_path / "data", **settings) as server,
        caplog.at_level(logging.ERROR),
        # Not "wrong version number", which is what bare bytes would be to the client.
        pytest.raises((ConnectionError, ssl.SSLEOFError)),
    ):
        Conversation(lambda: Connection(server.port, tls=context), tmp_path / "data").hold()
    raised = {type(record.exc_info[1]) for record in caplog.records if record.exc_info}
    assert raised == {NotBareError}


def _create(connection: Connection, topic: str, policy: str) -> None:
    config = json.dumps({"partitions": 1, "config": {"flush.policy": policy}}).encode()
    create = f"PUT /v1/topics/{topic} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    connection.send(create.encode() + b"Content-Length: %d\r\n\r\n" % len(config) + config)
    assert connection.read_answer().status == 201


@pytest.mark.needs_local("it tests the fast path of plain requests")
@pytest.mark.skipif(plain_heads is None or batch_search.compiled is None, reason="not compiled here")
def test_small_fetches_and_no_others_are_answered_on_the_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    context = ssl.create_default_context(cafile=str(authority.file))
    settings: dict[str, Any] = {"tls_certificate": certificate, "tls_key": key}
    with (
        ThreadedServer(tmp_path / "data", **settings) as server,
        Connection(server.port, tls=context) as connection,
    ):
        _create(connection, "t", "interval")
        small, large = batch(b"a"), batch(b"b" * 20_000)
        for body in (small, large, small):
            connection.send(post("t", body))
            assert connection.read_answer().status == 200
        for query, sizes, is_fast in [
            ("offset=0&max_bytes=1000", [len(small)], True),
            ("offset=4", [len(small)], True),
            ("offset=6", [], True),
            ("offset=0", [len(small), len(large), len(small)], False),
            ("offset=2&max_bytes=1000", [len(large)], False),
        ]:
            # The first find their place with the index, in a thread.
            for attempt in range(9):
                before = server.fast_path_count
                connection.send(get("t", query))
                answer = connection.read_answer()
                assert (answer.status, len(answer.body)) == (200, sum(sizes))
                assert attempt < 6 or server.fast_path_count - before == is_fast, (query, attempt)


class Crowd(NamedTuple):
    """A service that speaks TLS, and clients whose batches it writes together."""

    server: ThreadedServer
    topic: str
    connections: list[Connection]

    def offsets(self) -> list[int]:
        """The base offset that each client is answered."""
        return [offset_of(connection.read_answer()) for connection in self.connections]


@pytest.fixture(params=["interval", "group"])
def crowd(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """By the topic's ``flush.policy``; the topic has its name."""
    if connections.compiled is None:
        pytest.skip("not compiled here")
    # However busy this machine is: behind a slow write batches are written one by one, by a thread.
    monkeypatch.setattr("app.engine_local.partitions.partition_writer.STALL_SECONDS", math.inf)
    topic, authority = request.param, Authority(tmp_path)
    certificate, key = authority.issue("server")
    context = ssl.create_default_context(cafile=str(authority.file))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ThreadedServer(tmp_path / "data", tls_certificate=certificate, tls_key=key))
        opened = [stack.enter_context(Connection(server.port, tls=context)) for _ in range(CROWD_COUNT)]
        _create(opened[0], topic, topic)
        trust_the_disk(server)
        crowd = Crowd(server, topic, opened)
        for _ in range(WARM_UP_COUNT):
            with one_turn(server):
                for connection in opened:
                    connection.send(post(topic, batch(b"first")))
            crowd.offsets()
        yield crowd


@pytest.mark.needs_local("it tests the fast path of plain requests")
def test_batches_of_one_turn_are_one_write_under_tls(crowd: Crowd) -> None:
    requests, groups = group_sizes(crowd.server)
    with one_turn(crowd.server):
        for connection in crowd.connections:
            connection.send(post(crowd.topic, batch(b"together")))
    first = 2 * CROWD_COUNT * WARM_UP_COUNT
    assert sorted(crowd.offsets()) == list(range(first, first + 2 * CROWD_COUNT, 2))
    written, made = group_sizes(crowd.server)
    assert written - requests == CROWD_COUNT
    assert made - groups <= 2


@pytest.mark.needs_local("it tests the fast path of plain requests")
@pytest.mark.parametrize("in_pieces", [False, True])
def test_what_comes_behind_a_batch_is_answered_in_order_under_tls(crowd: Crowd, in_pieces: bool) -> None:
    topic, first = crowd.topic, crowd.connections[0]
    large = post(topic, batch(b"z" * 100_000, 1))
    row = [
        post(topic, batch(b"x")),
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        post(topic, batch(b"y", 1)),
        large[:50_000],
        large[50_000:],
        get(topic, "offset=0"),
    ]
    with one_turn(crowd.server):
        for connection in crowd.connections[1:]:
            connection.send(post(topic, batch(b"w")))
        for each in row if in_pieces else [b"".join(row)]:
            first.send(each)
    answers = [first.read_answer() for _ in range(5)]
    assert [answer.status for answer in answers] == [200] * 5
    x, y, z = (offset_of(answers[place]) for place in (0, 2, 3))
    assert x < y < z
    for connection in crowd.connections[1:]:
        assert connection.read_answer().status == 200
    log = crowd.server.service.parts.engine.manager.partition(topic, 0)
    assert log.snapshot.high_watermark == 2 * CROWD_COUNT * (WARM_UP_COUNT + 1) + 2


@pytest.mark.needs_local("it tests the fast path of plain requests")
def test_clients_that_leave_under_tls_take_nothing_from_the_others(crowd: Crowd) -> None:
    with one_turn(crowd.server):
        for connection in crowd.connections:
            connection.send(post(crowd.topic, batch(b"kept")))
        for connection in crowd.connections[::2]:
            connection.socket.close()
    left = [offset_of(connection.read_answer()) for connection in crowd.connections[1::2]]
    assert len(set(left)) == CROWD_COUNT // 2
    log = crowd.server.service.parts.engine.manager.partition(crowd.topic, 0)
    assert log.snapshot.log_end_offset >= 2 * (CROWD_COUNT * WARM_UP_COUNT + CROWD_COUNT // 2)
