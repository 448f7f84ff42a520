"""Raw sockets that speak just enough of a peer's protocol: whole requests go out, whole answers are counted.

As in ``bench.closed_loop`` a client never sleeps for an answer but asks again and again, lest waking up be measured.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.closed_loop import connect as connect
from bench.machine import running_on
from bench.peers.peer import BATCH_MESSAGES, IDLE, CannotRunError

START_SECONDS_MAX = 60.0
RECEIVE_BYTES = 1024 * 1024
_PIECE = memoryview(bytearray(RECEIVE_BYTES))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


class CountedWork:
    """A request whose answer is whole once it has a token often enough, and ``is_whole`` agrees."""

    def __init__(
        self,
        connection: socket.socket,
        request: bytes,
        token: bytes,
        enough: int,
        is_whole: Callable[[bytearray], bool] = lambda _: True,
    ) -> None:
        self._connection = connection
        self.request = request
        self._token = token
        self._enough = enough
        self._is_whole = is_whole

    def send(self) -> None:
        self._connection.sendall(self.request)

    def finish(self) -> int:
        answer = bytearray()
        found = 0
        while found < self._enough or not self._is_whole(answer):
            # A token may lie across two pieces; what was looked at before is not looked at again.
            start = max(0, len(answer) - len(self._token) + 1)
            receive_into(self._connection, answer)
            found += answer.count(self._token, start)
        return BATCH_MESSAGES


class HttpWork:
    """A request over HTTP with a small answer."""

    def __init__(self, connection: socket.socket, request: bytes) -> None:
        self._connection = connection
        self._request = request

    def send(self) -> None:
        self._connection.sendall(self._request)

    def finish(self) -> int:
        answer = bytearray()
        while not is_whole_http(answer):
            receive_into(self._connection, answer)
        return BATCH_MESSAGES


class FixedWork:
    """A request that is answered by as many bytes each time: the first answer's, which ``is_whole`` tells."""

    def __init__(
        self, connection: socket.socket, request: bytes, is_whole: Callable[[bytearray], bool], messages: int
    ) -> None:
        self._connection = connection
        self._request = request
        self._messages = messages
        self._buffer = memoryview(bytearray(8 * RECEIVE_BYTES))
        answer = bytearray()
        self.send()
        while not is_whole(answer):
            receive_into(connection, answer)
        self.answer = bytes(answer)

    def send(self) -> None:
        self._connection.sendall(self._request)

    def finish(self) -> int:
        missing = len(self.answer)
        while missing:
            received = IDLE.receive(self._connection.recv_into, self._buffer[:missing])
            if not received:
                raise ConnectionError("the peer closed the connection")
            missing -= received
        return self._messages


def receive_into(connection: socket.socket, answer: bytearray) -> None:
    """Append what is there to ``answer``.

    Raises:
        ConnectionError: the peer closed.
    """
    received = IDLE.receive(connection.recv_into, _PIECE)
    if not received:
        raise ConnectionError("the peer closed the connection")
    answer += _PIECE[:received]


def is_whole_http(answer: bytearray) -> bool:
    """Whether an answer with a Content-Length is complete.

    Raises:
        CannotRunError: it is no success.
    """
    head, end, body = bytes(answer).partition(b"\r\n\r\n")
    if not end:
        return False
    if head[9:10] != b"2":
        raise CannotRunError(f"A request was answered {bytes(answer[9:300])!r}.")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
    return b"transfer-encoding: chunked" in head.lower() and body.endswith(b"0\r\n\r\n")


class Started:
    """A server's process on its core, that listens when this is made; ``stop`` ends it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        directory: Path,
        cores: frozenset[int],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Raises CannotRunError when it ends or does not listen in time."""
        self.name = name
        self.address = ("127.0.0.1", port)
        log = directory / "output.log"
        with log.open("ab") as output, running_on(cores):
            self._process = subprocess.Popen(
                list(command), cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(self.address, timeout=1):
                return
            if self._process.poll() is not None:
                last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
                raise CannotRunError(f"{name} ended with status {self._process.returncode}: {last[0][:200]}")
            if time.monotonic() > deadline:
                self.stop()
                raise CannotRunError(f"{name} does not listen after {START_SECONDS_MAX:.0f} s.")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, seconds: float = 20) -> None:
        """Send SIGTERM, and SIGKILL to a process that has not ended after this many seconds."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended."""
        self._process.kill()
        self._process.wait()
