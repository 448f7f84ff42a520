"""Crashes a workload on the service before every operation of the disk, and has each disk recovered and looked at."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from app.problems.problem import Problem
from app.service.parts import Parts
from log_model.clock import ManualClock
from log_model.errors import StorageError
from tests.crash.disk_faults import Operation
from tests.crash.inline_pools import InlinePools
from tests.crash.ledger import ViolationError
from tests.crash.simulated_disk import CrashImage, SimulatedCrash, SimulatedDisk
from tests.crash.transaction_workload import open_parts

SECOND_CRASH_EVERY = 5
SECOND_CRASH_SPAN = 40


class _Ledger(Protocol):
    """What a workload was promised, and when."""

    now_ms: int

    def copy(self) -> Self: ...


LedgerOf = TypeVar("LedgerOf", bound=_Ledger)


class Workload(Protocol):
    """Does one step after the other, on a simulated disk."""

    disk: SimulatedDisk
    clock: ManualClock
    step_name: str

    async def step(self) -> None: ...


class _Crash(NamedTuple):
    image: CrashImage
    ledger: Any
    where: str


class ServiceCrashes(ABC, Generic[LedgerOf]):
    """One workload and all its crash points.

    Attributes:
        crash_points: operations before which the workload was crashed.
        images: disks that were recovered and checked, those after a second crash included.
        second_crashes: how many of those saw a crash during recovery as well.
        steps: crash points by what the workload was doing.
    """

    CRASHED_AT: ClassVar[Mapping[str, float]]
    """How often which step is crashed, where that is not always."""

    def __init__(self, seed: int, images_per_point: int) -> None:
        self.crash_points = 0
        self.images = 0
        self.second_crashes = 0
        self.steps: Counter[str] = Counter()
        self._seed = seed
        self._images_per_point = images_per_point
        self._source = random.Random(seed)
        self._waiting: list[_Crash] = []

    @abstractmethod
    def make_workload(self, seed: int) -> Workload:
        """The workload, which calls ``crash_here`` before every operation of its disk."""

    @abstractmethod
    async def look(self, parts: Parts, disk: SimulatedDisk, clock: ManualClock, ledger: LedgerOf) -> None:
        """Start what recovers, and see that all that was promised holds.

        Raises:
            ViolationError: it does not.
        """

    async def run(self, crash_points: int) -> None:
        """Go on until there were ``crash_points``.

        Raises:
            ViolationError: a promise was broken. The message names seed, operation and image.
        """
        # Tasks of a process that is gone have nobody to tell how they ended.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        workload = self.make_workload(self._seed)
        while self.crash_points < crash_points:
            await workload.step()
            waiting, self._waiting = self._waiting, []
            for crash in waiting:
                await self._judge(crash)

    def run_and_record(self, crash_points: int, record_property: Callable[[str, object], None]) -> None:
        """``run``, for a test: its counts are properties of the test, and printed."""
        asyncio.run(self.run(crash_points))
        for name in ("crash_points", "images", "second_crashes"):
            record_property(name, getattr(self, name))
        counts = f"{self.crash_points} points, {self.images} images, {self.second_crashes} second crashes"
        print(f"seed {self._seed}: {counts}, {self.steps}")
        assert self.crash_points >= crash_points

    def crash_here(self, workload: Workload, promised: LedgerOf, operation: Operation) -> None:
        """The machine may stop before ``operation``: keep the disks that leaves, to be judged after the step."""
        often = self.CRASHED_AT.get(workload.step_name, 1.0)
        if often < 1 and self._source.random() >= often:
            return
        self.crash_points += 1
        self.steps[workload.step_name] += 1
        ledger = promised.copy()
        ledger.now_ms = workload.clock.now_ms()
        where = f"seed {self._seed}, crash point {self.crash_points} during '{workload.step_name}' before '{operation}'"
        for image in workload.disk.images(self._seed * 1_000_003 + self.crash_points, self._images_per_point):
            self._waiting.append(_Crash(image, ledger, where))

    async def _judge(self, crash: _Crash) -> None:
        try:
            await self._recover(crash.image.disk, crash.ledger)
        except (ViolationError, StorageError, Problem, OSError, TimeoutError) as error:
            raise ViolationError(
                f"{crash.where}, image '{crash.image.label}': {type(error).__name__}: {error}"
            ) from error

    async def _recover(self, disk: SimulatedDisk, ledger: LedgerOf) -> None:
        self.images += 1
        if self.images % SECOND_CRASH_EVERY:
            await self._check(disk, ledger)
            return
        disk.crash_at = self._source.randrange(SECOND_CRASH_SPAN)
        try:
            await self._check(disk, ledger)
        except SimulatedCrash:
            for image in disk.images(self._source.randrange(1 << 30), 2):
                self.images += 1
                self.second_crashes += 1
                await self._check(image.disk, ledger)

    async def _check(self, disk: SimulatedDisk, ledger: LedgerOf) -> None:
        """Recover, and look.

        Raises:
            SimulatedCrash: ``disk`` was to crash, and did.
        """
        clock = ManualClock(ledger.now_ms)
        parts = open_parts(disk, clock)
        assert isinstance(parts.pools, InlinePools)
        crashed = parts.pools.inline.crashed
        looking = asyncio.ensure_future(self.look(parts, disk, clock, ledger))
        await asyncio.wait({looking, crashed}, return_when=asyncio.FIRST_COMPLETED)
        if crashed.done():
            # The process is gone, with all that it was doing.
            gone = asyncio.all_tasks() - {asyncio.current_task()}
            for task in gone:
                task.cancel()
            # What looked may have ended by now: of what it saw, nothing counts.
            await asyncio.gather(looking, *gone, return_exceptions=True)
            raise SimulatedCrash("during recovery")
        await looking
