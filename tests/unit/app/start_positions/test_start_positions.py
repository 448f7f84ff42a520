"""Start positions without HTTP: what is written down, when, and what is kept when that is shortened."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from app.engine_local.keyed_log import CONFIG
from app.problems.problem import Problem
from app.start_positions import registry
from app.start_positions.records import TOPIC, group_change, read_table
from app.start_positions.registry import GROUP_POSITION_COUNT_MAX, StartPositions
from app.start_positions.state import PinnedGroup, PinnedTopic, PositionTable, pin
from log_model.errors import CorruptionError
from schemas.start_positions import StartPositions as StartPositionsInBody
from storage.disk.topic_metadata import new_topic_id
from tests.support.stands import Stand, on_stand

_BATCH_OVERHEAD_BYTES = 1_000


def test_the_largest_group_fits_into_a_batch():
    each = {f"{number:0>249}": PinnedTopic(new_topic_id(), {2**31 - 1: 2**63 - 1}) for number in range(3_000)}
    assert len(each) == GROUP_POSITION_COUNT_MAX
    key, value = group_change("\U00010000" * 249, PinnedGroup(each, 2**63 - 1))
    limit = CONFIG["max.message.bytes"]
    assert isinstance(limit, int)
    assert value is not None
    assert len(key) + len(value) + _BATCH_OVERHEAD_BYTES < limit


_DIGITS = sorted({10**power + step for power in range(11) for step in (-1, 0)} | set(range(2**31 - 12, 2**31 + 12)))


@pytest.mark.parametrize("number", [*_DIGITS, 2_000_000_000, 2_099_999_999, 2_139_999_999, 2_147_399_999])
def test_the_pattern_of_a_partitions_name_is_exact(number: int):
    """The document has a pattern, the service compares numbers."""
    positions = StartPositionsInBody.model_json_schema()["properties"]["positions"]
    (names,) = positions["patternProperties"].values()
    (pattern,) = names["patternProperties"]
    assert (re.search(pattern, str(number)) is not None) == (number < 2**31)
    assert not any(re.search(pattern, text) for text in ("", f"0{number}", f"{number}.0", f"-{number}", f" {number}"))
    body = {"positions": {"t": {str(number): 0}}}
    assert (refusal_of(body) is None) == (number < 2**31)


def refusal_of(body: dict[str, object]) -> ValidationError | None:
    try:
        StartPositionsInBody.model_validate(body)
    except ValidationError as error:
        return error
    return None


def test_what_is_written_is_read():
    group = PinnedGroup({"t": PinnedTopic("id", {0: 5, 3: 0}), "u": PinnedTopic("other", {})}, 17)
    key, value = group_change("g/ü", group)
    assert value is not None
    table = read_table({key: value})
    assert list(table) == [("g/ü", group)]
    assert (len(table), table.position_count) == (1, 2)
    table.put("g/ü", None)
    assert (len(table), table.position_count) == (0, 0)


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"version":2}', b'{"version":1,"asked_ms":1,"topics":[["t","id",[1],[]]]}']
)
def test_a_record_of_another_kind_is_damage(value: bytes):
    with pytest.raises(CorruptionError, match=TOPIC):
        read_table({b"g": value})


def test_pinning_keeps_what_is_there():
    first, is_new = pin(None, {"t": {0: 5}}, {"t": "a"}, 1)
    assert is_new
    again, is_new = pin(first, {"t": {0: 6}}, {"t": "a"}, 2)
    assert (again.topics, again.asked_ms, is_new) == (first.topics, 2, False)
    more, is_new = pin(again, {"t": {0: 6, 1: 7}}, {"t": "a"}, 3)
    assert (more.topics["t"].offsets, is_new) == ({0: 5, 1: 7}, True)
    other, is_new = pin(more, {"t": {1: 9}}, {"t": "b"}, 4)
    assert (other.topics["t"], is_new) == (PinnedTopic("b", {1: 9}), True)
    assert PositionTable().find("g") is None


def test_a_group_has_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "GROUP_POSITION_COUNT_MAX", 3)

    async def scenario(made: Stand) -> None:
        positions = made.parts.start_positions
        await positions.start()
        await made.topic("t", 4)
        await positions.pin("g", {"t": {0: 1, 1: 1}})
        with pytest.raises(Problem, match="at most 3 positions"):
            await positions.pin("g", {"t": {2: 1, 3: 1}})
        assert positions.find("g") == {"t": {0: 1, 1: 1}}
        await positions.pin("g", {"t": {3: 1}})

    on_stand(scenario)


def test_a_shortened_log_says_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "SHORTEN_ABOVE_COUNT", 20)

    async def scenario(made: Stand) -> None:
        await made.topic("t", 4)
        positions = made.parts.start_positions
        await positions.start()
        await positions.pin("kept", {"t": {0: 1, 3: 2}})
        for number in range(30):
            await positions.pin("other", {"t": {0: number}})
            await positions.delete("other", None)
        log = made.engine.manager.partition(TOPIC, 0)
        assert log.snapshot.log_start_offset == 0
        await made.parts.start_positions.run_jobs()
        assert log.snapshot.log_start_offset > 50
        again = StartPositions(made.engine)
        await again.start()
        assert again.find("kept") == {"t": {0: 1, 3: 2}}
        assert again.find("other") == {}

    on_stand(scenario)
