"""Batches the service makes of the records of a request, and which bodies of batches are validated in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.problems.problem import Problem
from app.record_json import record_batches
from app.record_json.record_batches import needs_codec, validated_batches
from app.record_json.translate import ParsedRecords
from log_model.batches.batch_validation import ValidBatch
from log_model.config import TopicConfig
from log_model.errors import RefusedError
from rollway.records import Codec, Record, columns_from_records, encode_batch


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


NOW_MS = 1_700_000_000_000
CONTENTS = st.none() | st.binary(max_size=9) | st.integers(0, 300).map(bytes)
TIMES = st.sampled_from([-1, 0, NOW_MS, NOW_MS + 1, NOW_MS - 10_000, NOW_MS + 10_000, 2**63 - 1])
ROWS = st.lists(
    st.tuples(CONTENTS, CONTENTS, TIMES, st.lists(st.tuples(st.text(max_size=3), CONTENTS), max_size=3)), max_size=80
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete", "max.message.bytes": 300},
    {"max.message.bytes": 100},
    {"message.timestamp.before.max.ms": 10_000, "message.timestamp.after.max.ms": 0},
    {"message.timestamp.before.max.ms": 9_999},
    {"compression.type": "gzip"},
]


def outcome(make: Callable[[], list[ValidBatch]]) -> object:
    """The batches, or what is wrong with the records."""
    try:
        batches = make()
    except Problem as problem:
        return problem.status, problem.code, problem.detail, problem.errors
    except RefusedError as error:
        return type(error), str(error)
    return [(bytes(batch.head), bytes(batch.body), batch.header, batch.max_timestamp) for batch in batches]


@given(ROWS, st.sampled_from(SETTINGS), st.data())
def test_batches_that_are_not_looked_at_again_are_those_that_are(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    settings: dict[str, Any],
    data: st.DataObject,
) -> None:
    """One batch of all or some records is made of lists; the other way encodes columns, and decodes them again."""
    config = TopicConfig.parse(settings)
    headers = [row[3] for row in rows] if any(row[3] for row in rows) else None
    parsed = ParsedRecords(
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], headers, None, NOW_MS
    )
    places = st.none() if not rows else st.none() | st.lists(st.integers(0, len(rows) - 1), unique=True).map(sorted)
    chosen = data.draw(places)
    assert outcome(lambda: validated_batches(parsed, config, chosen)) == outcome(
        lambda: record_batches._batches(parsed, config, chosen, together=True)
    )
