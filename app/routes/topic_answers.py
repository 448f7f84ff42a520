"""Answers about topics, made a piece at a time: a topic may have 10,000 partitions, and a page 1,000 topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from app.engine_local.engine import LocalEngine
from app.event_loop.piecewise import pieces, smallest
from app.routes.answers import describe_partition, describe_plan, describe_topic
from schemas.retention import RetentionPlan
from schemas.topics import PartitionList, TopicPage
from storage.log.partition_log import PartitionLog
from storage.log.retention import RetentionEntry
from storage.manager.topic_registry import Topic

Item = TypeVar("Item")


async def page_of_topics(
    engine: LocalEngine, prefix: str, start_after: str, limit: int, is_visible: Callable[[str], bool]
) -> list[Topic]:
    """The first ``limit`` visible topics by name that begin with ``prefix`` and come after ``start_after``."""

    def is_wanted(topic: Topic) -> bool:
        return topic.name.startswith(prefix) and topic.name > start_after and is_visible(topic.name)

    return await smallest(tuple(engine.manager.topics.values()), limit, lambda topic: topic.name, is_wanted)


async def topic_json(topic: Topic, *, with_config: bool) -> bytes:
    """A ``TopicDescription`` as JSON, with or without its settings."""
    shell = describe_topic(topic, (), with_config=with_config)
    return await _filled(shell, "partitions", topic.partitions, describe_partition)


async def page_json(topics: Sequence[Topic], has_more: bool, shows_config: Callable[[str], bool]) -> bytes:
    """A ``TopicPage`` as JSON; ``shows_config`` tells whether the settings of the topic of a name are shown."""
    cursor = topics[-1].name if has_more else None
    before, after = _around(TopicPage(data=[], has_more=has_more, next_cursor=cursor), "data")
    described = [await topic_json(topic, with_config=shows_config(topic.name)) for topic in topics]
    return b"".join((before, b",".join(described), after))


async def partitions_json(topic: Topic) -> bytes:
    """A ``PartitionList`` as JSON."""
    shell = PartitionList(topic_id=topic.topic_id, partitions=[])
    return await _filled(shell, "partitions", topic.partitions, describe_partition)


async def plan_json(plan: Iterable[tuple[PartitionLog, Sequence[RetentionEntry]]]) -> bytes:
    """A ``RetentionPlan`` as JSON."""
    return await _filled(RetentionPlan(partitions=[]), "partitions", plan, lambda entry: describe_plan(*entry))


async def _filled(shell: BaseModel, field: str, items: Iterable[Item], describe: Callable[[Item], BaseModel]) -> bytes:
    """``shell`` as JSON, with what ``describe`` makes of ``items`` in its ``field``, which is an empty list."""
    before, after = _around(shell, field)
    described = [
        b",".join(describe(item).model_dump_json().encode() for item in piece) async for piece in pieces(items)
    ]
    return b"".join((before, b",".join(described), after))


def _around(shell: BaseModel, field: str) -> tuple[bytes, bytes]:
    # No text before it can look like this: in a text a quote is escaped.
    name = f'"{field}":['
    before, after = shell.model_dump_json().split(f"{name}]", 1)
    return f"{before}{name}".encode(), f"]{after}".encode()
