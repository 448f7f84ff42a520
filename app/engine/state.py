"""Logs in which the service keeps state of its own, such as load jobs. Only the last record of a key counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

Change = tuple[bytes, bytes | None]
"""A key and its new value; ``None`` forgets the key."""


class StateLog(Protocol):
    """A durable map from keys to values, which one process writes and reads back at its start.

    Thread: the event loop. ``load`` comes first.

    Example: after ``write([(b"a", b"1"), (b"b", b"2")])`` and ``write([(b"a", None)])`` the next start loads
    ``{b"b": b"2"}``.
    """

    @property
    def record_count(self) -> int:
        """Number of records in the log, including records that a later record of the same key replaces."""

    async def load(self) -> dict[bytes, bytes]:
        """Return the last value of each key that is not forgotten. The map is empty if no change was ever written.

        Raises:
            CorruptionError: the log is damaged.
        """

    async def write(self, changes: Sequence[Change], *, durable: bool = True) -> None:
        """Write changes in this order. A crash keeps all of them or none. They fit into one batch.

        Durable: on return. With ``durable=False`` the changes become durable with the next durable write. That suits
        changes that the next start can derive again.

        Raises:
            Problem: overloaded; nothing was written.
            DiskFullError, PartitionOfflineError: nothing was written.
            PartitionFailedError: it is not known whether the changes were written.
        """

    async def shorten(self, live: AsyncGenerator[Sequence[Change], None]) -> None:
        """Write all of ``live`` again, and delete every record before it. Durable: on return.

        ``live`` yields every change that counts, each part while its keys cannot change: a later change of them is
        written behind it. The generator is closed in any case. After a crash in between, the log has the old and the
        new records, which load the same.

        Raises:
            as ``write``; no record is deleted then.
        """

    def check_online(self) -> None:
        """Return unless a write is bound to fail.

        Raises:
            PartitionOfflineError: the disk of the log failed, or the log is damaged.
        """
