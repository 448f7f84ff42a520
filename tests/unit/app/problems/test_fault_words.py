"""The coders' sentences in JSON's words."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest

from app.problems.fault_words import coder_words, unknown_field
from schemas.topics import TopicSpecification


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """One of several."""

    number: Annotated[int, msgspec.Meta(ge=0)] = 0
    place: Literal["earliest", "latest"] = "earliest"


class Whole(msgspec.Struct):
    """All of them."""

    parts: list[Part] = []
    share: float | None = None


@pytest.mark.parametrize(
    ("body", "steps", "words"),
    [
        (b'{"parts":1}', ["parts"], "must be an array, not a whole number"),
        (
            b'{"parts":[{"number":1.5}]}',
            ["parts", "0", "number"],
            "must be a whole number, not a number with a fraction",
        ),
        (b'{"parts":[{"number":-1}]}', ["parts", "0", "number"], "must be a whole number >= 0"),
        (b'{"parts":[{"place":"x"}]}', ["parts", "0", "place"], "must be one of earliest, latest"),
        (b'{"share":true}', ["share"], "must be a number or null, not true or false"),
        (b"[]", [], "must be an object, not an array"),
    ],
)
def test_the_words_of_msgspec(body: bytes, steps: list[str], words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=Whole)
    assert coder_words(str(caught.value).partition(" - at ")[0], Whole, steps) == words


def test_a_type_that_nobody_names() -> None:
    assert coder_words("Invalid enum value 'x'", None, ["place"]) == "Invalid enum value 'x'"
    assert coder_words("something else", Whole, []) == "something else"
    assert unknown_field("x", None, []) == "unknown field"


def test_fields_that_there_are() -> None:
    assert unknown_field("numbr", Whole, ["parts", "0"]) == "unknown field; did you mean number?"
    assert unknown_field("zzzz", TopicSpecification, []) == "unknown field; allowed: config, partitions"
