"""A revision before the journal and this one leave the same files of partitions, to the byte, for the same requests.

``make same-files-test`` runs random histories of requests on both (REV=..., HISTORIES=...). The other tests here are
about the comparison itself.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.compare import checked_out
from bench.rollway_server import HERE, Source
from rollway.records import Record, columns_from_records, encode_batch, split_batches

REV = os.environ.get("SAME_FILES_REV", "aec6a60b")
"""The last revision before the journal."""
HISTORIES = int(os.environ.get("SAME_FILES_HISTORIES", "50"))
FIRST_SEED = int(os.environ.get("SAME_FILES_SEED", "0"))
PROGRAM = Path(__file__).parent / "request_history.py"
SECONDS_MAX = 120 * 60
INDEX_SUFFIX = ".index"
ENTRY_BYTES = 8
SNAPSHOT_COUNT = slice(6, 10)
"""Where a producer snapshot has the number of its producers."""
INTERVAL_BYTES = 300
"""``index.interval.bytes`` of the histories' topics."""
DELETED = "-delete/"
MARKER = ".kafka_cleanshutdown"
OWN_MEMBER = "rollwayRestingPartitions"
"""The one member of the marker that brokers do not write. Earlier revisions did not either."""
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")

Files = dict[str, bytes]


def files_below(directory: Path) -> Files:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def with_records(files: Files) -> set[str]:
    """The directories of partitions whose logs hold records. A preallocated file has zeros behind them.

    The directory of a deleted partition, which has another name, waits for its removal.
    """
    return {
        name.split("/")[0]
        for name, content in files.items()
        if name.endswith(".log") and content.strip(b"\0") and DELETED not in name
    }


def of_partitions(files: Files, directories: set[str]) -> Files:
    """What these files say of some partitions: their own files, their lines in the checkpoints, and the shared rest."""
    chosen: Files = {}
    for name, content in files.items():
        if name in CHECKPOINTS:
            for line in content.decode().splitlines()[2:]:
                topic, partition, offset = line.split(" ")
                if f"{topic}-{partition}" in directories:
                    chosen[f"{name}: {topic}-{partition}"] = offset.encode()
        elif name == MARKER:
            members = json.loads(content)
            members.pop(OWN_MEMBER, None)
            chosen[name] = json.dumps(members).encode()
        elif "/" not in name or name.split("/")[0] in directories:
            chosen[name] = content
    return chosen


def differences(ours: Files, theirs: Files) -> list[str]:
    """The names of what differs, of partitions that hold records in one of both.

    An offset index may differ from one that was rebuilt: the earlier revision rebuilt an index after a look-up that had
    opened it for a moment. A rebuild counts the bytes since the last entry through a restart, where appends begin at 0.
    And the earlier revision left a producer snapshot without producers in a partition that a restart found unused.
    """
    directories = with_records(ours) | with_records(theirs)
    left, right = of_partitions(ours, directories), of_partitions(theirs, directories)
    return sorted(
        name
        for name in left.keys() | right.keys()
        if left.get(name) != right.get(name)
        and not is_of_a_rebuild(name, left, right)
        and not is_of_an_unused_log(name, left, right)
    )


def is_of_a_rebuild(name: str, ours: Files, theirs: Files) -> bool:
    """Return whether the logs are equal, and their offset index has all entries of ours and some of a rebuild."""
    log = name.removesuffix(INDEX_SUFFIX) + ".log"
    if not name.endswith(INDEX_SUFFIX) or not ours.get(name) or not ours.get(log) or ours[log] != theirs.get(log):
        return False
    if len(ours[name]) % ENTRY_BYTES or len(theirs.get(name, b"")) % ENTRY_BYTES:
        return False
    own, others = set(index_entries(ours[name])), set(index_entries(theirs.get(name, b"")))
    return own < others and others - own <= set(rebuilt_entries(ours[log]))


def is_of_an_unused_log(name: str, ours: Files, theirs: Files) -> bool:
    """Return whether only theirs has the file, and it is a snapshot at offset 0 without producers."""
    name_there = name.removesuffix(".deleted")
    return name_there.endswith(f"/{0:020}.snapshot") and name not in ours and theirs[name][SNAPSHOT_COUNT] == bytes(4)


def rebuilt_entries(log: bytes) -> list[tuple[int, ...]]:
    """The entries that a rebuild makes: of each batch behind more than ``INTERVAL_BYTES`` since the last entry."""
    entries: list[tuple[int, ...]] = []
    batches = split_batches(log)
    since = position = 0
    for batch in batches:
        header = batch.header
        if since > INTERVAL_BYTES:
            entries.append((header.last_offset - batches[0].header.base_offset, position))
            since = 0
        since += header.size_bytes
        position += header.size_bytes
    return entries


def index_entries(content: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">ii", content))


def run_histories(source: Source, directory: Path, first: int, count: int) -> None:
    command = [source.python, str(PROGRAM), str(first), str(count), str(directory)]
    run = subprocess.run(
        command,
        cwd=source.root,
        env=source.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.slow
def test_histories_leave_the_files_of_before(tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    entries = logs = 0
    with checked_out(REV) as before, ThreadPoolExecutor(2) as pool:
        works = [
            pool.submit(run_histories, source, tmp_path / name, FIRST_SEED, HISTORIES)
            for source, name in ((HERE, "here"), (before, "before"))
        ]
        for work in works:
            work.result()
        trees = {"here": HERE.root, "before": before.root}
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        here, there = (tmp_path / name / str(seed) for name in trees)
        told, told_there = (json.loads((each / "told.json").read_text()) for each in (here, there))
        assert [told.pop("program"), told_there.pop("program")] == [str(tree) for tree in trees.values()]
        assert told == told_there, f"seed {seed}: other answers"
        ours, theirs = (files_below(each / "data" / "logs") for each in (here, there))
        assert differences(ours, theirs) == [], f"seed {seed}"
        assert not (there / "data" / "rollway" / "journal").exists()
        done.update(told["done"])
        logs += len(with_records(ours))
        entries += sum(
            path.read_bytes().count(b"RWJOURN1") for path in (here / "data" / "rollway" / "journal").iterdir()
        )
    print(f"{HISTORIES} histories, {logs} partitions with records, {entries} entries left in journals, {dict(done)}")
    assert min(done.values()) >= HISTORIES / 2, "a step was hardly done"
    assert entries > 100 * HISTORIES


# The comparison itself

FILES: Files = {
    "meta.properties": b"version=1",
    MARKER: b'{"version":0,"brokerEpoch":-1}',
    "recovery-point-offset-checkpoint": b"0\n2\nt 0 3\nt 1 0\n",
    "t-0/00000000000000000000.log": b"records",
    "t-0/00000000000000000000.index": b"",
    "t-1/00000000000000000000.log": b"",
}


def test_equal_files_do_not_differ() -> None:
    assert differences(FILES, dict(FILES)) == []


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("t-0/00000000000000000000.log", b"recordz", "t-0/00000000000000000000.log"),
        ("t-0/00000000000000000000.log", b"", "t-0/00000000000000000000.log"),
        ("t-0/00000000000000000000.index", b"x", "t-0/00000000000000000000.index"),
        ("t-0/00000000000000000007.snapshot", b"", "t-0/00000000000000000007.snapshot"),
        ("t-1/00000000000000000000.log", b"records", "t-1/00000000000000000000.log"),
        ("u-0/00000000000000000000.log", b"records", "u-0/00000000000000000000.log"),
        ("meta.properties", b"version=1000", "meta.properties"),
        (MARKER, b'{"version":0,"brokerEpoch":1}', MARKER),
        (CHECKPOINTS[0], b"0\n2\nt 0 2\nt 1 0\n", f"{CHECKPOINTS[0]}: t-0"),
        (CHECKPOINTS[0], b"0\n1\nt 1 0\n", f"{CHECKPOINTS[0]}: t-0"),
    ],
)
def test_a_difference_is_found_on_both_sides(name: str, content: bytes, found: str) -> None:
    changed = {**FILES, name: content}
    assert found in differences(FILES, changed)
    assert found in differences(changed, FILES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t-1/leader-epoch-checkpoint", b"0\n0\n"),
        ("t-1/00000000000000000000.log", bytes(100)),
        ("t-0.5debcfe741ee4ac8841b81d37784c70a-delete/00000000000000000000.log", b"records"),
        (CHECKPOINTS[0], b"0\n1\nt 0 3\n"),
    ],
)
def test_partitions_without_records_may_differ(name: str, content: bytes) -> None:
    assert differences(FILES, {**FILES, name: content}) == []


def test_entries_of_a_rebuilt_index_may_be_more() -> None:
    one = columns_from_records([Record(0, 0, None, bytes(200))])
    log = b"".join(encode_batch(one, base_offset=offset) for offset in range(8))
    name = "t-0/00000000000000000000"
    entries = [struct.pack(">ii", *entry) for entry in rebuilt_entries(log)]
    assert len(entries) == 3
    rebuilt = {**FILES, f"{name}.log": log, f"{name}.index": b"".join(entries)}
    assert differences({**rebuilt, f"{name}.index": entries[0] + entries[2]}, rebuilt) == []
    assert differences(rebuilt, {**rebuilt, f"{name}.index": entries[0] + entries[2]}) == [f"{name}.index"]
    for other in (b"", entries[0] + struct.pack(">ii", 5, 1), b"".join(entries) + struct.pack(">ii", 7, 9)):
        assert differences({**rebuilt, f"{name}.index": other}, rebuilt) == [f"{name}.index"]
    unknown = b"".join(entries) + struct.pack(">ii", 7, 9)
    assert differences({**rebuilt, f"{name}.index": entries[0]}, {**rebuilt, f"{name}.index": unknown})


def test_a_snapshot_of_an_unused_log_may_be_missing() -> None:
    name = f"t-0/{0:020}.snapshot"
    empty, other = bytes.fromhex("0001 12345678 00000000"), bytes.fromhex("0001 12345678 00000001") + bytes(46)
    assert differences(FILES, {**FILES, name: empty}) == []
    assert differences(FILES, {**FILES, f"{name}.deleted": empty}) == []
    assert differences({**FILES, name: empty}, FILES) == [name]
    assert differences(FILES, {**FILES, name: other}) == [name]
    assert differences({**FILES, name: other}, {**FILES, name: empty}) == [name]


def test_the_own_member_of_the_marker_may_differ() -> None:
    ours = {**FILES, MARKER: b'{"version":0,"brokerEpoch":-1,"rollwayRestingPartitions":{"id":"a"}}'}
    assert differences(ours, FILES) == differences(FILES, ours) == []
