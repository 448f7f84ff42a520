"""Rows joined by way of Arrow's views are those that plain Python joins."""

from __future__ import annotations

import numpy as np
import pytest

from rollway.records import BinaryColumn, RecordColumns, encode_section
from rollway.records.section_rows import write_rows
from rollway.records.section_views import join_rows
from rollway.records.sections.varint import encode_varlong
from rollway.records.varint_arrays import VarintColumn, encode_varints

COUNT = 400


def random_strings(source: np.random.Generator, longest: int, null_share: float) -> BinaryColumn:
    lengths = source.integers(0, longest + 1, COUNT)
    return BinaryColumn.from_list(
        [None if source.random() < null_share else source.bytes(int(length)) for length in lengths]
    )


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_numbers_and_strings(seed: int) -> None:
    """Any order of constants, numbers of up to eight bytes, and strings around the twelve bytes of a view."""
    source = np.random.default_rng(seed)
    row: list[bytes | VarintColumn | BinaryColumn] = []
    plain: list[list[bytes]] = []
    for _ in range(int(source.integers(1, 9))):
        match int(source.integers(3)):
            case 0:
                constant = source.bytes(int(source.integers(0, 12)))
                row.append(constant)
                plain.append([constant] * COUNT)
            case 1:
                bits = int(source.integers(1, 55))
                numbers = source.integers(-(2**bits), 2**bits, COUNT) >> source.integers(0, bits, COUNT)
                row.append(encode_varints(numbers))
                plain.append([encode_varlong(number) for number in numbers.tolist()])
            case _:
                strings = random_strings(source, int(source.choice([3, 12, 13, 40])), float(source.choice([0, 0.3])))
                row.append(strings)
                plain.append([string or b"" for string in strings.to_list()])
    joined = join_rows(row, COUNT)
    assert joined is not None
    assert joined.tobytes() == b"".join(b"".join(parts) for parts in zip(*plain, strict=True))


@pytest.mark.parametrize("width", range(14))
def test_strings_of_one_length(width: int) -> None:
    source = np.random.default_rng(width)
    data = source.bytes(width * COUNT)
    joined = join_rows([b"\x02", BinaryColumn.from_lengths(data, np.full(COUNT, width)), b"\x00"], COUNT)
    assert joined is not None
    assert joined.tobytes() == b"".join(
        b"\x02" + data[start * width : (start + 1) * width] + b"\x00" for start in range(COUNT)
    )


def test_what_is_too_large_for_views_is_joined_otherwise() -> None:
    """Timestamps as far apart as can be take ten bytes."""
    timestamps = np.where(np.arange(COUNT) % 2, 2**62, -(2**62))
    columns = RecordColumns(
        np.arange(COUNT), timestamps, BinaryColumn.all_null(COUNT), random_strings(np.random.default_rng(1), 40, 0.1)
    )
    deltas = encode_varints(timestamps - timestamps[0])
    assert join_rows([deltas], COUNT) is None
    assert bytes(encode_section(columns).data) == write_rows(columns)


def test_a_slice_of_a_column() -> None:
    strings = BinaryColumn.from_list([b"%d" % 10**place for place in range(30)]).slice(5, 25)
    joined = join_rows([strings], 20)
    assert joined is not None
    assert joined.tobytes() == b"".join(string or b"" for string in strings.to_list())
