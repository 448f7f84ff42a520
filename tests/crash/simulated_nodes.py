"""What a ``SimulatedDisk`` is made of: files and directories, each as programs see it and as the disk has it."""

from __future__ import annotations

import random
from typing import NamedTuple

SECTOR_BYTES = 512
_ZERO_SECTOR = bytes(SECTOR_BYTES)


class FileNode:
    """A file's bytes: what programs see (``buffer[:size]``), what the disk has, and what lies between."""

    __slots__ = ("buffer", "durable", "has_lost", "lengths", "modified_ms", "pending", "size")

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.durable = content
        self.buffer: bytes | bytearray = content
        self.size = len(content)
        self.pending: dict[int, list[bytes]] = {}
        self.lengths: list[int] = []
        self.modified_ms = modified_ms
        self.has_lost = False

    @property
    def is_dirty(self) -> bool:
        return bool(self.pending or self.lengths)

    def copy(self) -> FileNode:
        twin = FileNode(self.durable, self.modified_ms)
        twin.buffer = bytes(memoryview(self.buffer)[: self.size])
        twin.size = self.size
        twin.pending = {sector: list(states) for sector, states in self.pending.items()}
        twin.lengths = list(self.lengths)
        twin.has_lost = self.has_lost
        return twin

    def make_room(self, size: int) -> bytearray:
        """A writable buffer of at least ``size`` bytes, zeros behind the file's end."""
        buffer = self.buffer
        if isinstance(buffer, bytearray) and len(buffer) >= size:
            return buffer
        larger = bytearray(max(size, self.size, 2 * len(buffer) if isinstance(buffer, bytearray) else 0))
        larger[: self.size] = memoryview(buffer)[: self.size]
        self.buffer = larger
        return larger

    def put(self, position: int, part: memoryview) -> None:
        end = position + len(part)
        self.make_room(end)[position:end] = part
        if end > self.size:
            self.size = end
            self.lengths.append(end)
        self.note_sectors(position, end)

    def note_sectors(self, start: int, end: int) -> None:
        """Remember how the sectors of ``[start, end)`` look now: each may be found so after a power cut."""
        for sector in range(start // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES):
            at = sector * SECTOR_BYTES
            state = bytes(memoryview(self.buffer)[at : min(at + SECTOR_BYTES, self.size)])
            self.pending.setdefault(sector, []).append(state)

    def set_size(self, size: int) -> None:
        if size < self.size:
            old_size, self.size = self.size, size
            buffer = self.make_room(old_size)
            buffer[size:old_size] = bytes(old_size - size)
            if size % SECTOR_BYTES:
                self.note_sectors(size - 1, size)
            for sector in range((size + SECTOR_BYTES - 1) // SECTOR_BYTES, (old_size - 1) // SECTOR_BYTES + 1):
                self.pending.setdefault(sector, []).append(_ZERO_SECTOR)
            self.lengths.append(size)
        elif size > self.size:
            self.make_room(size)
            self.size = size
            self.lengths.append(size)

    def sync(self) -> None:
        if self.is_dirty:
            self.durable = self._on_disk({sector: states[-1] for sector, states in self.pending.items()}, self.size)
            self.drop_dirty()

    def drop_dirty(self) -> None:
        self.pending = {}
        self.lengths = []
        self.has_lost = False

    def lose_dirty(self) -> None:
        """Drop what is not synced, and let the next sync of this file tell of it."""
        self.drop_dirty()
        self.has_lost = True

    def _on_disk(self, sectors: dict[int, bytes], length: int) -> bytes:
        content = bytearray(self.durable)
        for sector, state in sectors.items():
            at = sector * SECTOR_BYTES
            if len(content) < at:
                content.extend(bytes(at - len(content)))
            content[at : at + SECTOR_BYTES] = state.ljust(SECTOR_BYTES, b"\0")
        if len(content) < length:
            content.extend(bytes(length - len(content)))
        return bytes(memoryview(content)[:length])

    def after_power_cut(self, choice: Choice) -> FileNode:
        if not self.is_dirty:
            return FileNode(self.durable, self.modified_ms)
        sectors = {}
        for sector, states in self.pending.items():
            survivor = choice.of(len(states), choice.keep_data)
            if survivor:
                sectors[sector] = states[survivor - 1]
        survivor = choice.of(len(self.lengths), choice.keep_lengths)
        length = self.lengths[survivor - 1] if survivor else len(self.durable)
        return FileNode(self._on_disk(sectors, length), self.modified_ms)


class DirectoryNode:
    """Names, as programs see them and as the disk has them."""

    __slots__ = ("durable", "entries", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = modified_ms


Node = FileNode | DirectoryNode


class NameChange(NamedTuple):
    """Names that change in one step: of ``node``, in up to two directories."""

    node: Node
    changes: tuple[tuple[DirectoryNode, str, Node | None], ...]


class Choice:
    """What survives a power cut, drawn from ``random``; ``drawn`` tells one outcome from another."""

    def __init__(self, source: random.Random, keep_data: float, keep_lengths: float, keep_names: float) -> None:
        self._source = source
        self.keep_data = keep_data
        self.keep_lengths = keep_lengths
        self.keep_names = keep_names
        self.drawn: list[int] = []

    def of(self, state_count: int, keep: float) -> int:
        """0: the synced state; k: the k-th since. ``keep`` is the chance of any but the first."""
        if not state_count:
            return 0
        survivor = 0
        if keep >= 1 or (keep > 0 and self._source.random() < keep):
            last_only = keep >= 1 or state_count == 1 or self._source.random() < 0.5
            survivor = state_count if last_only else self._source.randint(1, state_count)
        self.drawn.append(survivor)
        return survivor
