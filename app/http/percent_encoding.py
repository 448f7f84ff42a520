"""Percent-encoded bytes in a target that are not UTF-8.

A framework reads each of them as U+FFFD, so that two different names would become one.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

_NAME_SHOWN_MAX = 100


class WrongByte(NamedTuple):
    """A part of a target that is not UTF-8: the parameter's name, and the first byte that is wrong."""

    parameter: str
    byte: int


def wrong_bytes_of_path(template: str, raw_path: bytes) -> list[WrongByte]:
    """Return the parameters of ``template`` that have other bytes than UTF-8 in a path that fits it.

    Example: ``/v1/groups/{group_id}/start-positions`` and ``/v1/groups/a%FF/start-positions`` give
    ``[WrongByte("group_id", 0xFF)]``.
    """
    if b"%" not in raw_path and raw_path.isascii():
        return []
    steps = template.split("/")
    # The path may begin with a prefix of the server.
    values = raw_path.split(b"/")[-len(steps) :]
    return [
        WrongByte(step[1:-1], byte)
        for step, value in zip(steps, values, strict=False)
        if step.startswith("{") and (byte := _wrong_byte(value)) is not None
    ]


def wrong_bytes_of_query(query: bytes) -> list[WrongByte]:
    """Return the parameters of a query string whose name or value has other bytes than UTF-8.

    Names are shown as they came, at most 100 characters of each.
    """
    if b"%" not in query and query.isascii():
        return []
    found = []
    for parameter in query.split(b"&"):
        byte = _wrong_byte(parameter)
        if byte is not None:
            name = parameter.partition(b"=")[0][:_NAME_SHOWN_MAX]
            found.append(WrongByte(name.decode("ascii", "backslashreplace"), byte))
    return found


def _wrong_byte(raw: bytes) -> int | None:
    """Return the first byte that must be percent-encoded and is not, or that is not UTF-8; ``None`` without one."""
    if not raw.isascii():
        return next(byte for byte in raw if byte > 0x7F)
    decoded = unquote_to_bytes(raw)
    try:
        decoded.decode()
    except UnicodeDecodeError as error:
        return decoded[error.start]
    return None
