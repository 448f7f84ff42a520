"""One service in a thread for all tests of a module, and a topic of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.support.servers import ThreadedServer, http_client

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        yield client


@pytest.fixture
def data_dir(server: ThreadedServer) -> Path:
    return server.settings.data_dir


@pytest.fixture
def topic(client: httpx.Client) -> str:
    """The path of a new topic with two partitions."""
    path = f"/v1/topics/t{next(_numbers)}"
    created = client.put(path, json={"partitions": 2})
    assert created.status_code == 201, created.text
    return path
