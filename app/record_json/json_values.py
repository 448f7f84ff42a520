"""What JSON costs once it is read: how many values it has is counted before a single object is made of them.

A byte of JSON may become 30 bytes of objects (``[],[],``), and a body of 150 KB of gzip 64 MiB of JSON.
"""

from __future__ import annotations

import re
from typing import Protocol, cast

import numpy as np

from app.problems import kinds
from app.problems.problem import Problem
from rollway.records.compiled import load

VALUES_MAX = 1_000_000
"""Values of one document: read at once they hold the interpreter for about 100 ms."""

SPACES_OF_VALUE = 16
"""Bytes of space between values that are as much work as one value; the coder holds the interpreter over them too."""

ESCAPES_OF_VALUE = 8
"""Escapes in texts that are as much work as one value."""

VALUE_BYTES = 200
"""What a value takes as objects, about: an object with one member, or a list, takes that."""

UNCOUNTED_BYTES = 64 * 1024
"""Documents that are no longer are read at once, whatever is in them."""

_SLICE_BYTES = 1024 * 1024
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BEGINS_VALUE = np.zeros(256, dtype=np.bool_)
_BEGINS_VALUE[list(b"[{,:")] = True
_ESCAPE = ord("\\")


class CompiledValues(Protocol):
    """What ``record_batches_c.pyx`` has for this."""

    def count_values(self, data: bytes | bytearray | memoryview) -> int:
        """As the function of this name."""


compiled = cast("CompiledValues | None", load("app.record_json.record_batches_c"))
"""The compiled way, or ``None``; looked up here with every call."""


def count_values(document: bytes | bytearray | memoryview, enough: int = VALUES_MAX) -> int:
    """How many values ``document`` has, if it is JSON; each stands behind one of ``[{,:``. Spaces outside of texts and
    escapes count too, ``SPACES_OF_VALUE`` and ``ESCAPES_OF_VALUE`` of them as one.

    Without a compiler a number up to ``enough`` may count what stands inside of texts, too. Takes no memory to speak
    of.
    Thread: any; a large document is counted without the interpreter's lock, or in pieces.
    """
    if compiled is not None:
        return compiled.count_values(document)
    values, spaces, escapes = _counts_in(document)
    if values + spaces // SPACES_OF_VALUE + escapes // ESCAPES_OF_VALUE > enough:
        for found in _STRING.finditer(document):
            inside = _counts_in(found[0])
            values, spaces = values - inside[0], spaces - inside[1]
    return values + spaces // SPACES_OF_VALUE + escapes // ESCAPES_OF_VALUE


def _counts_in(part: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Bytes that begin values, spaces, and backslashes."""
    data = np.frombuffer(part, dtype=np.uint8)
    values = spaces = escapes = 0
    for start in range(0, len(data), _SLICE_BYTES):
        piece = data[start : start + _SLICE_BYTES]
        values += int(np.count_nonzero(_BEGINS_VALUE[piece]))
        spaces += int(np.count_nonzero(piece <= ord(" ")))
        escapes += int(np.count_nonzero(piece == _ESCAPE))
    return values, spaces, escapes


def refuse_too_many(document: bytes | bytearray | memoryview, remedy: str, values_max: int = VALUES_MAX) -> int:
    """Refuse JSON of more than ``values_max`` values; returns what it takes as objects, in bytes, about.

    Raises:
        Problem: 413, for good; ``remedy`` says what to do instead.
    """
    if len(document) <= UNCOUNTED_BYTES:
        return len(document) * VALUE_BYTES // 3
    count = count_values(document, values_max)
    if count > values_max:
        raise Problem(
            kinds.REQUEST_TOO_LARGE,
            f"the body has {count} values, counting {SPACES_OF_VALUE} bytes of space or {ESCAPES_OF_VALUE} escapes as "
            f"one; as JSON that is read at once it may have {values_max}: {remedy}",
        )
    return count * VALUE_BYTES + 2 * len(document)
