"""The sender of records to a topic, a batch at a time. Every result is accounted for.

Partitions are chosen here, as in Kafka's producer, so that each result can be assigned to its records.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from app.cli.command_errors import AnswerError, CommandError, ServiceError, UnreachableError
from app.cli.http_session import JSON, Session, document_of, error_of_problem, topic_path
from app.cli.records.record_text import OutgoingRecord
from rollway.records import partition_for_key

ATTEMPTS_MAX = 6
FIRST_PAUSE_MS = 100
PAUSE_MS_MAX = 5_000


@dataclass(slots=True)
class PartitionProgress:
    """The acknowledged records of one partition."""

    record_count: int = 0
    base_offset: int | None = None
    last_offset: int | None = None


@dataclass(slots=True)
class Progress:
    """The records acknowledged so far, and the first line without an acknowledgement after a failure."""

    record_count: int = 0
    value_bytes: int = 0
    partitions: dict[int, PartitionProgress] = field(default_factory=dict)
    first_unacknowledged_line: int | None = None
    unknown_count: int = 0
    """Number of sent records whose outcome is unknown."""


class RecordSender:
    """The sender of batches, one after the other. It tracks the acknowledged records.

    After a temporary refusal or a broken connection it sends the request again. Each request has an Idempotency-Key and
    is sent whole every time, so that no record is appended twice. Any other refusal ends it. The order within a
    partition is kept: after a failure no more records are sent to that partition.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        partition_numbers: Sequence[int],
        *,
        partition: int | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._path = topic_path(topic, "records")
        self._partition_numbers = partition_numbers
        self._partition = partition
        self._pause = pause
        self._sticky = 0
        self.progress = Progress()

    def send(self, records: Sequence[OutgoingRecord]) -> None:
        """Send ``records`` and return once all are acknowledged.

        Raises:
            CommandError: some were not acknowledged. ``progress`` has the first of them.
        """
        waiting = self._assign(records)
        content = msgspec.json.encode(
            {"records": [record.as_json(number) for number, batch in waiting.items() for record in batch]}
        )
        key = str(uuid.uuid4())
        is_unknown = False
        for attempt in range(ATTEMPTS_MAX):
            error = self._attempt(waiting, content, key)
            if error is None:
                return
            is_unknown = is_unknown or _is_unknown(error)
            waiting = {number: batch for number, batch in waiting.items() if batch}
            if not _may_pass(error) or attempt + 1 == ATTEMPTS_MAX:
                lines = [record.line_number for batch in waiting.values() for record in batch]
                self.progress.first_unacknowledged_line = min(lines)
                if is_unknown:
                    self.progress.unknown_count = len(lines)
                raise error
            self._pause(_pause_ms(error, attempt) / 1000)

    def _assign(self, records: Sequence[OutgoingRecord]) -> dict[int, list[OutgoingRecord]]:
        """Return records by partition: by key as in Kafka's default partitioner; the others of a batch go to one
        partition in turn."""
        assigned: dict[int, list[OutgoingRecord]] = {}
        self._sticky = (self._sticky + 1) % len(self._partition_numbers)
        for record in records:
            if self._partition is not None:
                number = self._partition
            elif record.key is None:
                number = self._partition_numbers[self._sticky]
            else:
                number = partition_for_key(record.key, len(self._partition_numbers))
            assigned.setdefault(number, []).append(record)
        return assigned

    def _attempt(self, waiting: dict[int, list[OutgoingRecord]], content: bytes, key: str) -> CommandError | None:
        """Send the request once. Empty the lists of partitions that acknowledged, and return the first failure."""
        headers = {"Content-Type": JSON, "Idempotency-Key": key}
        try:
            response = self._session.request("POST", self._path, content=content, headers=headers)
            results = document_of(response)["results"]
        except (ServiceError, UnreachableError, AnswerError) as error:
            return error
        first: CommandError | None = None
        for result in results:
            number = int(result["partition"])
            problem = result.get("error")
            if not waiting.get(number):
                # An earlier response, in which another partition failed, had this result.
                continue
            if problem is None:
                self._acknowledge(number, waiting[number], result)
            elif first is None:
                first = error_of_problem(problem, response.status_code)
        if first is None and any(waiting.values()):
            first = CommandError("The service's answer leaves out some of the partitions.")
        return first

    def _acknowledge(self, number: int, batch: list[OutgoingRecord], result: dict[str, int]) -> None:
        partition = self.progress.partitions.setdefault(number, PartitionProgress())
        partition.record_count += len(batch)
        if partition.base_offset is None:
            partition.base_offset = result.get("base_offset")
        partition.last_offset = result.get("last_offset")
        self.progress.record_count += len(batch)
        self.progress.value_bytes += sum(len(record.value or b"") + len(record.key or b"") for record in batch)
        batch.clear()


def _may_pass(error: CommandError) -> bool:
    return error.retryable if isinstance(error, ServiceError) else isinstance(error, UnreachableError)


def _is_unknown(error: CommandError) -> bool:
    if isinstance(error, ServiceError):
        return error.is_applied_unknown
    return isinstance(error, AnswerError) or (isinstance(error, UnreachableError) and error.was_sent)


def _pause_ms(error: CommandError, attempt: int) -> int:
    if isinstance(error, ServiceError) and error.retry_after_ms is not None:
        return min(error.retry_after_ms, PAUSE_MS_MAX)
    return min(FIRST_PAUSE_MS << attempt, PAUSE_MS_MAX)
