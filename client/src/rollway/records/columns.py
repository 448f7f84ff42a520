"""Records as columns: what one batch or many hold, without one Python object per record.

The layout is Arrow's: a column of byte strings is one buffer plus the n + 1 places where its elements meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]

_NO_BYTES: ByteArray = np.empty(0, dtype=np.uint8)


class BinaryColumn:
    """Byte strings, or null: element ``i`` is ``data[offsets[i]:offsets[i + 1]]`` unless ``nulls[i]``.

    ``offsets`` has one entry more than the column and need not begin at 0. ``nulls`` is absent when nothing is null;
    a null's own range is of no meaning. Nothing is copied, and nothing may be changed afterwards.

    Raises:
        ValueError: offsets that fall, or leave ``data``; as many ``nulls`` as elements are needed.
    """

    __slots__ = ("data", "nulls", "offsets")

    def __init__(
        self, data: bytes | bytearray | memoryview | ByteArray, offsets: Int64Array, nulls: BoolArray | None = None
    ) -> None:
        if len(offsets) == 0:
            raise ValueError("a column of n byte strings needs n + 1 offsets")
        if offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any():
            raise ValueError("the offsets of a column must rise and stay inside its data")
        if nulls is not None and len(nulls) != len(offsets) - 1:
            raise ValueError(f"{len(nulls)} null flags for {len(offsets) - 1} byte strings")
        self.data: ByteArray = np.frombuffer(data, dtype=np.uint8) if not isinstance(data, np.ndarray) else data
        self.offsets = offsets
        self.nulls = nulls

    @classmethod
    def unchecked(cls, data: ByteArray, offsets: Int64Array, nulls: BoolArray | None = None) -> Self:
        """A column whose offsets are right by the way they were made: nothing is looked at."""
        column = cls.__new__(cls)
        column.data = data
        column.offsets = offsets
        column.nulls = nulls
        return column

    @classmethod
    def from_list(cls, items: Sequence[bytes | None]) -> Self:
        """A column of these byte strings; ``None`` is null."""
        present = [item or b"" for item in items]
        offsets = np.array([0, *accumulate(map(len, present))], dtype=np.int64)
        nulls = np.array([item is None for item in items]) if None in items else None
        return cls.unchecked(np.frombuffer(b"".join(present), dtype=np.uint8), offsets, nulls)

    @classmethod
    def from_lengths(
        cls, data: bytes | bytearray | memoryview | ByteArray, lengths: Int64Array, nulls: BoolArray | None = None
    ) -> Self:
        """Cut ``data`` into byte strings of these lengths, one after the other.

        Raises:
            ValueError: negative lengths, or more bytes than ``data`` has.
        """
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(data, offsets, nulls)

    @classmethod
    def all_null(cls, count: int) -> BinaryColumn:
        """``count`` nulls."""
        return cls.unchecked(_NO_BYTES, np.zeros(count + 1, dtype=np.int64), np.ones(count, dtype=np.bool_))

    def to_list(self) -> list[bytes | None]:
        """Every element, copied out."""
        base = int(self.offsets[0])
        data = self.data[base : int(self.offsets[-1])].tobytes()
        bounds = (self.offsets - base).tolist()
        items: list[bytes | None] = [data[start:end] for start, end in pairwise(bounds)]
        if self.nulls is not None:
            for place in np.flatnonzero(self.nulls).tolist():
                items[place] = None
        return items

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> BinaryColumn:
        """The same byte strings, from an Arrow array of binary, string or their large kinds; copies no data.

        Raises:
            TypeError: another type of array.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
            width: type[np.signedinteger[Any]] = np.int32
        elif pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
            width = np.int64
        else:
            raise TypeError(f"an Arrow array of {array.type} is no column of byte strings")
        _, offsets_buffer, data_buffer = array.buffers()
        if offsets_buffer is None or len(array) == 0:
            return cls(b"", np.zeros(1, dtype=np.int64))
        start, end = array.offset, array.offset + len(array) + 1
        offsets = np.frombuffer(offsets_buffer, dtype=width)[start:end].astype(np.int64, copy=False)
        data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer else b""
        nulls = np.asarray(array.is_null()) if array.null_count else None
        return cls(data, offsets, nulls)

    def to_arrow(self) -> pa.LargeBinaryArray:
        """An Arrow ``large_binary`` array over the same memory."""
        validity = None if self.nulls is None else pa.py_buffer(np.packbits(~self.nulls, bitorder="little"))
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self), [validity, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )

    @classmethod
    def concatenate(cls, columns: Sequence[BinaryColumn]) -> BinaryColumn:
        """The elements of all columns, one column after the other; the only one itself."""
        if len(columns) == 1:
            return columns[0]
        data = [column.data[int(column.offsets[0]) : int(column.offsets[-1])] for column in columns]
        lengths = np.concatenate([np.diff(column.offsets) for column in columns])
        nulls = None
        if any(column.nulls is not None for column in columns):
            nulls = np.concatenate([column.null_flags() for column in columns])
        return cls.from_lengths(np.concatenate(data), lengths, nulls)

    def without_nulls(self) -> Self:
        """The same byte strings, with whatever range a null has in its place."""
        return self.unchecked(self.data, self.offsets)

    def null_flags(self) -> BoolArray:
        """``nulls``, or as many ``False``."""
        return np.zeros(len(self), dtype=np.bool_) if self.nulls is None else self.nulls

    def slice(self, start: int, end: int) -> Self:
        """Elements ``[start, end)``, over the same memory.

        Raises:
            IndexError: the column does not reach so far.
        """
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"elements {start} to {end} of {len(self)}")
        nulls = None if self.nulls is None else self.nulls[start:end]
        return self.unchecked(self.data, self.offsets[start : end + 1], nulls)

    def lengths(self) -> Int64Array:
        """Bytes per element, 0 for a null."""
        lengths = self.offsets[1:] - self.offsets[:-1]
        if self.nulls is not None:
            lengths[self.nulls] = 0
        return lengths

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements together."""
        if self.nulls is None:
            return int(self.offsets[-1] - self.offsets[0])
        return int(self.lengths().sum())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: int) -> bytes | None:
        count = len(self)
        if not -count <= place < count:
            raise IndexError(place)
        place %= count
        if self.nulls is not None and self.nulls[place]:
            return None
        return self.data[int(self.offsets[place]) : int(self.offsets[place + 1])].tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BinaryColumn) and len(self) == len(other) and self.to_list() == other.to_list()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BinaryColumn({len(self)} byte strings, {int(self.offsets[-1] - self.offsets[0])} bytes)"


def name_from_bytes(name: bytes) -> str:
    """A header's name as text. Bytes that are not UTF-8 become lone surrogates, as Python does with file names.

    So ``b"\\xff"`` is ``"\\udcff"``, of which ``name_to_bytes`` makes the same byte again.
    """
    return name.decode("utf-8", "surrogateescape")


def name_to_bytes(name: str) -> bytes:
    """The bytes of a header's name; see ``name_from_bytes``.

    Raises:
        UnicodeEncodeError: a lone surrogate that stands for no byte.
    """
    return name.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, eq=False)
class HeaderColumns:
    """The headers of many records, laid end to end: record ``i`` has the next ``counts[i]`` of them.

    Names are never null; values may be. A name is UTF-8, unless a producer sent other bytes: as a broker, nothing here
    looks at them. Rows have names as text, in which such bytes are what ``name_from_bytes`` makes of them.
    """

    counts: Int64Array
    names: BinaryColumn
    values: BinaryColumn

    def __post_init__(self) -> None:
        if int(self.counts.min(initial=0)) < 0:
            raise ValueError("the number of headers of a record may not be negative")
        if len(self.names) != len(self.values) or int(self.counts.sum()) != len(self.names):
            raise ValueError(
                f"{int(self.counts.sum())} headers counted, {len(self.names)} names, {len(self.values)} values"
            )
        if self.names.nulls is not None and self.names.nulls.any():
            raise ValueError("the name of a header may not be null")

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[tuple[str, bytes | None]]]) -> HeaderColumns | None:
        """The headers of these records; ``None`` when no record has any."""
        if not any(rows):
            return None
        counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        pairs = [pair for row in rows for pair in row]
        names = BinaryColumn.from_list([name_to_bytes(name) for name, _ in pairs])
        return cls(counts, names, BinaryColumn.from_list([value for _, value in pairs]))

    @classmethod
    def concatenate(cls, headers: Sequence[HeaderColumns]) -> HeaderColumns:
        """The headers of all records, in order; the only ones themselves."""
        return cls(
            np.concatenate([part.counts for part in headers]),
            BinaryColumn.concatenate([part.names for part in headers]),
            BinaryColumn.concatenate([part.values for part in headers]),
        )

    @classmethod
    def none_for(cls, record_count: int) -> HeaderColumns:
        """No headers for each of ``record_count`` records."""
        nothing = np.zeros(record_count, dtype=np.int64)
        return cls(nothing, BinaryColumn(b"", nothing[:1]), BinaryColumn(b"", nothing[:1]))

    def to_rows(self) -> list[tuple[tuple[str, bytes | None], ...]]:
        """The headers of each record, in order."""
        names = [name_from_bytes(name or b"") for name in self.names.to_list()]
        pairs = list(zip(names, self.values.to_list(), strict=True))
        ends = np.cumsum(self.counts).tolist()
        return [tuple(pairs[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def slice(self, start: int, end: int) -> HeaderColumns:
        """The headers of records ``[start, end)``."""
        before = int(self.counts[:start].sum())
        counts = self.counts[start:end]
        after = before + int(counts.sum())
        return HeaderColumns(counts, self.names.slice(before, after), self.values.slice(before, after))


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records in columns of equal length.

    ``offsets`` are absolute, ``timestamps`` ms since 1970. ``headers`` is absent when no record has any.

    Raises:
        ValueError: the columns differ in length.
    """

    offsets: Int64Array
    timestamps: Int64Array
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns | None = None

    def __post_init__(self) -> None:
        count = len(self.offsets)
        if (
            len(self.timestamps) != count
            or len(self.keys) != count
            or len(self.values) != count
            or (self.headers is not None and len(self.headers.counts) != count)
        ):
            raise ValueError("columns of different lengths")

    @classmethod
    def concatenate(cls, columns: Sequence[RecordColumns]) -> RecordColumns:
        """All records, in order; the only columns themselves. At least one element."""
        if len(columns) == 1:
            return columns[0]
        headers = None
        if any(part.headers is not None for part in columns):
            headers = HeaderColumns.concatenate([part.headers or HeaderColumns.none_for(len(part)) for part in columns])
        return cls(
            np.concatenate([part.offsets for part in columns]),
            np.concatenate([part.timestamps for part in columns]),
            BinaryColumn.concatenate([part.keys for part in columns]),
            BinaryColumn.concatenate([part.values for part in columns]),
            headers,
        )

    def slice(self, start: int, end: int) -> RecordColumns:
        """Records ``[start, end)``, over the same memory."""
        return RecordColumns(
            self.offsets[start:end],
            self.timestamps[start:end],
            self.keys.slice(start, end),
            self.values.slice(start, end),
            None if self.headers is None else self.headers.slice(start, end),
        )

    def __len__(self) -> int:
        return len(self.offsets)
