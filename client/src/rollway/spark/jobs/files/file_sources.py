"""Files as rows: CSV, JSON, Parquet, ORC, text, and Avro where Spark has its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it
from pyspark.sql.types import StringType, StructType

from rollway.spark.jobs.columns import LINE, LINE_REASON, column, star_without
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import explained_name, first_sentence
from rollway.spark.jobs.files.csv_files import needing_all_columns, read_csv
from rollway.spark.jobs.files.discovering import discovering_session, folder_columns, with_folders
from rollway.spark.jobs.files.json_lines import read_json_lines

FORMATS = ("csv", "json", "parquet", "orc", "text", "avro")
CORRUPT = "_corrupt_record"
AVRO_PACKAGE = "org.apache.spark:spark-avro_2.13"

_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".ndjson": "json",
    ".jsonl": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".txt": "text",
    ".log": "text",
    ".avro": "avro",
}
_COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
# What helps, by what Spark says.
_REMEDIES = {
    "CANNOT_MERGE_SCHEMAS": " --schema says which columns all of them have.",
    "TIMESTAMP(NANOS": " --conf spark.sql.legacy.parquet.nanosAsLong=true, before the job, reads nanoseconds as whole "
    "numbers.",
    "COLUMN_ALREADY_EXISTS": " --schema says which columns there are, and --conf spark.sql.caseSensitive=true, before "
    "the job, tells names apart that differ by case.",
}
# Only what is read line by line has lines that do not fit; the others are whole or broken.
_LINE_FORMATS = frozenset({"csv", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files to read: paths as Spark takes them (directories, globs, any Hadoop file system).

    ``format`` unless given is told by the ending. ``schema`` is DDL such as ``"id BIGINT, at TIMESTAMP"``; without it
    fields of CSV are text, and JSON is read once more to find it. ``options`` are those of Spark's reader. ``where``
    keeps some of the rows; lines that do not fit the columns and of which it therefore tells nothing (null) are kept,
    and rejected.

    Raises:
        JobUsageError: there is no path, or the format is unknown or cannot be told.
    """

    paths: tuple[str, ...]
    format: str = ""
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None

    def __post_init__(self) -> None:
        if not self.paths:
            raise JobUsageError("There is no file to read.")
        object.__setattr__(self, "format", self.format.lower() or _format_of(self.paths))
        if self.format not in FORMATS:
            raise JobUsageError(f"Files of format {self.format!r} are not read: {', '.join(FORMATS)} are.")

    def __str__(self) -> str:
        return ", ".join(self.paths)

    def option(self, name: str) -> str:
        """The value of one of ``options``, whose names have no case; empty if it is not given."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), "")

    @property
    def keeps_lines(self) -> bool:
        """Whether a row is a line of JSON, kept as it stands in the file."""
        encoding = (self.option("encoding") or self.option("charset") or "UTF-8").lower()
        is_by_line = self.option("multiLine").lower() != "true" and encoding in ("utf-8", "utf8")
        return self.format == "json" and is_by_line

    @property
    def has_guessed_numbers(self) -> bool:
        """Whether Spark decides which columns are floating-point numbers, without having been asked to."""
        return self.format == "json" and self.schema is None


def _format_of(paths: tuple[str, ...]) -> str:
    found = {_ENDINGS.get(_ending_of(path), "") for path in paths}
    if len(found) == 1 and (kind := found.pop()):
        return kind
    raise JobUsageError(f"The format of {', '.join(paths)} cannot be told by the name: say it with --format.")


def _ending_of(path: str) -> str:
    """``.csv`` of ``a.csv.gz``; empty if it says nothing of a format."""
    name = path.rstrip("/").lower()
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((ending for ending in _ENDINGS if name.endswith(ending)), "")


def read_files(spark: SparkSession, source: FileSource, *, with_columns: bool = True) -> tuple[DataFrame, str | None]:
    """The rows, and the name of the column with lines that do not fit the columns, for formats that can have them.

    Unless ``options`` or ``schema`` say otherwise, CSV is that of RFC 4180, with a header line, which is the same in
    all files, and every field is text; columns of ``.tsv`` end at tabs; Parquet and ORC have the columns of all files.
    Lines of JSON come with ``LINE``. Columns that names of folders give are text. CSV and JSON without a line have no
    rows, and no columns either. Which lines do not fit is the same for every query over the rows.

    Unless ``with_columns`` nothing but ``LINE`` is needed, where the format has it: the files are read once.

    Raises:
        JobError: the files cannot be found or read.
        JobUsageError: an option, the schema or ``where`` is wrong.
    """
    options = _reader_options(source)
    keys = {key.lower() for key in options}
    corrupt = CORRUPT if source.format in _LINE_FORMATS and "mode" not in keys else None
    needs_columns = with_columns or source.where is not None
    try:
        rows = _load(spark, source, options, corrupt, with_columns=needs_columns)
    except (PySparkException, Py4JJavaError) as error:
        raise _explained(source, error) from None
    if not rows.columns:
        return rows, None
    corrupt = corrupt if corrupt in rows.columns else None
    if source.where is not None:
        try:
            rows = chosen_rows(rows, source.where, corrupt)
        except PySparkException as error:
            raise JobUsageError(f"--where {source.where!r} cannot be used: {explained_name(error)}") from None
    if keys & {"mode"} and LINE in rows.columns:
        rows = rows.drop(CORRUPT)
    return rows, corrupt


def _reader_options(source: FileSource) -> dict[str, str]:
    """Those given, and ours where none is."""
    keys = {key.lower() for key in source.options}
    ours = {}
    if source.format == "csv":
        ours["header"] = "true"
        if keys.isdisjoint({"sep", "delimiter"}) and _has_tabs(source.paths):
            ours["sep"] = "\t"
    elif source.format == "json" and not source.keeps_lines and source.option("multiLine").lower() != "true":
        # Spark finds lines by itself only in UTF-8.
        ours["lineSep"] = "\n"
    elif source.format == "text":
        # Spark ends a line at CR too, and takes it away.
        ours["lineSep"] = "\n"
    elif source.format in ("parquet", "orc") and source.schema is None:
        # Otherwise Spark looks at one file, and leaves out the columns that only others have.
        ours["mergeSchema"] = "true"
    return {**{name: value for name, value in ours.items() if name.lower() not in keys}, **source.options}


def _has_tabs(paths: tuple[str, ...]) -> bool:
    are_tabbed = {_ending_of(path) == ".tsv" for path in paths}
    if len(are_tabbed) > 1:
        raise JobUsageError(
            f"{', '.join(paths)} cannot be read together: columns of .tsv end at tabs, of others at commas, unless "
            "--read-option sep=... says where all of them do."
        )
    return are_tabbed == {True}


def chosen_rows(rows: DataFrame, condition: str, corrupt: str | None) -> DataFrame:
    """The rows of which ``condition`` is true, and those that are bad and of which it therefore tells nothing.

    Raises:
        PySparkException: the condition is wrong.
    """
    hidden = [name for name in (LINE, LINE_REASON, corrupt) if name in rows.columns]
    chosen = F.expr(star_without(condition, hidden))
    bad = [column(name).isNotNull() for name in (corrupt, LINE_REASON) if name in rows.columns]
    return rows.where(F.coalesce(chosen, reduce(or_, bad)) if bad else chosen)


def _load(
    spark: SparkSession, source: FileSource, options: dict[str, str], corrupt: str | None, *, with_columns: bool
) -> DataFrame:
    paths = list(source.paths)
    schema = None if source.schema is None else parse_schema(source.schema)
    if source.format == "csv":
        return read_csv(spark, paths, options, schema, corrupt)
    if source.keeps_lines:
        return read_json_lines(spark, paths, options, schema, CORRUPT, with_columns=with_columns)
    discovering = discovering_session(spark)
    if schema is None:
        columns = discovering.read.format(source.format).options(**options).load(paths).schema
        if source.format == "json":
            if not columns.names:
                return _no_rows(spark, source, options)
            if columns.names == [CORRUPT]:
                raise JobError(f"{source} has no document that is JSON.")
    else:
        columns = with_folders(schema, folder_columns(discovering, paths, {}))
    reader = spark.read.format(source.format).options(**options)
    if corrupt is None:
        return reader.schema(columns).load(paths)
    if corrupt not in columns.names:
        columns = columns.add(corrupt, StringType())
    rows = reader.option("columnNameOfCorruptRecord", corrupt).schema(columns).load(paths)
    return needing_all_columns(rows)


def _no_rows(spark: SparkSession, source: FileSource, options: dict[str, str]) -> DataFrame:
    """Of documents in which Spark has found no field.

    Raises:
        JobError: there are rows all the same.
    """
    reader = spark.read.format(source.format).options(**options).schema("any STRING")
    if not reader.load(list(source.paths)).isEmpty():
        raise JobError(f"{source} has no columns: it is JSON without a field.")
    return spark.range(0).select()


def parse_schema(text: str) -> StructType:
    """The columns of ``--schema``.

    Raises:
        JobUsageError: it is none.
    """
    try:
        columns = StructType.fromDDL(text)
    except PySparkException as error:
        raise JobUsageError(f"--schema {text!r} cannot be used: {first_sentence(error)}") from None
    if not isinstance(columns, StructType):
        raise JobUsageError(f"--schema {text!r} is a type and no columns: 'id BIGINT, at TIMESTAMP' are two.")
    return columns


def _explained(source: FileSource, error: PySparkException | Py4JJavaError) -> JobError:
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    if "failed to find data source: avro" in str(error).lower():
        return JobError(
            f"{source} cannot be read: this Spark has no Avro. Submit with --packages {AVRO_PACKAGE}:<version of "
            "Spark>."
        )
    if condition == "PATH_NOT_FOUND":
        return JobError(f"{source} cannot be read: {first_sentence(error)}")
    if condition == "MALFORMED_CSV_RECORD":
        # What Spark says has the whole line in it, and no reason.
        return JobError(
            f"{source} cannot be read as csv: a line has more columns than Spark takes, 20,480, or a field more "
            "characters. --read-option maxColumns=... allows more, and maxCharsPerColumn=... longer fields."
        )
    remedy = next((sentence for mark, sentence in _REMEDIES.items() if mark in str(error)), "")
    return JobError(f"{source} cannot be read as {source.format}: {first_sentence(error)}{remedy}")
