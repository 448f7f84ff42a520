"""``rollway produce``: records from the lines of a file or of standard input."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.progress
import typer

from app.cli import options
from app.cli.command_errors import CommandError, UsageProblem
from app.cli.http_session import open_session, topic_path
from app.cli.json_paths import RecordTextError
from app.cli.records.line_source import LineSource, LineTooLongError, input_size
from app.cli.records.producing import Progress, RecordSender
from app.cli.records.record_text import InputFormat, JsonPaths, OutgoingRecord, record_reader
from app.cli.rendering import format_bytes, plural, print_json, progress_bar, say
from rollway.records import HEADER_BYTES

REQUEST_BYTES = 512 << 10
REQUEST_RECORDS_MAX = 10_000
_SEGMENT_BYTES_UNKNOWN = 16 << 10


def _path_option(name: str, what: str) -> Any:
    return typer.Option(name, metavar="PATH", help=f"JSON path to {what}.", show_default=False)


def produce_records(
    topic: options.Topic,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Input; - or absent: standard input.", show_default=False)
    ] = None,
    input_format: Annotated[
        InputFormat | None,
        typer.Option(
            "--format",
            "-f",
            show_default=False,
            help="lines: a line is a value (default); ndjson: JSON, with paths into it; records: as fetch prints them.",
        ),
    ] = None,
    key: Annotated[str | None, _path_option("--key", "the key")] = None,
    value: Annotated[str | None, _path_option("--value", "the value; without it, the whole line")] = None,
    timestamp: Annotated[str | None, _path_option("--timestamp", "the time, milliseconds or RFC 3339")] = None,
    headers: Annotated[str | None, _path_option("--headers", "the headers, an object or a list")] = None,
    partition: options.Partition = None,
    skip: Annotated[int, typer.Option("--skip", min=0, metavar="N", help="Leave out the first N lines.")] = 0,
    linger_ms: Annotated[
        int,
        typer.Option("--linger-ms", min=0, metavar="MS", help="Send a partial batch after this long without input."),
    ] = 100,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Send lines to a topic, each as a record.

    Records with a key go to the partition that Kafka's default partitioner chooses, other records to the partitions in
    turn. A JSON path makes the input NDJSON, whose blank lines are skipped. Text at a path is used without its quotes,
    any other JSON unchanged. Null at --key or --headers means none, at --timestamp the service's time, at --value a
    tombstone. After a failure the message gives the number of acknowledged records, and the first line without an
    acknowledgement.

    \b
    Examples:
      rollway produce orders orders.txt
      tail -F app.log | rollway produce logs
      rollway produce flights flights.ndjson --key $.carrier --timestamp $.time_hour
      rollway produce orders --value '$.body' --headers '$.meta' -p 3 < orders.ndjson
      rollway fetch orders | rollway produce orders-copy --format records
    """
    paths = JsonPaths(key=key, value=value, timestamp=timestamp, headers=headers)
    if input_format is None:
        input_format = InputFormat.LINES if paths.is_empty else InputFormat.NDJSON
    elif input_format is not InputFormat.NDJSON and not paths.is_empty:
        raise UsageProblem(f"JSON paths need --format ndjson, not {input_format.value}.")
    try:
        read = record_reader(input_format, paths)
    except RecordTextError as error:
        raise UsageProblem(f"{error}.") from None
    with _open_input(file) as descriptor, open_session(server, api_key) as session:
        described = session.get(topic_path(topic))
        numbers = [int(entry["partition"]) for entry in described["partitions"]]
        segment_bytes = _segment_bytes(described)
        if partition is not None and partition not in numbers:
            raise CommandError(f"Topic {topic} has no partition {partition}.")
        sender = RecordSender(session, topic, numbers, partition=partition)
        run = _Run(LineSource(descriptor, linger_ms=linger_ms), read, sender, skip, segment_bytes=segment_bytes)
        _produce(run, topic, size_bytes=input_size(descriptor), quiet=quiet, as_json=as_json)


def _segment_bytes(described: dict[str, Any]) -> int:
    """Return the topic's segment.bytes, or Kafka's smallest value if the caller may not see the settings."""
    setting = described["config"].get("segment.bytes")
    return _SEGMENT_BYTES_UNKNOWN if setting is None else int(setting["value"])


@contextmanager
def _open_input(file: Path | None) -> Iterator[int]:
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise CommandError("Standard input is closed: name a file, or give the lines through a pipe.")
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Run:
    """A run from lines to records to requests. It holds at most one request's records."""

    def __init__(
        self,
        source: LineSource,
        read: Callable[[int, bytes], OutgoingRecord | None],
        sender: RecordSender,
        skip: int,
        *,
        segment_bytes: int,
    ) -> None:
        self.source = source
        self.sender = sender
        self._read = read
        self.skip = skip
        self._batch: list[OutgoingRecord] = []
        self._batch_bytes = 0
        self._segment_bytes = segment_bytes
        self._line_number = 0

    @property
    def next_line(self) -> int:
        """Number of the first line without an acknowledged record. Lines count from 1."""
        failed = self.sender.progress.first_unacknowledged_line
        if failed is not None:
            return failed
        return self._batch[0].line_number if self._batch else self._line_number + 1

    def run(self, on_sent: Callable[[], None]) -> None:
        """Send everything.

        Raises:
            CommandError: a line is no record, or the service failed. No later line was sent.
        """
        try:
            for line in self.source.lines():
                if line is None:
                    self._send(on_sent)
                    continue
                self._line_number += 1
                if self._line_number <= self.skip:
                    continue
                record = self._read(self._line_number, line)
                if record is not None:
                    self._add(record, on_sent)
        except (RecordTextError, LineTooLongError) as error:
            # The lines before the bad one are sent, so that the report names the bad line.
            bad_line = self._line_number + isinstance(error, LineTooLongError)
            self._line_number = bad_line - 1
            self._send(on_sent)
            raise CommandError(f"Line {bad_line:,}: {error}.") from None
        except OSError as error:
            self._send(on_sent)
            raise CommandError(f"The input cannot be read: {error.strerror}.") from None
        self._send(on_sent)

    def _add(self, record: OutgoingRecord, on_sent: Callable[[], None]) -> None:
        size_bytes = self._batch_bytes + record.size_bytes
        # The records of one request for a partition must fit into one segment, at worst with a batch for each record.
        segment_bytes = size_bytes + (len(self._batch) + 1) * HEADER_BYTES
        if self._batch and (size_bytes > REQUEST_BYTES or segment_bytes > self._segment_bytes):
            self._send(on_sent)
        self._batch.append(record)
        self._batch_bytes += record.size_bytes
        if len(self._batch) >= REQUEST_RECORDS_MAX:
            self._send(on_sent)

    def _send(self, on_sent: Callable[[], None]) -> None:
        if not self._batch:
            return
        self.sender.send(self._batch)
        self._batch = []
        self._batch_bytes = 0
        on_sent()


def _produce(run: _Run, topic: str, *, size_bytes: int | None, quiet: bool, as_json: bool) -> None:
    progress = run.sender.progress
    shown = sys.stderr.isatty() and not quiet and not as_json
    started = time.monotonic()
    failure: CommandError | None = None
    interrupted = False
    with progress_bar(shown=shown, knows_size=size_bytes is not None) as bar:
        task = bar.add_task(topic, total=size_bytes, records=0)
        try:
            run.run(lambda: _show(bar, task, run))
        except CommandError as error:
            failure = error
        except KeyboardInterrupt:
            interrupted = True
    elapsed_ms = round((time.monotonic() - started) * 1000)
    if as_json:
        print_json(_summary(topic, progress, elapsed_ms, run.next_line if failure or interrupted else None))
    if failure is not None:
        stopped = CommandError(f"{failure} {_where_it_stopped(run)}")
        stopped.problem = failure.problem
        raise stopped
    if not as_json:
        say(_report(topic, progress, elapsed_ms))
    if interrupted:
        raise KeyboardInterrupt


def _show(bar: rich.progress.Progress, task: rich.progress.TaskID, run: _Run) -> None:
    bar.update(task, completed=run.source.read_bytes, records=run.sender.progress.record_count)


def _summary(topic: str, progress: Progress, elapsed_ms: int, stopped_at: int | None) -> dict[str, object]:
    return {
        "topic": topic,
        "record_count": progress.record_count,
        "bytes": progress.value_bytes,
        "duration_ms": elapsed_ms,
        "partitions": [
            {
                "partition": number,
                "record_count": partition.record_count,
                "base_offset": partition.base_offset,
                "last_offset": partition.last_offset,
            }
            for number, partition in sorted(progress.partitions.items())
        ],
        "first_unacknowledged_line": stopped_at,
        "unknown_count": progress.unknown_count,
    }


def _report(topic: str, progress: Progress, elapsed_ms: int) -> str:
    rate = progress.record_count * 1000 // max(1, elapsed_ms)
    return (
        f"Produced {plural(progress.record_count, 'record')} ({format_bytes(progress.value_bytes)}) to {topic} in "
        f"{elapsed_ms / 1000:.1f} s, {rate:,} records/s."
    )


def _where_it_stopped(run: _Run) -> str:
    progress, first_line = run.sender.progress, run.next_line
    after = progress.record_count - max(0, first_line - 1 - run.skip)
    sentences = [f"{plural(progress.record_count, 'record')} acknowledged"]
    if after > 0:
        sentences.append(f", {after:,} of them from lines after it, in other partitions")
    if progress.unknown_count:
        sentences.append(f"; {plural(progress.unknown_count, 'record')} from there on may or may not be in the log")
    stopped = f"The first line not acknowledged is line {first_line:,}; "
    return f"{stopped}{''.join(sentences)}. To go on from there: --skip {first_line - 1}."
