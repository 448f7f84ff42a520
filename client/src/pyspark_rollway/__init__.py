"""Spark looks for packages named ``pyspark_*`` and registers their ``DefaultSource``: ``format("rollway")``."""

from rollway.spark.source import RollwayDataSource as DefaultSource

__all__ = ["DefaultSource"]
