"""The decisions of retention about each segment, and their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from log_model.offsets import Offset


class RetentionReason(StrEnum):
    """The rule that deletes a segment."""

    LOG_START = "log_start_offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    POLICY = "retention.policy"


@dataclass(frozen=True, slots=True)
class RetentionEntry:
    """One segment in a plan: the rule that deletes it now, or the reason that keeps it and until when."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    largest_timestamp: int
    reason: RetentionReason | None
    held_by: str | None
    due_ms: int | None


class DeletedSegment(NamedTuple):
    """A segment that retention removed, and by which rule."""

    base_offset: Offset
    size_bytes: int
    reason: str
