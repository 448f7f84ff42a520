"""The columns of a read, as in Kafka's source, and the columns that a write accepts."""

from __future__ import annotations

import difflib

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from rollway.spark.errors import OptionError

_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
_BYTE_HEADERS = ArrayType(StructType().add("key", BinaryType()).add("value", BinaryType()))
"""Headers whose names may have any bytes, also such as are not UTF-8."""

_PLAIN = (
    StructType()
    .add("key", BinaryType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("timestampType", IntegerType())
)
_WITH_HEADERS = StructType([*_PLAIN.fields, *StructType().add("headers", _HEADERS).fields])

_TEXT_OR_BYTES = (StringType, BinaryType)
_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}


def read_schema(*, include_headers: bool) -> StructType:
    """Return all columns of a read."""
    return StructType((_WITH_HEADERS if include_headers else _PLAIN).fields)


def byte_headers_schema() -> StructType:
    """Return all columns of a read, with the names of headers as bytes."""
    return StructType([*_PLAIN.fields, *StructType().add("headers", _BYTE_HEADERS).fields])


def check_read_schema(schema: StructType) -> None:
    """Refuse a user's schema for a read, unless it consists of columns of the read schema, in any order.

    Raises:
        OptionError: a column is unknown, or has another type.
    """
    for field in schema.fields:
        if field.name not in _WITH_HEADERS.names:
            names = ", ".join(_WITH_HEADERS.names)
            raise OptionError(f"a read has no column {field.name}; {_nearest(field.name)}its columns are {names}")
        wanted = _WITH_HEADERS[field.name].dataType
        if not _is_same(field.dataType, wanted) and not (field.name == "headers" and _has_byte_names(field.dataType)):
            raise OptionError(
                f"the schema has {field.name} as {field.dataType.simpleString()}, but a read gives it as "
                f"{wanted.simpleString()}; cast it in the query"
            )
    if not schema.fields:
        raise OptionError("the schema has no columns")
    if len(set(schema.names)) < len(schema.names):
        raise OptionError("the schema has a column twice")


def check_write_schema(schema: StructType, *, topic: str | None) -> None:
    """Refuse a DataFrame whose columns cannot be written. Columns that a record does not have are ignored.

    Raises:
        OptionError: there is no column value, neither an option nor a column gives the topic, or a column has a wrong
            type.
    """
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if len(types) < len(schema.fields):
        raise OptionError("the rows have two columns of one name; select those to write")
    if "value" not in types:
        names = ", ".join(schema.names)
        raise OptionError(f"the rows have no column value, which is what is written; they have {names}")
    if topic is None and "topic" not in types:
        raise OptionError("nothing says where to write: give the option topic, or a column topic")
    for name, allowed in _WRITTEN.items():
        given = types.get(name)
        if given is not None and not isinstance(given, (*allowed, NullType)):
            wanted = " or ".join(kind().simpleString() for kind in allowed)
            raise OptionError(f"column {name} is {given.simpleString()}, but must be {wanted}; cast it")
    headers = types.get("headers")
    is_fit = headers is None or isinstance(headers, NullType) or _is_same(headers, _HEADERS) or _has_byte_names(headers)
    if headers is not None and not is_fit:
        raise OptionError(f"column headers is {headers.simpleString()}, but must be {_HEADERS.simpleString()}")


def _nearest(name: str) -> str:
    lowered = {each.lower(): each for each in _WITH_HEADERS.names}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return f"did you mean {lowered[found[0]]}? " if found else ""


def _has_byte_names(given: DataType) -> bool:
    return _is_same(given, _BYTE_HEADERS)


def _is_same(given: DataType, wanted: DataType) -> bool:
    """Return whether the types are equal, apart from their nullability."""
    return given.simpleString() == wanted.simpleString()
