"""Inspection of the lines of CSV files before they are read: fields with line breaks, invalid bytes, headers.

By default Spark splits a file at line breaks, even within quotes, and decodes invalid bytes. The rows show neither, so
the lines are inspected first, in one pass over all files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.files.json_lines import read_lines
from rollway.spark.jobs.files.raw_records import CsvDialect

_PATHS_IN_A_CONDITION_MAX = 1_000
_UNSPLITTABLE = ("utf-16", "utf16", "utf-32", "utf32", "x-utf")


@dataclass(frozen=True, slots=True)
class CsvForm:
    """The characters that separate and quote fields."""

    separator: str
    quote: str
    escape: str
    encoding: str
    """Empty for UTF-8."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CsvForm:
        """Return the form in a reader's options."""
        given = {name.lower(): value for name, value in options.items()}
        quote = given.get("quote", '"')
        encoding = given.get("encoding", given.get("charset", ""))
        return cls(
            separator=given.get("sep", given.get("delimiter", ",")).replace("\\t", "\t"),
            quote="" if quote == "\0" else quote,
            escape=given.get("escape", quote),
            encoding="" if encoding.lower() in ("utf-8", "utf8") else encoding,
        )

    @property
    def is_of_wide_characters(self) -> bool:
        """True if a line break has more than one byte: such files cannot be split at lines."""
        return self.encoding.lower().startswith(_UNSPLITTABLE)

    def patterns(self) -> tuple[str, str, str]:
        """Return Java patterns for lines that end within quotes, with blanks behind a quoted field, and with CR in one.

        The quantifiers are possessive, so that a long line needs no stack.
        """
        quote, separator = (f"\\Q{each}\\E" for each in (self.quote, self.separator))
        if self.escape in ("", self.quote):
            inner = f"(?:(?!{quote}).|{quote}{quote})*+"
            before_cr = f"(?:(?!{quote}|\\r).|{quote}{quote})*+"
        else:
            escape = f"\\Q{self.escape}\\E"
            inner = f"(?:(?!{quote}|{escape}).|{escape}.)*+"
            before_cr = f"(?:(?!{quote}|{escape}|\\r).|{escape}.)*+"
        rest = f"(?:(?!{separator}).)*+"
        field = f"(?:{quote}{inner}{quote}{rest}|(?!{quote}){rest})"
        return (
            f"(?s)^(?:{field}{separator})*+{quote}{inner}$",
            f"(?s)^(?:{field}{separator})*?{quote}{inner}{quote}[ \\t]+(?:{separator}|$)",
            f"(?s)^(?:{field}{separator})*?{quote}{before_cr}\\r",
        )


@dataclass(frozen=True, slots=True)
class CsvLook:
    """The result of an inspection."""

    has_open_lines: bool
    """True if a quoted field contains a line break."""
    has_foreign_bytes: bool
    """True if a line of a UTF-8 file is not UTF-8."""
    line_end: str
    """The end of the first line of each file; empty if they differ."""
    headers_to_compare: tuple[str, ...]
    """Files whose headers stand for all headers: one of the files that begin with the same line, and the other files.
    Empty if not requested."""
    has_headers: bool
    """True if headers were requested."""


def look_at(
    spark: SparkSession,
    discovering: SparkSession,
    paths: list[str],
    options: Mapping[str, str],
    form: CsvForm,
    *,
    compare_headers: bool,
) -> CsvLook:
    """Read all lines once. The driver receives one row for each file.

    Raises:
        JobError: a quoted field does not end, or blanks follow its end.
        PySparkException: there are no such files.
    """
    separate = {} if any(name.lower() == "linesep" for name in options) else {"lineSep": "\n"}
    lines, _ = read_lines(spark, discovering, paths, options, **separate)
    value = F.col("value")
    line = F.rtrim(value, F.lit("\r")) if separate else value
    placed = lines.select(
        value.alias("raw"),
        line.alias("line"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("start"),
        F.monotonically_increasing_id().alias("place"),
    )
    first_lines = placed.where((F.col("start") == 0) & (F.trim("line") != ""))
    header = None
    if compare_headers and (found := first_lines.first()) is not None:
        header = str(found["line"])
    is_header = F.lit(False) if header is None else F.col("line").eqNullSafe(F.lit(header))
    can_be_first = (F.col("start") == 0) & (F.trim("line") != "")
    quotes = _count(F.col("line"), form.quote)
    is_open = is_padded = F.lit(False)
    if form.quote:
        open_field, padded_field, broken_field = form.patterns()
        # Without lineSep Spark also ends a line at CR.
        is_broken = F.col("line").contains("\r") & F.col("line").rlike(broken_field)
        is_open = (quotes > 0) & (F.col("line").rlike(open_field) | is_broken)
        is_padded = (quotes > 0) & F.col("line").rlike(padded_field)
    per_file = placed.groupBy("path").agg(
        F.count_if(is_open).alias("open"),
        F.count_if(is_padded).alias("padded"),
        F.count_if(~F.is_valid_utf8("line")).alias("foreign"),
        F.min(F.when(can_be_first, F.col("place"))).alias("first"),
        F.min(F.when(can_be_first & is_header, F.col("place"))).alias("header"),
        F.min(F.when(can_be_first & F.col("raw").endswith("\r"), F.col("place"))).alias("carriage"),
    )
    files = [each.asDict() for each in per_file.collect()]
    _check_quotes(placed, files, form, options)
    filled = [each for each in files if each["first"] is not None]
    ends = {"\r\n" if each["carriage"] == each["first"] else "\n" for each in filled}
    return CsvLook(
        has_open_lines=any(each["open"] for each in files),
        has_foreign_bytes=not form.encoding and any(each["foreign"] for each in files),
        line_end=ends.pop() if len(ends) == 1 else "",
        headers_to_compare=_headers_to_compare(filled) if header is not None else (),
        has_headers=compare_headers,
    )


def _headers_to_compare(filled: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return one of the files that begin with the header line, for all of them, and the files that begin
    differently."""
    same = [str(each["path"]) for each in filled if each["header"] == each["first"]]
    others = [str(each["path"]) for each in filled if each["header"] != each["first"]]
    return (*same[:1], *others) if len(filled) > 1 else ()


def _check_quotes(placed: DataFrame, files: list[dict[str, Any]], form: CsvForm, options: Mapping[str, str]) -> None:
    """Return if each quoted field ends, and a separator or the end of the line follows it.

    Raises:
        JobError: a field does not. Spark would take the rest of the file for the field, or leave blanks out.
    """
    trims = any(
        name.lower() == "ignoretrailingwhitespace" and value.lower() == "true" for name, value in options.items()
    )
    for each in files:
        # In a file whose fields contain line breaks this cannot be checked line by line.
        if each["padded"] and not each["open"] and not trims:
            raise JobError(
                f"{each['path']} cannot be read: blanks stand behind the end of a quoted field. "
                "--read-option ignoreTrailingWhiteSpace=true leaves them out."
            )
    if form.escape != form.quote:
        return
    doubtful = [str(each["path"]) for each in files if each["open"]]
    if unended := _unended(placed, doubtful, form):
        raise JobError(
            f"{unended} cannot be read: a field in quotes does not end. If quotes are text there, --read-option quote= "
            "says so."
        )


def _unended(placed: DataFrame, paths: list[str], form: CsvForm) -> str | None:
    """Return one of these files whose last quoted field does not end, or ``None``."""
    if not paths:
        return None
    dialect = CsvDialect(separator=form.separator, quote=form.quote, encoding=form.encoding or "utf-8")

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for path, lines in groupby(rows, lambda row: row[0]):
            is_open = False
            for _, line in lines:
                is_open = dialect.ends_open(bytes(line).decode(dialect.encoding, "replace"), is_open=is_open)
            if is_open:
                yield pa.record_batch([pa.array([path], pa.string())], names=["path"])

    lines = placed.where(F.col("path").isin(paths)) if len(paths) <= _PATHS_IN_A_CONDITION_MAX else placed
    ordered = lines.repartition("path").sortWithinPartitions("path", "start", "place")
    found = ordered.select("path", F.col("raw").cast("binary")).mapInArrow(look, "path STRING").first()
    return None if found is None else str(found["path"])


def _count(text: Column, quote: str) -> Column:
    if not quote:
        return F.lit(0)
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit(quote), F.lit("")))
