"""Which bodies of record batches are validated in a thread although they are small."""

from __future__ import annotations

import pytest

from app.record_batches import needs_codec
from rollway.records import Codec, Record, columns_from_records, encode_batch
from storage.config import TopicConfig


def batch(codec: Codec) -> bytes:
    return encode_batch(columns_from_records([Record(0, 0, None, b"v")]), codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_anywhere_in_the_body(codec: Codec) -> None:
    config = TopicConfig.DEFAULTS
    assert needs_codec(batch(Codec.NONE) * 2 + batch(codec), config) is (codec is not Codec.NONE)


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "gzip"])
def test_a_topic_that_compresses(compression_type: str) -> None:
    config = TopicConfig.parse({"compression.type": compression_type})
    assert needs_codec(batch(Codec.NONE), config) is (compression_type == "gzip")


@pytest.mark.parametrize("body", [b"", bytes(60), bytes(200), b"\xff" * 8 + b"\xff\xff\xff\xff" + bytes(100)])
def test_bytes_that_are_no_batches_end(body: bytes) -> None:
    """Lengths that lie neither stop the look nor let it go on for ever; validation says what is wrong."""
    assert needs_codec(body, TopicConfig.DEFAULTS) is False
