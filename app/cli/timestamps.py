"""Points in time as people and files write them: milliseconds since the epoch, or RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_MAX = 2**63 - 1

_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def parse_timestamp(value: object) -> int:
    """Return milliseconds since the epoch. A fraction of a millisecond is cut off.

    Raises:
        ValueError: the value is neither milliseconds nor RFC 3339 with an offset from UTC. The message is a phrase.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        milliseconds = value
    elif isinstance(value, str) and _MILLISECONDS.fullmatch(value):
        milliseconds = int(value)
    elif isinstance(value, str) and _RFC_3339.fullmatch(value):
        milliseconds = _milliseconds_of(value)
    else:
        raise ValueError(
            f"{str(value)[:60]!r} is not a timestamp: milliseconds since the epoch, or RFC 3339 such as "
            "2013-07-04T00:00:00-04:00"
        )
    if not 0 <= milliseconds <= TIMESTAMP_MAX:
        raise ValueError(f"timestamp {milliseconds} is outside 0 to 2^63-1")
    return milliseconds


def _milliseconds_of(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"{text!r} is not a timestamp: {error}") from None
    return (moment - EPOCH) // timedelta(milliseconds=1)


def format_timestamp(milliseconds: int | None) -> str:
    """Return a time in RFC 3339, in UTC, to the millisecond; the number itself beyond the calendar, ``-`` for none."""
    if milliseconds is None or milliseconds < 0:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
