"""Limits of a connection, and the checks of a request that the parser does not make."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.utils import get_remote_addr

from app.http.allowed_hosts import HostRule, rule_of
from app.problems import kinds
from app.problems.engine import internal_error
from app.problems.problem import Problem
from app.settings import Settings

TURNED_AWAY_MAX = 64
"""The most connections beyond the limits that receive an answer at a time. Further ones are closed without one."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on the connections of one server."""

    header_bytes_max: int
    header_count_max: int
    header_timeout_ms: int
    body_bytes_per_second_min: int
    body_grace_ms: int
    stall_timeout_ms: int
    unsent_bytes_max: int
    connections_max: int
    connections_per_address_max: int
    hosts: HostRule | None = None

    @classmethod
    def of(cls, settings: Settings) -> ConnectionLimits:
        """Return the limits of the settings."""
        return cls(
            header_bytes_max=settings.request_header_bytes_max,
            header_count_max=settings.request_header_count_max,
            header_timeout_ms=settings.request_header_timeout_ms,
            body_bytes_per_second_min=settings.request_body_bytes_per_second_min,
            body_grace_ms=settings.request_body_grace_ms,
            stall_timeout_ms=settings.send_stall_timeout_ms,
            unsent_bytes_max=settings.tcp_unsent_bytes_max,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            hosts=rule_of(settings),
        )


class Peers(Counter[str]):
    """The number of open connections from each address."""

    def __init__(self) -> None:
        super().__init__()
        self.turned_away: set[object] = set()
        """Connections beyond the limits whose answer is being sent. They are not counted."""

    def leave(self, address: str) -> None:
        """Count one connection less. An address without connections is removed."""
        self[address] -= 1
        if not self[address]:
            del self[address]


class Refusal(Exception):  # noqa: N818 - a way out of the parser, caught beside it
    """A request that must not be served, with its answer.

    A callback of the parser raises it. It comes out of the parser as the context of the parser's own error.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def address_of(transport: asyncio.Transport) -> str:
    """Return the address of the peer, by which connections are counted; empty if there is none."""
    peer = get_remote_addr(transport)
    return peer[0] if peer else ""


def check_framing(http_version: str, headers: list[tuple[bytes, bytes]]) -> int | None:
    """Check the framing where the parser is lenient, and return the announced length of the body, None if chunked.

    Raises:
        Refusal: 505, the version is neither 1.0 nor 1.1; 400, the request has no or two hosts, or a transfer coding
            other than chunked.
    """
    if http_version not in ("1.0", "1.1"):
        raise Refusal(Problem(kinds.HTTP_VERSION_NOT_SUPPORTED, "this service speaks HTTP/1.1"))
    hosts = codings = 0
    length: int | None = 0
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            codings += 1
            length = None
            if value.strip().lower() != b"chunked" or http_version == "1.0" or codings > 1:
                raise Refusal(Problem(kinds.MALFORMED_REQUEST, "Transfer-Encoding may only be chunked"))
    if hosts > 1 or (hosts == 0 and http_version == "1.1"):
        raise Refusal(Problem(kinds.MALFORMED_REQUEST, "a request has exactly one Host header"))
    return length


def check_names(rule: HostRule | None, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse a request for another service, or from a web page that must not send it; see ``allowed_hosts``.

    Raises:
        Refusal: 421 misdirected_request, 403 cross_site_request.
    """
    problem = None if rule is None else rule.refusal(method.decode("ascii"), target, headers)
    if problem is not None:
        raise Refusal(problem)


def not_http() -> Problem:
    """Return the 400 for a request line of another protocol."""
    return Problem(kinds.MALFORMED_REQUEST, "the bytes are not a valid HTTP/1.1 request")


def headers_too_large(what: str) -> Problem:
    """Return the 431 for a head beyond a limit. ``what`` names the limit: ``more than 100 headers``."""
    return Problem(kinds.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request line and headers have {what}")


def late_head(limits: ConnectionLimits) -> Problem:
    """Return the 408 for a head that is not whole in time."""
    detail = f"the headers did not arrive within {limits.header_timeout_ms} ms"
    return Problem(kinds.REQUEST_TIMEOUT, detail)


def slow_body(limits: ConnectionLimits) -> Problem:
    """Return the 408 for a body that comes too slowly."""
    detail = f"the body arrives at less than {limits.body_bytes_per_second_min} bytes a second"
    return Problem(kinds.REQUEST_TIMEOUT_OF_BODY, detail)


def problem_of(error: Exception) -> Problem:
    """Return the answer to an error of the parser, or of one of its callbacks."""
    if isinstance(error, Refusal):
        return error.problem
    cause = error.__context__
    if isinstance(cause, Refusal):
        return cause.problem
    if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(cause, httptools.HttpParserError):
        # A defect of ours, not of the client. The handler of a plain request may have run already.
        return internal_error(cause if isinstance(cause, Exception) else error)
    return not_http()


def answer_of(problem: Problem, target: bytes, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of the answer to a request that never reaches the application. The connection ends with it."""
    body = problem.body(target.partition(b"?")[0].decode("ascii", "replace"))
    headers = {**problem.all_headers(), "Content-Length": str(len(body)), "Connection": "close"}
    lines = [STATUS_LINE[problem.status], *(b"%b: %b\r\n" % header for header in default_headers)]
    lines += [f"{name.lower()}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
    return b"".join([*lines, b"\r\n", body])
