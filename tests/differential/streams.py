"""Streams of requests: plain ones, some that are nearly so, and every form that RFC 9110 and 9112 allow or forbid."""

from __future__ import annotations

import random
from typing import NamedTuple

COMPILED, ENQUEUED, SERVE, LEAVE, WAIT, FAIL = b"/compiled/", b"/queue/", b"/serve/", b"/leave/", b"/wait/", b"/fail/"
"""Paths that the stand answers in C, in C at the end of the turn, in Python, in the application, later, and not."""


class Stream(NamedTuple):
    """Bytes in pieces, and whether the client closes its side behind them."""

    pieces: tuple[bytes, ...]
    ends: bool


_PATHS = (COMPILED, ENQUEUED, SERVE, LEAVE, WAIT, FAIL, b"/app/")
_QUERIES = (
    *(b"", b"?offset=5", b"?offset=0", b"?offset=007", b"?offset=latest", b"?offset=", b"?offset=999999999999999999"),
    *(b"?offset=1234567890123456789", b"?offset=1&offset=2", b"?a=1&offset=3&b=2", b"?aoffset=3", b"?offset=3x", b"?"),
    *(b"?offset=%35", b"?a=b+c", b"?offset=5#f", b"#f", b"??offset=1", b"?offset=1&", b"?&offset=1", b"?a=\xc3\xa9"),
)
_ODD_TARGETS = (
    *(
        b"*",
        b"http://a/compiled/x",
        b"//compiled/x",
        b"/compiled/../x",
        b"/compiled/%2e",
        b"compiled",
        b"/compiled/\xff",
        b"/compiled/a b",
    ),
    *(b"/compiled/\tx", b"", b"/", b"/compiled/" + b"y" * 5000, b"/compiled/:@!$'()*,;"),
)
_METHODS = (
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"get",
    b"Post",
    b"CONNECT",
    b"PRI",
    b"G",
    b"",
    b"GETGETGETGETGETGET",
)
_VERSIONS = (
    b"HTTP/1.0",
    b"HTTP/1.1 ",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"http/1.1",
    b"HTTP/1.2",
    b"HTTP/1",
    b"",
    b"HTTP/1.1\t",
)
_ENDS = (b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n", b"\t\r\n")
_INERT = (
    *(b"User-Agent: x/1", b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"X-Any: thing"),
    *(b"X-Request-Id: mine", b"x-request-id: not mine", b"Accept: */*", b"Accept:a/b", b"Accept-Encoding: gzip"),
    *(
        b"Content-Type: application/json",
        b"content-type:  a/b",
        b"Client-Id: me",
        b"Authorization: Bearer k",
        b"X-Empty:",
    ),
    *(b"Connection: keep-alive", b"CONNECTION: Keep-Alive", b"Cookie: a=b; c=d", b"X-Empty: ", b"Via: 1.1 a"),
    *(b"Idempotency-Key: one", b'idempotency-key:  "two"', b"Idempotency-Key: three"),
    b"Producer-Id: 7\r\nProducer-Epoch: 0\r\nBase-Sequence: 5",
)
_ODD_FIELDS = (
    *(
        b"Connection: close",
        b"Connection: upgrade\r\nUpgrade: h2c",
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c",
    ),
    *(b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c", b"Connection:", b"Connection: keep-alive, close"),
    *(b"Expect: 100-continue", b"Expect: x", b"Range: bytes=0-1", b"If-None-Match: *", b"TE: trailers", b"Trailer: X"),
    *(
        b"Host: b",
        b"Host:",
        b"Accept: a/b\r\nAccept: c/d",
        b"Idempotency-Key: k",
        b"X-Tab:\tv",
        b"X-Tab: a\tb",
        b"X-End: v ",
    ),
    *(
        b"X-Null: a\x00b",
        b"X-High: \xc3\xa9",
        b"X-Del: \x7f",
        b"X_Under: a",
        b"X-Space : a",
        b" X-Fold: a",
        b"X-A: b\r\n c",
    ),
    *(b": empty", b"no colon", b"X-Cr: a\rb", b"X-Lf: a\nX-B: c", b"X-Bad\x80: a", b"X-(: a", b"Host : a", b"\tX: y"),
    *(b"Idempotency-Key:", b"Idempotency-Key: a\r\nIdempotency-Key: b", b"Idempotency-Key: a b ", b"Producer-Id: 7"),
    *(b"Base-Sequence: 5\r\nProducer-Id: 7", b"Producer-Id: 7\r\nProducer-Epoch:\r\nBase-Sequence: 5"),
    b"Producer-Id: 7\r\nProducer-Epoch: 0\r\nBase-Sequence: 5\r\nIdempotency-Key: a",
    *(b"X-Long: " + b"v" * 3000, b"X-Much: " + b"v" * 5000, b"Unknown: a", b"Proxy-Connection: keep-alive"),
    *(
        b"Transfer-Encoding: identity",
        b"Content-Length: 0\r\nContent-Length: 0",
        b"Keep-Alive: timeout=5",
        b"X-Request-Id:",
    ),
    # Of this header one value alone is not plain, and it may occur more than once.
    *(b"User-Agent: rollway", b"user-agent:rollway", b"User-Agent: rollway ", b"User-Agent:", b"User-Agent: Rollway"),
    *(
        b"User-Agent: a/1\r\nUser-Agent: rollway",
        b"User-Agent: rollway\r\nUser-Agent: a/1",
        b"User-Agent: rollway/0.1.0",
    ),
)
_CODINGS = (
    *(
        b"Transfer-Encoding: chunked",
        b"transfer-encoding:chunked",
        b"Transfer-Encoding: Chunked",
        b"Transfer-Encoding:\tchunked",
    ),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: xchunked"),
    *(
        b"Transfer-Encoding: chunked ",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: \x0bchunked",
    ),
)


def stream(seed: int) -> Stream:
    """The stream of this number, always the same."""
    draw = random.Random(seed)
    content = b"".join(_request(draw) for _ in range(draw.choice((1, 1, 2, 2, 3, 4))))
    if draw.random() < 0.15:
        content = _changed(draw, content)
    return Stream(_cut(draw, content), draw.random() < 0.5)


def _request(draw: random.Random) -> bytes:
    is_odd = draw.random() < 0.4
    method = draw.choice((b"GET", b"POST"))
    target = (
        draw.choice(_PATHS) + draw.choice((b"x", b"y", b"a.b_c-d~")) + draw.choice(_QUERIES if is_odd else _QUERIES[:4])
    )
    version, end = b"HTTP/1.1", b"\r\n"
    fields = [b"Host: a"] if draw.random() < 0.97 else []
    fields += draw.sample(_INERT, draw.randrange(5))
    if not is_odd:
        # Of each name one, which most clients send.
        fields = list({field.partition(b":")[0].lower(): field for field in fields}.values())
    body = draw.choice(
        (b"", b"", b"hello", b"GET /compiled/smuggled HTTP/1.1\r\nHost: a\r\n\r\n", b"x" * 150, b"y" * 300, b"z" * 9000)
    )
    if is_odd:
        oddity = draw.randrange(9)
        if oddity == 0:
            method = draw.choice(_METHODS)
        elif oddity == 1:
            target = draw.choice(_ODD_TARGETS)
        elif oddity == 2:
            version = draw.choice(_VERSIONS)
        elif oddity == 3:
            end = draw.choice(_ENDS)
        elif oddity < 7:
            fields += draw.sample(_ODD_FIELDS, draw.choice((1, 1, 2)))
        elif oddity == 7:
            fields += [b"X-N%d: v" % number for number in range(draw.choice((10, 25)))]
    if draw.random() < (0.3 if is_odd else 0.05):
        fields.append(draw.choice(_CODINGS))
        framed = _chunks(draw, body)
    else:
        framed = body
        if body or draw.random() < 0.2:
            fields.append(_length(draw, body))
    if draw.random() < 0.03:
        fields.append(draw.choice((_length(draw, body), draw.choice(_CODINGS))))
    draw.shuffle(fields)
    lines = [b"%b %b %b" % (method, target, version), *fields]
    odd_line = draw.randrange(len(lines)) if end != b"\r\n" else -1
    head = b"".join(line + (end if place == odd_line else b"\r\n") for place, line in enumerate(lines))
    return head + b"\r\n" + framed


def _length(draw: random.Random, body: bytes) -> bytes:
    length = b"%d" % len(body)
    if draw.random() < 0.8:
        return draw.choice((b"Content-Length: ", b"content-length:", b"CONTENT-LENGTH:   ")) + length
    forms = (
        *(
            b"Content-Length:\t%b",
            b"Content-Length: %b ",
            b"Content-Length: %b\t",
            b"Content-Length: +%b",
            b"Content-Length: 0%b",
        ),
        *(
            b"Content-Length: %b, %b",
            b"Content-Length: -%b",
            b"Content-Length: 0x%b",
            b"Content-Length : %b",
            b"Content-Length: %b;",
        ),
        *(
            b"Content-Length: %b\x00",
            b"Content-Length: %b 0",
            b"Content-Length:\r\n %b",
            b"Content-Length: 99999999999999999999%b",
        ),
        *(
            b"Content_Length: %b",
            b"X-Content-Length: %b",
            b"Content-Length: ",
            b"Content-Length: 12345678901",
            b"Content-Length: 1e%b",
        ),
    )
    form = draw.choice(forms)
    return form.replace(b"%b", length)


def _chunks(draw: random.Random, body: bytes) -> bytes:
    cut = draw.randrange(len(body) + 1) if body else 0
    pieces = [piece for piece in (body[:cut], body[cut:]) if piece]
    size = (
        draw.choice((b"%x", b"%X", b"%x", b"0%x", b"%x;name=value", b"%x ", b"+%x", b"0x%x"))
        if draw.random() < 0.3
        else b"%x"
    )
    framed = b"".join(size % len(piece) + b"\r\n" + piece + b"\r\n" for piece in pieces)
    return framed + draw.choice(
        (b"0\r\n\r\n",) * 8 + (b"0\r\nX-Trailer: a\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n", b"0\n\n", b"")
    )


def _changed(draw: random.Random, content: bytes) -> bytes:
    """One byte changed, left out or put in."""
    place = draw.randrange(len(content))
    other = bytes([draw.choice((0, 9, 10, 11, 13, 32, 35, 37, 58, 127, 128, 255, draw.randrange(256)))])
    return content[:place] + draw.choice((other, b"", other + content[place : place + 1])) + content[place + 1 :]


def _cut(draw: random.Random, content: bytes) -> tuple[bytes, ...]:
    """In one piece, in a few, or byte by byte."""
    if not content:
        return ()
    kind = draw.random()
    if kind < 0.6:
        return (content,)
    if kind > 0.97 and len(content) < 600:
        return tuple(content[place : place + 1] for place in range(len(content)))
    places = sorted(
        {draw.randrange(1, len(content)) for _ in range(draw.randrange(1, 5))} if len(content) > 1 else set()
    )
    return tuple(content[start:stop] for start, stop in zip([0, *places], [*places, len(content)], strict=True))
