"""log verify on transactions: it finds every wrong, missing and invented entry by its own reading of the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.disk.file_system import LocalFileSystem
from storage.log_inspection import read_batches, read_control_record, verify_directory
from tests.cases.logs import CaseLog
from tests.cases.transactional import MIXED_ENTRIES, Producer, mixed


def stopped(path: Path) -> CaseLog:
    log = CaseLog(path / "data")
    mixed(log)
    log.stop()
    return log


def problems(log: CaseLog) -> list[str]:
    report = verify_directory(log.path)
    return [finding.message for finding in report.findings if finding.severity.name == "DAMAGE"]


def test_a_sound_log_has_nothing_to_report(tmp_path: Path) -> None:
    assert problems(stopped(tmp_path)) == []


Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "missing": (lambda content: content[34:], "is missing"),
    "invented": (lambda content: content + struct.pack(">hqqqq", 0, 5, 11, 12, 13), "no transaction was aborted"),
    "producer": (lambda content: content[:9] + bytes([9]) + content[10:], "but the entry says"),
    "first": (lambda content: content[:17] + bytes([4]) + content[18:], "but the entry says"),
    "stable": (lambda content: content[:33] + bytes([99]) + content[34:], "but the entry says"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_wrong_entry_is_found(tmp_path: Path, name: str) -> None:
    log = stopped(tmp_path)
    damage, told = DAMAGES[name]
    path = log.file(9, ".txnindex")
    path.write_bytes(damage(path.read_bytes()))
    (problem,) = problems(log)
    assert told in problem


def test_a_missing_index_is_found(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    log.file(9, ".txnindex").unlink()
    assert len(problems(log)) == len(MIXED_ENTRIES[9])


def test_a_log_whose_beginning_is_gone_is_judged_by_its_snapshot(tmp_path: Path) -> None:
    log = CaseLog(tmp_path / "data", {"retention.bytes": 1})
    producer = Producer(log, 1)
    producer.send(3)
    log.roll()
    log.run_retention()
    producer.abort()
    log.stop()
    assert problems(log) == []
    path = log.file(3, ".txnindex")
    path.write_bytes(struct.pack(">hqqqq", 0, 1, 1, 3, 4))
    assert len(problems(log)) == 1


def test_control_records_are_read(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    file = LocalFileSystem().open(log.file(9), writable=False)
    controls = [read_control_record(file, batch) for batch in read_batches(file, file.size()) if batch.is_control]
    assert [(control.name, control.coordinator_epoch) for control in controls if control] == [
        ("ABORT", 0),
        ("ABORT", 0),
        ("COMMIT", 0),
    ]
