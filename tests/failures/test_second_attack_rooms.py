"""Who waits for memory to decode and parse in: requests whose clients have gone, or may have, hold up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import httpx
import pytest

from app.http.bodies.byte_budget import ByteBudget
from app.http.connection.parking import ClientGoneError
from app.problems import request_context
from app.problems.problem import Problem
from app.record_json import work_rooms
from app.record_json.work_rooms import SMALL_BYTES, WorkRooms
from rollway.records import Record
from tests.failures.hostile_inputs import batch_of
from tests.support.edge_server import Connection
from tests.support.servers import ThreadedServer

RAW = "application/vnd.kafka.record-batch.v2"
LARGE = SMALL_BYTES + 1


@dataclass
class FakeClient:
    name: str
    disconnected: bool = False
    is_impatient: bool = False

    async def give_way(self) -> None:
        """Nobody else is there."""


class Stand:
    """Rooms in which one request is at work, and others that wait."""

    def __init__(self) -> None:
        self.rooms = WorkRooms(LARGE, ByteBudget(LARGE, "answers"))
        self.entered: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.leave = asyncio.Event()

    async def occupy(self) -> asyncio.Task[None]:
        async def work() -> None:
            async with self.rooms.room(LARGE):
                await self.leave.wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        return task

    async def wait(self, client: FakeClient) -> None:
        async def work() -> None:
            request_context.client.set(client)
            async with self.rooms.room(LARGE):
                self.entered.append(client.name)

        self.tasks[client.name] = asyncio.ensure_future(work())
        await asyncio.sleep(0)

    async def end(self) -> dict[str, BaseException | None]:
        self.leave.set()
        outcomes = await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.rooms.held_bytes == 0
        assert self.rooms.waiting_count == 0
        return dict(zip(self.tasks, outcomes, strict=True))


def test_requests_of_clients_that_are_gone_take_no_room() -> None:
    async def scenario() -> None:
        stand = Stand()
        await stand.occupy()
        clients = [FakeClient(f"{number}") for number in range(4)]
        for client in clients:
            await stand.wait(client)
        clients[0].disconnected = clients[2].disconnected = True
        outcomes = await stand.end()
        assert stand.entered == ["1", "3"]
        assert [isinstance(error, ClientGoneError) for error in outcomes.values()] == [True, False, True, False]

    asyncio.run(scenario())


def test_requests_of_clients_that_may_be_gone_come_last() -> None:
    """A client that has given up looks like one that has only closed its sending side."""

    async def scenario() -> None:
        stand = Stand()
        await stand.occupy()
        clients = [FakeClient(f"{number}") for number in range(5)]
        for client in clients:
            await stand.wait(client)
        clients[0].is_impatient = clients[1].is_impatient = clients[3].is_impatient = True
        clients[3].disconnected = True
        await stand.end()
        assert stand.entered == ["2", "4", "0", "1"]

    asyncio.run(scenario())


def test_a_request_that_is_cancelled_lets_those_behind_it_go_on() -> None:
    async def scenario() -> None:
        stand = Stand()
        await stand.occupy()
        for number in range(3):
            await stand.wait(FakeClient(f"{number}"))
        stand.tasks["0"].cancel()
        outcomes = await stand.end()
        assert stand.entered == ["1", "2"]
        assert isinstance(outcomes["0"], asyncio.CancelledError)

    asyncio.run(scenario())


def test_places_to_wait_are_for_clients_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_rooms, "WAITING_COUNT_MAX", 3)

    async def scenario() -> None:
        stand = Stand()
        await stand.occupy()
        clients = [FakeClient(f"{number}") for number in range(3)]
        for client in clients:
            await stand.wait(client)
        await stand.wait(FakeClient("too many"))
        clients[0].disconnected = True
        await stand.wait(FakeClient("for one that is gone"))
        clients[1].is_impatient = clients[2].is_impatient = True
        await stand.wait(FakeClient("for the last that may be"))
        await stand.wait(FakeClient("may be gone itself", is_impatient=True))
        outcomes = await stand.end()
        refused = [name for name, error in outcomes.items() if isinstance(error, Problem) and error.status == 503]
        assert refused == ["2", "too many", "may be gone itself"]
        assert stand.entered == ["for one that is gone", "for the last that may be", "1"]

    asyncio.run(scenario())


def await_that(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline


def test_a_client_does_not_wait_for_those_that_closed(
    server: ThreadedServer, client: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that needs a large room was decoded for every client that had given up, before it was for one that had
    not: a hundred of them were a minute and a half."""
    rooms, loop = server.service.parts.rooms, server.service.loop
    assert loop is not None
    body = batch_of(Record(0, 1_700_000_000_000, None, b"x" * (work_rooms.SMALL_BATCH_BYTES + 1)))
    path = f"{topic}/partitions/0/records"
    assert client.post(path, content=body, headers={"Content-Type": RAW}).status_code == 200
    order: list[str] = []
    may_begin = asyncio.Event()
    room = rooms.room

    @contextlib.asynccontextmanager
    async def noted(size_bytes: int) -> AsyncIterator[None]:
        async with room(size_bytes):
            asked_by = request_context.client.get()
            if size_bytes > SMALL_BYTES and asked_by is not None:
                order.append("may be gone" if asked_by.is_impatient else "there")
            yield

    async def occupy() -> None:
        async with room(LARGE):
            await may_begin.wait()

    monkeypatch.setattr(rooms, "room", noted)
    tasks: list[asyncio.Task[None]] = []
    server.call(lambda: tasks.append(loop.create_task(occupy())))
    head = f"GET {path}?offset=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for number in range(1, 4):
        with Connection(server.port) as gone:
            gone.send(head)
            await_that(lambda count=number: rooms.waiting_count == count)  # type: ignore[misc]
    with Connection(server.port) as last:
        last.send(head)
        await_that(lambda: rooms.waiting_count == 4)
        server.call(may_begin.set)
        status, _ = last.read_head()
        assert status == 200
    await_that(lambda: len(order) == 4)
    assert order == ["there", *["may be gone"] * 3]
