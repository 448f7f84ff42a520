"""Topics of jobs: their addresses, ranges of them, and these ranges as rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Literal
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.client import OffsetOutOfRangeError, RollwayClient, Topic
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import first_sentence
from rollway.spark.jobs.places import Place
from rollway.spark.options.options import ReadOptions
from rollway.spark.read.positions import to_document
from rollway.spark.schemas import byte_headers_schema

ISOLATION = "read_committed"
KAFKA_PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_KAFKA_MARKS = ("org.apache.kafka.", "org.apache.spark.sql.kafka010.")
_PORTS = {"http": 80, "https": 443}

# Options that a job sets itself. A user's value would be overruled, or would overrule the job.
_DECIDED_IN_READS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "isolationLevel",
    "includeHeaders",
)
SPLITTING = ("minPartitions", "maxRecordsPerPartition")
"""Options by which several tasks read one partition. Jobs that write records in order refuse them."""

TopicFormat = Literal["rollway", "kafka"]
OnDataLoss = Literal["fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAddress:
    """A topic, and the service or the Kafka cluster that has it.

    ``url`` is the service's address, or Kafka's bootstrap servers. ``options`` are more options of ``format(...)``:
    credentials, CA, ``fetchMaxBytes``, ``kafka.security.protocol``. The ``repr`` does not show them.

    Example: ``TopicAddress(topic="readings", url="http://127.0.0.1:8080", options={"token": key})``.
    """

    topic: str
    url: str
    format: TopicFormat = "rollway"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.topic:
            raise JobUsageError("The topic has no name.")
        if self.format not in ("rollway", "kafka"):
            raise JobUsageError(f"Topics of format {self.format!r} are not known: rollway and kafka are.")

    def __str__(self) -> str:
        return self.topic if self.format == "rollway" else f"{self.topic} (Kafka at {self.url})"

    @property
    def place(self) -> tuple[str, str, str]:
        """The normalised address: equal for two spellings of one address. Host names are not resolved."""
        if self.format == "kafka":
            servers = sorted(each.strip().lower() for each in self.url.split(","))
            return self.format, ",".join(servers), self.topic
        try:
            parts = urlsplit(self.url)
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:  # The client reports the error.
            return self.format, self.url, self.topic
        return self.format, f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}", self.topic

    def all_options(self) -> dict[str, str]:
        """Return the address and the options together, for ``format(...)``."""
        address = "url" if self.format == "rollway" else "kafka.bootstrap.servers"
        return {address: self.url, **self.options}


def open_client(address: TopicAddress) -> RollwayClient:
    """Return a client of the source's service. The caller closes it.

    Raises:
        JobUsageError: the topic is Kafka's, or an option is one that jobs decide.
        OptionError: an option is unknown or not valid.
    """
    if address.format != "rollway":
        raise JobUsageError(f"{address} is not a topic of a Rollway service.")
    refuse_options(address, _DECIDED_IN_READS)
    options = {**address.all_options(), "subscribe": address.topic}
    return RollwayClient(ReadOptions.parse(options, streaming=False).client)


def refuse_options(address: TopicAddress, names: Collection[str]) -> None:
    """Return unless one of these options is given.

    Raises:
        JobUsageError: one is given.
    """
    lowered = {name.lower() for name in names}
    for name in address.options:
        if name.lower() in lowered:
            raise JobUsageError(f"{name} cannot be given as an option of {address}: the job decides it.")


def refuse_itself(source: TopicAddress, topic: Topic, target: TopicAddress, goal: Topic) -> None:
    """Return unless the target is the source itself, under any two addresses.

    Raises:
        JobUsageError: it is, or one service was restored from a backup of the other, which looks the same.
    """
    if topic.topic_id == goal.topic_id:
        raise JobUsageError(
            f"{source} at {source.url} and {target} at {target.url} are one topic by its id, {topic.topic_id}: writing "
            "it into itself would double it. If one service was restored from a backup of the other, write to a topic "
            "with another name."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """The offsets ``[starts, ends)`` of each partition of one topic. They do not move."""

    address: TopicAddress
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    size_bytes: int = 0
    lost_count: int = 0
    """Number of requested offsets below the log start, which are left out."""
    from_ms: int | None = None
    """Only records at or after this time count."""
    until_ms: int | None = None
    """Only records before this time count."""
    on_data_loss: OnDataLoss = "fail"
    """Reaction to records that are deleted before they are read."""

    @property
    def offset_count(self) -> int:
        """Number of offsets. It is at least the number of records: commit markers also have offsets."""
        return sum(end - self.starts[number] for number, end in self.ends.items())

    @property
    def partition_count(self) -> int:
        """Number of all partitions of the topic, with empty ones."""
        return len(self.starts)

    def as_json(self) -> dict[str, list[int]]:
        """Return the range as ``{"0": [start, end]}``."""
        return {str(number): [self.starts[number], self.ends[number]] for number in sorted(self.starts)}


def resolve_range(
    client: RollwayClient, address: TopicAddress, start: Place, end: Place, on_data_loss: OnDataLoss = "fail"
) -> TopicRange:
    """Return the range of records between two places that are committed now.

    A time refers to the records' timestamps, in any order. The end is not looked up by time: commit markers carry the
    time of the commit, and a lookup would stop at one, even if the records behind it are older.

    Raises:
        JobError: the range begins below the log start, and ``on_data_loss`` is not ``skip``; or a place is above the
            log end.
        JobUsageError: a place names a partition that does not exist, or the end lies before the start.
        RollwayError: the service cannot be reached, or has no such topic.
    """
    topic = client.describe_topic(address.topic)
    for place in (start, end):
        unknown = [number for number in place.offsets if not 0 <= number < topic.partition_count]
        if unknown:
            raise JobUsageError(
                f"{address} has {topic.partition_count} partitions, and none with the number {unknown[0]}."
            )
    request: dict[str, object] = {
        "topic_id": topic.topic_id,
        "split_count": 1,
        "isolation": ISOLATION,
        "on_truncated": "earliest" if on_data_loss == "skip" else "error",
        **_start(start),
        "end_offset": "latest",
        "partitions": [
            {"partition": number, **_bound_of("start", start, number), **_bound_of("end", end, number)}
            for number in range(topic.partition_count)
        ],
    }
    try:
        found = client.split(address.topic, request)
    except OffsetOutOfRangeError as error:
        if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise JobError(
                f"{address} ends before an offset that was asked for ({error}). Where a job goes on from an offset of "
                "its own, the service has fewer records than it had, as after a restore from an older backup: begin "
                "again, an export in another folder."
            ) from error
        raise JobError(
            f"Records of {address} that were to be read are gone ({error}); --on-data-loss skip goes on with what is "
            "left."
        ) from error
    starts = {each.partition: each.start_offset for each in found.partitions}
    return TopicRange(
        address=address,
        topic_id=topic.topic_id,
        starts=starts,
        ends={each.partition: max(each.end_offset, starts[each.partition]) for each in found.partitions},
        size_bytes=found.size_bytes,
        lost_count=sum(each.skipped_count for each in found.partitions),
        from_ms=start.timestamp_ms if start.kind == "time" else None,
        until_ms=end.timestamp_ms if end.kind == "time" else None,
        on_data_loss=on_data_loss,
    )


def _start(place: Place) -> dict[str, object]:
    """Return the start of partitions that the place does not name.

    For a time that is a lookup: all records before its offset are earlier.
    """
    match place.kind:
        case "time":
            return {"start_timestamp": place.timestamp_ms}
        case "earliest" | "latest":
            return {"start_offset": place.kind}
        case "offsets":
            return {"start_offset": "earliest"}


def _bound_of(side: Literal["start", "end"], place: Place, number: int) -> dict[str, object]:
    if side == "end" and place.kind == "earliest":
        return {"end_offset": "earliest"}
    return {f"{side}_offset": place.offsets[number]} if number in place.offsets else {}


def read_range(
    spark: SparkSession, wanted: TopicRange, *, headers: bool = False, has_byte_names: bool = False
) -> DataFrame:
    """Return the records of the range: one Spark partition for each topic partition with records, ordered by offset.

    With ``has_byte_names`` the names of headers are bytes. As text, bytes that are not UTF-8 would be replaced.

    Partitions without offsets in the range are not read, unless no partition has any.
    """
    topic = wanted.address.topic
    numbers = sorted(each for each, end in wanted.ends.items() if wanted.starts[each] < end) or sorted(wanted.starts)
    reader = (
        spark.read.format("rollway")
        .option("failOnDataLoss", str(wanted.on_data_loss == "fail").lower())
        .options(**wanted.address.all_options())
        .option("isolationLevel", ISOLATION)
        .option("assign", json.dumps({topic: numbers}))
        .option("startingOffsets", _offsets(wanted, wanted.starts, numbers))
        .option("endingOffsets", _offsets(wanted, wanted.ends, numbers))
        .option("includeHeaders", str(headers).lower())
    )
    rows = (reader.schema(byte_headers_schema()) if headers and has_byte_names else reader).load()
    if wanted.from_ms is not None:
        rows = rows.where(F.unix_millis("timestamp") >= wanted.from_ms)
    if wanted.until_ms is not None:
        rows = rows.where(F.unix_millis("timestamp") < wanted.until_ms)
    return rows


def _offsets(wanted: TopicRange, offsets: Mapping[int, int], numbers: Sequence[int]) -> str:
    """Return positions of these partitions, with the id of the topic: they are not valid in a later topic of its
    name."""
    own = {wanted.address.topic: {each: offsets[each] for each in numbers}}
    return json.dumps(to_document(own, {wanted.address.topic: wanted.topic_id}))


def read_kafka(
    spark: SparkSession,
    address: TopicAddress,
    start: Place,
    end: Place,
    on_data_loss: OnDataLoss = "fail",
    *,
    headers: bool,
) -> DataFrame:
    """Return the records of a topic of Kafka between two places. A time refers to the records' timestamps.

    Spark connects to Kafka only when the rows are read: see ``kafka_explained``. Offsets must name every partition.

    Raises:
        JobError: this Spark has no source for Kafka, or the source refuses the options.
    """
    reader = (
        spark.read.format("kafka")
        .option("failOnDataLoss", str(on_data_loss == "fail").lower())
        .options(**address.all_options())
        .option("kafka.isolation.level", ISOLATION)
        .option("subscribe", address.topic)
        .option("includeHeaders", str(headers).lower())
    )
    # The end is not looked up by time: records behind the first one at that time may be earlier.
    if start.kind == "time":
        reader = reader.option("startingTimestamp", str(start.timestamp_ms))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    else:
        reader = reader.option("startingOffsets", _kafka_offsets(address, start))
    reader = reader.option("endingOffsets", "latest" if end.kind == "time" else _kafka_offsets(address, end))
    try:
        rows = reader.load()
    except (PySparkException, Py4JJavaError) as error:
        raise kafka_error(address, error) from None
    if start.kind == "time":
        rows = rows.where(F.unix_millis("timestamp") >= start.timestamp_ms)
    return rows.where(F.unix_millis("timestamp") < end.timestamp_ms) if end.kind == "time" else rows


def _kafka_offsets(address: TopicAddress, place: Place) -> str:
    return place.kind if place.kind != "offsets" else json.dumps({address.topic: dict(place.offsets)})


@contextmanager
def kafka_explained(address: TopicAddress) -> Iterator[None]:
    """Convert errors of Spark's source or sink of Kafka, while its rows are read or written, with ``kafka_error``.

    Raises:
        JobError: Kafka cannot be reached, has no such topic, or refuses.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if address.format != "kafka" or not any(mark in str(error) for mark in _KAFKA_MARKS):
            raise
        raise kafka_error(address, error) from None


def kafka_error(address: TopicAddress, error: Exception) -> JobError:
    """Return the error for a failure of Kafka. If Spark lacks the package for Kafka, the message names it."""
    text = str(error)
    if "Failed to find the data source: kafka" in text or "Failed to find data source: kafka" in text:
        return JobError(
            f"{address}: this Spark has no source for Kafka. Submit with --packages {KAFKA_PACKAGE}:<version of Spark>."
        )
    if "UnknownTopicOrPartitionException" in text:
        return JobError(f"{address}: Kafka has no such topic.")
    if "Partitions specified for Kafka" in text:
        return JobError(f"{address}: Kafka needs an offset of every partition.")
    return JobError(f"{address}: {first_sentence(error)}")


def utc_date_and_hour(rows: DataFrame) -> DataFrame:
    """Return ``rows`` with ``date`` and ``hour`` of their ``timestamp`` in UTC, in any session time zone."""
    days = F.floor(F.unix_millis("timestamp") / F.lit(86_400_000)).cast("int")
    hours = F.pmod(F.floor(F.unix_millis("timestamp") / F.lit(3_600_000)), F.lit(24)).cast("int")
    return rows.withColumn("date", F.date_from_unix_date(days)).withColumn("hour", hours)
