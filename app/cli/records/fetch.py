"""``rollway fetch`` and ``rollway tail``: records from the log."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, BinaryIO

import httpx
import msgspec
import typer

from app.cli import options
from app.cli.command_errors import AnswerError, CommandError, ServiceError, UnreachableError, UsageProblem
from app.cli.http_session import (
    NDJSON,
    RECORD_BATCHES,
    Session,
    check_whole,
    client_settings,
    number_in,
    open_session,
    problem_error,
    proxies_told,
    topic_path,
    unreachable,
)
from app.cli.records.line_source import LineSplitter
from app.cli.records.record_text import bytes_of, has_member
from app.cli.rendering import note
from rollway.printable import escape_json, escape_unprintable

FETCH_BYTES = 4 << 20
# Most records of one request. More records take several requests.
FETCH_RECORDS_MAX = 1_000_000
TAIL_WAIT_MS = 20_000
RECONNECT_SECONDS = 1.0

NEXT_OFFSET = "Next-Offset"
HIGH_WATERMARK = "High-Watermark"
LAST_STABLE_OFFSET = "Last-Stable-Offset"


class OutputFormat(StrEnum):
    """The form of records on stdout."""

    JSON = "json"
    VALUE = "value"
    RAW = "raw"


Format = Annotated[
    OutputFormat,
    typer.Option("--format", "-f", help="json: a record per line; value: values, a line each; raw: batches as stored."),
]
StartOffset = Annotated[
    str | None,
    typer.Option(
        "--offset", "-o", metavar="OFFSET", help="Start here: a number, earliest or latest.", show_default=False
    ),
]
StartTimestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        "-t",
        metavar="TIME",
        show_default=False,
        help="Start with the first record at or after this time: milliseconds or RFC 3339.",
    ),
]
StartTail = Annotated[
    int | None,
    typer.Option("--tail", min=0, metavar="N", help="Start N records before the end.", show_default=False),
]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N records.", show_default=False)
]


def start_params(offset: str | None, timestamp: str | None, tail: int | None, default: str) -> dict[str, str | int]:
    """Return the query parameter for the start.

    Raises:
        UsageProblem: more than one start is given, or one is not valid.
    """
    if sum(value is not None for value in (offset, timestamp, tail)) > 1:
        raise UsageProblem("--offset, --timestamp and --tail exclude each other.")
    if timestamp is not None:
        return {"timestamp": options.moment(timestamp, "--timestamp: ")}
    if tail is not None:
        return {"tail": tail}
    where = default if offset is None else offset
    if where not in ("earliest", "latest") and not (where.isascii() and where.isdecimal()):
        raise UsageProblem(f"--offset must be a number, earliest or latest, not {where!r}.")
    return {"offset": where}


class IsolationLevel(StrEnum):
    """The records of transactions that a fetch reads."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


Isolation = Annotated[
    IsolationLevel,
    typer.Option("--isolation", help="read_committed: no records of open or aborted transactions."),
]


class RecordWriter:
    """The writer of fetched records to stdout. It counts them."""

    def __init__(self, output_format: OutputFormat, count_max: int | None) -> None:
        if output_format is OutputFormat.RAW:
            if count_max is not None:
                raise UsageProblem("-n cannot cut a batch in two: use --end with --format raw.")
            if sys.stdout.isatty():
                raise UsageProblem("--format raw writes bytes that are not text: send them to a file or a pipe.")
        self._format = output_format
        self._out: BinaryIO = sys.stdout.buffer
        self._is_terminal = sys.stdout.isatty()
        self._decoder = msgspec.json.Decoder()
        self.remaining = count_max

    @property
    def form(self) -> str:
        """The last part of the path under which a partition has its records in this form."""
        return "record-batches" if self._format is OutputFormat.RAW else "record-lines"

    @property
    def accept(self) -> str:
        return RECORD_BATCHES if self._format is OutputFormat.RAW else NDJSON

    @property
    def is_full(self) -> bool:
        return self.remaining is not None and self.remaining <= 0

    def write_line(self, line: bytes) -> None:
        """Write the record of one NDJSON line, unless enough records were written."""
        if self.is_full or not line.strip():
            return
        if self._format is OutputFormat.VALUE:
            line = self._value_of(line)
        if self._is_terminal:
            line = shown_on_terminal(line, is_json=self._format is not OutputFormat.VALUE)
        self._out.write(line + b"\n")
        if self.remaining is not None:
            self.remaining -= 1

    def _value_of(self, line: bytes) -> bytes:
        """Return the value of the record on a line; empty for a tombstone.

        Raises:
            AnswerError: the line is no record.
        """
        with contextlib.suppress(ValueError, RecursionError):
            record = self._decoder.decode(line)
            if has_member(record, "value"):
                return bytes_of(record, "value") or b""
        raise AnswerError("The answer has a line that is no record; is this the address of a Rollway service?")

    def write_raw(self, piece: bytes) -> None:
        self._out.write(piece)

    def flush(self) -> None:
        self._out.flush()


def shown_on_terminal(line: bytes, *, is_json: bool) -> bytes:
    """Return a record's text for a terminal: without characters that move the cursor or the text."""
    text = line.decode("utf-8", "backslashreplace")
    return (escape_json(text) if is_json else escape_unprintable(text, keep_lines=True)).encode()


def fetch_records(
    topic: options.Topic,
    partition: options.Partition = None,
    offset: StartOffset = None,
    timestamp: StartTimestamp = None,
    tail: StartTail = None,
    end: Annotated[
        int | None, typer.Option("--end", min=0, metavar="OFFSET", help="Stop before this offset.", show_default=False)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop before the first record of this time.", show_default=False),
    ] = None,
    count: Count = None,
    output_format: Format = OutputFormat.JSON,
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Read records up to the present end of the partition.

    Without --partition, it reads one partition after the other. In JSON, values that are not UTF-8 are base64 in
    value_base64; with --format value, values are written unchanged.

    \b
    Examples:
      rollway fetch flights -p 0 --tail 5
      rollway fetch flights --timestamp 2013-07-04T00:00:00-04:00 -n 10
      rollway fetch flights -p 2 --offset 1000 --end 2000 --format value > flights.csv
      rollway fetch flights -p 0 --format raw > batches.bin
    """
    start = start_params(offset, timestamp, tail, default="earliest")
    limits: dict[str, str | int] = {"isolation": isolation.value}
    if until is not None:
        limits["until"] = options.moment(until, "--until: ")
    writer = RecordWriter(OutputFormat.JSON if as_json else output_format, count)
    with open_session(server, api_key) as session:
        # Offsets of one response lead to the next. They mean nothing in a topic that replaces this one meanwhile.
        limits["topic_id"] = session.topic_id(topic)
        numbers = [partition] if partition is not None else session.partition_numbers(topic)
        for number in numbers:
            if writer.is_full:
                break
            _fetch_partition(session, topic_path(topic, "partitions", number, writer.form), start, end, limits, writer)
    writer.flush()


def _fetch_partition(
    session: Session,
    path: str,
    start: dict[str, str | int],
    end: int | None,
    limits: dict[str, str | int],
    writer: RecordWriter,
) -> None:
    """Read from ``start`` to ``end``, or to the end of readable records in the first response."""
    place = start
    bound = LAST_STABLE_OFFSET if limits["isolation"] == IsolationLevel.READ_COMMITTED else HIGH_WATERMARK
    before = -1
    while not writer.is_full:
        params = {**place, **limits, "max_bytes": FETCH_BYTES}
        if end is not None:
            params["end_offset"] = end
        if writer.remaining is not None:
            params["max_records"] = min(writer.remaining, FETCH_RECORDS_MAX)
        with session.stream(path, params, writer.accept) as response:
            # Before anything is printed, make sure that the response is the service's.
            number_in(response, NEXT_OFFSET)
            _copy(response, writer)
            next_offset = number_in(response, NEXT_OFFSET)
            end = number_in(response, bound) if end is None else end
        # A response may be empty and yet not the last: records follow markers and aborted transactions.
        if next_offset >= end or next_offset <= before:
            return
        before = next_offset
        place = {"offset": next_offset}


def _copy(response: httpx.Response, writer: RecordWriter) -> None:
    lines = LineSplitter()
    for piece in response.iter_bytes():
        if writer.accept == RECORD_BATCHES:
            writer.write_raw(piece)
            continue
        for line in lines.feed(piece):
            writer.write_line(line)
    for line in lines.finish():
        writer.write_line(line)


def tail_records(
    topic: options.Topic,
    partition: options.Partition = None,
    offset: StartOffset = None,
    timestamp: StartTimestamp = None,
    tail: StartTail = None,
    count: Count = None,
    output_format: Format = OutputFormat.JSON,
    server: options.Server = options.DEFAULT_SERVER,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Follow a topic: print records as they arrive, until Ctrl-C.

    It starts with the next record; --offset, --timestamp and --tail start earlier. It waits at the server (long poll),
    and connects again if the connection breaks.

    \b
    Examples:
      rollway tail flights
      rollway tail flights -p 0 --tail 10 --format value
      rollway tail flights --offset earliest -n 100
    """
    start = start_params(offset, timestamp, tail, default="latest")
    writer = RecordWriter(OutputFormat.JSON if as_json else output_format, count)
    with open_session(server, api_key) as session:
        topic_id = session.topic_id(topic)
        numbers = [partition] if partition is not None else session.partition_numbers(topic)
    asyncio.run(_follow_all(client_settings(server, api_key), server, topic, topic_id, numbers, start, writer))


async def _follow_all(
    settings: dict[str, Any],
    server: str,
    topic: str,
    topic_id: str,
    numbers: list[int],
    start: dict[str, str | int],
    writer: RecordWriter,
) -> None:
    limits = httpx.Limits(max_connections=len(numbers) + 1)
    with proxies_told():
        client = httpx.AsyncClient(**settings, limits=limits)
    async with client:
        follower = _Follower(client, server, topic_id, writer)
        tasks = [
            asyncio.create_task(follower.follow(topic_path(topic, "partitions", number, writer.form), start))
            for number in numbers
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


@dataclass(slots=True)
class _Follower:
    """A follower of partitions over one client, with one output. It ends when enough records were written."""

    client: httpx.AsyncClient
    server: str
    topic_id: str
    writer: RecordWriter
    is_away: bool = False

    async def follow(self, path: str, start: dict[str, str | int]) -> None:
        """Long-poll ``path`` for ever. Raises errors that a wait cannot cure."""
        place = start
        while not self.writer.is_full:
            try:
                place = {"offset": await self._poll(path, place)}
            except CommandError as error:
                place = await self._after(error, place)

    async def _poll(self, path: str, place: dict[str, str | int]) -> int:
        # The first request for the end does not wait: its offset is the place to continue after an outage.
        wait_ms = 0 if place.get("offset") == "latest" or "tail" in place else TAIL_WAIT_MS
        params = {**place, "topic_id": self.topic_id, "wait_ms": wait_ms, "max_bytes": FETCH_BYTES}
        if self.writer.remaining is not None:
            params["max_records"] = min(self.writer.remaining, FETCH_RECORDS_MAX)
        try:
            response = await self.client.get(path, params=params, headers={"Accept": self.writer.accept})
        except httpx.HTTPError as error:
            raise unreachable(error, self.server) from error
        if not response.is_success:
            raise problem_error(response)
        check_whole(response)
        next_offset = number_in(response, NEXT_OFFSET)
        if self.is_away:
            self.is_away = False
            note("The service is back.")
        if self.writer.accept == RECORD_BATCHES:
            self.writer.write_raw(response.content)
        else:
            for line in response.content.split(b"\n"):
                self.writer.write_line(line)
        self.writer.flush()
        return next_offset

    async def _after(self, error: CommandError, place: dict[str, str | int]) -> dict[str, str | int]:
        """Return the place to continue after ``error``. Raises it if a retry cannot help."""
        if isinstance(error, ServiceError) and error.status == 410 and error.log_start_offset is not None:
            note(f"{error} Going on at offset {error.log_start_offset}.")
            return {"offset": error.log_start_offset}
        is_passing = isinstance(error, UnreachableError) or (isinstance(error, ServiceError) and error.retryable)
        if not is_passing:
            raise error
        if not self.is_away:
            self.is_away = True
            note(f"{error} Trying again until it does.")
        await asyncio.sleep(RECONNECT_SECONDS)
        return place
