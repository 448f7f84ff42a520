"""Hundreds of TLS clients that say hello at the same moment: each costs a signature, and all came in one turn."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

from app.http.tls.tls_gate import HELLOS_PER_TURN, Handshakes
from tests.failures.test_third_attack_tls import secured
from tests.failures.turn_counts import TurnCounts

CLIENT_COUNT = 5 * HELLOS_PER_TURN


def hello_of(context: ssl.SSLContext) -> bytes:
    """The first message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_hellos_that_come_together_are_answered_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(tmp_path) as made, contextlib.ExitStack() as stack:
        counts = TurnCounts(monkeypatch)
        counts.watch_steps(Handshakes, "_begin_tls")
        hello = hello_of(made.context)
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", made.server.port), timeout=20))
            for _ in range(CLIENT_COUNT)
        ]
        while len(made.server.handshakes) < CLIENT_COUNT:
            made.server.call(lambda: None)
        # TLS has not begun for any of them.
        assert counts.all["_begin_tls"] == 0

        def say_hello() -> None:
            for client in clients:
                client.sendall(hello)

        # On the loop's thread: its next turn finds all of them.
        made.server.call(say_hello)
        for client in clients:
            # A handshake record.
            assert client.recv(1) == b"\x16"
        assert counts.all["_begin_tls"] == CLIENT_COUNT
        # Those whose turn came at once, and as many that had waited.
        assert counts.most["_begin_tls"] <= 2 * HELLOS_PER_TURN


def test_a_client_that_leaves_before_its_hello_is_forgotten(tmp_path: Path) -> None:
    with secured(tmp_path) as made:
        with socket.create_connection(("127.0.0.1", made.server.port)):
            while not len(made.server.handshakes):
                made.server.call(lambda: None)
        while len(made.server.handshakes):
            made.server.call(lambda: None)
        with made.connect() as connection:
            connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.read_head()[0] == 200
