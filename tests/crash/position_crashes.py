"""Crashes start positions before every operation of the disk, recovers, and looks at what each group is told.

After every crash a group has the positions it was last told of, or those of one that was being pinned, replaced or
forgotten just then: never fewer, never a mixture.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from app.service.parts import Parts
from log_model.clock import ManualClock
from tests.crash.disk_faults import Operation
from tests.crash.ledger import require
from tests.crash.service_crashes import ServiceCrashes
from tests.crash.simulated_disk import SimulatedDisk
from tests.crash.transaction_workload import CONFIG, open_parts
from tests.crash.workload import new_disk

GROUPS = ("one", "two", "three")
TOPICS = ("t", "u")
PARTITION_COUNT = 2
EXPIRATION_MS = 604_800_000

Positions = dict[str, dict[int, int]]
PROBE: Positions = {"t": {0: 1_001, 1: 1_002}}
"""What is pinned after a crash, to see that this goes on: above all that the workload pins."""


def merged(pinned: Positions, wanted: Positions) -> Positions:
    """What a group has after it asked for ``wanted``: what it had stays."""
    names = sorted({*pinned, *wanted})
    return {name: dict(sorted({**wanted.get(name, {}), **pinned.get(name, {})}.items())) for name in names}


@dataclass
class Ledger:
    """What each group was told, and what it may have been given since by somebody who was not answered."""

    told: dict[str, Positions] = field(default_factory=lambda: {group: {} for group in GROUPS})
    possible: dict[str, list[Positions]] = field(default_factory=dict)
    now_ms: int = 0

    def copy(self) -> Ledger:
        """As it is now; positions themselves are never changed."""
        return Ledger(dict(self.told), {group: list(each) for group, each in self.possible.items()}, self.now_ms)


class PositionWorkload:
    """Does one random step after the other; ``observe`` is called before every operation of the disk."""

    def __init__(self, seed: int, observe: Callable[[PositionWorkload, Operation], None]) -> None:
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.step_name = "start"
        self._observe = observe
        self._use(new_disk(self.clock))
        self.parts = open_parts(self.disk, self.clock)
        self._is_made = False

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        disk.before_operation = lambda operation: self._observe(self, operation)

    async def step(self) -> None:
        """Do the next thing."""
        if not self._is_made:
            self.step_name = "make topic anew"
            await self.parts.start_positions.start()
            for topic in TOPICS:
                await self.parts.engine.topics.ensure(topic, PARTITION_COUNT, CONFIG)
            self._is_made = True
            return
        steps: list[tuple[Callable[[], object], int]] = [
            (self._pin, 40),
            (self._pin_twice, 10),
            (self._delete, 20),
            (self._make_topic_anew, 4),
            (self._shorten, 10),
            (self._expire, 2),
            (self._kill_and_start, 4),
        ]
        kinds, weights = zip(*steps, strict=True)
        step = self.source.choices(kinds, weights)[0]
        self.step_name = step.__name__.strip("_").replace("_", " ")
        await step()

    def _wanted(self) -> Positions:
        topics = self.source.sample(TOPICS, self.source.randint(1, len(TOPICS)))
        return {
            topic: {
                partition: self.source.randrange(1000)
                for partition in self.source.sample(range(PARTITION_COUNT), self.source.randint(1, PARTITION_COUNT))
            }
            for topic in topics
        }

    def _told(self, group: str, positions: Positions) -> None:
        self.ledger.told[group] = positions
        self.ledger.possible.pop(group, None)

    async def _pin(self) -> None:
        group, wanted = self.source.choice(GROUPS), self._wanted()
        after = merged(self.ledger.told[group], wanted)
        self.ledger.possible[group] = [after]
        answer = await self.parts.start_positions.pin(group, wanted)
        require(answer.positions == _part(after, wanted), f"{group} was told {answer}, and has {after}")
        self._told(group, after)

    async def _pin_twice(self) -> None:
        """Two ask for the same group at once; the first of them decides."""
        group, first, second = self.source.choice(GROUPS), self._wanted(), self._wanted()
        between = merged(self.ledger.told[group], first)
        after = merged(between, second)
        self.ledger.possible[group] = [between, after]
        answers = await asyncio.gather(*(self.parts.start_positions.pin(group, each) for each in (first, second)))
        for answer, wanted in zip(answers, (first, second), strict=True):
            require(answer.positions == _part(after, wanted), f"{group} was told {answer}, and has {after}")
        self._told(group, after)

    async def _delete(self) -> None:
        group, topic = self.source.choice(GROUPS), self.source.choice((None, *TOPICS))
        before = self.ledger.told[group]
        after = {name: each for name, each in before.items() if topic not in (None, name)}
        self.ledger.possible[group] = [after]
        gone = await self.parts.start_positions.delete(group, topic)
        require(gone == {name: each for name, each in before.items() if name not in after}, f"{gone} was forgotten")
        self._told(group, after)

    async def _make_topic_anew(self) -> None:
        """What is pinned for the topic that was there means nothing from then on, and is replaced when asked."""
        topic = self.source.choice(TOPICS)
        await self.parts.engine.topics.delete(topic)
        await self.parts.engine.topics.ensure(topic, PARTITION_COUNT, CONFIG)
        for group, positions in self.ledger.told.items():
            self._told(group, {name: each for name, each in positions.items() if name != topic})

    async def _shorten(self) -> None:
        await self.parts.start_positions.run_jobs()

    async def _expire(self) -> None:
        self.clock.advance(EXPIRATION_MS)
        self.ledger.possible = {group: [{}] for group in GROUPS}
        await self.parts.start_positions.run_jobs()
        for group in GROUPS:
            self._told(group, {})

    async def _kill_and_start(self) -> None:
        self._use(self.disk.killed())
        self.parts = open_parts(self.disk, self.clock)
        await self.parts.start_positions.start()


def _part(positions: Positions, wanted: Positions) -> Positions:
    """Of ``positions``, those that were asked for."""
    return {name: {partition: positions[name][partition] for partition in each} for name, each in wanted.items()}


class PositionCrashes(ServiceCrashes[Ledger]):
    """Start positions of some groups."""

    # Topics are looked at by other crash tests.
    CRASHED_AT: ClassVar[Mapping[str, float]] = {"start": 0.0, "make topic anew": 0.0, "kill and start": 0.2}

    def make_workload(self, seed: int) -> PositionWorkload:
        """See ``ServiceCrashes``."""
        return PositionWorkload(seed, lambda load, operation: self.crash_here(load, load.ledger, operation))

    async def look(self, parts: Parts, disk: SimulatedDisk, clock: ManualClock, ledger: Ledger) -> None:
        """See ``ServiceCrashes``."""
        await parts.start_positions.start()
        found = {group: parts.start_positions.find(group) for group in GROUPS}
        for group, positions in found.items():
            allowed = [ledger.told[group], *ledger.possible.get(group, [])]
            # The second crash of an image may have come behind the first look's own pins.
            allowed += [merged(each, PROBE) for each in allowed]
            require(positions in allowed, f"{group} has {positions}, and may have {allowed}")
        require(not disk.violations, f"mappings: {disk.violations}")
        for group, positions in found.items():
            # What there is stays, and what is pinned now is told from then on.
            after = merged({name: dict(each) for name, each in positions.items()}, PROBE)
            answer = await parts.start_positions.pin(group, PROBE)
            require(answer.positions == _part(after, PROBE), f"{group} was told {answer} after the crash")
            require(parts.start_positions.find(group) == after, f"{group} does not go on")
