"""The differential run: a broker and Rollway receive the same produce requests, and then the same questions.

A difference that is no row of ``tests.kafka.differences`` fails. Cases of a row have a partition of their own. All
others share partition 0 of their topic, whose answers to look-ups and fetches, and whose files, must be equal.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rollway.records import decode_batch, split_batches
from tests.kafka.broker import Broker, Programs
from tests.kafka.cases import SEED, SETTINGS, TOPICS, Case, all_cases
from tests.kafka.conftest import SAMPLE
from tests.kafka.differences import difference_of
from tests.kafka.outcomes import Outcome, differing, play, read_batches
from tests.kafka.sides import BrokerSide, Found, Read, ServiceSide, Side
from tests.kafka.wire import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.support.servers import ServerProcess, http_client

pytestmark = [pytest.mark.slow, pytest.mark.needs_local("its data directory is compared")]

RUN_SEED = int(os.environ.get("KAFKA_SEED", str(SEED)))
QUESTIONS = 150
"""How many look-ups and how many fetches are compared for each topic."""
SAME_BYTES = tuple(name for name in TOPICS if name != "stamped" and not name.startswith("to-"))
"""Topics whose files are equal: the log gives no times, and compresses nothing itself."""
OWN_FILES = frozenset({"partition.metadata", "transaction-index-checkpoint"})
"""A topic id is one side's, and the checkpoint is Rollway's alone."""


@dataclass
class Run:
    """A broker and a service that received the cases."""

    broker: Broker
    server: ServerProcess
    kafka: Side
    rollway: Side
    cases: list[Case]
    outcomes: dict[str, tuple[list[Outcome], list[Outcome]]] = field(default_factory=dict)
    messages: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def send_all(self) -> None:
        """Make the topics and send every case to both sides."""
        own = dict.fromkeys(TOPICS, 0)
        places = {}
        for case in self.cases:
            if difference_of(case) is not None:
                own[case.topic] += 1
            places[case.name] = own[case.topic] if difference_of(case) is not None else 0
        for side in (self.kafka, self.rollway):
            for name, settings in TOPICS.items():
                side.create_topic(name, own[name] + 1, {**SETTINGS, **settings})
        for case in self.cases:
            (ours, said), (theirs, they_said) = (
                play(side, case, places[case.name]) for side in (self.rollway, self.kafka)
            )
            self.outcomes[case.name] = theirs, ours
            self.messages[case.name] = they_said, said


@pytest.fixture(scope="module")
def run(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp(f"agreement-{programs.version}")
    cases = all_cases(RUN_SEED)
    if SAMPLE:
        drawn = set(random.Random(RUN_SEED).sample(range(len(cases)), SAMPLE))
        cases = [case for number, case in enumerate(cases) if number in drawn]
    broker = Broker(programs, directory / "broker")
    with (
        broker.running(),
        ServerProcess(directory / "data") as server,
        http_client(server.url) as client,
        broker.wire() as wire,
    ):
        run = Run(broker, server, BrokerSide(wire), ServiceSide(client), cases)
        run.send_all()
        yield run


def test_the_same_is_stored_and_refused(run: Run) -> None:
    faults = []
    for case in run.cases:
        theirs, ours = run.outcomes[case.name]
        row = difference_of(case)
        places = differing(theirs, ours)
        if row is not None and not places:
            faults.append(f"{case.name}: no longer differs, which the row {row.columns[0]!r} says")
        for place in places:
            if row is None or theirs[place].code not in row.kafka_codes or ours[place].code not in row.rollway_codes:
                they_said, we_said = (said[place] for said in run.messages[case.name])
                faults += [
                    f"{case.name}, body {place}:",
                    f"    Kafka: {theirs[place]} {they_said}",
                    f"    Rollway: {ours[place]} {we_said}",
                ]
    assert not faults, f"differences to Kafka {run.broker.programs.version}:\n" + "\n".join(faults)


@pytest.mark.parametrize("topic", SAME_BYTES)
def test_offsets_by_time_are_the_same(run: Run, topic: str) -> None:
    batches = read_batches(run.rollway, topic, 0, 0)
    times = {time for batch in batches for time in decode_batch(batch).timestamps.tolist() if time >= 0}
    around = sorted({time + step for time in times for step in (-1, 0, 1) if 0 <= time + step < 2**63})
    draw = random.Random(RUN_SEED)
    asked = [EARLIEST, LATEST, MAX_TIMESTAMP, 0, *draw.sample(around, min(QUESTIONS, len(around)))]
    faults = []
    for time in asked:
        for committed in (False, True):
            theirs, ours = (side.find_offset(topic, 0, time, committed=committed) for side in (run.kafka, run.rollway))
            if theirs != ours and not is_no_time(time, theirs, ours):
                faults.append(f"time {time}, committed {committed}: Kafka {theirs}, Rollway {ours}")
    assert not faults, f"{topic}: " + "; ".join(faults)


def is_no_time(time: int, theirs: Found, ours: Found) -> bool:
    """The difference ``NO_TIMES``: no record of the log has a timestamp."""
    return time == MAX_TIMESTAMP and theirs == (0, 0, -1) and ours == (0, -1, -1)


@pytest.mark.parametrize("topic", SAME_BYTES)
def test_fetches_are_the_same(run: Run, topic: str) -> None:
    end = run.rollway.find_offset(topic, 0, LATEST).offset
    ends = {int(path.stem) for path in (run.server.data_dir / "logs" / f"{topic}-0").glob("*.log")}
    draw = random.Random(RUN_SEED)
    faults = []
    for _ in range(QUESTIONS):
        offset = draw.randint(0, end + 2)
        max_bytes = draw.choice((1, 61, 100, 1_000, 4_096, 20_000, 1 << 20))
        committed = draw.random() < 0.5
        theirs, ours = (
            side.read(topic, 0, offset, max_bytes, committed=committed) for side in (run.kafka, run.rollway)
        )
        if not is_same_read(theirs, ours, max_bytes, ends):
            faults.append(
                f"offset {offset}, {max_bytes} bytes: Kafka {theirs.code} with {len(whole_batches(theirs.records))} "
                f"bytes {theirs[2:]}, Rollway {ours.code} with {len(ours.records)} bytes {ours[2:]}"
            )
    assert not faults, f"{topic}: " + "; ".join(faults)


def is_same_read(theirs: Read, ours: Read, max_bytes: int, ends: set[int]) -> bool:
    """Return whether two fetches brought the same. Where a segment ends, at one of ``ends``, ``READ_ON`` is allowed."""
    if theirs.code or ours.code:
        return theirs.code == ours.code
    records = whole_batches(theirs.records)
    same = ours.records == records
    if not same and records and split_batches(records)[-1].header.next_offset in ends:
        same = ours.records.startswith(records) and len(ours.records) <= max_bytes
    return same and theirs[2:] == ours[2:]


def whole_batches(records: bytes) -> bytes:
    """Return a fetch's records without the batch that its byte limit cut."""
    end = 0
    while len(records) - end >= 12:
        size = 12 + int.from_bytes(records[end + 8 : end + 12], "big")
        if end + size > len(records):
            break
        end += size
    return records[:end]


def test_files_are_the_same_after_clean_stops(run: Run) -> None:
    """The last of this module: it stops both sides."""
    ends = {name: run.rollway.find_offset(name, 0, LATEST).offset for name in SAME_BYTES}
    assert run.server.stop() == 0
    run.broker.stop()
    faults = []
    for name, end in ends.items():
        theirs, ours = (files_in(logs / f"{name}-0") for logs in (run.broker.data, run.server.data_dir / "logs"))
        if theirs.keys() != ours.keys():
            faults.append(f"{name}: Kafka has {sorted(theirs)}, Rollway {sorted(ours)}")
        faults += [
            f"{name}/{file}: {first_difference(theirs[file], ours[file])}"
            for file in theirs.keys() & ours.keys()
            if theirs[file] != ours[file]
        ]
        if end:
            assert any(split_batches(content) for file, content in theirs.items() if file.endswith(".log"))
    assert not faults, "; ".join(faults)


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the content of a partition's files. Producers in a snapshot are sorted: Kafka has them in a hash map."""
    return {
        path.name: sorted_producers(path.read_bytes()) if path.suffix == ".snapshot" else path.read_bytes()
        for path in directory.iterdir()
        if path.name not in OWN_FILES and path.suffix != ".deleted"
    }


def sorted_producers(snapshot: bytes) -> bytes:
    """Return a snapshot's version, count and entries in order, without the CRC that their order decides."""
    head, entries = snapshot[:2] + snapshot[6:10], snapshot[10:]
    size = struct.calcsize(">qhiqiqiq")
    assert len(entries) == size * int.from_bytes(snapshot[6:10], "big")
    return head + b"".join(sorted(entries[at : at + size] for at in range(0, len(entries), size)))


def first_difference(theirs: bytes, ours: bytes) -> str:
    at = next((at for at, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(theirs), len(ours)) if at is None else at
    window = slice(at, at + 16)
    return (
        f"{len(theirs)} and {len(ours)} bytes, from byte {at} on Kafka's are {theirs[window].hex()}, "
        f"Rollway's {ours[window].hex()}"
    )
