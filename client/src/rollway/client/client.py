"""Typed calls of the service. Each of them may be repeated."""

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
"""Longest time for the service to begin or end a job, before it responds that the work continues."""
PAGE_SIZE = 1_000
OFFSET_ASKS_MAX = 10_000
"""Queries in one request. More queries take several requests."""
FETCH_PARTITIONS_MAX = 10_000
"""Partitions in one request. Of more partitions, each call waits for another part."""
MEMBERS_BYTES_MAX = 1_000_000
"""Bytes of the queries or partitions in one request. The service accepts 1 MiB, with the JSON around them."""

# An upper bound for the JSON of a query or a partition, without the name of its topic and the quotes around that.
_MEMBER_BYTES = 152

_Member = TypeVar("_Member")
_NO_CONFIG: Mapping[str, object] = MappingProxyType({})
_NO_TOPIC_IDS: Mapping[str, str] = MappingProxyType({})


class RollwayClient:
    """A client of the service at one address.

    Its calls block. It is thread-safe: each thread in a call has a connection, and connections are reused. It is not
    picklable: make one in each task from its ``ClientSettings``.

    Every call raises ``ServiceUnavailableError`` if the service cannot be reached, ``ProblemError`` or one of its
    subclasses if the service refuses the request, and ``InvalidAnswerError`` if the response is not Rollway's.

    Example::

        with RollwayClient(ClientSettings("http://127.0.0.1:8080")) as client:
            client.create_topic("readings", partitions=6)
            ends = [each.high_watermark for each in client.watermarks("readings")]  # [0, 0, 0, 0, 0, 0]
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
        """Number of requests that were sent again so far."""
        return self._transport.retry_count

    # Topics

    def list_topics(self) -> list[str]:
        """Return the names of all topics that the caller may describe, in order, without internal topics."""
        topics = list(self._pages("/v1/topics", {}))
        with reading():
            return [topic["name"] for topic in topics if not topic["internal"]]

    def describe_topic(self, topic: str) -> Topic:
        """Return the topic.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return Topic.of(self._get(_topic(topic)))

    def create_topic(
        self, topic: str, partitions: int | None = None, config: Mapping[str, object] = _NO_CONFIG
    ) -> Topic:
        """Create the topic, unless there is such a topic already. Without ``partitions`` it has one.

        Raises:
            TopicExistsError: it exists with other partitions or settings.
        """
        specification: dict[str, object] = {"config": dict(config)}
        if partitions is not None:
            specification["partitions"] = partitions
        return Topic.of(self._json("PUT", _topic(topic), specification))

    def split(self, topic: str, request: Mapping[str, object]) -> Splits:
        """Return ranges of about equal bytes. ``request`` is the body of the splits route.

        Example: ``split("readings", {"split_count": 8})``.

        Raises:
            TopicNotFoundError: there is no such topic.
            TopicReplacedError: the request has a ``topic_id``, and the topic has another id.
            OffsetOutOfRangeError: a start offset is below the log start, and the request does not allow that.
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
        """Return the limits of all partitions, in their order.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        document = self._get(f"{_topic(topic)}/partitions")
        with reading():
            topic_id = document["topic_id"]
            return [PartitionOffsets.of({**each, "topic_id": topic_id}) for each in document["partitions"]]

    def offsets_for_times(
        self, asked: Sequence[OffsetAsk], *, isolation: Isolation = "read_uncommitted"
    ) -> list[OffsetAnswer]:
        """Return an answer for each query, in their order.

        Example: ``offsets_for_times([OffsetAsk("readings", 0, "latest")])[0].offset`` is the end of partition 0.

        Raises:
            ProblemError: the error of the first query that has no answer.
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
        """Pin ``positions`` for a group, except where it has one already. Return its positions of these partitions.

        Positions are offsets by topic and partition. ``topic_ids`` names the topics that they belong to, if the caller
        knows their ids. Durable on return.

        Raises:
            TopicNotFoundError: a topic or a partition does not exist.
            TopicReplacedError: a topic has another id; nothing is pinned.
        """
        body = {topic: {str(number): offset for number, offset in each.items()} for topic, each in positions.items()}
        asked: dict[str, object] = {"positions": body}
        if topic_ids:
            asked["topic_ids"] = dict(topic_ids)
        return _positions(self._json("POST", _pins(group), asked))

    def pinned_positions(self, group: str) -> dict[str, dict[int, int]]:
        """Return all pinned positions of a group: offsets by topic and partition. An unknown group has none."""
        return _positions(self._get(_pins(group)))

    def forget_positions(self, group: str) -> None:
        """Forget the pinned positions of a group. Durable on return. It is no error if there are none."""
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
        """Return whole record batches, from the batch with ``offset`` on.

        They end before ``end_offset`` and have at most ``max_bytes``; the first batch is whole in any case. If there
        are none, the service waits up to ``wait_ms`` for some, and then returns none. ``topic_id`` is the id of the
        topic that the offsets belong to. Without it they are taken as offsets of the topic that has the name now.

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
        """Wait in one request until there is a record at or after one of the positions.

        Positions are offsets by topic and partition. ``topic_ids`` has the ids of all their topics, or is empty. If the
        positions are too many for one request, each call waits for another part of them. Return true if there is a
        record, or if a partition cannot be read from its position: its topic may have another id. Return false after
        ``wait_ms``.
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
        """Append record batches: all of them, or none. ``pieces`` are sent one after the other, without a copy.

        Batches with a producer id are appended once, however often they are sent. Batches without one may be appended
        twice if a response was lost. Durability follows ``acks``, "1" or "all".

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
        """Begin a job, or return the job that has loaded this version: its state is committed, nothing is left to do.

        The service aborts every other open job of the application, unless ``join`` finds the open job of this version.
        ``driver_id`` is a new id for each run, by which the driver finds the job. Without one, a late request could
        abort the job that its own repetition began. ``once`` promises that the application's id is used for this load
        only. Durable on return.

        Raises:
            JobConflictError: the service no longer knows whether this version was loaded, or it has other topics.
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
        """Return a producer id that was never used before; in an idempotent job, return the task's producer id.

        Raises:
            JobNotFoundError: there is no such job.
            JobConflictError: the job has ended or is ending; its state is in ``state``.
        """
        return JobAttempt.of(self._json("POST", f"{_job(job_id)}/attempts", {"task": task, "attempt": attempt}))

    def commit_job(self, job_id: str, winners: Sequence[tuple[int, int | None]]) -> Job:
        """Decide that only the records of these winners count. Each is a producer id, and its rows or ``None``.

        The decision is durable, and visible to readers of committed records, on return.

        Raises:
            JobConflictError: the job has ended in another way, or the log has another number of rows of a winner.
        """
        decision = {"winners": [{"producer_id": producer_id, "rows": rows} for producer_id, rows in winners]}
        return Job.of(self._json("POST", f"{_job(job_id)}/commit", decision, wait_ms=END_TIMEOUT_MS))

    def abort_job(self, job_id: str) -> Job:
        """Decide that no record of the job counts. A committed job stays committed, as the returned ``state`` shows.

        Raises:
            JobNotFoundError: there is no such job.
        """
        return Job.of(self._transport.request("POST", f"{_job(job_id)}/abort", wait_ms=END_TIMEOUT_MS).json())

    def find_job(self, job_id: str) -> Job:
        """Return the job with its progress.

        Raises:
            JobNotFoundError: there is no such job, or the service has forgotten it.
        """
        return Job.of(self._get(_job(job_id)))

    def list_jobs(
        self, application_id: str | None = None, *, driver_id: str | None = None, state: str = "all"
    ) -> list[Job]:
        """Return the jobs that the caller may describe, the newest first.

        The parameters restrict them to one application, one driver, or one state.
        """
        wanted = {"state": state, "application_id": application_id, "driver_id": driver_id}
        parameters = {name: value for name, value in wanted.items() if value is not None}
        return [Job.of(each) for each in self._pages("/v1/jobs", parameters)]

    # Requests

    def _get(self, path: str) -> Any:
        return self._transport.request("GET", path).json()

    def _json(self, method: str, path: str, document: Mapping[str, object], *, wait_ms: int = 0) -> Any:
        body = json.dumps(document).encode()
        return self._transport.request(method, path, body, headers={"Content-Type": JSON}, wait_ms=wait_ms).json()

    def _pages(self, path: str, parameters: Mapping[str, str]) -> Iterator[Any]:
        """Yield the members of a list of any length, page after page."""
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
    """Divide members among as few requests as possible, in order. The topic's name is most of a member's size."""
    part: list[_Member] = []
    left_bytes = MEMBERS_BYTES_MAX
    for topic, member in members:
        # Topics have ASCII names. In any other name a character takes up to twelve bytes.
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
    """Return producer id and first offset of each aborted transaction that the response names."""
    pairs = (each.partition("/") for each in answer.headers.get("Aborted-Transactions", "").split(", ") if each)
    with reading():
        return [(int(producer_id), int(first_offset)) for producer_id, _, first_offset in pairs]
