"""A wrong address is told within two seconds, and a missing credential with the option that gives it."""

from __future__ import annotations

import logging
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollway.client import AuthenticationError, ClientSettings, RollwayClient, ServiceUnavailableError, silence
from rollway.client.transport import Transport
from rollway.spark.source import RollwayDataSource
from tests.support.access import make_keys
from tests.support.servers import ThreadedServer


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


class FirstLine(logging.Handler):
    """How long after it was made the first warning came."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.has_come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.seconds is None:
            self.seconds = time.monotonic() - self.began
        self.has_come.set()


@contextmanager
def first_line() -> Iterator[FirstLine]:
    handler = FirstLine()
    logger = logging.getLogger("rollway.client")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    """The error came after eleven tries, 32 to 38 s later, and nothing before."""
    settings = ClientSettings(f"http://127.0.0.1:{closed_port()}", retries=1, backoff_ms=3_000)
    with first_line() as line, RollwayClient(settings) as client:
        with pytest.raises(ServiceUnavailableError):
            client.list_topics()
        assert line.seconds is not None
        assert line.seconds < 2


def test_an_address_that_is_silent_is_told_while_it_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """As with a firewall that drops what comes: no try has failed yet."""
    with silent_port() as port, first_line() as line:
        settings = ClientSettings(f"http://127.0.0.1:{port}", retries=0, read_timeout_ms=4_000)
        with RollwayClient(settings) as client, pytest.raises(ServiceUnavailableError):
            client.list_topics()
        assert line.seconds is not None
        assert 1 < line.seconds < 3.5
        assert f"no answer from Rollway at http://127.0.0.1:{port} yet" in caplog.text


def test_lines_are_few_and_say_why(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    settings = ClientSettings(f"http://127.0.0.1:{closed_port()}", retries=40, backoff_ms=1_000, backoff_ms_max=1_000)

    def pause(seconds: float) -> None:
        now[0] += seconds

    transport = Transport(settings, pause=pause, clock=lambda: now[0])
    with pytest.raises(ServiceUnavailableError):
        transport.request("GET", "/v1/topics")
    lines = [record.getMessage() for record in caplog.records]
    # 40 pauses of 0.5 to 1 s.
    assert 2 <= len(lines) <= 5
    assert lines[0].endswith("Connection refused; up to 40 more tries")


def test_a_service_that_answers_is_not_complained_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are long polls, which take as long as they were told to."""
    monkeypatch.setattr(silence, "FIRST_LINE_SECONDS", 0.5)
    with ThreadedServer(tmp_path / "data") as server, RollwayClient(ClientSettings(server.url)) as client:
        with RollwayClient(ClientSettings(server.url)) as other:
            other.create_topic("t", 1)
        assert not client.wait_for({"t": {0: 0}}, isolation="read_committed", wait_ms=1_000)
        assert not client.wait_for({"t": {0: 0}}, isolation="read_committed", wait_ms=1_000)
    assert not caplog.records


def test_a_missing_credential_is_told_with_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROLLWAY_API_KEY", raising=False)
    data_dir = tmp_path / "data"
    make_keys(data_dir, "User:reader")
    with ThreadedServer(data_dir, authentication=True, super_users=["User:reader"]) as server:
        for given in ({}, {"token": "wrong"}):
            source = RollwayDataSource({"url": server.url, "subscribe": "t", **given})
            with pytest.raises(AuthenticationError, match=r"option token, or ROLLWAY_API_KEY in the driver") as caught:
                source.reader(source.schema()).partitions()
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
            assert "wrong" not in str(caught.value)
