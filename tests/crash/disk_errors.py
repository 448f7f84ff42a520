"""Runs a workload in which one operation of the disk fails, and checks what every crash afterwards would leave."""

from __future__ import annotations

import errno
import itertools
import random

from log_model.errors import StorageError
from tests.crash.disk_faults import SPACE_KINDS, Fault
from tests.crash.ledger import DirectoryCheck, ViolationError, check_goes_on, open_directory
from tests.crash.simulated_disk import CrashImage
from tests.crash.workload import Workload

STEPS = 36
IMAGES_PER_RUN = 4
MAY_RAISE_OS_ERROR = frozenset({"delete due files", "checkpoint"})


class FaultRun:
    """One workload with one failing operation; ``hit`` says if the workload came that far."""

    def __init__(self, seed: int, fault: Fault) -> None:
        self.seed = seed
        self.fault = fault
        self.errors: list[Exception] = []
        self.images = 0
        self._workload = Workload(seed, fault=fault)

    def run(self) -> None:
        """Do the steps, take the error, check what each crash at the end could leave."""
        workload = self._workload
        for _ in range(STEPS):
            hits = self.fault.hits
            try:
                workload.step()
            except ViolationError as violation:
                raise ViolationError(f"{self._place()}: {violation}") from violation
            except StorageError as error:
                self.errors.append(error)
            except OSError as error:
                if workload.step_name not in MAY_RAISE_OS_ERROR:
                    raise ViolationError(f"{self._place()}: {error!r} is not the engine's own") from error
                self.errors.append(error)
            if self.fault.hits > hits:
                self._check_images()
        workload.disk.fault = None
        if self.fault.hits:
            self._check_images()
        assert workload.disk.violations == []

    def _check_images(self) -> None:
        workload = self._workload
        source = random.Random(self.seed)
        for image in workload.disk.images(source.randrange(1 << 30), IMAGES_PER_RUN):
            try:
                self._check_image(image, source)
            except (ViolationError, StorageError, OSError) as error:
                raise ViolationError(f"{self._place()}, image '{image.label}': {error!r}") from error

    def _check_image(self, image: CrashImage, source: random.Random) -> None:
        workload = self._workload
        self.images += 1
        killed = image.label == "process killed"
        ledger = workload.ledger.copy()
        manager = open_directory(image.disk, workload.clock)
        DirectoryCheck(ledger, source, killed=killed).run(manager)
        ledger.restart(manager)
        if killed and not workload.is_half_truncated:
            # The page cache shows what a failed fsync has dropped. Recovery has made durable what it served.
            again = open_directory(image.disk.power_cut(), workload.clock)
            DirectoryCheck(ledger.copy(), source, killed=True).run(again)
        for topic in manager.topics.values():
            for number, log in enumerate(topic.partitions):
                check_goes_on(log, ledger.topics[topic.name].partitions[number], workload.clock)

    def _place(self) -> str:
        return (
            f"seed {self.seed}, {errno.errorcode[self.fault.error]} at {self.fault.at} "
            f"({self.fault.struck}), in '{self._workload.step_name}'"
        )


class FaultTotals:
    """What failing every operation came to."""

    def __init__(self) -> None:
        self.operations = 0
        self.errors = 0
        self.images = 0


def fail_every_operation(seed: int, error: int, kinds: frozenset[str] | None = None) -> FaultTotals:
    """Fail the first operation of a workload, the second, ... until there is none left to fail.

    Only operations of ``kinds`` fail; by default all of them, or all that may need space when the disk is full.

    Raises:
        ViolationError: something was promised that does not hold, or an error is not the engine's own.
    """
    totals = FaultTotals()
    if kinds is None and error != errno.EIO:
        kinds = SPACE_KINDS
    for number in itertools.count():
        run = FaultRun(seed, Fault(at=number, error=error, written=(0, 0.5, 1)[number % 3], kinds=kinds))
        run.run()
        totals.images += run.images
        totals.errors += len(run.errors)
        if run.fault.seen <= number:
            return totals
        totals.operations += 1
    raise AssertionError("unreachable")
