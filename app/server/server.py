"""One run of the service, from its sockets to its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from app.access.jwt_verifier import KeyFileError
from app.engine_local.partitions.partition_room import connections_within
from app.fast_path.declarations import FAST_PATH
from app.http.allowed_hosts import KnownHosts, rule_of
from app.http.connection.protocol import EdgeProtocol
from app.http.tls.tls import TlsError, server_context
from app.http.tls.tls_gate import Handshakes, gate_of
from app.main import build_routes, create_app
from app.server import log_output
from app.server.connections import protocol_class
from app.server.full_collections import short_collections
from app.settings import Settings, is_loopback
from log_model.errors import DirectoryLockedError, StorageError
from storage.disk.file_names import LOCK
from storage.disk.file_system import LocalFileSystem
from storage.manager.log_manager import LOGS_DIRECTORY

logger = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_LOCKED = 2

ACCEPTS_PER_TURN = 16
"""Connections that are accepted on one address in one iteration of the loop; see ``bind``."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotServeError(Exception):
    """The service cannot start; the message is a sentence for people."""

    def __init__(self, message: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.status = status


def serve(settings: Settings) -> int:
    """Run the service until SIGTERM, SIGHUP or SIGINT and return the exit status.

    Prints ``Rollway is ready at URL (data in DIR)`` on stdout, once, when requests for records are answered. If it
    cannot start, it prints one sentence on stderr. The first signal answers long polls, lets requests in progress end
    within ``shutdown_grace_ms`` and closes the logs cleanly. A second SIGINT does not wait for requests.

    Status 0: the service stopped cleanly. 1: it could not start, or was forced to stop. 2: another process holds the
    directory.
    """
    log_output.configure(settings.log_level, access_log=settings.access_log, log_format=settings.log_format)
    try:
        settings = _within_descriptors(settings)
        sockets = bind(settings)
    except CannotServeError as error:
        return _refuse(error)
    if not is_loopback(settings.host) and not settings.authentication:
        logger.warning(
            "listening on %s: every client that reaches this address can read, write and delete everything, "
            "as there is no authentication",
            settings.host,
        )
    scheme = "https" if settings.tls_certificate else "http"
    url = url_of(settings.host, sockets[0].getsockname()[1], scheme)
    server: Server | None = None
    stack = contextlib.ExitStack()

    def announce() -> None:
        manager = app.state.service.parts.engine.manager
        stack.enter_context(short_collections(lambda: manager.factory.opened_count))
        # The parent process may have closed the pipe. That is no reason to stop.
        with contextlib.suppress(OSError):
            print(f"Rollway is ready at {url} (data in {settings.data_dir})", flush=True)  # noqa: T201 - the ready line

    def stop(error: Exception) -> None:
        assert server is not None
        server.failure = error
        server.should_exit = True

    try:
        app = create_app(settings, on_ready=announce, on_failure=stop)
        build_routes(app)
        server = Server(app, settings)
    except (KeyFileError, TlsError) as error:
        for listener in sockets:
            listener.close()
        return _refuse(CannotServeError(f"{error}."))
    try:
        with stack:
            server.run(sockets)
    finally:
        for listener in sockets:
            listener.close()
    if server.failure is not None:
        return _refuse(cannot_open(settings, server.failure))
    return EXIT_FAILED if server.force_exit or not server.started else EXIT_OK


def _refuse(error: CannotServeError) -> int:
    print(f"rollway: {error}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who started it
    return error.status


_REMEDIES = {
    errno.EROFS: ". The start has to write this file, because it is damaged or missing, or the stop before was not "
    "clean: make the disk writable for one start",
    errno.EIO: ". Read the system's log about the disk",
    errno.EACCES: ". Give it to the user that the service runs as",
}


def cannot_open(settings: Settings, error: Exception) -> CannotServeError:
    """Return the reason why the logs could not be opened, as a sentence and an exit status."""
    message = str(error).rstrip(".")
    match error:
        case DirectoryLockedError():
            return _locked(settings)
        case StorageError():
            return CannotServeError(f"The data directory {settings.data_dir} cannot be opened: {message}.")
        case OSError():
            place = error.filename or settings.data_dir
            remedy = _REMEDIES.get(error.errno or 0, "")
            return CannotServeError(
                f"The data directory {settings.data_dir} cannot be opened: {place}: {error.strerror or error}{remedy}."
            )
    logger.error("the logs could not be opened", exc_info=error)
    return CannotServeError(f"The data directory {settings.data_dir} cannot be opened: {message}.")


class Server(uvicorn.Server):
    """uvicorn's server. It stops long polls first, then connections, then logs."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        """Prepare the server; nothing is accepted yet.

        Raises:
            TlsError: a certificate cannot be used.
        """
        tls = server_context(settings)
        connections = protocol_class(settings, getattr(app.state, FAST_PATH, None))
        rule = None if issubclass(connections, EdgeProtocol) else rule_of(settings)
        self._handshakes: Handshakes | None = None
        accepted: type[asyncio.Protocol] = connections
        if tls is not None and issubclass(connections, EdgeProtocol):
            self._handshakes = Handshakes(connections, tls)
            accepted, tls = gate_of(self._handshakes), None
        config = uvicorn.Config(
            app if rule is None else KnownHosts(app, rule),
            http=accepted,
            loop="uvloop",
            ws="none",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            access_log=settings.access_log,
            ssl_context_factory=None if tls is None else lambda *_: tls,
            proxy_headers=False,
            server_header=False,
            backlog=settings.backlog,
            timeout_keep_alive=-(-settings.keep_alive_timeout_ms // 1000),
            timeout_graceful_shutdown=-(-settings.shutdown_grace_ms // 1000),
        )
        super().__init__(config)
        self.failure: Exception | None = None
        self._begin_shutdown: Callable[[], None] = app.state.begin_shutdown

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Release the long polls, then stop. The lifespan ends only after their connections have ended."""
        if not self.should_exit:
            self._begin_shutdown()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn's server does, without waiting for handshakes in progress."""
        if self._handshakes is not None:
            self._handshakes.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle the signals on the loop. uvicorn would raise them again at the end, so that status 0 is impossible.

        SIGHUP comes when a terminal is closed, and stops as cleanly as SIGTERM. Under ``nohup``, which ignores SIGHUP,
        it does nothing.
        """
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in taken:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Return a URL that can be opened here. A wildcard address is shown as the loopback address."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"


def bind(settings: Settings) -> list[socket.socket]:
    """Return listening sockets on every address of the host. Port 0 becomes one free port on all of them.

    Each address has ``ACCEPTS_PER_TURN`` descriptors of one socket, because an iteration of the loop accepts one
    connection on each descriptor. With one descriptor, a client behind a crowd would wait for all requests of the
    crowd: an accepted connection is answered before the next one is accepted.

    Raises:
        CannotServeError: the host does not exist, or the port is taken.
    """
    sockets: list[socket.socket] = []
    port = settings.port
    try:
        found = socket.getaddrinfo(
            settings.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if settings.tcp_congestion:
                _set_congestion_control(listener, settings.tcp_congestion)
            _bound_unsent_bytes(listener, settings.tcp_unsent_bytes_max)
            listener.bind((address[0], port, *address[2:]))
            # Two processes may be bound to one port until one of them listens. So listen before the loop runs.
            listener.listen(settings.backlog)
            port = listener.getsockname()[1]
        sockets += [listener.dup() for listener in sockets for _ in range(ACCEPTS_PER_TURN - 1)]
    except (OSError, UnicodeError, CannotServeError) as error:
        for listener in sockets:
            listener.close()
        if isinstance(error, CannotServeError):
            raise
        raise _cannot_bind(settings, error) from None
    return sockets


def _set_congestion_control(listener: socket.socket, name: str) -> None:
    """Choose the congestion control of future connections, which inherit that of their listener.

    Raises:
        CannotServeError: the kernel does not have it.
    """
    try:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        raise CannotServeError(f"TCP congestion control {name} cannot be used here: {error.strerror}.") from None


def _bound_unsent_bytes(listener: socket.socket, size_bytes: int) -> None:
    """Bound the unsent bytes that the kernel holds for each future connection, which inherits this of its listener.

    Otherwise a client that reads slowly fills megabytes of the kernel's memory, and a crowd of such clients fills all
    that TCP may have. Then the packets of every client wait. Bytes in flight do not count, so fast clients lose
    nothing.
    """
    # A system without the option holds more of an answer. That is no reason not to serve.
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size_bytes)


def _cannot_bind(settings: Settings, error: OSError | UnicodeError) -> CannotServeError:
    if isinstance(error, UnicodeError):
        # In a name that is looked up, a part between dots has 1 to 63 characters.
        return CannotServeError(f"Cannot listen on {settings.host} port {settings.port}: it cannot be a host's name.")
    if error.errno != errno.EADDRINUSE:
        return CannotServeError(f"Cannot listen on {settings.host} port {settings.port}: {error.strerror or error}.")
    # The same command twice takes the same port and the same directory. The message names the directory.
    logs = settings.data_dir / LOGS_DIRECTORY
    is_locked = False
    with contextlib.suppress(OSError):
        is_locked = LocalFileSystem().is_locked(logs / LOCK)
    if is_locked:
        return _locked(settings)
    return CannotServeError(
        f"Port {settings.port} of {settings.host} is taken by another program; choose another with --port."
    )


def _locked(settings: Settings) -> CannotServeError:
    """Return the refusal to share the data directory; it is named as the settings give it."""
    return CannotServeError(
        f"The data directory {settings.data_dir} is in use by another process; "
        "stop it or choose another directory and port.",
        EXIT_LOCKED,
    )


def _within_descriptors(settings: Settings) -> Settings:
    """Raise the limit of descriptors as far as the system allows, and return settings that fit into it.

    Each open file and each connection takes a descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    connections_max = connections_within(soft)
    if soft == resource.RLIM_INFINITY or settings.connections_max <= connections_max:
        return settings
    is_chosen = "connections_max" in settings.model_fields_set
    logger.log(
        logging.WARNING if is_chosen else logging.DEBUG,
        "this system allows %d open files, so at most %d connections are taken, not %d",
        soft,
        connections_max,
        settings.connections_max,
    )
    return settings.model_copy(update={"connections_max": connections_max})
