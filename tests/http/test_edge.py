"""The edge on real sockets: what clients may send or withhold, and how refusals look."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.http import methods
from app.http.bodies.body import iterate_body, read_body
from app.http.connection.protocol import PIPELINED_REQUESTS_MAX, EdgeProtocol
from app.problems import framework
from app.server.connections import LATE_CLIENTS_PER_TURN, STARTS_PER_TURN, protocol_class
from app.settings import Settings
from tests.support.edge_server import Answer, Connection, KeptTurns, RunningServer, serving
from tests.support.servers import RAW_HOSTS

MIB = 1024 * 1024
GIB = 1024 * MIB
PROBLEM_MEMBERS = {
    "type", "title", "status", "detail", "instance", "code", "kafka_code", "retryable", "applied", "retry_after_ms",
    "errors",
}  # fmt: skip


class Gate:
    """Lets a test hold requests inside the application and see that they are there."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.open = asyncio.Event()


def make_app(gate: Gate) -> FastAPI:
    app = FastAPI()
    framework.install(app, methods)

    @app.api_route("/hello", methods=["GET", "POST"])
    async def hello() -> Response:
        return Response(b"hello")

    @app.get("/wait/{number}")
    async def wait(number: int) -> Response:
        gate.entered.release()
        await gate.open.wait()
        return JSONResponse(number)

    @app.post("/length")
    async def length(request: Request) -> Response:
        body = await read_body(request, limit_bytes=MIB)
        return JSONResponse({"length": len(body), "headers": [name.decode() for name, _ in request.scope["headers"]]})

    @app.post("/hold")
    async def hold(request: Request) -> Response:
        await gate.open.wait()
        return JSONResponse(len(await read_body(request, limit_bytes=16 * MIB)))

    @app.post("/stream")
    async def stream(request: Request) -> Response:
        total = 0
        async for piece in iterate_body(request, None):
            total += len(piece)
            gate.entered.release()
        return JSONResponse(total)

    return app


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def server(gate: Gate) -> Iterator[RunningServer]:
    with serving(make_app(gate)) as running:
        yield running


def get(path: str = "/hello", *, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()


def problem_in(answer: Answer) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, object] = json.loads(answer.body)
    assert set(document) >= PROBLEM_MEMBERS
    assert document["status"] == answer.status
    return document


def resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


# Framing


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nhello", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (b"POST /hello HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nX: y\r\n folded\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /hel\x80lo HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /hello HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        (b"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_a_request_that_is_not_plain_http_is_refused_and_the_connection_closed(
    server: RunningServer, request_bytes: bytes, status: int
) -> None:
    with server.connect() as connection:
        connection.send(request_bytes)
        answer = connection.read_answer()
        assert answer.status == status
        assert answer.headers["connection"] == "close"
        assert problem_in(answer)["applied"] == "no"
        assert connection.read_to_end() == b""


def test_chunks_with_bad_framing_end_the_request() -> None:
    gate = Gate()
    with serving(make_app(gate)) as server, server.connect() as connection:
        connection.send(b"POST /stream HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nX\r\n")
        assert gate.entered.acquire(timeout=10)
        connection.send(b"1\nY\r\n")
        assert problem_in(connection.read_answer())["code"] == "malformed_request"


def test_trailers_are_read_and_not_taken_for_headers(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.send(
            b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nX\r\n0\r\nProducer-Id: 7\r\n"
            b"\r\n"
        )
        assert json.loads(connection.read_answer().body) == {"length": 1, "headers": ["host", "transfer-encoding"]}
        connection.send(get())
        assert connection.read_answer().body == b"hello"


def test_an_upgrade_nobody_offers_is_answered_as_plain_http(server: RunningServer) -> None:
    with server.connect() as connection:
        for _ in range(2):
            connection.send(get(more="Connection: Upgrade\r\nUpgrade: h2c\r\n"))
            answer = connection.read_answer()
            assert (answer.body, answer.headers.get("connection")) == (b"hello", None)


def test_http_1_0_is_served_and_closed(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.send(b"GET /hello HTTP/1.0\r\n\r\n")
        assert connection.read_answer().body == b"hello"
        assert connection.is_closed()


# Sizes


@pytest.mark.parametrize("piece_bytes", [100, 5000, 1 << 20])
def test_headers_over_the_limit_are_refused(server: RunningServer, piece_bytes: int) -> None:
    request = get(more=f"X-Large: {'x' * 40_000}\r\n")
    with server.connect() as connection:
        for start in range(0, len(request), piece_bytes):
            connection.send(request[start : start + piece_bytes])
        answer = connection.read_answer()
        assert answer.status == 431
        assert problem_in(answer)["code"] == "request_header_fields_too_large"


def test_too_many_headers_are_refused(server: RunningServer) -> None:
    assert server.request(get(more="".join(f"X-{number}: y\r\n" for number in range(98)))).status == 200
    assert server.request(get(more="".join(f"X-{number}: y\r\n" for number in range(100)))).status == 431


def test_a_header_of_100_mb_is_refused_early_and_not_kept(server: RunningServer) -> None:
    piece = b"x" * MIB
    before = resident_bytes()
    with server.connect() as connection:
        connection.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nX: ")
        sent = 0
        try:
            for _ in range(100):
                connection.send(piece)
                sent += 1
        except ConnectionError:
            assert sent < 100
        assert connection.read_answer().status == 431
    assert resident_bytes() - before < 32 * MIB


def test_a_trailer_without_end_is_refused(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.send(b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nX\r\n0\r\nX: ")
        for _ in range(20):
            connection.send(b"y" * 16_384)
        assert problem_in(connection.read_answer())["code"] == "malformed_request"


def test_a_body_of_1_gib_is_refused_by_its_length_before_it_is_sent(server: RunningServer) -> None:
    answer = server.request(f"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {GIB}\r\n\r\n".encode())
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert problem_in(answer)["code"] == "request_too_large"


@pytest.mark.parametrize("framing", ["Content-Length: 1073741824", "Transfer-Encoding: chunked"])
def test_a_body_of_1_gib_that_is_sent_anyway_is_refused_without_being_kept(server: RunningServer, framing: str) -> None:
    chunked = framing.startswith("Transfer")
    piece = b"100000\r\n" + b"x" * MIB + b"\r\n" if chunked else b"x" * MIB
    before = resident_bytes()
    with server.connect() as connection:
        connection.send(f"POST /length HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode())
        # It listens a while, for the client's sake, and hangs up.
        with pytest.raises(ConnectionError):
            connection.send_over_and_over(piece)
        assert connection.read_answer().status == 413
    assert resident_bytes() - before < 32 * MIB


def test_a_client_that_waits_for_100_continue_never_sends_a_body_that_is_too_large(server: RunningServer) -> None:
    head = b"POST /length HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.send(head % GIB)
        answer = connection.read_answer()
        assert (answer.status, answer.interim, answer.headers["connection"]) == (413, [], "close")
    with server.connect() as connection:
        connection.send(head % 3)
        assert connection.socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.send(b"abc")
        assert json.loads(connection.read_answer().body)["length"] == 3


def test_an_answer_before_the_end_of_a_small_body_keeps_the_connection(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.send(b"POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
        answer = connection.read_answer()
        assert "connection" not in answer.headers
        connection.send(b"defghij" + get())
        assert connection.read_answer().body == b"hello"


# Turns


def test_each_of_a_crowd_that_comes_at_once_is_answered(server: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(server.connect()) for _ in range(20 * STARTS_PER_TURN)]
        for number, connection in enumerate(crowd):
            connection.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % number)
            connection.send(bytes(number))
        answers = [connection.read_answer() for connection in crowd]
    assert [json.loads(answer.body)["length"] for answer in answers] == list(range(len(crowd)))


def test_a_request_that_waits_for_its_turn_can_be_refused_or_given_up_or_answered_late(gate: Gate) -> None:
    http = protocol_class(Settings(allowed_hosts=[*RAW_HOSTS]))
    starts = http.starts = KeptTurns()  # type: ignore[attr-defined]
    chunked = b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        serving(make_app(gate), http=http) as server,
        server.connect() as refused,
        server.connect() as given_up,
        server.connect() as patient,
    ):
        refused.send(chunked)
        its_turns = [starts.next()]
        given_up.send(get())
        its_turns.append(starts.next())
        patient.send(chunked + b"3\r\nabc\r\n")
        its_turns.append(starts.next())
        refused.send(b"no number\r\n")
        assert problem_in(refused.read_answer())["code"] == "malformed_request"
        given_up.socket.close()
        for its_turn in its_turns:
            server.call(its_turn)
        patient.send(b"0\r\n\r\n")
        assert json.loads(patient.read_answer().body)["length"] == 3
        patient.send(get())
        server.call(starts.next())
        assert patient.read_answer().body == b"hello"


# Time

# Long enough for a client on a busy machine to send the first byte: who says nothing gets no answer.
HEADER_TIMEOUT_MS = 500


def test_half_sent_headers_time_out(gate: Gate) -> None:
    with serving(make_app(gate), request_header_timeout_ms=HEADER_TIMEOUT_MS) as server, server.connect() as connection:
        connection.send(b"GET /hello HTTP/1.1\r\nHost:")
        assert problem_in(connection.read_answer())["code"] == "request_timeout"
        assert connection.is_closed()


def test_a_second_request_is_also_timed(gate: Gate) -> None:
    with serving(make_app(gate), request_header_timeout_ms=HEADER_TIMEOUT_MS) as server, server.connect() as connection:
        connection.send(get() + b"GET /hel")
        assert connection.read_answer().body == b"hello"
        assert connection.read_answer().status == 408


def test_each_of_a_crowd_that_is_late_is_answered(gate: Gate) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(make_app(gate), request_header_timeout_ms=HEADER_TIMEOUT_MS))
        crowd = []
        for _ in range(5 * LATE_CLIENTS_PER_TURN):
            crowd.append(stack.enter_context(server.connect()))
            crowd[-1].send(b"GET /hel")
        assert {problem_in(connection.read_answer())["code"] for connection in crowd} == {"request_timeout"}


def test_who_comes_while_the_late_take_turns_is_not_late(gate: Gate) -> None:
    http = protocol_class(Settings(allowed_hosts=[*RAW_HOSTS], request_header_timeout_ms=HEADER_TIMEOUT_MS))
    late_clients = http.late_clients = KeptTurns()  # type: ignore[attr-defined]
    with serving(make_app(gate), http=http) as server, server.connect() as connection:
        connection.send(b"GET /hel")
        its_turn = late_clients.next()
        connection.send(b"lo HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.read_answer().body == b"hello"
        server.call(its_turn)
        connection.send(get())
        assert connection.read_answer().body == b"hello"


@pytest.mark.parametrize("sent", [b"", b"\r\n"])
def test_a_connection_that_says_nothing_is_closed(gate: Gate, sent: bytes) -> None:
    with serving(make_app(gate), request_header_timeout_ms=50) as server, server.connect() as connection:
        connection.send(sent)
        assert connection.is_closed()


def test_a_body_that_stops_times_out(gate: Gate) -> None:
    with serving(make_app(gate), request_body_grace_ms=50) as server, server.connect() as connection:
        connection.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        document = problem_in(connection.read_answer())
        assert (document["code"], document["applied"]) == ("request_timeout", "unknown")


def test_a_client_is_not_blamed_while_the_service_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, checks = Gate(), threading.Semaphore(0)
    check = EdgeProtocol._check_body_rate

    def counted_check(protocol: EdgeProtocol) -> None:
        check(protocol)
        checks.release()

    monkeypatch.setattr(EdgeProtocol, "_check_body_rate", counted_check)
    with serving(make_app(gate), request_body_grace_ms=20) as server, server.connect() as connection:
        # More than is taken in before the application asks for it.
        body = b"x" * 8 * MIB
        request = b"POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        sender = threading.Thread(target=connection.send, args=(request,))
        sender.start()
        for _ in range(3):
            assert checks.acquire(timeout=10)
        server.call(gate.open.set)
        assert json.loads(connection.read_answer().body) == len(body)
        sender.join()


# Connections


def test_connections_above_the_limits_are_turned_away(gate: Gate) -> None:
    with serving(make_app(gate), connections_per_address_max=2) as server:
        with server.connect() as first, server.connect() as second:
            for connection in (first, second):
                connection.send(get())
                assert connection.read_answer().status == 200
            with server.connect() as third:
                answer = third.read_answer()
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert problem_in(answer)["code"] == "overloaded"
        server.wait_until(lambda: not server.server.server_state.connections)
        assert server.request(get()).status == 200
    with serving(make_app(gate), connections_max=1) as server, server.connect() as first:
        first.send(get())
        assert first.read_answer().status == 200
        assert server.request(b"").status == 503


# Pipelines


def test_pipelined_requests_are_answered_in_order(gate: Gate) -> None:
    gate = Gate()
    with serving(make_app(gate)) as server, server.connect() as connection:
        connection.send(get("/wait/1") + get("/hello") + get("/wait/2"))
        assert gate.entered.acquire(timeout=10)
        server.call(gate.open.set)
        assert [connection.read_answer().body for _ in range(3)] == [b"1", b"hello", b"2"]


def test_a_bad_request_behind_a_good_one_waits_for_its_turn(gate: Gate) -> None:
    gate = Gate()
    with serving(make_app(gate)) as server, server.connect() as connection:
        connection.send(get("/wait/1") + b"GET / HTTP/3\r\n\r\n")
        assert gate.entered.acquire(timeout=10)
        server.call(gate.open.set)
        assert connection.read_answer().body == b"1"
        assert connection.read_answer().status == 400
        assert connection.is_closed()


def test_a_bad_body_behind_a_good_request_waits_for_its_turn(gate: Gate) -> None:
    gate = Gate()
    with serving(make_app(gate)) as server, server.connect() as connection:
        connection.send(
            get("/wait/1") + b"POST /length HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nX\r\n"
        )
        assert gate.entered.acquire(timeout=10)
        server.call(gate.open.set)
        assert connection.read_answer().body == b"1"
        assert connection.read_answer().status == 400


def test_too_many_pipelined_requests_are_refused_after_those_that_fit(gate: Gate) -> None:
    gate = Gate()
    with serving(make_app(gate)) as server, server.connect() as connection:
        connection.send(get("/wait/1"))
        assert gate.entered.acquire(timeout=10)
        connection.send(get() * (PIPELINED_REQUESTS_MAX + 100))
        server.call(gate.open.set)
        statuses = []
        while not statuses or (statuses[-1] == 200 and len(statuses) < PIPELINED_REQUESTS_MAX + 101):
            statuses.append(connection.read_answer().status)
        # Pieces of the socket decide how many fit; none is lost, and a refusal is the last word.
        assert statuses == [200] * (PIPELINED_REQUESTS_MAX + 101) or statuses[-1] == 503
        assert statuses.count(200) >= PIPELINED_REQUESTS_MAX


# The application's end of it


def test_a_client_that_goes_is_noticed() -> None:
    gate = Gate()
    with serving(make_app(gate)) as server:
        tasks = server.server.server_state.tasks
        with server.connect() as connection:
            connection.send(b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
            assert gate.entered.acquire(timeout=10)
            assert len(tasks) == 1
        server.wait_until(lambda: not tasks)


def test_an_application_that_is_cut_off_at_shutdown_answers_503(gate: Gate) -> None:
    gate = Gate()
    connection: Connection
    with serving(make_app(gate)) as server:
        connection = server.connect()
        connection.send(get("/wait/1"))
        assert gate.entered.acquire(timeout=10)
    with connection:
        answer = connection.read_answer()
        assert answer.status == 503
        assert problem_in(answer)["code"] == "shutting_down"


def test_a_reset_in_the_middle_of_a_request_leaves_nothing_behind(server: RunningServer) -> None:
    with server.connect() as connection:
        connection.send(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert server.request(get()).status == 200
    server.wait_until(lambda: not server.server.server_state.tasks)
