"""Positions: the subscribed partitions, the start and the end of a read, and offsets in the JSON of Kafka's source.

A position is the offset of the next record. Documents are Kafka's: ``{"flights": {"0": 123, "1": -2}}``, with -2 for
the earliest and -1 for the latest offset. Beside the partitions of a topic stands its id, ``"topic_id": "vbX5..."``:
offsets mean nothing in a topic of the same name that was created later. Documents of earlier versions have no ids.
"""

from __future__ import annotations

import logging
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rollway.client import OffsetAsk, PartitionOffsets, RollwayClient, TopicNotFoundError
from rollway.spark.errors import OptionError, StartNotFoundError, report_made_again
from rollway.spark.options.option_values import EARLIEST, LATEST, TOPIC_ID
from rollway.spark.options.options import ReadOptions

Positions = dict[str, dict[int, int]]
"""Offsets by topic and partition."""

TopicIds = dict[str, str]
"""Ids by topic."""

Limits = dict[str, dict[int, PartitionOffsets]]
"""The limits of every subscribed partition, by topic and partition."""

_NO_IDS: Mapping[str, str] = MappingProxyType({})
_NOTHING: Mapping[str, Mapping[int, int]] = MappingProxyType({})

_log = logging.getLogger(__name__)


def to_document(
    positions: Mapping[str, Mapping[int, int]], topic_ids: Mapping[str, str] = _NO_IDS
) -> dict[str, dict[str, int | str]]:
    """Return the document of these positions, in the topics with these ids. Equal positions in the same topics give
    equal text, by which Spark compares them."""
    return {
        topic: {
            **({TOPIC_ID: topic_ids[topic]} if topic in topic_ids else {}),
            **{str(partition): positions[topic][partition] for partition in sorted(positions[topic])},
        }
        for topic in sorted(positions)
    }


def from_document(document: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Return the positions of a document."""
    return {
        topic: {int(name): offset for name, offset in members.items() if name != TOPIC_ID}
        for topic, members in document.items()
    }


def ids_in(document: Mapping[str, Mapping[str, Any]]) -> TopicIds:
    """Return the ids of topics in a document, by topic. Documents of earlier versions have none."""
    return {topic: str(members[TOPIC_ID]) for topic, members in document.items() if TOPIC_ID in members}


def ids_of(limits: Limits) -> TopicIds:
    """Return the ids of the topics with these limits."""
    return {topic: one.topic_id for topic, partitions in limits.items() for one in partitions.values()}


def made_again(known: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return the known topics that have another id now."""
    return [topic for topic in sorted(known) if there.get(topic, known[topic]) != known[topic]]


def without_topics(positions: Positions, topics: Sequence[str]) -> Positions:
    """Return the positions in all topics but these."""
    return {topic: partitions for topic, partitions in positions.items() if topic not in topics}


def subscribed(client: RollwayClient, options: ReadOptions, *, may_miss: bool = False) -> Limits:
    """Return the limits of all subscribed partitions. With ``may_miss``, leave out topics that do not exist.

    Raises:
        TopicNotFoundError: a subscribed topic does not exist.
        OptionError: an assigned partition does not exist.
    """
    if options.subscribe_pattern is not None:
        wanted = re.compile(options.subscribe_pattern)
        return limits_of(client, filter(wanted.fullmatch, client.list_topics()), may_miss=True)
    if options.assign is None:
        assert options.subscribe is not None
        return limits_of(client, options.subscribe, may_miss=may_miss)
    there = limits_of(client, options.assign, may_miss=may_miss)
    for topic, limits in there.items():
        missing = sorted(set(options.assign[topic]) - set(limits))
        if missing:
            raise OptionError(f"assign names partition {missing[0]} of {topic}, which has {len(limits)}")
        there[topic] = {partition: limits[partition] for partition in sorted(set(options.assign[topic]))}
    return there


def limits_of(client: RollwayClient, topics: Iterable[str], *, may_miss: bool) -> Limits:
    """Return the limits of all partitions of these topics. With ``may_miss``, leave out topics that do not exist.

    Raises:
        TopicNotFoundError: a topic does not exist.
    """
    limits: Limits = {}
    for topic in sorted(set(topics)):
        try:
            limits[topic] = {one.partition: one for one in client.watermarks(topic)}
        except TopicNotFoundError:
            if not may_miss:
                raise
    return limits


def end_of(limit: PartitionOffsets, options: ReadOptions) -> int:
    """Return the present end of a partition for a reader of this isolation."""
    return limit.last_stable_offset if options.isolation == "read_committed" else limit.high_watermark


def ends_of(limits: Limits, options: ReadOptions) -> Positions:
    """Return the present ends of all partitions for a reader of this isolation."""
    return {
        topic: {partition: end_of(limit, options) for partition, limit in partitions.items()}
        for topic, partitions in limits.items()
    }


def ends_from(begin: Positions, limits: Limits, options: ReadOptions) -> Positions:
    """Return the present ends of all partitions for a reader at ``begin``.

    A reader never goes back: if the last stable offset is below its position, the position is the end. A log that ends
    before ``begin`` is a different one, and its end counts.
    """
    ends = ends_of(limits, options)
    for topic, partitions in limits.items():
        for partition, limit in partitions.items():
            offset = begin.get(topic, {}).get(partition, LATEST)
            if ends[topic][partition] < offset <= limit.high_watermark:
                ends[topic][partition] = offset
    return ends


def beyond(start: Positions, limits: Limits) -> Positions:
    """Return the positions of a start that are behind the end of their log: offsets of the user that never existed."""
    found: Positions = {}
    for topic, partitions in start.items():
        for partition, offset in partitions.items():
            limit = limits.get(topic, {}).get(partition)
            if limit is not None and offset > limit.high_watermark:
                found.setdefault(topic, {})[partition] = offset
    return found


def lost_before(begin: Positions, limits: Limits, never_there: Mapping[str, Mapping[int, int]] = _NOTHING) -> list[str]:
    """Describe the losses of a reader at ``begin``: missing partitions, and partitions that end before its position.

    Records that are not committed yet are not lost. Nothing was read up to positions that were ``never_there``.
    """
    lost = []
    for topic, partitions in begin.items():
        for partition, offset in partitions.items():
            limit = limits.get(topic, {}).get(partition)
            if limit is None:
                lost.append(f"{topic}-{partition} and its records from offset {offset} on")
            elif offset > limit.high_watermark:
                end = limit.high_watermark
                if never_there.get(topic, {}).get(partition) == offset:
                    told = f"is to be read from offset {offset} and ends at {end}: records between"
                else:
                    told = f"was read up to offset {offset} and now ends at {end}: records before"
                lost.append(f"{topic}-{partition} {told}")
    return lost


def check_all_named(option: str, named: Mapping[str, Mapping[int, int]], limits: Limits) -> None:
    """Require that an option has positions for exactly the partitions that are read, as in Kafka's source.

    Raises:
        OptionError: it names other partitions, or not all.
    """
    wanted = {(topic, partition) for topic, partitions in limits.items() for partition in partitions}
    given = {(topic, partition) for topic, partitions in named.items() for partition in partitions}
    if wanted == given:
        return
    missing, unknown = sorted(wanted - given), sorted(given - wanted)
    told = [f"{_listed(missing)} missing"] if missing else []
    told += [f"{_listed(unknown)} not subscribed, or not there"] if unknown else []
    raise OptionError(
        f"{option} must name every partition that is read, and no other: {'; '.join(told)} "
        "(-1 is the latest offset, -2 the earliest)"
    )


def _listed(places: Iterable[tuple[str, int]]) -> str:
    return _first_of([f"{topic}-{partition}" for topic, partition in places])


def _first_of(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def stream_start(client: RollwayClient, options: ReadOptions, limits: Limits) -> Positions:
    """Return the start of a new stream. ``LATEST`` stands for the end that a partition has when the stream begins.

    A time wins over times by partition, and these win over offsets. Offsets of a topic with another id belong to a
    topic that is gone. The present topic of the name is then read from its first record.

    Raises:
        OptionError: positions are given, but not for every partition.
        DataLossError: offsets are those of a deleted topic, and ``failOnDataLoss`` is true.
        StartNotFoundError: no record is as late as a start time, and the strategy is ``error``.
    """
    if options.starting_timestamp is not None:
        times = {topic: dict.fromkeys(partitions, options.starting_timestamp) for topic, partitions in limits.items()}
        return _at_times(client, options, times)
    if options.starting_offsets_by_timestamp is not None:
        check_all_named("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp, limits)
        return _at_times(client, options, options.starting_offsets_by_timestamp)
    starting = options.starting_offsets
    if isinstance(starting, str):
        place = EARLIEST if starting == "earliest" else LATEST
        starting = {topic: dict.fromkeys(partitions, place) for topic, partitions in limits.items()}
    else:
        check_all_named("startingOffsets", starting, limits)
        for topic in made_again(options.topic_ids, ids_of(limits)):
            report_made_again(topic, options.topic_ids[topic], fail=options.fail_on_data_loss)
            starting = {**starting, topic: dict.fromkeys(limits[topic], EARLIEST)}
    return {
        topic: {
            partition: limits[topic][partition].log_start_offset if offset == EARLIEST else offset
            for partition, offset in partitions.items()
        }
        for topic, partitions in starting.items()
    }


def _at_times(client: RollwayClient, options: ReadOptions, times: Mapping[str, Mapping[int, int]]) -> Positions:
    asked = [
        OffsetAsk(topic=topic, partition=partition, timestamp=timestamp)
        for topic, partitions in times.items()
        for partition, timestamp in partitions.items()
    ]
    found: Positions = {topic: {} for topic in times}
    for ask, answer in zip(asked, client.offsets_for_times(asked), strict=True):
        if answer.offset is None and options.starting_offsets_by_timestamp_strategy == "error":
            raise StartNotFoundError(ask.topic, ask.partition, times[ask.topic][ask.partition])
        found[ask.topic][ask.partition] = LATEST if answer.offset is None else answer.offset
    return found


def pinned_start(
    client: RollwayClient, group: str, start: Positions, ends: Positions, topic_ids: Mapping[str, str]
) -> Positions:
    """Return ``start`` with every ``LATEST`` replaced by a position that the service has pinned for the group.

    The first query of the group pins the present ends; later queries get its positions. Positions that are offsets stay
    the same. ``topic_ids`` are the ids of the topics. A pin that another query left, and a group that pins nothing,
    are logged as warnings.

    Raises:
        TopicReplacedError: a topic was deleted and created again after its end was looked up.
        RollwayError: the service cannot be reached, or refuses.
    """
    moving = {
        topic: {partition: ends[topic][partition] for partition, offset in partitions.items() if offset == LATEST}
        for topic, partitions in start.items()
    }
    moving = {topic: partitions for topic, partitions in moving.items() if partitions}
    if not moving:
        _log.warning("kafka.group.id does nothing for a query that starts at offsets that do not move")
        return start
    own_ids = {topic: topic_ids[topic] for topic in moving}
    pinned = client.pin_positions(group, moving, topic_ids=own_ids)
    differing = [
        f"{topic}-{partition} at {offset} instead of {moving[topic][partition]}"
        for topic, partitions in sorted(pinned.items())
        for partition, offset in sorted(partitions.items())
        if offset != moving[topic][partition]
    ]
    if differing:
        _log.warning(
            "the group %s has begun before, and this query starts where it did: %s; to start at the latest offsets, "
            "run `rollway positions delete %s --server %s` first",
            group,
            _first_of(differing),
            shlex.quote(group),
            client.settings.url,
        )
    return {topic: {**partitions, **pinned.get(topic, {})} for topic, partitions in start.items()}
