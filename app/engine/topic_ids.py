"""Ids of topics in requests."""

from __future__ import annotations

from typing import Protocol

from app.engine.partitions import Topic
from log_model.errors import InconsistentTopicIdError

ZERO_TOPIC_ID = "A" * 22
"""The id that stands for no id in Kafka's protocol."""


class TopicIds(Protocol):
    """Topics by their ids. Thread: the event loop."""

    def find(self, topic_id: str) -> Topic | None:
        """Return the topic with this id, if it exists and ``learn`` was called since it was made."""

    def learn(self) -> None:
        """Learn the ids of all topics. The call may look at each topic: make it once for a request with unknown ids."""


def check_topic_id(name: str, topic_id: str, asked: str | None) -> None:
    """Return if the topic called ``name``, which has the id ``topic_id``, is the topic that the caller asked for.

    Raises:
        InconsistentTopicIdError: the caller asked for another topic, such as a deleted topic of this name.
    """
    if asked not in (None, ZERO_TOPIC_ID, topic_id):
        raise InconsistentTopicIdError(f"topic {name} has the id {topic_id}, not {asked}")
