"""From topic ids to topics."""

from __future__ import annotations

from collections.abc import Mapping

from storage.manager.topic_registry import Topic


class TopicIds:
    """Finds topics by their ids: knows their names by heart, and looks at all topics for an id it does not know.

    Thread: the event loop.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._names: dict[str, str] = {}

    def find(self, topic_id: str) -> Topic | None:
        """The topic with this id, if ``learn`` was called since it was made and it was not deleted."""
        topic = self._topics.get(self._names.get(topic_id, ""))
        return topic if topic is not None and topic.topic_id == topic_id else None

    def learn(self) -> None:
        """Look at all topics."""
        self._names = {topic.topic_id: topic.name for topic in tuple(self._topics.values())}
