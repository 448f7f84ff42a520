"""Case Z-1 inside one process: many producers, many waiting readers, one writer, rolls and retention beside them."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import pytest

from log_model.batches.batch_validation import validate_batches
from log_model.errors import OffsetOutOfRangeError, StorageError
from log_model.offsets import Offset
from rollway.records import parse_header, split_batches
from storage.log.log_snapshot import LogSnapshot
from storage.log.partition_log import AppendRequest, AppendResult
from tests.cases.logs import CaseLog, batch_of

NewLog = Callable[..., CaseLog]
TIMEOUT_S = 120
PRODUCER_COUNT = 64
READER_COUNT = 64


class Traffic:
    """What stands around a log in the service: a bounded mailbox, its one writer, and a bell for those who wait.

    ``acknowledged`` maps the base offset of every acknowledged batch to its CRC, which no two batches share.
    """

    def __init__(self, log: CaseLog, *, deletes: bool) -> None:
        self.log = log
        self.acknowledged: dict[int, int] = {}
        self.gone: set[int] = set()
        self._deletes = deletes
        self._mailbox: queue.Queue[tuple[bytes, Future[AppendResult]] | None] = queue.Queue(maxsize=128)
        self._bell = threading.Condition()
        self._over = False
        self._writer = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._mailbox.put(None)
        self._writer.join(TIMEOUT_S)
        assert not self._writer.is_alive()

    def _write(self) -> None:
        source = random.Random(0)
        stopping = False
        while not stopping:
            letters = [self._mailbox.get()]
            while len(letters) < 50 and not self._mailbox.empty():
                letters.append(self._mailbox.get())
            stopping = None in letters
            letters = [letter for letter in letters if letter is not None]
            try:
                self._write_group([body for body, _ in letters], [answer for _, answer in letters])
                self._look_after(source)
            except (StorageError, OSError, RuntimeError, AssertionError) as error:
                for _, answer in letters:
                    if not answer.done():
                        answer.set_exception(error)

    def _write_group(self, bodies: list[bytes], answers: list[Future[AppendResult]]) -> None:
        log = self.log.partition
        now_ms = self.log.clock.now_ms()
        group = [AppendRequest(tuple(validate_batches(body, log.config, now_ms))) for body in bodies]
        results = log.append(group)
        log.flush()
        with self._bell:
            log.publish()
            self._bell.notify_all()
        for answer, result in zip(answers, results, strict=True):
            answer.set_result(result)

    def _look_after(self, source: random.Random) -> None:
        if source.random() < 0.1:
            self.log.roll()
        if self._deletes and source.random() < 0.2:
            self.log.run_retention()
            self.log.manager.delete_due_files()

    def produce(self, producer: int, batch_count: int) -> None:
        """Send batches, each after the answer to the one before."""
        source = random.Random(producer)
        for number in range(batch_count):
            body = batch_of(source.randint(1, 3), value=b"%d/%d" % (producer, number))
            answer: Future[AppendResult] = Future()
            self._mailbox.put((body, answer), timeout=TIMEOUT_S)
            result = answer.result(TIMEOUT_S)
            assert result.base_offset not in self.acknowledged
            self.acknowledged[result.base_offset] = parse_header(body).crc

    def end(self) -> None:
        """Nothing more will come: readers stop at the high watermark."""
        with self._bell:
            self._over = True
            self._bell.notify_all()

    def _wait_beyond(self, offset: int) -> LogSnapshot:
        """A snapshot that shows more than ``offset``, or the last one there will be."""
        with self._bell:
            rang = self._bell.wait_for(
                lambda: self._over or self.log.snapshot.high_watermark > offset, timeout=TIMEOUT_S
            )
            assert rang
            return self.log.snapshot

    def read_on(self) -> dict[int, int]:
        """Read from the beginning, waiting at the end; return what was seen: base offset to CRC.

        Offsets go on without a gap, except over what retention took, and none comes twice.
        """
        seen: dict[int, int] = {}
        offset = 0
        while True:
            snapshot = self._wait_beyond(offset)
            if offset >= snapshot.high_watermark:
                return seen
            try:
                fetched = snapshot.read(Offset(offset), 4000)
            except OffsetOutOfRangeError:
                assert offset < snapshot.log_start_offset
                offset = snapshot.log_start_offset
                continue
            for batch in (one for piece in fetched.slices for one in split_batches(piece.read())):
                batch.check_crc()
                assert batch.header.base_offset == offset
                assert batch.header.base_offset not in seen
                seen[batch.header.base_offset] = batch.header.crc
                offset = batch.header.next_offset
            assert fetched.next_offset == offset


@pytest.mark.usefixtures("eager_threads")
def test_a9_concurrent_appends_never_interleave(new_log: NewLog) -> None:
    """Spec A9: 64 producers; offsets 0 to n-1 each once, and a scan of the files is strictly contiguous."""
    log = new_log({"segment.bytes": 50_000, "flush.policy": "group"})
    with Traffic(log, deletes=False) as traffic, ThreadPoolExecutor(PRODUCER_COUNT) as pool:
        list(pool.map(lambda producer: traffic.produce(producer, 40), range(PRODUCER_COUNT)))
    assert len(traffic.acknowledged) == PRODUCER_COUNT * 40
    next_offset = 0
    for content in log.log_files().values():
        for batch in split_batches(content):
            batch.check_crc()
            assert batch.header.base_offset == next_offset
            assert traffic.acknowledged[next_offset] == batch.header.crc
            next_offset = batch.header.next_offset
    assert next_offset == log.end_offset
    assert log.offsets() == list(range(next_offset))


@pytest.mark.usefixtures("eager_threads")
def test_z_1_mixed_load(new_log: NewLog) -> None:
    """Every acknowledged offset is read once and gap-free until it is deleted, by 64 readers that wait for more, while
    segments roll and the oldest go; and what is left at the end survives a kill."""
    log = new_log(
        {
            "segment.bytes": 6000,
            "retention.bytes": 40_000,
            "file.delete.delay.ms": 0,
            "flush.policy": "group",
            "index.interval.bytes": 300,
        }
    )
    with (
        ThreadPoolExecutor(READER_COUNT) as reading,
        Traffic(log, deletes=True) as traffic,
        ThreadPoolExecutor(PRODUCER_COUNT) as producing,
    ):
        readers = [reading.submit(traffic.read_on) for _ in range(READER_COUNT)]
        try:
            list(producing.map(lambda producer: traffic.produce(producer, 25), range(PRODUCER_COUNT)))
        finally:
            traffic.end()
        views = [reader.result(TIMEOUT_S) for reader in readers]
    assert len(traffic.acknowledged) == PRODUCER_COUNT * 25
    start = log.snapshot.log_start_offset
    assert start > 0
    assert len(log.base_offsets) > 3
    left = {offset: crc for offset, crc in traffic.acknowledged.items() if offset >= start}
    for seen in views:
        assert seen.items() <= traffic.acknowledged.items()
        assert seen.items() >= left.items()
    log.restart(clean=False)
    stored = {batch.header.base_offset: batch.header.crc for batch in split_batches(log.read(start))}
    assert stored == left
