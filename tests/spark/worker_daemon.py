"""Spark's daemon of Python workers, with all loaded that they need: a worker is a fork of it, and there are many.

Spark's own daemon has each of its workers load numpy, Arrow and this project anew, which was half of the CPU time of
the tests with Spark. Spark forks before anything is loaded, since threads do not survive a fork. Here nothing that is
loaded starts a thread that a worker would miss.
"""

from __future__ import annotations

import importlib
import os

from pyspark.daemon import manager

_LOADED = (
    "pyspark.worker",
    "pyspark_rollway",
    "rollway.spark.read.batch_reader",
    "rollway.spark.write.batch_writer",
    "rollway.spark.read.stream_reader",
    "rollway.spark.write.stream_writer",
)

if __name__ == "__main__":
    # OpenBLAS starts its threads when numpy is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _LOADED:
        importlib.import_module(name)
    manager()
