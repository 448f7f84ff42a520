"""Requests as httptools reads them, with bounds on everything that the parser takes without end."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import httptools

from app.http.connection.connection_limits import (
    ConnectionLimits,
    Refusal,
    check_framing,
    check_names,
    headers_too_large,
    not_http,
)
from app.http.connection.parser import RequestLines, head_without_offer, new_parser
from app.http.connection.stages import Stage
from app.problems import kinds
from app.problems.problem import Problem

# Bytes of chunk framing and trailers that are allowed for each byte of a body. A chunk of one byte takes 5.
_FRAMING_BYTES_PER_BODY_BYTE = 16


class Connection(Protocol):
    """The connection as its reader uses it: its state, and the callbacks of the parser behind their checks."""

    limits: ClassVar[ConnectionLimits]
    parser: Any
    url: bytes
    headers: list[tuple[bytes, bytes]]

    @property
    def stage(self) -> Stage:
        """The place of the parser in a request."""

    @property
    def body_bytes(self) -> int:
        """The number of bytes that have come of the body of this request."""

    def on_message_begin(self) -> None:
        """Begin the next request."""

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""

    def begin_request(self, content_length: int | None) -> None:
        """Start the request whose head is whole; its body has ``content_length`` bytes, or is chunked."""

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""

    def on_message_complete(self) -> None:
        """End the body."""


class RequestReader:
    """The parser of one connection, and the object whose callbacks it calls.

    Thread: the event loop's.
    """

    __slots__ = (
        *("_begins", "_connection", "_framing_bytes", "_header_bytes", "_header_count", "_is_over", "_limits"),
        *("_lines", "_offers_upgrade"),
    )

    def __init__(self, connection: Connection) -> None:
        """Set the parser of ``connection``."""
        self._connection = connection
        self._limits = connection.limits
        self._lines = RequestLines()
        self._offers_upgrade = False
        self._header_bytes = self._header_count = self._framing_bytes = 0
        # Whether a request began in the bytes that the parser was given last.
        self._begins = False
        # Whether the parser has read the head of a CONNECT.
        self._is_over = False
        connection.parser = new_parser(self)

    def feed(self, data: bytes) -> bool:
        """Parse ``data`` and return whether the parser takes more.

        It takes no more after a CONNECT, because the bytes behind its head belong to another protocol.

        Raises:
            Refusal: the request breaks a limit or a rule, or its request line is one of another protocol.
            httptools.HttpParserError: the bytes are no HTTP, or a callback has failed.
        """
        connection = self._connection
        for piece in self._lines.pieces(data, lambda: connection.stage is Stage.IDLE):
            if piece is None:
                connection.url = b""
                raise Refusal(not_http())
            rest = memoryview(piece)
            while rest:
                rest = self._parse(rest)
            if self._is_over:
                return False
        return True

    def _parse(self, data: memoryview) -> memoryview:
        """Parse ``data`` and return the rest that the parser left because of an offer that is ignored."""
        connection = self._connection
        body_bytes_before = connection.body_bytes
        self._begins = False
        try:
            connection.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            rest = data[offer.args[0] :]
        else:
            if not self._begins:
                self._count_raw(len(data), body_bytes_before)
            return data[:0]
        if self._offers_upgrade:
            self._begin_without_offer()
            return rest
        self._is_over = True
        return data[:0]

    def _count_raw(self, raw_bytes: int, body_bytes_before: int) -> None:
        """Bound the bytes that the parser keeps of one header, and chunk framing.

        All of the bytes that the parser was given last belong to this request.
        """
        stage = self._connection.stage
        if stage is Stage.IDLE:
            return
        if stage is Stage.HEAD:
            # This counts finished headers again. Twice the limit still bounds the memory of the parser.
            self._framing_bytes += raw_bytes
            if self._framing_bytes > 2 * self._limits.header_bytes_max:
                raise Refusal(headers_too_large(f"more than {self._limits.header_bytes_max} bytes"))
            return
        body_bytes = self._connection.body_bytes
        self._framing_bytes += raw_bytes - (body_bytes - body_bytes_before)
        allowed_bytes = 2 * self._limits.header_bytes_max + _FRAMING_BYTES_PER_BODY_BYTE * body_bytes
        if self._framing_bytes > allowed_bytes:
            raise Refusal(Problem(kinds.MALFORMED_REQUEST, "the body is framed in chunks without an end"))

    def _begin_without_offer(self) -> None:
        """Read a request that offers another protocol as if it did not (RFC 9110, 7.8).

        The parser has read the head and stops there, because the body would be the other protocol's. A new parser
        reads the head again without the offer, so that the body is framed as any other.
        """
        self._offers_upgrade = False
        connection = self._connection
        head = head_without_offer(connection.parser, connection.url, connection.headers)
        connection.parser = new_parser(self)
        self._parse(memoryview(head))

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._begins = True
        self._header_bytes = self._header_count = self._framing_bytes = 0
        self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + 4)
        self._header_count += 1
        if self._header_count > self._limits.header_count_max:
            raise Refusal(headers_too_large(f"more than {self._limits.header_count_max} headers"))
        if self._connection.stage is Stage.HEAD:
            self._connection.on_header(name, value)
        # Trailers are counted and dropped, because the application has received all headers by now.

    def _count_header(self, size_bytes: int) -> None:
        self._header_bytes += size_bytes
        if self._header_bytes > self._limits.header_bytes_max:
            raise Refusal(headers_too_large(f"more than {self._limits.header_bytes_max} bytes"))

    def on_headers_complete(self) -> None:
        connection = self._connection
        parser = connection.parser
        if parser.should_upgrade() and parser.get_method() != b"CONNECT":
            self._offers_upgrade = True
            return
        self._framing_bytes = 0
        content_length = check_framing(parser.get_http_version(), connection.headers)
        check_names(self._limits.hosts, parser.get_method(), connection.url, connection.headers)
        connection.begin_request(content_length)

    def on_body(self, body: bytes) -> None:
        self._connection.on_body(body)

    def on_message_complete(self) -> None:
        if not self._offers_upgrade:
            self._connection.on_message_complete()
