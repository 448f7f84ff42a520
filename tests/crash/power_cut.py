"""Crashes a workload before every one of its operations and recovers from what each crash could leave."""

from __future__ import annotations

import random
from collections import Counter

from log_model.errors import StorageError
from storage.manager.log_manager import LogManager
from tests.crash.disk_faults import Operation
from tests.crash.ledger import DirectoryCheck, Ledger, ViolationError, check_goes_on, open_directory, require
from tests.crash.seen_disks import SeenDisks
from tests.crash.simulated_disk import CrashImage, SimulatedCrash, SimulatedDisk
from tests.crash.workload import Workload

IMAGES_PER_POINT = 4
SECOND_CRASH_EVERY = 7
GOES_ON_EVERY = 3
SECOND_CRASH_SPAN = 24


class PowerCutRun:
    """One workload and all its crash points.

    Attributes:
        crash_points: operations before which the workload was crashed.
        images: disks that recovery must make right, those after a second crash included. One that equals another,
            with no more promised, is recovered once.
        second_crashes: how many of those saw a crash during or right after recovery as well.
        steps: crash points by what the workload was doing.
    """

    def __init__(self, seed: int, images_per_point: int = IMAGES_PER_POINT) -> None:
        self.crash_points = 0
        self.images = 0
        self.second_crashes = 0
        self.steps: Counter[str] = Counter()
        self._seed = seed
        self._images_per_point = images_per_point
        self._source = random.Random(seed)
        self._workload: Workload | None = None
        self._seen = SeenDisks()

    @property
    def known_images(self) -> int:
        """How many of ``images`` were known."""
        return self._seen.known_count

    def run(self, crash_points: int) -> None:
        """Go on until there were ``crash_points``.

        Raises:
            ViolationError: a recovered directory broke a promise. The message names seed, operation and image.
        """
        workload = self._workload = Workload(self._seed, observe=self._crash_here)
        while self.crash_points < crash_points:
            workload.step()

    def _crash_here(self, workload: Workload, operation: Operation) -> None:
        self.crash_points += 1
        self.steps[workload.step_name] += 1
        disk = workload.disk
        for image in disk.images(self._seed * 1_000_003 + self.crash_points, self._images_per_point):
            try:
                self._recover(workload, image)
            except (ViolationError, StorageError, OSError) as error:
                raise ViolationError(
                    f"seed {self._seed}, crash point {self.crash_points} during '{workload.step_name}' before "
                    f"'{operation}' of {len(disk.operations)}, image '{image.label}': {type(error).__name__}: {error}"
                ) from error

    def _recover(self, workload: Workload, image: CrashImage) -> None:
        killed = image.label == "process killed"
        disk = image.disk
        self.images += 1
        goes_on = self.images % GOES_ON_EVERY == 0
        if self.images % SECOND_CRASH_EVERY == 0:
            disk.crash_at = self._source.randrange(SECOND_CRASH_SPAN)
            try:
                manager = self._open(workload, disk)
            except SimulatedCrash:
                self._recover_again(workload, disk, killed=killed)
                return
            disk.crash_at = None
        elif goes_on:
            manager = self._open(workload, disk)
        else:
            self._check(workload, disk, workload.ledger, killed=killed)
            return
        ledger = workload.ledger.copy()
        DirectoryCheck(ledger, self._source, killed=killed).run(manager)
        if goes_on:
            self._go_on(workload, manager, ledger, disk)

    def _open(self, workload: Workload, disk: SimulatedDisk) -> LogManager:
        manager = open_directory(disk, workload.clock)
        require(not disk.violations, f"mappings: {disk.violations}")
        return manager

    def _check(self, workload: Workload, disk: SimulatedDisk, ledger: Ledger, *, killed: bool) -> None:
        if self._seen.is_new(disk, workload.clock, ledger, killed=killed):
            DirectoryCheck(ledger.copy(), self._source, killed=killed).run(self._open(workload, disk))

    def _recover_again(self, workload: Workload, disk: SimulatedDisk, *, killed: bool) -> None:
        for image in disk.images(self._source.randrange(1 << 30), 2):
            self.images += 1
            self.second_crashes += 1
            both_killed = killed and image.label == "process killed"
            self._check(workload, image.disk, workload.ledger, killed=both_killed)

    def _go_on(self, workload: Workload, manager: LogManager, ledger: Ledger, disk: SimulatedDisk) -> None:
        """What recovery showed may have been read: a power cut right after it loses nothing, nor after new appends."""
        ledger.restart(manager)
        self._cut_after_recovery(workload, ledger, disk)
        for topic in manager.topics.values():
            for number, log in enumerate(topic.partitions):
                check_goes_on(log, ledger.topics[topic.name].partitions[number], workload.clock)
        if self._source.random() < 0.5:
            self._cut_after_recovery(workload, ledger, disk)
            return
        manager.close()
        self.images += 1
        self._check(workload, disk.power_cut(), ledger, killed=True)

    def _cut_after_recovery(self, workload: Workload, ledger: Ledger, disk: SimulatedDisk) -> None:
        self.images += 1
        self.second_crashes += 1
        self._check(workload, disk.power_cut(), ledger, killed=True)
