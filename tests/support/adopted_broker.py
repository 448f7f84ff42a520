"""Something that speaks as much of Kafka's protocol as a comparison needs, over the files of an exported directory.

It stands for a broker that has adopted the directory. Messages are read and written by kafka-python, and batches are
found with ``struct``: nothing here is the service's own. Its fetches are awkward on purpose: they are small, end inside
a batch, and report aborted transactions that begin later.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata.metadata import MetadataRequest, MetadataResponse

_FETCH, _LIST_OFFSETS, _METADATA = 1, 2, 3
_UNKNOWN_TOPIC = 3


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    content: bytes
    producer_id: int
    attributes: int


class _Partition:
    """One partition as a broker has it in memory."""

    def __init__(self, directory: Path, log_start_offset: int) -> None:
        self.batches: list[_Batch] = []
        self.high_watermark = 0
        for log in sorted(directory.glob("*.log")):
            self.high_watermark = max(self.high_watermark, int(log.name[:20]))
            content = log.read_bytes()
            while content:
                base_offset, length = struct.unpack_from(">qi", content)
                attributes, delta = struct.unpack_from(">hi", content, 21)
                (producer_id,) = struct.unpack_from(">q", content, 43)
                stored, content = content[: length + 12], content[length + 12 :]
                self.batches.append(_Batch(base_offset, base_offset + delta, stored, producer_id, attributes))
                self.high_watermark = base_offset + delta + 1
        first = int(min(log.name for log in directory.glob("*.log"))[:20])
        self.log_start_offset = max(first, log_start_offset)
        self.last_stable_offset = self.high_watermark
        self.aborted = self._aborted()

    def _aborted(self) -> list[tuple[int, int, int]]:
        """(producer, first offset, offset of the marker) of each aborted transaction."""
        opened: dict[int, int] = {}
        aborted = []
        for batch in self.batches:
            if batch.attributes & 0x20:
                # The record of a marker: seven bytes of lengths and deltas, then the key: version and type.
                (kind,) = struct.unpack_from(">h", batch.content, 61 + 5 + 2)
                first_offset = opened.pop(batch.producer_id)
                if kind == 0:
                    aborted.append((batch.producer_id, first_offset, batch.base_offset))
            elif batch.attributes & 0x10:
                opened.setdefault(batch.producer_id, batch.base_offset)
        return aborted

    def fetch(self, offset: int, bytes_max: int) -> bytes:
        """The batches from the one that holds ``offset`` on: the first whole, the last one cut."""
        content = b""
        for batch in self.batches:
            if batch.last_offset >= offset and (not content or len(content) < bytes_max):
                content += batch.content
        first = next((len(batch.content) for batch in self.batches if batch.last_offset >= offset), 0)
        return content[: max(first, bytes_max)]


class AdoptedBroker:
    """Serves the partitions of ``directory`` on a free port, until the end of a ``with`` block.

    ``change`` gets each partition by the name of its directory before it is served, to plant differences.
    """

    def __init__(
        self, directory: Path, bytes_max: int = 500, change: Callable[[str, Any], None] = lambda _name, _partition: None
    ) -> None:
        starts = (directory / "log-start-offset-checkpoint").read_text().splitlines()[2:]
        log_starts = {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, starts)}
        self.partitions = {
            path.name: _Partition(path, log_starts.get(path.name, 0)) for path in directory.iterdir() if path.is_dir()
        }
        for name, partition in self.partitions.items():
            change(name, partition)
        self._bytes_max = bytes_max
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"kafka://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    request = stream.read(struct.unpack(">i", head)[0])
                    answer = self._answer(request)
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, request: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", request)
        kind = {_FETCH: FetchRequest, _LIST_OFFSETS: ListOffsetsRequest, _METADATA: MetadataRequest}[key]
        asked = kind.decode(request, version=version, header=True)
        answer = {_FETCH: self._fetch, _LIST_OFFSETS: self._offsets, _METADATA: self._metadata}[key](asked)
        # All three versions have the header with tagged fields, of which there are none.
        return struct.pack(">ib", correlation_id, 0) + bytes(answer.encode(version=version))

    def _metadata(self, asked: Any) -> Any:
        (topic,) = asked.topics
        numbers = sorted(
            int(name.rpartition("-")[2]) for name in self.partitions if name.rpartition("-")[0] == topic.name
        )
        kind = MetadataResponse.MetadataResponseTopic
        partitions = [
            kind.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                offline_replicas=[],
            )
            for number in numbers
        ]
        described = kind(
            error_code=0 if numbers else _UNKNOWN_TOPIC,
            name=topic.name,
            topic_id=UUID(int=1),
            is_internal=False,
            partitions=partitions,
        )
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port, rack=None)
        return MetadataResponse(
            throttle_time_ms=0, brokers=[broker], cluster_id="a cluster", controller_id=1, topics=[described]
        )

    def _offsets(self, asked: Any) -> Any:
        (topic,) = asked.topics
        (wanted,) = topic.partitions
        partition = self.partitions[f"{topic.name}-{wanted.partition_index}"]
        end = partition.last_stable_offset if asked.isolation_level else partition.high_watermark
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        found = kind.ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            error_code=0,
            timestamp=-1,
            offset=partition.log_start_offset if wanted.timestamp == -2 else end,
            leader_epoch=0,
        )
        return ListOffsetsResponse(throttle_time_ms=0, topics=[kind(name=topic.name, partitions=[found])])

    def _fetch(self, asked: Any) -> Any:
        assert asked.isolation_level == 1
        (topic,) = asked.topics
        (wanted,) = topic.partitions
        partition = self.partitions[f"{topic.topic}-{wanted.partition}"]
        kind = FetchResponse.FetchableTopicResponse
        aborted = [
            kind.PartitionData.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset, marker in partition.aborted
            if marker >= wanted.fetch_offset
        ]
        found = kind.PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=-1,
            records=partition.fetch(wanted.fetch_offset, self._bytes_max),
        )
        return FetchResponse(
            throttle_time_ms=0, error_code=0, session_id=0, responses=[kind(topic=topic.topic, partitions=[found])]
        )
