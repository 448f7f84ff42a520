"""Counting the values of a JSON document in plain Python."""

from __future__ import annotations

import re

import numpy as np

SPACES_OF_VALUE = 16
"""Spaces between values that take as long to read as one value. The coder holds the interpreter over them as well."""

ESCAPES_OF_VALUE = 8
"""Escapes in texts that take as long to read as one value."""

_SLICE_BYTES = 1024 * 1024
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BEGINS_VALUE = np.zeros(256, dtype=np.bool_)
_BEGINS_VALUE[list(b"[{,:")] = True
_ESCAPE = ord("\\")


def count_values(document: bytes | bytearray | memoryview, enough: int) -> int:
    """Count as ``json_values.count_values``, in pieces, so that other threads get the interpreter between them."""
    values, spaces, escapes = _counts_in(document)
    if values + spaces // SPACES_OF_VALUE + escapes // ESCAPES_OF_VALUE > enough:
        for found in _STRING.finditer(document):
            inside = _counts_in(found[0])
            values, spaces = values - inside[0], spaces - inside[1]
    return values + spaces // SPACES_OF_VALUE + escapes // ESCAPES_OF_VALUE


def _counts_in(part: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Return how many bytes begin values, are spaces, and are backslashes."""
    data = np.frombuffer(part, dtype=np.uint8)
    values = spaces = escapes = 0
    for start in range(0, len(data), _SLICE_BYTES):
        piece = data[start : start + _SLICE_BYTES]
        values += int(np.count_nonzero(_BEGINS_VALUE[piece]))
        spaces += int(np.count_nonzero(piece <= ord(" ")))
        escapes += int(np.count_nonzero(piece == _ESCAPE))
    return values, spaces, escapes
