"""Discovery of the columns of files, without a change to the settings of the user's session."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

_OWN_SETTINGS = "spark.sql."
_FOLDER_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"
CASE_SENSITIVE = "spark.sql.caseSensitive"


def discovering_session(spark: SparkSession, others: Mapping[str, str] | None = None) -> SparkSession:
    """Make a second session with the settings of ``spark``, over which ``others`` win. In it, values in names of
    folders, such as ``zip=01234``, stay text."""
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if name.startswith(_OWN_SETTINGS) and spark.conf.isModifiable(name):
            session.conf.set(name, value)
    session.conf.set(_FOLDER_TYPES, "false")
    for name, value in (others or {}).items():
        session.conf.set(name, value)
    return session


def folder_columns(session: SparkSession, paths: list[str], options: Mapping[str, str]) -> list[str]:
    """Return the columns in the names of folders: ``zip`` of ``zip=01234/part.csv``.

    Raises:
        PySparkException: there are no such files.
    """
    return session.read.format("text").options(**options).load(paths).columns[1:]


def with_folders(columns: StructType, folders: list[str]) -> StructType:
    """Return ``columns`` with the missing columns of folders, as text."""
    known = {each.lower() for each in columns.names}
    return StructType([*columns, *(StructField(name, StringType()) for name in folders if name.lower() not in known)])


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether the session distinguishes ``userId`` and ``userid``."""
    return str(spark.conf.get(CASE_SENSITIVE)).lower() == "true"
