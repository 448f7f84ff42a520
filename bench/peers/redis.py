"""Redis Streams: XADD in pipelines, XRANGE. Its append-only file is written before an answer, and synced or not."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from typing import Self

from bench.peers import packages
from bench.peers.peer import (
    BATCH_MESSAGES,
    CONNECTIONS,
    FILL_BATCHES,
    Figures,
    Surroundings,
    Way,
    closed_loop,
    messages,
)
from bench.peers.sockets import CountedWork, FixedWork, Started, connect, free_port

_PACKAGES = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1"]
STREAM = b"bench"


class Redis:
    name = "Redis Streams"
    batching = "500 XADD in one pipeline; each message is an entry of its own"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._stack = contextlib.ExitStack()
        self._program = ""
        self._environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        around = self._surroundings
        self._program, self._environment = packages.debian(
            "redis-server", _PACKAGES, around.cache, may_install=around.may_install
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def version(self) -> str:
        said = subprocess.run(
            [self._program, "--version"], capture_output=True, text=True, check=False, env=self._environment
        ).stdout
        found = re.search(r"v=(\S+)", said)
        return found[1] if found else ""

    def ways(self, message_bytes: int) -> Iterator[Way]:
        with self._running("no") as server:
            yield Way("append", "XADD", "written to the AOF", lambda seconds: _append(server, message_bytes, seconds))
            _fill(server, message_bytes, self._surroundings.scale)
            yield Way("fetch", "XRANGE", "", lambda seconds: _fetch(server, seconds))
        with self._running("always") as server:
            yield Way("append", "XADD", "fsynced", lambda seconds: _append(server, message_bytes, seconds))

    @contextlib.contextmanager
    def _running(self, fsync: str) -> Iterator[Started]:
        around = self._surroundings
        port = free_port()
        directory = around.directory / f"redis-{port}"
        directory.mkdir(parents=True)
        options = ["--appendonly", "yes", "--appendfsync", fsync, "--save", "", "--port", str(port)]
        options += ["--bind", "127.0.0.1", "--auto-aof-rewrite-percentage", "0"]
        command = [self._program, *options]
        server = Started(self.name, command, port, directory, around.cores.server, self._environment)
        try:
            yield server
        finally:
            server.stop()


def _command(*arguments: bytes) -> bytes:
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in arguments)


def _pipeline(message_bytes: int) -> bytes:
    # Only the newest entries stay in memory; all of them are written to the file.
    trimmed = (b"XADD", STREAM, b"MAXLEN", b"~", b"200000", b"*", b"v")
    return b"".join(_command(*trimmed, message) for message in messages(message_bytes))


def _lines(answer: bytearray) -> int:
    return answer.count(b"\r\n")


def _append(server: Started, message_bytes: int, seconds: float) -> Figures:
    pipeline = _pipeline(message_bytes)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        # Each entry is answered by its id: a length and a line.
        works = [CountedWork(each, pipeline, b"\r\n", 2 * BATCH_MESSAGES) for each in connections]
        return closed_loop(server.pid, works, seconds)


def _fill(server: Started, message_bytes: int, scale: float) -> None:
    with connect(server.address) as connection:
        work = CountedWork(connection, _pipeline(message_bytes), b"\r\n", 2 * BATCH_MESSAGES)
        for _ in range(max(1, int(FILL_BATCHES * scale))):
            work.send()
            work.finish()


def _fetch(server: Started, seconds: float) -> Figures:
    request = _command(b"XRANGE", STREAM, b"-", b"+", b"COUNT", b"%d" % BATCH_MESSAGES)
    # One line for the list; for each entry its list, its id in two, the list of fields, "v" in two, the value in two.
    lines = 1 + 8 * BATCH_MESSAGES
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server.address)) for _ in range(CONNECTIONS)]
        works = [
            FixedWork(each, request, lambda answer: _lines(answer) >= lines, BATCH_MESSAGES) for each in connections
        ]
        return closed_loop(server.pid, works, seconds)
