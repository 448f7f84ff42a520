"""The partitions of a Kafka cluster, read batch by batch as their leaders store them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import NamedTuple, Self

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch_request
from kio.schema.fetch.v12.response import FetchResponse, PartitionData
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from app.cli.log_files.broker_connection import BrokerConnection, BrokerConnectionError
from log_model.names import PartitionName
from rollway.records import HEADER_BYTES, BatchHeader, RecordFormatError, parse_header

FETCH_BYTES = 8 << 20
"""Bytes that are fetched at once. A broker returns a larger batch whole."""

_EARLIEST, _LATEST = -2, -1
_UNCOMMITTED, _COMMITTED = 0, 1
_CONSUMER = BrokerId(-1)


class ClusterLimits(NamedTuple):
    """The limits of a partition as consumers see them."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class AbortedTransaction(NamedTuple):
    """A transaction of which readers of committed records skip the records: its producer and its first offset."""

    producer_id: int
    first_offset: int


class FetchedBatch(NamedTuple):
    """A stored batch, and the aborted transactions that came with the first batch of a fetch."""

    header: BatchHeader
    batch: memoryview
    aborted: Sequence[AbortedTransaction]


class ClusterReader:
    """Asks the leaders of partitions. One partition after the other; each leader has one connection.

    Raises (from every method):
        BrokerConnectionError: a broker cannot be reached, refuses, or answers something else.
    """

    def __init__(self, host: str, port: int) -> None:
        self._first = (host, port)
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._leaders: dict[PartitionName, tuple[str, int]] = {}

    def load(self, topic: str) -> int:
        """Find the leaders of a topic, and return the number of its partitions."""
        request = metadata_request.MetadataRequest(
            topics=(metadata_request.MetadataRequestTopic(topic_id=None, name=TopicName(topic)),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        found = self._connection(self._first).ask(request, MetadataResponse)
        brokers = {broker.node_id: (broker.host, int(broker.port)) for broker in found.brokers}
        (described,) = found.topics
        _refuse(f"topic {topic}", described.error_code)
        for partition in described.partitions:
            name = PartitionName(topic, int(partition.partition_index))
            if partition.leader_id not in brokers:
                raise BrokerConnectionError(f"partition {name} has no leader in the cluster")
            self._leaders[name] = brokers[partition.leader_id]
        return len(described.partitions)

    def limits(self, name: PartitionName) -> ClusterLimits:
        """Return the limits of a partition; ``load`` has found its leader."""
        return ClusterLimits(
            self._offset(name, _EARLIEST, _UNCOMMITTED),
            self._offset(name, _LATEST, _UNCOMMITTED),
            self._offset(name, _LATEST, _COMMITTED),
        )

    def batches(self, name: PartitionName, start: int, end: int) -> Iterator[FetchedBatch]:
        """Yield the batches of ``[start, end)`` that readers of committed records get, aborted ones included.

        The first may begin before ``start``. Memory: one fetch.
        """
        offset = start
        while offset < end:
            fetched = self._fetch(name, offset)
            aborted = [
                AbortedTransaction(int(each.producer_id), int(each.first_offset))
                for each in fetched.aborted_transactions or ()
            ]
            before = offset
            for header, batch in _whole_batches(name, memoryview(fetched.records or b"")):
                yield FetchedBatch(header, batch, aborted)
                aborted = []
                offset = header.next_offset
            if offset <= before:
                raise BrokerConnectionError(f"partition {name} has no batch at offset {offset} in the cluster")

    def _offset(self, name: PartitionName, timestamp: int, isolation: int) -> int:
        partition = offsets_request.ListOffsetsPartition(partition_index=i32(name.partition), timestamp=i64(timestamp))
        request = offsets_request.ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=i8(isolation),
            topics=(offsets_request.ListOffsetsTopic(name=TopicName(name.topic), partitions=(partition,)),),
        )
        answer = self._connection(self._leaders[name]).ask(request, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        _refuse(f"partition {name}", found.error_code)
        return int(found.offset)

    def _fetch(self, name: PartitionName, offset: int) -> PartitionData:
        partition = fetch_request.FetchPartition(
            partition=i32(name.partition), fetch_offset=i64(offset), partition_max_bytes=i32(FETCH_BYTES)
        )
        request = fetch_request.FetchRequest(
            max_wait=i32Timedelta.parse(timedelta(0)),
            min_bytes=i32(0),
            max_bytes=i32(FETCH_BYTES),
            isolation_level=i8(_COMMITTED),
            topics=(fetch_request.FetchTopic(topic=TopicName(name.topic), partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        answer = self._connection(self._leaders[name]).ask(request, FetchResponse)
        _refuse(f"partition {name}", answer.error_code)
        found = answer.responses[0].partitions[0]
        _refuse(f"partition {name}", found.error_code)
        return found

    def _connection(self, address: tuple[str, int]) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(*address)
        return self._connections[address]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as stack:
            for connection in self._connections.values():
                stack.callback(connection.close)


def _whole_batches(name: PartitionName, records: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch; the last one may be cut off, and is left out."""
    position = 0
    while position + HEADER_BYTES <= len(records):
        try:
            header = parse_header(records, position)
        except RecordFormatError as error:
            raise BrokerConnectionError(f"partition {name}: the cluster has no record batch: {error}") from error
        end = position + header.size_bytes
        if end > len(records):
            return
        yield header, records[position:end]
        position = end


def _refuse(subject: str, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        raise BrokerConnectionError(f"{subject}: the cluster answers {code.name.upper()}")
