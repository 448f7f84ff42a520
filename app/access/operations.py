"""What may be done, and to what: Kafka's operations and kinds of resources."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from app.engine.attempt_names import application_of


class Operation(StrEnum):
    """Kafka's ACL operations. ``ALL`` stands for every one of them in ACLs and tokens, and is never asked for."""

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
    """Kafka's kinds of resources, as far as the service has them."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class PatternKind(StrEnum):
    """How a pattern's name is compared: all of it, or as the beginning. The literal name ``*`` means any."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class Resource(NamedTuple):
    """One thing that is asked for."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


CLUSTER = Resource(ResourceKind.CLUSTER, CLUSTER_NAME)


def topic_resource(name: str) -> Resource:
    """The topic of this name, whether it exists or not."""
    return Resource(ResourceKind.TOPIC, name)


def transactional_id_resource(name: str) -> Resource:
    """The transactional id of this name, in use or not; that of the application for an attempt of a load job."""
    return Resource(ResourceKind.TRANSACTIONAL_ID, application_of(name))


class Pattern(NamedTuple):
    """The resources an ACL or a token speaks of."""

    kind: ResourceKind
    name: str
    pattern: PatternKind = PatternKind.LITERAL

    def matches(self, resource: Resource) -> bool:
        """Whether it speaks of ``resource``."""
        if self.kind is not resource.kind:
            return False
        if self.pattern is PatternKind.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (resource.name, WILDCARD)

    def covers(self, other: Pattern) -> bool:
        """Whether it speaks of everything that ``other`` speaks of."""
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
    """The operations whose permission permits ``operation`` too. Only an allow implies, never a deny, as in Kafka."""
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
"""Which operations mean something on which kind of resource, as in Kafka."""
