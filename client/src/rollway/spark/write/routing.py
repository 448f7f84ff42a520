"""Where each row goes: its own partition, that of its key, or, without a key, the one that is next.

As Kafka's default partitioner: keys by murmur2; rows without a key fill one partition for a batch, then the next. The
next is not drawn but counted, from the number of the task on, so that an attempt does again what another did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rollway.records import BinaryColumn, partitions_for_keys
from rollway.spark.write.arrow_rows import Rows, estimated_bytes

Partitions = npt.NDArray[np.int32]

NOWHERE = -1

_NAME_LENGTH_MAX = 249
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{_NAME_LENGTH_MAX}}}")

# Of a name that is too long.
_SHOWN_LENGTH_MAX = 50


def is_topic_name(name: str) -> bool:
    """Whether a topic can have this name. Kafka's rule; in an address, others lead elsewhere."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class TargetTopic(NamedTuple):
    """What a writer must know of a topic."""

    name: str
    partition_count: int
    batch_bytes_max: int
    """The largest batch it takes."""


class RoutedRows(NamedTuple):
    """Rows that go to one partition of one topic, or ``NOWHERE``; then why, and what is wrong with the first."""

    topic: str
    partition: int
    rows: Rows
    reason: str = ""
    example: str = ""
    is_batch: bool = False
    """They are one batch, as large as one is to be."""


class Router:
    """Sends rows where they belong; keeps which partition is next for those without a key.

    ``find`` describes a topic, or returns ``None`` when there is none. Thread: one.
    """

    def __init__(
        self, topic: str | None, find: Callable[[str], TargetTopic | None], task: int, batch_bytes: int
    ) -> None:
        self._topic = topic
        self._find = find
        self._task = task
        self._batch_bytes = batch_bytes
        self._turns: dict[str, int] = {}

    def route(self, rows: Rows) -> Iterator[RoutedRows]:
        """The rows, in order within each partition."""
        for name, part in rows_by_topic(self._topic, rows):
            if name is not None:
                yield from self._route_topic(name, part)
            elif rows.topics is None:
                example = "a row has no topic, and the option 'topic' is not given"
                yield RoutedRows("", NOWHERE, part, "no topic", example)
            else:
                yield RoutedRows("", NOWHERE, part, "no topic", "the topic of a row is null")

    def _route_topic(self, name: str, rows: Rows) -> Iterator[RoutedRows]:
        topic = self._find(name)
        if topic is None:
            reason, example = _why_not(name)
            yield RoutedRows(name, NOWHERE, rows, reason, example)
            return
        is_named = rows.partitions is not None and rows.partitions.null_count < len(rows)
        if not is_named and topic.partition_count == 1:
            yield RoutedRows(name, 0, rows)
        elif not is_named and not rows.has_keys:
            for partition, start, end in self._take_turns(topic, rows):
                yield RoutedRows(name, partition, rows.slice(start, end), is_batch=True)
        else:
            yield from _sorted_rows(topic, rows, self._partitions(topic, rows))

    def _partitions(self, topic: TargetTopic, rows: Rows) -> Partitions:
        """The partition of each row, ``NOWHERE`` for those that name one that is not there."""
        count = len(rows)
        is_open = np.ones(count, dtype=np.bool_)
        partitions = np.full(count, NOWHERE, dtype=np.int32)
        if rows.keys is not None and rows.has_keys:
            partitions = partitions_for_keys(BinaryColumn.from_arrow(rows.keys), topic.partition_count)
            is_open = partitions == NOWHERE
        if rows.partitions is not None and rows.partitions.null_count < count:
            is_given = np.asarray(rows.partitions.is_valid())
            given = rows.partitions.fill_null(0).to_numpy(zero_copy_only=False)
            is_there = (given >= 0) & (given < topic.partition_count)
            partitions = np.where(is_given, np.where(is_there, given, NOWHERE), partitions).astype(np.int32)
            is_open &= ~is_given
        places = np.flatnonzero(is_open)
        if len(places):
            for partition, start, end in self._take_turns(topic, rows.take(places)):
                partitions[places[start:end]] = partition
        return partitions

    def _take_turns(self, topic: TargetTopic, rows: Rows) -> Iterator[tuple[int, int, int]]:
        """Partitions in turn, each with the rows ``[start, end)`` of about a batch."""
        turn = self._turns.get(topic.name, self._task)
        batches = even_batches(rows, min(self._batch_bytes, topic.batch_bytes_max))
        self._turns[topic.name] = turn + len(batches)
        for number, (start, end) in enumerate(batches, turn):
            yield number % topic.partition_count, start, end


def rows_by_topic(topic: str | None, rows: Rows) -> Iterator[tuple[str | None, Rows]]:
    """The rows of each topic, in order: the one that is given, or else those that they name, ``None`` last."""
    if topic is not None or rows.topics is None:
        yield topic, rows
        return
    names = rows.topics.dictionary_encode()
    codes = names.indices.fill_null(NOWHERE).to_numpy(zero_copy_only=False)
    for code, name in enumerate(names.dictionary.to_pylist()):
        text = name.decode(errors="replace") if isinstance(name, bytes) else name
        places = np.flatnonzero(codes == code)
        yield text, rows if len(places) == len(rows) else rows.take(places)
    missing = np.flatnonzero(codes == NOWHERE)
    if len(missing):
        yield None, rows.take(missing)


def _why_not(name: str) -> tuple[str, str]:
    """The reason why there is no topic of this name, and the sentence."""
    if is_topic_name(name):
        return "unknown topic", f"there is no topic {name!r}"
    shown = repr(name) if len(name) <= _SHOWN_LENGTH_MAX else f"{name[:_SHOWN_LENGTH_MAX]!r}..."
    rule = f"names have 1 to {_NAME_LENGTH_MAX} letters, digits, '.', '_' and '-', and are not '.' or '..'"
    return "invalid topic name", f"{shown} cannot be the name of a topic: {rule}"


def even_batches(rows: Rows, batch_bytes: int) -> list[tuple[int, int]]:
    """Rows ``[start, end)`` of each batch: as many as it takes, and about as large as each other."""
    sizes = estimated_bytes(rows)
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    count = -(-total // batch_bytes)
    if count == 1:
        return [(0, len(rows))]
    # By the middle of each row, so that the last batch is no smaller than the others.
    bounds = -(-2 * total * np.arange(1, count) // count)
    starts = np.searchsorted(2 * ends - sizes, bounds)
    # A row larger than a batch leaves some without any.
    return list(pairwise(sorted({0, *starts.tolist(), len(rows)})))


def _sorted_rows(topic: TargetTopic, rows: Rows, partitions: Partitions) -> Iterator[RoutedRows]:
    """One sort, one take, and a slice for each partition."""
    # Narrow, so that numpy sorts by counting; stable, so that rows stay in order.
    narrow = partitions.astype(np.int16) if topic.partition_count < 1 << 15 else partitions
    counts = np.bincount(narrow + 1, minlength=topic.partition_count + 1)
    ends = np.cumsum(counts)
    if counts.max() < len(rows):
        rows = rows.take(np.argsort(narrow, kind="stable"))
    for place in np.flatnonzero(counts).tolist():
        part = rows.slice(int(ends[place] - counts[place]), int(ends[place]))
        if place == 0:
            assert part.partitions is not None
            asked = part.partitions[0].as_py()
            example = f"a row names partition {asked}, and topic {topic.name!r} has 0 to {topic.partition_count - 1}"
            yield RoutedRows(topic.name, NOWHERE, part, "no such partition", example)
        else:
            yield RoutedRows(topic.name, place - 1, part)
