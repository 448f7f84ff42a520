"""The partition of each row: the one that it names, the one of its key, or, without a key, the next in turn.

This is Kafka's default partitioner: murmur2 of the key; rows without a key fill one partition for a batch, then the
next. The next one is not drawn at random but counted, from the number of the task on, so that every attempt of a task
makes the same choices.
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

# Characters that a message shows of a name that is too long.
_SHOWN_LENGTH_MAX = 50


def is_topic_name(name: str) -> bool:
    """Return whether a topic can have this name, by Kafka's rule. In a URL another name would lead to another path."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class TargetTopic(NamedTuple):
    """The properties of a topic that a writer needs."""

    name: str
    partition_count: int
    batch_bytes_max: int
    """Size of the largest batch that it accepts."""


class RoutedRows(NamedTuple):
    """Rows for one partition of one topic, or for ``NOWHERE`` with the reason and the fault of the first row."""

    topic: str
    partition: int
    rows: Rows
    reason: str = ""
    example: str = ""
    is_batch: bool = False
    """True if the rows are one batch of the wanted size."""


class Router:
    """The choice of a partition for each row. It keeps the next partition for rows without a key.

    ``find`` describes a topic, or returns ``None`` if there is none. Thread: one.
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
        """Yield the rows by partition, in order within each partition."""
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
        """Return the partition of each row; ``NOWHERE`` for a row that names a partition which does not exist."""
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
        """Yield partitions in turn, each with the rows ``[start, end)`` of about a batch."""
        turn = self._turns.get(topic.name, self._task)
        batches = even_batches(rows, min(self._batch_bytes, topic.batch_bytes_max))
        self._turns[topic.name] = turn + len(batches)
        for number, (start, end) in enumerate(batches, turn):
            yield number % topic.partition_count, start, end


def rows_by_topic(topic: str | None, rows: Rows) -> Iterator[tuple[str | None, Rows]]:
    """Yield the rows of each topic, in order: all rows for ``topic`` if it is given, else by their own topics.

    Rows without a topic come last, with ``None``.
    """
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
    """Return the reason why there is no topic of this name, and a sentence about it."""
    if is_topic_name(name):
        return "unknown topic", f"there is no topic {name!r}"
    shown = repr(name) if len(name) <= _SHOWN_LENGTH_MAX else f"{name[:_SHOWN_LENGTH_MAX]!r}..."
    rule = f"names have 1 to {_NAME_LENGTH_MAX} letters, digits, '.', '_' and '-', and are not '.' or '..'"
    return "invalid topic name", f"{shown} cannot be the name of a topic: {rule}"


def even_batches(rows: Rows, batch_bytes: int) -> list[tuple[int, int]]:
    """Return the rows ``[start, end)`` of each batch: as few batches as suffice, of about the same size."""
    sizes = estimated_bytes(rows)
    ends = np.cumsum(sizes)
    total = int(ends[-1])
    count = -(-total // batch_bytes)
    if count == 1:
        return [(0, len(rows))]
    # Rows are assigned by their middle, so that the last batch is as large as the rest.
    bounds = -(-2 * total * np.arange(1, count) // count)
    starts = np.searchsorted(2 * ends - sizes, bounds)
    # A row larger than a batch leaves empty batches.
    return list(pairwise(sorted({0, *starts.tolist(), len(rows)})))


def _sorted_rows(topic: TargetTopic, rows: Rows, partitions: Partitions) -> Iterator[RoutedRows]:
    """Yield the rows by partition: one sort, one take, and a slice for each partition."""
    # Narrow integers let numpy sort by counting. A stable sort keeps rows in order.
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
