"""Topics that a broker is filled with: compacted, trimmed, transactional, of every codec, with oddities."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from rollway.records import Codec, Record, columns_from_records, encode_batch
from tests.cases.logs import START_MS, batch_of
from tests.kafka.adoption import TopicToAdopt
from tests.kafka.cases import JUDGE, LONG_MAX, SEGMENT_BYTES
from tests.kafka.outcomes import read_batches
from tests.kafka.sides import BrokerSide
from tests.kafka.wire import EARLIEST, LATEST, Wire

BROKER_SETTINGS: Mapping[str, str] = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}
_KEEP: Mapping[str, object] = {"retention.ms": -1}
_COMPACT: Mapping[str, object] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "segment.ms": 10_000,
    "delete.retention.ms": 0,
    "message.timestamp.after.max.ms": LONG_MAX,
}
TOPICS: Mapping[str, TopicToAdopt] = {
    "codecs": TopicToAdopt(len(Codec), _KEEP),
    "compacted": TopicToAdopt(1, _COMPACT),
    "compacted-moved": TopicToAdopt(1, _COMPACT),
    "deleted": TopicToAdopt(1, _KEEP),
    "moved": TopicToAdopt(2, _KEEP),
    "odd": TopicToAdopt(1, _KEEP),
    "stamped": TopicToAdopt(1, {**_KEEP, "message.timestamp.type": "LogAppendTime"}),
    "trimmed": TopicToAdopt(
        1, {"retention.ms": -1, "retention.bytes": 2 * SEGMENT_BYTES, "segment.bytes": SEGMENT_BYTES}
    ),
}
CLEAN_SECONDS_MAX = 90.0
POLL_SECONDS = 0.1
LATER_MS = 4_000_000_000_000
_LIVE_KEYS = 5


def fill(wire: Wire, seed: int) -> None:
    """Make the topics and write to them; wait until the broker has compacted and trimmed what it is to."""
    draw = random.Random(seed)
    for name, topic in TOPICS.items():
        wire.create_topic(name, topic.partition_count, topic.settings)
    for codec in Codec:
        for count in (1, 3, 50):
            _send(wire, "codecs", codec, batch_of(count, codec=codec, headers=(("h", b"v"), ("h", None))))
            _send(wire, "stamped", 0, batch_of(count, codec=codec))
    for name in ("timestamp-minus-5", "epoch-minus-1", "header-name-not-utf8"):
        _send(wire, "odd", 0, (JUDGE / f"{name}.batch").read_bytes())
    for number in range(12):
        _send(wire, "trimmed", 0, batch_of(2, value=b"v" * 200_000))
        _send(wire, "deleted", 0, batch_of(3, value=b"%d" % number))
    wire.delete_records("deleted", 0, 10)
    _fill_transactions(wire, draw, "moved", (0, 1))
    _fill_transactions(wire, draw, "compacted-moved", (0,))
    _fill_compacted(wire)
    # Markers have the time of today, so only a record of a later time ends their segment, which can be compacted then.
    _send(wire, "compacted-moved", 0, batch_of(first_timestamp=LATER_MS))
    _wait_until(lambda: wire.list_offsets("trimmed", 0, EARLIEST).offset > 0, "deletes the oldest segment of trimmed")
    for name in ("compacted", "compacted-moved"):
        _wait_until(lambda name=name: _has_gaps(wire, name), f"compacts {name}")


def _send(wire: Wire, topic: str, partition: int, body: bytes, transactional_id: str | None = None) -> None:
    answer = wire.produce(topic, partition, body, transactional_id=transactional_id)
    assert answer.code == 0, f"{topic}-{partition}: {answer}"


def _fill_compacted(wire: Wire) -> None:
    """Keys again and again, with tombstones, over segments that the records' times end."""
    for number in range(60):
        records = [
            Record(place, START_MS + 5_000 * number, b"k%d" % ((number + place) % _LIVE_KEYS), b"v%d" % number)
            for place in range(3)
        ]
        records.append(Record(3, START_MS + 5_000 * number, b"gone %d" % number, None))
        codec = list(Codec)[number % len(Codec)]
        _send(wire, "compacted", 0, encode_batch(columns_from_records(records), codec=codec))


def _fill_transactions(wire: Wire, draw: random.Random, topic: str, partitions: tuple[int, ...]) -> None:
    """Transactions of two producers side by side, each committed or aborted; all end."""
    names = [f"{topic}-{letter}" for letter in "ab"]
    producers = {name: wire.init_producer(name) for name in names}
    sequences = {(name, partition): 0 for name in names for partition in partitions}
    begun: set[str] = set()
    for step in range(40):
        name, partition = draw.choice(names), draw.choice(partitions)
        producer_id, epoch = producers[name]
        if name not in begun:
            wire.enlist(name, producers[name], topic, partitions)
            begun.add(name)
        first = START_MS + 5_000 * step
        body = batch_of(
            2,
            first_timestamp=first,
            key=b"k%d" % draw.randrange(_LIVE_KEYS),
            value=b"%s %d" % (name.encode(), step),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequences[name, partition],
            transactional=True,
        )
        _send(wire, topic, partition, body, name)
        sequences[name, partition] += 2
        if draw.random() < 0.4:
            wire.end_transaction(name, producers[name], commit=draw.random() < 0.5)
            begun.discard(name)
    for name in sorted(begun):
        wire.end_transaction(name, producers[name], commit=True)


def _has_gaps(wire: Wire, topic: str) -> bool:
    """Return whether compaction has removed at least half of the offsets."""

    batches = read_batches(BrokerSide(wire), topic, 0, wire.list_offsets(topic, 0, EARLIEST).offset)
    return sum(batch.header.record_count for batch in batches) < wire.list_offsets(topic, 0, LATEST).offset / 2


def _wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + CLEAN_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, f"after {CLEAN_SECONDS_MAX:.0f} s no broker {what}"
        time.sleep(POLL_SECONDS)
