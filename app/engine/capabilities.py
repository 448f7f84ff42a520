"""The capability table: the abilities of an engine beyond the calls that every engine has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Capability = Literal[
    "segments",
    "retention_plan",
    "retention_run",
    "begin_epoch",
    "log_start_reason",
    "exact_split_sizes",
    "fsync_durability",
    "expected_offset",
    "atomic_batches",
    "fetch_sessions",
]
"""The name of a capability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of one engine. They never change while the engine runs.

    Example: the local engine has all of them. An engine over a cluster of brokers has no ``segments``, and the route
    that lists them answers 501.
    """

    engine: str
    """The name of the engine, such as ``local``."""
    segments: bool
    """Segments of a partition can be listed."""
    retention_plan: bool
    """The engine can say which segments retention would delete."""
    retention_run: bool
    """Retention runs on request."""
    begin_epoch: bool
    """A leader epoch begins on request."""
    log_start_reason: bool
    """An offset below the log start is refused with the time and the cause of the last move of the log start."""
    exact_split_sizes: bool
    """The sizes of splits are counted, not estimated."""
    fsync_durability: bool
    """An append can wait for its fsync."""
    expected_offset: bool
    """An append can require the log end offset at which it begins."""
    atomic_batches: bool
    """Several batches for one partition are appended together or not at all."""
    fetch_sessions: bool
    """A fetch of many partitions can name only the partitions that changed since the last one."""

    def has(self, capability: Capability) -> bool:
        """Return whether the engine has this capability."""
        return bool(getattr(self, capability))


INSTEAD: Mapping[Capability, str] = MappingProxyType(
    {
        "segments": "the engine shows no segments; getPartition shows the size of the partition",
        "retention_plan": "the engine does not show its retention plan; getRetentionPolicy shows the policy in force",
        "retention_run": "the engine runs retention by its own schedule; deleteRecords deletes records at once",
        "begin_epoch": "the engine begins leader epochs itself; getEpochs shows them",
        "fsync_durability": "the engine does not tell when an fsync covers records; without durability acks decides",
        "expected_offset": "the engine cannot compare the log end offset when it appends; an idempotent producer or an "
        "Idempotency-Key also keeps records from being appended twice",
        "atomic_batches": "the engine appends the batches of a partition one by one; send one batch for each partition",
    }
)
"""For each capability that a route or a parameter needs: why the request is refused, and the way out."""
