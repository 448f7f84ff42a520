"""The options of ``format("rollway")``: the options of ``format("kafka")``, and a few of our own.

Unknown options are refused, and the error suggests the nearest name. Options of Kafka's clients (``kafka.*``) that have
no counterpart are ignored, and named in ``ignored``.
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
"""Variable of the driver's environment that may hold the token, so that no program contains it."""
MAX_TRIGGER_DELAY_MS_DEFAULT = 15 * 60_000
TRANSACTION_TIMEOUT_MS_DEFAULT = 600_000
FETCH_MAX_BYTES_DEFAULT = 4 << 20
BATCH_BYTES_DEFAULT = 1 << 20
BATCH_BYTES_MAX = 1 << 30
MAX_IN_FLIGHT_DEFAULT = 2
MAX_IN_FLIGHT_MAX = 64
RANGES_MAX = 10_000
"""Greatest number of ranges into which the service splits a topic."""
_MS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read. It has exactly one of ``subscribe``, ``subscribe_pattern`` and ``assign``. Picklable.

    Offsets are by topic and partition; -2 is the earliest, -1 the latest. Times are milliseconds since 1970. Of several
    starts, ``starting_timestamp`` wins over the offsets by timestamp, and these win over the offsets. The same holds
    for ends.
    """

    client: ClientSettings
    subscribe: tuple[str, ...] | None = None
    subscribe_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: StartOrEnd = "earliest"
    ending_offsets: StartOrEnd = "latest"
    topic_ids: dict[str, str] = field(default_factory=dict)
    """The ids of the topics that the offsets belong to, by topic."""
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
    """Given options of a batch that only streams use."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> Self:
        """Parse the options of a read as Spark passes them. ``streaming`` is ``None`` if Spark has not said it yet.

        Raises:
            OptionError: an option is unknown or not valid, or options contradict each other.
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
    """The options of a write. Picklable.

    If ``topic`` is ``None``, each row names its topic. ``job_id`` is an open load job to write in and to commit. If
    ``max_rejected`` is ``None``, there is no limit.
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
    """Identity of a stream in Spark: its checkpoint and its name, as far as they are given."""
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a write as Spark passes them.

        Raises:
            OptionError: an option is unknown or not valid, or options contradict each other.
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
    """Require that a batch begins before it ends. As in Kafka's source, offsets that a time overrules do not count."""
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
    """Return the options without effect, each with the option that takes the effect away."""
    names = []
    if options.delivery_mode == "atleastonce" and values.text("transactionTimeout", "kafka.transaction.timeout.ms"):
        names.append("transactionTimeout (deliveryMode is atleastonce)")
    if options.on_reject == "fail" and options.max_rejected is not None:
        names.append("maxRejected (onReject is fail: the first rejected row ends the load)")
    return names


# The connection


def _client(values: OptionValues) -> ClientSettings:
    """Return the settings of the client.

    Raises:
        OptionError: no option gives the address, or a setting is not valid.
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
    """Return the password of SASL/PLAIN in Kafka's option, which is the API key here."""
    config = values.text("kafka.sasl.jaas.config")
    if config is None:
        return None
    found = re.search(r"""\bpassword\s*=\s*(?:"([^"]*)"|'([^']*)')""", config)
    if found is None:
        raise OptionError("kafka.sasl.jaas.config has no password; give the API key, token or JWT as token")
    return found[1] or found[2]


__all__ = ["DeliveryMode", "OnReject", "ReadOptions", "StartOrEnd", "WriteOptions", "canonical"]
