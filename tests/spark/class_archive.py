"""Writes the archive of classes from which the JVMs of the tests start: ``python -m tests.spark.class_archive``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyarrow import RecordBatch

from bench.spark_constant import ConstantSource
from tests.spark.conftest import end_session, spark_environment, start_session
from tests.support.quick_java import ARCHIVE, QUICK_JAVA


def _same(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    yield from batches


def _use_spark(directory: Path) -> None:
    """Use what the tests use, so that its classes are in the archive, and wait until the JVM has ended."""
    session = start_session(directory)
    session.dataSource.register(ConstantSource)
    options = {"rows": "100", "tasks": "2", "valueBytes": "10"}
    rows = session.read.format("constant_arrow").options(**options).load().select("offset", "value")
    same = rows.mapInArrow(_same, "offset long, value binary")
    for form in ("parquet", "json"):
        path = str(directory / form)
        same.write.format(form).save(path)
        assert session.read.format(form).load(path).groupBy("offset").count().orderBy("offset").count() == 50
    stream = session.readStream.schema("offset long, value binary").parquet(str(directory / "parquet"))
    query = stream.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()
    end_session(session)


def main() -> int:
    """Write the archive: the JVM does, as it ends."""
    with tempfile.TemporaryDirectory() as name:
        new = Path(name) / ARCHIVE.name
        os.environ.update(spark_environment())
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={new} -Xlog:disable"
        _use_spark(Path(name))
        if not new.exists():
            print("This Java writes no archive of classes: the tests go without.")
            return 0
        shutil.move(new, ARCHIVE)
    print(f"wrote {ARCHIVE}: {ARCHIVE.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
