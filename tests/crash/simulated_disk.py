"""A disk in memory that can crash before any operation, lose what was not synced, and fail on demand.

It stands in for ``storage.disk.file_system``. Every operation that changes something is counted and logged. At any
moment ``images`` builds disks as a power cut would leave them:

* what was synced is exact;
* every 512-byte sector of a file holds what was synced or what it held after any one of the writes since, each
  sector on its own: that covers writes lost, kept, reordered and torn;
* the length of a file is the synced one or any it had since, and a part that never arrived reads as zeros;
* a name that was made, renamed or removed since its directory was synced is in the old or in the new state.
  Changes of different files survive in any combination, those of one file in their order; a rename is one step.

An image of a killed process keeps everything that was written, and also what of it is not yet synced: a power
cut may still follow. A failed sync drops its dirty pages: reading shows them, the disk never gets them, and the
next sync says all is well (disk rules 3 and 4). A failed sync of the whole disk does that to every file, and then the
next sync of each file fails once. Not simulated: times of access, permissions, links. One thread.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from log_model.clock import Clock, ManualClock
from tests.crash.disk_faults import Fault, Operation, os_error
from tests.crash.simulated_file import SimulatedFile
from tests.crash.simulated_nodes import Choice, DirectoryNode, FileNode, NameChange, Node

SMALL_INDEXES: dict[str, object] = {"segment.index.bytes": 24_000}
"""Topic defaults for logs on a disk in memory. It keeps every byte of a hole, so Kafka's indexes of 10 MiB cost most of
the time of a test that makes a partition."""


class SimulatedCrash(BaseException):
    """The machine stops here. No ``Exception``: nothing of the program may catch it."""


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

    def renew(self) -> bool:
        return False

    def release(self) -> None:
        self._held.discard(self._path)


class SimulatedWholeSync:
    """A sync of a whole ``SimulatedDisk``."""

    def __init__(self, disk: SimulatedDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_all(self._path)

    def close(self) -> None: ...


@dataclass(slots=True)
class _State:
    """What makes one disk: the tree, and the name changes that are not synced."""

    root: DirectoryNode
    pending_names: list[NameChange] = field(default_factory=list)


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
        self._state = state or _State(DirectoryNode(self._clock.now_ms()))
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
            raise os_error(fault, path)

    def touch(self, node: Node) -> None:
        node.modified_ms = self._clock.now_ms()

    # FileSystem

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> SimulatedFile:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if create:
            if node is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            self._begin_or_fail("create", path)
            node = FileNode(b"", self._clock.now_ms())
            self._change_names(node, (directory, name, node))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimulatedFile(self, path, node, writable=writable)

    def make_directory(self, path: Path) -> None:
        directory, name = self._parent(path)
        found = directory.entries.get(name)
        if isinstance(found, DirectoryNode):
            return
        if found is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._begin_or_fail("make_directory", path)
        node = DirectoryNode(self._clock.now_ms())
        self._change_names(node, (directory, name, node))

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: Path) -> bool:
        return self.find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self.find(path), DirectoryNode)

    def size(self, path: Path) -> int:
        node = self._get(path)
        return node.size if isinstance(node, FileNode) else 4096

    def modified_ms(self, path: Path) -> int:
        return self._get(path).modified_ms

    def rename(self, source: Path, target: Path) -> None:
        source_directory, source_name = self._parent(source)
        target_directory, target_name = self._parent(target)
        node = self._get(source)
        replaced = target_directory.entries.get(target_name)
        if isinstance(replaced, DirectoryNode) and (replaced.entries or not isinstance(node, DirectoryNode)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        self._begin_or_fail("rename", target)
        self._change_names(node, (source_directory, source_name, None), (target_directory, target_name, node))

    def unlink(self, path: Path) -> None:
        directory, name = self._parent(path)
        node = self._get(path)
        if isinstance(node, DirectoryNode):
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

    def whole_sync(self, path: Path) -> SimulatedWholeSync:
        return SimulatedWholeSync(self, path)

    def sync_all(self, path: Path) -> None:
        """Sync every file and every name. If that fails, the bytes are gone, and each file's next sync fails too."""
        fault = self.begin("sync_all", path)
        for node in self._files(self._state.root):
            if fault is not None and node.is_dirty:
                node.lose_dirty()
            elif not node.has_lost:
                node.sync()
        if fault is not None:
            raise os_error(fault, path)
        for change in self._state.pending_names:
            for place, name, entry in change.changes:
                _set_name(place.durable, name, entry)
        self._state.pending_names = []

    def lock(self, path: Path) -> _SimulatedLock:
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "held by another process", str(path))
        if not self.exists(path):
            self.open(path, create=True).close()
        self._locked.add(path)
        return _SimulatedLock(self._locked, path)

    def before_writing(self, work: Callable[[], None]) -> None: ...  # it is never read-only

    def is_locked(self, path: Path) -> bool:
        return path in self._locked

    # Names

    def _change_names(self, node: Node, *changes: tuple[DirectoryNode, str, Node | None]) -> None:
        for directory, name, new in changes:
            _set_name(directory.entries, name, new)
            self.touch(directory)
        self._state.pending_names.append(NameChange(node, changes))

    def _get(self, path: Path, names: Sequence[str] | None = None) -> Node:
        """What ``path`` leads to, or the first ``names`` of it."""
        self.check_alive()
        node: Any = self._state.root
        try:
            for name in path.parts[1:] if names is None else names:
                node = node.entries[name]
        except (KeyError, AttributeError) as error:  # a file has no entries
            number = errno.ENOENT if isinstance(error, KeyError) else errno.ENOTDIR
            raise OSError(number, os.strerror(number), str(path)) from None
        return node

    def find(self, path: Path) -> Node | None:
        """What ``path`` leads to."""
        try:
            return self._get(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _directory(self, path: Path, names: Sequence[str] | None = None) -> DirectoryNode:
        node = self._get(path, names)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def _parent(self, path: Path) -> tuple[DirectoryNode, str]:
        _, *names, name = path.parts
        return self._directory(path, names), name

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
            choice = Choice(source, *keep)
            disk = self.power_cut(choice)
            outcome = tuple(choice.drawn)
            if outcome not in seen:
                seen.add(outcome)
                yield CrashImage(f"power cut {keep} {list(outcome)}", disk)

    def killed(self) -> SimulatedDisk:
        """The disk after the process died: all that was written is there, synced or not."""
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            twin = copies.get(id(node))
            if twin is None:
                if isinstance(node, FileNode):
                    twin = copies[id(node)] = node.copy()
                else:
                    twin = copies[id(node)] = DirectoryNode(node.modified_ms)
                    twin.entries = {name: copy(entry) for name, entry in node.entries.items()}
                    twin.durable = {name: copy(entry) for name, entry in node.durable.items()}
            return twin

        root = copy(self._state.root)
        assert isinstance(root, DirectoryNode)
        pending = []
        for change in self._state.pending_names:
            changes = tuple((copy(d), name, None if node is None else copy(node)) for d, name, node in change.changes)
            pending.append(NameChange(copy(change.node), changes))  # type: ignore[arg-type]
        return SimulatedDisk(self._clock, state=_State(root, pending))

    def power_cut(self, choice: Choice | None = None) -> SimulatedDisk:
        """The disk after the power failed; without a choice all that is unsynced is lost."""
        choice = choice or Choice(random.Random(0), 0, 0, 0)
        names = self._names_after_power_cut(choice)
        made: dict[int, FileNode] = {}

        def rebuild(directory: DirectoryNode) -> DirectoryNode:
            twin = DirectoryNode(directory.modified_ms)
            for name, node in names.get(id(directory), directory.durable).items():
                if isinstance(node, DirectoryNode):
                    twin.entries[name] = rebuild(node)
                else:
                    if id(node) not in made:
                        made[id(node)] = node.after_power_cut(choice)
                    twin.entries[name] = made[id(node)]
            twin.durable = dict(twin.entries)
            return twin

        return SimulatedDisk(self._clock, state=_State(rebuild(self._state.root)))

    def _names_after_power_cut(self, choice: Choice) -> dict[int, dict[str, Node]]:
        names: dict[int, dict[str, Node]] = {}
        lost: set[int] = set()
        for change in self._state.pending_names:
            if id(change.node) in lost or not choice.of(1, choice.keep_names):
                lost.add(id(change.node))
                continue
            for directory, name, node in change.changes:
                _set_name(names.setdefault(id(directory), dict(directory.durable)), name, node)
        return names

    def _files(self, directory: DirectoryNode) -> Iterator[FileNode]:
        for node in directory.entries.values():
            if isinstance(node, DirectoryNode):
                yield from self._files(node)
            else:
                yield node

    def tree(self) -> dict[str, bytes]:
        """Every file's content by its path, as programs see it; directories end in ``/``."""
        found: dict[str, bytes] = {}

        def walk(directory: DirectoryNode, at: str) -> None:
            for name, node in sorted(directory.entries.items()):
                if isinstance(node, DirectoryNode):
                    found[f"{at}{name}/"] = b""
                    walk(node, f"{at}{name}/")
                else:
                    found[f"{at}{name}"] = bytes(memoryview(node.buffer)[: node.size])

        walk(self._state.root, "/")
        return found

    def fingerprint(self) -> bytes:
        """32 bytes that are the same for two disks only if no program and no crash can tell them apart."""
        contents = hashlib.blake2b(digest_size=32)
        facts: list[object] = []
        numbers: dict[int, int] = {}

        def number_of(node: Node | None) -> int:
            return -1 if node is None else numbers.setdefault(id(node), len(numbers))

        def walk(node: Node) -> None:
            nonlocal facts
            is_known = id(node) in numbers
            facts.append(number_of(node))
            if is_known:
                return
            if isinstance(node, FileNode):
                facts += [node.size, len(node.durable), node.modified_ms, node.lengths, sorted(node.pending.items())]
                facts.append(node.has_lost)
                contents.update(memoryview(node.buffer)[: node.size])
                contents.update(node.durable)
                return
            facts += [node.modified_ms, len(node.entries), len(node.durable)]
            for names in (node.entries, node.durable):
                for name, entry in sorted(names.items()):
                    facts.append(name)
                    walk(entry)

        walk(self._state.root)
        for change in self._state.pending_names:
            changes = [(number_of(d), name, number_of(node)) for d, name, node in change.changes]
            facts += [number_of(change.node), changes]
        return hashlib.blake2b(contents.digest() + repr(facts).encode(), digest_size=32).digest()

    def damage(self, path: Path, content: bytes | None) -> None:
        """Replace a file's bytes behind everybody's back, on the disk too; ``None`` removes it."""
        directory, name = self._parent(path)
        if content is None:
            directory.entries.pop(name, None)
            directory.durable.pop(name, None)
        else:
            node = FileNode(content, self._clock.now_ms())
            directory.entries[name] = node
            directory.durable[name] = node


def _set_name(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node
