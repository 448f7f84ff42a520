"""JSON documents of topics, encoded piece by piece: a topic may have 10,000 partitions, and a page 1,000 topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from pydantic import BaseModel

from app.engine.partitions import Topic
from app.engine.topics import PartitionView, Topics
from app.event_loop.piecewise import pieces
from app.routes.answers import describe_partition, describe_plan, describe_topic
from log_model.retention import RetentionEntry
from schemas.retention import RetentionPlan
from schemas.topics import PartitionList, TopicPage

Item = TypeVar("Item")


async def topic_json(topics: Topics, topic: Topic, *, with_config: bool) -> bytes:
    """Return a ``TopicDescription`` as JSON, with or without the settings."""
    return await _topic_json(topic, await topics.describe([topic]), with_config=with_config)


async def _topic_json(topic: Topic, views: Iterable[PartitionView], *, with_config: bool) -> bytes:
    shell = describe_topic(topic, with_config=with_config)
    return await _filled(shell, "partitions", views, describe_partition)


async def page_json(
    topics: Topics, page: Sequence[Topic], has_more: bool, shows_config: Callable[[str], bool]
) -> bytes:
    """Return a ``TopicPage`` as JSON.

    ``shows_config`` receives the name of a topic, and returns whether the page shows the topic's settings.
    """
    cursor = page[-1].name if has_more else None
    before, after = _around(TopicPage(data=[], has_more=has_more, next_cursor=cursor), "data")
    # One call for the whole page: to an engine on other machines each call is a round trip.
    views = iter(await topics.describe(page))
    described = [
        await _topic_json(topic, islice(views, topic.partition_count), with_config=shows_config(topic.name))
        for topic in page
    ]
    return b"".join((before, b",".join(described), after))


async def partitions_json(topics: Topics, topic: Topic) -> bytes:
    """Return a ``PartitionList`` as JSON."""
    shell = PartitionList(topic_id=topic.topic_id, partitions=[])
    return await _filled(shell, "partitions", await topics.describe([topic]), describe_partition)


async def plan_json(plan: Iterable[tuple[int, Sequence[RetentionEntry]]]) -> bytes:
    """Return a ``RetentionPlan`` as JSON."""
    return await _filled(RetentionPlan(partitions=[]), "partitions", plan, lambda entry: describe_plan(*entry))


async def _filled(shell: BaseModel, field: str, items: Iterable[Item], describe: Callable[[Item], BaseModel]) -> bytes:
    """Return ``shell`` as JSON, with the documents of ``items`` in its ``field``, which must be an empty list."""
    before, after = _around(shell, field)
    described = [
        b",".join(describe(item).model_dump_json().encode() for item in piece) async for piece in pieces(items)
    ]
    return b"".join((before, b",".join(described), after))


def _around(shell: BaseModel, field: str) -> tuple[bytes, bytes]:
    # No text before the field can contain this sequence: JSON escapes quotes within a text.
    name = f'"{field}":['
    before, after = shell.model_dump_json().split(f"{name}]", 1)
    return f"{before}{name}".encode(), f"]{after}".encode()
