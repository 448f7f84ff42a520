"""Batches of producers appended in C: the answers, files, snapshots and producers of the general way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.batches.append_request import AppendResult
from log_model.batches.batch_validation import validate_batches
from log_model.clock import ManualClock
from log_model.config import ProducerLimits
from log_model.errors import StorageError
from log_model.producers import KEYED_PRODUCER_ID_MIN, add_sequence
from log_model.transactions import TransactionMarker
from rollway.records import Record, columns_from_records, encode_batch
from rollway.records.compiled import load
from storage.disk.file_system import LocalFileSystem
from storage.log.partition_log import AppendRequest, PartitionLog
from storage.manager.log_manager import LogManager
from tests.unit.storage.log.test_append_lanes import NOW_MS

plain_append: Any = load("storage.log.append_c")
pytestmark = pytest.mark.skipif(plain_append is None or not plain_append.is_usable, reason="not compiled here")

LIMITS = ProducerLimits(expiration_ms=60_000, producer_count_max=6)
SEQUENCE_MAX = 2**31 - 1
OWN, NONE = -1, -2


class Sent(NamedTuple):
    """A body, and the producer that ``append`` is given for it."""

    body: bytes
    producer: int


def batch(count: int, producer: tuple[int, int, int] = (-1, -1, -1), *, age_ms: int = 0) -> bytes:
    records = [Record(place, NOW_MS - age_ms, None, b"v" * place) for place in range(count)]
    producer_id, epoch, sequence = producer
    return encode_batch(
        columns_from_records(records), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


class Stand:
    """A log on a real disk, which can be opened again."""

    def __init__(self, directory: Path, config: dict[str, object], clock: ManualClock) -> None:
        directory.mkdir()
        self._directory, self._clock = directory, clock
        self.open()
        self.manager.create_topic("t", 1, config)

    def open(self) -> None:
        self.manager = LogManager.open(
            self._directory, file_system=LocalFileSystem(), clock=self._clock, producer_limits=LIMITS
        )

    @property
    def log(self) -> PartitionLog:
        return self.manager.topics["t"].partitions[0]

    def content(self) -> dict[str, bytes]:
        """The bytes of all files but those that hold a random id."""
        return {
            path.name: path.read_bytes()
            for path in sorted(self.log.directory.iterdir())
            if path.is_file() and path.name != "partition.metadata"
        }

    def seen(self) -> object:
        """What readers see, and what is known of producers, in the order in which they are forgotten."""
        snapshot, known = self.log.snapshot, self.log.producers.known
        return (
            snapshot.segment_infos(),
            (snapshot.log_start_offset, snapshot.last_stable_offset, snapshot.high_watermark, snapshot.log_end_offset),
            list(known.by_id.items()),
            known.used_ms,
        )

    def append(self, *sent: Sent) -> list[AppendResult | None]:
        places: list[int] = []
        found = plain_append.append(
            self.log,
            [each.body for each in sent],
            self.log.config,
            NOW_MS,
            [each.producer for each in sent],
            places,
        )
        answers: list[AppendResult | None] = found or [None] * len(sent)
        if found is not None:
            assert places == [place for place, answer in enumerate(found) if answer is not None]
        return answers

    def general(self, *sent: Sent) -> list[object]:
        """Bodies as the general way takes them, as one group."""
        requests = []
        for each in sent:
            batches = validate_batches(each.body, self.log.config, NOW_MS)
            if each.producer >= 0:
                batches[0].set_producer(each.producer, 0, 0)
            requests.append(AppendRequest(tuple(batches)))
        return self._do(requests)

    def end(self, producer_id: int, epoch: int, *, is_commit: bool) -> list[object]:
        """A marker."""
        return self._do([AppendRequest((), transaction_marker=TransactionMarker(producer_id, epoch, 0, is_commit))])

    def _do(self, requests: Sequence[AppendRequest]) -> list[object]:
        answers = self.log.append(requests)
        self.log.publish()
        return [(type(each), str(each)) if isinstance(each, StorageError) else each for each in answers]


class Item(NamedTuple):
    """How the next batch is made of what the log knows of its producer."""

    producer: int
    step: str
    epoch_step: int
    count: int
    is_transactional: bool
    age_ms: int

    def sent(self, log: PartitionLog) -> Sent:
        if self.producer >= KEYED_PRODUCER_ID_MIN or self.producer == NONE:
            return Sent(batch(self.count, age_ms=self.age_ms), self.producer)
        known = log.producers.find(self.producer)
        epoch, last, first = (0, -1, 0) if known is None else (known.producer_epoch, known.last_sequence, 0)
        if known is not None and known.batches:
            first = known.batches[len(known.batches) // 2].first_sequence
        sequence = {
            "next": add_sequence(last, 1),
            "gap": add_sequence(last, 2),
            "again": first,
            "zero": 0,
            "far": SEQUENCE_MAX - 1,
        }[self.step]
        made = bytearray(batch(self.count, (self.producer, max(0, epoch + self.epoch_step), sequence)))
        if self.is_transactional:
            made[22] |= 0x10
            made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
        return Sent(bytes(made), OWN)


ITEMS = st.builds(
    Item,
    st.sampled_from([NONE, 1, 2, 3, *(KEYED_PRODUCER_ID_MIN + key for key in range(9))]),
    st.sampled_from(["next", "next", "next", "next", "next", "gap", "again", "zero", "far"]),
    st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
    st.integers(1, 3),
    st.sampled_from([False] * 12 + [True]),
    st.sampled_from([0, 0, 0, 70_000]),
)
STEPS = st.lists(
    st.one_of(
        st.lists(ITEMS, min_size=1, max_size=6),
        st.lists(ITEMS, min_size=1, max_size=6),
        st.lists(ITEMS, min_size=1, max_size=6),
        st.sampled_from(["restart", "commit", "abort", "wait", "roll"]),
    ),
    min_size=1,
    max_size=14,
)


def _do(step: str | Sequence[Item], ours: Stand, theirs: Stand, clock: ManualClock) -> int:
    """Do a step in both logs. Return how many batches were appended in C."""
    if step == "restart":
        for stand in (ours, theirs):
            stand.manager.close()
        assert ours.content() == theirs.content()
        for stand in (ours, theirs):
            stand.open()
        return 0
    if step == "wait":
        clock.advance(40_000)
        assert ours.log.expire_producers() == theirs.log.expire_producers()
        return 0
    if step == "roll":
        for stand in (ours, theirs):
            stand.log.roll()
            stand.log.publish()
        return 0
    if isinstance(step, str):
        open_ones = [entry for entry in theirs.log.producers.entries.values() if entry.is_in_transaction]
        for entry in open_ones[:1]:
            ended = [
                stand.end(entry.producer_id, entry.producer_epoch, is_commit=step == "commit")
                for stand in (ours, theirs)
            ]
            assert ended[0] == ended[1]
        return 0
    sent = [item.sent(theirs.log) for item in step]
    answers = ours.append(*sent)
    ours.log.publish()
    taken = [place for place, answer in enumerate(answers) if answer is not None]
    assert theirs.general(*[sent[place] for place in taken]) == [answers[place] for place in taken]
    # Those that are left out come behind.
    for place in sorted(set(range(len(sent))) - set(taken)):
        assert ours.general(sent[place]) == theirs.general(sent[place])
    return len(taken)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0, 4096]))
def test_a_history_of_producers_is_that_of_the_general_way(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | list[Item]], interval: int
) -> None:
    config: dict[str, object] = {"segment.bytes": 2000, "segment.ms": 60_000, "flush.policy": "interval"}
    config["index.interval.bytes"] = interval
    clock, root = ManualClock(NOW_MS), tmp_path_factory.mktemp("logs")
    ours, theirs = Stand(root / "ours", config, clock), Stand(root / "theirs", config, clock)
    for step in steps:
        _do(step, ours, theirs, clock)
        assert ours.seen() == theirs.seen()
        clock.advance(7)
    assert ours.content() == theirs.content()
    ours.manager.close()
    theirs.manager.close()
    assert ours.content() == theirs.content()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path / "logs", {"flush.policy": "interval"}, ManualClock(NOW_MS))
    for _ in range(2):
        made.general(Sent(batch(1), NONE))
    yield made
    made.manager.close()


def places(answers: Sequence[AppendResult | None]) -> list[int | None]:
    return [None if answer is None else answer.base_offset for answer in answers]


def test_what_simply_comes_next_is_taken(stand: Stand) -> None:
    key = KEYED_PRODUCER_ID_MIN
    first = stand.append(Sent(batch(2, (7, 3, 5)), OWN), Sent(batch(1), key), Sent(batch(1), OWN), Sent(batch(1), NONE))
    assert places(first) == [2, 4, 5, 6]
    assert places(stand.append(*[Sent(batch(3, (7, 3, 7)), OWN), Sent(batch(1), key + 1)])) == [7, 10]
    entry = stand.log.producers.find(7)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence, len(entry.batches)) == (3, 9, 2)
    entry = stand.log.producers.find(key + 1)
    assert entry is not None
    assert (entry.producer_epoch, entry.batches) == (0, ((0, 0, 10, 10, NOW_MS),))


def test_sequences_begin_again_behind_the_largest(stand: Stand) -> None:
    assert places(stand.append(Sent(batch(3, (7, 0, SEQUENCE_MAX - 2)), OWN))) == [2]
    assert places(stand.append(Sent(batch(3, (7, 0, 0)), OWN))) == [5]
    assert places(stand.append(Sent(batch(3, (8, 0, SEQUENCE_MAX - 1)), OWN))) == [8]
    assert places(stand.append(Sent(batch(1, (8, 0, 1)), OWN))) == [11]


@pytest.mark.parametrize(
    ("producer", "sent"),
    [
        ((7, 0, 0), OWN),
        ((7, 0, 4), OWN),
        ((7, 1, 0), OWN),
        ((7, 1, 3), OWN),
        ((9, -1, 0), OWN),
        ((9, 0, -1), OWN),
        ((9, 0, 0), NONE),
        ((KEYED_PRODUCER_ID_MIN + 3, 0, 0), OWN),
        ((9, 0, 0), KEYED_PRODUCER_ID_MIN + 3),
        ((-1, -1, -1), KEYED_PRODUCER_ID_MIN + 1),
    ],
)
def test_anything_else_is_left_alone(stand: Stand, producer: tuple[int, int, int], sent: int) -> None:
    stand.append(Sent(batch(3, (7, 0, 0)), OWN))
    stand.append(Sent(batch(1), KEYED_PRODUCER_ID_MIN + 1))
    before = stand.seen(), stand.content()
    assert stand.append(Sent(batch(3, producer), sent)) == [None]
    assert (stand.seen(), stand.content()) == before


def test_the_second_batch_of_a_producer_in_a_group_is_left_alone(stand: Stand) -> None:
    key = KEYED_PRODUCER_ID_MIN
    sent = [Sent(batch(1, (7, 0, 0)), OWN), Sent(batch(1, (7, 0, 1)), OWN), Sent(batch(1), key), Sent(batch(1), key)]
    assert places(stand.append(*sent, Sent(batch(1), NONE))) == [2, None, 3, None, 4]


def test_nothing_is_taken_while_a_transaction_is_open(stand: Stand) -> None:
    opening = Item(1, "next", 0, 1, True, 0).sent(stand.log)
    assert isinstance(stand.general(opening)[0], AppendResult)
    assert stand.append(Sent(batch(1, (7, 0, 0)), OWN), Sent(batch(1), KEYED_PRODUCER_ID_MIN)) == [None, None]
    stand.end(1, 0, is_commit=True)
    # The first append behind the marker finds that nothing is open.
    assert isinstance(stand.general(Sent(batch(1), NONE))[0], AppendResult)
    assert places(stand.append(Sent(batch(1), KEYED_PRODUCER_ID_MIN))) == [5]


def test_a_failed_write_tells_which_batches_it_was_of(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.append(Sent(batch(1, (7, 0, 0)), OWN))
    before = stand.seen()

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError

    found: list[int] = []
    sent = [Sent(batch(1, (7, 0, 0)), OWN), Sent(batch(1, (7, 0, 1)), OWN), Sent(batch(1), KEYED_PRODUCER_ID_MIN)]
    monkeypatch.setattr(stand.log.snapshot.segments[-1].log, "opened", Broken())
    with pytest.raises(AssertionError):
        plain_append.append(
            stand.log, [each.body for each in sent], stand.log.config, NOW_MS, [each.producer for each in sent], found
        )
    monkeypatch.undo()
    assert found == [1, 2]
    assert stand.seen() == before
