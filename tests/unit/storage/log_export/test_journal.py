"""Records that only the journal has when the power goes: the export recovers the directory, and has them."""

from __future__ import annotations

from pathlib import Path

from storage.log_export import LogExport, parse_topics
from tests.crash.ledger import DATA_DIR
from tests.unit.storage.journal.journal_stand import META_PROPERTIES, JournalStand
from tests.unit.storage.log_export.exported_directory import described
from tests.unit.storage.log_export.parsed_batches import rows_of

TARGET = Path("/broker")


def test_records_of_the_journal_are_exported() -> None:
    stand = JournalStand(partitions=2, retention_ms=-1)
    for number in range(5):
        stand.commit(stand.logs[0], value=b"value %d" % number)
    disk = stand.disk.power_cut()
    before = disk.tree()
    assert b"version=1000" in before[str(META_PROPERTIES)]
    log = f"{DATA_DIR}/logs/t-0/{0:020d}.log"
    assert b"value 4" not in before[log], "only the journal has it"

    clusters = parse_topics(described(("t", 2), settings="").replace("cleanup.policy=compact", "retention.ms=-1"))
    export = LogExport(DATA_DIR, file_system=disk, clock=stand.clock)
    plan = export.plan(clusters)
    assert not plan.is_clean
    assert disk.tree()[log] == before[log], "a plan recovers nothing"
    report = export.run(TARGET, clusters)
    assert report.plan.was_recovered
    exported = disk.tree()[f"{TARGET}/t-0/{0:020d}.log"]
    assert [row.value for row in rows_of(exported)] == [b"value %d" % number for number in range(5)]
    assert b"version=1000" not in disk.tree()[str(META_PROPERTIES)]
