"""Fetching many partitions in one request (Kafka Fetch).

``app.fetch.multi_fetch_body`` reads the body faster than these models do. A test holds both to the same results.
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
    """One partition to fetch, of the topic that its name, its id, or both identify."""

    topic: Annotated[TopicName | None, Field(description="Name of the topic; absent: topic_id identifies it.")] = None
    topic_id: Annotated[
        TopicId | None, Field(description="Identity of the topic, 22 characters; absent: topic identifies it.")
    ] = None
    partition: Partition
    fetch_offset: Annotated[Offset, Field(description="First offset to fetch.")]
    max_bytes: Annotated[Bytes, Field(description="At most this many bytes of this partition.")] = (
        PARTITION_MAX_BYTES_DEFAULT
    )
    current_leader_epoch: Annotated[
        Epoch | None,
        Field(description="The leader epoch that the client last saw. null, -1: not checked."),
    ] = None
    last_fetched_epoch: Annotated[
        Epoch | None,
        Field(description="Leader epoch of the record before fetch_offset, to detect truncation. null, -1: none."),
    ] = None
    log_start_offset: Annotated[
        Annotated[int, Field(ge=-1)] | None, Field(description="Log start of a follower; consumers need not send it.")
    ] = None


class ForgottenPartition(Schema):
    """A partition that leaves the session."""

    topic: Annotated[TopicName | None, Field(description="Name of the topic; absent: topic_id identifies it.")] = None
    topic_id: Annotated[
        TopicId | None, Field(description="Identity of the topic, 22 characters; absent: topic identifies it.")
    ] = None
    partition: Partition


class MultiFetch(Schema):
    """Many partitions within one budget of bytes. In a session, only changes since the last request are sent."""

    session_id: Annotated[int, Field(ge=0, le=INT_MAX, description="Id of the session; 0: none.")] = 0
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
    max_wait_ms: Annotated[int, Field(ge=0, le=WAIT_MS_MAX, description="Milliseconds to wait for min_bytes.")] = 0
    min_bytes: Annotated[Bytes, Field(description="Wait until the partitions have this many bytes of batches.")] = 1
    max_bytes: Annotated[
        Bytes,
        Field(description="At most this many bytes in all, but always the first batch. The service may allow less."),
    ] = MAX_BYTES_DEFAULT
    encoding: Annotated[Encoding, Field(description="Form of keys and values in JSON.")] = "utf8"
    partitions: Annotated[
        list[FetchPartition],
        Field(
            max_length=PARTITIONS_MAX,
            description="Partitions to fetch; the first in the list are the first to use up max_bytes. In a session: "
            "the changes.",
        ),
    ] = Field(default=[])
    forgotten: Annotated[
        list[ForgottenPartition], Field(description="Partitions that leave the session.", max_length=PARTITIONS_MAX)
    ] = Field(default=[])


class AbortedTransaction(Schema):
    """An aborted transaction, whose records no read_committed consumer may see."""

    producer_id: Annotated[Count, Field(description="Id of its producer.", examples=[4000])]
    first_offset: Annotated[Offset, Field(description="Offset of its first record in this partition.", examples=[0])]


class DivergingEpoch(Schema):
    """The point where the client's log diverges. Here ``epoch`` ends at ``end_offset``; the client has other records
    from there on."""

    epoch: Annotated[
        int,
        Field(description="The greatest leader epoch here that is not above last_fetched_epoch.", examples=[0], ge=0),
    ]
    end_offset: Annotated[Offset, Field(description="Offset after the last record of that epoch here.", examples=[3])]


class FetchedPartition(Schema):
    """The result for one partition. If there is an error, its offsets are -1."""

    topic: Annotated[
        str | None, Field(description="null if no topic has the requested topic_id.", examples=["readings"])
    ]
    topic_id: Annotated[
        str | None, Field(description="null if there is no such topic.", examples=["vbX5CGHpTq2OyL3cZhW1Uw"])
    ]
    partition: Partition
    error: Annotated[
        Problem | None, Field(description="The error that kept it from being read; null: none.", examples=[None])
    ]
    log_start_offset: Annotated[Long, Field(description="First readable offset.", examples=[0])]
    high_watermark: Annotated[Long, Field(description="End of what consumers may read.", examples=[3])]
    last_stable_offset: Annotated[
        Long, Field(description="End of what read_committed consumers may read.", examples=[3])
    ]
    log_end_offset: Annotated[Long, Field(description="Offset the next record will get.", examples=[3])]
    next_offset: Annotated[Long, Field(description="Offset for the next fetch.", examples=[3])]
    records: Annotated[list[FetchedRecord], Field(description="The records, in the order of their offsets.")]
    aborted_transactions: Annotated[
        list[AbortedTransaction],
        Field(description="With read_committed: the transactions whose records were left out."),
    ] = Field(default=[])
    diverging_epoch: Annotated[
        DivergingEpoch | None,
        Field(description="Set if last_fetched_epoch shows that the client's log diverges.", examples=[None]),
    ] = None


class MultiFetchResult(Schema):
    """The requested partitions; in a session only partitions with something new."""

    session_id: Annotated[int, Field(description="Session for the next request; 0: none.", examples=[0])]
    throttle_time_ms: Annotated[
        Count,
        Field(
            description="Milliseconds to wait because the client exceeded a quota; earlier requests get 429.",
            examples=[0],
        ),
    ]
    partitions: Annotated[list[FetchedPartition], Field(description="The partitions, in the order they were read.")]
