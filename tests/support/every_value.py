"""A table of stored contents and how JSON shows each of them, for tests of every way into the log and out of it."""

from __future__ import annotations

import base64
import json
import random
from typing import Any, NamedTuple

ENCODINGS = ("utf8", "base64", "json")
LARGE_BYTES = 10_000_000


class Content(NamedTuple):
    """The bytes of a key or value, ``None`` for none, and whether ``encoding=json`` shows them as JSON."""

    data: bytes | None
    is_json: bool = False

    def member(self, name: str, encoding: str) -> bytes:
        """The member of an object that says it: ``"value":"text"``, say. JSON is written as it is stored."""
        if self.data is None:
            return b'"%b":null' % (f"{name}_base64" if encoding == "base64" else name).encode()
        if encoding == "json" and self.is_json:
            return b'"%b":%b' % (name.encode(), self.data)
        if encoding == "utf8" and (text := self.text) is not None:
            return b'"%b":%b' % (name.encode(), json.dumps(text).encode())
        return b'"%b_base64":"%b"' % (name.encode(), base64.b64encode(self.data))

    def shown(self, name: str, encoding: str) -> dict[str, Any]:
        """The member, read."""
        found: dict[str, Any] = json.loads(b"{%b}" % self.member(name, encoding))
        return found

    @property
    def text(self) -> str | None:
        """The text, of UTF-8."""
        try:
            return None if self.data is None else self.data.decode()
        except UnicodeDecodeError:
            return None

    @property
    def is_large(self) -> bool:
        return self.data is not None and len(self.data) >= LARGE_BYTES


CONTENTS: dict[str, Content] = {
    "nothing": Content(None),
    "no bytes": Content(b""),
    "text": Content(b"plain text"),
    "escapes": Content(b'"quoted" \\ \n\t\x00\x1f\x7f</script>'),
    "accents": Content("Grüße, 世界".encode()),
    "emoji": Content("🛫 family: 👩‍👩‍👧‍👦".encode()),
    "the text of null": Content(b"null"),
    "true": Content(b"true", is_json=True),
    "a number": Content(b"21.5", is_json=True),
    "a number with a zero": Content(b"1.10", is_json=True),
    "an exponent": Content(b"-1E+2", is_json=True),
    "2^63": Content(b"9223372036854775808", is_json=True),
    "a JSON text": Content(b'"plain text"', is_json=True),
    "an object": Content(b'{"a": [1, {"b": null, "c": "\\u00e9"}], "": {}}', is_json=True),
    "an object with a value": Content(b'{"value":"v","value_base64":"AAEC"}', is_json=True),
    "an array": Content(b"[[],[[]]]", is_json=True),
    "an object of base64": Content(b'{"base64": "AAEC"}', is_json=True),
    "an object of no base64": Content(b'{"base64": "?"}', is_json=True),
    "base64 text": Content(b"AAEC"),
    "NaN": Content(b"NaN"),
    "Infinity": Content(b"-Infinity"),
    "too large a number": Content(b"1e999"),
    "broken JSON": Content(b'{"a":'),
    "bytes": Content(b"\x00\x01\x02"),
    "each byte": Content(bytes(range(256))),
    "text and a byte that is none": Content(b"plain text \xff"),
    "a surrogate": Content(b"\xed\xa0\x80"),
    "an overlong zero": Content(b"\xc0\x80"),
    "half an emoji": Content("🛫".encode()[:2]),
    "10 MB of text": Content(b"0123456789" * (LARGE_BYTES // 10)),
    "10 MB of JSON": Content(b'{"text":"%b"}' % (b"x" * LARGE_BYTES), is_json=True),
    "10 MB of bytes": Content(b"\xff" + random.Random(7).randbytes(LARGE_BYTES)),
}
SMALL = {name: content for name, content in CONTENTS.items() if not content.is_large}
"""Those that fit into a row of anything."""
