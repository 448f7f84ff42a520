"""A data directory with a small journal on a simulated disk, and what its logs must have after a crash."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from log_model.clock import ManualClock
from log_model.errors import PartitionFailedError
from log_model.reads import Isolation
from storage.journal.entries import BLOCK_BYTES
from storage.journal.journal import Journal
from storage.journal.journal_files import JournalLimits
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Fault
from tests.crash.ledger import DATA_DIR, EVERYTHING
from tests.crash.simulated_disk import SMALL_INDEXES, SimulatedDisk
from tests.crash.workload import new_disk
from tests.support.writers import append_request

JOURNAL_DIRECTORY = DATA_DIR / "rollway" / "journal"
META_PROPERTIES = DATA_DIR / "logs" / "meta.properties"
SMALL = JournalLimits(file_count_max=3, file_bytes=4 * BLOCK_BYTES, step_bytes=BLOCK_BYTES)
LARGE = JournalLimits(file_count_max=3, file_bytes=1024 * BLOCK_BYTES, step_bytes=BLOCK_BYTES)


class _FaultOfKind(Fault):
    """A fault that counts the operations of its kinds alone."""

    def strikes(self, kind: str, path: Path) -> bool:
        return kind in (self.kinds or ()) and super().strikes(kind, path)


class JournalStand:
    """One start of a data directory with a topic ``t``; ``after_power_cut`` and ``after_kill`` start it again."""

    def __init__(
        self, limits: JournalLimits = LARGE, partitions: int = 3, disk: SimulatedDisk | None = None, **config: object
    ) -> None:
        self.clock = ManualClock()
        self.limits = limits
        self.disk = disk or new_disk(self.clock)
        self.manager = LogManager.open(
            DATA_DIR,
            file_system=self.disk,
            clock=self.clock,
            ballast_bytes=512,
            journal_limits=limits,
            topic_defaults=SMALL_INDEXES,
        )
        if "t" not in self.manager.topics:
            self.manager.create_topic(
                "t", partitions, {name.replace("_", "."): value for name, value in config.items()}
            )

    @property
    def journal(self) -> Journal:
        return self.manager.journal

    @property
    def logs(self) -> Sequence[PartitionLog]:
        return self.manager.topic("t").partitions

    def append(self, log: PartitionLog, *values: bytes) -> None:
        """Append one batch; nothing makes it durable."""
        log.append((append_request(log, *values),))

    def commit(self, *logs: PartitionLog, value: bytes = b"x") -> None:
        """Append a batch to each log, and make them durable by the journal alone."""
        for log in logs:
            self.append(log, value)
        assert self.journal.flush(logs) == [True] * len(logs)
        for log in logs:
            log.publish()

    def flush(self, *logs: PartitionLog) -> list[bool | PartitionFailedError]:
        return self.journal.flush(logs)

    def after_power_cut(self) -> JournalStand:
        """The same directory after a power cut that lost everything that was not synced."""
        return JournalStand(self.limits, disk=self.disk.power_cut())

    def after_kill(self) -> JournalStand:
        return JournalStand(self.limits, disk=self.disk.killed())

    def fail(self, kind: str, error: int = errno.EIO, *, at: int = 0, written: float = 0.5) -> Fault:
        """Let the next operation of this kind fail, or the one ``at`` of them, from 0."""
        self.disk.fault = _FaultOfKind(at, error, written, kinds=frozenset({kind}))
        return self.disk.fault

    def synced(self, suffix: str) -> int:
        """The number of fsyncs of files with this suffix so far."""
        return len([each for each in self.disk.operations if each.kind == "sync" and each.path.suffix == suffix])

    def journal_names(self) -> list[str]:
        return self.disk.list_directory(JOURNAL_DIRECTORY)

    def is_marked(self) -> bool:
        """Whether the next start must replay a journal."""
        return b"rollway.journal.id" in self.content(META_PROPERTIES)

    def content(self, path: Path) -> bytes:
        return self.disk.tree()[str(path)]


def content_of(snapshot: LogSnapshot) -> bytes:
    """All batches that a snapshot has."""
    read = snapshot.read(snapshot.log_start_offset, EVERYTHING, isolation=Isolation.LOG_END)
    return b"".join(piece.read() for piece in read.slices)


def ends_after_power_cut(stand: JournalStand) -> list[int]:
    """The log ends that the next start finds after a power cut; every log is online."""
    return ends(stand.after_power_cut())


def ends(stand: JournalStand) -> list[int]:
    """The log ends; every log is online."""
    assert [log.offline_reason for log in stand.logs] == [None] * len(stand.logs)
    return [log.written_end_offset for log in stand.logs]
