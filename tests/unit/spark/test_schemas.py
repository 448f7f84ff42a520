from __future__ import annotations

import pytest
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
from rollway.spark.schemas import byte_headers_schema, check_read_schema, check_write_schema, read_schema

KAFKAS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def columns(**types: DataType) -> StructType:
    schema = StructType()
    for name, kind in types.items():
        schema = schema.add(name, kind)
    return schema


def test_the_schema_of_a_read_is_that_of_kafkas_source() -> None:
    assert read_schema(include_headers=True).simpleString() == KAFKAS
    assert read_schema(include_headers=False).names == read_schema(include_headers=True).names[:-1]
    assert all(field.nullable for field in read_schema(include_headers=True).fields)


def test_a_schema_may_name_some_columns_in_any_order() -> None:
    check_read_schema(columns(offset=LongType(), value=BinaryType()))
    check_read_schema(read_schema(include_headers=True))
    check_read_schema(StructType().add("value", BinaryType(), nullable=False))


def headers_of(name: DataType, value: DataType) -> StructType:
    return columns(value=BinaryType(), headers=ArrayType(StructType().add("key", name).add("value", value)))


def test_names_of_headers_may_be_bytes() -> None:
    """As text, a name that is not UTF-8 is not kept."""
    schema = headers_of(BinaryType(), BinaryType())
    check_read_schema(schema)
    check_write_schema(schema, topic="t")
    check_read_schema(byte_headers_schema())
    assert byte_headers_schema().names == read_schema(include_headers=True).names


@pytest.mark.parametrize("schema", [headers_of(LongType(), BinaryType()), headers_of(BinaryType(), StringType())])
def test_headers_of_other_types_are_refused(schema: StructType) -> None:
    with pytest.raises(OptionError, match="the schema has headers as array"):
        check_read_schema(schema)
    with pytest.raises(OptionError, match="column headers is array"):
        check_write_schema(schema, topic="t")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (columns(vlue=BinaryType()), "a read has no column vlue; did you mean value?"),
        (columns(Value=BinaryType()), "a read has no column Value; did you mean value?"),
        (columns(x=BinaryType()), "a read has no column x; its columns are key, value"),
        (columns(value=StringType()), "the schema has value as string, but a read gives it as binary; cast it"),
        (StructType().add("value", BinaryType()).add("value", BinaryType()), "the schema has a column twice"),
        (StructType(), "the schema has no columns"),
    ],
)
def test_other_schemas_of_reads_are_refused(schema: StructType, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_read_schema(schema)
    assert str(caught.value).startswith(message)


def test_what_was_read_can_be_written() -> None:
    check_write_schema(read_schema(include_headers=True), topic=None)
    check_write_schema(columns(VALUE=StringType(), key=NullType(), more=LongType()), topic="flights")


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        (columns(key=StringType()), "t", "the rows have no column value, which is what is written; they have key"),
        (columns(value=StringType()), None, "nothing says where to write: give the option topic, or a column topic"),
        (columns(value=LongType()), "t", "column value is bigint, but must be string or binary; cast it"),
        (
            columns(value=StringType(), partition=LongType()),
            "t",
            "column partition is bigint, but must be int; cast it",
        ),
        (columns(value=StringType(), timestamp=LongType()), "t", "column timestamp is bigint, but must be timestamp"),
        (
            columns(value=StringType(), headers=ArrayType(StringType())),
            "t",
            "column headers is array<string>, but must",
        ),
        (columns(value=StringType(), Value=StringType()), "t", "the rows have two columns of one name"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(schema: StructType, topic: str | None, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_write_schema(schema, topic=topic)
    assert str(caught.value).startswith(message)


def test_types_that_need_no_cast() -> None:
    check_write_schema(
        columns(value=BinaryType(), partition=IntegerType(), timestamp=TimestampType(), topic=StringType()), topic=None
    )
