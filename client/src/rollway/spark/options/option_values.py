"""The values of options, parsed from text. Every refusal names the option and shows its text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rollway.spark.errors import OptionError
from rollway.spark.options.option_names import canonical

LONG_MAX = 2**63 - 1
EARLIEST = -2
LATEST = -1
TOPIC_ID = "topic_id"
"""Member among the partitions of a topic in positions: the id of the topic that the offsets belong to."""

StartOrEnd = Literal["earliest", "latest"] | dict[str, dict[int, int]]

_DURATION = re.compile(r"(\d{1,18})\s*(ms|s|m|min|h|d)?")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d{1,18})\s*(b|k|kb|m|mb|g|gb)?")
_POSITIONS = '{"topic": {"0": 23, "1": -2}}, earliest or latest'
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
_SIZE_BYTES = {"b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


class OptionValues:
    """The options of one read or write, by their names in lower case.

    Example: ``OptionValues({"maxTriggerDelay": "90s"}).duration_ms("maxTriggerDelay", 0)`` is 90000.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}

    @property
    def given(self) -> Mapping[str, str]:
        """All options with their texts."""
        return self._given

    def text(self, *names: str) -> str | None:
        """Return the first of the named options that is given, without surrounding spaces; ``None`` if none is.

        Raises:
            OptionError: it is empty.
        """
        for name in names:
            value = self._given.get(name.lower())
            if value is not None:
                if not value.strip():
                    raise OptionError(f"{canonical(name)} is empty")
                return value.strip()
        return None

    def number(self, name: str, default: int | None = None, *, least: int = 1, most: int = LONG_MAX) -> int | None:
        """Return a whole number.

        Raises:
            OptionError: the text is no whole number, or outside its limits.
        """
        text = self.text(name)
        if text is None:
            return default
        if re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII) is None or not least <= int(text) <= most:
            limits = f"of at least {least}" if most == LONG_MAX else f"from {least} to {most}"
            raise OptionError(f"{canonical(name)} is {text!r}, but must be a whole number {limits}")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a truth value, ``true`` or ``false``.

        Raises:
            OptionError: the text is neither.
        """
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{canonical(name)} is {text!r}, but must be true or false")
        return text.lower() == "true"

    def choice(self, name: str, choices: Sequence[str], default: str, *others: str) -> str:
        """Return one of the choices, from this option or from the first of ``others`` that is given.

        Raises:
            OptionError: the text is none of the choices.
        """
        for each in (name, *others):
            text = self.text(each)
            if text is not None:
                if text.lower() not in choices:
                    raise OptionError(f"{canonical(each)} is {text!r}, but must be one of {', '.join(choices)}")
                return text.lower()
        return default

    def duration_ms(self, name: str, default: int, *others: str) -> int:
        """Return the milliseconds of a duration as Spark writes it: 90s, 15m, 1h. A bare number is milliseconds.

        Raises:
            OptionError: the text is no duration, or zero.
        """
        for each in (name, *others):
            text = self.text(each)
            if text is not None:
                return _scaled(each, text, _DURATION, _DURATION_MS, "ms", "a duration such as 90s, 15m or 1h")
        return default

    def size_bytes(self, name: str, default: int, *, most: int = LONG_MAX) -> int:
        """Return the bytes of a size as Spark writes it: 512k, 4m. A bare number is bytes.

        Raises:
            OptionError: the text is no size, zero, or above ``most``.
        """
        text = self.text(name)
        if text is None:
            return default
        size = _scaled(name, text, _SIZE, _SIZE_BYTES, "b", "a size such as 1048576, 512k or 4m")
        if size > most:
            raise OptionError(f"{canonical(name)} is {text!r}, but must be at most {most} bytes")
        return size

    def topics(self, name: str) -> tuple[str, ...] | None:
        """Return names that are separated by commas, each once.

        Raises:
            OptionError: the text has no name.
        """
        text = self.text(name)
        if text is None:
            return None
        names = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not names:
            raise OptionError(f"{canonical(name)} is {text!r}, but must name topics, separated by commas")
        return names

    def pattern(self, name: str) -> str | None:
        """Return a regular expression.

        Raises:
            OptionError: the text is not a valid one.
        """
        text = self.text(name)
        if text is not None:
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"{canonical(name)} is {text!r}, which is no pattern: {error}") from None
        return text

    def assignment(self, name: str) -> dict[str, tuple[int, ...]] | None:
        """Return partitions by topic, from ``{"topic": [0, 1]}``.

        Raises:
            OptionError: the text has another form.
        """
        text = self.text(name)
        if text is None:
            return None
        document = _object(name, text, '{"topic": [0, 1]}')
        for topic, partitions in document.items():
            if not isinstance(partitions, list) or not partitions or not all(_is_number(each) for each in partitions):
                raise OptionError(f"{canonical(name)}: the partitions of {topic} must be a list like [0, 1]")
        return {topic: tuple(sorted(set(partitions))) for topic, partitions in document.items()}

    def positions(self, name: str) -> StartOrEnd | None:
        """Return earliest, latest, or offsets, from ``{"topic": {"0": 23, "1": -2}}``: -2 is earliest, -1 is latest.

        Raises:
            OptionError: the text has another form.
        """
        text = self.text(name)
        if text is None:
            return None
        match text.lower():
            case "earliest":
                return "earliest"
            case "latest":
                return "latest"
            case _:
                return self._by_partition(name, text, _POSITIONS, EARLIEST)

    def topic_ids(self, *names: str) -> dict[str, str]:
        """Return the topic ids in these positions, by topic.

        Raises:
            OptionError: one is no id, or two of one topic differ.
        """
        found: dict[str, str] = {}
        for name in names:
            text = self.text(name)
            if text is None or text.lower() in ("earliest", "latest"):
                continue
            for topic, members in _object(name, text, _POSITIONS).items():
                if not isinstance(members, dict) or TOPIC_ID not in members:
                    continue
                topic_id = members[TOPIC_ID]
                if not isinstance(topic_id, str) or _TOPIC_ID.fullmatch(topic_id) is None:
                    raise OptionError(f"{canonical(name)}: {TOPIC_ID} of {topic} is {topic_id!r}, which is no id")
                if found.setdefault(topic, topic_id) != topic_id:
                    raise OptionError(f"{' and '.join(names)} have two values for {TOPIC_ID} of {topic}")
        return found

    def times(self, name: str) -> dict[str, dict[int, int]] | None:
        """Return times in milliseconds by topic and partition, from ``{"topic": {"0": 1372910400000}}``.

        Raises:
            OptionError: the text has another form.
        """
        text = self.text(name)
        return None if text is None else self._by_partition(name, text, '{"topic": {"0": 1372910400000}}', 0)

    def _by_partition(self, name: str, text: str, example: str, least: int) -> dict[str, dict[int, int]]:
        document = _object(name, text, example)
        numbers: dict[str, dict[int, int]] = {}
        for topic, by_partition in document.items():
            if not isinstance(by_partition, dict) or not by_partition:
                raise OptionError(f"{canonical(name)}: what is given for {topic} must be an object of partitions")
            for partition, number in by_partition.items():
                if partition == TOPIC_ID and least < 0:
                    continue
                if not re.fullmatch(r"\d{1,9}", partition, re.ASCII):
                    raise OptionError(f"{canonical(name)}: {partition!r} is no partition of {topic}")
                if not _is_number(number, least):
                    what = "an offset, -2 or -1" if least < 0 else "milliseconds since 1970"
                    raise OptionError(f"{canonical(name)}: {topic}-{partition} is {number!r}, but must be {what}")
                numbers.setdefault(topic, {})[int(partition)] = number
        return numbers


def _scaled(name: str, text: str, form: re.Pattern[str], units: Mapping[str, int], unit: str, what: str) -> int:
    found = form.fullmatch(text.lower())
    if found is None or int(found[1]) == 0:
        raise OptionError(f"{canonical(name)} is {text!r}, but must be {what}")
    return int(found[1]) * units[found[2] or unit]


def _object(name: str, text: str, example: str) -> dict[str, Any]:
    """Parse a JSON object that is not empty."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not document:
        raise OptionError(f"{canonical(name)} is {text!r}, but must be like {example}")
    return document


def _is_number(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LONG_MAX
