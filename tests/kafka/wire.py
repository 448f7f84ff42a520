"""Kafka's protocol on one blocking connection, with messages of kafka-python: record batches go in and out as bytes."""

from __future__ import annotations

import base64
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from kafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Times of ``list_offsets`` that are none."""

ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
TRANSACTION_TIMEOUT_MS = 600_000
_RECEIVE_BYTES = 1 << 20
_TRANSACTION_COORDINATOR = 1
_NO_LEADER_YET = frozenset({3, 5, 6, 100})
_COORDINATOR_NOT_READY = frozenset({14, 15, 16, 51})


class Produced(NamedTuple):
    """What a produce request was answered for its partition. ``code`` is 0 for a success."""

    code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str


class Fetched(NamedTuple):
    """What a fetch request was answered for its partition."""

    code: int
    records: bytes
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction."""


class FoundOffset(NamedTuple):
    """What a look-up by time was answered; -1 and -1 if there is none."""

    code: int
    offset: int
    timestamp: int


class Wire:
    """A connection to a broker. One request is under way at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self._protocol = KafkaProtocol(client_id="rollway-tests")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: ApiMessage) -> Any:
        """Send a request, of the version that it was made with; return the response."""
        self._protocol.send_request(request)
        self._socket.sendall(self._protocol.send_bytes())
        while True:
            received = self._socket.recv(_RECEIVE_BYTES)
            assert received, f"the broker closed the connection instead of an answer to {request.name}"
            for _, response in self._protocol.receive_bytes(received):
                return response

    # The cluster and its topics

    def brokers(self) -> set[int]:
        """Return the node ids of the brokers that the cluster knows."""
        return {each.node_id for each in self.ask(MetadataRequest[12](topics=[])).brokers}

    def create_topic(
        self, name: str, partition_count: int, settings: Mapping[str, object], nodes: Sequence[int] = (1,)
    ) -> str:
        """Create a topic with its replicas on ``nodes``, and wait until it has leaders; return its id."""
        topic = CreateTopicsRequest.CreatableTopic
        assignments = [
            topic.CreatableReplicaAssignment(partition_index=number, broker_ids=list(nodes))
            for number in range(partition_count)
        ]
        configs = [topic.CreatableTopicConfig(name=key, value=str(value)) for key, value in settings.items()]
        wanted = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=configs)
        (made,) = self.ask(CreateTopicsRequest[7](topics=[wanted], timeout_ms=30_000, validate_only=False)).topics
        assert made.error_code == 0, f"{name}: {made.error_code} {made.error_message}"
        return self.wait_for_leaders(name, partition_count)

    def wait_for_leaders(self, name: str, partition_count: int) -> str:
        """Wait until each partition of a topic has a leader that answers; return the topic's id."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            topic_id, leaders = self.describe_topic(name)
            if len(leaders) == partition_count and all(
                self.list_offsets(name, number, EARLIEST).code == 0 for number in leaders
            ):
                return topic_id
            assert time.monotonic() < deadline, f"{name} has leaders for {sorted(leaders)} of {partition_count}"
            time.sleep(POLL_SECONDS)

    def describe_topic(self, name: str) -> tuple[str, dict[int, list[int]]]:
        """Return the id of a topic, as ``partition.metadata`` has it, and the replicas in sync by partition."""
        request = MetadataRequest[12](
            topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        (topic,) = self.ask(request).topics
        if topic.error_code in _NO_LEADER_YET:
            return "", {}
        assert topic.error_code == 0, f"{name}: error {topic.error_code}"
        in_sync = {each.partition_index: list(each.isr_nodes) for each in topic.partitions if each.error_code == 0}
        return as_base64(topic.topic_id), in_sync

    # Records

    def produce(self, topic: str, partition: int, records: bytes, *, transactional_id: str | None = None) -> Produced:
        """Send bytes as the records of one partition, with ``acks=all``."""
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest[8](
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=records)])],
        )
        (answer,) = self.ask(request).responses[0].partition_responses
        errors = [each.batch_index_error_message for each in answer.record_errors or ()]
        message = "; ".join(filter(None, [answer.error_message, *errors]))
        return Produced(
            answer.error_code, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset, message
        )

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 24, *, committed: bool = False
    ) -> Fetched:
        """Read from an offset on, without waiting for records."""
        wanted = FetchRequest.FetchTopic
        one = wanted.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest[11](
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 30,
            isolation_level=int(committed),
            topics=[wanted(topic=topic, partitions=[one])],
            forgotten_topics_data=[],
        )
        (answer,) = self.ask(request).responses[0].partitions
        return Fetched(
            answer.error_code,
            bytes(answer.records or b""),
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()],
        )

    def list_offsets(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> FoundOffset:
        """Look up an offset by time, or by one of the constants of this module."""
        wanted = ListOffsetsRequest.ListOffsetsTopic
        one = wanted.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest[7](
            replica_id=-1, isolation_level=int(committed), topics=[wanted(name=topic, partitions=[one])]
        )
        (answer,) = self.ask(request).topics[0].partitions
        return FoundOffset(answer.error_code, answer.offset, answer.timestamp)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Raise the log start offset of a partition."""
        wanted = DeleteRecordsRequest.DeleteRecordsTopic
        one = wanted.DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest[2](topics=[wanted(name=topic, partitions=[one])], timeout_ms=30_000)
        (answer,) = self.ask(request).topics[0].partitions
        assert answer.error_code == 0, f"delete-records of {topic}-{partition}: error {answer.error_code}"

    # Producers and transactions

    def init_producer(self, transactional_id: str | None = None) -> tuple[int, int]:
        """Return a producer id and its epoch. The first transactional id of a cluster makes the coordinator's topic."""
        if transactional_id is not None:
            request = FindCoordinatorRequest[3](key=transactional_id, key_type=_TRANSACTION_COORDINATOR)
            self._ask_coordinator(request, lambda response: response.error_code)
        request = InitProducerIdRequest[3](
            transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = self._ask_coordinator(request, lambda response: response.error_code)
        return answer.producer_id, answer.producer_epoch

    def enlist(self, transactional_id: str, producer: tuple[int, int], topic: str, partitions: Sequence[int]) -> None:
        """Add partitions to the transaction of a producer."""
        request = AddPartitionsToTxnRequest[3](
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
            ],
        )
        self._ask_coordinator(
            request,
            lambda response: next(
                (
                    each.partition_error_code
                    for each in response.results_by_topic_v3_and_below[0].results_by_partition
                    if each.partition_error_code
                ),
                0,
            ),
        )

    def end_transaction(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        """Commit or abort the transaction of a producer."""
        request = EndTxnRequest[3](
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        self._ask_coordinator(request, lambda response: response.error_code)

    def _ask_coordinator(self, request: ApiMessage, code_of: Any) -> Any:
        """Ask until the coordinator is ready and has ended the transaction before; return its answer."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            response = self.ask(request)
            code = code_of(response)
            if code == 0:
                return response
            assert code in _COORDINATOR_NOT_READY, f"{request.name}: error {code}"
            assert time.monotonic() < deadline, f"{request.name}: the coordinator answers {code} for too long"
            time.sleep(POLL_SECONDS)


def as_base64(topic_id: uuid.UUID) -> str:
    """Return a topic's id as Kafka prints it and as ``partition.metadata`` has it."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
