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
        description="What it is for; printable characters.",
        examples=["the order service"],
        json_schema_extra={"pattern": TEXT_PATTERN},
    ),
]
Created = Annotated[Count, Field(description="When it was made, in ms.", examples=[1714564800000])]
Expires = Annotated[Count | None, Field(description="When it ends, in ms; null: never.", examples=[1746100800000])]
ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=249,
        description='The name, or with prefixed its beginning; "*" with literal is every name. '
        "The cluster's is kafka-cluster.",
        examples=["orders"],
        json_schema_extra={"pattern": TEXT_PATTERN},
    ),
]


class KeySpecification(Schema):
    """A new API key."""

    principal: Annotated[
        str,
        Field(
            min_length=1,
            max_length=600,
            description="Whom the key is for: User:name, with letters, digits and . _ @ + = - in name.",
            examples=["User:orders"],
            json_schema_extra={"pattern": KEY_PRINCIPAL_PATTERN},
        ),
    ]
    description: Description = ""
    expires_at: Annotated[Timestamp | None, Field(description="When it ends; absent: never.")] = None


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
    """A new API key. Its secret is shown here and never again."""

    api_key: Annotated[
        str, Field(description="Send it as Authorization: Bearer.", examples=["rwk_3f9c1e6b5a7d8042_(43 characters)"])
    ]


class KeyList(Schema):
    """All API keys, without their secrets."""

    data: Annotated[list[KeyDescription], Field(description="The keys, the oldest first.")]


class AclEntry(Schema):
    """One entry: who may, or may not, do what to which resources. A deny wins over every allow."""

    principal: Annotated[
        str,
        Field(
            min_length=1,
            max_length=600,
            description="A principal, Type:* for all of its type, or * for everybody who is known.",
            examples=["User:orders"],
            json_schema_extra={"pattern": _ACL_PRINCIPAL_PATTERN},
        ),
    ]
    permission: Annotated[AclPermission, Field(description="Whether the entry allows or denies.")] = "allow"
    operation: Annotated[
        AclOperation,
        Field(description="What is done, as Kafka's ACLs name it; ALL is every operation.", examples=["WRITE"]),
    ]
    resource_type: Annotated[AclResourceType, Field(description="What it is done to.", examples=["topic"])]
    resource_name: ResourceName
    pattern_type: Annotated[
        AclPatternType, Field(description="literal: resource_name is the whole name; prefixed: its beginning.")
    ] = "literal"


class AclList(Schema):
    """Entries."""

    data: Annotated[list[AclEntry], Field(description="The entries, in no order.", max_length=10_000)]


class NewAcls(Schema):
    """Entries to add, all of them or none."""

    acls: Annotated[list[AclEntry], Field(description="The entries to add.", min_length=1, max_length=1_000)]


class TokenGrant(Schema):
    """What a token may be used for."""

    operations: Annotated[
        list[AclOperation],
        Field(
            description="What may be done, as Kafka's ACLs name it; ALL is every operation.",
            min_length=1,
            max_length=20,
            examples=[["READ"]],
        ),
    ]
    resource_type: Annotated[
        Literal["topic", "group", "transactional_id"], Field(description="What it may be done to.")
    ] = "topic"
    resource_name: ResourceName
    pattern_type: Annotated[
        AclPatternType, Field(description="literal: resource_name is the whole name; prefixed: its beginning.")
    ] = "literal"


class TokenSpecification(Schema):
    """A new token: some of the rights of its issuer, for a time."""

    grants: Annotated[
        list[TokenGrant],
        Field(description="What the token may be used for; nothing else.", min_length=1, max_length=100),
    ]
    expires_at: Annotated[Timestamp, Field(description="When it ends; within a year.")]
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
        str, Field(description="The principal that made it and that the token acts for.", examples=["User:orders"])
    ]
    description: Description
    created_at: Created
    expires_at: Expires
    grants: Annotated[list[TokenGrant], Field(description="What the token may be used for; nothing else.")]


class NewToken(TokenDescription):
    """A new token. Its secret is shown here and never again."""

    token: Annotated[
        str, Field(description="Send it as Authorization: Bearer.", examples=["rwt_b07a4d2c91e35f68_(43 characters)"])
    ]


class TokenList(Schema):
    """Tokens, without their secrets."""

    data: Annotated[list[TokenDescription], Field(description="The tokens, the oldest first.")]
