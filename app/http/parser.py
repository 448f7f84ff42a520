"""httptools as a connection uses it."""

from __future__ import annotations

import httptools

# The parser takes an Upgrade for an offer only if Connection names it, so without the one the other says nothing but
# whether the connection is kept.
_OF_AN_OFFER = frozenset({b"upgrade", b"http2-settings"})


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """A parser between two requests, as uvicorn makes it."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def head_without_offer(parser: httptools.HttpRequestParser, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head that ``parser`` has just read, without its offer of another protocol, to be read once more."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())]
    lines += [b"%b: %b" % header for header in headers if header[0] not in _OF_AN_OFFER]
    return b"\r\n".join([*lines, b"", b""])
