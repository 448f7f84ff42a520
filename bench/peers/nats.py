"""NATS JetStream: publishing with acknowledgements, and a pull consumer without them."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from typing import Any, Self

from bench.peers import packages
from bench.peers.peer import (
    BATCH_MESSAGES,
    CONNECTIONS,
    FILL_BATCHES,
    CannotRunError,
    Figures,
    Surroundings,
    Way,
    closed_loop,
    messages,
)
from bench.peers.sockets import CountedWork, Started, connect, free_port, receive_into

STREAM = "bench"
SUBJECT = "b"
# {"stream":"bench", "seq":17}; one that failed has {"error":...}, is never counted, and so never ends.
_ACKNOWLEDGED = b'"seq":'
_DELIVERED = b"$JS.ACK"
_REPLY = re.compile(rb"MSG i\.c 1 \d+\r\n(\{.*\})\r\n", re.DOTALL)
_CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


class Nats:
    name = "NATS JetStream"
    batching = "500 PUB in one write; each message has an acknowledgement of its own"

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._server: Started | None = None
        self._program = ""

    def __enter__(self) -> Self:
        around = self._surroundings
        self._program, environment = packages.debian(
            "nats-server", ["nats-server"], around.cache, may_install=around.may_install
        )
        port = free_port()
        directory = around.directory / "nats"
        directory.mkdir(parents=True)
        command = [self._program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "data")]
        self._server = Started(self.name, command, port, directory, around.cores.server, environment)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def version(self) -> str:
        said = subprocess.run([self._program, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"v(\d\S+)", said)
        return found[1] if found else ""

    def ways(self, message_bytes: int) -> Iterator[Way]:
        server = self._server
        assert server is not None
        _make_stream(server)
        yield Way("append", "PUB", "written", lambda seconds: _append(server, message_bytes, seconds))
        _make_stream(server)
        _fill(server, message_bytes, self._surroundings.scale)
        yield Way("fetch", "pull consumer", "", lambda seconds: _fetch(server, seconds, self._surroundings.scale))


def _open(address: tuple[str, int]) -> socket.socket:
    """A connection whose inbox is ``i``."""
    connection = connect(address)
    connection.sendall(_CONNECT + b"SUB i.* 1\r\nPING\r\n")
    answer = bytearray()
    # The server may say PING right behind it.
    while b"PONG\r\n" not in answer:
        receive_into(connection, answer)
    return connection


def _call(server: Started, api: str, document: dict[str, Any]) -> dict[str, Any]:
    """One request to JetStream.

    Raises:
        CannotRunError: it was refused.
    """
    body = json.dumps(document).encode()
    with _open(server.address) as connection:
        connection.sendall(b"PUB $JS.API.%b i.c %d\r\n%b\r\n" % (api.encode(), len(body), body))
        answer = bytearray()
        # The server may say PING before and after it.
        while (found := _REPLY.search(answer)) is None:
            receive_into(connection, answer)
    said: dict[str, Any] = json.loads(found[1])
    if "error" in said and api != f"STREAM.DELETE.{STREAM}":
        raise CannotRunError(f"JetStream refuses {api}: {said['error']}.")
    return said


def _make_stream(server: Started) -> None:
    _call(server, f"STREAM.DELETE.{STREAM}", {})
    config = {"name": STREAM, "subjects": [SUBJECT], "storage": "file", "retention": "limits", "max_msgs": 5_000_000}
    _call(server, f"STREAM.CREATE.{STREAM}", {**config, "discard": "old", "num_replicas": 1})


def _publish(message_bytes: int) -> bytes:
    return b"".join(b"PUB b i.a %d\r\n%b\r\n" % (len(each), each) for each in messages(message_bytes))


def _append(server: Started, message_bytes: int, seconds: float) -> Figures:
    request = _publish(message_bytes)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_open(server.address)) for _ in range(CONNECTIONS)]
        works = [CountedWork(each, request, _ACKNOWLEDGED, BATCH_MESSAGES) for each in opened]
        return closed_loop(server.pid, works, seconds)


def _fill(server: Started, message_bytes: int, scale: float) -> None:
    with _open(server.address) as connection:
        work = CountedWork(connection, _publish(message_bytes), _ACKNOWLEDGED, BATCH_MESSAGES)
        for _ in range(max(1, int(FILL_BATCHES * scale))):
            work.send()
            work.finish()


class _Pull:
    """Takes batch after batch from a consumer; one that is at the end is followed by a new one."""

    _numbers = itertools.count()

    def __init__(self, server: Started, connection: socket.socket, batches: int) -> None:
        self._server = server
        self._work = CountedWork(connection, b"", _DELIVERED, BATCH_MESSAGES, _is_whole)
        self._batches = batches
        self._left = 0

    def _make_consumer(self) -> None:
        name = f"c{next(self._numbers)}"
        config = {"durable_name": name, "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant"}
        _call(self._server, f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", {"stream_name": STREAM, "config": config})
        wanted = b'{"batch":%d,"expires":60000000000}' % BATCH_MESSAGES
        self._work.request = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b i.m %d\r\n%b\r\n" % (
            STREAM.encode(),
            name.encode(),
            len(wanted),
            wanted,
        )
        self._left = self._batches

    def send(self) -> None:
        if not self._left:
            self._make_consumer()
        self._left -= 1
        self._work.send()

    def finish(self) -> int:
        return self._work.finish()


def _is_whole(answer: bytearray) -> bool:
    """Whether the last message has all its bytes."""
    start = answer.rindex(_DELIVERED)
    end = answer.find(b"\r\n", start)
    return end >= 0 and len(answer) >= end + 2 + int(answer[start:end].rpartition(b" ")[2]) + 2


def _fetch(server: Started, seconds: float, scale: float) -> Figures:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_open(server.address)) for _ in range(CONNECTIONS)]
        works = [_Pull(server, each, max(1, int(FILL_BATCHES * scale))) for each in opened]
        return closed_loop(server.pid, works, seconds)
