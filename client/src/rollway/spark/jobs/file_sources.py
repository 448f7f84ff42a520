"""Files as rows: CSV, JSON, Parquet, ORC, text, and Avro where Spark has its package."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it
from pyspark.sql.types import StringType, StructField, StructType, TimestampNTZType, TimestampType

from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import OTHER_HEADER, UNDATED, first_sentence

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
_SAMPLE_LINES = 1_000
_GLOB = re.compile(r"[\\*?\[\]{}]")
# Only what is read line by line has lines that do not fit; the others are whole or broken.
_LINE_FORMATS = frozenset({"csv", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files to read: paths as Spark takes them (directories, globs, any Hadoop file system).

    ``format`` unless given is told by the ending. ``schema`` is DDL such as ``"id BIGINT, at TIMESTAMP"``; without it
    CSV and JSON are read once more to find it. ``options`` are those of Spark's reader. ``where`` keeps some of the
    rows; lines that do not fit the columns and of which it therefore tells nothing (null) are kept, and rejected.

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


def read_files(spark: SparkSession, source: FileSource) -> tuple[DataFrame, str | None]:
    """The rows, and the name of the column with lines that do not fit the columns, for formats that can have them.

    Unless ``options`` or ``schema`` say otherwise, CSV has a header line, which is the same in all files, and inferred
    types; columns of ``.tsv`` end at tabs; Parquet and ORC have the columns of all files. CSV and JSON without a line
    have no rows, and no columns either. Which lines do not fit is the same for every query over the rows.

    Raises:
        JobError: the files cannot be found or read.
        JobUsageError: an option, the schema or ``where`` is wrong.
    """
    options = _reader_options(source)
    keys = {key.lower() for key in options}
    corrupt = CORRUPT if source.format in _LINE_FORMATS and "mode" not in keys else None
    try:
        rows = _load(spark, source, options, corrupt)
    except (PySparkException, Py4JJavaError) as error:
        raise _explained(source, error) from None
    if not rows.columns:
        return rows, None
    if source.format in _LINE_FORMATS:
        rows = _needing_all_columns(rows)
    if source.where is not None:
        try:
            rows = _chosen(rows, source.where, corrupt)
        except PySparkException as error:
            raise JobUsageError(f"--where {source.where!r} cannot be used: {first_sentence(error)}") from None
    return rows, corrupt if corrupt in rows.columns else None


def _reader_options(source: FileSource) -> dict[str, str]:
    """Those given, and ours where none is."""
    keys = {key.lower() for key in source.options}
    ours = {}
    if source.format == "csv":
        ours["header"] = "true"
        if source.schema is None:
            ours["inferSchema"] = "true"
        if keys.isdisjoint({"sep", "delimiter"}) and _has_tabs(source.paths):
            ours["sep"] = "\t"
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


def _chosen(rows: DataFrame, condition: str, corrupt: str | None) -> DataFrame:
    chosen = rows.where(condition)
    if corrupt not in rows.columns:
        return chosen
    return rows.where(F.coalesce(F.expr(condition), F.col(f"`{corrupt}`").isNotNull()))


def _load(spark: SparkSession, source: FileSource, options: dict[str, str], corrupt: str | None) -> DataFrame:
    paths = list(source.paths)
    if source.schema is not None:
        columns = _parse_schema(source.schema)
    else:
        found = spark.read.format(source.format).options(**options).load(paths)
        columns = found.schema
        if source.format in _LINE_FORMATS and not columns.names:
            return _no_rows(spark, source, options)
        if source.format == "csv":
            options = {**options, **_header_check(spark, found, options)}
            columns = _with_times_as_text(spark, source, options, columns)
        elif corrupt is None:
            return found
        elif columns.names == [CORRUPT]:
            raise JobError(
                f"{source} has no line that is JSON: a document over several lines needs --read-option multiLine=true."
            )
    reader = spark.read.format(source.format).options(**options)
    if corrupt is not None:
        reader = reader.option("columnNameOfCorruptRecord", corrupt)
        if corrupt not in columns.names:
            columns = columns.add(corrupt, StringType())
    return reader.schema(columns).load(paths)


def _no_rows(spark: SparkSession, source: FileSource, options: dict[str, str]) -> DataFrame:
    """Of files in which Spark has found no column.

    Raises:
        JobError: they have rows all the same.
    """
    reader = spark.read.format(source.format).options(**options).schema("any STRING")
    if not reader.load(list(source.paths)).isEmpty():
        raise JobError(f"{source} has no columns: its lines are JSON without a field.")
    return spark.range(0).select()


def _with_times_as_text(
    spark: SparkSession, source: FileSource, options: dict[str, str], columns: StructType
) -> StructType:
    """The columns that Spark inferred, but for times without a date: it takes them as times of today."""
    found = [each.name for each in columns if isinstance(each.dataType, TimestampType | TimestampNTZType)]
    if not found or "timestampformat" in {name.lower() for name in options}:
        return columns
    texts = _with_text(columns, found)
    first = spark.read.format("csv").options(**options).schema(texts).load(list(source.paths)).limit(_SAMPLE_LINES)
    undated = first.agg(*[F.max(F.col(f"`{name}`").rlike(UNDATED)) for name in found]).first()
    return _with_text(columns, [name for name, is_so in zip(found, undated or (), strict=False) if is_so])


def _with_text(columns: StructType, names: Collection[str]) -> StructType:
    return StructType([StructField(each.name, StringType()) if each.name in names else each for each in columns])


def _header_check(spark: SparkSession, found: DataFrame, options: dict[str, str]) -> dict[str, str]:
    """Options with which Spark refuses a file of other columns than ``found``, which it takes by position otherwise."""
    given = {name.lower(): value for name, value in options.items()}
    if "enforceschema" in given or given["header"].lower() != "true":
        return {}
    files = found.inputFiles()
    if len(files) < 2:
        return {}
    if not any(map(_is_made_up, enumerate(found.columns))):
        return {"enforceSchema": "false"}
    # Spark's check would miss the names that Spark gave columns without one, or with the same.
    for file in files:
        path = unquote(file)
        of_folders = {part.partition("=")[0] for part in path.split("/") if "=" in part}
        expected = [name for name in found.columns if name not in of_folders]
        reader = spark.read.format("csv").options(**{**options, "inferSchema": "false"})
        own = reader.load(_GLOB.sub(r"\\\g<0>", path)).columns
        if own and own != expected:
            raise JobError(f"{path} cannot be read: {OTHER_HEADER}")
    return {}


def _is_made_up(column: tuple[int, str]) -> bool:
    """Whether Spark may have given this name, which then ends with the column's place."""
    place, name = column
    return name.endswith(str(place))


def _needing_all_columns(rows: DataFrame) -> DataFrame:
    """The same rows, of which every query reads all columns.

    Spark does not look at fields that a query leaves out, nor then at whether they fit, and so counting bad lines,
    writing them and leaving them out would each find other ones.
    """
    needed = [F.isnull(f"`{name}`").cast("int") for name in rows.columns]
    # True of every row, which only we know: an optimizer that knew it would drop it, and the columns with it.
    return rows.where(F.greatest(F.lit(0), F.lit(1), *needed) == F.lit(1))


def _parse_schema(text: str) -> StructType:
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
    remedy = " --schema says which columns all of them have." if "CANNOT_MERGE_SCHEMAS" in str(error) else ""
    return JobError(f"{source} cannot be read as {source.format}: {first_sentence(error)}{remedy}")
