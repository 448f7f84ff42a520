"""The topic that a job writes to: checked against the source, or created."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from rollway.client import RollwayClient, Topic, TopicNotFoundError
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.reports import counted
from rollway.spark.jobs.topics import TopicAddress, refuse_options
from rollway.spark.options.options import WriteOptions

_DECIDED_IN_WRITES = (
    "topic",
    "deliveryMode",
    "txnAppId",
    "txnVersion",
    "jobId",
    "onReject",
    "rejectTopic",
    "maxRejected",
)
_OF_TIMES = "message.timestamp."


def write_options(target: TopicAddress) -> WriteOptions:
    """Parse the options of a write to the topic: compression, timeout, connection.

    Raises:
        JobUsageError: the topic is Kafka's, or an option is one that jobs decide.
        OptionError: an option is unknown or not valid.
    """
    if target.format != "rollway":
        raise JobUsageError(f"{target} is not a topic of a Rollway service.")
    refuse_options(target, _DECIDED_IN_WRITES)
    return WriteOptions.parse({**target.all_options(), "topic": target.topic})


def open_target(target: TopicAddress) -> RollwayClient:
    """Return a client of the target's service. The caller closes it.

    Raises: as ``write_options``.
    """
    return RollwayClient(write_options(target).client)


def find_target(
    client: RollwayClient, target: TopicAddress, source: TopicAddress, partitions: int | None
) -> Topic | None:
    """Find the target; return ``None`` if there is no such topic.

    Args:
        partitions: number of partitions of the source, if records keep their partition.

    Raises:
        JobError: the target has fewer partitions.
    """
    try:
        topic = client.describe_topic(target.topic)
    except TopicNotFoundError:
        return None
    if partitions is not None and topic.partition_count < partitions:
        raise JobError(
            f"{source} has {counted(partitions, 'partition')} and {target} has {topic.partition_count:,}: --by-key "
            "lets the keys decide."
        )
    return topic


def check_settings(target: TopicAddress, topic: Topic, asked: Mapping[str, object]) -> None:
    """Return if an existing topic has the requested settings, or if the caller may not see its settings.

    Raises:
        JobUsageError: there is no such setting.
        JobError: a setting has another value.
    """
    if not topic.config:
        return
    for name in asked:
        if name not in topic.config:
            near = get_close_matches(name, topic.config, n=1)
            hint = f": did you mean {near[0]}?" if near else f", which are {', '.join(topic.config)}."
            raise JobUsageError(f"--config {name} is none of the settings of topics{hint}")
    there = {name: str(topic.config[name]) for name in asked}
    others = {name: value for name, value in there.items() if value.lower() != str(asked[name]).lower()}
    if others:
        settings = " ".join(f"--config {name}={asked[name]}" for name in others)
        raise JobError(
            f"{target} exists with {', '.join(f'{name}={value}' for name, value in others.items())}: "
            f"`rollway topics alter {target.topic} {settings}` changes that, --config is for a topic that is made."
        )


def make_target(client: RollwayClient, target: TopicAddress, source: Topic, config: Mapping[str, object]) -> Topic:
    """Create the topic with the partitions and the own settings of ``source``, over which ``config`` wins.

    Raises:
        JobError: the caller may not see the source's settings, and ``config`` has none.
        RollwayError: the service refuses, for example an unknown setting.
    """
    if not source.config and not config:
        raise JobError(
            f"{target} does not exist, and the settings of {source.name}, which it would take over, may not be seen: "
            "give them with --config, or make the topic first."
        )
    # The timestamps of records are kept. These settings would change them, or refuse them as too old.
    taken = {name: value for name, value in source.own_config.items() if not name.startswith(_OF_TIMES)}
    return client.create_topic(target.topic, source.partition_count, {**taken, **config})
