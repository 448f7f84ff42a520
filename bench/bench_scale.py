"""Many partitions, long logs, large indexes: what starting, looking up and waiting cost, and whether rates stay.

Opening, recovery, look-ups and memory are measured in this process, on the engine alone, with the page cache warm.
Rates are those of a service that holds so many partitions; one of them is read and written.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import resource
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from app.engine_local.partitions.partition_room import PARTITION_DESCRIPTORS
from app.engine_local.partitions.purgatory import DelayedOperation, Purgatory
from bench.closed_loop import Load, connect, take_answer
from bench.histogram import Histogram
from bench.machine import choose_cores, running_on
from bench.requests import batch_of_bytes, get, post, record_batch, records_path
from bench.rollway_server import RollwayServer
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, Sample, row_of
from bench.scenes import measure_load
from log_model.batches.append_request import AppendRequest
from log_model.batches.batch_validation import validate_batches
from log_model.offsets import Offset
from storage.disk.file_system import LocalFileSystem
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.log.partition_log import PartitionLog
from storage.manager.log_manager import LogManager

BENCH = "scale"
MIB = 1024 * 1024
START_MS = 1_700_000_000_000
RECOVERY_THREADS = 4
PARTITION_COUNTS = (1, 1_000, 10_000)
PARTITIONS_PER_TOPIC = 500
TOPICS_PER_RUN = 4
"""Then the service starts again: a partition that was made since the start counts with three descriptors, one at rest
with none."""
CHANGED_PARTITIONS = 10_000
PROBE_SECONDS = 0.01


def measure(plan: Plan) -> Iterator[Row]:
    """Rows: opening, recovery, look-ups, memory, waiters, and growth with partitions and bytes."""
    yield from _partitions(plan, 20 if plan.smoke else 1_000)
    for batch_bytes in (1024, 16 * 1024, 1024 * 1024):
        yield _recovery(plan, batch_bytes, (4 if plan.smoke else 256) * MIB)
    yield from _look_ups(plan, 10_000 if plan.smoke else 1_000_000)
    yield from _waiters(plan, 100 if plan.smoke else 10_000)
    yield from _log_sizes(plan)
    yield from _topic_changes(plan, 20 if plan.smoke else CHANGED_PARTITIONS)
    yield from _rates(plan, (1, 8) if plan.smoke else PARTITION_COUNTS)


# Partitions


def _partitions(plan: Plan, count: int) -> Iterator[Row]:
    directory = plan.data_dir / "partitions"
    manager = LogManager.open(directory, ballast_bytes=MIB)
    topic, _ = manager.create_topic("t", count, {})
    batch = record_batch(10, 100)
    for log in topic.partitions:
        _append(log, batch)
    manager.close()
    opened, closed, sizes = [], [], []
    for _ in range(plan.rounds):
        plan.say(f"opening {count} partitions")
        del manager, topic
        gc.collect()
        began = time.perf_counter()
        manager = LogManager.open(directory, ballast_bytes=MIB)
        opened.append(Sample(time.perf_counter() - began))
        topic = manager.topic("t")
        began = time.perf_counter()
        manager.close()
        closed.append(Sample(time.perf_counter() - began))
    del manager, topic
    gc.collect()
    tracemalloc.start()
    try:
        manager = LogManager.open(directory, ballast_bytes=MIB)
        gc.collect()
        sizes.append(Sample(tracemalloc.get_traced_memory()[0] / count / 1024))
        manager.close()
    finally:
        tracemalloc.stop()
    yield row_of(BENCH, f"open {count:,} partitions after a clean stop", "s", opened, goal=Goal("value", "<=", 2.0))
    yield row_of(BENCH, f"stop with {count:,} idle partitions", "s", closed)
    yield row_of(
        BENCH,
        "Python objects of an idle partition",
        "KiB",
        sizes,
        goal=Goal("value", "<=", 8.0),
        # A few partitions bear the whole of what there is once.
        note=f"mean of {count:,}" if count >= 1000 else "",
    )


def _append(log: PartitionLog, batches: bytes) -> None:
    log.append([AppendRequest(tuple(validate_batches(bytearray(batches), log.config, time.time_ns() // 1_000_000)))])
    log.publish()


# Recovery


def _recovery(plan: Plan, batch_bytes: int, total_bytes: int) -> Row:
    """A service that was killed: four partitions of one segment each, all of it to be checked and written again."""
    directory = plan.data_dir / f"recovery-{batch_bytes}"
    manager = LogManager.open(directory, ballast_bytes=MIB)
    topic, _ = manager.create_topic("t", 4, {"flush.policy": "interval"})
    batch, _ = batch_of_bytes(batch_bytes)
    body = batch * max(1, MIB // batch_bytes)
    for log in topic.partitions:
        for _ in range(max(1, total_bytes // 4 // len(body))):
            _append(log, body)
    scanned = sum(log.snapshot.size_bytes for log in topic.partitions)
    files = [log.snapshot.segments[-1].file.path for log in topic.partitions]
    manager.close()
    marker = directory / "logs" / ".kafka_cleanshutdown"
    checkpoint = directory / "logs" / "recovery-point-offset-checkpoint"

    def recover(_: float) -> Sample:
        # As a kill leaves it: no marker, and nothing known to be durable.
        marker.unlink(missing_ok=True)
        checkpoint.unlink(missing_ok=True)
        cores = choose_cores()
        with running_on(cores.server | cores.generator):
            began, used = time.perf_counter(), time.process_time()
            recovered = LogManager.open(directory, ballast_bytes=MIB, recovery_threads=RECOVERY_THREADS)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        assert sum(report.scanned_bytes for report in recovered.recovery) == scanned
        recovered.close()
        return Sample(scanned / seconds / 1e6, cpu / seconds)

    def bare(_: float) -> Sample:
        began = time.perf_counter()
        for path in files:
            _check_and_write_again(path)
        return Sample(scanned / (time.perf_counter() - began) / 1e6)

    name = f"recover after a kill, batches of {batch_bytes // 1024} KiB"
    limit = "CRC and rewrite of the same files, 1 MiB pieces"
    samples = in_turns(plan, name, {"ours": recover, limit: bare})
    for path in files:
        path.unlink()
    goal = Goal("value", ">=", 500)
    return row_of(BENCH, name, "MB/s", samples["ours"], limit=limit, limits=samples[limit], goal=goal)


def _check_and_write_again(path: Path) -> None:
    file = LocalFileSystem().open(path)
    try:
        for position in range(0, file.size(), MIB):
            piece = file.read(position, MIB)
            crc32c(piece)
            file.write(position, [piece])
        file.sync()
    finally:
        file.close()


# Look-ups


def _look_ups(plan: Plan, count: int) -> Iterator[Row]:
    plan.say(f"indexes of {count} entries")
    offsets, times = plan.data_dir / "large.index", plan.data_dir / "large.timeindex"
    dice = random.Random(1)
    # Offsets rise evenly; batches of a log come in bursts, so times do not.
    moments = sorted(START_MS + int(dice.expovariate(1 / 3_600_000)) + slot for slot in range(count))
    moments = [moment + slot for slot, moment in enumerate(moments)]
    offsets.write_bytes(b"".join(struct.pack(">ii", 10 * slot + 9, 2000 * slot + 1) for slot in range(count)))
    times.write_bytes(b"".join(struct.pack(">qi", moment, 10 * slot + 9) for slot, moment in enumerate(moments)))
    system, base = LocalFileSystem(), Offset(0)
    with contextlib.ExitStack() as stack:
        offset_index = OffsetIndex.open(system, offsets, base, max_bytes=12 * count, writable=False)
        stack.callback(offset_index.close)
        time_index = TimeIndex.open(system, times, base, max_bytes=12 * count, writable=False)
        stack.callback(time_index.close)
        places = [Offset(dice.randrange(10 * count)) for _ in range(2_000)]
        asked = [dice.choice(moments) + dice.randrange(2) for _ in range(2_000)]
        goal = Goal("value", "<=", 5.0)
        yield row_of(
            BENCH, f"offset look-up, {count:,} entries", "us", _cpu_us(plan, offset_index.lookup, places), goal=goal
        )
        yield row_of(
            BENCH,
            f"time look-up, {count:,} entries in bursts",
            "us",
            _cpu_us(plan, time_index.lookup, asked),
            goal=goal,
        )


def _cpu_us(plan: Plan, look_up: Callable[..., object], asked: Sequence[int]) -> list[Sample]:
    samples = []
    for _ in range(plan.rounds):
        began = time.process_time()
        for question in asked:
            look_up(question)
        samples.append(Sample((time.process_time() - began) / len(asked) * 1e6))
    return samples


# Waiters


class _Waiting(DelayedOperation):
    __slots__ = ("ready",)

    def __init__(self) -> None:
        super().__init__()
        self.ready = False

    def is_ready(self) -> bool:
        return self.ready


def _waiters(plan: Plan, count: int) -> Iterator[Row]:
    samples: dict[str, list[Sample]] = {"register": [], "complete": [], "time out": []}
    for _ in range(plan.rounds):
        for what, seconds in asyncio.run(_wait(count)).items():
            samples[what].append(Sample(seconds / count * 1e6))
    for what, found in samples.items():
        yield row_of(BENCH, f"{what} one of {count:,} waiters", "us", found)


async def _wait(count: int) -> dict[str, float]:
    purgatory: Purgatory[int] = Purgatory("waiters", count_max=count)
    began = time.process_time()
    waiting = [_Waiting() for _ in range(count)]
    for number, operation in enumerate(waiting):
        purgatory.watch(operation, (number,), wait_ms=30_000)
    register = time.process_time() - began
    began = time.process_time()
    for number, operation in enumerate(waiting):
        operation.ready = True
        purgatory.notify(number)
    await asyncio.wait([waiting[-1].done])
    complete = time.process_time() - began
    waiting = [_Waiting() for _ in range(count)]
    for operation in waiting:
        purgatory.watch(operation, (0,), wait_ms=1)
    began = time.process_time()
    while len(purgatory):
        await asyncio.wait([next(operation.done for operation in waiting if not operation.done.done())])
    return {"register": register, "complete": complete, "time out": time.process_time() - began}


# Growth


def _log_sizes(plan: Plan) -> Iterator[Row]:
    """Reads at random places of ever longer logs; short segments stand for long ones, as their number is what grows."""
    manager = LogManager.open(plan.data_dir / "sizes", ballast_bytes=MIB)
    try:
        few: PartitionLog | None = None
        for segments in (1, 10) if plan.smoke else (1, 20, 100):
            topic, _ = manager.create_topic(f"t{segments}", 1, {"segment.bytes": str(MIB), "flush.policy": "interval"})
            log = topic.partitions[0]
            batch, _ = batch_of_bytes(16 * 1024)
            while len(log.snapshot.segments) <= segments:
                _append(log, batch * 16)
            few = few or log
            limit = "the same, 1 segment"
            name = f"find 16 KiB at random in {segments} sealed segments (as of {segments} GB)"
            samples = in_turns(plan, name, {name: _reads(log), limit: _reads(few)})
            yield row_of(
                BENCH,
                name,
                "reads/s",
                samples[name],
                limit=limit,
                limits=samples[limit],
                goal=Goal("ratio", ">=", 0.9),
                note="segments of 1 MiB stand for such of 1 GiB: the number of segments is real, their length is not",
            )
    finally:
        manager.close()


def _reads(log: PartitionLog) -> Callable[[float], Sample]:
    dice = random.Random(2)
    snapshot = log.snapshot

    def read(seconds: float) -> Sample:
        places = [Offset(dice.randrange(snapshot.high_watermark)) for _ in range(500)]
        ends_at, count, used = time.monotonic() + seconds, 0, time.process_time()
        while time.monotonic() < ends_at or not count:
            for place in places:
                snapshot.read(place, 16 * 1024)
            count += len(places)
        return Sample(count / (time.process_time() - used))

    return read


# Changes of topics


def _topic_changes(plan: Plan, count: int) -> Iterator[Row]:
    """Creating, growing, altering and deleting a large topic, and what a client of another topic sees meanwhile."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(count, (allowed - 1_000) // PARTITION_DESCRIPTORS)
    taken: dict[str, list[Sample]] = {}
    settings = {"connections_max": "64", "partition_count_max": "1000000"}
    with RollwayServer(plan.data_dir / "changes", choose_cores().server, settings=settings) as server:
        server.create_topic("other")
        changes: dict[str, Callable[[], object]] = {
            f"create a topic of {count // 2:,} partitions": lambda: server.create_topic("large", count // 2),
            f"add as many, to {count:,}": lambda: server.call("PATCH", "/v1/topics/large", {"partitions": count}),
            f"alter a topic of {count:,} partitions": lambda: server.call(
                "PATCH", "/v1/topics/large", {"config": {"retention.ms": 3_600_000}}
            ),
            f"delete a topic of {count:,} partitions": lambda: server.call("DELETE", "/v1/topics/large"),
        }
        for _ in range(plan.rounds):
            for what, change in changes.items():
                plan.say(what)
                with _probing(server) as waits:
                    began = time.perf_counter()
                    change()
                    seconds = time.perf_counter() - began
                found = {"p99 ms": waits.percentile(99) * 1e3, "longest ms": waits.longest * 1e3}
                taken.setdefault(what, []).append(Sample(seconds, extra=found))
    for what, samples in taken.items():
        yield row_of(BENCH, what, "s", samples, goal=Goal("value", "<=", 5.0))
        beside = [Sample(sample.extra["p99 ms"], extra=sample.extra) for sample in samples]
        yield row_of(BENCH, f"p99 of a small produce beside: {what}", "ms", beside, goal=Goal("value", "<=", 20.0))


@contextlib.contextmanager
def _probing(server: RollwayServer) -> Iterator[Histogram]:
    """Measure a small produce to the topic ``other`` again and again, until the block ends."""
    waits, ended = Histogram(), threading.Event()

    def probe() -> None:
        request, buffer = post(records_path("other"), record_batch(1, 100)), memoryview(bytearray(65536))
        with connect(server.address) as connection:
            while not ended.wait(PROBE_SECONDS):
                began = time.perf_counter()
                connection.sendall(request)
                take_answer(connection, buffer)
                waits.add(time.perf_counter() - began)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


def _rates(plan: Plan, counts: tuple[int, ...]) -> Iterator[Row]:
    cores = choose_cores()
    fetch = Load([get(f"{records_path('t')}?offset=0&max_bytes=4096")], 16)
    produce = Load([post(records_path("t"), record_batch(10, 100))], 16)
    with contextlib.ExitStack() as stack:
        servers = {}
        for count in counts:
            plan.say(f"a service of {count} partitions")
            server = stack.enter_context(RollwayServer(plan.data_dir / f"service-{count}", cores.server))
            server.create_topic("t", 1, flush_policy="interval")
            for number, start in enumerate(range(1, count, PARTITIONS_PER_TOPIC), 1):
                size = min(PARTITIONS_PER_TOPIC, count - start)
                server.create_topic(f"others-{start}", size, flush_policy="interval")
                if number % TOPICS_PER_RUN == 0:
                    server.stop()
                    server.start()
            server.fill("t", 4096, MIB)
            servers[count] = server
        for what, load in (("raw fetch of 4 KiB", fetch), ("raw produce of 10 records", produce)):
            measures = {str(count): measure_load(server, load, "requests/s") for count, server in servers.items()}
            samples = in_turns(plan, what, measures)
            for count in counts[1:]:
                yield row_of(
                    BENCH,
                    f"{what}, a service of {count:,} partitions",
                    "requests/s",
                    samples[str(count)],
                    limit=f"the same, {counts[0]} partition",
                    limits=samples[str(counts[0])],
                    goal=Goal("ratio", ">=", 0.9),
                )
