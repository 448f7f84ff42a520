"""One service in a thread for all tests of a module, and a topic of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from rollway.client import ClientSettings, RollwayClient
from tests.support.servers import ThreadedServer

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("service") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ThreadedServer) -> Iterator[RollwayClient]:
    with RollwayClient(ClientSettings(server.url, retries=2, backoff_ms=1)) as client:
        yield client


@pytest.fixture
def topic(client: RollwayClient) -> str:
    """A new topic with three partitions."""
    return client.create_topic(f"t{next(_numbers)}", 3).name
