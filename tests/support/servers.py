"""Real services for tests: in a thread, for speed, or as a process of its own, to be signalled and killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
from fastapi import FastAPI

from app.fast_path.declarations import FAST_PATH
from app.http.tls.tls_gate import Handshakes, TlsGate
from app.main import create_app
from app.server.server import Server, bind
from app.service.service import Service
from app.settings import Settings
from log_model.clock import Clock
from tests.support.engines import ENGINE, opening_of
from tests.support.forked_program import ForkedProgram

Result = TypeVar("Result")

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
RAW_HOSTS = ("a", "h", "x")
"""Names in the Host header of requests that tests write byte by byte."""
_COMMAND = "from app.cli import main; main()"
_READY = re.compile(r"ready at (https?://\S+)")


class _ServerWithoutSignals(Server):
    """Signals belong to the main thread, which is the test's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class ThreadedServer:
    """A service on a port of this machine, running in a thread of this process, on the engine that ENGINE names."""

    def __init__(
        self, data_dir: Path, *, clock: Clock | None = None, has_fast_path: bool = True, **settings: Any
    ) -> None:
        self.settings = Settings(data_dir=data_dir, port=0, **{"allowed_hosts": list(RAW_HOSTS), **settings})
        self._ready = threading.Event()
        self._app = create_app(
            self.settings,
            clock=clock,
            opening=opening_of(self.settings, clock),
            on_ready=self._ready.set,
            on_failure=self._fail,
        )
        if not has_fast_path:
            setattr(self._app.state, FAST_PATH, None)
        self._server = _ServerWithoutSignals(self._app, self.settings)
        self._sockets = bind(self.settings)
        self._thread = threading.Thread(target=self._server.run, args=(self._sockets,), name="server under test")
        self.failure: Exception | None = None
        scheme = "https" if self.settings.tls_certificate else "http"
        self.port: int = self._sockets[0].getsockname()[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    @property
    def service(self) -> Service:
        """The service behind the server, to look into from a test."""
        service: Service = self._app.state.service
        return service

    @property
    def app(self) -> FastAPI:
        """The application behind the server, to be asked without one."""
        return self._app

    @property
    def connection_class(self) -> Any:
        """The class of its connections."""
        accepted: Any = self._server.config.http
        return accepted.handshakes.connections if issubclass(accepted, TlsGate) else accepted

    @property
    def handshakes(self) -> Handshakes:
        """The handshakes under way, of a server that speaks TLS."""
        accepted: Any = self._server.config.http
        handshakes: Handshakes = accepted.handshakes
        return handshakes

    @property
    def connections(self) -> Any:
        """Its connections, of that class."""
        return self._server.server_state.connections

    def call(self, function: Callable[[], object]) -> None:
        """Run ``function`` on the server's loop, and raise what it raises."""
        loop = self.service.loop
        assert loop is not None

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), loop).result(START_SECONDS_MAX)

    def result_of(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await ``work`` on the server's loop; return its result."""
        loop = self.service.loop
        assert loop is not None
        return asyncio.run_coroutine_threadsafe(work, loop).result(START_SECONDS_MAX)

    @property
    def fast_path_count(self) -> int:
        """Requests that the fast path has answered."""
        count: int = getattr(self._app.state, FAST_PATH).answered_count
        return count

    def unsent_bytes_allowed(self, client: tuple[str, int]) -> int:
        """What the kernel may hold unsent for the connection of this client."""
        (transport,) = (
            connection.transport
            for connection in list(self._server.server_state.connections)
            if connection.transport.get_extra_info("peername") == client
        )
        size_bytes: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)
        return size_bytes

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._server.should_exit = True
        self._ready.set()

    def start(self) -> Self:
        """Return when the service is ready."""
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX)
        assert self.failure is None, self.failure
        return self

    def stop(self) -> None:
        """The way of SIGTERM: long polls answer, requests end, the logs close cleanly."""
        if self._thread.is_alive():
            loop = self.service.loop
            assert loop is not None
            loop.call_soon_threadsafe(self._server.handle_exit, signal.SIGTERM, None)
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive()
        for listener in self._sockets:
            listener.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerProcess:
    """`rollway serve` as a process of its own.

    It is forked from one that has its modules imported, which saves most of a start. With ``from_nothing`` it starts
    as a user starts it, for tests that look at the start itself or at its memory. ``command`` is what runs instead
    of ``rollway``, from nothing; ``program`` a module that does, with its first arguments, and is forked, too. It runs
    on the local engine: its tests have the mark ``needs_local``.
    """

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        program: Sequence[str] = (),
        from_nothing: bool = False,
    ) -> None:
        if ENGINE != "local":
            raise AssertionError("a process of its own has the local engine: the test lacks the mark needs_local")
        self.data_dir = data_dir
        self._output_path = data_dir.parent / f"{data_dir.name}.output"
        arguments = ("serve", "--data-dir", str(data_dir), "--port", "0", *arguments)
        environment = {**os.environ, "ROLLWAY_ALLOWED_HOSTS": ";".join(RAW_HOSTS), **(environment or {})}
        self._process: ForkedProgram | subprocess.Popen[str]
        if command is None and not from_nothing:
            module, *first = program or (None,)
            self._process = ForkedProgram(
                (*first, *arguments), errors=self._output_path, environment=environment, module=module
            )
        else:
            with self._output_path.open("ab") as output:
                self._process = subprocess.Popen(
                    [*(command or (sys.executable, "-c", _COMMAND)), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                    env=environment,
                )
        self.url = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> Self:
        """Return when the ready line is there."""
        line = self.read_line()
        found = _READY.search(line)
        assert found is not None, f"{line!r}; stderr: {self.errors()}"
        self.url = found[1]
        return self

    def read_line(self) -> str:
        """The next line of stdout; empty when there will be none."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return self._output_path.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until it has ended; its exit status."""
        status = self._process.wait(seconds)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self.wait()

    def kill_if_alive(self) -> None:
        """kill -9, unless it has ended already."""
        if self._process.poll() is None:
            self.kill()

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return _status_bytes(self.pid, "VmRSS")

    def peak_rss_bytes(self) -> int:
        """The most resident memory since the start or the last ``reset_peak_rss``."""
        return _status_bytes(self.pid, "VmHWM")

    def reset_peak_rss(self) -> None:
        """Let the peak begin at what is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()
        elif self._process.stdout is not None:
            self._process.stdout.close()


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/{pid}/status has no {name}")


@contextlib.contextmanager
def http_client(url: str, **options: Any) -> Iterator[httpx.Client]:
    """A client that gives up after half a minute."""
    with httpx.Client(base_url=url, timeout=30, **options) as client:
        yield client
