"""The sockets that the service listens on."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvloop

from app.server.server import ACCEPTS_PER_TURN, bind
from app.settings import Settings

CROWD = 4 * ACCEPTS_PER_TURN


class Accepted(asyncio.Protocol):
    """Counts connections."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Accepted.count += 1
        transport.close()


def test_a_crowd_of_connections_is_accepted_in_a_few_turns_of_the_loop() -> None:
    sockets = bind(Settings(port=0, backlog=2 * CROWD))
    port = sockets[0].getsockname()[1]

    async def scenario() -> int:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Accepted, sock=listener) for listener in sockets]
        turns = 0
        while Accepted.count < CROWD:
            await asyncio.sleep(0)
            turns += 1
        for server in servers:
            server.close()
            await server.wait_closed()
        return turns

    Accepted.count = 0
    with contextlib.ExitStack() as stack:
        for listener in sockets:
            stack.enter_context(listener)
        for _ in range(CROWD):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        turns = uvloop.run(scenario())
    # One of them alone would take a turn for each. The loop does not poll in every turn.
    assert turns < CROWD // 2, turns


def test_all_sockets_of_an_address_are_one_port() -> None:
    sockets = bind(Settings(port=0))
    with contextlib.ExitStack() as stack:
        for listener in sockets:
            stack.enter_context(listener)
        addresses = {listener.getsockname() for listener in sockets}
        assert (len(sockets), len(addresses)) == (ACCEPTS_PER_TURN, 1)
