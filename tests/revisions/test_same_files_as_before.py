"""A revision before the journal and this one leave the same files of partitions, to the byte, for the same requests.

``make same-files-test`` runs random histories of requests on both (REV=..., HISTORIES=...). The other tests here are
about the comparison itself.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.compare import checked_out
from bench.rollway_server import HERE, Source

REV = os.environ.get("SAME_FILES_REV", "aec6a60b")
"""The last revision before the journal."""
HISTORIES = int(os.environ.get("SAME_FILES_HISTORIES", "50"))
FIRST_SEED = int(os.environ.get("SAME_FILES_SEED", "0"))
PROGRAM = Path(__file__).parent / "request_history.py"
SECONDS_MAX = 120 * 60
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
    """The directories of partitions whose logs hold records."""
    return {name.split("/")[0] for name, content in files.items() if name.endswith(".log") and content}


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
    """The names of what differs, of partitions that hold records in one of both."""
    directories = with_records(ours) | with_records(theirs)
    left, right = of_partitions(ours, directories), of_partitions(theirs, directories)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


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
    ("name", "content"), [("t-1/leader-epoch-checkpoint", b"0\n0\n"), (CHECKPOINTS[0], b"0\n1\nt 0 3\n")]
)
def test_partitions_without_records_may_differ(name: str, content: bytes) -> None:
    assert differences(FILES, {**FILES, name: content}) == []


def test_the_own_member_of_the_marker_may_differ() -> None:
    ours = {**FILES, MARKER: b'{"version":0,"brokerEpoch":-1,"rollwayRestingPartitions":{"id":"a"}}'}
    assert differences(ours, FILES) == differences(FILES, ours) == []
