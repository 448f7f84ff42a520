"""CSV after RFC 4180. Fields are the text of the file, unless the options request types.

Quotes within quotes are doubled, quoted fields may contain line breaks, and all lines have as many fields as the
header. An empty field in quotes is empty text, one without quotes is null.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from rollway.spark.jobs.columns import LINE_REASON, column
from rollway.spark.jobs.errors import JobError, JobUsageError
from rollway.spark.jobs.expressions import OTHER_HEADER, UNDATED
from rollway.spark.jobs.files.csv_look import CsvForm, CsvLook, look_at
from rollway.spark.jobs.files.discovering import discovering_session, folder_columns, with_folders

_SAMPLE_LINES = 1_000
_GLOB = re.compile(r"[\\*?\[\]{}]")
_REPLACEMENT = "\ufffd"

_CORRUPT = "spark.sql.columnNameOfCorruptRecord"

# No field has this text. As nullValue it keeps Spark from taking any text for null.
_NO_FIELD = "\0\1"


def read_csv(
    spark: SparkSession,
    paths: list[str],
    options: dict[str, str],
    schema: StructType | None,
    corrupt: str | None,
) -> DataFrame:
    """Return the rows with ``LINE_REASON``, and with ``corrupt`` if it is a name. Every query reads all columns.

    Raises:
        JobError: the files have different columns, a quoted field does not end, or a name is not in the encoding.
        JobUsageError: the schema has the header's names in another order.
        PySparkException: there are no such files.
    """
    form = CsvForm.of(options)
    options = {**_escapes(options, form), **options}
    discovering = discovering_session(spark)
    found = discovering.read.format("csv").options(**options).load(paths)
    if schema is None and not found.columns:
        return _no_rows(spark, paths, options)
    given = options
    look, options = _looked(spark, discovering, paths, options, form, found.columns)
    if options != given:
        # The names, and the types if requested, were found in pieces of lines: a name may also contain a line break.
        found = discovering.read.format("csv").options(**options).load(paths)
    columns = found.schema if schema is None else schema
    _check_names(paths, columns.names, form)
    if schema is None:
        _check_free(paths, columns.names, {corrupt, spark.conf.get(_CORRUPT)})
        options = {**options, **_header_check(discovering, found, options, look)}
        columns = _with_times_as_text(spark, paths, options, columns)
    else:
        columns = with_folders(columns, folder_columns(discovering, paths, {}))
        if _is_on(options, "header"):
            _check_places(schema.names, found.columns)
    if all(isinstance(each.dataType, StringType) for each in columns) and not _has(options, "nullvalue", "emptyvalue"):
        options = {**options, "nullValue": _NO_FIELD}
    reader = spark.read.format("csv").options(**options)
    if corrupt is not None:
        reader = reader.option("columnNameOfCorruptRecord", corrupt)
        if corrupt not in columns.names:
            columns = StructType([*columns, StructField(corrupt, StringType())])
    rows = needing_all_columns(reader.schema(columns).load(paths))
    reasons = _reasons(columns, corrupt, form, look, options)
    return rows.withColumn(LINE_REASON, F.coalesce(*reasons)) if reasons else rows


def _escapes(options: Mapping[str, str], form: CsvForm) -> dict[str, str]:
    """Return options with which a doubled quote is one quote, and no other character escapes anything."""
    if not form.quote or form.escape != form.quote:
        return {}
    # If escape and quote are equal, Spark uses NUL as the escape of the escape, and drops NUL from quoted fields.
    wanted = {"escape": form.quote, "charToEscapeQuoteEscaping": form.quote}
    return {name: value for name, value in wanted.items() if not _has(options, name)}


def _has(options: Mapping[str, str], *names: str) -> bool:
    wanted = {name.lower() for name in names}
    return any(name.lower() in wanted for name in options)


def _is_on(options: Mapping[str, str], wanted: str) -> bool:
    return any(name.lower() == wanted and value.lower() == "true" for name, value in options.items())


def _looked(
    spark: SparkSession,
    discovering: SparkSession,
    paths: list[str],
    options: dict[str, str],
    form: CsvForm,
    names: list[str],
) -> tuple[CsvLook, dict[str, str]]:
    """Return facts about the lines, and the options with which Spark reads such lines correctly."""
    if form.is_of_wide_characters:
        several = {} if _has(options, "multiline") else {"multiLine": "true"}
        return CsvLook(
            has_open_lines=False, has_foreign_bytes=False, line_end="", headers_to_compare=(), has_headers=False
        ), options | several
    compare_headers = _is_on(options, "header") and any(map(_is_made_up, enumerate(names)))
    look = look_at(spark, discovering, paths, options, form, compare_headers=compare_headers)
    if look.has_open_lines and not _is_on(options, "multiline"):
        if _has(options, "multiline"):
            raise JobUsageError(f"{', '.join(paths)} has fields over several lines, and multiLine is false.")
        options = {**options, "multiLine": "true"}
    if _is_on(options, "multiline") and not _has(options, "linesep"):
        if not look.line_end:
            raise JobError(
                f"{', '.join(paths)} cannot be read together: fields go over several lines, and some files end lines "
                "with CR LF, others with LF. Load them one after the other."
            )
        # Without lineSep Spark detects it, and normalises line breaks within quotes.
        options = {**options, "lineSep": look.line_end}
    return look, options


def _no_rows(spark: SparkSession, paths: list[str], options: dict[str, str]) -> DataFrame:
    """Return no rows, of files in which Spark has found no column.

    Raises:
        JobError: the files have rows nevertheless.
    """
    if not spark.read.format("csv").options(**options).schema("any STRING").load(paths).isEmpty():
        raise JobError(f"{', '.join(paths)} has no columns.")
    return spark.range(0).select()


def _check_names(paths: list[str], names: Collection[str], form: CsvForm) -> None:
    if any(_REPLACEMENT in name for name in names):
        raise JobError(
            f"{', '.join(paths)} has a header that is not {form.encoding or 'UTF-8'}: --read-option encoding=... says "
            "what it is."
        )


def _check_free(paths: list[str], names: list[str], taken: Collection[str | None]) -> None:
    """Refuse a column with the name of the column for lines that do not fit: Spark would mix up the two.

    Raises:
        JobError: there is one.
    """
    for name in names:
        if name in taken:
            raise JobError(
                f"{', '.join(paths)} has a column {name}, which is Spark's name for lines that do not fit: --schema "
                "gives the columns other names."
            )


def _check_places(schema: list[str], header: list[str]) -> None:
    """Refuse a schema that has the header's names in another order: columns of a schema are taken by position.

    Raises:
        JobUsageError: a name is at another position.
    """
    places = {name.lower(): place for place, name in enumerate(header)}
    for place, name in enumerate(schema):
        if places.get(name.lower(), place) != place:
            raise JobUsageError(
                f"--schema has {name} as column {place + 1}, and the header has it as column "
                f"{places[name.lower()] + 1}: columns of a schema are taken by position. The header is "
                f"{', '.join(header)}."
            )


def _reasons(
    columns: StructType, corrupt: str | None, form: CsvForm, look: CsvLook, options: Mapping[str, str]
) -> list[Column]:
    """Return checks of lines that Spark accepted. Each is null if the line can be loaded. Good files need no checks."""
    texts = [each.name for each in columns if isinstance(each.dataType, StringType)]
    reasons = []
    if texts and (look.has_foreign_bytes or form.encoding):
        sentence = f"the line is not {form.encoding or 'UTF-8'}: --read-option encoding=... says what it is"
        foreign = [F.coalesce(column(name).contains(_REPLACEMENT), F.lit(False)) for name in texts]
        reasons.append(F.when(reduce(or_, foreign), F.lit(sentence)))
    plain = [each.name for each in columns if each.name != corrupt]
    if options.get("lineSep") == "\n" and _is_on(options, "multiline") and plain and plain[-1] in texts:
        sentence = "the line ends with CR LF, and the first line of the file does not"
        reasons.append(F.when(column(plain[-1]).endswith("\r"), F.lit(sentence)))
    return reasons


def needing_all_columns(rows: DataFrame) -> DataFrame:
    """Return the same rows, of which every query reads all columns.

    Spark does not parse fields that a query leaves out, and so does not notice that they do not fit. The queries that
    count bad lines, write them and leave them out would each find different ones.
    """
    needed = [F.isnull(column(name)).cast("int") for name in rows.columns]
    # The condition is true for every row. An optimizer that could prove that would drop it, and the columns with it.
    return rows.where(F.greatest(F.lit(0), F.lit(1), *needed) == F.lit(1))


# Inferred types


def _with_times_as_text(
    spark: SparkSession, paths: list[str], options: dict[str, str], columns: StructType
) -> StructType:
    """Return the columns that Spark inferred, with times without a date as text: Spark takes these as times of
    today."""
    found = [each.name for each in columns if isinstance(each.dataType, TimestampType | TimestampNTZType)]
    if not found or _has(options, "timestampformat"):
        return columns
    texts = _with_type(columns, found, StringType())
    first = spark.read.format("csv").options(**options).schema(texts).load(paths).limit(_SAMPLE_LINES)
    undated = first.agg(*[F.max(column(name).rlike(UNDATED)) for name in found]).first()
    return _with_type(columns, [name for name, is_so in zip(found, undated or (), strict=False) if is_so], StringType())


def _with_type(columns: StructType, names: Collection[str], kind: DataType) -> StructType:
    return StructType([StructField(each.name, kind) if each.name in names else each for each in columns])


# Headers


def _header_check(
    discovering: SparkSession, found: DataFrame, options: dict[str, str], look: CsvLook
) -> dict[str, str]:
    """Return options with which Spark refuses a file with other columns than ``found``. By default it takes columns by
    position.

    Raises:
        JobError: a file has other columns, and Spark's own check would not notice.
    """
    if _has(options, "enforceschema") or not _is_on(options, "header"):
        return {}
    if not any(map(_is_made_up, enumerate(found.columns))):
        return {"enforceSchema": "false"}
    # Spark's check ignores names that Spark itself gave to columns without a name, or with a repeated name.
    files = list(look.headers_to_compare) if look.has_headers else found.inputFiles()
    for file in files if len(found.inputFiles()) > 1 else []:
        path = unquote(file)
        of_folders = {part.partition("=")[0] for part in path.split("/") if "=" in part}
        expected = [name for name in found.columns if name not in of_folders]
        reader = discovering.read.format("csv").options(**{**options, "inferSchema": "false"})
        own = reader.load(_GLOB.sub(r"\\\g<0>", path)).columns
        if own and own != expected:
            raise JobError(f"{path} cannot be read: {OTHER_HEADER}")
    return {}


def _is_made_up(place_and_name: tuple[int, str]) -> bool:
    """Return whether Spark may have given this name, which then ends with the column's index."""
    place, name = place_and_name
    return name.endswith(str(place))
