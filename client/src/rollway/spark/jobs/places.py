"""The ends of a range of a topic, as people write them: ``earliest``, ``latest``, a time, or offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from rollway.spark.jobs.errors import JobUsageError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET_MAX = 2**63 - 1

_MILLISECONDS = re.compile(r"[0-9]{1,19}")
_RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:\d{2})?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a range. ``timestamp_ms`` means the first record at or after it; ``offsets`` are by partition.

    Example: ``Place("offsets", offsets={0: 1200, 1: 0})``, or from text with ``parse_place``.
    """

    kind: Literal["earliest", "latest", "time", "offsets"]
    timestamp_ms: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        match self.kind:
            case "time":
                return format_time(self.timestamp_ms)
            case "offsets":
                return json.dumps({str(number): offset for number, offset in sorted(self.offsets.items())})
            case _:
                return self.kind


EARLIEST = Place("earliest")
LATEST = Place("latest")


def parse_place(text: str) -> Place:
    """Parse ``earliest``, ``latest``, a time (``parse_time``), or JSON of offsets by partition, ``{"0": 1200, "1":
    0}``.

    Raises:
        JobUsageError: the text is none of these.
    """
    plain = text.strip()
    if plain == "earliest":
        return EARLIEST
    if plain == "latest":
        return LATEST
    if plain.startswith("{"):
        return Place("offsets", offsets=_parse_offsets(plain))
    return Place("time", timestamp_ms=parse_time(plain))


def _parse_offsets(text: str) -> dict[int, int]:
    try:
        found = json.loads(text)
        offsets = {int(number): offset for number, offset in found.items()}
    except (ValueError, AttributeError):
        offsets = {}
    if not offsets or any(
        isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX
        for offset in offsets.values()
    ):
        raise JobUsageError(f'{text!r} does not name offsets by partition, such as {{"0": 1200, "1": 0}}.')
    return offsets


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch, from that number, or from a date or RFC 3339 time, in UTC by default.

    Example: ``parse_time("2013-07-04T00:00:00-04:00")`` is 1372910400000.

    Raises:
        JobUsageError: the text is neither.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        if not _RFC_3339.fullmatch(text):
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise JobUsageError(
            f"{text!r} is not a place in a topic: earliest, latest, a time such as 2013-07-04T00:00:00-04:00 or "
            '2013-07-04, milliseconds since the epoch, or offsets such as {"0": 1200}.'
        ) from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def format_time(milliseconds: int) -> str:
    """Return a time in RFC 3339, in UTC, to the millisecond."""
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
