"""What a text is encoded in that should be UTF-8 without a byte order mark and is not."""

from __future__ import annotations


def foreign_encoding(text: bytes | bytearray) -> str | None:
    """What is foreign about the encoding of a JSON text, as the end of a sentence about it; ``None`` if nothing is.

    Some editors and shells of Windows put a byte order mark before UTF-8, or write UTF-16. RFC 8259 (8.1) allows
    neither.
    """
    if text.startswith(b"\xef\xbb\xbf"):
        return "begins with a byte order mark; send UTF-8 without one"
    # JSON begins with an ASCII character, which UTF-16 and UTF-32 write with zero bytes.
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or (len(text) > 1 and 0 in text[:2]):
        return "is UTF-16 or UTF-32; send UTF-8"
    return None
