"""One attempt of a task: it turns Arrow batches into record batches, sends them, and reports what it wrote."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rollway.client import JobConflictError, ProducerFencedError, RollwayClient, RollwayError
from rollway.records import RecordColumns, encode_section
from rollway.spark.write.arrow_rows import Rows, rows_of, rows_without_header_names
from rollway.spark.write.keep_alive import KeptOpen
from rollway.spark.write.load_jobs import TIMED_OUT, JobInUse, LoadPlan, begin_version, find_topic, why_refused
from rollway.spark.write.messages import LoadVersion, TaskMessage, Timings
from rollway.spark.write.rejects import Rejects
from rollway.spark.write.routing import NOWHERE, RoutedRows, Router, TargetTopic, even_batches, rows_by_topic
from rollway.spark.write.sending import Batch, Producer, Sender

# Rows are routed and encoded in windows, so that each partition gets batches of a fair size. A task holds a few windows
# in memory.
_WINDOW_BYTES_MIN = 4 * 1024 * 1024
_WINDOW_BYTES_MAX = 16 * 1024 * 1024

# Each rejected row has at most 64 KiB of a value and of a key.
_REJECTS_PER_BATCH = 7

FindJob = Callable[[RollwayClient], JobInUse | None]


class TaskLoad:
    """One attempt of one task.

    ``find_job`` returns the job of a stream's batch, and is called for the first row. Without it the plan's job is
    used. Thread: one; it starts further threads to send.
    """

    def __init__(
        self, plan: LoadPlan, client: RollwayClient, task: int, attempt: int, find_job: FindJob | None = None
    ) -> None:
        self._plan = plan
        self._options = plan.options
        self._client = client
        self._task = task
        self._attempt = attempt
        self._find_job = find_job
        self._job = plan.job
        self._topics: dict[str, TargetTopic | None] = dict(plan.topics)
        self._rejects = Rejects(self._options.on_reject, self._options.max_rejected)
        self._router = Router(self._options.topic, self._find_topic, task, self._options.batch_bytes)
        self._encoding_seconds = 0.0
        self._kept_open = KeptOpen(client.settings, task, attempt)

    def run(self, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write all rows. The job stays open, however slow the input is.

        Raises:
            RejectedRowsError: rows cannot be loaded, and the options do not let them be left out.
            JobTimedOutError: the job was aborted, because there was no sign of life for its timeout.
            RollwayError: the service cannot be reached, or refuses the job.
        """
        if self._job is not None and self._job.is_loaded:
            return self._loaded()
        with self._kept_open:
            try:
                return self._load(batches)
            except (JobConflictError, ProducerFencedError) as error:
                if self._job is None:
                    raise
                raise why_refused(self._client, self._job, error) from None

    def _load(self, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
        started = time.perf_counter()
        if self._job is not None:
            self._kept_open.watch(self._job)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskMessage(self._task, self._attempt, host=socket.gethostname())
        if self._find_job is not None:
            self._job = self._find_job(self._client)
            if self._job is not None and self._job.is_loaded:
                return self._loaded()
            if self._job is not None:
                self._kept_open.watch(self._job)
        producer = self._enlist()
        with self._sender(producer) as sender:
            self._send_windows(sender, first, filled)
            sender.finish()
            # Only now is it known which rows the service refused.
            self._send_rejects(sender)
        written = sender.written()
        return TaskMessage(
            self._task,
            self._attempt,
            None if self._job is None else self._job.job_id,
            producer.producer_id,
            sum(one.rows for one in written),
            sum(one.size_bytes for one in written),
            retries=self._client.retry_count,
            written=written,
            rejects=self._rejects.counts,
            timings=Timings(
                time.perf_counter() - started, self._encoding_seconds, sender.sending_seconds, sender.waiting_seconds
            ),
            host=socket.gethostname(),
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    def _loaded(self) -> TaskMessage:
        assert self._job is not None
        version = LoadVersion(self._job.application_id, self._job.version)
        return TaskMessage(
            self._task, self._attempt, self._job.job_id, loaded_before=version, host=socket.gethostname()
        )

    def _sender(self, producer: Producer) -> Sender:
        options = self._options
        return Sender(self._client, producer, self._rejects, options.max_in_flight, options.codec, self._kept_open.note)

    def _enlist(self) -> Producer:
        if self._job is None:
            return Producer()
        try:
            attempt = self._client.enlist(self._job.job_id, self._task, self._attempt)
        except JobConflictError as error:
            self._job = self._job_instead(self._job, error)
            self._kept_open.watch(self._job)
            attempt = self._client.enlist(self._job.job_id, self._task, self._attempt)
        self._kept_open.note()
        return Producer(attempt.producer_id, attempt.transactional)

    def _job_instead(self, job: JobInUse, error: JobConflictError) -> JobInUse:
        """Return another job of the same version, if this one timed out because the first rows were slow."""
        timed_out = error.problem.get("reason") == TIMED_OUT and self._options.job_id is None
        if not timed_out:
            raise error
        return begin_version(self._client, self._plan, job.application_id, job.version, join=True, once=job.once)

    def _find_topic(self, name: str) -> TargetTopic | None:
        if name not in self._topics:
            self._topics[name] = find_topic(self._client, name)
        return self._topics[name]

    def _send_windows(self, sender: Sender, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> None:
        window, used_bytes = [first], first.get_total_buffer_size()
        limit = self._window_bytes()
        for batch in rest:
            if used_bytes >= limit:
                self._send_window(sender, window)
                window, used_bytes = [], 0
            window.append(batch)
            used_bytes += batch.get_total_buffer_size()
        self._send_window(sender, window)

    def _window_bytes(self) -> int:
        counts = [topic.partition_count for topic in self._topics.values() if topic is not None]
        wanted = max(counts, default=1) * self._options.batch_bytes
        return min(max(wanted, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)

    def _send_window(self, sender: Sender, batches: list[pa.RecordBatch]) -> None:
        rows = self._without_nameless_headers(rows_of(batches))
        batches.clear()
        if len(rows) == 0:
            return
        now_ms = time.time_ns() // 1_000_000
        for routed in self._router.route(rows):
            if routed.partition == NOWHERE:
                self._rejects.add(routed.reason, routed.example, routed.rows.records(now_ms), routed.topic)
            else:
                self._send_rows(sender, routed, now_ms)
        self._send_rejects(sender)

    def _without_nameless_headers(self, rows: Rows) -> Rows:
        places = rows_without_header_names(rows.headers)
        if len(places) == 0:
            return rows
        now_ms = time.time_ns() // 1_000_000
        for topic, refused in rows_by_topic(self._options.topic, rows.take(places)):
            records = replace(refused, headers=None).records(now_ms)
            self._rejects.add("header without key", "a header of a row has no key", records, topic or "")
        keep = np.ones(len(rows), dtype=np.bool_)
        keep[places] = False
        return rows.take(np.flatnonzero(keep))

    def _send_rows(self, sender: Sender, routed: RoutedRows, now_ms: int) -> None:
        """Divide rows into batches of about the same size, encode each, and pass it to the sender."""
        topic = self._find_topic(routed.topic)
        assert topic is not None
        limit = min(self._options.batch_bytes, topic.batch_bytes_max)
        columns = routed.rows.records(now_ms)
        batches = [(0, len(columns))] if routed.is_batch else even_batches(routed.rows, limit)
        for start, end in batches:
            self._send_batch(sender, topic, routed.partition, columns.slice(start, end))

    def _send_batch(self, sender: Sender, topic: TargetTopic, partition: int, columns: RecordColumns) -> None:
        started = time.perf_counter()
        section = encode_section(columns, codec=self._options.codec)
        self._encoding_seconds += time.perf_counter() - started
        if section.size_bytes <= topic.batch_bytes_max:
            sender.send(Batch(topic.name, partition, section, columns))
        elif len(columns) > 1:
            middle = len(columns) // 2
            self._send_batch(sender, topic, partition, columns.slice(0, middle))
            self._send_batch(sender, topic, partition, columns.slice(middle, len(columns)))
        else:
            example = (
                f"a row takes {section.size_bytes} bytes, and topic {topic.name!r} takes {topic.batch_bytes_max} "
                "(max.message.bytes)"
            )
            self._rejects.add("too large", example, columns, topic.name)

    def _send_rejects(self, sender: Sender) -> None:
        rejected = self._rejects.take()
        if rejected is None:
            return
        name = self._options.reject_topic
        assert name is not None
        topic = self._find_topic(name)
        if topic is None:
            raise RollwayError(f"there is no topic {name!r} for rejected rows")
        partition = self._task % topic.partition_count
        for start in range(0, len(rejected), _REJECTS_PER_BATCH):
            columns = rejected.slice(start, min(start + _REJECTS_PER_BATCH, len(rejected)))
            section = encode_section(columns, codec=self._options.codec)
            sender.send(Batch(name, partition, section, columns, is_rejected=True))
