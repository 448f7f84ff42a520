"""TLS: whatever a client proves itself with, it reads exactly what it would read without, and nothing goes out bare."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.fast_path.tier import Tier
from app.http.transfer.wire import NotBareError
from app.server import connections
from tests.http.whole_service import Conversation, Told
from tests.support.access import Authority, make_keys
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

NAME = "Certificate:CN=orders,O=Acme"


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


@pytest.mark.parametrize("way", ["compiled", "Python"])
def test_a_tier_that_takes_tls_for_bare_tcp_sends_nothing_bare(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A planted defect: who would write past the transport is refused, and told."""
    if way == "Python":
        monkeypatch.setattr(connections, "compiled", None)
    elif connections.compiled is None:
        pytest.skip("not compiled here")
    monkeypatch.setattr(Tier, "is_bare", property(lambda _: True, lambda *_: None), raising=False)
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
