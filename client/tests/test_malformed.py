"""Whatever the bytes: records or a ``RecordFormatError``, and never much memory (case V-22)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.tests.sample_records import batch_bytes, random_records, record_bytes, varint
from client.tests.twins import plain_python
from rollway.records import (
    BrokenRecordError,
    Codec,
    DecompressedSizeError,
    Record,
    RecordBatch,
    RecordFormatError,
    UnknownCodecError,
    columns_from_records,
    decode_batch,
    encode_batch,
    records_from_columns,
    split_batches,
)
from rollway.records.compiled import PURE_PYTHON_VARIABLE
from rollway.records.compression import compress
from rollway.records.sections.reader import find_facts

pytestmark = pytest.mark.usefixtures("twin")

SOUND = record_bytes(value=varint(3) + b"abc", headers=varint(1) + varint(1) + b"h" + varint(-1))

BROKEN: dict[str, bytes] = {
    "negative length": record_bytes(length=varint(-7)),
    "length zero": varint(0),
    "length shorter than the least": varint(5) + bytes(5),
    "length longer than the section": record_bytes(length=varint(500)),
    "length of 6 bytes": record_bytes(length=b"\x8c\x80\x80\x80\x80\x00"),
    "length out of range": record_bytes(length=b"\x8c\x80\x80\x80\x10"),
    "length cut off": b"\x80",
    "length one too long": record_bytes(length=varint(7)),
    "length one too short": record_bytes(value=varint(3) + b"abc", length=varint(8)),
    "trailing byte": record_bytes(tail=b"\x00"),
    "timestamp delta of 11 bytes": record_bytes(timestamp_delta=b"\x80" * 10 + b"\x00"),
    "timestamp delta out of range": record_bytes(timestamp_delta=b"\xff" * 9 + b"\x02"),
    "offset delta of 6 bytes": record_bytes(offset_delta=b"\x80" * 5 + b"\x00"),
    "offset delta out of range": record_bytes(offset_delta=b"\xff" * 4 + b"\x10"),
    "key length of 6 bytes": record_bytes(key=b"\x80" * 5 + b"\x00"),
    "key length below -1": record_bytes(key=varint(-2)),
    "key length least": record_bytes(key=varint(-(2**31))),
    "key longer than the record": record_bytes(key=varint(4) + b"abc"),
    "key of 2 GiB": record_bytes(key=varint(2**31 - 1)),
    "value length below -1": record_bytes(value=varint(-2)),
    "value longer than the record": record_bytes(value=varint(100) + b"abc"),
    "value of 2 GiB": record_bytes(value=varint(2**31 - 1)),
    "no header count": record_bytes(headers=b""),
    "header count beyond the record": record_bytes(value=varint(0), headers=b"", length=varint(6)),
    "negative header count": record_bytes(headers=varint(-1)),
    "more headers than bytes": record_bytes(headers=varint(2) + varint(0) + varint(-1) + varint(0)),
    "2 billion headers": record_bytes(headers=varint(2**31 - 1)),
    "fewer headers than bytes": record_bytes(headers=varint(0) + varint(0) + varint(-1)),
    "null header name": record_bytes(headers=varint(1) + varint(-1) + varint(0)),
    "null header name without a value": record_bytes(headers=varint(2) + varint(-1) + (varint(1) + b"h" + varint(-1))),
    "header name length least": record_bytes(headers=varint(1) + varint(-(2**31)) + varint(0)),
    "header name longer than the record": record_bytes(headers=varint(1) + varint(9) + b"abc"),
    "header name of 6 bytes length": record_bytes(headers=varint(1) + b"\x80" * 5 + b"\x00\x00"),
    "header value length below -1": record_bytes(headers=varint(1) + varint(0) + varint(-2)),
    "header value longer than the record": record_bytes(headers=varint(1) + varint(0) + varint(9) + b"abc"),
    "header value missing": record_bytes(headers=varint(1) + varint(1) + b"h"),
    "header value of 6 bytes length": record_bytes(headers=varint(1) + varint(0) + b"\x80" * 5 + b"\x00"),
}


ODD_NAMES = {
    "no UTF-8": [b"\xc3\x28"],
    "a surrogate": [b"\xed\xa0\x80"],
    "a split character": [b"\xc3", b"\xa9"],
    "all bytes": [bytes(range(256))],
    "among others": [b"plain", b"\xff", "\u00e9".encode()],
}
"""Names that a broker stores, and so everything here reads, though they are no text."""


def decode(section: bytes, record_count: int) -> list[Record]:
    return records_from_columns(decode_batch(RecordBatch(batch_bytes(section, record_count))))


@pytest.mark.parametrize("before", [0, 1, 40, 200])
@pytest.mark.parametrize("name", BROKEN)
def test_v_22_broken_records_are_named(name: str, before: int) -> None:
    with pytest.raises(BrokenRecordError) as caught:
        decode(SOUND * before + BROKEN[name], before + 1)
    assert caught.value.kafka_code == 87
    if before or len(BROKEN[name]) >= 7:
        assert [place for place, _ in caught.value.record_errors] == [before]


@pytest.mark.parametrize("before", [0, 1, 40, 200])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_are_no_text_are_read(name: str, before: int) -> None:
    """And written again, to the byte; with lone surrogates for what is not UTF-8 where a name is text."""
    names = ODD_NAMES[name]
    odd = record_bytes(headers=varint(len(names)) + b"".join(varint(len(one)) + one + varint(-1) for one in names))
    section = SOUND * before + odd + SOUND
    batch = RecordBatch(batch_bytes(section, before + 2))
    columns = decode_batch(batch)
    assert columns.headers is not None
    assert columns.headers.names.to_list() == [b"h"] * before + names + [b"h"]
    records = records_from_columns(columns)
    shown = [one.decode("utf-8", "surrogateescape") for one in names]
    assert records[before].headers == tuple((one, None) for one in shown)
    again = encode_batch(columns_from_records(records))
    assert decode_batch(RecordBatch(again)).headers.names == columns.headers.names
    assert encode_batch(columns) == again


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_are_no_text_are_of_no_interest_to_the_log(name: str) -> None:
    """The quick check of produced batches accepts them, and both writers write the same bytes."""
    headers = tuple((one.decode("utf-8", "surrogateescape"), b"v") for one in ODD_NAMES[name])
    for count in (1, 20, 200):
        records = [Record(place, 1000 + place, b"k", b"v", headers) for place in range(count)]
        columns = columns_from_records(records)
        section = bytes(encode_batch(columns)[61:])
        assert find_facts(section, count) == (0, count - 1, False)
        with plain_python():
            assert bytes(encode_batch(columns)[61:]) == section


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in ("length cut off", "length one too long")])
def test_v_22_a_broken_record_among_sound_ones(name: str) -> None:
    # What follows a wrong length is anything, but the first broken record is known.
    with pytest.raises(BrokenRecordError) as caught:
        decode(SOUND * 100 + BROKEN[name] + SOUND * 100, 201)
    assert [place for place, _ in caught.value.record_errors] == [100]


@pytest.mark.parametrize("claimed", [-(2**31), -1, 0, 1, 149, 151, 152, 1000, 2**31 - 1])
def test_v_22_wrong_counts(claimed: int) -> None:
    with pytest.raises(BrokenRecordError):
        decode(SOUND * 150, claimed)


@pytest.mark.parametrize("tail", [b"\x00", b"\x80", bytes(7), SOUND[:-1]])
def test_v_22_leftover_bytes(tail: bytes) -> None:
    with pytest.raises(BrokenRecordError):
        decode(SOUND * 150 + tail, 150)
    with pytest.raises(BrokenRecordError):
        decode(SOUND * 149 + SOUND[:-1], 150)
    with pytest.raises(BrokenRecordError):
        decode(tail, 0)


def test_unknown_codecs_are_refused() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(UnknownCodecError):
            decode_batch(RecordBatch(batch_bytes(SOUND, 1, attributes=codec)))


def hostile_batches() -> Iterator[bytes]:
    """Small batches that claim to be large."""
    yield batch_bytes(SOUND * 5, 2**31 - 1)
    yield batch_bytes(record_bytes(headers=varint(2**31 - 1)), 1)
    yield batch_bytes(record_bytes(key=varint(2**31 - 1)), 1)
    yield batch_bytes(b"\xff\xff\xff\xff\x0f" + bytes(40), 1, attributes=Codec.SNAPPY)
    for codec in Codec:
        yield batch_bytes(bytes(compress(codec, SOUND)), 2**31 - 1, attributes=codec)
        yield batch_bytes(bytes(compress(codec, record_bytes(headers=varint(2**31 - 1)))), 1, attributes=codec)


def test_v_22_memory_is_not_taken_for_claims() -> None:
    for batch in hostile_batches():
        parsed = RecordBatch(batch)
        tracemalloc.start()
        try:
            with pytest.raises(RecordFormatError):
                decode_batch(parsed)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 500_000


def test_records_and_headers_too_many_for_their_columns_are_refused() -> None:
    records = record_bytes() * 50_000
    headers = record_bytes(headers=varint(50_000) + bytes(100_000))
    for section, count in ((records, 50_000), (headers, 1)):
        compressed = bytes(compress(Codec.ZSTD, section))
        batch = RecordBatch(batch_bytes(compressed, count, attributes=Codec.ZSTD))
        with pytest.raises(DecompressedSizeError, match="more records or headers"):
            decode_batch(batch, decompressed_bytes_max=400_000)
        assert len(decode_batch(batch)) == count
        # Uncompressed, they cost their sender what they cost us.
        plain = RecordBatch(batch_bytes(section, count))
        assert len(decode_batch(plain, decompressed_bytes_max=1)) == count


MEMORY_PROBE = """
import resource, sys
from client.tests.test_compression import BOMBS
from client.tests.test_malformed import decode_batch, RecordBatch, batch_bytes, Codec, compress, record_bytes, varint
from rollway.records import DecompressedSizeError

bombs = [(codec, build(), 1) for codec, build in (bomb for name, bomb in BOMBS.items())]
bombs.append((Codec.ZSTD, compress(Codec.ZSTD, record_bytes() * 2**20), 2**20))
bombs.append((Codec.ZSTD, compress(Codec.ZSTD, record_bytes(headers=varint(2**22) + bytes(2**23))), 1))
batches = [RecordBatch(batch_bytes(bytes(body), count, attributes=codec)) for codec, body, count in bombs]
for batch in batches[::-1]:
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    peak = lambda: int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
    before = peak()
    try:
        decode_batch(batch, decompressed_bytes_max=2**23)
    except DecompressedSizeError:
        print((peak() - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
def test_v_22_bombs_take_little_memory(twin: str) -> None:
    environment = {**os.environ, PURE_PYTHON_VARIABLE: "1" if twin == "plain" else "0"}
    probe = subprocess.run(
        [sys.executable, "-c", MEMORY_PROBE], env=environment, capture_output=True, text=True, check=True
    )
    growth = [int(line) for line in probe.stdout.split()]
    assert len(growth) == 9
    assert max(growth) < 5 * 2**23


def outcome(batch: bytes) -> list[Record] | str:
    try:
        return records_from_columns(decode_batch(RecordBatch(batch), decompressed_bytes_max=2**20))
    except RecordFormatError as error:
        return type(error).__name__


@pytest.mark.parametrize("codec", Codec)
def test_random_damage_to_large_batches(codec: Codec) -> None:
    random_ = random.Random(codec)
    for seed in range(12):
        batch = encode_batch(columns_from_records(random_records(seed, random_.choice([120, 700]))), codec=codec)
        for _ in range(25):
            damaged = bytearray(batch)
            for _ in range(random_.choice([1, 1, 3, 20])):
                place = random_.randrange(21, len(batch))
                damaged[place] = random_.choice([0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)])
            outcome(bytes(damaged))


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4), st.integers(0, 500))
def test_damaged_buffers_split_or_are_refused(damage: list[tuple[int, int]], size: int) -> None:
    buffer = bytearray(encode_batch(columns_from_records(random_records(1, 3))) * 2)
    for place, changed in damage:
        buffer[place % len(buffer)] = changed
    try:
        batches = split_batches(buffer[:size])
    except RecordFormatError:
        return
    assert sum(len(batch.buffer) for batch in batches) == min(size, len(buffer))
