"""Files as rows: CSV, JSON, Parquet, ORC, text, and Avro where Spark has its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody who writes Spark calls it
from pyspark.sql.types import StringType, StructType

from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import first_sentence

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
    found = set()
    for path in paths:
        name = path.rstrip("/").lower()
        for ending in _COMPRESSIONS:
            name = name.removesuffix(ending)
        found.add(next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), ""))
    if len(found) == 1 and (kind := found.pop()):
        return kind
    raise JobUsageError(f"The format of {', '.join(paths)} cannot be told by the name: say it with --format.")


def read_files(spark: SparkSession, source: FileSource) -> tuple[DataFrame, str | None]:
    """The rows, and the name of the column with lines that do not fit the columns, for formats that can have them.

    CSV has a header line and inferred types unless ``options`` or ``schema`` say otherwise. Which lines do not fit is
    the same for every query over the rows.

    Raises:
        JobError: the files cannot be found or read.
        JobUsageError: an option, the schema or ``where`` is wrong.
    """
    options = dict(source.options)
    keys = {key.lower() for key in options}
    if source.format == "csv":
        if "header" not in keys:
            options["header"] = "true"
        if "inferschema" not in keys and source.schema is None:
            options["inferSchema"] = "true"
    corrupt = CORRUPT if source.format in _LINE_FORMATS and "mode" not in keys else None
    try:
        rows = _load(spark, source, options, corrupt)
    except (PySparkException, Py4JJavaError) as error:
        raise _explained(source, error) from None
    if source.format in _LINE_FORMATS:
        rows = _needing_all_columns(rows)
    if source.where is not None:
        try:
            rows = _chosen(rows, source.where, corrupt)
        except PySparkException as error:
            raise JobUsageError(f"--where {source.where!r} cannot be used: {first_sentence(error)}") from None
    return rows, corrupt if corrupt in rows.columns else None


def _chosen(rows: DataFrame, condition: str, corrupt: str | None) -> DataFrame:
    chosen = rows.where(condition)
    if corrupt not in rows.columns:
        return chosen
    return rows.where(F.coalesce(F.expr(condition), F.col(f"`{corrupt}`").isNotNull()))


def _load(spark: SparkSession, source: FileSource, options: dict[str, str], corrupt: str | None) -> DataFrame:
    reader = spark.read.format(source.format).options(**options)
    paths = list(source.paths)
    if corrupt is None:
        return (reader.schema(_parse_schema(source.schema)) if source.schema else reader).load(paths)
    columns = _parse_schema(source.schema) if source.schema else reader.load(paths).schema
    if corrupt not in columns.names:
        columns = columns.add(corrupt, StringType())
    return reader.option("columnNameOfCorruptRecord", corrupt).schema(columns).load(paths)


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
    return JobError(f"{source} cannot be read as {source.format}: {first_sentence(error)}")
