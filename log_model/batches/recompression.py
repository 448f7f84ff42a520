"""``compression.type``: the codec with which a topic stores its batches, and the change to it (spec E12)."""

from __future__ import annotations

from log_model.config import TopicConfig
from rollway.records import BatchHeader, Codec, RecordBatch, RecordColumns, encode_batch
from rollway.records.batch import build_batch, codec_changed
from rollway.records.compression import compress

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def stored_codec(config: TopicConfig, source: Codec) -> Codec:
    """Return the codec with which the topic stores a batch that arrived with ``source``."""
    return _CODECS.get(config.compression_type, source)


def level_of(config: TopicConfig, codec: Codec) -> int | None:
    """Return the topic's compression level for ``codec``; ``None`` means the codec's own default."""
    match codec:
        case Codec.GZIP:
            return None if config.compression_gzip_level == -1 else config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
    return None


def recompress(batch: RecordBatch, section: bytes | memoryview, config: TopicConfig) -> RecordBatch:
    """Return the batch as the topic stores it: unchanged if its codec is right, whatever its level.

    Otherwise make a batch with the same records and header, except codec, length and CRC. ``section`` is the
    decompressed content of the batch. The new batch may be larger than the old one; the caller checks its size.
    """
    source = batch.header.codec
    target = stored_codec(config, source)
    if target is source:
        return batch
    records = compress(target, section, level_of(config, target))
    return RecordBatch(build_batch(codec_changed(batch.header, target), records))


def rebuild(header: BatchHeader, columns: RecordColumns, config: TopicConfig) -> RecordBatch:
    """Make a batch of these records with the offset deltas 0, 1, 2, ..., as the topic stores it.

    ``header`` is the header of the original batch; its codec is the source of ``stored_codec``.
    """
    target = stored_codec(config, header.codec)
    return RecordBatch(
        encode_batch(
            columns,
            codec=target,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            level=level_of(config, target),
        )
    )
