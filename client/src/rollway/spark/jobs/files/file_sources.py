"""Files as rows: CSV, JSON, Parquet, ORC, text, and Avro if Spark has its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
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
# Remedies by marks in Spark's messages.
_REMEDIES = {
    "CANNOT_MERGE_SCHEMAS": " --schema says which columns all of them have.",
    "TIMESTAMP(NANOS": " --conf spark.sql.legacy.parquet.nanosAsLong=true, before the job, reads nanoseconds as whole "
    "numbers.",
    "COLUMN_ALREADY_EXISTS": " --schema says which columns there are, and --conf spark.sql.caseSensitive=true, before "
    "the job, tells names apart that differ by case.",
}
# Only these formats are read line by line, and may have lines that do not fit. Files of other formats fail as a whole.
_LINE_FORMATS = frozenset({"csv", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files to read. Paths are directories, files or globs on any Hadoop file system, as Spark accepts them.

    The default of ``format`` is the ending of the names. ``schema`` is DDL such as ``"id BIGINT, at TIMESTAMP"``.
    Without it, fields of CSV are text, and JSON is read twice to infer the schema. ``options`` are the options of
    Spark's reader. ``where`` keeps some of the rows. Lines that do not fit the columns, for which it is null, are kept
    and rejected.

    Example: ``FileSource(paths=("/data/readings-*.csv",), schema="sensor STRING, at TIMESTAMP, value DOUBLE")``.

    Raises:
        JobUsageError: there is no path, or the format is unknown or cannot be derived from the names.
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
        """Return the value of one of ``options``, whose names ignore case; empty if it is not given."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), "")

    @property
    def keeps_lines(self) -> bool:
        """True if a row is an unchanged line of JSON."""
        encoding = (self.option("encoding") or self.option("charset") or "UTF-8").lower()
        is_by_line = self.option("multiLine").lower() != "true" and encoding in ("utf-8", "utf8")
        return self.format == "json" and is_by_line

    @property
    def has_guessed_numbers(self) -> bool:
        """True if Spark infers which columns are floating-point numbers, without a request for types."""
        return self.format == "json" and self.schema is None


def _format_of(paths: tuple[str, ...]) -> str:
    found = {_ENDINGS.get(_ending_of(path), "") for path in paths}
    if len(found) == 1 and (kind := found.pop()):
        return kind
    raise JobUsageError(f"The format of {', '.join(paths)} cannot be told by the name: say it with --format.")


def _ending_of(path: str) -> str:
    """Return the ending of a format: ``.csv`` of ``a.csv.gz``; empty if the name has none."""
    name = path.rstrip("/").lower()
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((ending for ending in _ENDINGS if name.endswith(ending)), "")


def read_files(spark: SparkSession, source: FileSource, *, with_columns: bool = True) -> tuple[DataFrame, str | None]:
    """Return the rows, and the name of the column with lines that do not fit, for formats that may have them.

    These are the defaults, which ``options`` and ``schema`` change. CSV follows RFC 4180, with a header line, which is
    the same in all files, and every field is text. Columns of ``.tsv`` end at tabs. Parquet and ORC have the columns of
    all files. Lines of JSON come with ``LINE``. Columns in the names of folders are text. CSV and JSON without a line
    have no rows and no columns. Every query over the rows finds the same lines that do not fit.

    Without ``with_columns`` only ``LINE`` is needed, if the format has it: the files are read once.

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
    """Return the given options, and our defaults for missing ones."""
    keys = {key.lower() for key in source.options}
    ours = {}
    if source.format == "csv":
        ours["header"] = "true"
        if keys.isdisjoint({"sep", "delimiter"}) and _has_tabs(source.paths):
            ours["sep"] = "\t"
    elif source.format == "json" and not source.keeps_lines and source.option("multiLine").lower() != "true":
        # Spark detects line ends only in UTF-8.
        ours["lineSep"] = "\n"
    elif source.format == "text":
        # Without lineSep Spark also ends a line at CR, and removes it.
        ours["lineSep"] = "\n"
    elif source.format in ("parquet", "orc") and source.schema is None:
        # Without it Spark takes the columns of one file, and leaves out columns of the others.
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
    """Return the rows for which ``condition`` is true, and the bad rows for which it is null.

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
    """Return no rows, of documents in which Spark has found no field.

    Raises:
        JobError: there are rows nevertheless.
    """
    reader = spark.read.format(source.format).options(**options).schema("any STRING")
    if not reader.load(list(source.paths)).isEmpty():
        raise JobError(f"{source} has no columns: it is JSON without a field.")
    return spark.range(0).select()


def parse_schema(text: str) -> StructType:
    """Parse the columns of ``--schema``.

    Raises:
        JobUsageError: the text is no schema.
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
        # Spark's message has the whole line, and no reason.
        return JobError(
            f"{source} cannot be read as csv: a line has more columns than Spark takes, 20,480, or a field more "
            "characters. --read-option maxColumns=... allows more, and maxCharsPerColumn=... longer fields."
        )
    remedy = next((sentence for mark, sentence in _REMEDIES.items() if mark in str(error)), "")
    return JobError(f"{source} cannot be read as {source.format}: {first_sentence(error)}{remedy}")
