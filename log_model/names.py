"""The names of topics and partitions, and the topics that belong to the service itself."""

from __future__ import annotations

import re
from typing import NamedTuple

from log_model.errors import InvalidTopicError

TOPIC_NAME_LENGTH_MAX = 249


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PartitionName(NamedTuple):
    """A topic name and a partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Return a sentence that says why ``name`` cannot name a topic; ``None`` if it can (spec Defaults)."""
    if not name:
        return "a topic name cannot be empty"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if name in {".", ".."}:
        return 'a topic name cannot be "." or ".."'
    if _TOPIC_NAME.fullmatch(name) is None:
        return "a topic name has only ASCII letters, digits, '.', '_' and '-'"
    return None


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__load_jobs", "__start_positions", "__transaction_state"})


def refuse_internal(name: str) -> None:
    """Refuse internal topics, which clients may only read and describe.

    Raises:
        InvalidTopicError: ``name`` is an internal topic.
    """
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{name} is an internal topic: it can be read and described, not written or changed")
