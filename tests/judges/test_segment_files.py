"""Segment files judged from outside: aiokafka and kafka-python read our logs, we store theirs, struct reads the rest.

Nothing here asks the engine what it wrote: the judges get the bytes of the files alone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import cramjam
import crc32c
import kafka.codec
import kafka.record.default_records as kafka_records
import kafka.record.memory_records as kafka_memory
import pytest

from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.cases.logs import START_MS, TOPIC, CaseLog, batch_of

CODECS = pytest.mark.parametrize("codec", list(Codec))
CLEAN = pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
BUILDERS = {
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
}
READERS = {"aiokafka": aiokafka_memory.MemoryRecords, "kafka-python": kafka_memory.MemoryRecords}


@pytest.fixture(autouse=True)
def kafka_python_with_snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python writes and reads the xerial frames itself; only their blocks are left to a package."""

    class Snappy:
        compress = staticmethod(lambda block: bytes(cramjam.snappy.compress_raw(block)))
        decompress = staticmethod(lambda block: bytes(cramjam.snappy.decompress_raw(block)))

    monkeypatch.setattr(kafka.codec, "snappy", Snappy)


class Row(NamedTuple):
    """A record as a judge sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Place(NamedTuple):
    """A batch as struct sees it: where it lies and what its header says."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int


def places(content: bytes) -> Iterator[Place]:
    """Walk a log file by batch lengths."""
    position = 0
    while position < len(content):
        base_offset, length = struct.unpack_from(">qi", content, position)
        (delta,) = struct.unpack_from(">i", content, position + 23)
        (max_timestamp,) = struct.unpack_from(">q", content, position + 35)
        yield Place(position, base_offset, base_offset + delta, max_timestamp)
        position += 12 + length
    assert position == len(content)


def read_by(judge: str, content: bytes) -> list[Row]:
    """The records of a log file as another implementation reads them, CRCs checked."""
    rows = []
    walk = READERS[judge](content)
    while walk.has_next():
        batch = walk.next_batch()
        assert batch.validate_crc()
        rows += [
            Row(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
        ]
    return rows


def random_rows(source: random.Random, count: int) -> list[Row]:
    """Records of all kinds: keys and values that are null, empty or long; headers; timestamps out of order."""

    def data(longest: int) -> bytes | None:
        return None if source.random() < 0.15 else source.randbytes(source.choice((0, 1, 9, source.randrange(longest))))

    names = ["", "trace", "größe", "x" * 70]
    return [
        Row(
            place,
            START_MS + place * 3 - source.randrange(50),
            data(40),
            data(400),
            tuple((source.choice(names), data(30)) for _ in range(source.choice((0, 0, 1, 3)))),
        )
        for place in range(count)
    ]


def built_by(builder: Any, rows: list[Row], codec: Codec) -> bytes:
    """A batch as another implementation's producer makes it."""
    made = builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**20,
    )
    for place, row in enumerate(rows):
        assert made.append(place, row.timestamp, row.key, row.value, list(row.headers)) is not None
    return bytes(made.build())


def built_by_us(rows: list[Row], codec: Codec) -> bytes:
    records = [Record(place, row.timestamp, row.key, row.value, row.headers) for place, row in enumerate(rows)]
    return encode_batch(columns_from_records(records), codec=codec)


def stop(log: CaseLog, *, clean: bool) -> None:
    if clean:
        log.stop()
    else:
        log.kill()


def filled(path: Path, codecs: list[Codec], seed: int) -> tuple[CaseLog, list[Row]]:
    """A log of several segments with these codecs in turn, and all its records."""
    log = CaseLog(path, {"segment.bytes": 12_000, "index.interval.bytes": 1000})
    source = random.Random(seed)
    written: list[Row] = []
    for number in range(40):
        rows = random_rows(source, source.choice((1, 2, 7, 30)))
        log.send(built_by_us(rows, codecs[number % len(codecs)]))
        written += [row._replace(offset=len(written) + place) for place, row in enumerate(rows)]
    assert len(log.base_offsets) > 2
    return log, written


@CODECS
@CLEAN
@pytest.mark.parametrize("judge", READERS)
def test_both_read_our_log_files(tmp_path: Path, judge: str, codec: Codec, clean: bool) -> None:
    """Keys, values, headers, nulls, tombstones, timestamps and offsets, over all segments; nothing else is in there."""
    log, written = filled(tmp_path / "data", [codec], int(codec))
    stop(log, clean=clean)
    assert [row for content in log.log_files().values() for row in read_by(judge, content)] == written


@pytest.mark.parametrize("judge", READERS)
def test_both_read_mixed_codecs(tmp_path: Path, judge: str) -> None:
    log, written = filled(tmp_path / "data", list(Codec), 99)
    log.stop()
    assert [row for content in log.log_files().values() for row in read_by(judge, content)] == written


@CODECS
@pytest.mark.parametrize("name", BUILDERS)
def test_their_batches_come_back_as_they_were(tmp_path: Path, name: str, codec: Codec) -> None:
    """Appended raw, all but base offset and leader epoch is stored as sent, also the compressed bytes; and every
    reader, ours included, finds what was put in."""
    log = CaseLog(tmp_path / "data", {"segment.bytes": 12_000})
    source = random.Random(f"{name} {codec}")
    sent: list[bytes] = []
    written: list[Row] = []
    for _ in range(25):
        rows = random_rows(source, source.choice((1, 5, 40)))
        sent.append(built_by(BUILDERS[name], rows, codec))
        assert log.send(sent[-1]).base_offset == len(written)
        written += [row._replace(offset=len(written) + place) for place, row in enumerate(rows)]
    assert [Row(one.offset, one.timestamp, one.key, one.value, one.headers) for one in log.records()] == written
    log.stop()
    files = list(log.log_files().values())
    assert len(files) > 1
    stored = [content[place.position :] for content in files for place in places(content)]
    for body, found in zip(sent, stored, strict=True):
        assert found[8:12] == body[8:12]
        assert found[16 : len(body)] == body[16:]
        assert found[12:16] == struct.pack(">i", 0)
    for judge in READERS:
        assert [row for content in files for row in read_by(judge, content)] == written


def test_log_append_time_as_others_see_it(tmp_path: Path) -> None:
    """The timestamp type is 1 and every record reports the broker's time."""
    log = CaseLog(tmp_path / "data", {"message.timestamp.type": "LogAppendTime"})
    for codec in Codec:
        log.clock.advance(1000)
        log.send(built_by_us(random_rows(random.Random(1), 5), codec))
    log.stop()
    content = log.file().read_bytes()
    for reader in READERS.values():
        walk = reader(content)
        for number in range(len(Codec)):
            batch = walk.next_batch()
            assert batch.validate_crc()
            assert batch.timestamp_type == 1
            # aiokafka's batches can be walked once.
            records = [(record.timestamp, record.timestamp_type) for record in batch]
            assert records == [(START_MS + 1000 * (number + 1), 1)] * 5
        assert not walk.has_next()


def test_producers_as_others_see_them(tmp_path: Path) -> None:
    """Producer id, epoch and sequence are stored as sent."""
    log = CaseLog(tmp_path / "data")
    for sequence in (0, 3, 6):
        log.send(batch_of(3, producer_id=2**40, producer_epoch=7, base_sequence=sequence))
    log.stop()
    walk = kafka_memory.MemoryRecords(log.file().read_bytes())
    for sequence in (0, 3, 6):
        batch = walk.next_batch()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 7, sequence)
        assert (batch.base_offset, batch.last_offset) == (sequence, sequence + 2)
        assert not batch.is_transactional


@CODECS
def test_index_files(tmp_path: Path, codec: Codec) -> None:
    """What DumpLogSegments checks: each offset entry is the last offset of the batch at its position; each time entry
    is the largest timestamp so far, at the last offset of the earliest batch that has it; both strictly rising; whole
    entries, no tail; and as many as the interval asks for."""
    log, written = filled(tmp_path / "data", [codec], 7)
    log.stop()
    entry_count = 0
    for name, content in log.log_files().items():
        base_offset = int(name.removesuffix(".log"))
        batches = list(places(content))
        assert batches[0].base_offset == base_offset
        by_position = {place.position: place for place in batches}
        entries = list(struct.iter_unpack(">ii", log.file(base_offset, ".index").read_bytes()))
        assert entries == sorted(set(entries))
        for relative, position in entries:
            assert by_position[position].last_offset == base_offset + relative
        due = _positions_due(batches, len(content), interval_bytes=1000)
        assert [position for _, position in entries] == due
        entry_count += len(entries)

        newest = [
            (place.max_timestamp, place.last_offset - base_offset)
            for number, place in enumerate(batches)
            if all(place.max_timestamp > earlier.max_timestamp for earlier in batches[:number])
        ]
        times = list(struct.iter_unpack(">qi", log.file(base_offset, ".timeindex").read_bytes()))
        assert [timestamp for timestamp, _ in times] == sorted({timestamp for timestamp, _ in times})
        assert set(times) <= set(newest)
        assert times[-1] == newest[-1]
        rows = read_by("aiokafka", content)
        assert max(row.timestamp for row in rows) == times[-1][0]
    assert entry_count > 5
    assert written


def _positions_due(batches: list[Place], size_bytes: int, *, interval_bytes: int) -> list[int]:
    """Where spec C6 wants entries, written once more from its text."""
    due = []
    since = 0
    ends = [*(place.position for place in batches[1:]), size_bytes]
    for place, end in zip(batches, ends, strict=True):
        if since > interval_bytes:
            due.append(place.position)
            since = 0
        since += end - place.position
    return due


def test_index_files_while_active(tmp_path: Path) -> None:
    """A killed process leaves entries, then zeros up to the full length of whole entries."""
    log = CaseLog(tmp_path / "data", {"index.interval.bytes": 0, "segment.index.bytes": 1000})
    for number in range(5):
        log.send(batch_of(timestamps=[START_MS + number]))
    log.kill()
    offsets, times = log.file(0, ".index").read_bytes(), log.file(0, ".timeindex").read_bytes()
    assert (len(offsets), len(times)) == (1000, 996)
    size_bytes = len(batch_of())
    assert offsets == b"".join(struct.pack(">ii", n, n * size_bytes) for n in range(1, 5)).ljust(1000, b"\0")
    assert times == b"".join(struct.pack(">qi", START_MS + n, n) for n in range(1, 5)).ljust(996, b"\0")


def test_the_other_files(tmp_path: Path) -> None:
    """On-disk: names and contents of everything else, byte by byte where the bytes are fixed."""
    log = CaseLog(tmp_path / "data", {"segment.bytes": 300})
    for sequence in range(6):
        log.send(batch_of(producer_id=9, producer_epoch=2, base_sequence=sequence))
    bases = log.base_offsets
    assert len(bases) > 1
    topic_id = log.partition.topic_id
    log.stop()
    assert (log.directory / "partition.metadata").read_bytes().rstrip(
        b"\n"
    ) == f"version: 0\ntopic_id: {topic_id}".encode()
    assert len(topic_id) == 22
    assert (log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    logs = log.path / "logs"
    assert (logs / "recovery-point-offset-checkpoint").read_bytes() == f"0\n1\n{TOPIC} 0 6\n".encode()
    expected = {f"{base:020d}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex")}
    expected |= {f"{base:020d}.snapshot" for base in [*bases[1:], 6]}
    expected |= {"partition.metadata", "leader-epoch-checkpoint"}
    assert set(log.file_names()) == expected
    for end_offset in [*bases[1:], 6]:
        content = log.file(end_offset, ".snapshot").read_bytes()
        version, checksum, count = struct.unpack_from(">hIi", content)
        assert (version, checksum, count) == (1, crc32c.crc32c(content[6:]), 1)
        entry = struct.unpack_from(">qhiqiqiq", content, 10)
        assert entry == (9, 2, end_offset - 1, end_offset - 1, 0, START_MS, -1, -1)
        assert len(content) == 10 + 46
    properties = dict(line.split("=", 1) for line in (logs / "meta.properties").read_text().splitlines() if "=" in line)
    assert properties["version"] == "1"
    assert properties["node.id"] == "1"
    assert len(properties["cluster.id"]) == len(properties["directory.id"]) == 22
    directories = {path.name for path in logs.iterdir() if path.is_dir()}
    assert directories == {f"{TOPIC}-0"}


def test_a_log_of_theirs_written_by_hand_is_read_by_us(tmp_path: Path) -> None:
    """Files put there as a broker leaves them, made by other implementations' builders: we open and read them."""
    log = CaseLog(tmp_path / "data")
    log.stop()
    source = random.Random(5)
    written: list[Row] = []
    content = b""
    for number, codec in enumerate([*Codec] * 3):
        rows = random_rows(source, source.choice((1, 9)))
        body = bytearray(built_by(list(BUILDERS.values())[number % 3], rows, codec))
        struct.pack_into(">q", body, 0, len(written))
        struct.pack_into(">i", body, 12, 0)
        content += body
        written += [row._replace(offset=len(written) + place) for place, row in enumerate(rows)]
    log.file().write_bytes(content)
    (log.path / "logs" / ".kafka_cleanshutdown").unlink()
    log.start()
    assert log.recovery.truncated_bytes == 0
    assert [Row(one.offset, one.timestamp, one.key, one.value, one.headers) for one in log.records()] == written
    log.kill()
