"""Text that comes from outside, on a line of its own: in logs, and on terminals.

A line separator would begin a line that this program never wrote. An escape sequence would move the cursor of the
reader's terminal. A bidirectional override would show the text in another order than it has.
"""

from __future__ import annotations

import json
import re

_ASCII_OR_NOT = re.compile(r"[^ -~]")
_NOT_LINE_FEED = re.compile(r"[^ -~\n\t]")
_ABOVE_ASCII = re.compile(r"[^\x00-\x7f]")


def escape_unprintable(text: str, *, keep_lines: bool = False) -> str:
    """Write every control, format and separator character but the space as ``\\x1b``, ``\\u202e`` or ``\\U000e0001``.

    What is printable stays, in any script. With ``keep_lines`` line feeds and tabs stay too.
    """
    if text.isprintable():
        return text
    return (_NOT_LINE_FEED if keep_lines else _ASCII_OR_NOT).sub(_escaped, text)


def escape_json(text: str) -> str:
    """The same for a JSON document, in JSON's own escapes, so that it says the same.

    Line feeds between its parts stay; inside of texts JSON has none.
    """
    return text if text.isprintable() else _ABOVE_ASCII.sub(_escaped_in_json, text).replace("\x7f", "\\u007f")


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1]
