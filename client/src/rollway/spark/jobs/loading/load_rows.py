"""The rows of a load, checked against the limits and the retention of the topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rollway.spark.jobs.errors import JobError, RejectedRowsError
from rollway.spark.jobs.expressions import REASON, SOURCE
from rollway.spark.jobs.topic_limits import TopicLimits

# An error of a row in a task arrives in the midst of Java's message.
_REJECT_MARK = "row cannot become a record: "
_EXPIRED_MARK = "row is not kept: "
_REJECTED, _EXPIRED = (
    re.compile(re.escape(mark) + r"(.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE) for mark in (_REJECT_MARK, _EXPIRED_MARK)
)

_EXAMPLE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Census:
    """The counts of all rows: rows that can be records, and rejected rows by reason."""

    rows: int
    size_bytes: int
    expired: int
    """Number of ``rows`` that are older than the topic keeps."""
    oldest: str
    rejected: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """Rows as records, or with the reason why they cannot be records."""

    rows: DataFrame
    limits: TopicLimits
    topic: str
    topic_exists: bool
    kept_from_ms: int | None
    """The oldest timestamp that is allowed; ``None`` if age does not matter."""

    @property
    def good(self) -> DataFrame:
        """The rows that can be records, with the columns of records only."""
        return self.rows.where(F.col(REASON).isNull()).drop(REASON, SOURCE)

    @property
    def rejects(self) -> DataFrame:
        """The rejected rows: ``reason``, and ``row`` as text."""
        return self.rows.where(F.col(REASON).isNotNull()).select(
            F.col(REASON).alias("reason"), F.col(SOURCE).alias("row")
        )

    def example_of_rejects(self) -> str:
        """Return the end of a sentence about rejects: the first one that Spark finds, as an example."""
        found = self.rejects.first()
        row = "" if found is None or found["row"] is None else " ".join(str(found["row"]).split())
        return f", e.g. {row[:_EXAMPLE_CHARACTERS_MAX]}" if row else ""

    def with_rejects_for(self, topic: str) -> DataFrame:
        """Return all rows with the column ``topic``: rejected rows go to ``topic``, as JSON."""
        is_reject = F.col(REASON).isNotNull()
        reject = F.to_json(F.struct(F.col(REASON).alias("reason"), F.col(SOURCE).alias("row"))).cast("binary")
        columns = [name for name in self.rows.columns if name not in (REASON, SOURCE)]
        # No other column of a rejected row is certain to be valid for a topic.
        others = [F.when(~is_reject, F.col(name)).alias(name) for name in columns if name != "value"]
        return self.rows.select(
            *others,
            F.when(is_reject, reject).otherwise(F.col("value")).alias("value"),
            F.when(is_reject, F.lit(topic)).otherwise(F.lit(self.topic)).alias("topic"),
        )

    def ending_at_the_first_reject(self) -> DataFrame:
        """Return all rows. A row that is rejected or too old raises an error, which ``told_of_rows`` converts."""
        reject = F.concat(F.lit(_REJECT_MARK), F.col(REASON), F.lit(": "), F.coalesce(SOURCE, F.lit("")))
        value = (
            F.when(F.col(REASON).isNotNull(), F.raise_error(reject).cast("binary"))
            .when(self._is_expired, _raise_expired(self._too_old) if self.kept_from_ms is not None else F.lit(None))
            .otherwise(F.col("value"))
        )
        return self.rows.withColumn("value", value).drop(REASON, SOURCE)

    def census(self) -> Census:
        """Read every row once."""
        columns = self.rows.columns
        parts = [F.octet_length(name).cast("bigint") for name in ("key", "value") if name in columns]
        aggregates = {
            "rows": F.count(F.lit(1)),
            "size_bytes": F.sum(sum((F.coalesce(part, F.lit(0)) for part in parts), start=F.lit(0))),
            "expired": F.count_if(self._is_expired),
            "oldest": F.min("timestamp").cast("string") if "timestamp" in columns else F.lit(""),
        }
        grouped = self.rows.groupBy(REASON).agg(*(each.alias(name) for name, each in aggregates.items()))
        found = {each[REASON]: each for each in grouped.collect()}
        good = found.pop(None, None)
        rejected = {reason: int(found[reason]["rows"]) for reason in sorted(found)}
        if good is None:
            return Census(0, 0, 0, "", rejected)
        return Census(int(good["rows"]), int(good["size_bytes"]), int(good["expired"]), str(good["oldest"]), rejected)

    def check_age(self, census: Census) -> None:
        """Refuse rows that retention would delete soon after the load.

        Raises:
            JobError: there are such rows.
        """
        if census.expired:
            raise JobError(
                f"Rows ({census.expired:,} of {census.rows:,}, the oldest of {census.oldest}) are {self._too_old}"
            )

    @property
    def _is_expired(self) -> Column:
        return F.lit(False) if self.kept_from_ms is None else _is_before(self.kept_from_ms)

    @property
    def _too_old(self) -> str:
        return self.limits.too_old(self.topic, "loaded", exists=self.topic_exists)


def ending_at_the_first_expired(rows: DataFrame, limits: TopicLimits, topic: str, done: str) -> DataFrame:
    """Return all rows. A row that is older than ``topic`` keeps raises an error, which ``told_of_rows`` converts."""
    if limits.kept_from_ms is None:
        return rows
    expired = F.when(_is_before(limits.kept_from_ms), _raise_expired(limits.too_old(topic, done)))
    return rows.withColumn("value", expired.otherwise(F.col("value")))


def _is_before(kept_from_ms: int) -> Column:
    return F.col("timestamp") < F.timestamp_millis(F.lit(kept_from_ms))


def _raise_expired(too_old: str) -> Column:
    when = F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ssXXX")
    return F.raise_error(F.concat(F.lit(f"{_EXPIRED_MARK}A row of "), when, F.lit(f" is {too_old}"))).cast("binary")


@contextmanager
def told_of_rows() -> Iterator[None]:
    """Convert errors of rows of ``ending_at_the_first_reject`` or ``..._expired`` into one sentence.

    Raises:
        RejectedRowsError: a row cannot become a record.
        JobError: a row is older than the topic keeps.
    """
    try:
        yield
    except PySparkException as error:
        if (expired := _EXPIRED.search(str(error))) is not None:
            raise JobError(expired[1]) from None
        if (rejected := _REJECTED.search(str(error))) is not None:
            raise RejectedRowsError(
                f"A row cannot become a record: {rejected[1].strip()} Nothing was loaded; --rejects-to or "
                "--rejects-topic keeps such rows apart."
            ) from None
        raise
