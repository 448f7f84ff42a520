"""Which options there are, how each is written, and what is said about those that are not.

Spark hands over names in any case; here they are compared in lower case.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence

from rollway.spark.errors import OptionError

CONNECTION = (
    "url",
    "token",
    "caFile",
    "clientCertificate",
    "clientKey",
    "clientKeyPassword",
    "connectTimeoutMs",
    "readTimeoutMs",
    "retries",
    "retryBackoffMs",
    "retryBackoffMaxMs",
    "clientId",
)
READ = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "isolationLevel",
    "fetchMaxBytes",
)
WRITE = (
    "topic",
    "deliveryMode",
    "txnAppId",
    "txnVersion",
    "jobId",
    "transactionTimeout",
    "batchBytes",
    "compression",
    "maxInFlight",
    "onReject",
    "rejectTopic",
    "maxRejected",
)
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""What Spark itself reads and hands on all the same."""
WITHOUT_MEANING = frozenset(
    {
        "groupidprefix",
        "includeheaders",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    }
)
"""Options of Kafka's source that do no harm where they mean nothing, which a warning says."""

GROUP_ID = "kafka.group.id"
STREAMS_OWN = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", GROUP_ID)
"""Options that a batch read does without, with a warning, as Kafka's source does. (Ends of a stream are refused.)"""

KAFKA = "kafka."
KAFKA_MAPPED = {
    "kafka.bootstrap.servers": "url",
    "kafka.security.protocol": "url",
    "kafka.sasl.jaas.config": "token",
    "kafka.ssl.ca.location": "caFile",
    "kafka.ssl.truststore.location": "caFile",
    "kafka.ssl.keystore.location": "clientCertificate",
    "kafka.ssl.key.password": "clientKeyPassword",
    "kafka.client.id": "clientId",
    "kafka.request.timeout.ms": "readTimeoutMs",
    GROUP_ID: GROUP_ID,
    "kafka.isolation.level": "isolationLevel",
    "kafka.compression.type": "compression",
    "kafka.transaction.timeout.ms": "transactionTimeout",
}
"""Options of Kafka's clients that mean something here, and ours that each stands for; ours win."""
KAFKA_REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.key.deserializer": "keys are bytes; cast the column instead",
    "kafka.value.deserializer": "values are bytes; cast the column instead",
    "kafka.key.serializer": "keys are text or bytes; cast the column instead",
    "kafka.value.serializer": "values are text or bytes; cast the column instead",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "no code runs between Spark and the topic",
}
"""What Kafka's own source refuses, and what to do instead."""

_HINTS = {
    "apikey": "give the API key, token or JWT as token",
    "api_key": "give the API key, token or JWT as token",
    "password": "give the API key, token or JWT as token",
    "bootstrap.servers": "give the address as url, such as http://127.0.0.1:8080",
    "servers": "give the address as url, such as http://127.0.0.1:8080",
    "host": "give the address as url, such as http://127.0.0.1:8080",
    "path": "load() and save() take no path: name topics with subscribe, or with topic in a write",
    "topics": "to read, name topics with subscribe; to write, one with topic",
    "mode": "save modes are no option: .mode('append')",
    "group.id": "the group is kafka.group.id",
    "groupid": "the group is kafka.group.id",
}

_OF_A_TABLE = "option."
"""How the names of options of CREATE TABLE begin when Spark asks for the columns of the table."""
_TABLE_HINTS = {
    "a read": "CREATE TEMPORARY VIEW name USING rollway OPTIONS (url '...', subscribe '...'), or name them in the "
    "query, FROM name WITH (url '...', subscribe '...')",
    "a write": "CREATE TEMPORARY VIEW name (value STRING) USING rollway OPTIONS (url '...', topic '...'), or name them "
    "in the statement, INSERT INTO name WITH (url '...', topic '...')",
}

_log = logging.getLogger("rollway.spark")

_CANONICAL = {name.lower(): name for name in (*CONNECTION, *READ, *WRITE)}


def canonical(name: str) -> str:
    """The option as the documentation writes it."""
    return _CANONICAL.get(name.lower(), name)


def divided(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options that were given for a read and a write together, as those of the read and those of the write.

    What is only for one of them is not the other's; an option that neither knows is left to both, to be refused.
    """
    return _without(given, WRITE), _without(given, READ)


def _without(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    lowered = {name.lower() for name in names}
    return {name: value for name, value in given.items() if name.lower() not in lowered}


def ignored_names(given: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Of options in lower case, those that do nothing in a read (``READ``) or a write (``WRITE``), in order."""
    used = {name.lower() for name in (*CONNECTION, *known)} - {"groupidprefix"}
    if known is READ:
        used.add(GROUP_ID)
    ignored = []
    for name in sorted(given):
        ours = KAFKA_MAPPED.get(name, name)
        if ours.lower() not in used:
            ignored += [name] if name.startswith(KAFKA) or name in WITHOUT_MEANING else []
        elif ours.lower() in given and ours.lower() != name:
            ignored.append(f"{name} ({ours} is given)")
    return tuple(ignored)


def names_of_streams(given: Mapping[str, str]) -> tuple[str, ...]:
    """Of options in lower case, those that only a stream has a use for."""
    return tuple(name for name in STREAMS_OWN if name.lower() in given)


def tell_ignored(names: Sequence[str]) -> None:
    """Say in the driver's log which options do nothing."""
    if names:
        _log.warning("Options that do nothing here and are ignored: %s", ", ".join(names))


def check_names(given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Refuse options, in lower case, that ``what`` (a read, a write) does not have.

    Raises:
        OptionError: one is unknown, belongs to the other side, or is one that Kafka's source refuses, too; or they are
            those of a table, which Spark hands to no source in Python when the table is read or written.
    """
    if not given:
        raise OptionError(
            f"nothing says where Rollway is: give url, such as http://127.0.0.1:8080; {_told_of_tables(what)}"
        )
    if any(name.startswith(_OF_A_TABLE) for name in given):
        raise OptionError(_told_of_tables(what))
    allowed = {name.lower() for name in (*CONNECTION, *known)}
    for name in sorted(given):
        if name in allowed or name in SPARKS_OWN or name in WITHOUT_MEANING:
            continue
        if name in KAFKA_REFUSED:
            raise OptionError(f"{name} is not supported: {KAFKA_REFUSED[name]}")
        if name.startswith(KAFKA):
            continue
        if name in _CANONICAL:
            other = "a write" if what == "a read" else "a read"
            raise OptionError(f"{_CANONICAL[name]} is an option of {other}, and this is {what}")
        raise OptionError(f"there is no option {name}; {_suggestion(name, (*CONNECTION, *known), what)}")


def _told_of_tables(what: str) -> str:
    return (
        "Spark hands the options of CREATE TABLE to no source that is written in Python: instead use "
        f"{_TABLE_HINTS[what]}"
    )


def _suggestion(name: str, known: tuple[str, ...], what: str) -> str:
    """What may have been meant."""
    if name in _HINTS:
        return _HINTS[name]
    names = [*known, GROUP_ID, "kafka.bootstrap.servers"]
    lowered = {each.lower(): each for each in names}
    nearest = difflib.get_close_matches(name, list(lowered), n=1, cutoff=0.6)
    if nearest:
        return f"did you mean {lowered[nearest[0]]}?"
    return f"those of {what} are {', '.join(sorted(known, key=str.lower))}"
