"""A clean stop leaves the same files in ``logs/``, to the byte, whether small flushes went through a journal or not."""

from __future__ import annotations

import base64
import random
import uuid
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from storage.journal.journal_files import JournalLimits
from storage.log.partition_log import PartitionLog
from tests.crash.ledger import DATA_DIR, JOURNAL_LIMITS, PartitionLedger
from tests.crash.workload import Workload

STEPS = 150
LOGS = str(DATA_DIR / "logs") + "/"
OFF = JournalLimits.of(0)


class SteadyWorkload(Workload):
    """Every request that a service may get, and clean restarts."""

    def _steps(self) -> list[tuple[Callable[[PartitionLog, PartitionLedger], None], int]]:
        return [
            (self._append, 15),
            (self._commit, 15),
            (self._append_transactions, 25),
            (self._append_beside_flush, 8),
            (self._flush, 4),
            (self._flush_many, 60),
            (self._free_journal, 5),
            (self._truncate, 3),
            (self._publish, 4),
            (self._roll, 4),
            (self._delete_records, 4),
            (self._run_retention, 5),
            (self._delete_due_files, 3),
            (self._checkpoint, 4),
            (self._close_and_open, 3),
            (self._topics_come_and_go, 5),
        ]


def uuids_of(seed: int) -> Callable[[], uuid.UUID]:
    """The same ids each time."""
    source = random.Random(seed)
    return lambda: uuid.UUID(int=source.getrandbits(127), version=4)


def topic_id_of(identity: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(identity.bytes)[:22].decode()


def files_after(seed: int, limits: JournalLimits, *, stops: bool = True) -> tuple[dict[str, bytes], Counter[str]]:
    """All files after this seed's requests and a clean stop, and what was done."""
    done: Counter[str] = Counter()
    topic_ids, deleted_ids, stop_ids = uuids_of(seed), uuids_of(seed + 1000), uuids_of(seed + 2000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("storage.manager.log_manager.new_topic_id", lambda: topic_id_of(topic_ids()))
        patch.setattr("storage.manager.resting_partitions.new_topic_id", lambda: topic_id_of(stop_ids()))
        patch.setattr("storage.disk.file_names.uuid", SimpleNamespace(uuid4=deleted_ids))
        workload = SteadyWorkload(seed, journal_limits=limits)
        for _ in range(STEPS):
            workload.step()
            done[workload.step_name] += 1
        assert not stops or workload.manager.close()
    return workload.disk.tree(), done


def in_logs(tree: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in tree.items() if path.startswith(LOGS)}


@pytest.mark.parametrize("seed", range(8))
def test_the_files_are_the_same_with_and_without_a_journal(seed: int) -> None:
    tree, done = files_after(seed, JOURNAL_LIMITS)
    bare_tree, done_without = files_after(seed, OFF)
    assert done == done_without
    with_journal, without = in_logs(tree), in_logs(bare_tree)
    assert with_journal.keys() == without.keys()
    assert [path for path, content in without.items() if with_journal[path] != content] == []
    assert any(path.endswith(".journal") for path in tree)
    assert not any("journal" in path for path in bare_tree)
    assert len([path for path in without if path.endswith(".log")]) > 1
    assert done["flush many"] > 30


def test_before_the_stop_the_mark_of_the_journal_differs() -> None:
    """So the comparison above sees a stop that leaves it."""
    with_journal, without = (in_logs(files_after(0, limits, stops=False)[0]) for limits in (JOURNAL_LIMITS, OFF))
    different = [path for path, content in without.items() if with_journal[path] != content]
    assert f"{LOGS}meta.properties" in different
