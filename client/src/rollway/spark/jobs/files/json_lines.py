"""Lines of JSON: each is kept unchanged, and its fields are columns for expressions.

A line is not parsed and written again: numbers, the order of fields, empty objects and nulls stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StringType, StructField, StructType

from rollway.spark.jobs.columns import LINE, LINE_REASON, column, quoted
from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.files.discovering import CASE_SENSITIVE, discovering_session, folder_columns, is_case_sensitive

DOES_NOT_FIT = "the line does not fit the columns"
NOT_UTF_8 = "the line is not UTF-8: --read-option encoding=... says what it is"
NO_OBJECT = "the line is not one JSON object: --read-option multiLine=true reads a document over several lines"

_PARSED, _TEXTS = "__rollway_parsed", "__rollway_texts"
_WHITE_SPACE = " \t\r\n"

# Numbers outside of strings, each with the text since the previous one. The quantifiers are possessive, so that a long
# line needs no stack.
_NUMBERS = r'\G((?:[^"\d-]++|-(?!\d)|"(?:[^"\\]++|\\.)*+")*+)(-?\d[-+.\deE]*+)'

_STRICT = {"allowsinglequotes": "false"}

_OF_OTHERS = frozenset({"encoding", "charset", "wholetext", "mode", "columnnameofcorruptrecord"})


def read_lines(
    spark: SparkSession, discovering: SparkSession, paths: list[str], options: Mapping[str, str], **own: str
) -> tuple[DataFrame, list[str]]:
    """Return the lines of files as ``value``, byte by byte, with the columns of folders, and the names of the latter.

    Raises:
        PySparkException: there are no such files.
    """
    chosen = {name: each for name, each in options.items() if name.lower() not in _OF_OTHERS} | own
    folders = folder_columns(discovering, paths, chosen)
    columns = ["value STRING", *(f"{quoted(name)} STRING" for name in folders)]
    return spark.read.format("text").options(**chosen).schema(", ".join(columns)).load(paths), folders


def read_json_lines(
    spark: SparkSession,
    paths: list[str],
    options: dict[str, str],
    schema: StructType | None,
    corrupt: str,
    *,
    with_columns: bool,
) -> DataFrame:
    """Return rows with ``LINE``, ``LINE_REASON``, ``corrupt``, and the columns of ``schema`` or the inferred ones.

    Without ``with_columns`` none are inferred, and the files are read once. Names that differ only by case are
    different columns.

    Raises:
        JobError: no line is JSON, or none has a field, although columns are requested.
        PySparkException: there are no such files, or a line has a field twice.
    """
    discovering = discovering_session(spark, {CASE_SENSITIVE: "true"})
    lines, folders = read_lines(spark, discovering, paths, options)
    lines = lines.where(F.trim("value", F.lit(_WHITE_SPACE)) != "")
    columns = schema
    if columns is None and with_columns:
        columns = _found(discovering, paths, options, corrupt)
        if not columns.names:
            if not lines.isEmpty():
                raise JobError(f"{', '.join(paths)} has no columns: its lines are JSON without a field.")
            return spark.range(0).select()
    line = F.col("value").alias(LINE)
    if columns is None:
        reason = F.coalesce(_not_utf_8(), _no_object(options)).alias(LINE_REASON)
        return lines.select(line, reason, *map(column, folders))
    own = [each for each in columns if each.name not in (corrupt, *folders)]
    fields = [*own, StructField(corrupt, StringType())]
    mode = next((value for name, value in options.items() if name.lower() == "mode"), "").upper()
    given = {name: value for name, value in options.items() if name.lower() not in _OF_OTHERS}
    given |= {"columnNameOfCorruptRecord": corrupt, "mode": "FAILFAST" if mode == "FAILFAST" else "PERMISSIVE"}
    texts = [each for each in own if isinstance(each.dataType, StringType)]
    misspelt = None if schema is None or is_case_sensitive(spark) else _misspelt(F.col("value"), StructType(own))
    parts = [_by_place(F.from_json("value", StructType(fields), given), fields).alias(_PARSED)]
    if texts:
        # Spark reformats a number that is requested as text.
        as_text = F.regexp_replace("value", _NUMBERS, '$1"$2"')
        parsed = F.from_json(as_text, StructType(texts), {**given, "mode": "PERMISSIVE"})
        parts.append(_by_place(parsed, texts).alias(_TEXTS))
    rows = lines.select("value", *map(column, folders), *parts)
    bad_line = F.col(_PARSED)[str(len(own))]
    reason = F.coalesce(
        _not_utf_8(),
        F.when(bad_line.isNotNull(), F.lit(DOES_NOT_FIT)),
        _no_object(options),
        *([] if misspelt is None else [misspelt]),
    )
    chosen = [F.col(_PARSED)[str(place)] for place in range(len(own))]
    for place, each in enumerate(texts):
        at = own.index(each)
        # Numbers within an object stay numbers.
        is_whole = chosen[at].startswith("{") | chosen[at].startswith("[")
        chosen[at] = F.when(is_whole, chosen[at]).otherwise(F.coalesce(F.col(_TEXTS)[str(place)], chosen[at]))
    if mode == "PERMISSIVE":
        # The user requests bad lines.
        reason = F.lit(None).cast("string")
    named = [found.alias(each.name) for found, each in zip(chosen, own, strict=True)]
    rows = rows.select(*named, *map(column, folders), bad_line.alias(corrupt), line, reason.alias(LINE_REASON))
    return rows.where(F.col(LINE_REASON).isNull()) if mode == "DROPMALFORMED" else rows


def _found(discovering: SparkSession, paths: list[str], options: dict[str, str], corrupt: str) -> StructType:
    found = discovering.read.format("json").options(**options).load(paths).schema
    if found.names == [corrupt]:
        raise JobError(
            f"{', '.join(paths)} has no line that is JSON: a document over several lines needs --read-option "
            "multiLine=true."
        )
    return found


def _by_place(struct: Column, fields: list[StructField]) -> Column:
    """Return ``struct`` with fields named 0, 1, ...: Spark confuses names that differ only by case."""
    return struct.cast(StructType([StructField(str(place), each.dataType) for place, each in enumerate(fields)]))


def _not_utf_8() -> Column:
    return F.when(~F.is_valid_utf8("value"), F.lit(NOT_UTF_8))


def _no_object(options: Mapping[str, str]) -> Column:
    """Check that a line is one object. Within brackets, text behind an object is an error, or a second element.

    Text in single quotes is not JSON, unless ``options`` allow it.
    """
    allowed = {name.lower(): value for name, value in options.items() if name.lower().startswith("allow")}
    parsing = {"mode": "PERMISSIVE", **_STRICT, **allowed}
    elements = F.from_json(F.concat(F.lit("["), "value", F.lit("]")), "array<struct<_: int>>", parsing)
    is_one = F.ltrim("value", F.lit(_WHITE_SPACE)).startswith("{") & (F.size(elements) == 1)
    return F.when(~F.coalesce(is_one, F.lit(False)), F.lit(NO_OBJECT))


def _misspelt(text: Column, columns: StructType, above: str = "") -> Column:
    """Return the reason why ``text`` lacks a column although it has one that differs by case; null if there is none."""
    keys = F.json_object_keys(text)
    lower = F.transform(keys, F.lower)
    reasons = [
        F.when(
            ~F.array_contains(keys, name) & F.array_contains(lower, name.lower()),
            F.lit(f"the line has no field {above}{name}, but one whose name differs from it by case"),
        )
        for name in columns.names
    ]
    reasons += [
        _misspelt(F.get_json_object(text, f"$['{each.name}']"), each.dataType, f"{above}{each.name}.")
        for each in columns
        if isinstance(each.dataType, StructType) and each.dataType.names and "'" not in each.name
    ]
    return F.coalesce(*reasons)
