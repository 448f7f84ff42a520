"""``rollway log export --verify``: every partition beside the one that the cluster has adopted."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from app.cli.command_errors import CommandError, UsageProblem
from app.cli.log_files.broker_connection import BrokerConnectionError
from app.cli.log_files.cluster_comparison import find_difference
from app.cli.log_files.cluster_reader import ClusterReader
from app.cli.rendering import note, plural, print_json, say
from log_model.errors import CorruptionError
from log_model.names import PartitionName
from rollway.printable import escape_unprintable
from storage.log_export import LogExport, SourceDirectory, StoredTopic, choose_topics

_SCHEME = "kafka"


def verify_export(export: LogExport, address: str, *, as_json: bool) -> bool:
    """Compare the topics of an export with those of a cluster; print the first difference of each partition.

    Return whether there is none.

    Raises:
        UsageProblem: ``address`` is not of the form ``kafka://HOST:PORT``.
        CommandError: a broker cannot be reached, or refuses.
        StorageError, OSError: the directory cannot be read.
    """
    host, port = _parse(address)
    differences: dict[PartitionName, str | None] = {}
    try:
        with export.stored() as source, ClusterReader(host, port) as cluster:
            for topic in choose_topics(source, export.topics):
                _compare_topic(export, source, topic, cluster, differences, shown=not as_json and sys.stderr.isatty())
    except BrokerConnectionError as error:
        raise CommandError(f"{error}.") from None
    found = {name: difference for name, difference in differences.items() if difference is not None}
    if as_json:
        rows = [
            {"topic": name.topic, "partition": name.partition, "difference": difference}
            for name, difference in differences.items()
        ]
        print_json({"equal": not found, "partitions": rows})
        return not found
    for name, difference in found.items():
        say(escape_unprintable(f"{name}: {difference}."))
    compared = plural(len(differences), "partition")
    say(f"Different: {len(found)} of {compared}." if found else f"Equal: {compared} compared, record for record.")
    return not found


def _compare_topic(
    export: LogExport,
    source: SourceDirectory,
    topic: StoredTopic,
    cluster: ClusterReader,
    differences: dict[PartitionName, str | None],
    *,
    shown: bool,
) -> None:
    count = cluster.load(topic.name)
    for name in topic.partition_names():
        if name.partition >= count:
            differences[name] = f"the cluster has {plural(count, 'partition')} of the topic"
            continue
        try:
            differences[name] = find_difference(
                export.file_system, source.partition(topic, name), cluster, source.directory_id
            )
        except CorruptionError as error:
            differences[name] = str(error)
        if shown:
            note(escape_unprintable(f"{name} {'is equal' if differences[name] is None else 'differs'}"))
    if count > topic.partition_count:
        name = PartitionName(topic.name, topic.partition_count)
        differences[name] = f"the topic has {plural(topic.partition_count, 'partition')}, and {count} in the cluster"


def _parse(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.scheme != _SCHEME or parts.path or parts.query or parts.username:
        raise UsageProblem(f"--verify needs kafka://HOST:PORT, as in kafka://broker:9092, not {address!r}.")
    return host, port
