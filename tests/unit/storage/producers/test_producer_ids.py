"""Producer ids: none is given twice, whatever happens in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.errors import DiskFailedError, InvalidTopicError
from rollway.records import Record, columns_from_records, encode_batch
from storage.log.partition_log import AppendRequest
from storage.manager import log_manager
from storage.manager.log_manager import LogManager
from storage.producers.producer_ids import BLOCK_COUNT, FIRST_ID_STEP, LOST_COUNT, ProducerIds, first_id_of
from tests.crash.disk_faults import Fault
from tests.crash.simulated_disk import SimulatedCrash, SimulatedDisk

PATH = Path("/data/producer-ids")


def disk_with_directory() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    disk.sync_directory(PATH.parent.parent)
    return disk


def ids_on(disk: SimulatedDisk, known_max: int = -1) -> ProducerIds:
    return ProducerIds(disk, PATH, lambda below: known_max if known_max < below else -1)


def test_ids_are_consecutive_and_one_write_reserves_a_block():
    disk = disk_with_directory()
    ids = ids_on(disk)
    assert ids.allocate() == 0
    writes = len(disk.operations)
    assert [ids.allocate() for _ in range(BLOCK_COUNT - 1)] == list(range(1, BLOCK_COUNT))
    assert len(disk.operations) == writes
    assert ids.allocate() == BLOCK_COUNT


def test_an_id_is_given_once_whichever_operation_the_power_fails_before():
    """Every crash point of three reservations, every image, and whatever was given before is not given again."""
    at = 0
    while True:
        disk = disk_with_directory()
        disk.crash_at = len(disk.operations) + at
        given = []
        try:
            for _ in range(3):
                ids = ids_on(disk)
                given += [ids.allocate() for _ in range(2)]
        except SimulatedCrash:
            pass
        else:
            break
        for image in disk.images(at, 12):
            fresh = ids_on(image.disk)
            assert fresh.allocate() > max(given, default=-1), f"before operation {at}, {image.label}"
        at += 1
    assert at > 12


def test_threads_share_the_blocks():
    ids = ids_on(disk_with_directory())
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: ids.allocate(), range(5 * BLOCK_COUNT)))
    assert sorted(given) == list(range(5 * BLOCK_COUNT))


def test_a_disk_that_refuses_gives_no_id_and_the_next_call_tries_again():
    disk = disk_with_directory()
    ids = ids_on(disk)
    disk.fault = Fault(at=0)
    with pytest.raises(DiskFailedError):
        ids.allocate()
    disk.fault = None
    assert ids.allocate() == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1, "next_producer_id": -1}', b"\xff" * 5000])
def test_a_damaged_file_is_replaced_and_no_id_is_given_again(content):
    disk = disk_with_directory()
    disk.damage(PATH, content)
    # Some may have been given that no log has.
    assert ids_on(disk, known_max=41).allocate() == 42 + LOST_COUNT
    assert ids_on(disk).allocate() == 42 + LOST_COUNT + BLOCK_COUNT


def test_a_missing_file_begins_above_what_the_logs_know():
    assert ids_on(disk_with_directory(), known_max=41).allocate() == 42


def append_as(producer_id: int, manager: LogManager) -> None:
    """Append a batch of this producer to a new topic, as a client that chose the id itself."""
    topic, _ = manager.create_topic("t", 1)
    log = topic.partitions[0]
    body = encode_batch(
        columns_from_records([Record(0, 1, None, b"v")]), producer_id=producer_id, producer_epoch=0, base_sequence=0
    )
    log.append([AppendRequest(tuple(validate_batches(bytearray(body), log.config, 1)))])


def test_the_manager_gives_ids_above_those_in_its_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(log_manager, "first_id_of", lambda directory_id: 0)
    manager = LogManager.open(tmp_path)
    append_as(77, manager)
    assert manager.producer_ids.allocate() == 78
    manager.close()
    reopened = LogManager.open(tmp_path)
    assert reopened.producer_ids.allocate() == 78 + BLOCK_COUNT
    reopened.close()


def test_the_ids_of_a_new_directory_begin_at_a_random_multiple_of_2_to_32(tmp_path):
    """A cluster that takes the directory over gives ids from 0, and must meet none of them in its batches."""
    firsts = []
    for number in range(4):
        manager = LogManager.open(tmp_path / str(number))
        append_as(77, manager)
        firsts.append(manager.producer_ids.allocate())
        manager.close()
        reopened = LogManager.open(tmp_path / str(number))
        assert reopened.producer_ids.allocate() == firsts[-1] + BLOCK_COUNT
        reopened.close()
    assert len({*firsts}) == len(firsts)
    assert all(first % FIRST_ID_STEP == 0 and 0 < first < 2**53 for first in firsts)


def test_first_ids_are_spread_over_their_whole_range():
    """Above 0, and so that JavaScript reads the next 2^32 ids exactly."""
    firsts = [first_id_of(f"directory {number}") for number in range(2_000)]
    assert len({*firsts}) > 1_990
    assert min(firsts) >= 2**32
    assert max(firsts) + 2**32 <= 2**53
    assert min(firsts) < 2**44
    assert max(firsts) > 2**52
    assert first_id_of("vbX5CGHpTq2OyL3cZhW1Uw") == first_id_of("vbX5CGHpTq2OyL3cZhW1Uw")


def test_an_old_directory_keeps_its_ids(tmp_path, monkeypatch):
    """Its file says where they go on, far below the first id that a new directory would have."""
    with monkeypatch.context() as patch:
        patch.setattr(log_manager, "first_id_of", lambda directory_id: 0)
        manager = LogManager.open(tmp_path)
        assert manager.producer_ids.allocate() == 0
        manager.close()
    reopened = LogManager.open(tmp_path)
    assert reopened.producer_ids.allocate() == BLOCK_COUNT
    reopened.close()


def test_a_lost_file_begins_at_the_first_id_of_the_directory_and_a_damaged_one_far_above():
    for content, first in ((None, 2**40), (b"{", 2**40 + LOST_COUNT)):
        disk = disk_with_directory()
        if content is not None:
            disk.damage(PATH, content)
        ids = ids_on(disk, known_max=41)
        ids.begin_at(2**40)
        assert ids.allocate() == first
    ids = ids_on(disk_with_directory(), known_max=2**41)
    ids.begin_at(2**40)
    assert ids.allocate() == 2**41 + 1


def test_internal_topics_are_made_by_the_service_alone(tmp_path):
    manager = LogManager.open(tmp_path)
    for change in (
        lambda: manager.create_topic("__transaction_state", 1),
        lambda: manager.alter_topic("__transaction_state", partition_count=2),
        lambda: manager.delete_topic("__transaction_state"),
    ):
        with pytest.raises(InvalidTopicError, match="internal"):
            change()
    made = manager.ensure_internal_topic("__transaction_state", 1, {"retention.ms": -1})
    assert made.is_internal
    assert manager.ensure_internal_topic("__transaction_state", 1, {"retention.ms": 5}) is made
    with pytest.raises(InvalidTopicError, match="internal"):
        manager.delete_topic("__transaction_state")
    manager.close()
    reopened = LogManager.open(tmp_path)
    assert reopened.topic("__transaction_state").config.retention_ms == -1
    reopened.close()
