"""The state of start positions, without a clock, a loop or a disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Positions = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class PinnedTopic:
    """The start positions of a group in a topic; meaningless once the topic of this name has another id."""

    topic_id: str
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class PinnedGroup:
    """All pins of a group. Immutable: a change makes another object."""

    topics: Mapping[str, PinnedTopic]
    asked_ms: int
    """When a request last pinned the group, in milliseconds since 1970; exact to half of the group's life."""

    @property
    def count(self) -> int:
        """The number of pinned positions."""
        return sum(len(topic.offsets) for topic in self.topics.values())

    def find(self, topic: str, topic_id: str, partition: int) -> int | None:
        """Return the start position in this partition; ``None`` if it has no pin, or only one of a deleted topic."""
        pinned = self.topics.get(topic)
        return None if pinned is None or pinned.topic_id != topic_id else pinned.offsets.get(partition)


class PositionTable:
    """All groups. The table counts their positions as they change."""

    def __init__(self) -> None:
        self._groups: dict[str, PinnedGroup] = {}
        self.position_count = 0

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[tuple[str, PinnedGroup]]:
        return iter(tuple(self._groups.items()))

    def find(self, group_id: str) -> PinnedGroup | None:
        """Return the pins of a group."""
        return self._groups.get(group_id)

    def put(self, group_id: str, group: PinnedGroup | None) -> None:
        """Replace the pins of a group; ``None`` forgets the group."""
        before = self._groups.pop(group_id, None)
        self.position_count -= 0 if before is None else before.count
        if group is not None:
            self._groups[group_id] = group
            self.position_count += group.count


def pin(
    group: PinnedGroup | None, wanted: Positions, topic_ids: Mapping[str, str], now_ms: int
) -> tuple[PinnedGroup, bool]:
    """Pin ``wanted`` where the group has no pin; return the group, and whether a position changes.

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
