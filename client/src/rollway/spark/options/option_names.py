"""The names of all options, and the errors for unknown ones.

Spark passes names in any case. They are compared in lower case.
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
"""Options that Spark itself reads, and also passes to the source."""
WITHOUT_MEANING = frozenset(
    {
        "groupidprefix",
        "includeheaders",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    }
)
"""Options of Kafka's source that do nothing here. A warning names them."""

GROUP_ID = "kafka.group.id"
STREAMS_OWN = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", GROUP_ID)
"""Options that a batch read ignores with a warning, as Kafka's source does. (Ends of a stream are refused.)"""

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
"""Options of Kafka's clients, and our option for each. If both are given, ours wins."""
KAFKA_REFUSED = {
    "kafka.auto.offset.reset": "set startingOffsets to earliest or latest instead",
    "kafka.key.deserializer": "keys are bytes; cast the column instead",
    "kafka.value.deserializer": "values are bytes; cast the column instead",
    "kafka.key.serializer": "keys are text or bytes; cast the column instead",
    "kafka.value.serializer": "values are text or bytes; cast the column instead",
    "kafka.enable.auto.commit": "offsets are kept in the query's checkpoint",
    "kafka.interceptor.classes": "no code runs between Spark and the topic",
}
"""Options that Kafka's own source refuses, each with a remedy."""

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
"""Prefix of the options of CREATE TABLE when Spark calls ``schema`` for the table."""
_TABLE_HINTS = {
    "a read": "CREATE TEMPORARY VIEW name USING rollway OPTIONS (url '...', subscribe '...'), or name them in the "
    "query, FROM name WITH (url '...', subscribe '...')",
    "a write": "CREATE TEMPORARY VIEW name (value STRING) USING rollway OPTIONS (url '...', topic '...'), or name them "
    "in the statement, INSERT INTO name WITH (url '...', topic '...')",
}

_log = logging.getLogger("rollway.spark")

_CANONICAL = {name.lower(): name for name in (*CONNECTION, *READ, *WRITE)}


def canonical(name: str) -> str:
    """Return the name as the documentation writes it: ``startingoffsets`` is ``startingOffsets``."""
    return _CANONICAL.get(name.lower(), name)


def divided(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Divide the options of a read and a write into the options of the read and the options of the write.

    An option of one of them is left out of the other's. An unknown option stays in both, which refuse it.
    """
    return _without(given, WRITE), _without(given, READ)


def _without(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    lowered = {name.lower() for name in names}
    return {name: value for name, value in given.items() if name.lower() not in lowered}


def ignored_names(given: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options, in lower case and in order, that do nothing in a read (``READ``) or a write (``WRITE``)."""
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
    """Return the options, given in lower case, that only a stream uses."""
    return tuple(name for name in STREAMS_OWN if name.lower() in given)


def tell_ignored(names: Sequence[str]) -> None:
    """Log the options that do nothing, in the driver's log."""
    if names:
        _log.warning("Options that do nothing here and are ignored: %s", ", ".join(names))


def check_names(given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Refuse options, in lower case, that ``what`` (a read, a write) does not have.

    Raises:
        OptionError: an option is unknown, belongs to the other side, or is refused by Kafka's source as well. Or the
            options are those of CREATE TABLE, which Spark does not pass to a Python source in reads and writes.
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
    """Return a suggestion for a misspelt name."""
    if name in _HINTS:
        return _HINTS[name]
    names = [*known, GROUP_ID, "kafka.bootstrap.servers"]
    lowered = {each.lower(): each for each in names}
    nearest = difflib.get_close_matches(name, list(lowered), n=1, cutoff=0.6)
    if nearest:
        return f"did you mean {lowered[nearest[0]]}?"
    return f"those of {what} are {', '.join(sorted(known, key=str.lower))}"
