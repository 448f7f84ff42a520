"""Data directories written by hand from the description of the format, without any code of the engine."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import crc32c

from rollway.records import Codec, Record, columns_from_records, encode_batch

TOPIC_ID = "vbX5CGHpTq2OyL3cZhW1Uw"
NOON_MS = 1_714_564_800_000


def batch(
    base_offset: int, count: int, *, timestamp: int | None = None, codec: Codec = Codec.NONE, **fields: int
) -> bytes:
    """A record batch whose records are one second apart; ``fields`` go to ``encode_batch``."""
    first = NOON_MS + base_offset * 1000 if timestamp is None else timestamp
    records = [
        Record(base_offset + number, first + number * 1000, b"key", b"value %d" % (base_offset + number))
        for number in range(count)
    ]
    return encode_batch(columns_from_records(records), base_offset=base_offset, codec=codec, **fields)


def with_crc(data: bytes) -> bytes:
    """The batch with the CRC that its bytes now need: a lie that only the contents tell."""
    return data[:17] + struct.pack(">I", crc32c.crc32c(data[21:])) + data[21:]


def emptied(data: bytes) -> bytes:
    """What compaction leaves of a producer's last batch: its header, with all offsets and timestamps, and no record."""
    return with_crc(
        data[:8] + struct.pack(">i", 61 - 12) + data[12:27] + struct.pack(">q", -1) + data[35:57] + bytes(4)
    )


def snapshot(*entries: tuple[int, int, int, int, int, int, int, int]) -> bytes:
    """A producer snapshot: (producer, epoch, last sequence, last offset, delta, time, coordinator, txn first)."""
    body = struct.pack(">i", len(entries)) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


@dataclass(slots=True)
class Segment:
    """One segment's batches; its indexes follow from them."""

    batches: Sequence[bytes]
    base_offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.base_offset = struct.unpack_from(">q", self.batches[0])[0]

    def write(self, directory: Path, *, is_last: bool) -> None:
        """Write log and indexes, an entry for every batch but the first, as with an index interval of 0 (spec C6)."""
        stem = f"{self.base_offset:020d}"
        offset_entries, time_entries = [], []
        position, largest, at = 0, -1, self.base_offset
        for number, data in enumerate(self.batches):
            (base,) = struct.unpack_from(">q", data)
            (delta,) = struct.unpack_from(">i", data, 23)
            (timestamp,) = struct.unpack_from(">q", data, 35)
            if timestamp > largest:
                largest, at = timestamp, base + delta
            if number:
                offset_entries.append(struct.pack(">ii", base + delta - self.base_offset, position))
                time_entries.append((largest, at - self.base_offset))
            position += len(data)
        if not is_last:
            time_entries.append((largest, at - self.base_offset))
        rising = sorted(set(time_entries))
        (directory / f"{stem}.log").write_bytes(b"".join(self.batches))
        (directory / f"{stem}.index").write_bytes(b"".join(offset_entries))
        (directory / f"{stem}.timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in rising))


def two_segments() -> list[Segment]:
    """Offsets 0 to 19 in four batches, 20 to 29 in two."""
    return [
        Segment([batch(base, 5) for base in (0, 5, 10, 15)]),
        Segment([batch(base, 5) for base in (20, 25)]),
    ]


class KafkaDirectory:
    """A data directory after a clean stop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.logs.mkdir(parents=True)
        (self.logs / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
        (self.logs / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')

    def add_partition(self, name: str, segments: Sequence[Segment]) -> Path:
        """Write a partition and return its directory."""
        directory = self.logs / name
        directory.mkdir()
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for number, segment in enumerate(segments):
            segment.write(directory, is_last=number == len(segments) - 1)
        return directory

    def checkpoint(self, name: str, *entries: tuple[str, int, int]) -> None:
        lines = "".join(f"{topic} {partition} {offset}\n" for topic, partition, offset in entries)
        (self.logs / name).write_text(f"0\n{len(entries)}\n{lines}")

    def configure(
        self, topic: str, config: dict[str, object], *, partitions: int = 1, topic_id: str = TOPIC_ID
    ) -> None:
        """The service's own note of a topic."""
        directory = self.path / "rollway"
        directory.mkdir(exist_ok=True)
        content = {
            "version": 1,
            "name": topic,
            "topic_id": topic_id,
            "partitions": partitions,
            "ready_partitions": None,
            "config": config,
            "state": "ready",
        }
        (directory / f"{topic_id}.json").write_text(json.dumps(content))

    def stop_uncleanly(self) -> None:
        (self.logs / ".kafka_cleanshutdown").unlink()
