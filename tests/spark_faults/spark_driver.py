"""A Spark driver in a process of its own, to be killed: one command for each line of its input, one answer each.

``python -m tests.spark_faults.spark_driver MASTER SETTINGS`` prints ``{"ready": ...}`` and then takes::

    {"do": "load", "rows": 1000, "tasks": 4, "options": {...}, "faults": [{"task", "attempts", "row", "how", "gate"}]}
    {"do": "attempts"}
    {"do": "stream", "input": DIRECTORY, "checkpoint": DIRECTORY, "options": {...}}
    {"do": "stop"}

A fault is to ``exit``, to ``raise``, or to ``wait`` at the gate, a port of this machine, until that closes the
connection. ``attempts`` answers with what Spark ran for the last load.

Functions that run in Spark's workers are of ``__main__``, and so travel by value.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.taskcontext import TaskContext

VALUE = "concat(lpad(cast(id AS string), 12, '0'), repeat('x', 88))"


def make_session(master: str, settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("faults")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def faulty(faults: list[dict[str, Any]]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on until the row of a fault."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        mine = [
            fault
            for fault in faults
            if fault["task"] == context.partitionId() and context.attemptNumber() < fault["attempts"]
        ]
        count = 0
        for batch in batches:
            for fault in mine:
                if count <= fault["row"] < count + batch.num_rows:
                    if fault["how"] == "wait":
                        with socket.create_connection(("127.0.0.1", fault["gate"])) as connection:
                            connection.recv(1)
                        continue
                    yield batch.slice(0, fault["row"] - count)
                    if fault["how"] == "exit":
                        os._exit(7)
                    raise RuntimeError("this attempt was to fail")
            yield batch
            count += batch.num_rows

    return pass_on


def rows_of(spark: SparkSession, command: dict[str, Any]) -> DataFrame:
    numbers = spark.range(command.get("first", 0), command["rows"], 1, command["tasks"])
    rows = numbers.selectExpr("cast(id AS string) AS key", f"{VALUE} AS value")
    faults = command.get("faults", [])
    return rows.mapInArrow(faulty(faults), rows.schema) if faults else rows


def load(spark: SparkSession, command: dict[str, Any]) -> None:
    rows_of(spark, command).write.format("rollway").mode("append").options(**command["options"]).save()


def stream(spark: SparkSession, command: dict[str, Any]) -> None:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(command["input"])
    rows = lines.selectExpr("value AS key", f"{VALUE.replace('id', 'value')} AS value")
    writing = rows.writeStream.format("rollway").options(**command["options"]).outputMode("append")
    query = writing.option("checkpointLocation", command["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()


def attempts(spark: SparkSession) -> list[dict[str, Any]]:
    """What Spark's own status store says of the last stage; it is asked when all events have reached it."""
    scala = spark.sparkContext._jsc.sc()
    scala.listenerBus().waitUntilEmpty()
    store = scala.statusStore()
    job = store.jobsList(None).head()
    stage = store.lastStageAttempt(job.stageIds().head())
    tasks = store.taskList(stage.stageId(), stage.attemptId(), 1000)
    return [
        {
            "task": task.index(),
            "attempt": task.attempt(),
            "is_copy": task.speculative(),
            "host": task.host(),
            "status": task.status(),
        }
        for task in (tasks.apply(place) for place in range(tasks.size()))
    ]


def main() -> None:
    spark = make_session(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "stop":
            break
        answer: dict[str, Any] = {"ok": True}
        try:
            if command["do"] == "attempts":
                answer["attempts"] = attempts(spark)
            else:
                {"load": load, "stream": stream}[command["do"]](spark, command)
        except Exception as error:  # noqa: BLE001 - told to whoever sent the command
            answer = {"ok": False, "error": str(error)}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
