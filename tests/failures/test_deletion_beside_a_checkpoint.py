"""A topic that is deleted while a checkpoint runs leaves no offset behind for the next topic of its name.

Ten acknowledged records were lost at a clean restart, or were taken for damage after a kill.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.disk.directory_checkpoints import DirectoryCheckpoints
from tests.cases.logs import TOPIC, CaseLog, batch_of

WRITES = ("write_recovery_points", "raise_log_starts", "write_high_watermarks")


def made_again_before(monkeypatch: pytest.MonkeyPatch, write: str, log: CaseLog) -> None:
    """Delete the topic and make it again with ten records, as the next ``write`` of a checkpoint begins."""
    real: Callable[..., None] = getattr(DirectoryCheckpoints, write)

    def delayed(self: DirectoryCheckpoints, *found: Any) -> None:
        monkeypatch.setattr(DirectoryCheckpoints, write, real)
        log.manager.delete_topic(TOPIC)
        log.manager.create_topic(TOPIC, 1, {})
        for _ in range(10):
            log.send(batch_of())
        real(self, *found)

    monkeypatch.setattr(DirectoryCheckpoints, write, delayed)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_a_topic_made_again_begins_at_its_own_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, clean: bool
) -> None:
    log = CaseLog(tmp_path)
    for _ in range(100):
        log.send(batch_of())
    log.flush()
    log.delete_records(80)
    made_again_before(monkeypatch, write, log)
    log.manager.checkpoint()
    log.manager.checkpoint_high_watermarks()
    assert log.end_offset == 10
    log.restart(clean=clean)
    assert not any(each.damage or each.truncated_bytes for each in log.manager.recovery)
    assert (log.snapshot.log_start_offset, log.end_offset) == (0, 10)
