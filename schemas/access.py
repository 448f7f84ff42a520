"""Keys, tokens and access control lists."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Schema, Timestamp
from schemas.names import KEY_PRINCIPAL_PATTERN, TEXT_PATTERN

AclOperation = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
]
AclResourceType = Literal["topic", "group", "cluster", "transactional_id"]
AclPatternType = Literal["literal", "prefixed"]
AclPermission = Literal["allow", "deny"]

Principal = Annotated[
    str,
    Field(
        min_length=1,
        max_length=600,
        description="User:name of an API key, Jwt:subject, or Certificate:distinguished-name.",
        examples=["User:orders"],
    ),
]
_ACL_PRINCIPAL_PATTERN = r"^(\*|(User|Jwt|Certificate):[^\x00-\x1f\x7f-\x9f]{1,500})$"
Description = Annotated[
    str,
    Field(
        max_length=200,
        description="Its purpose, for people; printable characters.",
        examples=["the order service"],
        json_schema_extra={"pattern": TEXT_PATTERN},
    ),
]
Created = Annotated[
    Count, Field(description="Time of its creation, in milliseconds since the epoch.", examples=[1714564800000])
]
Expires = Annotated[
    Count | None,
    Field(description="Time of its expiry, in milliseconds since the epoch; null: never.", examples=[1746100800000]),
]
ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=249,
        description='The name, or with prefixed its beginning; "*" with literal is every name. '
        "The cluster's name is kafka-cluster.",
        examples=["orders"],
        json_schema_extra={"pattern": TEXT_PATTERN},
    ),
]


class KeySpecification(Schema):
    """An API key to create."""

    principal: Annotated[
        str,
        Field(
            min_length=1,
            max_length=600,
            description="Principal of the key: User:name, with letters, digits and . _ @ + = - in name.",
            examples=["User:orders"],
            json_schema_extra={"pattern": KEY_PRINCIPAL_PATTERN},
        ),
    ]
    description: Description = ""
    expires_at: Annotated[Timestamp | None, Field(description="Time of its expiry; absent: never.")] = None


class KeyDescription(Schema):
    """An API key, without its secret."""

    key_id: Annotated[
        str,
        Field(
            description="The public half of the key: it names the key, and is no secret.", examples=["3f9c1e6b5a7d8042"]
        ),
    ]
    principal: Principal
    description: Description
    created_at: Created
    expires_at: Expires


class NewKey(KeyDescription):
    """A new API key. Only this response shows its secret."""

    api_key: Annotated[
        str, Field(description="Send it as Authorization: Bearer.", examples=["rwk_3f9c1e6b5a7d8042_(43 characters)"])
    ]


class KeyList(Schema):
    """All API keys, without their secrets."""

    data: Annotated[list[KeyDescription], Field(description="The keys, the oldest first.")]


class AclEntry(Schema):
    """One entry: it allows or denies a principal an operation on resources. A deny wins over every allow."""

    principal: Annotated[
        str,
        Field(
            min_length=1,
            max_length=600,
            description="A principal, Type:* for all of its type, or * for all authenticated principals.",
            examples=["User:orders"],
            json_schema_extra={"pattern": _ACL_PRINCIPAL_PATTERN},
        ),
    ]
    permission: Annotated[AclPermission, Field(description="Whether the entry allows or denies.")] = "allow"
    operation: Annotated[
        AclOperation,
        Field(description="The operation, by its name in Kafka's ACLs; ALL is every operation.", examples=["WRITE"]),
    ]
    resource_type: Annotated[AclResourceType, Field(description="Kind of the resource.", examples=["topic"])]
    resource_name: ResourceName
    pattern_type: Annotated[
        AclPatternType, Field(description="literal: resource_name is the whole name; prefixed: its beginning.")
    ] = "literal"


class AclList(Schema):
    """Access control list entries."""

    data: Annotated[list[AclEntry], Field(description="The entries, in no order.", max_length=10_000)]


class NewAcls(Schema):
    """Entries to add, all of them or none."""

    acls: Annotated[list[AclEntry], Field(description="The entries to add.", min_length=1, max_length=1_000)]


class TokenGrant(Schema):
    """One right of a token: operations on the resources of a pattern."""

    operations: Annotated[
        list[AclOperation],
        Field(
            description="The operations, by their names in Kafka's ACLs; ALL is every operation.",
            min_length=1,
            max_length=20,
            examples=[["READ"]],
        ),
    ]
    resource_type: Annotated[
        Literal["topic", "group", "transactional_id"], Field(description="Kind of the resource.")
    ] = "topic"
    resource_name: ResourceName
    pattern_type: Annotated[
        AclPatternType, Field(description="literal: resource_name is the whole name; prefixed: its beginning.")
    ] = "literal"


class TokenSpecification(Schema):
    """A token to create: some of the rights of its issuer, until it expires."""

    grants: Annotated[
        list[TokenGrant],
        Field(description="The rights of the token; it has no others.", min_length=1, max_length=100),
    ]
    expires_at: Annotated[Timestamp, Field(description="Time of its expiry; within a year.")]
    description: Description = ""


class TokenDescription(Schema):
    """A token, without its secret."""

    token_id: Annotated[
        str,
        Field(
            description="The public half of the token: it names the token, and is no secret.",
            examples=["b07a4d2c91e35f68"],
        ),
    ]
    principal: Annotated[
        str, Field(description="The principal that created the token and that it acts for.", examples=["User:orders"])
    ]
    description: Description
    created_at: Created
    expires_at: Expires
    grants: Annotated[list[TokenGrant], Field(description="The rights of the token; it has no others.")]


class NewToken(TokenDescription):
    """A new token. Only this response shows its secret."""

    token: Annotated[
        str, Field(description="Send it as Authorization: Bearer.", examples=["rwt_b07a4d2c91e35f68_(43 characters)"])
    ]


class TokenList(Schema):
    """Tokens, without their secrets."""

    data: Annotated[list[TokenDescription], Field(description="The tokens, the oldest first.")]
