"""From topic ids to topics."""

from __future__ import annotations

from collections.abc import Mapping

from storage.manager.topic_registry import Topic


class TopicIds:
    """Finds topics by their ids. It keeps the names of known ids, and ``learn`` looks at all topics for a new id.

    Thread: the event loop.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._names: dict[str, str] = {}

    def find(self, topic_id: str) -> Topic | None:
        """Return the topic with this id, unless it was deleted or was made after the last call of ``learn``."""
        topic = self._topics.get(self._names.get(topic_id, ""))
        return topic if topic is not None and topic.topic_id == topic_id else None

    def learn(self) -> None:
        """Learn the ids of all topics."""
        self._names = {topic.topic_id: topic.name for topic in tuple(self._topics.values())}
