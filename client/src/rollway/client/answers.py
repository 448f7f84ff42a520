"""What the service answers. Names are those of its JSON; what a newer service adds is left out."""

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
    """What to say when reading an answer has failed like this."""
    what = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be read ({error})"
    return InvalidAnswerError(f"an answer of the service {what}; is it Rollway, and not older?")


@contextmanager
def reading() -> Iterator[None]:
    """Within, an answer is taken apart, and nothing else is done.

    Raises:
        InvalidAnswerError: something of it is missing, or is not what it should be.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise invalid_answer(error) from None


class _Document:
    """Something that is made of a JSON object."""

    __slots__ = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The answer in ``document``.

        Raises:
            InvalidAnswerError: a member is missing.
        """
        try:
            return cls(**{field.name: document[field.name] for field in fields(cls)})  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise invalid_answer(error) from None


@dataclass(frozen=True, slots=True)
class Topic(_Document):
    """A topic. ``config`` has the settings in force, ``own_config`` those of them that were given for this topic; both
    are empty for who may not see them."""

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

    Offsets belong to the topic with this ``topic_id``: one of the same name that is made later has another id.
    """

    topic_id: str
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class OffsetAsk:
    """A question: the first record at or after a time in milliseconds, or one of the special places."""

    topic: str
    partition: int
    timestamp: int | Place


@dataclass(frozen=True, slots=True)
class OffsetAnswer(_Document):
    """The place asked for; ``offset`` is ``None`` when no visible record is that late."""

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
    """All that is split of one partition, and the limits it had then."""

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
    """Ranges of a topic that have every offset once."""

    splits: list[SplitRange]
    partitions: list[SplitPartition]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole record batches of one partition; the first may begin below the offset asked for.

    ``aborted`` names producer id and first offset of each aborted transaction whose records may be among them. Go on
    at ``next_offset``, also when there are no batches.
    """

    batches: bytes
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    aborted: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Appended(_Document):
    """Where batches went. ``last_offset`` is inclusive; ``duplicate``: they had been there already."""

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
    """What a load job has written to one partition."""

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
    """Where it writes, if whoever began it said so; empty in lists of jobs, and from services that do not tell."""
    partitions: list[JobPartition]
    """Empty in lists of jobs."""

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
