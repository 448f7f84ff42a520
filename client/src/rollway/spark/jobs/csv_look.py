"""A look at the lines of CSV files before they are read: fields with line breaks, bytes that are no text, headers.

Spark splits a file at line breaks unless it is told not to, even within quotes, and reads what is no text as if it
were. Neither shows in the rows, so the lines are looked at first, in one pass over all files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it

from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.json_lines import read_lines

_UNSPLITTABLE = ("utf-16", "utf16", "utf-32", "utf32", "x-utf")


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How fields are told apart."""

    separator: str
    quote: str
    escape: str
    encoding: str
    """Empty for UTF-8."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> CsvForm:
        """That of reader's options."""
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
        """Whether a line break is not one byte: such files cannot be cut at lines."""
        return self.encoding.lower().startswith(_UNSPLITTABLE)

    @property
    def open_field(self) -> str:
        """A pattern of Java for lines that end within quotes. Possessive, so that a long line needs no stack."""
        quote, separator = (f"\\Q{each}\\E" for each in (self.quote, self.separator))
        if self.escape in ("", self.quote):
            inner = f"(?:(?!{quote}).|{quote}{quote})*+"
        else:
            escape = f"\\Q{self.escape}\\E"
            inner = f"(?:(?!{quote}|{escape}).|{escape}.)*+"
        rest = f"(?:(?!{separator}).)*+"
        field = f"(?:{quote}{inner}{quote}{rest}|(?!{quote}){rest})"
        return f"(?s)^(?:{field}{separator})*+{quote}{inner}$"


@dataclass(frozen=True, slots=True)
class CsvLook:
    """What was found."""

    has_open_lines: bool
    """A quoted field goes over several lines."""
    has_foreign_bytes: bool
    """A line is not UTF-8, though it should be."""
    line_end: str
    """What ends the first line of each file; empty if they differ."""
    other_headers: tuple[str, ...]
    """Files whose first line is not that of the first file. Only looked for if asked for."""


def look_at(
    spark: SparkSession,
    discovering: SparkSession,
    paths: list[str],
    options: Mapping[str, str],
    form: CsvForm,
    *,
    compare_headers: bool,
) -> CsvLook:
    """Read all lines once. Linear in the files: one row of each comes to the driver.

    Raises:
        JobError: the last quoted field of a file with such fields does not end.
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
        (F.col("_metadata.file_block_start") == 0).alias("begins"),
        F.monotonically_increasing_id().alias("place"),
    )
    first_lines = placed.where(F.col("begins") & (F.trim("line") != ""))
    header = None
    if compare_headers and (found := first_lines.first()) is not None:
        header = str(found["line"])
    is_header = F.lit(False) if header is None else F.col("line").eqNullSafe(F.lit(header))
    can_be_first = F.col("begins") & (F.trim("line") != "")
    quotes = _count(F.col("line"), form.quote)
    is_open = F.lit(False) if not form.quote else (quotes > 0) & F.col("line").rlike(form.open_field)
    per_file = placed.groupBy("path").agg(
        F.sum(quotes).alias("quotes"),
        F.count_if(is_open).alias("open"),
        F.count_if(~F.is_valid_utf8("line")).alias("foreign"),
        F.min(F.when(can_be_first, F.col("place"))).alias("first"),
        F.min(F.when(can_be_first & is_header, F.col("place"))).alias("header"),
        F.min(F.when(can_be_first & F.col("raw").endswith("\r"), F.col("place"))).alias("carriage"),
    )
    files = [each.asDict() for each in per_file.collect()]
    for each in files:
        if each["open"] and each["quotes"] % 2 and form.escape == form.quote:
            raise JobError(
                f"{each['path']} cannot be read: a field in quotes does not end. If quotes are text there, "
                "--read-option quote= says so."
            )
    filled = [each for each in files if each["first"] is not None]
    ends = {"\r\n" if each["carriage"] == each["first"] else "\n" for each in filled}
    return CsvLook(
        has_open_lines=any(each["open"] for each in files),
        has_foreign_bytes=not form.encoding and any(each["foreign"] for each in files),
        line_end=ends.pop() if len(ends) == 1 else "",
        other_headers=tuple(str(each["path"]) for each in filled if each["header"] != each["first"])
        if header is not None
        else (),
    )


def _count(text: Column, quote: str) -> Column:
    if not quote:
        return F.lit(0)
    return F.octet_length(text) - F.octet_length(F.replace(text, F.lit(quote), F.lit("")))
