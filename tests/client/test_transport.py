"""What happens when the service is away, refuses, is somebody else, or when connections break."""

from __future__ import annotations

import asyncio
import http.server
import logging
import pickle
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from log_model.clock import ManualClock
from rollway.client import (
    AuthenticationError,
    ClientSettings,
    InvalidAnswerError,
    ProblemError,
    RollwayClient,
    RollwayError,
    ServiceUnavailableError,
)
from rollway.client.transport import Transport
from rollway.records import Record, columns_from_records, decode_batch, encode_batch, split_batches
from tests.http.fault_proxy import FaultProxy
from tests.support.access import Authority, make_keys
from tests.support.servers import ThreadedServer, http_client


def closed_port() -> int:
    """A port of this machine where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def breaking_connections(port: int) -> Iterator[FaultProxy]:
    """A way to a service of which half the connections break; the proxy runs in a thread."""
    loop = asyncio.new_event_loop()
    proxy = FaultProxy(random.Random(7), 0.5)
    thread = threading.Thread(target=loop.run_forever, name="proxy")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(proxy.__aenter__(), loop).result()
        loop.call_soon_threadsafe(proxy.point_to, port)
        yield proxy
        asyncio.run_coroutine_threadsafe(proxy.__aexit__(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# Away


def test_a_service_that_is_away_is_said_so_in_one_sentence() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with RollwayClient(ClientSettings(url, retries=2, backoff_ms=1)) as client:
        with pytest.raises(ServiceUnavailableError) as caught:
            client.list_topics()
        assert client.retry_count == 2
    assert re.fullmatch(
        rf"cannot reach Rollway at {url}: tried 3 times in \d+ ms; last error: \[Errno \d+\] Connection refused",
        str(caught.value),
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.url, again.attempt_count) == (str(caught.value), url, 3)


def test_long_tries_are_told_in_seconds() -> None:
    error = ServiceUnavailableError("http://h:1", 8, 41_400, "no answer in time")
    assert str(error) == "cannot reach Rollway at http://h:1: tried 8 times in 41 s; last error: no answer in time"


def test_a_name_that_nobody_has_is_said_so() -> None:
    with (
        RollwayClient(ClientSettings("http://no-such-host.invalid:1", retries=0)) as client,
        pytest.raises(ServiceUnavailableError, match=r"tried once in .*last error: .*"),
    ):
        client.list_topics()


def test_a_service_that_does_not_answer_is_given_up() -> None:
    with silent_port() as port:
        settings = ClientSettings(f"http://127.0.0.1:{port}", retries=1, backoff_ms=1, read_timeout_ms=20)
        with (
            RollwayClient(settings) as client,
            pytest.raises(ServiceUnavailableError, match=r"tried 2 times in .* last error: no answer in time"),
        ):
            client.list_topics()


def test_pauses_grow_up_to_a_limit_and_differ() -> None:
    pauses: list[float] = []
    settings = ClientSettings(f"http://127.0.0.1:{closed_port()}", retries=6, backoff_ms=100, backoff_ms_max=400)
    transport = Transport(settings, pause=pauses.append)
    with pytest.raises(ServiceUnavailableError):
        transport.request("GET", "/v1/topics")
    limits = [0.1, 0.2, 0.4, 0.4, 0.4, 0.4]
    assert len(pauses) == len(limits)
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, limits, strict=True))
    assert len(set(pauses)) == len(pauses)


# Refusing


def test_a_client_waits_as_long_as_the_service_asks(tmp_path: Path) -> None:
    clock = ManualClock()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(round(seconds * 1_000))

    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as http:
        http.put("/v1/quotas", params={"client_id": "busy"}, json={"request_rate": 1}).raise_for_status()
        transport = Transport(
            ClientSettings(server.url, client_id="busy", retries=1, backoff_ms=1),
            pause=pause,
            clock=lambda: clock.elapsed_ms() / 1_000,
        )
        for _ in range(11):
            transport.request("GET", "/v1/topics")
        assert pauses == []
        transport.request("GET", "/v1/topics")
        transport.close()
    assert sum(pauses) >= 1.0


def test_a_client_that_broke_a_quota_is_silent_before_it_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(round(seconds * 1_000))

    with ThreadedServer(tmp_path / "data", clock=clock) as server, http_client(server.url) as http:
        http.put("/v1/topics/t", json={}).raise_for_status()
        http.put("/v1/quotas", params={"client_id": "busy"}, json={"producer_byte_rate": 100}).raise_for_status()
        transport = Transport(
            ClientSettings(server.url, client_id="busy", retries=0),
            pause=pause,
            clock=lambda: clock.elapsed_ms() / 1_000,
        )
        record = Record(0, 1_000, None, b"x" * 5_000)
        batch = encode_batch(columns_from_records([record]))
        headers = {"Content-Type": "application/vnd.kafka.record-batch.v2"}
        for _ in range(3):
            transport.request("POST", "/v1/topics/t/partitions/0/records", [batch], headers=headers)
        transport.close()
    assert len(pauses) == 2
    assert sum(pauses) > 10


def test_wrong_credentials_are_told_without_showing_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [key] = make_keys(tmp_path / "data", "User:admin")
    settings = {"authentication": True, "super_users": ["User:admin"]}
    caplog.set_level(logging.DEBUG)
    with ThreadedServer(tmp_path / "data", **settings) as server:
        with RollwayClient(ClientSettings(server.url, token=key)) as client:
            assert client.list_topics() == []
            assert key not in repr(client.settings)
        wrong = f"{key[:-4]}AAAA"
        with RollwayClient(ClientSettings(server.url, token=wrong)) as client:
            with pytest.raises(AuthenticationError) as caught:
                client.list_topics()
            assert client.retry_count == 0
    for secret in (key, wrong):
        assert secret not in str(caught.value) + repr(caught.value) + caplog.text


# Somebody else


class _Page(http.server.BaseHTTPRequestHandler):
    """A web server that is not Rollway."""

    def do_GET(self) -> None:
        status = int(self.path.removeprefix("/status=")) if self.path.startswith("/status=") else 200
        body = b"<html>hello</html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def page_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}"
        web.shutdown()
        thread.join()


def test_an_address_that_is_not_rollways_is_told_so(page_url: str) -> None:
    with RollwayClient(ClientSettings(page_url, retries=1, backoff_ms=1)) as client:
        with pytest.raises(InvalidAnswerError, match=r"is not JSON.*is this the address of Rollway\?"):
            client.describe_topic("flights")
        with pytest.raises(InvalidAnswerError, match=r"no Next-Offset header; is this the address of Rollway\?"):
            client.fetch("flights", 0, offset=0, max_bytes=200, isolation="read_committed")
    transport = Transport(ClientSettings(page_url, retries=1, backoff_ms=1))
    with pytest.raises(
        ProblemError, match=f"the answer has status 404 and is not Rollway's; is {page_url} its address"
    ):
        transport.request("GET", "/status=404")
    assert transport.retry_count == 0
    with pytest.raises(ServiceUnavailableError, match=r"tried 2 times .* 503 no_problem_document"):
        transport.request("GET", "/status=503")
    transport.close()


# Breaking


def test_what_is_sent_over_breaking_connections_is_there_once(tmp_path: Path) -> None:
    count = 60
    with ThreadedServer(tmp_path / "data") as server, breaking_connections(int(server.url.rpartition(":")[2])) as proxy:
        with RollwayClient(ClientSettings(proxy.url, retries=30, backoff_ms=1, backoff_ms_max=2)) as client:
            client.create_topic("t")
            for number in range(count):
                record = Record(0, 1_000, None, b"%d" % number)
                batch = encode_batch(
                    columns_from_records([record]), producer_id=9_000, producer_epoch=0, base_sequence=number
                )
                client.produce_batches("t", 0, [batch[:61], batch[61:]])
                # The next request has a connection of its own, and may have bad luck with it.
                client.close()
            assert client.retry_count > 0
        assert all(proxy.counts.values()), proxy.counts
        with RollwayClient(ClientSettings(server.url)) as client:
            fetched = client.fetch("t", 0, offset=0, max_bytes=1 << 20, isolation="read_committed")
    values = [value for batch in split_batches(fetched.batches) for value in decode_batch(batch).values.to_list()]
    assert values == [b"%d" % number for number in range(count)]


# TLS


def test_tls_with_an_authority_and_a_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    client_certificate, client_key = authority.issue("client", CN="loader")
    settings = {
        "tls_certificate": certificate,
        "tls_key": key,
        "authentication": True,
        "tls_client_ca": authority.file,
        "tls_client_certificates": "required",
        "super_users": ["Certificate:CN=loader"],
    }
    with ThreadedServer(tmp_path / "data", **settings) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        known = ClientSettings(
            url,
            ca_file=str(authority.file),
            client_certificate=str(client_certificate),
            client_key=str(client_key),
            retries=1,
            backoff_ms=1,
        )
        with RollwayClient(known) as client:
            assert client.create_topic("t").partition_count == 1
        with (
            RollwayClient(ClientSettings(url)) as stranger,
            pytest.raises(RollwayError, match=r"tried once .*certificate verify failed"),
        ):
            stranger.list_topics()


# Cut answers


@contextmanager
def cut_answers(answer: bytes, lengths: list[int]) -> Iterator[str]:
    """An address where one connection after the other gets so many bytes of the answer; the last ones all of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for length in [*lengths, len(answer)]:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer[:length])

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("has_content", [False, True])
def test_an_answer_that_is_cut_anywhere_is_asked_for_again(has_content: bool) -> None:
    """A header that is cut would be a smaller offset, and a fetch would go back."""
    content = b"x" * 5 if has_content else b""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\nNext-Offset: 1234\r\n"
    head += "Log-Start-Offset: 1000\r\nHigh-Watermark: 1300\r\nLast-Stable-Offset: 1250\r\n\r\n"
    answer = head.encode() + content
    lengths = list(range(len(answer)))
    with (
        cut_answers(answer, lengths) as url,
        RollwayClient(ClientSettings(url, retries=len(lengths), backoff_ms=1, backoff_ms_max=1)) as client,
    ):
        fetched = client.fetch("t", 0, offset=1_000, max_bytes=1, isolation="read_committed")
        assert client.retry_count == len(lengths)
    assert (fetched.batches, fetched.next_offset, fetched.last_stable_offset) == (content, 1_234, 1_250)


def test_an_answer_without_a_length_is_not_believed() -> None:
    with (
        cut_answers(b"HTTP/1.1 200 OK\r\n\r\n{}", []) as url,
        RollwayClient(ClientSettings(url, retries=0)) as client,
        pytest.raises(ServiceUnavailableError, match="the answer does not say where it ends"),
    ):
        client.list_topics()
