"""Topics as DataFrames, in batches and streams: ``spark.read.format("rollway")``, ``df.write.format("rollway")``.

Spark finds the format without configuration, through the package ``pyspark_rollway``.

source          the data source: checks options and schemas, makes readers and writers
bulk_load       a load as one call, with a report
load_udf        a UDF that sends rows, with its risks
read/           batches and streams: planned on the driver, fetched in the tasks
write/          one load job for each write, whose tasks send in parallel; rejected rows; the report
options/        Kafka's options and ours; for an unknown option, the nearest name
jobs/           load, export, copy, compare, replay; the command ``rollway-spark``
schemas         the columns of reads and writes
java  threads   calls of Spark's JVM, and threads of tasks
errors  actionable   errors of this package, and the sentence that says what to do about each
"""
