"""The records of ``__transaction_state``: Kafka's bytes, and nothing else is read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transactions.records import decode_key, decode_value, encode_key, encode_value
from app.transactions.state import Transaction, TransactionState
from storage.errors import CorruptionError
from storage.file_names import PartitionName

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
    )


@given(transactions())
def test_a_transaction_reads_back_as_it_was_written(transaction):
    name = decode_key(encode_key(transaction.transactional_id))
    assert decode_value(name, encode_value(transaction)) == transaction


def test_a_key_to_the_byte():
    assert encode_key("orders") == bytes.fromhex("0000 0006") + b"orders"


def test_a_value_to_the_byte():
    """Kafka's TransactionLogValue, version 0."""
    partitions = frozenset({PartitionName("b", 0), PartitionName("a", 7), PartitionName("a", 2)})
    transaction = Transaction("x", 5, 3, 60_000, TransactionState.ONGOING, partitions, start_ms=258, updated_ms=515)
    assert encode_value(transaction) == bytes.fromhex(
        "0000"  # version
        "0000000000000005 0003 0000ea60 01"  # producer id, epoch, timeout, Ongoing
        "00000002"  # two topics
        "0001 61 00000002 00000002 00000007"  # a: 2, 7
        "0001 62 00000001 00000000"  # b: 0
        "0000000000000203 0000000000000102"  # last update, start
    )


def test_an_empty_transaction_has_null_for_its_partitions():
    value = encode_value(Transaction("x", 1, 0, 1, updated_ms=0))
    assert value == bytes.fromhex("0000 0000000000000001 0000 00000001 00 ffffffff 0000000000000000 ffffffffffffffff")


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


def test_other_versions_are_not_guessed_at():
    with pytest.raises(CorruptionError, match="version 1"):
        decode_key(b"\x00\x01\x00\x01x")
    with pytest.raises(CorruptionError, match="version 1"):
        decode_value("x", b"\x00\x01" + bytes(40))
    with pytest.raises(CorruptionError):
        decode_key(None)
