"""Crowds of clients that read slowly or never finish what they send: memory is bounded, and nobody else notices."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.server.server import bind
from app.settings import Settings
from bench.slow_readers import HalfSentRequests, SlowReaders
from tests.support.edge_server import serving
from tests.support.servers import ServerProcess, ThreadedServer, http_client
from tests.support.writers import record_batch

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

RAW = "application/vnd.kafka.record-batch.v2"
MIB = 1024 * 1024
BATCH = record_batch(random.Random(1).randbytes(MIB - 1024))
LARGE = "/v1/topics/large/partitions/0/records"
SMALL = "/v1/topics/small/partitions/0/records"
ANSWER_BYTES = 16 * MIB
READERS = 1_000
MEMORY_MAX = 200 * MIB
SIPS = 10
SIP_BYTES = 512
# So many readers end their answers; the others are seen to be served when they are left.
DRAINED = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    environment = {
        "ROLLWAY_CONNECTIONS_PER_ADDRESS_MAX": "4000",
        # A busy machine may leave the clients of a test alone for long.
        "ROLLWAY_SEND_STALL_TIMEOUT_MS": "600000",
        "ROLLWAY_REQUEST_HEADER_TIMEOUT_MS": "600000",
        "ROLLWAY_REQUEST_BODY_GRACE_MS": "600000",
        "ROLLWAY_REQUEST_BODIES_BYTES_MAX": str(16 * MIB),
        "ROLLWAY_DECODED_ANSWERS_BYTES_MAX": str(8 * MIB),
    }
    with ServerProcess(tmp_path / "data", environment=environment, from_nothing=True) as running:
        yield running


def address_of(server: ServerProcess) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.rsplit(":", 1)[1])


def fill(client: httpx.Client) -> bytes:
    """A topic of 16 batches of 1 MiB, one by one so that the service never holds more; what a raw fetch answers."""
    for topic in ("large", "small"):
        client.put(f"/v1/topics/{topic}", json={"config": {"flush.policy": "interval"}}).raise_for_status()
    for _ in range(ANSWER_BYTES // len(BATCH)):
        client.post(LARGE, content=BATCH, headers={"Content-Type": RAW}).raise_for_status()
    client.post(SMALL, json={"records": [{"value": "honest"}]}).raise_for_status()
    return (
        client.get(LARGE, params={"offset": 0, "max_bytes": ANSWER_BYTES}, headers={"Accept": RAW})
        .raise_for_status()
        .content
    )


def request_of(path: str, accept: str) -> bytes:
    query = f"offset=0&max_bytes={ANSWER_BYTES}"
    return f"GET {path}?{query} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n".encode()


def check_honest(client: httpx.Client) -> None:
    """Whoever behaves is served meanwhile, writing and reading."""
    produced = client.post(SMALL, json={"records": [{"value": "honest"}]}).raise_for_status().json()
    answer = client.get(SMALL, params={"offset": produced["base_offset"]}).raise_for_status()
    assert [record["value"] for record in answer.json()["records"]] == ["honest"]


def test_a_thousand_slow_readers_of_16_mib_take_no_memory(server: ServerProcess) -> None:
    """Issue 4, acceptance 3: under 200 MiB at its peak, every byte exact, everybody else served."""
    with http_client(server.url) as client:
        expected = fill(client)
        request = request_of(LARGE, RAW)
        assert len(expected) >= ANSWER_BYTES * 0.99
        server.reset_peak_rss()
        with SlowReaders(address_of(server), request, expected) as readers:
            readers.connect(READERS)
            readers.wait_for_first_bytes()
            for _ in range(SIPS):
                readers.sip(SIP_BYTES)
                check_honest(client)
            before = list(readers.taken_bytes)
            readers.drain(DRAINED)
            assert readers.taken_bytes[:DRAINED] == [len(expected)] * DRAINED
            readers.wait_until_all_have_more(before)
            check_honest(client)
            peak = server.peak_rss_bytes()
            print(f"{READERS} slow readers: {peak / MIB:.0f} MiB at the peak")
            assert peak < MEMORY_MAX
        assert server.errors() == ""


def test_slow_readers_of_json_share_a_budget(server: ServerProcess) -> None:
    """Decoded records must be held until they are taken: the more are held, the smaller an answer, and then none."""
    with http_client(server.url) as client:
        fill(client)
        values = [base64.b64encode(random.Random(2).randbytes(900)).decode()] * 500
        client.put("/v1/topics/pieces", json={"config": {"flush.policy": "interval"}}).raise_for_status()
        pieces = "/v1/topics/pieces/partitions/0/records"
        for _ in range(20):
            client.post(pieces, json={"records": [{"value": value} for value in values]}).raise_for_status()
        whole = client.get(pieces, params={"offset": 0, "max_bytes": ANSWER_BYTES}).raise_for_status().content
        before = server.rss_bytes()
        with HalfSentRequests(address_of(server), receive_buffer_bytes=4096) as readers:
            readers.send(request_of(pieces, "application/json"), 200)
            check_honest(client)
            grown = server.peak_rss_bytes() - before
            print(f"200 slow readers of JSON: {grown / MIB:.0f} MiB more")
            assert grown < 128 * MIB
            answers = [readers.read_answer(number) for number in range(0, 200, 10)]
        lengths = [len(body) for status, body in answers if status == 200]
        assert {status for status, _ in answers} <= {200, 503}
        assert lengths
        assert min(lengths) < len(whole) / 2
        for status, body in answers:
            document = json.loads(body)
            if status == 503:
                assert document["code"] == "overloaded"
                assert document["retryable"]
            else:
                assert document["next_offset"] == len(document["records"])
                assert all(record["value"] == values[0] for record in document["records"])
        # Those who have gone hold nothing any more.
        while client.get(pieces, params={"offset": 0, "max_bytes": ANSWER_BYTES}).content != whole:
            pass


def test_500_half_sent_requests_delay_nobody(server: ServerProcess) -> None:
    """Issue 4, acceptance 3. Half a head waits for its end; bodies that hold too much memory are refused."""
    head = f"POST {SMALL} HTTP/1.1\r\nHost: a\r\nContent-Type: {RAW}\r\nContent-Length: {16 * MIB}\r\n\r\n".encode()
    whole = f"GET {SMALL}?offset=0 HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n".encode()
    with http_client(server.url) as client:
        fill(client)
        before = server.rss_bytes()
        with HalfSentRequests(address_of(server)) as heads, HalfSentRequests(address_of(server)) as bodies:
            heads.send(whole[:40], 250)
            bodies.send(head + bytes(MIB), 250)
            for _ in range(SIPS):
                check_honest(client)
            client.post(LARGE, content=record_batch(bytes(40_000)), headers={"Content-Type": RAW}).raise_for_status()
            grown = server.peak_rss_bytes() - before
            print(f"250 half heads and 250 half bodies: {grown / MIB:.0f} MiB more")
            assert grown < 96 * MIB
            assert [a for a in heads.finish(whole[40:]) if not a.startswith(b"HTTP/1.1 200 ")] == []
            refused = [answer for answer in bodies.answers_there() if answer]
            assert refused
            assert all(answer.startswith(b"HTTP/1.1 503 ") and b'"overloaded"' in answer for answer in refused)
        # Those who have gone hold nothing any more.
        body = b"".join([BATCH] * 8)
        while client.post(LARGE, content=body, headers={"Content-Type": RAW}).status_code == 503:
            pass


def test_the_kernel_holds_little_of_an_answer(tmp_path: Path) -> None:
    """A thousand slow readers took 1.7 GB of TCP's memory, and other clients' packets waited for seconds."""
    with contextlib.ExitStack() as stack:
        listener, *_ = map(stack.enter_context, bind(Settings(data_dir=tmp_path, port=0, tcp_unsent_bytes_max=65_536)))
        stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 65_536


def test_a_client_that_takes_bytes_is_not_cut_off_however_slow_it_is() -> None:
    """The stall timeout is for those who take none."""
    half = random.Random(3).randbytes(4 * MIB)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(2 * len(half)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": half, "more_body": True})
        await send({"type": "http.response.body", "body": half})

    with (
        serving(app, send_stall_timeout_ms=1_000) as server,
        server.connect(receive_buffer_bytes=4096) as client,
    ):
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        client.read_head()
        taken = client.read_some()
        end = server.call(server.loop.time) + 2.5
        while (now := server.call(server.loop.time)) < end:
            taken += client.socket.recv(2048)
            server.wait_until(lambda now=now: server.loop.time() > now + 0.02)  # type: ignore[misc]
        while len(taken) < 2 * len(half):
            taken += client.read_some()
        assert taken == half + half


def test_the_kernel_may_hold_more_of_an_answer_while_few_wait(tmp_path: Path) -> None:
    """What does not fit into the kernel costs a turn of the loop each time; a crowd of readers gets the least."""
    unsent = 65_536
    with (
        ThreadedServer(tmp_path, tcp_unsent_bytes_max=unsent) as server,
        http_client(server.url) as client,
        contextlib.ExitStack() as stack,
    ):
        fill(client)
        readers = []
        for count in (1, 300):
            while len(readers) < count:
                reader = stack.enter_context(socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1]))))
                reader.sendall(request_of(LARGE, RAW))
                assert reader.recv(1)
                readers.append(reader)
            allowed = server.unsent_bytes_allowed(readers[-1].getsockname())
            assert allowed == (16 * unsent if count == 1 else unsent)
