"""Rows that cannot be loaded: they are counted, refused, or kept for the topic of rejected rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Literal

from rollway.client import RollwayError
from rollway.records import Record, RecordColumns, columns_from_records

OnReject = Literal["fail", "skip", "topic"]

REASON_HEADER = "rollway.reject.reason"
TOPIC_HEADER = "rollway.reject.topic"
TIMESTAMP_HEADER = "rollway.reject.timestamp"
SIZE_HEADER = "rollway.reject.value.bytes"

_FIELD_BYTES_MAX = 65_536
_TOPIC_LENGTH_MAX = 249


class RejectedRowsError(RollwayError):
    """Rows cannot be loaded, and the options do not let the load go on without them.

    Example: three rows name partition 9 of a topic with six, with ``onReject=skip`` and ``maxRejected=2``.
    """


class Rejects:
    """The rows of one attempt that were not loaded.

    With ``fail`` the first one is an error, otherwise the first one above ``limit``. With ``topic`` they are kept until
    ``take`` returns them as records. Thread: any.
    """

    def __init__(self, on_reject: OnReject, limit: int | None) -> None:
        self._on_reject = on_reject
        self._limit = limit
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._kept: list[Record] = []

    def add(self, reason: str, example: str, rows: RecordColumns, topic: str) -> None:
        """Count ``rows``, which were for ``topic``. ``reason`` names their fault, ``example`` describes it for one row.

        Raises:
            RejectedRowsError: there are too many rejected rows.
        """
        if self._on_reject == "fail":
            hint = "onReject=skip or onReject=topic loads the others"
            raise RejectedRowsError(f"{len(rows)} rows cannot be loaded: {example}; {hint}")
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + len(rows)
            total = sum(self._counts.values())
            if self._limit is not None and total > self._limit:
                raise too_many(total, self._limit, self._counts, example)
            if self._on_reject == "topic":
                now_ms = time.time_ns() // 1_000_000
                self._kept += [_as_reject(rows, place, reason, topic, now_ms) for place in range(len(rows))]

    @property
    def counts(self) -> dict[str, int]:
        """Number of rejected rows, by reason."""
        with self._lock:
            return dict(self._counts)

    def take(self) -> RecordColumns | None:
        """Return the records for the topic of rejected rows, and keep them no longer; ``None`` if there are none."""
        with self._lock:
            kept, self._kept = self._kept, []
        return columns_from_records(kept) if kept else None


def too_many(total: int, limit: int, counts: Mapping[str, int], example: str = "") -> RejectedRowsError:
    """Return the error for more rejected rows than ``maxRejected`` allows."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return RejectedRowsError(f"{total} rows cannot be loaded, and maxRejected is {limit}: {example or reasons}")


def _as_reject(rows: RecordColumns, place: int, reason: str, topic: str, now_ms: int) -> Record:
    """Return the row as a record that any topic accepts, with ``now_ms`` as its timestamp.

    A key or value above 64 KiB is cut, and so is a topic's name that is too long.
    """
    key, value = rows.keys[place], rows.values[place]
    headers: list[tuple[str, bytes | None]] = [
        (REASON_HEADER, reason.encode()),
        (TOPIC_HEADER, topic[:_TOPIC_LENGTH_MAX].encode()),
        (TIMESTAMP_HEADER, str(int(rows.timestamps[place])).encode()),
    ]
    if value is not None and len(value) > _FIELD_BYTES_MAX:
        headers.append((SIZE_HEADER, str(len(value)).encode()))
    cut_key = None if key is None else key[:_FIELD_BYTES_MAX]
    cut_value = None if value is None else value[:_FIELD_BYTES_MAX]
    return Record(0, now_ms, cut_key, cut_value, tuple(headers))
