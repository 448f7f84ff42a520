"""Rows of any shape to rows that can be written: key, value, headers, timestamp and partition by SQL expression."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it
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
"""How much of a row is kept where the row itself cannot be."""

RECORD_OVERHEAD_BYTES = 128
"""More than a record needs beside its key, value and headers, with the head of a batch it has for itself."""
HEADER_OVERHEAD_BYTES = 10
"""More than a header needs beside its name and value: two lengths."""

# Spark counts microseconds in 64 bits.
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Of values that are written as JSON. Spark's own leave out what is below a millisecond."""

UNDATED = r"^[\x00-\x20]*T?\d{1,2}:"
"""Strings that Spark takes as a time of today."""

# A day without hyphens, and milliseconds: Spark takes neither.
_LONG_NUMBER = r"^\d{8,}$"
NUMBER_AS_TEXT = "the timestamp is a number as text: cast(... AS BIGINT) makes milliseconds of it"

# The exceptions of a Java stack trace, as py4j prints it: the outermost behind a colon.
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

    ``value`` unless given: the column ``value`` of a text file, a line of JSON as it stands in the file, otherwise the
    whole row as JSON (nulls left out). A
    key or value that is neither string nor binary is written as text, a struct, map or array as JSON. ``timestamp``
    may be a timestamp, a date, a string that is one, or milliseconds since the epoch. A string that is a time without a
    date is none, though Spark takes it as one of today.
    """

    key: str | None = None
    value: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None

    @property
    def need_columns(self) -> bool:
        """Whether there is one at all: a row as it stands in the file needs none."""
        return any(each is not None for each in (self.key, self.value, self.headers, self.timestamp, self.partition))


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """What a topic takes: partitions ``[0, partition_count)``, batches up to a size, timestamps from ``oldest_ms`` to
    ``newest_ms``, both included, and whether only records with a key."""

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
    """``source`` as records: key, value, headers, timestamp, partition (those asked for), ``REASON`` and ``SOURCE``.

    ``REASON`` is null for rows that can be written, else why not; ``SOURCE`` is then the row as text. ``corrupt``
    names the column in which Spark put lines it could not read. A source without columns is one without rows.

    ``has_guessed_numbers``: floating-point columns are so because Spark found it, and print otherwise than they stand
    in the file.

    Raises:
        JobUsageError: an expression is wrong, or has a type that cannot become what it is for.
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
    """The row as it is written where no expression says otherwise."""
    if LINE in source.columns:
        return column(LINE)
    if list(names) == ["value"] and isinstance(source.schema["value"].dataType, StringType | BinaryType):
        return F.col("value")
    return F.to_json(F.struct(*map(column, names)), JSON_OPTIONS)


def _no_records(source: DataFrame, expressions: RecordExpressions) -> DataFrame:
    """What no expression can be tried on."""
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
    """Few whatever the rows are: rejects are counted by reason, and which row it is stands beside it."""
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
    """Expressions over one source, with errors that name the option and the columns there are."""

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
        """The timestamp, and why it is none, though there is a text for it."""
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
        """In 64 bits: what does not fit into 32 is to be told from what does."""
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
        # A star is no column, though it may be the name of one.
        return (column(fields[0].name) if expression.strip() == "*" else chosen), fields[0].dataType


def _of_milliseconds(number: Column) -> Column:
    """What lies outside Spark's timestamps is the last that does not, or the last before 1970: both have a reason."""
    largest = F.lit(_TIMESTAMP_MS_MAX)
    return F.timestamp_millis(F.when(number > largest, largest).when(number < 0, F.lit(-1)).otherwise(number))


def _as_bytes(column: Column, kind: DataType) -> Column:
    """Bytes as they are, text in UTF-8, what has parts as JSON, and all else as Spark prints it."""
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
    """Headers of an array of structs with these two fields."""
    return F.transform(
        pairs,
        lambda pair: F.struct(
            pair[names[0]].cast("string").alias("key"), _as_bytes(pair[names[1]], value_type).alias("value")
        ),
    )


def told_reasons(rejected: Mapping[str, int]) -> str:
    """How many rows have which ``REASON``, for people."""
    return "; ".join(f'{count:,} x "{reason}"' for reason, count in rejected.items())


def first_sentence(error: BaseException) -> str:
    """The first line of what Spark says, without its class of errors and its SQLSTATE.

    Of a Java exception that is the innermost cause, behind the name of the file if a file could not be read.
    """
    line = _java_sentence(str(error)) if isinstance(error, Py4JJavaError) else ""
    line = line or next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    line = _plain(line)
    return line if line.endswith((".", "?", "!")) else f"{line}."


def explained_name(error: BaseException) -> str:
    """``first_sentence``, and what helps if a name is that of two columns."""
    sentence = first_sentence(error)
    if "AMBIGUOUS_REFERENCE" in str(error):
        return f"{sentence} --conf spark.sql.caseSensitive=true, before the job, tells names apart that differ by case."
    return sentence


def _java_sentence(trace: str) -> str:
    """Empty if no exception in the trace says anything."""
    causes = [(name.rpartition(".")[2], _plain(message or "")) for name, message in _JAVA_CAUSE.findall(trace)]
    if not causes:
        return ""
    name, message = causes[-1]
    # Some say only what is wrong with it: InvalidTopicException: a/b.
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
