"""Writing ``format("rollway")`` in threads that did not make the session.

Spark looks a format that is written in Python up in the *active* session, and Spark has one only in the thread that
made the session. In any other thread ``df.write.format("rollway").save()`` and ``writeStream.start()`` fail with
``DATA_SOURCE_NOT_FOUND``, though reads work there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make ``spark`` the active session of this thread within the block; afterwards the thread has the one it had.

    As a decorator it does so for each call: ``pool.map(active_session(spark)(save), parts)``. A session of Spark
    Connect is active in all threads, and nothing is done.

    Thread: the one that writes. Its other blocks may be about other sessions.
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
        # A JVM that has ended has no threads either, and what ended it says more.
        with suppress(Py4JError):
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()
