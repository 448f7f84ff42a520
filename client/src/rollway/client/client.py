"""Typed calls of the service, each of which may be made again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote, urlencode

from rollway.client.answers import (
    Appended,
    Fetched,
    Isolation,
    Job,
    JobAttempt,
    JobMode,
    OffsetAnswer,
    OffsetAsk,
    PartitionOffsets,
    SplitPartition,
    SplitRange,
    Splits,
    Topic,
    reading,
)
from rollway.client.errors import InvalidAnswerError, problem_error
from rollway.client.settings import ClientSettings
from rollway.client.transport import JSON, Answer, Transport
from rollway.records import decode_multi_frame

RECORD_BATCHES = "application/vnd.kafka.record-batch.v2"
FRAMES = "application/vnd.rollway.multi-fetch"
END_TIMEOUT_MS = 30_000
"""How long the service may take to begin or end a job before it answers that it goes on."""
PAGE_SIZE = 1_000
OFFSET_ASKS_MAX = 10_000
"""Questions in one request; more are asked in several."""
FETCH_PARTITIONS_MAX = 10_000
"""Partitions in one request; more are waited for in turns."""
MEMBERS_BYTES_MAX = 1_000_000
"""Bytes of the questions or partitions in one request. The service takes 1 MiB, with what stands around them."""

# An upper bound for the JSON of a question or a partition, but for the name of its topic and the quotes around that.
_MEMBER_BYTES = 152

_Member = TypeVar("_Member")
_NO_CONFIG: Mapping[str, object] = MappingProxyType({})
_NO_TOPIC_IDS: Mapping[str, str] = MappingProxyType({})


class RollwayClient:
    """The service at one address.

    Thread-safe, with one connection for each thread that asks at the same time; connections are kept. Blocks. Not
    picklable: make one in each task from its ``ClientSettings``.

    Every call raises ``ServiceUnavailableError`` when the service cannot be reached, ``ProblemError``, or the kind of
    it that says what is wrong, when it refuses, and ``InvalidAnswerError`` when what answers is not Rollway.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._transport = Transport(settings)
        self._turns = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RollwayClient has connections and cannot be pickled; make one from its settings in each task"
        )

    def close(self) -> None:
        """Close all connections. The client can be used again, and then makes new ones."""
        self._transport.close()

    @property
    def retry_count(self) -> int:
        """How many requests were sent again so far."""
        return self._transport.retry_count

    # Topics

    def list_topics(self) -> list[str]:
        """Names of all topics that may be described, in order; not the service's own."""
        topics = list(self._pages("/v1/topics", {}))
        with reading():
            return [topic["name"] for topic in topics if not topic["internal"]]

    def describe_topic(self, topic: str) -> Topic:
        """The topic as it is.

        Raises:
            TopicNotFoundError: there is none.
        """
        return Topic.of(self._get(_topic(topic)))

    def create_topic(
        self, topic: str, partitions: int | None = None, config: Mapping[str, object] = _NO_CONFIG
    ) -> Topic:
        """Make sure that there is such a topic. Partitions that are not said are one.

        Raises:
            TopicExistsError: it exists with other partitions or settings.
        """
        specification: dict[str, object] = {"config": dict(config)}
        if partitions is not None:
            specification["partitions"] = partitions
        return Topic.of(self._json("PUT", _topic(topic), specification))

    def split(self, topic: str, request: Mapping[str, object]) -> Splits:
        """Ranges of about equal bytes; ``request`` is the body of the splits route.

        Raises:
            TopicNotFoundError: there is none.
            TopicReplacedError: the request names a ``topic_id``, and the topic has another one.
            OffsetOutOfRangeError: a start offset is below the log start, unless the request allows that.
        """
        document = self._json("POST", f"{_topic(topic)}/splits", request)
        with reading():
            return Splits(
                [SplitRange.of(each) for each in document["splits"]],
                [SplitPartition.of(each) for each in document["partitions"]],
                document["size_bytes"],
            )

    # Offsets

    def watermarks(self, topic: str) -> list[PartitionOffsets]:
        """The limits of all partitions, in their order.

        Raises:
            TopicNotFoundError: there is none.
        """
        document = self._get(f"{_topic(topic)}/partitions")
        with reading():
            topic_id = document["topic_id"]
            return [PartitionOffsets.of({**each, "topic_id": topic_id}) for each in document["partitions"]]

    def offsets_for_times(
        self, asked: Sequence[OffsetAsk], *, isolation: Isolation = "read_uncommitted"
    ) -> list[OffsetAnswer]:
        """An answer for each question, in their order.

        Raises:
            ProblemError: the first of the questions that have no answer.
        """
        answers: list[OffsetAnswer] = []
        for part in _parts([(ask.topic, ask) for ask in asked], OFFSET_ASKS_MAX):
            queries = [{"topic": ask.topic, "partition": ask.partition, "timestamp": ask.timestamp} for ask in part]
            document = self._json("POST", "/v1/offsets", {"queries": queries, "isolation": isolation})
            with reading():
                answers += [self._offset_answer(result) for result in document["results"]]
        if len(answers) != len(asked):
            raise InvalidAnswerError(
                f"the service has {len(answers)} answers to {len(asked)} questions; is it Rollway?"
            )
        return answers

    def _offset_answer(self, result: Mapping[str, Any]) -> OffsetAnswer:
        if (problem := result.get("error")) is not None:
            raise problem_error(self.settings.url, problem["status"], problem)
        return OffsetAnswer.of(result)

    def pin_positions(
        self,
        group: str,
        positions: Mapping[str, Mapping[int, int]],
        *,
        topic_ids: Mapping[str, str] = _NO_TOPIC_IDS,
    ) -> dict[str, dict[int, int]]:
        """Where the group begins to read: ``positions``, but where it has a position already, that one.

        Offsets by topic and partition; ``topic_ids`` says which topics they belong to, as far as that is known.
        Durable when it returns.

        Raises:
            TopicNotFoundError: a topic or a partition is not there.
            TopicReplacedError: a topic has another id; nothing is pinned.
        """
        body = {topic: {str(number): offset for number, offset in each.items()} for topic, each in positions.items()}
        asked: dict[str, object] = {"positions": body}
        if topic_ids:
            asked["topic_ids"] = dict(topic_ids)
        return _positions(self._json("POST", _pins(group), asked))

    def pinned_positions(self, group: str) -> dict[str, dict[int, int]]:
        """All that is pinned for the group: offsets by topic and partition; nothing when it is not known."""
        return _positions(self._get(_pins(group)))

    def forget_positions(self, group: str) -> None:
        """Forget what is pinned for the group. Durable when it returns; no error when there is nothing."""
        self._transport.request("DELETE", _pins(group))

    # Records

    def fetch(
        self,
        topic: str,
        partition: int,
        *,
        offset: int,
        end_offset: int | None = None,
        topic_id: str | None = None,
        max_bytes: int,
        isolation: Isolation,
        wait_ms: int = 0,
    ) -> Fetched:
        """Whole record batches from the one with ``offset`` on.

        They end before ``end_offset`` and have at most ``max_bytes``, but the first batch comes whole in any case.
        With nothing there the service waits for ``wait_ms``, and then there are no batches. ``topic_id`` says which
        topic the offsets belong to; without it they are those of whatever topic has the name now.

        Raises:
            TopicNotFoundError: there is no such partition.
            TopicReplacedError: the topic has another id than ``topic_id``.
            OffsetOutOfRangeError: the offset is below the log start, or above the log end.
        """
        parameters: dict[str, object] = {"offset": offset, "max_bytes": max_bytes, "isolation": isolation}
        if end_offset is not None:
            parameters["end_offset"] = end_offset
        if topic_id is not None:
            parameters["topic_id"] = topic_id
        if wait_ms:
            parameters["wait_ms"] = wait_ms
        path = f"{_record_batches(topic, partition)}?{urlencode(parameters)}"
        answer = self._transport.request(
            "GET", path, headers={"Accept": RECORD_BATCHES}, wait_ms=wait_ms, asked_bytes=max_bytes
        )
        return Fetched(
            answer.content,
            answer.number("Next-Offset"),
            answer.number("Log-Start-Offset"),
            answer.number("High-Watermark"),
            answer.number("Last-Stable-Offset"),
            _aborted(answer),
        )

    def wait_for(
        self,
        positions: Mapping[str, Mapping[int, int]],
        *,
        topic_ids: Mapping[str, str] = _NO_TOPIC_IDS,
        isolation: Isolation,
        wait_ms: int,
    ) -> bool:
        """Wait until there is a record at or after one of the positions, in one request.

        Positions are offsets by topic and partition; ``topic_ids`` says which topics they belong to, for all or none.
        Those that are too many for one request are waited for in turns: each call waits for another part of them.
        Returns whether there is something to look at: a record, or that a partition cannot be read from there, such as
        one of a topic with another id; otherwise the time was up.
        """
        places = [
            (topic, (topic, partition, offset))
            for topic, offsets in positions.items()
            for partition, offset in offsets.items()
        ]
        parts = list(_parts(places, FETCH_PARTITIONS_MAX)) or [[]]
        # A request names the ids of all its topics, or of none.
        ids = topic_ids if topic_ids.keys() >= positions.keys() else _NO_TOPIC_IDS
        wanted = [
            {
                "topic": topic,
                **({"topic_id": ids[topic]} if ids else {}),
                "partition": partition,
                "fetch_offset": offset,
                "max_bytes": 1,
            }
            for topic, partition, offset in parts[next(self._turns) % len(parts)]
        ]
        body = {"partitions": wanted, "isolation": isolation, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1}
        answer = self._transport.request(
            "POST",
            "/v1/fetch",
            json.dumps(body).encode(),
            headers={"Content-Type": JSON, "Accept": FRAMES},
            wait_ms=wait_ms,
        )
        with reading():
            frames = decode_multi_frame(answer.content).frames
        return any(frame.error_code or len(frame.content) for frame in frames)

    def produce_batches(
        self, topic: str, partition: int, pieces: Sequence[bytes | memoryview], *, acks: str = "all"
    ) -> Appended:
        """Append record batches: all of them, or none. The pieces lie behind each other and are sent as they are.

        Batches of a producer are there once, however often they are sent; batches without one may be there twice
        when an answer was lost. Durable as ``acks`` says, "1" or "all".

        Raises:
            TopicNotFoundError: there is no such partition.
            ProducerFencedError: the producer's job was decided, or its transaction is over.
        """
        path = _record_batches(topic, partition)
        if acks != "all":
            path += f"?acks={acks}"
        answer = self._transport.request("POST", path, pieces, headers={"Content-Type": RECORD_BATCHES})
        return Appended.of(answer.json())

    # Load jobs

    def begin_job(
        self,
        application_id: str,
        version: int,
        *,
        mode: JobMode,
        timeout_ms: int,
        topics: Sequence[str] = (),
        join: bool = False,
        driver_id: str | None = None,
        once: bool = False,
    ) -> Job:
        """A new job, or the job that has loaded this version: its state is committed, and there is nothing to do.

        Every other open job of the application is aborted, unless ``join`` finds the one of this version. Whoever
        decides the job finds it by ``driver_id``, a new one for each run: without one a request that is overtaken by
        its own repetition aborts the job of that. ``once``: the application is made up for this load, and nobody will
        use its name again. Durable.

        Raises:
            JobConflictError: it is no longer known whether this version was loaded, or it goes to other topics.
        """
        specification = {
            "application_id": application_id,
            "version": version,
            "mode": mode,
            "timeout_ms": timeout_ms,
            "topics": list(topics),
            "join": join,
            "driver_id": driver_id,
            "once": once,
        }
        return Job.of(self._json("POST", "/v1/jobs", specification, wait_ms=END_TIMEOUT_MS))

    def enlist(self, job_id: str, task: int, attempt: int) -> JobAttempt:
        """A producer id that nobody had before; in an idempotent job, that of the task.

        Raises:
            JobNotFoundError: there is no such job.
            JobConflictError: it is over, or about to be; ``state`` says how.
        """
        return JobAttempt.of(self._json("POST", f"{_job(job_id)}/attempts", {"task": task, "attempt": attempt}))

    def commit_job(self, job_id: str, winners: Sequence[tuple[int, int | None]]) -> Job:
        """Decide that the records of these producers count and no others: (producer id, rows or ``None``) each.

        Durable, and visible to readers of committed records, when it returns.

        Raises:
            JobConflictError: the job has ended another way, or the log does not have so many rows of a winner.
        """
        decision = {"winners": [{"producer_id": producer_id, "rows": rows} for producer_id, rows in winners]}
        return Job.of(self._json("POST", f"{_job(job_id)}/commit", decision, wait_ms=END_TIMEOUT_MS))

    def abort_job(self, job_id: str) -> Job:
        """Decide that no record of the job counts. A job that is committed stays so, which ``state`` says.

        Raises:
            JobNotFoundError: there is no such job.
        """
        return Job.of(self._transport.request("POST", f"{_job(job_id)}/abort", wait_ms=END_TIMEOUT_MS).json())

    def find_job(self, job_id: str) -> Job:
        """The job with its progress.

        Raises:
            JobNotFoundError: there is no such job, or it was forgotten.
        """
        return Job.of(self._get(_job(job_id)))

    def list_jobs(
        self, application_id: str | None = None, *, driver_id: str | None = None, state: str = "all"
    ) -> list[Job]:
        """Jobs that may be described, the newest first; of one application, one driver, in one state, if asked so."""
        wanted = {"state": state, "application_id": application_id, "driver_id": driver_id}
        parameters = {name: value for name, value in wanted.items() if value is not None}
        return [Job.of(each) for each in self._pages("/v1/jobs", parameters)]

    # How they are asked

    def _get(self, path: str) -> Any:
        return self._transport.request("GET", path).json()

    def _json(self, method: str, path: str, document: Mapping[str, object], *, wait_ms: int = 0) -> Any:
        body = json.dumps(document).encode()
        return self._transport.request(method, path, body, headers={"Content-Type": JSON}, wait_ms=wait_ms).json()

    def _pages(self, path: str, parameters: Mapping[str, str]) -> Iterator[Any]:
        """The members of a list of any length, page after page."""
        asked = {**parameters, "limit": str(PAGE_SIZE)}
        cursors: set[object] = set()
        while True:
            page = self._get(f"{path}?{urlencode(asked)}")
            with reading():
                members = list(page["data"])
                next_cursor = page["next_cursor"] if page["has_more"] else None
                if next_cursor in cursors:
                    raise ValueError(f"the list goes on at {next_cursor!r} twice")
                if page["has_more"] and next_cursor is None:
                    raise ValueError("the list goes on, and does not say where")
            yield from members
            if next_cursor is None:
                return
            cursors.add(next_cursor)
            asked["start_after"] = next_cursor


def _parts(members: Sequence[tuple[str, _Member]], count_max: int) -> Iterator[list[_Member]]:
    """Members of as few requests as will do, in order; each comes with the name of its topic, which is most of it."""
    part: list[_Member] = []
    left_bytes = MEMBERS_BYTES_MAX
    for topic, member in members:
        # Names are ASCII; of any other a character takes up to twelve bytes.
        size_bytes = _MEMBER_BYTES + (len(topic) if topic.isascii() else 12 * len(topic))
        if part and (len(part) == count_max or size_bytes > left_bytes):
            yield part
            part, left_bytes = [], MEMBERS_BYTES_MAX
        part.append(member)
        left_bytes -= size_bytes
    if part:
        yield part


def _topic(topic: str) -> str:
    return f"/v1/topics/{quote(topic, safe='')}"


def _record_batches(topic: str, partition: int) -> str:
    return f"{_topic(topic)}/partitions/{partition}/record-batches"


def _pins(group: str) -> str:
    return f"/v1/groups/{quote(group, safe='')}/start-positions"


def _positions(document: Any) -> dict[str, dict[int, int]]:
    with reading():
        found = document["positions"].items()
        return {topic: {int(number): offset for number, offset in each.items()} for topic, each in found}


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _aborted(answer: Answer) -> list[tuple[int, int]]:
    """Producer id and first offset of each aborted transaction that the answer names."""
    pairs = (each.partition("/") for each in answer.headers.get("Aborted-Transactions", "").split(", ") if each)
    with reading():
        return [(int(producer_id), int(first_offset)) for producer_id, _, first_offset in pairs]
