"""The limits of a topic's records, and the time that it keeps them, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rollway.client import Topic
from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.expressions import RecordLimits

DEFAULTS: Mapping[str, object] = {
    "cleanup.policy": "delete",
    "max.message.bytes": 1_048_588,
    "message.timestamp.after.max.ms": 3_600_000,
    "message.timestamp.type": "CreateTime",
    "retention.ms": 604_800_000,
}
"""Settings of a topic that sets nothing else, unless the service's settings have other defaults."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of single records, and the time that a topic keeps them.

    The next run of retention deletes records before ``kept_from_ms``. It is ``None`` if age deletes none.
    """

    records: RecordLimits
    kept_from_ms: int | None = None
    retention_ms: int = -1

    @property
    def retention(self) -> str:
        """The retention for people: ``7 days, retention.ms=604800000``."""
        days = self.retention_ms / _DAY_MS
        return f"{days:g} day{'' if days == 1 else 's'}, retention.ms={self.retention_ms}"

    def too_old(self, topic: str, done: str, *, exists: bool = True) -> str:
        """Return the end of a sentence about records that are older than ``topic`` keeps. ``done`` is a participle,
        such as ``loaded``."""
        remedy = "--config retention.ms=-1"
        if exists:
            remedy = f"`rollway topics alter {topic} {remedy}`"
        return (
            f"older than {topic} keeps records ({self.retention}), and would be deleted soon. Nothing was {done}: "
            f"{remedy} keeps such records, --allow-expired takes them all the same."
        )


def shorter_limits(goal: Topic, source: Topic | None, now_ms: int) -> TopicLimits | None:
    """Return the limits of ``goal`` if it deletes records by age that ``source`` still keeps, or may keep; else
    ``None``.

    Records that the source keeps longer than its own retention asks do not count. ``source`` is ``None`` if its
    settings are unknown.
    """
    limits = topic_limits(None, goal.config, now_ms)
    if limits.kept_from_ms is None:
        return None
    if source is not None and source.config:
        own_ms = topic_limits(None, source.config, now_ms).kept_from_ms
        if own_ms is not None and own_ms >= limits.kept_from_ms:
            return None
    return limits


def topic_limits(partition_count: int | None, config: Mapping[str, object], now_ms: int) -> TopicLimits:
    """Return the limits of records that are written at ``now_ms``. A setting that ``config`` lacks limits nothing.

    Raises:
        JobUsageError: a setting that must be a number is none.
    """
    record_bytes_max = _number(config, "max.message.bytes")
    needs_key = "compact" in str(config.get("cleanup.policy", ""))
    if config.get("message.timestamp.type") == "LogAppendTime":
        return TopicLimits(RecordLimits(partition_count, record_bytes_max, needs_key=needs_key))
    before_ms, after_ms, retention_ms = (
        _number(config, name)
        for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "retention.ms")
    )
    records = RecordLimits(
        partition_count,
        record_bytes_max,
        oldest_ms=None if before_ms is None or before_ms >= now_ms else now_ms - before_ms,
        newest_ms=None if after_ms is None else now_ms + after_ms,
        needs_key=needs_key,
    )
    deletes = "delete" in str(config.get("cleanup.policy", ""))
    if retention_ms is None or not deletes or not 0 <= retention_ms < now_ms:
        return TopicLimits(records)
    return TopicLimits(records, now_ms - retention_ms, retention_ms)


def _number(config: Mapping[str, object], name: str) -> int | None:
    text = config.get(name)
    try:
        return None if text is None else int(str(text))
    except ValueError:
        raise JobUsageError(f"--config {name}={text} is not a whole number.") from None
