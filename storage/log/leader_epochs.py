"""The leader epochs of a partition, and the offsets at which they begin."""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from log_model.epochs import EpochEndOffset, EpochEntry
from log_model.errors import FencedLeaderEpochError, OffsetOutOfRangeError, UnknownLeaderEpochError
from log_model.offsets import LeaderEpoch, Offset
from storage.disk.checkpoint import (
    CorruptCheckpointError,
    checkpoint_content,
    parse_number,
    read_checkpoint,
    write_checkpoint,
)
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import NotDurableError, write_new_file

_EPOCH_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1

_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


# Most partitions never have another epoch, and share this tuple.
_FIRST_EPOCH = (EpochEntry(LeaderEpoch(0), Offset(0)),)


class LeaderEpochs:
    """The epochs of one partition with their start offsets, both strictly rising (spec E1).

    File: ``leader-epoch-checkpoint``, a checkpoint with the entries ``epoch startOffset``. With ``0 0`` and ``2 50``
    offsets 0 to 49 have epoch 0, later ones epoch 2.

    Thread: the partition's writer changes it; any thread reads. One assignment replaces the tuple, after the file.
    Durable: every change, when the call that makes it returns. If the disk refuses, nothing changed in memory.
    """

    __slots__ = ("_file_system", "_is_stale", "_path", "entries")

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        """Make it empty; ``load`` or ``assign`` fills it."""
        self._path = str(path)
        self._file_system = file_system
        self.entries: tuple[EpochEntry, ...] = ()
        """All epochs, oldest first. Only this class replaces the tuple."""
        self._is_stale = False

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self._path)

    @property
    def latest(self) -> EpochEntry | None:
        """The newest epoch, ``None`` if there is none."""
        entries = self.entries
        return entries[-1] if entries else None

    @property
    def current(self) -> LeaderEpoch:
        """The newest epoch, which is stamped into batches; 0 if there is none."""
        entries = self.entries
        return entries[-1].epoch if entries else LeaderEpoch(0)

    def load(self) -> None:
        """Read the entries from the file; a missing file has none.

        Raises:
            CorruptCheckpointError: the file is damaged, or epochs or offsets do not rise.
        """
        entries = tuple(read_checkpoint(self._file_system, self.path, _parse_entry))
        for earlier, later in pairwise(entries):
            if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
                raise CorruptCheckpointError(
                    f"{self.path}: epoch {later.epoch} from offset {later.start_offset} cannot follow "
                    f"epoch {earlier.epoch} from offset {earlier.start_offset}"
                )
        self.entries = _FIRST_EPOCH if entries == _FIRST_EPOCH else entries

    def begin(self) -> None:
        """Start with epoch 0 at offset 0 in a new directory. Durable: after a sync of its files and itself."""
        entries = _FIRST_EPOCH
        write_new_file(self._file_system, self.path, checkpoint_content(entries))
        self.entries = entries

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that ``epoch`` begins at ``start_offset``; call before its first record is appended.

        Does nothing if it is the latest epoch and began no later. Otherwise entries that contradict the new one are
        removed first: those with its epoch or a higher one, and those that start at its offset or above.

        Raises:
            ValueError: the epoch or the offset is negative.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} cannot start at offset {start_offset}: neither may be negative")
        latest = self.latest
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return
        kept = [entry for entry in self.entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._replace((*kept, EpochEntry(epoch, start_offset)))

    def assign_or_keep(
        self, epoch: LeaderEpoch, start_offset: Offset, run: Callable[[Callable[[], None]], None]
    ) -> None:
        """Call ``assign`` through ``run``, which may repeat it. If it fails, restore the file.

        If the file kept an epoch without records, the next start would truncate all records above its start offset.

        Raises:
            OSError: the system refused; EIO if the file may still have the epoch.
        """
        try:
            run(lambda: self.assign(epoch, start_offset))
        except OSError:
            if self._is_stale:
                try:
                    run(lambda: self._replace(self.entries))
                except OSError as second:
                    why = f"a leader epoch could not be begun, nor removed again: {second.strerror}"
                    raise OSError(errno.EIO, why, self._path) from second
            raise

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEndOffset | None:
        """Return the greatest epoch not above ``epoch`` that has records, and its end offset.

        The latest epoch ends at ``log_end_offset``. An epoch before the first one has no records itself, and ends where
        the first begins. ``None`` (the wire's -1, -1): unknown, because it is above the latest or negative.
        """
        entries = self.entries
        if not entries or epoch < 0 or epoch > entries[-1].epoch:
            return None
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        higher = bisect_right(entries, epoch, key=_epoch_of)
        found = entries[higher - 1].epoch if higher else epoch
        return EpochEndOffset(found, entries[higher].start_offset)

    def check_current(self, asked: int | None) -> None:
        """Compare a client's leader epoch with the current one; ``None`` is not compared (spec D11).

        Raises:
            FencedLeaderEpochError: it is older than the current one.
            UnknownLeaderEpochError: it is newer than the current one.
        """
        if asked is None or asked == self.current:
            return
        if asked < self.current:
            raise FencedLeaderEpochError(f"leader epoch {asked} is over, {self.current} is the current one")
        raise UnknownLeaderEpochError(f"leader epoch {asked} is not known here, {self.current} is the current one")

    def find_divergence(
        self, last_fetched_epoch: int, fetch_offset: Offset, *, log_start_offset: Offset, log_end_offset: Offset
    ) -> EpochEndOffset | None:
        """Return where a reader's log diverges from this one; ``None`` if it does not (spec E2, KIP-101).

        The reader has records up to ``fetch_offset``, the last of them of ``last_fetched_epoch``. If its log diverges,
        it truncates to the smaller of the returned end offset and its own end of that epoch.

        Raises:
            OffsetOutOfRangeError: the epoch is unknown, or ``fetch_offset`` lies below the log start.
        """
        end = self.end_offset_for(LeaderEpoch(last_fetched_epoch), log_end_offset)
        if end is None or fetch_offset < log_start_offset:
            why = f"leader epoch {last_fetched_epoch} is not known" if end is None else "it is below the log start"
            raise OffsetOutOfRangeError(
                f"offset {fetch_offset} cannot be continued: {why}",
                offset=fetch_offset,
                log_start_offset=log_start_offset,
                log_end_offset=log_end_offset,
            )
        diverges = end.epoch < last_fetched_epoch or end.end_offset < fetch_offset
        return end if diverges else None

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch in which the record at ``offset`` was written; ``None`` below the first entry."""
        entries = self.entries
        following = bisect_right(entries, offset, key=_start_of)
        return entries[following - 1].epoch if following else None

    def truncate_from_start(self, offset: Offset) -> None:
        """Forget epochs that end at or before ``offset``, the new log start; the epoch around it starts there."""
        entries = self.entries
        following = bisect_right(entries, offset, key=_start_of)
        if following:
            moved = EpochEntry(entries[following - 1].epoch, offset)
            self._replace((moved, *entries[following:]))

    def truncate_from_end(self, offset: Offset, stored: LeaderEpoch | None = None) -> None:
        """Forget epochs that start at ``offset``, the new log end, or above.

        If none is left, the epoch ``stored`` of the last batch in the files continues at ``offset``: that batch lies
        below the log start, and a batch of a lower epoch may never follow it. Kafka forgets it, because its controller
        assigns the next epoch; here the next batch gets the newest epoch of this file.
        """
        entries = self.entries
        kept = entries[: bisect_left(entries, offset, key=_start_of)]
        if not kept and stored is not None:
            kept = (EpochEntry(stored, offset),)
        self._replace(kept)

    def clear(self) -> None:
        """Forget all epochs."""
        self._replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries == self.entries and not self._is_stale:
            return
        try:
            write_checkpoint(self._file_system, self.path, entries)
        except NotDurableError:
            # The next start may still find the new entries.
            self._is_stale = True
            raise
        self.entries = entries
        self._is_stale = False


def _parse_entry(fields: list[str]) -> EpochEntry:
    if len(fields) != 2:
        raise ValueError("not an epoch and a start offset")
    return EpochEntry(LeaderEpoch(parse_number(fields[0], _EPOCH_MAX)), Offset(parse_number(fields[1], _OFFSET_MAX)))
