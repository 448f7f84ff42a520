"""One connection to a Kafka broker, for a command that asks one thing after the other."""

from __future__ import annotations

import io
import socket
import struct
from types import TracebackType
from typing import Any, Self, TypeVar

from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

CLIENT_ID = "rollway-log-export"
TIMEOUT_S = 60
FRAME_BYTES_MAX = 1 << 30

_LENGTH = struct.Struct(">i")

ResponseT = TypeVar("ResponseT")


class BrokerConnectionError(Exception):
    """A broker cannot be reached, or does not answer as one. The message is a sentence without its full stop."""


class BrokerConnection:
    """A connection without TLS and without authentication. Thread: one at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._address = f"{host}:{port}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), TIMEOUT_S)
        except OSError as error:
            raise BrokerConnectionError(f"broker {self._address} cannot be reached: {error}") from error

    def ask(self, request: Any, response_type: type[ResponseT]) -> ResponseT:
        """Send a request of kio's types, and return the response.

        Raises:
            BrokerConnectionError: the connection broke, or the response has another form.
        """
        self._correlation_id += 1
        try:
            self._socket.sendall(self._frame(request))
            (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
            if not 0 < length <= FRAME_BYTES_MAX:
                raise BrokerConnectionError(f"broker {self._address} answered with {length} bytes")
            frame = self._receive(length)
            position = self._end_of_header(frame, response_type)
            response: ResponseT
            response, _ = entity_reader(response_type)(frame, position)  # type: ignore[type-var]
        except (OSError, ValueError, struct.error) as error:
            raise BrokerConnectionError(f"broker {self._address}: {error}") from error
        return response

    def _frame(self, request: Any) -> bytes:
        header_type: Any = request.__header_schema__
        header: HeaderV1 | HeaderV2 = header_type(
            request_api_key=request.__api_key__,
            request_api_version=i16(request.__version__),
            correlation_id=i32(self._correlation_id),
            client_id=CLIENT_ID,
        )
        content = io.BytesIO()
        entity_writer(header_type)(content, header)
        entity_writer(type(request))(content, request)
        return _LENGTH.pack(content.tell()) + content.getvalue()

    def _end_of_header(self, frame: bytes, response_type: Any) -> int:
        header, position = entity_reader(response_type.__header_schema__)(frame, 0)
        if header.correlation_id != self._correlation_id:
            raise BrokerConnectionError(f"broker {self._address} answered another request")
        return position

    def _receive(self, length: int) -> bytes:
        received = bytearray(length)
        view = memoryview(received)
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise BrokerConnectionError(f"broker {self._address} closed the connection")
            view = view[count:]
        return bytes(received)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
