"""Fetching many partitions in one request (Kafka Fetch).

The body is read by a faster coder than these models (app.fetch.multi_fetch_body); a test holds them together.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.base import Count, Long, Schema
from schemas.errors import Problem
from schemas.names import Offset, Partition, TopicId, TopicName
from schemas.offsets import Isolation
from schemas.records import Encoding, FetchedRecord

INT_MAX = 2**31 - 1
PARTITIONS_MAX = 10_000
WAIT_MS_MAX = 60_000
MAX_BYTES_DEFAULT = 50 * 1024 * 1024
PARTITION_MAX_BYTES_DEFAULT = 1024 * 1024
Epoch = Annotated[int, Field(ge=-1, le=INT_MAX)]
Bytes = Annotated[int, Field(ge=0, le=INT_MAX)]


class FetchPartition(Schema):
    """One partition to fetch, by the topic's name, by its id, or by the name of which the id must be right."""

    topic: Annotated[TopicName | None, Field(description="Name of the topic; absent: topic_id says which.")] = None
    topic_id: Annotated[
        TopicId | None, Field(description="Identity of the topic, 22 characters; absent: topic says which.")
    ] = None
    partition: Partition
    fetch_offset: Annotated[Offset, Field(description="Fetch from here.")]
    max_bytes: Annotated[Bytes, Field(description="At most this many bytes of this partition.")] = (
        PARTITION_MAX_BYTES_DEFAULT
    )
    current_leader_epoch: Annotated[
        Epoch | None,
        Field(description="The leader epoch the client knows. null, -1: not checked."),
    ] = None
    last_fetched_epoch: Annotated[
        Epoch | None,
        Field(description="Leader epoch of the record before fetch_offset, to find out if it is gone. null, -1: none."),
    ] = None
    log_start_offset: Annotated[
        Annotated[int, Field(ge=-1)] | None, Field(description="Of a follower's log; without a meaning for consumers.")
    ] = None


class ForgottenPartition(Schema):
    """A partition that leaves the session."""

    topic: Annotated[TopicName | None, Field(description="Name of the topic; absent: topic_id says which.")] = None
    topic_id: Annotated[
        TopicId | None, Field(description="Identity of the topic, 22 characters; absent: topic says which.")
    ] = None
    partition: Partition


class MultiFetch(Schema):
    """Many partitions within one budget of bytes; with a session, only what changed since the last request."""

    session_id: Annotated[int, Field(ge=0, le=INT_MAX, description="The session, 0 without one.")] = 0
    session_epoch: Annotated[
        int,
        Field(
            ge=-1,
            le=INT_MAX,
            description="-1: no session, and session_id ends. 0: begin one. Otherwise the request's number in the "
            "session: 1, 2, 3, ..., and after the largest 1 again.",
        ),
    ] = -1
    isolation: Annotated[
        Isolation,
        Field(description="read_committed: up to the last stable offset, without records of aborted transactions."),
    ] = "read_uncommitted"
    max_wait_ms: Annotated[int, Field(ge=0, le=WAIT_MS_MAX, description="How long to wait for min_bytes.")] = 0
    min_bytes: Annotated[Bytes, Field(description="Wait until the partitions have this many bytes of batches.")] = 1
    max_bytes: Annotated[
        Bytes,
        Field(description="At most this many bytes of batches in all, but always the first. The service has limits."),
    ] = MAX_BYTES_DEFAULT
    encoding: Annotated[Encoding, Field(description="How keys and values are shown in JSON.")] = "utf8"
    partitions: Annotated[
        list[FetchPartition],
        Field(
            max_length=PARTITIONS_MAX,
            description="Those that come first have the first claim to max_bytes. In a session: changes.",
        ),
    ] = Field(default=[])
    forgotten: Annotated[
        list[ForgottenPartition], Field(description="Partitions that leave the session.", max_length=PARTITIONS_MAX)
    ] = Field(default=[])


class AbortedTransaction(Schema):
    """A transaction whose records no read_committed consumer may see."""

    producer_id: Annotated[Count, Field(description="Whose transaction it is.", examples=[4000])]
    first_offset: Annotated[Offset, Field(description="Where the transaction begins in this partition.", examples=[0])]


class DivergingEpoch(Schema):
    """The client's log is not this one's: from ``end_offset`` on, where ``epoch`` ends here, it holds other records."""

    epoch: Annotated[
        int,
        Field(description="The greatest leader epoch here that is not above last_fetched_epoch.", examples=[0], ge=0),
    ]
    end_offset: Annotated[
        Offset, Field(description="The offset after the last record of that epoch here.", examples=[3])
    ]


class FetchedPartition(Schema):
    """One partition's answer. Offsets are -1 beside an error."""

    topic: Annotated[
        str | None, Field(description="null when nothing is known of the topic_id.", examples=["readings"])
    ]
    topic_id: Annotated[
        str | None, Field(description="null when there is no such topic.", examples=["vbX5CGHpTq2OyL3cZhW1Uw"])
    ]
    partition: Partition
    error: Annotated[
        Problem | None, Field(description="Why nothing was read of it; null when it was.", examples=[None])
    ]
    log_start_offset: Annotated[Long, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Long, Field(description="End of what consumers may read.", examples=[3])]
    last_stable_offset: Annotated[
        Long, Field(description="End of what read_committed consumers may read.", examples=[3])
    ]
    log_end_offset: Annotated[Long, Field(description="Offset the next record will get.", examples=[3])]
    next_offset: Annotated[Long, Field(description="Fetch here next.", examples=[3])]
    records: Annotated[list[FetchedRecord], Field(description="The records, in the order of their offsets.")]
    aborted_transactions: Annotated[
        list[AbortedTransaction], Field(description="With read_committed: whose records were left out.")
    ] = Field(default=[])
    diverging_epoch: Annotated[
        DivergingEpoch | None,
        Field(description="Set when the client's log is not this one's, by last_fetched_epoch.", examples=[None]),
    ] = None


class MultiFetchResult(Schema):
    """The partitions that were asked for; in a session those with something new."""

    session_id: Annotated[int, Field(description="The session to go on with; 0: there is none.", examples=[0])]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="How long the client is to wait, as it broke a quota; requests before are answered 429.",
            examples=[0],
        ),
    ]
    partitions: Annotated[list[FetchedPartition], Field(description="The partitions, in the order they were read.")]
