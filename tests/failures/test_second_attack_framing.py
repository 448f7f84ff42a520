"""Requests that are refused while their body is on its way, and what their cycles do afterwards."""

from __future__ import annotations

import httpx
import pytest

from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
def test_a_refused_body_is_not_asked_for(
    server: ThreadedServer, client: httpx.Client, topic: str, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The answer was out and the sending side closed when the application asked for the body: 100 Continue could not be
    written, and each such request left a traceback in the log."""
    with Connection(server.port) as connection:
        connection.send(
            f"POST {topic}/partitions/0/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
            "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode()
        )
        received = connection.read_to_end()
    # By then the application has had its turn.
    assert client.get("/readyz").status_code == 200
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b"100 Continue" not in received
    assert "Cannot call write" not in caplog.text
