"""One stored batch, as a broker must find it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from log_model.producers import KEYED_PRODUCER_ID_MIN
from rollway.records import HEADER_BYTES, BatchHeader, Codec, RecordBatch, decompress_batch
from rollway.records.batch import Buffer, build_batch
from rollway.records.compression import compress, find_lz4_obstacle
from storage.log_export.moved_producers import NO_PRODUCER, BatchProducer, MovedProducers

DECOMPRESSED_BYTES_MAX = 256 << 20
"""Four times what the service accepts in one batch."""

_LEADER_EPOCH = struct.Struct(">i")
_LEADER_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_BEGINS_AT = 21
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_CODEC_MASK = 0x07


@dataclass(slots=True)
class RewriteCounts:
    """How many batches were given a new value, and in which respect."""

    epochs: int = 0
    """Batches with another leader epoch than 0."""
    producers: int = 0
    """Batches of producers whose id was moved."""
    keys: int = 0
    """Batches of keyed requests that got another id or epoch."""
    forgotten_keys: int = 0
    """Batches of keyed requests that have no producer in the cluster."""
    lz4: int = 0
    """Batches that were compressed again."""

    def __add__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(
            self.epochs + other.epochs,
            self.producers + other.producers,
            self.keys + other.keys,
            self.forgotten_keys + other.forgotten_keys,
            self.lz4 + other.lz4,
        )


class BatchRewriter:
    """Rewrites the batches of one partition, in their order.

    A cluster gives its partitions leader epochs from 0 on. A log with larger ones can never be copied to a second
    broker, so each batch gets epoch 0. ``MovedProducers`` says what becomes of its producer. LZ4 frames that Java
    cannot read are compressed again; earlier revisions stored such frames. All else stays, to the byte.

    Thread: one at a time.
    """

    def __init__(self, shift: int) -> None:
        self.counts = RewriteCounts()
        self.forgotten_ids: set[int] = set()
        """The ids that stood for the keys of ``RewriteCounts.forgotten_keys``."""
        self._producers = MovedProducers(shift)

    def rewrite(self, header: BatchHeader, batch: memoryview) -> Buffer:
        """Return the batch for the cluster: ``batch``, changed in place, or new bytes if it was compressed again.

        The CRC of ``batch`` must have been checked: a new one would hide damage.

        Raises:
            RecordFormatError: an LZ4 frame that must be compressed again is damaged, or more than
                ``DECOMPRESSED_BYTES_MAX`` come out of it.
        """
        producer = self._producers.of(header)
        is_other_producer = producer != (header.producer_id, header.producer_epoch, header.base_sequence)
        self._count(header, producer, is_other_producer=is_other_producer)
        if header.attributes & _CODEC_MASK == Codec.LZ4 and find_lz4_obstacle(batch[HEADER_BYTES:]) is not None:
            self.counts.lz4 += 1
            return _compressed_again(header._replace(partition_leader_epoch=0, **producer._asdict()), batch)
        _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, 0)
        if is_other_producer:
            _PRODUCER.pack_into(batch, _PRODUCER_AT, *producer)
            _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_CRC_BEGINS_AT:]))
        return batch

    def _count(self, header: BatchHeader, producer: BatchProducer, *, is_other_producer: bool) -> None:
        counts = self.counts
        if header.partition_leader_epoch != 0:
            counts.epochs += 1
        if not is_other_producer:
            return
        if header.producer_id < KEYED_PRODUCER_ID_MIN:
            counts.producers += 1
        elif producer == NO_PRODUCER:
            counts.forgotten_keys += 1
            self.forgotten_ids.add(header.producer_id)
        else:
            counts.keys += 1


def _compressed_again(header: BatchHeader, batch: memoryview) -> bytes:
    section = decompress_batch(RecordBatch(batch), decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return build_batch(header, compress(Codec.LZ4, section))
