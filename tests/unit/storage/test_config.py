"""Topic settings in Kafka's names."""

from __future__ import annotations

import dataclasses

import pytest

from log_model.config import INT_MAX, LONG_MAX, TopicConfig
from log_model.errors import InvalidConfigError

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "segment.bytes": 1_073_741_824,
    "segment.ms": 604_800_000,
    "segment.jitter.ms": 0,
    "segment.index.bytes": 10_485_760,
    "index.interval.bytes": 4096,
    "max.message.bytes": 1_048_588,
    "flush.messages": 2**63 - 1,
    "flush.ms": 2**63 - 1,
    "file.delete.delay.ms": 60_000,
    "message.timestamp.type": "CreateTime",
    "preallocate": False,
}


def problems_of(values: dict[str, object]) -> dict[str, str]:
    with pytest.raises(InvalidConfigError) as caught:
        TopicConfig.parse(values)
    return dict(caught.value.problems)


@pytest.mark.parametrize(("name", "value"), KAFKA_DEFAULTS.items())
def test_defaults_are_kafkas(name, value):
    """Spec Defaults."""
    assert TopicConfig.DEFAULTS.value_of(name) == value
    assert TopicConfig.options()[name].default == value
    assert TopicConfig.parse({}).value_of(name) == value


def test_every_option_belongs_to_one_field_and_says_what_it_does():
    options = TopicConfig.options()
    assert {option.attribute for option in options.values()} == {
        field.name for field in dataclasses.fields(TopicConfig)
    }
    for name, option in options.items():
        assert option.name == name
        assert option.attribute == name.replace(".", "_")
        assert option.doc.endswith(".")
        assert option.parse(option.default) == option.default


def test_values_may_be_strings_as_in_kafka():
    config = TopicConfig.parse({"retention.ms": "1000", "preallocate": "true", "segment.bytes": 14})
    assert (config.retention_ms, config.preallocate, config.segment_bytes) == (1000, True, 14)
    assert TopicConfig.parse({"retention.ms": " -1 "}).retention_ms == -1


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("retention.ms", -1, LONG_MAX),
        ("retention.bytes", -1, LONG_MAX),
        ("segment.bytes", 14, INT_MAX),
        ("segment.ms", 1, LONG_MAX),
        ("segment.jitter.ms", 0, LONG_MAX),
        ("segment.index.bytes", 12, INT_MAX),
        ("index.interval.bytes", 0, INT_MAX),
        ("max.message.bytes", 0, INT_MAX),
        ("flush.messages", 1, LONG_MAX),
        ("flush.ms", 0, LONG_MAX),
        ("file.delete.delay.ms", 0, LONG_MAX),
    ],
)
def test_numbers_have_ends(name, low, high):
    for number in (low, high):
        assert TopicConfig.parse({name: number}).value_of(name) == number
        assert TopicConfig.parse({name: str(number)}).value_of(name) == number
    for number in (low - 1, high + 1, -(10**30), 10**30):
        assert f"from {low} to {high}" in problems_of({name: number})[name]


@pytest.mark.parametrize(
    "value", [True, None, 1.5, "", "ten", "1e3", "1.0", [], {}, b"1", "\u0661", "1_000", "9" * 10_000]
)
def test_what_is_no_number_is_refused(value):
    assert "whole number" in problems_of({"retention.ms": value})["retention.ms"]


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        ("delete", "delete"),
        ("compact", "compact"),
        ("compact,delete", "delete,compact"),
        (" delete , compact ", "delete,compact"),
    ],
)
def test_cleanup_policies(value, parsed):
    config = TopicConfig.parse({"cleanup.policy": value})
    assert config.cleanup_policy == parsed
    assert config.deletes == ("delete" in value)
    assert config.compacts == ("compact" in value)


@pytest.mark.parametrize("value", ["", ",", "delete,", "delete,delete", "Delete", "archive", 1, None, ["delete"]])
def test_other_cleanup_policies_are_refused(value):
    assert "cleanup.policy" in problems_of({"cleanup.policy": value})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("flush.policy", ["group", "interval"], ["", "GROUP", None, 1]),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", "", None, 0]),
        ("preallocate", [True, False], ["yes", "True", 1.5, None, "", 2]),
        ("retention.policy", ["", "keep-weekdays"], ["x" * 101, None, 1]),
    ],
)
def test_choices(name, good, bad):
    for value in good:
        assert TopicConfig.parse({name: value}).value_of(name) == value
    for value in bad:
        assert name in problems_of({name: value})


def test_all_problems_are_listed_at_once():
    problems = problems_of({"retention.ms": "soon", "segment.bytes": 1, "retention": 5, "flush.ms": 10})
    assert list(problems) == ["retention.ms", "segment.bytes", "retention"]
    assert problems["retention"] == "is not a topic setting of Rollway; did you mean retention.ms?"


def test_few_of_very_many_names_are_looked_up():
    problems = list(problems_of({f"segment.byte{number}": 1 for number in range(1_000)}).values())
    assert problems[0] == "is not a topic setting of Rollway; did you mean segment.bytes?"
    assert problems[-1] == "is not a topic setting of Rollway"


def test_the_message_names_every_problem():
    with pytest.raises(InvalidConfigError, match=r"retention\.ms: .*; colour: is not"):
        TopicConfig.parse({"retention.ms": -2, "colour": "red"})


def test_service_defaults_lie_under_a_topics_own_settings():
    defaults = TopicConfig.parse({"retention.ms": 5, "segment.ms": 7})
    config = TopicConfig.parse({"segment.ms": 9}, defaults)
    assert (config.retention_ms, config.segment_ms, config.segment_bytes) == (5, 9, 1_073_741_824)
    assert defaults.segment_ms == 7


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TopicConfig.DEFAULTS.retention_ms = 1
