"""httptools as a connection uses it, and what it does not see: request lines of other protocols."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httptools

# Headers of an offer. The parser takes an Upgrade for an offer only if Connection names it. Without Upgrade, the
# Connection header only says whether the connection is kept.
_OF_AN_OFFER = frozenset({b"upgrade", b"http2-settings"})


# Protocols whose request lines the parser takes for HTTP's.
_FOREIGN = re.compile(rb"(?<![A-Z_-])[A-Z_-]{3,20} [^ \r\n]+ +(?:RTSP|ICE)/")
_FOREIGN_MAX = 64
_LINE_BYTES_MAX = 64 * 1024


class RequestLines:
    """A search for request lines of RTSP and ICE, which the parser reads as if they were HTTP.

    Text of a body may also look like such a line. The connection knows whether a request begins there.
    Example: ``OPTIONS /x RTSP/1.0``, also in two pieces.

    Thread: one.
    """

    def __init__(self) -> None:
        self._begun = b""

    def pieces(self, data: bytes, is_between: Callable[[], bool]) -> Iterator[bytes | None]:
        """Yield ``data`` in pieces, and ``None`` instead of a request line of another protocol and all bytes behind it.

        ``is_between`` returns whether all yielded bytes belong to whole requests. At most 64 places are checked.
        """
        begun, self._begun = self._begun, b""
        if is_between():
            begun = b""
        if (begun or is_between()) and b"\n" not in data and len(begun) + len(data) <= _LINE_BYTES_MAX:
            self._begun = begun + data
        if begun and _FOREIGN.match(begun + data):
            yield None
            return
        done = 0
        if b" RTSP/" in data or b" ICE/" in data:
            for line, _ in zip(_FOREIGN.finditer(data), range(_FOREIGN_MAX), strict=False):
                if line.start() > done:
                    yield data[done : line.start()]
                    done = line.start()
                if is_between():
                    yield None
                    return
        yield data[done:] if done else data


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """Return a parser that expects a request, made as uvicorn makes it. It calls ``on_...`` of ``protocol``."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def head_without_offer(parser: httptools.HttpRequestParser, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the head that ``parser`` has just read, without its offer of another protocol, to be read again."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())]
    lines += [b"%b: %b" % header for header in headers if header[0] not in _OF_AN_OFFER]
    return b"\r\n".join([*lines, b"", b""])
