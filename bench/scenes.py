"""Scenes: what is asked of Rollway, with the topics it needs, for the benches and for comparing two revisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench.closed_loop import Load, Unit, measured
from bench.processes import ServerProcess
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Plan, Sample

Measure = Callable[[float], Sample]


class Scene(NamedTuple):
    """One load on Rollway."""

    bench: str
    name: str
    unit: Unit
    load: Load
    prepare: Callable[[RollwayServer], None]
    """Makes the topics and their records; run again, it changes nothing."""
    reset: Callable[[RollwayServer], None] | None = None
    """Run before each measurement, outside of its time: drops what the one before has written."""
    seconds_max: float = 60.0
    """Large writes are measured for less, lest the page cache fills and the disk is measured."""

    def measure(self, server: RollwayServer) -> Measure:
        def once(seconds: float) -> Sample:
            if self.reset is not None:
                self.reset(server)
            return measured(server, self.load, min(seconds, self.seconds_max), self.unit)

        return once


def measure_load(
    server: ServerProcess, load: Load, unit: Unit, reset: Callable[[], None] | None = None, seconds_max: float = 60.0
) -> Measure:
    """Measures ``load`` on any server."""

    def once(seconds: float) -> Sample:
        if reset is not None:
            reset()
        return measured(server, load, min(seconds, seconds_max), unit)

    return once


def run_scene(
    plan: Plan, scene: Scene, ours: RollwayServer, others: Sequence[tuple[str, Measure]]
) -> dict[str, list[Sample]]:
    """Measure a scene on ``ours`` in turns with ``others``; samples by name.

    Raises:
        BenchError: one of them failed.
    """
    scene.prepare(ours)
    contestants = {ours.name: scene.measure(ours), **dict(others)}
    return in_turns(plan, f"{scene.bench}, {scene.name}", contestants)


def once_per_server(prepare: Callable[[RollwayServer], None]) -> Callable[[RollwayServer], None]:
    """``prepare``, run once for each server however often it is called."""
    done: list[RollwayServer] = []

    def prepare_once(server: RollwayServer) -> None:
        if server not in done:
            prepare(server)
            done.append(server)

    return prepare_once


def fresh_topic(topic: str, partitions: int = 1, **config: str) -> Callable[[RollwayServer], None]:
    """Replaces a topic by an empty one, and waits until the disk has room again."""
    return partial(_replace_topic, topic=topic, partitions=partitions, config=config)


def _replace_topic(server: RollwayServer, topic: str, partitions: int, config: dict[str, str]) -> None:
    if topic in server.topics:
        server.delete_topic(topic)
    server.create_topic(topic, partitions, **config)
