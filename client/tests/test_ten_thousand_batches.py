"""Our bytes are those of aiokafka's C builder, and we read what it wrote: 10,000 random batches."""

from __future__ import annotations

import aiokafka.record.default_records as aiokafka_records
import pytest

from client.tests.sample_records import random_records
from rollway.records import Codec, RecordBatch, columns_from_records, decode_batch, encode_section, records_from_columns

pytestmark = pytest.mark.usefixtures("twin")

BATCH_COUNT = 10_000
GROUP_COUNT = 20


def check_batch(seed: int) -> None:
    # Few of the large ones: they are 30 times the work of those with 30 records.
    records = random_records(seed, count=None if seed % 20 == 0 else 1 + seed % 60)
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=seed,
        producer_epoch=0,
        base_sequence=7,
        batch_size=2**30,
    )
    for place, record in enumerate(records):
        assert builder.append(place, record.timestamp, record.key, record.value, list(record.headers)) is not None
    theirs = bytes(builder.build())
    section = encode_section(columns_from_records(records), codec=Codec.NONE)
    head = section.head(leader_epoch=-1, producer_id=seed, producer_epoch=0, base_sequence=7, transactional=True)
    assert head + bytes(section.data) == theirs, seed
    assert len(theirs) == section.size_bytes
    batch = RecordBatch(theirs)
    batch.check_crc()
    assert records_from_columns(decode_batch(batch)) == records, seed


@pytest.mark.parametrize("group", range(GROUP_COUNT))
def test_byte_for_byte(group: int) -> None:
    for seed in range(group, BATCH_COUNT, GROUP_COUNT):
        check_batch(seed)
