"""What becomes of one batch, held field by field against parsers that are not the service's."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from log_model.producers import KEYED_PRODUCER_ID_MIN, keyed_batch_id
from rollway.records import Codec, parse_header
from storage.log_export.batch_rewriter import BatchRewriter
from storage.log_export.moved_producers import MOVED_ID_MIN, moved_id, producer_shift
from tests.unit.storage.log_export.parsed_batches import (
    batch,
    has_right_crc,
    header_of,
    kafka_python_with_snappy,  # noqa: F401 - a fixture
    linked_lz4,
    rows_of,
    split,
    with_crc,
)

SHIFT = producer_shift("a directory")


def rewritten(*batches: bytes, rewriter: BatchRewriter | None = None) -> bytes:
    """The batches, in their order, as a cluster gets them."""
    used = rewriter or BatchRewriter(SHIFT)
    return b"".join(bytes(used.rewrite(parse_header(each), memoryview(bytearray(each)))) for each in batches)


PRODUCERS = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, MOVED_ID_MIN - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    st.tuples(st.integers(MOVED_ID_MIN, 2**62 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
    st.tuples(st.integers(2**62, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 1)),
)


@given(
    st.integers(0, 2**40),
    st.integers(1, 9),
    st.sampled_from(Codec),
    st.integers(0, 2**31 - 1),
    PRODUCERS,
    st.booleans(),
)
@example(0, 1, Codec.NONE, 0, (0, 0, 0), False)
@example(5, 3, Codec.LZ4, 7, (2**62, 99, 0), False)
@example(5, 3, Codec.ZSTD, 7, (2**63 - 1, 99, 1), False)
def test_every_field_of_a_batch(
    base_offset: int, count: int, codec: Codec, epoch: int, producer: tuple[int, int, int], transactional: bool
) -> None:
    producer_id, producer_epoch, sequence = producer
    before = batch(
        base_offset,
        count,
        codec=codec,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional and producer_id >= 0,
    )
    after = rewritten(before)
    old, new = header_of(before), header_of(after)
    is_keyed = producer_id >= KEYED_PRODUCER_ID_MIN and not transactional
    if is_keyed:
        wanted = (producer_id, 0, 0) if sequence == 0 else (-1, -1, -1)
    elif 0 <= producer_id < MOVED_ID_MIN:
        wanted = (producer_id + SHIFT, producer_epoch, sequence)
    else:
        wanted = producer
    assert new == old._replace(
        leader_epoch=0, crc=new.crc, producer_id=wanted[0], producer_epoch=wanted[1], base_sequence=wanted[2]
    )
    assert (
        after[:12] + after[16:17] + after[21:43] + after[57:]
        == before[:12] + before[16:17] + before[21:43] + before[57:]
    )
    assert has_right_crc(after)
    assert rows_of(after) == rows_of(before)
    assert (new.crc == old.crc) is (wanted == producer)


@given(st.integers(0, MOVED_ID_MIN - 1), st.text())
def test_no_moved_id_is_one_that_a_cluster_gives(producer_id: int, directory_id: str) -> None:
    shift = producer_shift(directory_id)
    assert shift % 2**32 == 0
    assert MOVED_ID_MIN <= moved_id(producer_id, shift) < KEYED_PRODUCER_ID_MIN
    assert producer_shift(directory_id) == shift


def test_two_directories_have_different_shifts() -> None:
    assert len({producer_shift(f"directory {number}") for number in range(100)}) == 100


def test_batches_of_a_keyed_request_get_ids_of_their_own() -> None:
    key = KEYED_PRODUCER_ID_MIN + 77
    of_key = {"producer_id": key, "producer_epoch": 1234}
    rewriter = BatchRewriter(SHIFT)
    after = split(
        rewritten(
            batch(0, 3, base_sequence=0, **of_key),
            batch(3, 2, base_sequence=3, **of_key),
            batch(5, 4, base_sequence=5, **of_key),
            batch(9, 4),
            rewriter=rewriter,
        )
    )
    ids = [keyed_batch_id(key, number) for number in range(3)]
    producers = [header_of(each)[9:12] for each in after]
    assert producers == [(ids[0], 0, 0), (ids[1], 0, 0), (ids[2], 0, 0), (-1, -1, -1)]
    assert ids[0] == key
    assert len(set(ids)) == 3
    assert all(KEYED_PRODUCER_ID_MIN <= each < 2**63 for each in ids)
    assert (rewriter.counts.keys, rewriter.counts.forgotten_keys, rewriter.forgotten_ids) == (3, 0, set())


def test_a_keyed_batch_without_the_first_one_of_its_request_loses_its_producer() -> None:
    key = KEYED_PRODUCER_ID_MIN + 77
    rewriter = BatchRewriter(SHIFT)
    after = split(
        rewritten(
            batch(3, 2, base_sequence=3, producer_id=key, producer_epoch=9),
            batch(5, 2, base_sequence=5, producer_id=key, producer_epoch=9),
            rewriter=rewriter,
        )
    )
    assert [header_of(each)[9:12] for each in after] == [(-1, -1, -1)] * 2
    assert all(map(has_right_crc, after))
    assert (rewriter.counts.keys, rewriter.counts.forgotten_keys, rewriter.forgotten_ids) == (0, 2, {key})


def test_linked_lz4_becomes_a_frame_that_java_reads() -> None:
    plain = batch(10, 60, value_bytes=5_000, leader_epoch=3, producer_id=4, producer_epoch=1, base_sequence=8)
    before = linked_lz4(plain)
    after = rewritten(before)
    assert after[65] & 0x20, "independent blocks"
    assert rows_of(after) == rows_of(before) == rows_of(plain)
    assert has_right_crc(after)
    new = header_of(after)
    assert new == header_of(before)._replace(
        leader_epoch=0, crc=new.crc, producer_id=4 + SHIFT, batch_length=len(after) - 12
    )


def test_linked_lz4_of_a_log_append_time_topic_keeps_its_time() -> None:
    plain = with_crc(batch(0, 60, value_bytes=5_000)[:21] + struct.pack(">h", 8) + batch(0, 60, value_bytes=5_000)[23:])
    after = rewritten(linked_lz4(plain))
    assert header_of(after).attributes == 8 | Codec.LZ4
    assert rows_of(after) == rows_of(plain)
