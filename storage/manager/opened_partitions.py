"""The list of the partitions that may have changed since they rested, on the disk before they change.

A start after an unclean stop recovers these, and leaves all others at rest. File ``<data>/rollway/opened-partitions``,
text: a line with the id of the ``resting-partitions`` for which the list holds, then a line for each addition. A line
begins with its checksum. An addition is ``<topic id> <partition>`` for an opened partition, or
``<topic id> new <first>`` for those that a topic got from this number on; commas part several. Only the last line may
be torn: the one before it was durable when it was written.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from crc32c import crc32c

from storage.disk.file_system import File, FileSystem
from storage.disk.whole_files import read_file, write_file_atomically

_FILE_BYTES_MAX = 1024 * 1024 * 1024
_HEAD = "rollway opened partitions 1 "
_NEW = "new"


@dataclass(slots=True)
class OpenedList:
    """The content of the list: by topic id, the opened partitions, and the first one that the topic got since."""

    resting_id: str
    opened: dict[str, set[int]] = field(default_factory=dict)
    new_from: dict[str, int] = field(default_factory=dict)

    def has(self, topic_id: str, partition: int) -> bool:
        """Return whether the partition may have changed."""
        return partition in self.opened.get(topic_id, ())

    def is_new(self, topic_id: str, partition: int) -> bool:
        """Return whether the partition was made since the list began, so that it is empty unless the list has it."""
        first = self.new_from.get(topic_id)
        return first is not None and partition >= first

    def add(self, topic_id: str, partition: int) -> None:
        """Add a partition that may have changed."""
        self.opened.setdefault(topic_id, set()).add(partition)

    def add_new(self, topic_id: str, first: int) -> None:
        """Add the partitions of a topic that were made from ``first`` on."""
        self.new_from[topic_id] = min(first, self.new_from.get(topic_id, first))


class OpenedPartitions:
    """Keeps the list of this run. It takes no additions before ``begin``.

    Thread: any. Additions that come together share an fsync.
    """

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._path = path
        self._writing = threading.Lock()
        self._waiting: list[str] = []
        self._list: OpenedList | None = None
        self._file: File | None = None
        self._size_bytes = 0

    def read(self) -> OpenedList | None:
        """Return the list of the run before; ``None`` if there is none, or a damaged one.

        Raises:
            OSError: the disk refused.
        """
        try:
            *lines, torn = read_file(self._file_system, self._path, _FILE_BYTES_MAX).split(b"\n")
        except FileNotFoundError:
            return None
        texts = [_checked(line) for line in lines]
        if not torn and texts and texts[-1] is None:
            # A torn line can end where a later one would. No change has waited for it.
            texts.pop()
        if not texts or None in texts:
            return None
        head, *additions = [text for text in texts if text is not None]
        if not head.startswith(_HEAD):
            return None
        found = OpenedList(head.removeprefix(_HEAD))
        try:
            for addition in additions:
                _take(found, addition.split(","))
        except ValueError:
            return None
        return found

    def begin(self, content: OpenedList) -> None:
        """Begin the list of this run. Durable: on return.

        Raises:
            OSError: the disk refused. The list of the run before may be there still.
        """
        with self._writing:
            self._list = content
            self._write_anew()

    def note(self, topic_id: str, partition: int) -> None:
        """Add a partition that is about to change. Durable: on return.

        Raises:
            OSError: the disk refused. The partition must stay as it is.
        """
        self._add(f"{topic_id} {partition}", lambda content: content.has(topic_id, partition))

    def note_new(self, topic_id: str, first: int) -> None:
        """Add the partitions that a topic has got from number ``first`` on, all empty. Durable: on return.

        Raises:
            OSError: the disk refused.
        """
        self._add(f"{topic_id} {_NEW} {first}", lambda content: content.is_new(topic_id, first))

    def forget(self, topic_id: str) -> None:
        """Leave a deleted topic out when the list is next written as a whole."""
        with self._writing:
            if self._list is not None:
                self._list.opened.pop(topic_id, None)
                self._list.new_from.pop(topic_id, None)

    def _add(self, item: str, is_there: Callable[[OpenedList], bool]) -> None:
        self._waiting.append(item)
        with self._writing:
            waiting, self._waiting = self._waiting, []
            if self._list is None or is_there(self._list):
                self._waiting += [each for each in waiting if each != item]
                return
            items = sorted({item, *waiting})
            try:
                self._write(items)
            except OSError:
                # The next addition writes another file: a failed fsync is not tried again (disk rule 3).
                self._close()
                raise
            _take(self._list, items)

    def _write(self, items: Iterable[str]) -> None:
        if self._file is None:
            self._write_anew()
        assert self._file is not None
        line = _line(",".join(items))
        self._file.write(self._size_bytes, [line])
        self._file.sync()
        self._size_bytes += len(line)

    def _write_anew(self) -> None:
        assert self._list is not None
        self._close()
        items = [
            f"{topic_id} {number}" for topic_id, numbers in self._list.opened.items() for number in sorted(numbers)
        ]
        items += [f"{topic_id} {_NEW} {first}" for topic_id, first in self._list.new_from.items()]
        content = _line(_HEAD + self._list.resting_id) + (_line(",".join(items)) if items else b"")
        write_file_atomically(self._file_system, self._path, content)
        self._file = self._file_system.open(self._path)
        self._size_bytes = len(content)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def _take(content: OpenedList, items: Iterable[str]) -> None:
    for item in items:
        match item.split(" "):
            case [topic_id, number]:
                content.add(topic_id, int(number))
            case [topic_id, "new", first]:
                content.add_new(topic_id, int(first))
            case _:
                raise ValueError(item)


def _line(text: str) -> bytes:
    return b"%08x %b\n" % (crc32c(text.encode()), text.encode())


def _checked(line: bytes) -> str | None:
    checksum, _, text = line.partition(b" ")
    return text.decode() if checksum == b"%08x" % crc32c(text) else None
