"""Faults in the encoding of a JSON text, which must be UTF-8 without a byte order mark."""

from __future__ import annotations

import re

ESCAPE_BYTES = 6
"""The length of an escape such as ``\\ud800``."""

# A pair, half of one, or any other escape. Each is matched whole, so that the search continues behind it.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def unpaired_surrogates(text: bytes | bytearray) -> list[int]:
    """Return where escapes of half a surrogate pair such as ``\\ud800`` begin in a JSON text; positions are in bytes.

    UTF-8 has no bytes for such a half.
    """
    return [found.start() for found in _ESCAPES.finditer(text) if found[1]] if b"\\" in text else []


def foreign_encoding(text: bytes | bytearray) -> str | None:
    """Return a fault in the encoding of a JSON text, as the end of a sentence about the text; ``None`` without a fault.

    Some editors and shells of Windows put a byte order mark before UTF-8, or write UTF-16. RFC 8259 (8.1) allows
    neither.
    """
    if text.startswith(b"\xef\xbb\xbf"):
        return "begins with a byte order mark; send UTF-8 without one"
    # JSON begins with an ASCII character, which UTF-16 and UTF-32 write with zero bytes.
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(text) > 1 and 0 in text[:2]):
        return "is UTF-16 or UTF-32; send UTF-8"
    return None
