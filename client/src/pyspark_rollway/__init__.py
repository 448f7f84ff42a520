"""The package by whose name Spark registers ``format("rollway")``.

Spark imports packages named ``pyspark_*`` and registers the ``DefaultSource`` of each.
"""

from rollway.spark.source import RollwayDataSource as DefaultSource

__all__ = ["DefaultSource"]
