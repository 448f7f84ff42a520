"""The rules of retention: which segments are deleted, without the deletion itself (spec B10, E4, E5).

Retention deletes whole segments, oldest first, up to the first one that no rule deletes. The rules run one after the
other: below the log start offset, too many bytes, too old, a registered policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from log_model.config import TopicConfig
from log_model.errors import InvalidConfigError
from log_model.offsets import Offset
from log_model.retention import RetentionEntry, RetentionReason
from storage.segment.segment import Segment


class RetainedSegment:
    """The properties of a segment that retention uses."""

    __slots__ = ("_largest_timestamp", "_read_timestamp", "base_offset", "end_offset", "is_active", "size_bytes")

    def __init__(
        self,
        base_offset: Offset,
        end_offset: Offset,
        size_bytes: int,
        *,
        is_active: bool,
        read_timestamp: Callable[[], int],
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.size_bytes = size_bytes
        self.is_active = is_active
        self._read_timestamp = read_timestamp
        self._largest_timestamp: int | None = None

    @property
    def largest_timestamp(self) -> int:
        """The newest record's timestamp, or the file's age if no record has one. The first use reads the disk."""
        if self._largest_timestamp is None:
            self._largest_timestamp = self._read_timestamp()
        return self._largest_timestamp


RetentionPolicy = Callable[[RetainedSegment, RetainedSegment | None], bool]
"""A function of a segment and the next one, which returns whether the first may be deleted."""

_policies: dict[str, RetentionPolicy] = {}


def register_policy(name: str, policy: RetentionPolicy) -> None:
    """Make ``policy`` available to topics as ``retention.policy=<name>``; replace an earlier one of this name."""
    _policies[name] = policy


def check_policy(config: TopicConfig) -> None:
    """Check that the configuration names a registered policy, or none.

    Raises:
        InvalidConfigError: it names an unknown one.
    """
    if config.retention_policy and config.retention_policy not in _policies:
        known = ", ".join(sorted(_policies)) or "none"
        raise InvalidConfigError(
            [("retention.policy", f"{config.retention_policy!r} is not registered; registered: {known}")]
        )


def retained_segments(segments: Sequence[Segment], log_end_offset: Offset) -> list[RetainedSegment]:
    """Return the segments of a log, oldest first, in the form that retention uses."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    return [
        RetainedSegment(
            segment.base_offset,
            end_offset,
            segment.size_bytes,
            is_active=segment is segments[-1],
            read_timestamp=segment.retention_timestamp,
        )
        for segment, end_offset in zip(segments, ends, strict=True)
    ]


def find_reasons(
    segments: Sequence[RetainedSegment],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> list[RetentionReason]:
    """Return the rule that deletes each of the oldest segments, one for each deleted segment. Segments behind the first
    kept one are not examined, because there may be thousands."""
    rules: list[tuple[RetentionReason, Callable[[int], bool]]] = [
        (RetentionReason.LOG_START, lambda place: _ends_below(segments, place, log_start_offset)),
    ]
    if config.deletes:
        rules.append((RetentionReason.SIZE, _size_rule(segments, config)))
        rules.append((RetentionReason.TIME, lambda place: _is_old(segments[place], config, now_ms)))
        policy = _policies.get(config.retention_policy)
        if policy is not None:
            rules.append((RetentionReason.POLICY, lambda place: policy(segments[place], _after(segments, place))))
    reasons: list[RetentionReason] = []
    for reason, goes in rules:
        while (place := len(reasons)) < len(segments) and _may_go(segments[place], high_watermark) and goes(place):
            reasons.append(reason)
    return reasons


def plan_retention(
    segments: Sequence[RetainedSegment],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> list[RetentionEntry]:
    """Return for every segment, oldest first, whether it is deleted and why."""
    reasons = find_reasons(
        segments, config, now_ms=now_ms, log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    entries = [_kept(segment, config) for segment in segments]
    for place, reason in enumerate(reasons):
        entries[place] = replace(entries[place], reason=reason, held_by=None, due_ms=now_ms)
    place = len(reasons)
    if place < len(segments):
        entries[place] = _explain_first_kept(entries[place], segments[place], config, high_watermark)
    return entries


def _after(segments: Sequence[RetainedSegment], place: int) -> RetainedSegment | None:
    return segments[place + 1] if place + 1 < len(segments) else None


def _may_go(segment: RetainedSegment, high_watermark: Offset) -> bool:
    return high_watermark >= segment.end_offset and not (segment.is_active and segment.size_bytes == 0)


def _ends_below(segments: Sequence[RetainedSegment], place: int, log_start_offset: Offset) -> bool:
    following = _after(segments, place)
    return following is not None and following.base_offset <= log_start_offset


def _size_rule(segments: Sequence[RetainedSegment], config: TopicConfig) -> Callable[[int], bool]:
    """Make the rule that deletes while the remaining bytes are not below the limit (spec E5)."""

    total_bytes = sum(segment.size_bytes for segment in segments)
    up_to = list(accumulate(segment.size_bytes for segment in segments))

    def goes(place: int) -> bool:
        return config.retention_bytes >= 0 and total_bytes - up_to[place] >= config.retention_bytes

    return goes


def _is_old(segment: RetainedSegment, config: TopicConfig, now_ms: int) -> bool:
    return config.retention_ms >= 0 and now_ms - segment.largest_timestamp > config.retention_ms


def _kept(segment: RetainedSegment, config: TopicConfig) -> RetentionEntry:
    due_ms = None
    if config.deletes and config.retention_ms >= 0:
        due_ms = segment.largest_timestamp + config.retention_ms + 1
    return RetentionEntry(
        segment.base_offset,
        segment.end_offset,
        segment.size_bytes,
        segment.largest_timestamp,
        None,
        "an older segment is kept",
        due_ms,
    )


def _explain_first_kept(
    entry: RetentionEntry, segment: RetainedSegment, config: TopicConfig, high_watermark: Offset
) -> RetentionEntry:
    if segment.is_active and segment.size_bytes == 0:
        return replace(entry, held_by="it is active and empty", due_ms=None)
    if high_watermark < segment.end_offset:
        return replace(entry, held_by=f"the high watermark {high_watermark} is below its end")
    if not config.deletes:
        return replace(entry, held_by="cleanup.policy does not delete")
    if config.retention_bytes >= 0:
        return replace(entry, held_by="without it less than retention.bytes would remain" + _and_young(config))
    return replace(entry, held_by="it is younger than retention.ms" if config.retention_ms >= 0 else "no rule is set")


def _and_young(config: TopicConfig) -> str:
    return ", and it is younger than retention.ms" if config.retention_ms >= 0 else ""
