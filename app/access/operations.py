"""Kafka's operations and kinds of resources."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from app.engine.attempt_names import application_of


class Operation(StrEnum):
    """Kafka's ACL operations. In ACLs and tokens ``ALL`` stands for every operation. No route needs ``ALL``."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


class ResourceKind(StrEnum):
    """Kafka's kinds of resources that the service has."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class PatternKind(StrEnum):
    """The comparison of a pattern's name: with the whole name, or as its beginning. The literal ``*`` is any name."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class Resource(NamedTuple):
    """One resource of a kind: a topic, a group, a transactional id, or the cluster."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


CLUSTER = Resource(ResourceKind.CLUSTER, CLUSTER_NAME)


def topic_resource(name: str) -> Resource:
    """Return the resource of this topic, whether the topic exists or not."""
    return Resource(ResourceKind.TOPIC, name)


def transactional_id_resource(name: str) -> Resource:
    """Return the resource of this transactional id, whether it is in use or not.

    The id of an attempt of a load job stands for the application of the job.
    """
    return Resource(ResourceKind.TRANSACTIONAL_ID, application_of(name))


class Pattern(NamedTuple):
    """The resources of an ACL or a token.

    Example: ``Pattern(ResourceKind.TOPIC, "orders-", PatternKind.PREFIXED)`` matches the topic ``orders-eu``.
    """

    kind: ResourceKind
    name: str
    pattern: PatternKind = PatternKind.LITERAL

    def matches(self, resource: Resource) -> bool:
        """Return whether the pattern includes ``resource``."""
        if self.kind is not resource.kind:
            return False
        if self.pattern is PatternKind.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (resource.name, WILDCARD)

    def covers(self, other: Pattern) -> bool:
        """Return whether the pattern includes every resource of ``other``."""
        if self.kind is not other.kind:
            return False
        if self.pattern is PatternKind.LITERAL and self.name == WILDCARD:
            return True
        if self.pattern is PatternKind.PREFIXED:
            is_any = other.pattern is PatternKind.LITERAL and other.name == WILDCARD
            return other.name.startswith(self.name) and not is_any
        return other.pattern is PatternKind.LITERAL and self.name == other.name

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}{WILDCARD if self.pattern is PatternKind.PREFIXED else ''}"


_IMPLY_DESCRIBE = frozenset({Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})
_IMPLY_DESCRIBE_CONFIGS = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})


def implied_by(operation: Operation) -> frozenset[Operation]:
    """Return the operations whose permission also permits ``operation``. As in Kafka, a deny implies nothing."""
    match operation:
        case Operation.DESCRIBE:
            own = _IMPLY_DESCRIBE
        case Operation.DESCRIBE_CONFIGS:
            own = _IMPLY_DESCRIBE_CONFIGS
        case _:
            own = frozenset({operation})
    return own | {Operation.ALL}


OFFERED: dict[ResourceKind, frozenset[Operation]] = {
    ResourceKind.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.ALL,
        }
    ),
    ResourceKind.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.ALL}),
    ResourceKind.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
            Operation.ALL,
        }
    ),
    ResourceKind.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE, Operation.ALL}),
}
"""The operations that exist on each kind of resource, as in Kafka."""
