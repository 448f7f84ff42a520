"""Responses of the service. Names are those of its JSON; members that a newer service adds are ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from rollway.client.errors import InvalidAnswerError

Isolation = Literal["read_uncommitted", "read_committed"]
Place = Literal["earliest", "latest", "max_timestamp"]
JobMode = Literal["transactional", "idempotent"]


def invalid_answer(error: Exception) -> InvalidAnswerError:
    """Return the error for a response that could not be read because of ``error``."""
    what = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
    return InvalidAnswerError(f"an answer of the service {what}; is it Rollway, and not older?")


@contextmanager
def reading() -> Iterator[None]:
    """Read the members of a response in the block, and do nothing else there.

    Raises:
        InvalidAnswerError: a member is missing, or has another type.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise invalid_answer(error) from None


class _Document:
    """The base of classes that are made of a JSON object."""

    __slots__ = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Make an instance of ``document``.

        Raises:
            InvalidAnswerError: a member is missing.
        """
        try:
            return cls(**{field.name: document[field.name] for field in fields(cls)})  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise invalid_answer(error) from None


@dataclass(frozen=True, slots=True)
class Topic(_Document):
    """A topic. ``config`` has the settings in force, ``own_config`` the ones that were set for this topic. Both are
    empty if the caller may not see them."""

    name: str
    topic_id: str
    partition_count: int
    config: dict[str, str | int | bool]
    own_config: dict[str, str | int | bool]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        with reading():
            config = {name: setting["value"] for name, setting in document["config"].items()}
            own = {name: config[name] for name, setting in document["config"].items() if setting["source"] == "topic"}
            return cls(document["name"], document["topic_id"], len(document["partitions"]), config, own)


@dataclass(frozen=True, slots=True)
class PartitionOffsets(_Document):
    """The limits of a partition. Ends are exclusive.

    Offsets belong to the topic with this ``topic_id``. A topic of the same name that is created later has another id.
    """

    topic_id: str
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class OffsetAsk:
    """A query for the first record at or after a time in milliseconds, or for one of the special places.

    Example: ``OffsetAsk("readings", 0, 1714564800000)``.
    """

    topic: str
    partition: int
    timestamp: int | Place


@dataclass(frozen=True, slots=True)
class OffsetAnswer(_Document):
    """The answer to an ``OffsetAsk``. ``offset`` is ``None`` if no visible record is that late."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class SplitRange(_Document):
    """The offsets ``[start_offset, end_offset)`` of one partition, cut between batches."""

    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SplitPartition(_Document):
    """The whole range of one partition that was split, and the partition's limits at that moment."""

    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    skipped_count: int
    start_is_late: bool


@dataclass(frozen=True, slots=True)
class Splits:
    """Ranges of a topic that cover every offset once."""

    splits: list[SplitRange]
    partitions: list[SplitPartition]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole record batches of one partition. The first batch may begin below the requested offset.

    ``aborted`` has producer id and first offset of each aborted transaction whose records may be in the batches. The
    next fetch begins at ``next_offset``, also if there are no batches.
    """

    batches: bytes
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Appended(_Document):
    """The offsets of appended batches. ``last_offset`` is inclusive; ``duplicate``: they were appended before."""

    partition: int
    base_offset: int
    last_offset: int
    record_count: int
    log_append_time: int
    log_start_offset: int
    durable_offset: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class JobPartition(_Document):
    """The records that a load job has written to one partition."""

    topic: str
    partition: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Job(_Document):
    """A load job. ``state`` is open, committing, committed, aborting or aborted."""

    job_id: str
    application_id: str
    version: int
    mode: JobMode
    state: str
    reason: str | None
    timeout_ms: int
    begin_timestamp: int
    last_update_timestamp: int
    task_count: int
    attempt_count: int
    winner_count: int
    rows: int
    size_bytes: int
    elapsed_ms: int
    rows_per_second: int
    bytes_per_second: int
    topics: list[str]
    """Topics that the job writes to, if its driver named them. Empty in lists of jobs, and from older services."""
    partitions: list[JobPartition]
    """Records written so far, by partition. Empty in lists of jobs."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        with reading():
            partitions = [JobPartition.of(each) for each in document.get("partitions", ())]
            topics = list(document.get("topics", ()))
            return super(Job, cls).of({**document, "topics": topics, "partitions": partitions})


@dataclass(frozen=True, slots=True)
class JobAttempt(_Document):
    """The identity that an attempt of a task produces with. Sequences begin at 0 in each partition."""

    job_id: str
    task: int
    attempt: int
    producer_id: int
    producer_epoch: int
    transactional: bool
