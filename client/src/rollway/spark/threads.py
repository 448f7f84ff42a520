"""Writes with ``format("rollway")`` in threads that did not create the session.

Spark looks up a format that is written in Python in the *active* session, and only the thread that created the session
has an active one. In any other thread ``df.write.format("rollway").save()`` and ``writeStream.start()`` fail with
``DATA_SOURCE_NOT_FOUND``, although reads work there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make ``spark`` the active session of this thread within the block. Afterwards restore the previous one.

    As a decorator it does so for each call: ``pool.map(active_session(spark)(save), parts)``. A session of Spark
    Connect is active in all threads; for it nothing is done.

    Thread: the one that writes. Nested blocks may use other sessions.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        yield
        return
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - there is no public way
    try:
        yield
    finally:
        # A JVM that has ended has no threads, and its own error says more.
        with suppress(Py4JError):
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()
