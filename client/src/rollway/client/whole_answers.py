"""Connections that tell an answer that is cut from one that is whole.

Python's HTTP client takes the end of a connection for the end of the headers. A cut answer could then be a success
with a shorter number in a header, or without records; here it is an error like any other broken connection.
"""

from __future__ import annotations

import http.client
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ProtocolError

_WITHOUT_CONTENT = frozenset({204, 304})


def check_length(response: urllib3.BaseHTTPResponse) -> None:
    """Refuse an answer that ends where the connection does: nobody knows whether that is its end.

    Raises:
        ProtocolError: it says no length and does not come in chunks.
    """
    headers = response.headers
    has_end = "Content-Length" in headers or "Transfer-Encoding" in headers
    if not has_end and response.status not in _WITHOUT_CONTENT:
        raise ProtocolError("the answer does not say where it ends")


class _WholeLines:
    """The lines of an answer's head."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._file.readline(limit)
        if not line.endswith(b"\n") and len(line) != limit:
            raise http.client.RemoteDisconnected("the connection broke before the answer" if not line else _CUT)
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


_CUT = "the connection broke in the midst of the answer"


class _Response(http.client.HTTPResponse):
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
    """A pool manager whose connections are of the kind above."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
