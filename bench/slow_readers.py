"""A crowd of clients that take their answers slowly, or never finish their requests: one thread, one selector."""

from __future__ import annotations

import http.client
import selectors
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

# The smallest the kernel gives: what a reader has not taken stays with the service.
RECEIVE_BUFFER_BYTES = 4096
PIECE_BYTES = 256 * 1024
HEAD_BYTES_MAX = 64 * 1024


class WrongAnswerError(Exception):
    """An answer is not what was asked for; the message says where it differs."""


@dataclass(slots=True)
class _Reader:
    """One connection, and how far its answer has come."""

    connection: socket.socket
    head: bytes = b""
    is_in_body: bool = False
    taken_bytes: int = 0


class SlowReaders:
    """Connections that all ask for the same answer and compare what they take with it, byte by byte.

    They read only in ``sip`` and ``drain``. Use it as a context.
    """

    def __init__(self, address: tuple[str, int], request: bytes, expected: bytes, *, source: str = "127.0.0.1") -> None:
        self._address = address
        self._request = request
        self._expected = expected
        self._source = source
        self._readers: list[_Reader] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self._readers:
            reader.connection.close()

    def connect(self, count: int) -> None:
        """Open ``count`` more connections and send their requests; nothing is read yet."""
        for _ in range(count):
            connection = socket.socket()
            self._readers.append(_Reader(connection))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            connection.bind((self._source, 0))
            connection.connect(self._address)
            connection.sendall(self._request)
            connection.setblocking(False)

    @property
    def taken_bytes(self) -> Sequence[int]:
        """How many bytes of its answer's body each reader has."""
        return [reader.taken_bytes for reader in self._readers]

    def sip(self, size_bytes: int) -> int:
        """Let every reader take at most ``size_bytes`` of what is there for it; how many bytes that were."""
        return sum(self._take(reader, size_bytes) for reader in self._readers)

    def wait_for_first_bytes(self, timeout_seconds: float = 60.0) -> None:
        """Return when every reader has the beginning of its answer's body.

        Raises:
            TimeoutError: nothing came to any of the rest for so long.
            WrongAnswerError: an answer is not 200, or differs.
        """
        for reader in self._ready([each for each in self._readers if not each.taken_bytes], timeout_seconds, 1):
            self._take(reader, 1024)

    def wait_until_all_have_more(self, before: Sequence[int], timeout_seconds: float = 60.0) -> None:
        """Return when every reader has more than ``before``, or all there is; each takes a little at a time.

        Raises:
            TimeoutError: nothing came to any of the rest for so long.
            WrongAnswerError: an answer differs.
        """
        for reader, old_bytes in zip(self._readers, before, strict=True):
            enough_bytes = min(old_bytes + 1, len(self._expected))
            for ready in self._ready([reader], timeout_seconds, enough_bytes):
                self._take(ready, 1024)

    def drain(self, count: int | None = None, timeout_seconds: float = 60.0) -> None:
        """Let the first ``count`` readers, or all, take the rest of their answers as fast as they can.

        Raises:
            TimeoutError: nothing came to any of them for so long.
            WrongAnswerError: an answer differs, or ended early.
        """
        for reader in self._ready(self._readers[:count], timeout_seconds, len(self._expected)):
            self._take(reader, PIECE_BYTES)

    def _ready(self, readers: Sequence[_Reader], timeout_seconds: float, enough_bytes: int) -> Iterator[_Reader]:
        """Readers that can read, again and again, until each of them has ``enough_bytes``."""
        with selectors.EpollSelector() as selector:
            missing = 0
            for reader in readers:
                if reader.taken_bytes < enough_bytes:
                    selector.register(reader.connection, selectors.EVENT_READ, reader)
                    missing += 1
            while missing:
                events = selector.select(timeout_seconds)
                if not events:
                    raise TimeoutError(f"{missing} readers get nothing more")
                for key, _ in events:
                    yield key.data
                    if key.data.taken_bytes >= enough_bytes:
                        selector.unregister(key.fileobj)
                        missing -= 1

    def _take(self, reader: _Reader, size_bytes: int) -> int:
        try:
            piece = reader.connection.recv(size_bytes)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise WrongAnswerError(f"cut off after {reader.taken_bytes} bytes: {error}") from None
        if not piece and reader.taken_bytes < len(self._expected):
            raise WrongAnswerError(f"the answer ended after {reader.taken_bytes} of {len(self._expected)} bytes")
        return self._check(reader, piece if reader.is_in_body else self._behind_head(reader, piece))

    def _behind_head(self, reader: _Reader, piece: bytes) -> bytes:
        reader.head += piece
        head, end, body = reader.head.partition(b"\r\n\r\n")
        if not end:
            if len(head) > HEAD_BYTES_MAX:
                raise WrongAnswerError("a head without an end")
            return b""
        if not head.startswith(b"HTTP/1.1 200 "):
            raise WrongAnswerError(f"the answer is {head[:200]!r} {body[:500]!r}")
        reader.head, reader.is_in_body = b"", True
        return body

    def _check(self, reader: _Reader, body: bytes) -> int:
        start = reader.taken_bytes
        if body != self._expected[start : start + len(body)]:
            raise WrongAnswerError(f"the answer differs somewhere in its bytes {start} to {start + len(body)}")
        reader.taken_bytes += len(body)
        return len(body)


class HalfSentRequests:
    """Connections that have sent a part of a request and then say nothing. Use it as a context."""

    def __init__(
        self, address: tuple[str, int], *, source: str = "127.0.0.1", receive_buffer_bytes: int | None = None
    ) -> None:
        self._address = address
        self._source = source
        self._receive_buffer_bytes = receive_buffer_bytes
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()

    def send(self, part: bytes, count: int) -> None:
        """Open ``count`` more connections and send ``part`` on each, as far as the service takes it at once."""
        for _ in range(count):
            connection = socket.socket()
            self._connections.append(connection)
            if self._receive_buffer_bytes is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            connection.bind((self._source, 0))
            connection.connect(self._address)
            connection.setblocking(False)
            sent = 0
            while sent < len(part):
                with selectors.DefaultSelector() as selector:
                    selector.register(connection, selectors.EVENT_WRITE)
                    if not selector.select(0.2):
                        break
                try:
                    sent += connection.send(part[sent : sent + PIECE_BYTES])
                except ConnectionError:
                    # Refused already; the answer is there to be read.
                    break

    def finish(self, rest: bytes) -> list[bytes]:
        """Send ``rest`` on every connection; the beginnings of the answers, in order."""
        for connection in self._connections:
            connection.settimeout(60)
            connection.sendall(rest)
        return [connection.recv(65_536) for connection in self._connections]

    def answers_there(self) -> list[bytes]:
        """What each connection has been answered by now, empty where nothing was."""
        return [_received(connection) for connection in self._connections]

    def read_answer(self, number: int) -> tuple[int, bytes]:
        """Status and whole body of the answer on connection ``number``."""
        connection = self._connections[number]
        connection.settimeout(60)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


def _received(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    try:
        return connection.recv(65_536)
    except (BlockingIOError, ConnectionError):
        return b""
