"""The whole service on the connections of a stock server: what it answers is what it answers on its own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import pytest

from app.main import create_app
from app.settings import Settings
from tests.http.whole_service import Conversation, Told
from tests.support.edge_server import Connection, serving
from tests.support.servers import START_SECONDS_MAX, ThreadedServer


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """What is told over our own connections."""
    data_dir = tmp_path_factory.mktemp("ours") / "data"
    with ThreadedServer(data_dir) as server:
        return Conversation(lambda: Connection(server.port), data_dir).hold()


@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_all_is_told_as_on_our_own(http: Literal["h11", "httptools"], tmp_path: Path, ours: list[Told]) -> None:
    """Files, of one partition and of several, are copied there."""
    ready = threading.Event()
    app = create_app(Settings(data_dir=tmp_path / "data"), on_ready=ready.set)
    with serving(app, http=http, lifespan="on") as server:
        assert ready.wait(START_SECONDS_MAX)
        told = Conversation(server.connect, tmp_path / "data").hold()
    assert [each[:2] for each in told] == [each[:2] for each in ours]
    for theirs, each in zip(told, ours, strict=True):
        assert theirs == each, each[0]
