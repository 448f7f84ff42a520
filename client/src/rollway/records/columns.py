"""Records as columns: the records of one batch or many, without one Python object for each.

The layout is Arrow's: a column of n byte strings is one buffer and the n + 1 places where its elements meet.
"""

from __future__ import annotations

from array import array
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

    ``offsets`` has one entry more than the column and need not begin at 0. ``nulls`` is absent if no element is null;
    the range of a null has no meaning. The column shares the memory of its arguments, which must not change afterwards.

    Example: ``BinaryColumn(b"abc", np.array([0, 2, 3]))`` has the elements ``b"ab"`` and ``b"c"``.

    Raises:
        ValueError: the offsets fall, or leave ``data``, or there are not as many ``nulls`` as elements.
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
        """Return a column without checking its offsets: for callers that made them right."""
        column = cls.__new__(cls)
        column.data = data
        column.offsets = offsets
        column.nulls = nulls
        return column

    @classmethod
    def from_list(cls, items: Sequence[bytes | None]) -> Self:
        """Return a column of these byte strings; ``None`` is null."""
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
        """Return ``count`` nulls."""
        return cls.unchecked(_NO_BYTES, np.zeros(count + 1, dtype=np.int64), np.ones(count, dtype=np.bool_))

    def to_list(self) -> list[bytes | None]:
        """Return a copy of every element."""
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
        """Return the same byte strings, from an Arrow array of binary, string or their large kinds; copies no data.

        Raises:
            TypeError: the array is of another type.
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
        """Return an Arrow ``large_binary`` array over the same memory."""
        validity = None if self.nulls is None else pa.py_buffer(np.packbits(~self.nulls, bitorder="little"))
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self), [validity, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )

    @classmethod
    def concatenate(cls, columns: Sequence[BinaryColumn]) -> BinaryColumn:
        """Return the elements of all columns, one column after the other. A single column is returned as it is."""
        if len(columns) == 1:
            return columns[0]
        data = [column.data[int(column.offsets[0]) : int(column.offsets[-1])] for column in columns]
        lengths = np.concatenate([np.diff(column.offsets) for column in columns])
        nulls = None
        if any(column.nulls is not None for column in columns):
            nulls = np.concatenate([column.null_flags() for column in columns])
        return cls.from_lengths(np.concatenate(data), lengths, nulls)

    def without_nulls(self) -> Self:
        """Return the same byte strings, with the bytes of its range in the place of a null."""
        return self.unchecked(self.data, self.offsets)

    def null_flags(self) -> BoolArray:
        """Return ``nulls``, or one ``False`` for each element."""
        return np.zeros(len(self), dtype=np.bool_) if self.nulls is None else self.nulls

    def slice(self, start: int, end: int) -> Self:
        """Return elements ``[start, end)``, over the same memory.

        Raises:
            IndexError: the column has no such elements.
        """
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"elements {start} to {end} of {len(self)}")
        nulls = None if self.nulls is None else self.nulls[start:end]
        return self.unchecked(self.data, self.offsets[start : end + 1], nulls)

    def lengths(self) -> Int64Array:
        """Return the bytes of each element, 0 for a null."""
        lengths = self.offsets[1:] - self.offsets[:-1]
        if self.nulls is not None:
            lengths[self.nulls] = 0
        return lengths

    @property
    def size_bytes(self) -> int:
        """The bytes of all elements together."""
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


class BinaryColumnBuilder:
    """A column of byte strings that grows at its end. A byte string takes 9 bytes beside its own.

    Example: after ``append(b"ab")`` and ``append(None)``, ``column()`` has the elements ``b"ab"`` and null.
    """

    __slots__ = ("_data", "_nulls", "_offsets")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offsets = array("q", [0])
        self._nulls = bytearray()

    def append(self, content: bytes | memoryview | None) -> None:
        """Add a byte string, or a null."""
        if content is None:
            self._nulls.append(True)
        else:
            self._nulls.append(False)
            self._data += content
        self._offsets.append(len(self._data))

    def column(self) -> BinaryColumn:
        """Return what was added, over the same memory: the builder must not be used again."""
        nulls = np.frombuffer(self._nulls, dtype=np.bool_) if True in self._nulls else None
        return BinaryColumn.unchecked(
            np.frombuffer(self._data, dtype=np.uint8), np.frombuffer(self._offsets, dtype=np.int64), nulls
        )

    def __len__(self) -> int:
        return len(self._nulls)


def name_from_bytes(name: bytes) -> str:
    """Return a header's name as text. Bytes that are not UTF-8 become lone surrogates, as in Python's file names.

    Example: ``b"\\xff"`` becomes ``"\\udcff"``, and ``name_to_bytes`` returns the same byte.
    """
    return name.decode("utf-8", "surrogateescape")


def name_to_bytes(name: str) -> bytes:
    """Return the bytes of a header's name; see ``name_from_bytes``.

    Raises:
        UnicodeEncodeError: a lone surrogate stands for no byte.
    """
    return name.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, eq=False)
class HeaderColumns:
    """The headers of many records, laid end to end: record ``i`` has the next ``counts[i]`` of them.

    Names are never null; values may be. A name is UTF-8, unless a producer sent other bytes: like a broker, this
    package does not check. In rows a name is text, as ``name_from_bytes`` returns it.

    Example: with counts of 2, 0 and 1, the first record has headers 0 and 1, the third one has header 2.
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
        """Return the headers of these records, ``None`` if no record has any."""
        if not any(rows):
            return None
        counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        pairs = [pair for row in rows for pair in row]
        names = BinaryColumn.from_list([name_to_bytes(name) for name, _ in pairs])
        return cls(counts, names, BinaryColumn.from_list([value for _, value in pairs]))

    @classmethod
    def concatenate(cls, headers: Sequence[HeaderColumns]) -> HeaderColumns:
        """Return the headers of all records, in order."""
        return cls(
            np.concatenate([part.counts for part in headers]),
            BinaryColumn.concatenate([part.names for part in headers]),
            BinaryColumn.concatenate([part.values for part in headers]),
        )

    @classmethod
    def none_for(cls, record_count: int) -> HeaderColumns:
        """Return the headers of ``record_count`` records that have none."""
        nothing = np.zeros(record_count, dtype=np.int64)
        return cls(nothing, BinaryColumn(b"", nothing[:1]), BinaryColumn(b"", nothing[:1]))

    def to_rows(self) -> list[tuple[tuple[str, bytes | None], ...]]:
        """Return the headers of each record, in order."""
        names = [name_from_bytes(name or b"") for name in self.names.to_list()]
        pairs = list(zip(names, self.values.to_list(), strict=True))
        ends = np.cumsum(self.counts).tolist()
        return [tuple(pairs[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def slice(self, start: int, end: int) -> HeaderColumns:
        """Return the headers of records ``[start, end)``."""
        before = int(self.counts[:start].sum())
        counts = self.counts[start:end]
        after = before + int(counts.sum())
        return HeaderColumns(counts, self.names.slice(before, after), self.values.slice(before, after))


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records in columns of equal length.

    ``offsets`` are absolute, ``timestamps`` ms since 1970. ``headers`` is absent if no record has any.

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
        """Return all records, in order. ``columns`` is not empty; a single element is returned as it is."""
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
        """Return records ``[start, end)``, over the same memory."""
        return RecordColumns(
            self.offsets[start:end],
            self.timestamps[start:end],
            self.keys.slice(start, end),
            self.values.slice(start, end),
            None if self.headers is None else self.headers.slice(start, end),
        )

    def __len__(self) -> int:
        return len(self.offsets)
