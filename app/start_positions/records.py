"""The records of ``__start_positions``. The key is the group's id, and the value is JSON with all pins of the group.

::

    {"version": 1, "asked_ms", "topics": [[name, topic id, [partition, ...], [offset, ...]], ...]}

The last record of a key counts. A null value says that the group has no pins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from app.engine.state import Change
from app.start_positions.state import PinnedGroup, PinnedTopic, PositionTable
from log_model.errors import CorruptionError

TOPIC = "__start_positions"
_VERSION = 1


def group_change(group_id: str, group: PinnedGroup | None) -> Change:
    """Return the record with all pins of a group, or the record that forgets the group."""
    if group is None:
        return group_id.encode(), None
    topics = [
        [name, topic.topic_id, list(topic.offsets), list(topic.offsets.values())]
        for name, topic in group.topics.items()
    ]
    value = {"version": _VERSION, "asked_ms": group.asked_ms, "topics": topics}
    return group_id.encode(), json.dumps(value, separators=(",", ":")).encode()


def read_table(known: Mapping[bytes, bytes]) -> PositionTable:
    """Return the table that the records describe.

    Raises:
        CorruptionError: a record is none of this topic's.
    """
    table = PositionTable()
    for key, value in known.items():
        try:
            table.put(key.decode(), _read(value))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptionError(f"a record of {TOPIC} is damaged: {key[:100]!r}: {error!r}") from error
    return table


def _read(value: bytes) -> PinnedGroup:
    content = json.loads(value)
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']!r} is not {_VERSION}")
    topics = {
        str(name): PinnedTopic(str(topic_id), dict(zip(map(int, partitions), map(int, offsets), strict=True)))
        for name, topic_id, partitions, offsets in content["topics"]
    }
    return PinnedGroup(topics, int(content["asked_ms"]))
