"""``python -m bench.bench_records``: how fast record batches are encoded and decoded, beside aiokafka's C codec.

All contestants take turns in every round, and the median round counts, so that a busy machine disturbs all alike. Ours
goes from and to columns; aiokafka's, as its API has it, from and to Python objects, record by record. Neither checks
the CRC when decoding. Before the clock starts, both must agree on every byte and every record.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from bench.rows import Goal, Plan, Row
from rollway.records import (
    BinaryColumn,
    Codec,
    HeaderColumns,
    RecordBatch,
    RecordColumns,
    decode_batch,
    encode_batch,
    records_from_columns,
)

PlainRecord = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Shape(NamedTuple):
    """What the records of a batch look like."""

    name: str
    value_bytes: tuple[int, int]
    key_bytes: int | None = None
    header_count: int = 0


SHAPES = [
    Shape("uniform, no key", (100, 100)),
    Shape("uniform, 8 byte key", (100, 100), key_bytes=8),
    Shape("variable, 8 byte key", (50, 150), key_bytes=8),
    Shape("uniform, key, 2 headers", (100, 100), key_bytes=8, header_count=2),
]


class Figures(NamedTuple):
    """Millions of records per second."""

    encode: float
    aiokafka_encode: float
    decode: float
    aiokafka_decode: float


def make_columns(shape: Shape, count: int) -> RecordColumns:
    """``count`` records of ``shape``, the same for every run."""
    generator = np.random.default_rng(7)
    low, high = shape.value_bytes
    lengths = generator.integers(low, high + 1, count)
    values = BinaryColumn.from_lengths(generator.bytes(int(lengths.sum())), lengths)
    keys = BinaryColumn.all_null(count)
    if shape.key_bytes is not None:
        key_lengths = np.full(count, shape.key_bytes)
        keys = BinaryColumn.from_lengths(generator.bytes(count * shape.key_bytes), key_lengths)
    headers = None
    if shape.header_count:
        total = count * shape.header_count
        names = BinaryColumn.from_list([b"trace-id"] * total)
        headers = HeaderColumns(
            np.full(count, shape.header_count), names, BinaryColumn.from_list([b"0123456789"] * total)
        )
    timestamps = 1_700_000_000_000 + np.arange(count, dtype=np.int64) // 3
    return RecordColumns(np.arange(count, dtype=np.int64), timestamps, keys, values, headers)


def aiokafka_encode(rows: list[PlainRecord], codec: Codec) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,
    )
    for offset, timestamp, key, value, headers in rows:
        builder.append(offset, timestamp, key, value, headers)
    return bytes(builder.build())


def measure(shape: Shape, count: int, rounds: int, codec: Codec) -> Figures:
    columns = make_columns(shape, count)
    records = records_from_columns(columns)
    rows: list[PlainRecord] = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
    encoded = encode_batch(columns, codec=codec, leader_epoch=-1)
    batch = RecordBatch(encoded)
    if codec is Codec.NONE and encoded != aiokafka_encode(rows, codec):
        raise SystemExit(f"{shape.name}: aiokafka writes other bytes")
    read = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in DefaultRecordBatch(encoded)]
    if read != rows or records_from_columns(decode_batch(batch)) != records:
        raise SystemExit(f"{shape.name}: what was read is not what was written")
    contestants: list[Callable[[], object]] = [
        lambda: encode_batch(columns, codec=codec),
        lambda: aiokafka_encode(rows, codec),
        lambda: decode_batch(batch),
        lambda: list(DefaultRecordBatch(encoded)),
    ]
    seconds: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for contestant, times in zip(contestants, seconds, strict=True):
            start = time.perf_counter()
            contestant()
            times.append(time.perf_counter() - start)
    return Figures(*(count / statistics.median(times) / 1e6 for times in seconds))


def rows(plan: Plan) -> Iterator[Row]:
    """Rows of ``make bench``: encode and decode of 10,000 records, in columns and, by aiokafka, record by record."""
    keep_freed_memory()
    count, rounds = (100, 1) if plan.smoke else (10_000, max(11, plan.rounds * 5))
    for shape, bounds in ((SHAPES[0], (12.0, 25.0)), (SHAPES[2], (6.0, 4.5))):
        plan.say(f"records, {shape.name}")
        figures = measure(shape, count, rounds, Codec.NONE)
        for name, ours, theirs, bound in (
            ("encode", figures.encode, figures.aiokafka_encode, bounds[0]),
            ("decode", figures.decode, figures.aiokafka_decode, bounds[1]),
        ):
            yield Row(
                "records",
                f"{name} {count:,} records, {shape.name}",
                ours,
                "M records/s",
                "aiokafka",
                theirs,
                ours / theirs,
                Goal("value", ">=", bound),
            )


def keep_freed_memory() -> None:
    """Let the C library keep what is freed, as it does in a process that has run for a while.

    glibc gives large blocks back to the system, and takes them again page by page, until it has seen a block of such
    a size freed once. Until then a megabyte of values costs more in page faults than in copying.
    """
    np.empty(31 * 1024 * 1024, dtype=np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000, help="records in a batch")
    parser.add_argument("--rounds", type=int, default=51, help="how often each is measured; the median counts")
    parser.add_argument("--codec", default="none", choices=[codec.name.lower() for codec in Codec])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    codec = Codec[options.codec.upper()]
    keep_freed_memory()
    print(f"{options.records} records per batch, {codec.name.lower()}, {platform.python_version()}; M records/s")
    print(f"{'':26}{'encode':>8}{'aiokafka':>10}{'':4}{'decode':>8}{'aiokafka':>10}")
    results = {}
    for shape in SHAPES:
        figures = measure(shape, options.records, options.rounds, codec)
        results[shape.name] = figures._asdict()
        encode, their_encode, decode, their_decode = figures
        print(f"{shape.name:26}{encode:8.1f}{their_encode:10.1f}{'':4}{decode:8.1f}{their_decode:10.1f}")
    if options.json:
        report = {"records": options.records, "rounds": options.rounds, "codec": codec.name.lower(), "figures": results}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
