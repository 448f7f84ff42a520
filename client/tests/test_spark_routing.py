"""How rows are cut into batches, and whose turn it is."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rollway.spark.write.arrow_rows import Rows, estimated_bytes
from rollway.spark.write.routing import Router, TargetTopic, even_batches

sizes_of_values = st.lists(st.one_of(st.integers(0, 60), st.integers(500, 5_000)), min_size=1, max_size=80)


def rows_of_sizes(sizes: list[int], keys: list[bytes | None] | None = None) -> Rows:
    values = pa.array([b"%04d" % place + b"x" * size for place, size in enumerate(sizes)], pa.binary())
    return Rows(values, None if keys is None else pa.array(keys, pa.binary()))


@given(sizes_of_values, st.integers(50, 3_000))
def test_batches_are_as_many_as_it_takes_and_about_as_large_as_each_other(sizes: list[int], batch_bytes: int) -> None:
    rows = rows_of_sizes(sizes)
    estimated = estimated_bytes(rows).tolist()
    batches = even_batches(rows, batch_bytes)
    assert [place for start, end in batches for place in range(start, end)] == list(range(len(rows)))
    assert all(start < end for start, end in batches)
    fair = sum(estimated) / -(-sum(estimated) // batch_bytes)
    assert fair <= batch_bytes
    for start, end in batches:
        # Whole rows: a batch begins and ends within half a row of where an even one would.
        assert sum(estimated[start:end]) <= fair + max(estimated)


@given(sizes_of_values, st.integers(1, 5), st.integers(0, 7), st.integers(50, 3_000))
def test_partitions_take_turns_batch_by_batch(sizes: list[int], partitions: int, task: int, batch_bytes: int) -> None:
    topic = TargetTopic("t", partitions, 1 << 20)
    router = Router("t", {"t": topic}.get, task, batch_bytes)
    rows = rows_of_sizes(sizes)
    routed = [*router.route(rows), *router.route(rows)]
    assert pa.concat_arrays([part.rows.values for part in routed]).equals(pa.concat_arrays([rows.values] * 2))
    if partitions > 1:
        assert all(part.is_batch for part in routed)
        assert [part.partition for part in routed] == [(task + turn) % partitions for turn in range(len(routed))]
    else:
        assert {part.partition for part in routed} == {0}


def test_rows_without_a_key_take_turns_among_rows_with_one() -> None:
    keys: list[bytes | None] = [b"k" if place % 2 else None for place in range(40)]
    router = Router("t", {"t": TargetTopic("t", 4, 1 << 20)}.get, 2, 500)
    rows = rows_of_sizes([76] * 40, keys)
    without = [part.rows.values.to_pylist() for part in router.route(rows)]
    places = {int(value[:4]): number for number, values in enumerate(without) for value in values}
    assert sorted(places) == list(range(40))
    assert len({places[place] for place in range(1, 40, 2)}) == 1
    # 20 rows of about 100 bytes are four batches and a little: every partition gets some.
    assert len({places[place] for place in range(0, 40, 2)}) == 4
