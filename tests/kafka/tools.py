"""Kafka's own tools as judges of files and topics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.kafka.broker import Broker, Programs

COMPLAINTS = (
    "isvalid: false",
    "Mismatches in",
    "Non-consecutive offsets in",
    "timestamp mismatch in",
    "out of order timestamp in",
    "duplicate timestamp in",
    "Exception in thread",
    "CorruptRecordException",
)
"""What DumpLogSegments says of a fault."""

QUIET_MS = 10_000
"""How long the console consumer waits for a further record before it ends; its start on a busy machine takes less."""
CONSUMERS = 5
"""How many console consumers run at a time: most of their time they wait for records that do not come."""


def files_of(logs: Path, *suffixes: str) -> list[Path]:
    """Return the files of all partitions of a log directory, but for Kafka's own topics."""
    return sorted(
        path for path in logs.glob("[!_]*-*/*") if path.suffix in suffixes and not path.parent.name.startswith("__")
    )


def check_files(programs: Programs, files: list[Path]) -> None:
    """Let kafka-dump-log look for faults.

    It decompresses and reads every record of ``.log`` files, and holds each entry of an index against its log.
    """
    assert files, "there are no files to look at"
    said = programs.answer("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files)))
    faults = [line for line in said.splitlines() if any(complaint in line for complaint in COMPLAINTS)]
    assert not faults, f"kafka-dump-log of Kafka {programs.version} complains: {faults[:20]}"
    # An index without entries has nothing to check, and the tool says so instead.
    indexes = [str(file) for file in files if file.suffix in (".index", ".timeindex") and file.stat().st_size]
    if indexes:
        said = programs.answer("kafka.tools.DumpLogSegments", "--index-sanity-check", "--files", ",".join(indexes))
        passed = said.count("passed sanity check.")
        assert passed == len(indexes), f"{passed} of {len(indexes)} index files pass the sanity check: {said}"


def end_offsets(broker: Broker, topic: str) -> dict[int, int]:
    """Return the log ends of a topic by partition, as kafka-get-offsets prints them."""
    said = broker.programs.answer(
        "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", broker.address, "--topic", topic
    )
    found = re.findall(rf"^{re.escape(topic)}:(\d+):(\d+)$", said, re.MULTILINE)
    return {int(partition): int(offset) for partition, offset in found}


class ConsoleRecord(NamedTuple):
    """A line of kafka-console-consumer."""

    partition: int
    offset: int
    time: str
    """Such as ``CreateTime:1700000000000``."""
    headers: str
    key: str
    value: str


def console_records(broker: Broker, topic: str, *, committed: bool) -> list[ConsoleRecord]:
    """Read a topic from its beginning with kafka-console-consumer; sort the records by partition and offset."""
    printed = ("timestamp", "partition", "offset", "headers", "key", "value")
    properties = [word for name in printed for word in ("--property", f"print.{name}=true")]
    said = broker.programs.answer(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        broker.address,
        "--topic",
        topic,
        "--from-beginning",
        "--isolation-level",
        "read_committed" if committed else "read_uncommitted",
        "--timeout-ms",
        str(QUIET_MS),
        *properties,
    )
    pattern = re.compile(r"(\w+:-?\d+|NO_TIMESTAMP)\tPartition:(\d+)\tOffset:(\d+)\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)")
    matches = filter(None, map(pattern.fullmatch, said.splitlines()))
    found = [
        ConsoleRecord(int(partition), int(offset), time, headers, key, value)
        for time, partition, offset, headers, key, value in (match.groups() for match in matches)
    ]
    total = re.search(r"Processed a total of (\d+) messages", said)
    assert total is not None, f"kafka-console-consumer did not come to its end: {said[-2000:]}"
    assert len(found) == int(total[1]), f"{len(found)} of {total[1]} lines of kafka-console-consumer are understood"
    return sorted(found)


def printed_records(broker: Broker, topics: Iterable[str]) -> dict[tuple[str, bool], list[ConsoleRecord]]:
    """Read topics with kafka-console-consumer, by topic and by whether only committed records are asked for."""
    asked = [(topic, committed) for topic in topics for committed in (False, True)]
    with ThreadPoolExecutor(CONSUMERS) as pool:
        found = pool.map(lambda each: console_records(broker, each[0], committed=each[1]), asked)
        return dict(zip(asked, found, strict=True))
