"""The options of ``format("rollway")``: those of ``format("kafka")``, and a few of our own.

What is not known is refused, with the nearest name. Options of Kafka's clients (``kafka.*``) that mean nothing here are
ignored, and named in ``ignored``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

from rollway.client import ClientSettings, Isolation
from rollway.records import Codec
from rollway.spark.errors import OptionError
from rollway.spark.options.option_names import READ, WRITE, canonical, check_names, ignored_names, names_of_streams
from rollway.spark.options.option_values import EARLIEST, LATEST, OptionValues, StartOrEnd

DeliveryMode = Literal["transactional", "idempotent", "atleastonce"]
OnReject = Literal["fail", "skip", "topic"]

TOKEN_VARIABLE = "ROLLWAY_API_KEY"  # noqa: S105 - the name of a variable
"""Where the driver's environment may have the token, so that it stands in no program."""
MAX_TRIGGER_DELAY_MS_DEFAULT = 15 * 60_000
TRANSACTION_TIMEOUT_MS_DEFAULT = 600_000
FETCH_MAX_BYTES_DEFAULT = 4 << 20
BATCH_BYTES_DEFAULT = 1 << 20
BATCH_BYTES_MAX = 1 << 30
MAX_IN_FLIGHT_DEFAULT = 2
MAX_IN_FLIGHT_MAX = 64
RANGES_MAX = 10_000
"""Into how many the service cuts a topic at most."""
_MS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, from where to where, and how. Exactly one of the first three is there. Picklable.

    Offsets are by topic and partition; -2 is the earliest, -1 the latest. Times are milliseconds since 1970. Which of
    several starts counts: ``starting_timestamp``, then those by timestamp, then offsets; ends likewise.
    """

    client: ClientSettings
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: StartOrEnd = "earliest"
    ending_offsets: StartOrEnd = "latest"
    topic_ids: dict[str, str] = field(default_factory=dict)
    """By topic: the offsets are those of the topic with this id."""
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    starting_offsets_by_timestamp: dict[str, dict[int, int]] | None = None
    ending_offsets_by_timestamp: dict[str, dict[int, int]] | None = None
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = "error"
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS_DEFAULT
    fail_on_data_loss: bool = True
    include_headers: bool = False
    group_id: str | None = None
    isolation: Isolation = "read_committed"
    fetch_max_bytes: int = FETCH_MAX_BYTES_DEFAULT
    ignored: tuple[str, ...] = field(default=(), compare=False)
    of_streams: tuple[str, ...] = field(default=(), compare=False)
    """Of a batch, options that only streams have a use for."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> Self:
        """The options of a read as Spark hands them over; ``None`` when it is not known yet if it is a stream.

        Raises:
            OptionError: one is unknown or cannot be, or they contradict each other.
        """
        values = OptionValues(options)
        check_names(values.given, READ, "a read")
        parsed = cls(
            client=_client(values),
            subscribe=values.topics("subscribe"),
            subscribe_pattern=values.pattern("subscribePattern"),
            assign=values.assignment("assign"),
            starting_offsets=values.positions("startingOffsets") or ("latest" if streaming else "earliest"),
            ending_offsets=values.positions("endingOffsets") or "latest",
            topic_ids=values.topic_ids("startingOffsets", "endingOffsets"),
            starting_timestamp=values.number("startingTimestamp", least=0),
            ending_timestamp=values.number("endingTimestamp", least=0),
            starting_offsets_by_timestamp=values.times("startingOffsetsByTimestamp"),
            ending_offsets_by_timestamp=values.times("endingOffsetsByTimestamp"),
            starting_offsets_by_timestamp_strategy=cast(
                "Literal['error', 'latest']",
                values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
            ),
            min_partitions=values.number("minPartitions", most=RANGES_MAX),
            max_records_per_partition=values.number("maxRecordsPerPartition"),
            max_offsets_per_trigger=values.number("maxOffsetsPerTrigger"),
            min_offsets_per_trigger=values.number("minOffsetsPerTrigger"),
            max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS_DEFAULT),
            fail_on_data_loss=values.flag("failOnDataLoss", default=True),
            include_headers=values.flag("includeHeaders", default=False),
            group_id=values.text("kafka.group.id"),
            isolation=cast(
                "Isolation",
                values.choice(
                    "isolationLevel", ("read_committed", "read_uncommitted"), "read_committed", "kafka.isolation.level"
                ),
            ),
            fetch_max_bytes=values.size_bytes("fetchMaxBytes", FETCH_MAX_BYTES_DEFAULT, most=_MS_MAX),
            ignored=ignored_names(values.given, READ),
            of_streams=names_of_streams(values.given) if streaming is False else (),
        )
        _check_topics(parsed)
        if streaming is True:
            _check_stream(values)
        elif streaming is False:
            _check_batch(parsed)
        return parsed


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write, and how. Picklable.

    ``topic`` of ``None``: each row names its topic. ``job_id`` is an open load job to write in and to commit.
    ``max_rejected`` of ``None`` is no limit.
    """

    client: ClientSettings
    topic: str | None = None
    delivery_mode: DeliveryMode = "transactional"
    txn_app_id: str | None = None
    txn_version: int | None = None
    job_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    batch_bytes: int = BATCH_BYTES_DEFAULT
    codec: Codec = Codec.NONE
    max_in_flight: int = MAX_IN_FLIGHT_DEFAULT
    on_reject: OnReject = "fail"
    reject_topic: str | None = None
    max_rejected: int | None = None
    query: str | None = field(default=None, compare=False)
    """Of a stream, what Spark knows it by: its checkpoint and its name, as far as they are given."""
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """The options of a write as Spark hands them over.

        Raises:
            OptionError: one is unknown or cannot be, or they contradict each other.
        """
        values = OptionValues(options)
        check_names(values.given, WRITE, "a write")
        codecs = tuple(codec.name.lower() for codec in Codec)
        parsed = cls(
            client=_client(values),
            topic=values.text("topic"),
            delivery_mode=cast(
                "DeliveryMode",
                values.choice("deliveryMode", ("transactional", "idempotent", "atleastonce"), "transactional"),
            ),
            txn_app_id=values.text("txnAppId"),
            txn_version=values.number("txnVersion", least=0),
            job_id=values.text("jobId"),
            transaction_timeout_ms=values.duration_ms(
                "transactionTimeout", TRANSACTION_TIMEOUT_MS_DEFAULT, "kafka.transaction.timeout.ms"
            ),
            batch_bytes=values.size_bytes("batchBytes", BATCH_BYTES_DEFAULT, most=BATCH_BYTES_MAX),
            codec=Codec[values.choice("compression", codecs, "none", "kafka.compression.type").upper()],
            max_in_flight=values.number("maxInFlight", MAX_IN_FLIGHT_DEFAULT, most=MAX_IN_FLIGHT_MAX)
            or MAX_IN_FLIGHT_DEFAULT,
            on_reject=cast("OnReject", values.choice("onReject", ("fail", "skip", "topic"), "fail")),
            reject_topic=values.text("rejectTopic"),
            max_rejected=values.number("maxRejected", least=0),
            query=" ".join(filter(None, map(values.given.get, ("checkpointlocation", "queryname")))) or None,
            ignored=ignored_names(values.given, WRITE),
        )
        _check_write(parsed)
        return replace(parsed, ignored=(*parsed.ignored, *_without_effect(parsed, values)))


def _check_topics(options: ReadOptions) -> None:
    ways = {
        "subscribe": options.subscribe,
        "subscribePattern": options.subscribe_pattern,
        "assign": options.assign,
    }
    given = [name for name, value in ways.items() if value is not None]
    if not given:
        raise OptionError("nothing says what to read: give one of subscribe, subscribePattern and assign")
    if len(given) > 1:
        raise OptionError(f"give only one of {' and '.join(given)}")


def _check_stream(values: OptionValues) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if values.text(name) is not None:
            raise OptionError(f"{name} is for batch reads: a stream has no end")
    least, most = values.number("minOffsetsPerTrigger"), values.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least}, which is more than maxOffsetsPerTrigger, {most}")


def _check_batch(options: ReadOptions) -> None:
    """A batch begins before it ends. What is overruled by a time is not looked at, as in Kafka's source."""
    if options.starting_timestamp is None and options.starting_offsets_by_timestamp is None:
        _refuse_place("startingOffsets", options.starting_offsets, "latest", LATEST)
    if options.ending_timestamp is None and options.ending_offsets_by_timestamp is None:
        _refuse_place("endingOffsets", options.ending_offsets, "earliest", EARLIEST)


def _refuse_place(name: str, given: StartOrEnd, place: str, number: int) -> None:
    if given == place:
        raise OptionError(f"{name} cannot be {place} in a batch read: it would read nothing")
    if isinstance(given, dict):
        for topic, offsets in given.items():
            for partition, offset in offsets.items():
                if offset == number:
                    raise OptionError(f"{name} of {topic}-{partition} cannot be {place} ({number}) in a batch read")


def _check_write(options: WriteOptions) -> None:
    if options.txn_version is not None and options.txn_app_id is None:
        raise OptionError("txnVersion needs txnAppId: versions are counted for each application")
    if options.job_id is not None and options.txn_app_id is not None:
        raise OptionError("give only one of jobId and txnAppId: the job has its application already")
    if options.delivery_mode == "atleastonce":
        for name, value in (("txnAppId", options.txn_app_id), ("jobId", options.job_id)):
            if value is not None:
                raise OptionError(f"{name} does nothing with deliveryMode=atleastonce; leave one of them out")
    if (options.on_reject == "topic") != (options.reject_topic is not None):
        raise OptionError(
            "onReject=topic and rejectTopic belong together: rejectTopic names the topic for rejected rows"
        )


def _without_effect(options: WriteOptions, values: OptionValues) -> list[str]:
    """Options that others make do nothing, and which."""
    names = []
    if options.delivery_mode == "atleastonce" and values.text("transactionTimeout", "kafka.transaction.timeout.ms"):
        names.append("transactionTimeout (deliveryMode is atleastonce)")
    if options.on_reject == "fail" and options.max_rejected is not None:
        names.append("maxRejected (onReject is fail: the first rejected row ends the load)")
    return names


# The connection


def _client(values: OptionValues) -> ClientSettings:
    """Where the service is.

    Raises:
        OptionError: nothing says it, or a setting cannot be.
    """
    numbers = {
        setting: values.number(name, least=0 if name == "retries" else 1, most=_MS_MAX)
        for setting, name in (
            ("connect_timeout_ms", "connectTimeoutMs"),
            ("read_timeout_ms", "readTimeoutMs"),
            ("retries", "retries"),
            ("backoff_ms", "retryBackoffMs"),
            ("backoff_ms_max", "retryBackoffMaxMs"),
        )
    }
    if numbers["read_timeout_ms"] is None:
        numbers["read_timeout_ms"] = values.number("kafka.request.timeout.ms", most=_MS_MAX)
    texts = {
        "token": values.text("token") or _jaas_password(values) or os.environ.get(TOKEN_VARIABLE) or None,
        "ca_file": values.text("caFile", "kafka.ssl.ca.location", "kafka.ssl.truststore.location"),
        "client_certificate": values.text("clientCertificate", "kafka.ssl.keystore.location"),
        "client_key": values.text("clientKey"),
        "client_key_password": values.text("clientKeyPassword", "kafka.ssl.key.password"),
        "client_id": values.text("clientId", "kafka.client.id"),
    }
    given: dict[str, Any] = {name: value for name, value in {**texts, **numbers}.items() if value is not None}
    try:
        return ClientSettings(_url(values), **given)
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(str(error)) from None


def _url(values: OptionValues) -> str:
    url = values.text("url")
    if url is not None:
        return url
    servers = values.text("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError("nothing says where Rollway is: give url, such as http://127.0.0.1:8080")
    if "," in servers:
        raise OptionError(f"kafka.bootstrap.servers is {servers!r}, but Rollway is one service: give its address alone")
    if "://" in servers:
        return servers
    protocol = values.choice("kafka.security.protocol", ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"), "plaintext")
    return f"{'https' if protocol.endswith('ssl') else 'http'}://{servers}"


def _jaas_password(values: OptionValues) -> str | None:
    """What a Kafka client shows with SASL/PLAIN: the API key."""
    config = values.text("kafka.sasl.jaas.config")
    if config is None:
        return None
    found = re.search(r"""\bpassword\s*=\s*(?:"([^"]*)"|'([^']*)')""", config)
    if found is None:
        raise OptionError("kafka.sasl.jaas.config has no password; give the API key, token or JWT as token")
    return found[1] or found[2]


__all__ = ["DeliveryMode", "OnReject", "ReadOptions", "StartOrEnd", "WriteOptions", "canonical"]
