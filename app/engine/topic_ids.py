"""Ids of topics in requests."""

from __future__ import annotations

from log_model.errors import InconsistentTopicIdError

ZERO_TOPIC_ID = "A" * 22
"""What stands for no id in Kafka's protocol."""


def check_topic_id(name: str, topic_id: str, asked: str | None) -> None:
    """Return if the topic called ``name``, which has the id ``topic_id``, is the one that is asked for.

    Raises:
        InconsistentTopicIdError: the caller asked for another topic, such as one of this name that was deleted.
    """
    if asked not in (None, ZERO_TOPIC_ID, topic_id):
        raise InconsistentTopicIdError(f"topic {name} has the id {topic_id}, not {asked}")
