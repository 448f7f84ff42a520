"""A real server on loopback with the connections of the service and any application, in a thread of the test."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, Self

import uvicorn
from starlette.types import ASGIApp

from app.event_loop.turns import Turns
from app.server.connections import protocol_class
from app.settings import Settings
from tests.support.servers import RAW_HOSTS

TIMEOUT_SECONDS = 30.0


@dataclass
class Answer:
    """One answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    interim: list[int] = field(default_factory=list)


class Connection:
    """A client that sends exactly the bytes it is told to."""

    def __init__(
        self, port: int, *, receive_buffer_bytes: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_SECONDS)
        try:
            self.socket.connect(("127.0.0.1", port))
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        except OSError:
            self.socket.close()
            raise
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_over_and_over(self, data: bytes) -> NoReturn:
        """Send until the server has enough.

        Raises:
            ConnectionError: it has.
        """
        while True:
            self.socket.sendall(data)

    def read_some(self) -> bytes:
        rest, self._rest = self._rest, b""
        return rest or self.socket.recv(65536)

    def read_answer(self, *, is_head: bool = False) -> Answer:
        """The next answer, by its Content-Length; chunked ones are not read here."""
        interim: list[int] = []
        while True:
            status, headers = self.read_head()
            if status >= 200:
                break
            interim.append(status)
        length = 0 if is_head else int(headers.get("content-length", "0"))
        body = bytearray(self._rest)
        while len(body) < length:
            piece = self.socket.recv(65536)
            if not piece:
                raise ConnectionError(f"the answer ends after {len(body)} of {length} bytes")
            body += piece
        self._rest = bytes(body[length:])
        return Answer(status, headers, bytes(body[:length]), interim)

    def read_head(self) -> tuple[int, dict[str, str]]:
        head = self._rest
        while b"\r\n\r\n" not in head:
            piece = self.socket.recv(65536)
            if not piece or len(head) > 65536:
                raise ConnectionError(f"no whole head: {head[:200]!r}")
            head += piece
        head, _, self._rest = head.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = dict(each.split(": ", 1) for each in fields)
        return int(line.split()[1]), {name.lower(): value for name, value in headers.items()}

    def read_to_end(self) -> bytes:
        """Everything until the server closes; a reset is an end too."""
        pieces = [self._rest]
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                pieces.append(piece)
        self._rest = b""
        return b"".join(pieces)

    def is_closed(self) -> bool:
        """Wait for the server's end of the connection; whatever else comes makes this false."""
        try:
            return not self.read_some()
        except ConnectionResetError:
            return True


class RunningServer:
    """The server behind a port."""

    def __init__(self, server: uvicorn.Server, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.port = port
        self.loop = loop

    def connect(self, **options: Any) -> Connection:
        return Connection(self.port, **options)

    def request(self, data: bytes, *, is_head: bool = False) -> Answer:
        """Send one request on a connection of its own."""
        with self.connect() as connection:
            connection.send(data)
            return connection.read_answer(is_head=is_head)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once ``condition`` holds, which is asked on the server's loop between other things."""

        async def wait() -> None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not condition():  # noqa: ASYNC110 - conditions of other threads and sockets set no event
                    await asyncio.sleep(0.001)  # poll

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(TIMEOUT_SECONDS + 1)

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run ``function`` on the server's loop and return what it returns."""

        async def run() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(TIMEOUT_SECONDS)


class KeptTurns(Turns):
    """Nothing has its turn until a test lets it."""

    def __init__(self) -> None:
        super().__init__(1)
        self._kept: queue.Queue[Callable[[], object]] = queue.Queue()

    def take(self, _: asyncio.AbstractEventLoop, work: Callable[[], object]) -> None:
        self._kept.put(work)

    def next(self) -> Callable[[], object]:
        return self._kept.get(timeout=10)


@contextlib.contextmanager
def serving(
    app: ASGIApp,
    *,
    http: type[asyncio.Protocol] | Literal["h11", "httptools"] | None = None,
    loop: str = "uvloop",
    lifespan: Literal["on", "off"] = "off",
    **limits: Any,
) -> Iterator[RunningServer]:
    """Serve ``app`` with the settings ``limits``; ``http`` is another class of connections, or one of uvicorn's."""
    settings = Settings(**{"allowed_hosts": list(RAW_HOSTS), **limits})
    config = uvicorn.Config(
        app,
        http=http or protocol_class(settings),
        loop=loop,
        ws="none",
        lifespan=lifespan,
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    loops: list[asyncio.AbstractEventLoop] = []
    started = threading.Event()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        started.set()
        await server.serve(sockets=[listener])

    def main() -> None:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(run())

    thread = threading.Thread(target=main, name="edge server", daemon=True)
    thread.start()
    assert started.wait(TIMEOUT_SECONDS)
    try:
        yield RunningServer(server, listener.getsockname()[1], loops[0])
    finally:
        server.should_exit = True
        thread.join(TIMEOUT_SECONDS)
        listener.close()
        assert not thread.is_alive()
