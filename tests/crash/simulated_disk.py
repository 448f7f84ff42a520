"""A disk in memory that can crash before any operation, lose what was not synced, and fail on demand.

It stands in for ``storage.file_system``. Every operation that changes something is counted and logged. At any
moment ``images`` builds disks as a power cut would leave them:

* what was synced is exact;
* every 512-byte sector of a file holds what was synced or what it held after any one of the writes since, each
  sector on its own: that covers writes lost, kept, reordered and torn;
* the length of a file is the synced one or any it had since, and a part that never arrived reads as zeros;
* a name that was made, renamed or removed since its directory was synced is in the old or in the new state.
  Changes of different files survive in any combination, those of one file in their order; a rename is one step.

An image of a killed process keeps everything that was written, and also what of it is not yet synced: a power
cut may still follow. A failed sync drops its dirty pages: reading shows them, the disk never gets them, and the
next sync says all is well (reliability, rules 3 and 4).

One thread. Not simulated: times of access, permissions, links.
"""

from __future__ import annotations

import errno
import io
import os
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from storage.clock import Clock, ManualClock

SECTOR_BYTES = 512
_ZERO_SECTOR = bytes(SECTOR_BYTES)


class SimulatedCrash(BaseException):
    """The machine stops here. No ``Exception``: nothing of the program may catch it."""


class MappedShrinkError(AssertionError):
    """A file became shorter than a live mapping of it: a real process dies of SIGBUS when it reads there."""


class Operation(NamedTuple):
    """One operation that changes the disk; ``number`` counts from 0."""

    number: int
    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.number} {self.kind} {self.path.name}"


@dataclass(slots=True)
class Fault:
    """Let one operation fail with ``error``: the one numbered ``at`` of those since the fault was set, from 0.

    With ``lasting`` all later ones fail too. Only operations of ``kinds`` fail, if given; all are counted, also
    when the fault moves to another disk. ``written`` is the part of a failing write that reaches the file, 0 to 1.
    """

    at: int
    error: int = errno.EIO
    written: float = 0.5
    lasting: bool = False
    kinds: frozenset[str] | None = None
    hits: int = 0
    seen: int = 0
    struck: str = ""

    def strikes(self, kind: str, path: Path) -> bool:
        number, self.seen = self.seen, self.seen + 1
        if number != self.at and not (self.lasting and number > self.at):
            return False
        if self.kinds is not None and kind not in self.kinds:
            return False
        self.hits += 1
        self.struck = f"{kind} {path.name}"
        return True


FULL_DISK_KINDS = frozenset({"extend", "make_directory"})
"""What a full disk refuses for sure: there are no more blocks, but overwriting and small changes of names go on."""

SPACE_KINDS = FULL_DISK_KINDS | {"create", "write", "truncate", "sync", "rename"}
"""What a disk without space may refuse; removing, cutting and syncing a directory need none."""


class _FileNode:
    """A file's bytes: what programs see (``buffer[:size]``), what the disk has, and what lies between."""

    __slots__ = ("buffer", "durable", "lengths", "mappings", "modified_ms", "older_buffers", "pending", "size")

    def __init__(self, content: bytes, modified_ms: int) -> None:
        self.durable = content
        self.buffer: bytes | bytearray = content
        self.size = len(content)
        self.pending: dict[int, list[bytes]] = {}
        self.lengths: list[int] = []
        self.mappings: list[tuple[weakref.ref[np.ndarray], int]] = []
        self.older_buffers: list[bytearray] = []
        self.modified_ms = modified_ms

    @property
    def is_dirty(self) -> bool:
        return bool(self.pending or self.lengths)

    def copy(self) -> _FileNode:
        twin = _FileNode(self.durable, self.modified_ms)
        twin.buffer = bytes(memoryview(self.buffer)[: self.size])
        twin.size = self.size
        twin.pending = {sector: list(states) for sector, states in self.pending.items()}
        twin.lengths = list(self.lengths)
        return twin

    def make_room(self, size: int) -> bytearray:
        """A writable buffer of at least ``size`` bytes, zeros behind the file's end."""
        buffer = self.buffer
        if isinstance(buffer, bytearray) and len(buffer) >= size:
            return buffer
        larger = bytearray(max(size, self.size, 2 * len(buffer) if isinstance(buffer, bytearray) else 0))
        larger[: self.size] = memoryview(buffer)[: self.size]
        if isinstance(buffer, bytearray) and any(mapping() is not None for mapping, _ in self.mappings):
            self.older_buffers.append(buffer)
        self.buffer = larger
        return larger

    def put(self, position: int, part: memoryview) -> None:
        end = position + len(part)
        self.make_room(end)[position:end] = part
        for older in self.older_buffers:
            if position < len(older):
                shown = min(end, len(older))
                memoryview(older)[position:shown] = part[: shown - position]
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
            self.mappings = [entry for entry in self.mappings if entry[0]() is not None]
            if any(mapped > size for _, mapped in self.mappings):
                raise MappedShrinkError(f"cut to {size} bytes under a mapping of {max(m for _, m in self.mappings)}")
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

    def map(self, size: int) -> memoryview:
        # The array stands between view and buffer: it lives exactly as long as the view or a view made of it.
        shown = np.frombuffer(self.make_room(size), dtype=np.uint8, count=size)
        shown.flags.writeable = False
        self.mappings.append((weakref.ref(shown), size))
        return memoryview(shown)

    def sync(self) -> None:
        if self.is_dirty:
            self.durable = self._on_disk({sector: states[-1] for sector, states in self.pending.items()}, self.size)
            self.drop_dirty()

    def drop_dirty(self) -> None:
        self.pending = {}
        self.lengths = []

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

    def after_power_cut(self, choice: _Choice) -> _FileNode:
        if not self.is_dirty:
            return _FileNode(self.durable, self.modified_ms)
        sectors = {}
        for sector, states in self.pending.items():
            survivor = choice.of(len(states), choice.keep_data)
            if survivor:
                sectors[sector] = states[survivor - 1]
        survivor = choice.of(len(self.lengths), choice.keep_lengths)
        length = self.lengths[survivor - 1] if survivor else len(self.durable)
        return _FileNode(self._on_disk(sectors, length), self.modified_ms)


class _DirectoryNode:
    """Names, as programs see them and as the disk has them."""

    __slots__ = ("durable", "entries", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.modified_ms = modified_ms


_Node = _FileNode | _DirectoryNode


class _NameChange(NamedTuple):
    """Names that change in one step: of ``node``, in up to two directories."""

    node: _Node
    changes: tuple[tuple[_DirectoryNode, str, _Node | None], ...]


class _Choice:
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


_EXTREMES: list[tuple[float, float, float]] = [(0, 0, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1), (0, 0, 1)]
"""Chances that bytes, lengths and names survive."""


class CrashImage(NamedTuple):
    """A disk as a crash could have left it, and a name for that outcome."""

    label: str
    disk: SimulatedDisk


class _SimulatedLock:
    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedFile:
    """One open file of a ``SimulatedDisk``."""

    def __init__(self, disk: SimulatedDisk, path: Path, node: _FileNode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._node: _FileNode | None = node
        self._writable = writable

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def _open_node(self) -> _FileNode:
        if self._node is None:
            raise ValueError(f"{self._path} is closed")
        return self._node

    def _writable_node(self) -> _FileNode:
        node = self._open_node()
        if not self._writable:
            raise OSError(errno.EBADF, "opened for reading only", str(self._path))
        return node

    def size(self) -> int:
        return self._open_node().size

    def read(self, position: int, length: int) -> bytes:
        if position < 0 or length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        node = self._open_node()
        self._disk.check_alive()
        return bytes(memoryview(node.buffer)[position : min(position + length, node.size)])

    def read_cached(self, position: int, length: int) -> bytes | bytearray | None:
        return self.read(position, length)

    def write(self, position: int, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        node = self._writable_node()
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        content = b"".join(parts)
        if not content:
            return
        kind = "extend" if position + len(content) > node.size else "write"
        fault = self._disk.begin(kind, self._path)
        if fault is not None:
            arrived = memoryview(content)[: int(len(content) * fault.written)]
            if arrived:
                self._disk.touch(node)
                node.put(position, arrived)
            raise _os_error(fault, self._path)
        self._disk.touch(node)
        node.put(position, memoryview(content))

    def truncate(self, size: int) -> None:
        node = self._writable_node()
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        kind = "truncate" if size >= node.size else "cut"
        fault = self._disk.begin(kind, self._path)
        if fault is not None:
            raise _os_error(fault, self._path)
        self._disk.touch(node)
        try:
            node.set_size(size)
        except MappedShrinkError as error:
            self._disk.violations.append(f"{self._path}: {error}")
            raise

    def sync(self) -> None:
        node = self._open_node()
        fault = self._disk.begin("sync", self._path)
        if fault is not None:
            node.drop_dirty()
            raise _os_error(fault, self._path)
        node.sync()

    def map(self, size: int) -> memoryview:
        node = self._open_node()
        if size > node.size:
            raise AssertionError(f"{self._path}: a mapping of {size} bytes over a file of {node.size}")
        return node.map(size) if size else memoryview(b"")

    def close(self) -> None:
        self._node = None


@dataclass(slots=True)
class _State:
    """What makes one disk: the tree, and the name changes that are not synced."""

    root: _DirectoryNode
    pending_names: list[_NameChange] = field(default_factory=list)


class SimulatedDisk:
    """A ``FileSystem`` in memory. ``/`` exists.

    Attributes:
        crash_at: number of the operation before which the machine stops; nothing works afterwards.
        fault: which operation fails, and how.
        before_operation: called before each operation takes effect, to look at ``images`` there.
        on_crash: called when the machine stops, also when a task that nobody asks is what it stopped under.
        operations: what was done.
        violations: what a real disk would have answered with a dead process.
    """

    def __init__(self, clock: Clock | None = None, *, state: _State | None = None) -> None:
        self._clock = clock or ManualClock()
        self._state = state or _State(_DirectoryNode(self._clock.now_ms()))
        self._locked: set[Path] = set()
        self._dead = False
        self.crash_at: int | None = None
        self.fault: Fault | None = None
        self.before_operation: Callable[[Operation], None] | None = None
        self.on_crash: Callable[[], None] | None = None
        self.operations: list[Operation] = []
        self.violations: list[str] = []

    # Counting, crashing, failing

    def check_alive(self) -> None:
        if self._dead:
            raise SimulatedCrash("the machine has stopped")

    def begin(self, kind: str, path: Path) -> Fault | None:
        """Count an operation. Returns the fault it must end with, if any."""
        self.check_alive()
        operation = Operation(len(self.operations), kind, path)
        if self.before_operation is not None:
            self.before_operation(operation)
        if self.crash_at is not None and operation.number >= self.crash_at:
            self._dead = True
            if self.on_crash is not None:
                self.on_crash()
            raise SimulatedCrash(f"before operation {operation}")
        self.operations.append(operation)
        if self.fault is not None and self.fault.strikes(kind, path):
            return self.fault
        return None

    def _begin_or_fail(self, kind: str, path: Path) -> None:
        fault = self.begin(kind, path)
        if fault is not None:
            raise _os_error(fault, path)

    def touch(self, node: _Node) -> None:
        node.modified_ms = self._clock.now_ms()

    # FileSystem

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> SimulatedFile:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if create:
            if node is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            self._begin_or_fail("create", path)
            node = _FileNode(b"", self._clock.now_ms())
            self._change_names(node, (directory, name, node))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimulatedFile(self, path, node, writable=writable)

    def make_directory(self, path: Path) -> None:
        directory, name = self._parent(path)
        found = directory.entries.get(name)
        if isinstance(found, _DirectoryNode):
            return
        if found is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._begin_or_fail("make_directory", path)
        node = _DirectoryNode(self._clock.now_ms())
        self._change_names(node, (directory, name, node))

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), _DirectoryNode)

    def size(self, path: Path) -> int:
        node = self._get(path)
        return node.size if isinstance(node, _FileNode) else 4096

    def modified_ms(self, path: Path) -> int:
        return self._get(path).modified_ms

    def rename(self, source: Path, target: Path) -> None:
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        node = self._get(source)
        replaced = target_directory.entries.get(target_name)
        if isinstance(replaced, _DirectoryNode) and (replaced.entries or not isinstance(node, _DirectoryNode)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        self._begin_or_fail("rename", target)
        self._change_names(node, (source_directory, source_name, None), (target_directory, target_name, node))

    def unlink(self, path: Path) -> None:
        directory, name = self._parent(path)
        node = self._get(path)
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        self._begin_or_fail("unlink", path)
        self._change_names(node, (directory, name, None))

    def remove_directory(self, path: Path) -> None:
        directory, name = self._parent(path)
        node = self._directory(path)
        if node.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._begin_or_fail("remove_directory", path)
        self._change_names(node, (directory, name, None))

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self._begin_or_fail("sync_directory", path)
        left = []
        for change in self._state.pending_names:
            if any(place is directory for place, _, _ in change.changes):
                for place, name, node in change.changes:
                    _set_name(place.durable, name, node)
            else:
                left.append(change)
        self._state.pending_names = left

    def lock(self, path: Path) -> _SimulatedLock:
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "held by another process", str(path))
        if not self.exists(path):
            self.open(path, create=True).close()
        self._locked.add(path)
        return _SimulatedLock(self._locked, path)

    def is_locked(self, path: Path) -> bool:
        return path in self._locked

    # Names

    def _change_names(self, node: _Node, *changes: tuple[_DirectoryNode, str, _Node | None]) -> None:
        for directory, name, new in changes:
            _set_name(directory.entries, name, new)
            self.touch(directory)
        self._state.pending_names.append(_NameChange(node, changes))

    def _get(self, path: Path) -> _Node:
        self.check_alive()
        node: _Node | None = self._state.root
        for name in path.parts[1:]:
            if not isinstance(node, _DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            node = node.entries.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _find(self, path: Path) -> _Node | None:
        try:
            return self._get(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _directory(self, path: Path) -> _DirectoryNode:
        node = self._get(path)
        if not isinstance(node, _DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def _parent(self, path: Path) -> tuple[_DirectoryNode, str]:
        return self._directory(path.parent), path.name

    # Crashes

    @property
    def has_unsynced(self) -> bool:
        """Whether a power cut now could lose anything."""
        return bool(self._state.pending_names) or any(node.is_dirty for node in self._files(self._state.root))

    def images(self, seed: int, count: int) -> Iterator[CrashImage]:
        """Up to ``count`` different disks as a crash at this moment could leave them, drawn from ``seed``.

        The first is that of a killed process. Of the power cuts every third is an extreme: all that is unsynced
        lost, or kept; names kept but bytes lost; bytes kept but names lost; length kept but bytes lost. When
        everything is synced there is one image.
        """
        if not self.has_unsynced:
            yield CrashImage("everything was synced", self.power_cut())
            return
        source = random.Random(seed)
        yield CrashImage("process killed", self.killed())
        seen: set[tuple[int, ...]] = set()
        extremes = source.sample(_EXTREMES, len(_EXTREMES))
        for attempt in range(3 * count):
            if len(seen) + 1 >= count:
                return
            if attempt % 3 == 0 and extremes:
                keep = extremes.pop()
            else:
                keep = (source.choice((0.2, 0.5, 0.9)), source.choice((0.5, 1)), source.choice((0.3, 0.7, 1)))
            choice = _Choice(source, *keep)
            disk = self.power_cut(choice)
            outcome = tuple(choice.drawn)
            if outcome not in seen:
                seen.add(outcome)
                yield CrashImage(f"power cut {keep} {list(outcome)}", disk)

    def killed(self) -> SimulatedDisk:
        """The disk after the process died: all that was written is there, synced or not."""
        copies: dict[int, _Node] = {}

        def copy(node: _Node) -> _Node:
            twin = copies.get(id(node))
            if twin is None:
                if isinstance(node, _FileNode):
                    twin = copies[id(node)] = node.copy()
                else:
                    twin = copies[id(node)] = _DirectoryNode(node.modified_ms)
                    twin.entries = {name: copy(entry) for name, entry in node.entries.items()}
                    twin.durable = {name: copy(entry) for name, entry in node.durable.items()}
            return twin

        root = copy(self._state.root)
        assert isinstance(root, _DirectoryNode)
        pending = []
        for change in self._state.pending_names:
            changes = tuple((copy(d), name, None if node is None else copy(node)) for d, name, node in change.changes)
            pending.append(_NameChange(copy(change.node), changes))  # type: ignore[arg-type]
        return SimulatedDisk(self._clock, state=_State(root, pending))

    def power_cut(self, choice: _Choice | None = None) -> SimulatedDisk:
        """The disk after the power failed; without a choice all that is unsynced is lost."""
        choice = choice or _Choice(random.Random(0), 0, 0, 0)
        names = self._names_after_power_cut(choice)
        made: dict[int, _FileNode] = {}

        def rebuild(directory: _DirectoryNode) -> _DirectoryNode:
            twin = _DirectoryNode(directory.modified_ms)
            for name, node in names.get(id(directory), directory.durable).items():
                if isinstance(node, _DirectoryNode):
                    twin.entries[name] = rebuild(node)
                else:
                    if id(node) not in made:
                        made[id(node)] = node.after_power_cut(choice)
                    twin.entries[name] = made[id(node)]
            twin.durable = dict(twin.entries)
            return twin

        return SimulatedDisk(self._clock, state=_State(rebuild(self._state.root)))

    def _names_after_power_cut(self, choice: _Choice) -> dict[int, dict[str, _Node]]:
        names: dict[int, dict[str, _Node]] = {}
        lost: set[int] = set()
        for change in self._state.pending_names:
            if id(change.node) in lost or not choice.of(1, choice.keep_names):
                lost.add(id(change.node))
                continue
            for directory, name, node in change.changes:
                _set_name(names.setdefault(id(directory), dict(directory.durable)), name, node)
        return names

    def _files(self, directory: _DirectoryNode) -> Iterator[_FileNode]:
        for node in directory.entries.values():
            if isinstance(node, _DirectoryNode):
                yield from self._files(node)
            else:
                yield node

    def tree(self) -> dict[str, bytes]:
        """Every file's content by its path, as programs see it; directories end in ``/``."""
        found: dict[str, bytes] = {}

        def walk(directory: _DirectoryNode, at: str) -> None:
            for name, node in sorted(directory.entries.items()):
                if isinstance(node, _DirectoryNode):
                    found[f"{at}{name}/"] = b""
                    walk(node, f"{at}{name}/")
                else:
                    found[f"{at}{name}"] = bytes(memoryview(node.buffer)[: node.size])

        walk(self._state.root, "/")
        return found

    def damage(self, path: Path, content: bytes | None) -> None:
        """Replace a file's bytes behind everybody's back, on the disk too; ``None`` removes it."""
        directory, name = self._parent(path)
        if content is None:
            directory.entries.pop(name, None)
            directory.durable.pop(name, None)
        else:
            node = _FileNode(content, self._clock.now_ms())
            directory.entries[name] = node
            directory.durable[name] = node


def _set_name(entries: dict[str, _Node], name: str, node: _Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _os_error(fault: Fault, path: Path) -> OSError:
    return OSError(fault.error, os.strerror(fault.error), str(path))
