"""The records of ``__transaction_state``: Kafka's bytes, and nothing else is read."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.transactions import Transaction, TransactionState
from app.engine_local.transactions.log.records import decode_key, decode_value, encode_key, encode_value
from log_model.errors import CorruptionError
from log_model.names import PartitionName

IDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=249)
LONGS = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(
    st.builds(PartitionName, st.text("abc-._", min_size=1, max_size=9), st.integers(0, 9999)), max_size=9
)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    return Transaction(
        draw(IDS),
        draw(LONGS),
        draw(st.integers(-1, 2**15 - 1)),
        draw(st.integers(0, 2**31 - 1)),
        state,
        frozenset() if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(LONGS),
        draw(LONGS),
        version=draw(st.integers(0, 2)),
        previous_producer_id=draw(LONGS),
        next_producer_id=draw(LONGS),
    )


@given(transactions())
def test_a_transaction_reads_back_as_it_was_written(transaction):
    name = decode_key(encode_key(transaction.transactional_id))
    assert decode_value(name, encode_value(transaction)) == transaction


def test_a_key_to_the_byte():
    assert encode_key("orders") == bytes.fromhex("0000 0006") + b"orders"


PLACES = frozenset({PartitionName("b", 0), PartitionName("a", 7), PartitionName("a", 2)})
VERSION_0 = bytes.fromhex(
    "0000"  # version
    "0000000000000005 0003 0000ea60 01"  # producer id, epoch, timeout, Ongoing
    "00000002"  # two topics
    "0001 61 00000002 00000002 00000007"  # a: 2, 7
    "0001 62 00000001 00000000"  # b: 0
    "0000000000000203 0000000000000102"  # last update, start
)


def test_a_value_to_the_byte():
    """Kafka's TransactionLogValue, version 1."""
    transaction = Transaction("x", 5, 3, 60_000, TransactionState.ONGOING, PLACES, start_ms=258, updated_ms=515)
    assert encode_value(transaction) == bytes.fromhex(
        "0001"  # version
        "0000000000000005 0003 0000ea60 01"  # producer id, epoch, timeout, Ongoing
        "03"  # two topics
        "02 61 03 00000002 00000007 00"  # a: 2, 7
        "02 62 02 00000000 00"  # b: 0
        "0000000000000203 0000000000000102"  # last update, start
        "01 02 02 0002"  # one tagged field: client transaction version 2
    )


def test_the_identities_before_and_after_to_the_byte():
    transaction = Transaction("x", 8, 0, 1, TransactionState.COMPLETE_COMMIT, start_ms=2, updated_ms=3)
    for field, tag in (("previous_producer_id", "00"), ("next_producer_id", "01")):
        value = encode_value(dataclasses.replace(transaction, **{field: 7}))
        assert value == bytes.fromhex(
            "0001 0000000000000008 0000 00000001 04 01 0000000000000003 0000000000000002"
            f"02 {tag} 08 0000000000000007 02 02 0002"
        )


def test_an_empty_transaction_has_null_for_its_partitions():
    value = encode_value(Transaction("x", 1, 0, 1, updated_ms=0))
    assert value == bytes.fromhex(
        "0001 0000000000000001 0000 00000001 00 00 0000000000000000 ffffffffffffffff 01 02 02 0002"
    )


def test_a_value_of_an_earlier_revision_is_read():
    """Version 0, which raised no epoch at the end."""
    assert decode_value("x", VERSION_0) == Transaction(
        "x", 5, 3, 60_000, TransactionState.ONGOING, PLACES, start_ms=258, updated_ms=515, version=0
    )
    empty = bytes.fromhex("0000 0000000000000001 0000 00000001 00 ffffffff 0000000000000000 ffffffffffffffff")
    assert decode_value("x", empty) == Transaction("x", 1, 0, 1, updated_ms=0, version=0)


def test_a_tagged_field_of_a_later_kafka_is_passed_by():
    transaction = Transaction("x", 1, 0, 1, updated_ms=0)
    value = encode_value(transaction)
    count = value.rindex(bytes.fromhex("01 02 02 0002"))
    later = value[:count] + b"\x02" + value[count + 1 :] + bytes.fromhex("03 02 0001")
    assert decode_value("x", later) == transaction


@pytest.mark.parametrize(
    "fields",
    [
        "02 02 02 0002 02 02 0002",  # a tag twice
        "02 02 02 0002 00 08 0000000000000001",  # not in order
        "01 02 03 000200",  # of another size than an int16
        "01 02 0a 0002",  # longer than what is there
        "ffffffffff01",  # a number of no end
    ],
)
def test_damaged_tagged_fields_are_damage(fields):
    value = encode_value(Transaction("x", 1, 0, 1, updated_ms=0))
    start = value[: value.rindex(bytes.fromhex("01 02 02 0002"))]
    with pytest.raises(CorruptionError):
        decode_value("x", start + bytes.fromhex(fields))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_record_or_damage(content):
    for read in (decode_key, lambda value: decode_value("x", value)):
        with contextlib.suppress(CorruptionError):
            read(content)


@given(transactions(), st.data())
def test_a_value_that_is_cut_or_continued_is_damage(transaction, data):
    value = encode_value(transaction)
    cut = data.draw(st.integers(0, len(value) - 1))
    for damaged in (value[:cut], value + b"\0"):
        with pytest.raises(CorruptionError):
            decode_value("x", damaged)


@given(st.data())
def test_a_value_of_version_0_that_is_cut_or_continued_is_damage(data):
    cut = data.draw(st.integers(0, len(VERSION_0) - 1))
    for damaged in (VERSION_0[:cut], VERSION_0 + b"\0"):
        with pytest.raises(CorruptionError):
            decode_value("x", damaged)


def test_other_versions_are_not_guessed_at():
    with pytest.raises(CorruptionError, match="version 1"):
        decode_key(b"\x00\x01\x00\x01x")
    with pytest.raises(CorruptionError, match="version 2"):
        decode_value("x", b"\x00\x02" + bytes(40))
    with pytest.raises(CorruptionError):
        decode_key(None)
