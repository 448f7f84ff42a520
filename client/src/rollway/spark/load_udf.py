"""A UDF that sends rows. Many users write one first, but it loses and repeats rows. ``bulk_load`` does neither."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs lag behind
from pyspark.sql.pandas.types import from_arrow_schema

from rollway.client import RollwayClient, RollwayError
from rollway.spark.errors import OptionError
from rollway.spark.options.options import WriteOptions
from rollway.spark.schemas import check_write_schema
from rollway.spark.write.batch_writer import run_task
from rollway.spark.write.load_jobs import LoadPlan, plan_load

WARNING = (
    "a UDF that sends is at least once at best: Spark leaves it out where its result is not used, as in count(), "
    "and runs it again for every action and every task that is tried again. Use df.write.format('rollway') or bulk_load"
)


class UnsafeLoadWarning(UserWarning):
    """Rows may be sent twice, or not at all. Every call of ``load_udf`` warns with this category."""


def load_udf(url: str, topic: str, **options: object) -> Callable[[Any, Any], Column]:
    """Return a UDF of a key and a value that sends them, and is 1 for each row. The sum is the number of sent rows.

    **Not safe.** Spark promises nothing about how often it calls a UDF. A ``count()`` over its result sends nothing,
    because the query does not use the column. Two actions send every row twice, and so does a retried task. Nothing is
    transactional, and rows that were sent before a failure stay. ``bulk_load`` and ``df.write`` load every row once.
    This UDF is for queries that need such a column in their midst, and tolerate lost and repeated rows.

    Example::

        send = load_udf("http://127.0.0.1:8080", "readings")
        sent = df.select(send("key", "value").alias("sent")).agg({"sent": "sum"}).first()[0]

    Raises:
        OptionError: an option is unknown, or its value is not valid.
        TopicNotFoundError: there is no such topic.
    """
    warnings.warn(WARNING, UnsafeLoadWarning, stacklevel=2)
    given = {name: str(value) for name, value in options.items()}
    parsed = WriteOptions.parse({"url": url, "topic": topic, **given, "deliveryMode": "atleastonce"})
    with RollwayClient(parsed.client) as client:
        plan = plan_load(client, parsed)
    udf: Any = arrow_udf(_sender(plan), "bigint").asNondeterministic()
    return cast("Callable[[Any, Any], Column]", udf)


def _sender(plan: LoadPlan) -> Callable[[pa.Array, pa.Array], pa.Array]:
    def send(key: pa.Array, value: pa.Array) -> pa.Array:
        rows = pa.record_batch([key, value], names=["key", "value"])
        try:
            check_write_schema(from_arrow_schema(rows.schema), topic=plan.options.topic)
            run_task(plan, iter([rows]))
        except (RollwayError, OptionError) as error:
            # Spark shows the traceback, which does not help the author of the query.
            raise error.with_traceback(None) from None
        return pa.repeat(pa.scalar(1, pa.int64()), len(value))

    return send
