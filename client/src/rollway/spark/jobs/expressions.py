"""Rows of any shape as records: key, value, headers, timestamp and partition by SQL expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from rollway.spark.jobs.columns import LINE, LINE_REASON, column, star_without
from rollway.spark.jobs.errors import JobUsageError

REASON = "__reason"
SOURCE = "__source"
SHOWN_CHARACTERS_MAX = 1000
"""Characters of a rejected row that are kept."""

RECORD_OVERHEAD_BYTES = 128
"""Upper bound of a record's bytes beside its key, value and headers, with the header of a batch that has only it."""
HEADER_OVERHEAD_BYTES = 10
"""Upper bound of a header's bytes beside its name and value: two lengths."""

# Spark counts microseconds in 64 bits.
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Formats of times in values that are written as JSON. Spark's default formats cut times to milliseconds."""

UNDATED = r"^[\x00-\x20]*T?\d{1,2}:"
"""Pattern of strings that Spark takes as a time of today."""

# A date without hyphens, or milliseconds. Spark parses neither.
_LONG_NUMBER = r"^\d{8,}$"
NUMBER_AS_TEXT = "the timestamp is a number as text: cast(... AS BIGINT) makes milliseconds of it"

# The exceptions in a Java stack trace as py4j prints it. The outermost follows a colon.
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: ((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?:: (.*))?$", re.MULTILINE)
_UNREADABLE_FILE = re.compile(
    r"\[FAILED_READ_FILE[\w.]*\] Encountered error while reading file (\S+?)\.? ", re.MULTILINE
)

_OTHER_HEADER = re.compile("CSV header does not conform to the schema|Number of column in CSV header is not equal")
OTHER_HEADER = (
    "its header line has other columns than the other files, or than --schema: files of the same columns can be read "
    "together, and --read-option enforceSchema=true takes columns by position, whatever their names."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpressions:
    """SQL expressions over the columns of the source, as in ``selectExpr``.

    Without ``value``, it is the column ``value`` of a text file, the unchanged line of a JSON file, and otherwise the
    whole row as JSON (without nulls). A key or value that is neither string nor binary is written as text; a struct,
    map or array is written as JSON. ``timestamp`` may be a timestamp, a date, a string with one of them, or
    milliseconds since the epoch. A string with a time but no date is rejected, although Spark takes it as today.

    Example: ``RecordExpressions(key="sensor", timestamp="at", headers="map('unit', unit)")``.
    """

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None

    @property
    def need_columns(self) -> bool:
        """True if there is any expression. Unchanged lines of a file need no columns."""
        return any(each is not None for each in (self.key, self.value, self.headers, self.timestamp, self.partition))


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of a topic's records: partitions ``[0, partition_count)``, the size of a batch, timestamps from
    ``oldest_ms`` to ``newest_ms``, both included, and whether a key is required."""

    partition_count: int | None = None
    record_bytes_max: int | None = None
    oldest_ms: int | None = None
    newest_ms: int | None = None
    needs_key: bool = False


def record_rows(
    source: DataFrame,
    expressions: RecordExpressions,
    *,
    corrupt: str | None = None,
    limits: RecordLimits = RecordLimits(),
    has_guessed_numbers: bool = False,
) -> DataFrame:
    """Return ``source`` as records: value, and key, headers, timestamp and partition if there are expressions for them.

    Two more columns are ``REASON`` and ``SOURCE``. ``REASON`` is null for rows that can be written. Otherwise it is the
    fault, and ``SOURCE`` is the row as text. ``corrupt`` is the column for lines that Spark could not read. A source
    without columns has no rows.

    With ``has_guessed_numbers``, Spark has inferred floating-point columns, which print differently from the file.

    Raises:
        JobUsageError: an expression is wrong, or has a type that does not fit its purpose.
    """
    if not source.columns:
        return _no_records(source, expressions)
    hidden = [name for name in (LINE, LINE_REASON, corrupt) if name in source.columns]
    plain = [name for name in source.columns if name not in hidden]
    whole = _whole(source, plain)
    reader = _Expressions(source, plain, hidden, has_guessed_numbers=has_guessed_numbers)
    columns: list[Column] = []
    if expressions.key is not None:
        columns.append(reader.bytes_of("key", expressions.key).alias("key"))
    columns.append(
        (whole.cast("binary") if expressions.value is None else reader.bytes_of("value", expressions.value)).alias(
            "value"
        )
    )
    if expressions.headers is not None:
        columns.append(reader.headers_of(expressions.headers).alias("headers"))
    if expressions.timestamp is not None:
        timestamp, no_time = reader.timestamp_of(expressions.timestamp)
        columns += [timestamp.alias("timestamp"), no_time.alias("__no_time")]
    if expressions.partition is not None:
        columns.append(reader.partition_of(expressions.partition).alias("partition"))
    nothing = F.lit(None).cast("string")
    unreadable = nothing if corrupt is None else column(corrupt)
    line_reason = column(LINE_REASON) if LINE_REASON in hidden else nothing
    rows = source.select(
        *columns, unreadable.alias("__corrupt"), whole.cast("string").alias("__whole"), line_reason.alias("__line")
    )
    reason = F.coalesce(
        F.col("__line"),
        F.when(F.col("__corrupt").isNotNull(), F.lit("the line does not fit the columns")),
        *_reasons(expressions, limits),
    )
    shown = F.substring(F.coalesce("__corrupt", "__whole"), 1, SHOWN_CHARACTERS_MAX)
    judged = (
        rows.withColumn(REASON, reason)
        .withColumn(SOURCE, F.when(F.col(REASON).isNotNull(), shown))
        .drop("__corrupt", "__whole", "__no_time", "__line")
    )
    if expressions.partition is None:
        return judged
    return judged.withColumn("partition", F.col("partition").try_cast("int"))


def _whole(source: DataFrame, names: Sequence[str]) -> Column:
    """Return the value of a row without an expression for the value."""
    if LINE in source.columns:
        return column(LINE)
    if list(names) == ["value"] and isinstance(source.schema["value"].dataType, StringType | BinaryType):
        return F.col("value")
    return F.to_json(F.struct(*map(column, names)), JSON_OPTIONS)


def _no_records(source: DataFrame, expressions: RecordExpressions) -> DataFrame:
    """Return no records, of a source without columns, on which no expression can be tried."""
    types = {
        "key": "binary",
        "value": "binary",
        "headers": "array<struct<key:string,value:binary>>",
        "timestamp": "timestamp",
        "partition": "int",
    }
    asked = [name for name in types if name == "value" or getattr(expressions, name) is not None]
    columns = [F.lit(None).cast(types[name]).alias(name) for name in asked]
    return source.limit(0).select(*columns, *[F.lit(None).cast("string").alias(name) for name in (REASON, SOURCE)])


def _reasons(expressions: RecordExpressions, limits: RecordLimits) -> list[Column]:
    """Return the checks of a row. Their sentences are few, because rejects are counted by reason."""
    reasons = []
    if expressions.timestamp is not None:
        reasons += _timestamp_reasons(F.col("timestamp"), limits)
    if expressions.partition is not None and limits.partition_count is not None:
        outside = (F.col("partition") < 0) | (F.col("partition") >= limits.partition_count)
        sentence = F.lit(f"there is no such partition, the topic has {limits.partition_count}")
        reasons.append(F.when(outside, sentence))
    if limits.needs_key:
        has_none = F.lit(True) if expressions.key is None else F.col("key").isNull()
        reasons.append(F.when(has_none, F.lit("there is no key, and the topic is compacted by key")))
    if expressions.headers is not None:
        is_nameless = F.exists("headers", lambda header: header["key"].isNull())
        reasons.append(F.when(is_nameless, F.lit("a header has no name")))
    if limits.record_bytes_max is not None:
        size = _bytes_in(F.col("value")) + F.lit(RECORD_OVERHEAD_BYTES)
        if expressions.key is not None:
            size = size + _bytes_in(F.col("key"))
        if expressions.headers is not None:
            size = size + F.coalesce(F.aggregate("headers", F.lit(0).cast("bigint"), _with_header), F.lit(0))
        sentence = F.lit(f"the record is larger than the topic's max.message.bytes ({limits.record_bytes_max})")
        reasons.append(F.when(size > limits.record_bytes_max, sentence))
    return reasons


def _bytes_in(part: Column) -> Column:
    return F.coalesce(F.octet_length(part), F.lit(0)).cast("bigint")


def _with_header(size: Column, header: Column) -> Column:
    return size + _bytes_in(header["key"]) + _bytes_in(header["value"]) + F.lit(HEADER_OVERHEAD_BYTES)


def _timestamp_reasons(timestamp: Column, limits: RecordLimits) -> list[Column]:
    the_topics = "than the topic's message.timestamp"
    reasons = [
        F.col("__no_time"),
        F.when(timestamp.isNull(), F.lit("there is no timestamp")),
        F.when(timestamp < _at(0), F.lit("the timestamp is before 1970")),
        F.when(timestamp >= _at(_TIMESTAMP_MS_MAX), F.lit("the timestamp is too large for milliseconds since 1970")),
    ]
    if limits.oldest_ms is not None:
        sentence = f"the timestamp is further in the past {the_topics}.before.max.ms allows"
        reasons.append(F.when(timestamp < _at(limits.oldest_ms), F.lit(sentence)))
    if limits.newest_ms is not None:
        sentence = f"the timestamp is further in the future {the_topics}.after.max.ms allows"
        reasons.append(F.when(timestamp >= _at(limits.newest_ms + 1), F.lit(sentence)))
    return reasons


def _at(milliseconds: int) -> Column:
    return F.timestamp_millis(F.lit(min(milliseconds, _TIMESTAMP_MS_MAX)).cast("bigint"))


class _Expressions:
    """Expressions over one source, with errors that name the option and the columns of the source."""

    def __init__(
        self, source: DataFrame, plain: Sequence[str], hidden: Sequence[str], *, has_guessed_numbers: bool
    ) -> None:
        self._source = source
        self._plain = plain
        self._hidden = hidden
        self._has_guessed_numbers = has_guessed_numbers

    def bytes_of(self, option: str, expression: str) -> Column:
        chosen, kind = self._resolve(option, expression)
        if self._has_guessed_numbers and isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
            raise JobUsageError(
                f"--{option} {expression!r} is a {kind.simpleString()}, which may print otherwise than it stands in "
                "the file, 1.10 as 1.1: --schema with the column as STRING keeps its text, cast(... AS STRING) takes "
                "what Spark prints."
            )
        return _as_bytes(chosen, kind)

    def timestamp_of(self, expression: str) -> tuple[Column, Column]:
        """Return the timestamp, and the reason why a text is none."""
        chosen, kind = self._resolve("timestamp", expression)
        nothing = F.lit(None).cast("string")
        match kind:
            case TimestampType():
                return chosen, nothing
            case StringType():
                reason = F.when(chosen.rlike(UNDATED), F.lit("the timestamp is a time without a date"))
                return chosen.try_cast("timestamp"), reason.when(chosen.rlike(_LONG_NUMBER), F.lit(NUMBER_AS_TEXT))
            case TimestampNTZType() | DateType():
                return chosen.try_cast("timestamp"), nothing
            case IntegralType():
                return _of_milliseconds(chosen.cast("bigint")), nothing
        raise JobUsageError(
            f"--timestamp {expression!r} is {kind.simpleString()}: a timestamp, date, string or whole number of "
            "milliseconds is needed."
        )

    def partition_of(self, expression: str) -> Column:
        """Return the partition in 64 bits, so that numbers which do not fit into 32 bits can be rejected."""
        chosen, kind = self._resolve("partition-by", expression)
        if not isinstance(kind, IntegralType):
            hint = ", and cast(... AS BIGINT) makes one of text" if isinstance(kind, StringType) else ""
            raise JobUsageError(
                f"--partition-by {expression!r} is {kind.simpleString()}: a whole number is needed{hint}."
            )
        return chosen.cast("bigint")

    def headers_of(self, expression: str) -> Column:
        chosen, kind = self._resolve("headers", expression)
        if isinstance(kind, MapType):
            return _headers(F.map_entries(chosen), ("key", "value"), kind.valueType)
        if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
            match kind.elementType.fields:
                case [key, value]:
                    return _headers(chosen, (key.name, value.name), value.dataType)
        raise JobUsageError(
            f"--headers {expression!r} is {kind.simpleString()}: a map, or an array of structs of a key "
            "and a value is needed."
        )

    def _resolve(self, option: str, expression: str) -> tuple[Column, DataType]:
        if not expression.strip():
            raise JobUsageError(f"--{option} is empty.")
        chosen = F.expr(star_without(expression, self._hidden))
        try:
            fields = self._source.select(chosen).schema.fields
        except PySparkException as error:
            raise JobUsageError(
                f"--{option} {expression!r} cannot be used: {explained_name(error)} The columns are "
                f"{_listed(self._plain)}."
            ) from None
        if len(fields) != 1:
            raise JobUsageError(f"--{option} {expression!r} is {len(fields)} columns: one is needed.")
        # A star is no column, although a column may have this name.
        return (column(fields[0].name) if expression.strip() == "*" else chosen), fields[0].dataType


def _of_milliseconds(number: Column) -> Column:
    """Return the timestamp of a number of milliseconds.

    A number above Spark's timestamps becomes the greatest one, and a negative number the last before 1970. Rows with
    either of these are rejected.
    """
    largest = F.lit(_TIMESTAMP_MS_MAX)
    return F.timestamp_millis(F.when(number > largest, largest).when(number < 0, F.lit(-1)).otherwise(number))


def _as_bytes(column: Column, kind: DataType) -> Column:
    """Return bytes unchanged, text in UTF-8, composite values as JSON, and other values as Spark prints them."""
    match kind:
        case BinaryType():
            return column
        case StringType():
            return column.cast("binary")
        case StructType() | MapType() | ArrayType() | VariantType():
            return F.to_json(column, JSON_OPTIONS).cast("binary")
        case _:
            return column.cast("string").cast("binary")


def _headers(pairs: Column, names: tuple[str, str], value_type: DataType) -> Column:
    """Return headers of an array of structs with these two fields."""
    return F.transform(
        pairs,
        lambda pair: F.struct(
            pair[names[0]].cast("string").alias("key"), _as_bytes(pair[names[1]], value_type).alias("value")
        ),
    )


def told_reasons(rejected: Mapping[str, int]) -> str:
    """Return the number of rows by ``REASON``, for people."""
    return "; ".join(f'{count:,} x "{reason}"' for reason, count in rejected.items())


def first_sentence(error: BaseException) -> str:
    """Return the first line of Spark's message, without the error class and the SQLSTATE.

    Of a Java exception it is the innermost cause, after the name of the file if a file could not be read.
    """
    line = _java_sentence(str(error)) if isinstance(error, Py4JJavaError) else ""
    line = line or next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    line = _plain(line)
    return line if line.endswith((".", "?", "!")) else f"{line}."


def explained_name(error: BaseException) -> str:
    """Return the ``first_sentence``, with a remedy if two columns have one name."""
    sentence = first_sentence(error)
    if "AMBIGUOUS_REFERENCE" in str(error):
        return f"{sentence} --conf spark.sql.caseSensitive=true, before the job, tells names apart that differ by case."
    return sentence


def _java_sentence(trace: str) -> str:
    """Return the sentence of the innermost exception of a trace; empty if none has a message."""
    causes = [(name.rpartition(".")[2], _plain(message or "")) for name, message in _JAVA_CAUSE.findall(trace)]
    if not causes:
        return ""
    name, message = causes[-1]
    # The message of some exceptions is only the wrong value: InvalidTopicException: a/b.
    sentence = message if " " in message else ": ".join(filter(None, (name, message)))
    if _OTHER_HEADER.match(message):
        sentence = OTHER_HEADER
    file = _UNREADABLE_FILE.search(trace)
    return sentence if file is None or file[1] in sentence else f"{file[1]} cannot be read: {sentence}"


def _plain(line: str) -> str:
    if line.startswith("[") and "] " in line:
        line = line.partition("] ")[2]
    return line.partition(" SQLSTATE: ")[0].rstrip()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 40 else f"{', '.join(names[:40])} and {len(names) - 40} more"
