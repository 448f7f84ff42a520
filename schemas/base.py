"""The base of every model of the HTTP interface: strictness, and the types of numbers and times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

LONG_MAX = 2**63 - 1
NO_TIMESTAMP = -1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:([Zz])|([+-])(\d\d):(\d\d))", re.ASCII
)
_SPACE_FOR_PLUS = re.compile(r":\d\d(?:\.\d{1,9})? \d\d:\d\d\Z", re.ASCII)
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
NUMBER_TEXT_PATTERN = "^(0|[1-9][0-9]{0,17})$"
"""Pattern of a number that a body holds as text. Every number of 18 digits fits into 64 bits."""
_NUMBER_TEXT = re.compile(NUMBER_TEXT_PATTERN[1:-1], re.ASCII)
NUMBER_TEXT: dict[str, Any] = {"type": "string", "pattern": NUMBER_TEXT_PATTERN}
"""The JSON schema of a number that a body holds as text."""


class Schema(BaseModel):
    """A model of the interface. It never coerces types, refuses unknown fields, and its instances do not change."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)


def parse_timestamp(value: object) -> int:
    """Return the milliseconds since the epoch of ``value``: a whole number of them, or an RFC 3339 date and time.

    Digits below the millisecond are dropped towards the past.

    Raises:
        ValueError: the value is neither, lies before 1970, or does not fit into 63 bits.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LONG_MAX:
            raise ValueError(f"must be from 0 to {LONG_MAX}")
        return value
    match = _RFC_3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = ""
        if isinstance(value, str) and _SPACE_FOR_PLUS.search(value):
            hint = "; write + as %2B in a URL"
        raise ValueError(f"must be milliseconds since 1970 or an RFC 3339 date and time with its zone{hint}")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, _, sign, zone_hours, zone_minutes = match.groups()[6:]
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if sign:
            shift = timedelta(hours=_at_most(zone_hours, 23), minutes=_at_most(zone_minutes, 59))
            moment = moment - shift if sign == "+" else moment + shift
    except (ValueError, OverflowError):
        raise ValueError(f"is no date and time that exists: {value}") from None
    ms = (moment - _EPOCH) // timedelta(milliseconds=1) + int(((fraction or "") + "000")[:3])
    if ms < 0:
        raise ValueError("must not lie before 1970")
    return ms


def _at_most(digits: str, limit: int) -> int:
    number = int(digits)
    if number > limit:
        raise ValueError(f"{number} is above {limit}")
    return number


def parse_record_timestamp(value: object) -> int:
    """Return as ``parse_timestamp``; -1 stands for a record without a timestamp."""
    return NO_TIMESTAMP if type(value) is int and value == NO_TIMESTAMP else parse_timestamp(value)


def parse_whole_number(value: object) -> object:
    """Return the number that a parameter's text is, without spaces, plus signs, points or underscores.

    A value that is no text is returned unchanged.

    Raises:
        ValueError: the text is no such number.
    """
    if isinstance(value, str):
        if _WHOLE_NUMBER.fullmatch(value) is None:
            raise ValueError("must be a whole number")
        return int(value)
    return value


def parse_flag(value: object) -> object:
    """Return the truth value of a parameter's text, ``true`` or ``false``. A value that is no text is unchanged.

    Raises:
        ValueError: the text is neither.
    """
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError("must be true or false")
        return value == "true"
    return value


def parse_parameter_timestamp(value: object) -> int:
    """Return as ``parse_timestamp``, of a parameter, whose number arrives as text."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return parse_timestamp(int(value))
    return parse_timestamp(value)


def number_of_text(value: object) -> object:
    """Return the number of a text of digits in a body; return any other value unchanged.

    Generated clients send words and numbers alike as text where a field allows both.
    """
    return int(value) if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value) else value


def timestamp_schema(description: str, *others: dict[str, Any], minimum: int = 0) -> dict[str, Any]:
    """Return the JSON schema of a time, or of one of ``others``."""
    return {
        "anyOf": [
            {"type": "integer", "format": "int64", "minimum": minimum, "maximum": LONG_MAX},
            {"type": "string", "format": "date-time"},
            *others,
        ],
        "description": description,
        "examples": [1714564800000, "2024-05-01T14:00:00+02:00"],
    }


_TIMESTAMP_TEXT = "Milliseconds since the epoch, or an RFC 3339 date and time."

Timestamp = Annotated[int, BeforeValidator(parse_timestamp), WithJsonSchema(timestamp_schema(_TIMESTAMP_TEXT))]
"""A time in a body."""

RecordTimestamp = Annotated[
    int,
    BeforeValidator(parse_record_timestamp),
    WithJsonSchema(timestamp_schema(f"{_TIMESTAMP_TEXT} -1: none.", minimum=NO_TIMESTAMP)),
]
"""The time of a record in a body."""

TimestampParameter = Annotated[
    int, BeforeValidator(parse_parameter_timestamp), WithJsonSchema(timestamp_schema(_TIMESTAMP_TEXT))
]
"""A time in a query."""

FlagParameter = Annotated[bool, BeforeValidator(parse_flag)]
"""A truth value in a query."""

Long = Annotated[int, Field(ge=-1, le=LONG_MAX, json_schema_extra={"format": "int64"})]
"""A 64-bit number in Kafka's notation: -1 stands for no value."""

Count = Annotated[int, Field(ge=0, le=LONG_MAX, json_schema_extra={"format": "int64"})]
"""A number of things or bytes."""


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Annotation of an ``int`` in a query or a path, where it is text: plain digits from ``low`` to ``high``.

    Example: ``Annotated[int, WholeNumber(0, 99)]`` accepts ``"42"`` and refuses ``"+42"``, ``"4_2"`` and ``"100"``.
    """

    low: int = 0
    high: int = LONG_MAX

    def parse(self, value: object) -> int:
        """Return the number that ``value`` is.

        Raises:
            ValueError: it is no plain number, or outside the limits.
        """
        try:
            number = parse_whole_number(value)
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or not self.low <= number <= self.high:
            raise ValueError(f"must be a whole number from {self.low} to {self.high}")
        return number

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "integer", "format": "int64", "minimum": self.low, "maximum": self.high}
