"""Each function does one thing to the service, through its HTTP interface, and checks the answer against the source."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path

import httpx

from demo.flights import INDEPENDENCE_DAY_MS, KAFKA_PARTITION_OF_CARRIER, Flight, in_order_of_schedule
from demo.log_client import LogClient
from demo.report import Step
from demo.service import Service, rollway_command

PARTITION_COUNT = 6
REQUEST_RECORDS = 4000
RECORD_BYTES_ABOUT = 150
LOOKUP_COUNT = 500
CARRIER = b"AA"

MAIN_TOPIC = "flights"
RETENTION_TOPIC = "flights-in-file-order"
CRASH_TOPIC = "flights-while-killed"

MAIN_CONFIG: dict[str, object] = {"retention.ms": -1, "segment.ms": 30 * 86_400_000}
"""Flights of 2013 are older than any retention by age. By their own timestamps a segment spans 30 days."""

Partitions = list[list[Flight]]


def by_partition(flights: Sequence[Flight]) -> Partitions:
    """What each partition must hold, by Kafka's partitioner."""
    partitions: Partitions = [[] for _ in range(PARTITION_COUNT)]
    for flight in flights:
        partitions[KAFKA_PARTITION_OF_CARRIER[flight.key.decode("ascii")]].append(flight)
    return partitions


def produce(
    client: LogClient,
    topic: str,
    flights: Sequence[Flight],
    on_progress: Callable[[int, int], None],
    step: Step,
    request_records: int = REQUEST_RECORDS,
) -> None:
    """Append all ``flights`` in requests of ``request_records``, each acknowledged before the next."""
    acknowledged = 0
    for start in range(0, len(flights), request_records):
        batch = flights[start : start + request_records]
        acknowledged += client.produce(topic, batch)
        on_progress(sum(len(flight.value) for flight in batch), acknowledged)
    step.check(acknowledged == len(flights), f"{acknowledged:,} of {len(flights):,} records were acknowledged")
    step.answer = f"{acknowledged:,} records acknowledged, each after an fsync"


def count_records(client: LogClient, source: Partitions, step: Step) -> None:
    """How many records has each partition?"""
    counts = [each["high_watermark"] - each["log_start_offset"] for each in client.partitions(MAIN_TOPIC)]
    for number, (count, flights) in enumerate(zip(counts, source, strict=True)):
        step.check(count == len(flights), f"partition {number} has {count:,} records, the source {len(flights):,}")
    step.answer = ", ".join(f"{count:,}" for count in counts) + f": {sum(counts):,}"


def first_index_at_or_after(flights: Sequence[Flight], timestamp: int) -> int | None:
    """The source's answer to offsets-by-time: the first *in order* that is not earlier, not the earliest."""
    latest_so_far = list(accumulate((flight.timestamp for flight in flights), max))
    index = bisect_left(latest_so_far, timestamp)
    return index if index < len(flights) else None


def find_independence_day(client: LogClient, source: Partitions, step: Step) -> None:
    """Which is the first flight at or after 2013-07-04T00:00 in New York, in each partition?"""
    answers = client.offsets_by_time(MAIN_TOPIC, [(number, INDEPENDENCE_DAY_MS) for number in range(PARTITION_COUNT)])
    found = []
    for number, (answer, flights) in enumerate(zip(answers, source, strict=True)):
        index = first_index_at_or_after(flights, INDEPENDENCE_DAY_MS)
        if index is None:
            behind = answer is None or answer[0] >= len(flights)
            step.check(behind, f"partition {number}: the service says {answer}, and there is none that late")
            continue
        expected = (index, flights[index].timestamp)
        step.check(answer == expected, f"partition {number}: the service says {answer}, the source {expected}")
        if answer is None:
            continue
        value = client.value(MAIN_TOPIC, number, answer[0])
        step.check(value == flights[index].value, f"partition {number}: the record at {answer[0]} is another flight")
        if flights != in_order_of_schedule(flights):
            found.append(f"{number}: {_flight_name(value)} at offset {answer[0]:,}")
            continue
        earliest = min(flight.timestamp for flight in flights if flight.timestamp >= INDEPENDENCE_DAY_MS)
        step.check(answer[1] == earliest, f"partition {number}: a flight at {earliest} is earlier")
        found.append(f"{number}: {_flight_name(value)} at offset {answer[0]:,}")
    step.answer = "; ".join(found)


def _flight_name(row: bytes) -> str:
    columns = row.decode("ascii").split(",")
    scheduled = columns[4].zfill(4)
    return f"{columns[9]} {columns[10]} {columns[12]}-{columns[13]} {scheduled[:2]}:{scheduled[2:]}"


def look_up_times(client: LogClient, topic: str, source: Partitions, step: Step) -> None:
    """Are offsets by time right for random times, also where records are not in order of time?"""
    # The same times each run, so that a failure can be looked at again.
    chance = random.Random(2013)  # noqa: S311 - not a secret
    first = int(datetime(2012, 12, 31, tzinfo=UTC).timestamp()) * 1000
    last = int(datetime(2014, 1, 2, tzinfo=UTC).timestamp()) * 1000
    queries = [(chance.randrange(len(source)), chance.randrange(first, last)) for _ in range(LOOKUP_COUNT)]
    answers = client.offsets_by_time(topic, queries)
    latest_so_far = [list(accumulate((flight.timestamp for flight in flights), max)) for flights in source]
    for (number, timestamp), answer in zip(queries, answers, strict=True):
        index = bisect_left(latest_so_far[number], timestamp)
        expected = (index, source[number][index].timestamp) if index < len(source[number]) else None
        # Behind the last record there is nothing, or, after a load job, its commit marker with the time of the commit.
        is_marker = expected is None and answer is not None and answer[0] >= len(source[number])
        step.check(
            answer == expected or is_marker,
            f"partition {number}, time {timestamp}: the service says {answer}, the source {expected}",
        )
    out_of_order = sum(
        later.timestamp < earlier.timestamp for flights in source for earlier, later in pairwise(flights)
    )
    step.answer = f"{len(queries)} of {len(queries)} right; {out_of_order:,} records are earlier than the one before"
    if step.problems:
        step.answer = f"{len(step.problems)} of {len(queries)} wrong"


def read_carrier(client: LogClient, source: Partitions, step: Step) -> int:
    """Do all records of one carrier come back byte for byte? Returns how many records were read for it."""
    number = KAFKA_PARTITION_OF_CARRIER[CARRIER.decode("ascii")]
    records = list(client.records(MAIN_TOPIC, number))
    stored = [(record.timestamp, record.value) for record in records if record.key == CARRIER]
    expected = [(flight.timestamp, flight.value) for flight in source[number] if flight.key == CARRIER]
    step.check(len(stored) == len(expected), f"{len(stored):,} records came back instead of {len(expected):,}")
    step.check(stored == expected, "a record came back different")
    step.answer = f"{len(stored):,} records of {CARRIER.decode('ascii')} equal, byte for byte, in order"
    return len(records)


def compare_all(client: LogClient, source: Partitions, step: Step) -> int:
    """Is every record of the topic what the source says: offset, timestamp, key, value? Returns how many there are."""
    total = 0
    for number, flights in enumerate(source):
        count = 0
        for record in client.records(MAIN_TOPIC, number):
            expected = flights[count] if count < len(flights) else None
            if (
                expected is None
                or record.offset != count
                or (record.timestamp, record.key, record.value) != tuple(expected)
            ):
                step.check(False, f"partition {number}: the record at offset {record.offset} is not the source's")
                break
            count += 1
        step.check(count == len(flights), f"partition {number} gave {count:,} of {len(flights):,} records")
        total += count
    return total


def digests(client: LogClient) -> tuple[list[str], int]:
    """SHA-256 of each partition's raw batches, and how many bytes they are."""
    found = []
    size_bytes = 0
    for number in range(PARTITION_COUNT):
        digest = hashlib.sha256()
        for piece in client.raw_batches(MAIN_TOPIC, number):
            digest.update(piece)
            size_bytes += len(piece)
        found.append(digest.hexdigest())
    return found, size_bytes


def expected_deletions(segments: Sequence[dict[str, int]], retention_bytes: int) -> list[int]:
    """Base offsets that size retention deletes: oldest first, while what is left stays at least the limit (spec E5)."""
    surplus = sum(segment["size_bytes"] for segment in segments) - retention_bytes
    deleted = []
    for segment in segments[:-1]:
        if surplus < segment["size_bytes"]:
            break
        surplus -= segment["size_bytes"]
        deleted.append(segment["base_offset"])
    return deleted


def retain_by_size(client: LogClient, flights: Sequence[Flight], step: Step) -> None:
    """Does size-based retention delete what its plan said, and nothing else?"""
    segments = client.segments(RETENTION_TOPIC, 0)
    total_bytes = sum(segment["size_bytes"] for segment in segments)
    limit = total_bytes // 3
    client.request("PATCH", f"/v1/topics/{RETENTION_TOPIC}", json={"config": {"retention.bytes": limit}})
    expected = expected_deletions(segments, limit)
    plan = client.request("GET", f"/v1/topics/{RETENTION_TOPIC}/retention/plan").json()["partitions"][0]["segments"]
    planned = [segment["base_offset"] for segment in plan if segment["deleted"]]
    run = client.request("POST", f"/v1/topics/{RETENTION_TOPIC}/retention/run").json()["deleted"]
    deleted = [segment["base_offset"] for segment in run]
    step.check(len(expected) > 0, "there was nothing to delete, so nothing was shown")
    step.check(planned == expected, f"the plan names segments {planned}, the rule {expected}")
    step.check(deleted == expected, f"the run deleted segments {deleted}, the rule names {expected}")
    log_start = client.partitions(RETENTION_TOPIC)[0]["log_start_offset"]
    kept = [segment for segment in segments if segment["base_offset"] not in expected]
    step.check(log_start == kept[0]["base_offset"], f"the log starts at {log_start}, not at {kept[0]['base_offset']}")
    path = f"/v1/topics/{RETENTION_TOPIC}/partitions/0/records"
    gone = client.request("GET", path, params={"offset": log_start - 1}, expected=410).json()
    step.check(gone.get("code") == "offset_out_of_range", f"a read below the log start says {gone.get('code')}")
    left = [(record.timestamp, record.key, record.value) for record in client.records(RETENTION_TOPIC, 0, log_start)]
    step.check(left == [tuple(flight) for flight in flights[log_start:]], "the records that are left have changed")
    freed = sum(segment["size_bytes"] for segment in run) / 1e6
    step.answer = (
        f"{len(deleted)} of {len(segments)} segments ({freed:.1f} MB) deleted as planned, {len(left):,} records left"
    )


def kill_under_load(service: Service, client: LogClient, flights: Sequence[Flight], step: Step) -> int:
    """kill -9 while records are being produced; returns how many were acknowledged by then."""
    chunk = max(1, len(flights) // 200)
    enough = threading.Event()
    acknowledged = 0
    outcome: list[str] = []

    def produce_on() -> None:
        nonlocal acknowledged
        try:
            for start in range(0, len(flights), chunk):
                acknowledged += client.produce(CRASH_TOPIC, flights[start : start + chunk])
                if start >= 40 * chunk:
                    enough.set()
            outcome.append("everything was produced before the kill")
        except httpx.HTTPError:
            pass  # the kill
        except Exception as error:  # noqa: BLE001 - told in the table, whatever it is
            outcome.append(str(error))
        finally:
            enough.set()

    producer = threading.Thread(target=produce_on)
    producer.start()
    enough.wait()
    service.kill()
    producer.join()
    step.check(not outcome, "; ".join(outcome))
    return acknowledged


def compare_prefix(client: LogClient, flights: Sequence[Flight], acknowledged: int, step: Step) -> int:
    """Is what the kill left a prefix of what was sent, with everything acknowledged in it? Returns its length."""
    stored = [(record.timestamp, record.key, record.value) for record in client.records(CRASH_TOPIC, 0)]
    step.check(len(stored) >= acknowledged, f"{acknowledged:,} records were acknowledged, {len(stored):,} are left")
    step.check(stored == [tuple(flight) for flight in flights[: len(stored)]], "a record is out of order or different")
    return len(stored)


def verify_log(data_dir: Path, step: Step) -> None:
    """Does ``rollway log verify`` find the directory clean?"""
    done = subprocess.run(  # noqa: S603 - our own command
        [*rollway_command(), "log", "verify", str(data_dir), "--json"], capture_output=True, check=False
    )
    if done.returncode not in (0, 1) or not done.stdout:
        step.check(False, done.stderr.decode("utf-8", "replace").strip() or "it ended without an answer")
        return
    report = json.loads(done.stdout)
    damage = [finding for finding in report["findings"] if finding["severity"] == "damage"]
    step.check(done.returncode == 0, f"exit status {done.returncode}")
    for finding in damage:
        step.check(False, f"{finding['file']}: {finding['message']}")
    partitions = report["partitions"]
    step.answer = (
        f"clean: {sum(each['record_count'] for each in partitions):,} records, "
        f"{sum(each['segment_count'] for each in partitions):,} segments, "
        f"{sum(each['index_entry_count'] for each in partitions):,} index entries"
    )


def decode_with_aiokafka(data_dir: Path, source: Partitions, step: Step) -> None:
    """Does aiokafka's decoder read every record from the ``.log`` files alone?"""
    from aiokafka.record.memory_records import MemoryRecords

    total = 0
    for number, flights in enumerate(source):
        expected = iter(enumerate(flights))
        for path in sorted((data_dir / "logs" / f"{MAIN_TOPIC}-{number}").glob("*.log")):
            batches = MemoryRecords(path.read_bytes())
            while (batch := batches.next_batch()) is not None:
                step.check(batch.validate_crc(), f"{path}: aiokafka finds a wrong CRC")
                if batch.is_control_batch:
                    continue
                for record in batch:
                    offset, flight = next(expected, (-1, None))
                    read = (record.offset, record.timestamp, record.key, record.value)
                    if flight is None or read != (offset, *flight):
                        step.check(False, f"{path}: aiokafka reads another record at offset {record.offset}")
                        return
                    total += 1
        step.check(next(expected, None) is None, f"aiokafka finds too few records in partition {number}")
    step.answer = f"{total:,} records read from the files alone, all equal to the source"
