"""The body of a fetch of many partitions, read by prebuilt coders; ``schemas.multi_fetch`` shows the same document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from app.problems.problem import Fault, invalid
from app.record_json.strict_json import decode, refuse_duplicates
from app.record_json.translate import Encoding
from schemas.base import LONG_MAX
from schemas.multi_fetch import (
    INT_MAX,
    MAX_BYTES_DEFAULT,
    PARTITION_MAX_BYTES_DEFAULT,
    PARTITIONS_MAX,
    WAIT_MS_MAX,
)
from schemas.names import PARTITION_MAX, TOPIC_ID_PATTERN, TOPIC_NAME_PATTERN

_TopicName = Annotated[str, Meta(pattern=TOPIC_NAME_PATTERN)]
_TopicId = Annotated[str, Meta(pattern=TOPIC_ID_PATTERN)]
_Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
_Offset = Annotated[int, Meta(ge=0, le=LONG_MAX)]
_Epoch = Annotated[int, Meta(ge=-1, le=INT_MAX)]
_Bytes = Annotated[int, Meta(ge=0, le=INT_MAX)]

PartitionKey = tuple[str, int]
"""The topic's id, or its name when none was given, and the partition's number."""


class FetchPartition(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One partition to fetch, as a request or a session holds it; see ``schemas.multi_fetch.FetchPartition``."""

    partition: _Partition
    fetch_offset: _Offset
    topic: _TopicName | None = None
    topic_id: _TopicId | None = None
    max_bytes: _Bytes = PARTITION_MAX_BYTES_DEFAULT
    current_leader_epoch: _Epoch | None = None
    last_fetched_epoch: _Epoch | None = None
    log_start_offset: Annotated[int, Meta(ge=-1, le=LONG_MAX)] | None = None

    @property
    def key(self) -> PartitionKey:
        return (self.topic_id or self.topic or "", self.partition)


class ForgottenPartition(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A partition that leaves its session."""

    partition: _Partition
    topic: _TopicName | None = None
    topic_id: _TopicId | None = None

    @property
    def key(self) -> PartitionKey:
        return (self.topic_id or self.topic or "", self.partition)


class MultiFetchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole request; see ``schemas.multi_fetch.MultiFetch``."""

    session_id: Annotated[int, Meta(ge=0, le=INT_MAX)] = 0
    session_epoch: _Epoch = -1
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    max_wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    min_bytes: _Bytes = 1
    max_bytes: _Bytes = MAX_BYTES_DEFAULT
    encoding: Encoding = "utf8"
    partitions: Annotated[tuple[FetchPartition, ...], Meta(max_length=PARTITIONS_MAX)] = ()
    forgotten: Annotated[tuple[ForgottenPartition, ...], Meta(max_length=PARTITIONS_MAX)] = ()

    @property
    def uses_topic_ids(self) -> bool | None:
        """Whether its partitions are named by topic id; ``None`` without partitions."""
        named: Sequence[FetchPartition | ForgottenPartition] = self.partitions or self.forgotten
        return named[0].topic_id is not None if named else None


_DECODER = msgspec.json.Decoder(MultiFetchRequest)


def parse_multi_fetch(body: bytes | bytearray) -> MultiFetchRequest:
    """Return the request in ``body``.

    Raises:
        Problem: 400 for a body that is no JSON; 422 with pointers for one that breaks the model.
    """
    request: MultiFetchRequest = decode(_DECODER, body, takes_whole_floats=True)
    refuse_duplicates(body)
    faults = [*_faults("partitions", request.partitions), *_faults("forgotten", request.forgotten)]
    named: list[FetchPartition | ForgottenPartition] = [*request.partitions, *request.forgotten]
    if not faults and len({one.topic_id is not None for one in named}) > 1:
        faults = [Fault("/partitions", "invalid_value", "name a topic_id for every partition or for none")]
    if faults:
        raise invalid(faults)
    return request


def _faults(name: str, named: Sequence[FetchPartition | ForgottenPartition]) -> Iterator[Fault]:
    seen: set[PartitionKey] = set()
    for place, one in enumerate(named):
        if one.topic is None and one.topic_id is None:
            yield Fault(f"/{name}/{place}", "missing", "give topic or topic_id")
        elif one.key in seen:
            yield Fault(f"/{name}/{place}", "duplicate_partition", "this partition occurs twice")
        seen.add(one.key)
