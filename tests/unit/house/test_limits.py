"""Limits: goals, lists of numbers above them that may only fall, and their file."""

from __future__ import annotations

import pytest

from house.limits import PATH, Fault, Group, Listed, Statements, lowered, read


def texts(group: Group, numbers: dict[str, int]) -> list[str]:
    return [fault.text for fault in group.faults(numbers)]


FOLDERS = Group("folders", 15, {"app": Listed(20), "gone": Listed(17)})


@pytest.mark.parametrize(
    ("numbers", "faults", "is_fall"),
    [
        ({"app": 20, "gone": 17, "small": 15}, [], False),
        ({"app": 20, "gone": 17, "new": 16}, ["folders: new is 16, and 15 is the limit"], False),
        ({"app": 21, "gone": 17}, ["folders: app is 21, and was 20; the goal is 15"], False),
        ({"app": 19, "gone": 17}, ["folders: app is 19, and was 20: lower the entry"], True),
        ({"app": 15, "gone": 17}, ["folders: app is 15, within the limit: take the entry out"], True),
        ({"app": 20}, ["folders: gone is not there: give the entry its new name, or take it out"], False),
    ],
)
def test_a_number_is_held_to_its_goal_or_to_its_entry(
    numbers: dict[str, int], faults: list[str], is_fall: bool
) -> None:
    assert texts(FOLDERS, numbers) == faults
    assert [fault.is_fall for fault in FOLDERS.faults(numbers)] == [is_fall] * len(faults)


def test_a_number_without_a_goal_has_no_limit() -> None:
    group = Group("rooms", {"floors of app": 14})
    assert texts(group, {"floors of app": 14, "floors of storage": 99}) == []
    assert texts(group, {"floors of app": 15}) == ["rooms: floors of app is 15, and 14 is the limit"]


def test_statements_are_held_to_their_total() -> None:
    limit = Statements("abc", {"app": 100, "storage": 50}, allowance=5, aim_percent=95)
    assert (limit.most, limit.aim) == (155, 142)
    assert list(limit.faults({"app": 155, "storage": 0})) == []
    assert [each.text for each in limit.faults({"app": 100, "storage": 56})] == [
        "statements: there are 156, and 155 is the limit"
    ]


TEXT = """\
[folders.listed]
"app" = { now = 20 }  # now = 1
[methods.listed]
"app" = { now = 30, reason = "now = 2" }
"app/http" = { now = 40, reason = "another" }
"""


def test_a_number_that_fell_is_lowered_in_its_own_line() -> None:
    fall = Fault("", "methods", "app", 29, is_fall=True)
    assert lowered(TEXT, fall, 25) == TEXT.replace("now = 30", "now = 29")


def test_an_entry_at_its_goal_is_taken_out() -> None:
    fall = Fault("", "methods", "app", 25, is_fall=True)
    assert lowered(TEXT, fall, 25) == TEXT.replace('"app" = { now = 30, reason = "now = 2" }\n', "")


def test_a_large_class_needs_a_reason() -> None:
    text = PATH.read_text("utf-8")
    read(text)
    with pytest.raises(ValueError, match="methods: a:B needs a reason"):
        read(text.replace("[methods.listed]\n", '[methods.listed]\n"a:B" = { now = 30, reason = " " }\n'))


@pytest.mark.parametrize(
    ("old", "new"),
    [("[folders]", "[other]"), ("entries = [", "others = ["), ("allowance =", "allowed ="), ("now = 81", "then = 81")],
)
def test_a_limits_file_with_a_wrong_member_is_refused(old: str, new: str) -> None:
    text = '[folders.listed]\n"app" = { now = 81 }\n' if old == "now = 81" else ""
    text += PATH.read_text("utf-8").replace("[folders.listed]", "[folders.others]") if text else PATH.read_text("utf-8")
    assert old in text
    with pytest.raises(ValueError, match="limits"):
        read(text.replace(old, new, 1))
