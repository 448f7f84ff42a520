"""Small JSON files of Rollway's own that detect damage: an object with a checksum of its other members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crc32c import crc32c

_CHECKSUM = "crc32c"


def dump_checked(content: Mapping[str, object]) -> bytes:
    """Return ``content`` as indented JSON; the last member is ``crc32c``, in 8 hexadecimal digits."""
    return json.dumps({**content, _CHECKSUM: _checksum(content)}, indent=2).encode() + b"\n"


def parse_checked(data: bytes, members: frozenset[str]) -> dict[str, Any]:
    """Parse the output of ``dump_checked``. An object without a checksum, as written by hand, is accepted.

    Raises:
        ValueError: it is no JSON object with exactly these members, or its checksum is wrong.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    checksum = content.pop(_CHECKSUM, None)
    if content.keys() != members:
        raise ValueError(f"its members are {', '.join(sorted(content))}, not {', '.join(sorted(members))}")
    if checksum is not None and checksum != _checksum(content):
        raise ValueError("its checksum is wrong")
    return content


def _checksum(content: Mapping[str, object]) -> str:
    return f"{crc32c(json.dumps(content, sort_keys=True, separators=(',', ':')).encode()):08x}"
