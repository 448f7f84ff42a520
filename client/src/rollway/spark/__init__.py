"""Topics as DataFrames, in batches and streams: ``spark.read.format("rollway")``, ``df.write.format("rollway")``.

Spark finds the format by itself, through the package ``pyspark_rollway``.
"""
