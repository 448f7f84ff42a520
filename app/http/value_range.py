"""The Range header of a request for a value: one range of bytes (RFC 9110, 14)."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.problems import kinds
from app.problems.problem import Problem

_RANGE = re.compile(r"bytes=(?:(?P<first>\d{1,18})-(?P<last>\d{1,18})?|-(?P<suffix>\d{1,18}))", re.ASCII)


class ByteRange(NamedTuple):
    """Bytes ``[start, end)``."""

    start: int
    end: int

    def content_range(self, size_bytes: int) -> str:
        """Return the Content-Range header of these bytes. Example: ``bytes 0-9/100``."""
        return f"bytes {self.start}-{self.end - 1}/{size_bytes}"


def requested_range(header: str | None, if_range: str | None, etag: str, size_bytes: int) -> ByteRange | None:
    """Return the requested range; ``None`` for the whole value.

    The whole value is also the answer to a header that is no single range of bytes, or that names another value
    (If-Range).

    Raises:
        Problem: 416, the range lies outside the value.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or (if_range is not None and if_range != etag):
        return None
    if match["suffix"] is not None:
        start, end = max(0, size_bytes - int(match["suffix"])), size_bytes
        satisfiable = int(match["suffix"]) > 0 and size_bytes > 0
    else:
        start = int(match["first"])
        end = size_bytes if match["last"] is None else min(int(match["last"]) + 1, size_bytes)
        if match["last"] is not None and int(match["last"]) < start:
            return None
        satisfiable = start < size_bytes
    if not satisfiable:
        raise Problem(
            kinds.RANGE_NOT_SATISFIABLE,
            f"the value has {size_bytes} bytes",
            headers={"Content-Range": f"bytes */{size_bytes}"},
        )
    return ByteRange(start, end)
