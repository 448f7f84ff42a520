"""How long the loop is held by each hostile input, in CPU time of its thread: `make loop-test`.

Ends with 1 when a turn of the loop takes more than 100 ms. CI asserts what is counted instead
(`test_hostile_inputs.py`): times belong to the machine that is measured on. CPU time, not the clock: what other
processes take does not count, nor does waiting for the interpreter's lock.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx

from app.main import build_routes
from app.server.full_collections import short_collections
from tests.failures import hostile_inputs
from tests.failures.hostile_inputs import BODIES, BOMBS, FETCHES, read_on, store
from tests.support.servers import ThreadedServer, http_client

TURN_MS_MAX = 100.0
MANY = 1_000
"""Partitions of one topic."""
MANY_TOPICS = 300


class Turns:
    """Measures each turn of a loop from one of its callbacks to the next. It keeps the loop turning all the time."""

    def __init__(self, server: ThreadedServer) -> None:
        loop = server.service.loop
        assert loop is not None
        self._loop = loop
        self._server = server
        self._before = 0.0
        self._longest = 0.0
        self._count = 0
        self._is_over = False
        server.call(self._begin)

    def _begin(self) -> None:
        self._before = time.thread_time()
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._before)
        self._before = now
        self._count += 1
        if not self._is_over:
            self._loop.call_soon(self._tick)

    def take(self) -> tuple[float, int]:
        """The longest turn since this was last called, in ms, and how many there were."""
        found: list[tuple[float, int]] = []

        def take() -> None:
            found.append((1000 * self._longest, self._count))
            self._longest, self._count = 0.0, 0

        self._server.call(take)
        return found[0]

    def end(self) -> None:
        """Let the loop rest."""
        self._is_over = True


class Measured(NamedTuple):
    """One input: the longest turn while it was answered, how many turns, the last status."""

    longest_ms: float
    turn_count: int
    status: int
    name: str


def measure(data_dir: Path) -> list[Measured]:
    """Every input of the table, twice: the fast path knows what it has seen."""
    rows: list[Measured] = []
    with (
        ThreadedServer(data_dir, **hostile_inputs.SETTINGS) as server,
        http_client(server.url) as client,
        short_collections(lambda: server.service.parts.engine.manager.created_partition_count),
    ):
        client.put("/v1/topics/bodies", json={"config": {"flush.policy": "interval"}}).raise_for_status()
        # As `rollway serve` does.
        build_routes(server.app)
        turns = Turns(server)

        def note(name: str, ask: Callable[[], httpx.Response]) -> None:
            turns.take()
            statuses = [ask().status_code for _ in range(2)]
            rows.append(Measured(*turns.take(), statuses[-1], name))

        for bomb in BOMBS:
            turns.take()
            path = store(client, bomb)
            rows.append(Measured(*turns.take(), 200, f"produce {bomb.name}"))
            for name, query, headers in FETCHES:
                note(f"fetch {bomb.name} {name}", lambda: client.get(f"{path}/{query}", headers=headers))  # noqa: B023
            turns.take()
            statuses = [answer.status_code for answer in read_on(client, path, "offset=OFFSET", {})]
            rows.append(Measured(*turns.take(), statuses[-1], f"read past {bomb.name}"))
        for body in BODIES:
            content, headers = body.content(), {"Content-Type": "application/json", **body.headers}
            note(
                f"body {body.name}",
                lambda: client.request(body.method, body.path, content=content, headers=headers),  # noqa: B023
            )
        measure_many_partitions(client, note)
        turns.end()
    return rows


def measure_many_partitions(client: httpx.Client, note: Callable[[str, Callable[[], httpx.Response]], None]) -> None:
    """Requests whose work grows with partitions and topics, known and unknown."""
    wide = {"topic": "wide", "records": [{"value": "x"}]}
    parts = {"partitions": [{**wide, "partition": number} for number in range(MANY)]}
    unknown = [{"topic": f"unknown-{number // 100}", "partition": number % 100} for number in range(9_000)]
    fetched = {"partitions": [{**one, "fetch_offset": 0} for one in unknown]}
    asked = {"queries": [{**one, "timestamp": "latest"} for one in unknown[:MANY]]}
    path = "/v1/topics/wide"
    note("topic of many partitions", lambda: client.put(path, json={"partitions": MANY}, timeout=120))
    note("produce to many partitions", lambda: client.post("/v1/produce", json=parts))
    note("produce to many partitions, atomic", lambda: client.post("/v1/produce?atomic=true", json=parts))
    note("describe many partitions", lambda: client.get(path))
    note("list many partitions", lambda: client.get(f"{path}/partitions"))
    note("plan of many partitions", lambda: client.get(f"{path}/retention/plan"))
    note("configure many partitions", lambda: client.patch(path, json={"config": {"retention.ms": 1_000_000}}))
    note("more than many partitions", lambda: client.patch(path, json={"partitions": MANY + 10}))
    note("fetch unknown partitions", lambda: client.post("/v1/fetch", json=fetched))
    note("offsets of unknown partitions", lambda: client.post("/v1/offsets", json=asked))
    note("delete many partitions", lambda: client.delete(path, timeout=120))
    for number in range(MANY_TOPICS):
        client.put(f"/v1/topics/many-{number}").raise_for_status()
    note("list many topics", lambda: client.get("/v1/topics?limit=1000"))


def main() -> int:
    """Measure, and say what takes longest."""
    with tempfile.TemporaryDirectory() as directory:
        rows = sorted(measure(Path(directory) / "data"), reverse=True)
    print(f"{len(rows)} inputs; CPU time of the loop's thread in the longest turn of each, the 20 longest:")
    for row in rows[:20]:
        print(f"{row.longest_ms:8.1f} ms  {row.turn_count:8d} turns  {row.status}  {row.name}")
    longest = rows[0]
    print(f"longest turn: {longest.longest_ms:.1f} ms ({longest.name}); at most {TURN_MS_MAX:.0f} ms are allowed")
    return int(longest.longest_ms > TURN_MS_MAX)


if __name__ == "__main__":
    sys.exit(main())
