"""Files as records for ``compare``, read by a second reader that ``load`` does not use.

Spark only brings the bytes between two line breaks to the tasks. ``raw_records`` divides them into lines, fields and
objects, in Python. Spark evaluates expressions over the columns that are read this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rollway.spark.jobs.columns import LINE, LINE_REASON, column, quoted
from rollway.spark.jobs.expressions import JSON_OPTIONS, RecordExpressions, record_rows
from rollway.spark.jobs.files.discovering import discovering_session, folder_columns
from rollway.spark.jobs.files.file_sources import CORRUPT, FileSource, chosen_rows, read_files
from rollway.spark.jobs.files.json_lines import DOES_NOT_FIT
from rollway.spark.jobs.files.raw_records import (
    CsvDialect,
    NoRecordError,
    csv_records,
    json_column,
    json_fields,
    json_of_fields,
    lines_without_ends,
)

_LISTING = frozenset({"pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"})
_KNOWN = {
    "csv": _LISTING | {"header", "sep", "delimiter", "quote", "encoding", "charset", "multiline", "inferschema"},
    "json": _LISTING | {"encoding", "charset", "multiline", "samplingratio"},
    "text": _LISTING,
}
_WIDE = ("utf-16", "utf16", "utf-32", "utf32")


def why_not_independent(source: FileSource) -> str | None:
    """Return the reason why only the reader of ``load`` can read these files; ``None`` if the second reader can."""
    if source.format not in _KNOWN:
        return f"{source.format} has columns of types and no text"
    unknown = [name for name in source.options if name.lower() not in _KNOWN[source.format]]
    if unknown:
        return f"of --read-option {unknown[0]}"
    encoding = source.option("encoding") or source.option("charset")
    if encoding.lower().startswith(_WIDE) or (source.format == "json" and not source.keeps_lines):
        return "of --read-option encoding" if encoding else "of --read-option multiLine"
    return None


@dataclass(frozen=True, slots=True)
class _Work:
    """The reader of lines in a task. Picklable."""

    kind: str
    names: list[str]
    """The columns; of JSON the requested fields."""
    kinds: list[str]
    dialect: CsvDialect
    has_header: bool
    has_own_value: bool
    """True if the reader also makes the value."""

    def records(self, pieces: Iterator[bytes], *, begins: bool) -> Iterator[tuple[list[str | None], str | None, bytes]]:
        """Yield columns, the text of a line that is no record, and the value, from the bytes between two LF.

        Args:
            begins: true if the first piece is the first of a file.
        """
        if self.kind == "csv":
            found = csv_records(pieces, self.dialect)
            if begins and self.has_header:
                next(found, None)
        else:
            # In text a CR is a byte as any other.
            found = pieces if self.kind == "text" else lines_without_ends(pieces)
        for raw in found:
            if self.kind == "text" or raw.strip(b" \t\r\n"):
                yield self._record(raw)

    def _record(self, raw: bytes) -> tuple[list[str | None], str | None, bytes]:
        if self.kind == "text":
            return [], None, raw
        try:
            text = raw.decode(self.dialect.encoding)
            if self.kind == "json":
                fields = json_fields(text)
                found = [json_column(fields.get(name), kind) for name, kind in zip(self.names, self.kinds, strict=True)]
                return found, None, raw
            found = self.dialect.fields(text)
            if len(found) != len(self.names):
                raise NoRecordError(f"{len(found)} fields")
            return found, None, json_of_fields(self.names, found).encode() if self.has_own_value else b""
        except (NoRecordError, UnicodeDecodeError):
            return [None] * len(self.names), raw.decode(self.dialect.encoding, "replace"), b""


def independent_records(spark: SparkSession, source: FileSource, expressions: RecordExpressions) -> DataFrame:
    """Return the rows in the form of ``record_rows``.

    Raises:
        JobError: the files cannot be found, or an expression or the schema is wrong.
    """
    # Only the names and types of the columns are used, not their content.
    with_columns = expressions.need_columns or source.where is not None
    loaded, corrupt = read_files(spark, replace(source, where=None), with_columns=with_columns)
    if not loaded.columns:
        return record_rows(loaded, expressions)
    discovering = discovering_session(spark)
    paths = list(source.paths)
    listing = {name: value for name, value in source.options.items() if name.lower() in _LISTING}
    folders = folder_columns(discovering, paths, listing)
    hidden = {LINE, LINE_REASON, corrupt, *folders}
    columns = StructType([each for each in loaded.schema if each.name not in hidden])
    is_text = source.format == "csv" and all(isinstance(each.dataType, StringType) for each in columns)
    work = _Work(
        kind=source.format,
        names=[] if source.format == "text" else columns.names,
        kinds=[_kind(each.dataType) for each in columns] if source.format != "text" else [],
        dialect=CsvDialect(
            separator=(source.option("sep") or source.option("delimiter") or _separator(source)).replace("\\t", "\t"),
            quote="" if _turns_quotes_off(source) else source.option("quote") or '"',
            encoding=source.option("encoding") or source.option("charset") or "utf-8",
        ),
        has_header=(source.option("header") or "true").lower() == "true",
        has_own_value=is_text and not folders,
    )
    lines = _lines(spark, paths, listing, folders)
    rows = _read(lines, work, folders)
    if source.format == "text":
        return record_rows(_chosen(rows, source, "value", folders), expressions)
    casts = [_cast(f"c{place}", each.dataType, work.kind) for place, each in enumerate(columns)]
    named = [cast.alias(each.name) for cast, each in zip(casts, columns, strict=True)]
    typed = rows.select(
        *named, *_folder_columns(folders), F.col(CORRUPT), *_line_columns(columns, casts, named, work, folders)
    )
    value = expressions if expressions.value is not None else replace(expressions, value=quoted(LINE))
    chosen = typed if source.where is None else chosen_rows(typed, source.where, CORRUPT)
    return record_rows(chosen, value, corrupt=CORRUPT)


def _separator(source: FileSource) -> str:
    return "\t" if all(".tsv" in path.lower() for path in source.paths) else ","


def _turns_quotes_off(source: FileSource) -> bool:
    return any(name.lower() == "quote" and value in ("", "\0") for name, value in source.options.items())


def _chosen(rows: DataFrame, source: FileSource, name: str, folders: list[str]) -> DataFrame:
    shown = rows.select(F.col(LINE).cast("string").alias(name), *_folder_columns(folders))
    return shown if source.where is None else chosen_rows(shown, source.where, None)


def _lines(spark: SparkSession, paths: list[str], listing: dict[str, str], folders: list[str]) -> DataFrame:
    """Return the bytes between two LF, their position, and the columns of folders."""
    schema = ", ".join(["value STRING", *(f"{quoted(name)} STRING" for name in folders)])
    read = spark.read.format("text").options(**listing).option("lineSep", "\n").schema(schema).load(paths)
    return read.select(
        F.col("value").cast("binary").alias("__raw"),
        F.col("_metadata.file_path").alias("__path"),
        F.col("_metadata.file_block_start").alias("__start"),
        F.monotonically_increasing_id().alias("__place"),
        *map(column, folders),
    )


def _read(lines: DataFrame, work: _Work, folders: list[str]) -> DataFrame:
    """Return ``lines`` as columns of text, c0, c1, ..., columns of folders, f0, f1, ..., ``CORRUPT`` and ``LINE``."""
    is_whole = work.kind == "csv" and _has_open_lines(lines, work.dialect)
    if is_whole:
        lines = lines.repartition("__path").sortWithinPartitions("__path", "__start", "__place")
    chosen = [f"c{place} STRING" for place in range(len(work.names))]
    others = [f"f{place} STRING" for place in range(len(folders))]
    schema = ", ".join([*chosen, "corrupt STRING", "line BINARY", *others])
    read = lines.mapInArrow(_task_of(work, folders, is_whole=is_whole), schema)
    return read.withColumnsRenamed({"corrupt": CORRUPT, "line": LINE})


def _folder_columns(folders: list[str]) -> list[Column]:
    return [F.col(f"f{place}").alias(name) for place, name in enumerate(folders)]


def _has_open_lines(lines: DataFrame, dialect: CsvDialect) -> bool:
    """Return whether a line has an odd number of quotes. Then each file must be read by one task from its beginning."""
    if not dialect.quote:
        return False
    quote = F.lit(dialect.quote)
    text = F.col("__raw").cast("string")
    count = F.octet_length(text) - F.octet_length(F.replace(text, quote, F.lit("")))
    return not lines.where(count % 2 == 1).isEmpty()


def _task_of(
    work: _Work, folders: list[str], *, is_whole: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    names = ["__raw", "__path", "__start", *folders]

    def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        for batch in batches:
            yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: list[list[object]] = []

        def place_of(row: tuple[object, ...]) -> tuple[object, ...]:
            return (row[1], *row[3:]) if is_whole else row[1:]

        for _, rows in groupby(rows_of(batches), place_of):
            first = next(rows)
            pieces = (bytes(row[0]) for row in _chained(first, rows))  # type: ignore[call-overload]
            for fields, corrupt, line in work.records(pieces, begins=first[2] == 0):
                found.append([*fields, corrupt, line, *first[3:]])
                if len(found) == _ROWS_PER_BATCH:
                    yield _batch(found, len(work.names), len(folders))
                    found = []
        if found:
            yield _batch(found, len(work.names), len(folders))

    return read


_ROWS_PER_BATCH = 2_000


def _chained(first: tuple[object, ...], rest: Iterator[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    yield first
    yield from rest


def _batch(rows: list[list[object]], columns: int, folders: int) -> pa.RecordBatch:
    names = [*(f"c{n}" for n in range(columns)), "corrupt", "line", *(f"f{n}" for n in range(folders))]
    types = [*[pa.string()] * (columns + 1), pa.binary(), *[pa.string()] * folders]
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.record_batch(arrays, names=names)


def _kind(kind: DataType) -> str:
    match kind:
        case StringType():
            return "text"
        case IntegralType():
            return "whole"
        case NumericType():
            return "number"
        case BooleanType():
            return "boolean"
        case DateType() | TimestampType() | TimestampNTZType():
            return "time"
        case _:
            return "nested"


def _cast(name: str, kind: DataType, source: str) -> Column:
    text = F.col(name)
    if source == "json" and _kind(kind) == "nested":
        whole = F.concat(F.lit('{"v":'), text, F.lit("}"))
        return F.from_json(whole, StructType().add("v", kind))["v"]
    return text if isinstance(kind, StringType) else text.try_cast(kind)


def _line_columns(
    columns: StructType, casts: list[Column], named: list[Column], work: _Work, folders: list[str]
) -> list[Column]:
    """Return ``LINE`` and ``LINE_REASON``. A line with a text that is not of its column's type is no record."""
    misfit = F.lit(False)
    for place, (each, cast) in enumerate(zip(columns, casts, strict=True)):
        if not isinstance(each.dataType, StringType):
            misfit = misfit | (F.col(f"c{place}").isNotNull() & cast.isNull())
    is_written = work.has_own_value or work.kind == "json"
    value = F.col(LINE)
    if not is_written:
        value = F.to_json(F.struct(*named, *_folder_columns(folders)), JSON_OPTIONS).cast("binary")
    return [value.alias(LINE), F.when(misfit, F.lit(DOES_NOT_FIT)).alias(LINE_REASON)]
