"""Producers in memory: packed or not, and which is forgotten first."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_model.offsets import Offset
from log_model.producers import KEYED_PRODUCER_ID_MIN, ProducerBatch
from storage.producers.known_producers import KnownProducers
from storage.producers.producer_entry import ProducerEntry

KEY = KEYED_PRODUCER_ID_MIN + 5
NOW_MS = 1_700_000_000_000


def entry(producer_id: int, offset: int = 0, count: int = 1, *, txn: int = -1, epoch: int = 0) -> ProducerEntry:
    batch = ProducerBatch(0, count - 1, Offset(offset), Offset(offset + count - 1), NOW_MS)
    return ProducerEntry(producer_id, epoch, (batch,), NOW_MS, -1, Offset(txn))


UNUSUAL = [
    entry(7),
    entry(KEY, txn=3),
    entry(KEY)._replace(coordinator_epoch=2),
    entry(KEY)._replace(last_timestamp=NOW_MS + 1),
    entry(KEY)._replace(batches=()),
    entry(KEY)._replace(batches=entry(KEY).batches * 2),
    entry(KEY)._replace(batches=(ProducerBatch(1, 4, Offset(0), Offset(3), NOW_MS),)),
    entry(KEY)._replace(batches=(ProducerBatch(0, 3, Offset(0), Offset(9), NOW_MS),)),
]


@pytest.mark.parametrize(
    "given", [*UNUSUAL, entry(KEY), entry(KEY, 2**62, 2**31 - 1, epoch=32767), entry(2**63 - 1, 9, 4)]
)
def test_an_entry_is_found_as_it_was_put(given: ProducerEntry) -> None:
    known = KnownProducers()
    known.put(given, 5)
    assert known.find(given.producer_id) == given
    assert list(known.entries()) == [given]
    assert isinstance(known.by_id[given.producer_id], bytes) == (given not in UNUSUAL)


def test_an_entry_may_become_packed_and_unpacked() -> None:
    known = KnownProducers()
    for each in (entry(KEY), entry(KEY, txn=4), entry(KEY, 9)):
        known.put(each, 5)
        assert known.find(KEY) == each
        assert len(known) == 1
    assert known.used_ms == {}


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from([1, 2, 3, KEY, KEY + 1, KEY + 2]), st.booleans()),
        st.tuples(st.just("forget"), st.just(0), st.just(False)),
        st.tuples(st.just("expire"), st.integers(1, 4), st.just(False)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_the_longest_unchanged_is_forgotten_first(actions: Sequence[tuple[str, int, bool]]) -> None:
    """Held against a dict that is searched from its beginning."""
    known, plain = KnownProducers(), dict[int, tuple[ProducerEntry, int]]()
    for now_ms, (action, number, is_in_transaction) in enumerate(actions):
        if action == "put":
            changed = entry(number, now_ms, txn=now_ms if is_in_transaction else -1)
            known.put(changed, now_ms)
            plain.pop(number, None)
            plain[number] = changed, now_ms
        elif action == "forget":
            oldest = next((key for key, (each, _) in plain.items() if not each.is_in_transaction), None)
            assert known.forget_longest_unchanged() is (oldest is not None)
            plain.pop(oldest or 0, None)
        else:
            expired = [
                key for key, (each, at_ms) in plain.items() if now_ms - at_ms >= number and not each.is_in_transaction
            ]
            assert known.expire(now_ms, number) == len(expired)
            for key in expired:
                del plain[key]
        assert list(known.entries()) == [each for each, _ in plain.values()]


def test_a_key_takes_at_most_300_bytes() -> None:
    """Also when as many are forgotten as come."""
    count = 20_000
    known = KnownProducers()
    tracemalloc.start()
    try:
        for number in range(2 * count):
            # Numbers of offsets and times are objects of their own in the service, too.
            known.put(entry(KEYED_PRODUCER_ID_MIN + number, 10**12 + number), 10**9 + number)
            if len(known) > count:
                assert known.forget_longest_unchanged()
            if number in (count - 1, 2 * count - 1):
                assert tracemalloc.get_traced_memory()[0] / count < 300
    finally:
        tracemalloc.stop()
