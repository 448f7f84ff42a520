"""From topic ids to topics."""

from __future__ import annotations

from collections.abc import Mapping

from log_model.errors import InconsistentTopicIdError
from storage.manager.topic_registry import Topic

ZERO_TOPIC_ID = "A" * 22
"""What stands for no id in Kafka's protocol."""


def check_topic_id(name: str, topic_id: str, asked: str | None) -> None:
    """Return if the topic called ``name``, which has the id ``topic_id``, is the one that is asked for.

    Raises:
        InconsistentTopicIdError: the caller asked for another topic, such as one of this name that was deleted.
    """
    if asked not in (None, ZERO_TOPIC_ID, topic_id):
        raise InconsistentTopicIdError(f"topic {name} has the id {topic_id}, not {asked}")


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
