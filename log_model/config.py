"""A topic's configuration, in Kafka's names, with Kafka's defaults (spec Defaults)."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple

from log_model.errors import InvalidConfigError
from log_model.nearest_name import nearest_or_all

LONG_MAX = 2**63 - 1
_ANY_TIME_MS = 2**62
INT_MAX = 2**31 - 1
TIMESTAMP_AFTER_MAX_MS_DEFAULT = 3_600_000

PRODUCER_EXPIRATION_MS = 86_400_000
"""``producer.id.expiration.ms``"""
PRODUCER_COUNT_MAX = 100_000
"""Limit of the producers remembered per partition; the longest idle ones are forgotten first."""

_HINTS_MAX = 20
_SHOWN_LENGTH_MAX = 52
_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,20}\s*", re.ASCII)


def _shown(value: object) -> str:
    """Return a value for an error message: a short one whole, a long one only in part."""
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH_MAX else f"{text[:_SHOWN_LENGTH_MAX]}..."


def _integer(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"must be a whole number from {low} to {high}")
        if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
            raise ValueError(f"must be a whole number from {low} to {high}, not {_shown(value)}")
        number = int(value)
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}, not {_shown(number)}")
        return number

    return parse


def _gzip_level(value: object) -> int:
    level = _integer(-1, 9)(value)
    if level == 0:
        raise ValueError("must be -1 or from 1 to 9, not 0")
    return level


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {_shown(value)}")
        return value

    return parse


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"must be true or false, not {_shown(value)}")


def _cleanup_policy(value: object) -> str:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
    if not names or len(set(names)) != len(names) or not set(names) <= {"delete", "compact"}:
        raise ValueError(f"must be delete, compact or delete,compact, not {_shown(value)}")
    return ",".join(sorted(names, reverse=True))


def _policy_name(value: object) -> str:
    if not isinstance(value, str) or len(value) > 100:
        raise ValueError("must be the name of a registered retention policy")
    return value


def _option(name: str, default: object, parse: Callable[[object], Any], doc: str) -> Any:
    return field(default=default, metadata={"name": name, "parse": parse, "doc": doc})


@dataclass(frozen=True, slots=True)
class PlainLimits:
    """A topic's limits for plain batches, computed once: uncompressed batches from a producer without an id.

    ``takes_any`` is false if the service compresses; other batches take the general path. Without ``needs_keys``
    records may lack a key. ``before_ms`` and ``after_ms`` limit how far timestamps may lie in the past and the future;
    they have no effect if the topic stamps records itself.
    """

    takes_any: bool
    batch_bytes_max: int
    needs_keys: bool
    before_ms: int
    after_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> PlainLimits:
        """Compute the limits of a topic."""
        is_stamped = config.message_timestamp_type != "CreateTime"
        return cls(
            config.compression_type in ("producer", "uncompressed"),
            min(config.max_message_bytes, config.segment_bytes),
            config.compacts,
            _ANY_TIME_MS if is_stamped else config.timestamp_before_limit_ms,
            _ANY_TIME_MS if is_stamped else min(config.timestamp_after_limit_ms, _ANY_TIME_MS),
        )


class _WorkedOut:
    """Values derived from a topic's settings, kept apart from the fields, each of which is one setting."""

    __slots__ = ("plain",)
    plain: PlainLimits


@dataclass(frozen=True, slots=True)
class TopicConfig(_WorkedOut):
    """One topic's settings. Immutable: altering a topic makes a new object.

    Each field carries its Kafka name, its parser and one sentence for users in its metadata; see ``options``.
    """

    DEFAULTS: ClassVar[TopicConfig]

    cleanup_policy: str = _option(
        "cleanup.policy", "delete", _cleanup_policy, "What happens to old segments: delete, compact or both."
    )
    retention_ms: int = _option(
        "retention.ms", 604_800_000, _integer(-1, LONG_MAX), "Age at which a segment is deleted; -1: never."
    )
    retention_bytes: int = _option(
        "retention.bytes", -1, _integer(-1, LONG_MAX), "Size a partition is kept above when deleting; -1: no limit."
    )
    retention_policy: str = _option(
        "retention.policy", "", _policy_name, "Name of a retention policy registered in the service; empty: none."
    )
    segment_bytes: int = _option(
        "segment.bytes", 1_073_741_824, _integer(14, INT_MAX), "Size above which a new segment is rolled."
    )
    segment_ms: int = _option(
        "segment.ms", 604_800_000, _integer(1, LONG_MAX), "Age of a segment's first batch after which it is rolled."
    )
    segment_jitter_ms: int = _option(
        "segment.jitter.ms", 0, _integer(0, LONG_MAX), "Up to this much is taken off segment.ms at random."
    )
    segment_index_bytes: int = _option(
        "segment.index.bytes", 10_485_760, _integer(12, INT_MAX), "Space for the indexes of the active segment."
    )
    index_interval_bytes: int = _option(
        "index.interval.bytes", 4096, _integer(0, INT_MAX), "Log bytes between two index entries."
    )
    max_message_bytes: int = _option(
        "max.message.bytes", 1_048_588, _integer(0, INT_MAX), "Largest record batch, its 12 framing bytes included."
    )
    flush_policy: Literal["group", "interval"] = _option(
        "flush.policy",
        "group",
        _one_of("group", "interval"),
        "group: the high watermark waits for a shared fsync; interval: flush.messages and flush.ms alone, as Kafka.",
    )
    min_insync_replicas: int = _option(
        "min.insync.replicas",
        1,
        _integer(1, INT_MAX),
        "Copies that must be in sync for acks=all; never more than there are, and there is one.",
    )
    flush_messages: int = _option(
        "flush.messages", LONG_MAX, _integer(1, LONG_MAX), "Records after which an append fsyncs before it returns."
    )
    flush_ms: int = _option(
        "flush.ms", LONG_MAX, _integer(0, LONG_MAX), "Time after which appended records are fsynced."
    )
    file_delete_delay_ms: int = _option(
        "file.delete.delay.ms", 60_000, _integer(0, LONG_MAX), "How long a deleted segment's files stay on disk."
    )
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = _option(
        "compression.type",
        "producer",
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored: with the producer's codec, or with this one, for which the service compresses again.",
    )
    compression_gzip_level: int = _option(
        "compression.gzip.level",
        -1,
        _gzip_level,
        "Level of gzip when the service compresses with it; -1: the library's own.",
    )
    compression_lz4_level: int = _option(
        "compression.lz4.level", 9, _integer(1, 17), "Level of lz4 when the service compresses with it."
    )
    compression_zstd_level: int = _option(
        "compression.zstd.level", 3, _integer(-131_072, 22), "Level of zstd when the service compresses with it."
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = _option(
        "message.timestamp.type",
        "CreateTime",
        _one_of("CreateTime", "LogAppendTime"),
        "Whether records keep the producer's timestamp or get the time of the append.",
    )
    message_timestamp_before_max_ms: int = _option(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        _integer(0, LONG_MAX),
        "How far a record's timestamp may lie in the past.",
    )
    message_timestamp_after_max_ms: int = _option(
        "message.timestamp.after.max.ms",
        TIMESTAMP_AFTER_MAX_MS_DEFAULT,
        _integer(0, LONG_MAX),
        "How far a record's timestamp may lie in the future.",
    )
    message_timestamp_difference_max_ms: int = _option(
        "message.timestamp.difference.max.ms",
        LONG_MAX,
        _integer(0, LONG_MAX),
        "Older name of the two limits above: holds for each of them that has its default value.",
    )
    preallocate: bool = _option(
        "preallocate", False, _boolean, "Whether a new segment file is made segment.bytes long."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", PlainLimits.of(self))

    @property
    def timestamp_before_limit_ms(self) -> int:
        """How far a record's timestamp may lie in the past; the older setting holds while the newer has its default."""
        if self.message_timestamp_before_max_ms == LONG_MAX:
            return self.message_timestamp_difference_max_ms
        return self.message_timestamp_before_max_ms

    @property
    def timestamp_after_limit_ms(self) -> int:
        """How far a record's timestamp may lie in the future, by the same rule."""
        is_default = self.message_timestamp_after_max_ms == TIMESTAMP_AFTER_MAX_MS_DEFAULT
        if is_default and self.message_timestamp_difference_max_ms != LONG_MAX:
            return self.message_timestamp_difference_max_ms
        return self.message_timestamp_after_max_ms

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    def draw_segment_jitter_ms(self, source: random.Random) -> int:
        """Draw the reduction of ``segment.ms`` for a new or reopened segment, to spread rolls in time (spec E6)."""
        jitter_max_ms = min(self.segment_jitter_ms, self.segment_ms)
        return source.randrange(jitter_max_ms) if jitter_max_ms else 0

    @staticmethod
    def options() -> dict[str, ConfigOption]:
        """Return every setting by its Kafka name, in the order of the documentation."""
        return _OPTIONS

    @classmethod
    def parse(cls, values: Mapping[str, object], defaults: TopicConfig | None = None) -> TopicConfig:
        """Build a configuration from Kafka's names over ``defaults``; numbers may be strings, as in Kafka.

        Raises:
            InvalidConfigError: unknown names or impossible values; all of them are listed.
        """
        base = defaults or cls.DEFAULTS
        attributes = {entry.attribute: getattr(base, entry.attribute) for entry in _OPTIONS.values()}
        problems: list[tuple[str, str]] = []
        for name, value in values.items():
            option = _OPTIONS.get(name)
            if option is None:
                # A body may have very many unknown names, and each search costs a millisecond.
                hint = f"; {nearest_or_all(name, _OPTIONS)}" if len(problems) < _HINTS_MAX else ""
                problems.append(
                    (name, f"is not a topic setting of Rollway{hint}" if name else "a setting needs a name")
                )
                continue
            try:
                attributes[option.attribute] = option.parse(value)
            except ValueError as error:
                problems.append((name, str(error)))
        if problems:
            raise InvalidConfigError(problems)
        return cls(**attributes)

    def value_of(self, name: str) -> object:
        """Return the value of the setting with this Kafka name."""
        return getattr(self, _OPTIONS[name].attribute)


class ProducerLimits(NamedTuple):
    """Limits of each partition: how long an idle producer is remembered, and the number of producers."""

    expiration_ms: int = PRODUCER_EXPIRATION_MS
    producer_count_max: int = PRODUCER_COUNT_MAX


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One setting: its Kafka name, its field, its default, its parser, its description."""

    name: str
    attribute: str
    default: object
    parse: Callable[[object], Any]
    doc: str


_OPTIONS: dict[str, ConfigOption] = {
    entry.metadata["name"]: ConfigOption(
        name=entry.metadata["name"],
        attribute=entry.name,
        default=entry.default,
        parse=entry.metadata["parse"],
        doc=entry.metadata["doc"],
    )
    for entry in fields(TopicConfig)
}
TopicConfig.DEFAULTS = TopicConfig()
