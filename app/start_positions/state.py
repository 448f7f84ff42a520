"""What is known of start positions, without a clock, a loop or a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Positions = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class PinnedTopic:
    """Where a group starts in a topic; meaningless once the topic of this name has another id."""

    topic_id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class PinnedGroup:
    """Everything that is pinned for a group. Immutable: a change makes another."""

    topics: Mapping[str, PinnedTopic]
    asked_ms: int
    """When a request last pinned the group, in milliseconds since 1970; exact to half of the group's life."""

    @property
    def count(self) -> int:
        """Its positions."""
        return sum(len(topic.offsets) for topic in self.topics.values())

    def find(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Where it starts in this partition; ``None`` when nothing is pinned, or only for a topic that is gone."""
        pinned = self.topics.get(topic)
        return None if pinned is None or pinned.topic_id != topic_id else pinned.offsets.get(partition)


class PositionTable:
    """All groups. Counts their positions as it goes."""

    def __init__(self) -> None:
        self._groups: dict[str, PinnedGroup] = {}
        self.position_count = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[tuple[str, PinnedGroup]]:
        return iter(tuple(self._groups.items()))

    def find(self, group_id: str) -> PinnedGroup | None:
        """What is pinned for a group."""
        return self._groups.get(group_id)

    def put(self, group_id: str, group: PinnedGroup | None) -> None:
        """Take note of what is pinned for a group now; ``None`` forgets it."""
        before = self._groups.pop(group_id, None)
        self.position_count -= 0 if before is None else before.count
        if group is not None:
            self._groups[group_id] = group
            self.position_count += group.count


def pin(
    group: PinnedGroup | None, wanted: Positions, topic_ids: Mapping[str, str], now_ms: int
) -> tuple[PinnedGroup, bool]:
    """The group with ``wanted`` pinned where nothing was, and whether that changes a position.

    Positions in topics that were deleted since are replaced. ``topic_ids`` has every topic of ``wanted``.
    """
    topics = {} if group is None else dict(group.topics)
    changes = False
    for name, offsets in wanted.items():
        known = topics.get(name)
        kept = known.offsets if known is not None and known.topic_id == topic_ids[name] else {}
        if offsets.keys() - kept.keys():
            topics[name] = PinnedTopic(topic_ids[name], {**offsets, **kept})
            changes = True
    return PinnedGroup(topics, now_ms), changes
