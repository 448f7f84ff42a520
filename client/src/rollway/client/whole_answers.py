"""Connections that detect a truncated response.

Python's HTTP client takes the end of a connection for the end of the headers. A truncated response could then count as
a success with a shorter number in a header, or without records. Here it is an error like any other broken connection.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import socket
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ProtocolError

HEAD_LINES_MAX = 1_000
"""Lines of a response's head and of the interim responses before it. Python's client takes 100 headers in each."""
_WITHOUT_CONTENT = frozenset({204, 304})
_LENGTH = re.compile(r"[0-9]{1,19}", re.ASCII)
LENGTH_MAX = 2**32 - 1
"""The longest response that is read. No response of the service is longer, and memory for one is allocated at once."""


def check_head(response: urllib3.BaseHTTPResponse) -> None:
    """Refuse a response that has neither chunks nor a length, because it may be truncated, or that has another coding.

    Call it before the content is read.

    Raises:
        ProtocolError: the response is neither chunked nor has exactly one length, or it has a coding that the request
            did not allow.
    """
    headers = response.headers
    transfer_coding = headers.get("Transfer-Encoding")
    if transfer_coding is not None:
        # With any other coding, also one before chunked, chunks stay in the content, or the connection ends it.
        if transfer_coding.strip().lower() != "chunked":
            raise ProtocolError(f"the answer has the transfer coding {_shown(transfer_coding)}")
    elif response.status not in _WITHOUT_CONTENT:
        lengths = {each.strip() for each in headers.get("Content-Length", "").split(",")}
        length = lengths.pop()
        if lengths or _LENGTH.fullmatch(length) is None:
            raise ProtocolError("the answer does not say where it ends")
        if int(length) > LENGTH_MAX:
            raise ProtocolError(f"the answer has {length} bytes, which is more than any of the service")
    content_coding = headers.get("Content-Encoding", "identity").strip().lower()
    if content_coding != "identity" and content_coding not in urllib3.HTTPResponse.CONTENT_DECODERS:
        raise ProtocolError(f"the answer has the content coding {_shown(content_coding)}, which was not asked for")


def _shown(text: str) -> str:
    return ascii(text[:60])


class _WholeLines:
    """The lines of a response's head."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = HEAD_LINES_MAX

    def readline(self, limit: int = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            # Python's client accepts any number of interim responses (100 Continue).
            raise http.client.HTTPException("the answer's head does not end")
        line: bytes = self._file.readline(limit)
        if not line.endswith(b"\n") and len(line) != limit:
            raise http.client.RemoteDisconnected("the connection broke before the answer" if not line else _CUT)
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


_CUT = "the connection broke in the midst of the answer"


_ends_at: ContextVar[float | None] = ContextVar("ends_at", default=None)


@contextlib.contextmanager
def whole_within(seconds: float) -> Iterator[None]:
    """Limit the time of every response that this thread waits for in the block. A read after that time raises
    ``TimeoutError``. Without the limit, a server that sends a byte now and then would block its client for ever."""
    token = _ends_at.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends_at.reset(token)


class _TimedReads(socket.SocketIO):
    """The bytes of one response, until its time is over."""

    def __init__(self, sock: socket.socket, ends_at: float) -> None:
        super().__init__(sock, "r")
        self._timed = sock
        self._ends_at = ends_at

    def readinto(self, buffer: Any) -> int | None:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not whole in time")
        silence = self._timed.gettimeout()
        if silence is not None and silence <= left:
            return super().readinto(buffer)
        self._timed.settimeout(left)
        try:
            return super().readinto(buffer)
        finally:
            if self._timed.fileno() >= 0:
                self._timed.settimeout(silence)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        ends_at = _ends_at.get()
        if ends_at is not None:
            # As ``socket.makefile`` does it, which counts the files that still need the socket.
            sock._io_refs += 1  # noqa: SLF001
            self.fp.close()
            self.fp = io.BufferedReader(_TimedReads(sock, ends_at))

    def begin(self) -> None:
        file = self.fp
        lines: Any = _WholeLines(file)
        self.fp = lines
        try:
            super().begin()
        finally:
            if self.fp is lines:
                self.fp = file


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class WholeAnswers(urllib3.PoolManager):
    """A pool manager whose connections detect truncated responses."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
